# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual machines keep their GPUs: no manager ends under them, and no node is moved under them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._apply import CREATE, DELETE, REPLACE, UPDATE, Step
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._resources import Ref
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._groups import parse_groups
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._keys import DEPLOY
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._machines import idle, judge
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._nodes import NodePlanner
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import policy_of
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, connect
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.nodes.test_groups import groups
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.nodes.test_workload import GPU, PASSTHROUGH, on, pod

CONFIG = "nvidia.com/gpu.workload.config"
H200 = "nvidia.com/GH100_H200_SXM5_141GB"
MANAGERS = {"nvidia-vfio-manager": "vfio-manager", "nvidia-vgpu-manager-daemonset": "vgpu-manager"}
STARTERS = {"nvidia-vgpu-device-manager": "vgpu-device-manager", "nvidia-cc-manager": "cc-manager"}


def node(name: str, **labels: str) -> Any:
    meta = {"name": name, "labels": {**GPU, "nvidia.com/gpu.present": "true", **labels}, "annotations": {}}
    return {"metadata": {**meta, "resourceVersion": "1"}, "spec": {"taints": []}, "status": {"nodeInfo": {}}}


def listed(*pods: Any) -> Any:
    return connect(FakeReply(200, {"metadata": {}, "items": list(pods)}))


def step(verb: str, name: str, rolls: bool = False) -> Step:
    template = {"spec": {"template": {"spec": {"a": 1}}}}
    wanted = {"spec": {"template": {"spec": {"a": 2 if rolls else 1}}}}
    return Step(verb, Ref("DaemonSet", "gpu-operator", name), "", wanted, template, rolls=rolls)


@pytest.mark.rows("S48", "SBX-01")
@pytest.mark.parametrize("verb", [DELETE, REPLACE])
@pytest.mark.parametrize("name", MANAGERS)
def test_no_manager_ends_while_machines_run_on_what_it_set_up(name: str, verb: str) -> None:
    nodes = [node("gpu-0", **{DEPLOY + MANAGERS[name]: "true"}), node("gpu-1"), node("gpu-2")]
    pods = [pod("virt-launcher-a", H200), pod("b", H200, node="gpu-1"), pod("own", H200, namespace="gpu-operator")]
    connection, _transport, _pauses = listed(*pods)
    (finding,) = judge(connection, [step(verb, name)], nodes, "gpu-operator")
    assert (finding.id, finding.severity) == ("machines.in-use", "error")
    assert "on gpu-0 a pod holds its GPUs (team/virt-launcher-a)" in finding.detail
    assert name in finding.target
    for none in ([], [pod("done", H200, phase="Succeeded")], [pod("network", "example.com/nic")]):
        assert judge(listed(*none)[0], [step(verb, name)], nodes, "gpu-operator") == []


@pytest.mark.rows("S48", "SBX-03", "SBX-05")
@pytest.mark.parametrize("name", STARTERS)
def test_no_manager_starts_anew_on_gpus_that_machines_use(name: str) -> None:
    """They make vGPUs, and set the mode of GPUs, when they start; nothing is lost when they end."""
    nodes = [node("gpu-0", **{DEPLOY + STARTERS[name]: "true"})]

    def told(*steps: Step) -> list[str]:
        found = judge(listed(pod("machine", H200))[0], steps, nodes, "gpu-operator")
        return [f"{one.id} {one.detail.split(',')[0]}" for one in found]

    assert told(step(REPLACE, name)) == ["machines.in-use would end or start anew"]
    assert told(step(DELETE, name)) == []
    assert [one.split()[0] for one in told(step(UPDATE, name, rolls=True))] == ["machines.not-rolled"]
    starts = ["machines.in-use would start"] if name == "nvidia-cc-manager" else []
    assert told(step(CREATE, name)) == starts


@pytest.mark.rows("S48")
def test_pods_are_read_only_where_a_manager_ends() -> None:
    connection, transport, _pauses = listed(pod("a", H200))
    steps = [step(DELETE, "nvidia-dcgm"), *(step(verb, "nvidia-vfio-manager") for verb in (CREATE, UPDATE))]
    assert judge(connection, steps, [node("gpu-0", **{DEPLOY + "vfio-manager": "true"})], "gpu-operator") == []
    assert transport.sent == []


def planner(*pods: Any, group: Any = None, default: str = "container") -> tuple[NodePlanner, Any]:
    connection, transport, _pauses = listed(*pods)
    request: Any = SimpleNamespace(connection=connection, namespace="gpu-operator", everywhere=True)
    policy = policy_of({"sandboxWorkloads": {"enabled": True, "defaultWorkload": default}})
    return NodePlanner(request, policy, groups(group) if group else ()), transport


CONTAINER = {DEPLOY + "operator-validator": "true", "nvidia.com/mig.config": "all-disabled"}


@pytest.mark.rows("S48", "SBX-01")
def test_a_busy_node_is_held_and_the_others_go_on() -> None:
    nodes = [node("gpu-0", **CONTAINER), node("gpu-1", **CONTAINER), node("gpu-2", **on(PASSTHROUGH))]
    plan, transport = planner(pod("training", "nvidia.com/gpu"), default="vm-passthrough")
    changes, findings = plan.plan(nodes)
    (busy,) = [f for f in findings if f.id == "nodes.workload-busy"]
    assert busy.target == "gpu-0"
    assert "team/training" in busy.detail
    after = {change.name: change.labels_after() for change in changes}
    assert after["gpu-1"][DEPLOY + "vfio-manager"] == "true"
    assert DEPLOY + "vfio-manager" not in after["gpu-0"]
    assert after["gpu-0"][DEPLOY + "operator-validator"] == "true"
    assert len(transport.sent) == 1
    settled, transport = planner(pod("training", "nvidia.com/gpu"))
    settled.plan([node("gpu-1", **CONTAINER)])
    assert not [sent for sent in transport.sent if "/pods" in str(sent)], "nothing moves: no pod is read"


@pytest.mark.rows("S48", "SBX-01", "S16")
def test_a_group_says_what_its_nodes_serve_in_the_same_run() -> None:
    group = {"name": "machines", "selector": {"pool": "vm"}, "labels": {CONFIG: "vm-passthrough"}}
    plan, _transport = planner(group=group)
    changes, _findings = plan.plan([node("gpu-0", pool="vm", **CONTAINER), node("gpu-1", **CONTAINER)])
    after = {change.name: change.labels_after() for change in changes}
    assert after["gpu-0"][CONFIG] == "vm-passthrough"
    assert after["gpu-0"][DEPLOY + "vfio-manager"] == "true"
    assert DEPLOY + "operator-validator" not in after["gpu-0"]
    assert DEPLOY + "vfio-manager" not in after["gpu-1"]
    # Taken back: the group no longer says it.
    back, _transport = planner(group={"name": "machines", "selector": {"pool": "vm"}})
    live = node("gpu-0", **after["gpu-0"])
    live["metadata"]["annotations"] = dict(changes[0].parts[0].annotations_set)
    (change,) = back.plan([live])[0]
    assert CONFIG not in change.labels_after()
    assert change.labels_after()[DEPLOY + "operator-validator"] == "true"


@pytest.mark.rows("SBX-01", "S16")
def test_a_workload_that_a_group_cannot_give_is_refused() -> None:
    (finding,) = parse_groups([{"name": "g", "labels": {CONFIG: "vm"}}])[1]
    assert finding.severity == "error"
    assert finding.path == f"node_groups[0].labels.{CONFIG}"
    assert "container, vm-passthrough, vm-vgpu are allowed" in finding.detail


@pytest.mark.rows("S48", "SBX-03", "SBX-05", "S16")
@pytest.mark.parametrize("key", ["nvidia.com/vgpu.config", "nvidia.com/cc.mode"])
def test_a_group_changes_no_gpus_that_machines_use(key: str) -> None:
    group = {"name": "machines", "selector": {"pool": "vm"}, "labels": {key: "other"}}
    nodes = [node("gpu-0", pool="vm", **{CONFIG: "vm-passthrough", **on(PASSTHROUGH)})]
    plan, _transport = planner(pod("machine", H200), group=group)
    changes, findings = plan.plan(nodes)
    assert [(one.id, one.target) for one in findings] == [("nodes.workload-busy", "gpu-0")]
    assert f"{key}=other is not written: a pod holds its GPUs (team/machine)" in findings[0].detail
    assert all(key not in change.labels_after() for change in changes)
    plan, _transport = planner(group=group)
    (change,) = plan.plan(nodes)[0]
    assert change.labels_after()[key] == "other"


@pytest.mark.rows("S48", "SBX-03", "SBX-05")
def test_a_manager_that_works_starts_anew_only_where_nothing_uses_its_gpus() -> None:
    connection, transport, _pauses = listed(pod("machine", H200), pod("own", H200, node="gpu-1", namespace="ns"))
    may = idle(connection, "ns")
    for name in (*MANAGERS, "nvidia-driver-daemonset"):
        assert not may(name, "gpu-1")
    assert transport.sent == []
    for name in STARTERS:
        assert [may(name, node) for node in ("gpu-0", "gpu-1")] == [False, True]
    assert len(transport.sent) == 1


@pytest.mark.rows("S48")
def test_a_label_that_keeps_a_manager_away_does_not_keep_the_manager() -> None:
    """Its pod is gone from there: nothing is taken from the machines of that node."""
    steps = [step(DELETE, "nvidia-vfio-manager")]
    away, there = ([node("gpu-0", **{DEPLOY + "vfio-manager": value})] for value in ("false", "paused-for-vgpu-change"))
    assert judge(listed(pod("machine", H200))[0], steps, away, "gpu-operator") == []
    assert len(judge(listed(pod("machine", H200))[0], steps, there, "gpu-operator")) == 1
