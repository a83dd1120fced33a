# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node out of the way while its host gets a MIG layout, on a real API server with real DaemonSets and evictions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

NODE = "gpu-0000"
DEPLOY, STATE = "nvidia.com/gpu.deploy.", "nvidia.com/mig.config.state"
PAUSED = "paused-for-mig-change"
CLIENTS = ("nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter")


@pytest.fixture
def fleet(facts):
    """The stack without its MIG manager: hosts get their layouts by mig_partition."""
    done = facts.stack({"migManager": {"enabled": False}})
    assert not done["failed"], done["msg"]
    yield facts
    facts.run("mig_node", node=NODE, state="resumed", wait=False)
    facts.kubectl("label", "node", NODE, f"{STATE}-", user="admin")


def node(fleet) -> dict[str, Any]:
    return fleet.get("Node", NODE, namespace="")


def seen(fleet) -> tuple[dict[str, str], dict[str, str], bool]:
    """Labels, annotations of ours, cordon."""
    live = node(fleet)
    labels = {k: v for k, v in live["metadata"]["labels"].items() if k.startswith((DEPLOY, STATE))}
    notes = {k: v for k, v in live["metadata"].get("annotations", {}).items() if k.startswith("gpufleet.io/mig-")}
    return labels, notes, bool(live["spec"].get("unschedulable"))


def pods(fleet) -> set[str]:
    """Apps of the operands' pods on the node."""
    listed = json.loads(
        fleet.kubectl("get", "pods", "-n", fleet.namespace, "-o", "json", f"--field-selector=spec.nodeName={NODE}")
    )
    return {pod["metadata"]["labels"].get("app", "") for pod in listed["items"]}


@pytest.mark.rows("MH-02", "MH-03", "P082", "P092")
def test_clients_go_and_come_back_and_a_second_run_writes_nothing(fleet) -> None:
    before = seen(fleet)
    assert set(CLIENTS) <= pods(fleet)
    offset = fleet.offset()
    planned = fleet.run("mig_node", check=True, node=NODE, state="paused")
    assert not planned["failed"], planned["msg"]
    assert planned["changed"]
    assert (planned["verified"], fleet.writes(offset)) == ([], [])
    done = fleet.run("mig_node", node=NODE, state="paused")
    assert not done["failed"], done["msg"]
    assert [check["ok"] for check in done["verified"]] == [True]
    labels, notes, cordoned = seen(fleet)
    assert (labels[DEPLOY + "device-plugin"], labels[STATE], cordoned) == (PAUSED, "pending", True)
    assert labels[DEPLOY + "driver"] == before[0][DEPLOY + "driver"]
    assert pods(fleet).isdisjoint(CLIENTS)
    assert set(notes) == {"gpufleet.io/mig-pause"}
    offset = fleet.offset()
    again = fleet.run("mig_node", node=NODE, state="paused")
    assert (again["failed"], again["changed"], fleet.writes(offset)) == (False, False, [])
    # A run for the whole stack meanwhile leaves the pause alone.
    stack = fleet.stack({"migManager": {"enabled": False}}, wait=False)
    assert not stack["failed"], stack["msg"]
    assert seen(fleet)[0][DEPLOY + "device-plugin"] == PAUSED
    back = fleet.run("mig_node", node=NODE, state="resumed")
    assert not back["failed"], back["msg"]
    assert "offers 8 nvidia.com/gpu" in back["verified"][0]["detail"]
    assert seen(fleet) == ({**before[0], STATE: "success"}, before[1], before[2])
    assert set(CLIENTS) <= pods(fleet)
    offset = fleet.offset()
    again = fleet.run("mig_node", node=NODE, state="resumed")
    assert (again["failed"], again["changed"], fleet.writes(offset)) == (False, False, [])


@pytest.mark.rows("MH-02")
def test_clients_that_do_not_go_are_named_and_nothing_stays_paused(fleet) -> None:
    before = seen(fleet)
    name = "held"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "nvidia-dcgm"}},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "example.com/c:1"}]},
    }
    fleet.kubectl("label", "node", NODE, f"{DEPLOY}dcgm=true", "--overwrite", user="admin")
    before = seen(fleet)
    fleet.kubectl("apply", "-f", "-", user="admin", text=json.dumps(pod))
    try:
        failed = fleet.run("mig_node", node=NODE, state="paused", stage_timeout=2)
    finally:
        fleet.kubectl("delete", "pod", name, "-n", "default", "--grace-period=0", "--force", user="admin")
    assert failed["failed"]
    assert "1 GPU clients did not go away: default/held" in failed["msg"]
    assert (
        "Deploy labels and cordon of the node are as they were; nvidia.com/mig.config.state says failed."
        in failed["msg"]
    )
    labels, notes, cordoned = seen(fleet)
    assert (labels, cordoned) == ({**before[0], STATE: "failed"}, before[2])
    assert "default/held" in notes["gpufleet.io/mig-problem"]


@pytest.fixture
def busy(fleet) -> Iterator[Any]:
    """A Deployment of one pod with a GPU of the node."""
    name = "train"
    container = {"name": "c", "image": "example.com/c:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    tolerations = [{"operator": "Exists"}]
    spec = {"nodeSelector": {"kubernetes.io/hostname": NODE}, "containers": [container], "tolerations": tolerations}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }
    fleet.kubectl("apply", "-f", "-", user="admin", text=json.dumps(deployment))
    fleet.kubectl("wait", f"deployment/{name}", "-n", "default", "--for=condition=Available", "--timeout=60s")
    yield fleet
    fleet.kubectl("delete", "pdb", name, "-n", "default", "--ignore-not-found", user="admin")
    fleet.kubectl("delete", "deployment", name, "-n", "default", "--cascade=foreground", user="admin")


@pytest.mark.rows("MH-02", "S20", "P082")
def test_users_pods_are_named_waited_for_or_evicted_within_their_budget(busy) -> None:
    offset = busy.offset()
    refused = busy.run("mig_node", node=NODE, state="paused")
    assert refused["failed"]
    assert "users' pods hold its GPUs: default/train-" in refused["msg"]
    assert busy.writes(offset) == []
    waited = busy.run("mig_node", node=NODE, state="paused", user_pods="wait", user_pods_timeout=2)
    assert "1 users' pods hold its GPUs still: default/train-" in waited["msg"]
    assert seen(busy)[0][DEPLOY + "device-plugin"] == "true"
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}},
    }
    busy.kubectl("apply", "-f", "-", user="admin", text=json.dumps(budget))
    busy.kubectl("wait", "pdb/train", "-n", "default", "--for=jsonpath={.status.currentHealthy}=1", "--timeout=30s")
    kept = busy.run("mig_node", node=NODE, state="paused", user_pods="evict", user_pods_timeout=3)
    assert "users' pods hold its GPUs still" in kept["msg"]
    assert not seen(busy)[2]
    lift = threading.Timer(4, busy.kubectl, ("delete", "pdb", "train", "-n", "default"), {"user": "admin"})
    lift.start()
    try:
        done = busy.run("mig_node", node=NODE, state="paused", user_pods="evict", user_pods_timeout=60)
    finally:
        lift.join()
    assert not done["failed"], done["msg"]
    assert [action["verb"] for action in done["plan"]].count("evict") == 1
    assert seen(busy)[2]


@pytest.mark.rows("MH-02")
def test_pods_that_nobody_makes_anew_are_not_evicted(fleet) -> None:
    container = {"name": "c", "image": "example.com/c:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    bare = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bare", "namespace": "default"},
        "spec": {"nodeName": NODE, "containers": [container]},
    }
    fleet.kubectl("apply", "-f", "-", user="admin", text=json.dumps(bare))
    offset = fleet.offset()
    try:
        refused = fleet.run("mig_node", node=NODE, state="paused", user_pods="evict")
        assert "nobody makes these pods anew, so they are not evicted: default/bare" in refused["msg"]
        assert fleet.writes(offset) == []
    finally:
        fleet.kubectl("delete", "pod", "bare", "-n", "default", "--grace-period=0", "--force", user="admin")


def test_nodes_of_the_mig_manager_and_nodes_that_are_not_there_are_refused(facts) -> None:
    done = facts.stack({})
    assert not done["failed"], done["msg"]
    offset = facts.offset()
    kept = facts.run("mig_node", node=NODE, state="resumed", outcome="failed", problem="no route")
    assert (kept["failed"], kept["changed"]) == (False, False)
    refused = facts.run("mig_node", node=NODE, state="paused")
    assert "the MIG manager looks after its layout" in refused["msg"]
    missing = facts.run("mig_node", node="gpu-77", state="paused")
    assert "There is no node 'gpu-77' in the cluster" in missing["msg"]
    wrong = facts.run("mig_node", node=NODE, state="resumed", outcome="pending")
    assert "outcome: pending is not how a node can be resumed; allowed are success, failed" in wrong["msg"]
    assert facts.writes(offset) == []
