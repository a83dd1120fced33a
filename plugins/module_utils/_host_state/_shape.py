# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gpu_info returns, as types: every key is there in every answer, empty, -1 or ``unknown`` where nothing is known.

The module's RETURN documents the same keys; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List

from .._gpu._inventory import UNKNOWN, MigInstance, MigProfile, Session
from ._cdi import Spec
from ._driver import Library, Module, ModuleFile, Rival
from ._kernel_log import Entry
from ._packages import Package
from ._pci import Switch
from ._runtimes import Runtime
from ._system import System
from ._tree import Problem


@dataclass
class Mig:
    capable: str = UNKNOWN
    current: str = UNKNOWN
    pending: str = UNKNOWN
    instances: List[MigInstance] = field(default_factory=list)
    profiles: List[MigProfile] = field(default_factory=list)


@dataclass
class GpuState:
    """One GPU, put together from all that saw it (``seen_by``: sysfs, driver, nvml, nvidia-smi)."""

    bus_id: str
    index: int = -1
    minor: int = -1
    uuid: str = ""
    serial: str = ""
    name: str = ""
    product: str = ""
    architecture: str = UNKNOWN
    compute_capability: str = ""
    device_id: str = ""
    subsystem_id: str = ""
    pci_class: str = ""
    flavour: str = UNKNOWN
    first_branch: int = 0
    last_branch: int = 0
    driver: str = ""
    numa_node: int = -1
    iommu_group: int = -1
    virtual_function: bool = False
    excluded: bool = False
    memory_mib: int = 0
    vbios: str = ""
    firmware: str = ""
    persistence_mode: str = UNKNOWN
    compute_mode: str = UNKNOWN
    ecc: str = UNKNOWN
    virtualization: str = UNKNOWN
    power_limit_watts: float = -1.0
    mig: Mig = field(default_factory=Mig)
    seen_by: List[str] = field(default_factory=list)


@dataclass
class Needs:
    """What all GPUs together need. ``flavour``: open, proprietary, either, none, impossible or unknown."""

    flavour: str = "none"
    first_branch: int = 0
    last_branch: int = 0
    fabric: str = "none"
    why: str = ""


@dataclass
class DriverState:
    """``state`` is the first that fits: ready, mismatch, failed, loaded, not_loaded, files_only, absent."""

    state: str = "absent"
    why: str = ""
    version: str = ""
    flavour: str = ""
    source_version: str = ""
    references: int = -1
    holders: List[str] = field(default_factory=list)
    modules: List[Module] = field(default_factory=list)
    parameters: Dict[str, str] = field(default_factory=dict)
    module_files: List[ModuleFile] = field(default_factory=list)
    libraries: List[Library] = field(default_factory=list)
    firmware: List[str] = field(default_factory=list)
    kernels: List[str] = field(default_factory=list)
    runfile: bool = False
    packages: List[Package] = field(default_factory=list)
    rivals: List[Rival] = field(default_factory=list)


@dataclass
class Smi:
    """``state`` is not_asked where it was not run: NVML answered, or there is none."""

    path: str = ""
    state: str = "not_asked"
    why: str = ""
    remedy: str = ""


@dataclass
class Use:
    """How a process uses a GPU by NVML's word; instances are -1 outside MIG."""

    gpu: int
    gpu_instance: int
    compute_instance: int
    memory_mib: int


@dataclass
class ProcessState:
    """A process with a GPU's files open, or one that NVML names (``pid`` as this host or container sees it)."""

    pid: int
    name: str = ""
    user: int = -1
    unit: str = ""
    container: str = ""
    files: List[str] = field(default_factory=list)
    gpus: List[int] = field(default_factory=list)
    uses: List[Use] = field(default_factory=list)
    libraries: bool = False
    old_libraries: bool = False


@dataclass
class Found:
    host: System
    gpus: List[GpuState] = field(default_factory=list)
    switches: List[Switch] = field(default_factory=list)
    nvlink5: List[str] = field(default_factory=list)
    needs: Needs = field(default_factory=Needs)
    driver: DriverState = field(default_factory=DriverState)
    nvml: Session = field(default_factory=lambda: Session("not_asked"))
    nvidia_smi: Smi = field(default_factory=Smi)
    processes: List[ProcessState] = field(default_factory=list)
    runtimes: List[Runtime] = field(default_factory=list)
    cdi: List[Spec] = field(default_factory=list)
    kernel_log: List[Entry] = field(default_factory=list)
    problems: List[Problem] = field(default_factory=list)
