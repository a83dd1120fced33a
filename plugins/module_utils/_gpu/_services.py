# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host services that hold GPUs: stopped before a change, and those that ran started again after it."""

from __future__ import annotations

from typing import Callable, List, Sequence

from .._host._systemd import Units
from .._plan import Failure

CDI = "nvidia-cdi-refresh.service"  # the container toolkit's own


class Services:
    """Stops in the given order, starts in the other."""

    def __init__(self, units: Units, names: Sequence[str], progress: Callable[[str], None]) -> None:
        self._units, self._names, self._progress = units, list(names), progress
        self.stopped: List[str] = []

    def stop(self) -> None:
        """Stop those that run. Raises Failure, with those started again that were stopped."""
        try:
            for state in self._units.states(self._names):
                if state.running:
                    self._progress(f"stopping {state.name}")
                    self.stopped.append(state.name)
                    self._units.stop(state.name)
        except Failure:
            self.start()
            raise

    def start(self) -> List[str]:
        """Start again what was stopped; those that did not start, as sentences."""
        wrong = []
        for name in reversed(self.stopped):
            self._progress(f"starting {name}")
            try:
                self._units.start(name)
            except Failure as failure:
                wrong.append(failure.msg)
        self.stopped = []
        return wrong

    def refresh_cdi(self) -> bool:
        """Have the specifications of CDI made anew, where the toolkit's service for it is there."""
        if not self._units.state(CDI).exists:
            return False
        self._progress("refreshing CDI specifications")
        self._units.restart(CDI)
        return True
