# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults at the n-th step of a run on a host: a watch for ``Runner`` and ``Files`` (``module_utils/_host``)."""

from __future__ import annotations

import os
import signal


class Died(BaseException):
    """The run ends here, as if its process had been killed: no handler of errors may go on after it."""


class Steps:
    """Counts what a run does to the host. At step ``at`` (from 1), ``before`` or ``after`` it, the run ends.

    ``error`` is raised then; without one the process is killed for real (SIGKILL). ``at=0`` only counts. ``said`` is
    what was seen.
    """

    def __init__(self, at: int = 0, moment: str = "before", error: BaseException | None = None) -> None:
        self.said: list[str] = []
        self.injected = 0
        self._at = at
        self._moment = moment
        self._error = error

    def __call__(self, moment: str, what: str) -> None:
        """The watch."""
        if moment == "before":
            self.said.append(what)
        if len(self.said) == self._at and moment == self._moment and not self.injected:
            self.injected = 1
            if self._error is None:
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                raise self._error
