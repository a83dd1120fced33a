# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of the bench: how they are judged, merged and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.bench import figures
from ansible_collections.gpufleet.nvidia.tests.bench.figures import AT_LEAST, AT_MOST, FigureError, Goal, Sample


def figure(name: str = "stack.noop", ours: tuple[float, ...] = (2.0,), **more: Any) -> figures.Row:
    theirs = Sample(more.pop("theirs", (40.0,)))
    goal = more.pop("goal", Goal(AT_LEAST, 20))
    return figures.row(name, more.pop("unit", "s"), Sample(ours), "loop", theirs, goal, **more)


def test_ratio_is_the_peers_time_by_ours() -> None:
    assert figure(ours=(2.0,), theirs=(50.0,))["ratio"] == 25


def test_value_is_the_median_and_the_spread_is_kept() -> None:
    made = figure(ours=(9.0, 1.0, 2.0), theirs=(30.0, 10.0, 50.0, 40.0))
    assert (made["value"], made["min"], made["max"], made["n"]) == (2, 1, 9, 3)
    assert (made["peer_value"], made["peer_min"], made["peer_max"], made["peer_n"]) == (35, 10, 50, 4)


def test_a_row_has_the_agreed_keys_first() -> None:
    agreed = ["name", "value", "unit", "peer", "peer_value", "ratio", "goal", "ok"]
    assert list(figure())[: len(agreed)] == agreed


@pytest.mark.parametrize(
    ("ours", "theirs", "goal", "ok"),
    [
        (2.0, 40.0, Goal(AT_LEAST, 20), True),
        (2.0, 39.9, Goal(AT_LEAST, 20), False),
        (1.0, 9.0, Goal(AT_MOST, 1), True),
        (1.1, 99.0, Goal(AT_MOST, 1), False),
        (0.0, 9.0, Goal(AT_MOST, 0), True),
        (9.0, 1.0, None, True),
    ],
)
def test_goal_judges_the_ratio_or_our_own_value(ours: float, theirs: float, goal: Goal | None, ok: bool) -> None:
    assert figure(ours=(ours,), theirs=(theirs,), goal=goal)["ok"] is ok


def test_goal_is_judged_before_rounding() -> None:
    # Rounded to three digits the ratio is 20.
    assert figure(ours=(1.0,), theirs=(19.99999,))["ok"] is False


def test_nothing_on_our_side_has_no_ratio() -> None:
    made = figure(ours=(0.0,), theirs=(74.0,), goal=None)
    assert made["ratio"] is None
    assert figure(ours=(0.0,), theirs=(74.0,), goal=Goal(AT_LEAST, 1))["ok"] is False


def test_merge_replaces_figures_of_the_same_name_and_keeps_the_others() -> None:
    kept = [figure("stack.noop", ours=(9.0,)), figure("mig.plan", ours=(0.5,))]
    new = [figure("stack.noop", ours=(1.0,)), figure("stack.first", ours=(3.0,))]
    assert [(r["name"], r["value"]) for r in figures.merge(kept, new)] == [
        ("mig.plan", 0.5),
        ("stack.first", 3),
        ("stack.noop", 1),
    ]


def test_file_is_a_list_that_is_read_back_equal(tmp_path: Path) -> None:
    file = tmp_path / "build" / "bench.json"
    rows = [figure("a"), figure("b", note="x")]
    figures.save(file, rows)
    assert json.loads(file.read_text()) == rows
    assert figures.load(file) == rows
    assert [path.name for path in file.parent.iterdir()] == ["bench.json"]


def test_no_file_means_no_figures(tmp_path: Path) -> None:
    assert figures.load(tmp_path / "bench.json") == []


@pytest.mark.parametrize("text", ["[", "{}", '[{"value": 1}]', "[1]"])
def test_a_broken_file_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bench.json"
    file.write_text(text)
    with pytest.raises(FigureError, match=r"bench\.json"):
        figures.load(file)


def test_table_shows_value_ratio_goal_and_what_was_missed() -> None:
    shown = figures.table(
        [
            figure("stack.noop", ours=(2.0,), theirs=(44.0,)),
            figure("stack.first", ours=(4.0,), theirs=(8.0,)),
            figure("stack.noop.overhead", ours=(0.5,), theirs=(2.0,), goal=Goal(AT_MOST, 1)),
            figure("stack.noop.requests", ours=(16,), theirs=(148,), unit="requests", goal=None),
        ]
    ).splitlines()
    assert [line.split() for line in shown[1:]] == [
        ["ok", "stack.noop", "2.00", "s", "44.00", "s", "22.0x", ">=", "20x", "loop"],
        ["MISSED", "stack.first", "4.00", "s", "8.00", "s", "2.0x", ">=", "20x", "loop"],
        ["ok", "stack.noop.overhead", "0.50", "s", "2.00", "s", "4.0x", "<=", "1", "s", "loop"],
        ["stack.noop.requests", "16", "148", "9.2x", "loop"],
    ]


def test_page_gets_the_figures_between_its_marks_and_keeps_the_rest(tmp_path: Path) -> None:
    page = tmp_path / "bench.md"
    page.write_text(f"# Title\n\n{figures.BEGIN}\nold\n{figures.END}\n\nThe end.\n")
    stated = {"machine": "a machine with 2 cores", "taken": "2026-01-02", "with": "kubectl v1"}
    figures.write_into(page, [figure("stack.noop", ours=(1.5, 2.0, 2.5), **stated)])
    text = page.read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("\n\nThe end.\n")
    assert "old" not in text
    assert "| `stack.noop` | 2.00 s | 1.50 s to 2.50 s | loop | 40.00 s | 20.0x | >= 20x ok |" in text
    assert "2026-01-02 on a machine with 2 cores, with kubectl v1." in text
    figures.write_into(page, [figure("stack.noop", ours=(1.5, 2.0, 2.5), **stated)])
    assert page.read_text() == text


def test_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "bench.md"
    page.write_text("# Title\n")
    with pytest.raises(FigureError, match="lacks the marks"):
        figures.write_into(page, [figure()])
    assert page.read_text() == "# Title\n"


def test_milliseconds_are_shown_with_their_unit() -> None:
    plan = figure("mig.plan.median", ours=(0.2341,), unit="ms", goal=Goal(AT_MOST, 10))
    assert "0.23 ms" in figures.table([plan])
