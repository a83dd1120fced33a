# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts as folders: written from a mapping of paths to contents, or from what was recorded on real machines."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._collect import Host, as_dict, collect
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._tree import Problems, Tree

RECORDED = Path(__file__).resolve().parents[3] / "fixtures/hosts"
LINK = "-> "

Files = Mapping[str, Union[str, bytes]]


def grow(root: Path, files: Files) -> Path:
    """Writes the files below ``root``; a content ``-> target`` makes a link (and the folder that it points to)."""
    for path, content in sorted(files.items(), key=lambda one: (not _is_link(one[1]), one[0])):
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if _is_link(content):
            target = str(content)[len(LINK) :]
            place.symlink_to(target)
            if path.startswith("/sys/"):
                (place.parent / target).mkdir(parents=True, exist_ok=True)
        else:
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def _is_link(content: str | bytes) -> bool:
    return isinstance(content, str) and content.startswith(LINK)


def recorded(name: str) -> dict[str, str]:
    files: dict[str, str] = json.loads((RECORDED / name / "tree.json").read_text(encoding="utf-8"))
    return files


def tree(root: Path, files: Files) -> Tree:
    return Tree(str(grow(root, files)), "test", Problems())


def found(root: Path, files: Files) -> tuple[dict[str, Any], dict[str, Any]]:
    """What gpu_info finds there: plain data, and findings by id."""
    state, findings = collect(Host(str(grow(root, files))))
    return as_dict(state), {finding.id: finding for finding in findings}


def gpu(bus: str, device: str, driver: str = "", pci_class: str = "0x030200", **more: str) -> dict[str, str]:
    """A PCI function of vendor 10de as sysfs shows it."""
    folder = f"/sys/bus/pci/devices/{bus}"
    files = {f"{folder}/vendor": "0x10de\n", f"{folder}/device": f"{device}\n", f"{folder}/class": f"{pci_class}\n"}
    if driver:
        files[f"{folder}/driver"] = f"-> ../../drivers/{driver}"
    return {**files, **{f"{folder}/{name}": content for name, content in more.items()}}


def loaded(version: str, flavour: str = "open") -> dict[str, str]:
    """A loaded driver."""
    kernel = "Open Kernel Module for x86_64" if flavour == "open" else "x86_64 Kernel Module"
    return {
        "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX {kernel}  {version}  Release Build  (builder)\n",
        "/sys/module/nvidia/version": f"{version}\n",
    }


def module_file(**fields: str) -> bytes:
    """A kernel module file with these fields, as the ELF format asks for."""
    info = b"".join(f"{key}={value}".encode() + b"\0" for key, value in fields.items())
    names = b"\0.modinfo\0.shstrtab\0"
    start = 64
    table = start + len(info) + len(names)
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    )
    sections = [(0, 0, 0), (1, start, len(info)), (10, start + len(info), len(names))]
    rows = b"".join(struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, at, size, 0, 0, 1, 0) for name, at, size in sections)
    return header + info + names + rows


def listen(path: Path) -> socket.socket:
    """A socket file with somebody who listens. Folders of tests may be too deep for one: it is bound by a short way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    here = os.open(path.parent, os.O_RDONLY)
    try:
        server.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)
    server.listen(1)
    return server
