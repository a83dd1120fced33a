# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of dcgm_exporter on a host: find, plan everything, refuse or act, prove by a scrape; or give back."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from typing import AbstractSet, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._host import _accept, _fit, _lock, _package_set
from .._host._commands import CommandFailed, Runner
from .._host._files import Files
from .._host._journal import Journal
from .._host._packages import Manager, manager
from .._host._root import Root
from .._host._systemd import Units, UnitState
from .._matrix import FitSet
from .._plan import ERROR, INFO, REDACTED, WARNING, Action, Check, Failure, Finding, Outcome, Result, errors, refusal
from . import _absent, _facts, _packages, _request, _scrape, _units
from ._facts import Facts
from ._scrape import Metrics

COMPONENT = "dcgm_exporter"
_WAIT = 60.0  # seconds for another run to end
_CRASHES = 2  # restarts by systemd after which a service is not waited for
_PULL = 900.0
_LIBRARY = re.compile(r"/libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?|1)( \(deleted\))?$", re.MULTILINE)
_UNIT = "unit "  # notes: whether it was enabled and ran before us
_SECRET = re.compile(r'(": ")\$2[^"]+')

Progress = Callable[[str], None]


@dataclass
class Tools:
    """What a run works with; tests give others."""

    runner: Runner = field(default_factory=Runner)
    files: Files = field(default_factory=Files)
    has_systemd: Callable[[], bool] = Units.available
    facts: Callable[[Files], Facts] = _facts.read


def dcgm_exporter(params: Mapping[str, Any], check: bool, progress: Progress, tools: Tools) -> Outcome:
    """One run of the module. Raises Failure."""
    wrong = _accept.unknown(COMPONENT, params.get("accept") or ())
    if wrong:
        raise Failure(refusal(wrong), Result(findings=wrong))
    if os.geteuid():
        raise Failure("Only root may set up services. Run with become: true. Nothing has been changed.")
    if not tools.has_systemd():
        raise Failure("This host is not run by systemd, and the exporter is a service of it. Nothing has been changed.")
    with _lock.alone(Root().at, COMPONENT, _WAIT, check), Journal(tools.files, COMPONENT) as journal:
        run = _Absent if params["state"] == "absent" else _Present
        return run(params, check, progress, tools, journal).go()


class _Run:
    """What both ways share."""

    def __init__(
        self, params: Mapping[str, Any], check: bool, progress: Progress, tools: Tools, journal: Journal
    ) -> None:
        self._params, self._check, self._progress, self._journal = params, check, progress, journal
        self._files, self._runner = tools.files, tools.runner
        self._units = Units(tools.runner)
        self._facts = tools.facts(tools.files)
        self._result = Result()
        self._done: List[str] = []

    def _manager(self) -> Optional[Manager]:
        """None where packages are left alone."""
        if self._params["packages"] == "none":
            return None
        return self._any_manager()

    def _any_manager(self) -> Manager:
        return manager(self._runner, self._files, str(self._params["package_manager"]))

    @contextlib.contextmanager
    def _acting(self) -> Iterator[None]:
        """What was done, and what is left, goes with a failure."""
        try:
            yield
        except Failure as failure:
            self._done += failure.done
            left = [action.id for action in self._result.plan if action.id not in self._done]
            self._result.changed = bool(self._done)
            raise Failure(failure.msg, self._result, self._done, left) from None

    def _refuse(self) -> None:
        if errors(self._result.findings):
            self._result.changed = False
            raise Failure(refusal(self._result.findings), self._result)

    def _refuse_unproved(self) -> None:
        wrong = [check for check in self._result.verified if not check.ok]
        if wrong:
            told = "; ".join(f"{check.id}: {check.detail}" for check in wrong)
            raise Failure(f"The end state does not hold: {told}.", self._result, self._done)

    def _differing(self, texts: Mapping[str, Optional[str]]) -> Tuple[Dict[str, Optional[str]], List[Dict[str, str]]]:
        """Files that are not as they should be, and the diff of them."""
        before = {path: self._files.text(path) for path in texts}
        changed = {path: text for path, text in texts.items() if before[path] != text}
        return changed, [
            {"before_header": path, "after_header": path, "before": _shown(before[path]), "after": _shown(text)}
            for path, text in changed.items()
        ]


class _Present(_Run):
    def go(self) -> Outcome:
        """Plan, then act, unless this is check mode or there is nothing to do."""
        found = self._manager()
        installed = found.installed(_packages.EVERY) if found else self._installed_anyway()
        buys = self._plan_packages(found, installed)
        version = _packages.version_of({_packages.CORE: buys.version} if buys and buys.version else installed)
        request = _request.read(self._params, self._files, version)
        self._request = request
        self._result.findings += request.findings
        self._states = {state.name: state for state in self._units.states(self._names())}
        self._judge()
        stale = dict.fromkeys([_units.WEB] if not request.wanted.web and self._made_web() else [])
        changes, diff = self._differing({**request.files, **stale})
        self._changes = changes
        self._now = self._scraped()
        self._plan(buys)
        self._result.found = self._found(installed)
        self._refuse()
        if not self._check:
            if self._result.plan:
                with self._acting():
                    self._act(found, buys)
            with self._acting():
                self._prove(found, buys)
            self._refuse_unproved()
        return Outcome(self._result, diff)

    # --- Found ----------------------------------------------------------------------------------------------------

    def _installed_anyway(self) -> Dict[str, str]:
        """Packages are left alone, and their version still tells which fields are known."""
        try:
            return self._any_manager().installed(_packages.EVERY)
        except Failure:
            return {}

    def _plan_packages(self, found: Optional[Manager], installed: Mapping[str, str]) -> Optional[_package_set.Plan]:
        if not found or not self._facts.driver:
            return None
        notes = self._journal.notes()
        ours = [name for name in _package_set.noted(notes) if not notes[f"package {name}"]]
        cuda = int(self._params["cuda_major"] or 0) or self._facts.cuda
        asked_version = str(self._params["dcgm_version"] or "")
        choice, findings = _packages.choose(cuda, self._facts.architectures, asked_version, installed, ours)
        self._result.findings += findings
        if errors(findings):
            return None
        asked = _package_set.Asked(
            "DCGM", choice.names, asked_version, bool(self._params["hold"]), choice.leaves, "dcgm_version",
            tuple(self._params["accept"] or ()),
        )  # fmt: skip
        todo = _package_set.plan(_package_set.look(found, notes, asked), asked)
        self._result.findings += todo.findings
        if todo.pins and todo.version:
            there, accept = FitSet(driver=self._facts.driver), self._params["accept"] or ()
            dcgm = _package_set.plain(todo.version)
            self._result.findings += _fit.findings(there, "dcgm_version", accept, dcgm=dcgm)
        return todo

    def _names(self) -> List[str]:
        wanted = self._request.wanted
        return [_units.ENGINE, _units.UNIT, _units.WATCH, *(["docker.service"] if wanted.container == "docker" else [])]

    def _judge(self) -> None:
        """Findings that come of the host's state."""
        wanted, findings = self._request.wanted, self._result.findings
        if not self._facts.driver:
            detail = (
                f"no NVIDIA driver is loaded ({self._facts.silent})" if self._facts.silent else "no driver is loaded"
            )
            findings.append(Finding("no_driver", ERROR, detail, remedy="Install the driver first"))
        elif not self._facts.gpus:
            findings.append(Finding("no_gpu", ERROR, "the driver tells of no GPU", remedy="Look at the kernel's log"))
        engine = self._states[_units.ENGINE]
        if not wanted.engine and (engine.running or engine.enabled):
            detail = (
                "this host has a host engine of its own (nvidia-dcgm.service), and a second one inside the exporter "
                "would fight with it for the profiling counters"
            )
            remedy = "Use hostengine: standalone, or disable nvidia-dcgm.service"
            findings.append(Finding("two_engines", ERROR, detail, path="hostengine", remedy=remedy))
        if wanted.engine and wanted.local and not engine.exists and self._params["packages"] == "none":
            detail = "nvidia-dcgm.service is not there, and packages are left alone"
            remedy = "Install DCGM, use packages: dcgm, or hostengine: embedded"
            findings.append(Finding("no_engine", ERROR, detail, path="hostengine", remedy=remedy))
        if wanted.container and not self._files.exists(f"/usr/bin/{wanted.container}"):
            detail = f"/usr/bin/{wanted.container} is not there"
            findings.append(Finding("no_container_engine", ERROR, detail, path="container.engine", remedy="Install it"))

    def _made_web(self) -> bool:
        return (self._files.text(_units.WEB) or "").startswith(_units.MARK)

    @property
    def _url(self) -> str:
        wanted = self._request.wanted
        return f"{'https' if wanted.certificate else 'http'}://{_scrape.where(wanted.address)}/metrics"

    def _ask(self) -> Optional[Metrics]:
        return _scrape.fetch(self._url, self._request.wanted.certificate)

    def _scraped(self) -> Optional[Metrics]:
        """What the exporter gives now; None where it does not run, or does not tell."""
        if self._changes or not self._states[_units.UNIT].running:
            return None
        with contextlib.suppress(_scrape.NoMetrics):
            return self._ask()
        return None

    def _outdated(self) -> str:
        """Why a running exporter or its host engine has to start anew though no file differs; "" where not."""
        wanted = self._request.wanted
        held = [_units.ENGINE] if wanted.engine and wanted.local else []
        held += [] if wanted.container else [_units.UNIT]  # of a container only its client is seen
        for unit in held:
            if self._states[unit].running:
                found = self._library(unit)
                if found:
                    return f"{unit} works with {found}, and the driver is {self._facts.driver}"
        now = self._now
        if now and now.driver and now.driver != self._facts.driver:
            return f"it tells of driver {now.driver}, and the driver is {self._facts.driver}"
        if now and not self._fits(now):
            return "GPUs or their MIG instances have changed since it started"
        return ""

    def _library(self, unit: str) -> str:
        """The driver's library that a service has in memory, where it is not the one of the loaded driver."""
        pid = self._runner.run(["systemctl", "show", "--property=MainPID", "--value", unit]).out.strip()
        try:
            with open(f"/proc/{int(pid or 0)}/maps", encoding="utf-8", errors="replace") as file:
                match = _LIBRARY.search(file.read())
        except (OSError, ValueError):
            return ""
        if not match:
            return ""
        version, deleted = match.groups()
        if version not in ("1", self._facts.driver):
            return f"the library of driver {version}"
        return "a library that has been replaced" if deleted else ""

    def _fits(self, metrics: Metrics) -> bool:
        """Whether metrics tell of the GPUs and MIG instances that NVML tells of."""
        uuids = {gpu.uuid for gpu in self._facts.gpus if gpu.seen}
        if uuids and dict(self._request.wanted.settings).get("DCGM_EXPORTER_DEVICES_STR", "f") != "f":
            return bool(metrics.gpus)  # some devices are asked for
        if uuids and metrics.gpus != uuids:
            return False
        sliced = any(_absent.per_instance(one) and one.field in metrics.names for one in self._request.counters)
        return not uuids or not sliced or metrics.instances == self._facts.instances

    # --- Plan -----------------------------------------------------------------------------------------------------

    def _plan(self, buys: Optional[_package_set.Plan]) -> None:
        plan = list(buys.actions) if buys else []
        wanted = self._request.wanted
        if wanted.container and not self._has_image():
            plan.append(Action("image", "pull", wanted.image, "it is not on this host"))
        for number, (path, text) in enumerate(self._changes.items()):
            verb = "delete" if text is None else "update" if self._files.exists(path) else "create"
            plan.append(Action(f"file-{number}", verb, path, "the exporter's settings" if text else "not asked for"))
        outdated = self._outdated()
        if wanted.engine and wanted.local:
            moved = bool(buys and (buys.pins or buys.leave))
            plan += self._service(_units.ENGINE, "engine", outdated or ("DCGM changes" if moved else ""))
        touched = [path for path in self._changes if not path.endswith((_units.REFRESH, _units.WATCH))]
        plan += self._service(_units.UNIT, "exporter", "its settings change" if touched else outdated)
        plan += self._service(_units.WATCH, "watch", "")
        self._result.plan = plan
        self._result.changed = bool(plan)

    def _service(self, unit: str, name: str, restart: str) -> List[Action]:
        """What a unit needs: to be enabled, and to start, or to start anew for a reason."""
        state, found = self._states[unit], []
        if not state.enabled:
            found.append(Action(f"{name}-enable", "enable", unit, "it starts at boot"))
        if not state.running:
            found.append(Action(f"{name}-start", "start", unit, "it does not run"))
        elif restart:
            found.append(Action(f"{name}-restart", "restart", unit, restart, disruptive=name == "engine"))
        return found

    def _has_image(self) -> bool:
        wanted = self._request.wanted
        try:
            return self._runner.run([wanted.container, "image", "inspect", wanted.image], check=False).rc == 0
        except CommandFailed:
            return False

    def _found(self, installed: Mapping[str, str]) -> Dict[str, Any]:
        exporter, engine = self._states[_units.UNIT], self._states[_units.ENGINE]
        return {
            **self._facts.told(),
            "packages": dict(installed),
            "hostengine": _told(engine),
            "exporter": _told(exporter),
            "address": self._request.wanted.address,
            "metrics": {"wanted": self._request.metrics, "absent": []},
        }

    # --- Act ------------------------------------------------------------------------------------------------------

    def _act(self, found: Optional[Manager], buys: Optional[_package_set.Plan]) -> None:
        fresh = not self._journal.paths() and not self._journal.notes()
        planned = {action.id for action in self._result.plan}
        for state in self._states.values():
            if state.name in (_units.ENGINE, _units.UNIT, _units.WATCH):
                self._journal.note(_UNIT + state.name, [state.enabled, state.running])
        try:
            if found and buys and buys.actions:
                self._done += _package_set.apply(buys, found, self._journal, self._progress)
            if "image" in planned:
                self._pull()
        except Failure as failure:
            if fresh and not failure.done and not self._done:
                for key in self._journal.notes():
                    self._journal.forget(key)
                self._journal.give_back()
            raise
        self._write()
        for name, unit in (("engine", _units.ENGINE), ("exporter", _units.UNIT), ("watch", _units.WATCH)):
            self._bring_up(name, unit, planned)

    def _pull(self) -> None:
        wanted = self._request.wanted
        self._progress(f"{wanted.container}: pulling {wanted.image}")
        self._runner.run([wanted.container, "pull", wanted.image], timeout=_PULL)
        self._done.append("image")

    def _write(self) -> None:
        for number, (path, text) in enumerate(self._changes.items()):
            if text is None:
                self._journal.remove(path)
            else:
                self._journal.make_folder(os.path.dirname(path))
                # Password hashes are not for everybody.
                self._journal.write(path, text, 0o600 if path == _units.WEB else None)
            self._done.append(f"file-{number}")
        if any(path.startswith(_units.UNITS) for path in self._changes) or self._needs_reload():
            self._units.reload()

    def _needs_reload(self) -> bool:
        """An earlier run wrote a unit and was killed before systemd read it."""
        return any(state.needs_reload for state in self._units.states([_units.UNIT, _units.WATCH, _units.REFRESH]))

    def _bring_up(self, name: str, unit: str, planned: AbstractSet[str]) -> None:
        for verb in ("enable", "start", "restart"):
            if f"{name}-{verb}" in planned:
                self._progress(f"{unit}: {verb}")
                getattr(self._units, verb)(unit)
                self._done.append(f"{name}-{verb}")

    # --- Prove ----------------------------------------------------------------------------------------------------

    def _prove(self, found: Optional[Manager], buys: Optional[_package_set.Plan]) -> None:
        checks = _package_set.prove(buys, found) if found and buys and buys.actions else []
        wanted = self._request.wanted
        units = [_units.UNIT, *([_units.ENGINE] if wanted.engine and wanted.local else [])]
        for state in self._units.states(units):
            detail = f"{state.name} is {state.active} ({state.sub})"
            checks.append(Check(state.name.partition(".")[0], state.running and state.enabled, detail))
        self._result.verified = checks
        self._refuse_unproved()
        needed = [one.field for one in self._request.counters if self._must_come(one)]
        self._restarts = self._ends()[1]
        self._progress(f"waiting until {len(needed)} metrics come from {self._url}")
        try:
            limit = float(self._params["scrape_timeout"])
            metrics = _scrape.wait(self._ask, needed, self._fits, limit, self._ended)
        except _scrape.NoMetrics as error:
            checks.append(Check("metrics", False, str(error)))
            return
        if metrics is None:
            detail = f"{self._url} answers, and gives metrics only with a password, whose hash alone is known here"
            checks.append(Check("metrics", True, detail))
            return
        self._metrics(metrics, checks)

    def _must_come(self, counter: Any) -> bool:
        return counter.kind != "label" and not _absent.reason(counter, self._facts)

    def _ended(self) -> str:
        """Why nothing is to be waited for any more."""
        failed, restarts = self._ends()
        if failed or restarts - self._restarts >= _CRASHES:
            return f"{_units.UNIT} ends again and again: {self._units.last_words(_units.UNIT) or 'it says nothing'}"
        return ""

    def _ends(self) -> Tuple[bool, int]:
        """Whether systemd has given the exporter up, and how often it has started it anew."""
        told = self._runner.run(["systemctl", "show", "--property=NRestarts,ActiveState", _units.UNIT]).out
        values = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
        return values.get("ActiveState") == "failed", int(values.get("NRestarts") or 0)

    def _metrics(self, metrics: Metrics, checks: List[Check]) -> None:
        absent = [one for one in self._request.counters if one.kind != "label" and one.field not in metrics.names]
        reasons = {one.field: _absent.reason(one, self._facts) for one in absent}
        self._result.found["metrics"]["absent"] = [
            {"name": name, "reason": words or "unknown"} for name, words in reasons.items()
        ]
        for name, words in reasons.items():
            if words:
                self._result.findings.append(Finding("metric_absent", INFO, f"does not come: {words}", target=name))
        strange = [name for name, words in reasons.items() if not words]
        accepted = "metric_absent" in (self._params["accept"] or ())
        if strange and accepted:
            detail = f"do not come, and nothing explains it: {', '.join(strange)}"
            self._result.findings.append(Finding("metric_absent", WARNING, detail, path="metrics"))
        came = len(self._request.metrics) - len(absent)
        detail = f"{came} of {len(self._request.metrics)} come from {self._url}"
        detail += f"; without a reason that is known: {', '.join(strange)}" if strange else ""
        checks.append(Check("metrics", accepted or not strange, detail))
        checks.append(Check("gpus", self._fits(metrics), self._compared(metrics)))
        if metrics.driver:
            fits = metrics.driver == self._facts.driver
            checks.append(Check("driver", fits, f"it tells of {metrics.driver}, and {self._facts.driver} is loaded"))

    def _compared(self, metrics: Metrics) -> str:
        told = f"metrics of {len(metrics.gpus)} of {len(self._facts.gpus)} GPUs"
        if metrics.instances or self._facts.instances:
            told += f", of {len(metrics.instances)} of {len(self._facts.instances)} MIG instances"
        return told


class _Absent(_Run):
    """Everything as it was found. What is not in the journal is not ours."""

    def go(self) -> Outcome:
        """Plan, then act, unless this is check mode or there is nothing to do."""
        notes = self._journal.notes()
        # What came with us goes, whatever packages says now: the notes of it are forgotten below.
        found = self._any_manager() if _package_set.noted(notes) else None
        self._kept = {one.path for one in self._journal.would_keep()}
        texts = {path: self._journal.original(path) for path in self._journal.paths() if path not in self._kept}
        _changed, diff = self._differing(texts)
        buys = _package_set.plan_absent("DCGM", _package_set.look_absent(found, notes)) if found else None
        self._before = {key[len(_UNIT) :]: value for key, value in notes.items() if key.startswith(_UNIT)}
        states = self._units.states(list(self._before))
        self._plan(texts, buys, states)
        self._result.found = self._found()
        if not self._check and (self._result.plan or self._journal.exists()):
            with self._acting():
                self._act(found, buys)
            self._result.verified = _package_set.prove(buys, found) if found and buys else []
            self._prove()
            self._refuse_unproved()
        return Outcome(self._result, diff)

    def _plan(
        self, texts: Mapping[str, Optional[str]], buys: Optional[_package_set.Plan], states: Sequence[UnitState]
    ) -> None:
        plan = []
        self._stop, self._disable = [], []
        for state in states:
            enabled, running = self._before[state.name]
            if state.running and (not running or state.name != _units.ENGINE):
                self._stop.append(state.name)
                plan.append(Action(f"stop-{state.name}", "stop", state.name, "it did not run before", disruptive=True))
            if state.enabled and (not enabled or state.name != _units.ENGINE):
                self._disable.append(state.name)
                plan.append(Action(f"disable-{state.name}", "disable", state.name, "it was not enabled before"))
        for number, (path, text) in enumerate(texts.items()):
            verb = "delete" if text is None else "restore"
            plan.append(Action(f"restore-{number}", verb, path, "as it was found"))
        self._result.findings += [
            Finding("left_alone", WARNING, "somebody else has changed it since", path, remedy="Look at it by hand")
            for path in sorted(self._kept)
        ]
        if buys:
            plan += buys.actions
            self._result.findings += buys.findings
        if not plan and self._journal.exists():
            plan.append(Action("journal", "forget", "what was noted", "an earlier run did not end"))
        self._result.plan, self._result.changed = plan, bool(plan)

    def _found(self) -> Dict[str, Any]:
        engine, exporter = self._units.states([_units.ENGINE, _units.UNIT])
        return {
            **self._facts.told(),
            "packages": {},
            "hostengine": _told(engine),
            "exporter": _told(exporter),
            "address": "",
            "metrics": {"wanted": [], "absent": []},
        }

    def _act(self, found: Optional[Manager], buys: Optional[_package_set.Plan]) -> None:
        for unit in self._stop:
            self._progress(f"{unit}: stop")
            self._units.stop(unit)
            self._done.append(f"stop-{unit}")
        for unit in self._disable:
            self._units.disable(unit)
            self._done.append(f"disable-{unit}")
        for kept in self._journal.give_back():
            self._journal.settle(kept.path)
        self._done += [one.id for one in self._result.plan if one.id.startswith("restore-")]
        self._units.reload()
        if found and buys:
            self._done += _package_set.apply(buys, found, self._journal, self._progress)
        self._earlier()
        for key in self._journal.notes():
            self._journal.forget(key)
        self._journal.give_back()
        self._done += [one.id for one in self._result.plan if one.id == "journal"]

    def _earlier(self) -> None:
        """A service of somebody else's that was there under the same name."""
        for unit, (enabled, running) in self._before.items():
            state = self._units.state(unit)
            if state.exists and enabled:
                self._units.enable(unit)
            if state.exists and running:
                self._units.start(unit)

    def _prove(self) -> None:
        for state in self._units.states(list(self._before)):
            enabled, running = self._before[state.name]
            fits = (state.running, state.enabled) == (running, enabled) or not state.exists
            self._result.verified.append(Check(state.name, fits, f"{state.active}, {state.file or 'not there'}"))


def _told(state: UnitState) -> Dict[str, Any]:
    return {"unit": state.name, "there": state.exists, "enabled": state.enabled, "running": state.running}


def _shown(text: Optional[str]) -> str:
    """Without password hashes."""
    return _SECRET.sub(rf"\1{REDACTED}", (text or "").encode("utf-8", "replace").decode())
