# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Deadline
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._resources import Ref
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._wait import (
    Check,
    Judge,
    Scene,
    _excused,
    diagnose,
    doing,
    explain,
    rollout_state,
    slim_pod,
    wait,
)
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, connect

DRIVER = Ref("DaemonSet", "gpu", "driver")


def daemonset(
    desired: int = 3,
    ready: int = 3,
    updated: int = 3,
    available: int = 3,
    observed: int = 1,
    strategy: str = "RollingUpdate",
    name: str = "driver",
) -> dict[str, Any]:
    status = {
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "observedGeneration": observed,
    }
    meta = {"name": name, "namespace": "gpu", "uid": f"uid-{name}", "generation": 1, "resourceVersion": "1"}
    return {"kind": "DaemonSet", "metadata": meta, "spec": {"updateStrategy": {"type": strategy}}, "status": status}


def deployment(**status: int) -> dict[str, Any]:
    return {"kind": "Deployment", "metadata": {"name": "d", "generation": 2}, "spec": {"replicas": 2}, "status": status}


@pytest.mark.rows("COM-11")
@pytest.mark.parametrize(
    ("workload", "wanted", "ready", "reason"),
    [
        (daemonset(), 3, True, "3 of 3 nodes ready"),
        (daemonset(updated=2), 3, False, "2 of 3"),
        (daemonset(available=1), 3, False, "1 of 3"),
        (daemonset(observed=0), 3, False, "has not seen"),
        (daemonset(0, 0, 0, 0), 0, True, "no node needs it"),
        (daemonset(0, 0, 0, 0), 3, False, "0 of 3 nodes match its node selector"),
        (daemonset(2, 2, 2, 2), 3, False, "2 of 3 nodes match its node selector"),
        (daemonset(updated=0, strategy="OnDelete"), 3, True, "3 of 3"),
        (daemonset(ready=2, strategy="OnDelete"), 3, False, "2 of 3"),
        (deployment(observedGeneration=2, updatedReplicas=2, availableReplicas=2, replicas=2), 0, True, "2 of 2"),
        (deployment(observedGeneration=2, updatedReplicas=2, availableReplicas=1, replicas=2), 0, False, "1 of 2"),
        (deployment(observedGeneration=2, updatedReplicas=2, availableReplicas=2, replicas=3), 0, False, "2 of 2"),
        (
            deployment(observedGeneration=1, updatedReplicas=2, availableReplicas=2, replicas=2),
            0,
            False,
            "has not seen",
        ),
    ],
)
def test_ready_means_current_complete_and_as_many_as_wanted(
    workload: dict[str, Any], wanted: int, ready: bool, reason: str
) -> None:
    state = rollout_state(workload, wanted)
    assert state.ready is ready
    assert reason in state.reason


@pytest.mark.rows("COM-11")
def test_pods_of_an_older_template_are_counted_where_only_deletion_renews_them() -> None:
    assert rollout_state(daemonset(updated=1, strategy="OnDelete")).outdated == 2
    assert rollout_state(daemonset(updated=1)).outdated == 0


# --- diagnosis ------------------------------------------------------------------------------------------------------


def pod(name: str = "p", node: str = "gpu-1", **status: Any) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": "gpu",
        "uid": f"uid-{name}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "DaemonSet", "name": "driver", "uid": "uid-driver"}],
        "resourceVersion": "1",
    }
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Pending", **status}}


def container(name: str = "main", image: str = "nvcr.io/nvidia/driver:1", **state: Any) -> dict[str, Any]:
    return {"name": name, "image": image, "ready": False, **state}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def event(
    reason: str, message: str, name: str = "p", kind: str = "Pod", at: str = "2026-01-02T00:00:00Z"
) -> dict[str, Any]:
    return {
        "metadata": {},
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
        "involvedObject": {"kind": kind, "name": name},
    }


READY = pod("ready", conditions=[{"type": "Ready", "status": "True"}])
NOT_FOUND = 'rpc error: code = NotFound desc = failed to pull "nvcr.io/nvidia/driver:1": not found'


@pytest.mark.parametrize(
    ("pods", "events", "reason", "text"),
    [
        (
            [pod(containerStatuses=[container(**waiting("ImagePullBackOff", NOT_FOUND))])],
            [],
            "ImagePullBackOff",
            "image nvcr.io/nvidia/driver:1 cannot be pulled",
        ),
        (
            [pod(initContainerStatuses=[container("k8s", **waiting("ErrImagePull", "timeout"))])],
            [],
            "ErrImagePull",
            "container k8s: image",
        ),
        (
            [
                pod(
                    containerStatuses=[
                        container(
                            restartCount=4,
                            lastState={"terminated": {"exitCode": 3, "message": "a\nno device"}},
                            **waiting("CrashLoopBackOff"),
                        )
                    ]
                )
            ],
            [],
            "CrashLoopBackOff",
            "ended with exit code 3 (4 restarts): no device",
        ),
        (
            [
                pod(
                    containerStatuses=[
                        container(
                            restartCount=1,
                            lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                            state={"running": {}},
                        )
                    ]
                )
            ],
            [],
            "CrashLoopBackOff",
            "ran out of memory (1 restart)",
        ),
        (
            [pod()],
            [event("FailedMount", 'configmap "x" not found')],
            "FailedMount",
            'volume cannot be mounted: configmap "x"',
        ),
        (
            [pod()],
            [event("FailedCreatePodSandBox", 'no runtime for "nvidia" is configured')],
            "FailedCreatePodSandBox",
            "runtime class is not configured in the node's container runtime",
        ),
        (
            [
                pod(
                    node="",
                    conditions=[
                        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: Insufficient memory"}
                    ],
                )
            ],
            [],
            "Unschedulable",
            "no node takes the pod: 0/3 nodes",
        ),
        (
            [pod(containerStatuses=[container(**waiting("CreateContainerConfigError", 'secret "s" not found'))])],
            [],
            "CreateContainerConfigError",
            'secret "s"',
        ),
        (
            [pod(phase="Failed", reason="UnexpectedAdmissionError", message="no devices")],
            [],
            "UnexpectedAdmissionError",
            "the pod failed: no devices",
        ),
        (
            [],
            [
                event(
                    "FailedCreate",
                    'Error creating: pods "x" is forbidden: violates PodSecurity "baseline:latest"',
                    "driver",
                    "DaemonSet",
                )
            ],
            "FailedCreate",
            "enforce=privileged",
        ),
        (
            [],
            [event("FailedCreate", "Error creating: insufficient quota to match these scopes", "driver", "DaemonSet")],
            "FailedCreate",
            "only with a ResourceQuota",
        ),
        (
            [],
            [event("FailedCreate", "Error creating: exceeded quota: q", "driver", "DaemonSet")],
            "FailedCreate",
            "a ResourceQuota of the namespace is in the way",
        ),
        (
            [],
            [event("FailedCreate", 'Error creating: admission webhook "w" denied the request', "driver", "DaemonSet")],
            "FailedCreate",
            "an admission webhook denies them",
        ),
    ],
)
def test_the_cause_is_named_in_words(pods: list[Any], events: list[Any], reason: str, text: str) -> None:
    trouble = diagnose(daemonset(), [READY, *pods], events)
    assert trouble is not None
    assert trouble.reason == reason
    assert text in str(trouble)
    if pods and pods[0]["spec"]["nodeName"]:
        assert "node gpu-1, pod p" in str(trouble)


def test_pods_that_only_take_their_time_are_no_trouble() -> None:
    slow = pod(
        initContainerStatuses=[container("wait-driver", state={"running": {}})],
        containerStatuses=[container(**waiting("PodInitializing"))],
    )
    assert (
        diagnose(daemonset(), [READY, slow, pod(containerStatuses=[container(**waiting("ContainerCreating"))])]) is None
    )


def test_the_gravest_trouble_is_named_first() -> None:
    mount = pod("a", "gpu-0")
    gone = pod("b", "gpu-7", containerStatuses=[container(**waiting("ErrImagePull", NOT_FOUND))])
    trouble = diagnose(daemonset(), [mount, gone], [event("FailedMount", "x", "a")])
    assert trouble is not None
    assert (trouble.node, trouble.final) == ("gpu-7", True)


def test_a_refusal_that_is_over_is_not_named() -> None:
    old = event("FailedCreate", "exceeded quota", "driver", "DaemonSet", at="2025-12-31T00:00:00Z")
    assert diagnose(daemonset(), [pod()], [old]) is None


def test_a_pod_on_a_node_that_is_down_says_so() -> None:
    down = {"metadata": {"name": "gpu-1"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    trouble = diagnose(daemonset(), [pod(conditions=[{"type": "Ready", "status": "False"}])], [], [down])
    assert trouble is not None
    assert trouble.reason == "NodeNotReady"


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (pod(initContainerStatuses=[container("toolkit-check", state={"running": {}})]), "in toolkit-check"),
        (pod(containerStatuses=[container(**waiting("ContainerCreating"))]), "pulling image"),
        (pod(containerStatuses=[container(state={"running": {}})]), "starting main"),
        (pod(containerStatuses=[container(**waiting("CrashLoopBackOff"))]), "main: CrashLoopBackOff"),
        (pod(node=""), "waiting for a node"),
    ],
)
def test_what_a_slow_pod_does_is_said_in_a_few_words(one: dict[str, Any], text: str) -> None:
    assert doing(one) == text


def test_a_slim_pod_tells_the_same() -> None:
    one = pod(containerStatuses=[container(**waiting("ImagePullBackOff", NOT_FOUND))])
    one["metadata"]["annotations"] = {"a": "b" * 1000}
    assert diagnose(daemonset(), [slim_pod(one)]) == diagnose(daemonset(), [one])
    assert len(json.dumps(slim_pod(one))) < 1000


# --- waiting, with a server from a script ---------------------------------------------------------------------------


class Clock:
    """Time that passes only when somebody looks at it."""

    def __init__(self, step: float = 1.0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def server(
    workloads: list[Any], pods: list[Any], events: list[Any] = (), changes: Any = (), first: Event | None = None
) -> Any:
    """Answers lists with what is given, and the watch of DaemonSets with ``changes``, once ``first`` is set."""
    lists = {"daemonsets": workloads, "pods": pods, "events": list(events), "nodes": []}

    def stream(kind: str) -> Iterator[bytes]:
        if first:
            first.wait(5)
        for change in changes if kind == "daemonsets" else ():
            yield json.dumps({"type": "MODIFIED", "object": change}).encode()

    def answer(request: Any) -> FakeReply:
        kind = request.url.split("?")[0].rsplit("/", 1)[-1]
        if "watch=1" in request.url:
            return FakeReply(200, stream=stream(kind))
        return FakeReply(200, {"metadata": {"resourceVersion": "1"}, "items": json.loads(json.dumps(lists[kind]))})

    return answer


def test_a_wait_for_what_is_ready_asks_once_and_says_nothing() -> None:
    connection, transport, _pauses = connect(server([daemonset()], []))
    lines: list[str] = []
    outcome = wait(connection, [Check("driver", DRIVER, 3)], Deadline(5), lines.append)
    assert outcome.ready
    assert len(transport.sent) == 1
    assert lines == []


def test_a_wait_follows_the_workload_until_it_is_ready() -> None:
    slow = pod("p", "gpu-7", containerStatuses=[container(**waiting("ContainerCreating"))])
    shown = Event()
    connection, _transport, _pauses = connect(server([daemonset(available=2)], [slow], (), [daemonset()], shown))
    lines: list[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        shown.set()

    assert wait(connection, [Check("driver", DRIVER, 3)], Deadline(20), progress).ready
    assert lines == ["driver: 2/3 nodes ready, slowest gpu-7: pulling image", "driver: ready"]


def test_an_image_that_is_nowhere_ends_the_wait_before_its_deadline() -> None:
    broken = pod("p", "gpu-7", containerStatuses=[container(**waiting("ImagePullBackOff", NOT_FOUND))])
    connection, _transport, _pauses = connect(server([daemonset(available=2)], [broken]))
    outcome = wait(connection, [Check("driver", DRIVER, 3)], Deadline(3600), fail_after=5, clock=Clock())
    assert not outcome.timed_out
    sentence = explain(outcome)
    assert sentence.startswith(
        "stage driver cannot become ready (DaemonSet gpu/driver: 2 of 3 nodes ready): node gpu-7, pod p, container main"
    )
    assert "nvcr.io/nvidia/driver:1 cannot be pulled" in sentence


def test_a_timeout_names_stage_node_container_and_reason() -> None:
    crashed = container(
        restartCount=2, lastState={"terminated": {"exitCode": 1, "message": "no GPU"}}, **waiting("CrashLoopBackOff")
    )
    connection, _transport, _pauses = connect(
        server([daemonset(available=2)], [pod("p", "gpu-3", containerStatuses=[crashed])])
    )
    outcome = wait(connection, [Check("driver", DRIVER, 3, seconds=0)], Deadline(3600))
    assert outcome.timed_out
    assert "stage driver is not ready in time" in explain(outcome)
    assert "node gpu-3, pod p, container main: the container ended with exit code 1 (2 restarts): no GPU" in explain(
        outcome
    )


def test_a_timeout_of_the_whole_names_the_first_stage_and_reads_refusals() -> None:
    refused = event(
        "FailedCreate",
        'Error creating: pods "x" is forbidden: violates PodSecurity "restricted"',
        "driver",
        "DaemonSet",
    )
    workloads = [daemonset(ready=0, updated=0, available=0), daemonset(0, 0, 0, 0, name="toolkit")]
    connection, _transport, _pauses = connect(server(workloads, [], [refused]))
    checks = [Check("driver", DRIVER, 3), Check("toolkit", Ref("DaemonSet", "gpu", "toolkit"), 3)]
    outcome = wait(connection, checks, Deadline(0))
    assert outcome.failed == checks[0]
    assert "pod security of the namespace" in explain(outcome)


def test_a_workload_that_is_not_there_is_not_ready() -> None:
    connection, _transport, _pauses = connect(server([], []))
    outcome = wait(connection, [Check("driver", DRIVER, 0)], Deadline(0))
    assert "DaemonSet gpu/driver does not exist" in explain(outcome)


def test_progress_is_one_line_in_five_seconds() -> None:
    slow = pod("p", "gpu-7", containerStatuses=[container(**waiting("ContainerCreating"))])
    changes = [daemonset(n, n, n, n - 1) for n in range(3, 40)] + [daemonset()]
    connection, _transport, _pauses = connect(server([daemonset(available=2)], [slow], changes=changes))
    lines: list[str] = []
    wait(connection, [Check("driver", DRIVER, 3)], Deadline(20), lines.append)
    assert 1 <= len(lines) <= 2
    assert lines[-1] == "driver: ready"


# --- nodes that are broken -------------------------------------------------------------------------------------------

UP = [{"type": "Ready", "status": "True"}]


@pytest.mark.rows("L24", "S01")
@pytest.mark.parametrize(
    ("workload", "pods", "outdated"),
    [
        (daemonset(available=1), [pod("a", "n1", conditions=UP), pod("b", "bad"), pod("c", "bad2")], False),
        (daemonset(available=1), [pod("a", "n1", conditions=UP), pod("b", "bad"), pod("c", "n2")], None),
        (daemonset(available=1), [pod("a", "n1", conditions=UP), pod("b", "bad")], False),
        (daemonset(available=1, observed=0), [pod("a", "n1", conditions=UP), pod("b", "bad"), pod("c", "bad2")], None),
        (daemonset(5, available=1), [pod("a", "n1", conditions=UP), pod("b", "bad")], None),
        (daemonset(updated=2), [pod("a", "n1", conditions=UP), pod("b", "bad"), pod("c", "bad2")], True),
        (daemonset(updated=0, strategy="OnDelete"), [pod("a", "n1", conditions=UP), pod("b", "bad")], False),
    ],
)
def test_what_is_missing_on_broken_nodes_is_not_waited_for(
    workload: dict[str, Any], pods: list[Any], outdated: bool | None
) -> None:
    """None: there is something to wait for. Else: whether a rollout is held up."""
    assert _excused(workload, pods, {"bad", "bad2"}) is outdated


class GivesUp(Judge):
    def broken(self, scene: Scene) -> list[str]:
        return [str(p["spec"]["nodeName"]) for p in scene.pods if p["spec"]["nodeName"] == "bad"]


@pytest.mark.rows("L24", "S01")
def test_a_wait_with_a_judge_ends_when_all_others_are_ready() -> None:
    pods = [pod("a", "n1", conditions=UP), pod("b", "n2", conditions=UP), pod("c", "bad")]
    made = pod("d", "n1")
    made["metadata"]["ownerReferences"][0]["controller"] = False  # what the validator makes is none of the DaemonSet
    connection, _transport, _pauses = connect(server([daemonset(available=2)], [*pods, made]))
    outcome = wait(connection, [Check("driver", DRIVER)], Deadline(20), judge=GivesUp())
    assert (outcome.ready, list(outcome.held)) == (True, [])
    late = wait(connection, [Check("driver", DRIVER, seconds=0)], Deadline(20), judge=Judge())
    assert late.timed_out
    assert [p["metadata"]["name"] for p in late.late[DRIVER]] == ["c"]


def test_a_deployment_that_never_comes_up_ends_the_wait_for_all_nodes() -> None:
    made = deployment(observedGeneration=2)
    made["metadata"].update(namespace="gpu", uid="uid-d", resourceVersion="1")
    refused = event("FailedCreate", "Error creating: exceeded quota: q", "d-5f7", "ReplicaSet")
    answers = server([], [], [refused])

    def answer(request: Any) -> FakeReply:
        if "/deployments" in request.url and "watch=1" not in request.url:
            return FakeReply(200, {"metadata": {"resourceVersion": "1"}, "items": [json.loads(json.dumps(made))]})
        found: FakeReply = answers(request)
        return found

    connection, _transport, _pauses = connect(answer)
    check = Check("NFD", Ref("Deployment", "gpu", "d"))
    outcome = wait(connection, [check], Deadline(3600), fail_after=2, judge=Judge(), clock=Clock())
    assert not outcome.timed_out
    assert "a ResourceQuota of the namespace is in the way" in explain(outcome)
