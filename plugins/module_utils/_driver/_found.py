# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a driver's installation depends on: the host's state as gpu_info reads it, and what only this module asks."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Tuple

from .._host_state import _system
from .._host_state._collect import Host, collect
from .._host_state._driver import VERSION, newest, numbers
from .._host_state._shape import Found, GpuState
from .._host_state._tree import Tree, read_file
from .._matrix import CUDA_MINOR, version_key
from .._plan import Finding
from ._origin import of_driver, origins, upstream
from ._types import APT, DNF, IMMUTABLE, ZYPPER, System

MIB = 1024 * 1024
#: Free space that a driver needs, by folder: the initramfs, and packages with what is built of them.
SPACE = {"/boot": 150 * MIB, "/usr": 5 * 1024 * MIB, "/var": 5 * 1024 * MIB}

_FAMILIES = {
    APT: ("debian", "ubuntu"),
    DNF: ("rhel", "fedora", "centos", "rocky", "almalinux", "ol", "amzn", "azurelinux", "mariner"),
    ZYPPER: ("sles", "suse", "opensuse", "opensuse-leap", "sles_sap", "sl-micro"),
}
_OPERATOR = "/run/nvidia/driver"
_DGX = "/etc/dgx-release"
_UPDATES = ("/etc/apt/apt.conf.d/20auto-upgrades", "/etc/dnf/automatic.conf")
_REGION = re.compile(r"0x[0-9a-f]+ 0x[0-9a-f]+ 0x[0-9a-f]+\Z")
_MEMORY = 0x200  # include/linux/ioport.h: IORESOURCE_MEM
_DEVICE = re.compile(r"10de:[0-9a-f]{4}\Z")
_ARCH = re.compile(r"\b(x86_64|aarch64)\b")
_ELF = {62: "x86_64", 183: "aarch64"}  # elf.h: EM_X86_64, EM_AARCH64
_MULTI_NODE = (0x2941, 0x31C2, 0x31C3, 0x31A1)


@dataclass
class HostFound:
    """``kernel``: the one that the driver is for; ``free``: bytes by folder, of those that are there.

    ``zero_bars``: GPUs whose memory the firmware gave no addresses; ``updates``: what updates the host by itself;
    ``headers``, ``compiler``: what is wrong with them; ``enrolled``: the firmware trusts the key of built modules.
    """

    state: Found
    findings: List[Finding]
    system: System
    running: str = ""
    kernel: str = ""
    free: Dict[str, int] = field(default_factory=dict)
    read_only: bool = False
    operator: bool = False
    dgx: bool = False
    dnf5: bool = False
    zero_bars: List[str] = field(default_factory=list)
    updates: str = ""
    headers: str = ""
    compiler: str = ""
    enrolled: bool = True
    cuda: str = ""  # the newest minor of its toolkits
    certificate: str = ""  # of a key that the firmware is asked to trust already, and nobody has confirmed yet

    @property
    def installed(self) -> Dict[str, str]:
        """Packages of the driver and its companions, with their versions."""
        return {one.name: one.version for one in self.state.driver.packages}

    @property
    def version(self) -> str:
        """NVIDIA's version of the driver's packages; "" without any, or with several."""
        versions = {upstream(version) for version in of_driver(self.installed).values()}
        return versions.pop() if len(versions) == 1 else ""

    @property
    def held(self) -> List[str]:
        return [one.name for one in self.state.driver.packages if one.held]

    @property
    def origins(self) -> Dict[str, List[str]]:
        """Who made the driver's packages -> their names."""
        return origins(self.installed, self.system)

    @property
    def gpus(self) -> List[GpuState]:
        return self.state.gpus

    @property
    def devices(self) -> List[int]:
        """PCI ids of the GPUs, without NVIDIA's own number."""
        return [int(gpu.device_id[5:], 16) for gpu in self.gpus if _DEVICE.match(gpu.device_id)]

    @property
    def multi_node(self) -> bool:
        """Whether NVLink reaches GPUs of other hosts (GB200, GB300)."""
        return any(device in _MULTI_NODE for device in self.devices)

    @property
    def newest_kernel(self) -> str:
        """The kernel that the next boot takes, as far as its version tells."""
        return newest(self.state.driver.kernels)

    def told(self) -> Dict[str, Any]:
        """``found`` of the result; documented in the module's RETURN."""
        driver = self.state.driver
        files = [file for file in driver.module_files if file.kernel == self.kernel]
        return {
            "system": {"id": self.system.id, "version": self.system.version, "family": self.system.family,
                       "architecture": self.system.arch, "kernel": self.running, "newest_kernel": self.newest_kernel},
            "gpus": [
                {"bus_id": gpu.bus_id, "product": gpu.name or gpu.product, "architecture": gpu.architecture,
                 "driver": gpu.driver} for gpu in self.gpus
            ],
            "fabric": self.state.needs.fabric,
            "driver": {
                "state": driver.state, "loaded": driver.version, "flavour": driver.flavour,
                "built": files[0].version if files else "", "built_flavour": files[0].flavour if files else "",
                "runfile": driver.runfile, "origins": sorted(self.origins),
            },
            "packages": [
                {"name": one.name, "version": one.version, "held": one.held} for one in driver.packages
            ],
            "secure_boot": self.state.host.secure_boot,
            "processes": [
                {"pid": one.pid, "name": one.name, "unit": one.unit} for one in self.state.processes if one.files
            ],
        }  # fmt: skip


def read(host: Host, kernel: str = "") -> HostFound:
    """Read the host. Never raises on what the host has, and changes nothing."""
    state, findings = collect(host)
    tree = host.tree.of("driver")
    release = _system.os_release(tree)
    running = state.host.kernel or (platform.release() if tree.live else "")
    system = _system_of(state, release, kernel or running, state.host.architecture or _built_for(tree))
    found = HostFound(state, findings, system, running, kernel or running)
    for folder in SPACE:
        space = _space(tree.place(folder)) if tree.kind(folder) == "folder" else None
        if space is not None:
            found.free[folder] = space[0]
            found.read_only = found.read_only or (folder == "/usr" and space[1])
    found.operator = bool(tree.names(_OPERATOR)) or tree.kind("/run/nvidia/nvidia-driver.state") == "file"
    found.dgx = tree.kind(_DGX) == "file"
    found.dnf5 = found.system.family == DNF and tree.link("/usr/bin/dnf") == "dnf5"
    found.zero_bars = [gpu.bus_id for gpu in state.gpus if _zero_bar(tree.text(_resource(gpu.bus_id)))]
    found.cuda = _cuda(tree)
    found.updates = next((path for path in _UPDATES if _is_on(tree.text(path))), "")
    return found


def _cuda(tree: Tree) -> str:
    """The newest toolkit, whoever put it there. The folder of one that went may stay, without these two."""
    minors = [name.partition("-")[2] for name in tree.names("/usr/local") if name.startswith("cuda-")]
    there = [
        one for one in minors
        if CUDA_MINOR.match(one) and {"targets", "version.json"} & set(tree.names(f"/usr/local/cuda-{one}"))
    ]  # fmt: skip
    return max(there, key=version_key, default="")


def _resource(bus_id: str) -> str:
    return f"/sys/bus/pci/devices/{bus_id}/resource"


def _system_of(state: Found, release: Mapping[str, str], kernel: str, machine: str) -> System:
    """``arch`` stays empty where nothing tells it: the catalogue refuses that."""
    like = tuple(release.get("ID_LIKE", "").split())
    names = (state.host.os_id, *like)
    family = next((one for one, ids in _FAMILIES.items() if set(names) & set(ids)), "")
    family = IMMUTABLE if state.host.immutable else family
    arch = {"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine)
    return System(state.host.os_id, state.host.os_version, like, arch, kernel, family)


def _built_for(tree: Tree) -> str:
    """What a tree is made for whose kernel does not say: by the driver that is loaded, else by the head of a program;
    "" where nothing tells."""
    loaded = _ARCH.search(tree.text(VERSION))
    if loaded:
        return loaded.group()
    for path in ("/usr/bin/env", "/bin/sh", "/usr/bin/bash"):
        try:
            head = read_file(tree.place(path), 20)
        except OSError:
            continue
        if head[:5] == b"\x7fELF\x02":
            return _ELF.get(int.from_bytes(head[18:20], "little" if head[5] == 1 else "big"), "")
    return ""


def _space(place: str) -> Tuple[int, bool]:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize, bool(found.f_flag & os.ST_RDONLY)


def _zero_bar(text: str) -> bool:
    """Whether a memory region has no addresses: one that is there and begins at 0, or none at all (BARs 0 to 5)."""
    regions = [tuple(int(word, 16) for word in line.split()) for line in text.splitlines()[:6] if _REGION.match(line)]
    unset = any(start == 0 and flags & _MEMORY for start, _end, flags in regions)
    return bool(regions) and (unset or not any(end for _start, end, _flags in regions))


def _is_on(text: str) -> bool:
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("#", "//")))
    words = text.replace('"', " ").replace(";", " ").replace("=", " ").split()
    pairs = dict(zip(words, words[1:]))
    return pairs.get("APT::Periodic::Unattended-Upgrade") == "1" or pairs.get("apply_updates") == "yes"


def older_kernel_runs(found: HostFound) -> bool:
    """Whether the next boot takes another kernel than the one that the driver is for."""
    return bool(found.newest_kernel) and numbers(found.newest_kernel) > numbers(found.kernel)
