# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading TOML 1.0 into a tree that knows where each part stands in the text.

Hosts have no library for it: tomllib came with Python 3.11.
"""

from __future__ import annotations

import datetime
import re
from typing import Any, Dict, List, NoReturn, Optional, Pattern, Tuple, Union

from ._data import Moment

MOST_CHARACTERS = 1024 * 1024  # a configuration file has some thousand
MOST_LEVELS = 100

ROOT = "root"
HEADER = "header"  # [a.b], or an element of [[a.b]]
IMPLIED = "implied"  # a of [a.b]
DOTTED = "dotted"  # a of a.b = 1
INLINE = "inline"  # a of a = {b = 1}

_PLAIN = r"\x00-\x08\x0a-\x1f\x7f"  # what may stand nowhere: control characters, and line ends where a line goes on
_BLANKS = re.compile(r"[ \t]*")
_LINE_END = re.compile(r"\r?\n")
_BETWEEN = re.compile(rf"(?:[ \t\n]+|\r\n|#[^{_PLAIN}]*(?=\r?\n|\Z))*")
_COMMENT = re.compile(rf"#[^{_PLAIN}]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(rf'"([^"\\{_PLAIN}]*(?:\\.[^"\\{_PLAIN}]*)*)"')
_LITERAL = re.compile(rf"'([^'{_PLAIN}]*)'")
_LONG = {
    '"': re.compile(r'(?:[^"\\\x00-\x08\x0b-\x1f\x7f]|\r\n)+'),
    "'": re.compile(r"(?:[^'\x00-\x08\x0b-\x1f\x7f]|\r\n)+"),
}
_ESCAPE = re.compile(r'\\(?:([btnfr"\\])|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))')
_CONTINUED = re.compile(r"\\[ \t]*\r?\n(?:[ \t\n]+|\r\n)*")
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}

_WORD = re.compile(r"[A-Za-z0-9_+:.-]+")
_WHOLE = re.compile(r"[+-]?(?:0|[1-9](?:_?[0-9])*)\Z")
_BASES = {
    16: re.compile(r"0x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*\Z"),
    8: re.compile(r"0o[0-7](?:_?[0-7])*\Z"),
    2: re.compile(r"0b[01](?:_?[01])*\Z"),
}
_FRACTION = re.compile(
    r"[+-]?(?:(?:0|[1-9](?:_?[0-9])*)(?:\.[0-9](?:_?[0-9])*)?(?:[eE][+-]?[0-9](?:_?[0-9])*)?|inf|nan)\Z"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
_TIME = re.compile(rf"{_CLOCK}\Z")
_AFTER_DATE = re.compile(rf" {_CLOCK}(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?")
_DATE_TIME = re.compile(
    rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})[Tt ]{_CLOCK}(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?\Z"
)
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class TomlError(ValueError):
    """The text is no TOML, or the change asked for cannot be made. ``line`` counts from 1; 0 where none is meant."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}" if line else what)
        self.line = line
        self.what = what


class Value:
    """Something that is no table, or one in braces. ``start`` to ``end`` is its text.

    ``outer`` to ``outer_end`` is the whole statement: its lines, or within braces the key and the value.
    """

    __slots__ = ("data", "end", "items", "outer", "outer_end", "start", "table")

    def __init__(self, start: int, end: int, data: Any) -> None:
        self.start, self.end, self.data = start, end, data
        self.outer, self.outer_end = start, end
        self.items: List[Value] = []
        self.table: Optional[Table] = None


class Table:
    """``home`` is the table below whose header (or in whose braces) its keys stand, ``route`` the names from there.

    ``start`` is where its header or brace begins, ``head_end`` where its header's line ends; ``end`` is the end of the
    last line that belongs to it, or the place after its brace.
    """

    __slots__ = ("end", "entries", "head_end", "home", "indent", "kind", "route", "start", "statements", "value")

    def __init__(self, kind: str, home: Optional[Table] = None, route: Tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.entries: Dict[str, Node] = {}
        self.home: Table = home or self
        self.route = route
        self.start = self.head_end = self.end = 0
        self.indent: Optional[str] = None  # of its last key
        self.statements: List[Value] = []  # the statements below its header or within its braces, in order
        self.value: Optional[Value] = None  # what stands in braces

    def data(self) -> Dict[str, Any]:
        """Plain data."""
        return {name: _data(node) for name, node in self.entries.items()}


class Tables:
    """An array of tables: ``[[a]]``."""

    __slots__ = ("tables",)

    def __init__(self) -> None:
        self.tables: List[Table] = []


Node = Union[Value, Table, Tables]


def _data(node: Node) -> Any:
    if isinstance(node, Value):
        return node.data
    if isinstance(node, Table):
        return node.data()
    return [table.data() for table in node.tables]


class Reader:
    """Reads one text. ``root`` is the tree, ``sections`` all tables with a header, in the order of the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = Table(ROOT)
        self.sections: List[Table] = []
        self._check()
        self._here = self.root
        self._level = 0  # names in the header
        position = 0
        while position < len(text):
            position = self._statement(position)

    def _check(self) -> None:
        if len(self.text) > MOST_CHARACTERS:
            raise TomlError(1, f"the text has more than {MOST_CHARACTERS} characters")
        wrong = re.search("[\ud800-\udfff]", self.text)
        if wrong:
            self._fail(wrong.start(), "a byte that is no UTF-8")

    def _fail(self, position: int, what: str) -> NoReturn:
        raise TomlError(self.text.count("\n", 0, position) + 1, what)

    def _skip(self, pattern: Pattern[str], position: int) -> int:
        found = pattern.match(self.text, position)
        return found.end() if found else position

    def _shown(self, position: int) -> str:
        """What stands there, for a message."""
        rest = self.text[position : position + 12].split("\n")[0].rstrip("\r")
        return repr(rest) if rest else "the end of the line" if position < len(self.text) else "the end of the text"

    # ---- lines

    def _statement(self, line: int) -> int:
        position = self._skip(_BLANKS, line)
        letter = self.text[position : position + 1]
        if letter == "[":
            end = self._header(line, position)
        elif letter in ("", "#", "\n", "\r"):
            end = self._finish(position)
        else:
            end = self._pair(line, position)
        return end

    def _finish(self, position: int) -> int:
        """The end of the line: nothing but a comment may be left on it."""
        position = self._skip(_COMMENT, self._skip(_BLANKS, position))
        if position == len(self.text):
            return position
        found = _LINE_END.match(self.text, position)
        if not found:
            self._fail(position, f"{self._shown(position)} where the line should end")
        return found.end()

    def _header(self, line: int, position: int) -> int:
        many = self.text.startswith("[[", position)
        path, position = self._key(position + 1 + many)
        close = "]]" if many else "]"
        if not self.text.startswith(close, position):
            self._fail(position, f"{self._shown(position)} where {close} should stand")
        table = self._open(path, many, line)
        table.start, table.head_end = line, self._finish(position + len(close))
        table.end = table.head_end
        self._here, self._level = table, len(path)
        self.sections.append(table)
        return table.end

    def _open(self, path: List[str], many: bool, at: int) -> Table:
        inside = self._descend(path, at)
        name = path[-1]
        there = inside.entries.get(name)
        if many:
            if there is None:
                there = inside.entries[name] = Tables()
            if not isinstance(there, Tables):
                self._fail(at, f"{name} is there already, and is no array of tables")
            there.tables.append(Table(HEADER))
            return there.tables[-1]
        if there is None:
            there = inside.entries[name] = Table(HEADER)
        elif isinstance(there, Table) and there.kind == IMPLIED:
            there.kind = HEADER
        else:
            self._fail(at, f"{name} is there already")
        return there

    def _descend(self, path: List[str], at: int) -> Table:
        """The table in which the last name of a header stands."""
        inside = self.root
        for name in path[:-1]:
            node = inside.entries.setdefault(name, Table(IMPLIED))
            if isinstance(node, Tables):
                node = node.tables[-1]
            if not isinstance(node, Table) or node.kind == INLINE:
                self._fail(at, f"{name} is a value, and can have no header")
            inside = node
        return inside

    def _pair(self, line: int, position: int) -> int:
        indent = self.text[line:position]
        value = self._assignment(position, self._here, self._level)
        value.outer, value.outer_end = line, self._finish(value.end)
        self._here.end, self._here.indent = value.outer_end, indent
        return value.outer_end

    # ---- keys and values

    def _key(self, position: int) -> Tuple[List[str], int]:
        names = []
        while True:
            position = self._skip(_BLANKS, position)
            name, position = self._name(position)
            names.append(name)
            position = self._skip(_BLANKS, position)
            if not self.text.startswith(".", position):
                return names, position
            if len(names) == MOST_LEVELS:
                self._fail(position, f"more than {MOST_LEVELS} levels")
            position += 1

    def _name(self, position: int) -> Tuple[str, int]:
        letter = self.text[position : position + 1]
        if letter in ('"', "'") and letter:
            return self._short(position)
        found = _BARE.match(self.text, position)
        if not found:
            self._fail(position, f"{self._shown(position)} where a name should stand")
        return found.group(), found.end()

    def _assignment(self, position: int, home: Table, level: int) -> Value:
        """``key = value``, put where it belongs below ``home``."""
        start = position
        path, position = self._key(position)
        if not self.text.startswith("=", position):
            self._fail(position, f"{self._shown(position)} where = should stand")
        level += len(path)
        if level > MOST_LEVELS:
            self._fail(start, f"more than {MOST_LEVELS} levels")
        inside = self._dotted(path, home, start)
        if path[-1] in inside.entries:
            self._fail(start, f"{path[-1]} is there already")
        value = self._value(self._skip(_BLANKS, position + 1), level)
        inside.entries[path[-1]] = value.table or value
        home.statements.append(value)
        value.outer, value.outer_end = start, value.end
        return value

    def _dotted(self, path: List[str], home: Table, at: int) -> Table:
        inside = home
        for number, name in enumerate(path[:-1], 1):
            node = inside.entries.get(name)
            if node is None:
                node = inside.entries[name] = Table(DOTTED, home, tuple(path[:number]))
            elif isinstance(node, Table) and node.kind == IMPLIED:
                node.kind, node.home, node.route = DOTTED, home, tuple(path[:number])
            if not isinstance(node, Table) or node.kind != DOTTED:
                self._fail(at, f"{name} is there already")
            inside = node
        return inside

    def _value(self, position: int, level: int) -> Value:
        if level > MOST_LEVELS:
            self._fail(position, f"more than {MOST_LEVELS} levels")
        letter = self.text[position : position + 1]
        if letter and letter in "\"'":
            data, end = self._string(position)
            return Value(position, end, data)
        if letter == "[":
            return self._array(position, level)
        if letter == "{":
            return self._braces(position, level)
        return self._scalar(position)

    def _array(self, start: int, level: int) -> Value:
        items: List[Value] = []
        position = self._skip(_BETWEEN, start + 1)
        while not self.text.startswith("]", position):
            items.append(self._value(position, level + 1))
            position = self._skip(_BETWEEN, items[-1].end)
            if self.text.startswith(",", position):
                position = self._skip(_BETWEEN, position + 1)
            elif not self.text.startswith("]", position):
                self._fail(position, f"{self._shown(position)} where , or ] should stand")
        value = Value(start, position + 1, [item.data for item in items])
        value.items = items
        return value

    def _braces(self, start: int, level: int) -> Value:
        table = Table(INLINE)
        position = self._skip(_BLANKS, start + 1)
        more = not self.text.startswith("}", position)
        while more:
            position = self._skip(_BLANKS, self._assignment(position, table, level).end)
            more = self.text.startswith(",", position)
            position = self._skip(_BLANKS, position + 1) if more else position
        if not self.text.startswith("}", position):
            self._fail(position, f"{self._shown(position)} where , or }} should stand")
        table.start, table.end = start, position + 1
        value = Value(start, position + 1, table.data())
        value.table, table.value = table, value
        return value

    # ---- strings

    def _string(self, position: int) -> Tuple[str, int]:
        quotes = self.text[position] * 3
        if self.text.startswith(quotes, position):
            return self._long(position, quotes)
        return self._short(position)

    def _short(self, position: int) -> Tuple[str, int]:
        basic = self.text[position] == '"'
        found = (_BASIC if basic else _LITERAL).match(self.text, position)
        if not found:
            self._fail(position, "a string that does not end on its line, or holds a control character")
        if not basic or "\\" not in found.group(1):
            return found.group(1), found.end()
        parts: List[str] = []
        at, end = found.span(1)
        while at < end:
            slash = self.text.find("\\", at, end)
            parts.append(self.text[at : end if slash < 0 else slash])
            at = end
            if slash >= 0:
                letter, at = self._escape(slash)
                parts.append(letter)
        return "".join(parts), found.end()

    def _escape(self, position: int) -> Tuple[str, int]:
        found = _ESCAPE.match(self.text, position)
        if not found:
            self._fail(position, f"{self._shown(position)} is no escape that TOML knows")
        if found.group(1):
            return _ESCAPED[found.group(1)], found.end()
        code = int(found.group(2) or found.group(3), 16)
        if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
            self._fail(position, f"{found.group()} is no character")
        return chr(code), found.end()

    def _long(self, start: int, quotes: str) -> Tuple[str, int]:
        parts: List[str] = []
        position = self._skip(_LINE_END, start + 3)
        while not self.text.startswith(quotes, position):
            part, position = self._piece(start, position, quotes[0])
            parts.append(part)
        position += 3
        more = 0  # up to two quotes may stand before those that end it
        while more < 2 and self.text.startswith(quotes[0], position + more):
            more += 1
        return "".join(parts) + quotes[0] * more, position + more

    def _piece(self, start: int, position: int, quote: str) -> Tuple[str, int]:
        found = _LONG[quote].match(self.text, position)
        if found:
            return found.group().replace("\r\n", "\n"), found.end()
        letter = self.text[position : position + 1]
        if letter == quote:
            return quote, position + 1
        if letter == "\\":
            end = self._skip(_CONTINUED, position)
            return ("", end) if end > position else self._escape(position)
        if not letter:
            self._fail(start, "a string of several lines that does not end")
        return self._fail(position, f"{self._shown(position)} in a string")

    # ---- numbers and the like

    def _scalar(self, position: int) -> Value:
        found = _WORD.match(self.text, position)
        if not found:
            self._fail(position, f"{self._shown(position)} where a value should stand")
        end = found.end()
        if _DATE.match(found.group()):
            end = self._skip(_AFTER_DATE, end)
        word = self.text[position:end]
        if word in ("true", "false"):
            return Value(position, end, word == "true")
        data: Union[int, float, Moment, None] = self._number(word, position)
        data = moment(word) if data is None else data
        if data is None:
            self._fail(position, f"{word[:40]!r} is no value (texts stand in quotes)")
        return Value(position, end, data)

    def _number(self, word: str, position: int) -> Union[int, float, None]:
        for base, pattern in _BASES.items():
            if pattern.match(word):
                return self._integer(word[2:], base, position)
        if _WHOLE.match(word):
            return self._integer(word, 10, position)
        return float(word.replace("_", "")) if _FRACTION.match(word) else None

    def _integer(self, word: str, base: int, position: int) -> int:
        digits = word.replace("_", "").lstrip("0")
        number = int(digits or "0", base) if len(digits) <= 64 else _LARGEST + 1
        if not _SMALLEST <= number <= _LARGEST:
            self._fail(position, f"{word[:40]} does not fit into 64 bits")
        return number


def moment(word: str) -> Optional[Moment]:
    """A date or time of the calendar; None for anything else."""
    found = _DATE_TIME.match(word)
    date = found.group(1) if found else word if _DATE.match(word) else ""
    if not date:
        return Moment(word) if _TIME.match(word) else None
    try:
        datetime.date(int(date[:4]), int(date[5:7]), int(date[8:]))
    except ValueError:
        return None
    return Moment(word)
