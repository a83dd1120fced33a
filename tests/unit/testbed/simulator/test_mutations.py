# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a real GPU Operator made comes up on a simulated node; without any one thing an image needs, it does not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.simulator import recorded
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.node import NodeSpec
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.pod import Object
from ansible_collections.gpufleet.nvidia.tests.unit.testbed.simulator.lab import Lab

Objects = dict[str, Object]
Change = Callable[[Objects], None]

HOST_DRIVER = NodeSpec("gpu-0000", product="L4", gpus=2, host_driver="580.159.04", host_toolkit=True)
NVSWITCH = NodeSpec("gpu-0000", product="H100-SXM5-80GB", gpus=8, nvswitch=True, mellanox=True)

recording = functools.cache(recorded.objects)


# -- changes


def _pod(objects: Objects, workload: str) -> Object:
    kind = "DaemonSet" if f"DaemonSet/{workload}" in objects else "Deployment"
    spec: Object = objects[f"{kind}/{workload}"]["spec"]["template"]["spec"]
    return spec


def _container(objects: Objects, workload: str, name: str) -> Object:
    spec = _pod(objects, workload)
    return next(c for c in [*spec.get("initContainers", []), *spec["containers"]] if c["name"] == name)


def _without(items: list[Object], key: str, value: str) -> None:
    found = [i for i in items if i[key] == value]
    assert found, f"{value} is not there to take away"
    items.remove(found[0])


class Of:
    """A container of a workload, and what can be taken from it."""

    def __init__(self, workload: str, container: str) -> None:
        self.workload, self.container = workload, container

    def _find(self, objects: Objects) -> Object:
        return _container(objects, self.workload, self.container)

    def env(self, name: str) -> Change:
        return lambda objects: _without(self._find(objects)["env"], "name", name)

    def env_is(self, name: str, value: str) -> Change:
        def change(objects: Objects) -> None:
            item = next(e for e in self._find(objects)["env"] if e["name"] == name)
            item.pop("valueFrom", None)
            item["value"] = value

        return change

    def mount(self, path: str) -> Change:
        return lambda objects: _without(self._find(objects)["volumeMounts"], "mountPath", path)

    def mount_is(self, path: str, **fields: Any) -> Change:
        def change(objects: Objects) -> None:
            next(m for m in self._find(objects)["volumeMounts"] if m["mountPath"] == path).update(fields)

        return change

    def set(self, **fields: Any) -> Change:
        return lambda objects: self._find(objects).update(fields)


def host_path(workload: str, volume: str, path: str) -> Change:
    def change(objects: Objects) -> None:
        next(v for v in _pod(objects, workload)["volumes"] if v["name"] == volume)["hostPath"]["path"] = path

    return change


def init(workload: str, name: str) -> Change:
    return lambda objects: _without(_pod(objects, workload)["initContainers"], "name", name)


def unset(workload: str, key: str) -> Change:
    def change(objects: Objects) -> None:
        del _pod(objects, workload)[key]

    return change


def right(role: str, resource: str, verb: str) -> Change:
    def change(objects: Objects) -> None:
        rule = next(r for r in objects[role]["rules"] if resource in r["resources"])
        rule["verbs"].remove(verb)

    return change


def gone(name: str) -> Change:
    def change(objects: Objects) -> None:
        del objects[name]

    return change


def data(config_map: str, key: str, text: str) -> Change:
    def change(objects: Objects) -> None:
        objects[f"ConfigMap/{config_map}"]["data"][key] = text

    return change


DRIVER, TOOLKIT, VALIDATOR = (
    "nvidia-driver-daemonset",
    "nvidia-container-toolkit-daemonset",
    "nvidia-operator-validator",
)
PLUGIN, MPS, GFD, MIG = (
    "nvidia-device-plugin-daemonset",
    "nvidia-device-plugin-mps-control-daemon",
    "gpu-feature-discovery",
    "nvidia-mig-manager",
)
EXPORTER, DCGM, STATUS = "nvidia-dcgm-exporter", "nvidia-dcgm", "nvidia-node-status-exporter"
NFD = "gpu-operator-node-feature-discovery"
V = "/run/nvidia/validations"
BIDIRECTIONAL = "mount propagation is None"

manager = Of(DRIVER, "k8s-driver-manager")
driver = Of(DRIVER, "nvidia-driver-ctr")
driver_check = Of(TOOLKIT, "driver-validation")
toolkit = Of(TOOLKIT, "nvidia-container-toolkit-ctr")
toolkit_check = Of(VALIDATOR, "toolkit-validation")
cuda_check = Of(VALIDATOR, "cuda-validation")
plugin_check = Of(VALIDATOR, "plugin-validation")
plugin = Of(PLUGIN, "nvidia-device-plugin")
chooser = Of(PLUGIN, "config-manager-init")
gfd = Of(GFD, "gpu-feature-discovery")
gfd_wait = Of(GFD, "toolkit-validation")
mig = Of(MIG, "nvidia-mig-manager")
exporter = Of(EXPORTER, "nvidia-dcgm-exporter")
status = Of(STATUS, "nvidia-node-status-exporter")
worker = Of(f"{NFD}-worker", "worker")

# recording, pod that is not ready, what was changed and what a person reads about it
MUTATIONS: list[tuple[str, str, list[tuple[Change, str]]]] = [
    # driver manager
    ("default", DRIVER, [
        (manager.env("NODE_NAME"), "NODE_NAME is not set"),
        (manager.env("OPERATOR_NAMESPACE"), "OPERATOR_NAMESPACE is not set"),
        (manager.mount("/host"), "/host: no such file"),
        (manager.mount("/run/nvidia"), "/run/nvidia: no such file"),
        (manager.mount("/sys"), "/sys: no such file"),
        (manager.set(args=[]), "driver-manager: unknown command"),
        (init(DRIVER, "k8s-driver-manager"), "nouveau is loaded"),
        (right("ClusterRole/nvidia-driver", "nodes", "get"), 'cannot get resource "nodes"'),
    ]),
    # driver
    ("default", DRIVER, [
        (unset(DRIVER, "hostPID"), "hostPID is not set"),
        (driver.mount("/run/nvidia"), "/run/nvidia: no such file"),
        (driver.mount_is("/run/nvidia", mountPropagation="None"), BIDIRECTIONAL),
        (driver.mount("/host-etc/os-release"), "/host-etc/os-release: no such file"),
        (driver.mount("/lib/firmware"), "/lib/firmware: no such file"),
        (driver.mount("/sys/module/firmware_class/parameters/path"), "firmware search path"),
        (driver.mount("/usr/local/bin/startup-probe.sh"), "startup-probe.sh: No such file"),
        (driver.env("KERNEL_MODULE_TYPE"), "KERNEL_MODULE_TYPE is not set"),
        (driver.set(securityContext={}), "the container is not privileged"),
        (driver.set(args=[]), "nvidia-driver: unknown command"),
        (gone("ConfigMap/nvidia-driver-startup-probe"), 'configmap "nvidia-driver-startup-probe" not found'),
        (driver.set(image="nvcr.io/nvidia/driver:595.91.07-rhel9"), "built for rhel9, the node runs ubuntu24.04"),
        (driver.set(image="nvcr.io/nvidia/driver:1.2.3-ubuntu24.04"), "1.2.3-ubuntu24.04: not found"),
    ]),
    # toolkit
    ("default", TOOLKIT, [
        (init(TOOLKIT, "driver-validation"), f"waiting for {V}/driver-ready"),
        (driver_check.env("COMPONENT"), "COMPONENT is not set"),
        (driver_check.env("OPERATOR_NAMESPACE"), "OPERATOR_NAMESPACE is not set"),
        (driver_check.mount("/host"), "/host: no such file"),
        (driver_check.mount("/run/nvidia/driver"), "/run/nvidia/driver: no such file"),
        (driver_check.mount_is("/run/nvidia/driver", mountPropagation="None"), BIDIRECTIONAL),
        (driver_check.mount(V), f"{V}: no such file"),
        (driver_check.mount("/host-dev-char"), "/host-dev-char: no such file"),
        (driver_check.set(securityContext={"privileged": True}), "runAsUser 0 is needed"),
        (right("Role/nvidia-container-toolkit", "daemonsets", "list"), 'cannot list resource "daemonsets"'),
        (unset(TOOLKIT, "hostPID"), "hostPID is not set"),
        (toolkit.env("ROOT"), "ROOT is not set"),
        (toolkit.env("RUNTIME"), "RUNTIME is not set"),
        (toolkit.env_is("RUNTIME", "crio"), "this node runs containerd"),
        (toolkit.env("NVIDIA_VISIBLE_DEVICES"), "NVIDIA_VISIBLE_DEVICES is not void"),
        (toolkit.env("TOOLKIT_PID_FILE"), "TOOLKIT_PID_FILE is not set"),
        (toolkit.env("RUNTIME_DROP_IN_CONFIG_HOST_PATH"), "containerd would not import it"),
        (toolkit.env_is("CONTAINERD_SOCKET", "/runtime/sock-dir/x.sock"), "x.sock: connect: no such file"),
        (toolkit.env_is("CONTAINERD_CONFIG", "/runtime/config-dir/k3s.toml"), "reads /etc/containerd/config.toml"),
        (host_path(TOOLKIT, "containerd-socket", "/run/k3s/containerd"), "connect: no such file"),
        (toolkit.mount("/usr/local/nvidia"), "installed in the container, not on the host"),
        (toolkit.mount("/driver-root"), "/driver-root: no such file"),
        (toolkit.mount("/var/run/cdi"), "/var/run/cdi: no such file"),
        (toolkit.mount("/runtime/config-dir/"), "/runtime/config-dir: no such file"),
        (toolkit.mount("/bin/entrypoint.sh"), "executable file not found"),
        (toolkit.mount(V), "(nothing is mounted there)"),
        (data("nvidia-container-toolkit-entrypoint", "entrypoint.sh", "echo hello\n"), "nvidia-container-toolkit-ctr"),
    ]),
    # the handler of the runtime class
    ("default", PLUGIN, [
        (toolkit.env_is("CONTAINERD_RUNTIME_CLASS", "other"), 'no runtime for "nvidia" is configured'),
        (gone("RuntimeClass/nvidia"), 'runtimeclass.node.k8s.io "nvidia" not found'),
    ]),
    ("default", GFD, [
        (gone(f"DaemonSet/{TOOLKIT}"), 'no runtime for "nvidia" is configured'),
    ]),
    ("default", VALIDATOR, [
        (host_path(TOOLKIT, "toolkit-install-dir", "/opt/elsewhere"), "nvidia-container-runtime: no such file"),
    ]),
    # validator
    ("default", VALIDATOR, [
        (unset(VALIDATOR, "runtimeClassName"), '"nvidia-smi": executable file not found'),
        (toolkit_check.env("NVIDIA_VISIBLE_DEVICES"), '"nvidia-smi": executable file not found'),
        (toolkit_check.mount(V), "toolkit-ready cannot be written"),
    ]),
    ("default", PLUGIN, [
        (init(VALIDATOR, "toolkit-validation"), f"waiting for {V}/toolkit-ready"),
    ]),
    ("default", VALIDATOR, [
        (cuda_check.env("VALIDATOR_IMAGE"), "VALIDATOR_IMAGE is not set"),
        (cuda_check.env("NODE_NAME"), "NODE_NAME is not set"),
        (cuda_check.env("OPERATOR_NAMESPACE"), "OPERATOR_NAMESPACE is not set"),
        (cuda_check.env("VALIDATOR_RUNTIME_CLASS"), "Vector addition"),
        (cuda_check.mount(V), "cuda-ready: no such file"),
        (plugin_check.env("NODE_NAME"), "NODE_NAME is not set"),
        (plugin_check.mount(V), "plugin-ready: no such file"),
        (gone(f"DaemonSet/{PLUGIN}"), "GPU resources are not"),
        (right("Role/nvidia-operator-validator", "pods", "create"), 'cannot create resource "pods"'),
        (right("Role/nvidia-operator-validator", "pods", "get"), 'cannot get resource "pods"'),
        (right("Role/nvidia-operator-validator", "pods", "list"), 'cannot list resource "pods"'),
        (right("Role/nvidia-operator-validator", "daemonsets", "get"), 'cannot get resource "daemonsets"'),
        (right("ClusterRole/nvidia-operator-validator", "nodes", "get"), 'cannot get resource "nodes"'),
        (gone("RoleBinding/nvidia-operator-validator"), 'cannot list resource "daemonsets"'),
    ]),
    # device plugin
    ("default", PLUGIN, [
        (plugin.mount("/var/lib/kubelet/device-plugins"), "failed to dial"),
        (plugin.mount("/driver-root"), "CDI specifications cannot be made"),
        (plugin.mount("/var/run/cdi"), "CDI specifications cannot be written"),
        (plugin.mount(V), f"waiting for {V}/driver-ready"),
        (plugin.mount("/bin/entrypoint.sh"), "executable file not found"),
        (unset(PLUGIN, "runtimeClassName"), "could not load NVML library"),
        (plugin.env_is("NVIDIA_VISIBLE_DEVICES", "void"), "could not load NVML library"),
        (plugin.env_is("MIG_STRATEGY", "both"), "unknown strategy: both"),
        (plugin.env_is("DEVICE_LIST_STRATEGY", "files"), "invalid device list strategy: files"),
        (gone("ConfigMap/nvidia-device-plugin-entrypoint"), 'configmap "nvidia-device-plugin-entrypoint" not found'),
    ]),
    # its configurations
    ("time-slicing", PLUGIN, [
        (gone("ConfigMap/plugin-config"), 'configmap "plugin-config" not found'),
        (chooser.env("NODE_LABEL"), "NODE_LABEL is not set"),
        (chooser.mount("/available-configs"), "/available-configs: no such file"),
        (chooser.mount("/config"), "/config/config.yaml"),
        (plugin.mount("/available-configs"), "it links to /available-configs/any"),
        (chooser.env_is("DEFAULT_CONFIG", "none"), "specified config none does not exist"),
        (right("ClusterRole/nvidia-device-plugin", "nodes", "get"), 'cannot get resource "nodes"'),
        (right("ClusterRole/nvidia-device-plugin", "nodes", "watch"), 'cannot watch resource "nodes"'),
        (data("plugin-config", "any", "version: v2\n"), "unknown version: v2"),
    ]),
    # GFD
    ("default", GFD, [
        (gfd.env("NODE_NAME"), "NODE_NAME is not set"),
        (gfd.env("NAMESPACE"), "NAMESPACE is not set"),
        (gfd.env("POD_NAME"), "POD_NAME is not set"),
        (unset(GFD, "runtimeClassName"), "could not load NVML library"),
        (right("Role/nvidia-gpu-feature-discovery", "nodefeatures", "create"), 'cannot create resource "nodefeatures"'),
        (right("Role/nvidia-gpu-feature-discovery", "pods", "get"), 'cannot get resource "pods"'),
        (gfd_wait.mount("/run/nvidia"), "(nothing is mounted there)"),
    ]),
    # MIG manager
    ("default", MIG, [
        (unset(MIG, "hostPID"), "hostPID is not set"),
        (mig.env("NODE_NAME"), "NODE_NAME is not set"),
        (mig.env("GPU_CLIENTS_FILE"), "GPU_CLIENTS_FILE is not set"),
        (mig.env("POD_NAMESPACE"), "POD_NAMESPACE is not set"),
        (mig.env("DEFAULT_CONFIG_FILE"), "DEFAULT_CONFIG_FILE is not set"),
        (mig.mount("/mig-parted-config"), "/mig-parted-config/config-default.yaml: no such file"),
        (mig.mount("/gpu-clients"), "/gpu-clients/clients.yaml: no such file"),
        (mig.mount("/host"), "/host: no such file"),
        (mig.mount("/sys"), "/sys: no such file"),
        (mig.mount("/driver-root"), "/driver-root: no such file"),
        (gone("ConfigMap/default-gpu-clients"), 'configmap "default-gpu-clients" not found'),
        (right("ClusterRole/nvidia-mig-manager", "nodes", "watch"), 'cannot watch resource "nodes"'),
        (right("ClusterRole/nvidia-mig-manager", "nodes", "patch"), 'cannot patch resource "nodes"'),
        (right("Role/nvidia-mig-manager", "configmaps", "create"), 'cannot create resource "configmaps"'),
    ]),
    # DCGM and its exporter
    ("default", EXPORTER, [
        (unset(EXPORTER, "runtimeClassName"), "DCGM initialization error"),
        (exporter.mount("/var/lib/kubelet/pod-resources"), "pod-resources: no such file"),
        (exporter.env("NODE_NAME"), "NODE_NAME is not set"),
        (exporter.env_is("DCGM_EXPORTER_LISTEN", ":9401"), "9400: connect: connection refused"),
        (exporter.env_is("DCGM_EXPORTER_COLLECTORS", "/etc/mine.csv"), "/etc/mine.csv: no such file"),
    ]),
    ("dcgm-standalone-no-cdi", EXPORTER, [
        (gone("Service/nvidia-dcgm"), "lookup nvidia-dcgm: no such host"),
        (gone(f"DaemonSet/{DCGM}"), "no ready engine on this node"),
    ]),
    # node-status-exporter
    ("dcgm-standalone-no-cdi", STATUS, [
        (status.env("METRICS_PORT"), "METRICS_PORT"),
        (status.env("NODE_NAME"), "NODE_NAME is not set"),
        (status.mount("/run/nvidia"), f"{V}: no such file"),
        (right("ClusterRole/nvidia-node-status-exporter", "nodes", "get"), 'cannot get resource "nodes"'),
    ]),
    # NFD
    ("default", f"{NFD}-worker", [
        (worker.env("NODE_NAME"), "NODE_NAME is not set"),
        (worker.env("POD_UID"), "POD_UID is not set"),
        (right(f"Role/{NFD}-worker", "nodefeatures", "create"), 'cannot create resource "nodefeatures"'),
        (right(f"Role/{NFD}-worker", "pods", "get"), 'cannot get resource "pods"'),
    ]),
    ("default", f"{NFD}-master", [
        (right(f"ClusterRole/{NFD}", "nodefeaturerules", "list"), 'cannot list resource "nodefeaturerules"'),
        (right(f"ClusterRole/{NFD}", "nodefeaturerules", "watch"), "cannot watch resource"),
        (right(f"ClusterRole/{NFD}", "nodes", "patch"), 'cannot patch resource "nodes"'),
    ]),
]  # fmt: skip


CASES = [
    pytest.param(name, change, words, pod, id=f"{pod}: {words}"[:90])
    for name, pod, rows in MUTATIONS
    for change, words in rows
]


@pytest.mark.parametrize(("name", "change", "words", "pod"), CASES)
def test_a_node_does_not_come_up_without_what_an_image_needs_and_says_so(
    name: str, change: Change, words: str, pod: str
) -> None:
    lab = Lab(recording(name))
    change(lab.objects)
    lab.deploy_labels()
    lab.run(seconds=420)
    assert pod in lab.problems()
    assert words in lab.said


@pytest.mark.parametrize(
    ("name", "gpus"),
    [("default", "8"), ("open-rdma-mixed", "8"), ("dcgm-standalone-no-cdi", "8"), ("time-slicing", "32")],
)
def test_recorded_objects_come_up_on_a_node_without_a_driver(name: str, gpus: str) -> None:
    lab = Lab(recording(name), NVSWITCH)
    lab.deploy_labels()
    lab.run()
    assert lab.problems() == {}
    assert lab.allocatable == {"nvidia.com/gpu": gpus}
    assert lab.labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3" + ("-SHARED" if gpus == "32" else "")
    assert lab.labels["nvidia.com/mig.config.state"] == "success"
    assert sorted(f for f in lab.node.fs.listing(V) if not f.startswith(".")) == sorted(
        ["cuda-ready", "driver-ready", "plugin-ready", "toolkit-ready"]
        + (["nvidia-peermem-ready"] if name == "open-rdma-mixed" else [])
    )


@pytest.mark.parametrize("name", ["preinstalled-driver", "managed-cloud"])
def test_recorded_objects_come_up_on_a_node_that_brings_its_driver(name: str) -> None:
    lab = Lab(recording(name), HOST_DRIVER)
    lab.deploy_labels(mig=False)
    lab.run()
    assert lab.problems() == {}
    assert lab.allocatable == {"nvidia.com/gpu": "2"}
    assert "IS_HOST_DRIVER=true" in (lab.node.fs.read(f"{V}/driver-ready") or "")


@pytest.mark.parametrize("name", ["preinstalled-driver", "managed-cloud"])
def test_without_a_driver_daemonset_a_bare_node_stays_down(name: str) -> None:
    lab = Lab(recording(name))
    lab.deploy_labels(mig=False)
    lab.run(seconds=300)
    assert VALIDATOR in lab.problems()
    assert lab.allocatable == {}


def test_a_driver_of_the_host_sends_the_driver_container_away() -> None:
    lab = Lab(recording("default"), HOST_DRIVER)
    lab.deploy_labels(mig=False)
    lab.run()
    assert lab.labels["nvidia.com/gpu.deploy.driver"] == "pre-installed"
    assert DRIVER not in {name.removesuffix("-x") for name in lab.pods}
    assert lab.problems() == {}


def test_the_missing_right_to_label_the_node_keeps_the_driver_container_there() -> None:
    lab = Lab(recording("default"), HOST_DRIVER)
    right("ClusterRole/nvidia-driver", "nodes", "patch")(lab.objects)
    lab.deploy_labels(mig=False)
    lab.run(seconds=300)
    assert "nvidia.com/gpu.deploy.driver" not in lab.labels or lab.labels["nvidia.com/gpu.deploy.driver"] == "true"
    assert 'cannot patch resource "nodes"' in lab.said


def test_an_nvswitch_system_needs_the_folder_of_the_fabric_manager() -> None:
    lab = Lab(recording("default"), NVSWITCH)
    driver.mount("/run/nvidia-fabricmanager")(lab.objects)
    lab.deploy_labels()
    lab.run(seconds=300)
    assert DRIVER in lab.problems()
    assert "/run/nvidia-fabricmanager: no such file" in lab.said
