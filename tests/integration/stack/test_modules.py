# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules for single operands, nodes and the state of a cluster, in four steps: check, apply, apply, check."""

from __future__ import annotations

import json
import time

import pytest

SHARED = {"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}
METRICS = "DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization in percent.\n"


def _four_steps(fleet, module, **params):
    """The result of the first apply, after the steps have shown that check mode and a second run write nothing."""
    offset = fleet.offset()
    planned = fleet.run(module, check=True, **params)
    assert not planned["failed"], planned["msg"]
    assert planned["changed"]
    assert planned["verified"] == []
    assert fleet.writes(offset) == []
    done = fleet.run(module, **params)
    assert not done["failed"], done["msg"]
    assert done["changed"]
    assert {a["id"] for a in planned["plan"]} <= {a["id"] for a in done["plan"]}
    offset = fleet.offset()
    again = fleet.run(module, **params)
    assert not again["failed"], again["msg"]
    assert (again["changed"], again["plan"], fleet.writes(offset)) == (False, [], [])
    last = fleet.run(module, check=True, **params)
    assert (last["changed"], last["plan"], fleet.writes(offset)) == (False, [], [])
    return done


@pytest.fixture
def running(facts):
    done = facts.stack({})
    assert not done["failed"], done["msg"]
    return facts


@pytest.mark.rows("S14", "DP-01", "DP-02")
def test_device_plugin_with_a_shared_config_on_one_group_of_nodes(running):
    groups = [{"name": "shared", "selector": "kubernetes.io/hostname=gpu-0001", "device_plugin": "shared"}]
    configs = {"whole": {"version": "v1"}, "shared": SHARED}
    before = {node["name"]: node["allocatable"] for node in running.run("gpu_cluster_info")["found"]["nodes"]}
    done = _four_steps(running, "device_plugin", configs=configs, default_config="whole", node_groups=groups)
    names = {action["target"] for action in done["plan"]}
    assert "ConfigMap gpu-operator/device-plugin-configs" in names
    assert not [name for name in names if "dcgm" in name or "driver" in name]
    offered = {node["name"]: node["allocatable"] for node in running.run("gpu_cluster_info")["found"]["nodes"]}
    assert offered["gpu-0000"] == before["gpu-0000"]
    assert offered["gpu-0001"]["nvidia.com/gpu"] == 4 * before["gpu-0001"]["nvidia.com/gpu"]


def test_device_plugin_absent_takes_the_plugin_away_and_nothing_else(running):
    others = {d["metadata"]["name"] for d in running.get("DaemonSet") if "device-plugin" not in d["metadata"]["name"]}
    removed = running.run("device_plugin", state="absent")
    assert not removed["failed"], removed["msg"]
    assert {d["metadata"]["name"] for d in running.get("DaemonSet")} == others
    assert running.get("Namespace", "gpu-operator", "") is not None
    again = running.run("device_plugin", state="absent")
    assert (again["changed"], again["plan"]) == (False, [])


@pytest.mark.rows("S10", "S56")
@pytest.mark.parametrize("module", ["device_plugin", pytest.param("dcgm_exporter", marks=pytest.mark.long)])
def test_alone_it_waits_for_no_validator_on_nodes_whose_image_brings_driver_and_toolkit(fleets, module):
    fleet = fleets("preinstalled")
    fleet.empty()
    deploy = "nvidia.com/gpu.deploy." + module.replace("_", "-")
    labels = ["feature.node.kubernetes.io/pci-10de.present", deploy]
    nodes = ["gpu-host-driver", "gpu-cloud"]
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    }
    fleet.kubectl("label", "--overwrite", "node", *nodes, *(f"{key}=true" for key in labels), user="admin")
    fleet.kubectl("create", "-f", "-", text=json.dumps(runtime_class), user="admin")
    try:
        own = {"metrics": METRICS} if module == "dcgm_exporter" else {"configs": {"a": {"version": "v1"}}}
        done = _four_steps(fleet, module, **own)
        assert done["findings"] == []
        daemonsets = {d["metadata"]["name"]: d["spec"]["template"]["spec"] for d in fleet.get("DaemonSet")}
        assert not [c for spec in daemonsets.values() for c in spec.get("initContainers", []) if "tion" in c["name"]]
        removed = fleet.run(module, state="absent")
        assert not removed["failed"], removed["msg"]
        for kind in ("DaemonSet", "ConfigMap"):
            assert [o for o in fleet.get(kind) if o["metadata"]["name"] != "kube-root-ca.crt"] == []
        assert fleet.get("Namespace", "gpu-operator", "") is None
        again = fleet.run(module, state="absent")
        assert (again["failed"], again["changed"], again["plan"]) == (False, False, [])
    finally:
        fleet.kubectl("delete", "runtimeclass", "nvidia", user="admin")
        fleet.kubectl("label", "node", *nodes, *(f"{key}-" for key in labels), user="admin")


@pytest.mark.rows("P108")
def test_device_plugin_says_when_its_runtime_class_is_missing(facts):
    facts.empty()
    refused = facts.run("device_plugin")
    assert refused["failed"]
    assert "RuntimeClass nvidia" in refused["msg"]
    assert facts.get("DaemonSet", "nvidia-device-plugin-daemonset") is None


@pytest.mark.rows("S21", "DCG-01")
def test_dcgm_exporter_with_metrics_of_its_own(running):
    done = _four_steps(running, "dcgm_exporter", platform="kubernetes", metrics=METRICS)
    assert "ConfigMap gpu-operator/metrics-config" in {action["target"] for action in done["plan"]}
    assert running.get("ConfigMap", "metrics-config")["data"]["dcgm-metrics.csv"] == METRICS


def test_dcgm_exporter_tells_of_options_that_hosts_only_know(running):
    done = running.run("dcgm_exporter", platform="kubernetes", port=9500, check=True)
    assert [finding["path"] for finding in done["findings"] if finding["id"] == "option-of-hosts"] == ["port"]


def test_a_limit_of_no_seconds_is_refused(facts):
    refused = facts.stack({}, stage_timeout=0)
    assert refused["failed"]
    assert "stage_timeout is 0" in refused["msg"]


@pytest.mark.rows("S26", "S16")
def test_gpu_nodes_labels_and_taints_groups_and_gives_all_back(running):
    before = {n["metadata"]["name"]: n for n in running.get("Node", namespace="")}
    groups = [
        {"name": "one", "selector": "kubernetes.io/hostname=gpu-0000", "taint": True, "labels": {"team": "a"}},
        {
            "name": "two",
            "selector": {"kubernetes.io/hostname": "gpu-0001"},
            "taint": {"value": "x", "effect": "PreferNoSchedule"},
        },
    ]
    done = _four_steps(running, "gpu_nodes", node_groups=groups)
    assert done["found"]["groups"] == {"one": ["gpu-0000"], "two": ["gpu-0001"]}
    taints = {n["metadata"]["name"]: n["spec"].get("taints") for n in running.get("Node", namespace="")}
    assert taints["gpu-0000"] == [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    assert [(t["value"], t["effect"]) for t in taints["gpu-0001"]] == [("x", "PreferNoSchedule")]
    stack = running.stack({})
    assert (stack["failed"], stack["plan"]) == (False, []), "the stack leaves groups of another run alone"
    back = running.run("gpu_nodes", state="absent")
    assert not back["failed"], back["msg"]
    for node in running.get("Node", namespace=""):
        was = before[node["metadata"]["name"]]
        assert node["metadata"]["labels"] == was["metadata"]["labels"]
        assert node["metadata"]["annotations"] == was["metadata"]["annotations"]
        assert node["spec"].get("taints") == was["spec"].get("taints")


def test_a_taint_that_would_drive_the_operands_away_is_refused(running):
    offset = running.offset()
    groups = [{"name": "all", "selector": "kubernetes.io/os=linux", "taint": {"effect": "NoExecute"}}]
    for module in ("gpu_nodes", "cluster_policy"):
        refused = running.run(module, node_groups=groups)
        assert refused["failed"]
        assert "does not tolerate nvidia.com/gpu:NoExecute" in refused["msg"]
    assert running.writes(offset) == []


@pytest.mark.rows("S19", "MIG-04")
def test_gpu_nodes_partitions_a_node_and_follows_it_to_the_end(running):
    groups = [{"name": "slices", "selector": "kubernetes.io/hostname=gpu-0000", "mig": "all-1g.10gb"}]
    done = _four_steps(running, "gpu_nodes", node_groups=groups)
    (proof,) = done["verified"]
    assert (proof["id"], proof["ok"]) == ("mig gpu-0000", True)
    assert proof["detail"].startswith("success, offers ")
    node = next(n for n in running.run("gpu_cluster_info")["found"]["nodes"] if n["name"] == "gpu-0000")
    assert "all-1g.10gb (success)" in node["mig"]
    assert node["allocatable"]["nvidia.com/gpu"] % 7 == 0
    groups[0]["mig"] = "all-disabled"
    whole = running.run("gpu_nodes", node_groups=groups)
    assert not whole["failed"], whole["msg"]
    back = running.run("gpu_nodes", state="absent")
    assert not back["failed"], back["msg"]


def _pod(name):
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "gpu-0000"},
            "containers": [{"name": "train", "image": "registry.example.com/train:1", "resources": gpu}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
    }


@pytest.fixture
def busy(running):
    running.kubectl("apply", "-f", "-", user="admin", text=json.dumps(_pod("train")))
    running.kubectl("wait", "pod/train", "-n", "default", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")
    yield running
    running.kubectl(
        "delete", "pod", "train", "-n", "default", "--ignore-not-found", "--grace-period=0", "--force", user="admin"
    )


@pytest.mark.rows("S19", "L6")
def test_a_node_with_a_running_gpu_pod_is_never_partitioned(busy):
    groups = [{"name": "slices", "selector": "kubernetes.io/hostname=gpu-0000", "mig": "all-1g.10gb"}]
    before = busy.get("Node", "gpu-0000", namespace="")["metadata"]["labels"]
    offset = busy.offset()
    refused = busy.run("gpu_nodes", node_groups=groups)
    assert refused["failed"]
    assert "default/train" in refused["msg"]
    assert busy.writes(offset) == []
    waited = busy.run("gpu_nodes", node_groups=groups, mig_busy="wait", mig_busy_timeout=3)
    assert waited["failed"]
    assert busy.writes(offset) == []
    assert busy.get("Node", "gpu-0000", namespace="")["metadata"]["labels"] == before


@pytest.mark.rows("S19", "S20")
def test_a_wait_for_the_pod_ends_with_the_partition(busy):
    import threading

    groups = [{"name": "slices", "selector": "kubernetes.io/hostname=gpu-0000", "mig": "all-1g.10gb"}]
    end = ("delete", "pod", "train", "-n", "default", "--grace-period=0", "--force")
    timer = threading.Timer(3, busy.kubectl, end, {"user": "admin"})
    timer.start()
    try:
        done = busy.run("gpu_nodes", node_groups=groups, mig_busy="wait", mig_busy_timeout=60)
    finally:
        timer.join()
    assert not done["failed"], done["msg"]
    assert any("busy" in line for line in busy.progress)


def test_gpu_nodes_refuses_groups_that_contradict_each_other(running):
    groups = [
        {"name": "a", "selector": "kubernetes.io/os=linux", "taint": True},
        {"name": "b", "selector": "kubernetes.io/hostname=gpu-0000", "taint": {"value": "x"}},
    ]
    offset = running.offset()
    refused = running.run("gpu_nodes", node_groups=groups)
    assert refused["failed"]
    assert "a and b" in refused["msg"]
    assert running.writes(offset) == []


@pytest.mark.rows("S39")
def test_the_state_of_a_cluster_is_told_with_a_table_and_a_query(running):
    offset = running.offset()
    told = running.run("gpu_cluster_info", query="nodes[?ready].name", show_table=True)
    assert told["result"] == ["gpu-0000", "gpu-0001"]
    assert told["found"]["manager"] == "gpufleet"
    assert told["found"]["table"] == [line for line in running.progress if not line.startswith("run ")]
    assert told["found"]["table"][-1] == "2 of 2 GPU nodes ready"
    assert told["changed"] is False
    assert running.writes(offset) == []


def test_a_query_that_is_none_is_refused_by_name(facts):
    refused = facts.run("gpu_cluster_info", query="nodes[?")
    assert refused["failed"]
    assert "query" in refused["msg"]


@pytest.mark.rows("S01", "S28")
def test_the_first_thing_that_failed_on_a_node_is_told(running):
    running.control(nodes={"gpu-0001": {"crash": {"nvidia-dcgm-exporter": "out of memory"}}})
    running.kubectl("delete", "pod", "-n", "gpu-operator", "-l", "app=nvidia-dcgm-exporter", user="admin")
    for _try in range(100):
        node = next(n for n in running.run("gpu_cluster_info")["found"]["nodes"] if n["name"] == "gpu-0001")
        if "out of memory" in node["trouble"]:
            break
        time.sleep(0.2)
    assert "DCGM exporter" in node["trouble"]
    assert "out of memory" in node["trouble"]
    assert not node["ready"]
