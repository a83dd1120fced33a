# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the version matrix says against one more part of a host, as findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Collection, List

from .._matrix import FitSet, judge
from .._plan import WARNING, Finding


def findings(there: FitSet, path: str, accept: Collection[str], **more: Any) -> List[Finding]:
    """``more``: the part, by its name in ``FitSet``; ``there``: what it is to fit, whose own faults are not told.

    Each finding quotes the row that says so. Raises ValueError where a version is none.
    """
    known = judge(there)
    found = []
    for verdict in judge(replace(there, **more)):
        if verdict in known:
            continue
        taken = bool(verdict.accept) and verdict.accept in accept
        severity = WARNING if taken else verdict.severity
        remedy = f"The matrix says: {verdict.row}"
        found.append(Finding(verdict.id, severity, verdict.message, path=path, remedy=remedy, accept=verdict.accept))
    return found
