# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a GPU and its MIG instances: plain data, without NVML.

Slots are memory slots of a GPU, counted from 0; slices are the compute slices of a profile's name (the 3 of 3g.20gb).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Tuple


class Engines(NamedTuple):
    """Engines of an instance."""

    copy: int = 0
    decoder: int = 0
    encoder: int = 0
    jpeg: int = 0
    ofa: int = 0


@dataclass(frozen=True)
class Profile:
    """A profile of GPU instances. ``index`` is NVML's constant, ``id`` what instances carry; ``name`` is NVML's
    without the word MIG (``1g.10gb+me``), ``memory`` in MiB, ``count`` how many a GPU takes, ``starts`` where they may
    begin and ``size`` how many slots they take."""

    index: int
    id: int
    name: str
    slices: int
    memory: int
    count: int
    multiprocessors: int
    engines: Engines
    starts: Tuple[int, ...]
    size: int


@dataclass(frozen=True)
class ComputeProfile:
    """A profile of compute instances inside a GPU instance; ``starts`` and ``size`` count its slices."""

    index: int
    id: int
    slices: int
    count: int
    multiprocessors: int
    starts: Tuple[int, ...]
    size: int


@dataclass(frozen=True)
class ComputeInstance:
    """A compute instance that is there; ``start`` is -1 where the driver does not tell it."""

    id: int
    profile_id: int
    slices: int
    start: int
    size: int


@dataclass(frozen=True)
class GpuInstance:
    """A GPU instance that is there, with the compute profiles that it answers to."""

    id: int
    profile_id: int
    start: int
    size: int
    compute: Tuple[ComputeInstance, ...] = ()
    compute_profiles: Tuple[ComputeProfile, ...] = ()


@dataclass(frozen=True)
class MigDevice:
    """What programs use: one for each compute instance."""

    uuid: str
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True)
class Process:
    """A process that holds a GPU, or the instances of it that are named; -1: none."""

    pid: int
    memory: int = 0
    gpu_instance: int = -1
    compute_instance: int = -1


@dataclass(frozen=True)
class Mode:
    """MIG mode now, and after the next reset."""

    current: bool
    pending: bool


@dataclass(frozen=True)
class Gpu:
    """A GPU as NVML lists it. Ids are ``0xDDDDVVVV``; ``memory`` in bytes; ``minor`` is -1 where unknown."""

    index: int
    uuid: str
    bus_id: str
    name: str
    device_id: int = 0
    subsystem_id: int = 0
    minor: int = -1
    memory: int = 0
