# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A set of packages that have one version together: what it takes to have them, and the way back.

    asked = Asked("DCGM", ("datacenter-gpu-manager-4-core", "datacenter-gpu-manager-4-cuda13"), version="4.6.0")
    todo = plan(look(manager, journal.notes(), asked), asked)
    done = apply(todo, manager, journal, progress)
    checks = prove(todo, manager)

What was there before is in notes of the component's journal, so one component has one such set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .._plan import ERROR, INFO, WARNING, Action, Check, Failure, Finding
from ._commands import Runner
from ._journal import Journal
from ._packages import Manager, _told, compare

LATEST = "latest"
_INSTALLED = "package "  # notes: the version before us, "" for none
_BEFORE = "packages before"  # notes: names of all packages before those of ours came
_HELD = "hold "  # notes: whether it was held before us

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """``title`` in sentences; ``names`` get one version; ``leaves`` go first, where they are there.

    ``version``: "" keeps what is there, else takes the newest; latest; or one with or without epoch and release.
    ``option``: prefix of the module's options in findings. ``accept``: held.
    """

    title: str
    names: Tuple[str, ...]
    version: str = ""
    hold: bool = True
    leaves: Tuple[str, ...] = ()
    option: str = "version"
    accept: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """``candidates`` is None where nobody had to ask; ``notes`` are the journal's."""

    manager: str
    installed: Mapping[str, str]
    held: Sequence[str] = ()
    candidates: Optional[Mapping[str, Sequence[str]]] = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    def ours(self, name: str) -> bool:
        """Whether the hold of a package is one that we set."""
        return self.notes.get(_HELD + name) is False


@dataclass
class Plan:
    """Actions and findings to show, and what ``apply`` needs of them."""

    title: str
    actions: List[Action] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)
    leave: List[str] = field(default_factory=list)
    pins: Dict[str, str] = field(default_factory=dict)
    downgrade: bool = False
    unhold: List[str] = field(default_factory=list)
    hold: List[str] = field(default_factory=list)
    version: str = ""
    give_back: bool = False


def noted(notes: Mapping[str, Any]) -> List[str]:
    """Packages that the notes tell of."""
    return [key[len(_INSTALLED) :] for key in notes if key.startswith(_INSTALLED)]


# --- Plan -------------------------------------------------------------------------------------------------------------


def look(manager: Manager, notes: Mapping[str, Any], asked: Asked) -> Seen:
    """What is on the host; reads only. Raises Failure where the package manager cannot be read."""
    every = [*asked.names, *asked.leaves]
    installed = manager.installed(every)
    held = manager.held([name for name in every if name in installed])
    candidates = None if _settled(asked, installed) else manager.candidates(list(asked.names))
    return Seen(manager.name, installed, held, candidates, notes)


def look_absent(manager: Manager, notes: Mapping[str, Any]) -> Seen:
    """What is on the host of what is to go, or to come back."""
    names = noted(notes)
    installed = manager.installed(names)
    gone = [name for name in names if notes[_INSTALLED + name] and name not in installed]
    candidates = manager.candidates(gone) if gone else {}
    return Seen(manager.name, installed, manager.held(list(installed)), candidates, notes)


def plan(seen: Seen, asked: Asked) -> Plan:
    """What brings the host to what is asked for. Nothing is to be changed where a finding is an error."""
    result = Plan(asked.title, version=_settled(asked, seen.installed))
    if not result.version:
        result.version, problem = _choose(seen, asked)
        result.findings += [problem] if problem else []
    result.leave = [name for name in asked.leaves if name in seen.installed and result.version]
    if result.version:
        _install(result, seen, asked)
        _holds(result, seen, asked)
    _tell(result, seen)
    return result


def plan_absent(title: str, seen: Seen) -> Plan:
    """The way back: packages that were not there before go, those that had to go come back, holds are as they were."""
    before = {name: str(seen.notes[_INSTALLED + name]) for name in noted(seen.notes)}
    result = Plan(title, give_back=True)
    result.leave = [name for name, version in before.items() if not version and name in seen.installed]
    for name, version in before.items():
        if version and name not in seen.installed:
            _bring_back(result, name, version, (seen.candidates or {}).get(name, ()))
        elif version and seen.installed.get(name) != version:
            detail = f"was {version} before, and stays at {seen.installed[name]}"
            result.findings.append(Finding("version_stays", INFO, detail, target=name))
    for name in before:
        was, is_held = seen.notes.get(_HELD + name), name in seen.held
        stays = (name in seen.installed and name not in result.leave) or name in result.pins
        if was is False and is_held:
            result.unhold.append(name)
        if was is True and not is_held and stays:
            result.hold.append(name)
    _tell(result, seen)
    return result


def _bring_back(result: Plan, name: str, version: str, candidates: Sequence[str]) -> None:
    if version in candidates:
        result.pins[name] = version
        return
    detail = f"was {version} before, and is in no repository of the host any more"
    result.findings.append(Finding("cannot_come_back", WARNING, detail, target=name, remedy="Install it by hand"))


def plain(version: str) -> str:
    """A version without epoch and release."""
    return version.rpartition(":")[2].partition("-")[0]


def _is(version: str, asked: str) -> bool:
    """Whether a full version is the one that was asked for, with its epoch and release or without."""
    return asked in (version, version.rpartition(":")[2], plain(version))


def _settled(asked: Asked, installed: Mapping[str, str]) -> str:
    """The version that all of them have, where that is what is asked for; "" where something has to be done."""
    versions = {installed.get(name, "") for name in asked.names}
    version = versions.pop() if len(versions) == 1 else ""
    return version if asked.version != LATEST and (not asked.version or _is(version, asked.version)) else ""


def _choose(seen: Seen, asked: Asked) -> Tuple[str, Optional[Finding]]:
    """The version to install; "" with an error where there is none."""
    have = {name: list((seen.candidates or {}).get(name, ())) for name in asked.names}
    there = [seen.installed[name] for name in asked.names if name in seen.installed]
    newest = max(there, key=_order(seen.manager), default="")
    for name, versions in have.items():
        versions += [seen.installed[name]] if seen.installed.get(name, "") not in ("", *versions) else []
    common = [one for one in have[asked.names[0]] if all(one in versions for versions in have.values())]
    common.sort(key=_order(seen.manager), reverse=True)
    if asked.version not in ("", LATEST):
        common = [one for one in common if _is(one, asked.version)]
    elif asked.version != LATEST and newest in common:
        common = [newest]
    if common:
        return common[0], None
    what = f"version {asked.version}" if asked.version not in ("", LATEST) else "one version of all of them"
    told = "; ".join(f"{name}: {', '.join(versions[:4]) or 'none'}" for name, versions in have.items())
    detail = f"{asked.title} is not to be had in {what} from the host's repositories (there are {told})"
    remedy = "Add NVIDIA's repository or a mirror of it, or ask for a version that it has of all of them"
    return "", Finding("not_in_repository", ERROR, detail, path=asked.option, remedy=remedy)


def _order(manager: str) -> Any:
    def order(one: str, other: str) -> int:
        return compare(manager, one, other)

    return cmp_to_key(order)


def _install(result: Plan, seen: Seen, asked: Asked) -> None:
    moved = [name for name in asked.names if seen.installed.get(name) != result.version]
    if not moved:
        return
    result.pins = dict.fromkeys(asked.names, result.version)
    result.downgrade = any(
        compare(seen.manager, seen.installed[name], result.version) > 0 for name in moved if name in seen.installed
    )
    result.unhold = [name for name in (*asked.names, *result.leave) if name in seen.held]
    foreign = [name for name in (*moved, *result.leave) if name in seen.held and not seen.ours(name)]
    if foreign and "held" not in asked.accept:
        detail = f"{', '.join(foreign)}: held at {seen.installed[foreign[0]]} by somebody else"
        remedy = f"Ask whoever held it, or accept it: {asked.title} goes to {result.version} then, and is held there"
        result.findings.append(Finding("held", ERROR, detail, path=asked.option, remedy=remedy, accept="held"))


def _holds(result: Plan, seen: Seen, asked: Asked) -> None:
    if asked.hold:
        result.hold = [name for name in asked.names if name not in seen.held or name in result.unhold]
        return
    result.hold = [name for name in result.unhold if not seen.ours(name) and name not in result.leave]
    result.unhold += [
        name for name in asked.names if name in seen.held and seen.ours(name) and name not in result.unhold
    ]


def _tell(result: Plan, seen: Seen) -> None:
    """The plan as actions."""
    for name in result.leave:
        reason = "it was not there before" if result.give_back else f"{result.title} conflicts with it"
        result.actions.append(Action(f"remove-{name}", "remove", name, reason, before=seen.installed[name]))
    for name, version in result.pins.items():
        if seen.installed.get(name) != version:
            why = "it was there before" if result.give_back else "it is not there"
            result.actions.append(_told.move("install", seen.manager, name, seen.installed.get(name, ""), version, why))
    for name in result.hold:
        if name not in seen.held:
            result.actions.append(Action(f"hold-{name}", "hold", name, "updates leave it alone"))
    for name in result.unhold:
        if name not in result.hold and name not in result.leave:
            reason = "it was not held before" if result.give_back else "it is not to be held"
            result.actions.append(Action(f"unhold-{name}", "unhold", name, reason))


# --- Act --------------------------------------------------------------------------------------------------------------


def apply(todo: Plan, manager: Manager, journal: Journal, progress: Progress) -> List[str]:
    """Carry out a plan. Returns ids of its actions. Raises Failure with those that were done in ``done``."""
    done: List[str] = []

    def did(kind: str) -> None:
        done.extend(action.id for action in todo.actions if action.id.startswith(kind))

    try:
        if not todo.give_back:
            _remember(todo, manager, journal)
        if todo.unhold:
            manager.unhold(todo.unhold)
        did("unhold-")
        if todo.leave:
            progress(f"{manager.name}: removing {', '.join(todo.leave)}")
            manager.remove(todo.leave, purge=todo.give_back)
        did("remove-")
        if todo.pins:
            progress(f"{manager.name}: installing {todo.title}, {todo.version or ', '.join(todo.pins.values())}")
            _put(todo, manager)
        did("install-")
        if todo.hold:
            manager.hold(todo.hold)
        did("hold-")
    except Failure as failure:
        raise Failure(failure.msg, done=done) from None
    return done


def _remember(todo: Plan, manager: Manager, journal: Journal) -> None:
    """What was so before us, written down before it changes."""
    touched = list(dict.fromkeys([*todo.pins, *todo.leave, *todo.hold, *todo.unhold]))
    if not touched:
        return
    installed = manager.installed(touched)
    held = manager.held(list(installed))
    for name in touched:
        journal.note(_INSTALLED + name, installed.get(name, ""))
        journal.note(_HELD + name, name in held)


def _put(todo: Plan, manager: Manager) -> None:
    try:
        manager.install(todo.pins, downgrade=todo.downgrade)
    except Failure:
        # As it was found, so that the next update of the host does not move what this run could not.
        there = manager.installed(todo.unhold)
        if there:
            manager.hold(list(there))
        raise


class Company:
    """Packages that come along as dependencies, so that they can go with those that were asked for.

    Use it as a context manager around ``apply``; a run that was killed inside is caught up by the next.
    """

    def __init__(self, manager: Manager, runner: Runner, journal: Journal) -> None:
        self._manager, self._runner, self._journal = manager, runner, journal

    def __enter__(self) -> Company:
        self.catch_up()
        self._journal.note(_BEFORE, sorted(self._everything()))
        return self

    def __exit__(self, *error: object) -> None:
        self._note()

    def catch_up(self) -> None:
        """Note what came with a run that was killed."""
        if _BEFORE in self._journal.notes():
            self._note()

    def _note(self) -> None:
        before = set(self._journal.notes()[_BEFORE])
        for name in sorted(self._everything() - before):
            self._journal.note(_INSTALLED + name, "")
        self._journal.forget(_BEFORE)

    def _everything(self) -> Set[str]:
        argv = ["dpkg-query", "-W", "-f", r"${db:Status-Abbrev}\t${Package}\n"]
        if self._manager.name != "apt":
            argv = ["rpm", "-qa", "--qf", r"ii\t%{NAME}\n"]
        lines = [line.split("\t") for line in self._runner.run(argv, timeout=60).out.splitlines()]
        return {line[1] for line in lines if len(line) == 2 and line[0][1:2] == "i"}


def prove(todo: Plan, manager: Manager) -> List[Check]:
    """The end state, as the package manager tells it now."""
    checks = []
    installed = manager.installed([*todo.pins, *todo.leave])
    if todo.pins:
        wrong = {name: installed.get(name, "not installed") for name in todo.pins}
        wrong = {name: version for name, version in wrong.items() if version != todo.pins[name]}
        told = ", ".join(f"{name} {version}" for name, version in (wrong or todo.pins).items())
        checks.append(Check("packages-version", not wrong, told))
    return checks + _told.proved(todo.hold, todo.leave, installed, manager)
