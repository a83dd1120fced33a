# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver, loaded and on disk."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state import _driver, _modinfo
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.host_state.trees import module_file, recorded, tree

KERNEL = "6.8.0-60-generic"


def no_command(argv: list[str], limit: float) -> tuple[int, str]:
    raise OSError(2, "No such file or directory")


@pytest.mark.rows("H046")
@pytest.mark.parametrize(
    ("line", "version", "flavour"),
    [
        ("NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)", "580.159.04", "open"),
        ("NVIDIA UNIX Open Kernel Module for aarch64  595.91.07  Release Build  (x@y)  Mon", "595.91.07", "open"),
        ("NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024", "535.183.01", "proprietary"),
        ("NVIDIA UNIX aarch64 Kernel Module  550.54  Thu Feb 22", "550.54", "proprietary"),
        ("NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024", "470.256.02", "proprietary"),
        ("NVIDIA UNIX riscv64 Kernel Module  600.10  Fri", "600.10", "proprietary"),
        ("nothing", "", ""),
    ],
)
def test_the_version_line_of_every_flavour_is_read(line: str, version: str, flavour: str) -> None:
    text = f"NVRM version: {line}\nGCC version:  gcc version 15.3.0 (GCC) \n"
    assert _driver.version_line(text) == (version, flavour)


@pytest.mark.rows("H046")
def test_the_loaded_driver_of_a_real_machine(tmp_path: Path) -> None:
    one = tree(tmp_path, recorded("h200"))
    read = _driver.loaded(one)
    assert (read.version, read.flavour, read.source_version) == ("580.159.04", "open", "06B987C9B8B712FF4E7FB47")
    assert [(module.name, module.references) for module in read.modules] == [("nvidia", -1), ("nvidia_uvm", -1)]
    assert read.parameters["DeviceFileMode"] == "438"
    assert read.parameters["ExcludedGpus"] == ""
    assert one.problems.listed() == []


def test_the_gpus_of_the_loaded_driver(tmp_path: Path) -> None:
    first, second = _driver.processors(tree(tmp_path, recorded("2xh200")))
    assert (first.bus_id, first.name, first.minor, first.excluded) == ("0000:00:06.0", "NVIDIA H200", 0, False)
    assert (second.uuid, second.minor) == ("GPU-00000000-0000-0000-0000-000000607192", 1)
    assert (second.firmware, second.vbios) == ("580.159.04", "96.00.a5.00.1a")


def test_gpus_that_were_not_started_yet_have_no_uuid(tmp_path: Path) -> None:
    information = (
        "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????\nVideo BIOS: \t ??.??.??\n"
    )
    files = {"/proc/driver/nvidia/gpus/0000:01:00.0/information": f"{information}GPU Excluded:\t Yes\nrubbish\n"}
    (read,) = _driver.processors(tree(tmp_path, files))
    assert (read.uuid, read.vbios, read.minor, read.excluded) == ("", "", -1, True)


def test_a_version_file_without_a_version_is_a_problem(tmp_path: Path) -> None:
    one = tree(tmp_path, {_driver.VERSION: "something new"})
    assert _driver.loaded(one).version == ""
    assert one.problems.listed()[0].path == _driver.VERSION


def test_modules_with_their_users(tmp_path: Path) -> None:
    modules = (
        "nvidia_uvm 1536000 0 - Live 0x0\nnvidia 54000000 12 nvidia_uvm,nvidia_modeset, Live 0x0\n"
        "nvidia_modeset 1300000 0 - Live 0x0\nnouveau 2400000 1 - Live 0x0\nnvme 49152 2 - Live 0x0\nnvidiafb 1 0\n"
    )
    read = _driver.modules(tree(tmp_path, {"/proc/modules": modules, "/sys/module/nvidia/version": "580.1.2"}))
    assert [(one.name, one.references, one.used_by) for one in read] == [
        ("nouveau", 1, []),
        ("nvidia", 12, ["nvidia_uvm", "nvidia_modeset"]),
        ("nvidia_modeset", 0, []),
        ("nvidia_uvm", 0, []),
    ]
    assert read[1].version == "580.1.2"


def test_nouveau_and_what_keeps_it_away(tmp_path: Path) -> None:
    files = {
        "/proc/modules": "nouveau 2400000 1 - Live 0x0\n",
        "/etc/modprobe.d/blacklist.conf": "# blacklist nouveau\nblacklist pcspkr\n",
        "/etc/modprobe.d/nvidia.conf": "  blacklist nouveau # free driver\noptions nouveau modeset=0\n",
        "/etc/modprobe.d/old.bak": "blacklist nouveau\n",
        "/usr/lib/modprobe.d/nvidia.conf": "blacklist nouveau\n",
        "/lib": "-> usr/lib",
    }
    words = ["modprobe.blacklist=pcspkr,nouveau", "rd.driver.blacklist=nouveaux"]
    (read,) = _driver.rivals(tree(tmp_path, files), {"nouveau": ["0000:01:00.0"]}, words)
    assert (read.name, read.loaded, read.references, read.bound) == ("nouveau", True, 1, ["0000:01:00.0"])
    assert read.blocked_by == [
        "/etc/modprobe.d/nvidia.conf",
        "/usr/lib/modprobe.d/nvidia.conf",
        "kernel command line: modprobe.blacklist",
    ]


def packed(place: str, content: bytes) -> bytes:
    return (
        gzip.compress(content) if place.endswith(".gz") else lzma.compress(content) if place[-3:] == ".xz" else content
    )


@pytest.mark.parametrize(
    "place",
    [
        "updates/dkms/nvidia.ko",
        "updates/dkms/nvidia-current.ko.xz",
        "extra/nvidia.ko.gz",
        "weak-updates/nvidia/nvidia.ko",
        "kernel/nvidia-580srv/nvidia.ko",
        "kernel/drivers/video/nvidia.ko",
    ],
)
def test_module_files_are_found_where_packages_put_them(tmp_path: Path, place: str) -> None:
    content = module_file(version="580.95.05", license="Dual MIT/GPL", signer="Debian", license2="")
    files = {f"/lib/modules/{KERNEL}/{place}": packed(place, content), f"/lib/modules/{KERNEL}/kernel/fs/x.ko": b""}
    one = tree(tmp_path, files)
    (read,) = _driver.on_disk(one, KERNEL, no_command).modules
    assert (read.path, read.kernel, read.running) == (f"/lib/modules/{KERNEL}/{place}", KERNEL, True)
    assert (read.version, read.flavour, read.signer) == ("580.95.05", "open", "Debian")
    assert one.problems.listed() == []


def test_module_files_of_other_kernels_and_odd_places_are_found(tmp_path: Path) -> None:
    base = "/lib/modules"
    files = {
        f"{base}/{KERNEL}/modules.dep": "misc/vendor/nvidia.ko: kernel/x.ko\nmisc/nvidia-uvm.ko:\ngone/nvidia.ko:\n",
        f"{base}/{KERNEL}/misc/vendor/nvidia.ko": module_file(version="535.1", license="NVIDIA"),
        f"{base}/6.1.0/updates/nvidia.ko": module_file(version="535.2", license="NVIDIA"),
    }
    read = _driver.on_disk(tree(tmp_path, files), "6.1.0", no_command)
    assert [(one.kernel, one.running, one.version, one.flavour) for one in read.modules] == [
        ("6.1.0", True, "535.2", "proprietary"),
        (KERNEL, False, "535.1", "proprietary"),
    ]
    assert read.kernels == ["6.1.0", KERNEL]


def test_zstd_files_are_given_to_modinfo(tmp_path: Path) -> None:
    path = f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko.zst"
    asked = []

    def modinfo(argv: list[str], limit: float) -> tuple[int, str]:
        asked.append(argv)
        return 0, "filename: x\0version:        580.126.09\0license:        NVIDIA\0signer: DKMS module signing key\0"

    (read,) = _driver.on_disk(tree(tmp_path, {path: b"(\xb5/\xfd"}), KERNEL, modinfo).modules
    assert (read.version, read.flavour, read.signer) == ("580.126.09", "proprietary", "DKMS module signing key")
    assert asked == [["modinfo", "-0", f"{tmp_path}{path}"]]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("nvidia.ko", b"no module", "no 64-bit ELF"),
        ("nvidia.ko", b"\x7fELF\x02\x01" + b"\xff" * 200, "damaged"),
        ("nvidia.ko", module_file(version="1")[:200], "damaged"),
        ("nvidia.ko", module_file(version="1").replace(b".modinfo", b".nothing"), "no module information"),
        ("nvidia.ko.gz", b"\x1f\x8bno", ""),
        ("nvidia.ko.gz", gzip.compress(b"", mtime=0)[:10] + b"\xff" * 99, ""),
        ("nvidia.ko.xz", b"rubbish", ""),
        ("nvidia.ko.zst", b"", "modinfo cannot be run"),
    ],
)
def test_a_broken_module_file_is_told_and_does_not_end_the_run(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    one = tree(tmp_path, {f"/lib/modules/{KERNEL}/updates/{name}": content})
    (read,) = _driver.on_disk(one, KERNEL, no_command).modules
    assert read.version == ""
    (problem,) = one.problems.listed()
    assert problem.path.endswith(name)
    assert why in problem.why


def test_modinfo_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(_modinfo.Unreadable, match="ended with 1: modinfo: ERROR"):
        _modinfo.fields(str(tmp_path / "nvidia.ko.zst"), lambda argv, limit: (1, "modinfo: ERROR"))


def test_a_signature_without_a_name_counts(tmp_path: Path) -> None:
    path = tmp_path / "nvidia.ko"
    path.write_bytes(module_file(version="1") + b"signature~Module signature appended~\n")
    assert _modinfo.fields(str(path), no_command)["signer"] == "(appended signature)"


def test_libraries_by_their_file_names(tmp_path: Path) -> None:
    files: dict[str, str] = {
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05": "",
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "-> libnvidia-ml.so.580.95.05",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.570.1.2": "-> gone",
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml-dev.txt": "",
        "/lib": "-> usr/lib",
        "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
        "/etc/ld.so.conf.d/nvidia.conf": "# here\n/opt/driver/lib # mine\n",
        "/opt/driver/lib/libcuda.so.535.1": "",
        "/usr/lib64/libcuda.so.12.4": "",
    }
    read = _driver.on_disk(tree(tmp_path, files), KERNEL, no_command).libraries
    assert [(one.path, one.version) for one in read] == [
        ("/opt/driver/lib/libcuda.so.535.1", "535.1"),
        ("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05", "580.95.05"),
        ("/usr/lib64/libcuda.so.12.4", "12.4"),
    ]


def test_firmware_of_each_version_that_has_files(tmp_path: Path) -> None:
    files = {
        "/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin": "",
        "/lib/firmware/nvidia/535.1/readme": "",
        "/lib/firmware/nvidia/ga102/gsp/gsp_x.bin": "",
        "/sys/module/firmware_class/parameters/path": "/run/firmware\n",
        "/run/firmware/nvidia/570.1/gsp_tu10x.bin": "",
    }
    assert _driver.on_disk(tree(tmp_path, files), KERNEL, no_command).firmware == ["570.1", "580.95.05"]


def test_the_traces_of_nvidias_own_installer(tmp_path: Path) -> None:
    with_it = _driver.on_disk(tree(tmp_path / "a", {"/usr/bin/nvidia-uninstall": ""}), KERNEL, no_command)
    without = _driver.on_disk(tree(tmp_path / "b", {"/usr/bin/nvidia-smi": ""}), KERNEL, no_command)
    assert (with_it.runfile, without.runfile) == (True, False)
    assert (with_it.nvidia_smi, without.nvidia_smi) == ("", "/usr/bin/nvidia-smi")


def test_versions_are_compared_by_number() -> None:
    assert _driver.newest(["580.95.05", "580.126.09", "99.1"]) == "580.126.09"
    assert _driver.numbers("580.95.05") == _driver.numbers("580.95.5")
