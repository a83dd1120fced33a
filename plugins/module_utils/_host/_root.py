# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths below a root folder, so that one code serves a running host and a host's file system mounted elsewhere."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from typing import List

from .._plan import Failure

_MOST_LINKS = 40  # as the kernel


class Outside(Failure):
    """A path that leaves the root, or that goes through a link which somebody else made."""


class Root:
    """A folder that plays ``/``. Symbolic links below it mean what they mean to a process whose root it is."""

    def __init__(self, folder: str = "/") -> None:
        self.folder = os.path.abspath(folder)

    def at(self, path: str) -> str:
        """Where the host's absolute ``path`` really lies, all links of the way followed, the last one too.

        Raises ``Outside`` where a link on the way belongs to neither root nor the user that runs this: whoever made it
        could have a file of the host overwritten.
        """
        return self._walk(path, follow_last=True)

    def entry(self, path: str) -> str:
        """As ``at``, but a link at the end of the path is not followed: what is meant is the link itself."""
        return self._walk(path, follow_last=False)

    def _walk(self, path: str, follow_last: bool) -> str:
        if not posixpath.isabs(path) or "\0" in path:
            raise Outside(f"{path!r} is no absolute path.")
        todo = _parts(path)
        done: List[str] = []
        links = 0
        while todo:
            part = todo.pop(0)
            if part == "..":
                done = done[:-1]
                continue
            here = os.path.join(self.folder, *done, part)
            target = _link(here) if todo or follow_last else ""
            if not target:
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise Outside(f"{path}: {os.strerror(errno.ELOOP)}.")
            if posixpath.isabs(target):
                done = []
            todo = _parts(target) + todo
        return os.path.join(self.folder, *done)


def _parts(path: str) -> List[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _link(path: str) -> str:
    """What a link says; empty where the path is none or does not exist."""
    try:
        found = os.lstat(path)
        if not stat.S_ISLNK(found.st_mode):
            return ""
        if found.st_uid not in (0, os.geteuid()):
            raise Outside(
                f"{path} is a symbolic link that user {found.st_uid} made; nothing is read or written through it. "
                f"Remove the link, or make it as root."
            )
        return os.readlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
