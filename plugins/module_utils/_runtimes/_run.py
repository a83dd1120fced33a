# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of container_toolkit: find, plan everything, refuse or act, prove; or give back."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .._host import _accept, _lock
from .._host._commands import Runner
from .._host._files import Files
from .._host._journal import Journal
from .._host._packages import Manager, manager
from .._host._root import Root
from .._host._systemd import Units
from .._matrix import TOOLKIT_CDI_BY_DEFAULT, version_key
from .._plan import ERROR, INFO, REDACTED, WARNING, Action, Failure, Finding, Outcome, Result, errors, refusal
from . import _find, _packages, _packages_run, _pulls, _rootless, _selinux, _toolkit_config
from ._configure import Job, Settings, carry_out, command, prepare, prove, write
from ._give_back import GiveBack
from ._reader import FilesReader
from ._repository import Repository
from ._rootless import NO_CGROUPS, SharedFiles
from ._specs import Specs
from ._types import Change, Wanted

COMPONENT = "container_toolkit"
HOOK = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_SECRET = re.compile(r"""(?im)^(\s*["']?[\w.-]*(?:password|passwd|token|secret|auth)["']?\s*[=:]\s*)\S.*$""")
# Up to the last @ of the word: nobody has to escape slashes and @ in a password.
_CREDENTIALS = re.compile(r"(?<=://)[^\s\"]+(?=@)")
_PROXY = re.compile(
    r"""(?i)(proxy\\*["']?[ \t]*[=:][ \t]*\\*(["'])?)(?!\\*["']?\w+://)(?(2)(?:(?!\2)[^\r\n])+|(?!["'])\S+)(?=@)"""
)  # programs take it without a scheme too
_WAIT = 60.0  # seconds for another run to end
_TAKEN = re.compile(r"(runc|crun|io\.containerd\..*)\Z")  # the daemons' own
_NEW_MODE = version_key(TOOLKIT_CDI_BY_DEFAULT)  # mode auto means CDI from here on
_KUBELET = "/var/lib/kubelet/config.yaml"

Progress = Callable[[str], None]


@dataclass
class Tools:
    """What a run works with; tests give others."""

    runner: Runner = field(default_factory=Runner)
    files: Callable[[Root], Files] = Files
    has_systemd: Callable[[], bool] = Units.available


def container_toolkit(params: Mapping[str, Any], check: bool, progress: Progress, tools: Tools) -> Outcome:
    """One run of the module. Raises Failure."""
    wrong = _wrong(params)
    if wrong:
        raise Failure(refusal(wrong), Result(findings=wrong))
    root = Root(str(params["root"]))
    if root.folder == "/" and os.geteuid():
        raise Failure("Only root may configure container runtimes. Run with become: true. Nothing has been changed.")
    return _Run(params, check, progress, tools, root).go()


def _wrong(params: Mapping[str, Any]) -> List[Finding]:
    found = _accept.unknown(COMPONENT, params.get("accept") or ())
    root = str(params["root"])
    if not os.path.isabs(root) or not os.path.isdir(root):
        found.append(
            Finding("no_root", ERROR, f"{root!r} is no folder; allowed is an absolute path of one", path="root")
        )
    if not _NAME.match(str(params["runtime_name"])):
        detail = f"{params['runtime_name']!r} is no name; allowed are letters, digits, dots, dashes, such as nvidia"
        found.append(Finding("no_name", ERROR, detail, path="runtime_name"))
    if _TAKEN.match(str(params["runtime_name"])):
        detail = (
            f"{params['runtime_name']!r} is a runtime of the daemon itself; allowed is any other name, such as nvidia"
        )
        found.append(Finding("name_taken", ERROR, detail, path="runtime_name"))
    if not os.path.isabs(str(params["runtime_path"])) or "\n" in str(params["runtime_path"]):
        detail = f"{params['runtime_path']!r} is no absolute path"
        found.append(Finding("no_path", ERROR, detail, path="runtime_path"))
    if params.get("nri") and (params["default_runtime"] is not None or params["cdi"]):
        detail = "runtimes get no NVIDIA runtime then, so there is nothing for default_runtime and cdi to say"
        found.append(Finding("nri_alone", ERROR, detail, path="nri", remedy="Leave them out, or leave nri out"))
    if root != "/" and any(one.get("user") for one in params["runtimes"] or ()):
        detail = "the users of an image tree are not known here; a user's daemon is configured on a running host"
        found.append(Finding("no_user", ERROR, detail, path="runtimes", remedy="Leave user out"))
    if int(params["restart_timeout"]) < 1:
        detail = f"{params['restart_timeout']}; allowed are seconds from 1 on"
        found.append(Finding("no_timeout", ERROR, detail, path="restart_timeout"))
    return found


@dataclass
class _Packages:
    """The toolkit's packages, and what is to be done with them."""

    manager: Manager
    journal: Journal
    todo: _packages.Plan


class _Run:
    def __init__(self, params: Mapping[str, Any], check: bool, progress: Progress, tools: Tools, root: Root) -> None:
        self._params, self._check, self._progress = params, check, progress
        self._live = root.folder == "/" and tools.has_systemd()
        self._files = SharedFiles(tools.files(root))
        self._root = root
        self._result = Result()
        asked = params.get("image_pulls") if params["state"] == "present" else None
        pulls, self._wrong_pulls = _pulls.wish(asked, self._files)
        self._settings = Settings(
            self._wanted(), self._files, FilesReader(self._files), progress,
            tools.runner if self._live else None, bool(params["restart"]), float(params["restart_timeout"]),
            pulls, tuple(params.get("accept") or ()),
        )  # fmt: skip

    def _wanted(self) -> Wanted:
        kubelet = self._files.text(_KUBELET) or ""
        return Wanted(
            str(self._params["runtime_name"]),
            str(self._params["runtime_path"]),
            self._params["default_runtime"],
            bool(self._params["cdi"]),
            bool(re.search(r"^cgroupDriver: *[\"']?systemd", kubelet, re.MULTILINE)),
            bool(self._params.get("nri")),
        )

    def go(self) -> Outcome:
        """Plan, then act, unless this is check mode or there is nothing to do."""
        with (
            _lock.alone(self._root.at, COMPONENT, _WAIT, self._check),
            Journal(self._files, COMPONENT) as journal,
            Journal(self._files, _packages_run.COMPONENT) as bought,
        ):
            self._settings.earlier = journal.notes()
            packages = self._packages(bought)
            if self._params["state"] == "absent":
                return self._absent(journal, packages)
            return self._present(journal, packages)

    def _packages(self, journal: Journal) -> Optional[_Packages]:
        """What the packages need; None where they are left alone. Nothing is changed."""
        if self._params["packages"] == "none" or not self._live:
            return None
        found = manager(self._settings.runner or Runner(), self._files, str(self._params["package_manager"]))
        if self._params["state"] == "absent":
            return _Packages(found, journal, _packages.plan_absent(_packages_run.look_absent(found, journal)))
        given = self._params["repository"] or {}
        wanted = _packages.Wanted(
            str(self._params["packages"]),
            str(self._params["version"] or ""),
            bool(self._params["hold"]),
            Repository(**{key: value for key, value in given.items() if value is not None}),
            tuple(self._params["accept"] or ()),
        )
        seen = _packages_run.look(found, self._files, journal, wanted)
        return _Packages(found, journal, _packages.plan(seen, wanted))

    def _buy(self, packages: Optional[_Packages]) -> List[str]:
        """Carry the plan for packages out. Returns ids of what was done."""
        if not packages or not packages.todo.actions:
            return []
        args = (packages.todo, packages.manager, self._files, packages.journal, self._progress)
        return _packages_run.apply(*args)

    def _absent(self, journal: Journal, packages: Optional[_Packages]) -> Outcome:
        targets = self._targets()
        if errors(self._result.findings):
            raise Failure(refusal(self._result.findings), self._result)
        work = GiveBack(targets, self._settings, journal)
        diff = diff_of(work.changes())
        self._result.findings += work.findings()
        self._result.plan = work.plan()
        if errors(self._result.findings):
            raise Failure(refusal(self._result.findings), self._result)
        if packages and work.owing and packages.todo.remove:
            names = ", ".join(target.name for target in work.owing)
            detail = f"{names} works with the runtime until it is restarted, so the toolkit's packages stay"
            self._result.findings.append(
                Finding("packages_stay", WARNING, detail, remedy="Run again with restart: true")
            )
            packages = None
        if packages:
            self._result.findings += packages.todo.findings
            self._result.plan += packages.todo.actions
        boolean = _selinux.back(journal.notes(), self._files) if self._live else []
        self._result.plan += boolean
        self._result.changed = bool(self._result.plan)
        self._result.found = {"runtimes": [target.told() for target in targets]}
        if not self._check and (self._result.plan or journal.notes()):
            try:
                if boolean and self._settings.runner:
                    _selinux.give_back(self._settings.runner, journal.notes())
                    work.done.append("selinux")
                work.carry_out()
                work.done += self._buy(packages)
            except Failure as failure:
                raise self._stopped(failure, work.done) from None
            self._result.verified = work.prove()
            if packages:
                self._result.verified += _packages_run.prove(packages.todo, packages.manager)
            self._refuse_unproved()
        return Outcome(self._result, diff)

    def _targets(self) -> List[_find.Target]:
        # What is given back does not depend on what is still there.
        asked = None if self._params["state"] == "absent" else self._params["runtimes"]
        targets, findings = _find.find(self._root, self._settings.runner, asked)
        self._result.findings += findings
        if asked is None:
            for home, rights in _rootless.homes(self._settings.earlier).items():
                self._files.people[home] = rights  # also of users who are gone, or who have another home now
            targets += _find.rootless(_rootless.noted(self._settings.earlier), self._settings.runner)
        for target in targets:
            if target.person:
                self._files.lend(target.person)
            elif not target.starter:
                target.restart_command = tuple(self._settings.earlier.get(command(target.label)) or ())
        return targets

    def _stopped(self, failure: Failure, done: Sequence[str]) -> Failure:
        """The failure with what was done until then, and what is left."""
        all_done = [*done, *failure.done]
        left = [action.id for action in self._result.plan if action.id not in all_done]
        self._result.changed = bool(all_done)
        return Failure(failure.msg, self._result, all_done, left)

    def _present(self, journal: Journal, packages: Optional[_Packages]) -> Outcome:
        jobs = [prepare(target, self._settings) for target in self._targets()]
        for job in jobs:
            self._result.findings += job.findings
        self._result.findings += self._wrong_pulls
        buys = packages.todo if packages else _packages.Plan()
        self._result.findings += buys.findings
        self._result.findings += self._program_missing(jobs) if not buys.pins else []
        settings = self._toolkit_settings(jobs)
        specs = self._specs(jobs, bool(buys.pins))
        self._result.findings += reload_risk(self._files, specs.toolkit if specs else ())
        if not jobs and not errors(self._result.findings):
            detail = "no container runtime is on this host"
            self._result.findings.append(Finding("no_runtime", INFO, detail, remedy="Install one, then run again"))
        hook = self._hook(jobs)
        devices = self._devices(jobs)
        self._result.findings += devices.findings
        changes = settings + [change for job in jobs for change in job.changes] + hook
        verb = "create" if settings and settings[0].before is None else "update"
        self._result.plan = list(buys.actions)
        self._result.plan += [Action("toolkit-config", verb, one.path, one.reason) for one in settings]
        self._result.plan += [action for job in jobs for action in job.actions()]
        self._result.plan += [Action("podman-hook", "delete", one.path, one.reason) for one in hook]
        self._result.plan += devices.actions
        if specs:
            self._result.findings += specs.plan.findings
            self._result.plan += specs.actions()
        self._result.changed = bool(self._result.plan)
        self._result.found = {"runtimes": [self._told(job) for job in jobs]}
        if errors(self._result.findings):
            self._result.changed = False
            raise Failure(refusal(self._result.findings), self._result)
        if not self._check:
            self._act(packages, jobs, hook, devices, specs, journal)
            self._result.verified = _packages_run.prove(buys, packages.manager) if packages else []
            self._result.verified += [check for job in jobs for check in prove(job, self._settings)]
            self._result.verified += devices.prove(self._files)
            self._result.verified += specs.prove() if specs else []
            self._refuse_unproved()
        return Outcome(self._result, diff_of(changes))

    def _specs(self, jobs: Sequence[Job], installs: bool) -> Optional[Specs]:
        """CDI specifications; None where they are left alone, and where nothing is there that makes them."""
        program = os.path.join(os.path.dirname(self._settings.wanted.program), "nvidia-ctk")
        wanted = self._live and self._params["cdi_specs"]
        if not wanted or not (installs or self._files.exists(program)):
            return None
        given = self._params["cdi_spec"] or {}
        specs = Specs(self._files, self._settings.runner or Runner(), self._progress, given, program)
        specs.prepare([job.target for job in jobs])
        return specs

    def _toolkit_settings(self, jobs: Sequence[Job]) -> List[Change]:
        """The toolkit's own configuration. CRI-O's programs are not on the path, so they are named there."""
        wanted = dict(self._params["toolkit_config"] or {})
        low_level = [path for job in jobs for path in job.proposal.low_level]
        for path in low_level:
            if not self._files.exists(path):
                detail = f"CRI-O runs its containers with {path}, which is not there"
                missing = Finding("low_level_missing", ERROR, detail, "crio", remedy="Install it")
                self._result.findings += [missing] if missing not in self._result.findings else []
        path, key = _toolkit_config.PATH, "nvidia-container-runtime.runtimes"
        text = self._files.text(path)
        if low_level and key not in wanted:
            try:
                listed = list(_toolkit_config.read(text).get(key) or _toolkit_config.KEYS[key].default)
            except ValueError:
                listed = []  # told below
            if listed[: len(low_level)] != low_level:
                wanted[key] = low_level + [one for one in listed if one not in low_level]
        if any(job.target.person for job in jobs) and NO_CGROUPS not in wanted:
            wanted[NO_CGROUPS] = True
        if not wanted:
            return []
        after, findings = _toolkit_config.change(text, wanted, option="toolkit_config")
        if any(job.target.person for job in jobs):
            findings = [*findings, *self._shared_setting(jobs, after)]
        self._result.findings += [one for one in findings if one not in self._result.findings]
        return [Change(path, text, after, "as asked, read anew for every container")] if after != (text or "") else []

    def _shared_setting(self, jobs: Sequence[Job], after: str) -> List[Finding]:
        others = [one.name for one in jobs if not one.target.person and one.name != "podman" and not one.nri]
        try:
            told = _toolkit_config.read(after)
        except ValueError:
            return []  # told as a file that cannot be read
        mode = str(told.get("nvidia-container-runtime.mode") or "")
        return _rootless.shared_setting(others, mode) if told.get(NO_CGROUPS) is True else []

    def _act(
        self,
        packages: Optional[_Packages],
        jobs: Sequence[Job],
        hook: Sequence[Change],
        devices: _selinux.Devices,
        specs: Optional[Specs],
        journal: Journal,
    ) -> None:
        done: List[str] = []
        fresh = not journal.paths()
        try:
            done += self._buy(packages)
            missing = self._program_missing(jobs)
            if missing:
                raise Failure(missing[0].sentence())
            for change in self._toolkit_settings(jobs):  # anew: packages bring a file of their own
                write(journal, change.path, change.after)
                done.append("toolkit-config")
            for job in jobs:
                done += carry_out(job, self._settings, journal)
            for change in hook:
                write(journal, change.path, change.after)
                done.append("podman-hook")
            done += devices.carry_out(self._settings.runner, journal) if self._settings.runner else []
            if specs:
                specs.prepare([job.target for job in jobs])  # anew: packages bring the program and its service
                done += specs.carry_out(journal)
        except Failure as failure:
            if fresh and not done:
                journal.give_back()  # folders that were made for the files that are gone again
            raise self._stopped(failure, done) from None

    def _refuse_unproved(self) -> None:
        wrong = [check for check in self._result.verified if not check.ok]
        if wrong:
            told = "; ".join(f"{check.id}: {check.detail}" for check in wrong)
            raise Failure(f"The end state does not hold: {told}.", self._result, [one.id for one in self._result.plan])

    def _program_missing(self, jobs: Sequence[Job]) -> List[Finding]:
        program = self._settings.wanted.program
        needed = [job.name for job in jobs if job.target.placement != _find.NONE and job.name != "podman"]
        if self._settings.wanted.nri or not needed or self._files.exists(program):
            return []
        detail = f"{program} is not there, and containers of the runtime could not start with it"
        remedy = "Install the container toolkit, or give the path where its runtime is"
        return [Finding("runtime_program_missing", ERROR, detail, path="runtime_path", remedy=remedy)]

    def _hook(self, jobs: Sequence[Job]) -> List[Change]:
        """Podman with CDI and the old hook would inject everything twice."""
        text = self._files.text(HOOK)
        if text is None or not any(job.name == "podman" for job in jobs):
            return []
        return [Change(HOOK, text, None, "with it, podman gives containers their GPUs twice beside CDI")]

    def _devices(self, jobs: Sequence[Job]) -> _selinux.Devices:
        wanted = self._params.get("selinux_devices")
        if not self._live:
            return _selinux.not_here(wanted)
        return _selinux.plan(self._files, wanted, any(job.name == "podman" for job in jobs))

    def _told(self, job: Job) -> Dict[str, Any]:
        return dict(job.target.told(), live=job.live)


def reload_risk(files: Files, toolkit: Tuple[int, ...]) -> List[Finding]:
    """GPUs are added behind systemd's back in mode legacy: a daemon-reload takes them from running containers."""
    try:
        mode = _toolkit_config.read(files.text(_toolkit_config.PATH)).get("nvidia-container-runtime.mode", "auto")
    except ValueError:
        return []  # told as a file that cannot be read
    legacy = mode == "legacy" or (mode == "auto" and () < toolkit < _NEW_MODE)
    try:
        linked = any(name.startswith("195:") for name in os.listdir(files.root.at("/dev/char")))
    except OSError:
        linked = False
    if not legacy or linked:
        return []
    detail = "its runtime works in mode legacy, so that `systemctl daemon-reload` takes GPUs from running containers"
    remedy = (
        "Upgrade the toolkit to 1.18 or newer, set nvidia-container-runtime.mode to cdi in toolkit_config, or run "
        "`nvidia-ctk system create-dev-char-symlinks --create-all` at boot"
    )
    return [Finding("daemon_reload_takes_gpus", WARNING, detail, _toolkit_config.PATH, remedy=remedy)]


def diff_of(changes: Sequence[Change]) -> List[Dict[str, str]]:
    """Ansible's diff, one for each file."""
    return [
        {
            "before_header": one.path,
            "after_header": one.path,
            "before": _shown(one.before),
            "after": _shown(one.after),
        }
        for one in changes
    ]


def _shown(text: Optional[str]) -> str:
    shown = _CREDENTIALS.sub(REDACTED, (text or "").encode("utf-8", "replace").decode())
    return _SECRET.sub(rf"\1{REDACTED}", _PROXY.sub(rf"\1{REDACTED}", shown))
