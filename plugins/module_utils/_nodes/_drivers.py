# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver of a group of nodes, where it is another than the policy's (L12)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional

# The group whose driver a node has; nodes without it have the policy's.
DRIVER_LABEL = "gpufleet.io/driver-group"
FLAVOURS = ("auto", "open", "proprietary")
_FLAGS = ("enabled", "precompiled")
_TEXTS = ("version", "flavour", "repository", "image")
KEYS = (*_FLAGS, *_TEXTS)
# Part of the names of DaemonSets, and the value of a label.
GROUP_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?$")


@dataclass(frozen=True)
class Driver:
    """What differs from the policy; "" and None: nothing. ``enabled`` False: the node's image brings its driver."""

    group: str
    enabled: bool = True
    version: str = ""
    flavour: str = ""
    precompiled: Optional[bool] = None
    repository: str = ""
    image: str = ""


def read_driver(raw: object, group: str, refuse: Callable[[str, str, str], None]) -> Optional[Driver]:
    """The key ``driver`` of a group; ``refuse(key, detail, remedy)`` is told of each problem."""
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        refuse("driver", f"is {raw!r}: a dictionary with {', '.join(KEYS)} is allowed.", "")
        return None
    for key in raw:
        if key not in KEYS:
            refuse(f"driver.{key}", f"is unknown: {', '.join(KEYS)} are allowed.", "")
    texts: Dict[str, str] = {key: _read(raw, key, str, refuse) or "" for key in _TEXTS}
    flags: Dict[str, Optional[bool]] = {key: _read(raw, key, bool, refuse) for key in _FLAGS}
    if texts["flavour"] and texts["flavour"] not in FLAVOURS:
        refuse("driver.flavour", f"is {texts['flavour']!r}: {', '.join(FLAVOURS)} are allowed.", "")
    if not GROUP_NAME.match(group):
        detail = f"is {group!r}: a group with a driver names a DaemonSet, up to 22 small letters, digits and -."
        refuse("name", detail, "Rename the group.")
    return Driver(group, flags["enabled"] is not False, precompiled=flags["precompiled"], **texts)


def _read(raw: Mapping[str, Any], key: str, kind: type, refuse: Callable[[str, str, str], None]) -> Any:
    """A value of a type; None where there is none, or one of another type."""
    value = raw.get(key)
    if value is None or isinstance(value, kind):
        return value
    allowed, remedy = ("a text is", "Write it in quotes.") if kind is str else ("true or false is", "")
    refuse(f"driver.{key}", f"is {value!r}: {allowed} allowed.", remedy)
    return None
