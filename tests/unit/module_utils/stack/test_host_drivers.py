# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's driver that is gone takes its mark with it."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._labels import plan_labels
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import NodeFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._host_drivers import driverless, seeks_in_vain
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import policy_of
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, connect

NOW = 1_800_000_000.0
DRIVER = "nvidia.com/gpu.deploy.driver"
MARKED = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "nvidia.com/gpu.present": "true",
    DRIVER: "pre-installed",
}


def pod(seconds: float, name: str = "driver-validation", state: str = "running", node: str = "a") -> dict[str, Any]:
    since = datetime.fromtimestamp(NOW - seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = {"name": name, "state": {state: {"startedAt": since}}}
    meta = {"name": "p", "namespace": "gpu-operator"}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"initContainerStatuses": [entry]}}


@pytest.mark.rows("P137", "L11")
def test_a_driver_that_is_sought_for_minutes_is_not_there() -> None:
    assert seeks_in_vain([pod(5), pod(130)], NOW)
    assert not seeks_in_vain([pod(110)], NOW)
    assert not seeks_in_vain([pod(500, "toolkit-validation"), pod(500, state="terminated")], NOW)
    assert not seeks_in_vain([], NOW)


@pytest.mark.rows("P137", "L11")
def test_only_marked_nodes_are_looked_at() -> None:
    def node(name: str, value: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": {**MARKED, DRIVER: value}}}

    old = {"items": [pod(1_000_000, node=name) for name in ("a", "b")], "metadata": {}}
    connection, transport, _pauses = connect(FakeReply(200, old))
    assert driverless(connection, [node("a", "true")], "gpu-operator") == ()
    assert transport.sent == []
    connection.ahead = NOW - connection.now()
    assert driverless(connection, [node("a", "pre-installed"), node("b", "true")], "gpu-operator") == {"a"}


@pytest.mark.rows("P137", "L11")
def test_the_mark_goes_where_the_driver_is_gone_and_stays_where_it_is_not() -> None:
    facts = NodeFacts("a", MARKED)
    gone, there = plan_labels(policy_of(), facts, driver_gone=True), plan_labels(policy_of(), facts)
    assert gone.set[DRIVER] == "true"
    assert "there no more" in gone.reasons[DRIVER]
    assert [finding.id for finding in gone.findings] == []
    assert DRIVER not in there.set
    assert [finding.id for finding in there.findings] == ["nodes.pre-installed"]
    false = plan_labels(policy_of(), NodeFacts("a", {**MARKED, DRIVER: "false"}), driver_gone=True)
    assert DRIVER not in false.set
