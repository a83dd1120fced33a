# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault on each of many nodes at once: each is named in one sentence, and the other nodes come up.

Two runs tell it all: a first installation, and a change of the policy on a fleet of which parts are broken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.faults.sentences import NODES, plain

FIRST = {name: fault.control for name, fault in NODES.items() if fault.control and name != "bad-node"}
SLOW = {"driver_seconds": 3000}  # 15 s at the speed of the tests: longer than the others, and well all the same
TAINT = "dedicated=batch:NoExecute"
GOOD = {"good-0", "good-1", "slow"}


class Story(NamedTuple):
    """What three runs returned: the installation, a look at it, and the change."""

    first: dict[str, Any]
    progress: list[str]
    seen: dict[str, Any]
    second: dict[str, Any]
    exporters: dict[str, str]
    looked: dict[str, Any]


@pytest.fixture(scope="module")
def story(_fleets: Callable[[str], Any]) -> Iterator[Story]:
    fleet = _fleets("faults")
    fleet.control(nodes={**FIRST, "slow": SLOW})
    first = fleet.stack({}, timeout=150, max_failed_nodes="65%")
    progress = fleet.progress
    seen = fleet.run("gpu_cluster_info")
    # Two more nodes go out of order, and every exporter is to be replaced.
    fleet.control(nodes={**FIRST, "bad-node": NODES["bad-node"].control})
    fleet.kubectl("taint", "node", "bad-taint", TAINT, user="admin")
    fleet.kubectl("wait", "node/bad-node", "--for=condition=Ready=False", "--timeout=20s")
    values = {"dcgmExporter": {"env": [{"name": "DCGM_EXPORTER_INTERVAL", "value": "15000"}]}}
    second = fleet.stack(values, timeout=150, max_failed_nodes="9")
    pods = fleet.get("Pod")
    exporters = {p["spec"]["nodeName"]: _interval(p) for p in pods if _app(p) == "nvidia-dcgm-exporter"}
    yield Story(first, progress, seen, second, exporters, fleet.run("gpu_cluster_info"))
    fleet.kubectl("taint", "node", "bad-taint", "dedicated-", user="admin")


def _app(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get("app", ""))


def _interval(pod: dict[str, Any]) -> str:
    env = {e["name"]: e.get("value", "") for e in pod["spec"]["containers"][0]["env"]}
    return env.get("DCGM_EXPORTER_INTERVAL", "")


def _rows(done: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in done["found"]["nodes"]}


@pytest.mark.rows("S01", "S28", "L23", "L24", "P132")
@pytest.mark.parametrize("name", sorted(FIRST))
def test_each_fault_of_an_installation_is_one_sentence_with_layer_cause_and_next_step(story: Story, name: str) -> None:
    row = _rows(story.first)[name]
    assert (row["ready"], row["failed"]) == (False, True)
    assert plain(row["trouble"]) == NODES[name].sentence
    (finding,) = [f for f in story.first["findings"] if f["target"] == f"node {name}"]
    assert f"{finding['detail']}. {finding['remedy']}" == row["trouble"]
    assert (finding["id"], finding["severity"]) == ("node.failed", "warning")


@pytest.mark.rows("S01", "S28", "S64", "L24", "P132")
def test_nodes_that_can_work_do_whatever_is_wrong_with_others(story: Story) -> None:
    assert not story.first["failed"], story.first["msg"]
    rows = _rows(story.first)
    assert {name for name, row in rows.items() if row["ready"]} == GOOD | {"bad-node", "bad-taint"}
    assert not [row["trouble"] for name, row in rows.items() if name in GOOD if row["trouble"] or row["failed"]]
    verified = {check["id"].split()[-1]: check["ok"] for check in story.first["verified"]}
    assert {name for name, ok in verified.items() if not ok} == set(FIRST)


@pytest.mark.rows("S64")
def test_a_slow_node_is_waited_for_and_shown_while_broken_ones_are_only_counted(story: Story) -> None:
    assert any(re.search(r"\d+/\d+ nodes ready, \d+ failed", line) for line in story.progress), story.progress


@pytest.mark.rows("S01", "S39", "L24", "P027", "P132")
@pytest.mark.parametrize("name", sorted(FIRST))
def test_a_look_at_the_cluster_tells_the_same_sentence(story: Story, name: str) -> None:
    row = _rows(story.seen)[name]
    assert row["failed"]
    assert plain(row["trouble"]) == NODES[name].sentence
    assert f"{name}: {row['trouble']}" in story.seen["found"]["table"]


@pytest.mark.rows("S01", "S26", "P129", "P067")
@pytest.mark.parametrize("name", ["bad-node", "bad-taint"])
def test_a_node_that_goes_out_of_order_later_is_named_the_same_way(story: Story, name: str) -> None:
    assert plain(_rows(story.second)[name]["trouble"]) == NODES[name].sentence
    assert plain(_rows(story.looked)[name]["trouble"]) == NODES[name].sentence


@pytest.mark.rows("S01", "P056")
def test_more_broken_nodes_than_may_be_fail_the_run_with_their_sentences(story: Story) -> None:
    second = story.second
    assert second["failed"]
    head, *lines = second["msg"].split("\n- ")
    assert head == "10 of 13 GPU nodes failed, 9 may:"
    told = {re.split(r": ", line, maxsplit=1)[0].removeprefix("node "): line for line in lines}
    assert set(told) == set(NODES)
    for name, fault in NODES.items():
        assert fault.sentence.rstrip(".") in plain(told[name])


@pytest.mark.rows("S01", "L24", "P057")
def test_a_broken_node_does_not_hold_up_a_change_of_the_others(story: Story) -> None:
    """With one pod unavailable at a time the controller itself would stop at the first node that is broken."""
    assert {name: story.exporters.get(name) for name in GOOD} == dict.fromkeys(GOOD, "15000")
    assert any(a["verb"] == "delete" and "hold up its controller" in a["reason"] for a in story.second["plan"])
