# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nested maps: reading by path, merging as Helm does, and a guard against input that is not plain data."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Tuple

from .._plan import ERROR, Finding

MAX_DEPTH = 64
MAX_TEXT = 1024 * 1024
MAX_NODES = 100_000

MISSING: Any = object()


def get(tree: Mapping[str, Any], path: str) -> Any:
    """Value at a dotted path, MISSING when it is not there."""
    here: Any = tree
    for name in path.split("."):
        if not isinstance(here, Mapping) or name not in here:
            return MISSING
        here = here[name]
    return here


def put(tree: Dict[str, Any], path: str, value: Any) -> None:
    """Sets a value at a dotted path; maps on the way are made."""
    names = path.split(".")
    for name in names[:-1]:
        tree = tree.setdefault(name, {})
    tree[names[-1]] = value


def merged(under: Any, over: Any) -> Any:
    """Helm's merge of a value over another: maps key by key, all else is replaced. Nulls stay: they remove defaults."""
    if isinstance(under, Mapping) and isinstance(over, Mapping):
        result = dict(under)
        for name, value in over.items():
            result[name] = merged(under[name], value) if name in under else value
        return result
    return over


def without_nulls(value: Any) -> Any:
    """The same value without keys that are null: Helm removes them, and the API server does."""
    if isinstance(value, Mapping):
        return {name: without_nulls(entry) for name, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [without_nulls(entry) for entry in value]
    return value


def plain(source: Any, where: str = "") -> Tuple[Any, List[Finding]]:
    """A copy as plain JSON data, or findings when the input is too deep, too large, recursive or not plain data."""
    guard = _Guard()
    copy = guard.copied(source, where, 0)
    return copy, guard.findings


class _TooMuch(Exception):
    pass


class _Guard:
    """Counts what it copies, so that a few aliases of YAML cannot grow without bound."""

    def __init__(self) -> None:
        self.findings: List[Finding] = []
        self._nodes = 0
        self._text = 0

    def copied(self, value: Any, where: str, depth: int) -> Any:
        try:
            return self._copy(value, where, depth)
        except _TooMuch as reason:
            self._add("policy.too-large", where, str(reason))
            return None

    def _copy(self, value: Any, where: str, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _TooMuch(f"The policy has more than {MAX_NODES} values.")
        if depth > MAX_DEPTH:
            raise _TooMuch(f"The policy is nested deeper than {MAX_DEPTH} levels, or contains itself.")
        if isinstance(value, Mapping):
            return self._copy_map(value, where, depth)
        if isinstance(value, (list, tuple)):
            return [self._copy(entry, f"{where}[{index}]", depth + 1) for index, entry in enumerate(value)]
        return self._copy_leaf(value, where)

    def _copy_map(self, value: Mapping[Any, Any], where: str, depth: int) -> Dict[str, Any]:
        result: Dict[str, Any] = {}
        for name, entry in value.items():
            if not isinstance(name, str):
                shown = str(name)[:60]
                remedy = "Put it in quotes (YAML reads on, off, yes, no and numbers without quotes as other types)."
                self._add("policy.key-not-text", where, f"The key {shown} is not a text.", remedy)
                continue
            self._count(name)
            result[str(name)] = self._copy(entry, f"{where}.{name}" if where else name, depth + 1)
        return result

    def _copy_leaf(self, value: Any, where: str) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            self._count(value)
            return str(value)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        kind = "not a finite number" if isinstance(value, float) else f"of type {type(value).__name__}"
        remedy = (
            "Put it in quotes (YAML reads dates without quotes as dates)."
            if type(value).__name__ in ("date", "datetime")
            else ""
        )
        self._add(
            "policy.not-plain",
            where,
            f"The value is {kind}; a policy holds texts, numbers, true and false, lists and maps.",
            remedy,
        )
        return None

    def _count(self, text: str) -> None:
        self._text += len(text)
        if self._text > MAX_TEXT:
            raise _TooMuch(f"The policy holds more than {MAX_TEXT} characters.")

    def _add(self, id_: str, where: str, detail: str, remedy: str = "") -> None:
        self.findings.append(Finding(id_, ERROR, detail, path=where[:200], remedy=remedy))
