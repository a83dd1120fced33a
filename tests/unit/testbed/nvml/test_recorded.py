# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What real boards answered, and what the double answers to the same reads, field by field."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path
from typing import Any

import pynvml
import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.nvml import Double

from .conftest import Make, gpu

RECORDED = Path(__file__).parent / "recorded"
#: What differs from board to board of one product: given to the double, then read back like everything else.
OWN = {
    "UUID": "uuid",
    "Serial": "serial",
    "MinorNumber": "minor",
    "VirtualizationMode": "virtualization",
    "DisplayMode": "display",
    "PersistenceMode": "persistence",
    "PowerUsage": "power_draw",
    "Temperature": "temperature",
}


def answer(call: Any, *arguments: Any) -> Any:
    try:
        value = call(*arguments)
    except pynvml.NVMLError as error:
        return {"_error": f"{type(error).__name__}: {error}"}
    if isinstance(value, ctypes.Structure):
        return {field[0]: plain(getattr(value, field[0])) for field in value._fields_}
    return list(value) if isinstance(value, (list, tuple)) else plain(value)


def plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def profile(device: Any, index: int) -> dict[str, Any]:
    info = answer(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, device, index)
    read = {"profile": index, "info": info}
    if "id" in info:
        read["capacity"] = pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(device, info["id"])
    return read


def read_device(index: int, names: list[str]) -> dict[str, Any]:
    device = gpu(index)
    read: dict[str, Any] = {"index": index}
    for name in names:
        if name == "nvlinks":
            links = [answer(pynvml.nvmlDeviceGetNvLinkState, device, link) for link in range(18)]
            read[name] = [link["_error"] if isinstance(link, dict) else link for link in links]
        elif name == "gi_profiles":
            read[name] = [profile(device, number) for number in range(18)]
        elif name == "Temperature":
            read[name] = pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU)
        elif name != "index":
            read[name] = answer(getattr(pynvml, f"nvmlDeviceGet{name}"), device)
    return read


def as_recorded(make: Make, product: str, recorded: dict[str, Any]) -> Double:
    double = make(product, recorded["count"])
    for index, device in enumerate(recorded["devices"]):
        pci = device["PciInfo"]
        double.set(
            f"gpu={index}",
            *(f"{key}={pci[key]}" for key in ("domain", "bus", "device")),
            *(f"{key}={device[name]}" for name, key in OWN.items()),
            *([] if device["nvlinks"][0] == 1 else ["nvlinks=0"]),
        )
    return double


@pytest.mark.rows("FK-04")
@pytest.mark.parametrize(("product", "file"), [("H200-SXM5-141GB", "h200"), ("H100-SXM5-80GB", "h100")])
def test_real_answers_are_reproduced_field_by_field(make: Make, product: str, file: str) -> None:
    recorded = json.loads((RECORDED / f"nvml-{file}.json").read_text())
    as_recorded(make, product, recorded)
    read = {
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "nvml": pynvml.nvmlSystemGetNVMLVersion(),
        "cuda": pynvml.nvmlSystemGetCudaDriverVersion(),
        "count": pynvml.nvmlDeviceGetCount(),
        "devices": [read_device(index, list(device)) for index, device in enumerate(recorded["devices"])],
    }
    assert read == recorded


def placements(device: Any, profile_id: int) -> tuple[list[int], int]:
    count = ctypes.c_uint()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, None, ctypes.byref(count))
    found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, found, ctypes.byref(count))
    assert len({place.size for place in found}) == 1
    return [place.start for place in found], found[0].size


@pytest.mark.rows("FK-04")
@pytest.mark.parametrize(("product", "file"), [("H200-SXM5-141GB", "h200"), ("H100-SXM5-80GB", "h100")])
def test_placements_are_those_that_nvidia_smi_printed(make: Make, product: str, file: str) -> None:
    """``GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1``"""
    lines = (RECORDED / f"lgipp-{file}.txt").read_text().splitlines()
    make(product, 2)
    for line in lines:
        found = re.fullmatch(r"GPU +(\d+) Profile ID +(\d+) Placements? ?: \{([\d,]+)\}:(\d)", line)
        assert found, line
        index, profile_id, starts, size = found.groups()
        assert placements(gpu(int(index)), int(profile_id)) == ([int(s) for s in starts.split(",")], int(size)), line
    assert len(lines) in (7, 14)


@pytest.mark.rows("FK-04")
@pytest.mark.parametrize(
    ("product", "total", "reserved", "rows", "bar1"),
    [("H100-SXM5-80GB", 81559, 480, 2560, 131072), ("H200-SXM5-141GB", 143771, 616, 3072, 262144)],
)
def test_what_nvidia_smi_printed_of_memory_and_rows(
    make: Make, product: str, total: int, reserved: int, rows: int, bar1: int
) -> None:
    make(product, 1)
    memory = pynvml.nvmlDeviceGetMemoryInfo(gpu(), pynvml.nvmlMemory_v2)
    assert (memory.total >> 20, -(-memory.reserved >> 20), memory.used) == (total, reserved, 0)
    assert memory.total == memory.reserved + memory.used + memory.free
    assert pynvml.nvmlDeviceGetRowRemapperHistogram(gpu()).max == rows
    assert pynvml.nvmlDeviceGetBAR1MemoryInfo(gpu()).bar1Total >> 20 == bar1


#: Asked of a real H200 with MIG mode off, pynvml's class of error or the answer.
ASKED = {
    "ModuleId": 2,
    "DisplayActive": 0,
    "PerformanceState": 0,
    "PowerManagementLimit": 700000,
    "PowerManagementDefaultLimit": 700000,
    "DefaultEccMode": [1],
    "SupportedEventTypes": 65439,
    "NumaNodeId": "NVMLError_NotSupported",
    "AccountingMode": 0,
    "AddressingMode": 0,
    "FanSpeed": "NVMLError_NotSupported",
    "EncoderUtilization": [0, 100000],
    "GraphicsRunningProcesses": [],
    "MPSComputeRunningProcesses": [],
    "Attributes": "NVMLError_NotSupported",
    "GpuInstanceId": "NVMLError_InvalidArgument",
    "ComputeInstanceId": "NVMLError_InvalidArgument",
    "DeviceHandleFromMigDeviceHandle": "NVMLError_InvalidArgument",
}
ASKED_WITH = [
    ("HandleByUUID", "GPU-deadbeef-0000-0000-0000-000000000000", "NVMLError_NotFound"),
    ("HandleByUUID", "nonsense", "NVMLError_NotFound"),
    ("HandleByUUID", "MIG-x/1/0", "NVMLError_NotFound"),
    ("HandleByPciBusId", "00000000:f0:00.0", "NVMLError_NotFound"),
    ("HandleByPciBusId", "nonsense", "NVMLError_InvalidArgument"),
    ("HandleBySerial", "42", "NVMLError_NotFound"),
    ("HandleByIndex", 99, "NVMLError_InvalidArgument"),
]
TEXTS = {
    3: "Not Supported",
    4: "Insufficient Permissions",
    15: "GPU is lost",
    16: "GPU requires reset",
    17: "GPU access blocked by the operating system",
    18: "Driver/library version mismatch",
    19: "In use by another client",
    22: "vGPU ECC not supported",
    23: "Insufficient Resources",
    24: "Invalid Frequency",
    25: "Argument version mismatch",
    26: "Requested functionality has been deprecated",
    27: "System is not in ready state",
    28: "No supported GPUs were found",
    29: "Resource not in correct state to perform requested operation",
    30: "Reset type is not supported for given device",
    55: "Unknown Error",
    999: "Unknown Error",
}


def short(call: Any, *arguments: Any) -> Any:
    found = answer(call, *arguments)
    return found["_error"].split(":")[0] if isinstance(found, dict) and "_error" in found else found


@pytest.mark.rows("FK-04", "NV-02")
def test_answers_to_odd_questions_are_the_real_ones(make: Make) -> None:
    make("H200-SXM5-141GB", 1).set("gpu=0", "module_id=2")
    assert {name: short(getattr(pynvml, f"nvmlDeviceGet{name}"), gpu()) for name in ASKED} == ASKED
    for name, argument, wanted in ASKED_WITH:
        assert short(getattr(pynvml, f"nvmlDeviceGet{name}"), argument) == wanted, (name, argument)
    assert [short(pynvml.nvmlDeviceGetInforomVersion, gpu(), number) for number in range(5)] == [
        "2.1",
        "7.16",
        "NVMLError_NotSupported",
        "NVMLError_NotSupported",
        "NVMLError_InvalidArgument",
    ]
    assert {code: pynvml.nvmlErrorString(code) for code in TEXTS} == TEXTS
