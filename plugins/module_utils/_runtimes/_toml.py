# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TOML documents that are changed in place: every byte stays that a change does not concern."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Any, Dict, Iterator, List, Match, Optional, Sequence, Tuple, Union

from ._data import Moment, merged, same
from ._toml_read import (
    DOTTED,
    HEADER,
    IMPLIED,
    INLINE,
    MOST_LEVELS,
    ROOT,
    Node,
    Reader,
    Table,
    Tables,
    TomlError,
    Value,
)
from ._toml_write import blocks, checked, dumps, name_text, path_text, value_text

__all__ = ["Moment", "Toml", "TomlError", "dumps", "parse"]

Span = Tuple[int, int]
Edit = Tuple[int, int, str]
_MOST_ITEMS = 1000  # of arrays that are compared item by item
_BLANK = re.compile(r"[ \t]*\Z")
_BLANKS = re.compile(r"[ \t]*")
_BLANK_LINE = re.compile(r"[ \t]*\r?\n")
_BLANK_BEFORE = re.compile(r"(?:\A|\n)([ \t]*\r?\n)\Z")
_REST = re.compile(r"[ \t]*,?[ \t]*(?:#[^\r\n]*)?(?:\r?\n|\Z)")


def parse(text: str) -> Dict[str, Any]:
    """Plain data of a document; dates and times are ``Moment``. Raises ``TomlError``."""
    return Reader(text).root.data()


class Toml:
    """A document. ``data`` is its content, kept current; change it by ``set`` and ``delete`` alone.

    A change that cannot be made raises ``TomlError`` and leaves the document as it was.
    """

    def __init__(self, text: str) -> None:
        self._read(text)

    def text(self) -> str:
        """The document as it stands now."""
        return self._text

    def set(self, path: Sequence[str], value: Any) -> None:
        """Give a key this value. A dict sets its leaves, and takes no other key away.

        A table is never replaced by a value, nor a value by a table: delete it first.
        """
        names = _names(path)
        before = self._text
        want = checked(value)
        wanted = merged(self.data, names, want) if names or isinstance(want, dict) else {}
        try:
            self._set(names, want)
            self._prove(wanted)
        except TomlError:
            self._read(before)
            raise

    def delete(self, path: Sequence[str]) -> bool:
        """Take away a key, or a table with all below it. Returns whether it was there.

        A table that is there only because it was named on the way (``a`` of ``[a.b]``) goes with its last key.
        """
        names = _names(path)
        way: List[Table] = [self._reader.root]
        for name in names[:-1]:
            node = way[-1].entries.get(name)
            if not isinstance(node, Table):
                return False
            way.append(node)
        gone = way[-1].entries.get(names[-1])
        if gone is None:
            return False
        before, wanted = self._text, _without(self.data, names, way)
        try:
            self._delete(gone, way[-1])
            self._prove(wanted)
        except TomlError:
            self._read(before)
            raise
        return True

    # ---- the text

    def _read(self, text: str) -> None:
        self._reader = Reader(text)
        self._text = text
        self.data: Dict[str, Any] = self._reader.root.data()

    def _splice(self, start: int, end: int, new: str) -> None:
        self._read(self._text[:start] + new + self._text[end:])

    def _prove(self, wanted: Dict[str, Any]) -> None:
        if not same(self.data, wanted):
            raise TomlError(0, "this change cannot be made in place; edit the file by hand")

    def _line_end(self) -> str:
        first = self._text.find("\n")
        return "\r\n" if first > 0 and self._text[first - 1] == "\r" else "\n"

    def _insert(self, at: int, lines: Sequence[str]) -> None:
        """New lines at the beginning of a line, or at the end of the text."""
        end = self._line_end()
        if at == len(self._text) and at and not self._text.endswith("\n"):
            new = end + end.join(lines)
        else:
            new = "".join(line + end for line in lines)
        self._splice(at, at, new)

    # ---- setting

    def _set(self, path: Tuple[str, ...], value: Any) -> None:
        table = self._reader.root
        for number, name in enumerate(path):
            node = table.entries.get(name)
            if node is None:
                self._new(table, path, number, value)
                return
            if isinstance(node, Table):
                table = node
            elif number < len(path) - 1 or isinstance(value, dict):
                raise TomlError(0, f"{path_text(path[: number + 1])} is no table")
            else:
                self._change(node, path, value)
                return
        if not isinstance(value, dict):
            raise TomlError(0, f"{path_text(path)} is a table")
        for name, one in value.items():
            self._set((*path, name), one)

    def _change(self, node: Union[Value, Tables], path: Tuple[str, ...], value: Any) -> None:
        if isinstance(node, Tables):
            if not same([table.data() for table in node.tables], value):
                raise TomlError(0, f"{path_text(path)} is an array of tables")
        elif not same(node.data, value):
            self._change_value(node, path, value)

    def _change_value(self, node: Value, path: Tuple[str, ...], value: Any) -> None:
        old = self._text[node.start : node.end]
        if isinstance(value, list) and 0 < len(value) < _MOST_ITEMS and 0 < len(node.items) < _MOST_ITEMS:
            new = self._change_items(node, value)
            if _says(new, path, value):
                self._read(new)
                return
        literal = old.startswith("'") and not old.startswith("'''")
        self._splice(node.start, node.end, value_text(value, literal))

    def _new(self, table: Table, path: Tuple[str, ...], number: int, value: Any) -> None:
        """A key that is not there: ``path[:number]`` is ``table``."""
        if table.kind == INLINE:
            self._into_braces(table, (), path[number:], value)
        elif table.kind == DOTTED:
            self._into_dotted(table, path[number:], value)
        elif number < len(path) - 1 or isinstance(value, dict):
            self._append(path, value)
        elif table.kind == IMPLIED:
            self._append(path[:-1], {path[-1]: value})
        else:
            self._into_table(table, path[-1], value)

    def _into_braces(self, table: Table, route: Tuple[str, ...], rest: Tuple[str, ...], value: Any) -> None:
        for name in reversed(rest[1:]):
            value = {name: value}
        entry = f"{path_text((*route, rest[0]))} = {value_text(value)}"
        if table.statements:
            at = table.statements[-1].outer_end
            self._splice(at, at, f", {entry}")
        else:
            self._splice(table.start + 1, table.end - 1, entry)

    def _into_dotted(self, table: Table, rest: Tuple[str, ...], value: Any) -> None:
        home = table.home
        if home.kind == INLINE:
            self._into_braces(home, table.route, rest, value)
            return
        last = max(_statements(table), key=lambda one: one.outer)
        leaves = _leaves((*table.route, *rest), value)
        indent = home.indent or ""
        self._insert(last.outer_end, [f"{indent}{path_text(path)} = {value_text(leaf)}" for path, leaf in leaves])

    def _into_table(self, table: Table, name: str, value: Any) -> None:
        line = f"{self._indent(table)}{name_text(name)} = {value_text(value)}"
        if table.kind == HEADER or table.statements:
            self._insert(table.end, [line])
            return
        at = self._above(self._reader.sections[0].start) if self._reader.sections else len(self._text)
        follows = self._text[at:].lstrip(" \t")[:1]
        self._insert(at, [line, ""] if follows not in ("", "\n", "\r") else [line])

    def _indent(self, table: Table) -> str:
        """As the table's last key stands, or as keys of other tables stand below their headers."""
        if table.indent is not None or table.kind == ROOT:
            return table.indent or ""
        own = self._blanks(table.start)
        for other in self._reader.sections:
            head = self._blanks(other.start)
            if other.indent is not None and other.indent.startswith(head):
                return own + other.indent[len(head) :]
        return own

    def _blanks(self, at: int) -> str:
        found = _BLANKS.match(self._text, at)
        return found.group() if found else ""

    def _above(self, line: int) -> int:
        """The beginning of the comment that stands right above a line."""
        while line:
            before = self._text.rfind("\n", 0, line - 1) + 1
            if not self._text[before:line].lstrip(" \t").startswith("#"):
                break
            line = before
        return line

    def _append(self, path: Tuple[str, ...], value: Any) -> None:
        """A table that is not there, at the end. ``value`` is a table, or what the last name is given."""
        made = blocks(path, value) if isinstance(value, dict) else blocks(path[:-1], {path[-1]: value})
        lines = [line for block in made for line in ["", *block]]
        bare = self._text.rstrip(" \t").replace("\r\n", "\n")
        self._insert(len(self._text), lines[1:] if not bare or bare.endswith("\n\n") or bare == "\n" else lines)

    # ---- items of an array

    def _change_items(self, node: Value, value: List[Any]) -> str:
        """The text with items taken out, changed and added; those that stay keep their comments."""
        edits: List[Edit] = []
        literal = self._text[node.items[0].start] == "'"
        old, new = [[value_text(one, literal) for one in items] for items in (node.data, value)]
        for verb, first, end, start, stop in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if verb == "equal":
                continue
            for item, text in zip(node.items[first:end], new[start:stop]):
                edits.append((item.start, item.end, text))
            paired = min(end - first, stop - start)
            if first + paired < end:
                edits += self._removed(node.items, first + paired, end)
            if start + paired < stop:
                edits += self._added(node.items, end, new[start + paired : stop])
        return _edited(self._text, edits)

    def _alone(self, item: Value) -> Optional[Match[str]]:
        """What follows an item up to the end of its last line, where it has its lines alone."""
        line = self._text.rfind("\n", 0, item.start) + 1
        return _REST.match(self._text, item.end) if _BLANK.match(self._text[line : item.start]) else None

    def _removed(self, items: List[Value], first: int, end: int) -> List[Edit]:
        rests = [self._alone(item) for item in items[first:end]]
        last = end == len(items)
        if all(rest and ("," in rest.group().partition("#")[0] or last) for rest in rests):
            return [
                (self._text.rfind("\n", 0, item.start) + 1, rest.end(), "")
                for item, rest in zip(items[first:end], rests)
                if rest
            ]
        if not last:
            return [(items[first].start, items[end].start, "")]
        gap = self._text[items[first - 1].end : items[first].start]
        return [(items[first].start if "#" in gap else items[first - 1].end, items[-1].end, "")]

    def _added(self, items: List[Value], at: int, new: List[str]) -> List[Edit]:
        follows = items[max(at - 1, 0)]
        rest = self._alone(follows)
        line = self._text.rfind("\n", 0, follows.start) + 1
        join = f",{self._line_end()}{self._text[line : follows.start]}" if rest else ", "
        if at == 0:
            return [(follows.start, follows.start, "".join(text + join for text in new))]
        if not rest:
            return [(follows.end, follows.end, "".join(join + text for text in new))]
        comma = "," in rest.group().partition("#")[0]
        lines = f"{self._text[line : follows.start]}{join.join(new)}{',' if comma else ''}{self._line_end()}"
        return [(follows.end, follows.end, "" if comma else ","), (rest.end(), rest.end(), lines)]

    # ---- deleting

    def _delete(self, gone: Node, inside: Table) -> None:
        if inside.home.kind == INLINE:
            self._read(_edited(self._text, _out_of_braces(inside.home.statements, list(_statements(gone)))))
            return
        new = _edited(self._text, [(start, end, "") for start, end in self._lines(gone)])
        if not self._text.endswith("\n") and new.endswith("\n"):
            new = new[: -2 if new.endswith("\r\n") else -1]
        self._read(new)

    def _lines(self, gone: Node) -> List[Span]:
        """The lines of something, without those that stand within others of it."""
        found: List[Tuple[int, int, bool]] = []
        for start, end, headed in sorted(_spans(gone)):
            last = found[-1] if found else (0, 0, False)
            if start < last[1]:
                continue
            if headed and last[2] and not self._text[last[1] : start].strip():
                found[-1] = (last[0], end, True)
            else:
                found.append((start, end, headed))
        return [self._with_blank(start, end) if headed else (start, end) for start, end, headed in found]

    def _with_blank(self, start: int, end: int) -> Span:
        """With one of the blank lines around a table, where there is one on both sides."""
        follows = _BLANK_LINE.match(self._text, end)
        before = _BLANK_BEFORE.search(self._text, max(start - 80, 0), start)
        if start == 0 and follows:
            return start, follows.end()
        if before and (follows or end == len(self._text)):
            return before.start(1), end
        return start, end


def _edited(text: str, edits: Sequence[Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _says(text: str, path: Tuple[str, ...], value: Any) -> bool:
    """Whether items could be changed one by one; an array that is laid out otherwise is written anew."""
    try:
        data = parse(text)
        for name in path:
            data = data[name]
    except (TomlError, KeyError, TypeError):
        return False
    return same(data, value)


def _names(path: Sequence[str]) -> Tuple[str, ...]:
    if isinstance(path, str) or not path or not all(isinstance(name, str) for name in path):
        raise TomlError(0, f"a path is a list of names, not {path!r:.60}")
    if len(path) > MOST_LEVELS:
        raise TomlError(0, f"a path with more than {MOST_LEVELS} names")
    return tuple(checked(list(path)))


def _without(data: Dict[str, Any], path: Tuple[str, ...], way: Sequence[Table]) -> Dict[str, Any]:
    new = dict(data)
    if len(path) == 1:
        del new[path[0]]
        return new
    inner = _without(new[path[0]], path[1:], way[1:])
    if inner or way[1].kind not in (IMPLIED, DOTTED):
        new[path[0]] = inner
    else:
        del new[path[0]]
    return new


def _leaves(path: Tuple[str, ...], value: Any) -> Iterator[Tuple[Tuple[str, ...], Any]]:
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    for name, inner in value.items():
        yield from _leaves((*path, name), inner)


def _statements(node: Node) -> Iterator[Value]:
    """The statements that make up a value, or a table of dotted keys, without tables that have a header."""
    if isinstance(node, Value):
        yield node
    elif isinstance(node, Table) and node.value:
        yield node.value
    elif isinstance(node, Table) and node.kind == DOTTED:
        for inner in node.entries.values():
            yield from _statements(inner)


def _spans(node: Node) -> Iterator[Tuple[int, int, bool]]:
    """Lines of statements, and of tables with a header (True)."""
    if isinstance(node, Tables):
        for table in node.tables:
            yield from _spans(table)
        return
    value = node if isinstance(node, Value) else node.value
    if value:
        yield value.outer, value.outer_end, False
        return
    if isinstance(node, Table):
        if node.kind == HEADER:
            yield node.start, node.end, True
        for inner in node.entries.values():
            yield from _spans(inner)


def _out_of_braces(entries: List[Value], gone: List[Value]) -> List[Edit]:
    """Each entry goes with the comma after it, the last ones with the comma before them."""
    kept = [entry for entry in entries if entry not in gone]
    if not kept:
        return [(entries[0].outer, entries[-1].outer_end, "")]
    edits = [
        (entry.outer, after.outer, "")
        for entry, after in zip(entries, entries[1:])
        if entry in gone and entry.outer < kept[-1].outer
    ]
    if kept[-1] is not entries[-1]:
        edits.append((kept[-1].outer_end, entries[-1].outer_end, ""))
    return edits
