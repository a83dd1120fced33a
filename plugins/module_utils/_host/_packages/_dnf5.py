# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dnf 5 (Fedora from 41 on): what it says and takes in other words than dnf 4. By its manual and sources, 5.2, 5.3."""

from __future__ import annotations

import fnmatch
from typing import List, Sequence

from .._commands import Done
from ._dnf import Dnf
from ._shared import READ, checked

#: As for dnf 4; dnf 5 ends no line by itself.
_FORMAT = "%{name} %{epoch}:%{version}-%{release}\\n"
_ENTRY, _INVALID = "Package name: ", " # entry is invalid"
_OTHERS = ("!=", "<>")  # such a condition keeps one version away, and holds none


class Dnf5(Dnf):
    """Holds are entries of its own command versionlock, in a file of another form. They hide nothing from queries."""

    _unlocked = ()
    _alone = ("--disable-plugin=*",)
    _available = ("repoquery", "--available", "--queryformat", _FORMAT)

    def held(self, names: Sequence[str]) -> List[str]:
        locks = self._locks() if names else []
        return [name for name in checked(names) if any(fnmatch.fnmatchcase(name, lock) for lock in locks)]

    def hold(self, names: Sequence[str]) -> None:
        there = list(self.installed(names))
        if there:
            # Of packages that are installed it locks the version that is there; no repository is needed for that.
            self._lock(["--disable-repo=*", "versionlock", "add", *there], f"hold {', '.join(names)}")

    def unhold(self, names: Sequence[str]) -> None:
        locks = [lock for lock in self._locks() if any(fnmatch.fnmatchcase(name, lock) for name in names)]
        if locks:
            self._lock(["--disable-repo=*", "versionlock", "delete", *locks], f"lift the hold of {', '.join(names)}")

    def _locks(self) -> List[str]:
        """Names, or patterns of names, of entries that hold a version."""
        argv = ["dnf", "-q", "versionlock", "list"]
        return _entries(self._good(self._runner.run(argv, check=False, timeout=READ), "read its version locks"))

    def _lock(self, words: Sequence[str], what: str) -> None:
        self._good(self._runner.run(["dnf", "-q", "-y", *words], check=False, timeout=READ), what)


def _entries(done: Done) -> List[str]:
    found: List[str] = []
    name = ""
    for line in [one.strip() for one in done.out.splitlines()]:
        if line.startswith(_ENTRY):
            name = "" if _INVALID in line else line[len(_ENTRY) :]
        elif name and line and not line.startswith("#"):
            words = line.split(None, 2)
            if len(words) == 3 and words[1] not in _OTHERS and name not in found:
                found.append(name)
    return found
