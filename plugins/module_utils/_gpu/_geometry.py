# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles of known boards, for drivers that answer only while MIG is on (before 550) or answer wrongly (A30).

Where the driver answers, what it says is used. Device ids are the PCI device's four digits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional, Sequence, Tuple

from ._board import ComputeProfile, Engines, Profile
from ._names import ATTRIBUTES

# index, profile id, slices, count, starts, size: boards with 8 memory slots.
_EIGHT: Tuple[Tuple[int, int, int, int, Tuple[int, ...], int], ...] = (
    (0, 19, 1, 7, (0, 1, 2, 3, 4, 5, 6), 1),
    (7, 20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    (9, 15, 1, 4, (0, 2, 4, 6), 2),
    (1, 14, 2, 3, (0, 2, 4), 2),
    (2, 9, 3, 2, (0, 4), 4),
    (3, 5, 4, 1, (0,), 4),
    (4, 0, 7, 1, (0,), 8),
)

_AMPERE: Tuple[Engines, ...] = (
    Engines(1),
    Engines(1, 1, 0, 1, 1),
    Engines(1, 1),
    Engines(2, 1),
    Engines(3, 2),
    Engines(4, 2),
    Engines(7, 5, 0, 1, 1),
)
_HOPPER: Tuple[Engines, ...] = (
    Engines(1, 1, 0, 1),
    Engines(1, 1, 0, 1, 1),
    Engines(1, 1, 0, 1),
    Engines(2, 2, 0, 2),
    Engines(3, 3, 0, 3),
    Engines(4, 4, 0, 4),
    Engines(8, 7, 0, 7, 1),
)
_SM_AMPERE = (14, 14, 14, 28, 42, 56, 98)
_SM_HOPPER = (16, 16, 26, 32, 60, 64, 132)
_SM_PCIE = (14, 14, 14, 30, 46, 62, 114)


def _eight(
    gigabytes: Tuple[int, int, int, int],
    memory: Tuple[int, int, int, int],
    multiprocessors: Sequence[int],
    engines: Sequence[Engines],
) -> Tuple[Profile, ...]:
    """``gigabytes`` and ``memory`` (MiB, 0 where not known): of 1g, of the double 1g and 2g, of 3g and 4g, of 7g."""
    of = (0, 0, 1, 1, 2, 2, 3)
    return tuple(
        Profile(
            index,
            number,
            f"{slices}g.{gigabytes[of[n]]}gb{ATTRIBUTES[index]}",
            slices,
            memory[of[n]],
            count,
            multiprocessors[n],
            engines[n],
            starts,
            size,
        )
        for n, (index, number, slices, count, starts, size) in enumerate(_EIGHT)
    )


def _four(
    rows: Sequence[Tuple[int, int, int, int, Tuple[int, ...]]],
    gigabytes: int,
    memory: Tuple[int, int, int],
    sm: Tuple[int, int, int],
) -> Tuple[Profile, ...]:
    """Boards with 4 memory slots. ``rows``: index, profile id, slices, count, media engines; slots equal slices."""
    starts = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}
    which = {1: 0, 2: 1, 4: 2}
    return tuple(
        Profile(
            index,
            number,
            f"{slices}g.{gigabytes * slices}gb{ATTRIBUTES[index]}",
            slices,
            memory[which[slices]],
            count,
            sm[which[slices]],
            Engines(slices, *media),
            starts[slices],
            slices,
        )
        for index, number, slices, count, media in rows
    )


_A30 = _four(
    (
        (0, 14, 1, 4, (1, 0, 0, 0)),
        (7, 21, 1, 1, (1, 0, 1, 1)),
        (1, 5, 2, 2, (2, 0, 0, 0)),
        (8, 6, 2, 1, (2, 0, 1, 1)),
        (3, 0, 4, 1, (4, 0, 1, 1)),
    ),
    6,
    (5952, 11968, 24000),
    (14, 28, 56),
)
_RTX_PRO_6000 = _four(
    (
        (0, 14, 1, 4, (1, 1, 1, 0)),
        (7, 21, 1, 1, (1, 1, 1, 1)),
        (10, 47, 1, 4, (1, 1, 1, 0)),
        (15, 65, 1, 1, (4, 4, 4, 1)),
        (13, 67, 1, 4, (0, 0, 0, 0)),
        (1, 5, 2, 2, (2, 2, 2, 0)),
        (11, 35, 2, 2, (2, 2, 2, 0)),
        (16, 64, 2, 1, (4, 4, 4, 1)),
        (14, 66, 2, 2, (0, 0, 0, 0)),
        (3, 0, 4, 1, (4, 4, 4, 1)),
        (12, 32, 4, 1, (4, 4, 4, 1)),
    ),
    24,
    (24192, 48512, 97280),
    (46, 94, 188),
)

_H100_80 = _eight((10, 20, 40, 80), (9984, 20096, 40448, 81152), _SM_HOPPER, _HOPPER)
_H100_96 = _eight((12, 24, 48, 96), (11264, 23552, 47616, 95232), _SM_HOPPER, _HOPPER)
_B200_SM = (18, 18, 30, 36, 70, 72, 148)

# What it is -> its PCI device ids and profiles.
BOARDS: Dict[str, Tuple[str, Tuple[Profile, ...]]] = {
    "A100 40GB": (
        "20B0 20B1 20F1 20F6",
        _eight((5, 10, 20, 40), (4864, 9856, 19968, 40192), _SM_AMPERE, _AMPERE),
    ),
    "A100 80GB": (
        "20B2 20B5 20F3 20F5",
        _eight((10, 20, 40, 80), (9728, 19968, 40192, 80896), _SM_AMPERE, _AMPERE),
    ),
    "A30": ("20B7", _A30),
    "H100 80GB": ("2330 2322 2324", _H100_80),
    "H100 PCIe": ("2331", _eight((10, 20, 40, 80), (9984, 20096, 40448, 81152), _SM_PCIE, _HOPPER)),
    "H100 NVL": ("2321 233A", _eight((12, 24, 47, 94), (11008, 22144, 0, 0), _SM_HOPPER, _HOPPER)),
    "H100 96GB": ("233D 2342 2329", _H100_96),
    "GH200 144GB": ("2348", _eight((18, 36, 72, 144), (17920, 36096, 0, 0), _SM_HOPPER, _HOPPER)),
    "H200": ("2335 233B", _eight((18, 35, 71, 141), (16384, 33280, 71424, 143360), _SM_HOPPER, _HOPPER)),
    "B200": ("2901", _eight((23, 45, 90, 180), (22528, 45312, 0, 0), _B200_SM, _HOPPER)),
    "GB200": ("2941", _eight((23, 47, 93, 186), (22528, 46592, 0, 0), (18, 18, 32, 38, 0, 0, 0), _HOPPER)),
    "B300": ("3182", _eight((34, 67, 135, 269), (0, 0, 0, 0), (0,) * 7, _HOPPER)),
    "GB300": ("31C2", _eight((35, 70, 139, 278), (0, 0, 0, 0), (0,) * 7, _HOPPER)),
    "RTX PRO 6000": ("2BB5", _RTX_PRO_6000),
}

# Compute instances of a GPU instance that is not there yet: its slices -> slices of a part -> where it may begin.
_COMPUTE: Dict[int, Dict[int, Tuple[int, ...]]] = {
    1: {1: (0,)},
    2: {1: (0, 1), 2: (0,)},
    3: {1: (0, 1, 2), 2: (0,), 3: (0,)},
    4: {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)},
    7: {1: (0, 1, 2, 3, 4, 5, 6), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)},
}
_COMPUTE_INDEX = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}


def board_of(device_id: int) -> Optional[str]:
    """The known board with this PCI id (``0xDDDDVVVV``)."""
    digits = f"{device_id >> 16:04X}"
    return next((name for name, (ids, _profiles) in BOARDS.items() if digits in ids.split()), None)


def known_profiles(device_id: int) -> Tuple[Profile, ...]:
    """Profiles of the known board with this PCI id; none where it is not known."""
    name = board_of(device_id)
    return BOARDS[name][1] if name else ()


def corrected(device_id: int, told: Sequence[Profile]) -> Tuple[Profile, ...]:
    """What the driver told, with the counts of A30 put right; the known profiles where it told none."""
    known = known_profiles(device_id)
    if not told:
        return known
    if board_of(device_id) != "A30":
        return tuple(told)
    counts = {profile.id: profile.count for profile in known}
    return tuple(replace(profile, count=counts.get(profile.id, profile.count)) for profile in told)


def slots_of(profiles: Sequence[Profile]) -> int:
    """Memory slots of a board: 8, 4 or 2."""
    return max((start + profile.size for profile in profiles for start in profile.starts), default=0)


def compute_of(profile: Profile) -> List[ComputeProfile]:
    """Compute profiles to expect in an instance of a profile, until the driver can be asked."""
    known = _COMPUTE.get(profile.slices, {profile.slices: (0,)})
    return [
        ComputeProfile(
            _COMPUTE_INDEX.get(slices, 0),
            _COMPUTE_INDEX.get(slices, 0),
            slices,
            len(starts),
            profile.multiprocessors * slices // profile.slices,
            starts,
            slices,
        )
        for slices, starts in sorted(known.items())
    ]


def media_limits(profiles: Sequence[Profile]) -> Tuple[Optional[int], ...]:
    """How many media engines (decoder, encoder, jpeg, ofa) a board has: as many as its greediest profile takes.

    None where that cannot be true, since more instances of a profile fit than that: some drivers tell 1 everywhere.
    """
    limits: List[Optional[int]] = []
    for engine in range(1, 5):
        most = max((profile.engines[engine] for profile in profiles), default=0)
        fits = all(profile.count * profile.engines[engine] <= most for profile in profiles)
        limits.append(most if fits else None)
    return tuple(limits)
