# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strings of Helm's ``--set``: ``a.b=c,d[0].e=f,g={x,y}``, read into values as Helm reads them.

``true``, ``false``, ``null`` and whole numbers without leading zero get their type; everything else is a text. A
backslash takes the meaning from ``. , = [ ] { }``. A string may begin with ``--set`` or ``--set-string`` (all texts).
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Sequence, Tuple, Union

from .._plan import ERROR, Finding

MAX_INDEX = 65536
MAX_NESTED = 30

Step = Union[str, int]


class _Bad(Exception):
    """Bad syntax: what, and where in the string (counted from 1)."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(what)
        self.position = position + 1


def apply(values: Dict[str, Any], strings: Sequence[str]) -> List[Finding]:
    """Sets what the strings say in ``values``, in order; a string with bad syntax is left out and reported."""
    found: List[Finding] = []
    for text in strings:
        try:
            for path, value in _parse(*_without_option(text)):
                _assign(values, path, value)
        except _Bad as bad:
            found.append(
                Finding(
                    "policy.set-syntax",
                    ERROR,
                    f"--set {text[:200]}: {bad} at character {bad.position}.",
                    path="set_values",
                    remedy="The form is key.key=value, commas between several, {a,b} for a list, [0] for one entry.",
                )
            )
    return found


def _without_option(text: str) -> Tuple[str, bool]:
    found = re.match(r"--set(-string)?(\s+|=)", text)
    return (text[found.end() :], bool(found.group(1))) if found else (text, False)


def _parse(text: str, texts: bool) -> List[Tuple[List[Step], Any]]:
    reader = _Reader(text, texts)
    pairs: List[Tuple[List[Step], Any]] = []
    while not reader.at_end():
        pairs.append(reader.pair())
    if not pairs:
        raise _Bad("nothing is set", 0)
    return pairs


class _Reader:
    def __init__(self, text: str, texts: bool) -> None:
        self._text = text
        self._at = 0
        self._texts = texts

    def at_end(self) -> bool:
        return self._at >= len(self._text)

    def pair(self) -> Tuple[List[Step], Any]:
        """One ``key=value``, and the comma after it."""
        path = self._path()
        value = self._list() if self._next_is("{") else self._typed(self._until(","))
        if not self.at_end():
            if self._text[self._at] != ",":
                raise _Bad(f"a comma is needed before {self._text[self._at]!r}", self._at)
            self._at += 1
            if self.at_end():
                raise _Bad("a key is needed after the comma", self._at - 1)
        return path, value

    def _path(self) -> List[Step]:
        start = self._at
        path: List[Step] = [self._name()]
        while True:
            if self.at_end() or self._text[self._at] == ",":
                raise _Bad(f"key {self._text[start : self._at]!r} has no value", start)
            mark = self._text[self._at]
            self._at += 1
            if mark == "=":
                return path
            if mark == "[":
                path.append(self._index())
            else:
                path.append(self._name())
            if len(path) > MAX_NESTED:
                raise _Bad(f"keys are nested deeper than {MAX_NESTED}", start)

    def _name(self) -> str:
        start = self._at
        name = self._until(".=[,")
        if not name:
            raise _Bad("a key is missing", start)
        return name

    def _index(self) -> int:
        start = self._at
        digits = self._until("]")
        if self.at_end():
            raise _Bad("']' is missing", start)
        self._at += 1
        if not digits.isascii() or not digits.isdigit():
            raise _Bad(f"{digits!r} is not the number of an entry", start)
        if len(digits) > 6 or int(digits) > MAX_INDEX:
            raise _Bad(f"an entry above {MAX_INDEX} is not allowed", start)
        if not self.at_end() and self._text[self._at] not in "=.[,":
            raise _Bad("after ']' there must be '=', '.' or '['", self._at)
        return int(digits)

    def _next_is(self, mark: str) -> bool:
        return not self.at_end() and self._text[self._at] == mark

    def _list(self) -> List[Any]:
        start = self._at
        self._at += 1
        items: List[Any] = []
        while True:
            item_start = self._at
            item = self._until(",}")
            if self.at_end():
                raise _Bad("'}' is missing", start)
            closing = self._text[self._at] == "}"
            empty = closing and not items and item_start == self._at
            self._at += 1
            if not empty:
                items.append(self._typed(item))
            if closing:
                return items

    def _until(self, stops: str) -> str:
        """Text up to one of ``stops`` (which stays), backslashes removed."""
        taken: List[str] = []
        while not self.at_end() and self._text[self._at] not in stops:
            if self._text[self._at] == "\\":
                self._at += 1
                if self.at_end():
                    raise _Bad("nothing follows the backslash", self._at - 1)
            taken.append(self._text[self._at])
            self._at += 1
        return "".join(taken)

    def _typed(self, text: str) -> Any:
        if self._texts:
            return text
        plain = text.lower()
        if plain in ("true", "false"):
            return plain == "true"
        if plain == "null":
            return None
        if text == "0" or re.match(r"^[+-]?[1-9][0-9]{0,17}$", text):
            return int(text)
        return text


def _assign(values: Dict[str, Any], path: List[Step], value: Any) -> None:
    here: Any = values
    for number, step in enumerate(path):
        last = number == len(path) - 1
        following: Any = None if last else ([] if isinstance(path[number + 1], int) else {})
        _fits(here, step, path, number)
        if isinstance(step, int):
            while len(here) <= step:
                here.append(None)
            current = here[step]
        else:
            current = here.get(step)
        if last:
            here[step] = value
        elif current is None:
            here[step] = following
        here = here[step]


def _fits(here: Any, step: Step, path: List[Step], number: int) -> None:
    wanted: Any = list if isinstance(step, int) else dict
    if not isinstance(here, wanted):
        name = ".".join(str(part) for part in path[:number])
        raise _Bad(f"{name} is not a {'list' if wanted is list else 'map'}", 0)
