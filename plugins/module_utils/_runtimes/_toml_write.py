# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain data as TOML text."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ._data import Moment
from ._toml_read import MOST_LEVELS, TomlError, moment

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_SPECIAL = re.compile('[\x00-\x1f"\\\\\x7f]')
_NOT_LITERAL = re.compile("[\x00-\x08\x0a-\x1f'\x7f]")
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def checked(value: Any, level: int = 0) -> Any:
    """A copy of plain data with lists and dicts of its own. Raises ``TomlError`` for what TOML cannot say."""
    if level > MOST_LEVELS:
        raise TomlError(0, f"a value with more than {MOST_LEVELS} levels")
    if isinstance(value, Mapping):
        return {_text(name): checked(inner, level + 1) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [checked(inner, level + 1) for inner in value]
    if isinstance(value, Moment):
        if moment(value) is None:
            raise TomlError(0, f"{str(value)[:40]!r} is no date or time")
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise TomlError(0, "a number that does not fit into 64 bits")
    if type(value) not in (bool, int, float):
        raise TomlError(0, f"TOML has no value of type {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TomlError(0, f"a name is a text, not {value!r:.40}")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise TomlError(0, f"{value[:40]!r} holds a byte that is no UTF-8")
    return str(value)


def name_text(name: str) -> str:
    """A name as it stands in a key."""
    return name if _BARE.match(name) else _quoted(name)


def path_text(path: Sequence[str]) -> str:
    """A dotted key."""
    return ".".join(map(name_text, path))


def value_text(value: Any, literal: bool = False) -> str:
    """A checked value on one line; with ``literal`` a text stands in single quotes where it can."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Moment):
        return str(value)
    if isinstance(value, str):
        return f"'{value}'" if literal and not _NOT_LITERAL.search(value) else _quoted(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{name_text(name)} = {value_text(one)}" for name, one in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    return str(value)


def _float(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return repr(value)


def _quoted(text: str) -> str:
    return '"' + _SPECIAL.sub(lambda found: _SHORT.get(found.group(), f"\\u{ord(found.group()):04x}"), text) + '"'


def blocks(path: Tuple[str, ...], table: Mapping[str, Any]) -> List[List[str]]:
    """A table and those below it, each as its lines: a header (none at the top), then what is no table."""
    plain = {name: value for name, value in table.items() if not isinstance(value, dict)}
    below: Dict[str, Any] = {name: value for name, value in table.items() if isinstance(value, dict)}
    made = []
    if plain or (path and not below):
        head = [f"[{path_text(path)}]"] if path else []
        made.append(head + [f"{name_text(name)} = {value_text(value)}" for name, value in plain.items()])
    for name, value in below.items():
        made += blocks((*path, name), value)
    return made


def dumps(data: Mapping[str, Any]) -> str:
    """A new document: what is no table first, then the tables, names in the given order."""
    return "\n".join("".join(f"{line}\n" for line in block) for block in blocks((), checked(data)))
