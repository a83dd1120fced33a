# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carrying out steps and node changes in order, and saying what was done and what remains when one fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Callable, Dict, Iterable, Iterator, List, Sequence, Tuple

from .._kube._apply import AT_ONCE, CREATE, DELETE, Step, execute, wait_gone
from .._kube._connection import KubeError
from .._kube._resources import Ref
from .._plan import Action, Check, Failure, Finding, Result
from ._request import Request


@dataclass
class Journal:
    """What this run plans, has done, and has found so far."""

    request: Request
    findings: List[Finding] = field(default_factory=list)
    planned: List[Action] = field(default_factory=list)
    done: List[str] = field(default_factory=list)
    verified: List[Check] = field(default_factory=list)
    found: Dict[str, Any] = field(default_factory=dict)

    def expect(self, actions: Iterable[Action]) -> None:
        """Add actions to the plan that is returned; one that stands there already is not added again."""
        known = {action.id for action in self.planned}
        self.planned += [action for action in actions if action.id not in known]

    def add_findings(self, findings: Iterable[Finding]) -> None:
        """Add findings, each once."""
        for finding in findings:
            if finding not in self.findings:
                self.findings.append(finding)

    @property
    def remaining(self) -> List[str]:
        done = set(self.done)
        return [action.id for action in self.planned if action.id not in done]

    def result(self) -> Result:
        changed = bool(self.planned) if self.request.check else bool(self.done)
        stats = self.request.connection.stats
        found = dict(self.found, requests={"total": stats["requests"], "writes": stats["writes"]})
        return Result(changed, self.findings, self.planned, found, self.verified)

    def failure(self, msg: str) -> Failure:
        """The failure of this run at this point."""
        done = (
            f" {len(self.done)} of {len(self.planned)} changes were made"
            if self.planned
            else " Nothing was to be changed"
        )
        rest = "; run again when it is mended, and it goes on from there." if self.remaining else "."
        return Failure(f"{msg.rstrip('.')}.{done}{rest}", self.result(), self.done, self.remaining)

    def run_steps(self, steps: Sequence[Step], what: str) -> None:
        """Carry out steps; ``what`` is the part of the stack for progress and failure."""
        self.expect(step.action() for step in steps)
        for number, group in _groups(steps):
            step = group[0]
            if len(group) > 1 or number % 20 == 1:
                self.request.progress(f"{what}: {step.verb} {step.ref} ({number}/{len(steps)})")
            if len(group) == 1:
                self._run_step(what, step)
                continue
            with ThreadPoolExecutor(AT_ONCE) as pool:
                # All are waited for, so that what was done is known when one fails.
                ends = [pool.submit(self._run_step, what, one) for one in group]
            for end in ends:
                end.result()

    def _run_step(self, what: str, step: Step) -> None:
        failed = f"{what}: {step.verb} of {step.ref} failed"
        self.carry_out([step.action()], partial(self._execute, step), failed)

    def wait_gone(self, steps: Sequence[Step]) -> None:
        """Wait until the objects that ``steps`` deleted are gone, and the pods of workloads with them."""
        for step in steps:
            if self.request.wait and step.verb == DELETE and step.live is not None:
                uid = str(step.live["metadata"].get("uid") or "")
                try:
                    wait_gone(self.request.connection, step.ref, uid, self.request.deadline)
                except KubeError as error:
                    raise self.failure(f"removal: {error}") from error

    def _execute(self, step: Step) -> None:
        self.add_findings(execute(self.request.connection, step, self.request.deadline))

    def carry_out(self, actions: Sequence[Action], act: Callable[[], object], what: str) -> None:
        """Carry out what ``actions`` describe by ``act``; ``what`` begins the message when it fails."""
        self.expect(actions)
        try:
            act()
        except KubeError as error:
            raise self.failure(f"{what}: {error}") from error
        self.done += [action.id for action in actions]


def _groups(steps: Sequence[Step]) -> Iterator[Tuple[int, List[Step]]]:
    """Steps that may be carried out at once (new objects of one kind, which need nothing of each other), with the
    number of the first."""
    number = 1
    for (verb, kind), found in groupby(steps, key=lambda step: (step.verb, step.ref.kind)):
        together = list(found)
        if verb != CREATE or kind == "Namespace":
            yield from ((number + i, [step]) for i, step in enumerate(together))
        else:
            yield number, together
        number += len(together)


def only(steps: Iterable[Step], refs: Iterable[Ref]) -> List[Step]:
    """Those steps that are about one of ``refs``."""
    wanted = set(refs)
    return [step for step in steps if step.ref in wanted]
