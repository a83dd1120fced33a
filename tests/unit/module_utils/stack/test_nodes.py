# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes are served: labels are a hint, what is on the PCI bus decides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._groups import parse_groups
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._keys import GATE, PRESENT
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._stage import rows, unseen_gpus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._facts import NFD_NODE, with_hardware
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._gates import gated
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._nodes import NodePlanner, gates_without_proof
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import policy_of
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, connect
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.nodes.test_groups import groups

GPU, SWITCH = {"vendor": "10de", "class": "0302"}, {"vendor": "10de", "class": "0680"}


def node(name: str, **labels: str) -> dict[str, Any]:
    told = {"feature.node.kubernetes.io/pci-10de.present": "true", **labels}
    meta = {"name": name, "labels": told, "annotations": {}}
    return {"metadata": meta, "spec": {"taints": []}, "status": {"nodeInfo": {}}}


def plan(*nodes: dict[str, Any], everywhere: bool = True, **buses: Any) -> tuple[set[str], list[Any], int]:
    """Names of nodes that are to be served, findings, and how many requests that took. ``buses``: devices by node."""
    features = [
        {
            "metadata": {"labels": {NFD_NODE: name}},
            "spec": {"features": {"instances": {"pci.device": {"elements": [{"attributes": d} for d in devices]}}}},
        }
        for name, devices in buses.items()
    ]
    connection, transport, _pauses = connect(FakeReply(200, {"metadata": {}, "items": features}))
    request: Any = SimpleNamespace(connection=connection, namespace="gpu-operator", everywhere=everywhere)
    policy = policy_of({"migManager": {"enabled": False}})
    changes, findings = NodePlanner(request, policy, ()).plan(list(nodes))
    return (
        {change.name for change in changes if change.labels_after().get(PRESENT) == "true"},
        findings,
        len(transport.sent),
    )


@pytest.mark.rows("P115")
def test_a_node_with_a_label_and_without_a_gpu_on_its_bus_is_told_and_not_served() -> None:
    served, findings, _asked = plan(node("a"), node("b"), node("c"), a=[GPU, SWITCH], b=[SWITCH])
    assert served == {"a", "c"}, "of c the bus is not known"
    (finding,) = findings
    assert (finding.id, finding.severity, finding.target) == ("nodes.no-gpu", "warning", "node b")
    assert "there is none on its PCI bus" in finding.detail


@pytest.mark.rows("P115", "S45")
def test_the_bus_is_looked_at_for_new_nodes_only() -> None:
    assert plan(node("a", **{PRESENT: "true"}), a=[SWITCH])[2] == 0


@pytest.mark.rows("P115", "S42")
def test_a_run_on_a_schedule_does_not_serve_it_either() -> None:
    assert plan(node("a"), everywhere=False, a=[SWITCH])[0] == set()


@pytest.mark.rows("P128")
def test_a_run_without_groups_leaves_the_tolerations_that_another_set_up() -> None:
    def daemonset(*keys: str) -> dict[str, Any]:
        return {"spec": {"template": {"spec": {"tolerations": [{"key": key} for key in keys]}}}}

    gate, other = groups({"name": "g", "ready_gate": True}), groups({"name": "g"})
    assert gated(gate, [])
    assert not gated(other, [daemonset(GATE)])
    assert gated((), [daemonset("nvidia.com/gpu"), daemonset("nvidia.com/gpu", GATE)])
    assert not gated((), [daemonset("nvidia.com/gpu"), {"spec": {"template": {"spec": {}}}}])


@pytest.mark.rows("P128")
def test_nodes_that_nothing_would_open_are_not_closed() -> None:
    validator = {"metadata": {"name": "nvidia-operator-validator"}}
    mine = groups({"name": "plain"}, {"name": "g", "ready_gate": True})
    (found,) = gates_without_proof(mine, [])
    assert (found.severity, found.path) == ("error", "node_groups[1].ready_gate")
    assert gates_without_proof(mine, [validator]) == gates_without_proof(groups({"name": "plain"}), []) == []


@pytest.mark.rows("P115")
def test_it_is_no_gpu_node_in_the_table_either() -> None:
    shown = rows(with_hardware([node("a"), node("b"), node("c")], {"a": {"1eb8": 2}, "b": {}}))
    assert [row["name"] for row in shown] == ["a", "c"]


T4, A10 = {**GPU, "device": "1eb8"}, {**GPU, "device": "2236"}


@pytest.mark.rows("P111")
def test_a_new_node_with_two_models_is_served_and_told() -> None:
    served, findings, asked = plan(node("a"), node("b"), a=[T4, A10], b=[T4, T4])
    assert (served, asked) == ({"a", "b"}, 1)
    (finding,) = findings
    assert (finding.id, finding.target) == ("nodes.mixed-models", "node a")


@pytest.mark.rows("P111")
@pytest.mark.parametrize(
    ("count", "replicas", "capacity", "unseen"),
    [
        ("1", "1", {"nvidia.com/gpu": "3"}, ""),
        ("1", "1", {"nvidia.com/gpu": "2"}, "the driver sees 2 of the node's 3 GPUs"),
        ("1", "4", {"nvidia.com/gpu.shared": "12"}, ""),
        ("1", "4", {"nvidia.com/gpu.shared": "8"}, "the driver sees 2 of the node's 3 GPUs"),
        ("1", "1", {}, ""),
    ],
)
def test_gpus_of_several_models_are_counted_by_the_bus_and_not_by_the_label_of_one(
    count: str, replicas: str, capacity: dict[str, str], unseen: str
) -> None:
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": count, "nvidia.com/gpu.replicas": replicas}
    one = node("a", **labels)
    one["status"].update(capacity=capacity, allocatable=capacity)
    (known,) = with_hardware([one], {"a": {"1eb8": 1, "2236": 2}})
    assert unseen_gpus(known) == unseen
    (row,) = rows([known])
    assert (row["models"], row["gpus"]) == ({"Tesla T4": 1, "A10": 2}, 3)
    (row,) = rows([one])
    assert (row["models"], row["gpus"]) == ({}, 1)


@pytest.mark.rows("P099")
def test_a_node_stays_on_the_list_of_hidden_gpus_while_its_labels_of_nfd_are_gone() -> None:
    """Its pods run on, and must not offer the GPU when they restart."""
    found, _findings = parse_groups([{"name": "a", "selector": "pool=a", "hidden_gpus": ["18:00.0"]}, {"name": "b"}])
    planner = NodePlanner(SimpleNamespace(), policy_of({}), found)  # type: ignore[arg-type]
    gpu, other = {"feature.node.kubernetes.io/pci-10de.present": "true"}, {"feature.node.kubernetes.io/x": "y"}
    labels = {
        "seen": {"pool": "a", **gpu},
        "nfd-gone": {"pool": "a"},
        "served": {"pool": "a", **other, PRESENT: "true"},
        "no-gpu": {"pool": "a", **other},
        "other-pool": {"pool": "b", **gpu},
    }
    nodes = [{**node(name), "metadata": {"name": name, "labels": own}} for name, own in labels.items()]
    wanted = dict.fromkeys(("seen", "nfd-gone", "served"), ("0000:18:00.0",))
    assert planner.hide(nodes) == wanted == planner.hidden
