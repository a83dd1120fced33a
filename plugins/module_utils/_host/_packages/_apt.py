# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""apt and dpkg, of Debian and Ubuntu. Seen: apt 2.6 and 3.0."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Sequence, Tuple

from ..._plan import Failure
from .._commands import CommandFailed, Runner
from ._shared import INSTALL, READ, REFRESH, WAIT, checked, pinned, scratch, told
from ._versions import newest_first

_FORMAT = r"${Package}\t${Version}\t${db:Status-Abbrev}\t${Architecture}\n"
ENV = {
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTCHANGES_FRONTEND": "none",
    "UCF_FORCE_CONFFOLD": "1",
    "NEEDRESTART_SUSPEND": "1",  # it would restart containerd or docker, with no regard for what runs there
}
LOCK = ("-o", f"DPkg::Lock::Timeout={WAIT}")
KEEP = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
_WHY = ("E:", "dpkg: error")
_STANZA = re.compile(r"^Types:", re.MULTILINE | re.IGNORECASE)  # of the form deb822; no line of a list begins so


class Apt:
    """``Manager`` by apt-get, apt-cache, apt-mark and dpkg-query."""

    name = "apt"

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def installed(self, names: Sequence[str]) -> Dict[str, str]:
        if not names:
            return {}
        argv = ["dpkg-query", "-W", "-f", _FORMAT, *checked(names)]
        done = self._runner.run(argv, check=False, timeout=READ)
        if done.rc not in (0, 1):
            raise CommandFailed(f"dpkg cannot tell what is installed: {done.words()}", done)
        found: Dict[str, List[Tuple[str, str]]] = {}
        for line in done.out.splitlines():
            name, version, status, architecture = line.split("\t")
            if status[1:2] in ("i", "W", "t"):  # installed; the last two wait for a trigger of another package
                found.setdefault(name, []).append((version, architecture))
        return {name: self._native(found[name]) for name in names if name in found}

    def _native(self, versions: List[Tuple[str, str]]) -> str:
        """Of a package that is installed for two architectures: the one of this host."""
        if len(versions) == 1:
            return versions[0][0]
        native = self._runner.run(["dpkg", "--print-architecture"], timeout=READ).out.strip()
        return next((version for version, one in versions if one in (native, "all")), versions[0][0])

    def candidates(self, names: Sequence[str]) -> Dict[str, List[str]]:
        if not names:
            return {}
        return self._madison(names, ())

    def probe(self, names: Sequence[str], source: str, key: bytes, settings: str = "") -> Dict[str, List[str]]:
        name = "source.sources" if _STANZA.search(source) else "source.list"  # apt goes by the ending
        with scratch(source, key, name) as folder:
            places = {"State::lists": "lists", "Cache": "cache", "Etc::sourcelist": name}
            options = [f"-oDir::{name}={folder}/{place}" for name, place in places.items()]
            # The folder is for root alone.
            if settings:
                with open(f"{folder}/settings", "w", encoding="utf-8") as file:
                    file.write(settings)
                options += ["-c", f"{folder}/settings"]
            options += ["-oDir::Etc::sourceparts=-", "-oAPT::Sandbox::User=root", "-oAPT::Update::Error-Mode=any"]
            done = self._runner.run(["apt-get", "update", "-q", *options], check=False, timeout=REFRESH, env=ENV)
            if done.rc:
                raise CommandFailed(f"apt cannot read the repository: {told(done, _WHY)}", done)
            return self._madison(names, options)

    def _madison(self, names: Sequence[str], options: Sequence[str]) -> Dict[str, List[str]]:
        done = self._runner.run(["apt-cache", *options, "madison", *checked(names)], check=False, timeout=READ)
        if done.rc:
            raise CommandFailed(f"apt cannot read its lists of packages: {told(done, _WHY)}", done)
        found: Dict[str, List[str]] = {}
        for line in done.out.splitlines():
            columns = [column.strip() for column in line.split("|")]
            if len(columns) == 3 and not columns[2].endswith("Sources"):
                found.setdefault(columns[0], []).append(columns[1])
        return {name: newest_first(self.name, found[name]) for name in names if name in found}

    def refresh(self, repository: str = "") -> None:
        only: Tuple[str, ...] = ()
        if repository:
            ending = "" if repository.endswith(".sources") else ".list"
            own = f"Dir::Etc::sourcelist=sources.list.d/{checked([repository])[0]}{ending}"
            only = ("-o", own, "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Get::List-Cleanup=0")
        argv = ["apt-get", "update", "-q", *only, "-o", "APT::Update::Error-Mode=any", *LOCK]
        done = self._runner.run(argv, check=False, timeout=REFRESH, env=ENV)
        if done.rc:
            raise CommandFailed(
                f"apt cannot read {f'the repository {repository}' if repository else 'its repositories'}: "
                f"{told(done, _WHY)}",
                done,
            )

    def trusted(self) -> List[str]:
        return []

    def distrust(self, keys: Sequence[str]) -> None:
        """Keys are files here."""

    def install(self, pins: Mapping[str, str], *, downgrade: bool) -> None:
        wanted = pinned(pins, "=")
        if not wanted:
            return
        more = ("--allow-downgrades",) if downgrade else ()
        options = ("-q", "-y", "--no-install-recommends", "--no-remove", *more, *LOCK, *KEEP)
        self._change(["apt-get", "install", *options, *wanted], f"install {', '.join(wanted)}")

    def remove(self, names: Sequence[str], *, purge: bool) -> None:
        there = [name for name in checked(names) if name in self._known(names)]
        if not there:
            return
        verb = "purge" if purge else "remove"
        plan = self._runner.run(["apt-get", verb, "-s", "-q", *there], check=False, timeout=READ, env=ENV)
        if plan.rc:
            raise CommandFailed(f"apt cannot remove {', '.join(there)}: {told(plan, _WHY)}", plan)
        others = [
            words[1]
            for words in (line.split() for line in plan.out.splitlines())
            if words[:1] in (["Remv"], ["Purg"]) and words[1] not in there
        ]
        if others:
            raise Failure(
                f"{', '.join(there)} cannot be removed: {', '.join(others)} would go too, since it needs one of them. "
                f"Remove what needs it first."
            )
        self._change(["apt-get", verb, "-q", "-y", *LOCK, *there], f"remove {', '.join(there)}")

    def _known(self, names: Sequence[str]) -> List[str]:
        """Those of which dpkg has anything: what is removed may still have configuration files to purge."""
        done = self._runner.run(["dpkg-query", "-W", "-f", _FORMAT, *names], check=False, timeout=READ)
        lines = [line.split("\t") for line in done.out.splitlines()]
        return [name for name, _version, status, _arch in lines if status[1:2] not in ("n", "")]

    def held(self, names: Sequence[str]) -> List[str]:
        if not names:
            return []
        said = self._runner.run(["apt-mark", "showhold", *checked(names)], timeout=READ).out.split()
        return [name for name in names if name in {one.partition(":")[0] for one in said}]

    def hold(self, names: Sequence[str]) -> None:
        if names:
            self._change(["apt-mark", "hold", *checked(names)], f"hold {', '.join(names)}")

    def unhold(self, names: Sequence[str]) -> None:
        if names:
            self._change(["apt-mark", "unhold", *checked(names)], f"lift the hold of {', '.join(names)}")

    def _change(self, argv: Sequence[str], what: str) -> None:
        done = self._runner.run(argv, check=False, timeout=INSTALL, env=ENV)
        if done.rc:
            unmet = [line.partition(" : ")[0].strip() + " :" for line in done.out.splitlines() if " : " in line]
            raise CommandFailed(f"apt cannot {what}: {told(done, (*unmet, *_WHY))}", done)
