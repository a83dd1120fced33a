# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine around the GPUs: kernel, operating system, container or virtual machine, Secure Boot, lockdown."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from typing import Dict, List

from ._tree import AS_ROOT, Tree, read_file

EFI = "/sys/firmware/efi"
SECURE_BOOT = f"{EFI}/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
LOCKDOWN = "/sys/kernel/security/lockdown"
# What /proc/self/ns/pid points to in the first pid namespace of a kernel (include/linux/proc_ns.h: PROC_PID_INIT_INO).
FIRST_PIDS = f"pid:[{0xEFFFFFFC}]"

ENABLED = "enabled"
DISABLED = "disabled"
UNKNOWN = "unknown"

# What the firmware's tables say of the maker or the model of a virtual machine.
_MACHINES = (
    ("kvm", ("qemu", "kvm", "openstack", "ovirt", "rhev", "proxmox")),
    ("vmware", ("vmware",)),
    ("hyperv", ("microsoft corporation virtual",)),
    ("xen", ("xen", "hvm domu")),
    ("virtualbox", ("virtualbox", "innotek")),
    ("google", ("google compute engine",)),
    ("amazon", ("amazon ec2",)),
)
_OPTIONS = re.compile(
    r"\A(rd\.)?((module_|driver\.|modprobe\.)+blacklist|module_blacklist|(intel_|amd_)?iommu|nomodeset"
    r"|(nvidia|nouveau|nova|vfio|pci)[\w.-]*)(=|\Z)"
)
_IMMUTABLE_IDS = ("flatcar", "talos", "cos", "bottlerocket", "rhcos", "fedora-coreos")


@dataclass
class System:
    """Keys are documented in gpu_info's RETURN as ``found.host``."""

    kernel: str = ""
    architecture: str = ""
    os_id: str = ""
    os_version: str = ""
    os_name: str = ""
    container: str = ""
    virtual_machine: str = ""
    immutable: bool = False
    sees_all_processes: bool = True
    secure_boot: str = UNKNOWN
    lockdown: str = UNKNOWN
    kernel_options: List[str] = field(default_factory=list)


def read(tree: Tree, kernel: str = "", architecture: str = "") -> System:
    """``kernel`` and ``architecture``: those of the running machine, used where the files do not say."""
    tree = tree.of("host")
    release = os_release(tree)
    container = _container(tree)
    system = System(
        kernel=tree.text("/proc/sys/kernel/osrelease") or kernel,
        architecture=tree.text("/proc/sys/kernel/arch") or architecture,
        os_id=release.get("ID", ""),
        os_version=release.get("VERSION_ID", ""),
        os_name=release.get("PRETTY_NAME", ""),
        container=container,
        virtual_machine=_virtual_machine(tree),
        immutable=release.get("ID", "") in _IMMUTABLE_IDS or tree.kind("/run/ostree-booted") == "file",
        sees_all_processes=tree.link("/proc/self/ns/pid") in ("", FIRST_PIDS),
        kernel_options=_options(tree.text("/proc/cmdline")),
    )
    system.secure_boot = _secure_boot(tree, bool(container))
    system.lockdown = _lockdown(tree)
    return system


def _options(command_line: str) -> List[str]:
    """The words that have to do with GPUs. Of the others some may be secrets."""
    return [word for word in command_line.split() if _OPTIONS.search(word)]


def os_release(tree: Tree) -> Dict[str, str]:
    """What the system says of itself: ID, ID_LIKE, VERSION_ID."""
    text = tree.text("/etc/os-release") or tree.text("/usr/lib/os-release")
    found = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#"):
            found[key] = _unquoted(value)
    return found


def _unquoted(value: str) -> str:
    try:
        return " ".join(shlex.split(value))
    except ValueError:
        return value.strip("\"'")


def _container(tree: Tree) -> str:
    """The kind of container that this runs in, empty on a host. Files that runtimes leave, and init's environment."""
    if tree.kind("/run/.containerenv") == "file":
        return "podman"
    if tree.kind("/.dockerenv") == "file":
        return "docker"
    named = tree.text("/run/systemd/container")
    if named:
        return named
    if tree.kind("/var/run/secrets/kubernetes.io/serviceaccount") == "folder":
        return "kubernetes"
    return _of_init(tree)


def _of_init(tree: Tree) -> str:
    # Read as they are: an ordinary user may not, and then it is no container's init that one is allowed to see.
    try:
        words = read_file(tree.place("/proc/1/environ"), 64 * 1024).split(b"\0")
    except OSError:
        return ""
    for word in words:
        if word.startswith(b"container="):
            return word[len(b"container=") :].decode("utf-8", "replace")[:40]
    return ""


def _virtual_machine(tree: Tree) -> str:
    """The kind of virtual machine, ``other`` for one that has no name here, empty on metal."""
    dmi = "/sys/class/dmi/id"
    words = " ".join(tree.text(f"{dmi}/{name}") for name in ("sys_vendor", "product_name", "board_vendor")).lower()
    for name, marks in _MACHINES:
        if any(mark in words for mark in marks):
            # The large clouds' own metal carries the same vendor; its model says so.
            return "" if "metal" in words else name
    hypervisor = tree.text("/sys/hypervisor/type")
    if hypervisor:
        return hypervisor
    flags = re.search(r"(?m)^flags\s*:.*\bhypervisor\b", tree.data("/proc/cpuinfo", 16 * 1024 * 1024).decode("latin-1"))
    return "other" if flags else ""


def _secure_boot(tree: Tree, container: bool) -> str:
    """From the firmware's variable, whose last byte is 1 when Secure Boot is on. Without EFI there is none."""
    if tree.kind(SECURE_BOOT) == "file":
        content = tree.data(SECURE_BOOT)
        if len(content) == 5:
            return ENABLED if content[4] == 1 else DISABLED
        if content:
            tree.problems.add(
                tree.part, SECURE_BOOT, f"has {len(content)} bytes instead of 5", "Ask mokutil --sb-state."
            )
        return UNKNOWN
    if tree.kind(EFI) == "folder":
        if _variables(tree):
            return DISABLED
        remedy = AS_ROOT if not container else "Mount the host's /sys/firmware/efi/efivars, or run on the host itself."
        tree.problems.add(tree.part, SECURE_BOOT, "the firmware's variables are not mounted here", remedy)
        return UNKNOWN
    if container:
        tree.problems.add(
            tree.part,
            EFI,
            "a container does not see the host's firmware",
            "Run on the host itself to know Secure Boot.",
        )
        return UNKNOWN
    if tree.kind("/sys") != "folder":
        tree.problems.add(tree.part, EFI, "/sys is not there, so Secure Boot is not known", "Mount /sys.")
        return UNKNOWN
    return DISABLED


def _variables(tree: Tree) -> List[str]:
    return tree.names(f"{EFI}/efivars") or tree.names(f"{EFI}/vars")


def _lockdown(tree: Tree) -> str:
    """The word in brackets: none, integrity or confidentiality. ``none`` on a kernel without the feature."""
    text = tree.text(LOCKDOWN)
    found = re.search(r"\[(\w+)\]", text)
    if found:
        return found.group(1)
    readable = os.path.isdir(tree.place("/sys/kernel/security")) and bool(tree.names("/sys/kernel/security"))
    return "none" if readable else UNKNOWN
