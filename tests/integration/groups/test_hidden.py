# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that node groups keep out of Kubernetes: the real API server and scheduler, simulated nodes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.faults.sentences import CLUSTER
from ansible_collections.gpufleet.nvidia.tests.integration.fleets import Fleet

GPU = "nvidia.com/gpu"
CONFIG, MIG = "nvidia-hidden-gpus", "nvidia-mig-manager"
ALL = {"gpu-uuid": 8, "gpu-pci": 4, "gpu-model": 3, "gpu-plain": 2}
FEWER = {"gpu-uuid": 7, "gpu-pci": 3, "gpu-model": 1, "gpu-plain": 2}


def gpu_of(node: str, index: int) -> str:
    """The UUID that the simulator gives a GPU."""
    return f"GPU-{uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_DNS, node), str(index))}"


def group(node: str, *hidden: str) -> dict[str, Any]:
    return {"name": node, "selector": {"kubernetes.io/hostname": node}, "hidden_gpus": list(hidden)}


GROUPS = [
    group("gpu-uuid", gpu_of("gpu-uuid", 2)),
    group("gpu-pci", "00000000:1a:00.0"),
    group("gpu-model", "Tesla T4"),
]


@pytest.fixture
def fleet(fleets: Callable[[str], Fleet]) -> Iterator[Fleet]:
    """Without a stack: an earlier test's groups hide nothing here."""
    found = fleets("hidden")
    found.empty()
    yield found
    found.reset()


def shown(fleet: Fleet) -> dict[str, int]:
    """What pods can get."""
    return {node["metadata"]["name"]: int(node["status"]["allocatable"].get(GPU, 0)) for node in fleet.get("Node")}


def counts(fleet: Fleet) -> dict[str, str]:
    """What feature discovery counts; of several models one."""
    return {node["metadata"]["name"]: node["metadata"]["labels"].get(f"{GPU}.count", "") for node in fleet.get("Node")}


def offered(result: dict[str, Any]) -> dict[str, int]:
    return {row["name"]: row["resources"].get(GPU, 0) for row in result["found"]["offers"]}


@pytest.mark.rows("P099")
def test_hidden_gpus_are_neither_offered_nor_counted_and_come_back_when_they_are_hidden_no_more(fleet: Fleet) -> None:
    whole = fleet.stack({})
    assert not whole["failed"], whole["msg"]
    assert shown(fleet) == ALL

    offset = fleet.offset()
    planned = fleet.stack({}, check=True, node_groups=GROUPS)
    assert (planned["failed"], planned["changed"], fleet.writes(offset)) == (False, True, [])
    assert offered(planned) == FEWER
    assert f"create ConfigMap {fleet.namespace}/{CONFIG}" in [action["id"] for action in planned["plan"]]

    hidden = fleet.stack({}, node_groups=GROUPS)
    assert not hidden["failed"], hidden["msg"]
    assert (shown(fleet), offered(hidden)) == (FEWER, FEWER)
    assert counts(fleet) == {name: str(count) for name, count in FEWER.items()}
    listed = fleet.get("ConfigMap", CONFIG)["data"]["list"].splitlines()
    assert listed == ["gpu-model Tesla T4", "gpu-pci 0000:1a:00.0", f"gpu-uuid {gpu_of('gpu-uuid', 2)}"]
    # The MIG manager partitions all GPUs of a node, so it stays away from one that hides some.
    managers = {p["spec"]["nodeName"] for p in fleet.get("Pod") if p["metadata"]["labels"].get("app") == MIG}
    assert managers == {"gpu-plain"}

    offset = fleet.offset()
    again = fleet.stack({}, node_groups=GROUPS)
    assert (again["failed"], again["changed"], fleet.writes(offset)) == (False, False, []), again
    assert not fleet.run("cluster_preflight", policy={}, node_groups=GROUPS)["failed"]
    info = fleet.run("gpu_cluster_info")["found"]
    assert {row["name"]: row["ready"] for row in info["nodes"]} == dict.fromkeys(ALL, True), info["nodes"]
    assert info["status"]["state"] == "ready"

    # A run over the plugin alone leaves the list as it is, and refuses another one.
    offset = fleet.offset()
    part = fleet.run("device_plugin", policy={})
    assert (part["failed"], part["changed"], fleet.writes(offset)) == (False, False, []), part
    other = fleet.run("device_plugin", policy={}, node_groups=[group("gpu-uuid", gpu_of("gpu-uuid", 3))])
    assert "Run gpufleet.nvidia.cluster_policy with these groups first" in other["msg"]
    assert fleet.writes(offset) == []

    back = fleet.stack({}, node_groups=[{"name": "gpu-uuid", "selector": "kubernetes.io/hostname=gpu-uuid"}])
    assert not back["failed"], back["msg"]
    assert (shown(fleet), offered(back), fleet.get("ConfigMap", CONFIG)) == (ALL, ALL, None)
    assert counts(fleet)["gpu-uuid"] == "8"


@pytest.mark.rows("P099")
def test_pods_know_what_to_hide_before_labels_bring_them_to_a_node(fleet: Fleet) -> None:
    fleet.kubectl("label", "node", "gpu-uuid", "nvidia.com/gpu.deploy.operands=false", user="admin")
    assert not fleet.stack({})["failed"]
    assert shown(fleet) == {**ALL, "gpu-uuid": 0}
    fleet.kubectl("label", "node", "gpu-uuid", "nvidia.com/gpu.deploy.operands-", user="admin")
    offset = fleet.offset()
    done = fleet.stack({}, node_groups=GROUPS[:1])
    assert not done["failed"], done["msg"]
    assert shown(fleet) == {**ALL, "gpu-uuid": 7}
    writes = fleet.writes(offset)
    labels = next(place for place, text in enumerate(writes) if "gpu-uuid" in text)
    for what in (CONFIG, "nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter"):
        assert next(place for place, text in enumerate(writes) if what in text) < labels, writes


@pytest.mark.rows("P099")
def test_a_node_without_the_gpu_that_it_is_to_hide_offers_none_and_is_told(fleet: Fleet) -> None:
    swapped = gpu_of("another", 0)
    failed = fleet.stack({}, node_groups=[group("gpu-uuid", swapped), group("gpu-model", "Tesla T4", "NVIDIA A10")])
    assert failed["failed"]
    assert CLUSTER["hidden GPU"].said_by(failed["msg"]), failed["msg"]
    assert f"gpu-uuid has no GPU that hidden_gpus names ({swapped})" in failed["msg"]
    assert "hidden_gpus names all 3 GPUs of gpu-model" in failed["msg"]
    assert "2 of 4 GPU nodes failed" in failed["msg"]
    assert shown(fleet) == {**ALL, "gpu-uuid": 0, "gpu-model": 0}
    # That no node has such a product is told beforehand.
    planned = fleet.stack({}, check=True, node_groups=[group("gpu-plain", "NVIDIA L40S")])
    nowhere = [one for one in planned["findings"] if one["id"] == "groups.hidden-nowhere"]
    assert [(one["severity"], one["target"]) for one in nowhere] == [("warning", "node gpu-plain")], planned["findings"]
