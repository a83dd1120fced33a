# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a GPU has now, as NVML tells it, and what is planned for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

from . import _picture as pictures
from ._board import Gpu, GpuInstance, MigDevice, Mode, Process, Profile
from ._geometry import corrected
from ._layout import Silent, Wish
from ._mig_parted import Current
from ._names import Name, parse
from ._nvml import NO_PERMISSION, Nvml, NvmlError
from ._planner import Item, Pins, Plan, Refused, plan
from ._resolve import resolve

_PASSTHROUGH = 1  # a virtual machine: the GPU cannot be reset from inside


@dataclass(frozen=True)
class State:
    """One GPU. ``mode`` None: it cannot do MIG."""

    gpu: Gpu
    mode: Optional[Mode]
    profiles: Tuple[Profile, ...] = ()
    instances: Tuple[GpuInstance, ...] = ()
    processes: Tuple[Process, ...] = ()
    devices: Tuple[MigDevice, ...] = ()
    virtual: bool = False

    @property
    def on(self) -> bool:
        """Whether MIG is on now."""
        return self.mode is not None and self.mode.current

    def pins(self) -> Pins:
        """Busy instances; a process of which no instance is told holds them all."""
        busy: Dict[int, Set[int]] = {}
        whole: Set[int] = set()
        for process in self.processes:
            held = [each.id for each in self.instances if process.gpu_instance in (each.id, -1)]
            for instance in held:
                busy.setdefault(instance, set())
                if process.compute_instance < 0:
                    whole.add(instance)
                else:
                    busy[instance].add(process.compute_instance)
        return {each: frozenset() if each in whole else frozenset(parts) for each, parts in busy.items()}

    def picture(self) -> str:
        """One line for a person."""
        if self.mode is None:
            return pictures.INCAPABLE
        return pictures.before(self.profiles, self.instances, list(self.pins())) if self.on else pictures.OFF

    def current(self) -> Current:
        """As an entry of a mig-parted file."""
        by_id = {profile.id: parse(profile.name) for profile in self.profiles}
        devices = [
            str(Name(part.slices, name.slices, name.gb, name.sign, name.words))
            for instance in self.instances
            for name in [by_id.get(instance.profile_id)]
            if name
            for part in instance.compute
        ]
        return Current(self.gpu, self.on, tuple(devices))

    def told(self, instance: GpuInstance) -> str:
        """``1g.10gb@0``."""
        name = next((p.name for p in self.profiles if p.id == instance.profile_id), f"profile {instance.profile_id}")
        return f"{name}@{instance.start}"


def read_state(nvml: Nvml, gpu: Gpu) -> State:
    """Everything about one GPU. Raises NvmlError."""
    mode = nvml.mode(gpu)
    if mode is None:
        return State(gpu, None)
    profiles = corrected(gpu.device_id, nvml.profiles(gpu))
    return State(
        gpu,
        mode,
        profiles,
        tuple(nvml.instances(gpu, list(profiles))),
        tuple(nvml.processes(gpu)),
        tuple(nvml.mig_devices(gpu)),
        nvml.ask("nvmlDeviceGetVirtualizationMode", gpu) == _PASSTHROUGH,
    )


def read_all(nvml: Nvml) -> Tuple[List[State], List[Silent]]:
    """Every GPU, by index, and those that do not answer: they do not hide the others.

    Raises NvmlError where nothing can be read, or only by root.
    """
    states: List[State] = []
    silent: List[Silent] = []
    for index in range(int(nvml.call("nvmlDeviceGetCount"))):
        gpu = Gpu(index, "", "", "", 0, 0, -1, 0)
        try:
            gpu = nvml.gpu(index)
            states.append(read_state(nvml, gpu))
        except NvmlError as error:
            if error.code == NO_PERMISSION:
                raise
            silent.append(Silent(gpu, error.name, error.remedy))
    return states, silent


@dataclass(frozen=True)
class Target:
    """What becomes of one GPU: ``set_mode`` the MIG mode to ask for, ``waits`` whether the mode needs a reset before
    anything else can be done."""

    state: State
    enabled: bool
    items: Tuple[Item, ...]
    plan: Plan
    set_mode: Optional[bool]
    waits: bool
    tolerated: Tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do for now."""
        return self.set_mode is None and (self.waits or self.plan.empty)

    def picture(self) -> str:
        """One line for how it will be."""
        return pictures.after(self.state.profiles, self.plan) if self.enabled else pictures.OFF


def aim(state: State, enabled: bool, wishes: Sequence[Wish]) -> Target:
    """The plan of one GPU that can do MIG. Raises Refused."""
    mode = state.mode or Mode(False, False)
    change = None if mode.pending == enabled else enabled
    waits = change is None and mode.current != enabled
    if not enabled:
        held = state.pins()
        blocked = [each for each in state.instances if each.id in held]
        if blocked:
            raise Refused("MIG can be switched off only when its instances are free", blocked)
        gone = Plan(destroy=state.instances)
        return Target(state, False, (), gone, change, waits and not state.instances)
    if change and state.processes:
        raise Refused("MIG can be switched on only when no program uses the GPU", busy=True)
    if not state.profiles and wishes:
        raise Refused("this driver tells no MIG profiles while MIG is off; switch it on first, with no instances")
    resolved = resolve(wishes, state.profiles, state.gpu.memory, state.instances)
    made = plan(state.profiles, state.instances, resolved.items, state.pins())
    return Target(state, True, resolved.items, made, change, waits, resolved.tolerated)


def again(target: Target, now: State, without: Mapping[int, FrozenSet[int]]) -> Target:
    """The same wish from another state, with all that the old plan keeps pinned. ``without``: starts of profiles, by
    id, that the driver has refused. Raises Refused."""
    profiles = [
        replace(profile, starts=tuple(start for start in profile.starts if start not in without.get(profile.id, ())))
        for profile in now.profiles
    ]
    by_id = {profile.id: profile for profile in profiles}
    items = [replace(item, profile=by_id[item.profile.id]) for item in target.items if item.profile.id in by_id]
    kept = {kept.instance.id for kept in target.plan.keep}
    pins: Dict[int, FrozenSet[int]] = {each.id: frozenset() for each in now.instances if each.id in kept}
    made = plan(profiles, now.instances, items, {**pins, **now.pins()})
    return replace(target, state=now, plan=made, set_mode=None, waits=False)
