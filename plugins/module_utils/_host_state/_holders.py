# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that hold a GPU's device files or have the driver's libraries in memory, found in /proc."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Pattern, Set, Tuple

from .._gpu import _pci_ids
from ._tree import AS_ROOT, Tree, read_file

_MAPS = 8 * 1024 * 1024
_FILES = re.compile(r"\A/dev/(nvidia[^/]*|nvidia-caps(-imex-channels)?/.+|gdrdrv)\Z")
_GPU_FILE = re.compile(r"\A/dev/nvidia(\d+)\Z")
_DRM = re.compile(r"\A/dev/dri/(card|renderD)\d+\Z")
_LIBRARY = re.compile(r"/(lib(?:nvidia-[a-z]|cuda)[^/\s]*\.so[^/\s]*)(?: \(deleted\))?$")
_UNIT = re.compile(r"([^/]+\.(?:service|scope))(?:/|$)")
_CONTAINER = re.compile(r"\b([0-9a-f]{64})\b")


@dataclass
class Holder:
    """A process. ``minors``: GPUs whose file it has open; ``old_libraries``: it runs with a replaced library."""

    pid: int
    name: str
    user: int
    unit: str
    container: str
    files: List[str] = field(default_factory=list)
    minors: List[int] = field(default_factory=list)
    libraries: bool = False
    old_libraries: bool = False


def read(tree: Tree, sees_all: bool) -> List[Holder]:
    """Every process of /proc that has to do with GPUs, by pid."""
    tree = tree.of("processes")
    drm = drm_files(tree)
    found, hidden = [], 0
    for name in tree.names("/proc"):
        if not name.isdigit() or (tree.live and int(name) == os.getpid()):
            continue
        holder = _process(tree, int(name), drm)
        if holder is None:
            hidden += 1
        elif holder.files or holder.libraries:
            found.append(holder)
    if hidden:
        noun = "process" if hidden == 1 else "processes"
        tree.problems.add(tree.part, "/proc", f"{hidden} {noun} of other users could not be looked at", AS_ROOT)
    if not sees_all:
        tree.problems.add(
            tree.part,
            "/proc",
            "only the processes of this container are seen",
            "Run on the host itself, or give the container the host's process namespace.",
        )
    return sorted(found, key=lambda holder: holder.pid)


def drm_files(tree: Tree) -> Dict[str, str]:
    """The files below /dev/dri that belong to NVIDIA's GPUs, with the GPU's bus id."""
    found = {}
    for name in tree.names("/sys/class/drm"):
        device = f"/sys/class/drm/{name}/device"
        if re.fullmatch(r"(card|renderD)\d+", name) and tree.number(f"{device}/vendor") == 0x10DE:
            found[f"/dev/dri/{name}"] = _pci_ids.bus_id(tree.link(device))
    return found


def _process(tree: Tree, pid: int, drm: Dict[str, str]) -> Optional[Holder]:
    """What a process holds; None when that may not be known. One that ended meanwhile holds nothing."""
    base = tree.place(f"/proc/{pid}")
    try:
        files = _open_files(f"{base}/fd", drm)
        libraries, old = _mapped(f"{base}/maps")
    except PermissionError:
        return None
    except OSError:
        return Holder(pid, "", -1, "", "")
    holder = Holder(pid, "", -1, "", "", sorted(files), libraries=libraries, old_libraries=old)
    if files or libraries:
        holder.minors = sorted(int(found.group(1)) for found in map(_GPU_FILE.match, files) if found)
        holder.name = _line(f"{base}/comm")
        holder.user = _owner(base)
        groups = _line(f"{base}/cgroup", 4096)
        holder.unit, holder.container = _last(_UNIT, groups), _last(_CONTAINER, groups)
    return holder


def _open_files(folder: str, drm: Dict[str, str]) -> Set[str]:
    found = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                target = os.readlink(entry.path)
            except OSError:
                continue  # closed meanwhile
            if _FILES.match(target) or (_DRM.match(target) and target in drm):
                found.add(target)
    return found


def _mapped(path: str) -> Tuple[bool, bool]:
    """Whether libraries of the driver are mapped, and whether one of them is not on disk any more."""
    text = read_file(path, _MAPS)
    if b"libnvidia-" not in text and b"libcuda" not in text:
        return False, False
    lines = [line for line in text.decode("utf-8", "replace").splitlines() if _LIBRARY.search(line)]
    return bool(lines), any(line.endswith(" (deleted)") for line in lines)


def _line(path: str, limit: int = 256) -> str:
    try:
        return read_file(path, limit).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _owner(path: str) -> int:
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


def _last(pattern: Pattern[str], text: str) -> str:
    found = pattern.findall(text)
    return found[-1] if found else ""
