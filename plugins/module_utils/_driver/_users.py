# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the GPUs of a host, told so that a person knows what to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence, Tuple

from .._host._files import Files
from .._host_state import _holders
from ._kernel import tree_of

_MPS = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
_SHOWN = 8


@dataclass(frozen=True)
class User:
    """A process that has files of GPUs open. ``stuck``: it waits in the kernel, and no signal ends it."""

    pid: int
    name: str
    unit: str = ""
    container: str = ""
    files: Tuple[str, ...] = ()
    stuck: bool = False

    def told(self) -> str:
        """``python3 (pid 4711, container 3f2a91c0b7de)``."""
        where = f"container {self.container[:12]}" if self.container else self.unit
        return f"{self.name or 'a process'} (pid {self.pid}{f', {where}' if where else ''})"


def users(files: Files) -> List[User]:
    """Every process with a GPU's file open, by pid."""
    tree = tree_of(files, "processes")
    return [
        User(
            each.pid,
            each.name,
            each.unit,
            each.container,
            tuple(each.files),
            _state(tree.text(f"/proc/{each.pid}/stat")) == "D",
        )
        for each in _holders.read(tree, sees_all=True)
        if each.files
    ]


def _state(stat: str) -> str:
    """The letter after the name, which may hold brackets and blanks itself."""
    return stat.rpartition(") ")[2][:1]


def told(found: Sequence[User]) -> str:
    """A list for a sentence, of the first few."""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(user.told() for user in found[:_SHOWN]) + more


def hint(found: Sequence[User]) -> str:
    """What to do about them."""
    if any(user.name.startswith(_MPS[0][:15]) or user.name in _MPS for user in found):
        return "End MPS: echo quit | nvidia-cuda-mps-control."
    if any(user.container for user in found):
        return "Stop these containers (drain the node where Kubernetes runs them)."
    return "Stop them."
