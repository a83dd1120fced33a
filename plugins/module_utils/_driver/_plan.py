# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which version the driver's packages get, and what that takes: one version, one transaction, all held. Pure.

What is installed and fits stays: a run that is repeated weeks later moves nothing unless a version is asked for.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from .._host._packages import _told
from .._host_state._driver import numbers
from .._plan import ERROR, Action, Finding
from ._catalog import Package, PackageSet
from ._origin import of_driver, upstream
from ._request import LATEST
from ._rules import Rule, barred, refused

INSTALLED = "package "  # notes of the journal: the version before us, "" for none
HELD = "hold "  # whether it was held before us
BROUGHT = "driver packages"  # those that were there before us, with their versions
STREAM = "stream"  # the module stream that was enabled before us

#: Installed before the old driver is touched: they change nothing that runs.
_BEFORE = ("prerequisite", "headers", "pinning")

PINNING = "nvidia-driver-pinning-"  # its name carries the version, which is not known yet

Candidates = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Seen:
    """What is on the host: versions of the driver's packages, which are held, the journal's notes, the stream."""

    manager: str
    installed: Mapping[str, str]
    held: Sequence[str] = ()
    notes: Mapping[str, object] = field(default_factory=dict)
    stream: str = ""


@dataclass
class Packages:
    """What is to be done with packages. ``first`` is installed before the old driver is touched, ``pins`` and
    ``remove`` are the one transaction; ``version`` is NVIDIA's; ``hold_all``: dependencies are held too."""

    version: str = ""
    first: Dict[str, str] = field(default_factory=dict)
    pins: Dict[str, str] = field(default_factory=dict)
    remove: List[str] = field(default_factory=list)
    unhold: List[str] = field(default_factory=list)
    hold: List[str] = field(default_factory=list)
    release: List[str] = field(default_factory=list)
    hold_all: bool = False
    stream: str = ""
    actions: List[Action] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)

    @property
    def moves(self) -> bool:
        """Whether a package is installed or removed."""
        return bool(self.first or self.pins or self.remove)


def _exact(wanted: PackageSet) -> List[str]:
    return [one.name for one in wanted.packages if one.exact]


def names(wanted: PackageSet, seen: Seen) -> List[str]:
    """The packages whose versions have to be known: those of the set, and those that move with them."""
    siblings = [name for name in of_driver(seen.installed) if not _leaves(name, wanted)]
    return list(dict.fromkeys([one.name for one in wanted.packages] + siblings))


def settled(wanted: PackageSet, seen: Seen, branch: int, asked: str) -> str:
    """NVIDIA's version of what is installed, where the whole set is there and is what is asked for; else ""."""
    there = {upstream(seen.installed.get(name, "")) for name in _exact(wanted)}
    version = there.pop() if len(there) == 1 else ""
    missing = [one.name for one in wanted.packages if one.name not in seen.installed and one.role != "pinning"]
    leaving = [name for name in _leaving(wanted, seen) if not name.startswith(PINNING)]
    others = [one for name, one in of_driver(seen.installed).items() if upstream(one) != version]
    if not version or missing or others or leaving or asked == LATEST:
        return ""
    return version if asked == version or (not asked and numbers(version)[0] == branch) else ""


def version_of(
    wanted: PackageSet, seen: Seen, candidates: Candidates, branch: int, asked: str, rules: Sequence[Rule] = ()
) -> Tuple[str, List[Finding]]:
    """NVIDIA's version that all packages can have, and rules allow; "" with a finding where there is none."""
    exact = _exact(wanted)
    have = {name: _versions(name, seen, candidates) for name in exact}
    common = [one for one in have.get(exact[0], []) if all(one in have[name] for name in exact)] if exact else []
    common = [one for one in common if numbers(one)[0] == branch]
    exact_one = asked if asked != LATEST else ""
    if not common or (exact_one and exact_one not in common):
        return "", [_missing(have, exact_one or f"{branch}.", wanted)]
    fits = [one for one in ([exact_one] if exact_one else common) if not barred(rules, one)]
    there = {upstream(seen.installed[name]) for name in exact if name in seen.installed}
    if not asked and len(there) == 1 and there & set(fits):
        return there.pop(), []
    return (max(fits, key=numbers), []) if fits else ("", [refused(rules, [exact_one] if exact_one else common)])


def _versions(name: str, seen: Seen, candidates: Candidates) -> List[str]:
    """NVIDIA's versions of a package that can be had, or is there."""
    full = [*candidates.get(name, ()), *([seen.installed[name]] if name in seen.installed else [])]
    return list(dict.fromkeys(filter(None, map(upstream, full))))


def _missing(have: Mapping[str, Sequence[str]], asked: str, wanted: PackageSet) -> Finding:
    """The repositories lack some packages of the set; a mirror that was made by hand, most often."""
    lacking = [name for name, versions in have.items() if not [one for one in versions if one.startswith(asked)]]
    what = f"branch {asked[:-1]}" if asked.endswith(".") else f"version {asked}"
    if lacking:
        detail = f"{', '.join(lacking)}: not to be had in {what}"
    else:
        detail = f"the packages are not to be had in one version of {what}"
        full = {version for versions in have.values() for version in versions if version.startswith(f"{asked}.")}
        if full:
            detail = f"{asked} is no full version; there are {', '.join(sorted(full, key=numbers, reverse=True)[:4])}"
    remedy = f"Add what is missing to the repository, or ask for a version that it has of all of them{_enable(wanted)}"
    return Finding("not_in_repository", ERROR, f"{detail} ({_there(have)})", path="version", remedy=remedy)


def _there(have: Mapping[str, Sequence[str]]) -> str:
    """What the repositories have instead."""
    told = "; ".join(f"{name}: {', '.join(versions[:4]) or 'none'}" for name, versions in have.items())
    return f"there are {told}" if any(have.values()) else "the repositories of this host have no version of them"


def _enable(wanted: PackageSet) -> str:
    """Repositories of the distribution that have to be on."""
    return f". The distribution's {', '.join(wanted.repositories)} have to be enabled" if wanted.repositories else ""


def plan(
    wanted: PackageSet, seen: Seen, candidates: Candidates, version: str, hold: bool, accept: Sequence[str] = ()
) -> Packages:
    """What brings the packages to the version. Nothing is to be changed where a finding is an error."""
    result = Packages(version)
    lacking = []
    for one in wanted.packages:
        full = _full(one, seen, candidates, version)
        if full is None:
            lacking.append(one)
        elif seen.installed.get(one.name) != full:
            (result.first if one.role in _BEFORE else result.pins)[one.name] = full
    if lacking:
        have = {one.name: list(candidates.get(one.name, ())) for one in lacking}
        result.findings.append(_not_there(lacking, have, version, wanted))
    result.remove = _leaving(wanted, seen)
    _siblings(result, wanted, seen, candidates)
    if wanted.stream and wanted.stream != seen.stream:
        result.stream = wanted.stream
    _holds(result, wanted, seen, hold)
    foreign = [name for name in result.unhold if not _ours(name, seen)]
    if foreign and "held" not in accept:
        told = ", ".join(f"{name} at {seen.installed.get(name, '')}" for name in foreign)
        remedy = "Ask whoever held them, or accept held: they are moved and held again"
        result.findings.append(Finding("held", ERROR, f"held by somebody else: {told}", "", "accept", remedy, "held"))
    result.actions = _actions(result, seen)
    return result


def _full(one: Package, seen: Seen, candidates: Candidates, version: str) -> Optional[str]:
    """The full version that a package gets; None where there is none."""
    there = seen.installed.get(one.name, "")
    if there and (not one.exact or upstream(there) == version):
        return there
    return next((full for full in candidates.get(one.name, ()) if not one.exact or upstream(full) == version), None)


def _not_there(
    lacking: Sequence[Package], have: Mapping[str, Sequence[str]], version: str, wanted: PackageSet
) -> Finding:
    exact = f" in version {version}" if any(one.exact for one in lacking) else ""
    detail = f"{', '.join(one.name for one in lacking)}: not to be had{exact} ({_there(have)})"
    headers = any(one.role == "headers" for one in lacking)
    remedy = "Add what is missing to the repository" + (
        ", or boot a kernel whose headers it has" if headers else ", or ask for a version that it has"
    )
    if not wanted.build and any(one.role == "kernel" for one in lacking):
        remedy = (
            "Nobody has built the modules for this kernel: boot one that has them, or ask for a source that builds them"
        )
        remedy += " on the host (distribution or nvidia)"
    return Finding("not_in_repository", ERROR, detail, path="repository", remedy=remedy + _enable(wanted))


def _leaves(name: str, wanted: PackageSet) -> bool:
    members = {one.name for one in wanted.packages}
    return name not in members and any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted.leaves)


def _leaving(wanted: PackageSet, seen: Seen) -> List[str]:
    return [name for name in seen.installed if _leaves(name, wanted)]


def _siblings(result: Packages, wanted: PackageSet, seen: Seen, candidates: Candidates) -> None:
    """Packages of the driver that are there beside the set move with it: left out, they would block it."""
    members = {one.name for one in wanted.packages}
    for name, there in of_driver(seen.installed).items():
        if name in members or name in result.remove or upstream(there) == result.version:
            continue
        full = next((one for one in candidates.get(name, ()) if upstream(one) == result.version), "")
        if full:
            result.pins[name] = full


# --- Holds ------------------------------------------------------------------------------------------------------------


def _ours(name: str, seen: Seen) -> bool:
    """Whether the hold of a package is one that we set."""
    return seen.notes.get(HELD + name) is False


def _holds(result: Packages, wanted: PackageSet, seen: Seen, hold: bool) -> None:
    moved = [*result.first, *result.pins, *result.remove]
    result.unhold = [name for name in moved if name in seen.held]
    staying = {**seen.installed, **result.first, **result.pins}
    there = [name for name in holds(staying, wanted) if name not in result.remove]
    result.hold_all = hold
    if hold:
        result.hold = [name for name in there if name not in seen.held or name in result.unhold]
        return
    result.hold = [name for name in result.unhold if name not in result.remove and not _ours(name, seen)]
    result.release = [name for name in there if name in seen.held and _ours(name, seen) and name not in result.unhold]


def holds(installed: Mapping[str, str], wanted: PackageSet) -> List[str]:
    """Packages to be held: those that the set names, and all others of the driver, since they depend on them."""
    driver = of_driver(installed)
    return [name for name in installed if name in driver or any(fnmatch.fnmatchcase(name, one) for one in wanted.holds)]


# --- What is shown ----------------------------------------------------------------------------------------------------


def _actions(result: Packages, seen: Seen) -> List[Action]:
    found = []
    if result.stream:
        reason = f"the module stream of the branch{f', instead of {seen.stream}' if seen.stream else ''}"
        found.append(Action("stream", "enable", f"nvidia-driver:{result.stream}", reason, before=seen.stream or None))
    for name, version in {**result.first, **result.pins}.items():
        why = "the driver needs it" if name in result.first else "it is not there"
        found.append(_told.move("package", seen.manager, name, seen.installed.get(name, ""), version, why))
    for name in result.remove:
        reason = "it cannot be beside what is wanted"
        found.append(Action(f"package-{name}", "remove", name, reason, before=seen.installed[name]))
    for name in result.hold:
        if name not in seen.held:
            found.append(Action(f"hold-{name}", "hold", name, "updates of the host leave it alone"))
    for name in result.release:
        found.append(Action(f"hold-{name}", "unhold", name, "it is not to be held"))
    return found
