# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Label selectors as Kubernetes reads them: parsed from text or from their object form, and matched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Any, List, Mapping, Tuple

_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_SET = re.compile(r"(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"(?P<key>[^=!\s]+)\s*(?P<op>==|!=|=)\s*(?P<value>\S*)$")
_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


class SelectorError(ValueError):
    """The text is not a selector; the message says which part."""


@dataclass(frozen=True)
class Requirement:
    """``operator``: in, notin, exists, ! (does not exist). A missing label satisfies notin."""

    key: str
    operator: str
    values: Tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        there = self.key in labels
        if self.operator in ("exists", "!"):
            return there == (self.operator == "exists")
        inside = there and labels[self.key] in self.values
        return inside == (self.operator == "in")

    def __str__(self) -> str:
        if self.operator in ("exists", "!"):
            return self.key if self.operator == "exists" else f"!{self.key}"
        if len(self.values) == 1:
            return f"{self.key}{'=' if self.operator == 'in' else '!='}{self.values[0]}"
        return f"{self.key} {self.operator} ({','.join(self.values)})"


@dataclass(frozen=True)
class Selector:
    """All requirements hold; none at all matches everything."""

    requirements: Tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        """The form that the API's labelSelector parameter takes."""
        return ",".join(str(requirement) for requirement in self.requirements)


def parse(source: Any) -> Selector:
    """A selector from text (``pool=a,tier in (x,y),!old``), labels (``{pool: a}``), or its object form."""
    if source is None:
        return Selector()
    if isinstance(source, str):
        return Selector(tuple(_from_text(part) for part in _split(source)))
    if not isinstance(source, Mapping):
        raise SelectorError(f"is {type(source).__name__} {source!r}: a text or a dictionary of labels is allowed")
    if set(source) & {"matchLabels", "matchExpressions"}:
        return _from_object(source)
    return Selector(tuple(_equal(str(key), value) for key, value in source.items()))


def _split(text: str) -> List[str]:
    """Parts between commas that are outside of parentheses."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts = [part.strip() for part in [*parts, text[start:]]]
    if parts == [""]:
        return []
    if "" in parts:
        raise SelectorError(f"{text!r} has an empty part between its commas")
    return parts


def _from_text(part: str) -> Requirement:
    found = _SET.match(part)
    if found:
        values = [value.strip() for value in found["values"].split(",")]
        return _requirement(found["key"], found["op"], values)
    found = _EQUAL.match(part)
    if found:
        return _requirement(found["key"], "notin" if found["op"] == "!=" else "in", [found["value"]])
    if part.startswith("!"):
        return _requirement(part[1:].strip(), "!", [])
    return _requirement(part, "exists", [])


def _equal(key: str, value: Any) -> Requirement:
    if not isinstance(value, str):
        raise SelectorError(f"{key}: {value!r} is not a text; labels are, write it in quotes")
    return _requirement(key, "in", [value])


def _from_object(source: Mapping[str, Any]) -> Selector:
    unknown = sorted(set(source) - {"matchLabels", "matchExpressions"})
    if unknown:
        raise SelectorError(f"{unknown[0]} is unknown beside matchLabels and matchExpressions")
    found = [_equal(str(key), value) for key, value in (source.get("matchLabels") or {}).items()]
    for expression in source.get("matchExpressions") or []:
        if not isinstance(expression, Mapping) or expression.get("operator") not in _OPERATORS:
            raise SelectorError(f"matchExpressions: {expression!r} needs key and operator ({', '.join(_OPERATORS)})")
        values = [str(value) for value in expression.get("values") or []]
        found.append(_requirement(str(expression.get("key", "")), _OPERATORS[expression["operator"]], values))
    return Selector(tuple(found))


def _requirement(key: str, operator: str, values: List[str]) -> Requirement:
    if not _KEY.match(key):
        raise SelectorError(f"{key!r} is not the key of a label")
    for value in values:
        if not _VALUE.match(value):
            raise SelectorError(f"{value!r} is not the value of a label")
    if operator in ("in", "notin") and not values:
        raise SelectorError(f"{key}: {operator} needs values")
    if operator in ("exists", "!") and values:
        raise SelectorError(f"{key}: no values are allowed where the label's existence is asked")
    return Requirement(key, operator, tuple(sorted(set(values))))


def is_key(text: str) -> bool:
    """Whether a text may be the key of a label."""
    return bool(_KEY.match(text))


def is_value(text: str) -> bool:
    """Whether a text may be the value of a label."""
    return bool(_VALUE.match(text))


def quote(value: object) -> str:
    """The remedy where YAML has read another thing than a text: true, 1, 1.0, a date."""
    return "Write it in quotes." if isinstance(value, (int, float, date)) else ""
