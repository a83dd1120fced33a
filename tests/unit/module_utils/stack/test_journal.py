# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run remembers of its plan, and the writing of many nodes at once."""

from __future__ import annotations

import threading
import time

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Connection, KubeError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._change import LabelChange
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import WARNING, Action, Failure, Finding
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._nodes import NodeChange, each_at_once
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._request import Request
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import ScriptTransport


@pytest.fixture
def journal() -> Journal:
    connection = Connection(ScriptTransport())
    # Not alone on the cluster: no lease is taken.
    return Journal(Request(connection, "gpu-operator", False, lambda line: None), exclusive=False)


def action(number: int) -> Action:
    return Action(f"a{number}", "label", f"Node/{number}", "why")


def changes(count: int) -> list[NodeChange]:
    return [
        NodeChange({"metadata": {"name": f"n{number}"}}, (LabelChange(f"n{number}", set={"a": "b"}),))
        for number in range(1, count + 1)
    ]


def test_an_action_and_a_finding_are_kept_once_in_order(journal: Journal) -> None:
    finding = Finding("x", WARNING, "detail")
    journal.expect([action(2), action(1)])
    journal.expect([action(1), action(3)])
    journal.add_findings([finding, Finding("y", WARNING, "detail")])
    journal.add_findings([finding])
    assert [one.id for one in journal.planned] == ["a2", "a1", "a3"]
    assert [one.id for one in journal.findings] == ["x", "y"]


def test_what_was_forgotten_may_be_planned_and_found_again(journal: Journal) -> None:
    kept, other = Finding("x", WARNING, "detail"), Finding("y", WARNING, "detail")
    journal.expect([action(1)])
    journal.add_findings([kept, other])
    journal.restart([kept])
    journal.expect([action(1)])
    journal.add_findings([kept, other])
    assert [one.id for one in journal.planned] == ["a1"]
    assert journal.findings == [kept, other]


@pytest.mark.rows("S45")
def test_tens_of_thousands_of_actions_are_planned_and_done_in_seconds(journal: Journal) -> None:
    began = time.monotonic()
    for number in range(40_000):
        journal.carry_out([action(number)], lambda: None, "never")
    assert time.monotonic() - began < 5
    assert len(journal.done) == len(journal.planned) == 40_000


@pytest.mark.rows("S45", "L54")
def test_nodes_are_written_several_at_once() -> None:
    # Each waits for all others of its round: one at a time would never pass.
    together = threading.Barrier(4, timeout=10)
    seen = []

    def write(number: int, change: NodeChange) -> None:
        together.wait()
        seen.append((number, change.name))

    each_at_once(write, changes(16))
    assert sorted(seen) == [(number, f"n{number}") for number in range(1, 17)]


def test_after_a_failure_no_further_node_is_begun_and_what_was_done_is_known(journal: Journal) -> None:
    count = 500

    def act(number: int) -> None:
        time.sleep(0.002)
        if number == 3:
            raise KubeError("refused")

    def write(number: int, change: NodeChange) -> None:
        journal.carry_out([action(number)], lambda: act(number), f"node {change.name}")

    with pytest.raises(Failure, match="node n3: refused"):
        each_at_once(write, changes(count))
    assert "a3" not in journal.done
    assert 0 < len(journal.done) < count / 2
