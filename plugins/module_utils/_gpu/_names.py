# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of MIG profiles: reading, canonical form, NVML's indexes, and the number of GB in a name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from typing import Dict, Tuple

# GI profile index -> attributes as its name spells them. Indexes 0-6 and 9 have none, 9 has double memory.
ATTRIBUTES: Dict[int, str] = {
    **dict.fromkeys((0, 1, 2, 3, 4, 5, 6, 9), ""),
    **dict.fromkeys((7, 8), "+me"),
    **dict.fromkeys((10, 11, 12, 17), "+gfx"),
    **dict.fromkeys((13, 14), "-me"),
    **dict.fromkeys((15, 16), "+me.all"),
}

_WORD = r"[A-Za-z](?:[A-Za-z0-9.]*[A-Za-z0-9])?"
_NAME = re.compile(rf"(?:([0-9]+)c\.)?([0-9]+)g\.([0-9]+)gb(?:([+-])({_WORD}(?:,{_WORD})*))?", re.ASCII)
_LONGEST = 100


class BadName(ValueError):
    """Not the name of a profile."""


@dataclass(frozen=True)
class Name:
    """A profile's name in parts: ``compute``c.``slices``g.``gb``gb, and words added (``+``) or taken away (``-``)."""

    compute: int
    slices: int
    gb: int
    sign: str = ""
    words: Tuple[str, ...] = ()

    @property
    def attributes(self) -> str:
        return self.sign + ",".join(self.words)

    @property
    def instance(self) -> str:
        """The name of the GPU instance: without its part of the compute slices."""
        return f"{self.slices}g.{self.gb}gb{self.attributes}"

    def __str__(self) -> str:
        part = "" if self.compute == self.slices else f"{self.compute}c."
        return part + self.instance


def parse(text: object) -> Name:
    """The parts of a name such as ``1c.2g.10gb`` or ``1g.10gb+me``. Raises BadName."""
    found = _NAME.fullmatch(text) if isinstance(text, str) and len(text) <= _LONGEST else None
    if not found:
        shown = text if isinstance(text, str) and len(text) <= _LONGEST else type(text).__name__
        raise BadName(f"{shown!r} is no name of a MIG profile; they look like 1g.10gb, 1c.2g.20gb or 1g.10gb+me")
    compute, slices, gb, sign, words = found.groups()
    listed = tuple(words.split(",")) if words else ()
    if len(set(listed)) != len(listed):
        raise BadName(f"{text!r} has an attribute twice")
    return Name(int(compute or slices), int(slices), int(gb), sign or "", listed)


def gigabytes(memory: int, total: int) -> int:
    """The GB of a name: ``memory`` MiB of the profile, ``total`` bytes of the board, in eighths of it."""
    if total <= 0:
        return round(memory / 1024)
    eighths = ceil(8 * memory * 2**20 / total)
    return int(eighths / 8 * ceil(total / 2**30) + 0.5)


def computed_name(index: int, slices: int, memory: int, total: int) -> str:
    """The name of a profile whose driver tells none."""
    return f"{slices}g.{gigabytes(memory, total)}gb{ATTRIBUTES.get(index, '')}"
