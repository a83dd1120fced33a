# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the instances that a GPU has to those that it shall have, with the fewest destroyed. Pure.

A plan keeps as many slots as it can, then as many instances, then compute slices and compute instances, and puts new
instances as far left as they go. Busy instances are kept, or the plan is refused with what must be drained.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ._board import ComputeInstance, ComputeProfile, GpuInstance, Profile
from ._geometry import compute_of, media_limits, slots_of
from ._search import Kind, best

Pins = Mapping[int, FrozenSet[int]]  # id of a busy GPU instance -> ids of its busy compute instances; empty: all

# Worths, greatest first: each is more than all smaller ones of a board together.
_PIN, _SLOT, _INSTANCE, _SLICE, _PART = 1 << 40, 1 << 32, 1 << 24, 1 << 16, 1 << 8


class Refused(ValueError):
    """There is no such layout. ``drain``: busy instances without which there would be one; ``busy``: it is only a
    question of time."""

    def __init__(self, reason: str, drain: Sequence[GpuInstance] = (), busy: bool = False) -> None:
        super().__init__(reason)
        self.drain = tuple(drain)
        self.busy = busy or bool(drain)


@dataclass(frozen=True)
class Item:
    """One GPU instance that is wanted: the slices of its compute instances, greatest first, and its slot if fixed."""

    profile: Profile
    compute: Tuple[int, ...]
    start: Optional[int] = None


@dataclass(frozen=True)
class ComputePlan:
    """Inside one GPU instance. ``create``: profile and slice of each, -1 where the driver places it."""

    keep: Tuple[ComputeInstance, ...]
    destroy: Tuple[ComputeInstance, ...]
    create: Tuple[Tuple[ComputeProfile, int], ...]


@dataclass(frozen=True)
class Kept:
    """A GPU instance that stays, and what becomes of its inside."""

    instance: GpuInstance
    item: Item
    compute: ComputePlan


@dataclass(frozen=True)
class Created:
    """A GPU instance to make."""

    item: Item
    start: int


@dataclass(frozen=True)
class Plan:
    """What becomes of one GPU's instances."""

    keep: Tuple[Kept, ...] = ()
    destroy: Tuple[GpuInstance, ...] = ()
    create: Tuple[Created, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether everything is as it shall be."""
        inside = any(kept.compute.destroy or kept.compute.create for kept in self.keep)
        return not (self.destroy or self.create or inside)


def plan(profiles: Sequence[Profile], existing: Sequence[GpuInstance], wanted: Sequence[Item], pins: Pins) -> Plan:
    """The best plan. Raises Refused with the reason where the wanted items do not fit, or not beside busy ones."""
    _quick_refusals(profiles, wanted)
    kinds = sorted(Counter(wanted).items(), key=lambda pair: _order(pair[0]))
    there = {(instance.profile_id, instance.start): instance for instance in existing}
    inside: Dict[Tuple[int, int], Optional[ComputePlan]] = {}

    def gain(number: int, start: int) -> int:
        item = kinds[number][0]
        instance = there.get((item.profile.id, start))
        if instance is None:
            return -start
        compute = plan_compute(instance, item, pins)
        inside[number, start] = compute
        return _worth(instance, item, compute, pins) - start

    pieces = [Kind(_starts(item), item.profile.size, count) for item, count in kinds]
    choice = best(slots_of(profiles), pieces, gain)
    if choice is None:
        raise Refused(f"{_told(wanted)} do not fit together: there is no way to place them on this GPU")
    keep, create = [], []
    for start, number in choice:
        item = kinds[number][0]
        compute = inside.get((number, start))
        if compute is None:
            create.append(Created(item, start))
        else:
            keep.append(Kept(there[item.profile.id, start], item, compute))
    stay = {kept.instance.id for kept in keep}
    made = Plan(tuple(keep), tuple(each for each in existing if each.id not in stay), tuple(create))
    _refuse_for_pins(made, existing, pins)
    return made


def _order(item: Item) -> Tuple[int, int, Tuple[int, ...], int]:
    return item.profile.index, item.profile.id, item.compute, -1 if item.start is None else item.start


def _starts(item: Item) -> Tuple[int, ...]:
    return item.profile.starts if item.start is None else (item.start,)


def _worth(instance: GpuInstance, item: Item, compute: Optional[ComputePlan], pins: Pins) -> int:
    if compute is None:
        return 0
    pinned = instance.id in pins and not _broken(instance, compute, pins)
    parts = compute.keep
    return (
        (_PIN if pinned else 0)
        + _SLOT * item.profile.size
        + _INSTANCE
        + _SLICE * sum(part.slices for part in parts)
        + _PART * len(parts)
    )


def _broken(instance: GpuInstance, compute: ComputePlan, pins: Pins) -> bool:
    """Whether a busy compute instance would go."""
    busy = pins[instance.id]
    return any(part.id in busy or not busy for part in compute.destroy)


def _refuse_for_pins(made: Plan, existing: Sequence[GpuInstance], pins: Pins) -> None:
    stay = {
        kept.instance.id
        for kept in made.keep
        if kept.instance.id not in pins or not _broken(kept.instance, kept.compute, pins)
    }
    drain = [instance for instance in existing if instance.id in pins and instance.id not in stay]
    if drain:
        raise Refused("it fits only when instances are gone that are busy", drain)


# --- what can be said without a search ------------------------------------------------------------------------------


def _quick_refusals(profiles: Sequence[Profile], wanted: Sequence[Item]) -> None:
    slots = slots_of(profiles)
    for profile, many in Counter(item.profile for item in wanted).items():
        if many > profile.count:
            raise Refused(f"{many} x {profile.name} do not fit: at most {profile.count} on this GPU")
    for item in wanted:
        if item.start is not None and item.start not in item.profile.starts:
            allowed = ", ".join(str(start) for start in item.profile.starts)
            raise Refused(f"{item.profile.name} cannot begin at slot {item.start}: allowed are {allowed}")
    total = sum(item.profile.size for item in wanted)
    if total > slots:
        raise Refused(f"{_told(wanted)} do not fit: they take {total} slots and the GPU has {slots}")
    for engine, (name, limit) in enumerate(zip(("decoders", "encoders", "JPEG", "OFA"), media_limits(profiles)), 1):
        need = sum(item.profile.engines[engine] for item in wanted)
        if limit is not None and need > limit:
            raise Refused(f"{_told(wanted)} do not fit: they take {need} {name} engines and the GPU has {limit}")


def _told(wanted: Sequence[Item]) -> str:
    counts = Counter(item.profile.name for item in wanted)
    return " + ".join(f"{many} x {name}" if many > 1 else name for name, many in sorted(counts.items()))


# --- compute instances ----------------------------------------------------------------------------------------------


def compute_profile(profiles: Sequence[ComputeProfile], slices: int) -> Optional[ComputeProfile]:
    """The profile for a compute instance of so many slices: the one with most multiprocessors, as full width needs."""
    return max(
        (profile for profile in profiles if profile.slices == slices),
        key=lambda profile: (profile.multiprocessors, profile.count == 1, -profile.index),
        default=None,
    )


def fits_compute(profile: Profile, compute: Sequence[int], live: Sequence[ComputeProfile] = ()) -> bool:
    """Whether compute instances of these slices fit into an instance of a profile."""
    return place_compute(live or compute_of(profile), profile.slices, compute) is not None


def place_compute(
    profiles: Sequence[ComputeProfile],
    slices: int,
    compute: Sequence[int],
    there: Sequence[ComputeInstance] = (),
    busy: FrozenSet[int] = frozenset(),
) -> Optional[List[Tuple[ComputeProfile, int]]]:
    """A place for each compute instance, those in ``there`` where they are if it can be, ids in ``busy`` before others;
    None where they do not fit."""
    counts = sorted(Counter(compute).items())
    chosen = [compute_profile(profiles, size) for size, _many in counts]
    found = [profile for profile in chosen if profile is not None]
    if len(found) < len(chosen) or any(many > each.count for each, (_s, many) in zip(found, counts)):
        return None
    if any(not profile.starts for profile in found):
        fits = sum(compute) <= slices
        return [(each, -1) for each, (_s, many) in zip(found, counts) for _n in range(many)] if fits else None
    at = {(part.slices, part.start): part for part in there}

    def gain(number: int, start: int) -> int:
        part = at.get((found[number].slices, start))
        if part is None:
            return -start
        return (_PIN if part.id in busy else 0) + _SLICE * part.slices + _PART - start

    width = max(slices, max((p.starts[-1] + p.size for p in found), default=0))
    choice = best(width, [Kind(p.starts, p.size, many) for p, (_s, many) in zip(found, counts)], gain)
    return None if choice is None else [(found[number], start) for start, number in choice]


def plan_compute(instance: GpuInstance, item: Item, pins: Pins) -> Optional[ComputePlan]:
    """What becomes of the compute instances of a GPU instance that stays; None where the wanted ones do not fit."""
    profiles = instance.compute_profiles or tuple(compute_of(item.profile))
    multiprocessors = {profile.id: profile.multiprocessors for profile in profiles}
    fit = [part for part in instance.compute if _as_wanted(part, profiles, multiprocessors)]
    if len(fit) == len(instance.compute) and Counter(p.slices for p in fit) == Counter(item.compute):
        return ComputePlan(instance.compute, (), ())
    busy = pins.get(instance.id, frozenset())
    fit.sort(key=lambda part: part.id not in busy)  # where the driver places, and one of two can stay: the busy one
    places = place_compute(profiles, item.profile.slices, item.compute, fit, busy)
    if places is None:
        return None
    keep, create = _matched(places, fit)
    stay = {part.id for part in keep}
    return ComputePlan(tuple(keep), tuple(part for part in instance.compute if part.id not in stay), tuple(create))


def _as_wanted(part: ComputeInstance, profiles: Sequence[ComputeProfile], sizes: Mapping[int, int]) -> bool:
    """A full-width compute instance of a lesser kind (a double-memory 1g has two) is not what is wanted."""
    full = compute_profile(profiles, part.slices)
    return full is not None and sizes.get(part.profile_id) == full.multiprocessors


def _matched(
    places: Sequence[Tuple[ComputeProfile, int]], there: Sequence[ComputeInstance]
) -> Tuple[List[ComputeInstance], List[Tuple[ComputeProfile, int]]]:
    left = list(there)
    keep: List[ComputeInstance] = []
    create: List[Tuple[ComputeProfile, int]] = []
    for profile, start in places:
        same = [part for part in left if part.slices == profile.slices and start in (part.start, -1)]
        if same:
            keep.append(same[0])
            left.remove(same[0])
        else:
            create.append((profile, start))
    return keep, create


def group_compute(profile: Profile, compute: Sequence[int], live: Sequence[ComputeProfile] = ()) -> List[List[int]]:
    """Compute instances packed into as few GPU instances of a profile as they need. Raises Refused."""
    bins: List[List[int]] = []
    for slices in sorted(compute, reverse=True):
        for each in bins:
            if fits_compute(profile, [*each, slices], live):
                each.append(slices)
                break
        else:
            if not fits_compute(profile, [slices], live):
                raise Refused(f"{profile.name} has no compute instance of {slices} slices")
            bins.append([slices])
    return bins
