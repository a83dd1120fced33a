# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How moves of packages are told in a plan, and what is proved of them afterwards."""

from __future__ import annotations

from typing import List, Mapping, Sequence

from ..._plan import Action, Check
from ._shared import Manager
from ._versions import compare


def move(kind: str, manager: str, name: str, before: str, after: str, why: str) -> Action:
    """A package that comes or changes its version; ``before`` is "" where it is not there, ``why`` it comes then."""
    if not before:
        return Action(f"{kind}-{name}", "install", name, why, after=after)
    down = compare(manager, before, after) > 0
    verb, reason = ("downgrade", "an older version is asked for") if down else ("upgrade", "it is older")
    return Action(f"{kind}-{name}", verb, name, reason, before=before, after=after)


def proved(hold: Sequence[str], gone: Sequence[str], installed: Mapping[str, str], manager: Manager) -> List[Check]:
    """That these packages are held, and those are gone."""
    checks = []
    if hold:
        held = manager.held(hold)
        free = [name for name in hold if name not in held]
        told = f"not held: {', '.join(free)}" if free else f"held: {', '.join(hold)}"
        checks.append(Check("packages-held", not free, told))
    if gone:
        still = [name for name in gone if name in installed]
        told = f"still there: {', '.join(still)}" if still else f"gone: {', '.join(gone)}"
        checks.append(Check("packages-removed", not still, told))
    return checks
