# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first file system of a boot: made anew where files that are copied into it have changed, and only then.

Without it nouveau returns at the next boot, since it is loaded from there before any file of the host is read.
"""

from __future__ import annotations

import os
import re
from typing import List, Sequence, Tuple

from .._host._commands import Runner
from .._host._files import Files
from .._plan import Failure
from . import _nouveau
from ._kernel import tree_of

UPDATE_INITRAMFS = "update-initramfs"
DRACUT = "dracut"
MKINITRD = "mkinitrd"
TIME = 900.0  # seconds, for all kernels of a small machine

_FOLDERS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin")
_PROGRAMS = (UPDATE_INITRAMFS, DRACUT, MKINITRD)
_IMAGES = ("/boot/initrd.img-{}", "/boot/initramfs-{}.img", "/boot/initrd-{}")
_NVIDIA = re.compile(r"(?m)^[^#\n]*\bnvidia")
#: Where programs that make it are told what to put in.
_INSIDE = ("/etc/initramfs-tools/modules", "/etc/dracut.conf", "/etc/dracut.conf.d", "/usr/lib/dracut/dracut.conf.d")
_HOOKS = ("/etc/initramfs-tools/hooks", "/usr/share/initramfs-tools/hooks")


def tool(files: Files) -> str:
    """The program that makes it on this host, "" where there is none. Debian's wrapper comes before what it wraps."""
    tree = tree_of(files)
    return next((name for name in _PROGRAMS for folder in _FOLDERS if tree.kind(f"{folder}/{name}") == "file"), "")


def command(program: str, kernel: str, all_kernels: bool) -> List[str]:
    """What makes it anew, for one kernel or for all."""
    if program == UPDATE_INITRAMFS:
        return [program, "-u", "-k", "all" if all_kernels else kernel]
    if program == DRACUT:
        return [program, "-f", "--regenerate-all"] if all_kernels else [program, "-f", "--kver", kernel]
    return [program] if all_kernels else [program, "-k", f"vmlinuz-{kernel}", "-i", f"initrd-{kernel}"]


def image(files: Files, kernel: str) -> str:
    """The file of a kernel, "" where none is known."""
    return next((path for path in (place.format(kernel) for place in _IMAGES) if files.exists(path)), "")


def has_nvidia(files: Files) -> bool:
    """Whether NVIDIA's modules are put into it, so that their options are read from there."""
    tree = tree_of(files)
    for path in _INSIDE:
        places = [f"{path}/{name}" for name in tree.names(path)] if tree.kind(path) == "folder" else [path]
        if any(_NVIDIA.search(tree.text(place)) for place in places):
            return True
    return any("nvidia" in name for folder in _HOOKS for name in tree.names(folder))


def needed(changed: Sequence[str], files: Files, kernel: str, kept: Sequence[str] = ()) -> str:
    """Why it has to be made anew, as a sentence; "" where it has not.

    ``changed``: files that this run writes or removes; ``kept``: those that were right already, which a run that was
    ended before the rebuild may have written: they count where they are newer than the image.
    """
    if not tool(files):
        return ""
    matters = [path for path in changed if _inside(path, files)]
    if matters:
        return f"{', '.join(matters)} is read from it at boot."
    found = image(files, kernel)
    if not found:
        return ""
    newer = [path for path in kept if _inside(path, files) and _time(files, path) > _time(files, found)]
    return f"{', '.join(newer)} is newer than {found}." if newer else ""


def _inside(path: str, files: Files) -> bool:
    return path == _nouveau.FILE or has_nvidia(files)


def _time(files: Files, path: str) -> int:
    try:
        return os.stat(files.root.at(path)).st_mtime_ns
    except OSError:
        return -1


def rebuild(runner: Runner, files: Files, kernel: str, all_kernels: bool = False) -> List[str]:
    """Make it anew. Returns the command. Raises Failure where that failed, or where the image is still the old one."""
    program = tool(files)
    if not program:
        raise Failure(
            "This host has neither update-initramfs nor dracut nor mkinitrd, so its initramfs cannot be made anew. "
            "Make it with the program of the distribution, then run again."
        )
    argv = command(program, kernel, all_kernels)
    path = image(files, kernel)
    before = _identity(files, path)
    try:
        runner.run(argv, timeout=TIME)
    except Failure as failure:
        raise Failure(
            f"The initramfs could not be made anew. {failure.msg} The old one is in use, and boots what it did before. "
            "Make room in /boot if that is full, then run again."
        ) from None
    if path and _identity(files, path) == before:
        raise Failure(
            f"`{' '.join(argv)}` ended well, and {path} is still the old file. See whether the program is turned off "
            "(update_initramfs=no in /etc/initramfs-tools/update-initramfs.conf), then run again."
        )
    return argv


def _identity(files: Files, path: str) -> Tuple[int, ...]:
    try:
        found = os.stat(files.root.at(path)) if path else None
    except OSError:
        return ()
    return (found.st_ino, found.st_mtime_ns, found.st_size) if found else ()
