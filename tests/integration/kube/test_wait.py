# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for workloads, and patches of nodes, on a real API server and controllers. The test plays the kubelet."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube import _apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Deadline
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._nodes_patch import patch_node
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._resources import Ref
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._wait import Check, Outcome, explain, wait
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._groups import Wanted, plan_group
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._facts import node_facts, slim_node
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._nodes import NodeChange
from ansible_collections.gpufleet.nvidia.tests.integration.kube import objects
from ansible_collections.gpufleet.nvidia.tests.integration.kube.conftest import World

NODE = "kube-gpu-7"


@pytest.fixture
def node(world: World) -> Iterator[str]:
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"gpu": "yes"}}, "status": status}
    world.kubectl("create", "-f", "-", stdin=json.dumps(made))
    yield NODE
    world.kubectl("delete", "node", NODE)


def stack(world: World, enforce: str, strategy: str = "RollingUpdate") -> list[dict[str, Any]]:
    template = {
        "metadata": {"labels": {"app": "d"}},
        "spec": {
            "nodeSelector": {"gpu": "yes"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {"name": "driver", "image": "nvcr.io/nvidia/driver:1", "securityContext": {"privileged": True}}
            ],
        },
    }
    spec = {"selector": {"matchLabels": {"app": "d"}}, "template": template, "updateStrategy": {"type": strategy}}
    return [
        objects.obj("v1", "Namespace", "", world.namespace, {"pod-security.kubernetes.io/enforce": enforce}),
        objects.obj("apps/v1", "DaemonSet", world.namespace, "driver", spec=spec),
    ]


def check(world: World, wanted: int = 1, seconds: float | None = None) -> list[Check]:
    return [Check("driver", Ref("DaemonSet", world.namespace, "driver"), wanted, seconds)]


def play(world: World, image_status: dict[str, Any], ready: bool = False) -> None:
    """Give the DaemonSet's pods a status, as a kubelet would."""
    found = json.loads(world.kubectl("-n", world.namespace, "get", "pods", "-o", "json"))["items"]
    for pod in found:
        conditions = [
            {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]
        entry = {
            "name": "driver",
            "image": "nvcr.io/nvidia/driver:1",
            "imageID": "",
            "restartCount": 0,
            "ready": ready,
            "state": image_status,
        }
        status = {"phase": "Running" if ready else "Pending", "conditions": conditions, "containerStatuses": [entry]}
        world.kubectl(
            "-n", world.namespace, "patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type=merge",
            "-p", json.dumps({"status": status}),
        )  # fmt: skip


@pytest.mark.rows("COM-11")
def test_a_wait_ends_when_the_kubelet_says_ready(world: World, node: str) -> None:
    world.run(stack(world, "privileged"))
    lines: Queue[str] = Queue()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, world.connection, check(world), Deadline(90), lines.put)
        line = lines.get(timeout=30)
        while f"slowest {node}" not in line:  # before it is scheduled, the pod is named
            line = lines.get(timeout=30)
        assert line == f"driver: 0/1 nodes ready, slowest {node}: starting"
        play(world, {"waiting": {"reason": "ContainerCreating"}})
        assert lines.get(timeout=30) == f"driver: 0/1 nodes ready, slowest {node}: pulling image"
        play(world, {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, ready=True)
        outcome = waiting.result(timeout=60)
    assert outcome.ready
    requests = world.connection.stats["requests"]
    assert wait(world.connection, check(world), Deadline(60), fail_progress).ready
    assert world.connection.stats["requests"] == requests + 1


def fail_progress(line: str) -> None:
    raise AssertionError(line)


def test_pods_that_pod_security_refuses_are_named_as_the_cause(world: World, node: str) -> None:
    world.run(stack(world, "baseline"))
    outcome: Outcome = wait(world.connection, check(world, seconds=4), Deadline(60))
    assert outcome.trouble is not None
    assert outcome.trouble.reason == "FailedCreate"
    assert "pod security of the namespace does not allow them" in explain(outcome)
    assert "privileged" in explain(outcome)
    assert any("PodSecurity" in text for text in world.connection.warnings), "the server warned when it was applied"


def test_an_image_that_the_registry_lacks_ends_the_wait_early(world: World, node: str) -> None:
    world.run(stack(world, "privileged"))
    world.kubectl("-n", world.namespace, "wait", "--for=create", "pod", "-l", "app=d", "--timeout=30s")
    play(
        world,
        {"waiting": {"reason": "ImagePullBackOff", "message": 'failed to pull "nvcr.io/nvidia/driver:1": not found'}},
    )
    outcome = wait(world.connection, check(world), Deadline(600), fail_after=1)
    assert not outcome.timed_out
    assert f"node {node}, pod driver-" in explain(outcome)
    assert "container driver: image nvcr.io/nvidia/driver:1 cannot be pulled" in explain(outcome)


@pytest.mark.rows("COM-11", "P068")
def test_without_matching_nodes_a_daemonset_is_ready_or_not_as_the_caller_says(world: World) -> None:
    world.run(stack(world, "privileged"))
    assert wait(world.connection, check(world, wanted=0), Deadline(30)).ready
    outcome = wait(world.connection, check(world, wanted=1, seconds=0), Deadline(30))
    assert "0 of 1 nodes match its node selector" in explain(outcome)


@pytest.mark.rows("COM-11")
def test_a_new_template_does_not_reach_pods_that_only_deletion_renews(world: World, node: str) -> None:
    wanted = stack(world, "privileged", "OnDelete")
    world.run(wanted)
    world.kubectl("-n", world.namespace, "wait", "--for=create", "pod", "-l", "app=d", "--timeout=30s")
    play(world, {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, ready=True)
    assert wait(world.connection, check(world), Deadline(60)).ready
    wanted[1]["spec"]["template"]["spec"]["containers"][0]["image"] = "nvcr.io/nvidia/driver:2"
    world.run(wanted)
    outcome = wait(world.connection, check(world), Deadline(60))
    assert outcome.ready
    assert outcome.states[check(world)[0].ref].outdated == 1


def test_a_workload_made_anew_leaves_no_pods_of_the_old_one(world: World, node: str) -> None:
    wanted = stack(world, "privileged")
    world.run(wanted)
    world.kubectl("-n", world.namespace, "wait", "--for=create", "pod", "-l", "app=d", "--timeout=30s")
    spec = wanted[1]["spec"]
    spec["selector"]["matchLabels"]["app"] = spec["template"]["metadata"]["labels"]["app"] = "new"
    # Nobody plays the kubelet, which would end the old pod: without a grace period it goes at once.
    spec["template"]["spec"]["terminationGracePeriodSeconds"] = 0
    [step] = world.plan(wanted).steps
    old = json.loads(world.kubectl("-n", world.namespace, "get", "pods", "-o", "json"))["items"]
    killer = threading.Timer(
        1.0, world.kubectl, ("-n", world.namespace, "delete", "pod", "-l", "app=d", "--force", "--grace-period=0")
    )
    killer.start()
    assert _apply.execute(world.connection, step) == []
    killer.join()
    left = json.loads(world.kubectl("-n", world.namespace, "get", "pods", "-o", "json"))["items"]
    assert not {p["metadata"]["uid"] for p in old} & {p["metadata"]["uid"] for p in left}


# --- nodes ----------------------------------------------------------------------------------------------------------


def patch_to(wanted: Wanted) -> Callable[[Any], dict[str, Any]]:
    """What changes on a node for what its group wants."""

    def compute(live: Any) -> dict[str, Any]:
        node = slim_node(dict(live))
        return NodeChange(node, (plan_group(node_facts(node), wanted, node["spec"]["taints"]),)).patch()

    return compute


def test_a_node_is_patched_once_and_only_where_it_differs(world: World, node: str) -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    world.kubectl("taint", "node", node, "theirs=1:NoSchedule")
    before = world.offset()
    for _again in range(2):
        live = world.connection.get(f"/api/v1/nodes/{node}")
        patch_node(world.connection, live, patch_to(Wanted(("g",), {"gpu": "yes", "mine": "1"}, taint)))
    # The simulated kubelet writes to the node too: a patch that met one of its writes (409) was sent again.
    assert [w for w in world.written(before) if "(409)" not in w] == [f"patch nodes {node} (200)"]
    keys = [t["key"] for t in world.connection.get(f"/api/v1/nodes/{node}")["spec"]["taints"]]
    assert {"theirs", "nvidia.com/gpu"} <= set(keys)


def test_a_taint_that_others_set_meanwhile_is_kept(world: World, node: str) -> None:
    stale = world.connection.get(f"/api/v1/nodes/{node}")
    world.kubectl("taint", "node", node, "theirs=1:NoSchedule")
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    patch_node(world.connection, stale, patch_to(Wanted(("g",), {}, taint)))
    keys = [t["key"] for t in world.connection.get(f"/api/v1/nodes/{node}")["spec"]["taints"]]
    assert {"theirs", "nvidia.com/gpu"} <= set(keys)
