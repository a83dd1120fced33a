# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""zypper and rpm, of SUSE. Seen: zypper 1.14."""

from __future__ import annotations

import fnmatch
import re
from typing import Dict, List, Mapping, Sequence

from .._commands import CommandFailed, Done, Runner
from ._shared import (
    INSTALL,
    READ,
    REFRESH,
    WAIT,
    checked,
    pinned,
    refuse_downgrade,
    rpm_distrust,
    rpm_installed,
    rpm_keys,
    rpm_needed,
    scratch,
    told,
)
from ._versions import newest_first

_ENV = {"ZYPP_LOCK_TIMEOUT": str(WAIT)}
_NOTHING = 104  # no package of that name
_GOOD = (
    0,
    100,
    101,
    102,
    103,
    106,
)  # those from 100 on only tell: patches wait, a restart is due
_WHY = ("Problem:", "No provider of", "nothing provides", "Error", "System management is locked", "Repository", "Valid")
_SOLVABLE = re.compile(r"<solvable [^>]*?name=\"([^\"]+)\"[^>]*?edition=\"([^\"]+)\"[^>]*?repository=\"([^\"]+)\"")
_REPO = "/etc/zypp/repos.d/{}.repo"
_GPGKEY = re.compile(r"^gpgkey\s*=\s*file://(/\S+)\s*$", re.MULTILINE)
_INSTALLED = "(System Packages)"  # the place of what no repository has any more


class Zypper:
    """``Manager`` by zypper and rpm; holds are zypper's own locks."""

    name = "zypper"

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def installed(self, names: Sequence[str]) -> Dict[str, str]:
        return rpm_installed(self._runner, names)

    def candidates(self, names: Sequence[str]) -> Dict[str, List[str]]:
        if not names:
            return {}
        return self._search(names, ())

    def probe(self, names: Sequence[str], source: str, key: bytes, settings: str = "") -> Dict[str, List[str]]:
        """Signatures are not looked at here: zypper would take the key into rpm's. ``refresh`` does."""
        with scratch(source, key, "source.repo") as folder:
            options = ["--no-gpg-checks", "--reposd-dir", folder, "--cache-dir", f"{folder}/cache"]
            self._call([*options, "refresh"], "read the repository", REFRESH)
            return self._search(names, options)

    def _search(self, names: Sequence[str], options: Sequence[str]) -> Dict[str, List[str]]:
        words = ["--no-refresh", "search", "-s", "--match-exact", "-t", "package", *checked(names)]
        done = self._call([*options, "--xmlout", *words], "read its lists of packages", READ, (*_GOOD, _NOTHING))
        found: Dict[str, List[str]] = {}
        for name, version, repository in _SOLVABLE.findall(done.out):
            if repository != _INSTALLED:
                found.setdefault(name, []).append(version)
        return {name: newest_first(self.name, found[name]) for name in names if name in found}

    def refresh(self, repository: str = "") -> None:
        """The key that the named repository's own file points to is accepted; else only what is known already.

        zypper's own way to accept keys would take the one that lies in the repository too, whoever put it there.
        """
        if repository:
            for key in _GPGKEY.findall(_text(_REPO.format(checked([repository])[0]))):
                self._runner.run(["rpm", "--import", key], timeout=READ)
            self._call(["refresh", repository], f"read the repository {repository}", REFRESH)
        else:
            self._call(["refresh"], "read its repositories", REFRESH)

    def trusted(self) -> List[str]:
        return rpm_keys(self._runner)

    def distrust(self, keys: Sequence[str]) -> None:
        rpm_distrust(self._runner, keys)

    def install(self, pins: Mapping[str, str], *, downgrade: bool) -> None:
        wanted = pinned(pins, "=")
        if not wanted:
            return
        if not downgrade:  # zypper would do nothing, and call that a success
            refuse_downgrade(self.name, self.installed(list(pins)), pins)
        options = ["--auto-agree-with-licenses", "--no-recommends", "--no-force-resolution"]
        more = ["--oldpackage"] if downgrade else []
        self._call(["--no-refresh", "install", *options, *more, *wanted], f"install {', '.join(wanted)}", INSTALL)

    def remove(self, names: Sequence[str], *, purge: bool) -> None:
        there = list(self.installed(names))
        if there:
            rpm_needed(self._runner, there)
            words = ["--no-refresh", "remove", "--no-clean-deps", *there]
            self._call(words, f"remove {', '.join(there)}", INSTALL)

    def held(self, names: Sequence[str]) -> List[str]:
        locks = self._locks() if names else []
        return [name for name in checked(names) if any(fnmatch.fnmatchcase(name, lock) for lock in locks)]

    def hold(self, names: Sequence[str]) -> None:
        if names:
            self._call(["addlock", *checked(names)], f"hold {', '.join(names)}", READ)

    def unhold(self, names: Sequence[str]) -> None:
        locks = [
            lock
            for lock in (self._locks() if names else [])
            if any(fnmatch.fnmatchcase(name, lock) for name in checked(names))
        ]
        if locks:
            self._call(["removelock", *dict.fromkeys(locks)], f"lift the hold of {', '.join(names)}", READ)

    def _locks(self) -> List[str]:
        said = self._call(["--xmlout", "locks"], "read its locks", READ).out
        return re.findall(r"<name>([^<]+)</name>", said)

    def _call(self, words: Sequence[str], what: str, timeout: float, good: Sequence[int] = _GOOD) -> Done:
        done = self._runner.run(["zypper", "--non-interactive", *words], check=False, timeout=timeout, env=_ENV)
        if done.rc not in good:
            raise CommandFailed(f"zypper cannot {what}: {told(done, _WHY)}", done)
        return done


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
