# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carrying out a plan on one GPU, and going back when a step fails.

Only instances that the plan names are destroyed; what is there afterwards is read again and compared with the plan.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Callable, Dict, FrozenSet, List, Optional, Set, Tuple

from .._plan import Failure
from ._board import ComputeProfile, Gpu, GpuInstance
from ._nvml import IN_USE, INSUFFICIENT_RESOURCES, Nvml, NvmlError
from ._planner import Created, Item, Refused, compute_profile, place_compute
from ._state import State, Target, again, read_state

Progress = Callable[[str], None]
Spot = Tuple[int, int]  # profile id, start

DONE = "done"
PENDING = "pending"


class Failed(Exception):
    """A step failed. ``restored``: the old layout is back; else ``lost`` says what is not."""

    def __init__(self, cause: str, lost: List[str]) -> None:
        self.cause, self.lost, self.restored = cause, lost, not lost
        back = "The old layout is back." if not lost else f"Not restored: {'; '.join(lost)}. Run again to go on."
        super().__init__(f"{cause.rstrip('.')}. {back}")


@dataclass
class _Journal:
    """What this run has done to a GPU, for the way back."""

    created: Set[Spot] = field(default_factory=set)
    parts: Set[Tuple[int, int, int]] = field(default_factory=set)  # id of a kept instance, compute profile, slice
    mode: bool = False


def nobody(gpu: Gpu) -> List[str]:
    """Who holds a GPU, where that cannot be found out."""
    return []


class Executor:
    """Changes GPUs. ``reset`` is called for a GPU whose mode waits for a reset; None where nobody asked for that.
    ``holders`` tells who has a GPU open, as text."""

    def __init__(
        self,
        nvml: Nvml,
        progress: Progress,
        reset: Optional[Callable[[Gpu], None]] = None,
        holders: Callable[[Gpu], List[str]] = nobody,
    ) -> None:
        self._nvml, self._progress, self._reset, self._holders = nvml, progress, reset, holders

    def carry_out(self, target: Target) -> Tuple[str, State]:
        """Bring one GPU to its target: DONE, or PENDING when the mode needs a reset or reboot first. Raises Failed."""
        gpu = target.state.gpu
        journal = _Journal()
        try:
            answer = self._steps(target, journal)
            now = read_state(self._nvml, gpu)
            if answer == DONE:
                _compare(target, now)
        except (NvmlError, Refused, _Differs, Failure) as error:
            raise Failed(f"GPU {gpu.index}: {error}", self._back(target, journal)) from None
        return answer, now

    def _steps(self, target: Target, journal: _Journal) -> str:
        gpu = target.state.gpu
        self._still_free(target)
        if not target.enabled:
            self._destroy(target)
        if (target.set_mode is not None or target.waits) and not self._mode(target, journal):
            return PENDING
        if not target.enabled:
            return DONE
        if not target.state.on:  # profiles and handles may be others now
            target = again(target, read_state(self._nvml, gpu), {})
        self._destroy(target)
        self._create(target, journal)
        return DONE

    def _mode(self, target: Target, journal: _Journal) -> bool:
        """Whether the wanted mode is active."""
        gpu = target.state.gpu
        if target.set_mode is not None:
            self._progress(f"GPU {gpu.index}: MIG {'on' if target.set_mode else 'off'}")
            journal.mode = True
            self._set_mode(gpu, target.set_mode)
        if not self._active(gpu, target.enabled) and self._reset and not target.state.virtual:
            self._progress(f"GPU {gpu.index}: reset")
            self._reset(gpu)
            self._nvml.forget(gpu)
        return self._active(gpu, target.enabled)

    def _set_mode(self, gpu: Gpu, on: bool) -> None:
        """Raises Refused where programs hold the GPU: no reset would help, and none can be made then."""
        try:
            used = self._nvml.set_mode(gpu, on) == IN_USE and not self._active(gpu, on)
        except NvmlError as error:
            if error.code != IN_USE:
                raise
            used = True
        if used:
            told = ", ".join(self._holders(gpu))
            who = (
                f"programs hold the GPU: {told}" if told else "something holds the GPU, and the driver names no program"
            )
            hint = "" if told else " DCGM, monitoring and containers with the GPU's device file do."
            raise Refused(
                f"MIG cannot be switched {'on' if on else 'off'} while {who}.{hint} Stop it, or name its service in "
                f"services, then run again"
            )

    def _active(self, gpu: Gpu, enabled: bool) -> bool:
        mode = self._nvml.mode(gpu)
        return mode is not None and mode.current == enabled

    def _still_free(self, target: Target) -> None:
        """Programs may have started since the plan was made."""
        held = {process.gpu_instance for process in self._nvml.processes(target.state.gpu)}
        busy = [each for each in target.plan.destroy if each.id in held or -1 in held]
        if busy:
            told = ", ".join(target.state.told(each) for each in busy)
            raise Refused(f"{told} has become busy since the plan was made")

    # --- forward ----------------------------------------------------------------------------------------------------

    def _destroy(self, target: Target) -> None:
        gpu = target.state.gpu
        for kept in target.plan.keep:
            for part in kept.compute.destroy:
                self._progress(f"GPU {gpu.index}: removing {part.slices}c of {target.state.told(kept.instance)}")
                self._nvml.destroy_compute(gpu, kept.instance.id, part.id)
        for instance in target.plan.destroy:
            self._progress(f"GPU {gpu.index}: removing {target.state.told(instance)}")
            self._remove(gpu, instance)

    def _remove(self, gpu: Gpu, instance: GpuInstance) -> None:
        for part in instance.compute:
            self._nvml.destroy_compute(gpu, instance.id, part.id)
        self._nvml.destroy_instance(gpu, instance.id)

    def _create(self, target: Target, journal: _Journal) -> None:
        gpu = target.state.gpu
        try:
            self._make(gpu, target, journal)
        except _NoRoom as error:
            # The driver has no room where its own table has: look again and plan once more, without that place.
            without: Dict[int, FrozenSet[int]] = {error.spot[0]: frozenset([error.spot[1]])}
            made = again(target, read_state(self._nvml, gpu), without)
            if made.plan.destroy:
                raise Refused(f"{error}; another layout would need more instances to go") from None
            try:
                self._make(gpu, made, journal)
            except _NoRoom as second:
                raise Refused(str(second)) from None

    def _make(self, gpu: Gpu, target: Target, journal: _Journal) -> None:
        for new in sorted(target.plan.create, key=lambda each: (-each.item.profile.size, each.start)):
            self._new(gpu, new, journal)
        for kept in target.plan.keep:
            for profile, start in kept.compute.create:
                journal.parts.add((kept.instance.id, profile.id, start))
                self._nvml.create_compute(gpu, kept.instance.id, profile, start)

    def _new(self, gpu: Gpu, new: Created, journal: _Journal) -> None:
        profile = new.item.profile
        self._progress(f"GPU {gpu.index}: making {profile.name}@{new.start}")
        journal.created.add((profile.id, new.start))
        try:
            made = self._nvml.create_instance(gpu, profile, new.start)
        except NvmlError as error:
            if error.code == INSUFFICIENT_RESOURCES:
                raise _NoRoom(error, (profile.id, new.start)) from None
            raise
        for part, start in _inside(made, new.item):
            self._nvml.create_compute(gpu, made.id, part, start)

    # --- back -------------------------------------------------------------------------------------------------------

    def _back(self, target: Target, journal: _Journal) -> List[str]:
        """Bring the old layout back; what could not be done, as sentences."""
        gpu, old = target.state.gpu, target.state
        self._progress(f"GPU {gpu.index}: going back to the layout before")
        lost: List[str] = []
        try:
            now = read_state(self._nvml, gpu)
        except NvmlError as error:
            return [f"GPU {gpu.index} cannot be read ({error})"]
        if old.on or not journal.mode:
            self._undo(old, now, journal, lost)
            self._redo(old, lost)
        elif now.mode and (now.on or now.mode.pending):
            self._try(lost, "MIG off", self._mode_back, old, now, journal)
        return lost or self._still_other(old)

    def _try(self, lost: List[str], what: str, step: Callable[..., object], *args: object) -> None:
        try:
            step(*args)
        except NvmlError as error:
            lost.append(f"{what} ({error})")

    def _still_other(self, old: State) -> List[str]:
        """Whether the layout is not the old one although no step failed."""
        try:
            now = read_state(self._nvml, old.gpu)
        except NvmlError as error:
            return [f"GPU {old.gpu.index} cannot be read ({error})"]
        return [] if _shape(now) == _shape(old) else [f"GPU {old.gpu.index} has {now.picture()}, not {old.picture()}"]

    def _mode_back(self, old: State, now: State, journal: _Journal) -> None:
        for instance in now.instances:
            if (instance.profile_id, instance.start) in journal.created:
                self._remove(old.gpu, instance)
        self._nvml.set_mode(old.gpu, old.on)

    def _undo(self, old: State, now: State, journal: _Journal, lost: List[str]) -> None:
        gpu = old.gpu
        there = {(each.profile_id, each.start, each.id) for each in old.instances}
        for instance in now.instances:
            spot = (instance.profile_id, instance.start)
            if spot in journal.created and (*spot, instance.id) not in there:
                self._try(lost, f"removing {now.told(instance)}", self._remove, gpu, instance)
            elif (*spot, instance.id) in there:
                before = next(each for each in old.instances if each.id == instance.id)
                self._undo_parts(gpu, before, instance, journal, lost)

    def _undo_parts(self, gpu: Gpu, before: GpuInstance, now: GpuInstance, journal: _Journal, lost: List[str]) -> None:
        """Ids of compute instances are given out again: what this run has made is told by profile and slice."""
        old = [(part.profile_id, part.start) for part in before.compute]
        for part in now.compute:
            spot = (part.profile_id, part.start)
            ours = {(now.id, *spot), (now.id, part.profile_id, -1)} & journal.parts
            if spot in old:
                old.remove(spot)
            elif ours:
                what = f"removing compute instance {part.id} of instance {now.id}"
                self._try(lost, what, self._nvml.destroy_compute, gpu, now.id, part.id)

    def _redo(self, old: State, lost: List[str]) -> None:
        """Make again what is missing of the old layout, at its old places."""
        gpu = old.gpu
        if old.mode and old.mode.current:
            self._try(lost, "MIG on", self._mode_kept, old)
        try:
            found = self._nvml.instances(gpu, list(old.profiles))
        except NvmlError as error:
            lost.append(f"GPU {gpu.index} cannot be read ({error})")
            return
        now = {(each.profile_id, each.start): each for each in found}
        for instance in old.instances:
            there = now.get((instance.profile_id, instance.start))
            self._try(lost, old.told(instance), self._again, old, instance, there)

    def _again(self, old: State, instance: GpuInstance, there: Optional[GpuInstance]) -> None:
        if there is None:
            profile = next(profile for profile in old.profiles if profile.id == instance.profile_id)
            there = self._nvml.create_instance(old.gpu, profile, instance.start)
        self._inside_again(old.gpu, instance, there)

    def _mode_kept(self, old: State) -> None:
        mode = self._nvml.mode(old.gpu)
        if mode and old.mode and mode.pending != old.mode.pending:
            self._nvml.set_mode(old.gpu, old.mode.pending)

    def _inside_again(self, gpu: Gpu, old: GpuInstance, now: GpuInstance) -> None:
        profiles = {profile.id: profile for profile in now.compute_profiles}
        left = [(part.profile_id, part.start) for part in now.compute]
        for part in old.compute:
            spot = (part.profile_id, part.start)
            if spot in left:
                left.remove(spot)
            elif part.profile_id in profiles:
                self._nvml.create_compute(gpu, now.id, profiles[part.profile_id], part.start)


class _NoRoom(Exception):
    def __init__(self, error: NvmlError, spot: Spot) -> None:
        super().__init__(str(error))
        self.spot = spot


class _Differs(Exception):
    """What is there is not what was planned."""


def _inside(made: GpuInstance, item: Item) -> List[Tuple[ComputeProfile, int]]:
    """Where the compute instances of a new GPU instance go, by what the driver says of it. Raises Refused."""
    profiles = made.compute_profiles
    if len(item.compute) == 1 and item.compute[0] == item.profile.slices:
        full = compute_profile(profiles, item.profile.slices)
        if full:
            return [(full, full.starts[0] if full.starts else -1)]
    places = place_compute(profiles, item.profile.slices, item.compute)
    if places is None:
        told = " + ".join(f"{slices}c" for slices in item.compute)
        raise Refused(f"compute instances {told} do not fit into {item.profile.name}")
    return places


def _compare(target: Target, now: State) -> None:
    """Read again what is there: return codes prove nothing. Raises _Differs."""
    found = differs(target, now)
    if found:
        raise _Differs(found)


def differs(target: Target, now: State) -> str:
    """How a GPU is not what was planned; "" where it is."""
    if now.on != target.enabled:
        return f"MIG is {'on' if now.on else 'off'} after the change"
    wanted = Counter((item.profile.id, tuple(sorted(item.compute))) for item in target.items)
    if wanted != Counter((profile, parts) for profile, _start, parts in _shape(now)):
        return f"the driver says that it is done, but the GPU has {now.picture()}"
    return ""


def _shape(state: State) -> List[Tuple[int, int, Tuple[int, ...]]]:
    """Profile, slot and slices of compute instances, of all instances."""
    return sorted(
        (each.profile_id, each.start, tuple(sorted(part.slices for part in each.compute))) for each in state.instances
    )
