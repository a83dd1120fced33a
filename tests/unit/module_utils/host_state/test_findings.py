# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What does not fit together on a host is told; what fits is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._board import Gpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._inventory import Card, MigInstance
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state import _findings, _join, _smi
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._driver import Proc
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._shape import Found, GpuState, Mig
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._system import SECURE_BOOT, System
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.host_state.trees import (
    found,
    gpu,
    loaded,
    module_file,
    recorded,
)

KERNEL = {"/proc/sys/kernel/osrelease": "6.8.0-60-generic\n"}
T4 = gpu("0000:01:00.0", "0x1eb8", "nvidia")
V100 = gpu("0000:02:00.0", "0x1db6", "nvidia")
B200 = gpu("0000:03:00.0", "0x2901", "nvidia")
SWITCH = gpu("0000:c1:00.0", "0x22a3", "nvidia-nvswitch", "0x068000")


def ko(kernel: str, version: str, **more: str) -> dict[str, bytes]:
    path = f"/lib/modules/{kernel}/updates/dkms/nvidia.ko"
    return {path: module_file(version=version, license="Dual MIT/GPL", **more)}


def library(version: str, folder: str = "/usr/lib/x86_64-linux-gnu") -> dict[str, str]:
    return {f"{folder}/libnvidia-ml.so.{version}": ""}


def packages(*rows: str) -> dict[str, str]:
    paragraphs = [row.split() for row in rows]
    text = "\n".join(f"Package: {n}\nStatus: install ok installed\nVersion: {v}\n" for n, v in paragraphs)
    return {"/var/lib/dpkg/status": text}


def cdi(version: str) -> str:
    return f"kind: nvidia.com/gpu\ndevices:\n- name: '0'\n  hostPath: /lib/libcuda.so.{version}\n"


@pytest.mark.parametrize("name", ["h100", "h200", "2xh200"])
def test_real_machines_have_no_findings(tmp_path: Path, name: str) -> None:
    state, findings = found(tmp_path, recorded(name))
    assert findings == {}
    assert state["driver"]["state"] == "loaded"


@pytest.mark.rows("P026", "P036", "P037", "P042", "P043", "P044")
@pytest.mark.parametrize(
    ("files", "finding", "words"),
    [
        ({**T4, **loaded("580.1"), **library("590.2")}, "driver.libraries", "580.1"),
        ({**T4, **library("580.1"), **library("590.2", "/usr/lib64")}, "driver.several_libraries", "/usr/lib64"),
        ({**T4, **KERNEL, **loaded("580.1"), **ko("6.8.0-60-generic", "580.2")}, "driver.loaded_is_old", "580.2"),
        ({**T4, **KERNEL, **ko("6.8.0-59-generic", "580.2")}, "driver.other_kernel", "6.8.0-59-generic"),
        (
            {**T4, **KERNEL, **ko("6.8.0-60-generic", "580.2"), "/lib/modules/6.8.0-101-generic/modules.dep": ""},
            "driver.next_kernel",
            "6.8.0-101-generic",
        ),
        ({**V100, **loaded("580.1")}, "driver.flavour", "proprietary"),
        ({**B200, **loaded("580.1", "proprietary")}, "driver.flavour", "open"),
        ({**V100, **loaded("590.1", "proprietary")}, "driver.branch", "384 to 580"),
        ({**B200, **loaded("550.1")}, "driver.branch", "570 or newer"),
        ({**V100, **B200}, "driver.impossible", "one host runs one kind"),
        ({**gpu("0000:01:00.0", "0x2050")}, "gpu.unknown", "10de:2050"),
        ({**gpu("0000:01:00.0", "0x3fff")}, "gpu.unknown", "10de:3fff"),
        ({**gpu("0000:01:00.0", "0x1eb8", "nouveau")}, "gpu.other_driver", "0000:01:00.0: is bound to nouveau"),
        ({**gpu("0000:01:00.0", "0x1eb8", "vfio-pci")}, "gpu.passed_through", "vfio-pci"),
        ({**gpu("0000:01:00.0", "0x1eb8"), **loaded("580.1")}, "gpu.unbound", "no driver"),
        ({**T4, "/proc/modules": "nouveau 1 0 - Live 0x0\n"}, "driver.nouveau", "nouveau"),
        (
            {**T4, **KERNEL, **ko("6.8.0-60-generic", "580.2"), SECURE_BOOT: b"\x06\0\0\0\x01"},
            "driver.unsigned",
            "Secure Boot",
        ),
        (
            {**T4, **loaded("580.1"), "/lib/firmware/nvidia/570.1/gsp_tu10x.bin": ""},
            "driver.firmware",
            "570.1",
        ),
        (
            {**T4, **packages("nvidia-dkms-580 580.1"), "/usr/bin/nvidia-uninstall": ""},
            "driver.two_installations",
            "installer",
        ),
        (
            {**T4, **packages("nvidia-container-toolkit 1.18.0-1", "libnvidia-container1 1.17.8-1")},
            "toolkit.mixed",
            "1.17.8-1, 1.18.0-1",
        ),
        ({**T4, **packages("nvidia-fabricmanager-580 580.1-1")}, "fabric.unneeded", "no NVSwitch"),
        (
            {**T4, **SWITCH, **loaded("580.95.05"), **packages("nvidia-fabricmanager-580 580.82.07-1")},
            "fabric.version",
            "580.82.07",
        ),
        ({**T4, **SWITCH, **loaded("580.95.05"), **packages("nvidia-utils-580 580.1")}, "fabric.missing", "NVSwitch"),
        ({**T4, **loaded("580.95.05"), "/etc/cdi/n.yaml": cdi("570.1.2")}, "cdi.old", "570.1.2"),
        (
            {**T4, "/etc/cdi/n.yaml": cdi("580.1"), "/var/run/cdi/n.yaml": cdi("580.1")},
            "cdi.hidden",
            "/var/run/cdi/n.yaml",
        ),
        ({**T4, "/etc/cdi/a.yaml": cdi("580.1"), "/etc/cdi/b.yaml": cdi("580.1")}, "cdi.conflict", "/etc/cdi/a.yaml"),
        (
            {
                **T4,
                "/proc/9/fd/x": "",
                "/proc/9/maps": "0-1 r-xp 0 0 1 /usr/lib/libcuda.so.580.1 (deleted)\n",
                "/proc/9/comm": "train\n",
            },
            "process.old_libraries",
            "train (9)",
        ),
    ],
)
def test_each_misfit_is_told_with_what_to_do(tmp_path: Path, files: dict[str, Any], finding: str, words: str) -> None:
    _state, findings = found(tmp_path, files)
    assert finding in findings
    assert words in findings[finding].sentence()
    assert findings[finding].remedy


@pytest.mark.parametrize(
    "files",
    [
        {
            **T4,
            **SWITCH,
            **KERNEL,
            **loaded("580.95.05"),
            **library("580.95.05"),
            **ko("6.8.0-60-generic", "580.95.05", signer="MOK"),
            **packages("nvidia-fabricmanager-580 580.95.05-1", "nvidia-container-toolkit 1.18.0-1"),
            SECURE_BOOT: b"\x06\0\0\0\x01",
            "/lib/firmware/nvidia/580.95.05/gsp_tu10x.bin": "",
            "/etc/cdi/n.yaml": cdi("580.95.05"),
            "/lib/modules/6.8.0-9-generic/modules.dep": "",
        },
        {**V100, **T4, **loaded("580.95.05", "proprietary"), **packages("nvidia-dkms-580 580.95.05-1")},
        {},
    ],
)
def test_what_fits_has_no_finding(tmp_path: Path, files: dict[str, Any]) -> None:
    assert found(tmp_path, files)[1] == {}


@pytest.mark.rows("P041")
@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({}, "absent"),
        ({**library("580.1")}, "files_only"),
        ({**KERNEL, **ko("6.1.0", "580.1")}, "files_only"),
        ({**KERNEL, **ko("6.8.0-60-generic", "580.1")}, "not_loaded"),
        ({**loaded("580.1")}, "loaded"),
        ({**loaded("580.1"), **library("580.1"), **library("590.1", "/usr/lib64")}, "loaded"),
        ({**loaded("580.1"), **library("590.1")}, "mismatch"),
    ],
)
def test_the_driver_is_there_when_it_is_loaded_not_when_files_are(
    tmp_path: Path, files: dict[str, Any], state: str
) -> None:
    read = found(tmp_path, files)[0]["driver"]
    assert read["state"] == state
    assert bool(read["why"]) == (state != "absent")


@pytest.mark.parametrize(
    ("gpus", "flavour", "first", "last"),
    [
        ([], "none", 0, 0),
        ([T4], "either", 410, 0),
        ([T4, V100], "proprietary", 410, 580),
        ([T4, B200], "open", 570, 0),
        ([V100, B200], "impossible", 570, 580),
        ([gpu("0000:09:00.0", "0x102d"), V100], "proprietary", 384, 470),
        ([gpu("0000:09:00.0", "0x06c0"), V100], "proprietary", 384, 390),
        ([gpu("0000:09:00.0", "0x06c0"), T4], "impossible", 410, 390),
        ([T4, gpu("0000:09:00.0", "0x2050")], "unknown", 410, 0),
    ],
)
def test_what_all_gpus_need_together(
    tmp_path: Path, gpus: list[dict[str, str]], flavour: str, first: int, last: int
) -> None:
    files = {path: text for one in gpus for path, text in one.items()}
    needs = found(tmp_path, files)[0]["needs"]
    assert (needs["flavour"], needs["first_branch"], needs["last_branch"]) == (flavour, first, last)


def state(mig: Mig, **more: Any) -> Found:
    return Found(System(), [GpuState("0000:01:00.0", mig=mig, **more)])


@pytest.mark.parametrize(
    ("mig", "finding"),
    [
        (Mig("yes", "disabled", "enabled"), "mig.pending"),
        (Mig("yes", "enabled", "disabled"), "mig.pending"),
        (Mig("yes", "enabled", "enabled"), "mig.empty"),
        (Mig("yes", "enabled", "enabled", [MigInstance(1, "1g.10gb", 0, 1, [])]), "mig.half_made"),
        (Mig("yes", "disabled", "disabled"), ""),
        (Mig("no", "unsupported", "unsupported"), ""),
        (Mig(), ""),
    ],
)
def test_mig_that_is_not_in_effect_is_told(mig: Mig, finding: str) -> None:
    assert [one.id for one in _findings.look(state(mig))] == ([finding] if finding else [])


def test_a_gpu_that_nvml_does_not_list_is_told() -> None:
    one = state(Mig(), driver="nvidia", seen_by=["sysfs"])
    assert _findings.look(one) == []
    one.nvml.state = "ok"
    assert [finding.id for finding in _findings.look(one)] == ["gpu.not_in_nvml"]
    one.gpus[0].excluded = True
    assert "excluded" in _findings.look(one)[0].detail


def test_sources_that_write_bus_ids_differently_are_one_gpu() -> None:
    card = Card(
        Gpu(3, "GPU-1", "00000000:3B:00.0", "NVIDIA H200", 0x233510DE, 0x18BF10DE, 1, 143771 << 20), "0000:3b:00.0"
    )
    card.mig_current = card.mig_pending = "enabled"
    row = dict.fromkeys(_smi.COLUMNS, "")
    row.update({"index": "4", "uuid": "GPU-2", "pci.bus_id": "00000000:5E:00.0", "name": "Tesla T4"})
    first, second = _join.gpus([], [Proc("0000:3b:00.0", minor=1), Proc("0000:5e:00.0", "T4", minor=0)], [card], [row])
    assert (first.bus_id, first.index, first.minor, first.uuid) == ("0000:3b:00.0", 3, 1, "GPU-1")
    assert (first.device_id, first.subsystem_id, first.product) == ("10de:2335", "10de:18bf", "H200 SXM 141GB")
    assert (first.memory_mib, first.mig.capable, first.seen_by) == (143771, "yes", ["driver", "nvml"])
    assert (second.index, second.name, second.mig.current) == (4, "Tesla T4", "unsupported")
    assert second.seen_by == ["driver", "nvidia-smi"]
