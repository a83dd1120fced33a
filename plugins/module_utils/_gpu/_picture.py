# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One line of text for the slices of a GPU: ``[1g][1g][------][3g------------]``. Pure."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from ._board import GpuInstance, Profile
from ._geometry import slots_of
from ._names import parse
from ._planner import Plan

_WIDTH = 4  # characters of a slot

Piece = Tuple[int, int, str]  # start, slots, what it says
OFF = "[MIG off]"
INCAPABLE = "[no MIG]"


def picture(profiles: Sequence[Profile], pieces: Sequence[Piece]) -> str:
    """Pieces from the left, four characters a slot and more where the words need it; free slots as ``[--]``."""
    made, at = [], 0
    for start, size, text in sorted(pieces):
        made += _free(start - at)
        made.append(_cell(text, size))
        at = start + size
    return "".join(made + _free(slots_of(profiles) - at))


def _free(slots: int) -> List[str]:
    return [_cell("", slots)] if slots > 0 else []


def _cell(text: str, slots: int) -> str:
    return f"[{text.ljust(_WIDTH * slots - 2, '-')}]"


def label(profile: Profile, compute: Sequence[int], busy: bool = False) -> str:
    """``1g``, ``1g+me``, ``3g:2c+1c`` where compute instances are not as wide as the instance, ``*`` when busy."""
    name = parse(profile.name)
    text = f"{name.slices}g{name.attributes}"
    if tuple(compute) != (profile.slices,):
        text += ":" + ("+".join(f"{slices}c" for slices in sorted(compute, reverse=True)) or "0c")
    return f"{text}*" if busy else text


def before(profiles: Sequence[Profile], existing: Sequence[GpuInstance], busy: Sequence[int] = ()) -> str:
    """The instances that are there; ``busy``: ids of those that processes hold."""
    by_id: Dict[int, Profile] = {profile.id: profile for profile in profiles}
    pieces: List[Piece] = []
    for instance in existing:
        profile = by_id.get(instance.profile_id)
        parts = [part.slices for part in instance.compute]
        text = label(profile, parts, instance.id in busy) if profile else "?"
        pieces.append((instance.start, instance.size, text))
    return picture(profiles, pieces)


def after(profiles: Sequence[Profile], made: Plan) -> str:
    """The instances that a plan leaves."""
    pieces = [
        (kept.instance.start, kept.instance.size, label(kept.item.profile, kept.item.compute)) for kept in made.keep
    ]
    pieces += [(new.start, new.item.profile.size, label(new.item.profile, new.item.compute)) for new in made.create]
    return picture(profiles, pieces)
