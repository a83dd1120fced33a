# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that NVML tells of a host's GPUs, GPU by GPU: one that does not answer does not hide the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _pci_ids
from ._board import Gpu, GpuInstance, MigDevice, Mode, Process, Profile
from ._nvml import MissingPynvml, Nvml, NvmlError, Opener

OK = "ok"
ENABLED, DISABLED, UNSUPPORTED, UNKNOWN = "enabled", "disabled", "unsupported", "unknown"

# How opening ended, by NVML's code; any other is "failed".
_STATES: Dict[int, str] = {
    4: "permission",
    9: "not_loaded",
    12: "no_library",
    15: "lost",
    17: "no_access",
    18: "mismatch",
}
_ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing",
    7: "ampere", 8: "ada", 9: "hopper", 10: "blackwell",
}  # fmt: skip
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_VIRTUALIZATION = {0: "none", 1: "pass-through", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}

# Part, what it was about, why, what to do.
Note = Callable[[str, str, str, str], None]


@dataclass
class Session:
    """How NVML answered: ``state`` is :data:`OK` or a name that stays, with ``why`` and ``remedy``."""

    state: str
    why: str = ""
    remedy: str = ""
    driver_version: str = ""
    library_version: str = ""
    cuda_version: str = ""


@dataclass
class MigProfile:
    name: str
    id: int
    count: int
    size: int
    memory_mib: int
    starts: List[int]


@dataclass
class MigCompute:
    id: int
    profile: str
    start: int
    size: int
    uuid: str


@dataclass
class MigInstance:
    """``profile`` is empty and ``start`` -1 where the user may not read the layout but sees the devices."""

    id: int
    profile: str
    start: int
    size: int
    compute: List[MigCompute]


@dataclass
class Card:
    """One GPU. Keys are documented in gpu_info's RETURN; empty, -1 or ``unknown`` is what it did not tell."""

    gpu: Gpu
    bus_id: str
    serial: str = ""
    vbios: str = ""
    firmware: str = ""
    architecture: str = ""
    compute_capability: str = ""
    persistence_mode: str = UNKNOWN
    compute_mode: str = UNKNOWN
    ecc: str = UNKNOWN
    virtualization: str = UNKNOWN
    power_limit_watts: float = -1.0
    mig_current: str = UNKNOWN
    mig_pending: str = UNKNOWN
    profiles: List[MigProfile] = field(default_factory=list)
    instances: List[MigInstance] = field(default_factory=list)
    processes: List[Process] = field(default_factory=list)


def read(opener: Opener, note: Note) -> Tuple[Session, List[Card]]:
    """The session's state and every GPU that answers. Never raises; what failed is noted."""
    try:
        nvml = opener()
        with nvml:
            versions = nvml.system()
            session = Session(OK, "", "", versions["driver"], versions["nvml"], cuda_text(versions["cuda"]))
            return session, _cards(nvml, note)
    except MissingPynvml as error:
        remedy = "Install the package nvidia-ml-py, or name a copy of it with the option pynvml."
        return _ended("no_pynvml", str(error).partition(". ")[0], remedy)
    except NvmlError as error:
        return _ended(_STATES.get(error.code, "failed"), _why(error), error.remedy or "Read the kernel's log.")


def _ended(state: str, why: str, remedy: str) -> Tuple[Session, List[Card]]:
    return Session(state, why, remedy), []


def _why(error: NvmlError) -> str:
    return f"{error.function}: {error.name}"


def cuda_text(number: int) -> str:
    """13.0 of 13000."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _cards(nvml: Nvml, note: Note) -> List[Card]:
    cards = []
    for index in range(int(nvml.call("nvmlDeviceGetCount"))):
        try:
            gpu = nvml.gpu(index)
        except NvmlError as error:
            note("nvml", f"GPU {index}", _why(error), error.remedy)
            continue
        cards.append(_card(nvml, gpu, note))
    return cards


def _card(nvml: Nvml, gpu: Gpu, note: Note) -> Card:
    card = Card(gpu, _pci_ids.bus_id(gpu.bus_id))

    def part(read_it: Callable[[Nvml, Card], None]) -> None:
        try:
            read_it(nvml, card)
        except NvmlError as error:
            note("nvml", f"GPU {gpu.index}", _why(error), error.remedy)

    part(_identity)
    part(_modes)
    part(_mig)
    part(_processes)
    return card


def _identity(nvml: Nvml, card: Card) -> None:
    card.serial = _text(nvml.ask("nvmlDeviceGetSerial", card.gpu))
    card.vbios = _text(nvml.ask("nvmlDeviceGetVbiosVersion", card.gpu))
    card.firmware = _text(nvml.ask("nvmlDeviceGetGspFirmwareVersion", card.gpu))
    card.architecture = _ARCHITECTURES.get(nvml.ask("nvmlDeviceGetArchitecture", card.gpu), "")
    capability = nvml.ask("nvmlDeviceGetCudaComputeCapability", card.gpu)
    card.compute_capability = ".".join(str(part) for part in capability or ())


def _modes(nvml: Nvml, card: Card) -> None:
    card.persistence_mode = _switch(nvml.ask("nvmlDeviceGetPersistenceMode", card.gpu))
    card.compute_mode = _COMPUTE_MODES.get(nvml.ask("nvmlDeviceGetComputeMode", card.gpu), UNKNOWN)
    ecc = nvml.ask("nvmlDeviceGetEccMode", card.gpu)
    card.ecc = _switch(None if ecc is None else ecc[0])
    card.virtualization = _VIRTUALIZATION.get(nvml.ask("nvmlDeviceGetVirtualizationMode", card.gpu), UNKNOWN)
    limit = nvml.ask("nvmlDeviceGetPowerManagementLimit", card.gpu)
    card.power_limit_watts = -1.0 if limit is None else limit / 1000.0


def _mig(nvml: Nvml, card: Card) -> None:
    mode: Optional[Mode] = nvml.mode(card.gpu)
    if mode is None:
        card.mig_current = card.mig_pending = UNSUPPORTED
        return
    card.mig_current, card.mig_pending = _switch(mode.current), _switch(mode.pending)
    devices = nvml.mig_devices(card.gpu) if mode.current else []
    card.instances = _from_devices(devices)
    profiles = nvml.profiles(card.gpu)
    card.profiles = [
        MigProfile(one.name, one.id, one.count, one.size, one.memory, list(one.starts)) for one in profiles
    ]
    if mode.current:
        card.instances = [_instance(one, profiles, devices) for one in nvml.instances(card.gpu, profiles)]


def _from_devices(devices: Sequence[MigDevice]) -> List[MigInstance]:
    """What is known where the user may not list instances: their devices."""
    found: Dict[int, MigInstance] = {}
    for one in devices:
        instance = found.setdefault(one.gpu_instance, MigInstance(one.gpu_instance, "", -1, -1, []))
        instance.compute.append(MigCompute(one.compute_instance, "", -1, -1, one.uuid))
    return list(found.values())


def _instance(one: GpuInstance, profiles: Sequence[Profile], devices: Sequence[MigDevice]) -> MigInstance:
    profile = next((each for each in profiles if each.id == one.profile_id), None)
    name = profile.name if profile else ""
    uuids = {(device.gpu_instance, device.compute_instance): device.uuid for device in devices}
    compute = [
        MigCompute(
            each.id,
            name if profile and each.slices == profile.slices else f"{each.slices}c.{name}",
            each.start,
            each.size,
            uuids.get((one.id, each.id), ""),
        )
        for each in one.compute
    ]
    return MigInstance(one.id, name, one.start, one.size, compute)


def _processes(nvml: Nvml, card: Card) -> None:
    card.processes = nvml.processes(card.gpu)


def _switch(value: Any) -> str:
    return UNSUPPORTED if value is None else ENABLED if value else DISABLED


def _text(value: Any) -> str:
    return "" if value is None else str(value)
