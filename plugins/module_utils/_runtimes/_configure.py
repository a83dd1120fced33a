# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One runtime's configuration: planned, written, judged by the daemon's own program, made active, seen in the daemon.

What does not hold is taken back: the old files, and a restart with them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from .._host._commands import Runner
from .._host._files import Files
from .._host._journal import Journal
from .._plan import ERROR, INFO, Action, Check, Failure, Finding, errors
from . import _containerd, _crio, _docker, _nri, _pulls, _rancher, _rootless
from ._cri import NoAnswer
from ._daemons import CANDIDATE, Daemon, differences
from ._find import IN_PLACE, NONE, Target
from ._json import JsonError
from ._toml import TomlError
from ._types import HEADER, Broken, Change, Proposal, Reader, Wanted, at, table

RANCHER = ("k3s", "rke2")
#: Findings on a runtime that needs nothing.
_UNTOUCHED = ("containerd_without_cri", "runtime_without_nri")
RIGHT, LACKS, SILENT, STOPPED = "right", "lacks", "silent", "stopped"


@dataclass
class Job:
    """What is done for one runtime."""

    target: Target
    daemon: Optional[Daemon]
    proposal: Proposal
    merged: Optional[Dict[str, Any]] = None
    live: str = STOPPED
    lacks: str = ""
    activates: bool = False
    nri: bool = False
    pulls: _pulls.Plan = field(default_factory=_pulls.Plan)
    stale: bool = False  # its environment differs, which a reload does not change

    @property
    def changes(self) -> List[Change]:
        """All files that change: of its configuration, then of its unit."""
        return self.proposal.changes + self.pulls.changes

    @property
    def findings(self) -> List[Finding]:
        return self.proposal.findings + self.pulls.findings

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def label(self) -> str:
        return self.target.label

    @property
    def reloads(self) -> bool:
        """Whether the daemon reads its files without a restart. NRI is not among what they read anew."""
        return self.name in ("docker", "crio") and not (self.target.restart_command or self.nri or self.stale)

    def actions(self) -> List[Action]:
        """The plan's actions for this runtime."""
        verbs = {True: "create", False: "update"}
        found = [
            Action(
                f"{self.label}-{number}",
                "delete" if one.after is None else verbs[one.before is None],
                one.path,
                one.reason,
            )
            for number, one in enumerate(self.changes)
        ]
        if self.activates:
            reason = "its configuration changes" if self.proposal.changes else f"as it runs, {self.lacks}"
            verb = "reload" if self.reloads else "restart"
            found.append(
                Action(f"{self.label}-{verb}", verb, self.target.starter, reason, disruptive=verb == "restart")
            )
        return found


@dataclass
class Settings:
    """What all runtimes of a run share."""

    wanted: Wanted
    files: Files
    reader: Reader
    progress: Callable[[str], None]
    runner: Optional[Runner] = None  # None for an image tree
    restart: bool = True
    timeout: float = 60.0
    pulls: Optional[_pulls.Pulls] = None  # None leaves it as it is
    accept: Sequence[str] = ()
    earlier: Dict[str, Any] = field(default_factory=dict)  # notes of the journal


def prepare(target: Target, settings: Settings) -> Job:
    """Read and plan; nothing is changed. What cannot be done is a finding of the proposal."""
    daemon = Daemon(target, settings.runner, settings.progress) if settings.runner else None
    job = Job(target, daemon, Proposal(), nri=settings.wanted.nri)
    if target.placement == NONE:
        return job
    try:
        job.merged = daemon.merged() if daemon else None
        job.proposal = _proposal(target, settings, job.merged, daemon.runtimes(job.merged) if daemon else {})
        job.pulls = _pulls.plan(settings.reader, target, settings.pulls)
    except (Failure, JsonError, TomlError) as error:
        told = error.msg if isinstance(error, Failure) else f"{target.config}: {error}"
        job.proposal.findings.append(
            Finding("broken_configuration", ERROR, told, target.name, remedy="Nothing of it is changed")
        )
        return job
    if daemon and target.running:
        _look(job, daemon, settings)
        _look_at_environment(job, daemon, settings)
    return job


def _proposal(
    target: Target, settings: Settings, merged: Optional[Mapping[str, Any]], built_in: Dict[str, Any]
) -> Proposal:
    wanted, reader = settings.wanted, settings.reader
    imported = (os.path.join(os.path.dirname(target.drop_in), "*.toml"),) if target.name == "k0s" else ()
    drop_in = "" if target.placement == IN_PLACE else target.drop_in
    places = _containerd.Places(target.config, drop_in, target.name, imported)
    if wanted.nri:
        return _nri.plan(reader, target, places, merged)
    earlier = str(settings.earlier.get(note(target.label)) or "")
    if target.name == "docker":
        return _docker.plan(reader, target.config, wanted, target.version, target.flags, earlier)
    if target.name == "crio":
        return _crio.plan(reader, target.config, target.drop_in, wanted, built_in, earlier)
    if target.name == "podman":
        return Proposal()
    if target.name in RANCHER:
        return _rancher.plan(reader, target.config, wanted, target.name)
    proposal = _containerd.plan(reader, places, wanted, target.version, built_in, earlier)
    if target.named and any(one.id == "containerd_without_cri" for one in proposal.findings):
        raise Broken(f"{target.config} has the CRI plugin switched off (disabled_plugins).")
    return proposal


def _look(job: Job, daemon: Daemon, settings: Settings) -> None:
    """Whether the daemon has the runtime as it runs now."""
    if job.name == "podman" or _left_alone(job):
        job.live = RIGHT
        return
    try:
        job.lacks = daemon.lacks(settings.wanted)
        job.live = LACKS if job.lacks else RIGHT
    except NoAnswer as error:
        job.live, job.lacks = SILENT, error.msg
    if owed(job.target.starter) in settings.earlier and job.live == RIGHT:
        job.live, job.lacks = LACKS, "an earlier run changed its files and did not live to restart it"
    owes = bool(job.proposal.changes) or job.live != RIGHT
    if job.name in RANCHER and not job.proposal.changes and tried(job.target.starter) in settings.earlier:
        detail = f"{job.target.starter} was restarted for it, and still {job.lacks}"
        remedy = "Look at its template and its flags (default-runtime), and whether it finds the program"
        job.proposal.findings.append(Finding("restart_did_not_help", ERROR, detail, job.name, remedy=remedy))
        return
    job.activates = settings.restart and bool(job.target.starter) and owes
    if owes and not job.activates:
        job.proposal.findings.append(
            Finding(
                "restart_owed",
                INFO,
                f"{job.target.starter or 'its daemon'} is not restarted: it is not asked for, or has no unit",
                job.name,
                remedy="Restart it, or say how with restart_command",
            )
        )


def _look_at_environment(job: Job, daemon: Daemon, settings: Settings) -> None:
    """Whether the daemon was started with the variables that it should have."""
    wanted = job.pulls.variables
    job.stale = wanted is not None and bool(_pulls.differs(daemon.environment(), wanted))
    if not job.stale or errors(job.findings):
        return
    if not settings.restart:
        detail = f"{job.target.starter} pulls images as before until it is restarted, which is not asked for"
        job.pulls.findings.append(Finding("restart_owed", INFO, detail, job.name, remedy="Restart it"))
        return
    job.activates = True
    job.lacks = job.lacks or "it does not pull images as image_pulls says"
    job.pulls.findings += _pulls.stops(job.label, daemon.would_end(), settings.accept)


def note(name: str) -> str:
    """Key of the journal's note on the default runtime that was there before."""
    return f"default:{name}"


def owed(unit: str) -> str:
    """Key of the journal's note that a unit has to read changed files yet: a killed run leaves it to the next."""
    return f"restart:{unit}"


_NAME = "name:"


def names_of(notes: Mapping[str, Any]) -> List[str]:
    """Runtimes that we gave to daemons, by the journal's notes."""
    return [key[len(_NAME) :] for key in notes if key.startswith(_NAME)]


def command(name: str) -> str:
    """Key of the journal's note on the command that restarts a daemon without a unit: the way back needs it too."""
    return f"command:{name}"


def tried(unit: str) -> str:
    """Key of the journal's note that a unit was restarted, and has not been seen with the runtime since."""
    return f"tried:{unit}"


def _note(job: Job, settings: Settings, journal: Journal) -> None:
    """What the way back and the run after a kill have to know, before anything changes."""
    if job.proposal.changes:
        journal.note(f"{_NAME}{settings.wanted.name}", "")
    if job.proposal.earlier is not None:
        journal.note(note(job.label), job.proposal.earlier)
    if job.target.person and (job.activates or job.proposal.changes):
        journal.note(_rootless.note(job.target.person.name), _rootless.remembered(job.target.person))
    if job.target.restart_command and (job.activates or job.proposal.changes):
        journal.note(command(job.label), list(job.target.restart_command))
    if job.target.starter and job.target.running and (job.activates or job.proposal.changes):
        journal.note(owed(job.target.starter), True)


def carry_out(job: Job, settings: Settings, journal: Journal) -> List[str]:
    """Write, prove, activate, prove. Returns ids of what was done; on Failure all of this runtime is as it was."""
    done: List[str] = []
    ids = [action.id for action in job.actions()]
    changes = job.changes
    try:
        _judge_candidates(job, settings)
        others = _others(job, settings) if job.proposal.changes else None
        _note(job, settings, journal)
        for number, change in enumerate(changes):
            settings.progress(f"{job.label}: {'removing' if change.after is None else 'writing'} {change.path}")
            write(journal, change.path, change.after, _mode(job, change, settings))
            done.append(ids[number])
        if job.proposal.changes:
            _prove_files(job, settings.wanted, others)
        _heed(job, settings)
    except Failure as failure:
        _take_back(job, settings, journal)
        journal.forget(owed(job.target.starter))
        raise Failure(f"{job.label}: {failure.msg} The old files are back; its daemon was not touched.") from None
    if job.activates and job.daemon:
        try:
            if job.name in RANCHER:
                journal.note(tried(job.target.starter), True)
            job.daemon.activate(job.reloads)
            if not _left_alone(job):
                job.daemon.wait(settings.wanted, settings.timeout)
            _demand_environment(job, job.daemon)
            journal.forget(tried(job.target.starter))
        except Failure as failure:
            _take_back(job, settings, journal)
            raise Failure(f"{job.label}: {failure.msg} {_start_again(job, job.daemon, settings)}") from None
        journal.forget(owed(job.target.starter))
        done.append(ids[-1])
    if settings.wanted.default is False:
        journal.forget(note(job.label))  # it is given back; another one may be there the next time
    return done


def _judge_candidates(job: Job, settings: Settings) -> None:
    for change in job.proposal.changes if job.daemon else ():
        if job.name == "docker" and change.after is not None and job.daemon:
            settings.files.write(CANDIDATE, change.after, 0o600)
            try:
                job.daemon.validate(CANDIDATE)
            finally:
                settings.files.remove(CANDIDATE)


def _mode(job: Job, change: Change, settings: Settings) -> Optional[int]:
    """A new drop-in may repeat secrets of the main file, so no more people may read it."""
    if change in job.pulls.changes:
        return _pulls.mode(change.path)
    main = settings.files.root.at(job.target.config) if job.target.config else ""
    if change.before is not None or not os.path.isfile(main):
        return None
    return stat.S_IMODE(os.stat(main).st_mode) & 0o644


def write(journal: Journal, path: str, text: Optional[str], mode: Optional[int] = None) -> None:
    """Give a file this content, or remove it, so that it can be given back."""
    if text is None:
        journal.remove(path)
        return
    journal.make_folder(os.path.dirname(path))
    journal.write(path, text, mode)


def _others(job: Job, settings: Settings) -> Optional[Dict[str, Any]]:
    """The daemon's merged configuration without our drop-in, which may repeat what the other files said once."""
    target = job.target
    if not job.daemon or target.name != "containerd":
        return job.merged
    if not (settings.reader.text(target.drop_in) or "").startswith(HEADER):
        return job.merged  # it is somebody else's, and what it says has to stay
    places = _containerd.Places(target.config, target.drop_in)
    paths = [one.path for one in _containerd.load(settings.reader, places)]
    return job.daemon.without(
        settings.files, target.drop_in, [one for one in paths if one not in (target.config, target.drop_in)]
    )


def _prove_files(job: Job, wanted: Wanted, before: Optional[Dict[str, Any]]) -> None:
    """The daemon's own merged configuration shows the runtime, and differs in nothing else."""
    after = job.daemon.merged() if job.daemon else None
    if after is None or job.daemon is None:
        return
    lacking = _lacking(job, after, wanted)
    if lacking:
        raise Failure(f"with the new files it would not have {lacking}.")
    others = differences(before, after, wanted) if before is not None else []
    if others:
        raise Failure(f"the new files would change more than the runtime: {', '.join(others[:5])}.")


def _heed(job: Job, settings: Settings) -> None:
    """Have systemd know the unit's drop-in as it is now."""
    if settings.runner and (job.pulls.changes or job.stale):
        path = _pulls.drop_in(job.target.unit)
        changed = path in [one.path for one in job.pulls.changes]
        _pulls.heed(settings.runner, settings.files, job.target.unit, changed)


def _demand_environment(job: Job, daemon: Daemon) -> None:
    lacking = _pulls.differs(daemon.environment(), job.pulls.variables or {}) if job.stale else []
    if lacking:
        raise Failure(f"{job.target.unit} was started without {', '.join(lacking)} as image_pulls says.")


def _take_back(job: Job, settings: Settings, journal: Journal) -> None:
    for change in reversed(job.changes):
        write(journal, change.path, change.before, _pulls.mode(change.path))
    with contextlib.suppress(Failure):  # what went wrong before is told
        _heed(job, settings)


def _start_again(job: Job, daemon: Daemon, settings: Settings) -> str:
    try:
        daemon.activate(job.reloads)
        if not _left_alone(job):
            daemon.wait(None, settings.timeout)
    except Failure as failure:
        return f"The old files are back, and {job.target.starter} does not come up with them either: {failure.msg}"
    return f"The old files are back, and {job.target.starter} runs with them."


def prove(job: Job, settings: Settings) -> List[Check]:
    """What holds now, by the daemon's own words."""
    checks: List[Check] = []
    if not job.daemon or job.name == "podman" or job.target.placement == NONE:
        return checks
    merged = job.daemon.merged()
    if merged is not None and not _left_alone(job):
        shown = not _lacking(job, merged, settings.wanted)
        checks.append(Check(f"{job.label}-files", shown, f"its merged configuration shows {_what(settings.wanted)}"))
    if job.target.running and not _left_alone(job) and (job.activates or job.live == RIGHT):
        try:
            lacks = job.daemon.lacks(settings.wanted)
            checks.append(Check(f"{job.label}-live", not lacks, lacks or f"the daemon has {_what(settings.wanted)}"))
        except NoAnswer as error:
            checks.append(Check(f"{job.label}-live", False, error.msg))
    if job.target.running and job.pulls.variables is not None and (job.activates or not job.stale):
        lacking = _pulls.differs(job.daemon.environment(), job.pulls.variables)
        detail = f"it was started without {', '.join(lacking)}" if lacking else "it pulls images as image_pulls says"
        checks.append(Check(f"{job.label}-environment", not lacking, detail))
    return checks


def _left_alone(job: Job) -> bool:
    return any(one.id in _UNTOUCHED for one in job.proposal.findings)


def _what(wanted: Wanted) -> str:
    return "the interface for NRI plugins" if wanted.nri else wanted.name


def _lacking(job: Job, merged: Mapping[str, Any], wanted: Wanted) -> str:
    """What a merged configuration does not show; "" where it shows all."""
    if wanted.nri:
        return _what(wanted) if _nri.off(merged, job.name) else ""
    shown = table(job.daemon.runtimes(merged).get(wanted.name)) if job.daemon else {}
    program = shown.get("runtime_path") or at(shown, "options", "BinaryName")
    return "" if program == wanted.program else f"the runtime {wanted.name} with {wanted.program}"
