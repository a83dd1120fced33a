# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""States of GPUs and of the host in which a driver cannot be exchanged without a reboot, found on the host."""

from __future__ import annotations

import re
from typing import List, Sequence, Set, Tuple

from .._host._commands import CommandFailed, Runner
from .._host._files import Files
from .._host_state._kernel_log import Entry
from ._kernel import tree_of
from ._parameters import CDMM, coherent, effective
from ._proof import smi_program

_NODES = "/sys/devices/system/node"
_ACTION = re.compile(r"<gpu_recovery_action>([^<]*)</gpu_recovery_action>")
_TIME = 30.0


def lost(entries: Sequence[Entry]) -> Tuple[str, ...]:
    """GPUs that the kernel's log says have left their bus."""
    return tuple(sorted({entry.bus_id for entry in entries if entry.kind == "lost" and entry.bus_id}))


def recovery_action(runner: Runner, files: Files) -> str:
    """What the driver says has to be done for a GPU, such as Reboot; "" where it asks for nothing or is silent."""
    program = smi_program(files)
    if not program:
        return ""
    try:
        told = runner.run([program, "-q", "-x"], check=False, timeout=_TIME).out
    except CommandFailed:
        return ""
    asked: List[str] = [one.strip() for one in _ACTION.findall(told) if one.strip() not in ("", "None", "N/A")]
    return next((one for one in asked if "reboot" in one.lower()), asked[0] if asked else "")


def coherent_memory_online(files: Files, devices: Sequence[int]) -> bool:
    """Whether memory of GPUs is memory of the system now: a NUMA node with memory and without processors, on a host
    whose GPUs can do that and whose driver does not keep the memory to itself."""
    module, name, kept = CDMM
    if not any(coherent(device) for device in devices) or effective(files).get(module, {}).get(name) == kept:
        return False
    tree = tree_of(files)
    return bool(_numbers(tree.text(f"{_NODES}/has_memory")) - _numbers(tree.text(f"{_NODES}/has_cpu")))


def _numbers(text: str) -> Set[int]:
    """The kernel's lists: ``0-1,4``."""
    found: Set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found.update(range(int(first), int(last or first) + 1))
    return found
