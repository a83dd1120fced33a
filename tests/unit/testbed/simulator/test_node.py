# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node over time: MIG changes, sharing, upgrades, faults, pods that go; and the words of what fails."""

from __future__ import annotations

import functools

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.simulator import recorded
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.node import NodeSpec
from ansible_collections.gpufleet.nvidia.tests.unit.testbed.simulator.lab import H100, Lab

recording = functools.cache(recorded.objects)
DRIVER, PLUGIN, GFD = "nvidia-driver-daemonset", "nvidia-device-plugin-daemonset", "gpu-feature-discovery"
MIG, EXPORTER, VALIDATOR = "nvidia-mig-manager", "nvidia-dcgm-exporter", "nvidia-operator-validator"
MPS_CONFIG = "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}\n"


def up(name: str = "default", spec: NodeSpec = H100, **faults: object) -> Lab:
    lab = Lab(recording(name), spec, dict(faults))
    lab.deploy_labels(mig=bool(spec.product != "T4"))
    return lab.run()


def container(lab: Lab, workload: str, name: str) -> dict[str, object]:
    statuses = lab.pods[f"{workload}-x"]["status"]
    found = [*statuses.get("initContainerStatuses", []), *statuses["containerStatuses"]]
    return next(c for c in found if c["name"] == name)


# -- MIG


def test_a_mig_label_pauses_clients_makes_instances_and_gives_the_labels_back() -> None:
    lab = up()
    lab.set_labels({"nvidia.com/mig.config": "all-1g.10gb"})
    lab.run(until=lambda lab: lab.labels.get("nvidia.com/mig.config.state") == "pending")
    assert lab.labels["nvidia.com/gpu.deploy.device-plugin"] == "paused-for-mig-change"
    lab.run(until=lambda lab: lab.labels["nvidia.com/mig.config.state"] == "success")
    lab.run(until=lambda lab: {f"{PLUGIN}-x", f"{GFD}-x", f"{VALIDATOR}-x"} <= set(lab.pods) and lab.ready())
    assert lab.allocatable == {"nvidia.com/gpu": "56"}
    assert lab.labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"
    assert lab.labels["nvidia.com/gpu.deploy.device-plugin"] == "true"
    assert {f"{PLUGIN}-x", f"{GFD}-x", f"{EXPORTER}-x", f"{VALIDATOR}-x"} <= set(lab.deleted)


def test_an_unknown_layout_fails_and_a_disabled_client_stays_disabled() -> None:
    lab = up()
    lab.set_labels({"nvidia.com/mig.config": "all-9g.99gb", "nvidia.com/gpu.deploy.dcgm": "false"})
    lab.run(until=lambda lab: lab.labels["nvidia.com/mig.config.state"] == "failed")
    assert lab.labels["nvidia.com/mig.config.state"] == "failed"
    assert lab.labels["nvidia.com/gpu.deploy.dcgm"] == "false"
    assert "selected mig-config not present: all-9g.99gb" in lab.said


def test_a_layout_that_is_there_already_moves_no_pod() -> None:
    lab = up()
    assert lab.labels["nvidia.com/mig.config.state"] == "success"
    assert lab.deleted == []


def test_a_pod_that_holds_a_gpu_makes_the_change_fail() -> None:
    lab = up()
    lab.world.pods_on = lambda name: [*lab.pods.values(), user_pod()]
    lab.set_labels({"nvidia.com/mig.config": "all-1g.10gb"})
    lab.run(until=lambda lab: lab.labels["nvidia.com/mig.config.state"] == "failed")
    assert lab.labels["nvidia.com/mig.config.state"] == "failed"
    assert "In use by another client (default/train)" in lab.said
    assert all(not gpu.mig_enabled for gpu in lab.node.gpus)


def user_pod() -> dict[str, object]:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    return {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "resources": limits}]},
        "status": {"phase": "Running"},
    }


# -- sharing


def test_the_label_of_a_node_chooses_its_plugin_configuration_while_the_plugin_runs() -> None:
    lab = up("time-slicing")
    assert lab.allocatable == {"nvidia.com/gpu": "32"}
    lab.set_labels({"nvidia.com/device-plugin.config": "a100"})
    lab.run(seconds=120, until=lambda lab: lab.allocatable == {"nvidia.com/gpu": "8"})
    assert lab.allocatable == {"nvidia.com/gpu": "8"}
    assert lab.deleted == []
    lab.set_labels({"nvidia.com/device-plugin.config": "missing"})
    lab.run(seconds=60, until=lambda lab: False)
    assert "specified config missing does not exist" in lab.said


def test_mps_needs_its_daemon_before_the_plugin_offers_anything() -> None:
    lab = Lab(recording("time-slicing"))
    lab.objects["ConfigMap/plugin-config"]["data"]["any"] = MPS_CONFIG
    lab.deploy_labels()
    daemon = lab.objects.pop("DaemonSet/nvidia-device-plugin-mps-control-daemon")
    lab.run(seconds=400)
    assert lab.allocatable == {}
    assert "MPS daemon for nvidia.com/gpu is not ready" in lab.problems()[PLUGIN]
    assert lab.labels["nvidia.com/mps.capable"] == "true"
    lab.objects["DaemonSet/nvidia-device-plugin-mps-control-daemon"] = daemon
    lab.run()
    assert lab.allocatable == {"nvidia.com/gpu": "80"}
    assert lab.problems() == {}


# -- GFD


def test_gfd_can_hand_its_labels_to_the_nfd_worker_in_a_file() -> None:
    lab = Lab(recording("default"))
    template = lab.objects[f"DaemonSet/{GFD}"]["spec"]["template"]["spec"]
    template["containers"][0]["env"].append({"name": "USE_NODE_FEATURE_API", "value": "false"})
    lab.deploy_labels()
    lab.run()
    assert "NodeFeature/nvidia-features-for-gpu-0000" not in lab.objects
    assert "nvidia.com/gpu.count=8" in (lab.node.fs.read("/etc/kubernetes/node-feature-discovery/features.d/gfd") or "")
    assert lab.labels["nvidia.com/gpu.count"] == "8"


# -- pods that go


def test_a_plugin_that_goes_leaves_its_capacity_and_nothing_to_allocate() -> None:
    lab = up()
    del lab.objects[f"DaemonSet/{PLUGIN}"]
    lab.remove(f"{PLUGIN}-x")
    assert lab.node_object["status"]["capacity"] == {"nvidia.com/gpu": "8"}
    assert lab.allocatable == {"nvidia.com/gpu": "0"}


def test_a_validator_that_goes_takes_its_status_files_along_but_not_the_hidden_ones() -> None:
    lab = up()
    del lab.objects[f"DaemonSet/{VALIDATOR}"]
    lab.remove(f"{VALIDATOR}-x")
    assert lab.node.fs.listing("/run/nvidia/validations") == [".driver-ctr-ready"]


def test_another_driver_is_installed_only_after_its_clients_are_gone_and_they_come_back() -> None:
    lab = up()
    template = lab.objects[f"DaemonSet/{DRIVER}"]["spec"]["template"]["spec"]
    for c in (*template["initContainers"], *template["containers"]):
        for item in c["env"]:
            if item["name"] == "DRIVER_CONFIG_DIGEST":
                item["value"] = "1"
    next(c for c in template["containers"])["image"] = "nvcr.io/nvidia/driver:580.159.04-ubuntu24.04"
    lab.remove(f"{DRIVER}-x")
    assert ".driver-ctr-ready" not in lab.node.fs.listing("/run/nvidia/validations")
    lab.run(until=lambda lab: lab.ready() and lab.node.driver_version == "580.159.04")
    assert lab.node.driver_version == "580.159.04"
    assert {f"{PLUGIN}-x", f"{MIG}-x", "nvidia-container-toolkit-daemonset-x"} <= set(lab.deleted)
    assert lab.labels["nvidia.com/gpu.deploy.device-plugin"] == "true"
    assert lab.problems() == {}


def test_the_same_driver_is_not_installed_again() -> None:
    lab = up()
    lab.remove(f"{DRIVER}-x")
    before = lab.time
    lab.run(until=lambda lab: f"{DRIVER}-x" in lab.pods and lab.ready())
    assert lab.time - before < 90  # the probe's first delay, and no installation of 110 s
    assert f"{PLUGIN}-x" not in lab.deleted


# -- faults and the words of failures


def test_an_image_that_no_registry_has() -> None:
    lab = Lab(recording("default"), faults={"images_missing": ["nvcr.io/nvidia/k8s-device-plugin:*"]})
    lab.deploy_labels()
    lab.run(seconds=350)
    state = container(lab, PLUGIN, "nvidia-device-plugin")["state"]
    assert isinstance(state, dict)
    assert state["waiting"]["reason"] == "ImagePullBackOff"
    image = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
    assert f'Back-off pulling image "{image}": ErrImagePull: rpc error: code = NotFound' in state["waiting"]["message"]
    assert ("Warning", "Failed", "Error: ErrImagePull") in lab.events
    lab.world.faults.set({})
    lab.run()
    assert lab.problems() == {}


def test_an_image_that_is_on_the_node_is_not_asked_for_again() -> None:
    lab = up()
    lab.world.faults.set({"images_missing": ["*"]})
    lab.remove(f"{PLUGIN}-x")
    lab.run(until=lambda lab: f"{PLUGIN}-x" in lab.pods and lab.ready())
    assert lab.problems() == {}


def test_images_of_a_mirror() -> None:
    lab = Lab(recording("default"), faults={"images_extra": ["mirror.example.com/*"]})
    for workload in lab.kind("DaemonSet"):
        spec = workload["spec"]["template"]["spec"]
        for c in (*spec.get("initContainers", []), *spec["containers"]):
            c["image"] = c["image"].replace("nvcr.io", "mirror.example.com")
    for c in lab.objects[f"DaemonSet/{VALIDATOR}"]["spec"]["template"]["spec"]["initContainers"]:
        for item in c["env"]:
            if item["name"] == "VALIDATOR_IMAGE":
                item["value"] = item["value"].replace("nvcr.io", "mirror.example.com")
    lab.deploy_labels()
    lab.run()
    assert lab.problems() == {}
    assert lab.node.driver_version == "595.91.07"


def test_a_driver_that_crashes_backs_off_and_comes_up_when_the_fault_is_gone() -> None:
    lab = Lab(recording("default"), faults={"nodes": {"gpu-*": {"driver_crash": "modprobe: ERROR: no"}}})
    lab.deploy_labels()
    lab.run(seconds=200)
    status = container(lab, DRIVER, "nvidia-driver-ctr")
    assert status["restartCount"]
    assert "back-off" in str(status["state"]) or "modprobe: ERROR: no" in str(status["state"])
    assert "modprobe: ERROR: no" in lab.problems()[DRIVER]
    lab.world.faults.set({})
    lab.run()
    assert lab.problems() == {}


def test_fewer_gpus_than_there_are_lower_what_can_be_allocated() -> None:
    lab = up()
    lab.world.faults.set({"nodes": {"gpu-0000": {"gpus_visible": 7}}})
    lab.tick()
    assert lab.allocatable == {"nvidia.com/gpu": "7"}
    assert lab.node_object["status"]["capacity"] == {"nvidia.com/gpu": "8"}


def test_a_container_can_be_made_to_crash_or_never_be_ready() -> None:
    lab = up(nodes={"gpu-0000": {"crash": {EXPORTER: "out of memory"}, "not_ready": {GFD: True}}})
    assert "out of memory" in lab.problems()[EXPORTER]
    assert GFD in lab.problems()


def test_unknown_faults_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown faults driver_crashes"):
        Lab({}, faults={"nodes": {"x": {"driver_crashes": 1}}})


def test_a_folder_that_must_exist_holds_a_pod_until_another_has_made_it() -> None:
    lab = Lab({"DaemonSet/x": recording("dcgm-standalone-no-cdi")["DaemonSet/nvidia-node-status-exporter"]})
    lab.deploy_labels()
    lab.run(seconds=30)
    words = (
        'MountVolume.SetUp failed for volume "run-nvidia" : hostPath type check failed: /run/nvidia is not a directory'
    )
    assert ("Warning", "FailedMount", words) in lab.events
    assert lab.pods["nvidia-node-status-exporter-x"]["status"]["phase"] == "Pending"


def test_conditions_of_a_pod_that_is_up_and_of_one_that_is_not() -> None:
    lab = up()
    ready = {c["type"]: c["status"] for c in lab.pods[f"{PLUGIN}-x"]["status"]["conditions"]}
    assert ready == dict.fromkeys(("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"), "True")
    lab = Lab(recording("default"))
    lab.deploy_labels()
    lab.tick()
    status = lab.pods["nvidia-container-toolkit-daemonset-x"]["status"]
    conditions = {c["type"]: c for c in status["conditions"]}
    assert conditions["Initialized"]["message"] == "containers with incomplete status: [driver-validation]"
    assert conditions["Ready"]["reason"] == "ContainersNotReady"
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


# -- kinds of nodes


@pytest.mark.parametrize(
    ("spec", "kind", "words"),
    [
        (NodeSpec("gpu-0000", product="B200", gpus=8), "proprietary", "requires use of the open kernel modules"),
        (
            NodeSpec("gpu-0000", product="V100-SXM2-32GB", gpus=8),
            "open",
            "open kernel modules do not support Tesla V100",
        ),
        (NodeSpec("gpu-0000", product="T4", gpus=1), "both", "KERNEL_MODULE_TYPE both is not one of"),
    ],
)
def test_kernel_modules_must_fit_the_gpus(spec: NodeSpec, kind: str, words: str) -> None:
    lab = Lab(recording("default"), spec)
    template = lab.objects[f"DaemonSet/{DRIVER}"]["spec"]["template"]["spec"]
    for item in template["containers"][0]["env"]:
        if item["name"] == "KERNEL_MODULE_TYPE":
            item["value"] = kind
    lab.deploy_labels(mig=False)
    lab.run(seconds=200)
    assert words in lab.problems()[DRIVER]


def test_a_precompiled_driver_needs_the_kernel_of_the_node() -> None:
    image = "nvcr.io/nvidia/driver:595-6.8.0-60-generic-ubuntu24.04"
    for kernel, comes_up in (("6.8.0-60-generic", True), ("6.8.0-61-generic", False)):
        lab = Lab(recording("default"), NodeSpec("gpu-0000", product="T4", gpus=1, kernel=kernel))
        lab.objects[f"DaemonSet/{DRIVER}"]["spec"]["template"]["spec"]["containers"][0]["image"] = image
        lab.deploy_labels(mig=False)
        lab.run(seconds=300)
        assert (lab.problems() == {}) is comes_up
    assert "precompiled for 6.8.0-60-generic" in lab.said


@pytest.mark.parametrize("distribution", ["k3s", "rke2", "microk8s"])
def test_distributions_with_their_own_containerd_need_its_paths(distribution: str) -> None:
    lab = Lab(recording("default"), NodeSpec("gpu-0000", product="T4", gpus=1, distribution=distribution))
    lab.deploy_labels(mig=False)
    lab.run(seconds=300)
    assert lab.node.spec.paths["config"] in lab.problems()["nvidia-container-toolkit-daemonset"]


def test_nri_gives_drivers_without_a_runtime_class() -> None:
    lab = Lab({key: o for key, o in recording("default").items() if not key.startswith("RuntimeClass/")})
    toolkit = lab.objects["DaemonSet/nvidia-container-toolkit-daemonset"]["spec"]["template"]["spec"]
    gone = ("containerd-config", "containerd-drop-in-config", "containerd-socket")
    toolkit["volumes"] = [v for v in toolkit["volumes"] if v["name"] not in gone]
    toolkit["volumes"].append({"name": "nri", "hostPath": {"path": "/var/run/nri", "type": "DirectoryOrCreate"}})
    ctr = toolkit["containers"][0]
    ctr["volumeMounts"] = [m for m in ctr["volumeMounts"] if m["name"] not in gone]
    ctr["volumeMounts"].append({"name": "nri", "mountPath": "/runtime/nri-sock-dir"})
    ctr["env"] += [
        {"name": "ENABLE_NRI_PLUGIN", "value": "true"},
        {"name": "NRI_SOCKET", "value": "/runtime/nri-sock-dir/nri.sock"},
    ]
    for workload in lab.kind("DaemonSet"):
        template = workload["spec"]["template"]
        if template["spec"].pop("runtimeClassName", None):
            notes = template["metadata"].setdefault("annotations", {})
            for c in (*template["spec"]["initContainers"], *template["spec"]["containers"]):
                notes[f"nvidia.cdi.k8s.io/container.{c['name']}"] = "management.nvidia.com/gpu=all"
    for c in lab.objects[f"DaemonSet/{VALIDATOR}"]["spec"]["template"]["spec"]["initContainers"]:
        c["env"] = [e for e in c["env"] if e["name"] != "VALIDATOR_RUNTIME_CLASS"]
    lab.deploy_labels()
    lab.run()
    assert lab.problems() == {}
    assert lab.node.handlers == {"runc": "/usr/bin/runc"}


@pytest.mark.parametrize(
    ("fault", "workload", "name", "words"),
    [
        ({"nouveau": True}, DRIVER, "nvidia-driver-ctr", "nouveau is loaded"),
        ({"no_precompiled": True}, DRIVER, "nvidia-driver-ctr", "No precompiled package found for kernel 6.8.0-60"),
    ],
)
def test_a_fault_of_the_driver_is_in_the_last_line_of_its_log(
    fault: dict[str, object], workload: str, name: str, words: str
) -> None:
    lab = Lab(recording("default"), faults={"nodes": {"gpu-0000": fault}})
    lab.deploy_labels()
    lab.run(seconds=600)
    assert words in str(container(lab, workload, name)["lastState"])
    lab.world.faults.set({})
    lab.remove(f"{workload}-x")  # the driver manager, which unloads nouveau, runs when a pod starts
    lab.run(until=lambda lab: f"{workload}-x" in lab.pods and lab.ready())
    assert lab.problems() == {}


def test_a_runtime_that_does_not_take_over_its_handlers() -> None:
    lab = Lab(recording("default"), faults={"nodes": {"gpu-0000": {"no_handler": True}}})
    lab.deploy_labels()
    lab.run(seconds=600)
    assert any(e[1] == "FailedCreatePodSandBox" and 'no runtime for "nvidia" is configured' in e[2] for e in lab.events)
    assert lab.allocatable == {}
    lab.world.faults.set({})
    lab.run()
    assert lab.problems() == {}


def test_a_plugin_that_sees_no_gpu_is_ready_all_the_same() -> None:
    lab = Lab(recording("default"), faults={"nodes": {"gpu-0000": {"gpus_visible": 0}}})
    lab.deploy_labels()
    lab.run(seconds=600)
    assert container(lab, PLUGIN, "nvidia-device-plugin")["ready"]
    assert lab.allocatable == {}


def test_without_a_fabric_manager_only_nvswitch_systems_fail() -> None:
    for nvswitch, words in ((True, "system not yet initialized"), (False, "")):
        spec = NodeSpec("gpu-0000", product="H100-SXM5-80GB", gpus=8, nvswitch=nvswitch)
        lab = Lab(recording("default"), spec, {"nodes": {"gpu-0000": {"no_fabric_manager": True}}})
        lab.deploy_labels()
        lab.run(seconds=600)
        assert words in str([pod["status"] for name, pod in lab.pods.items() if "cuda-validator" in name])
        assert bool(lab.problems()) is nvswitch
