# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The persistence daemon: some packages start it with persistence mode off, which a drop-in for its unit mends."""

from __future__ import annotations

import re
from typing import Dict, List

from .._host._files import Files
from .._host_state._tree import Tree
from ._kernel import tree_of

UNIT = "nvidia-persistenced.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/gpufleet.conf"
_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_MODE = re.compile(r"\s+--(no-)?persistence-mode(?=\s|\Z)")
_START = re.compile(r"(?m)^ExecStart=(.*)$")


def starts(files: Files) -> str:
    """The command of the unit, with the drop-ins of others; "" where there is no such unit."""
    tree = tree_of(files)
    main = next((text for text in (tree.text(f"{folder}/{UNIT}") for folder in _FOLDERS) if text), "")
    if not main:
        return ""
    commands: List[str] = []
    for text in [main, *_drop_ins(tree)]:
        for command in _START.findall(text):
            commands = [*commands, command.strip()] if command.strip() else []
    return commands[-1] if commands else ""


def _drop_ins(tree: Tree) -> List[str]:
    """Texts in the order in which systemd reads them: by name, and of one name the first folder's."""
    found: Dict[str, str] = {}
    for folder in _FOLDERS:
        for name in tree.names(f"{folder}/{UNIT}.d"):
            path = f"{folder}/{UNIT}.d/{name}"
            if name.endswith(".conf") and path != DROP_IN:
                found.setdefault(name, path)
    return [tree.text(found[name]) for name in sorted(found)]


def wanted_files(files: Files, on: bool = True) -> Dict[str, str]:
    """The drop-in with its text, where the unit would start the daemon with the other mode; none where it fits."""
    command = starts(files)
    if not command:
        return {}
    now = "--no-persistence-mode" not in command.split()  # the daemon's own choice is on
    if now == on:
        return {}
    mode = "--persistence-mode" if on else "--no-persistence-mode"
    start = f"{_MODE.sub('', command)} {mode}"
    return {DROP_IN: f"# Made by gpufleet.nvidia.nvidia_driver.\n[Service]\nExecStart=\nExecStart={start}\n"}
