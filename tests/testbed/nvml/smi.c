/* Copyright: (c) 2026, gpufleet.nvidia contributors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
/* nvidia-smi as far as scripts on hosts call it: lists, the tables of MIG profiles, queries of a few fields, and the reset that
 * NVML has no call for. Texts are those that the real one printed (driver 580.159.04). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "state.h"

static void print_address(const struct gpu *gpu) { printf("%08X:%02X:%02X.0", gpu->domain, gpu->bus, gpu->device); }

static int list(const struct host *host)
{
    for (uint i = 0; i < host->count; i++) {
        const struct gpu *gpu = &host->gpus[i];
        uint gi, ci;
        printf("GPU %u: %s (UUID: %s)\n", i, gpu->product.name, gpu->uuid);
        for (uint number = 0; mig_device(gpu, number, &gi, &ci); number++) {
            char name[NAME_SIZE], uuid[UUID_SIZE];
            ci_name(gpu, &gpu->gis[gi], gpu->gis[gi].cis[ci].size, name, sizeof name);
            mig_uuid(gpu, gi, ci, uuid);
            printf("  %-15s Device %2u: (UUID: %s)\n", name, number, uuid);
        }
    }
    return 0;
}

/* Profiles in the order of nvidia-smi: by slices, then by index. Answers the count. */
static uint sorted(const struct gpu *gpu, uint order[MAX_PROFILES])
{
    uint count = 0;
    for (uint slices = 1; slices <= 8; slices++)
        for (uint i = 0; i < MAX_PROFILES; i++)
            if (*gpu->product.profiles[i].name && gpu->product.profiles[i].slices == slices)
                order[count++] = i;
    return count;
}

#define RULE "+-------------------------------------------------------------------------------+\n"

static int profiles(const struct host *host)
{
    uint order[MAX_PROFILES];
    printf(RULE "| GPU instance profiles:                                                        |\n"
           "| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |\n"
           "|                                Free/Total   GiB              CE    JPEG  OFA  |\n"
           "|===============================================================================|\n");
    for (uint g = 0; g < host->count; g++)
        for (uint n = 0, count = sorted(&host->gpus[g], order); n < count; n++) {
            const struct gpu *gpu = &host->gpus[g];
            const struct profile *p = &gpu->product.profiles[order[n]];
            printf("|%4u  MIG %-14s%4u     %u/%u        %-11.2fNo     %-7u%-6u%-4u|\n", g, p->name, p->id,
                   gi_capacity(gpu, order[n]), p->count, p->mib / 1024.0, p->sms, p->decs, p->encs);
            printf("|%63s%-6u%-6u%-4u|\n" RULE, "", p->ces, p->jpgs, p->ofas);
        }
    return 0;
}

static int placements(const struct host *host)
{
    uint order[MAX_PROFILES];
    for (uint g = 0; g < host->count; g++)
        for (uint n = 0, count = sorted(&host->gpus[g], order); n < count; n++) {
            const struct profile *p = &host->gpus[g].product.profiles[order[n]];
            const char *comma = "";
            printf("GPU %2u Profile ID %2u Placement%s: {", g, p->id, p->starts & (p->starts - 1) ? "s" : " ");
            for (uint start = 0; start < 8; start++)
                if (p->starts >> start & 1) {
                    printf("%s%u", comma, start);
                    comma = ",";
                }
            printf("}:%u\n", p->size);
        }
    return 0;
}

/* --- queries --- */

static void print_field(const struct host *host, const struct gpu *gpu, const char *field, bool units)
{
    static const char *const modes[] = {"Disabled", "Enabled"};
    if (!strcmp(field, "index"))
        printf("%u", (uint)(gpu - host->gpus));
    else if (!strcmp(field, "name"))
        printf("%s", gpu->product.name);
    else if (!strcmp(field, "uuid"))
        printf("%s", gpu->uuid);
    else if (!strcmp(field, "driver_version"))
        printf("%s", host->driver);
    else if (!strcmp(field, "pci.bus_id"))
        print_address(gpu);
    else if (!strcmp(field, "memory.total"))
        printf("%llu%s", gpu->product.memory >> 20, units ? " MiB" : "");
    else if (!strcmp(field, "compute_cap"))
        printf("%u.%u", gpu->product.cc_major, gpu->product.cc_minor);
    else if (!gpu->product.slots)
        printf("[N/A]");
    else
        printf("%s", modes[!strcmp(field, "mig.mode.current") ? gpu->mig_current : gpu->mig_pending]);
}

static int query(const struct host *host, const char *fields, bool header, bool units)
{
    static const char known[] = ",index,name,uuid,driver_version,pci.bus_id,memory.total,compute_cap,mig.mode.current,mig.mode.pending,";
    for (int row = header ? -1 : 0; row < (int)host->count; row++) {
        char copy[512], *rest = copy, *field;
        snprintf(copy, sizeof copy, "%s", fields);
        for (const char *comma = ""; (field = strsep(&rest, ",")); comma = ", ") {
            char wanted[64];
            snprintf(wanted, sizeof wanted, ",%.60s,", field);
            if (!strstr(known, wanted)) {
                printf("Field \"%s\" is not a valid field to query.\n\n", field);
                return 2;
            }
            printf("%s", comma);
            if (row < 0)
                printf("%s%s", field, units && !strcmp(field, "memory.total") ? " [MiB]" : "");
            else
                print_field(host, &host->gpus[row], field, units);
        }
        printf("\n");
    }
    return 0;
}

/* --- reset --- */

static struct gpu *find(struct host *host, const char *name)
{
    for (uint i = 0; i < host->count; i++) {
        struct gpu *gpu = &host->gpus[i];
        char text[3][32];
        snprintf(text[0], sizeof *text, "%u", i);
        snprintf(text[1], sizeof *text, "%08x:%02x:%02x.0", gpu->domain, gpu->bus & 0xff, gpu->device & 0xff);
        snprintf(text[2], sizeof *text, "%04x:%02x:%02x.0", gpu->domain & 0xffff, gpu->bus & 0xff, gpu->device & 0xff);
        if (!strcmp(gpu->uuid, name) || !strcasecmp(text[0], name) || !strcasecmp(text[1], name) || !strcasecmp(text[2], name))
            return gpu;
    }
    return NULL;
}

static int reset(struct host *host, const char *names)
{
    char copy[1024], *rest = copy, *name, arguments[256];
    struct gpu *chosen[MAX_GPUS];
    uint count = 0;
    if (host->permissions != ALLOW && (host->permissions == DENY || geteuid())) {
        printf("Unable to reset GPUs: Insufficient Permissions\n");
        return 4;
    }
    for (uint i = 0; !names && i < host->count; i++)
        chosen[count++] = &host->gpus[i];
    snprintf(copy, sizeof copy, "%s", names ? names : "");
    while (names && (name = strsep(&rest, ","))) {
        struct gpu *gpu = find(host, name);
        if (!gpu || count == MAX_GPUS) {
            printf("Unable to determine the device handle for GPU %s: Not Found\n", name);
            return 6;
        }
        chosen[count++] = gpu;
    }
    bool busy = false;
    for (uint i = 0; i < count; i++) {
        const char *why = gpu_refuses_reset(chosen[i]);
        if (!why)
            continue;
        if (!busy)
            printf("The following GPUs could not be reset:\n");
        busy = true;
        printf("  GPU ");
        print_address(chosen[i]);
        printf(": %s\n", why);
    }
    snprintf(arguments, sizeof arguments, "\"gpus\":\"%.200s\"", names ? names : "all");
    write_log("nvidia-smi --gpu-reset", true, arguments, busy ? IN_USE : OK, code_name(busy ? IN_USE : OK), "");
    if (busy)
        return 3;
    for (uint i = 0; i < count; i++) {
        gpu_reset(host, chosen[i]);
        printf("GPU ");
        print_address(chosen[i]);
        printf(" was successfully reset.\n");
    }
    printf("All done.\n");
    return 0;
}

static int run(struct host *host, int count, char **arguments)
{
    const char *fields = NULL, *names = NULL, *format = "";
    bool wants_reset = false;
    if (count == 2 && (!strcmp(arguments[1], "-L") || !strcmp(arguments[1], "--list-gpus")))
        return list(host);
    if (count == 3 && !strcmp(arguments[1], "mig") && !strcmp(arguments[2], "-lgip"))
        return profiles(host);
    if (count == 3 && !strcmp(arguments[1], "mig") && !strcmp(arguments[2], "-lgipp"))
        return placements(host);
    for (int i = 1; i < count; i++) {
        if (!strcmp(arguments[i], "-r") || !strcmp(arguments[i], "--gpu-reset"))
            wants_reset = true;
        else if (!strcmp(arguments[i], "-i") && i + 1 < count)
            names = arguments[++i];
        else if (!strncmp(arguments[i], "--id=", 5))
            names = arguments[i] + 5;
        else if (!strncmp(arguments[i], "--query-gpu=", 12))
            fields = arguments[i] + 12;
        else if (!strncmp(arguments[i], "--format=csv", 12))
            format = arguments[i] + 9;
        else {
            printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
            return 2;
        }
    }
    if (wants_reset)
        return reset(host, names);
    if (fields && *format)
        return query(host, fields, !strstr(format, "noheader"), !strstr(format, "nounits"));
    printf("Driver Version: %s\n", host->driver);
    return list(host);
}

int main(int count, char **arguments)
{
    struct state state = {.file = -1};
    const char *path = state_path();
    const char *why = path ? state_open(&state, path) : "no state";
    if (why || state.host->driver_state == UNLOADED) {
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
               "driver is installed and running.\n\n");
        return 9;
    }
    if (state.host->driver_state == MISMATCH) {
        printf("Failed to initialize NVML: Driver/library version mismatch\n");
        return 18;
    }
    int code = run(state.host, count, arguments);
    if ((why = state_publish(&state)))
        fprintf(stderr, "nvml-double: the state cannot be written: %s\n", why);
    state_close(&state);
    return why ? 255 : code;
}
