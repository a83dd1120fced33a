# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How MIG layouts are told in results: plain data for people and programs."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from .._plan import Action
from ._board import Process
from ._planner import Plan
from ._state import State, Target


def gpu(state: State) -> Dict[str, Any]:
    """One GPU as it is."""
    mode = state.mode
    return {
        "index": state.gpu.index,
        "uuid": state.gpu.uuid,
        "bus_id": state.gpu.bus_id,
        "name": state.gpu.name,
        "minor": state.gpu.minor,
        "mig_capable": mode is not None,
        "mig_enabled": state.on,
        "mig_pending": mode is not None and mode.pending != mode.current,
        "slices": state.picture(),
        "instances": _instances(state),
    }


def _instances(state: State) -> List[Dict[str, Any]]:
    names = {profile.id: profile.name for profile in state.profiles}
    uuids = {(each.gpu_instance, each.compute_instance): each.uuid for each in state.devices}
    return [
        {
            "id": each.id,
            "profile": names.get(each.profile_id, ""),
            "start": each.start,
            "size": each.size,
            "pids": holders(state.processes, each.id),
            "compute": [
                {
                    "id": part.id,
                    "slices": part.slices,
                    "start": part.start,
                    "uuid": uuids.get((each.id, part.id), ""),
                }
                for part in each.compute
            ],
        }
        for each in state.instances
    ]


def holders(processes: Sequence[Process], instance: Optional[int] = None) -> List[int]:
    """Process ids that hold an instance, or the GPU where none is named."""
    return sorted({p.pid for p in processes if instance is None or p.gpu_instance in (instance, -1)})


def action(target: Target) -> Action:
    """What is done to one GPU."""
    state = target.state
    return Action(
        f"gpu-{state.gpu.index}",
        "update",
        name(state),
        _reason(target),
        bool(target.plan.destroy) or any(kept.compute.destroy for kept in target.plan.keep),
        {"mig": state.on, "slices": state.picture()},
        {"mig": target.enabled, "slices": target.picture(), **_steps(state, target.plan)},
    )


def name(state: State) -> str:
    """``GPU 0 (NVIDIA H200)``."""
    return f"GPU {state.gpu.index} ({state.gpu.name})"


def _reason(target: Target) -> str:
    made = target.plan
    parts = [f"MIG is switched {'on' if target.set_mode else 'off'}"] if target.set_mode is not None else []
    parts += [f"MIG waits to be {'on' if target.enabled else 'off'}"] if target.waits else []
    inside = sum(1 for kept in made.keep if kept.compute.destroy or kept.compute.create)
    counts = (("stay", len(made.keep)), ("go", len(made.destroy)), ("are new", len(made.create)))
    parts += [f"{many} instances {verb}" if many > 1 else f"1 instance {_one(verb)}" for verb, many in counts if many]
    parts += [f"{inside} with new compute instances"] if inside else []
    return ", ".join(parts) or "nothing to do"


def _one(verb: str) -> str:
    return {"stay": "stays", "go": "goes", "are new": "is new"}[verb]


def _steps(state: State, made: Plan) -> Dict[str, List[str]]:
    return {
        "keep": [f"{kept.item.profile.name}@{kept.instance.start}" for kept in made.keep],
        "destroy": [state.told(each) for each in made.destroy],
        "create": [f"{new.item.profile.name}@{new.start}" for new in made.create],
    }


def diff(targets: Sequence[Target]) -> Dict[str, str]:
    """One line for each GPU, before and after."""
    return {
        "before_header": "MIG slices",
        "after_header": "MIG slices",
        "before": "".join(f"GPU {t.state.gpu.index}: {t.state.picture()}\n" for t in targets),
        "after": "".join(f"GPU {t.state.gpu.index}: {t.picture()}\n" for t in targets),
    }
