# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carrying out steps and node changes in order, and saying what was done and what remains when one fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Callable, Dict, Iterable, Iterator, List, Sequence, Set, Tuple

from .._kube._apply import AT_ONCE, CREATE, DELETE, Step, execute, wait_gone
from .._kube._connection import ApiError, KubeError
from .._kube._resources import Ref
from .._plan import INFO, WARNING, Action, Check, Failure, Finding, Result
from ._lease import Held, Lease, record
from ._request import Request


class Skipped(Exception):
    """Another run works on the cluster, and this one was asked to leave it to that."""


@dataclass
class Journal:
    """What this run plans, has done, and has found so far."""

    request: Request
    findings: List[Finding] = field(default_factory=list)
    planned: List[Action] = field(default_factory=list)
    done: List[str] = field(default_factory=list)
    verified: List[Check] = field(default_factory=list)
    found: Dict[str, Any] = field(default_factory=dict)
    exclusive: bool = True  # whether the run writes what other runs write, too
    lease: Lease = field(init=False)
    # Large clusters plan tens of thousands of actions, and several threads write: both are looked up, under a lock.
    _ids: Set[str] = field(default_factory=set, repr=False)
    _known: Set[Finding] = field(default_factory=set, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        request = self.request
        self.lease = Lease(request.connection, request.namespace, request.lock_wait, request.progress)

    def guarded(self, what: str, run: Callable[[], Result]) -> Result:
        """The result of ``run``, which is alone on the cluster while it writes, and leaves a record when it did.

        ``what`` says in the record what was run.
        """
        ended = "interrupted"
        try:
            result = run()
            ended = "done"
            return result
        except Skipped:
            return Result(False, self.findings, [], self.result().found)
        except Failure as failure:
            ended = f"failed: {failure.msg}"
            raise
        except KubeError as error:
            ended = f"failed: {error}"
            raise self.failure(str(error)) from error
        finally:
            self._release(record(what, str(self.found.get("policy_hash", "")), self.done, ended))

    def _release(self, left: Dict[str, Any]) -> None:
        try:
            self.lease.release(left)
        except KubeError as error:
            detail = f"the lease of this run could not be given back: {error}"
            remedy = "The next run takes it after a minute."
            self.findings.append(Finding("lease-left", WARNING, detail, str(self.lease), remedy=remedy))

    def alone(self) -> bool:
        """Make sure that no other run writes from now on; True when one did until a moment ago.

        While the namespace is not there, there is nothing that two runs could work on.
        """
        try:
            return self.lease.take(self.request.deadline)
        except Held as error:
            if self.request.skip_if_locked and not self.done:
                detail = f"{error}; this one leaves the cluster to it"
                self.add_findings([Finding("locked", INFO, detail, str(self.lease))])
                raise Skipped from None
            raise self.failure(f"{error}. Wait until it has ended, or give lock_wait more seconds") from None
        except ApiError as error:
            if error.status == 404:
                return False
            raise self.failure(f"the lease that keeps runs apart cannot be taken: {error}") from error
        except KubeError as error:
            raise self.failure(str(error)) from error

    def expect(self, actions: Iterable[Action]) -> None:
        """Add actions to the plan that is returned; one that stands there already is not added again."""
        with self._lock:
            for action in actions:
                if action.id not in self._ids:
                    self._ids.add(action.id)
                    self.planned.append(action)

    def add_findings(self, findings: Iterable[Finding]) -> None:
        """Add findings, each once."""
        with self._lock:
            for finding in findings:
                if finding not in self._known:
                    self._known.add(finding)
                    self.findings.append(finding)

    @property
    def remaining(self) -> List[str]:
        done = set(self.done)
        return [action.id for action in self.planned if action.id not in done]

    def restart(self, findings: Sequence[Finding]) -> None:
        """Forget what was planned and found, but for ``findings``: the cluster is another one now."""
        self.findings, self.planned = list(findings), []
        self._known, self._ids = set(findings), set()

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
        if self.exclusive:
            self.alone()
        try:
            act()
        except KubeError as error:
            raise self.failure(f"{what}: {error}") from error
        with self._lock:
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
