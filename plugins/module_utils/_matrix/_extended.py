# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix with a user's own rows: new ones, and other values in those that are there.

matrix:
  branches:
    "630": {kind: PB, end: "2028-01", cuda: "13.6", oldest: turing, newest: newer, flavours: [open]}
  limits:
    toolkit: "1.20.2"
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Mapping, Tuple

from ._branches import ARCHITECTURES, BOTH, ENDED, KINDS, PAST, Branch
from ._judge import MATRIX, Matrix
from ._tables import Cuda, Dcgm, Product
from ._versions import branch_of, version_key

OWN = "your inventory"
_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")

Check = Callable[[Any], bool]


def _is_version(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(version_key(value))
    except ValueError:
        return False


def _is_month(value: Any) -> bool:
    return isinstance(value, str) and (value in ("", PAST, ENDED) or bool(_MONTH.fullmatch(value)))


def _is_driver(value: Any) -> bool:
    return isinstance(value, str) and branch_of(value) is not None


def _one_of(*allowed: str) -> Check:
    return lambda value: isinstance(value, str) and value in allowed


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, (list, tuple)) and bool(value) and all(check(one) for one in value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_VERSION = (_is_version, 'a version as text, in quotes: "13.6"')
_DRIVER = (_is_driver, 'a driver version or branch as text, in quotes: "595.91.07"')
_GPU = (_one_of(*ARCHITECTURES), f"one of {', '.join(ARCHITECTURES)}")
_TEXT = (lambda value: isinstance(value, str), "text")

Fields = Mapping[str, Tuple[Check, str]]


@dataclass(frozen=True)
class _Table:
    """What may be written in a table. ``needed``: keys without which there can be no new row."""

    key: Tuple[Check, str]
    fields: Fields
    needed: Tuple[str, ...]
    new: Callable[[str, Dict[str, Any]], Any]
    kept: Callable[[str], Any] = str  # the key as the matrix has it


_TABLES: Dict[str, _Table] = {
    "branches": _Table(
        key=(lambda key: bool(re.fullmatch(r"\d{3}", key)), "numbers of branches, like 630"),
        fields={
            "kind": (_one_of(*KINDS), f"one of {', '.join(KINDS)}"),
            "end": (_is_month, f'a month as text, in quotes: "2028-06"; "", {PAST} or {ENDED}'),
            "cuda": _VERSION,
            "oldest": _GPU,
            "newest": _GPU,
            "flavours": (_list_of(_one_of(*BOTH)), f"a list of {', '.join(BOTH)}"),
            "releases": (_list_of(_is_driver), 'a list of driver versions as text, in quotes: "595.91.07"'),
        },
        needed=("kind", "cuda", "oldest", "newest", "flavours"),
        new=lambda key, row: Branch(int(key), **{"end": "", "releases": (), **row, "source": OWN}),
        kept=int,
    ),
    "cuda": _Table(
        key=(lambda key: bool(re.fullmatch(r"\d+\.\d+", key)), "minors of CUDA, like 13.6"),
        fields={
            "shipped": (_list_of(_is_driver), 'a list of driver versions as text, in quotes: "595.91.07"'),
            "minimum": _DRIVER,
            "branch": (_is_int, "the number of a branch"),
        },
        needed=("minimum", "branch"),
        new=lambda key, row: Cuda(key, **{"shipped": (), **row, "source": OWN}),
    ),
    "products": _Table(
        key=(bool, "names of products"),
        fields={"architecture": _GPU, "capability": _TEXT, "first": _DRIVER, "note": _TEXT},
        needed=("architecture", "first"),
        new=lambda key, row: Product(key, **{"capability": "", "note": "", **row, "source": OWN}),
    ),
    "dcgm": _Table(
        key=(lambda key: bool(re.fullmatch(r"\d+\.\d+", key)), "minors of DCGM, like 4.7"),
        fields={
            "cuda": (_list_of(_is_int), "a list of majors of CUDA"),
            "exporters": (_list_of(_is_version), 'a list of versions as text, in quotes: "4.6.0-4.8.3"'),
        },
        needed=("cuda",),
        new=lambda key, row: Dcgm(key, **{"exporters": (), **row, "source": OWN}),
    ),
}
_LIMITS = "limits"


def extended(extra: Mapping[str, Any]) -> Matrix:
    """The matrix with rows of a user. Raises ValueError that names the path, the value, and what is allowed."""
    matrix = MATRIX
    for name, rows in extra.items():
        path = f"matrix.{name}"
        if name != _LIMITS and name not in _TABLES:
            raise _wrong("matrix", name, f"tables: {', '.join((*_TABLES, _LIMITS))}")
        if not isinstance(rows, Mapping):
            raise _wrong(path, rows, "a map, each row by its name")
        changed: Dict[str, Any] = {name: _limits(path, rows) if name == _LIMITS else _rows(path, name, rows)}
        matrix = replace(matrix, **changed)
    return matrix


def _wrong(path: str, value: Any, allowed: str) -> ValueError:
    return ValueError(f"{path}: {value!r} is not allowed here; allowed: {allowed}")


def _limits(path: str, rows: Mapping[str, Any]) -> Dict[str, Any]:
    limits = dict(MATRIX.limits)
    for name, oldest in rows.items():
        if name not in limits:
            raise _wrong(path, name, f"names of limits: {', '.join(limits)}")
        if not _is_version(oldest):
            raise _wrong(f"{path}.{name}", oldest, _VERSION[1])
        limits[name] = replace(limits[name], oldest=oldest, source=OWN)
    return limits


def _rows(path: str, name: str, rows: Mapping[Any, Any]) -> Dict[Any, Any]:
    table, merged = _TABLES[name], dict(getattr(MATRIX, name))
    for key, row in rows.items():
        at = f"{path}.{key}"
        if not table.key[0](str(key)) or isinstance(key, float):
            raise _wrong(path, key, table.key[1])
        if not isinstance(row, Mapping):
            raise _wrong(at, row, f"a map of {', '.join(table.fields)}")
        kept = table.kept(str(key))
        merged[kept] = _row(at, table, str(key), row, merged.get(kept))
    return merged


def _row(path: str, table: _Table, key: str, row: Mapping[str, Any], old: Any) -> Any:
    for name, value in row.items():
        if name not in table.fields:
            raise _wrong(path, name, ", ".join(table.fields))
        check, allowed = table.fields[name]
        if not check(value):
            raise _wrong(f"{path}.{name}", value, allowed)
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    missing = [name for name in table.needed if name not in values]
    if old is None and missing:
        raise _wrong(path, dict(row), f"a new row has {', '.join(table.needed)}; missing here: {', '.join(missing)}")
    made = table.new(key, values) if old is None else replace(old, **values, source=OWN)
    if isinstance(made, Branch) and ARCHITECTURES.index(made.oldest) > ARCHITECTURES.index(made.newest):
        raise _wrong(f"{path}.newest", made.newest, f"{made.oldest}, or an architecture that is newer")
    return made
