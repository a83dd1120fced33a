# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Giving GPUs their kept layout at boot: run from a zipapp by a systemd unit, without Ansible."""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Sequence

from .._host import _lock
from .._plan import Failure
from ._execute import PENDING, Executor, Failed
from ._kept import BadLayout, KeptGpu, from_json
from ._nvml import MissingPynvml, Nvml, NvmlError
from ._planner import Refused
from ._state import State, aim, read_state

LOCK_WAIT = 240.0  # seconds for a run of the module to end; the unit's own limit is 480


def restore(nvml: Nvml, kept: Dict[str, KeptGpu], executor: Executor) -> List[str]:
    """Bring each kept GPU to its layout; what was not done, as sentences. One GPU's trouble stops no other."""
    there, wrong = nvml.by_uuid()
    for uuid, gpu in kept.items():
        if uuid not in there:
            wrong.append(f"GPU {uuid} is not there")
            continue
        try:
            wrong += _one(read_state(nvml, there[uuid]), gpu, executor)
        except NvmlError as error:
            wrong.append(f"GPU {there[uuid].index} cannot be read ({error})")
    return wrong


def _one(state: State, gpu: KeptGpu, executor: Executor) -> List[str]:
    told = f"GPU {state.gpu.index}"
    try:
        target = aim(state, gpu.enabled, gpu.wishes)
        if target.empty and not target.waits:
            return []
        answer, _now = executor.carry_out(target)
    except Refused as error:
        return [f"{told}: {error}"]
    except Failed as error:
        return [str(error)]
    return [f"{told}: the MIG mode waits for a reset or a reboot"] if answer == PENDING else []


def main(arguments: Sequence[str]) -> int:
    """``arguments``: the file with the layout. Exits 1 when a GPU has not its layout."""

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    try:
        folder = os.path.realpath(os.path.dirname(arguments[0]))
        _lock.take(folder, folder, "mig_partition", LOCK_WAIT)  # until this process ends
        with open(arguments[0], encoding="utf-8", errors="surrogateescape") as file:
            kept = from_json(file.read())
        with Nvml() as nvml:
            wrong = restore(nvml, kept, Executor(nvml, say))
    except (OSError, BadLayout, Failure, MissingPynvml, NvmlError) as error:
        wrong = [str(error)]
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    return 1 if wrong else 0
