# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Companions of the driver: fabric manager, IMEX and the like, by the names that each branch gives them. Pure.

All but those with numbers of their own have to be of the driver's version: an unequal fabric manager ends at once.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Tuple

from ._sets import COMPANION, Package, Refusal, exact, loose, others
from ._types import (
    APT,
    DESKTOP,
    DISTRIBUTION,
    FABRIC_MANAGER,
    GDRCOPY,
    GDS,
    IMEX,
    NSCQ,
    NVLSM,
    NVSDM,
    OPEN,
    PEERMEM,
    PERSISTENCED,
    PRECOMPILED,
    System,
    Wanted,
)

#: Since this branch names of companions carry no number; Ubuntu's own archive keeps it.
UNSUFFIXED = 580
_FIRST = {IMEX: 550, NVSDM: 560, NVLSM: 570}
_ROW = "companions: {name} from branch {first} on [fabric manager guide]"


def ubuntu_archive(system: System, wanted: Wanted) -> bool:
    return system.id == "ubuntu" and wanted.source in (DISTRIBUTION, PRECOMPILED)


def companions(system: System, wanted: Wanted) -> List[Package]:
    """The packages of every companion that is wanted. Raises :class:`Refusal`."""
    found: List[Package] = []
    for name in wanted.companions:
        _refuse(name, system, wanted)
        found += _MAKE[name](system, wanted)
    return found


def _refuse(name: str, system: System, wanted: Wanted) -> None:
    first = _FIRST.get(name, 0)
    if wanted.branch < first:
        message = f"there is no {_WORDS[name]} for branch {wanted.branch}: {first} is the first that has one"
        raise Refusal("companion_not_made", message, _ROW.format(name=_WORDS[name], first=first))
    if name == NVSDM and wanted.branch < UNSUFFIXED and system.family == APT and system.arch != "x86_64":
        raise Refusal("companion_not_made", f"NVSDM of branch {wanted.branch} is made for x86_64 only", "")
    if name == GDS and wanted.flavour != OPEN:
        message = "GPUDirect Storage (nvidia-fs) needs the open kernel modules, and the proprietary ones are wanted"
        raise Refusal("gds_needs_open", message)
    _refuse_archive(name, system, wanted)


def _refuse_archive(name: str, system: System, wanted: Wanted) -> None:
    if system.id == "debian" and wanted.source == DISTRIBUTION and name not in (PERSISTENCED, PEERMEM):
        raise Refusal("companion_not_here", f"Debian's own archive has no {_WORDS[name]}; NVIDIA's repository has")
    if not ubuntu_archive(system, wanted):
        return
    if name in (FABRIC_MANAGER, NSCQ) and wanted.use == DESKTOP:
        message = (
            f"Ubuntu's {_WORDS[name]} follows the server build of the driver, and the desktop build is wanted; "
            "choose use compute or full"
        )
        raise Refusal("companion_not_here", message)
    if name not in (FABRIC_MANAGER, NSCQ, PERSISTENCED, PEERMEM):
        raise Refusal("companion_not_here", f"Ubuntu's own archive has no {_WORDS[name]}; NVIDIA's repository has")


def _suffix(system: System, wanted: Wanted) -> str:
    if system.family == APT and (wanted.branch < UNSUFFIXED or ubuntu_archive(system, wanted)):
        return f"-{wanted.branch}"
    return ""


def _fabric_manager(system: System, wanted: Wanted) -> List[Package]:
    return exact(COMPANION, fabric_manager_name(system, wanted))


def fabric_manager_name(system: System, wanted: Wanted) -> str:
    if system.family != APT and wanted.branch < UNSUFFIXED:
        return "nvidia-fabric-manager"
    return f"nvidia-fabricmanager{_suffix(system, wanted)}"


def _nscq(system: System, wanted: Wanted) -> List[Package]:
    suffix = f"-{wanted.branch}" if wanted.branch < UNSUFFIXED else _suffix(system, wanted)
    return exact(COMPANION, f"libnvidia-nscq{suffix}")


def _nvsdm(system: System, wanted: Wanted) -> List[Package]:
    return exact(COMPANION, f"libnvsdm{_suffix(system, wanted)}")


def _imex(system: System, wanted: Wanted) -> List[Package]:
    return exact(COMPANION, f"nvidia-imex{_suffix(system, wanted)}")


def _nvlsm(system: System, wanted: Wanted) -> List[Package]:
    return loose(COMPANION, "nvlsm", "infiniband-diags")


def _persistenced(system: System, wanted: Wanted) -> List[Package]:
    if system.id == "debian":  # Debian makes it from sources of its own, with its own numbers
        return (loose if wanted.source == DISTRIBUTION else exact)(COMPANION, "nvidia-persistenced")
    return []  # a part of every set


def _peermem(system: System, wanted: Wanted) -> List[Package]:
    return []  # a module of the driver


def _gds(system: System, wanted: Wanted) -> List[Package]:
    names = ("nvidia-gds", "nvidia-fs-dkms", "nvidia-fs") if system.family == APT else ("nvidia-gds", "nvidia-fs-dkms")
    return loose(COMPANION, *names)


def _gdrcopy(system: System, wanted: Wanted) -> List[Package]:
    names = ("gdrdrv-dkms", "libgdrapi", "gdrcopy") if system.family == APT else ("gdrcopy", "gdrcopy-kmod")
    return loose(COMPANION, *names)


_MAKE: Dict[str, Callable[[System, Wanted], List[Package]]] = {
    FABRIC_MANAGER: _fabric_manager,
    IMEX: _imex,
    NSCQ: _nscq,
    NVSDM: _nvsdm,
    NVLSM: _nvlsm,
    PERSISTENCED: _persistenced,
    PEERMEM: _peermem,
    GDS: _gds,
    GDRCOPY: _gdrcopy,
}
_WORDS = {
    FABRIC_MANAGER: "fabric manager",
    IMEX: "IMEX",
    NSCQ: "NSCQ",
    NVSDM: "NVSDM",
    NVLSM: "NVLSM",
    PERSISTENCED: "nvidia-persistenced",
    PEERMEM: "nvidia-peermem",
    GDS: "GPUDirect Storage (nvidia-fs)",
    GDRCOPY: "GDRCopy",
}


def leaves(system: System, wanted: Wanted) -> Tuple[str, ...]:
    """Companions under the names of other branches: of another version, so they go, wanted or not."""
    if system.family != APT and wanted.branch >= UNSUFFIXED:
        return ("nvidia-fabric-manager", "libnvidia-nscq-[0-9][0-9][0-9]", "nvidia-imex-[0-9][0-9][0-9]")
    if system.family != APT:
        return ("nvidia-fabricmanager", "libnvidia-nscq", *others("libnvidia-nscq-", str(wanted.branch), ""))
    stems = ("nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex", "libnvsdm")
    if _suffix(system, wanted):
        return stems
    return tuple(f"{stem}-[0-9][0-9][0-9]" for stem in stems)
