# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel, container, virtual machine, Secure Boot and lockdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state import _system
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.host_state.trees import recorded, tree

EFI = "/sys/firmware/efi/efivars"


@pytest.mark.rows("H044")
@pytest.mark.parametrize(
    ("files", "state", "problems"),
    [
        ({_system.SECURE_BOOT: b"\x06\0\0\0\x01"}, "enabled", 0),
        ({_system.SECURE_BOOT: b"\x06\0\0\0\0"}, "disabled", 0),
        ({_system.SECURE_BOOT: b"\x06\0"}, "unknown", 1),
        ({_system.SECURE_BOOT: b""}, "unknown", 0),
        ({f"{EFI}/Boot0000-8be4df61": b"x"}, "disabled", 0),  # a firmware without the variable
        ({"/sys/firmware/efi/fw_platform_size": "64\n"}, "unknown", 1),  # efivarfs is not mounted
        ({"/sys/firmware/acpi/x": ""}, "disabled", 0),  # started without EFI
        ({"/sys/firmware/acpi/x": "", "/.dockerenv": ""}, "unknown", 1),  # runtimes hide /sys/firmware
        ({}, "unknown", 1),
    ],
)
def test_secure_boot_is_read_without_mokutil(
    tmp_path: Path, files: dict[str, str | bytes], state: str, problems: int
) -> None:
    one = tree(tmp_path, files)
    assert _system.read(one).secure_boot == state
    assert len(one.problems.listed()) == problems


@pytest.mark.parametrize(
    ("text", "word"),
    [("[none] integrity confidentiality\n", "none"), ("none [integrity] confidentiality\n", "integrity"), ("", "none")],
)
def test_lockdown_is_the_word_in_brackets(tmp_path: Path, text: str, word: str) -> None:
    files = {"/sys/kernel/security/lsm": "lockdown,apparmor", **({_system.LOCKDOWN: text} if text else {})}
    assert _system.read(tree(tmp_path, files)).lockdown == word


def test_lockdown_without_securityfs_is_not_known(tmp_path: Path) -> None:
    assert _system.read(tree(tmp_path, {"/sys/kernel/x": ""})).lockdown == "unknown"


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"/.dockerenv": ""}, "docker"),
        ({"/run/.containerenv": ""}, "podman"),
        ({"/run/systemd/container": "systemd-nspawn\n"}, "systemd-nspawn"),
        ({"/proc/1/environ": b"PATH=/bin\0container=lxc\0HOME=/\0"}, "lxc"),
        ({"/var/run/secrets/kubernetes.io/serviceaccount/token": "x"}, "kubernetes"),
        ({"/proc/1/environ": b"PATH=/bin\0"}, ""),
    ],
)
def test_containers_are_known_by_what_their_runtime_leaves(tmp_path: Path, files: dict[str, str], kind: str) -> None:
    assert _system.read(tree(tmp_path, files)).container == kind


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"sys_vendor": "QEMU", "product_name": "Standard PC (Q35 + ICH9, 2009)"}, "kvm"),
        ({"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge"}, "amazon"),
        ({"sys_vendor": "Amazon EC2", "product_name": "g4dn.metal"}, ""),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "google"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, "hyperv"),
        ({"sys_vendor": "Dell Inc.", "product_name": "PowerEdge XE9680"}, ""),
    ],
)
def test_virtual_machines_are_known_by_their_maker(tmp_path: Path, files: dict[str, str], kind: str) -> None:
    one = tree(tmp_path, {f"/sys/class/dmi/id/{name}": text for name, text in files.items()})
    assert _system.read(one).virtual_machine == kind


def test_a_nameless_hypervisor_is_known_by_the_processor(tmp_path: Path) -> None:
    one = tree(tmp_path, {"/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n"})
    assert _system.read(one).virtual_machine == "other"


def test_the_kernel_and_its_words_about_gpus(tmp_path: Path) -> None:
    command_line = (
        "BOOT_IMAGE=/vmlinuz root=UUID=1 password=x iommu=pt intel_iommu=on modprobe.blacklist=nouveau "
        "rd.driver.blacklist=nouveau nouveau.modeset=0 nvidia-drm.modeset=1 quiet\n"
    )
    read = _system.read(tree(tmp_path, {**recorded("h100"), "/proc/cmdline": command_line}))
    assert (read.kernel, read.os_id, read.os_version) == ("6.18.44-gpu", "ubuntu", "24.04")
    assert read.kernel_options == [
        "iommu=pt", "intel_iommu=on", "modprobe.blacklist=nouveau", "rd.driver.blacklist=nouveau", "nouveau.modeset=0",
        "nvidia-drm.modeset=1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "immutable"),
    [
        ({"/etc/os-release": 'ID=flatcar\nPRETTY_NAME="Flatcar"\n'}, True),
        ({"/etc/os-release": "ID=fedora\n", "/run/ostree-booted": ""}, True),
        ({"/usr/lib/os-release": "ID='debian'\nBROKEN\"=\n"}, False),
    ],
)
def test_operating_systems_that_take_no_packages(tmp_path: Path, files: dict[str, str], immutable: bool) -> None:
    assert _system.read(tree(tmp_path, files)).immutable is immutable


def test_another_process_namespace_is_seen(tmp_path: Path) -> None:
    first = tree(tmp_path / "a", {"/proc/self/ns/pid": f"-> {_system.FIRST_PIDS}"})
    other = tree(tmp_path / "b", {"/proc/self/ns/pid": "-> pid:[4026532201]"})
    assert (_system.read(first).sees_all_processes, _system.read(other).sees_all_processes) == (True, False)
