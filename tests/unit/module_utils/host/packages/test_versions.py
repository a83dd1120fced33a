# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions are ordered as dpkg and rpm order them. Both are asked by tests/integration/hosts."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._packages import compare
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._packages._versions import newest_first

# one, order, other; what both programs say of these was asked: `dpkg --compare-versions` and rpm.vercmp.
BOTH = [
    ("1.17.8-1", "<", "1.19.1-1"),
    ("1.9.0-1", "<", "1.17.8-1"),
    ("1.20.0~rc.1-1", "<", "1.20.0-1"),
    ("1.20.0-1", "=", "1.20.0-1"),
    ("1.20.0-1", "=", "0:1.20.0-1"),
    ("1.20.0-2", "<", "1.20.0-10"),
    ("2:1.0-1", ">", "1:9.0-1"),
    ("1:1.0-1", ">", "9.0-1"),
    ("3:580.95.05-1.el9", "<", "3:580.105.08-1.el9"),
    ("535.247.01-1", "<", "580.95.05-1"),
    ("1.01-1", "=", "1.1-1"),
    ("1.0a-1", "<", "1.0b-1"),
]
ONLY = [
    ("apt", "1.0-1", "<", "1.0-1ubuntu1"),
    ("apt", "580.95.05-0ubuntu0.24.04.2", "<", "580.95.05-0ubuntu1"),
    ("apt", "1.0", "=", "1.0-0"),
    ("apt", "1.0-a-1", "<", "1.0.1-1"),
    ("apt", "1.0a", "<", "1.0+1"),
    ("dnf", "1.0^git1-1", ">", "1.0-1"),
    ("dnf", "1.0^git1-1", "<", "1.0.1-1"),
    ("zypper", "1.a-1", "<", "1.1-1"),
    ("dnf", "1_0-1", "=", "1.0-1"),
]
CASES = [(manager, *case) for case in BOTH for manager in ("apt", "dnf")] + ONLY


@pytest.mark.parametrize(("manager", "one", "order", "other"), CASES)
def test_order(manager: str, one: str, order: str, other: str) -> None:
    sign = {"<": -1, "=": 0, ">": 1}[order]
    for first, second, expected in ((one, other, sign), (other, one, -sign)):
        assert compare(manager, first, second) == expected


def test_newest_first_and_each_once() -> None:
    asked = ["1.17.8-1", "1.20.2-1", "1.9.0-1", "1.20.2-1", "1.20.2~rc.1-1"]
    assert newest_first("apt", asked) == ["1.20.2-1", "1.20.2~rc.1-1", "1.17.8-1", "1.9.0-1"]
