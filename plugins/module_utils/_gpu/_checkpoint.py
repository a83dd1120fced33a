# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout of GPUs before a change, in mig-parted's format of checkpoints, and the way back to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

from ._board import GpuInstance
from ._state import State


class BadCheckpoint(ValueError):
    """Not a checkpoint."""


@dataclass(frozen=True)
class SavedCompute:
    """A compute instance: NVML's index of its profile, and its place if known (mig-parted writes none)."""

    profile: int
    start: int = -1
    size: int = 0


@dataclass(frozen=True)
class SavedInstance:
    """A GPU instance: NVML's index of its profile, slot, slots, and what is inside."""

    profile: int
    start: int
    size: int
    compute: Tuple[SavedCompute, ...] = ()


@dataclass(frozen=True)
class SavedGpu:
    """One GPU's mode and instances."""

    uuid: str
    enabled: bool
    instances: Tuple[SavedInstance, ...] = ()


def save(states: Sequence[State]) -> List[SavedGpu]:
    """What GPUs that can do MIG have now."""
    return [_saved(state) for state in states if state.mode is not None]


def _saved(state: State) -> SavedGpu:
    index = {profile.id: profile.index for profile in state.profiles}
    return SavedGpu(
        state.gpu.uuid,
        state.on,
        tuple(
            SavedInstance(index[each.profile_id], each.start, each.size, _inside(each))
            for each in state.instances
            if each.profile_id in index
        ),
    )


def _inside(instance: GpuInstance) -> Tuple[SavedCompute, ...]:
    index = {profile.id: profile.index for profile in instance.compute_profiles}
    return tuple(SavedCompute(index.get(part.profile_id, 0), part.start, part.size) for part in instance.compute)


def to_json(saved: Sequence[SavedGpu]) -> str:
    """The file's text: mig-parted reads it, and ignores the places of compute instances."""
    devices = [
        {
            "UUID": gpu.uuid,
            "MigMode": int(gpu.enabled),
            "GpuInstances": [
                {
                    "ProfileID": each.profile,
                    "Placement": {"Start": each.start, "Size": each.size},
                    "ComputeInstances": [_compute_json(part) for part in each.compute],
                }
                for each in gpu.instances
            ],
        }
        for gpu in saved
    ]
    return json.dumps({"Version": "v1", "MigState": {"Devices": devices}}, indent=1) + "\n"


def _compute_json(part: SavedCompute) -> Dict[str, Any]:
    made: Dict[str, Any] = {"ProfileID": part.profile, "EngProfileID": 0}
    return made if part.start < 0 else {**made, "Placement": {"Start": part.start, "Size": part.size}}


def from_json(text: str) -> List[SavedGpu]:
    """A checkpoint of ours or of mig-parted. Raises BadCheckpoint."""
    try:
        document = json.loads(text)
        if document["Version"] != "v1":
            raise BadCheckpoint(f"version {document['Version']!r} of checkpoints is not known, only v1")
        return [_gpu(device) for device in document["MigState"]["Devices"] or []]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, BadCheckpoint):
            raise
        raise BadCheckpoint(f"not a checkpoint of MIG layouts: {type(error).__name__} {error}") from None


def _gpu(device: Dict[str, Any]) -> SavedGpu:
    return SavedGpu(
        str(device["UUID"]),
        int(device["MigMode"]) == 1,
        tuple(
            SavedInstance(
                int(each["ProfileID"]),
                int(each["Placement"]["Start"]),
                int(each["Placement"]["Size"]),
                tuple(_part(part) for part in each.get("ComputeInstances") or []),
            )
            for each in device.get("GpuInstances") or []
        ),
    )


def _part(part: Dict[str, Any]) -> SavedCompute:
    place = part.get("Placement") or {}
    return SavedCompute(int(part["ProfileID"]), int(place.get("Start", -1)), int(place.get("Size", 0)))
