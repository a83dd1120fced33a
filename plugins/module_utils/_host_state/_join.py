# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One list of GPUs and one of processes from what sysfs, the driver, NVML and nvidia-smi each tell."""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Sequence

from .._gpu import _pci_ids
from .._gpu._inventory import DISABLED, ENABLED, UNKNOWN, UNSUPPORTED, Card
from ._driver import Proc
from ._holders import Holder
from ._pci import PciGpu
from ._shape import GpuState, Needs, ProcessState, Use

MIB = 1024 * 1024
_NEEDS_ORDER = (_pci_ids.PROPRIETARY, _pci_ids.OPEN)


def gpus(
    pci: Iterable[PciGpu], procs: Iterable[Proc], cards: Iterable[Card], rows: Iterable[Mapping[str, str]]
) -> List[GpuState]:
    """GPUs by NVML's index, those without one after them by bus id. Later sources say more, and win."""
    found: Dict[str, GpuState] = {}

    def at(bus: str, source: str) -> GpuState:
        gpu = found.setdefault(bus, GpuState(bus))
        gpu.seen_by.append(source)
        return gpu

    for one in pci:
        _from_pci(at(one.bus_id, "sysfs"), one)
    for proc in procs:
        _from_proc(at(_pci_ids.bus_id(proc.bus_id) or proc.bus_id, "driver"), proc)
    for card in cards:
        _from_nvml(at(card.bus_id, "nvml"), card)
    for row in rows:
        _from_smi(at(_pci_ids.bus_id(row["pci.bus_id"]), "nvidia-smi"), row)
    return sorted(found.values(), key=lambda gpu: (gpu.index < 0, gpu.index, gpu.bus_id))


def _from_pci(gpu: GpuState, one: PciGpu) -> None:
    gpu.device_id, gpu.subsystem_id, gpu.pci_class = one.device_id, one.subsystem_id, one.pci_class
    gpu.driver, gpu.numa_node, gpu.iommu_group = one.driver, one.numa_node, one.iommu_group
    gpu.virtual_function = one.virtual_function
    _kind(gpu, one.device)


def _kind(gpu: GpuState, device: int) -> None:
    kind = _pci_ids.kind(device)
    gpu.product, gpu.architecture, gpu.compute_capability = kind.product, kind.architecture, kind.compute_capability
    gpu.flavour, gpu.first_branch, gpu.last_branch = kind.flavour, kind.first_branch, kind.last_branch
    gpu.mig.capable = kind.mig


def _from_proc(gpu: GpuState, proc: Proc) -> None:
    gpu.name, gpu.uuid, gpu.minor = proc.name, proc.uuid, proc.minor
    gpu.firmware, gpu.vbios, gpu.excluded = proc.firmware, proc.vbios, proc.excluded


def _from_nvml(gpu: GpuState, card: Card) -> None:
    told = card.gpu
    if not gpu.device_id:  # a container that does not see sysfs
        device, vendor = told.device_id >> 16, told.device_id & 0xFFFF
        gpu.device_id = f"{vendor:04x}:{device:04x}"
        gpu.subsystem_id = f"{told.subsystem_id & 0xFFFF:04x}:{told.subsystem_id >> 16:04x}"
        _kind(gpu, device)
    gpu.index, gpu.uuid, gpu.name = told.index, told.uuid, told.name
    gpu.minor = told.minor if told.minor >= 0 else gpu.minor
    gpu.serial, gpu.vbios = card.serial, card.vbios or gpu.vbios
    gpu.firmware = card.firmware or gpu.firmware
    gpu.architecture = card.architecture or gpu.architecture
    gpu.compute_capability = card.compute_capability or gpu.compute_capability
    gpu.memory_mib = told.memory // MIB
    gpu.persistence_mode, gpu.compute_mode, gpu.ecc = card.persistence_mode, card.compute_mode, card.ecc
    gpu.virtualization, gpu.power_limit_watts = card.virtualization, card.power_limit_watts
    gpu.mig.current, gpu.mig.pending = card.mig_current, card.mig_pending
    gpu.mig.instances, gpu.mig.profiles = card.instances, card.profiles
    if card.mig_current != UNKNOWN:
        gpu.mig.capable = _pci_ids.NO if card.mig_current == UNSUPPORTED else _pci_ids.YES


def _from_smi(gpu: GpuState, row: Mapping[str, str]) -> None:
    gpu.index, gpu.uuid, gpu.name = _number(row["index"]), row["uuid"], row["name"]
    gpu.memory_mib = max(_number(row["memory.total"]), 0)
    gpu.compute_capability = row["compute_cap"] or gpu.compute_capability
    gpu.serial, gpu.vbios = row["serial"], row["vbios_version"] or gpu.vbios
    gpu.persistence_mode, gpu.ecc = _switch(row["persistence_mode"]), _switch(row["ecc.mode.current"])
    gpu.compute_mode = row["compute_mode"].lower() or UNKNOWN
    gpu.mig.current, gpu.mig.pending = _switch(row["mig.mode.current"]), _switch(row["mig.mode.pending"])


def _switch(text: str) -> str:
    return {"Enabled": ENABLED, "Disabled": DISABLED, "": UNSUPPORTED}.get(text, UNKNOWN)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else -1


def needs(found: Sequence[GpuState], switches: int, nvlink5: int) -> Needs:
    """What modules and branches all GPUs allow together, and which fabric software they need."""
    fabric = "nvlink5" if nvlink5 else "nvswitch" if switches else "none"
    mine = [gpu for gpu in found if gpu.device_id]
    if not mine:
        return Needs(fabric=fabric)
    lasts = [gpu.last_branch for gpu in mine if gpu.last_branch]
    needed = Needs(_pci_ids.EITHER, max(gpu.first_branch for gpu in mine), min(lasts, default=0), fabric)
    unknown = [gpu for gpu in mine if gpu.flavour == _pci_ids.UNKNOWN]
    only = {flavour: [gpu for gpu in mine if gpu.flavour == flavour] for flavour in _NEEDS_ORDER}
    if unknown:
        needed.flavour, needed.why = _pci_ids.UNKNOWN, f"{_names(unknown)}: no GPU with this PCI id is known"
    elif all(only.values()):
        old, new = (_names(only[flavour]) for flavour in _NEEDS_ORDER)
        needed.flavour = "impossible"
        needed.why = f"{old} need the proprietary modules and {new} the open ones; one host runs one kind"
    elif needed.last_branch and needed.first_branch > needed.last_branch:
        needed.flavour = "impossible"
        needed.why = (
            f"no branch drives all GPUs: some need {needed.first_branch} or newer, others {needed.last_branch} or older"
        )
    else:
        needed.flavour = next((flavour for flavour in _NEEDS_ORDER if only[flavour]), _pci_ids.EITHER)
        needed.why = f"{_names(only[needed.flavour])}" if needed.flavour in only else ""
    return needed


def _names(found: Sequence[GpuState]) -> str:
    return ", ".join(f"{gpu.name or gpu.product or gpu.device_id} ({gpu.bus_id})" for gpu in found)


def processes(holders: Iterable[Holder], cards: Iterable[Card], found: Sequence[GpuState]) -> List[ProcessState]:
    """Processes by pid: what /proc shows, and what NVML says of them."""
    by_minor = {gpu.minor: gpu.index for gpu in found if gpu.minor >= 0 and gpu.index >= 0}
    joined: Dict[int, ProcessState] = {}
    for one in holders:
        numbers = sorted(by_minor[minor] for minor in one.minors if minor in by_minor)
        joined[one.pid] = ProcessState(
            one.pid,
            one.name,
            one.user,
            one.unit,
            one.container,
            one.files,
            numbers,
            [],
            one.libraries,
            one.old_libraries,
        )
    for card in cards:
        for told in card.processes:
            state = joined.setdefault(told.pid, ProcessState(told.pid))
            state.uses.append(Use(card.gpu.index, told.gpu_instance, told.compute_instance, told.memory // MIB))
            state.gpus = sorted({*state.gpus, card.gpu.index})
    return sorted(joined.values(), key=lambda state: state.pid)
