# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host services that hold GPUs: stopped before a change, and those that ran started again after it.

Which were stopped is kept in a file until they run again, so that a run after a killed one starts them.
"""

from __future__ import annotations

import json
from typing import Callable, List, Sequence

from .._host._files import Files
from .._host._systemd import Units, wrong_name
from .._host_state import _holders, _tree
from .._plan import ERROR, Failure, Finding
from ._board import Gpu

CDI = "nvidia-cdi-refresh.service"  # the container toolkit's own
STOPPED = "/var/lib/gpufleet/mig/stopped.json"


def unit_of(pid: int) -> str:
    """The service that a process belongs to, by its control group; "" where there is none."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            parts = file.read(4096).replace("\n", "/").split("/")
    except OSError:
        return ""
    return next((part for part in reversed(parts) if part.endswith(".service")), "")


def holders_of(gpu: Gpu, root: str = "/") -> List[str]:
    """Programs that have a GPU's device file open: ``nv-hostengine (pid 71, nvidia-dcgm.service)``."""
    tree = _tree.Tree(root, "processes", _tree.Problems())
    return [
        f"{each.name} (pid {each.pid}{f', {each.unit}' if each.unit else ''})"
        for each in _holders.read(tree, sees_all=True)
        if gpu.minor in each.minors
    ]


def wrong_names(names: Sequence[str]) -> List[Finding]:
    """Findings for names that no unit can have."""
    judged = [(number, wrong_name(_full(name))) for number, name in enumerate(names)]
    return [Finding("mig.service", ERROR, wrong, "", f"services[{number}]") for number, wrong in judged if wrong]


def _full(name: str) -> str:
    return name if "." in name else f"{name}.service"


class Services:
    """Stops in the given order, starts in the other."""

    def __init__(self, units: Units, names: Sequence[str], progress: Callable[[str], None], files: Files) -> None:
        self._units, self._progress, self._files = units, progress, files
        self.names = [_full(name) for name in names]
        self.stopped: List[str] = []

    def owed(self) -> List[str]:
        """Those that an earlier run stopped, and did not live to start again."""
        try:
            kept = json.loads(self._files.text(STOPPED) or "[]")
        except ValueError:
            return []
        listed = [name for name in kept if isinstance(name, str)] if isinstance(kept, list) else []
        return [state.name for state in self._units.states(listed) if state.exists and not state.running]

    def stop(self) -> None:
        """Stop those that run. Raises Failure, with those started again that were stopped."""
        self.stopped = self.owed()
        running = [state.name for state in self._units.states(self.names) if state.running]
        if running or self.stopped:
            self._files.write(STOPPED, json.dumps([*self.stopped, *running]), 0o600)
        try:
            for name in running:
                self._progress(f"stopping {name}")
                self.stopped.append(name)
                self._units.stop(name)
        except Failure:
            self.start()
            raise

    def start(self) -> List[str]:
        """Start again what was stopped; those that did not start, as sentences."""
        if not self.stopped:
            return []
        wrong = []
        for name in reversed(self.stopped):
            self._progress(f"starting {name}")
            try:
                self._units.start(name)
            except Failure as failure:
                wrong.append(failure.msg)
        self.stopped = []
        if not wrong:
            self._files.remove(STOPPED)
        return wrong

    def start_owed(self) -> List[str]:
        """Start what an earlier run stopped; those that did not start, as sentences."""
        self.stopped = self.owed()
        return self.start()

    def refresh_cdi(self) -> bool:
        """Have the specifications of CDI made anew, where the toolkit's service for it is there."""
        if not self._units.state(CDI).exists:
            return False
        self._progress("refreshing CDI specifications")
        self._units.restart(CDI)
        return True
