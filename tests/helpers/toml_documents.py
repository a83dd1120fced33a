# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Made-up TOML documents of every shape that TOML 1.0 allows, which know where their statements and tables stand."""

from __future__ import annotations

import datetime
import random
from dataclasses import dataclass, field
from typing import Any, Callable

try:
    import tomllib
except ImportError:  # Python 3.9 and 3.10
    import tomli as tomllib  # type: ignore[import-not-found,no-redef]
import tomlkit

Path = tuple[str, ...]
NAMES = (
    "a",
    "runtimes",
    "nvidia",
    "io.containerd.grpc.v1.cri",
    "x-1",
    "1",
    "k_2",
    "ü",
    "with space",
    'q"q',
    "",
    "#",
    "a.b",
)
WORDS = (
    "", "a", "/usr/bin/nvidia-container-runtime", "it's", 'say "x"', "back\\slash", "tab\there", "ü€𝄞", "# no comment",
    "[no.header]", "a = 1", "}", "line\nline", "\x01\x7f", "'''", '"""', "end\\", '"', "\r\n",
)  # fmt: skip
MOMENTS = (
    "1979-05-27T07:32:00Z",
    "1979-05-27 07:32:00.5+01:30",
    "1979-05-27t00:32:00",
    "2024-02-29",
    "07:32:00.999999",
)
NUMBERS = (
    "0",
    "-17",
    "+99",
    "1_000",
    "0xDEAD_beef",
    "0o755",
    "0b1101",
    "-0",
    "9223372036854775807",
    "-9223372036854775808",
)
FLOATS = ("1.5", "-0.01", "5e+22", "1e06", "6.626e-34", "inf", "-inf", "nan", "9_224.445_1", "-0.0", "+1.0")


@dataclass
class Document:
    """``statements``: path -> where its lines begin and end in the text, unless an array of tables is on the way.

    ``sections``: (path, start of the header, end of its last line) of each table with a header; elements of arrays of
    tables have a number in their path.
    """

    text: str = ""
    statements: dict[Path, tuple[int, int]] = field(default_factory=dict)
    sections: list[tuple[tuple[Any, ...], int, int]] = field(default_factory=list)


class Maker:
    """One document for each state of the random generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.made = Document()
        self.parts: list[str] = []
        self.size = 0
        self.ends = rng.choice((("\n",), ("\n",), ("\r\n",), ("\n", "\r\n")))
        self.used: dict[tuple[Any, ...], set[str]] = {(): set()}
        self.closed: set[tuple[Any, ...]] = {()}  # tables that have a header, or none
        self.open: list[tuple[Any, ...]] = [()]  # below which tables may stand

    def make(self) -> Document:
        for _each in range(self.rng.randint(0, 2)):
            self._noise()
        if self.rng.random() < 0.8:
            self._body((), 0)
        for _each in range(self.rng.randint(0, 5)):
            self._section()
        for _each in range(self.rng.randint(0, 1)):
            self._noise()
        self.made.text = "".join(self.parts)
        if self.rng.random() < 0.2 and self.made.text.endswith("\n"):
            self.made.text = self.made.text.rstrip("\r\n")
        return self.made

    # ---- pieces

    def _chance(self, part: float) -> bool:
        return self.rng.random() < part

    def _put(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)

    def _end(self) -> str:
        return self.rng.choice(self.ends)

    def _blank(self) -> str:
        return self.rng.choice(("", "", " ", "\t", "  "))

    def _comment(self) -> str:
        return self.rng.choice(("# comment", "#x = 1", "# [head]", "#", '# "quoted', "# ü\ttab"))

    def _noise(self) -> None:
        """Blank lines and comments."""
        for _each in range(self.rng.randint(1, 2)):
            self._put(self._blank() + (self._comment() if self._chance(0.5) else "") + self._end())

    def _new_name(self, table: tuple[Any, ...]) -> str:
        used = self.used.setdefault(table, set())
        name = self.rng.choice(NAMES)
        while name in used:
            name += self.rng.choice("abcdef")
        used.add(name)
        return name

    def name(self, name: str) -> str:
        if (
            name
            and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in name)
            and self._chance(0.7)
        ):
            return name
        if "'" not in name and self._chance(0.4):
            return f"'{name}'"
        return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def _key(self, path: Path) -> str:
        return (self._blank() + "." + self._blank()).join(map(self.name, path))

    # ---- values

    def value(self, depth: int = 0) -> str:
        kind = self.rng.randint(0, 9 if depth < 3 else 6)
        if kind <= 2:
            return self.string()
        if kind <= 6:
            return self.rng.choice((("true", "false"), NUMBERS, FLOATS, MOMENTS)[kind - 3])
        return self._braces(depth) if kind == 9 else self._array(depth)

    def string(self) -> str:
        text = "".join(self.rng.choice(WORDS) for _each in range(self.rng.randint(0, 2)))
        kinds: list[Callable[[str], str]] = [self._basic, self._basic, self._long]
        plain = all(letter >= " " and letter not in "'\x7f" for letter in text)
        if plain:
            kinds += [lambda one: f"'{one}'", lambda one: f"'''{one}'''"]
        return self.rng.choice(kinds)(text)

    def _basic(self, text: str) -> str:
        out = []
        for letter in text:
            code = ord(letter)
            if letter in '"\\':
                out.append("\\" + letter)
            elif code < 32 or code == 127 or (code > 126 and self._chance(0.3)):
                out.append(f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08x}")
            else:
                out.append(letter)
        return '"' + "".join(out) + '"'

    def _long(self, text: str) -> str:
        inner = self._basic(text)[1:-1].replace("\\u000A", self._end())
        if self._chance(0.3):
            inner += "\\" + self._blank() + self._end() + "   "
        if self._chance(0.2):
            inner += '""'
        return '"""' + (self._end() if self._chance(0.5) else "") + inner + '"""'

    def _array(self, depth: int) -> str:
        wide = self._chance(0.4)

        def gap() -> str:
            if not wide:
                return self._blank()
            return self._blank() + (self._comment() if self._chance(0.3) else "") + self._end() + self._blank()

        items = [self.value(depth + 1) for _each in range(self.rng.randint(0, 4))]
        text = "[" + gap()
        for number, item in enumerate(items):
            last = number == len(items) - 1
            comma = "," if not last or self._chance(0.4) else ""
            text += item + (gap() if self._chance(0.2) else "") + comma + gap()
        return text + "]"

    def _braces(self, depth: int) -> str:
        used: set[str] = set()
        entries = []
        for _each in range(self.rng.randint(0, 3)):
            name = self.rng.choice([one for one in NAMES if one not in used])
            used.add(name)
            path = (name, "deep") if self._chance(0.2) else (name,)
            entries.append(f"{self._key(path)}{self._blank()}={self._blank()}{self.value(depth + 1)}")
        comma = f"{self._blank()},{self._blank()}"
        return "{" + self._blank() + comma.join(entries) + self._blank() + "}"

    # ---- tables

    def _body(self, table: tuple[Any, ...], indent: int) -> int:
        """Statements below a header; where the last one ends."""
        end = self.size
        for _each in range(self.rng.randint(0, 4)):
            if self._chance(0.25):
                self._noise()
            if self._chance(0.2):
                end = self._dotted(table, indent)
            else:
                end = self._statement(table, (self._new_name(table),), indent)
        return end

    def _dotted(self, table: tuple[Any, ...], indent: int) -> int:
        name, end = self._new_name(table), self.size
        for inner in self.rng.sample(("one", "two", "three"), self.rng.randint(1, 3)):
            end = self._statement(table, (name, inner, "deep") if self._chance(0.3) else (name, inner), indent)
        return end

    def _statement(self, table: tuple[Any, ...], path: Path, indent: int) -> int:
        start = self.size
        after = self._blank() + (self._comment() if self._chance(0.3) else "") + self._end()
        self._put(f"{' ' * indent}{self._key(path)}{self._blank()}={self._blank()}{self.value()}{after}")
        if all(isinstance(part, str) for part in table):
            self.made.statements[(*table, *path)] = (start, self.size)
        return self.size

    def _section(self) -> None:
        parent = self.rng.choice(self.open)
        if parent and parent not in self.closed and self._chance(0.3):
            self._headed(parent, False)  # named on the way before
            return
        many = self._chance(0.25)
        path = (*parent, self._new_name(parent))
        if not many and self._chance(0.3):
            self.open.append(path)
            path = (*path, self._new_name(path))
        for number in range(self.rng.randint(1, 3) if many else 1):
            here = (*path, number) if many else path
            self._headed(here, many)
            if many and self._chance(0.4):
                self._headed((*here, self._new_name(here)), False)
        if not many:
            self.open.append(path)

    def _headed(self, path: tuple[Any, ...], many: bool) -> None:
        if self._chance(0.7):
            self._noise()
        self.closed.add(path)
        indent, start = self.rng.choice((0, 0, 2)), self.size
        names = self._key(tuple(part for part in path if isinstance(part, str)))
        brackets = ("[[", "]]") if many else ("[", "]")
        after = self._blank() + (self._comment() if self._chance(0.2) else "") + self._end()
        self._put(f"{' ' * indent}{brackets[0]}{self._blank()}{names}{self._blank()}{brackets[1]}{after}")
        head = self.size
        end = self._body(path, indent + self.rng.choice((0, 2)))
        self.made.sections.append((path, start, max(head, end)))


def document(seed: object) -> Document:
    """The document of a seed."""
    return Maker(random.Random(f"toml {seed}")).make()


def read(text: str) -> dict[str, Any]:
    """What tomllib says. Raises ValueError, also for bytes that are no UTF-8."""
    text.encode()
    return tomllib.loads(text)


def read_tomlkit(text: str) -> dict[str, Any]:
    """What tomlkit says. Line ends within texts are told as tomllib tells them."""
    data = tomlkit.parse(text.replace("\r\n", "\n")).unwrap()
    assert isinstance(data, dict)
    return data


def plain(value: Any) -> Any:
    """Data of any reader as what can be compared: kinds apart, dates as objects, nan equal to itself."""
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if type(value).__name__ == "Moment":
        return plain(read(f"x = {value}")["x"])
    if isinstance(value, (datetime.date, datetime.time)):
        return ("moment", value.isoformat())
    return (type(value).__name__, repr(value))


def broken(rng: random.Random, text: str) -> str:
    """The text with some damage: mostly no TOML any more."""
    for _each in range(rng.randint(1, 3)):
        at = rng.randint(0, len(text))
        end = min(len(text), at + rng.randint(1, 12))
        kind = rng.randint(0, 6)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + rng.choice("[]{}=\"'\\,.#\n\r\t\0\x1b\x7f\udcff_+-0eEtZ:\u2028") + text[at:]
        elif kind == 2:
            text = text[:at] + text[at:end] * 2 + text[end:]
        elif kind == 3:
            text = text[:at]
        elif kind == 4:
            other = rng.randint(0, len(text))
            text = text[:at] + text[other : other + 30] + text[at:]
        elif kind == 5:
            text = (
                text[:at]
                + bytes(rng.randrange(256) for _each in range(6)).decode("utf-8", "surrogateescape")
                + text[end:]
            )
        else:
            lines = text.splitlines(keepends=True)
            rng.shuffle(lines)
            text = "".join(lines)
    return text
