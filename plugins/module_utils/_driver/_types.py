# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the catalogue of packages is asked, and by whom: a system, and a driver for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

OPEN = "open"
PROPRIETARY = "proprietary"
FLAVOURS = (OPEN, PROPRIETARY)

DISTRIBUTION = "distribution"
NVIDIA = "nvidia"
LOCAL = "local"
PRECOMPILED = "precompiled"
SOURCES = (DISTRIBUTION, NVIDIA, LOCAL, PRECOMPILED)

COMPUTE = "compute"
FULL = "full"
DESKTOP = "desktop"
USES = (COMPUTE, FULL, DESKTOP)

FABRIC_MANAGER = "fabric_manager"
IMEX = "imex"
NSCQ = "nscq"
NVSDM = "nvsdm"
NVLSM = "nvlsm"
PERSISTENCED = "persistenced"
PEERMEM = "peermem"
GDS = "gds"
GDRCOPY = "gdrcopy"
COMPANIONS = (FABRIC_MANAGER, IMEX, NSCQ, NVSDM, NVLSM, PERSISTENCED, PEERMEM, GDS, GDRCOPY)

APT = "apt"
DNF = "dnf"
ZYPPER = "zypper"
IMMUTABLE = "immutable"
FAMILIES = (APT, DNF, ZYPPER, IMMUTABLE, "")


@dataclass(frozen=True)
class System:
    """A host, as far as packages depend on it.

    ``id``, ``version``, ``like``: as /etc/os-release says; ``arch``: ``x86_64`` or ``aarch64``; ``kernel``: the one
    that the driver is for; ``family``: one of :data:`FAMILIES`, "" where packages are not known.
    """

    id: str
    version: str
    like: Tuple[str, ...] = ()
    arch: str = "x86_64"
    kernel: str = ""
    family: str = ""


@dataclass(frozen=True)
class Wanted:
    """A driver: ``version`` "" is the newest candidate of the branch; ``companions``: of :data:`COMPANIONS`."""

    branch: int
    version: str = ""
    flavour: str = OPEN
    source: str = NVIDIA
    use: str = COMPUTE
    companions: Tuple[str, ...] = ()
