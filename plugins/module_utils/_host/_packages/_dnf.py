# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dnf 4 and rpm, of RHEL and what follows it, and of Amazon Linux 2023. Seen: dnf 4.14."""

from __future__ import annotations

import fnmatch
import re
from typing import Dict, List, Mapping, Sequence

from ..._plan import Failure
from .._commands import CommandFailed, Done, Runner
from ._shared import (
    INSTALL,
    READ,
    REFRESH,
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

_FORMAT = "%{name} %{epoch}:%{version}-%{release}"
_WHY = ("Error:", "No match for argument:", "All matches were filtered out", "Problem", "- ", "nothing provides")
_NO_LOCKS = (
    "dnf on this host cannot hold packages at their version: its plugin versionlock is missing. Install "
    "python3-dnf-plugin-versionlock, or say that packages are not to be held."
)


#: Without it packages of a module are hidden until one of its streams is enabled.
_EVERY_STREAM = "--setopt=*.module_hotfixes=1"


class Dnf:
    """``Manager`` by dnf and rpm; holds are entries of the plugin versionlock, each for one exact version.

    What is locked is hidden from dnf's own queries, so candidates are read without that plugin, and of all streams.
    """

    name = "dnf"
    _unlocked: Sequence[str] = ("--disableplugin=versionlock", _EVERY_STREAM)  # a query that sees every version
    _alone: Sequence[str] = ("--disableplugin=*", _EVERY_STREAM)  # and without what the host adds
    _available: Sequence[str] = ("repoquery", "--available", "--qf", _FORMAT)

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def installed(self, names: Sequence[str]) -> Dict[str, str]:
        return rpm_installed(self._runner, names)

    def candidates(self, names: Sequence[str]) -> Dict[str, List[str]]:
        if not names:
            return {}
        query = [*self._unlocked, *self._available, *checked(names)]
        done = self._runner.run(["dnf", "-q", "--cacheonly", *query], check=False, timeout=READ)
        if done.rc:  # a repository that was never read
            done = self._runner.run(["dnf", "-q", *query], check=False, timeout=REFRESH)
        return self._versions(self._good(done, "read its lists of packages"), names)

    def probe(self, names: Sequence[str], source: str, key: bytes, settings: str = "") -> Dict[str, List[str]]:
        with scratch(source, key, "source.repo") as folder:
            places = {"reposdir": folder, "cachedir": f"{folder}/cache", "*.skip_if_unavailable": "0"}
            options = [f"--setopt={name}={value}" for name, value in places.items()]
            query = [*self._alone, *self._available, *checked(names)]
            done = self._runner.run(["dnf", "-q", "-y", *options, *query], check=False, timeout=REFRESH)
            return self._versions(self._good(done, "read the repository"), names)

    def _versions(self, done: Done, names: Sequence[str]) -> Dict[str, List[str]]:
        found: Dict[str, List[str]] = {}
        for line in done.out.splitlines():
            name, _space, version = line.strip().partition(" ")
            if name in names:
                found.setdefault(name, []).append(version[2:] if version.startswith("0:") else version)
        return {name: newest_first(self.name, found[name]) for name in names if name in found}

    def refresh(self, repository: str = "") -> None:
        only = [f"--repo={checked([repository])[0]}"] if repository else []
        argv = ["dnf", "-q", "-y", *only, "--setopt=*.skip_if_unavailable=0", "--refresh", "makecache"]
        done = self._runner.run(argv, check=False, timeout=REFRESH)
        if done.rc:
            raise CommandFailed(
                f"dnf cannot read {f'the repository {repository}' if repository else 'its repositories'}: "
                f"{told(done, _WHY)}",
                done,
            )

    def trusted(self) -> List[str]:
        return rpm_keys(self._runner)

    def distrust(self, keys: Sequence[str]) -> None:
        rpm_distrust(self._runner, keys)

    def install(self, pins: Mapping[str, str], *, downgrade: bool) -> None:
        wanted = pinned(pins, "-")
        if not wanted:
            return
        if not downgrade:  # dnf itself would not ask
            refuse_downgrade(self.name, self.installed(list(pins)), pins)
        self._change(["install", "--setopt=install_weak_deps=False", *wanted], f"install {', '.join(wanted)}")

    def remove(self, names: Sequence[str], *, purge: bool) -> None:
        there = list(self.installed(names))
        if there:
            rpm_needed(self._runner, there)
            self._change(["remove", "--noautoremove", *there], f"remove {', '.join(there)}")

    def held(self, names: Sequence[str]) -> List[str]:
        return [name for name, locks in self._locks_of(names).items() if locks]

    def hold(self, names: Sequence[str]) -> None:
        versions = self.installed(names)
        locks = [f"{name}-{_with_epoch(versions[name])}.*" for name in names if name in versions]
        if locks:
            self._lock(["add", "--raw", *locks], f"hold {', '.join(names)}")

    def unhold(self, names: Sequence[str]) -> None:
        locks = dict.fromkeys(lock for found in self._locks_of(names).values() for lock in found)
        if locks:
            self._lock(["delete", *locks], f"lift the hold of {', '.join(names)}")

    def _locks_of(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Entries that keep a package, for each; patterns do that keep the version which is installed."""
        locks = self._locks() if names else []
        there = self.installed(names) if any(_is_pattern(lock) for lock in locks) else {}
        return {name: [lock for lock in locks if _is_of(lock, name, there.get(name, ""))] for name in checked(names)}

    def _locks(self) -> List[str]:
        done = self._runner.run(["dnf", "-q", "versionlock", "list"], check=False, timeout=READ)
        return [] if _no_plugin(done) else self._good(done, "read its version locks").out.split()

    def _lock(self, words: Sequence[str], what: str) -> None:
        done = self._runner.run(["dnf", "-q", "-y", "versionlock", *words], check=False, timeout=READ)
        if _no_plugin(done):
            raise Failure(_NO_LOCKS)
        self._good(done, what)

    def _change(self, words: Sequence[str], what: str) -> None:
        self._good(self._runner.run(["dnf", "-y", *words], check=False, timeout=INSTALL), what)

    def _good(self, done: Done, what: str) -> Done:
        if done.rc:
            raise CommandFailed(f"dnf cannot {what}: {told(done, _WHY)}", done)
        return done


def _no_plugin(done: Done) -> bool:
    return done.rc != 0 and "No such command: versionlock" in done.err + done.out


def _with_epoch(version: str) -> str:
    return version if ":" in version else f"0:{version}"


def _is_pattern(lock: str) -> bool:
    """Whether an entry is about several packages, as ``*nvidia*580*`` of NVIDIA's guide."""
    return bool(re.match(r"!?[^*?\[]*[*?\[].*[^*.]", lock))


def _is_of(lock: str, name: str, installed: str) -> bool:
    """Whether an entry of the version lock is about the package: ``name``, ``name-0:1.20.2-1.*``, ``name-1.20*``, or a
    pattern that the installed version fits. One with ``!`` keeps a version away, and holds none."""
    if lock == name or re.match(rf"{re.escape(name)}-(\d+:)?\d[^-]*(-[^-]*)?\Z", lock):
        return True
    if not (installed and _is_pattern(lock)):
        return False
    full = f"{name}-{installed}"
    plain = re.sub(r"-\d+:", "-", full)
    return any(
        fnmatch.fnmatchcase(f"{one}{arch}", lock) for one in (full, plain) for arch in ("", ".x86_64", ".aarch64")
    )
