# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of the bench measures, in which order, and on which objects."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.bench import __main__ as bench
from ansible_collections.gpufleet.nvidia.tests.bench import figures, machine, stack


def test_all_figures_are_chosen_when_none_is_named() -> None:
    assert bench.chosen([], stack.NAMES) == set(stack.NAMES)


def test_a_name_stands_for_the_figures_that_begin_with_its_words() -> None:
    names = ["stack.noop", "stack.noop.single", "stack.noopx", "stack.first"]
    assert bench.chosen(["stack.noop"], names) == {"stack.noop", "stack.noop.single"}
    assert bench.chosen(["stack.noop.single", "stack.first"], names) == {"stack.noop.single", "stack.first"}


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        bench.main(["stack.nop"])
    assert stopped.value.code == 2
    assert "there is no figure stack.nop" in capsys.readouterr().err


def test_figures_have_names_of_their_own() -> None:
    assert [name for name, count in Counter(stack.NAMES).items() if count > 1] == []


def test_goals_of_the_stack_are_the_agreed_ones() -> None:
    goals = {f.name: (f.goal.rule, f.goal.bound) for f in stack.FIGURES if f.goal}
    assert goals == {
        "stack.first": (figures.AT_LEAST, 15),
        "stack.noop": (figures.AT_LEAST, 20),
        "stack.first.single": (figures.AT_LEAST, 1),
        "stack.noop.single": (figures.AT_LEAST, 1),
        "stack.noop.overhead": (figures.AT_MOST, 1),
        "stack.module.noop": (figures.AT_LEAST, 1),
        "stack.module.noop.requests": (figures.AT_LEAST, 1),
        "stack.module.noop.writes": (figures.AT_MOST, 0),
    }


def test_each_tool_takes_a_turn_in_each_repeat_and_the_order_changes() -> None:
    tools = list(stack.TOOLS)
    orders = [stack.order(tools, number) for number in range(4)]
    assert [sorted(order) for order in orders] == [sorted(tools)] * 4
    assert len({tuple(order) for order in orders}) == 4
    assert len({order[0] for order in orders}) > 1


def test_objects_are_the_whole_stack_each_once() -> None:
    objects = stack.stack_objects()
    refs = Counter(str(stack.ref(obj)) for obj in objects)
    assert [which for which, count in refs.items() if count > 1] == []
    kinds = Counter(obj["kind"] for obj in objects)
    assert kinds["Namespace"] == 1
    assert kinds["CustomResourceDefinition"] == 3
    names = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "DaemonSet"}
    assert {"nvidia-driver-daemonset", "nvidia-device-plugin-daemonset", "nvidia-mig-manager"} <= names


@pytest.mark.parametrize(("ok", "status"), [(True, 0), (False, 1)])
def test_a_missed_goal_ends_the_run_with_1_and_the_figures_are_kept(
    ok: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(names: set[str], repeats: int, report: object) -> list[dict[str, Any]]:
        goal = figures.Goal(figures.AT_LEAST, 2 if ok else 20)
        peer = figures.Sample((3.0,) * repeats)
        return [figures.row(name, "s", figures.Sample((1.0,) * repeats), "peer", peer, goal) for name in sorted(names)]

    file = tmp_path / "build" / "bench.json"
    figures.save(file, [figures.row("other", "s", figures.Sample((1.0,)))])
    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    monkeypatch.setattr(bench, "FILE", file)
    monkeypatch.setattr(bench, "BENCHES", (bench.Bench(("a.b", "a.c", "d"), run),))
    assert bench.main(["a", "--repeats", "5"]) == status
    assert [(r["name"], r["n"]) for r in figures.load(file)] == [("a.b", 5), ("a.c", 5), ("other", 1)]
    shown = capsys.readouterr().out
    assert "a.b" in shown
    assert ("goals missed: a.b, a.c" in shown) is not ok


@pytest.mark.parametrize(
    ("load", "words"), [(0.1, "idle"), (1.0, "lightly used by others"), (6.0, "busy with other work")]
)
def test_machine_is_stated_in_plain_words(load: float, words: str) -> None:
    stated = machine.stated(load, "MemTotal:       24569204 kB\nMemFree: 1 kB\n")
    assert ", 23 GiB of memory, " in stated["machine"]
    # The words are for the cores that this machine has.
    assert machine.occupied(load, 2) == words
    assert f"(load {load:.1f})" in stated["machine"]
