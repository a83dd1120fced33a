# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file system of a simulated node: which folders exist, and the few files whose content matters."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

BASE_FOLDERS = (
    "/boot", "/dev/char", "/dev/shm", "/dev/vfio", "/etc", "/home", "/lib/modules", "/opt", "/proc", "/run",
    "/sys/bus/pci/devices",
    "/sys/devices/system", "/sys/fs/cgroup", "/sys/module/firmware_class/parameters", "/tmp", "/usr/bin", "/usr/lib",
    "/usr/local", "/usr/src",
    "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources", "/var/log",
)  # fmt: skip
BASE_FILES = {
    "/dev/log": "",
    "/proc/swaps": "Filename Type Size Used Priority\n",
    "/sys/module/firmware_class/parameters/path": "\n",
    "/sys/class/dmi/id/product_name": "PowerEdge XE9680\n",
}


def normal(path: str) -> str:
    """One name for a path: no trailing slash, and /var/run is a link to /run as on every current distribution."""
    path = posixpath.normpath(path)
    if path.startswith("//"):
        path = path[1:]
    if path == "/var/run" or path.startswith("/var/run/"):
        path = path[4:]
    return path


class NodeFS:
    """Folders and files of a host. Paths are host paths."""

    def __init__(self, folders: Iterable[str] = (), files: dict[str, str] | None = None) -> None:
        self.folders: set[str] = {"/"}
        self.files: dict[str, str] = {}
        for folder in (*BASE_FOLDERS, *folders):
            self.make(folder)
        for path, text in {**BASE_FILES, **(files or {})}.items():
            self.write(path, text)

    def make(self, path: str) -> None:
        path = normal(path)
        while path not in self.folders:
            self.folders.add(path)
            path = posixpath.dirname(path)

    def write(self, path: str, text: str) -> bool:
        """Writes a file (and the folders above it). True when something changed."""
        path = normal(path)
        self.make(posixpath.dirname(path))
        changed = self.files.get(path) != text
        self.files[path] = text
        return changed

    def read(self, path: str) -> str | None:
        return self.files.get(normal(path))

    def is_folder(self, path: str) -> bool:
        return normal(path) in self.folders

    def exists(self, path: str) -> bool:
        path = normal(path)
        return path in self.folders or path in self.files

    def remove(self, path: str) -> bool:
        return self.files.pop(normal(path), None) is not None

    def remove_tree(self, path: str) -> None:
        path = normal(path)
        self.folders = {f for f in self.folders if f != path and not f.startswith(path + "/")}
        self.files = {f: t for f, t in self.files.items() if f != path and not f.startswith(path + "/")}

    def listing(self, path: str) -> list[str]:
        """Names of the files directly in a folder."""
        path = normal(path)
        return sorted(posixpath.basename(f) for f in self.files if posixpath.dirname(f) == path)
