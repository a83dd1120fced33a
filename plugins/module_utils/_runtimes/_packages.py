# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The toolkit's packages: which version all of them should have, what that takes, and what speaks against it. Pure.

Since 1.18 the four depend on each other's exact version, and a pin of one alone lets the others move on before that.
So they are planned as one: one version, one transaction, all held.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._host._packages import _told, compare
from .._matrix import LIMITS
from .._plan import ERROR, INFO, WARNING, Action, Finding
from ._repository import Repository

BASE = "nvidia-container-toolkit-base"
NAMES = ("nvidia-container-toolkit", BASE, "libnvidia-container-tools", "libnvidia-container1")
OBSOLETE = ("nvidia-docker2", "nvidia-container-runtime")
FLOOR = LIMITS["toolkit"].oldest
LATEST = "latest"

INSTALLED = "package "  # notes of the journal: the version before us, "" for none
HELD = "hold "  # whether it was held before us


@dataclass(frozen=True)
class Wanted:
    """What a user asks for. ``profile`` full or base (CDI alone); ``version`` "", latest, 1.20.2 or 1.20.2-1.

    ``accept``: findings that do not stop the run: insecure_version, held, unsigned_repository.
    """

    profile: str = "full"
    version: str = ""
    hold: bool = True
    repository: Repository = field(default_factory=Repository)
    accept: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """What is on a host. ``files``: repository files that differ, with the text they should have (None: to remove).

    ``before`` is the text of each now, ``notes`` those of the journal. ``candidates``: None where nobody had to ask.
    """

    manager: str
    installed: Mapping[str, str]
    held: Sequence[str]
    candidates: Optional[Mapping[str, Sequence[str]]] = None
    files: Mapping[str, Optional[str]] = field(default_factory=dict)
    before: Mapping[str, Optional[str]] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    journal: bool = False  # something of it is on the disk

    def ours(self, name: str) -> bool:
        """Whether the hold of a package is one that we set."""
        return self.notes.get(HELD + name) is False


@dataclass
class Plan:
    """Actions and findings to show, and what ``apply`` needs of them."""

    actions: List[Action] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)
    files: Dict[str, Optional[str]] = field(default_factory=dict)
    pins: Dict[str, str] = field(default_factory=dict)
    downgrade: bool = False
    unhold: List[str] = field(default_factory=list)
    hold: List[str] = field(default_factory=list)
    remove: List[str] = field(default_factory=list)
    version: str = ""
    give_back: bool = False


def members(wanted: Wanted, installed: Mapping[str, str]) -> List[str]:
    """The packages that have to be of one version: those of the profile, and siblings that are there anyway."""
    return [name for name in NAMES if wanted.profile == "full" or name == BASE or name in installed]


def settled(wanted: Wanted, installed: Mapping[str, str]) -> str:
    """The version that is installed of all of them, where that is what is wanted; "" where something has to be done."""
    versions = {installed.get(name, "") for name in members(wanted, installed)}
    version = versions.pop() if len(versions) == 1 else ""
    return version if wanted.version != LATEST and (not wanted.version or _is(version, wanted.version)) else ""


def plan(seen: Seen, wanted: Wanted) -> Plan:
    """What brings the host to what is wanted. Nothing is to be changed where a finding is an error."""
    result = Plan(files=dict(seen.files), findings=list(seen.findings))
    result.findings += _mixed(seen)
    result.version = settled(wanted, seen.installed)
    if not result.version and seen.candidates is not None:
        result.version, findings = _choose(seen, wanted)
        result.findings += findings
    if result.version:
        result.findings += _too_old(result.version, seen, wanted)
        _install(result, seen, wanted)
        _holds(result, seen, wanted)
    result.remove = [name for name in OBSOLETE if name in seen.installed and result.version]
    result.actions = _actions(result, seen)
    return result


def plan_absent(seen: Seen) -> Plan:
    """The way back: packages that were not there before us go, holds and repository files are as they were."""
    before = {name: str(seen.notes[INSTALLED + name]) for name in NAMES if INSTALLED + name in seen.notes}
    result = Plan(give_back=True, findings=list(seen.findings))
    result.remove = [name for name, version in before.items() if not version and name in seen.installed]
    stays = {
        name: version for name, version in before.items() if version and seen.installed.get(name, version) != version
    }
    if stays:
        told = ", ".join(f"{name} was {version}" for name, version in stays.items())
        detail = f"was there before this module came, and stays at its version now ({told})"
        remedy = "Ask for the earlier version, where it should come back"
        result.findings.append(Finding("version_stays", INFO, detail, target=", ".join(stays), remedy=remedy))
    for name in NAMES:
        was = seen.notes.get(HELD + name)
        if was is False and name in seen.held:
            result.unhold.append(name)
        if was is True and name not in seen.held and name in seen.installed and name not in result.remove:
            result.hold.append(name)
    result.files = dict(seen.files)
    result.actions = _actions(result, seen)
    if seen.journal and not result.actions:
        reason = "an earlier run did not end, or somebody else took the packages away"
        result.actions.append(Action("journal", "forget", "what was noted of the packages", reason))
    return result


# --- Which version ----------------------------------------------------------------------------------------------------


def _is(version: str, asked: str) -> bool:
    """Whether a full version is the one that was asked for, with its release or without."""
    return version == asked or ("-" not in asked and version.rpartition("-")[0] == asked)


def _choose(seen: Seen, wanted: Wanted) -> Tuple[str, List[Finding]]:
    """The version to install; "" with an error where there is none."""
    names = members(wanted, seen.installed)
    have = {name: list((seen.candidates or {}).get(name, ())) for name in names}
    if wanted.version and wanted.version != LATEST:
        # An installed version needs no repository.
        for name in names:
            if _is(seen.installed.get(name, ""), wanted.version):
                have[name].append(seen.installed[name])
        return _asked(wanted.version, have)
    newest = max((seen.installed[name] for name in names if name in seen.installed), key=_order(seen), default="")
    common = [one for one in have[names[0]] if all(one in have[name] for name in names)]
    stay = all(newest in have[name] or seen.installed.get(name) == newest for name in names)
    if wanted.version != LATEST and newest and stay:
        return newest, []
    if common and compare(seen.manager, common[0], newest or common[0]) >= 0:
        return common[0], []
    if newest and all(seen.installed.get(name) == newest for name in names):
        return newest, []  # the repository has nothing newer
    return "", [_no_common(have, newest)]


def _asked(asked: str, have: Mapping[str, List[str]]) -> Tuple[str, List[Finding]]:
    fitting = {name: [one for one in versions if _is(one, asked)] for name, versions in have.items()}
    common = [one for one in next(iter(fitting.values())) if all(one in versions for versions in fitting.values())]
    if common:
        return common[0], []
    missing = [name for name, versions in fitting.items() if not versions] or list(fitting)
    return "", [_missing(missing, have, f"version {asked}", "version")]


def _no_common(have: Mapping[str, List[str]], newest: str) -> Finding:
    missing = [name for name, versions in have.items() if not versions]
    if missing:
        return _missing(missing, have, "no version at all" if not newest else f"{newest} or newer", "repository")
    return _missing(
        list(have), have, "one version of all of them" + (f" from {newest} on" if newest else ""), "repository"
    )


def _missing(names: Sequence[str], have: Mapping[str, List[str]], what: str, path: str) -> Finding:
    """A repository that lacks one of the four; a mirror that was made of names by hand, most often."""
    told = "; ".join(f"{name}: {', '.join(have[name][:5]) or 'none'}" for name in have)
    detail = f"{', '.join(names)}: not to be had in {what} (in the repositories are {told})"
    if what.startswith("no "):
        detail = f"{', '.join(names)}: not in the host's repositories (there are {told})"
    remedy = "Add what is missing to the repository, or ask for a version that it has of all of them"
    return Finding("toolkit_not_in_repository", ERROR, detail, path=path, remedy=remedy)


def _order(seen: Seen) -> Any:
    def order(one: str, other: str) -> int:
        return compare(seen.manager, one, other)

    return cmp_to_key(order)


# --- What speaks against it -------------------------------------------------------------------------------------------


def _mixed(seen: Seen) -> List[Finding]:
    there = {name: seen.installed[name] for name in NAMES if name in seen.installed}
    if len(set(there.values())) < 2:
        return []
    told = ", ".join(f"{name} {version}" for name, version in there.items())
    detail = f"are installed in different versions: {told}"
    return [
        Finding("mixed_versions", WARNING, detail, target="the toolkit's packages", remedy="They get one version now")
    ]


def _too_old(version: str, seen: Seen, wanted: Wanted) -> List[Finding]:
    if compare(seen.manager, version.rpartition("-")[0], FLOOR) >= 0:
        return []
    taken = "insecure_version" in wanted.accept
    detail = f"{version} has known holes by which a container takes over its host (CVE-2025-23266 and before)"
    remedy = "" if taken else f"Ask for version {FLOOR} or newer"
    severity = WARNING if taken else ERROR
    return [Finding("insecure_version", severity, detail, path="version", remedy=remedy, accept="insecure_version")]


def _install(result: Plan, seen: Seen, wanted: Wanted) -> None:
    names = members(wanted, seen.installed)
    moved = [name for name in names if seen.installed.get(name) != result.version]
    if not moved:
        return
    # All of them are named: what is left out is free to move.
    result.pins = dict.fromkeys(names, result.version)
    result.downgrade = any(
        compare(seen.manager, seen.installed[name], result.version) > 0 for name in moved if name in seen.installed
    )
    result.unhold = [name for name in names if name in seen.held]
    foreign = [name for name in moved if name in seen.held and not seen.ours(name)]
    if foreign and "held" not in wanted.accept:
        detail = f"{', '.join(foreign)}: held at {seen.installed.get(foreign[0], 'no version')} by somebody else"
        remedy = f"Ask whoever held it, or accept it: it is moved to {result.version} then, and held there"
        result.findings.append(Finding("held", ERROR, detail, path="version", remedy=remedy, accept="held"))


def _holds(result: Plan, seen: Seen, wanted: Wanted) -> None:
    names = members(wanted, seen.installed)
    if wanted.hold:
        result.hold = [name for name in names if name not in seen.held or name in result.unhold]
        return
    # What somebody else held is held again.
    result.hold = [name for name in result.unhold if not seen.ours(name)]
    result.unhold += [name for name in names if name in seen.held and seen.ours(name) and name not in result.unhold]


# --- What is shown ----------------------------------------------------------------------------------------------------


def _actions(result: Plan, seen: Seen) -> List[Action]:
    found = []
    for number, (path, text) in enumerate(result.files.items()):
        verb = "delete" if text is None else "update" if seen.before.get(path) is not None else "create"
        reason = "an earlier file of the same repository, with another key" if text is None else "the repository"
        if result.give_back:
            verb, reason = "restore", "as it was found"
        found.append(Action(f"repository-{number}", verb, path, reason))
    for name, version in result.pins.items():
        if seen.installed.get(name) != version:
            before = seen.installed.get(name, "")
            found.append(_told.move("install", seen.manager, name, before, version, "it is not there"))
    for name in result.hold:
        if name not in seen.held:
            found.append(Action(f"hold-{name}", "hold", name, "updates leave it alone"))
    for name in result.unhold:
        if name not in result.hold:
            reason = "it is not to be held" if not result.give_back else "it was not held before"
            found.append(Action(f"unhold-{name}", "unhold", name, reason))
    for name in result.remove:
        reason = "it was not there before" if result.give_back else "the toolkit has taken its place"
        found.append(Action(f"remove-{name}", "remove", name, reason, before=seen.installed[name]))
    return found
