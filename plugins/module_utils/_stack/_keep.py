# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After a run: watch the nodes for a while, and run again as soon as one needs something (S54).

A node that joins is served by the DaemonSets only once it has our labels, and those are written by a run.
"""

from __future__ import annotations

import time
from typing import Callable, List, Optional, Sequence

from .._kube._connection import Connection, Deadline, KubeError
from .._kube._resources import Object
from .._kube._watch import Mirror, Query
from .._plan import Action, Failure, Result
from ._facts import slim_node

Progress = Callable[[str], None]
Needs = Callable[[Sequence[Object]], List[str]]

SETTLE = 1.0  # seconds in which changes of nodes are gathered before they are looked at
AFTER_FAILURE = 30.0  # seconds until a run that failed, or did not help, is tried again


class Keeper:
    """Runs again and again. ``needs(nodes)`` names the nodes that a run would change; ``run`` is one whole run."""

    def __init__(self, connection: Connection, needs: Needs, run: Callable[[], Result], progress: Progress) -> None:
        self.connection = connection
        self.needs = needs
        self.run = run
        self.progress = progress
        self.results: List[Result] = []
        self.done: List[str] = []
        self.failure: Optional[Failure] = None

    def keep(self, seconds: float) -> Result:
        """Run at once, then whenever a node needs it, until ``seconds`` have passed.

        The result of the last run, with the changes of all. Raises the ``Failure`` of the last run if it failed, or
        one that says why the nodes can no longer be watched.
        """
        self._once()
        try:
            self._watch(Deadline(seconds))
        except KubeError as error:
            text = f"watching the nodes: {error}. What was done until then stands."
            raise Failure(text, self._whole(), self.done) from error
        if self.failure is not None:
            raise self.failure
        return self._whole()

    def _watch(self, limit: Deadline) -> None:
        with Mirror(self.connection, {"nodes": Query("Node", keep=slim_node)}) as mirror:
            pause = Deadline(AFTER_FAILURE if self.failure else 0.0)
            while not limit.passed:
                waiting = self.needs(mirror.objects("nodes"))
                if waiting and pause.passed:
                    more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
                    self.progress(f"node {waiting[0]}{more} needs something: running again")
                    self._once()
                    helped = not self.failure and not self.needs(mirror.objects("nodes"))
                    pause = Deadline(0.0 if helped else AFTER_FAILURE)
                mirror.wait(min(limit.left, pause.left or SETTLE) if waiting else limit.left)
                time.sleep(min(SETTLE, limit.left))  # in a large cluster some node changes all the time

    def _once(self) -> None:
        try:
            self.results.append(self.run())
            self.done += [action.id for action in self.results[-1].plan]
            self.failure = None
        except Failure as failure:
            self.failure = failure
            self.done += failure.done
            self.results.append(failure.result)
            self.progress(failure.msg)

    def _whole(self) -> Result:
        last = self.results[-1]
        planned: List[Action] = [action for result in self.results for action in result.plan]
        changed = any(result.changed for result in self.results)
        return Result(changed, last.findings, planned, last.found, last.verified)
