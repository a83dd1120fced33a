# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's own Go libraries load the NVML double as they load the real one, and their header agrees with it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed import nvml, programs
from ansible_collections.gpufleet.nvidia.tests.testbed.nvml import Double

#: Structs of ours that the header has and pynvml has not, or has otherwise.
HEADER = {
    "GpuInstanceProfileInfo_v3": ("nvmlGpuInstanceProfileInfo_v3_t", ("version", "id", "memorySizeMB", "capabilities")),
    "ComputeInstanceProfileInfo_v3": (
        "nvmlComputeInstanceProfileInfo_v3_t",
        ("version", "id", "sharedOfaCount", "name", "capabilities"),
    ),
    "ComputeInstanceInfo": ("nvmlComputeInstanceInfo_t", ("device", "gpuInstance", "id", "profileId", "placement")),
    "FabricInfo_v3": ("nvmlGpuFabricInfo_v3_t", ("clusterUuid", "state", "healthMask", "healthSummary")),
    "ProcessInfo_v1": ("nvmlProcessInfo_v1_t", ("pid", "usedGpuMemory")),
    "ProcessInfo": ("nvmlProcessInfo_v2_t", ("pid", "usedGpuMemory", "gpuInstanceId", "computeInstanceId")),
    "PciInfo": ("nvmlPciInfo_t", ("busIdLegacy", "domain", "pciSubSystemId", "busId")),
    "Memory_v2": ("nvmlMemory_v2_t", ("version", "total", "reserved", "free", "used")),
    "DeviceAttributes": ("nvmlDeviceAttributes_t", ("multiprocessorCount", "memorySizeMB")),
    "EventData": ("nvmlEventData_t", ("device", "eventType", "gpuInstanceId")),
}


def read(double: Double, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [programs.ensure("gonvml"), *arguments],
        env={**os.environ, **double.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    gpus: list[dict[str, Any]] = json.loads(done.stdout)
    return gpus


@pytest.mark.rows("FK-01", "FK-07")
def test_go_reads_mixed_products(tmp_path: Path) -> None:
    double = Double.create(tmp_path, "--product", "H200-SXM5-141GB", "--count", "1", "--product", "L4", "--count", "1")
    double.set("gpu=0", "mig=1", "instance=9@4", "instance=14@0,ci=0,ci=0")
    h200, l4 = read(double)
    shown = double.show()["gpus"]
    assert (l4["Capable"], l4["Architecture"], l4["Devices"]) == (False, "Ada Lovelace", None)
    assert (h200["Capable"], h200["Enabled"], h200["Compute"]) == (True, True, "9.0")
    assert (h200["UUID"], h200["Bus"]) == (shown[0]["uuid"], "0000:07:00.0")
    assert {name for name in h200["Profiles"] if "c." not in name} == {
        profile["name"] for profile in shown[0]["profiles"].values()
    }
    found = [(d["Index"], d["Profile"], d["Memory"], d["SMs"], d["GI"], d["CI"]) for d in h200["Devices"]]
    assert found == [
        (0, "3g.71gb", 71424, 60, 2, 0),
        (1, "1c.2g.35gb", 33280, 16, 3, 0),
        (2, "1c.2g.35gb", 33280, 16, 3, 1),
    ]
    assert [d["UUID"] for d in h200["Devices"]] == [ci["uuid"] for gi in shown[0]["instances"] for ci in gi["cis"]]


@pytest.mark.rows("FK-01", "FK-04")
@pytest.mark.parametrize(
    ("product", "profile"),
    [
        ("A30", "2g.12gb"),
        ("A100-SXM4-40GB", "1g.10gb"),
        ("B200-180GB", "1g.23gb+me"),
        ("RTX-PRO-6000", "1g.24gb+me.all"),
    ],
)
def test_go_creates_what_it_then_sees(tmp_path: Path, product: str, profile: str) -> None:
    double = Double.create(tmp_path, "--product", product, "--count", "1")
    (gpu,) = read(double, "0", profile)
    assert [device["Profile"] for device in gpu["Devices"]] == [profile]
    assert [call["function"] for call in double.writes()] == [
        "nvmlDeviceSetMigMode",
        "nvmlDeviceCreateGpuInstance",
        "nvmlGpuInstanceCreateComputeInstance",
    ]


@pytest.mark.rows("FK-02")
def test_structs_are_those_of_the_header(tmp_path: Path) -> None:
    go = programs.find_go()
    folder = programs.PROGRAMS["gonvml"].folder
    subprocess.run([go, "mod", "download"], cwd=folder, check=True)
    listed = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml"],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = ['#include "nvml.h"', '#include "api.h"']
    for ours, (theirs, fields) in HEADER.items():
        lines.append(f'_Static_assert(sizeof({ours}) == sizeof({theirs}), "{ours}");')
        lines += [
            f'_Static_assert(offsetof({ours}, {field}) == offsetof({theirs}, {field}), "{ours}.{field}");'
            for field in fields
        ]
    source = tmp_path / "structs.c"
    source.write_text("\n".join([*lines, ""]))
    header = Path(listed.stdout.strip()) / "pkg/nvml"
    done = subprocess.run(
        [nvml.compiler(), "-w", "-fsyntax-only", f"-I{header}", f"-I{nvml.HERE}", source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
