# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a host: read with a limit, written in one step, with what the file had besides its content kept."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import stat
from typing import Dict, List, Optional, Tuple

from .._plan import Failure
from ._commands import Watch, unwatched
from ._root import Root

MOST_BYTES = 16 * 1024 * 1024
_OURS = ".gpufleet-"


class Files:
    """Files below a root. Whatever changes one goes through here.

    Links are followed below the root (see ``Root``), so a configuration file that is a link stays one.
    """

    def __init__(self, root: Optional[Root] = None, watch: Watch = unwatched) -> None:
        self.root = root or Root()
        self._watch = watch

    def read(self, path: str) -> Optional[bytes]:
        """The content; None where there is no such file. Raises ``Failure`` for anything that is no plain file."""
        real = self.root.at(path)
        try:
            # A named pipe would block, a device might do worse.
            descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _failure(path, "cannot be read", error) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Failure(f"{path} is no plain file; it is left alone. Move it away, then run again.")
        with os.fdopen(descriptor, "rb") as file:
            try:
                content = file.read(MOST_BYTES + 1)
            except OSError as error:
                raise _failure(path, "cannot be read", error) from None
        if len(content) > MOST_BYTES:
            raise Failure(f"{path} is larger than {MOST_BYTES // 1024 // 1024} MiB; it is left alone.")
        return content

    def text(self, path: str) -> Optional[str]:
        """As ``read``, as text; bytes that are no UTF-8 survive a write of the same text."""
        content = self.read(path)
        return None if content is None else content.decode("utf-8", "surrogateescape")

    def exists(self, path: str) -> bool:
        """Whether anything is there; a link counts that leads nowhere."""
        return os.path.lexists(self.root.entry(path))

    def write(self, path: str, text: str, mode: Optional[int] = None) -> bool:
        """As ``write_bytes``, with text."""
        return self.write_bytes(path, text.encode("utf-8", "surrogateescape"), mode)

    def write_bytes(
        self, path: str, content: bytes, mode: Optional[int] = None, owner: Optional[Tuple[int, int]] = None
    ) -> bool:
        """Give a file this content in one step: whoever reads it sees the old or the new, also after a power cut.

        What is there keeps its owner, mode, access list, security label and other extended attributes; ``mode`` and
        ``owner`` (user and group number) are then changed where given. A new file has mode 0644. The folder must exist.
        Returns whether anything was written.
        """
        real = self.root.at(path)
        before = _stat(real)
        if before is not None and self.read(path) == content:
            return self._attributes(path, real, before, mode, owner)
        self._watch("before", f"write {path}")
        try:
            _replace(real, content, before, mode, owner)
        except OSError as error:
            raise _failure(path, "cannot be written", error) from None
        self._watch("after", f"write {path}")
        return True

    def _attributes(
        self, path: str, real: str, before: os.stat_result, mode: Optional[int], owner: Optional[Tuple[int, int]]
    ) -> bool:
        new_mode = mode is not None and stat.S_IMODE(before.st_mode) != mode
        new_owner = owner is not None and (before.st_uid, before.st_gid) != owner
        if not (new_mode or new_owner):
            return False
        self._watch("before", f"attributes {path}")
        try:
            if owner is not None and new_owner:
                os.chown(real, *owner)
            # A change of owner takes set-user bits away.
            os.chmod(real, stat.S_IMODE(before.st_mode) if mode is None else mode)
        except OSError as error:
            raise _failure(path, "cannot be changed", error) from None
        self._watch("after", f"attributes {path}")
        return True

    def append(self, path: str, line: str) -> None:
        """Add a line to a file that only its owner reads (made where it is not there), and have it on the disk."""
        real = self.root.at(path)
        self._watch("before", f"append to {path}")
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(real, flags, 0o600), "wb") as file:
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _failure(path, "cannot be written", error) from None
        self._watch("after", f"append to {path}")

    def remove(self, path: str) -> bool:
        """Remove a file or a link, not what it leads to. Returns whether there was one."""
        real = self.root.entry(path)
        if not os.path.lexists(real):
            return False
        self._watch("before", f"remove {path}")
        try:
            os.unlink(real)
            _sync(os.path.dirname(real))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _failure(path, "cannot be removed", error) from None
        self._watch("after", f"remove {path}")
        return True

    def make_folder(self, path: str, mode: int = 0o755) -> List[str]:
        """Make a folder and those above it that are not there. Returns which were made, outermost first.

        A folder that is there stays as it is.
        """
        made: List[str] = []
        steps = [part for part in path.split("/") if part not in ("", ".")]
        for end in range(1, len(steps) + 1):
            step = "/" + "/".join(steps[:end])
            real = self.root.at(step)
            if os.path.isdir(real):
                continue
            self._watch("before", f"make folder {step}")
            try:
                os.mkdir(real, 0o700)
                os.chmod(real, mode if end == len(steps) else 0o755)
                _sync(os.path.dirname(real))
            except OSError as error:
                raise _failure(step, "cannot be made", error) from None
            self._watch("after", f"make folder {step}")
            made.append(step)
        return made

    def remove_folder(self, path: str) -> bool:
        """Remove a folder if it is there and empty. Returns whether it was removed."""
        real = self.root.entry(path)
        if os.path.islink(real) or not os.path.isdir(real) or os.listdir(real):
            return False
        self._watch("before", f"remove folder {path}")
        try:
            os.rmdir(real)
            _sync(os.path.dirname(real))
        except OSError as error:
            raise _failure(path, "cannot be removed", error) from None
        self._watch("after", f"remove folder {path}")
        return True


def _failure(path: str, what: str, error: OSError) -> Failure:
    return Failure(f"{path} {what}: {error.strerror}.")


def _stat(real: str) -> Optional[os.stat_result]:
    try:
        return os.lstat(real)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _replace(
    real: str, content: bytes, before: Optional[os.stat_result], mode: Optional[int], owner: Optional[Tuple[int, int]]
) -> None:
    folder, name = os.path.split(real)
    # What a killed run left. It ends in random letters, so that no program takes it for a configuration file.
    for left in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(name)}{_OURS}*")):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(left)
    scratch = os.path.join(folder, f".{name}{_OURS}{secrets.token_hex(6)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if before is not None:
                _like(real, before, descriptor)
            if owner is not None:
                os.fchown(descriptor, *owner)
            old = 0o644 if before is None else stat.S_IMODE(before.st_mode)
            if before is None or mode is not None or owner is not None:
                os.fchmod(descriptor, old if mode is None else mode)
            os.fsync(descriptor)
        os.replace(scratch, real)
        _sync(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise


def _like(real: str, before: os.stat_result, descriptor: int) -> None:
    """Owner, mode and extended attributes of the old file: an access list and the label of SELinux are among them."""
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
    have = _attributes_of(descriptor)
    for name, value in _attributes_of(real).items():
        if have.get(name) != value:
            os.setxattr(descriptor, name, value)


def _attributes_of(file: object) -> Dict[str, bytes]:
    try:
        return {name: os.getxattr(file, name) for name in os.listxattr(file)}  # type: ignore[arg-type]
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOSYS):
            return {}
        raise


def _sync(folder: str) -> None:
    """Have a folder's entries on the disk. Some file systems cannot, and their users live with that."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(descriptor)
