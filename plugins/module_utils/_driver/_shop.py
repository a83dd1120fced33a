# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's package manager and repositories, asked what there is: candidates are known before anything is touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from .._host._commands import Runner
from .._host._files import Files
from .._host._journal import Journal
from .._host._packages import Manager, _streams, manager
from .._host._packages._sources import Source, differing
from .._matrix import BRANCHES
from .._plan import ERROR, Action, Finding, errors
from . import _catalog, _repository, _rules
from ._catalog import PackageSet, Refusal
from ._choice import Choice
from ._execute import MODULE, goes_too
from ._found import HostFound
from ._origin import upstream
from ._plan import Packages, Seen, names, plan, settled, version_of
from ._request import Request
from ._types import DNF, Wanted

_NEWEST = "newest"  # in a tree of files, of a package that has versions of its own


class Shop:
    """Looks for packages; writes nothing."""

    def __init__(
        self, found: HostFound, request: Request, runner: Runner, files: Files, journal: Journal, live: bool
    ) -> None:
        self._found, self._request, self._runner = found, request, runner
        self._files, self._journal, self._live = files, journal, live
        self._manager: Optional[Manager] = None
        self._source: Optional[Source] = None
        self._known: Dict[str, List[str]] = {}
        self.changed: Dict[str, Optional[str]] = {}
        self._before: Dict[str, Optional[str]] = {}

    @property
    def manager(self) -> Manager:
        """Raises Failure where the host has none that is known."""
        if self._manager is None:
            self._manager = manager(self._runner, self._files, self._found.system.family)
        return self._manager

    @property
    def name(self) -> str:
        """What the package manager calls the repository of this run."""
        return self._source.name if self._source else ""

    def look(self, choice: Choice) -> Tuple[Packages, Seen]:
        """What is to be done with packages. Raises Failure where the package manager cannot be asked."""
        if choice.wanted is None or choice.packages is None:
            return Packages(), Seen(self._found.system.family, {})
        findings = self._repository()
        seen = self.seen([one.name for one in choice.packages.packages], choice.packages.stream != "")
        branch, asked = choice.wanted.branch, self._request.version
        rules = self._rules(choice)
        version = settled(choice.packages, seen, branch, asked)
        barred = version if _rules.barred(rules, version) else ""
        if barred or not version:
            version, more = version_of(choice.packages, seen, self._candidates(choice, seen), branch, asked, rules)
            findings += more
            findings += [_rules.exchanged(rules, barred)] if barred and version and not asked else []
        result = Packages()
        if version:
            result, seen = self._plan(choice.wanted, version, seen)
            if self._live and result.moves and not (self.changed or result.stream or errors(result.findings)):
                result.findings += goes_too(result, self.manager, self._runner)
        result.findings[:0] = findings
        return result, seen

    def _rules(self, choice: Choice) -> List[_rules.Rule]:
        """Those of the user that are about this host."""
        products = [gpu.name or gpu.product for gpu in self._found.gpus]
        return _rules.of(self._request.rules, [*choice.architectures, *products])

    def _plan(self, wanted: Wanted, version: str, seen: Seen) -> Tuple[Packages, Seen]:
        """Names may carry the version, so the set is made anew for it."""
        try:
            packages = _catalog.packages(self._found.system, replace(wanted, version=version))
        except Refusal as refused:
            return Packages(findings=[Finding(refused.id, ERROR, refused.message, path="version")]), seen
        more = [one.name for one in packages.packages if one.name not in seen.installed]
        if more:
            seen = self.seen([one.name for one in packages.packages], packages.stream != "")
        missing = [one.name for one in packages.packages if one.name not in seen.installed]
        moving = self._moving(packages, seen, version)
        candidates = self._asked([*missing, *moving], version)
        return plan(packages, seen, candidates, version, self._request.hold, self._request.accept), seen

    def _moving(self, packages: PackageSet, seen: Seen, version: str) -> List[str]:
        """Packages that are there, and not in the version that they are to have."""
        loose = {one.name for one in packages.packages if not one.exact}
        moving = [name for name in names(packages, seen) if name not in loose and name in seen.installed]
        return [name for name in moving if upstream(seen.installed[name]) != version]

    def seen(self, more: Sequence[str] = (), streams: bool = False) -> Seen:
        """What is installed and held, of the driver and of ``more``."""
        installed, held = self._found.installed, self._found.held
        others = [name for name in more if name not in installed]
        if self._live:  # all of them: here versions have their epochs
            found = self.manager.installed([*installed, *others])
            installed.update(found)
            there = [name for name in others if name in found]
            held += self.manager.held(there) if there else []
        asked = streams and self._live and self._found.system.family == DNF
        stream = _streams.enabled(self._runner, MODULE) if asked else ""
        return Seen(self._found.system.family, installed, held, self._journal.notes(), stream)

    # --- Candidates ---------------------------------------------------------------------------------------------------

    def _candidates(self, choice: Choice, seen: Seen) -> Mapping[str, Sequence[str]]:
        packages, wanted = choice.packages, choice.wanted
        if packages is None or wanted is None:
            return {}
        assumed = self._request.exact or next(iter(BRANCHES[wanted.branch].releases), "") if not self._live else ""
        return self._asked(names(packages, seen), assumed)

    def _asked(self, wanted: Sequence[str], assumed: str) -> Mapping[str, Sequence[str]]:
        """Versions that there are, by the host's repositories and the one of this run. In a tree of files nobody can be
        asked, and everything is taken to be there in the version ``assumed``."""
        if not self._live:
            return {name: [assumed, _NEWEST] for name in wanted}
        new = [name for name in wanted if name not in self._known]
        if new:
            found = self.manager.candidates(new)
            if self._source and self.changed:
                probed = self.manager.probe(new, self._source.text, self._source.key, self._source.settings)
                found = {name: [*probed.get(name, ()), *found.get(name, ())] for name in {*found, *probed}}
            self._known.update({name: list(found.get(name, ())) for name in new})
        return {name: self._known[name] for name in wanted if self._known[name]}

    # --- The repository -----------------------------------------------------------------------------------------------

    def _repository(self) -> List[Finding]:
        given = dict(self._request.repository)
        if not given:
            return []
        wanted = _repository.Repository(**given)
        self._source, findings = _repository.source(wanted, self._found.system, self._files, self._request.accept)
        if self._source:
            self.changed, self._before = differing(self._source.files(), self._files)
        return list(findings)

    def actions(self) -> List[Action]:
        """Files of the repository."""
        found = []
        for number, (path, text) in enumerate(self.changed.items()):
            verb = "delete" if text is None else "create" if self._before.get(path) is None else "update"
            reason = "an earlier entry or key of the same repository" if text is None else "the repository"
            found.append(Action(f"repository-{number}", verb, path, reason))
        return found

    def diff(self) -> List[Dict[str, str]]:
        """Ansible's diff; keys are told by their name alone."""
        shown = {path: text for path, text in self.changed.items() if _is_text(path)}
        return [
            {"before_header": path, "after_header": path, "before": self._before.get(path) or "", "after": text or ""}
            for path, text in shown.items()
        ]


def _is_text(path: str) -> bool:
    return (
        path.endswith((".list", ".sources", ".repo", ".list.d")) or "/preferences.d/" in path or "/apt.conf.d/" in path
    )
