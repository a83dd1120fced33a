/* Copyright: (c) 2026, gpufleet.nvidia contributors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
/* The part of NVML's binary interface that the double offers. Sizes and offsets are asserted here at compile time, and
 * against pynvml's own classes by tests/unit/testbed/nvml/test_structs.py, which reads `nvml-double structs`. */
#ifndef NVML_DOUBLE_API_H
#define NVML_DOUBLE_API_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned int uint;
typedef unsigned long long u64;

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    RESET_REQUIRED = 16,
    LIB_RM_VERSION_MISMATCH = 18,
    IN_USE = 19,
    INSUFFICIENT_RESOURCES = 23,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

/* What a caller holds: the address of a row of one of the library's tables, never to be read by the caller. */
typedef struct handle *Device;
typedef struct handle *GpuInstance;
typedef struct handle *ComputeInstance;
typedef struct event_set *EventSet;

#define NAME_SIZE 96
#define UUID_SIZE 80
#define VERSION(type, number) ((uint)(sizeof(type) | ((number) << 24)))

typedef struct { uint start, size; } Placement;

typedef struct {
    uint id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount, encoderCount,
        jpegCount, ofaCount;
    u64 memorySizeMB;
} GpuInstanceProfileInfo;

typedef struct {
    uint version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
        encoderCount, jpegCount, ofaCount;
    u64 memorySizeMB;
    char name[NAME_SIZE];
} GpuInstanceProfileInfo_v2;

typedef struct {
    uint version, id, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount, encoderCount, jpegCount,
        ofaCount;
    u64 memorySizeMB;
    char name[NAME_SIZE];
    uint capabilities;
} GpuInstanceProfileInfo_v3;

typedef struct {
    Device device;
    uint id, profileId;
    Placement placement;
} GpuInstanceInfo;

typedef struct {
    uint id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount,
        sharedJpegCount, sharedOfaCount;
} ComputeInstanceProfileInfo;

typedef struct {
    uint version, id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
        sharedEncoderCount, sharedJpegCount, sharedOfaCount;
    char name[NAME_SIZE];
} ComputeInstanceProfileInfo_v2;

typedef struct {
    uint version, id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
        sharedEncoderCount, sharedJpegCount, sharedOfaCount;
    char name[NAME_SIZE];
    uint capabilities;
} ComputeInstanceProfileInfo_v3;

typedef struct {
    Device device;
    GpuInstance gpuInstance;
    uint id, profileId;
} ComputeInstanceInfo_v1;

typedef struct {
    Device device;
    GpuInstance gpuInstance;
    uint id, profileId;
    Placement placement;
} ComputeInstanceInfo;

typedef struct {
    uint multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount,
        gpuInstanceSliceCount, computeInstanceSliceCount;
    u64 memorySizeMB;
} DeviceAttributes;

typedef struct {
    char busIdLegacy[16];
    uint domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} PciInfo;

typedef struct {
    char busId[16];
    uint domain, bus, device, pciDeviceId, pciSubSystemId, reserved0, reserved1, reserved2, reserved3;
} PciInfo_v2;

typedef struct {
    uint version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
    char busId[32];
} PciInfoExt;

typedef struct { u64 total, free, used; } Memory;

typedef struct {
    uint version;
    u64 total, reserved, free, used;
} Memory_v2;

typedef struct { u64 bar1Total, bar1Free, bar1Used; } Bar1Memory;

typedef struct { uint gpu, memory; } Utilization;

typedef struct {
    uint pid;
    u64 usedGpuMemory;
} ProcessInfo_v1;

typedef struct {
    uint pid;
    u64 usedGpuMemory;
    uint gpuInstanceId, computeInstanceId;
} ProcessInfo;

typedef struct {
    Device device;
    u64 eventType, eventData;
    uint gpuInstanceId, computeInstanceId;
} EventData;

typedef struct {
    unsigned char clusterUuid[16];
    uint status, cliqueId;
    unsigned char state;
} FabricInfo;

typedef struct {
    uint version;
    unsigned char clusterUuid[16];
    uint status, cliqueId;
    unsigned char state;
    uint healthMask;
} FabricInfo_v2;

typedef struct {
    uint version;
    unsigned char clusterUuid[16];
    uint status, cliqueId;
    unsigned char state;
    uint healthMask;
    unsigned char healthSummary;
} FabricInfo_v3;

typedef struct { uint version, value; } AddressingMode;

typedef struct {
    uint version;
    u64 value;
} Pdi;

typedef struct { uint max, high, partial, low, none; } RowHistogram;

typedef struct {
    uint version, sensorType;
    int temperature;
} Temperature_v1;

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has another size than NVML's")
SIZE(Placement, 8);
SIZE(GpuInstanceProfileInfo, 48);
SIZE(GpuInstanceProfileInfo_v2, 152);
SIZE(GpuInstanceProfileInfo_v3, 152);
SIZE(GpuInstanceInfo, 24);
SIZE(ComputeInstanceProfileInfo, 36);
SIZE(ComputeInstanceProfileInfo_v2, 136);
SIZE(ComputeInstanceProfileInfo_v3, 140);
SIZE(ComputeInstanceInfo_v1, 24);
SIZE(ComputeInstanceInfo, 32);
SIZE(DeviceAttributes, 40);
SIZE(PciInfo, 68);
SIZE(PciInfo_v2, 52);
SIZE(PciInfoExt, 64);
SIZE(Memory, 24);
SIZE(Memory_v2, 40);
SIZE(Bar1Memory, 24);
SIZE(Utilization, 8);
SIZE(ProcessInfo_v1, 16);
SIZE(ProcessInfo, 24);
SIZE(EventData, 32);
SIZE(FabricInfo, 28);
SIZE(FabricInfo_v2, 36);
SIZE(FabricInfo_v3, 40);
SIZE(AddressingMode, 8);
SIZE(Pdi, 16);
SIZE(RowHistogram, 20);
SIZE(Temperature_v1, 12);

#endif
