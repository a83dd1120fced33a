/* Copyright: (c) 2026, gpufleet.nvidia contributors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later */
/* NVML's return codes: number, name, and the text that nvmlErrorString gives. */
#include <string.h>
#include "state.h"

static const struct { int code; const char *name, *text; } codes[] = {
    {0, "SUCCESS", "Success"},
    {1, "UNINITIALIZED", "Uninitialized"},
    {2, "INVALID_ARGUMENT", "Invalid Argument"},
    {3, "NOT_SUPPORTED", "Not Supported"},
    {4, "NO_PERMISSION", "Insufficient Permissions"},
    {5, "ALREADY_INITIALIZED", "Already Initialized"},
    {6, "NOT_FOUND", "Not Found"},
    {7, "INSUFFICIENT_SIZE", "Insufficient Size"},
    {8, "INSUFFICIENT_POWER", "Insufficient External Power"},
    {9, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {10, "TIMEOUT", "Timeout"},
    {11, "IRQ_ISSUE", "Interrupt Request Issue"},
    {12, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {13, "FUNCTION_NOT_FOUND", "Function Not Found"},
    {14, "CORRUPTED_INFOROM", "Corrupted infoROM"},
    {15, "GPU_IS_LOST", "GPU is lost"},
    {16, "RESET_REQUIRED", "GPU requires reset"},
    {17, "OPERATING_SYSTEM", "GPU access blocked by the operating system"},
    {18, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"},
    {19, "IN_USE", "In use by another client"},
    {20, "MEMORY", "Insufficient Memory"},
    {21, "NO_DATA", "No data"},
    {22, "VGPU_ECC_NOT_SUPPORTED", "vGPU ECC not supported"},
    {23, "INSUFFICIENT_RESOURCES", "Insufficient Resources"},
    {24, "FREQ_NOT_SUPPORTED", "Invalid Frequency"},
    {25, "ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {26, "DEPRECATED", "Requested functionality has been deprecated"},
    {27, "NOT_READY", "System is not in ready state"},
    {28, "GPU_NOT_FOUND", "No supported GPUs were found"},
    {29, "INVALID_STATE", "Resource not in correct state to perform requested operation"},
    {30, "RESET_TYPE_NOT_SUPPORTED", "Reset type is not supported for given device"},
    {999, "UNKNOWN", "Unknown Error"},
};

static uint row(int code)
{
    uint last = sizeof codes / sizeof *codes - 1;
    for (uint i = 0; i < last; i++)
        if (codes[i].code == code)
            return i;
    return last;
}

const char *code_name(int code) { return codes[row(code)].name; }
const char *code_text(int code) { return codes[row(code)].text; }

bool code_by_name(const char *name, int *code)
{
    for (uint i = 0; i < sizeof codes / sizeof *codes; i++)
        if (!strcmp(codes[i].name, name)) {
            *code = codes[i].code;
            return true;
        }
    return false;
}
