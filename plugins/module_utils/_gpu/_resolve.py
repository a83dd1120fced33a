# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the names of a layout to the profiles of a GPU, and from wishes to items of a plan. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from ._board import ComputeProfile, GpuInstance, Profile
from ._layout import Wish
from ._names import Name, computed_name, parse
from ._planner import Item, Refused, fits_compute, group_compute


@dataclass(frozen=True)
class Resolved:
    """Items to plan, and what was read with tolerance, as sentences."""

    items: Tuple[Item, ...]
    tolerated: Tuple[str, ...] = ()


def find_profile(name: Name, profiles: Sequence[Profile], memory: int = 0) -> Tuple[Profile, str]:
    """The profile that a name means on a GPU of ``memory`` bytes, and a sentence where it is not quite its name.

    Drivers round memory in different ways: 3g.39gb of one is 3g.40gb of another. Raises Refused.
    """
    wanted = name.instance
    for profile in profiles:
        if profile.name == wanted:
            return profile, ""
    for profile in profiles:
        if memory and computed_name(profile.index, profile.slices, profile.memory, memory) == wanted:
            return profile, f"{wanted} is {profile.name} here"
    near = [profile for profile in profiles if _near(name, parse(profile.name))]
    if len(near) == 1:
        return near[0], f"{wanted} is taken as {near[0].name}, which is what this GPU has"
    there = ", ".join(profile.name for profile in profiles) or "none"
    raise Refused(f"there is no profile {wanted}; this GPU has {there}")


def _near(wanted: Name, there: Name) -> bool:
    if (wanted.slices, wanted.attributes) != (there.slices, there.attributes):
        return False
    return abs(wanted.gb - there.gb) <= max(1, 0.06 * there.gb)


def resolve(
    wishes: Sequence[Wish], profiles: Sequence[Profile], memory: int = 0, existing: Sequence[GpuInstance] = ()
) -> Resolved:
    """Items for all wishes of one GPU; parts such as 1c.2g.10gb are packed together. Raises Refused."""
    live = {instance.profile_id: instance.compute_profiles for instance in existing}
    items: List[Item] = []
    parts: Dict[Tuple[int, Optional[int]], Tuple[Profile, List[int]]] = {}
    said: Dict[str, None] = {}
    for wish in wishes:
        profile, sentence = find_profile(wish.name, profiles, memory)
        if sentence:
            said[sentence] = None
        if wish.compute is not None:
            items += [Item(profile, _checked(profile, wish.compute, live), wish.start)] * wish.count
        elif wish.name.compute == profile.slices:
            items += [Item(profile, (profile.slices,), wish.start)] * wish.count
        else:
            parts.setdefault((profile.id, wish.start), (profile, []))[1].extend([wish.name.compute] * wish.count)
    for (number, start), (profile, slices) in parts.items():
        groups = group_compute(profile, slices, live.get(number, ()))
        items += [Item(profile, tuple(group), start) for group in groups]
    return Resolved(tuple(items), tuple(said))


def _checked(
    profile: Profile, compute: Tuple[int, ...], live: Dict[int, Tuple[ComputeProfile, ...]]
) -> Tuple[int, ...]:
    if not fits_compute(profile, compute, live.get(profile.id, ())):
        told = " + ".join(f"{slices}c" for slices in compute)
        raise Refused(f"compute instances {told} do not fit into {profile.name}")
    return compute
