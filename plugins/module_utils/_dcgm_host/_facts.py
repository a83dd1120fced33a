# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What telemetry has to know of a host: its driver, the CUDA that it runs, its GPUs and their MIG instances."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Set, Tuple

from .._gpu import _pci_ids
from .._gpu._board import Gpu as Board
from .._gpu._nvml import MissingPynvml, Nvml, NvmlError
from .._host._files import Files
from .._host_state import _pci
from .._host_state._tree import Problems, Tree
from .._matrix import BRANCHES, branch_of
from ._scrape import Instance

_MODULE = "/sys/module/nvidia/version"


@dataclass(frozen=True)
class Gpu:
    """``instances``: ids of its GPU instances. ``seen``: NVML told of it; else it is known from PCI alone."""

    uuid: str
    product: str
    architecture: str
    mig: bool = False
    instances: Tuple[int, ...] = ()
    nvlink: bool = False
    seen: bool = True


@dataclass(frozen=True)
class Facts:
    """``driver``: version of the loaded one, "" without; ``cuda``: major version that it runs, 0 where nobody tells.
    ``silent``: why NVML does not answer, "" where it does.
    """

    driver: str = ""
    cuda: int = 0
    gpus: Tuple[Gpu, ...] = ()
    switches: int = 0
    silent: str = ""

    @property
    def architectures(self) -> FrozenSet[str]:
        """Of all GPUs."""
        return frozenset(gpu.architecture for gpu in self.gpus)

    @property
    def instances(self) -> Set[Instance]:
        """MIG instances of all GPUs."""
        return {(gpu.uuid, one) for gpu in self.gpus for one in gpu.instances}

    def told(self) -> Dict[str, Any]:
        """Plain data."""
        gpus: List[Dict[str, Any]] = [
            {
                "uuid": gpu.uuid,
                "product": gpu.product,
                "architecture": gpu.architecture,
                "mig": gpu.mig,
                "instances": list(gpu.instances),
            }
            for gpu in self.gpus
        ]
        return {"driver": self.driver, "cuda": self.cuda, "gpus": gpus}


def read(files: Files, pynvml: str = "") -> Facts:
    """By NVML; where it does not answer by sysfs, which knows no UUIDs and no MIG."""
    switches = len(_pci.read(Tree(files.root.folder, "pci", Problems())).switches)
    try:
        with Nvml(pynvml) as nvml:
            system = nvml.system()
            count = int(nvml.call("nvmlDeviceGetCount"))
            gpus = tuple(_gpu(nvml, nvml.gpu(index)) for index in range(count))
            return Facts(str(system["driver"]), int(system["cuda"]) // 1000, gpus, switches)
    except (MissingPynvml, NvmlError) as error:
        return _without_nvml(files, switches, str(error))


def _gpu(nvml: Nvml, gpu: Board) -> Gpu:
    mode = nvml.mode(gpu)
    on = bool(mode and mode.current)
    instances = tuple(sorted(one.id for one in nvml.instances(gpu, nvml.profiles(gpu)))) if on else ()
    nvlink = nvml.ask("nvmlDeviceGetNvLinkState", gpu, 0) is not None
    kind = _pci_ids.kind(gpu.device_id >> 16)
    return Gpu(gpu.uuid, gpu.name, kind.architecture, on, instances, nvlink)


def _without_nvml(files: Files, switches: int, why: str) -> Facts:
    driver = (files.text(_MODULE) or "").strip()
    branch = branch_of(driver)
    known = BRANCHES.get(branch) if branch else None
    found = re.match(r"(\d+)\.", known.cuda) if known else None
    pci = _pci.read(Tree(files.root.folder, "pci", Problems()))
    gpus = tuple(Gpu("", one.kind.product, one.kind.architecture, seen=False) for one in pci.gpus)
    return Facts(driver, int(found.group(1)) if found else 0, gpus, switches, why)
