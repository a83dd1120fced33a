# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a host below a root folder, read with limits, and the list of what could not be read.

Nothing here raises on what a host has: a missing file is empty, and what is there but cannot be read becomes a problem
that says which part, why, and what to do. Links never lead out of the root.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from typing import Dict, List, Tuple

from .._host._root import Outside, Root

TEXT = 64 * 1024
MOST_NAMES = 100_000

AS_ROOT = (
    "Run with become: true."
    if os.geteuid()
    else "Run on the host itself: not even root may in this container or with this kernel."
)
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV)
_KINDS = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "folder"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
)


@dataclass(frozen=True)
class Problem:
    """A part that could not be read, or not in whole: ``why``, and what to do (``remedy``)."""

    part: str
    path: str
    why: str
    remedy: str


@dataclass
class Problems:
    """Problems in the order found, each once."""

    found: Dict[Tuple[str, str, str], Problem] = field(default_factory=dict)

    def add(self, part: str, path: str, why: str, remedy: str) -> None:
        self.found.setdefault((part, path, why), Problem(part, path, why, remedy))

    def listed(self) -> List[Problem]:
        return list(self.found.values())


class Tree:
    """One part's view of the files below ``root``. Paths are those of the host: ``/sys/...``."""

    def __init__(self, root: str, part: str, problems: Problems) -> None:
        self.root = os.path.abspath(root or "/")
        self.part = part
        self.problems = problems
        self._below = Root(self.root)

    def of(self, part: str) -> Tree:
        """The same files for another part: its problems carry that name."""
        return Tree(self.root, part, self.problems)

    @property
    def live(self) -> bool:
        """Whether these are the files of the running machine, so that commands and libraries speak of it, too."""
        return self.root == "/"

    def text(self, path: str, limit: int = TEXT) -> str:
        """A small text file, stripped; empty when missing or unreadable."""
        return self.data(path, limit).decode("utf-8", "replace").replace("\0", "").strip()

    def data(self, path: str, limit: int = TEXT) -> bytes:
        """A file's bytes; of one that is longer than ``limit`` the beginning, with a problem."""
        try:
            content = read_file(self.place(path), limit)
        except OSError as error:
            self.failed(path, error)
            return b""
        if len(content) > limit:
            self.problems.add(
                self.part, path, f"is longer than {limit} bytes; only its beginning was read", "Look at the file."
            )
        return content[:limit]

    def number(self, path: str, missing: int = -1) -> int:
        """A file that holds one number, decimal or 0x; ``missing`` for anything else."""
        try:
            return int(self.text(path), 0)
        except ValueError:
            return missing

    def names(self, folder: str) -> List[str]:
        """Names in a folder, sorted; none when missing or unreadable."""
        try:
            return sorted(os.listdir(self.place(folder)))[:MOST_NAMES]
        except OSError as error:
            self.failed(folder, error)
            return []

    def link(self, path: str) -> str:
        """The last name of what a link points to: how sysfs says which driver a device has. Empty without one."""
        try:
            return os.path.basename(os.readlink(self.place(path, last=False)))
        except OSError:
            return ""

    def kind(self, path: str) -> str:
        """``file``, ``folder``, ``socket``, ``device``, or empty when there is none of these; links are followed."""
        try:
            mode = os.stat(self.place(path)).st_mode
        except OSError:
            return ""
        return next((name for test, name in _KINDS if test(mode)), "")

    def place(self, path: str, last: bool = True) -> str:
        """Where a path lies on this machine, every link resolved below the root (``last``: the last name, too)."""
        if self.live:
            return path
        try:
            return self._below.at(path) if last else self._below.entry(path)
        except Outside as error:
            raise OSError(errno.ELOOP, error.msg, path) from None

    def real(self, path: str) -> str:
        """The path without links, as it lies on this machine: two names of one file have the same."""
        try:
            return os.path.realpath(self.place(path))
        except OSError:
            return path

    def failed(self, path: str, error: OSError) -> None:
        """Notes why something could not be read; that it is not there is no problem."""
        if error.errno in _MISSING:
            return
        denied = error.errno in (errno.EACCES, errno.EPERM)
        why = f"could not be read: {error.strerror or error}"
        self.problems.add(self.part, path, why, AS_ROOT if denied else "Look at the file.")


def read_file(place: str, limit: int) -> bytes:
    """At most ``limit`` + 1 bytes of a regular file; OSError for all else. A pipe in its place does not hold it up."""
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")
        parts, size = [], 0
        while size <= limit:
            part = os.read(descriptor, min(limit + 1 - size, 1024 * 1024))
            if not part:
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
