# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG instances that no layout kept on the host has: made by hand, or by another tool."""

from __future__ import annotations

from typing import List, Mapping, Sequence

from .._plan import ERROR, INFO, WARNING, Finding
from . import _told
from ._board import GpuInstance
from ._kept import KeptGpu
from ._state import State, Target

_ADOPT = "Name it in the layout to adopt it: it stays, and is made again at boot."
ACCEPT = "foreign=replace"

Kept = Mapping[str, KeptGpu]


def gone(targets: Sequence[Target], kept: Kept, refuse: bool) -> List[Finding]:
    """A finding for each GPU of which the run destroys such instances, or what is inside them."""
    found = []
    for target in targets:
        inside = [each.instance for each in target.plan.keep if each.compute.destroy]
        names = _names(target.state, [*target.plan.destroy, *inside], kept)
        if names:
            detail = f"{names}: to be destroyed or changed inside, and in no layout that is kept on this host"
            severity, accept = (ERROR, ACCEPT) if refuse else (WARNING, "")
            found.append(Finding("mig.foreign", severity, detail, _told.name(target.state), "", _ADOPT, accept))
    return found


def left(states: Sequence[State], kept: Kept) -> List[Finding]:
    """The same for GPUs that are left alone."""
    told = [(state, _names(state, state.instances, kept)) for state in states]
    return [
        Finding("mig.foreign", INFO, f"{names}: in no layout that is kept on this host", _told.name(state), "", _ADOPT)
        for state, names in told
        if names
    ]


def _names(state: State, instances: Sequence[GpuInstance], kept: Kept) -> str:
    """``1g.10gb@0, 1g.10gb@1``."""
    gpu = kept.get(state.gpu.uuid)
    known = {f"{wish.name.instance}@{wish.start}" for wish in gpu.wishes} if gpu else set()
    return ", ".join(name for name in map(state.told, instances) if name not in known)
