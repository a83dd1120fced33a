# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Made-up JSON documents in every layout, which know where their members stand."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

NAMES = ("runtimes", "nvidia", "exec-opts", "log-opts", "a", "ü", 'q"', "", "with space", "\n", "features", "x.y")
WORDS = ("", "a", "/usr/bin/x", "it's", '"', "\\", "\t", "ü€𝄞", "{", "}", ",", ": ", "\u2028", "\x7f", "\x01", "/")
NUMBERS = ("0", "-0", "17", "-1.5", "1e5", "1E-3", "12345678901234567890", "0.1", "2.0")


@dataclass
class Document:
    """``members``: path -> where the member's key begins and its value ends."""

    text: str = ""
    members: dict[tuple[str, ...], tuple[int, int]] = field(default_factory=dict)


class Maker:
    """One document for each state of the random generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.made = Document()
        self.parts: list[str] = []
        self.size = 0
        self.end = rng.choice(("\n", "\n", "\r\n"))
        self.step = rng.choice(("    ", "  ", "\t", ""))
        self.layout = rng.choice(("lines", "lines", "line", "wild"))

    def make(self) -> Document:
        self.put(self.blank())
        self.object((), 0)
        self.put(self.rng.choice(("", self.end, self.end + " ")))
        self.made.text = "".join(self.parts)
        return self.made

    def put(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)

    def blank(self) -> str:
        return self.rng.choice(("", " ", self.end, "\t", " " + self.end + " ")) if self.layout == "wild" else ""

    def line(self, level: int) -> None:
        self.put({"lines": self.end + self.step * level, "line": "", "wild": self.blank()}[self.layout])

    def string(self, text: str) -> str:
        out = json.dumps(text, ensure_ascii=self.rng.random() < 0.5)
        return out.replace("/", "\\/") if self.rng.random() < 0.2 else out

    def value(self, path: tuple[str, ...], level: int) -> None:
        kind = self.rng.randint(0, 6 if level < 4 else 3)
        if kind <= 1:
            self.put(self.string("".join(self.rng.choice(WORDS) for _each in range(self.rng.randint(0, 2)))))
        elif kind <= 3:
            self.put(self.rng.choice((*NUMBERS, "true", "false", "null")))
        elif kind == 4:
            self.array(level)
        else:
            self.object(path, level)

    def array(self, level: int) -> None:
        self.put("[")
        for number in range(self.rng.randint(0, 3)):
            self.put("," if number else "")
            self.line(level + 1)
            self.value((), 9)
        self.line(level)
        self.put("]")

    def object(self, path: tuple[str, ...], level: int) -> None:
        self.put("{")
        names = self.rng.sample(NAMES, self.rng.randint(0, 4))
        for number, name in enumerate(names):
            self.put("," if number else "")
            self.line(level + 1)
            start = self.size
            self.put(self.string(name) + self.blank() + ":" + (self.blank() or self.rng.choice(("", " "))))
            self.value((*path, name), level + 1)
            self.made.members[(*path, name)] = (start, self.size)
        if names:
            self.line(level)
        self.put("}")


def document(seed: object) -> Document:
    """The document of a seed."""
    return Maker(random.Random(f"json {seed}")).make()


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def read(text: str) -> dict[str, Any]:
    """What the standard library says, names twice and bytes that are no UTF-8 refused; the top is an object."""
    text.encode()
    if not text.strip(" \t\r\n"):
        return {}
    data = json.loads(text, parse_constant=_refuse, object_pairs_hook=_once)
    if not isinstance(data, dict):
        raise ValueError("no object")
    return data
