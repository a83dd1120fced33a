/* Copyright: (c) 2026, gpufleet.nvidia contributors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
/* libnvidia-ml.so.1: the functions that callers of NVML use.
 *
 * Every call is begin() ... end(): lock and read the state, apply the faults, do the work, publish, log, unlock. The functions
 * below hold only the work. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>
#include "state.h"

#define API __attribute__((visibility("default")))

/* --- handles --- */

enum kind { GPU_HANDLE, GI_HANDLE, CI_HANDLE, MIG_HANDLE };
struct handle { enum kind kind; uint gpu, gi, ci; };

#define PER_GI (1 + 2 * MAX_CIS)
#define PER_GPU (1 + MAX_GIS * PER_GI)
static struct handle handles[MAX_GPUS * PER_GPU];

__attribute__((constructor)) static void number_handles(void)
{
    struct handle *next = handles;
    for (uint gpu = 0; gpu < MAX_GPUS; gpu++) {
        *next++ = (struct handle){GPU_HANDLE, gpu, NOBODY, NOBODY};
        for (uint gi = 0; gi < MAX_GIS; gi++) {
            *next++ = (struct handle){GI_HANDLE, gpu, gi, NOBODY};
            for (uint ci = 0; ci < MAX_CIS; ci++) {
                *next++ = (struct handle){CI_HANDLE, gpu, gi, ci};
                *next++ = (struct handle){MIG_HANDLE, gpu, gi, ci};
            }
        }
    }
}

static struct handle *gpu_handle(uint gpu) { return &handles[gpu * PER_GPU]; }
static struct handle *gi_handle(uint gpu, uint gi) { return &handles[gpu * PER_GPU + 1 + gi * PER_GI]; }
static struct handle *ci_handle(uint gpu, uint gi, uint ci) { return gi_handle(gpu, gi) + 1 + 2 * ci; }
static struct handle *mig_handle(uint gpu, uint gi, uint ci) { return ci_handle(gpu, gi, ci) + 1; }

static bool known(const struct handle *handle)
{
    const char *at = (const char *)handle, *first = (const char *)handles;
    return at >= first && at < first + sizeof handles && (size_t)(at - first) % sizeof *handles == 0;
}

/* A handle as the log shows it: "0" a GPU, "0/9" an instance, "0/9/0" a compute instance or its MIG device. */
static const char *shown(const struct handle *handle)
{
    static _Thread_local char text[2][48];
    static _Thread_local uint turn;
    char *out = text[turn++ % 2];
    if (!known(handle))
        return "null";
    if (handle->kind == GPU_HANDLE)
        snprintf(out, sizeof *text, "\"%u\"", handle->gpu);
    else if (handle->kind == GI_HANDLE)
        snprintf(out, sizeof *text, "\"%u/%u\"", handle->gpu, handle->gi);
    else
        snprintf(out, sizeof *text, "\"%u/%u/%u\"", handle->gpu, handle->gi, handle->ci);
    return out;
}

/* A caller's text as JSON. */
static const char *quoted(const char *text)
{
    static _Thread_local char out[256];
    char *to = out;
    if (!text)
        return "null";
    *to++ = '"';
    for (; *text && to < out + sizeof out - 8; text++) {
        unsigned char c = *text;
        if (c == '"' || c == '\\' || c < ' ' || c > '~')
            to += sprintf(to, "\\u%04x", c);
        else
            *to++ = c;
    }
    memcpy(to, "\"", 2);
    return out;
}

/* --- one call --- */

enum purpose { READ, WRITE, INIT };

struct call {
    const char *function;
    enum purpose purpose;
    struct state state;
    struct host *host;
    int code, after; /* after: what a fault makes of the call once its effect is there; OK: nothing */
    char arguments[384], made[128];
};

static uint users; /* nvmlInit less nvmlShutdown */

static void note(const struct call *call, const char *name, int code)
{
    write_log(call->function, call->purpose == WRITE, call->arguments, code, name, call->made);
}

static int end(struct call *call, int code)
{
    if (call->state.host) {
        const char *why = state_publish(&call->state);
        if (why) {
            fprintf(stderr, "nvml-double: the state cannot be written: %s\n", why);
            code = UNKNOWN;
        }
    }
    if (call->after == KILL) {
        note(call, "KILLED_AFTER", code);
        raise(SIGKILL);
    }
    if (call->after != OK)
        code = call->after;
    note(call, code_name(code), code);
    state_close(&call->state);
    return code;
}

static bool concerns(const struct fault *fault, const struct call *call)
{
    size_t length = strlen(fault->function);
    if (!strcmp(fault->function, "writes"))
        return call->purpose == WRITE;
    if (length && fault->function[length - 1] == '*')
        return !strncmp(fault->function, call->function, length - 1);
    return !strcmp(fault->function, call->function);
}

/* Counts the call against every fault; the first that is due decides. Answers OK, a code to give at once, or KILL. */
static int due(struct call *call)
{
    int now = OK;
    for (uint i = 0; i < MAX_FAULTS; i++) {
        struct fault *fault = &call->host->faults[i];
        if (!fault->used || !concerns(fault, call))
            continue;
        if (fault->nth > 1) {
            fault->nth--;
            continue;
        }
        if (fault->times != NOBODY && !--fault->times)
            fault->used = 0;
        if (now == OK && call->after == OK) {
            if (fault->when == AFTER)
                call->after = fault->code;
            else
                now = fault->code;
        }
    }
    return now;
}

__attribute__((format(printf, 4, 5))) static bool begin(struct call *call, const char *function, enum purpose purpose,
                                                         const char *format, ...)
{
    const char *path = state_path(), *why;
    va_list arguments;
    *call = (struct call){.function = function, .purpose = purpose, .state = {.file = -1}};
    va_start(arguments, format);
    vsnprintf(call->arguments, sizeof call->arguments, format, arguments);
    va_end(arguments);
    why = path ? state_open(&call->state, path) : "NVML_DOUBLE_STATE names no file";
    if (why) {
        fprintf(stderr, "nvml-double: %s: %s\n", path ? path : "state", why);
        call->code = end(call, purpose == INIT ? DRIVER_NOT_LOADED : UNINITIALIZED);
        return false;
    }
    call->host = call->state.host;
    int now = due(call);
    if (now == KILL) {
        state_publish(&call->state);
        note(call, "KILLED_BEFORE", UNKNOWN);
        raise(SIGKILL);
    }
    if (now == OK && call->host->driver_state == UNLOADED)
        now = DRIVER_NOT_LOADED;
    if (now == OK && call->host->driver_state == MISMATCH)
        now = LIB_RM_VERSION_MISMATCH;
    if (purpose != INIT && !__atomic_load_n(&users, __ATOMIC_RELAXED))
        now = UNINITIALIZED;
    if (now == OK && purpose == WRITE && call->host->permissions != ALLOW && (call->host->permissions == DENY || geteuid()))
        now = NO_PERMISSION;
    if (now != OK) {
        call->after = OK;
        call->code = end(call, now);
        return false;
    }
    return true;
}

#define CALL(purpose, ...) \
    struct call call; \
    if (!begin(&call, __func__, purpose, __VA_ARGS__)) \
        return call.code
#define DONE(code) return end(&call, code)
#define NEEDS(condition, code) \
    do { \
        if (!(condition)) \
            DONE(code); \
    } while (0)
#define MADE(...) snprintf(call.made, sizeof call.made, __VA_ARGS__)

/* The GPU that a handle is about, where the handle is of one of these kinds and what it names is there; else the code is set. */
static struct gpu *resolve(struct call *call, const struct handle *handle, uint kinds)
{
    call->code = INVALID_ARGUMENT;
    if (!known(handle) || !(kinds >> handle->kind & 1) || handle->gpu >= call->host->count)
        return NULL;
    struct gpu *gpu = &call->host->gpus[handle->gpu];
    if (gpu->lost) {
        call->code = GPU_IS_LOST;
        return NULL;
    }
    if (handle->gi != NOBODY && !gpu->gis[handle->gi].used)
        return NULL;
    if (handle->ci != NOBODY && !gpu->gis[handle->gi].cis[handle->ci].used)
        return NULL;
    return gpu;
}

#define RESOLVE(handle, kinds) \
    struct gpu *gpu = resolve(&call, handle, kinds); \
    NEEDS(gpu, call.code)
#define GPU(handle) RESOLVE(handle, 1u << GPU_HANDLE)
#define GPU_OR_MIG(handle) RESOLVE(handle, 1u << GPU_HANDLE | 1u << MIG_HANDLE)
#define MIG(handle) RESOLVE(handle, 1u << MIG_HANDLE)
#define GI(handle) \
    RESOLVE(handle, 1u << GI_HANDLE); \
    struct gpu_instance *gi = &gpu->gis[(handle)->gi]
#define CI(handle) \
    RESOLVE(handle, 1u << CI_HANDLE); \
    struct compute_instance *ci = &gpu->gis[(handle)->gi].cis[(handle)->ci]

static int put_text(char *to, uint size, const char *text)
{
    if (!to)
        return INVALID_ARGUMENT;
    if (strlen(text) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return OK;
}

/* --- library and system --- */

static int init(struct call *call)
{
    __atomic_add_fetch(&users, 1, __ATOMIC_RELAXED);
    return end(call, OK);
}

API int nvmlInitWithFlags(uint flags)
{
    CALL(INIT, "\"flags\":%u", flags);
    return init(&call);
}

API int nvmlInit_v2(void)
{
    CALL(INIT, "%s", "");
    return init(&call);
}

API int nvmlInit(void)
{
    CALL(INIT, "%s", "");
    return init(&call);
}

API int nvmlShutdown(void)
{
    CALL(READ, "%s", "");
    __atomic_sub_fetch(&users, 1, __ATOMIC_RELAXED);
    DONE(OK);
}

API const char *nvmlErrorString(int code) { return code_text(code); }

#define SYSTEM_TEXT(function, text) \
    API int function(char *value, uint size) \
    { \
        CALL(READ, "\"size\":%u", size); \
        DONE(put_text(value, size, text)); \
    }
SYSTEM_TEXT(nvmlSystemGetDriverVersion, call.host->driver)
SYSTEM_TEXT(nvmlSystemGetNVMLVersion, call.host->nvml)

#define SYSTEM_NUMBER(function, type, number) \
    API int function(type *value) \
    { \
        CALL(READ, "%s", ""); \
        NEEDS(value, INVALID_ARGUMENT); \
        *value = number; \
        DONE(OK); \
    }
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion, int, call.host->cuda)
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion_v2, int, call.host->cuda)
SYSTEM_NUMBER(nvmlDeviceGetCount, uint, call.host->count)
SYSTEM_NUMBER(nvmlDeviceGetCount_v2, uint, call.host->count)
SYSTEM_NUMBER(nvmlGetExcludedDeviceCount, uint, 0)
SYSTEM_NUMBER(nvmlUnitGetCount, uint, 0)

API int nvmlSystemGetProcessName(uint pid, char *name, uint size)
{
    CALL(READ, "\"pid\":%u,\"size\":%u", pid, size);
    for (uint g = 0; g < call.host->count; g++)
        for (uint i = 0; i < MAX_PROCESSES; i++)
            if (pid && call.host->gpus[g].processes[i].pid == pid) {
                char text[48];
                snprintf(text, sizeof text, "/usr/bin/process-%u", pid);
                DONE(put_text(name, size, text));
            }
    DONE(NOT_FOUND);
}

/* --- finding a GPU --- */

static int by_index(struct call *call, uint index, Device *device)
{
    if (!device || index >= call->host->count)
        return end(call, INVALID_ARGUMENT);
    if (call->host->gpus[index].lost)
        return end(call, GPU_IS_LOST);
    *device = gpu_handle(index);
    return end(call, OK);
}

API int nvmlDeviceGetHandleByIndex(uint index, Device *device)
{
    CALL(READ, "\"index\":%u", index);
    return by_index(&call, index, device);
}

API int nvmlDeviceGetHandleByIndex_v2(uint index, Device *device)
{
    CALL(READ, "\"index\":%u", index);
    return by_index(&call, index, device);
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device)
{
    CALL(READ, "\"uuid\":%s", quoted(uuid));
    NEEDS(uuid && device, INVALID_ARGUMENT);
    for (uint g = 0; g < call.host->count; g++) {
        const struct gpu *gpu = &call.host->gpus[g];
        uint gi, ci, old_gi, old_ci;
        char old[UUID_SIZE];
        if (!strcmp(gpu->uuid, uuid))
            return by_index(&call, g, device);
        bool legacy = sscanf(uuid, "MIG-%79[^/]/%u/%u", old, &old_gi, &old_ci) == 3 && !strcmp(old, gpu->uuid);
        for (uint number = 0; mig_device(gpu, number, &gi, &ci); number++) {
            char text[UUID_SIZE];
            mig_uuid(gpu, gi, ci, text);
            if (!strcmp(text, uuid) || (legacy && gi == old_gi && ci == old_ci)) {
                NEEDS(!gpu->lost, GPU_IS_LOST);
                *device = mig_handle(g, gi, ci);
                DONE(OK);
            }
        }
    }
    DONE(NOT_FOUND);
}

API int nvmlDeviceGetHandleBySerial(const char *serial, Device *device)
{
    CALL(READ, "\"serial\":%s", quoted(serial));
    NEEDS(serial && device, INVALID_ARGUMENT);
    for (uint g = 0; g < call.host->count; g++)
        if (!strcmp(call.host->gpus[g].serial, serial))
            return by_index(&call, g, device);
    DONE(NOT_FOUND);
}

static int by_address(struct call *call, const char *address, Device *device)
{
    uint domain, bus, slot, function;
    if (!address || !device)
        return end(call, INVALID_ARGUMENT);
    if (sscanf(address, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) {
        domain = function = 0;
        if (sscanf(address, "%x:%x.%x", &bus, &slot, &function) != 3)
            return end(call, INVALID_ARGUMENT);
    }
    for (uint g = 0; g < call->host->count; g++) {
        const struct gpu *gpu = &call->host->gpus[g];
        if (gpu->domain == domain && gpu->bus == bus && gpu->device == slot && !function)
            return by_index(call, g, device);
    }
    return end(call, NOT_FOUND);
}

API int nvmlDeviceGetHandleByPciBusId(const char *address, Device *device)
{
    CALL(READ, "\"address\":%s", quoted(address));
    return by_address(&call, address, device);
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *address, Device *device)
{
    CALL(READ, "\"address\":%s", quoted(address));
    return by_address(&call, address, device);
}

/* --- what a GPU is --- */

API int nvmlDeviceGetName(Device device, char *name, uint size)
{
    CALL(READ, "\"device\":%s,\"size\":%u", shown(device), size);
    GPU_OR_MIG(device);
    char text[NAME_SIZE + 64], mig[NAME_SIZE] = "";
    if (device->kind == MIG_HANDLE)
        ci_name(gpu, &gpu->gis[device->gi], gpu->gis[device->gi].cis[device->ci].size, mig, sizeof mig);
    snprintf(text, sizeof text, "%s%s%s", gpu->product.name, *mig ? " " : "", mig);
    DONE(put_text(name, size, text));
}

API int nvmlDeviceGetUUID(Device device, char *uuid, uint size)
{
    CALL(READ, "\"device\":%s,\"size\":%u", shown(device), size);
    GPU_OR_MIG(device);
    char text[UUID_SIZE];
    if (device->kind == MIG_HANDLE)
        mig_uuid(gpu, device->gi, device->ci, text);
    else
        memcpy(text, gpu->uuid, sizeof text);
    DONE(put_text(uuid, size, text));
}

#define GPU_TEXT(function, text) \
    API int function(Device device, char *value, uint size) \
    { \
        CALL(READ, "\"device\":%s,\"size\":%u", shown(device), size); \
        GPU(device); \
        NEEDS(*(text), NOT_SUPPORTED); \
        DONE(put_text(value, size, text)); \
    }
GPU_TEXT(nvmlDeviceGetSerial, gpu->serial)
GPU_TEXT(nvmlDeviceGetVbiosVersion, gpu->product.vbios)
GPU_TEXT(nvmlDeviceGetBoardPartNumber, gpu->product.part)
GPU_TEXT(nvmlDeviceGetInforomImageVersion, gpu->product.inforom)

#define GPU_NUMBER(function, type, supported, number) \
    API int function(Device device, type *value) \
    { \
        CALL(READ, "\"device\":%s", shown(device)); \
        GPU(device); \
        NEEDS(value, INVALID_ARGUMENT); \
        NEEDS(supported, NOT_SUPPORTED); \
        *value = number; \
        DONE(OK); \
    }
GPU_NUMBER(nvmlDeviceGetIndex, uint, true, device->gpu)
GPU_NUMBER(nvmlDeviceGetMinorNumber, uint, true, gpu->minor)
GPU_NUMBER(nvmlDeviceGetBrand, uint, true, gpu->product.brand)
GPU_NUMBER(nvmlDeviceGetArchitecture, uint, true, gpu->product.arch)
GPU_NUMBER(nvmlDeviceGetBoardId, uint, true, gpu->bus << 8 | gpu->device)
GPU_NUMBER(nvmlDeviceGetModuleId, uint, true, gpu->module_id)
GPU_NUMBER(nvmlDeviceGetMultiGpuBoard, uint, true, 0)
GPU_NUMBER(nvmlDeviceGetNumGpuCores, uint, true, gpu->product.cores)
GPU_NUMBER(nvmlDeviceGetPersistenceMode, uint, true, gpu->persistence)
GPU_NUMBER(nvmlDeviceGetComputeMode, uint, true, gpu->compute_mode)
GPU_NUMBER(nvmlDeviceGetVirtualizationMode, uint, true, gpu->virtualization)
GPU_NUMBER(nvmlDeviceGetDisplayMode, uint, true, gpu->display)
GPU_NUMBER(nvmlDeviceGetDisplayActive, uint, true, 0)
GPU_NUMBER(nvmlDeviceGetPowerUsage, uint, true, gpu->product.power_draw)
GPU_NUMBER(nvmlDeviceGetEnforcedPowerLimit, uint, true, gpu->power_limit)
GPU_NUMBER(nvmlDeviceGetPowerManagementLimit, uint, true, gpu->power_limit)
GPU_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, uint, true, gpu->product.power_max)
GPU_NUMBER(nvmlDeviceGetPerformanceState, uint, true, 0)
GPU_NUMBER(nvmlDeviceGetPowerState, uint, true, 0)
GPU_NUMBER(nvmlDeviceGetFanSpeed, uint, false, 0)
GPU_NUMBER(nvmlDeviceGetPcieReplayCounter, uint, true, 0)
GPU_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, uint, true, gpu->product.pcie_generation)
GPU_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, uint, true, gpu->product.pcie_generation)
GPU_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, uint, true, 16)
GPU_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, uint, true, 16)
GPU_NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, uint, !gpu->product.rows, 0)
GPU_NUMBER(nvmlDeviceGetDefaultEccMode, uint, gpu->product.ecc, 1)
GPU_NUMBER(nvmlDeviceGetSupportedEventTypes, u64, true, 65439)
GPU_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, true, 1)
GPU_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, true, 1)
GPU_NUMBER(nvmlDeviceGetTotalEnergyConsumption, u64, true, 1000ULL * gpu->product.power_draw)
GPU_NUMBER(nvmlDeviceGetNumaNodeId, uint, gpu->product.addressing == 2, 0)
GPU_NUMBER(nvmlDeviceGetAccountingMode, uint, true, 0)

#define GPU_PAIR(function, type, supported, one, other) \
    API int function(Device device, type *first, type *second) \
    { \
        CALL(READ, "\"device\":%s", shown(device)); \
        GPU(device); \
        NEEDS(first && second, INVALID_ARGUMENT); \
        NEEDS(supported, NOT_SUPPORTED); \
        *first = one; \
        *second = other; \
        DONE(OK); \
    }
GPU_PAIR(nvmlDeviceGetCudaComputeCapability, int, true, gpu->product.cc_major, gpu->product.cc_minor)
GPU_PAIR(nvmlDeviceGetEccMode, uint, gpu->product.ecc, gpu->ecc_current, gpu->ecc_pending)
GPU_PAIR(nvmlDeviceGetPowerManagementLimitConstraints, uint, true, gpu->product.power_min, gpu->product.power_max)
GPU_PAIR(nvmlDeviceGetGspFirmwareMode, uint, true, gpu->product.gsp, gpu->product.gsp)
GPU_PAIR(nvmlDeviceGetMigMode, uint, gpu->product.slots, gpu->mig_current, gpu->mig_pending)
GPU_PAIR(nvmlDeviceGetEncoderUtilization, uint, !gpu->mig_current, 0, 100000)
GPU_PAIR(nvmlDeviceGetDecoderUtilization, uint, !gpu->mig_current, 0, 100000)

API int nvmlDeviceGetGspFirmwareVersion(Device device, char *version)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(gpu->product.gsp, NOT_SUPPORTED);
    DONE(put_text(version, 64, call.host->driver));
}

API int nvmlDeviceGetInforomVersion(Device device, uint object, char *version, uint size)
{
    CALL(READ, "\"device\":%s,\"object\":%u,\"size\":%u", shown(device), object, size);
    GPU(device);
    NEEDS(object < 4, INVALID_ARGUMENT);
    NEEDS(object < 2, NOT_SUPPORTED);
    DONE(put_text(version, size, object == 0 ? "2.1" : "7.16"));
}

API int nvmlDeviceGetClockInfo(Device device, uint type, uint *clock)
{
    CALL(READ, "\"device\":%s,\"type\":%u", shown(device), type);
    GPU(device);
    NEEDS(clock && type < 4, INVALID_ARGUMENT);
    *clock = type == 2 ? gpu->product.clock_memory : type == 3 ? 765 : gpu->product.clock_sm;
    DONE(OK);
}

API int nvmlDeviceGetMaxClockInfo(Device device, uint type, uint *clock)
{
    CALL(READ, "\"device\":%s,\"type\":%u", shown(device), type);
    GPU(device);
    NEEDS(clock && type < 4, INVALID_ARGUMENT);
    *clock = type == 2 ? gpu->product.clock_memory : type == 3 ? 1545 : CLOCK_GRAPHICS;
    DONE(OK);
}

API int nvmlDeviceGetApplicationsClock(Device device, uint type, uint *clock)
{
    CALL(READ, "\"device\":%s,\"type\":%u", shown(device), type);
    GPU(device);
    NEEDS(clock && (type == 0 || type == 2), INVALID_ARGUMENT);
    *clock = type == 2 ? gpu->app_memory : gpu->app_graphics;
    DONE(OK);
}

API int nvmlDeviceGetDefaultApplicationsClock(Device device, uint type, uint *clock)
{
    CALL(READ, "\"device\":%s,\"type\":%u", shown(device), type);
    GPU(device);
    NEEDS(clock && (type == 0 || type == 2), INVALID_ARGUMENT);
    *clock = type == 2 ? gpu->product.clock_memory : CLOCK_GRAPHICS;
    DONE(OK);
}

API int nvmlDeviceGetTemperature(Device device, uint sensor, uint *degrees)
{
    CALL(READ, "\"device\":%s,\"sensor\":%u", shown(device), sensor);
    GPU(device);
    NEEDS(degrees && !sensor, INVALID_ARGUMENT);
    *degrees = gpu->product.temperature;
    DONE(OK);
}

API int nvmlDeviceGetTemperatureV(Device device, Temperature_v1 *temperature)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(temperature && !temperature->sensorType, INVALID_ARGUMENT);
    NEEDS(temperature->version == VERSION(Temperature_v1, 1), ARGUMENT_VERSION_MISMATCH);
    temperature->temperature = gpu->product.temperature;
    DONE(OK);
}

API int nvmlDeviceGetUtilizationRates(Device device, Utilization *utilization)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(utilization, INVALID_ARGUMENT);
    NEEDS(!gpu->mig_current, NOT_SUPPORTED);
    *utilization = (Utilization){0, 0};
    DONE(OK);
}

API int nvmlDeviceGetPciInfo_v3(Device device, PciInfo *info)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(info, INVALID_ARGUMENT);
    *info = (PciInfo){.domain = gpu->domain, .bus = gpu->bus, .device = gpu->device, .pciDeviceId = gpu->product.pci_device,
                      .pciSubSystemId = gpu->product.pci_subsystem};
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04x:%02x:%02x.0", gpu->domain & 0xffff, gpu->bus & 0xff,
             gpu->device & 0xff);
    snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.0", gpu->domain, gpu->bus & 0xff, gpu->device & 0xff);
    DONE(OK);
}

static int pci_info_v2(struct call *call, Device device, PciInfo_v2 *info)
{
    struct gpu *gpu = resolve(call, device, 1u << GPU_HANDLE);
    if (!gpu || !info)
        return end(call, gpu ? INVALID_ARGUMENT : call->code);
    *info = (PciInfo_v2){.domain = gpu->domain, .bus = gpu->bus, .device = gpu->device, .pciDeviceId = gpu->product.pci_device,
                         .pciSubSystemId = gpu->product.pci_subsystem};
    snprintf(info->busId, sizeof info->busId, "%04X:%02X:%02X.0", gpu->domain & 0xffff, gpu->bus & 0xff, gpu->device & 0xff);
    return end(call, OK);
}

API int nvmlDeviceGetPciInfo_v2(Device device, PciInfo_v2 *info)
{
    CALL(READ, "\"device\":%s", shown(device));
    return pci_info_v2(&call, device, info);
}

API int nvmlDeviceGetPciInfo(Device device, PciInfo_v2 *info)
{
    CALL(READ, "\"device\":%s", shown(device));
    return pci_info_v2(&call, device, info);
}

API int nvmlDeviceGetPciInfoExt(Device device, PciInfoExt *info)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(info, INVALID_ARGUMENT);
    NEEDS(info->version == VERSION(PciInfoExt, 1), ARGUMENT_VERSION_MISMATCH);
    *info = (PciInfoExt){info->version, gpu->domain, gpu->bus, gpu->device, gpu->product.pci_device, gpu->product.pci_subsystem,
                         gpu->product.pci_class >> 8, gpu->product.pci_class & 0xff, ""};
    snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.0", gpu->domain, gpu->bus & 0xff, gpu->device & 0xff);
    DONE(OK);
}

/* Total, reserved and used bytes of a GPU or MIG device. */
static Memory_v2 memory_of(const struct gpu *gpu, Device device)
{
    Memory_v2 memory = {.total = gpu->product.memory, .reserved = gpu->product.reserved};
    if (device->kind == MIG_HANDLE)
        memory = (Memory_v2){.total = (u64)gpu->product.profiles[gpu->gis[device->gi].profile].mib << 20};
    for (uint i = 0; i < MAX_PROCESSES; i++)
        if (gpu->processes[i].pid && (device->kind == GPU_HANDLE || gpu->processes[i].gi == device->gi))
            memory.used += gpu->processes[i].memory;
    memory.free = memory.total - memory.reserved - memory.used;
    return memory;
}

API int nvmlDeviceGetMemoryInfo(Device device, Memory *memory)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU_OR_MIG(device);
    NEEDS(memory, INVALID_ARGUMENT);
    Memory_v2 all = memory_of(gpu, device);
    *memory = (Memory){all.total, all.free, all.total - all.free};
    DONE(OK);
}

API int nvmlDeviceGetMemoryInfo_v2(Device device, Memory_v2 *memory)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU_OR_MIG(device);
    NEEDS(memory, INVALID_ARGUMENT);
    NEEDS(memory->version == VERSION(Memory_v2, 2), ARGUMENT_VERSION_MISMATCH);
    *memory = memory_of(gpu, device);
    memory->version = VERSION(Memory_v2, 2);
    DONE(OK);
}

API int nvmlDeviceGetBAR1MemoryInfo(Device device, Bar1Memory *memory)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(memory, INVALID_ARGUMENT);
    const u64 used = 1703936;
    *memory = (Bar1Memory){gpu->product.bar1, gpu->product.bar1 - used, used};
    DONE(OK);
}

API int nvmlDeviceGetTotalEccErrors(Device device, uint type, uint counter, u64 *count)
{
    CALL(READ, "\"device\":%s,\"type\":%u,\"counter\":%u", shown(device), type, counter);
    GPU(device);
    NEEDS(count && type < 2 && counter < 2, INVALID_ARGUMENT);
    NEEDS(gpu->product.ecc && gpu->ecc_current, NOT_SUPPORTED);
    *count = type ? gpu->ecc_uncorrected : gpu->ecc_corrected;
    DONE(OK);
}

API int nvmlDeviceGetRemappedRows(Device device, uint *correctable, uint *uncorrectable, uint *pending, uint *failed)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(correctable && uncorrectable && pending && failed, INVALID_ARGUMENT);
    NEEDS(gpu->product.rows, NOT_SUPPORTED);
    *correctable = gpu->remapped_correctable;
    *uncorrectable = gpu->remapped_uncorrectable;
    *pending = gpu->remap_pending;
    *failed = gpu->remap_failed;
    DONE(OK);
}

API int nvmlDeviceGetRowRemapperHistogram(Device device, RowHistogram *rows)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(rows, INVALID_ARGUMENT);
    NEEDS(gpu->product.rows, NOT_SUPPORTED);
    *rows = (RowHistogram){.max = gpu->product.rows};
    DONE(OK);
}

API int nvmlDeviceGetPdi(Device device, Pdi *pdi)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(pdi, INVALID_ARGUMENT);
    NEEDS(pdi->version == VERSION(Pdi, 1), ARGUMENT_VERSION_MISMATCH);
    pdi->value = device->gpu + 1;
    DONE(OK);
}

API int nvmlDeviceGetAddressingMode(Device device, AddressingMode *mode)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(mode, INVALID_ARGUMENT);
    NEEDS(mode->version == VERSION(AddressingMode, 1), ARGUMENT_VERSION_MISMATCH);
    mode->value = gpu->product.addressing;
    DONE(OK);
}

API int nvmlDeviceGetGpuFabricInfo(Device device, FabricInfo *info)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(info, INVALID_ARGUMENT);
    NEEDS(gpu->product.arch >= 9, NOT_SUPPORTED);
    *info = (FabricInfo){.status = gpu->fabric_status, .cliqueId = gpu->clique, .state = gpu->fabric_state};
    memcpy(info->clusterUuid, gpu->cluster, sizeof info->clusterUuid);
    DONE(OK);
}

API int nvmlDeviceGetGpuFabricInfoV(Device device, FabricInfo_v3 *info)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(info, INVALID_ARGUMENT);
    bool third = info->version == VERSION(FabricInfo_v3, 3);
    NEEDS(third || info->version == VERSION(FabricInfo_v2, 2), ARGUMENT_VERSION_MISMATCH);
    NEEDS(gpu->product.arch >= 9, NOT_SUPPORTED);
    memcpy(info->clusterUuid, gpu->cluster, sizeof info->clusterUuid);
    info->status = gpu->fabric_status;
    info->cliqueId = gpu->clique;
    info->state = gpu->fabric_state;
    info->healthMask = 0;
    if (third)
        info->healthSummary = 0;
    DONE(OK);
}

API int nvmlDeviceGetNvLinkState(Device device, uint link, uint *active)
{
    CALL(READ, "\"device\":%s,\"link\":%u", shown(device), link);
    GPU(device);
    NEEDS(active, INVALID_ARGUMENT);
    NEEDS(gpu->product.nvlinks, NOT_SUPPORTED);
    NEEDS(link < gpu->product.nvlinks, INVALID_ARGUMENT);
    *active = !gpu->mig_current;
    DONE(OK);
}

#define NO_REMOTE(function, type) \
    API int function(Device device, uint link, type *info) \
    { \
        CALL(READ, "\"device\":%s,\"link\":%u", shown(device), link); \
        GPU(device); \
        (void)gpu; \
        NEEDS(info, INVALID_ARGUMENT); \
        DONE(NOT_SUPPORTED); \
    }
NO_REMOTE(nvmlDeviceGetNvLinkRemotePciInfo, PciInfo_v2)
NO_REMOTE(nvmlDeviceGetNvLinkRemotePciInfo_v2, PciInfo)

API int nvmlDeviceGetTopologyCommonAncestor(Device device, Device other, uint *level)
{
    CALL(READ, "\"device\":%s,\"other\":%s", shown(device), shown(other));
    GPU(device);
    NEEDS(resolve(&call, other, 1u << GPU_HANDLE) && level, INVALID_ARGUMENT);
    NEEDS(device != other, NOT_SUPPORTED);
    *level = 50;
    DONE(OK);
}

/* --- settings --- */

#define SETTING(function, field, limit) \
    API int function(Device device, uint value) \
    { \
        CALL(WRITE, "\"device\":%s,\"value\":%u", shown(device), value); \
        GPU(device); \
        NEEDS(limit, INVALID_ARGUMENT); \
        gpu->field = value; \
        DONE(OK); \
    }
SETTING(nvmlDeviceSetPersistenceMode, persistence, value < 2)
SETTING(nvmlDeviceSetComputeMode, compute_mode, value < 4 && value != 1)
SETTING(nvmlDeviceSetEccMode, ecc_pending, value < 2)
SETTING(nvmlDeviceSetPowerManagementLimit, power_limit, value >= gpu->product.power_min && value <= gpu->product.power_max)

API int nvmlDeviceSetApplicationsClocks(Device device, uint memory, uint graphics)
{
    CALL(WRITE, "\"device\":%s,\"memory\":%u,\"graphics\":%u", shown(device), memory, graphics);
    GPU(device);
    NEEDS(memory == gpu->product.clock_memory && graphics && graphics <= CLOCK_GRAPHICS, INVALID_ARGUMENT);
    gpu->app_memory = memory;
    gpu->app_graphics = graphics;
    DONE(OK);
}

API int nvmlDeviceSetMigMode(Device device, uint mode, uint *activation)
{
    CALL(WRITE, "\"device\":%s,\"mode\":%u", shown(device), mode);
    GPU(device);
    NEEDS(activation, INVALID_ARGUMENT);
    int code = mode_set(call.host, gpu, mode, activation);
    if (code == OK)
        MADE("\"activation\":%u,\"current\":%u,\"pending\":%u", *activation, gpu->mig_current, gpu->mig_pending);
    DONE(code);
}

/* --- GPU instances --- */

static int profile_answers(const struct call *call, const struct gpu *gpu, uint index)
{
    if (index >= call->host->profile_count || index >= MAX_PROFILES)
        return INVALID_ARGUMENT;
    if (!gpu->product.slots || !*gpu->product.profiles[index].name)
        return NOT_SUPPORTED;
    return gpu->mig_current || call->host->profiles_without_mig ? OK : NOT_SUPPORTED;
}

API int nvmlDeviceGetGpuInstanceProfileInfo(Device device, uint index, GpuInstanceProfileInfo *info)
{
    CALL(READ, "\"device\":%s,\"index\":%u", shown(device), index);
    GPU(device);
    int code = info ? profile_answers(&call, gpu, index) : INVALID_ARGUMENT;
    NEEDS(code == OK, code);
    const struct profile *p = &gpu->product.profiles[index];
    *info = (GpuInstanceProfileInfo){p->id, 0, p->slices, p->count, p->sms, p->ces, p->decs, p->encs, p->jpgs, p->ofas, p->mib};
    DONE(OK);
}

/* Fills the second or third version, as the caller's version word asks. The real library leaves 0 there: so does this. */
static int profile_info(const struct profile *p, void *to)
{
    uint version = *(uint *)to;
    if (version == VERSION(GpuInstanceProfileInfo_v2, 2)) {
        GpuInstanceProfileInfo_v2 info = {0, p->id, 0, p->slices, p->count, p->sms, p->ces, p->decs, p->encs, p->jpgs, p->ofas,
                                          p->mib, ""};
        snprintf(info.name, sizeof info.name, "MIG %s", p->name);
        memcpy(to, &info, sizeof info);
        return OK;
    }
    if (version == VERSION(GpuInstanceProfileInfo_v3, 3)) {
        GpuInstanceProfileInfo_v3 info = {0, p->id, p->slices, p->count, p->sms, p->ces, p->decs, p->encs, p->jpgs, p->ofas,
                                          p->mib, "", p->gfx << 1};
        snprintf(info.name, sizeof info.name, "MIG %s", p->name);
        memcpy(to, &info, sizeof info);
        return OK;
    }
    return INVALID_ARGUMENT;
}

API int nvmlDeviceGetGpuInstanceProfileInfoV(Device device, uint index, void *info)
{
    CALL(READ, "\"device\":%s,\"index\":%u", shown(device), index);
    GPU(device);
    int code = info ? profile_answers(&call, gpu, index) : INVALID_ARGUMENT;
    NEEDS(code == OK, code);
    DONE(profile_info(&gpu->product.profiles[index], info));
}

/* The profile with this id and its index, where the GPU answers for it; else the code is set. */
static const struct profile *profile_of(struct call *call, const struct gpu *gpu, uint id, uint *index)
{
    const struct profile *p = profile_by_id(gpu, id, index);
    call->code = !gpu->product.slots ? NOT_SUPPORTED : p ? profile_answers(call, gpu, *index) : INVALID_ARGUMENT;
    return call->code == OK ? p : NULL;
}

#define PROFILE(id) \
    uint index; \
    const struct profile *p = profile_of(&call, gpu, id, &index); \
    NEEDS(p, call.code)

API int nvmlDeviceGetGpuInstanceProfileInfoByIdV(Device device, uint id, void *info)
{
    CALL(READ, "\"device\":%s,\"id\":%u", shown(device), id);
    GPU(device);
    NEEDS(info, INVALID_ARGUMENT);
    PROFILE(id);
    DONE(profile_info(p, info));
}

API int nvmlDeviceGetGpuInstanceRemainingCapacity(Device device, uint id, uint *count)
{
    CALL(READ, "\"device\":%s,\"id\":%u", shown(device), id);
    GPU(device);
    NEEDS(count, INVALID_ARGUMENT);
    PROFILE(id);
    *count = gi_capacity(gpu, index);
    DONE(OK);
}

/* The real library answers success with the whole count where the caller has less room. */
static int put_placements(uint starts, uint size, Placement *placements, uint *count)
{
    uint room = placements ? *count : 0, next = 0;
    for (uint start = 0; start < 32; start++)
        if (starts >> start & 1) {
            if (next < room)
                placements[next] = (Placement){start, size};
            next++;
        }
    *count = next;
    return OK;
}

static int gi_placements(struct call *call, Device device, uint id, Placement *placements, uint *count)
{
    uint index;
    struct gpu *gpu = resolve(call, device, 1u << GPU_HANDLE);
    if (!gpu || !count)
        return end(call, gpu ? INVALID_ARGUMENT : call->code);
    const struct profile *p = profile_of(call, gpu, id, &index);
    return end(call, p ? put_placements(p->starts, p->size, placements, count) : call->code);
}

API int nvmlDeviceGetGpuInstancePossiblePlacements(Device device, uint id, Placement *placements, uint *count)
{
    CALL(READ, "\"device\":%s,\"id\":%u", shown(device), id);
    return gi_placements(&call, device, id, placements, count);
}

API int nvmlDeviceGetGpuInstancePossiblePlacements_v2(Device device, uint id, Placement *placements, uint *count)
{
    CALL(READ, "\"device\":%s,\"id\":%u", shown(device), id);
    return gi_placements(&call, device, id, placements, count);
}

static int create_gi(struct call *call, Device device, uint id, const Placement *where, GpuInstance *made)
{
    uint gi;
    struct gpu *gpu = resolve(call, device, 1u << GPU_HANDLE);
    if (!gpu || !made)
        return end(call, gpu ? INVALID_ARGUMENT : call->code);
    int code = gi_create(call->host, gpu, id, where, &gi);
    if (code == OK) {
        *made = gi_handle(device->gpu, gi);
        snprintf(call->made, sizeof call->made, "\"gi\":%u,\"start\":%u,\"size\":%u", gi, gpu->gis[gi].start, gpu->gis[gi].size);
    }
    return end(call, code);
}

API int nvmlDeviceCreateGpuInstance(Device device, uint id, GpuInstance *made)
{
    CALL(WRITE, "\"device\":%s,\"id\":%u", shown(device), id);
    return create_gi(&call, device, id, NULL, made);
}

API int nvmlDeviceCreateGpuInstanceWithPlacement(Device device, uint id, const Placement *where, GpuInstance *made)
{
    CALL(WRITE, "\"device\":%s,\"id\":%u,\"start\":%d,\"size\":%d", shown(device), id, where ? (int)where->start : -1,
         where ? (int)where->size : -1);
    NEEDS(where, INVALID_ARGUMENT);
    return create_gi(&call, device, id, where, made);
}

API int nvmlGpuInstanceDestroy(GpuInstance instance)
{
    CALL(WRITE, "\"instance\":%s", shown(instance));
    GI(instance);
    (void)gi;
    DONE(gi_destroy(gpu, instance->gi));
}

API int nvmlDeviceGetGpuInstances(Device device, uint id, GpuInstance *instances, uint *count)
{
    CALL(READ, "\"device\":%s,\"id\":%u", shown(device), id);
    GPU(device);
    NEEDS(instances && count, INVALID_ARGUMENT);
    PROFILE(id);
    (void)p;
    *count = 0;
    for (uint gi = 0; gi < MAX_GIS; gi++)
        if (gpu->gis[gi].used && gpu->gis[gi].profile == index)
            instances[(*count)++] = gi_handle(device->gpu, gi);
    DONE(OK);
}

API int nvmlDeviceGetGpuInstanceById(Device device, uint gi, GpuInstance *instance)
{
    CALL(READ, "\"device\":%s,\"gi\":%u", shown(device), gi);
    GPU(device);
    NEEDS(instance, INVALID_ARGUMENT);
    NEEDS(gpu->product.slots, NOT_SUPPORTED);
    NEEDS(gi < MAX_GIS && gpu->gis[gi].used, NOT_FOUND);
    *instance = gi_handle(device->gpu, gi);
    DONE(OK);
}

API int nvmlGpuInstanceGetInfo(GpuInstance instance, GpuInstanceInfo *info)
{
    CALL(READ, "\"instance\":%s", shown(instance));
    GI(instance);
    NEEDS(info, INVALID_ARGUMENT);
    *info = (GpuInstanceInfo){gpu_handle(instance->gpu), instance->gi, gpu->product.profiles[gi->profile].id,
                              {gi->start, gi->size}};
    DONE(OK);
}

/* --- compute instances --- */

#define COMPUTE_PROFILES 9

static int ci_profile_answers(const struct gpu *gpu, const struct gpu_instance *gi, uint index, uint engine, struct ci_profile *p)
{
    if (index >= COMPUTE_PROFILES || engine)
        return INVALID_ARGUMENT;
    return ci_profile(gpu, gi, index, p) ? OK : NOT_SUPPORTED;
}

API int nvmlGpuInstanceGetComputeInstanceProfileInfo(GpuInstance instance, uint index, uint engine, ComputeInstanceProfileInfo *info)
{
    CALL(READ, "\"instance\":%s,\"index\":%u,\"engine\":%u", shown(instance), index, engine);
    GI(instance);
    struct ci_profile found;
    int code = info ? ci_profile_answers(gpu, gi, index, engine, &found) : INVALID_ARGUMENT;
    NEEDS(code == OK, code);
    const struct profile *p = &gpu->product.profiles[gi->profile];
    *info = (ComputeInstanceProfileInfo){index, found.slices, found.count, ci_sms(gpu, gi, index, found.slices), p->ces, p->decs, p->encs,
                                         p->jpgs, p->ofas};
    DONE(OK);
}

API int nvmlGpuInstanceGetComputeInstanceProfileInfoV(GpuInstance instance, uint index, uint engine, void *to)
{
    CALL(READ, "\"instance\":%s,\"index\":%u,\"engine\":%u", shown(instance), index, engine);
    GI(instance);
    struct ci_profile found;
    int code = to ? ci_profile_answers(gpu, gi, index, engine, &found) : INVALID_ARGUMENT;
    NEEDS(code == OK, code);
    const struct profile *p = &gpu->product.profiles[gi->profile];
    ComputeInstanceProfileInfo_v3 info = {0, index, found.slices, found.count, ci_sms(gpu, gi, index, found.slices), p->ces, p->decs,
                                          p->encs, p->jpgs, p->ofas, "", p->gfx};
    ci_name(gpu, gi, found.slices, info.name, sizeof info.name);
    uint version = *(uint *)to;
    if (version == VERSION(ComputeInstanceProfileInfo_v2, 2))
        memcpy(to, &info, sizeof(ComputeInstanceProfileInfo_v2)); /* the third version is the second and one field more */
    else if (version == VERSION(ComputeInstanceProfileInfo_v3, 3))
        memcpy(to, &info, sizeof info);
    else
        DONE(INVALID_ARGUMENT);
    DONE(OK);
}

API int nvmlGpuInstanceGetComputeInstanceRemainingCapacity(GpuInstance instance, uint id, uint *count)
{
    CALL(READ, "\"instance\":%s,\"id\":%u", shown(instance), id);
    GI(instance);
    struct ci_profile found;
    NEEDS(count && ci_profile(gpu, gi, id, &found), INVALID_ARGUMENT);
    *count = ci_capacity(gpu, gi, id);
    DONE(OK);
}

API int nvmlGpuInstanceGetComputeInstancePossiblePlacements(GpuInstance instance, uint id, Placement *placements, uint *count)
{
    CALL(READ, "\"instance\":%s,\"id\":%u", shown(instance), id);
    GI(instance);
    struct ci_profile found;
    NEEDS(count && ci_profile(gpu, gi, id, &found), INVALID_ARGUMENT);
    DONE(put_placements(found.starts, found.slices, placements, count));
}

static int create_ci(struct call *call, GpuInstance instance, uint id, const Placement *where, ComputeInstance *made)
{
    uint ci;
    struct gpu *gpu = resolve(call, instance, 1u << GI_HANDLE);
    if (!gpu || !made)
        return end(call, gpu ? INVALID_ARGUMENT : call->code);
    int code = ci_create(gpu, &gpu->gis[instance->gi], id, where, &ci);
    if (code == OK) {
        *made = ci_handle(instance->gpu, instance->gi, ci);
        snprintf(call->made, sizeof call->made, "\"ci\":%u,\"start\":%u", ci, gpu->gis[instance->gi].cis[ci].start);
    }
    return end(call, code);
}

API int nvmlGpuInstanceCreateComputeInstance(GpuInstance instance, uint id, ComputeInstance *made)
{
    CALL(WRITE, "\"instance\":%s,\"id\":%u", shown(instance), id);
    return create_ci(&call, instance, id, NULL, made);
}

API int nvmlGpuInstanceCreateComputeInstanceWithPlacement(GpuInstance instance, uint id, const Placement *where,
                                                          ComputeInstance *made)
{
    CALL(WRITE, "\"instance\":%s,\"id\":%u,\"start\":%d,\"size\":%d", shown(instance), id, where ? (int)where->start : -1,
         where ? (int)where->size : -1);
    NEEDS(where, INVALID_ARGUMENT);
    return create_ci(&call, instance, id, where, made);
}

API int nvmlComputeInstanceDestroy(ComputeInstance instance)
{
    CALL(WRITE, "\"instance\":%s", shown(instance));
    CI(instance);
    (void)ci;
    DONE(ci_destroy(gpu, instance->gi, instance->ci));
}

API int nvmlGpuInstanceGetComputeInstances(GpuInstance instance, uint id, ComputeInstance *instances, uint *count)
{
    CALL(READ, "\"instance\":%s,\"id\":%u", shown(instance), id);
    GI(instance);
    struct ci_profile found;
    NEEDS(instances && count && ci_profile(gpu, gi, id, &found), INVALID_ARGUMENT);
    *count = 0;
    for (uint ci = 0; ci < MAX_CIS; ci++)
        if (gi->cis[ci].used && gi->cis[ci].profile == id)
            instances[(*count)++] = ci_handle(instance->gpu, instance->gi, ci);
    DONE(OK);
}

API int nvmlGpuInstanceGetComputeInstanceById(GpuInstance instance, uint ci, ComputeInstance *found)
{
    CALL(READ, "\"instance\":%s,\"ci\":%u", shown(instance), ci);
    GI(instance);
    NEEDS(found, INVALID_ARGUMENT);
    NEEDS(ci < MAX_CIS && gi->cis[ci].used, NOT_FOUND);
    *found = ci_handle(instance->gpu, instance->gi, ci);
    DONE(OK);
}

static int ci_info(struct call *call, ComputeInstance instance, void *to, size_t size)
{
    struct gpu *gpu = resolve(call, instance, 1u << CI_HANDLE);
    if (!gpu || !to)
        return end(call, gpu ? INVALID_ARGUMENT : call->code);
    const struct compute_instance *ci = &gpu->gis[instance->gi].cis[instance->ci];
    ComputeInstanceInfo info = {gpu_handle(instance->gpu), gi_handle(instance->gpu, instance->gi), instance->ci, ci->profile,
                                {ci->start, ci->size}};
    memcpy(to, &info, size); /* the first version is the second without its last field */
    return end(call, OK);
}

API int nvmlComputeInstanceGetInfo(ComputeInstance instance, ComputeInstanceInfo_v1 *info)
{
    CALL(READ, "\"instance\":%s", shown(instance));
    return ci_info(&call, instance, info, sizeof *info);
}

API int nvmlComputeInstanceGetInfo_v2(ComputeInstance instance, ComputeInstanceInfo *info)
{
    CALL(READ, "\"instance\":%s", shown(instance));
    return ci_info(&call, instance, info, sizeof *info);
}

/* --- MIG devices --- */

API int nvmlDeviceIsMigDeviceHandle(Device device, uint *answer)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU_OR_MIG(device);
    NEEDS(answer, INVALID_ARGUMENT);
    *answer = device->kind == MIG_HANDLE;
    DONE(OK);
}

#define MIG_NUMBER(function, type, number) \
    API int function(Device device, type *value) \
    { \
        CALL(READ, "\"device\":%s", shown(device)); \
        MIG(device); \
        (void)gpu; \
        NEEDS(value, INVALID_ARGUMENT); \
        *value = number; \
        DONE(OK); \
    }
MIG_NUMBER(nvmlDeviceGetGpuInstanceId, uint, device->gi)
MIG_NUMBER(nvmlDeviceGetComputeInstanceId, uint, device->ci)
MIG_NUMBER(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, Device, gpu_handle(device->gpu))

API int nvmlDeviceGetMaxMigDeviceCount(Device device, uint *count)
{
    CALL(READ, "\"device\":%s", shown(device));
    GPU(device);
    NEEDS(count, INVALID_ARGUMENT);
    *count = mig_devices_max(gpu);
    DONE(OK);
}

API int nvmlDeviceGetMigDeviceHandleByIndex(Device device, uint index, Device *found)
{
    CALL(READ, "\"device\":%s,\"index\":%u", shown(device), index);
    GPU(device);
    uint gi, ci;
    NEEDS(gpu->product.slots, NOT_SUPPORTED);
    NEEDS(found && (!gpu->mig_current || index < mig_devices_max(gpu)), INVALID_ARGUMENT);
    NEEDS(mig_device(gpu, index, &gi, &ci), NOT_FOUND);
    *found = mig_handle(device->gpu, gi, ci);
    DONE(OK);
}

static int attributes(struct call *call, Device device, DeviceAttributes *to)
{
    struct gpu *gpu = resolve(call, device, 1u << GPU_HANDLE | 1u << MIG_HANDLE);
    if (!gpu || !to)
        return end(call, gpu ? INVALID_ARGUMENT : call->code);
    if (device->kind == GPU_HANDLE)
        return end(call, NOT_SUPPORTED);
    const struct gpu_instance *gi = &gpu->gis[device->gi];
    const struct profile *p = &gpu->product.profiles[gi->profile];
    uint slices = gi->cis[device->ci].size;
    *to = (DeviceAttributes){ci_sms(gpu, gi, gi->cis[device->ci].profile, slices), p->ces, p->decs, p->encs, p->jpgs, p->ofas, p->slices, slices, p->mib};
    return end(call, OK);
}

API int nvmlDeviceGetAttributes(Device device, DeviceAttributes *to)
{
    CALL(READ, "\"device\":%s", shown(device));
    return attributes(&call, device, to);
}

API int nvmlDeviceGetAttributes_v2(Device device, DeviceAttributes *to)
{
    CALL(READ, "\"device\":%s", shown(device));
    return attributes(&call, device, to);
}

/* --- processes --- */

static int processes(struct call *call, Device device, enum process_kind kind, uint *count, void *to, size_t size)
{
    struct gpu *gpu = resolve(call, device, 1u << GPU_HANDLE | 1u << MIG_HANDLE);
    uint found = 0;
    if (!gpu || !count)
        return end(call, gpu ? INVALID_ARGUMENT : call->code);
    for (uint i = 0; i < MAX_PROCESSES; i++) {
        const struct process *p = &gpu->processes[i];
        if (!p->pid || p->kind != kind || (device->kind == MIG_HANDLE && (p->gi != device->gi || p->ci != device->ci)))
            continue;
        ProcessInfo info = {p->pid, p->memory, p->gi, p->ci};
        if (to && found < *count)
            memcpy((char *)to + found * size, &info, size); /* the first version is the others without the ids */
        found++;
    }
    bool fits = found <= *count && (to || !found);
    *count = found;
    return end(call, fits ? OK : INSUFFICIENT_SIZE);
}

#define PROCESSES(function, kind, type) \
    API int function(Device device, uint *count, type *to) \
    { \
        CALL(READ, "\"device\":%s", shown(device)); \
        return processes(&call, device, kind, count, to, sizeof *to); \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, COMPUTE, ProcessInfo_v1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, ProcessInfo)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, ProcessInfo)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, ProcessInfo_v1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, ProcessInfo)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, ProcessInfo)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, MPS, ProcessInfo_v1)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS, ProcessInfo)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS, ProcessInfo)

/* --- events --- */

#define XID_EVENT 8ULL
struct event_set { u64 types[MAX_GPUS]; };

API int nvmlEventSetCreate(EventSet *set)
{
    CALL(READ, "%s", "");
    NEEDS(set, INVALID_ARGUMENT);
    *set = calloc(1, sizeof **set);
    DONE(*set ? OK : UNKNOWN);
}

API int nvmlEventSetFree(EventSet set)
{
    CALL(READ, "%s", "");
    NEEDS(set, INVALID_ARGUMENT);
    free(set);
    DONE(OK);
}

API int nvmlDeviceRegisterEvents(Device device, u64 types, EventSet set)
{
    CALL(READ, "\"device\":%s,\"types\":%llu", shown(device), types);
    GPU(device);
    (void)gpu;
    NEEDS(set, INVALID_ARGUMENT);
    set->types[device->gpu] |= types;
    DONE(OK);
}

/* The XID that `nvml-double set STATE gpu=0 xid=79` left is given once, to whoever waits first. */
static int event(struct call *call, EventSet set, EventData *data)
{
    if (!set || !data)
        return INVALID_ARGUMENT;
    for (uint g = 0; g < call->host->count; g++) {
        struct gpu *gpu = &call->host->gpus[g];
        if (gpu->xid && (set->types[g] & XID_EVENT)) {
            *data = (EventData){gpu_handle(g), XID_EVENT, gpu->xid, NOBODY, NOBODY};
            gpu->xid = 0;
            return OK;
        }
    }
    return TIMEOUT;
}

static int wait_for_event(const char *function, EventSet set, EventData *data, uint milliseconds)
{
    const struct timespec nap = {0, 10000000};
    for (uint waited = 0;; waited += 10) {
        struct call call;
        if (!begin(&call, function, READ, "\"milliseconds\":%u", milliseconds))
            return call.code;
        int code = event(&call, set, data);
        if (code != TIMEOUT || waited >= milliseconds)
            return end(&call, code);
        state_close(&call.state);
        nanosleep(&nap, NULL);
    }
}

API int nvmlEventSetWait_v2(EventSet set, EventData *data, uint milliseconds)
{
    return wait_for_event(__func__, set, data, milliseconds);
}

API int nvmlEventSetWait(EventSet set, EventData *data, uint milliseconds)
{
    return wait_for_event(__func__, set, data, milliseconds);
}
