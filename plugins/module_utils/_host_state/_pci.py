# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's GPUs and NVSwitches as sysfs shows them, with or without a driver (no lspci, no root)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List

from .._gpu import _pci_ids
from ._tree import Tree

DEVICES = "/sys/bus/pci/devices"
_DISPLAY = (0x0300, 0x0302, 0x0380)
_BRIDGE = 0x0680
_VPD = 32 * 1024


@dataclass
class PciGpu:
    """One GPU. Keys are documented in gpu_info's RETURN."""

    bus_id: str
    device: int
    device_id: str
    subsystem_id: str
    pci_class: str
    kind: _pci_ids.Kind
    driver: str
    numa_node: int
    iommu_group: int
    virtual_function: bool


@dataclass
class Switch:
    """One NVSwitch."""

    bus_id: str
    device_id: str
    product: str
    driver: str
    numa_node: int


@dataclass
class Pci:
    """What sysfs has. ``nvlink5``: InfiniBand devices that manage switches of NVLink 5, which are no PCI devices."""

    gpus: List[PciGpu] = field(default_factory=list)
    switches: List[Switch] = field(default_factory=list)
    nvlink5: List[str] = field(default_factory=list)


def read(tree: Tree) -> Pci:
    """All of it. Without /sys/bus/pci that is a problem, since then nothing can be said."""
    tree = tree.of("pci")
    found = Pci()
    if tree.kind(DEVICES) != "folder":
        tree.problems.add(
            tree.part,
            DEVICES,
            "is not there: PCI devices cannot be listed",
            "Mount /sys into the container, or run on the host itself.",
        )
    for name in tree.names(DEVICES):
        if _pci_ids.bus_id(name) and tree.number(f"{DEVICES}/{name}/vendor") == _pci_ids.VENDOR:
            _device(tree, name, found)
    found.nvlink5 = _nvlink5(tree)
    known = {switch.bus_id for switch in found.switches}
    for name in tree.names("/proc/driver/nvidia-nvswitch/devices"):
        if _pci_ids.bus_id(name) and _pci_ids.bus_id(name) not in known:
            found.switches.append(Switch(_pci_ids.bus_id(name), "", "", "nvidia-nvswitch", -1))
    return found


def _device(tree: Tree, name: str, found: Pci) -> None:
    folder = f"{DEVICES}/{name}"
    pci_class, device = tree.number(f"{folder}/class"), tree.number(f"{folder}/device")
    if device < 0 or pci_class < 0:
        tree.problems.add(
            tree.part, folder, "an NVIDIA device without a readable device id or class", "Look at the folder."
        )
        return
    if pci_class >> 8 in _DISPLAY:
        found.gpus.append(_gpu(tree, folder, _pci_ids.bus_id(name), device, pci_class))
    elif pci_class >> 8 == _BRIDGE:
        product = _pci_ids.switch(device)
        if product is not None:
            numa = tree.number(f"{folder}/numa_node")
            found.switches.append(
                Switch(
                    _pci_ids.bus_id(name), _id(_pci_ids.VENDOR, device), product, tree.link(f"{folder}/driver"), numa
                )
            )


def _gpu(tree: Tree, folder: str, bus: str, device: int, pci_class: int) -> PciGpu:
    group = tree.link(f"{folder}/iommu_group")
    return PciGpu(
        bus_id=bus,
        device=device,
        device_id=_id(_pci_ids.VENDOR, device),
        subsystem_id=_id(tree.number(f"{folder}/subsystem_vendor"), tree.number(f"{folder}/subsystem_device")),
        pci_class=f"0x{pci_class:06x}",
        kind=_pci_ids.kind(device),
        driver=tree.link(f"{folder}/driver"),
        numa_node=tree.number(f"{folder}/numa_node"),
        iommu_group=int(group) if group.isdigit() else -1,
        virtual_function=bool(tree.link(f"{folder}/physfn")),
    )


def _id(vendor: int, device: int) -> str:
    """``10de:2330``, the spelling of lspci; empty when it could not be read."""
    return f"{vendor:04x}:{device:04x}" if vendor >= 0 and device >= 0 else ""


def _nvlink5(tree: Tree) -> List[str]:
    names = []
    for name in tree.names("/sys/class/infiniband"):
        folder = f"/sys/class/infiniband/{name}/device"
        if tree.number(f"{folder}/vendor") == 0x15B3 and b"SW_MNG" in tree.data(f"{folder}/vpd", _VPD):
            names.append(name)
    return names
