# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How network adapters reach GPU memory: DMA-BUF, which needs no module, or nvidia-peermem."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Sequence, Tuple

from .._host._files import Files
from .._matrix import LIMITS, version_key
from ._kernel import tree_of

DMA_BUF = "dma_buf"
PEERMEM = "peermem"
NONE = "none"
AUTO = "auto"

_FROM = LIMITS["dmabuf_kernel"].oldest
_WITHOUT = ("fermi", "kepler", "maxwell", "pascal", "volta")


@dataclass(frozen=True)
class Peer:
    """``way``: dma_buf, peermem or none; ``modules``: to be loaded for it; ``why``: a sentence; ``problem``: why the
    way that was asked for cannot be, "" where it can."""

    way: str
    why: str
    modules: Tuple[str, ...] = ()
    problem: str = ""


def adapters(files: Files) -> bool:
    """Whether this host has InfiniBand or RoCE adapters with their drivers loaded."""
    tree = tree_of(files)
    return bool(tree.names("/sys/class/infiniband")) or tree.kind("/sys/module/ib_core") == "folder"


def choose(asked: str, flavour: str, kernel: str, architectures: Sequence[str], has_adapters: bool) -> Peer:
    """The way for a host. DMA-BUF wants the open modules, a kernel that is new enough, and GPUs from Turing on."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", kernel)[:2])
    lacks = [
        why
        for lacking, why in (
            (flavour != "open", "the open modules"),
            (numbers < version_key(_FROM), f"kernel {_FROM} or newer (this is {kernel})"),
            (any(each in _WITHOUT for each in architectures), "GPUs from Turing on"),
        )
        if lacking
    ]
    if asked == NONE:
        return Peer(NONE, "Not asked for.")
    if asked == DMA_BUF:
        problem = f"DMA-BUF needs {' and '.join(lacks)}. Ask for peermem instead." if lacks else ""
        return Peer(DMA_BUF, "Asked for.", problem=problem)
    if asked == PEERMEM:
        problem = "" if has_adapters else _NO_ADAPTERS
        return Peer(PEERMEM, "Asked for.", ("nvidia_peermem",), problem)
    if not has_adapters:
        return Peer(NONE, "This host has no InfiniBand or RoCE adapter with its driver loaded.")
    if lacks:
        return Peer(PEERMEM, f"DMA-BUF would need {' and '.join(lacks)}.", ("nvidia_peermem",))
    return Peer(DMA_BUF, "The open modules and this kernel do it without a module of its own.")


_NO_ADAPTERS = (
    "nvidia-peermem needs ib_core, and this host has no InfiniBand or RoCE adapter with its driver loaded. Install "
    "that driver (inbox mlx5_core, or DOCA-OFED) first."
)
