/* Copyright: (c) 2026, gpufleet.nvidia contributors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
/* nvml-double: makes, changes and shows the state that the library plays from. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "state.h"

static const char usage[] =
    "nvml-double create [--driver VERSION] [--seed TEXT] --product NAME --count N [--product NAME --count N ...] STATE\n"
    "nvml-double set STATE [gpu=N|all] KEY=VALUE ... [gpu=N KEY=VALUE ...]\n"
    "nvml-double show STATE\n"
    "nvml-double reset STATE gpu=N|all\n"
    "nvml-double reload STATE        the driver is unloaded and loaded\n"
    "nvml-double reboot STATE\n"
    "nvml-double products            the table of products, as JSON\n"
    "nvml-double structs             sizes and offsets of NVML's structs, as JSON\n"
    "README.md beside the sources lists the keys.\n";

__attribute__((format(printf, 1, 2), noreturn)) static void stop(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "nvml-double: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

/* --- keys --- */

enum type { NUMBER, LONG, TEXT, WORD };

struct key {
    const char *name;
    enum type type;
    size_t at, size;
    const char *words; /* of a WORD: in the order of their numbers, with a space after each */
};

#define N(struct_, name, field) {name, NUMBER, offsetof(struct struct_, field), 0, NULL}
#define L(struct_, name, field) {name, LONG, offsetof(struct struct_, field), 0, NULL}
#define T(struct_, name, field) {name, TEXT, offsetof(struct struct_, field), sizeof ((struct struct_ *)0)->field, NULL}
#define W(struct_, name, field, words) {name, WORD, offsetof(struct struct_, field), 0, words}

static const struct key host_keys[] = {
    T(host, "driver", driver),
    T(host, "nvml", nvml),
    N(host, "cuda", cuda),
    W(host, "permissions", permissions, "root deny allow "),
    W(host, "driver_state", driver_state, "loaded unloaded mismatch "),
    W(host, "policy", policy, "spread ascending script "),
    N(host, "swapped_ids", swapped_ids),
    N(host, "profiles_without_mig", profiles_without_mig),
    N(host, "profile_count", profile_count),
    N(host, "shift_minors", shift_minors),
    {0},
};

static const struct key gpu_keys[] = {
    T(gpu, "product", product.key),
    T(gpu, "name", product.name),
    T(gpu, "uuid", uuid),
    T(gpu, "serial", serial),
    N(gpu, "domain", domain),
    N(gpu, "bus", bus),
    N(gpu, "device", device),
    N(gpu, "minor", minor),
    N(gpu, "module_id", module_id),
    N(gpu, "pci_device", product.pci_device),
    N(gpu, "pci_subsystem", product.pci_subsystem),
    N(gpu, "pci_class", product.pci_class),
    N(gpu, "brand", product.brand),
    N(gpu, "arch", product.arch),
    N(gpu, "cc_major", product.cc_major),
    N(gpu, "cc_minor", product.cc_minor),
    N(gpu, "cores", product.cores),
    T(gpu, "vbios", product.vbios),
    T(gpu, "part", product.part),
    T(gpu, "inforom", product.inforom),
    L(gpu, "memory", product.memory),
    L(gpu, "reserved", product.reserved),
    L(gpu, "bar1", product.bar1),
    N(gpu, "power_min", product.power_min),
    N(gpu, "power_max", product.power_max),
    N(gpu, "power_draw", product.power_draw),
    N(gpu, "power_limit", power_limit),
    N(gpu, "app_graphics", app_graphics),
    N(gpu, "app_memory", app_memory),
    N(gpu, "temperature", product.temperature),
    N(gpu, "nvlinks", product.nvlinks),
    N(gpu, "pcie_generation", product.pcie_generation),
    N(gpu, "clock_sm", product.clock_sm),
    N(gpu, "clock_memory", product.clock_memory),
    N(gpu, "rows", product.rows),
    N(gpu, "gsp", product.gsp),
    N(gpu, "ecc", product.ecc),
    N(gpu, "ecc_current", ecc_current),
    N(gpu, "ecc_pending", ecc_pending),
    L(gpu, "ecc_corrected", ecc_corrected),
    L(gpu, "ecc_uncorrected", ecc_uncorrected),
    N(gpu, "remapped_correctable", remapped_correctable),
    N(gpu, "remapped_uncorrectable", remapped_uncorrectable),
    N(gpu, "remap_pending", remap_pending),
    N(gpu, "remap_failed", remap_failed),
    N(gpu, "addressing", product.addressing),
    N(gpu, "slots", product.slots),
    N(gpu, "persistence", persistence),
    N(gpu, "compute_mode", compute_mode),
    N(gpu, "virtualization", virtualization),
    N(gpu, "display", display),
    N(gpu, "fabric_state", fabric_state),
    N(gpu, "fabric_status", fabric_status),
    N(gpu, "clique", clique),
    N(gpu, "mig_current", mig_current),
    N(gpu, "mig_pending", mig_pending),
    W(gpu, "mode_change", mode_change, "immediate reset reboot "),
    N(gpu, "clients", clients),
    N(gpu, "lost", lost),
    N(gpu, "narrow_in_wide", narrow_in_wide),
    N(gpu, "xid", xid),
    {0},
};

static const struct key profile_keys[] = {
    T(profile, "name", name),
    N(profile, "id", id),
    N(profile, "slices", slices),
    N(profile, "count", count),
    N(profile, "sms", sms),
    N(profile, "ces", ces),
    N(profile, "decs", decs),
    N(profile, "encs", encs),
    N(profile, "jpgs", jpgs),
    N(profile, "ofas", ofas),
    N(profile, "mib", mib),
    N(profile, "gfx", gfx),
    N(profile, "size", size),
    N(profile, "starts", starts),
    {0},
};

static u64 number(const char *key, const char *text, u64 most)
{
    char *rest;
    errno = 0;
    u64 value = strtoull(text, &rest, 0);
    if (!*text || *text == '-' || *rest || errno || value > most)
        stop("%s=%s: a number up to %llu is wanted", key, text, most);
    return value;
}

static uint word(const char *key, const char *words, const char *text)
{
    size_t length = strlen(text);
    uint value = 0;
    for (const char *at = words; *at; at = strchr(at, ' ') + 1, value++)
        if ((size_t)(strchr(at, ' ') - at) == length && !strncmp(at, text, length))
            return value;
    stop("%s=%s: one of these is wanted: %s", key, text, words);
}

static bool set_key(const struct key *keys, void *of, const char *name, const char *value)
{
    for (const struct key *key = keys; key->name; key++) {
        char *to = (char *)of + key->at;
        if (strcmp(key->name, name))
            continue;
        if (key->type == NUMBER)
            *(uint *)to = (uint)number(name, value, 0xffffffff);
        else if (key->type == LONG)
            *(u64 *)to = number(name, value, ~0ULL);
        else if (key->type == WORD)
            *(uint *)to = word(name, key->words, value);
        else {
            if (strlen(value) >= key->size)
                stop("%s=%s: at most %zu characters", name, value, key->size - 1);
            memset(to, 0, key->size);
            strcpy(to, value);
        }
        return true;
    }
    return false;
}

/* --- JSON --- */

static void print_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        unsigned char c = *text;
        if (c == '"' || c == '\\' || c < ' ')
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void print_keys(const struct key *keys, const void *of)
{
    for (const struct key *key = keys; key->name; key++) {
        const char *from = (const char *)of + key->at;
        printf("%s\"%s\": ", key == keys ? "" : ", ", key->name);
        if (key->type == NUMBER)
            printf("%u", *(const uint *)from);
        else if (key->type == LONG)
            printf("%llu", *(const u64 *)from);
        else if (key->type == TEXT)
            print_text(from);
        else {
            const char *at = key->words;
            for (uint i = *(const uint *)from; i; i--)
                at = strchr(at, ' ') + 1;
            printf("\"%.*s\"", (int)(strchr(at, ' ') - at), at);
        }
    }
}

static void print_profiles(const struct product *product)
{
    const char *comma = "";
    printf("\"profiles\": {");
    for (uint i = 0; i < MAX_PROFILES; i++)
        if (*product->profiles[i].name) {
            printf("%s\"%u\": {", comma, i);
            print_keys(profile_keys, &product->profiles[i]);
            printf("}");
            comma = ", ";
        }
    printf("}");
}

static void print_id(const char *name, uint id)
{
    if (id == NOBODY)
        printf(", \"%s\": null", name);
    else
        printf(", \"%s\": %u", name, id);
}

static void print_gpu(const struct gpu *gpu, uint index)
{
    const char *comma = "";
    printf("\n  {\"index\": %u, ", index);
    print_keys(gpu_keys, gpu);
    printf(",\n   ");
    print_profiles(&gpu->product);
    printf(",\n   \"instances\": [");
    for (uint id = 0; id < MAX_GIS; id++) {
        const struct gpu_instance *gi = &gpu->gis[id];
        if (!gi->used)
            continue;
        const struct profile *p = &gpu->product.profiles[gi->profile];
        printf("%s{\"gi\": %u, \"profile\": %u, \"id\": %u, \"name\": \"%s\", \"start\": %u, \"size\": %u, \"cis\": [", comma, id,
               gi->profile, p->id, p->name, gi->start, gi->size);
        comma = "";
        for (uint i = 0; i < MAX_CIS; i++) {
            const struct compute_instance *ci = &gi->cis[i];
            char uuid[UUID_SIZE], name[NAME_SIZE];
            if (!ci->used)
                continue;
            mig_uuid(gpu, id, i, uuid);
            ci_name(gpu, gi, ci->size, name, sizeof name);
            printf("%s{\"ci\": %u, \"profile\": %u, \"name\": \"%s\", \"start\": %u, \"size\": %u, \"uuid\": \"%s\"}", comma, i,
                   ci->profile, name + 4, ci->start, ci->size, uuid);
            comma = ", ";
        }
        printf("]}");
        comma = ",\n    ";
    }
    printf("],\n   \"processes\": [");
    comma = "";
    for (uint i = 0; i < MAX_PROCESSES; i++) {
        static const char *const kinds[] = {"compute", "graphics", "mps"};
        const struct process *process = &gpu->processes[i];
        if (!process->pid)
            continue;
        printf("%s{\"pid\": %u, \"kind\": \"%s\", \"memory\": %llu", comma, process->pid, kinds[process->kind], process->memory);
        print_id("gi", process->gi);
        print_id("ci", process->ci);
        printf("}");
        comma = ", ";
    }
    printf("]}");
}

static void show(const struct host *host)
{
    const char *comma = "";
    printf("{");
    print_keys(host_keys, host);
    printf(",\n \"faults\": [");
    for (uint i = 0; i < MAX_FAULTS; i++) {
        const struct fault *fault = &host->faults[i];
        if (!fault->used)
            continue;
        printf("%s{\"function\": ", comma);
        print_text(fault->function);
        printf(", \"nth\": %u, \"code\": \"%s\", \"when\": \"%s\"", fault->nth, fault->code == KILL ? "KILL" : code_name(fault->code),
               fault->when == AFTER ? "after" : "before");
        print_id("times", fault->times);
        printf("}");
        comma = ", ";
    }
    printf("],\n \"gpus\": [");
    for (uint i = 0; i < host->count; i++) {
        if (i)
            printf(",");
        print_gpu(&host->gpus[i], i);
    }
    printf("]}\n");
}

static void show_products(void)
{
    printf("{");
    for (uint i = 0; i < product_count; i++) {
        struct gpu gpu = {.product = products[i]};
        printf("%s\"%s\": {\"name\": ", i ? ",\n " : "", products[i].key);
        print_text(products[i].name);
        printf(", \"pci_device\": %u, \"arch\": %u, \"memory\": %llu, \"slots\": %u, ", gpu.product.pci_device, gpu.product.arch,
               gpu.product.memory, gpu.product.slots);
        print_profiles(&products[i]);
        printf("}");
    }
    printf("}\n");
}

/* --- structs --- */

#define S(type) printf("%s\"" #type "\": {\"size\": %zu", first++ ? "},\n " : "", sizeof(type))
#define F(type, field) printf(", \"" #field "\": %zu", offsetof(type, field))

static void show_structs(void)
{
    uint first = 0;
    printf("{");
    S(Placement); F(Placement, start); F(Placement, size);
    S(GpuInstanceProfileInfo); F(GpuInstanceProfileInfo, id); F(GpuInstanceProfileInfo, isP2pSupported);
    F(GpuInstanceProfileInfo, sliceCount); F(GpuInstanceProfileInfo, instanceCount);
    F(GpuInstanceProfileInfo, multiprocessorCount); F(GpuInstanceProfileInfo, copyEngineCount);
    F(GpuInstanceProfileInfo, decoderCount); F(GpuInstanceProfileInfo, encoderCount); F(GpuInstanceProfileInfo, jpegCount);
    F(GpuInstanceProfileInfo, ofaCount); F(GpuInstanceProfileInfo, memorySizeMB);
    S(GpuInstanceProfileInfo_v2); F(GpuInstanceProfileInfo_v2, version); F(GpuInstanceProfileInfo_v2, id);
    F(GpuInstanceProfileInfo_v2, isP2pSupported); F(GpuInstanceProfileInfo_v2, sliceCount);
    F(GpuInstanceProfileInfo_v2, instanceCount); F(GpuInstanceProfileInfo_v2, multiprocessorCount);
    F(GpuInstanceProfileInfo_v2, copyEngineCount); F(GpuInstanceProfileInfo_v2, decoderCount);
    F(GpuInstanceProfileInfo_v2, encoderCount); F(GpuInstanceProfileInfo_v2, jpegCount); F(GpuInstanceProfileInfo_v2, ofaCount);
    F(GpuInstanceProfileInfo_v2, memorySizeMB); F(GpuInstanceProfileInfo_v2, name);
    S(GpuInstanceInfo); F(GpuInstanceInfo, device); F(GpuInstanceInfo, id); F(GpuInstanceInfo, profileId);
    F(GpuInstanceInfo, placement);
    S(ComputeInstanceProfileInfo); F(ComputeInstanceProfileInfo, id); F(ComputeInstanceProfileInfo, sliceCount);
    F(ComputeInstanceProfileInfo, instanceCount); F(ComputeInstanceProfileInfo, multiprocessorCount);
    F(ComputeInstanceProfileInfo, sharedCopyEngineCount); F(ComputeInstanceProfileInfo, sharedDecoderCount);
    F(ComputeInstanceProfileInfo, sharedEncoderCount); F(ComputeInstanceProfileInfo, sharedJpegCount);
    F(ComputeInstanceProfileInfo, sharedOfaCount);
    S(ComputeInstanceProfileInfo_v2); F(ComputeInstanceProfileInfo_v2, version); F(ComputeInstanceProfileInfo_v2, id);
    F(ComputeInstanceProfileInfo_v2, sliceCount); F(ComputeInstanceProfileInfo_v2, instanceCount);
    F(ComputeInstanceProfileInfo_v2, multiprocessorCount); F(ComputeInstanceProfileInfo_v2, sharedCopyEngineCount);
    F(ComputeInstanceProfileInfo_v2, sharedDecoderCount); F(ComputeInstanceProfileInfo_v2, sharedEncoderCount);
    F(ComputeInstanceProfileInfo_v2, sharedJpegCount); F(ComputeInstanceProfileInfo_v2, sharedOfaCount);
    F(ComputeInstanceProfileInfo_v2, name);
    S(ComputeInstanceInfo); F(ComputeInstanceInfo, device); F(ComputeInstanceInfo, gpuInstance); F(ComputeInstanceInfo, id);
    F(ComputeInstanceInfo, profileId); F(ComputeInstanceInfo, placement);
    S(DeviceAttributes); F(DeviceAttributes, multiprocessorCount); F(DeviceAttributes, sharedCopyEngineCount);
    F(DeviceAttributes, sharedDecoderCount); F(DeviceAttributes, sharedEncoderCount); F(DeviceAttributes, sharedJpegCount);
    F(DeviceAttributes, sharedOfaCount); F(DeviceAttributes, gpuInstanceSliceCount);
    F(DeviceAttributes, computeInstanceSliceCount); F(DeviceAttributes, memorySizeMB);
    S(PciInfo); F(PciInfo, busIdLegacy); F(PciInfo, domain); F(PciInfo, bus); F(PciInfo, device); F(PciInfo, pciDeviceId);
    F(PciInfo, pciSubSystemId); F(PciInfo, busId);
    S(PciInfo_v2); F(PciInfo_v2, busId); F(PciInfo_v2, domain); F(PciInfo_v2, bus); F(PciInfo_v2, device);
    F(PciInfo_v2, pciDeviceId); F(PciInfo_v2, pciSubSystemId); F(PciInfo_v2, reserved0); F(PciInfo_v2, reserved1);
    F(PciInfo_v2, reserved2); F(PciInfo_v2, reserved3);
    S(PciInfoExt); F(PciInfoExt, version); F(PciInfoExt, domain); F(PciInfoExt, bus); F(PciInfoExt, device);
    F(PciInfoExt, pciDeviceId); F(PciInfoExt, pciSubSystemId); F(PciInfoExt, baseClass); F(PciInfoExt, subClass);
    F(PciInfoExt, busId);
    S(Memory); F(Memory, total); F(Memory, free); F(Memory, used);
    S(Memory_v2); F(Memory_v2, version); F(Memory_v2, total); F(Memory_v2, reserved); F(Memory_v2, free); F(Memory_v2, used);
    S(Bar1Memory); F(Bar1Memory, bar1Total); F(Bar1Memory, bar1Free); F(Bar1Memory, bar1Used);
    S(Utilization); F(Utilization, gpu); F(Utilization, memory);
    S(ProcessInfo); F(ProcessInfo, pid); F(ProcessInfo, usedGpuMemory); F(ProcessInfo, gpuInstanceId);
    F(ProcessInfo, computeInstanceId);
    S(EventData); F(EventData, device); F(EventData, eventType); F(EventData, eventData); F(EventData, gpuInstanceId);
    F(EventData, computeInstanceId);
    S(FabricInfo); F(FabricInfo, clusterUuid); F(FabricInfo, status); F(FabricInfo, cliqueId); F(FabricInfo, state);
    S(FabricInfo_v2); F(FabricInfo_v2, version); F(FabricInfo_v2, clusterUuid); F(FabricInfo_v2, status);
    F(FabricInfo_v2, cliqueId); F(FabricInfo_v2, state); F(FabricInfo_v2, healthMask);
    S(FabricInfo_v3); F(FabricInfo_v3, version); F(FabricInfo_v3, clusterUuid); F(FabricInfo_v3, status);
    F(FabricInfo_v3, cliqueId); F(FabricInfo_v3, state); F(FabricInfo_v3, healthMask); F(FabricInfo_v3, healthSummary);
    S(AddressingMode); F(AddressingMode, version); F(AddressingMode, value);
    S(Pdi); F(Pdi, version); F(Pdi, value);
    S(RowHistogram); F(RowHistogram, max); F(RowHistogram, high); F(RowHistogram, partial); F(RowHistogram, low);
    F(RowHistogram, none);
    S(Temperature_v1); F(Temperature_v1, version); F(Temperature_v1, sensorType); F(Temperature_v1, temperature);
    printf("}}\n");
}

/* --- set --- */

/* Splits "first,name=value,..." at the commas; each call gives the next part, NULL at the end. */
static char *next_part(char **rest) { return strsep(rest, ","); }

static char *value_of(char *part)
{
    char *value = part ? strchr(part, '=') : NULL;
    if (!value)
        stop("%s: NAME=VALUE is wanted", part ? part : "");
    *value = 0;
    return value + 1;
}

static void set_fault(struct host *host, char *text)
{
    struct fault fault = {.nth = 1, .times = 1, .used = 1, .code = UNKNOWN};
    char *rest = text, *function = next_part(&rest);
    if (!*function || strlen(function) >= sizeof fault.function)
        stop("fault=%s: a function's name is wanted", function);
    strcpy(fault.function, function);
    for (char *part; (part = next_part(&rest));) {
        char *value = value_of(part);
        if (!strcmp(part, "nth"))
            fault.nth = number(part, value, 1000000);
        else if (!strcmp(part, "times"))
            fault.times = strcmp(value, "forever") ? number(part, value, 1000000) : NOBODY;
        else if (!strcmp(part, "when"))
            fault.when = word(part, "before after ", value);
        else if (!strcmp(part, "code") && !strcmp(value, "KILL"))
            fault.code = KILL;
        else if (strcmp(part, "code") || !code_by_name(value, &fault.code))
            stop("fault: %s=%s: nth, times, when=before|after and code=<name of NVML's code>|KILL are known", part, value);
    }
    if (!fault.nth || !fault.times)
        stop("fault: nth and times start at 1");
    for (uint i = 0; i < MAX_FAULTS; i++)
        if (!host->faults[i].used) {
            host->faults[i] = fault;
            return;
        }
    stop("there are already %d faults", MAX_FAULTS);
}

static void set_script(struct host *host, char *text)
{
    host->script_length = 0;
    for (char *rest = text, *part; (part = next_part(&rest));) {
        if (host->script_length == MAX_SCRIPT)
            stop("script: at most %d starts", MAX_SCRIPT);
        host->script[host->script_length++] = number("script", part, 31);
    }
    host->policy = SCRIPT;
}

static void set_process(struct gpu *gpu, char *text)
{
    char *rest = text, *pid = next_part(&rest);
    struct process process = {.pid = number("process", pid, 0xfffffffe), .gi = NOBODY, .ci = NOBODY, .memory = 100ULL << 20};
    for (char *part; (part = next_part(&rest));) {
        char *value = value_of(part);
        if (!strcmp(part, "gi"))
            process.gi = number(part, value, MAX_GIS - 1);
        else if (!strcmp(part, "ci"))
            process.ci = number(part, value, MAX_CIS - 1);
        else if (!strcmp(part, "mib"))
            process.memory = number(part, value, 0xffffffff) << 20;
        else if (!strcmp(part, "kind"))
            process.kind = word(part, "compute graphics mps ", value);
        else
            stop("process: %s is unknown; gi, ci, mib and kind are known", part);
    }
    for (uint i = 0; i < MAX_PROCESSES; i++)
        if (!gpu->processes[i].pid) {
            gpu->processes[i] = process;
            return;
        }
    stop("there are already %d processes on this GPU", MAX_PROCESSES);
}

static void unset_process(struct gpu *gpu, const char *text)
{
    uint pid = strcmp(text, "all") ? number("no_process", text, 0xfffffffe) : 0;
    for (uint i = 0; i < MAX_PROCESSES; i++)
        if (!pid || gpu->processes[i].pid == pid)
            memset(&gpu->processes[i], 0, sizeof gpu->processes[i]);
}

/* instance=PROFILE-ID[@START][,ci=PROFILE-ID[@START]]...|,ci=none; without ci= one compute instance fills it. */
static void set_instance(struct host *host, struct gpu *gpu, char *text)
{
    char *rest = text, *part = next_part(&rest), *at = strchr(part, '@');
    uint id, ci, index;
    if (at)
        *at++ = 0;
    uint profile = number("instance", part, 0xffffffff);
    const struct profile *p = profile_by_id(gpu, profile, &index);
    Placement where = {at ? number("instance", at, 31) : 0, p ? p->size : 0};
    int code = gi_create(host, gpu, profile, at ? &where : NULL, &id);
    if (code != OK)
        stop("instance=%s: %s", part, code_text(code));
    struct gpu_instance *gi = &gpu->gis[id];
    if (!rest) {
        for (uint i = 8; i--;) { /* downwards: where two have as many slices, the later has more SMs */
            struct ci_profile found;
            if (ci_profile(gpu, gi, i, &found) && found.slices == p->slices && ci_create(gpu, gi, i, NULL, &ci) == OK)
                return;
        }
    }
    while ((part = next_part(&rest))) {
        char *value = value_of(part);
        if (strcmp(part, "ci"))
            stop("instance: %s is unknown; ci is known", part);
        if (!strcmp(value, "none"))
            continue;
        if ((at = strchr(value, '@')))
            *at++ = 0;
        struct ci_profile found;
        profile = number("ci", value, 0xffffffff);
        where = (Placement){at ? number("ci", at, 31) : 0, ci_profile(gpu, gi, profile, &found) ? found.slices : 0};
        code = ci_create(gpu, gi, profile, at ? &where : NULL, &ci);
        if (code != OK)
            stop("ci=%s: %s", value, code_text(code));
    }
}

static bool set_gpu(struct host *host, struct gpu *gpu, const char *name, const char *value)
{
    char copy[512];
    uint index;
    int used;
    if (snprintf(copy, sizeof copy, "%s", value) >= (int)sizeof copy)
        stop("%s: the value is too long", name);
    if (!strcmp(name, "process"))
        set_process(gpu, copy);
    else if (!strcmp(name, "no_process"))
        unset_process(gpu, value);
    else if (!strcmp(name, "instance"))
        set_instance(host, gpu, copy);
    else if (!strcmp(name, "no_instances"))
        memset(gpu->gis, 0, sizeof gpu->gis);
    else if (!strcmp(name, "mig"))
        gpu->mig_current = gpu->mig_pending = number(name, value, 1);
    else if (!strcmp(name, "cluster")) {
        for (uint i = 0; i < 16; i++) {
            uint byte;
            if (strlen(value) != 32 || sscanf(value + 2 * i, "%2x", &byte) != 1)
                stop("cluster=%s: 32 hexadecimal digits are wanted", value);
            gpu->cluster[i] = byte;
        }
    } else if (sscanf(name, "profile.%u.%n", &index, &used) == 1 && index < MAX_PROFILES)
        return set_key(profile_keys, &gpu->product.profiles[index], name + used, value);
    else
        return set_key(gpu_keys, gpu, name, value);
    return true;
}

static bool set_host(struct host *host, const char *name, char *value)
{
    if (!strcmp(name, "fault"))
        set_fault(host, value);
    else if (!strcmp(name, "no_faults"))
        memset(host->faults, 0, sizeof host->faults);
    else if (!strcmp(name, "script"))
        set_script(host, value);
    else
        return set_key(host_keys, host, name, value);
    return true;
}

/* The GPUs that gpu=... names, as first and one past the last. */
static void chosen(const struct host *host, const char *value, uint *from, uint *to)
{
    *from = 0;
    *to = host->count;
    if (strcmp(value, "all")) {
        *from = number("gpu", value, 0xffffffff);
        if (*from >= host->count)
            stop("gpu=%s: the host has %u GPUs", value, host->count);
        *to = *from + 1;
    }
}

static void set(struct host *host, char **arguments)
{
    uint from = 0, to = 0;
    for (; *arguments; arguments++) {
        char *value = value_of(*arguments);
        const char *name = *arguments;
        if (!strcmp(name, "gpu")) {
            chosen(host, value, &from, &to);
            continue;
        }
        bool known = from == to && set_host(host, name, value);
        for (uint i = from; i < to; i++)
            known = set_gpu(host, &host->gpus[i], name, value);
        if (!known)
            stop("%s: unknown%s", name, from == to ? " for the host (keys of a GPU come behind gpu=N)" : " for a GPU");
    }
}

/* --- create --- */

static void add(struct host *host, const char *seed, const char *name, uint count)
{
    const struct product *product = find_product(name);
    if (!product) {
        fprintf(stderr, "nvml-double: product %s is unknown; there are", name);
        for (uint i = 0; i < product_count; i++)
            fprintf(stderr, " %s", products[i].key);
        fprintf(stderr, "\n");
        exit(1);
    }
    for (; count; count--) {
        uint i = host->count++;
        char text[128];
        if (i == MAX_GPUS)
            stop("at most %d GPUs", MAX_GPUS);
        snprintf(text, sizeof text, "%.64s/%s", seed, product->key);
        struct gpu *gpu = &host->gpus[i];
        *gpu = (struct gpu){.product = *product, .bus = 0x07 + 0x0a * i, .minor = i, .module_id = i + 1, .persistence = 1,
                            .ecc_current = product->ecc, .ecc_pending = product->ecc, .power_limit = product->power_max,
                            .app_graphics = CLOCK_GRAPHICS, .app_memory = product->clock_memory,
                            .fabric_state = product->nvlinks == 18 ? 3 : 0};
        gpu_uuid(text, i, gpu->uuid);
        snprintf(gpu->serial, sizeof gpu->serial, "16500230000%02u", i);
    }
}

static int create(int count, char **arguments)
{
    struct host *host = calloc(1, sizeof *host);
    const char *seed = "host", *product = NULL, *why;
    if (!host)
        stop("no memory");
    strcpy(host->driver, "580.159.04");
    host->cuda = 13000;
    host->profile_count = 17;
    host->profiles_without_mig = 1;
    int i = 0;
    for (; i + 1 < count && !strncmp(arguments[i], "--", 2); i += 2) {
        const char *name = arguments[i] + 2, *value = arguments[i + 1];
        if (!strcmp(name, "product"))
            product = value;
        else if (!strcmp(name, "count") && product)
            add(host, seed, product, number("--count", value, MAX_GPUS));
        else if (!strcmp(name, "seed") && !host->count)
            seed = value;
        else if (strcmp(name, "driver") || !set_key(host_keys, host, "driver", value))
            stop("%s is unknown or not wanted here\n%s", arguments[i], usage);
    }
    if (i + 1 != count)
        stop("one state file is wanted\n%s", usage);
    if (snprintf(host->nvml, sizeof host->nvml, "13.%s", host->driver) >= (int)sizeof host->nvml)
        stop("--driver %s: too long", host->driver);
    why = state_create(arguments[i], host);
    if (why)
        stop("%s: %s", arguments[i], why);
    free(host);
    return 0;
}

/* --- what happens to the host --- */

static void reset(struct host *host, char **arguments)
{
    uint from, to;
    if (!*arguments || arguments[1] || strcmp(strtok(*arguments, "="), "gpu"))
        stop("reset STATE gpu=N|all");
    chosen(host, strtok(NULL, ""), &from, &to);
    for (uint i = from; i < to; i++) {
        const char *why = gpu_refuses_reset(&host->gpus[i]);
        if (why)
            stop("GPU %u cannot be reset: %s", i, why);
        gpu_reset(host, &host->gpus[i]);
    }
}

int main(int count, char **arguments)
{
    struct state state;
    const char *command = count > 1 ? arguments[1] : "", *why;
    if (!strcmp(command, "create"))
        return create(count - 2, arguments + 2);
    if (!strcmp(command, "products") || !strcmp(command, "structs")) {
        (*command == 'p' ? show_products : show_structs)();
        return 0;
    }
    bool known = !strcmp(command, "set") || !strcmp(command, "show") || !strcmp(command, "reset") || !strcmp(command, "reload") ||
                 !strcmp(command, "reboot");
    if (!known || count < 3) {
        fputs(usage, stderr);
        return 2;
    }
    if ((why = state_open(&state, arguments[2])))
        stop("%s: %s", arguments[2], why);
    if (!strcmp(command, "set"))
        set(state.host, arguments + 3);
    else if (!strcmp(command, "reset"))
        reset(state.host, arguments + 3);
    else if (!strcmp(command, "reload"))
        driver_reload(state.host);
    else if (!strcmp(command, "reboot"))
        host_reboot(state.host);
    else
        show(state.host);
    if ((why = state_publish(&state)))
        stop("%s: %s", arguments[2], why);
    state_close(&state);
    return 0;
}
