# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Equality of single values as Kubernetes sees it: quantities, numbers, and what an empty field means."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Optional, Sequence

_QUANTITY = re.compile(r"^([+-]?)(\d+\.?\d*|\.\d+)(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?\d+))$")
_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

# Maps whose values are quantities, and single fields that are one.
_QUANTITY_MAPS = ("limits", "requests", "hard", "podFixed", "capacity", "allocatable")
_QUANTITY_FIELDS = ("sizeLimit", "divisor", "minAvailableMemory")


def quantity(value: Any) -> Optional[Fraction]:
    """The exact number that a quantity stands for (``"500m"`` is 1/2, ``"1Ki"`` 1024), or None if it is none."""
    if isinstance(value, bool) or value is None:
        return None
    match = _QUANTITY.match(str(value))
    if not match:
        return None
    sign, digits, suffix, exponent = match.groups()
    number = Fraction(digits.rstrip(".") if digits.endswith(".") else digits)
    if suffix in _BINARY:
        number *= 2 ** _BINARY[suffix]
    else:
        number *= Fraction(10) ** (int(exponent) if exponent else _SUFFIXES[suffix or ""])
    return -number if sign == "-" else number


def whole(value: Any) -> int:
    """The same of what is counted: 1000 GPUs are ``"1k"`` to an API server. 0 where it is no quantity."""
    return int(quantity(value) or 0)


def is_quantity(path: Sequence[str]) -> bool:
    """True when the field at ``path`` (names only) holds a quantity."""
    if not path:
        return False
    return path[-1] in _QUANTITY_FIELDS or (len(path) > 1 and path[-2] in _QUANTITY_MAPS)


def same_scalar(wanted: Any, live: Any, path: Sequence[str] = ()) -> bool:
    """True when two leaf values mean the same at ``path``. ``1`` is not ``"1"`` (a port number is not a port name)."""
    if isinstance(wanted, bool) or isinstance(live, bool):
        return wanted is live
    if wanted == live:
        return type(wanted) is type(live) or not (isinstance(wanted, str) or isinstance(live, str))
    if is_quantity(path):
        number = quantity(wanted)
        return number is not None and number == quantity(live)
    return False


def is_zero(value: Any) -> bool:
    """True for what the server leaves out when it stores an object: null, "", 0, false, and empty maps and lists."""
    return value is None or value is False or (not isinstance(value, bool) and value in ("", 0, 0.0, [], {}))
