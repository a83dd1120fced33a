# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the package managers share: the interface, names and versions that are safe to pass on, rpm's answers."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from typing import Dict, Iterator, List, Mapping, Protocol, Sequence

from ..._plan import Failure
from .._commands import CommandFailed, Done, Runner
from ._versions import compare

INSTALL = 900.0  # seconds, downloads included
READ = 60.0
REFRESH = 300.0
WAIT = 120  # for the lock that another run of a package manager holds

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*\Z")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~^:_-]*\Z")
_RPM = r"%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n"


class Manager(Protocol):
    """A package manager. Versions are full ones, as the packages carry them (``1.20.2-1``, ``3:580.95.05-1.el9``).

    Every method raises ``Failure`` with one sentence. What changes the host waits for locks, with a limit.
    """

    name: str

    def installed(self, names: Sequence[str]) -> Dict[str, str]:
        """Those of the packages that are installed -> their version, by one call."""

    def candidates(self, names: Sequence[str]) -> Dict[str, List[str]]:
        """Each package that could be installed -> its versions, newest first, from the metadata that is there."""

    def probe(self, names: Sequence[str], source: str, key: bytes, settings: str = "") -> Dict[str, List[str]]:
        """As ``candidates``, of a repository that is not set up: its metadata is read into a folder of its own.

        ``source`` is the text of its list or repo file, with ``{key}`` for the path of the key; ``settings``: apt's.
        """

    def refresh(self, repository: str = "") -> None:
        """Read the repositories' metadata anew; with a name (of the list file, or the repository's id) only that one's.

        Raises ``Failure`` where one of them cannot be read.
        """

    def trusted(self) -> List[str]:
        """Keys that the package manager itself keeps as trusted (rpm's ``gpg-pubkey-...``; apt has files instead)."""

    def distrust(self, keys: Sequence[str]) -> None:
        """Take keys out of those. What is not among them any more is no error."""

    def install(self, pins: Mapping[str, str], *, downgrade: bool) -> None:
        """Install exactly these versions in one transaction, with nothing removed and configuration files kept.

        Without ``downgrade`` a package whose installed version is newer is refused.
        """

    def remove(self, names: Sequence[str], *, purge: bool) -> None:
        """Remove those of the packages that are there. Refused where another package needs one of them."""

    def held(self, names: Sequence[str]) -> List[str]:
        """Those of the packages that an update leaves alone."""

    def hold(self, names: Sequence[str]) -> None:
        """Have updates leave these installed packages alone."""

    def unhold(self, names: Sequence[str]) -> None:
        """The way back from ``hold``."""


@contextmanager
def scratch(source: str, key: bytes, name: str) -> Iterator[str]:
    """A folder that is gone afterwards, with the source (under that name) and its key, and empty lists/ and cache/."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-probe-") as folder:
        for part in ("lists/partial", "cache"):
            os.makedirs(os.path.join(folder, part))
        with open(os.path.join(folder, "key"), "wb") as file:
            file.write(key)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as text:
            text.write(source.replace("{key}", os.path.join(folder, "key")))
        yield folder


def checked(names: Sequence[str]) -> List[str]:
    """The same names, none of which a program could take for an option or a pattern."""
    for name in names:
        if not _NAME.match(name):
            raise Failure(f"{name!r} is no name of a package.")
    return list(names)


def pinned(pins: Mapping[str, str], sign: str) -> List[str]:
    """``name=version`` for each."""
    for name, version in pins.items():
        if not _VERSION.match(version):
            raise Failure(f"{version!r} is no version of {name}; versions look like 1.20.2-1.")
    return [f"{name}{sign}{pins[name]}" for name in checked(list(pins))]


def told(done: Done, marks: Sequence[str]) -> str:
    """The lines of a failed program that tell why (they begin with one of the marks), as one line."""
    lines = [" ".join(line.split()) for line in (done.out + "\n" + done.err).splitlines()]
    wanted = [line for line in lines if line.startswith(tuple(marks))]
    return " ".join(dict.fromkeys(wanted))[:800] or done.words()


def rpm_installed(runner: Runner, names: Sequence[str]) -> Dict[str, str]:
    """``Manager.installed`` where rpm keeps the list. Of several versions of a name, as kernels have, the last one."""
    if not names:
        return {}
    done = runner.run(["rpm", "-q", "--qf", _RPM, *checked(names)], check=False, timeout=READ)
    found = dict(line.split("\t", 1) for line in done.out.splitlines() if "\t" in line)
    if done.rc < 0 or (done.rc and not (found or "is not installed" in done.out)):
        raise CommandFailed(f"rpm cannot tell what is installed: {done.words()}", done)
    return {name: found[name] for name in names if name in found}


def rpm_keys(runner: Runner) -> List[str]:
    """``Manager.trusted`` of rpm."""
    done = runner.run(
        ["rpm", "-q", "--qf", r"%{NAME}-%{VERSION}-%{RELEASE}\n", "gpg-pubkey"], check=False, timeout=READ
    )
    return [line for line in done.out.split() if line.startswith("gpg-pubkey-")]


def rpm_distrust(runner: Runner, keys: Sequence[str]) -> None:
    """``Manager.distrust`` of rpm."""
    there = [key for key in rpm_keys(runner) if key in keys]
    if there:
        runner.run(["rpm", "-e", "--allmatches", *there], timeout=READ)


def refuse_downgrade(manager: str, installed: Mapping[str, str], pins: Mapping[str, str]) -> None:
    """Raise ``Failure`` where a package is newer than what is wanted; for programs that would not ask."""
    for name, version in installed.items():
        if compare(manager, version, pins[name]) > 0:
            raise Failure(f"{name} is {version} on this host, newer than {pins[name]}. Allow a downgrade.")


def rpm_needed(runner: Runner, names: Sequence[str]) -> None:
    """Raise ``Failure`` where other packages need one of these."""
    done = runner.run(["rpm", "-e", "--test", *names], check=False, timeout=READ)
    if done.rc:
        needs = [line.strip() for line in done.err.splitlines() if "is needed by" in line]
        why = "; ".join(needs)[:600] or done.words()
        raise Failure(f"{', '.join(names)} cannot be removed: {why}. Remove what needs it first.")
