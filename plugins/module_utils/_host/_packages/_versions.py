# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Order of versions, as dpkg and as rpm have it."""

from __future__ import annotations

import re
from functools import cmp_to_key
from typing import List, Tuple

_PART = re.compile(r"(\d+)|([^\d]+)")
_RPM_PART = re.compile(r"(\d+)|([A-Za-z]+)|(~)|(\^)")


def compare(manager: str, one: str, other: str) -> int:
    """-1 where ``one`` is older than ``other``, 1 where it is newer, else 0; for apt in dpkg's order, else in rpm's."""
    part = _dpkg if manager == "apt" else _rpm
    for left, right in zip(_split(one), _split(other)):
        order = part(left, right)
        if order:
            return order
    return 0


def newest_first(manager: str, versions: List[str]) -> List[str]:
    """Sorted, each once."""

    def order(one: str, other: str) -> int:
        return compare(manager, one, other)

    return sorted(dict.fromkeys(versions), key=cmp_to_key(order), reverse=True)


def _split(version: str) -> Tuple[str, str, str]:
    """Epoch, upstream version, revision or release."""
    epoch, _colon, rest = version.rpartition(":")
    upstream, dash, revision = rest.rpartition("-")
    return (epoch or "0", upstream, revision) if dash else (epoch or "0", rest, "")


def _dpkg(one: str, other: str) -> int:
    """Text and numbers in turn; ``~`` comes before the end, the end before letters, letters before the rest."""
    left, right = _turns(one), _turns(other)
    for index in range(max(len(left), len(right))):
        words, number = left[index] if index < len(left) else ("", 0)
        words2, number2 = right[index] if index < len(right) else ("", 0)
        a, b = ([_weight(char) for char in text] + [0] for text in (words, words2))
        if (a, number) != (b, number2):
            return -1 if (a, number) < (b, number2) else 1
    return 0


def _turns(text: str) -> List[Tuple[str, int]]:
    turns: List[Tuple[str, int]] = []
    words = ""
    for number, other in _PART.findall(text):
        if other:
            words = other
        else:
            turns.append((words, int(number)))
            words = ""
    return [*turns, (words, 0)] if words else turns


def _weight(char: str) -> int:
    if char == "~":
        return -1
    return ord(char) if char.isalpha() else ord(char) + 256


def _rpm(one: str, other: str) -> int:
    """Runs of digits or letters; a number is newer than letters, ``~`` older and ``^`` newer than the end."""
    left, right = ([match.groups() for match in _RPM_PART.finditer(text)] for text in (one, other))
    for index in range(max(len(left), len(right))):
        a = _rank(left[index] if index < len(left) else None)
        b = _rank(right[index] if index < len(right) else None)
        if a != b:
            return -1 if a < b else 1
    return 0


def _rank(part: object) -> Tuple[int, int, str]:
    if not isinstance(part, tuple):
        return (1, 0, "")
    number, letters, tilde, _caret = part
    if number:
        return (4, int(number), "")
    if letters:
        return (3, 0, letters)
    return (0, 0, "") if tilde else (2, 0, "")
