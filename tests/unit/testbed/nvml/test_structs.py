# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The double's symbols and structs are those of NVML."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from pathlib import Path

import pynvml
import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed import nvml

CLASSES = {
    "Placement": pynvml.c_nvmlGpuInstancePlacement_t,
    "GpuInstanceProfileInfo": pynvml.c_nvmlGpuInstanceProfileInfo_t,
    "GpuInstanceProfileInfo_v2": pynvml.c_nvmlGpuInstanceProfileInfo_v2_t,
    "GpuInstanceInfo": pynvml.c_nvmlGpuInstanceInfo_t,
    "ComputeInstanceProfileInfo": pynvml.c_nvmlComputeInstanceProfileInfo_t,
    "ComputeInstanceProfileInfo_v2": pynvml.c_nvmlComputeInstanceProfileInfo_v2_t,
    "ComputeInstanceInfo": pynvml.c_nvmlComputeInstanceInfo_t,
    "DeviceAttributes": pynvml.c_nvmlDeviceAttributes,
    "PciInfo": pynvml.nvmlPciInfo_t,
    "PciInfo_v2": pynvml.nvmlPciInfo_v2_t,
    "PciInfoExt": pynvml.nvmlPciInfoExt_v1_t,
    "Memory": pynvml.c_nvmlMemory_t,
    "Memory_v2": pynvml.c_nvmlMemory_v2_t,
    "Bar1Memory": pynvml.c_nvmlBAR1Memory_t,
    "Utilization": pynvml.c_nvmlUtilization_t,
    "ProcessInfo": pynvml.c_nvmlProcessInfo_v3_t,
    "EventData": pynvml.c_nvmlEventData_t,
    "FabricInfo": pynvml.c_nvmlGpuFabricInfo_t,
    "FabricInfo_v2": pynvml.c_nvmlGpuFabricInfo_v2_t,
    "FabricInfo_v3": pynvml.c_nvmlGpuFabricInfo_v3_t,
    "AddressingMode": pynvml.c_nvmlDeviceAddressingMode_t,
    "Pdi": pynvml.c_nvmlPdi_t,
    "RowHistogram": pynvml.c_nvmlRowRemapperHistogramValues,
    "Temperature_v1": pynvml.c_nvmlTemperature_v1_t,
}

#: What the specification lists, with the oldest and the newest name of each family.
SYMBOLS = (Path(__file__).parent / "symbols.txt").read_text().split()


def exported() -> set[str]:
    library = nvml.build() / nvml.LIBRARY
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in listed.stdout.splitlines()}


@pytest.mark.rows("FK-02")
def test_sizes_and_offsets_are_pynvmls() -> None:
    ours = json.loads(subprocess.run([nvml.build() / nvml.PROGRAM, "structs"], capture_output=True, check=True).stdout)
    assert set(ours) == set(CLASSES)
    for name, kind in CLASSES.items():
        theirs = {field[0]: getattr(kind, field[0]).offset for field in kind._fields_}
        assert ours[name] == {"size": ctypes.sizeof(kind), **theirs}, name


def test_versions_are_pynvmls() -> None:
    header = (nvml.HERE / "library.c").read_text()
    words = {
        "GpuInstanceProfileInfo_v2, 2": pynvml.nvmlGpuInstanceProfileInfo_v2,
        "ComputeInstanceProfileInfo_v2, 2": pynvml.nvmlComputeInstanceProfileInfo_v2,
        "Memory_v2, 2": pynvml.nvmlMemory_v2,
        "FabricInfo_v2, 2": pynvml.nvmlGpuFabricInfo_v2,
        "FabricInfo_v3, 3": pynvml.nvmlGpuFabricInfo_v3,
        "AddressingMode, 1": pynvml.nvmlDeviceAddressingMode_v1,
        "Temperature_v1, 1": pynvml.nvmlTemperature_v1,
        "Pdi, 1": pynvml.nvmlPdi_v1,
        "PciInfoExt, 1": pynvml.nvmlPciInfoExt_v1,
    }
    used = set(re.findall(r"VERSION\((\w+, \d)\)", header))
    assert used - set(words) == {"GpuInstanceProfileInfo_v3, 3", "ComputeInstanceProfileInfo_v3, 3"}  # not in pynvml
    for name, word in words.items():
        kind, number = name.split(", ")
        assert word == ctypes.sizeof(CLASSES[kind]) | int(number) << 24, name


@pytest.mark.rows("FK-01")
def test_oldest_and_newest_names_are_exported() -> None:
    assert set(SYMBOLS) - exported() == set()


@pytest.mark.rows("FK-01")
def test_nothing_but_nvml_is_exported() -> None:
    assert [name for name in exported() if not name.startswith("nvml")] == []


@pytest.mark.rows("FK-01")
def test_library_is_found_by_its_soname() -> None:
    shown = subprocess.run(["readelf", "-d", nvml.build() / nvml.LIBRARY], capture_output=True, text=True, check=True)
    assert "soname: [libnvidia-ml.so.1]" in shown.stdout
