# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boards, layouts of all kinds on them, and a brute force against which the planner is judged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._board import (
    ComputeInstance,
    GpuInstance,
    Profile,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._geometry import BOARDS, compute_of, slots_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._planner import (
    Item,
    Plan,
    Refused,
    compute_profile,
    plan,
)

A100 = BOARDS["A100 40GB"][1]
H200 = BOARDS["H200"][1]
A30 = BOARDS["A30"][1]
RTX = BOARDS["RTX PRO 6000"][1]

# The eight-slot table without +me, which takes part in no rule about slots.
PLAIN = tuple(profile for profile in A100 if "+" not in profile.name)

Spot = tuple[Profile, int]


def short(text: str, profiles: Sequence[Profile] = A100) -> Profile:
    """A profile by a short name: ``3g``, ``1gD`` with double memory, ``1g+me``, ``1g+me.all``."""
    double = text.endswith("D")
    slices, attributes = re.fullmatch(r"(\d)g(.*)", text.rstrip("D")).groups()
    return next(
        profile
        for profile in profiles
        if profile.slices == int(slices)
        and re.sub(r"^\d+g\.\d+gb", "", profile.name) == attributes
        and (profile.index == 9) == double
    )


def full(profile: Profile, start: int | None = None) -> Item:
    return Item(profile, (profile.slices,), start)


def wanted(text: str, profiles: Sequence[Profile] = A100) -> list[Item]:
    """Items of ``1g*3 2g 3g@4``."""
    items = []
    for word in text.split():
        name, many, start = re.fullmatch(r"([^*@]+)(?:\*(\d+))?(?:@(\d+))?", word).groups()
        items += [full(short(name, profiles), None if start is None else int(start))] * int(many or 1)
    return items


def instance(profile: Profile, start: int, number: int, compute: Sequence[int] | None = None) -> GpuInstance:
    """A GPU instance that is there; ``compute``: slices of its compute instances, placed from the left."""
    profiles = tuple(compute_of(profile))
    parts: list[ComputeInstance] = []
    at = 0
    for n, slices in enumerate([profile.slices] if compute is None else compute):
        kind = compute_profile(profiles, slices)
        parts.append(ComputeInstance(n, kind.id, slices, at, slices))
        at += slices
    return GpuInstance(number, profile.id, start, profile.size, tuple(parts), profiles)


def existing(text: str, profiles: Sequence[Profile] = A100) -> list[GpuInstance]:
    """Instances of ``1g@0 3g@4``, ids counted from 1."""
    made = []
    for number, word in enumerate(text.split(), 1):
        name, start = word.split("@")
        made.append(instance(short(name, profiles), int(start), number))
    return made


def spots(made: Plan) -> list[str]:
    """All instances after the plan, as ``2g.10gb@4``, by slot."""
    found = [(kept.instance.start, kept.item.profile.name) for kept in made.keep]
    found += [(created.start, created.item.profile.name) for created in made.create]
    return [f"{name}@{start}" for start, name in sorted(found)]


# --- brute force ------------------------------------------------------------------------------------------------------


@cache
def layouts(profiles: tuple[Profile, ...]) -> tuple[tuple[Spot, ...], ...]:
    """Every set of instances that do not overlap and keep the counts: the empty one too."""
    found: list[tuple[Spot, ...]] = []

    def extend(slot: int, made: tuple[Spot, ...], counts: dict[int, int]) -> None:
        if slot >= slots_of(profiles):
            found.append(made)
            return
        extend(slot + 1, made, counts)
        for profile in profiles:
            if slot in profile.starts and counts.get(profile.id, 0) < profile.count:
                more = {**counts, profile.id: counts.get(profile.id, 0) + 1}
                extend(slot + profile.size, (*made, (profile, slot)), more)

    extend(0, (), {})
    return tuple(found)


@cache
def by_multiset(profiles: tuple[Profile, ...]) -> dict[tuple[tuple[str, int], ...], list[tuple[Spot, ...]]]:
    """Layouts by what they are made of: sorted (name, count)."""
    made: dict[tuple[tuple[str, int], ...], list[tuple[Spot, ...]]] = {}
    for layout in layouts(profiles):
        key = tuple(sorted(Counter(profile.name for profile, _start in layout).items()))
        made.setdefault(key, []).append(layout)
    return made


@cache
def some_layouts(profiles: tuple[Profile, ...]) -> tuple[tuple[Spot, ...], ...]:
    """Layouts that fit the engines of a board too, every n-th of them."""
    found = []
    for layout in layouts(profiles)[:: max(1, len(layouts(profiles)) // 300)]:
        with suppress(Refused):
            plan(profiles, [], [full(profile) for profile, _start in layout], {})
            found.append(layout)
    return tuple(found)


def best_kept(old: Sequence[Spot], same_kind: Sequence[tuple[Spot, ...]]) -> tuple[int, int, int, int]:
    """Slots, number and compute slices of the instances that can stay, and how far left all can be: by trying every
    layout. Compute instances are as wide as their GPU instances."""
    there = {(profile.id, start) for profile, start in old}
    best = (-1, -1, -1, -1000)
    for layout in same_kind:
        stay = [profile for profile, start in layout if (profile.id, start) in there]
        worth = (sum(profile.size for profile in stay), len(stay), sum(profile.slices for profile in stay))
        best = max(best, (*worth, -sum(start for _profile, start in layout)))
    return best


def items_of(multiset: Sequence[tuple[str, int]], profiles: Sequence[Profile]) -> list[Item]:
    """Items of (name, count) pairs."""
    return [full(next(p for p in profiles if p.name == name)) for name, many in multiset for _n in range(many)]


def worth_of(made: Plan) -> tuple[int, int, int, int]:
    """A plan by the measures of ``best_kept``."""
    starts = [kept.instance.start for kept in made.keep] + [new.start for new in made.create]
    kept = [kept.item.profile for kept in made.keep]
    return sum(p.size for p in kept), len(kept), sum(p.slices for p in kept), -sum(starts)


def as_existing(layout: Sequence[Spot]) -> list[GpuInstance]:
    return [instance(profile, start, number) for number, (profile, start) in enumerate(layout, 1)]
