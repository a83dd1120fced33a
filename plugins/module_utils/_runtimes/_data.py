# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain data of configuration files: compared by kind and content, and as it should be after a change."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Tuple


class Moment(str):
    """A date, a time, or both, as it is written in TOML."""

    def spelt(self) -> str:
        """In one of the ways to write it."""
        text = re.sub(r"(?<=[0-9])[Tt ](?=[0-9])", "T", str(self))
        text = re.sub(r"[zZ]\Z", "+00:00", text)
        return re.sub(r"(\.[0-9]*?)0+(?=[+-]|\Z)", r"\1", text).replace(".+", "+").replace(".-", "-").rstrip(".")


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal in kind and content (1 is not 1.0, nor true); the order of keys does not count."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return repr(one) == repr(other)  # nan is nan, and -0.0 is not 0.0
    if isinstance(one, Moment) and isinstance(other, Moment):
        return one.spelt() == other.spelt()
    return type(one) is type(other) and bool(one == other)


def merged(data: Mapping[str, Any], path: Tuple[str, ...], value: Any) -> Dict[str, Any]:
    """The data as it should be after ``set``; parts that do not change are shared."""
    new = dict(data)
    if not path:
        for name, one in value.items():
            new = merged(new, (name,), one)
    elif len(path) == 1 and not isinstance(value, dict):
        new[path[0]] = value
    else:
        inner = new.get(path[0])
        new[path[0]] = merged(inner if isinstance(inner, dict) else {}, path[1:], value)
    return new
