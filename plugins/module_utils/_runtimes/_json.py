# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON documents that are changed in place: order, indentation and line ends stay as they are."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, NoReturn, Sequence, Tuple, Union

from ._data import merged, same

MOST_CHARACTERS = 1024 * 1024
MOST_LEVELS = 100

_SPACE = re.compile(r"[ \t\r\n]*")
_BLANKS = re.compile(r"[ \t]*")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![0-9A-Za-z_.+-])")
_WORD = re.compile(r"[A-Za-z0-9_.+-]+")
_WORDS = {"true": True, "false": False, "null": None}
_LINE_START = re.compile(r"\n([ \t]*)\Z")


class JsonError(ValueError):
    """The text is no JSON object, or a change cannot be made. ``line`` counts from 1; 0 where none is meant."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}" if line else what)
        self.line = line
        self.what = what


class _Value:
    """``start`` to ``end`` is its text, ``keys`` where the names of an object's members begin."""

    __slots__ = ("data", "end", "keys", "members", "start")

    def __init__(self, start: int, end: int, data: Any) -> None:
        self.start, self.end, self.data = start, end, data
        self.keys: List[int] = []
        self.members: Dict[str, _Value] = {}


class Json:
    """A document whose top is an object; empty text is an empty one.

    ``data`` is its content, kept current; change it by ``set`` and ``delete`` alone. A change that cannot be made
    raises ``JsonError`` and leaves the document as it was.
    """

    def __init__(self, text: str) -> None:
        self._read(text)

    def text(self) -> str:
        """The document as it stands now."""
        return self._text

    def set(self, path: Sequence[str], value: Any) -> None:
        """Give a key this value. A dict sets its leaves, and takes no other key away.

        An object is never replaced by a value, nor a value by an object: delete it first.
        """
        names, want, before = _names(path), _checked(value), self._text
        wanted = merged(self.data, names, want) if names or isinstance(want, dict) else {}
        try:
            if not before.strip() and (names or want):
                self._read("{}\n")
            self._set(names, want)
            if not same(self.data, wanted):
                raise JsonError(0, "this change cannot be made in place; edit the file by hand")
        except JsonError:
            self._read(before)
            raise

    def delete(self, path: Sequence[str]) -> bool:
        """Take away a key with all below it. Returns whether it was there."""
        names = _names(path)
        if not names:
            raise JsonError(0, "the whole document is not deleted; remove the file")
        inside = self._root
        for name in names[:-1]:
            if name not in inside.members:
                return False
            inside = inside.members[name]
        if names[-1] not in inside.members:
            return False
        start, end = self._member(inside, list(inside.members).index(names[-1]))
        self._splice(start, end, "")
        return True

    # ---- the text

    def _read(self, text: str) -> None:
        self._root = _Reader(text).root
        self._text = text
        self.data: Dict[str, Any] = self._root.data

    def _splice(self, start: int, end: int, new: str) -> None:
        self._read(self._text[:start] + new + self._text[end:])

    def _set(self, path: Tuple[str, ...], value: Any) -> None:
        node = self._root
        for number, name in enumerate(path):
            if not isinstance(node.data, dict):
                raise JsonError(0, f"{'.'.join(path[:number])} is no object")
            if name not in node.members:
                for inner in reversed(path[number + 1 :]):
                    value = {inner: value}
                self._add(node, name, value)
                return
            node = node.members[name]
        if isinstance(value, dict) != isinstance(node.data, dict):
            is_what = "an object" if isinstance(node.data, dict) else "no object"
            raise JsonError(0, f"{'.'.join(path) or 'the document'} is {is_what}")
        if not isinstance(value, dict):
            if not same(node.data, value):
                indent = self._indent(node.start)
                inline = "\n" not in self._text[node.start : node.end] and node.data not in ([], {})
                self._splice(node.start, node.end, self._shown(value, indent, inline))
            return
        for name in value:
            self._set((*path, name), value[name])

    # ---- layout

    def _line_end(self) -> str:
        first = self._text.find("\n")
        return "\r\n" if first > 0 and self._text[first - 1] == "\r" else "\n"

    def _indent(self, at: int) -> str:
        """With which blanks the line of a place begins."""
        found = _BLANKS.match(self._text, self._text.rfind("\n", 0, at) + 1)
        return found.group() if found else ""

    def _step(self) -> str:
        """What a level is indented by: as the first member of the document is, else four blanks as Docker's own."""
        if self._root.keys:
            found = _LINE_START.search(self._text, self._root.start, self._root.keys[0])
            if found and found.group(1):
                return found.group(1)
        return "    "

    def _shown(self, value: Any, indent: str, inline: bool) -> str:
        if inline or not isinstance(value, (dict, list)) or not value:
            return json.dumps(value, ensure_ascii=False)
        text = json.dumps(value, ensure_ascii=False, indent=self._step())
        return text.replace("\n", self._line_end() + indent)

    def _add(self, node: _Value, name: str, value: Any) -> None:
        """A member after the last one: on a line of its own where that has one."""
        if node.keys:
            last = list(node.members.values())[-1].end
            found = _LINE_START.search(self._text, node.start, node.keys[-1])
            gap = self._line_end() + found.group(1) if found else " "
            pair = self._pair(name, value, found.group(1) if found else "", inline=not found)
            self._splice(last, last, f",{gap}{pair}")
        elif node is not self._root and "\n" not in self._text.strip():
            self._splice(node.start, node.end, f"{{{self._pair(name, value, '', inline=True)}}}")
        else:
            indent = self._indent(node.start)
            below = indent + self._step()
            gap = self._line_end()
            pair = self._pair(name, value, below, inline=False)
            self._splice(node.start, node.end, f"{{{gap}{below}{pair}{gap}{indent}}}")

    def _pair(self, name: str, value: Any, indent: str, inline: bool) -> str:
        return f"{json.dumps(name, ensure_ascii=False)}: {self._shown(value, indent, inline)}"

    def _member(self, node: _Value, number: int) -> Tuple[int, int]:
        """The text that goes with a member: with the comma after it, for the last one with the comma before it."""
        values = list(node.members.values())
        if len(values) == 1:
            return node.start + 1, node.end - 1
        if number == len(values) - 1:
            return values[number - 1].end, values[number].end
        return node.keys[number], node.keys[number + 1]


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > MOST_CHARACTERS:
            raise JsonError(1, f"the text has more than {MOST_CHARACTERS} characters")
        wrong = re.search("[\ud800-\udfff]", text)
        if wrong:
            self._fail(wrong.start(), "a byte that is no UTF-8")
        start = self._skip(0)
        if start == len(text):
            self.root = _Value(start, start, {})
            return
        if text[start] != "{":
            self._fail(start, f"{self._at(start)} where {{ should stand")
        self.root = self._value(start, 0)
        end = self._skip(self.root.end)
        if end < len(text):
            self._fail(end, f"{self._at(end)} after the end of the object")

    def _fail(self, position: int, what: str) -> NoReturn:
        raise JsonError(self.text.count("\n", 0, position) + 1, what)

    def _at(self, position: int) -> str:
        rest = self.text[position : position + 12].split("\n")[0].rstrip("\r")
        return repr(rest) if rest else "the end of the line" if position < len(self.text) else "the end of the text"

    def _skip(self, position: int) -> int:
        found = _SPACE.match(self.text, position)
        return found.end() if found else position

    def _value(self, start: int, level: int) -> _Value:
        if level > MOST_LEVELS:
            self._fail(start, f"more than {MOST_LEVELS} levels")
        letter = self.text[start : start + 1]
        if letter == "{":
            return self._object(start, level)
        if letter == "[":
            return self._array(start, level)
        if letter == '"':
            end = self._string(start)
            return _Value(start, end, json.loads(self.text[start:end]))
        return self._word(start)

    def _string(self, start: int) -> int:
        found = _STRING.match(self.text, start)
        if not found:
            what = "a text that does not end on its line, or holds a wrong escape"
            self._fail(
                start, what if self.text.startswith('"', start) else f"{self._at(start)} where a name should stand"
            )
        return found.end()

    def _word(self, start: int) -> _Value:
        found = _WORD.match(self.text, start)
        word = found.group() if found else ""
        if word in _WORDS:
            return _Value(start, start + len(word), _WORDS[word])
        number = _NUMBER.match(self.text, start)
        if not number:
            self._fail(start, f"{self._at(start)} is no value")
        return _Value(
            start, number.end(), self._number(start, number.group(), bool(number.group(1) or number.group(2)))
        )

    def _number(self, start: int, word: str, fraction: bool) -> Union[int, float]:
        if fraction:
            return float(word)
        if len(word) > 400:
            self._fail(start, "a number with more than 400 digits")
        return int(word)

    def _object(self, start: int, level: int) -> _Value:
        made = _Value(start, start, {})
        position = self._skip(start + 1)
        more = not self.text.startswith("}", position)
        while more:
            name, value = self._pair(position, level)
            if name in made.members:
                self._fail(position, f"{name[:40]!r} is there already")
            made.members[name], made.data[name] = value, value.data
            made.keys.append(position)
            position = self._skip(value.end)
            more = self.text.startswith(",", position)
            position = self._skip(position + 1) if more else position
        made.end = self._close(position, "}")
        return made

    def _pair(self, position: int, level: int) -> Tuple[str, _Value]:
        end = self._string(position)
        colon = self._skip(end)
        if not self.text.startswith(":", colon):
            self._fail(colon, f"{self._at(colon)} where : should stand")
        return str(json.loads(self.text[position:end])), self._value(self._skip(colon + 1), level + 1)

    def _array(self, start: int, level: int) -> _Value:
        items: List[Any] = []
        position = self._skip(start + 1)
        more = not self.text.startswith("]", position)
        while more:
            value = self._value(position, level + 1)
            items.append(value.data)
            position = self._skip(value.end)
            more = self.text.startswith(",", position)
            position = self._skip(position + 1) if more else position
        return _Value(start, self._close(position, "]"), items)

    def _close(self, position: int, bracket: str) -> int:
        if not self.text.startswith(bracket, position):
            self._fail(position, f"{self._at(position)} where , or {bracket} should stand")
        return position + 1


def _names(path: Sequence[str]) -> Tuple[str, ...]:
    if isinstance(path, str) or not all(isinstance(name, str) for name in path):
        raise JsonError(0, f"a path is a list of names, not {path!r:.60}")
    if len(path) > MOST_LEVELS:
        raise JsonError(0, f"a path with more than {MOST_LEVELS} names")
    return tuple(_checked(list(path)))


def _checked(value: Any, level: int = 0) -> Any:
    """A copy of plain data. Raises ``JsonError`` for what JSON cannot say."""
    if level > MOST_LEVELS:
        raise JsonError(0, f"a value with more than {MOST_LEVELS} levels")
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise JsonError(0, "a name that is no text")
        return {_checked(name): _checked(inner, level + 1) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_checked(inner, level + 1) for inner in value]
    if isinstance(value, str):
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise JsonError(0, f"{value[:40]!r} holds a byte that is no UTF-8")
        return str(value)
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and value - value == 0):
        return value
    raise JsonError(0, f"JSON has no value {value!r:.40} of type {type(value).__name__}")
