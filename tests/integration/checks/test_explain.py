# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod is pending or never appeared: every cause is provoked on a real scheduler, and told in one sentence."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .conftest import People, deployment, made, pod_template

GPU = {"nvidia.com/gpu": "1"}
LABEL = "nvidia.com/gpu.product"


@pytest.fixture
def fleet(facts):
    done = facts.stack({})
    assert not done["failed"], done["msg"]
    return facts


def pod(name: str, namespace: str = "default", spec: Any = None, **resources: Any) -> dict[str, Any]:
    return made("Pod", name, namespace, spec=pod_template(spec=spec, **resources)["spec"])


def told(fleet: Any, name: str, cause: str, seconds: float = 20) -> dict[str, Any]:
    """The explanation, asked until the cause is the expected one: schedulers and controllers take their time."""
    offset, end = fleet.offset(), time.monotonic() + seconds
    while True:
        result = fleet.run("gpu_explain", pod=name)
        assert not result["failed"], result["msg"]
        found = result["found"]
        if found["cause"] == cause or time.monotonic() > end:
            assert found["cause"] == cause, found["sentence"]
            assert fleet.progress == [found["sentence"]]
            assert fleet.writes(offset) == []
            return found
        time.sleep(0.3)


@pytest.mark.rows("S61", "S52")
def test_a_product_that_no_node_has_is_answered_with_the_one_that_was_meant(fleet, people: People):
    people.make(deployment("named", spec={"nodeSelector": {LABEL: "H100-SXM5-80GB"}}, limits=GPU))
    found = told(fleet, "named", "place")
    has = fleet.get("Node", "gpu-0000")["metadata"]["labels"][LABEL]
    assert f"may only run where {LABEL}=H100-SXM5-80GB" in found["sentence"]
    assert f"Did you mean {has}" in found["sentence"]


@pytest.mark.rows("S61", "S26")
def test_a_taint_is_named_with_the_node_and_the_toleration(fleet, people: People):
    fleet.kubectl("taint", "node", "gpu-0000", "gpu-0001", "nvidia.com/gpu=present:NoSchedule", "--overwrite")
    try:
        people.make(pod("outside", limits=GPU))
        found = told(fleet, "default/outside", "taint")
    finally:
        fleet.kubectl("taint", "node", "gpu-0000", "gpu-0001", "nvidia.com/gpu-")
    assert "does not tolerate the taint nvidia.com/gpu=present:NoSchedule of gpu-0000, gpu-0001" in found["sentence"]
    assert "{key: nvidia.com/gpu, operator: Exists}" in found["sentence"]


@pytest.mark.rows("S61", "S13")
def test_no_room_is_told_with_what_each_node_has_free(fleet, people: People):
    people.make(pod("first", limits={"nvidia.com/gpu": "6"}))
    told(fleet, "first", "runs")
    people.make(pod("second", limits={"nvidia.com/gpu": "4"}))
    found = told(fleet, "second", "no-capacity")
    assert (
        "asks for 4 nvidia.com/gpu, and no node has so much free: gpu-0000 2 of 8, gpu-0001 1 of 1" in found["sentence"]
    )
    assert {n["name"]: n["free"] for n in found["nodes"]}["gpu-0000"] == {"nvidia.com/gpu": 2}
    people.make(pod("giant", limits={"nvidia.com/gpu": "9"}))
    assert "has more than 8" in told(fleet, "giant", "too-many")["sentence"]


@pytest.mark.rows("S61", "P106")
def test_mig_resources_that_no_node_offers_and_two_kinds_of_them(fleet, people: People):
    people.make(pod("sliced", limits={"nvidia.com/mig-1g.5gb": "1"}))
    assert "asks for nvidia.com/mig-1g.5gb, which no node offers" in told(fleet, "sliced", "resource-name")["sentence"]
    people.make(pod("both", limits={"nvidia.com/mig-1g.10gb": "1", "nvidia.com/mig-2g.20gb": "1"}))
    found = told(fleet, "both", "two-mig")
    assert "asks for nvidia.com/mig-1g.10gb and nvidia.com/mig-2g.20gb in one container" in found["sentence"]


@pytest.mark.rows("S61", "S13")
def test_a_deployment_that_gets_no_pods_is_told_the_quota_or_the_runtime_class(fleet, people: People):
    people.make(made("Namespace", "team"))
    people.make(made("ResourceQuota", "gpus", "team", spec={"hard": {"requests.nvidia.com/gpu": "2"}}))
    fleet.kubectl("wait", "resourcequota/gpus", "-n", "team", "--for=jsonpath={.status.hard}", "--timeout=30s")
    people.make(deployment("train", "team", limits={"nvidia.com/gpu": "4"}))
    found = told(fleet, "team/train", "quota")
    assert "quota gpus allows 2 nvidia.com/gpu, 0 are used, a pod asks for 4" in found["sentence"]
    people.make(deployment("typo", "team", limits=GPU, spec={"runtimeClassName": "nvidai"}))
    assert (
        "RuntimeClass nvidai, which does not exist. Did you mean nvidia"
        in told(fleet, "team/typo", "runtime-class")["sentence"]
    )
    # Templates are validated as pods are: requests alone never get past the API server.
    with pytest.raises(AssertionError, match="Limit must be set"):
        people.make(deployment("alone", "team", requests=GPU))
    idle = deployment("idle", "team", limits=GPU)
    idle["spec"]["replicas"] = 0
    people.make(idle)
    assert "replicas is 0" in told(fleet, "team/idle", "idle")["sentence"]


@pytest.mark.rows("S61")
def test_a_job_a_cordoned_node_and_words_of_the_scheduler(fleet, people: People):
    job = made("Job", "batch", "default", "batch/v1", spec={"template": pod_template(limits={"cpu": "4000"})})
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    people.make(job)
    assert "Insufficient cpu" in told(fleet, "batch", "scheduler")["sentence"]
    fleet.kubectl("cordon", "gpu-0000")
    try:
        people.make(
            pod("wide", limits={"nvidia.com/gpu": "2"}, spec={"nodeSelector": {"kubernetes.io/hostname": "gpu-0000"}})
        )
        assert "gpu-0000 only, and it is cordoned" in told(fleet, "wide", "node")["sentence"]
    finally:
        fleet.kubectl("uncordon", "gpu-0000")
    told(fleet, "wide", "runs")


def test_a_name_that_nothing_has_is_answered_with_one_that_is_there(fleet, people: People):
    people.make(deployment("inference", limits=GPU))
    missing = fleet.run("gpu_explain", pod="inferense")
    assert missing["failed"]
    assert "there is no pod inferense" in missing["msg"]
    assert "Did you mean inference" in missing["msg"]
    assert "namespace/name" in fleet.run("gpu_explain", pod="a/b/c")["msg"]
