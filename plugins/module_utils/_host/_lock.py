# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time, by a lock of the folder that it keeps its files in.

Nothing has to be written for the lock, and it ends with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import Callable, Iterator

from .._plan import Failure

NONE = -1


@contextlib.contextmanager
def alone(at: Callable[[str], str], who: str, wait: float, check: bool, folder: str = "/etc") -> Iterator[None]:
    """One run of ``who`` at a time from before the first look: what a run plans has to hold until it is done.

    ``at`` tells where a path of the host is. The lock is on a folder that is there anyway, so that a run with nothing
    to do writes nothing. There is none in check mode.
    """
    place = folder if os.path.isdir(at(folder)) else "/"
    held = NONE if check else take(at(place), place, who, wait)
    try:
        yield
    finally:
        if held != NONE:
            os.close(held)


def take(real: str, path: str, who: str, wait: float) -> int:
    """Lock the folder ``real``, which messages call ``path``; ``who`` is at work there. Returns a descriptor, which
    holds the lock until it is closed.

    Returns ``NONE`` where the folder is not there (a run that held it gave everything back). Raises ``Failure`` when
    another run holds it for ``wait`` seconds, and for a folder that others can write to.
    """
    deadline = time.monotonic() + wait
    while True:
        try:
            descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return NONE
        except OSError as error:
            raise Failure(f"{path} cannot be locked: {error.strerror}.") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _check_owner(path, os.fstat(descriptor))
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() >= deadline:
                raise Failure(
                    f"Another run of {who} has been at work on this host for {wait:.0f} s and more. Run again when it "
                    f"has ended."
                ) from None
            time.sleep(0.05)
            continue
        except Failure:
            os.close(descriptor)
            raise
        if _same(real, descriptor):
            return descriptor
        os.close(descriptor)  # removed, or made anew, between the two steps


def _check_owner(path: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise Failure(
            f"{path} belongs to user {found.st_uid} or can be written by others, so what it says cannot be trusted. "
            f"Give it to root with mode 0700, or remove it."
        )


def _same(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
