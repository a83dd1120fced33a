# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs and NVSwitches from sysfs alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu import _pci_ids
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state import _pci
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.host_state.trees import gpu, recorded, tree


@pytest.mark.rows("H001")
@pytest.mark.parametrize(
    ("name", "buses", "product"),
    [
        ("h100", ["0000:00:06.0"], "H100 SXM5 80GB"),
        ("2xh200", ["0000:00:06.0", "0000:00:07.0"], "H200 SXM 141GB"),
    ],
)
def test_gpus_of_real_machines_are_found(tmp_path: Path, name: str, buses: list, product: str) -> None:
    one = tree(tmp_path, recorded(name))
    read = _pci.read(one)
    assert [gpu.bus_id for gpu in read.gpus] == buses
    assert {(gpu.kind.product, gpu.driver, gpu.pci_class, gpu.numa_node, gpu.iommu_group) for gpu in read.gpus} == {
        (product, "nvidia", "0x030200", -1, -1)
    }
    assert one.problems.listed() == []


@pytest.mark.rows("H001")
def test_only_display_functions_of_nvidia_count(tmp_path: Path) -> None:
    files = {
        **gpu("0000:01:00.0", "0x1eb8", "nvidia", numa_node="1\n", iommu_group="-> ../../../../kernel/iommu_groups/27"),
        **gpu("0000:01:00.1", "0x10f8", "snd_hda_intel", "0x040300"),
        **gpu("0000:01:00.2", "0x1ad8", "xhci_hcd", "0x0c0330"),
        **gpu("0000:01:00.3", "0x1ad9", "", "0x0c8000"),
        **gpu("0000:02:00.0", "0x2236", "vfio-pci", "0x030000", physfn="-> ../0000:01:00.0"),
        **gpu("0000:03:00.0", "0x22d0", "pcieport", "0x060400"),
        **gpu("10000:04:00.0", "0x2bb5", "", "0x038000"),
        "/sys/bus/pci/devices/0000:05:00.0/vendor": "0x1002\n",
        "/sys/bus/pci/devices/0000:05:00.0/device": "0x1eb8\n",
        "/sys/bus/pci/devices/0000:05:00.0/class": "0x030000\n",
    }
    read = _pci.read(tree(tmp_path, files))
    assert [(one.bus_id, one.device_id, one.driver, one.numa_node, one.iommu_group) for one in read.gpus] == [
        ("0000:01:00.0", "10de:1eb8", "nvidia", 1, 27),
        ("0000:02:00.0", "10de:2236", "vfio-pci", -1, -1),
        ("10000:04:00.0", "10de:2bb5", "", -1, -1),
    ]
    assert [one.virtual_function for one in read.gpus] == [False, True, False]
    assert read.switches == []


@pytest.mark.rows("H003")
def test_nvswitches_are_found_by_class_and_id(tmp_path: Path) -> None:
    files = {
        **gpu("0000:c1:00.0", "0x22a3", "nvidia-nvswitch", "0x068000"),
        **gpu("0000:c2:00.0", "0x1af1", "", "0x068000"),
        **gpu("0000:c3:00.0", "0x22ce", "", "0x060000"),
        **gpu("0000:c4:00.0", "0x0369", "", "0x068000"),
        **gpu("0000:c5:00.0", "0x29ff", "", "0x068000"),
        "/proc/driver/nvidia-nvswitch/devices/0000:c1:00.0": "",
        "/proc/driver/nvidia-nvswitch/devices/0000:c6:00.0": "",
    }
    read = _pci.read(tree(tmp_path, files))
    assert [(one.bus_id, one.product) for one in read.switches] == [
        ("0000:c1:00.0", "H100 NVSwitch"),
        ("0000:c2:00.0", "A100 NVSwitch"),
        ("0000:c5:00.0", ""),
        ("0000:c6:00.0", ""),
    ]
    assert read.gpus == []


@pytest.mark.rows("H003")
def test_switches_of_nvlink_5_are_known_by_what_manages_them(tmp_path: Path) -> None:
    vpd = b"\x82\x10\0ConnectX-7\x90\x2e\0PN\x05ABC\0\xffSW_MNG\0"
    folder = "/sys/class/infiniband"
    files = {
        f"{folder}/mlx5_0/device/vendor": "0x15b3\n",
        f"{folder}/mlx5_0/device/vpd": b"\x82\x10\0ConnectX-7 SW_VER\xff",
        f"{folder}/mlx5_4/device/vendor": "0x15b3\n",
        f"{folder}/mlx5_4/device/vpd": vpd,
        f"{folder}/other0/device/vendor": "0x8086\n",
        f"{folder}/other0/device/vpd": vpd,
        "/sys/bus/pci/devices/x": "",
    }
    assert _pci.read(tree(tmp_path, files)).nvlink5 == ["mlx5_4"]


def test_no_sysfs_is_a_problem_with_its_way_out(tmp_path: Path) -> None:
    one = tree(tmp_path, {})
    assert _pci.read(one) == _pci.Pci()
    problem = one.problems.listed()[0]
    assert (problem.part, problem.path) == ("pci", "/sys/bus/pci/devices")
    assert "Mount /sys" in problem.remedy


def test_broken_devices_do_not_hide_others(tmp_path: Path) -> None:
    files: dict[str, object] = {
        **gpu("0000:01:00.0", "rubbish"),
        **gpu("0000:02:00.0", "0x2330"),
        "/sys/bus/pci/devices/0000:03:00.0": "-> ../gone",
        "/sys/bus/pci/devices/0000:04:00.0/vendor": b"\xff\xff\0",
        "/sys/bus/pci/devices/not-a-bus/vendor": "0x10de",
    }
    one = tree(tmp_path, files)  # type: ignore[arg-type]
    assert [gpu.bus_id for gpu in _pci.read(one).gpus] == ["0000:02:00.0"]
    assert [problem.path for problem in one.problems.listed()] == ["/sys/bus/pci/devices/0000:01:00.0"]


@pytest.mark.rows("H002")
@pytest.mark.parametrize(
    ("device", "architecture", "capability", "flavour", "first", "last", "mig"),
    [
        (0x102D, "kepler", "3.x", "proprietary", 340, 470, "no"),
        (0x13F2, "maxwell", "5.x", "proprietary", 352, 580, "no"),
        (0x15F8, "pascal", "6.0", "proprietary", 375, 580, "no"),
        (0x1B38, "pascal", "6.1", "proprietary", 367, 580, "no"),
        (0x1D01, "pascal", "6.1", "proprietary", 367, 580, "no"),  # the prefix 1d is Pascal and Volta
        (0x1D56, "pascal", "6.1", "proprietary", 367, 580, "no"),
        (0x1D81, "volta", "7.0", "proprietary", 384, 580, "no"),
        (0x1DB6, "volta", "7.0", "proprietary", 384, 580, "no"),
        (0x1EB8, "turing", "7.5", "either", 410, 0, "no"),
        (0x2182, "turing", "7.5", "either", 410, 0, "no"),
        (0x20B0, "ampere", "8.0", "either", 450, 0, "yes"),
        (0x20C2, "ampere", "8.0", "either", 455, 0, "no"),
        (0x20B7, "ampere", "8.0", "either", 460, 0, "yes"),
        (0x2236, "ampere", "8.6", "either", 455, 0, "no"),  # the prefix 22 is GA102, then switches and bridges
        (0x25B6, "ampere", "8.6", "either", 470, 0, "no"),
        (0x2330, "hopper", "9.0", "either", 525, 0, "yes"),
        (0x2335, "hopper", "9.0", "either", 535, 0, "yes"),
        (0x2342, "hopper", "9.0", "open", 535, 0, "yes"),
        (0x27B8, "ada", "8.9", "either", 525, 0, "no"),
        (0x26B9, "ada", "8.9", "either", 535, 0, "no"),
        (0x2901, "blackwell", "10.0", "open", 570, 0, "yes"),
        (0x3182, "blackwell", "10.3", "open", 575, 0, "yes"),
        (0x2BB5, "blackwell", "12.0", "open", 575, 0, "yes"),
        (0x2B85, "blackwell", "12.0", "open", 570, 0, "unknown"),
        (0x2E12, "blackwell", "12.1", "open", 580, 0, "unknown"),
        (0x2B00, "thor", "11.0", "open", 0, 0, "unknown"),
        (0x3000, "rubin", "", "open", 0, 0, "unknown"),
        (0x3FFF, "unknown", "", "open", 0, 0, "unknown"),  # newer than the list: those need the open modules
        (0x2050, "unknown", "", "unknown", 0, 0, "unknown"),
        (0x0040, "pre-fermi", "1.x", "proprietary", 0, 340, "no"),
        (0x06C0, "fermi", "2.x", "proprietary", 0, 390, "no"),
    ],
)
def test_the_id_tells_what_a_gpu_needs(
    device: int, architecture: str, capability: str, flavour: str, first: int, last: int, mig: str
) -> None:
    kind = _pci_ids.kind(device)
    assert (kind.architecture, kind.compute_capability, kind.flavour) == (architecture, capability, flavour)
    assert (kind.first_branch, kind.last_branch, kind.mig) == (first, last, mig)


@pytest.mark.rows("H002")
def test_every_product_of_the_list_has_an_architecture() -> None:
    for device, name in _pci_ids._PRODUCTS.items():
        assert _pci_ids.kind(device).architecture != _pci_ids.UNKNOWN, name


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("00000000:06:00.0", "0000:06:00.0"),
        ("0000:0A:1F.7", "0000:0a:1f.7"),
        ("00010000:06:00.0", "10000:06:00.0"),
        ("06:00.0", ""),
        ("0000:06:00.8", ""),
        ("../../etc", ""),
    ],
)
def test_bus_ids_have_one_spelling(text: str, plain: str) -> None:
    assert _pci_ids.bus_id(text) == plain
