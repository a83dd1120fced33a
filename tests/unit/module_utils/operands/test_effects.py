# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every key of a policy changes the objects of the operands that it is about, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import build_by_operand
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._model import Image, Policy
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import cluster, node, policy_of

# A policy that wants every part, so that a change of any part can be seen.
BASE = policy_of(
    {
        "driver": {"kernelModuleType": "open", "rdma": {"enabled": True}, "licensingConfig": {"secretName": "licence"}},
        "dcgm": {"enabled": True},
        "nodeStatusExporter": {"enabled": True},
        "cudaToolkit": {"enabled": True},
        "gds": {"enabled": True},
        "gdrcopy": {"enabled": True},
        "devicePlugin": {"config": {"name": "sharing", "create": True, "default": "a", "data": {"a": "version: v1"}}},
        "dcgmExporter": {"config": {"name": "metrics", "create": True, "data": "DCGM_FI_DEV_GPU_UTIL, gauge, use"}},
        "migManager": {"config": {"name": "layouts", "create": True, "data": {"config.yaml": "version: v1"}}},
        "sandboxWorkloads": {"enabled": True},
        "vgpuManager": {"enabled": True, "repository": "registry.example.com", "version": "580.1"},
    }
)
NAMES = ("parameters", "repositories", "certificates", "topology", "other")
FACTS = cluster(
    node(),
    config_keys={f"ConfigMap/{name}": (f"{name}.conf",) for name in NAMES},
    service_monitor_crd=True,
)

CLASSES, METRICS, DRIVER, TOOLKIT, VALIDATOR, PLUGIN, MPS, DCGM, EXPORTER, GFD, MIG, STATUS, CUDA = (
    "pre-requisites",
    "state-operator-metrics",
    "state-driver",
    "state-container-toolkit",
    "state-operator-validation",
    "state-device-plugin",
    "state-mps-control-daemon",
    "state-dcgm",
    "state-dcgm-exporter",
    "gpu-feature-discovery",
    "state-mig-manager",
    "state-node-status-exporter",
    "cuda-toolkit",
)
VGPU, VGPU_DEVICES, SANDBOX, VFIO, KUBEVIRT, KATA, CC = (
    "state-vgpu-manager",
    "state-vgpu-device-manager",
    "state-sandbox-validation",
    "state-vfio-manager",
    "state-sandbox-device-plugin",
    "state-kata-device-plugin",
    "state-cc-manager",
)
MACHINES = {VGPU, VGPU_DEVICES, SANDBOX, VFIO, KUBEVIRT}
WITH_GPU = {VALIDATOR, PLUGIN, MPS, DCGM, EXPORTER, GFD, MIG}
ALL_PODS = {DRIVER, TOOLKIT, STATUS, CUDA, *WITH_GPU, *MACHINES}
NOT_ROLLED = {DRIVER, VGPU, VGPU_DEVICES, VFIO, CC}
VALIDATED = {TOOLKIT, *WITH_GPU, VGPU_DEVICES, SANDBOX, KUBEVIRT}
WITH_CONFIG = {PLUGIN, MPS, GFD}

COMPONENTS = {
    "driver": {DRIVER},
    "toolkit": {TOOLKIT},
    "device_plugin": {PLUGIN, MPS},
    "dcgm": {DCGM},
    "dcgm_exporter": {EXPORTER},
    "gfd": {GFD},
    "mig_manager": {MIG},
    "node_status_exporter": {STATUS},
    "vgpu_manager": {VGPU},
    "vgpu_device_manager": {VGPU_DEVICES},
    "vfio_manager": {VFIO},
    "sandbox_device_plugin": {KUBEVIRT},
    "kata_sandbox_device_plugin": {KATA},
    "cc_manager": {CC},
}
IMAGE = {
    "repository": "registry.local/mirror",
    "image": "other",
    "version": "9.9.9",
    "pull_policy": "Always",
    "pull_secrets": ("pull",),
}
RESOURCES = {"limits": {"memory": "1Gi"}}
ENV = ({"name": "SOMETHING", "value": "new"},)
PROBE = {"initialDelaySeconds": 7}

Effects = dict[str, tuple[Any, set[str]]]


def of_components() -> Effects:
    """What all components have in common (COM-05)."""
    made: Effects = {}
    for name, operands in COMPONENTS.items():
        made[f"{name}.host_network"] = (True, operands)
        made[f"{name}.resources"] = (RESOURCES, operands)
        made[f"{name}.env"] = (ENV, operands - {MPS})
        made[f"{name}.args"] = (("--verbose",), operands - {MPS, TOOLKIT})
        for key, value in IMAGE.items():
            made[f"{name}.image.{key}"] = (value, operands | ({GFD} if name == "device_plugin" else set()))
    for key, value in IMAGE.items():
        made[f"driver.manager.image.{key}"] = (value, {DRIVER})
        made[f"vgpu_manager.driver_manager.image.{key}"] = (value, {VGPU})
        made[f"vfio_manager.driver_manager.image.{key}"] = (value, {VFIO})
        made[f"gds.image.{key}"] = (value, {DRIVER})
        made[f"gdrcopy.image.{key}"] = (value, {DRIVER})
        made[f"validator.image.{key}"] = (value, VALIDATED)
    return made


EFFECTS: Effects = {
    **of_components(),
    "operator.runtime_class": ("fast", {CLASSES, TOOLKIT, *WITH_GPU}),
    "operator.service_monitor.interval": ("7s", {METRICS}),
    "operator.service_monitor.scrape_timeout": ("6s", {METRICS}),
    "operator.service_monitor.honor_labels": (True, {METRICS}),
    "operator.service_monitor.additional_labels": ({"team": "a"}, {METRICS}),
    "operator.service_monitor.relabelings": (({"action": "labeldrop", "regex": "pod"},), {METRICS}),
    "daemonsets.labels": ({"cloud": "a"}, ALL_PODS),
    "daemonsets.annotations": ({"note": "a"}, ALL_PODS),
    "daemonsets.tolerations": (({"operator": "Exists"},), ALL_PODS),
    "daemonsets.priority_class_name": ("high", ALL_PODS),
    "daemonsets.update_strategy": ("OnDelete", ALL_PODS - NOT_ROLLED),
    "daemonsets.max_unavailable": ("30%", ALL_PODS - NOT_ROLLED),
    "daemonsets.pod_security_context": ({"runAsNonRoot": False}, ALL_PODS),
    **{f"cuda_toolkit.image.{key}": (value, {CUDA}) for key, value in IMAGE.items()},
    "cuda_toolkit.cuda": ("13.0", {CUDA}),
    "cuda_toolkit.install_dir": ("/data/cuda", {CUDA}),
    "cuda_toolkit.resources": (RESOURCES, {CUDA}),
    "daemonsets.container_resources": ({"nvidia-dcgm-exporter": RESOURCES}, {EXPORTER}),
    "host_paths.root_fs": ("/host-root", {DRIVER, TOOLKIT, VALIDATOR, PLUGIN, MIG, STATUS, *MACHINES} - {KUBEVIRT}),
    "host_paths.driver_install_dir": ("/opt/driver", {TOOLKIT, VALIDATOR, PLUGIN, MIG, VGPU_DEVICES, SANDBOX}),
    "host_paths.kubelet_root_dir": ("/data/kubelet", {EXPORTER, PLUGIN, KUBEVIRT}),
    "validator.resources": (RESOURCES, VALIDATED),
    "validator.args": (("sleep 1",), {VALIDATOR, SANDBOX}),
    "validator.env": (ENV, {VALIDATOR, SANDBOX}),
    "validator.host_network": (True, {VALIDATOR, SANDBOX}),
    "validator.plugin_env": (ENV, {VALIDATOR}),
    "validator.cuda_env": (ENV, {VALIDATOR}),
    "validator.driver_env": (ENV, {VALIDATOR, TOOLKIT}),
    "validator.toolkit_env": (ENV, WITH_GPU),
    "validator.vfio_pci_env": (ENV, {SANDBOX}),
    "validator.vgpu_manager_env": (ENV, {SANDBOX}),
    "validator.vgpu_devices_env": (ENV, {SANDBOX}),
    "driver.enabled": (False, {DRIVER}),
    "driver.use_nvidia_driver_crd": (True, {DRIVER, VGPU}),
    "driver.manager.env": (ENV, {DRIVER}),
    "driver.kernel_module_type": ("auto", {DRIVER}),
    "driver.use_precompiled": (True, {DRIVER}),
    "driver.startup_probe": (PROBE, {DRIVER}),
    "driver.liveness_probe": (PROBE, {DRIVER}),
    "driver.readiness_probe": (PROBE, {DRIVER}),
    "driver.rdma.enabled": (False, {DRIVER}),
    "driver.rdma.use_host_mofed": (True, {DRIVER}),
    "driver.repo_config": ("repositories", {DRIVER}),
    "driver.cert_config": ("certificates", {DRIVER}),
    "driver.kernel_module_config": ("parameters", {DRIVER}),
    "driver.licensing.secret_name": ("licence-2", {DRIVER}),
    "driver.licensing.nls_enabled": (False, {DRIVER}),
    "driver.virtual_topology_config": ("topology", {DRIVER}),
    "driver.secret_env": ("secret", {DRIVER}),
    "cuda_toolkit.enabled": (False, {CUDA}),
    "toolkit.enabled": (False, {TOOLKIT, PLUGIN, MIG}),
    "toolkit.install_dir": ("/opt/nvidia", {TOOLKIT, PLUGIN, MIG}),
    "device_plugin.enabled": (False, {PLUGIN, MPS, GFD, VALIDATOR}),
    "device_plugin.config.name": ("shares", WITH_CONFIG),
    "device_plugin.config.default": ("", WITH_CONFIG),
    "device_plugin.config.data": ({"a": "version: v2"}, WITH_CONFIG),
    "device_plugin.mps_root": ("/run/mps", {PLUGIN, MPS}),
    "dcgm.enabled": (False, {DCGM, EXPORTER}),
    "dcgm_exporter.enabled": (False, {EXPORTER}),
    "dcgm_exporter.annotations": ({"note": "a"}, {EXPORTER}),
    "dcgm_exporter.config.name": ("counters", {EXPORTER}),
    "dcgm_exporter.config.data": ({"dcgm-metrics.csv": "none"}, {EXPORTER}),
    "dcgm_exporter.service_type": ("NodePort", {EXPORTER}),
    "dcgm_exporter.service_internal_traffic_policy": ("Local", {EXPORTER}),
    "dcgm_exporter.service_monitor.enabled": (False, {EXPORTER}),
    "dcgm_exporter.service_monitor.interval": ("7s", {EXPORTER}),
    "dcgm_exporter.service_monitor.scrape_timeout": ("6s", {EXPORTER}),
    "dcgm_exporter.service_monitor.honor_labels": (True, {EXPORTER}),
    "dcgm_exporter.service_monitor.additional_labels": ({"team": "a"}, {EXPORTER}),
    "dcgm_exporter.service_monitor.relabelings": (({"action": "labeldrop", "regex": "pod"},), {EXPORTER}),
    "dcgm_exporter.host_pid": (True, {EXPORTER}),
    "dcgm_exporter.hpc_job_mapping": (True, {EXPORTER}),
    "dcgm_exporter.enable_pod_labels": (True, {EXPORTER}),
    "dcgm_exporter.enable_pod_uid": (True, {EXPORTER}),
    "dcgm_exporter.pod_label_allowlist_regex": (("app",), {EXPORTER}),
    "gfd.enabled": (False, {GFD}),
    "mig_manager.enabled": (False, {MIG}),
    "mig_manager.config.name": ("cuts", {MIG}),
    "mig_manager.config.data": ({"config.yaml": "version: v2"}, {MIG}),
    "mig_manager.gpu_clients_config.name": ("clients", {MIG}),
    "node_status_exporter.enabled": (False, {STATUS}),
    "gds.enabled": (False, {DRIVER, PLUGIN}),
    "gds.env": (ENV, {DRIVER}),
    "gdrcopy.enabled": (False, {DRIVER, PLUGIN}),
    "gdrcopy.env": (ENV, {DRIVER}),
    "sandbox_workloads.enabled": (False, MACHINES),
    "sandbox_workloads.default_workload": ("vm-vgpu", {SANDBOX}),
    "sandbox_workloads.mode": ("kata", {SANDBOX, KUBEVIRT, KATA, CC}),
    "vgpu_manager.enabled": (False, {VGPU}),
    "vgpu_manager.driver_manager.env": (ENV, {VGPU}),
    "vgpu_manager.kernel_module_config": ("parameters", {VGPU}),
    "vgpu_device_manager.enabled": (False, {VGPU_DEVICES}),
    "vgpu_device_manager.config.name": ("other", {VGPU_DEVICES}),
    "vgpu_device_manager.config.default": ("A10-4C", {VGPU_DEVICES}),
    "vfio_manager.enabled": (False, {VFIO}),
    "vfio_manager.driver_manager.env": (ENV, {VFIO}),
    "sandbox_device_plugin.enabled": (False, {KUBEVIRT}),
    "kata_sandbox_device_plugin.enabled": (False, {KATA}),
    "cc_manager.enabled": (False, {CC, SANDBOX}),
    "cc_manager.default_mode": ("devtools", {CC}),
    "mig_strategy": ("mixed", {PLUGIN, MPS, GFD, VALIDATOR}),
    "cdi_enabled": (False, {CLASSES, TOOLKIT, PLUGIN, MIG}),
    "nri_enabled": (True, {CLASSES, TOOLKIT, *WITH_GPU}),
    "release": ("v26.3.1", {PLUGIN, EXPORTER, MIG}),  # a label of the ConfigMaps that it creates
}

# Keys without objects of operands, and keys whose effect needs another key.
ELSEWHERE = {
    "psa_enabled": "labels of the namespace",
    "extra_objects": "applied as they are",
    "nfd": "an operand of its own",
    "driver.upgrade_policy": "what the rollout does, and an annotation of nodes",
    "driver.licensing.config_map_name": "the Secret wins",
    "mig_manager.config.default": "a label of nodes",
    "mig_manager.gpu_clients_config.default": "has no meaning",
    "vgpu_device_manager.config.data": "values have no such key",
    "mig_manager.gpu_clients_config.data": "needs a name",
    "dcgm_exporter.config.default": "has no meaning",
    "dcgm_exporter.hpc_job_mapping_directory": "needs hpc_job_mapping",
    "operator.service_monitor.enabled": "the operator ignores it",
    "gds.args": "the operator ignores it",
    "gdrcopy.args": "the operator ignores it",
    "gds.resources": "those of the driver apply",
    "gdrcopy.resources": "those of the driver apply",
    "gds.host_network": "the pod is the driver's",
    "gdrcopy.host_network": "the pod is the driver's",
}


def changed(policy: Any, path: str, value: Any) -> Any:
    """The same policy with another value at a dotted path."""
    head, _dot, rest = path.partition(".")
    return replace(policy, **{head: changed(getattr(policy, head), rest, value) if rest else value})


def operands_that_differ(before: Policy, after: Policy, facts: ClusterFacts = FACTS) -> set[str]:
    old = {operand.name: objects for operand, objects in build_by_operand(before, facts)}
    new = {operand.name: objects for operand, objects in build_by_operand(after, facts)}
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}


@pytest.mark.rows("S02", "COM-01", "COM-02", "COM-03", "COM-04", "COM-05", "COM-06", "COM-07", "COM-08", "L21")
@pytest.mark.parametrize("path", EFFECTS)
def test_one_change_touches_what_it_is_about_and_nothing_else(path: str) -> None:
    value, operands = EFFECTS[path]
    base = changed(BASE, "sandbox_workloads.mode", "kata") if path.startswith(("kata_", "cc_")) else BASE
    assert operands_that_differ(base, changed(base, path, value)) == operands


@pytest.mark.parametrize("path", [path for path in ELSEWHERE if path != "nfd"])
def test_keys_that_are_about_something_else_touch_no_operand(path: str) -> None:
    value: Any = None
    if path.endswith(("enabled", "host_network")):
        value = True
    elif path == "extra_objects":
        value = ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}},)
    elif path == "driver.upgrade_policy":
        value = replace(BASE.driver.upgrade_policy, max_unavailable="3")
    elif path.endswith("resources"):
        value = RESOURCES
    elif path.endswith("args"):
        value = ("--x",)
    elif path.endswith("data"):
        value = {"clients.yaml": "version: v1"}
    else:
        value = "something"
    assert operands_that_differ(BASE, changed(BASE, path, value)) == set()


@pytest.mark.parametrize(
    ("first", "then", "value", "operands"),
    [
        ({"driver.licensing.secret_name": ""}, "driver.licensing.config_map_name", "old-licence", {DRIVER}),
        ({"dcgm_exporter.hpc_job_mapping": True}, "dcgm_exporter.hpc_job_mapping_directory", "/jobs", {EXPORTER}),
        ({"mig_manager.gpu_clients_config.name": "c"}, "mig_manager.gpu_clients_config.data", {"a": ""}, {MIG}),
    ],
)  # fmt: skip
def test_keys_that_need_another_key(first: dict[str, Any], then: str, value: Any, operands: set[str]) -> None:
    before = BASE
    for path, needed in first.items():
        before = changed(before, path, needed)
    assert operands_that_differ(before, changed(before, then, value)) == operands


def leaves(value: Any, path: str = "") -> Iterator[str]:
    if is_dataclass(value) and path != "nfd" and path != "driver.upgrade_policy":
        for field in fields(value):
            yield from leaves(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)
    else:
        yield path


def test_every_key_of_the_model_is_in_one_of_the_two_tables() -> None:
    known = {*EFFECTS, *ELSEWHERE, "toolkit.args"}
    assert set(leaves(BASE)) == known
    assert not set(EFFECTS) & set(ELSEWHERE)
    assert {field.name for field in fields(Image)} == set(IMAGE)


@pytest.mark.rows("L22")
@pytest.mark.parametrize(
    ("path", "name", "operands"),
    [
        ("device_plugin.config", "sharing", WITH_CONFIG),
        ("dcgm_exporter.config", "metrics", {EXPORTER}),
        ("mig_manager.config", "layouts", {MIG}),
        ("mig_manager.gpu_clients_config", "clients", {MIG}),
        ("driver.kernel_module_config", "parameters", {DRIVER}),
        ("vgpu_device_manager.config", "vgpus", {VGPU_DEVICES}),
    ],
)
def test_a_changed_config_of_the_user_rolls_the_pods_that_read_it(path: str, name: str, operands: set[str]) -> None:
    policy = changed(BASE, path, name) if path.startswith("driver") else changed(BASE, f"{path}.name", name)
    if not path.startswith("driver"):
        policy = changed(policy, f"{path}.data", None)
    old = {
        operand.name: objects
        for operand, objects in build_by_operand(policy, replace(FACTS, config_hashes={f"ConfigMap/{name}": "1"}))
    }
    new = {
        operand.name: objects
        for operand, objects in build_by_operand(policy, replace(FACTS, config_hashes={f"ConfigMap/{name}": "2"}))
    }
    assert {key for key in old if old[key] != new[key]} == operands
