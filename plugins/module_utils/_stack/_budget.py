# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many nodes may be broken without the run failing."""

from __future__ import annotations

import re
from typing import Any


def parse_budget(value: Any) -> str:
    """``max_failed_nodes`` as it was given: a number of nodes, or a part of them in percent. Raises ValueError."""
    text = str(0 if value in (None, "") else value).strip()
    if not re.fullmatch(r"\d+%?", text) or (text.endswith("%") and int(text[:-1]) > 100):
        raise ValueError(f"max_failed_nodes is {text}: a number of nodes from 0 on or a part such as 10% is allowed")
    return text


def allowed(budget: str, total: int) -> int:
    """How many of so many nodes may be broken; parts are rounded down."""
    return int(budget[:-1]) * total // 100 if budget.endswith("%") else int(budget)
