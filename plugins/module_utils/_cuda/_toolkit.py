# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of cuda_toolkit: one CUDA minor by its own packages, judged by the version matrix; or everything as it was.

Only packages that bring no driver: NVIDIA's ``cuda`` and ``cuda-runtime`` do, and would exchange the one that is there.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Callable, List, Mapping, Optional

from .._dcgm_host import _facts
from .._dcgm_host._facts import Facts
from .._host import _accept, _fit, _lock, _package_set
from .._host._commands import CommandFailed, Runner
from .._host._files import Files
from .._host._journal import Journal
from .._host._packages import Manager, manager
from .._host._root import Root
from .._matrix import CUDA_MINOR, FitSet
from .._plan import ERROR, INFO, Action, Check, Failure, Finding, Result, errors, refusal

COMPONENT = "cuda_toolkit"
PROFILES = {"toolkit": "cuda-toolkit", "libraries": "cuda-libraries", "minimal": "cuda-minimal-build"}
ALTERNATIVE, LINK = "cuda", "/usr/local/cuda"
_NOTE = "alternative"
_POINTS = re.compile(r"link currently points to (\S+)")
_WAIT = 60.0
_PROGRAM = "/usr/bin/update-alternatives"


@dataclass
class Tools:
    """What a run works with; tests give others."""

    runner: Runner = field(default_factory=Runner)
    files: Files = field(default_factory=Files)
    facts: Callable[[Files], Facts] = _facts.read


def cuda_toolkit(params: Mapping[str, Any], check: bool, tools: Tools) -> Result:
    """One run of the module. Raises Failure."""
    wrong = _accept.unknown(COMPONENT, params.get("accept") or ())
    if wrong:
        raise Failure(refusal(wrong), Result(findings=wrong))
    if os.geteuid():
        raise Failure("Only root may install packages. Run with become: true. Nothing has been changed.")
    with _lock.alone(Root().at, COMPONENT, _WAIT, check), Journal(tools.files, COMPONENT) as journal:
        return _Run(params, check, tools, journal).go()


class _Run:
    def __init__(self, params: Mapping[str, Any], check: bool, tools: Tools, journal: Journal) -> None:
        self._params, self._check, self._journal = params, check, journal
        self._files, self._runner = tools.files, tools.runner
        self._facts = tools.facts(tools.files)
        self._result = Result()
        self._version = str(params["version"] or "")
        self._folder = f"{LINK}-{self._version}"
        self._was = self._points()

    def go(self) -> Result:
        """Plan, then act, unless this is check mode or there is nothing to do."""
        absent = self._params["state"] == "absent"
        if not self._check and self._journal.notes():
            _package_set.Company(self._manager(), self._runner, self._journal).catch_up()
        todo = self._plan_absent() if absent else self._plan_present()
        self._result.found = {
            "driver": self._facts.driver,
            "cuda": self._facts.cuda,
            "default": self._was,
        }
        if errors(self._result.findings):
            raise Failure(refusal(self._result.findings), self._result)
        self._result.changed = bool(self._result.plan)
        if not self._check:
            self._act(todo, absent)
        return self._result

    def _manager(self) -> Manager:
        return manager(self._runner, self._files, str(self._params["package_manager"]))

    # --- Plan -----------------------------------------------------------------------------------------------------

    def _plan_present(self) -> _package_set.Plan:
        accept = tuple(self._params["accept"] or ())
        if not CUDA_MINOR.match(self._version):
            detail = f"{self._version!r} is no CUDA minor; allowed is one such as 13.0, as a text"
            raise self._refused(Finding("no_version", ERROR, detail, path="version"))
        if self._facts.driver:
            there = FitSet(driver=self._facts.driver, architectures=tuple(sorted(self._facts.architectures)))
            self._result.findings += _fit.findings(there, "version", accept, cuda=self._version)
        else:
            detail = "no driver is loaded, so nobody can tell whether it runs this CUDA"
            self._result.findings.append(
                Finding("no_driver", INFO, detail, remedy="Programs can be built all the same")
            )
        name = f"{PROFILES[str(self._params['profile'])]}-{self._version.replace('.', '-')}"
        asked = _package_set.Asked(
            f"CUDA {self._version}", (name,), str(self._params["package_version"] or ""), bool(self._params["hold"]),
            option="package_version", accept=accept,
        )  # fmt: skip
        todo = _package_set.plan(_package_set.look(self._manager(), self._journal.notes(), asked), asked)
        self._result.findings += todo.findings
        self._result.plan = list(todo.actions)
        if self._params["default"] and self._was != self._folder:
            reason = f"{LINK} leads to {self._was or 'nothing'}"
            self._result.plan.append(Action("default", "update", LINK, reason, before=self._was, after=self._folder))
        return todo

    def _refused(self, finding: Finding) -> Failure:
        self._result.findings.append(finding)
        return Failure(refusal([finding]), self._result)

    def _plan_absent(self) -> _package_set.Plan:
        notes = self._journal.notes()
        if not _package_set.noted(notes) and _NOTE not in notes:
            return _package_set.Plan("CUDA", give_back=True)
        todo = _package_set.plan_absent("CUDA", _package_set.look_absent(self._manager(), notes))
        self._result.findings += todo.findings
        self._result.plan = list(todo.actions)
        before = str(notes.get(_NOTE) or "")
        if before and before != self._was and self._files.exists(before):
            self._result.plan.append(Action("default", "restore", LINK, "as it was", before=self._was, after=before))
        if not self._result.plan:
            self._result.plan.append(Action("journal", "forget", "what was noted", "an earlier run did not end"))
        return todo

    def _points(self) -> str:
        """Where the alternative leads; "" where there is none."""
        try:
            said = self._runner.run([_PROGRAM, "--display", ALTERNATIVE], check=False, timeout=30).out
        except CommandFailed:
            return ""
        match = _POINTS.search(said)
        return match.group(1) if match else ""

    # --- Act ------------------------------------------------------------------------------------------------------

    def _act(self, todo: _package_set.Plan, absent: bool) -> None:
        done: List[str] = []
        try:
            if self._result.plan and not absent:
                self._journal.note(_NOTE, self._was)
            done += self._packages(todo, absent)
            if absent:
                self._set(str(self._journal.notes().get(_NOTE) or ""))
                for key in self._journal.notes():
                    self._journal.forget(key)
                self._journal.give_back()
            else:
                # A new package of a higher minor takes the link over by itself.
                self._set(self._folder if self._params["default"] else self._was)
            done += [one.id for one in self._result.plan if one.id not in done]
        except Failure as failure:
            done += failure.done
            left = [one.id for one in self._result.plan if one.id not in done]
            self._result.changed = bool(done)
            raise Failure(failure.msg, self._result, done, left) from None
        if todo.actions:
            self._result.verified = _package_set.prove(todo, self._manager())
        self._result.verified += [] if absent else self._prove()
        wrong = [check for check in self._result.verified if not check.ok]
        if wrong:
            told = "; ".join(f"{check.id}: {check.detail}" for check in wrong)
            raise Failure(f"The end state does not hold: {told}.", self._result, done)

    def _packages(self, todo: _package_set.Plan, absent: bool) -> List[str]:
        if not todo.actions:
            return []
        found = self._manager()
        if absent:
            return _package_set.apply(todo, found, self._journal, lambda line: None)
        with _package_set.Company(found, self._runner, self._journal):
            return _package_set.apply(todo, found, self._journal, lambda line: None)

    def _set(self, folder: str) -> None:
        """Have the alternative lead there, where there is such a folder and it does not already."""
        now = self._points()
        if folder and now and now != folder and self._files.exists(folder):
            self._runner.run([_PROGRAM, "--set", ALTERNATIVE, folder], timeout=30)

    def _prove(self) -> List[Check]:
        checks = []
        if self._params["default"]:
            now = self._points()
            checks.append(Check("default", now == self._folder, f"{LINK} leads to {now or 'nothing'}"))
        if self._params["profile"] == "libraries":
            there = self._files.exists(self._folder)
            return [*checks, Check("folder", there, f"{self._folder} is {'there' if there else 'not there'}")]
        return [*checks, self._compiler()]

    def _compiler(self) -> Check:
        program = f"{self._folder}/bin/nvcc"
        try:
            said = self._runner.run([program, "--version"], check=False, timeout=60).out
        except CommandFailed as failure:
            return Check("compiler", False, failure.msg)
        found: Optional[str] = next((line for line in said.splitlines() if "release" in line), None)
        return Check("compiler", f"release {self._version}," in (found or ""), found or f"{program} says nothing")
