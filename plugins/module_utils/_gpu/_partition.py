# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of mig_partition: read, plan every GPU, refuse or act, prove."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._host import _lock
from .._host._commands import Runner
from .._host._files import Files
from .._host._systemd import Units
from .._operands._mig_configs import layouts
from .._plan import ERROR, WARNING, Action, Check, Failure, Finding, Result, errors, refusal
from . import _checkpoint, _foreign, _hooks, _kept, _override, _restore, _told
from ._board import Gpu
from ._execute import PENDING, Executor, Failed, Progress
from ._execute import differs as _differs
from ._layout import Assignment, Entry, assign, idle, idle_by_name, idle_in_file, read_layout
from ._mig_parted import as_yaml, export, generate, read_config
from ._nvml import MissingPynvml, Nvml, NvmlError
from ._planner import Refused
from ._services import CDI, Services, holders_of, unit_of, wrong_names
from ._state import State, Target, aim, read_all, read_state

_POLL = 2.0  # seconds between looks at busy GPUs


def _is_root() -> bool:
    return os.geteuid() == 0


@dataclass
class Tools:
    """What a run works with; tests give others."""

    nvml: Callable[[str], Nvml] = Nvml
    runner: Runner = field(default_factory=Runner)
    files: Files = field(default_factory=Files)
    has_systemd: Callable[[], bool] = Units.available
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    unit_of: Callable[[int], str] = unit_of
    holders_of: Callable[[Gpu], List[str]] = holders_of
    is_root: Callable[[], bool] = _is_root
    lock_wait: float = 120.0  # seconds for another run on the same host to end

    def systemd(self) -> Units:
        """Units by the same runner."""
        return Units(self.runner)


@dataclass
class Outcome:
    """The result, and its diff."""

    result: Result
    diff: Dict[str, str] = field(default_factory=dict)


def mig_partition(params: Mapping[str, Any], check: bool, progress: Progress, tools: Tools) -> Outcome:
    """One run of the module. Raises Failure."""
    if params["state"] == "exported":
        return _with_nvml(params, check, progress, tools)
    if not tools.is_root():
        raise Failure("Layouts of GPUs are changed by root only. Run with become: true. Nothing has been changed.")
    with _alone(check, tools):
        return _absent(check, tools) if params["state"] == "absent" else _with_nvml(params, check, progress, tools)


@contextlib.contextmanager
def _alone(check: bool, tools: Tools) -> Iterator[None]:
    """Other runs, and the program that runs at boot, wait or are refused meanwhile. Check mode makes no folder for it.

    Raises Failure where it is this run that waits too long.
    """
    files, held = tools.files, _lock.NONE
    while held == _lock.NONE:
        if not check:
            files.make_folder(_restore.STATE, 0o700)
        held = _lock.take(files.root.at(_restore.STATE), _restore.STATE, "mig_partition", tools.lock_wait)
        if check:
            break
    try:
        yield
    finally:
        if not check:
            for folder in _restore.FOLDERS:
                files.remove_folder(folder)  # stays where something is in it
        if held != _lock.NONE:
            os.close(held)


def _with_nvml(params: Mapping[str, Any], check: bool, progress: Progress, tools: Tools) -> Outcome:
    entries: List[Entry] = []
    findings: List[Finding] = []
    if params["state"] != "exported":
        entries, findings = _wanted(params)
        findings += wrong_names(params.get("services") or ())
        findings += _hooks.read_hooks(params["hooks"])[1] if params.get("hooks") is not None else []
    try:
        with tools.nvml(params.get("pynvml") or "") as nvml:
            if params["state"] == "exported":
                return _exported(nvml, tools)
            return _Run(nvml, params, check, progress, tools).go(entries, findings)
    except MissingPynvml as error:
        raise Failure(str(error), Result(findings=findings)) from None
    except NvmlError as error:
        raise Failure(f"The NVIDIA driver: {error}", Result(findings=findings)) from None


def _wanted(params: Mapping[str, Any]) -> Tuple[List[Entry], List[Finding]]:
    """Entries of whichever way the layout is given."""
    if not any(params.get(key) is not None for key in ("layout", "config", "name")):
        raise Failure("Nothing says which layout is wanted. Give layout, config_file, config or name.")
    if params.get("layout") is not None:
        return read_layout(params["layout"])
    if params.get("config") is not None:
        return read_config(params["config"], params.get("name") or "")
    return read_config({"version": "v1", "mig-configs": layouts()}, params.get("name") or "", "name")


def _exported(nvml: Nvml, tools: Tools) -> Outcome:
    states, silent = read_all(nvml)
    capable = [state for state in states if state.mode is not None]
    config = export([state.current() for state in capable], complete=not silent)
    possible = generate({state.gpu.device_id: state.profiles for state in capable if state.profiles})
    found = _found(states)
    found.update(config=config, config_yaml=as_yaml(config), possible=possible)
    findings = list(assign([], [], {}, silent).findings)
    if tools.is_root():  # nobody else may read the kept layout
        findings += _foreign.left(states, _known(tools.files))
    return Outcome(Result(found=found, findings=findings))


def _known(files: Files) -> Dict[str, _kept.KeptGpu]:
    """The layout that is kept, by UUID; none where the file is not ours."""
    try:
        return _kept.from_json(files.text(_restore.LAYOUT) or _kept.to_json({}))
    except _kept.BadLayout:
        return {}


def _absent(check: bool, tools: Tools) -> Outcome:
    there = _restore.there(tools.files)
    plan = [Action(f"remove-{n}", "delete", path, "the layout is not kept over boots") for n, path in enumerate(there)]
    label = _override.plan_back(tools.files)
    plan += label.actions
    if there and not check:
        label.write(tools.files)
        _restore.remove(tools.files, tools.systemd())  # nothing is there where systemd never ran
    gone = [] if check else [Check("restore", not _restore.there(tools.files), "no file of the restore unit is left")]
    gone += [] if check else label.prove(tools.files)
    return Outcome(Result(changed=bool(there), plan=plan, found={"gpus": []}, verified=gone))


def _found(states: Sequence[State]) -> Dict[str, Any]:
    return {"gpus": [_told.gpu(state) for state in states]}


class _Run:
    """A run that changes layouts."""

    def __init__(self, nvml: Nvml, params: Mapping[str, Any], check: bool, progress: Progress, tools: Tools) -> None:
        self._nvml, self._params, self._check = nvml, params, check
        self._progress, self._tools = progress, tools
        self._result = Result()
        self._states: List[State] = []  # as last read before acting
        services = (params.get("services") or ()) if tools.has_systemd() else ()
        self._services = Services(tools.systemd(), services, progress, tools.files)
        hooks = _hooks.read_hooks(params["hooks"])[0] if params.get("hooks") is not None else {}
        told = _hooks.variables(params.get("name") or "", bool(params.get("reset")))
        self._hooks = _hooks.Run(tools.runner, hooks, told, progress)

    def go(self, entries: Sequence[Entry], findings: Sequence[Finding]) -> Outcome:
        """Plan, and act unless there is nothing to do or this is check mode."""
        targets = self._plan_all(entries, list(findings))
        self._foreign(targets)
        if errors(self._result.findings):
            raise Failure(refusal(self._result.findings), self._result)
        todo = [target for target in targets if not target.empty or (target.waits and self._resets(target))]
        self._result.plan = [_told.action(target) for target in todo]
        self._pending(targets)
        outcome = Outcome(self._result, _told.diff(targets))
        owed = self._services.owed() if self._tools.has_systemd() else []
        why = "an earlier run stopped it, and was ended before it could start it again"
        self._result.plan += [Action(f"start-{name}", "update", name, why) for name in owed]
        override = _override.plan(self._tools.files, str(self._params.get("name") or ""))
        self._result.plan += override.actions
        self._result.findings += override.findings
        wrong: List[str] = []
        done: List[str] = []
        if todo and not self._check:
            wrong, done = self._act(targets, todo)
        elif owed and not self._check:
            wrong = self._services.start_owed()
        if not self._check:
            override.write(self._tools.files)
            self._result.verified += override.prove(self._tools.files)
        self._keep(targets, todo)
        self._result.changed = bool(self._result.plan)
        if wrong:
            raise Failure("The layout is made, but " + " ".join(wrong), self._result, done, [])
        return outcome

    # --- planning ---------------------------------------------------------------------------------------------------

    def _plan_all(self, entries: Sequence[Entry], findings: List[Finding]) -> List[Target]:
        """A target for each GPU of the layout, waiting for busy ones if that is asked for. Check mode waits for none:
        it tells that a run would, and plans for the time after."""
        limit = float(self._params.get("busy_timeout") or 0)
        deadline = self._tools.clock() + limit
        told = ""
        while True:
            states, silent = read_all(self._nvml)
            self._result.found, self._states = _found(states), states
            states = [self._without_services(state) for state in states]
            capable = {state.gpu.uuid: state.mode is not None for state in states}
            assigned = assign(entries, [state.gpu for state in states], capable, silent)
            targets, refused = _aim_all(assigned, states)
            found = [*findings, *assigned.findings, *self._idle(assigned, entries, [state.gpu for state in states])]
            left = deadline - self._tools.clock()
            waits = self._params.get("busy") == "wait" and not errors(found)
            waits = waits and bool(refused) and all(error.busy for _state, error in refused)
            if waits and self._check:
                found += [_would_wait(state, error, limit) for state, error in refused]
                free, refused = _when_free(assigned, [state for state, _error in refused])
                targets = sorted([*targets, *free], key=lambda target: target.state.gpu.index)
            if not waits or self._check or left <= 0:
                waited = limit if waits else None
                found += [_finding(state, assigned.entries[state.gpu.uuid], error, waited) for state, error in refused]
                self._result.findings = [*found, *_tolerated(targets)]
                return targets
            line = "waiting for " + "; ".join(f"{_told.name(state)}: {error}" for state, error in refused)
            if line != told:
                self._progress(f"{line} (at most {left:.0f} s more)")
                told = line
            self._tools.sleep(min(_POLL, left))

    def _foreign(self, targets: Sequence[Target]) -> None:
        """What is said of instances that this host's layouts do not have."""
        kept, named = _known(self._tools.files), {target.state.gpu.uuid for target in targets}
        refuse = self._params.get("foreign") == "refuse"
        self._result.findings += _foreign.gone(targets, kept, refuse)
        self._result.findings += _foreign.left([one for one in self._states if one.gpu.uuid not in named], kept)

    def _idle(self, assigned: Assignment, entries: Sequence[Entry], gpus: Sequence[Gpu]) -> List[Finding]:
        """What is said of entries that match no GPU."""
        given = self._params.get
        judge = idle if given("layout") is not None else idle_in_file if given("config") is not None else idle_by_name
        return judge(assigned, entries, gpus)

    def _without_services(self, state: State) -> State:
        """Programs of services that are stopped before a change hold nothing then."""
        named = self._services.names
        stay = tuple(each for each in state.processes if not named or self._tools.unit_of(each.pid) not in named)
        return replace(state, processes=stay)

    def _resets(self, target: Target) -> bool:
        return bool(self._params.get("reset")) and not target.state.virtual

    def _pending(self, targets: Sequence[Target]) -> None:
        """Modes that a run has asked for before and that wait for somebody."""
        self._result.found.update(reset_required=[], reboot_required=[])
        self._waits([target.state for target in targets if target.waits and not self._resets(target)])

    def _waits(self, states: Sequence[State]) -> None:
        found = self._result.found
        for state in states:
            found["reboot_required" if state.virtual else "reset_required"].append(state.gpu.index)
            what = "Reboot the host" if state.virtual else "Reset the GPU (reset: true), or reboot the host"
            detail = "its MIG mode waits for a reset"
            remedy = f"{what}, then run again."
            self._result.findings.append(Finding("mig.pending", WARNING, detail, _told.name(state), "", remedy))

    # --- acting -----------------------------------------------------------------------------------------------------

    def _act(self, targets: Sequence[Target], todo: Sequence[Target]) -> Tuple[List[str], List[str]]:
        """What went wrong after the layout was made, as sentences, and the actions that were done. Raises Failure."""
        files = self._tools.files
        earlier = self._earlier()
        kept = {gpu.uuid for gpu in earlier}
        saved = [gpu for gpu in _checkpoint.save([target.state for target in todo]) if gpu.uuid not in kept]
        files.write(_restore.CHECKPOINT, _checkpoint.to_json([*earlier, *saved]), 0o600)
        done: List[str] = []
        self._services.stop()
        try:
            self._run_hooks(todo)
            self._each(todo, done)
        except Failure as failure:
            failure.msg = " ".join([failure.msg, *self._after()])
            raise
        finally:
            wrong = self._after()  # what was done above is not done again
        made = {target.state.gpu.uuid for target in targets}
        rest = [gpu for gpu in earlier if gpu.uuid not in made]
        if rest:
            files.write(_restore.CHECKPOINT, _checkpoint.to_json(rest), 0o600)
        else:
            files.remove(_restore.CHECKPOINT)
        wrong += self._prove(targets)
        if self._params.get("refresh_cdi") and self._tools.has_systemd():
            wrong += self._refresh_cdi()
        return wrong, done

    def _run_hooks(self, todo: Sequence[Target]) -> None:
        """Raises Failure, with nothing changed."""
        try:
            self._hooks.start()
            if any(target.set_mode is not None for target in todo):
                self._hooks.run(_hooks.MODE)
            self._hooks.run(_hooks.CONFIG)
        except Failure as failure:
            left = [action.id for action in self._result.plan]
            raise Failure(f"{failure.msg.rstrip('.')}. No GPU has been changed.", self._result, [], left) from None

    def _after(self) -> List[str]:
        """Start what was stopped, and run the last hook; what went wrong, as sentences."""
        return [*self._services.start(), *self._hooks.end()]

    def _earlier(self) -> List[_checkpoint.SavedGpu]:
        """What a run that was ended has saved: it stays until its GPUs have a layout that was asked for."""
        try:
            return _checkpoint.from_json(self._tools.files.text(_restore.CHECKPOINT) or _checkpoint.to_json([]))
        except _checkpoint.BadCheckpoint:
            return []

    def _refresh_cdi(self) -> List[str]:
        try:
            self._services.refresh_cdi()
        except Failure as failure:
            return [f"CDI specifications are not made anew: {failure.msg} Then run: systemctl restart {CDI}."]
        return []

    def _each(self, todo: Sequence[Target], done: List[str]) -> None:
        reset = self._reset if self._params.get("reset") else None
        executor = Executor(self._nvml, self._progress, reset, self._tools.holders_of)
        waiting: List[State] = []
        for target in todo:
            name = _told.action(target).id
            try:
                answer, now = executor.carry_out(target)
            except Failed as error:
                left = [action.id for action in self._result.plan if action.id not in done]
                self._result.found.update(_found(self._read()))
                self._result.changed = bool(done) or not error.restored
                raise Failure(str(error), self._result, done, left) from None
            if answer == PENDING:
                waiting.append(now)
            done.append(name)
        self._waits(waiting)

    def _read(self) -> List[State]:
        try:
            return read_all(self._nvml)[0]
        except NvmlError:
            return []

    def _reset(self, gpu: Gpu) -> None:
        self._tools.runner.run(["nvidia-smi", "--gpu-reset", "-i", gpu.bus_id], timeout=300)

    def _prove(self, targets: Sequence[Target]) -> List[str]:
        """Read again what is there, and compare it with what was planned; what differs, as sentences."""
        found = self._result.found
        waiting = {*found["reset_required"], *found["reboot_required"]}
        states = self._read()
        found.update(_found(states))
        by_uuid = {state.gpu.uuid: state for state in states}
        wrong = []
        for target in targets:
            state = by_uuid.get(target.state.gpu.uuid)
            told = f"{_told.name(target.state)}: {state.picture() if state else 'cannot be read'}"
            made = state is not None and not _differs(target, state)
            pends = target.state.gpu.index in waiting
            self._result.verified.append(Check(f"gpu-{target.state.gpu.index}", made and not pends, told))
            if not made and not pends:
                wrong.append(f"{told} afterwards, and not what was planned. Run again to go on.")
        return wrong

    # --- boot -------------------------------------------------------------------------------------------------------

    def _keep(self, targets: Sequence[Target], todo: Sequence[Target]) -> None:
        """Have the layout given back at boot."""
        if not targets:
            return
        if not self._params.get("restore_at_boot"):
            if self._tools.files.exists(_restore.LAYOUT):
                detail = f"{_restore.LAYOUT} of an earlier run still gives GPUs their earlier layout at boot"
                remedy = "Run with restore_at_boot: true, or take it away with state: absent."
                self._result.findings.append(
                    Finding("mig.restores-other", WARNING, detail, "", "restore_at_boot", remedy)
                )
            return
        if not self._tools.has_systemd():
            detail = "systemd does not run this host, so the layout is not given back at boot"
            self._result.findings.append(Finding("mig.no-systemd", WARNING, detail, "", "restore_at_boot"))
            return
        files, units = self._tools.files, self._tools.systemd()
        changed = {target.state.gpu.uuid for target in todo} if self._check else set()
        layout = {}
        for target in targets:
            gpu = target.state.gpu
            state = target.state if gpu.uuid in changed else read_state(self._nvml, gpu)
            made = gpu.uuid not in changed and state.on == target.enabled
            layout[gpu.uuid] = _kept.of_state(state) if made else _kept.of_target(target)
        old = files.text(_restore.LAYOUT)
        try:
            text = _kept.to_json(layout) if old is None else _kept.merged(old, layout)
        except _kept.BadLayout as error:
            text = _kept.to_json(layout)
            self._set_aside(old or "", error)
        contents = _restore.wanted(self._nvml.library, text)
        for path in _restore.different(files, contents):
            name = f"restore-{path.rpartition('/')[2]}"
            self._result.plan.append(Action(name, "update", path, "the layout is given back at boot"))
        enabled = bool(self._result.plan) or units.state(_restore.NAME).enabled
        if not enabled:
            self._result.plan.append(Action("restore-unit", "update", _restore.NAME, "it is not started at boot"))
        if self._result.plan and not self._check:
            _restore.install(files, units, contents)

    def _set_aside(self, text: str, error: _kept.BadLayout) -> None:
        """What is no layout of ours is kept beside the new one."""
        detail = f"{_restore.LAYOUT} is replaced, and kept as {_restore.BROKEN}: {error}"
        remedy = "GPUs that this run does not name get no layout at boot: run again with theirs."
        self._result.findings.append(Finding("mig.kept-broken", WARNING, detail, "", "restore_at_boot", remedy))
        if not self._check:
            self._tools.files.write(_restore.BROKEN, text, 0o600)


def _aim_all(assigned: Assignment, states: Sequence[State]) -> Tuple[List[Target], List[Tuple[State, Refused]]]:
    targets: List[Target] = []
    refused: List[Tuple[State, Refused]] = []
    for state in states:
        entry = assigned.entries.get(state.gpu.uuid)
        if entry is None:
            continue
        try:
            targets.append(aim(state, entry.enabled, entry.wishes))
        except Refused as error:
            refused.append((state, error))
    return targets, refused


def _when_free(assigned: Assignment, states: Sequence[State]) -> Tuple[List[Target], List[Tuple[State, Refused]]]:
    """As ``_aim_all`` for when the programs of these GPUs have ended."""
    busy = {state.gpu.uuid: state for state in states}
    targets, refused = _aim_all(assigned, [replace(state, processes=()) for state in states])
    return [replace(target, state=busy[target.state.gpu.uuid]) for target in targets], refused


def _finding(state: State, entry: Entry, error: Refused, waited: Optional[float]) -> Finding:
    """What is said of a GPU whose layout cannot be made; ``waited``: seconds that the run has waited for programs."""
    if not error.busy:
        return Finding("mig.never-fits", ERROR, str(error), _told.name(state), "", f"Change {entry.path}.")
    if waited is None:
        remedy = f"End what runs on {_holders(state, error)}, or wait for it with busy=wait."
        return Finding("mig.busy", ERROR, str(error), _told.name(state), "", remedy, "busy=wait")
    detail = f"{error}, and {_holders(state, error)} did not end within the {waited:.0f} s of busy_timeout"
    return Finding("mig.busy", ERROR, detail, _told.name(state), "", "End it, or wait longer, then run again.")


def _would_wait(state: State, error: Refused, limit: float) -> Finding:
    detail = f"{error}. A run waits up to {limit:.0f} s for {_holders(state, error)} to end"
    return Finding("mig.busy", WARNING, detail, _told.name(state))


def _holders(state: State, error: Refused) -> str:
    """``1g.10gb@1 (pid 4711)``."""
    instances = error.drain or [None]
    held = [(each, _told.holders(state.processes, each.id if each else None)) for each in instances]
    return ", ".join(
        f"{state.told(each) if each else 'the GPU'} (pid {', '.join(map(str, pids))})" for each, pids in held
    )


def _tolerated(targets: Sequence[Target]) -> List[Finding]:
    return [
        Finding("mig.tolerated-name", WARNING, sentence, _told.name(target.state))
        for target in targets
        for sentence in target.tolerated
    ]
