# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sentences of cases that are written down here; those that a scheduler makes are in tests/integration/checks."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._affinity import allowed, closest, terms
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._explain import Answer, Case, explain, gpus_of

ONE = {"nvidia.com/gpu": "1"}
MIG = "nvidia.com/mig-1g.5gb"
PRODUCT = "nvidia.com/gpu.product"


def node(name: str = "gpu-0", product: str = "NVIDIA-A100-SXM4-80GB", taints: Any = (), **more: Any) -> dict[str, Any]:
    labels = {PRODUCT: product, "kubernetes.io/hostname": name, "nvidia.com/gpu.memory": "81920"}
    allocatable = more.get("offers", {"nvidia.com/gpu": "8"})
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": allocatable},
    }


def said(spec: Any = None, *nodes: dict[str, Any], limits: Any = None, status: Any = None, **more: Any) -> Answer:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"} if limits is None else limits}}
    whole = {"containers": [container], **(spec or {})}
    pod = {"metadata": {"name": "a"}, "spec": whole, "status": status or {"phase": "Pending"}}
    return explain(Case("Pod", "ml", "a", whole, pod, nodes or (node(),), runtime_classes=["nvidia"], **more))


@pytest.mark.rows("S52", "S61")
@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("nvidia-a100-sxm4-80gb", "NVIDIA-A100-SXM4-80GB"),
        ("H100-SXM5-80GB", "NVIDIA-H100-80GB-HBM3"),
        ("Tesla-T4-SHARED", "Tesla-T4"),
        ("L40S", ""),
    ],
)
def test_the_product_that_was_meant(wanted: str, meant: str) -> None:
    assert closest(wanted, ["NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "Tesla-T4"]) == meant


@pytest.mark.rows("S61")
@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": PRODUCT, "operator": "In", "values": ["NVIDIA-A100-SXM4-80GB", "x"]}, True),
        ({"key": PRODUCT, "operator": "NotIn", "values": ["NVIDIA-A100-SXM4-80GB"]}, False),
        ({"key": "no.such", "operator": "NotIn", "values": ["x"]}, True),
        ({"key": "no.such", "operator": "Exists"}, False),
        ({"key": "no.such", "operator": "DoesNotExist"}, True),
        ({"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["40000"]}, True),
        ({"key": "nvidia.com/gpu.memory", "operator": "Lt", "values": ["40000"]}, False),
        ({"key": PRODUCT, "operator": "Gt", "values": ["1"]}, False),
    ],
)
def test_affinity_holds_as_for_the_scheduler(expression: dict[str, Any], fits: bool) -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    assert bool(allowed(terms(spec), [node()])) == fits
    assert (said(spec).cause == "place") == (not fits)


@pytest.mark.rows("S61")
def test_places_that_no_node_is() -> None:
    other = said({"nodeSelector": {"gpu.example.com/pool": "a"}})
    assert "no node has the label gpu.example.com/pool" in other.text
    both = said({"nodeSelector": {PRODUCT: "a", "kubernetes.io/hostname": "y"}}, node("x", "a"), node("y", "b"))
    assert both.text.endswith("kubernetes.io/hostname=y and nvidia.com/gpu.product=a; no node has all of it")
    field = {"key": "metadata.name", "operator": "In", "values": ["gpu-9"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    assert "the cluster has no such node. Did you mean gpu-0" in said(spec, node("gpu-0")).text
    bare = said({"nodeSelector": {"kubernetes.io/hostname": "cpu"}}, node(), node("cpu", offers={}))
    assert bare.text == "may run on cpu only, and none of them offers nvidia.com/gpu"


@pytest.mark.rows("S61")
@pytest.mark.parametrize(
    ("limits", "offers", "cause", "words"),
    [
        ({MIG: "1"}, {"nvidia.com/mig-1g.10gb": "7"}, "resource-name", "Did you mean nvidia.com/mig-1g."),
        (ONE, {"nvidia.com/gpu.shared": "32"}, "resource-name", "mean nvidia.com/gpu.shared"),
        (ONE, {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"}, "resource-name", "gb (7)"),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "0"}, "no-gpus", "no node offers GPUs at all"),
        ({"nvidia.com/gpu": "9"}, {"nvidia.com/gpu": "8"}, "too-many", "more than 8"),
    ],
)  # fmt: skip
def test_resources_that_no_node_offers(limits: Any, offers: Any, cause: str, words: str) -> None:
    answer = said(None, node(offers=offers), limits=limits)
    assert answer.cause == cause
    assert words in answer.text


@pytest.mark.rows("S61")
def test_init_containers_count_by_the_largest_and_used_gpus_are_not_free() -> None:
    init = [{"name": "i", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]
    answer = said({"initContainers": init}, used={"gpu-0": {"nvidia.com/gpu": 5}})
    assert answer.text == "asks for 4 nvidia.com/gpu, and no node has so much free: gpu-0 3 of 8"
    assert said(used={"gpu-0": {"nvidia.com/gpu": 5}}).cause == "waiting"


@pytest.mark.rows("S61")
def test_several_taints_the_commonest_is_told_and_the_others_counted() -> None:
    gpu = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    down = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    answer = said(None, node("a", taints=[gpu]), node("b", taints=[gpu]), node("c", taints=[down]))
    assert answer.cause == "taint"
    assert "taint nvidia.com/gpu:NoSchedule of a, b (1 more are kept from it otherwise)" in answer.text
    assert said(None, node("c", taints=[down])).text == "can run on c only, and it is not ready"
    tolerant = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
    assert said(tolerant, node("a", taints=[gpu])).cause == "waiting"


def on_gpu_0(status: dict[str, Any], events: Any = ()) -> Answer:
    return said({"nodeName": "gpu-0"}, status=status, events=events)


@pytest.mark.rows("S61")
def test_pods_that_have_a_node_and_do_not_run() -> None:
    waits = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found."}}}
    answer = on_gpu_0({"phase": "Pending", "containerStatuses": [waits]})
    assert answer.text == "waits on gpu-0: container main is in ImagePullBackOff: not found"
    message = 'rpc error: no runtime for "nvidia" is configured'
    sandbox = [{"reason": "FailedCreatePodSandBox", "message": message}]
    assert on_gpu_0({"phase": "Pending"}, sandbox).cause == "runtime-handler"
    failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed."}
    assert "gave no device" in on_gpu_0(failed).remedy
    assert on_gpu_0({"phase": "Running"}).cause == "runs"
    assert on_gpu_0({"phase": "Pending"}).cause == "starting"
    assert said({"schedulingGates": [{"name": "q.example.com/gate"}]}).cause == "gate"


def never(*refusals: str, **resources: Any) -> Answer:
    spec = {"containers": [{"name": "main", "resources": resources}]}
    return explain(Case("Deployment", "ml", "a", spec, refusals=refusals))


@pytest.mark.rows("S61", "S13")
def test_pods_that_never_appeared() -> None:
    assert never(requests={"nvidia.com/gpu": "2"}).cause == "no-limits"
    quota = (
        'Error creating: pods "a-x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=2, '
        "used: requests.nvidia.com/gpu=3, limited: requests.nvidia.com/gpu=4"
    )
    text = "gets no pods: quota gpus allows 4 nvidia.com/gpu, 3 are used, a pod asks for 2"
    assert never("older", quota).text == text
    security = 'pods "a-x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation'
    assert never(security).cause == "pod-security"
    assert never("something else.").text == "gets no pods: something else"
    assert never().cause == "unknown"
    sentence = never(quota).sentence("Deployment ml/a")
    assert sentence == f"Deployment ml/a {text}. Raise the quota, or free some of it."


def test_a_thousand_shared_gpus_are_1k_to_the_api_server() -> None:
    assert gpus_of({"status": {"allocatable": {"nvidia.com/gpu": "1k", "cpu": "4"}}}) == {"nvidia.com/gpu": 1000}
