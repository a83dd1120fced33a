# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster's state is called: conditions of a run, of a look, and of the operator's own objects."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack import _host_drivers
from ansible_collections.gpufleet.nvidia.tests.helpers.crds import definition
from ansible_collections.gpufleet.nvidia.tests.integration.fleets import Fleet
from ansible_collections.gpufleet.nvidia.tests.integration.karpenter import karpenter_in
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.policy.test_node_pools import example

KINDS = {
    "ClusterPolicy": ("nvidia.com", "v1", "clusterpolicies"),
    "GPUCluster": ("nvidia.com", "v1alpha1", "gpuclusters"),
    "NVIDIADriver": ("nvidia.com", "v1alpha1", "nvidiadrivers"),
}


def reason(found: dict[str, Any]) -> tuple[str, str]:
    status = found["status"]
    (true,) = [condition for condition in status["conditions"] if condition["status"] == "True"]
    return status["state"], true["reason"]


def crd(kind: str) -> dict[str, Any]:
    group, version, plural = KINDS[kind]
    return definition(kind, group, plural, version, subresources={"status": {}})


def made(kind: str, name: str, **spec: Any) -> str:
    group, version, _plural = KINDS[kind]
    return json.dumps({"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec})


@pytest.fixture
def theirs(facts: Fleet) -> Iterator[Fleet]:
    """A cluster that knows the operator's kinds."""
    definitions = [f"crd/{plural}.{group}" for group, _version, plural in KINDS.values()]
    for kind in KINDS:
        facts.kubectl("apply", "-f", "-", user="admin", text=json.dumps(crd(kind)))
    facts.kubectl("wait", "--for=condition=Established", *definitions, "--timeout=60s", user="admin")
    yield facts
    facts.kubectl("delete", *definitions, "--timeout=60s", user="admin")


@pytest.mark.rows("STA-01")
def test_a_run_and_a_look_tell_the_state_with_the_operators_reasons(facts: Fleet) -> None:
    up = facts.stack({})
    assert not up["failed"], up["msg"]
    assert reason(up["found"]) == ("ready", "Reconciled")
    assert reason(facts.run("gpu_cluster_info")["found"]) == ("ready", "Reconciled")
    facts.control(nodes={"gpu-0001": {"crash": {"nvidia-dcgm-exporter": "out of order"}}})
    late = facts.stack({"dcgmExporter": {"env": [{"name": "A", "value": "b"}]}}, stage_timeout=20)
    assert late["failed"]
    assert reason(late["found"]) == ("notReady", "OperandNotReady")
    looked = facts.run("gpu_cluster_info")["found"]
    assert reason(looked) == ("notReady", "OperandNotReady")
    for status in (late["found"]["status"], looked["status"]):
        assert "gpu-0001" in status["conditions"][1]["message"]
        assert "DCGM exporter" in status["conditions"][1]["message"]
    facts.control()
    refused = facts.stack({"devicePlugin": {"config": {"name": "nowhere"}}})
    assert refused["failed"]
    assert reason(refused["found"]) == ("notReady", "ReconcileFailed")
    assert "nowhere" in refused["found"]["status"]["conditions"][1]["message"]
    assert not facts.stack({})["failed"]


@pytest.mark.rows("STA-02", "STA-03")
def test_of_the_operators_objects_those_that_count_are_told_from_those_that_do_not(theirs: Fleet) -> None:
    def look() -> tuple[dict[str, str], list[str]]:
        seen = theirs.run("gpu_cluster_info")
        assert seen["changed"] is False
        ids = [finding["id"] for finding in seen["findings"]]
        return {one["name"]: one["counts"] for one in seen["found"]["policies"]}, ids

    assert look()[0] == {}
    theirs.kubectl("apply", "-f", "-", user="admin", text=made("ClusterPolicy", "zebra", driver={}))
    done = json.dumps({"status": {"state": "ready", "conditions": [
        {"type": "Ready", "status": "True", "reason": "Reconciled", "message": "all good"}]}})  # fmt: skip
    where = ("patch", "clusterpolicy.v1.nvidia.com", "zebra", "--subresource=status", "--type=merge")
    theirs.kubectl(*where, "-p", done, user="admin")
    (row,) = theirs.run("gpu_cluster_info")["found"]["policies"]
    assert (row["counts"], row["state"], row["reason"], row["message"]) == ("active", "ready", "Reconciled", "all good")
    theirs.kubectl("wait", "--for=create", "clusterpolicy.v1.nvidia.com/zebra", "--timeout=10s", user="admin")
    one = made("NVIDIADriver", "one", nodeSelector={"kubernetes.io/os": "linux"})
    two = made("NVIDIADriver", "two", nodeSelector={"kubernetes.io/hostname": "gpu-0001"})
    for text in (one, two):
        theirs.kubectl("apply", "-f", "-", user="admin", text=text)
    counts, ids = look()
    assert (counts["one"], counts["two"]) == ("disabled", "disabled")
    assert "policies.drivers" not in ids
    theirs.kubectl("delete", "clusterpolicy.v1.nvidia.com", "zebra", user="admin")
    found = theirs.run("gpu_cluster_info")
    conflict = [finding for finding in found["findings"] if finding["id"] == "policies.drivers"]
    assert [finding["target"] for finding in conflict] == ["NVIDIADriver one"]
    assert "two" in conflict[0]["detail"]
    assert "gpu-0001" in conflict[0]["detail"]
    assert "gpu-0000" not in conflict[0]["detail"]
    theirs.kubectl("apply", "-f", "-", user="admin", text=made("ClusterPolicy", "mine"))
    theirs.kubectl("apply", "-f", "-", user="admin", text=made("GPUCluster", "gpu-cluster"))
    counts, ids = look()
    assert (counts["mine"], counts["gpu-cluster"]) == ("conflict", "conflict")
    assert "policies.conflict" in ids


@pytest.mark.long
@pytest.mark.rows("L25", "S40")
def test_a_runtime_class_of_another_name_goes_and_what_hosts_keep_is_told(facts: Fleet) -> None:
    assert not facts.stack({"operator": {"runtimeClass": "gpu-fast"}})["failed"]
    assert facts.get("RuntimeClass", "gpu-fast", namespace="") is not None
    assert not facts.stack({})["failed"]
    assert facts.get("RuntimeClass", "gpu-fast", namespace="") is None
    removed = facts.run("cluster_policy", state="absent")
    assert not removed["failed"], removed["msg"]
    (left,) = [finding for finding in removed["findings"] if finding["id"] == "left-on-hosts"]
    assert "kernel modules" in left["detail"]
    assert "toolkit.installDir" in left["detail"]
    assert "cudaToolkit" not in left["detail"]
    assert facts.get("RuntimeClass", "nvidia", namespace="") is None
    for node in facts.get("Node", namespace=""):
        assert not [key for key in node["metadata"]["labels"] if key.startswith("nvidia.com/")]
    again = facts.run("cluster_policy", state="absent")
    assert [finding for finding in again["findings"] if finding["id"] == "left-on-hosts"] == []


@pytest.mark.rows("S35")
def test_the_cuda_toolkit_reaches_nodes_and_a_policy_without_it_takes_its_pods_away(facts: Fleet) -> None:
    done = facts.stack({"cudaToolkit": {"enabled": True, "version": "13.0"}})
    assert not done["failed"], done["msg"]
    (stage,) = [one for one in done["found"]["stages"] if one["name"] == "cuda-toolkit"]
    assert stage["workloads"] == ["gpufleet-cuda-toolkit"]
    pods = [p for p in facts.get("Pod") if p["metadata"]["labels"].get("app") == "gpufleet-cuda-toolkit"]
    assert {p["spec"]["nodeName"] for p in pods} == {"gpu-0000", "gpu-0001"}
    assert all(p["status"]["containerStatuses"][0]["ready"] for p in pods)
    assert facts.stack({"cudaToolkit": {"enabled": True, "version": "13.0"}})["plan"] == []
    facts.control(images_missing=["nvcr.io/nvidia/cuda:*"])
    failed = facts.stack({"cudaToolkit": {"enabled": True, "version": "13.0.1"}})
    assert failed["failed"]
    assert "CUDA toolkit failed: image nvcr.io/nvidia/cuda:13.0.1-devel-ubuntu24.04 cannot be pulled" in failed["msg"]
    facts.control()
    gone = facts.stack({})
    assert not gone["failed"], gone["msg"]
    assert facts.get("DaemonSet", "gpufleet-cuda-toolkit") is None


@pytest.mark.rows("S27")
def test_a_node_pool_for_gpus_is_made_changed_and_taken_away_with_the_policy(facts: Fleet) -> None:
    with karpenter_in(facts):
        objects = example()
        done = facts.stack({"extraObjects": objects})
        assert not done["failed"], done["msg"]
        live = facts.get("NodePool", "gpu", namespace="")
        assert live["spec"]["limits"] == {"nvidia.com/gpu": 64}
        assert live["spec"]["template"]["spec"]["nodeClassRef"]["group"] == "karpenter.k8s.aws"
        assert facts.stack({"extraObjects": objects})["plan"] == []
        objects[0]["spec"]["limits"]["nvidia.com/gpu"] = 8
        changed = facts.stack({"extraObjects": objects})
        assert [action["target"] for action in changed["plan"]] == ["NodePool gpu"]
        assert not facts.stack({})["failed"]
        assert facts.get("NodePool", "gpu", namespace="") is None
        assert facts.get("EC2NodeClass", "gpu", namespace="") is None


@pytest.mark.rows("P130")
def test_who_put_a_label_or_taint_on_a_node_is_told(facts: Fleet) -> None:
    assert not facts.stack({})["failed"]
    facts.kubectl("taint", "node", "gpu-0001", "nvidia.com/gpu=true:NoSchedule", user="admin")
    try:
        assert "owners" not in facts.run("gpu_cluster_info")["found"]
        rows = facts.run("gpu_cluster_info", owners=True)["found"]["owners"]
        who = {(row["node"], row["kind"], row["key"]): row["manager"] for row in rows}
        assert who["gpu-0001", "taints", ""] == "kubectl-taint"
        assert who["gpu-0001", "label", "nvidia.com/gpu.deploy.driver"] == "gpufleet"
        assert who["gpu-0001", "label", "nvidia.com/gpu.product"] not in ("gpufleet", "kubectl-taint")
        assert all(row["time"].endswith("Z") for row in rows)
    finally:
        facts.kubectl("taint", "node", "gpu-0001", "nvidia.com/gpu-", user="admin")


@pytest.mark.rows("P137", "L11")
def test_the_mark_of_a_hosts_driver_goes_once_no_driver_is_found_there(
    facts: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_host_drivers, "SOUGHT", 2.0)
    assert not facts.stack({})["failed"]
    key, node = "nvidia.com/gpu.deploy.driver", "gpu-0001"

    def pods(app: str) -> list[dict[str, Any]]:
        mine = [p for p in facts.get("Pod") if p["spec"].get("nodeName") == node]
        return [p for p in mine if p["metadata"]["labels"].get("app") == app and not gone(p)]

    facts.kubectl("label", "--overwrite", "node", node, f"{key}=pre-installed", user="admin")
    until(lambda: not pods("nvidia-driver-daemonset"))
    (validator,) = pods("nvidia-operator-validator")
    facts.kubectl("delete", "pod", "-n", facts.namespace, validator["metadata"]["name"], user="admin")
    until(lambda: any(_host_drivers.seeks_in_vain([p], time.time()) for p in pods("nvidia-operator-validator")))
    done = facts.stack({})
    assert not done["failed"], done["msg"]
    (action,) = [action for action in done["plan"] if action["id"] == f"Node/{node}:{key}"]
    assert "there no more" in action["reason"]
    assert facts.get("Node", node, namespace="")["metadata"]["labels"][key] == "true"
    assert len(pods("nvidia-driver-daemonset")) == 1
    assert all(row["ready"] for row in done["found"]["nodes"])


def gone(pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come to it"
        time.sleep(0.3)
