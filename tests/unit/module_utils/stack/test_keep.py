# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching nodes after a run: when it runs again, and what is told when something fails (S54)."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import KubeError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Action, Failure, Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack import _keep
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._keep import Keeper


class Nodes:
    """A mirror in whose ``wait`` something happens."""

    def __init__(self, *waits: Any) -> None:
        self.waits = list(waits)

    def __call__(self, *_arguments: Any) -> Nodes:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_exc: object) -> None:
        return None

    def objects(self, _name: str) -> list[Any]:
        return []

    def wait(self, _seconds: float) -> bool:
        wait = self.waits.pop(0) if self.waits else KubeError("watch of Node: gone")
        if isinstance(wait, Exception):
            raise wait
        return True


def action(name: str) -> Action:
    return Action(name, "update", name, "because")


def keeper(monkeypatch: Any, nodes: Nodes, needs: Any, run: Any) -> Keeper:
    monkeypatch.setattr(_keep, "Mirror", nodes)
    monkeypatch.setattr(_keep, "SETTLE", 0.0)
    return Keeper(None, needs, run, lambda _line: None)  # type: ignore[arg-type]


def test_a_watch_that_breaks_tells_what_was_done_until_then(monkeypatch: Any) -> None:
    run = keeper(monkeypatch, Nodes(True), lambda _nodes: [], lambda: Result(True, plan=[action("a")]))
    with pytest.raises(Failure, match="watching the nodes: watch of Node: gone") as told:
        run.keep(60)
    answer = told.value.as_dict()
    assert (answer["changed"], answer["done"], [one["id"] for one in answer["plan"]]) == (True, ["a"], ["a"])


def test_a_run_that_failed_is_not_tried_again_at_once(monkeypatch: Any) -> None:
    runs = []

    def run() -> Result:
        runs.append(1)
        raise Failure("no", Result(), ["half"])

    with pytest.raises(Failure) as told:
        keeper(monkeypatch, Nodes(True, True), lambda _nodes: ["gpu-1"], run).keep(60)
    assert (len(runs), told.value.done) == (1, ["half"])


@pytest.mark.rows("S54")
def test_a_node_that_needs_something_gets_a_run_and_one_that_does_not_gets_none(monkeypatch: Any) -> None:
    waiting = iter([["gpu-1"], [], [], []])
    results = iter([Result(False), Result(True, plan=[action("label gpu-1")])])
    with pytest.raises(Failure) as told:
        keeper(monkeypatch, Nodes(True), lambda _nodes: next(waiting), lambda: next(results)).keep(60)
    assert told.value.done == ["label gpu-1"]
