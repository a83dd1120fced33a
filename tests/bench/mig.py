# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG plans: from every layout of a board to every multiset of instances that fits, beside clearing the board first.

Each plan is judged against brute force, so a figure comes only from plans of which none is better.
"""

from __future__ import annotations

import contextlib
import time
from statistics import median

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._board import Profile
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._geometry import BOARDS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._planner import Refused, plan
from ansible_collections.gpufleet.nvidia.tests.bench import machine
from ansible_collections.gpufleet.nvidia.tests.bench.figures import AT_LEAST, AT_MOST, Goal, Row, Sample, row
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import Report
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.gpu import boards

NAMES = ("mig.plan.median", "mig.plan.worst", "mig.destroyed", "mig.disturbed")
PEER = "clearing the board and making it anew"
MEDIAN, WORST = 10, 50  # milliseconds of the processor
# Boards whose tables differ in what matters to the planner: 8 slots, 4 slots, 4 slots with 11 profiles.
OTHERS = ("A30", "RTX PRO 6000")


class BenchError(Exception):
    """A plan is not the best one: the figures would be of a wrong program."""


def run(names: set[str], repeats: int, report: Report) -> list[Row]:
    stated = machine.stated(machine.load())
    times: list[float] = []
    destroyed = cleared = disturbed = disturbed_by_peer = pairs = 0
    for multiset, same_kind in boards.by_multiset(boards.PLAIN).items():
        items = boards.items_of(multiset, boards.PLAIN)
        for old in boards.layouts(boards.PLAIN):
            existing = boards.as_existing(old)
            began = time.thread_time()
            made = plan(boards.A100, existing, items, {})
            times.append(1000 * (time.thread_time() - began))
            if boards.worth_of(made) != boards.best_kept(old, same_kind):
                raise BenchError(f"the plan from {old} to {multiset} keeps less than could stay")
            pairs += 1
            destroyed += len(made.destroy)
            disturbed += bool(made.destroy)
            if not made.empty:
                cleared += len(existing)
                disturbed_by_peer += bool(existing)
    report(f"bench: {pairs} pairs of the eight-slot table, each the best there is")
    for board in OTHERS:
        times += _times(BOARDS[board][1])
    many = {"pairs": pairs, **stated}
    made_rows = (
        row("mig.plan.median", "ms", Sample((median(times),)), goal=Goal(AT_MOST, MEDIAN), **many),
        row("mig.plan.worst", "ms", Sample((max(times),)), goal=Goal(AT_MOST, WORST), **many),
        _counted("mig.destroyed", "instances", destroyed, cleared, many),
        _counted("mig.disturbed", "GPUs", disturbed, disturbed_by_peer, many),
    )
    return [made for made in made_rows if made["name"] in names]


def _counted(name: str, unit: str, ours: int, theirs: int, more: dict[str, object]) -> Row:
    return row(name, unit, Sample((ours,)), PEER, Sample((theirs,)), Goal(AT_LEAST, 1), **more)


def _times(profiles: tuple[Profile, ...]) -> list[float]:
    times = []
    layouts = boards.layouts(profiles)
    for multiset in list(boards.by_multiset(profiles))[:60]:
        items = boards.items_of(multiset, profiles)
        for old in layouts[:: max(1, len(layouts) // 40)]:
            existing = boards.as_existing(old)
            began = time.thread_time()
            with contextlib.suppress(Refused):  # for their engines: the brute force knows slots only
                plan(profiles, existing, items, {})
            times.append(1000 * (time.thread_time() - began))
    return times
