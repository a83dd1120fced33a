# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory of a cloud, run against a node as that cloud's image makes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

INVENTORIES = Path(__file__).resolve().parents[3] / "inventories"
OFF = "nvidia.com/gpu.deploy.operands"
PLUGIN, DRIVER, TOOLKIT = (
    "nvidia-device-plugin-daemonset",
    "nvidia-driver-daemonset",
    "nvidia-container-toolkit-daemonset",
)
PROVIDERS = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "nvidia-gpu-device-plugin", "namespace": "kube-system"},
    "spec": {
        "selector": {"matchLabels": {"k8s-app": "nvidia-gpu-device-plugin"}},
        "template": {
            "metadata": {"labels": {"k8s-app": "nvidia-gpu-device-plugin"}},
            "spec": {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "cloud.google.com/gke-accelerator", "operator": "Exists"},
                                        {"key": "gke-no-default-nvidia-gpu-device-plugin", "operator": "DoesNotExist"},
                                    ]
                                }
                            ]
                        }
                    }
                },
                "containers": [{"name": "plugin", "image": "registry.example.com/provider/plugin:1"}],
            },
        },
    },
}


@pytest.fixture
def clouds(fleets):
    return fleets("clouds")


def variables(name):
    return yaml.safe_load((INVENTORIES / name / "group_vars" / "gpu_clusters.yml").read_text())


def serve(clouds, name):
    """Only the node of one cloud is served."""
    others = [n["metadata"]["name"] for n in clouds.get("Node", namespace="") if n["metadata"]["name"] != name]
    clouds.kubectl("label", "--overwrite", "node", *others, f"{OFF}=false", user="admin")
    clouds.kubectl("label", "node", name, f"{OFF}-", user="admin")


ALL = {PLUGIN, DRIVER, TOOLKIT}


@pytest.mark.rows("S09", "S10", "S55")
@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("eks-al2023", {PLUGIN}),
        pytest.param("eks-bottlerocket", set(), marks=pytest.mark.long),
        pytest.param("eks-ubuntu", ALL, marks=pytest.mark.long),
        ("gke-cos", {PLUGIN, TOOLKIT}),
        ("gke-ubuntu", ALL),
        pytest.param("aks", {PLUGIN}, marks=pytest.mark.long),
        pytest.param("dgx", {PLUGIN}, marks=pytest.mark.long),
    ],
)
def test_a_clouds_node_is_served_and_what_its_image_brings_is_left_alone(clouds, name, made):
    serve(clouds, name)
    clouds.kubectl("apply", "-f", "-", user="admin", text=json.dumps(PROVIDERS))
    provider = clouds.get("DaemonSet", "nvidia-gpu-device-plugin", namespace="kube-system")
    groups = variables(name).get("gpufleet_node_groups") or []
    offset = clouds.offset()
    done = clouds.stack(variables(name).get("cluster_policy_policy") or {}, node_groups=groups)
    assert not done["failed"], done["msg"]
    written = " ".join(clouds.writes(offset))
    row = {node["name"]: node for node in clouds.run("gpu_cluster_info")["found"]["nodes"]}[name]
    assert (row["ready"], row["trouble"]) == (True, "")
    apps = {p["metadata"]["labels"].get("app") for p in clouds.get("Pod") if p["spec"].get("nodeName") == name}
    assert {"gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-operator-validator"} <= apps
    assert apps & ALL == made
    assert {d["metadata"]["name"] for d in clouds.get("DaemonSet")} & ALL == made
    for left in ALL - made:
        assert f"create daemonsets/{left}" not in written
    assert row["allocatable"] == {"nvidia.com/gpu": row["gpus"]}
    still = clouds.get("DaemonSet", "nvidia-gpu-device-plugin", namespace="kube-system")
    assert still["spec"] == provider["spec"]
    assert still["metadata"]["generation"] == provider["metadata"]["generation"]
    assert "kube-system" not in written
    labels = clouds.get("Node", name, namespace="")["metadata"]["labels"]
    assert (labels.get("gke-no-default-nvidia-gpu-device-plugin") == "true") is name.startswith("gke")
    again = clouds.stack(variables(name).get("cluster_policy_policy") or {}, node_groups=groups)
    assert (again["failed"], again["plan"]) == (False, [])


@pytest.mark.long
@pytest.mark.rows("S55")
@pytest.mark.parametrize(
    ("name", "without", "layer"),
    [
        ("gke-cos", "toolkit", "toolkit"),
        ("gke-cos", "hostPaths", "driver"),
        ("aks", "operator", "handler"),
    ],
)
def test_what_a_profile_sets_is_what_its_cloud_needs(clouds, name, without, layer):
    serve(clouds, name)
    values = {key: value for key, value in variables(name)["cluster_policy_policy"].items() if key != without}
    done = clouds.stack(values, stage_timeout=8)
    assert done["failed"]
    assert f"node {name}" in done["msg"]
    assert layer in done["msg"]
    mended = clouds.stack(variables(name)["cluster_policy_policy"])
    assert not mended["failed"], mended["msg"]


@pytest.mark.rows("S09", "S55")
def test_what_gives_way_to_the_image_goes_before_nodes_get_other_operands(clouds):
    """A validation that starts while there is a driver's DaemonSet waits for its pod, which never comes."""
    for name in ("gke-ubuntu", "eks-al2023"):
        serve(clouds, name)
        offset = clouds.offset()
        done = clouds.stack(variables(name)["cluster_policy_policy"])
        assert not done["failed"], done["msg"]
    written = clouds.writes(offset)
    gone = [at for at, line in enumerate(written) if line.startswith("delete daemonsets gpu-operator/")]
    labelled = [at for at, line in enumerate(written) if line.startswith("patch nodes ")]
    names = " ".join(written[at] for at in gone)
    assert (DRIVER in names, TOOLKIT in names) == (True, True)
    assert max(gone) < min(labelled)
