# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a PCI id tells of an NVIDIA GPU without a driver: architecture, product, kernel modules that fit, branches.

Ids and names are those of the public PCI id list, branches those of NVIDIA's release notes. Valid for display functions
(class 03xx) only: ids from 0x22a3 on belong to NVSwitches, audio functions and bridges as well.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from .._matrix import GPUS, PRODUCTS

VENDOR = 0x10DE
_BUS_ID = re.compile(r"\A([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])\Z")

OPEN = "open"
PROPRIETARY = "proprietary"
EITHER = "either"
UNKNOWN = "unknown"
YES = "yes"
NO = "no"

# First id of the range, architecture, compute capability as far as the id tells. A range ends where the next begins.
_RANGES: Tuple[Tuple[int, str, str], ...] = (
    (0x0000, "pre-fermi", "1.x"),
    (0x06C0, "fermi", "2.x"),
    (0x06E0, "pre-fermi", "1.x"),
    (0x0DC0, "fermi", "2.x"),
    (0x0FA0, "kepler", "3.x"),
    (0x1040, "fermi", "2.x"),
    (0x10C0, "pre-fermi", "1.x"),
    (0x1140, "fermi", "2.x"),
    (0x1180, "kepler", "3.x"),
    (0x1200, "fermi", "2.x"),
    (0x1280, "kepler", "3.x"),
    (0x1340, "maxwell", "5.x"),
    (0x15C0, "pascal", "6.0"),
    (0x1600, "maxwell", "5.x"),
    (0x1720, "pascal", "6.0"),
    (0x1740, "maxwell", "5.x"),
    (0x1800, UNKNOWN, ""),
    (0x1B00, "pascal", "6.1"),
    (0x1D80, "volta", "7.0"),
    (0x1E00, "turing", "7.5"),
    (0x2000, UNKNOWN, ""),
    (0x2080, "ampere", "8.0"),
    (0x2100, "turing", "7.5"),
    (0x2200, "ampere", "8.6"),
    (0x2240, UNKNOWN, ""),
    (0x2300, "hopper", "9.0"),
    (0x2400, "ampere", "8.6"),
    (0x2600, "ada", "8.9"),
    (0x2900, "blackwell", "10.0"),
    (0x2A00, UNKNOWN, ""),
    (0x2B00, "thor", "11.0"),
    (0x2B01, UNKNOWN, ""),
    (0x2B80, "blackwell", "12.0"),
    (0x2E00, "blackwell", "12.1"),
    (0x2F00, "blackwell", "12.0"),
    (0x3000, "rubin", ""),
    (0x3100, "blackwell", "10.3"),
    (0x3240, UNKNOWN, ""),
    (0x3340, "blackwell", ""),
    (0x3341, UNKNOWN, ""),
)
_STARTS = tuple(start for start, _architecture, _capability in _RANGES)
# From here on an id that nobody knows belongs to a GPU newer than this list, and those need the open modules.
NEW = 0x2900
GRACE_HOPPER = range(0x2340, 0x2350)

# Jetson's stack has open modules of its own.
_FLAVOURS = {(OPEN,): OPEN, (PROPRIETARY,): PROPRIETARY, (): OPEN}

_PRODUCTS: Dict[int, str] = {
    0x102D: "Tesla K80",
    0x13F2: "Tesla M60",
    0x17FD: "Tesla M40",
    0x15F7: "Tesla P100 PCIe 12GB",
    0x15F8: "Tesla P100 PCIe 16GB",
    0x15F9: "Tesla P100 SXM2 16GB",
    0x1B38: "Tesla P40",
    0x1BB3: "Tesla P4",
    0x1DB1: "Tesla V100 SXM2 16GB",
    0x1DB3: "Tesla V100 FHHL 16GB",
    0x1DB4: "Tesla V100 PCIe 16GB",
    0x1DB5: "Tesla V100 SXM2 32GB",
    0x1DB6: "Tesla V100 PCIe 32GB",
    0x1DB8: "Tesla V100 SXM3 32GB",
    0x1DF6: "Tesla V100S PCIe 32GB",
    0x1E37: "Tesla T10 16GB",
    0x1EB4: "T4G",
    0x1EB8: "Tesla T4",
    0x20B0: "A100 SXM4 40GB",
    0x20B1: "A100 PCIe 40GB",
    0x20B2: "A100 SXM4 80GB",
    0x20B3: "A100 SXM 64GB",
    0x20B5: "A100 PCIe 80GB",
    0x20B6: "PG506-232",
    0x20B7: "A30",
    0x20B8: "A100X",
    0x20B9: "A30X",
    0x20F1: "A100 PCIe 40GB",
    0x20F3: "A800 SXM4 80GB",
    0x20F5: "A800 PCIe 80GB",
    0x20F6: "A800 PCIe 40GB",
    0x2230: "RTX A6000",
    0x2231: "RTX A5000",
    0x2232: "RTX A4500",
    0x2233: "RTX A5500",
    0x2235: "A40",
    0x2236: "A10",
    0x2237: "A10G",
    0x2238: "A10M",
    0x230C: "H20 NVL16",
    0x230E: "H20 NVL16",
    0x2313: "H100 CNX",
    0x2321: "H100 NVL 94GB",
    0x2322: "H800 PCIe",
    0x2324: "H800",
    0x2328: "H20B",
    0x2329: "H20",
    0x232C: "H20 HBM3e",
    0x2330: "H100 SXM5 80GB",
    0x2331: "H100 PCIe",
    0x2335: "H200 SXM 141GB",
    0x2337: "H100 SXM5 64GB",
    0x2338: "H100 SXM5 96GB",
    0x2339: "H100 SXM5 94GB",
    0x233A: "H800 NVL 94GB",
    0x233B: "H200 NVL",
    0x233D: "H100 96GB",
    0x2342: "GH200 120GB",
    0x2348: "GH200 144GB HBM3e",
    0x25B6: "A2 / A16",
    0x26B1: "RTX 6000 Ada Generation",
    0x26B2: "RTX 5000 Ada Generation",
    0x26B3: "RTX 5880 Ada Generation",
    0x26B5: "L40",
    0x26B7: "L20",
    0x26B8: "L40G",
    0x26B9: "L40S",
    0x26BA: "L20",
    0x27B6: "L2",
    0x27B8: "L4",
    0x2901: "B200",
    0x2909: "HGX B200 168GB",
    0x2941: "GB200",
    0x29BC: "B100",
    0x2B00: "Jetson AGX Thor",
    0x2B85: "GeForce RTX 5090",
    0x2BB1: "RTX PRO 6000 Blackwell Workstation Edition",
    0x2BB3: "RTX PRO 5000 Blackwell",
    0x2BB4: "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    0x2BB5: "RTX PRO 6000 Blackwell Server Edition",
    0x2C31: "RTX PRO 4500 Blackwell",
    0x2C3A: "RTX PRO 4500 Blackwell Server Edition",
    0x2E12: "GB10",
    0x3182: "B300 SXM6",
    0x31A1: "GB300 MaxQ",
    0x31C2: "GB300",
    0x31C3: "GB300",
}

# Those whose first branch is not the architecture's, with the row of the matrix that has it.
_FIRST_BRANCHES: Dict[int, str] = {
    **dict.fromkeys((0x15F7, 0x15F8, 0x15F9), "P100"),
    **dict.fromkeys((0x20B0, 0x20B1, 0x20B2, 0x20B5, 0x20F1), "A100"),
    0x20B7: "A30",
    0x2235: "A40",
    0x25B6: "A16",
    0x26B9: "L40S",
    **dict.fromkeys((0x2328, 0x2329, 0x232C), "H20"),
    **dict.fromkeys((0x2335, 0x233B), "H200"),
    **dict.fromkeys((0x2342, 0x2348), "GH200"),
    **dict.fromkeys((0x2BB1, 0x2BB4, 0x2BB5), "RTX PRO 6000 Blackwell"),
    **dict.fromkeys((0x3182, 0x31A1, 0x31C2, 0x31C3), "B300"),
    0x2E12: "GB10",
}
_OTHER_AMPERE = PRODUCTS["A10"].branch  # the A100 came long before the rest

# GPUs that can be partitioned. All of GH100 and of the large Blackwell chips can; of the rest those listed.
_MIG_RANGES = (range(0x2300, 0x2400), range(0x2900, 0x2A00), range(0x3180, 0x3240))
_MIG = frozenset(
    (
        *(0x20B0, 0x20B1, 0x20B2, 0x20B3, 0x20B5, 0x20B6, 0x20B7, 0x20B8, 0x20B9, 0x20F1, 0x20F3, 0x20F5, 0x20F6),
        *(0x2BB1, 0x2BB3, 0x2BB4, 0x2BB5, 0x2C31, 0x2C3A),
    )
)

SWITCHES: Dict[int, str] = {
    0x1AC0: "V100 NVSwitch",
    0x1AC1: "V100 NVSwitch",
    0x1AC2: "V100 NVSwitch",
    0x1AF1: "A100 NVSwitch",
    0x22A3: "H100 NVSwitch",
}


@dataclass(frozen=True)
class Kind:
    """A GPU as its PCI id describes it. ``flavour``: modules that fit, :data:`OPEN`, :data:`PROPRIETARY`,
    :data:`EITHER` or :data:`UNKNOWN`. Branches are 0 where none is known. ``mig``: yes, no or unknown."""

    product: str
    architecture: str
    compute_capability: str
    flavour: str
    first_branch: int
    last_branch: int
    mig: str


def kind(device: int) -> Kind:
    """What the id of a display function of vendor 10de tells."""
    architecture, capability = _architecture(device)
    flavour, first, last = _needs(device, architecture)
    if device in GRACE_HOPPER or (architecture == UNKNOWN and device >= NEW):
        flavour = OPEN
    return Kind(
        product=_PRODUCTS.get(device, ""),
        architecture=architecture,
        compute_capability=capability,
        flavour=flavour,
        first_branch=first,
        last_branch=last,
        mig=_mig(device, architecture),
    )


def _needs(device: int, architecture: str) -> Tuple[str, int, int]:
    """Modules that fit, first branch, last branch (0: none known)."""
    row = GPUS.get(architecture)
    if row is None:
        return UNKNOWN, 0, 0
    first = PRODUCTS[_FIRST_BRANCHES[device]].branch if device in _FIRST_BRANCHES else row.first
    if architecture == "ampere" and device not in _FIRST_BRANCHES:
        first = _OTHER_AMPERE
    return _FLAVOURS.get(row.flavours, EITHER), first, row.last


def _architecture(device: int) -> Tuple[str, str]:
    _start, architecture, capability = _RANGES[max(bisect_right(_STARTS, device) - 1, 0)]
    return architecture, capability


def _mig(device: int, architecture: str) -> str:
    if device in _MIG or any(device in ids for ids in _MIG_RANGES):
        return YES
    return UNKNOWN if architecture in (UNKNOWN, "rubin") or device >= NEW else NO


def switch(device: int) -> Optional[str]:
    """The product name of an NVSwitch (a function of class 0680), empty for one that is new; None for other bridges."""
    if device in SWITCHES:
        return SWITCHES[device]
    return "" if device > max(SWITCHES) else None


def bus_id(text: str) -> str:
    """One spelling for all sources: domain of four digits (more where needed), lower case. Empty when it is none.

    NVML writes ``00000000:06:00.0``, the kernel ``0000:06:00.0``, and domains above ffff have five digits or more.
    """
    found = _BUS_ID.match(text.strip())
    if not found:
        return ""
    domain, bus, slot, function = found.groups()
    return f"{int(domain, 16):04x}:{bus}:{slot}.{function}".lower()
