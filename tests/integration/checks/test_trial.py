# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA pods through scheduler, device plugin and runtime on each kind of node, and nothing of them left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.fleets import Fleet
from ansible_collections.gpufleet.nvidia.tests.testbed.proxy import FaultProxy

from .conftest import People, made, pod_template

pytestmark = pytest.mark.rows("S39")

GPU = "nvidia.com/gpu"


@pytest.fixture
def fleet(facts: Fleet) -> Iterator[Fleet]:
    done = facts.stack({})
    assert not done["failed"], done["msg"]
    yield facts
    left = {pod["metadata"]["name"] for pod in facts.get("Pod") if pod["metadata"]["name"].startswith("gpu-trial")}
    assert left <= {"gpu-trial-beside"}  # the test's own, which is taken away behind this one


def trial(fleet: Fleet, **params: Any) -> dict[str, Any]:
    return fleet.run("gpu_trial", **{"metrics": False, "time_limit": 60, **params})


def products(fleet: Fleet) -> set[str]:
    return {node["metadata"]["labels"]["nvidia.com/gpu.product"] for node in fleet.get("Node")}


def test_every_product_runs_one_pod_and_it_is_gone_afterwards(fleet: Fleet) -> None:
    offset = fleet.offset()
    done = trial(fleet)
    assert not done["failed"], done["msg"]
    assert {one["product"] for one in done["found"]["trials"]} == products(fleet)
    assert [one["ok"] for one in done["verified"]] == [True] * len(products(fleet))
    assert done["changed"] is False
    wrote = fleet.writes(offset)
    assert len(wrote) == 2 * len(products(fleet)), wrote


def test_check_mode_tells_the_pods_and_makes_none(fleet: Fleet) -> None:
    offset = fleet.offset()
    done = trial(fleet, check=True)
    assert [action["verb"] for action in done["plan"]] == ["create"] * len(products(fleet))
    assert fleet.writes(offset) == []


def test_each_kind_of_resource_is_tried(fleet: Fleet) -> None:
    values = {"mig": {"strategy": "mixed"}}
    groups = [{"name": "cut", "selector": "kubernetes.io/hostname=gpu-0000", "mig": "all-1g.10gb"}]
    cut = fleet.stack(values, node_groups=groups)
    assert not cut["failed"], cut["msg"]
    tried = trial(fleet)
    assert not tried["failed"], tried["msg"]
    found = {(one["node"], one["resource"]) for one in tried["found"]["trials"]}
    assert found == {("gpu-0000", "nvidia.com/mig-1g.10gb"), ("gpu-0001", GPU)}
    fleet.reset()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"crash": {"cuda": "CUDA error 802"}}, "cuda ended with 1: CUDA error 802"),
        ({"crash": {"nvidia-smi": "Driver Not Loaded"}}, "nvidia-smi ended with 1: Driver Not Loaded"),
        ({"no_handler": True}, "not done after 6 s: it cannot start on gpu-0000: its runtime has no such handler"),
    ],
)
def test_what_a_pod_meets_on_a_broken_node_is_told(fleet: Fleet, fault: dict[str, Any], says: str) -> None:
    fleet.control(nodes={"gpu-0000": fault})
    failed = trial(fleet, time_limit=6)
    assert failed["failed"]
    assert says in failed["msg"]
    assert [one["ok"] for one in failed["found"]["trials"] if one["node"] != "gpu-0000"] == [True]
    fleet.control()


def test_an_image_that_is_not_there_ends_with_the_time_limit(fleet: Fleet) -> None:
    failed = trial(fleet, image="registry.example.com/cuda:1", time_limit=5)
    assert "container nvidia-smi is in ImagePullBackOff" in failed["msg"]
    assert failed["msg"].startswith("2 of 2 proofs failed")


def test_gpus_that_others_hold_are_left_to_them(fleet: Fleet, people: People) -> None:
    spec = {"nodeSelector": {"kubernetes.io/hostname": "gpu-0000"}}
    amount = fleet.get("Node", "gpu-0000", "")["status"]["allocatable"][GPU]
    pod = pod_template(spec=spec, limits={GPU: amount})["spec"]
    people.make(made("Pod", "holds-all", "default", spec=pod))
    fleet.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/holds-all", "--timeout=30s")
    done = trial(fleet)
    assert not done["failed"], done["msg"]
    assert [one["node"] for one in done["found"]["trials"]] == ["gpu-0001"]
    assert [(one["id"], one["target"]) for one in done["findings"]] == [("trial.busy", "gpu-0000")]


def test_pods_that_an_interrupted_trial_left_go_and_those_of_a_trial_beside_it_stay(
    fleet: Fleet, people: People
) -> None:
    for name, seconds in (("gpu-trial-old", 1), ("gpu-trial-beside", 600)):
        spec = {**pod_template()["spec"], "activeDeadlineSeconds": seconds, "nodeSelector": {"no": "node"}}
        people.make(made("Pod", name, fleet.namespace, spec=spec, meta={"labels": {"gpufleet.io/part": "trial"}}))
    time.sleep(3)
    done = trial(fleet)
    deleted = [action["target"] for action in done["plan"] if action["verb"] == "delete"]
    assert deleted == [f"Pod {fleet.namespace}/gpu-trial-old"]
    assert fleet.get("Pod", "gpu-trial-old") is None
    assert fleet.get("Pod", "gpu-trial-beside") is not None


def page(gpus: int) -> str:
    """What the exporter serves, as far as it is read."""
    lines = ["# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).", "# TYPE DCGM_FI_DEV_GPU_TEMP gauge"]
    lines += [f'DCGM_FI_DEV_GPU_TEMP{{gpu="{i}",UUID="GPU-{i}",modelName="H100"}} 31' for i in range(gpus)]
    return "\n".join([*lines, 'promhttp_requests_total{gpu="99"} 1', ""])


@pytest.fixture
def proxy(fleet: Fleet) -> Iterator[FaultProxy]:
    with FaultProxy(fleet.practice.cluster) as running:
        yield running


def exporter_pages(fleet: Fleet, missing: int = 0) -> dict[str, str]:
    pods = [p for p in fleet.get("Pod") if p["metadata"]["labels"].get("app") == "nvidia-dcgm-exporter"]
    pages = {}
    for pod in pods:
        node = fleet.get("Node", pod["spec"]["nodeName"], "")
        count = int(node["metadata"]["labels"]["nvidia.com/gpu.count"])
        where = f"/api/v1/namespaces/{fleet.namespace}/pods/{pod['metadata']['name']}:9400/proxy/metrics"
        pages[where] = page(count - missing)
    return pages


def test_metrics_are_asked_for_through_the_api_server(fleet: Fleet, proxy: FaultProxy) -> None:
    proxy.pages = exporter_pages(fleet)
    done = trial(fleet, kubeconfig=str(proxy.kubeconfig), metrics=True)
    assert not done["failed"], done["msg"]
    assert [(one["node"], one["ok"]) for one in done["found"]["metrics"]] == [("gpu-0000", True), ("gpu-0001", True)]


def test_an_exporter_that_misses_a_gpu_is_told(fleet: Fleet, proxy: FaultProxy) -> None:
    proxy.pages = exporter_pages(fleet, missing=1)
    failed = trial(fleet, kubeconfig=str(proxy.kubeconfig), metrics=True, check=True)
    assert "metrics of gpu-0000: it tells of 7 GPUs, the node has 8" in failed["msg"]


def test_without_the_stack_it_is_said_that_no_program_is_known(facts: Fleet) -> None:
    facts.empty()
    refused = trial(facts)
    assert "nvidia-operator-validator is not there" in refused["msg"]
    assert "Nothing was run" in refused["msg"]


def test_a_limit_below_a_second_is_refused(facts: Fleet) -> None:
    assert "time_limit is 0: seconds from 1 on are allowed" in trial(facts, time_limit=0)["msg"]
