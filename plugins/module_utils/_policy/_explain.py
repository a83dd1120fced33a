# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema in words, for documentation."""

from __future__ import annotations

import json
from typing import Any, List, NamedTuple

from .._matrix import LATEST
from ._read import default_of
from ._schema import CHART, DEAD, DEPRECATED, LATER, OLDER, TABLE, UNSET, USED, Key
from ._types import allowed

STATUS_WORDS = {
    USED: "used",
    CHART: "operator only",
    DEAD: "no effect",
    DEPRECATED: "deprecated",
    LATER: "not yet",
    OLDER: "older chart",
}


class Row(NamedTuple):
    """One key in words. ``nil``: what an absent key means in a ClusterPolicy."""

    values: str
    cluster_policy: str
    type: str
    default: str
    nil: str
    status: str
    about: str
    note: str


def explain() -> List[Row]:
    """Every key of the schema, in the order of the table."""
    return [_row(key) for key in TABLE]


def _row(key: Key) -> Row:
    in_policy = key.path_in("clusterpolicy")
    return Row(
        values=key.path_in("values"),
        cluster_policy=in_policy,
        type=allowed(key),
        default=_shown(default_of(key, LATEST)) if key.in_values else "",
        nil=_shown(key.nil) if in_policy and key.nil is not None else "",
        status=_status(key),
        about=key.about,
        note=key.note,
    )


def _status(key: Key) -> str:
    words = STATUS_WORDS[key.status]
    return f"{words} in values, {STATUS_WORDS[key.cp_status]} in a ClusterPolicy" if key.cp_status else words


def _shown(value: Any) -> str:
    return "" if value is UNSET else json.dumps(value)
