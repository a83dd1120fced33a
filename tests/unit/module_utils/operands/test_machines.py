# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operands that give the GPUs of nodes to virtual machines."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import problems
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._scripts import (
    WAIT_FOR_VFIO,
    WAIT_FOR_VGPU_DEVICES,
    WAIT_FOR_VGPU_MANAGER,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
    cluster,
    container_of,
    env_of,
    mounts_of,
    node,
    objects_of,
    pod_of,
    policy_of,
    volume_of,
)

CONFIG = "nvidia.com/gpu.workload.config"
VGPU = {"enabled": True, "repository": "registry.example.com", "version": "580.1", "imagePullSecrets": ["mine"]}
VALIDATOR, VFIO, CC = "nvidia-sandbox-validator", "nvidia-vfio-manager", "nvidia-cc-manager"
VGPU_MANAGER, VGPU_DEVICES = "nvidia-vgpu-manager-daemonset", "nvidia-vgpu-device-manager"
KUBEVIRT, KATA = "nvidia-sandbox-device-plugin-daemonset", "nvidia-kata-sandbox-device-plugin-daemonset"
ALWAYS = {VALIDATOR, VFIO, VGPU_DEVICES}


def policy(mode: str = "kubevirt", **values: Any) -> Any:
    sandbox = {"enabled": True, "mode": mode, **values.pop("sandboxWorkloads", {})}
    return policy_of({"vgpuManager": VGPU if mode == "kubevirt" else {}, **values, "sandboxWorkloads": sandbox})


def daemonset(name: str, one: Any = None, facts: ClusterFacts | None = None) -> Any:
    return objects_of(one or policy(), facts)[f"DaemonSet/{name}"]


def names(one: Any) -> set[str]:
    found = {made.split("/")[1] for made in objects_of(one) if made.startswith("DaemonSet/")}
    return found & {*ALWAYS, CC, VGPU_MANAGER, KUBEVIRT, KATA}


@pytest.mark.rows("S48", "SBX-01", "ST-13", "ST-14", "ST-15", "ST-16", "ST-17", "ST-18", "SBX-05")
@pytest.mark.parametrize(
    ("one", "found"),
    [
        (policy_of(), set()),
        (policy_of({"vgpuManager": VGPU}), set()),
        (policy(), ALWAYS | {VGPU_MANAGER, KUBEVIRT}),
        (policy(vgpuManager={"enabled": False}), ALWAYS | {KUBEVIRT}),
        (policy("kata"), ALWAYS | {KATA, CC}),
        (policy("kata", ccManager={"enabled": False}), ALWAYS | {KATA}),
        (policy("kata", kataSandboxDevicePlugin={"enabled": False}), ALWAYS | {CC}),
        (policy(vfioManager={"enabled": False}), {VALIDATOR, VGPU_DEVICES, VGPU_MANAGER, KUBEVIRT}),
        (policy(vgpuDeviceManager={"enabled": False}), {VALIDATOR, VFIO, VGPU_MANAGER, KUBEVIRT}),
    ],
)  # fmt: skip
def test_what_runs_is_what_the_policy_wants(one: Any, found: set[str]) -> None:
    assert names(one) == found


@pytest.mark.rows("ST-13", "ST-14", "ST-15", "ST-16", "ST-17", "ST-18", "SBX-05")
@pytest.mark.parametrize(
    ("mode", "name", "key"),
    [
        ("kubevirt", VGPU_MANAGER, "vgpu-manager"),
        ("kubevirt", VGPU_DEVICES, "vgpu-device-manager"),
        ("kubevirt", VALIDATOR, "sandbox-validator"),
        ("kubevirt", VFIO, "vfio-manager"),
        ("kubevirt", KUBEVIRT, "sandbox-device-plugin"),
        ("kata", KATA, "kata-sandbox-device-plugin"),
        ("kata", CC, "cc-manager"),
    ],
)
def test_each_runs_where_its_label_asks_for_it_with_an_account_of_its_own(mode: str, name: str, key: str) -> None:
    objects = objects_of(policy(mode))
    spec = objects[f"DaemonSet/{name}"]["spec"]["template"]["spec"]
    assert spec["nodeSelector"][f"nvidia.com/gpu.deploy.{key}"] == "true"
    account = spec["serviceAccountName"]
    assert f"ServiceAccount/{account}" in objects
    assert f"ClusterRole/{account}" in objects
    groups = {
        group
        for kind in ("Role", "ClusterRole")
        for rule in objects.get(f"{kind}/{account}", {}).get("rules", [])
        for group in rule["apiGroups"]
    }
    assert not {group for group in groups if "openshift" in group}
    assert "runtimeClassName" not in spec, "nothing of NVIDIA's runtime is on such a node"


def rights(one: Any, account: str, kind: str) -> dict[str, set[str]]:
    found = objects_of(one).get(f"{kind}/{account}", {"rules": []})["rules"]
    return {resource: set(rule["verbs"]) for rule in found for resource in rule["resources"]}


@pytest.mark.rows("S42", "ST-13", "ST-14", "ST-15", "ST-16", "ST-17", "ST-18")
@pytest.mark.parametrize(
    ("mode", "account", "role", "wide"),
    [
        ("kubevirt", "nvidia-vgpu-manager", {},
         {"nodes": "get list patch watch", "pods": "get list watch", "pods/eviction": "create", "daemonsets": "get"}),
        ("kubevirt", VGPU_DEVICES, {"pods": "get list watch"}, {"nodes": "get list watch update"}),
        ("kubevirt", VALIDATOR, {}, {"nodes": "get"}),
        ("kubevirt", VFIO, {},
         {"nodes": "get list patch watch", "pods": "get list watch", "pods/eviction": "create"}),
        ("kubevirt", "nvidia-sandbox-device-plugin",
         {"pods": "create get list watch delete", "nodefeatures": "create get list watch update"},
         {"nodes": "get", "pods": "get"}),
        ("kata", "nvidia-kata-sandbox-device-plugin",
         {"pods": "create get list watch delete", "nodefeatures": "create get list watch update"},
         {"nodes": "get", "pods": "get"}),
        ("kata", CC, {"pods": "get list watch"}, {"nodes": "get list patch watch"}),
    ],
)  # fmt: skip
def test_each_may_do_what_it_needs_and_no_more(mode: str, account: str, role: Any, wide: Any) -> None:
    one = policy(mode)
    for kind, wanted in (("Role", role), ("ClusterRole", wide)):
        assert rights(one, account, kind) == {resource: set(verbs.split()) for resource, verbs in wanted.items()}


@pytest.mark.rows("VAL-09", "VAL-10", "ST-15")
def test_the_sandbox_validator_tries_what_machines_need_in_turn() -> None:
    chain = ["vfio-pci-validation", "vgpu-manager-validation", "vgpu-devices-validation"]
    plain, kata = pod_of(policy(), VALIDATOR), pod_of(policy("kata"), VALIDATOR)
    assert [c["name"] for c in plain["initContainers"]] == chain
    assert [c["name"] for c in kata["initContainers"]] == ["cc-manager-validation", *chain]
    without = pod_of(policy("kata", ccManager={"enabled": False}), VALIDATOR)
    assert [c["name"] for c in without["initContainers"]] == chain
    for item in kata["initContainers"]:
        told = env_of(item)
        assert told["COMPONENT"] == item["name"][: -len("-validation")]
        assert told["DEFAULT_GPU_WORKLOAD_CONFIG"] == "container"
        assert item["securityContext"]["privileged"] is True
        assert item["securityContext"]["runAsUser"] == 0
        assert any(e["name"] == "NODE_NAME" and "valueFrom" in e for e in item["env"])
        assert mounts_of(item)["/run/nvidia/validations"]["mountPropagation"] == "Bidirectional"
    assert "/host" in mounts_of(container_of(kata, "vfio-pci-validation"))
    default = policy(sandboxWorkloads={"defaultWorkload": "vm-passthrough"})
    check = container_of(pod_of(default, VALIDATOR), "vfio-pci-validation")
    assert env_of(check)["DEFAULT_GPU_WORKLOAD_CONFIG"] == "vm-passthrough"


@pytest.mark.rows("VAL-11", "ST-15")
def test_results_go_when_the_sandbox_validator_goes() -> None:
    main = container_of(pod_of(policy(), VALIDATOR), VALIDATOR)
    assert main["lifecycle"]["preStop"]["exec"]["command"][-1] == "rm -f /run/nvidia/validations/*"


@pytest.mark.rows("L36", "VAL-09", "COM-07")
def test_the_sandbox_validator_looks_where_the_driver_is() -> None:
    for values, folder in (({}, "/run/nvidia/driver"), ({"hostPaths": {"driverInstallDir": "/opt/drv"}}, "/opt/drv")):
        pod = pod_of(policy(**values), VALIDATOR)
        check = container_of(pod, "vgpu-manager-validation")
        at = mounts_of(check)["/run/nvidia/driver"]
        assert volume_of(pod, at["name"])["hostPath"]["path"] == folder


@pytest.mark.rows("VAL-12", "VAL-09")
@pytest.mark.parametrize("part", ["vfioPCI", "vgpuManager", "vgpuDevices"])
def test_env_of_a_check_of_machines_reaches_it_alone(part: str) -> None:
    one = policy("kata", validator={part: {"env": [{"name": "SLEEP_INTERVAL_SECONDS", "value": "9"}]}})
    pod = pod_of(one, VALIDATOR)
    told = [c["name"] for c in pod["initContainers"] if env_of(c).get("SLEEP_INTERVAL_SECONDS") == "9"]
    checks = {"vfioPCI": "vfio-pci", "vgpuManager": "vgpu-manager", "vgpuDevices": "vgpu-devices"}
    assert told == [f"{checks[part]}-validation"]


@pytest.mark.rows("ST-16")
def test_the_vfio_manager_binds_gpus_and_unbinds_them_when_it_goes() -> None:
    made = daemonset(VFIO)
    assert made["spec"]["selector"]["matchLabels"] == {"name": VFIO}
    pod = made["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 30
    main = container_of(pod, VFIO)
    assert main["args"][0].startswith("vfio-manage bind --all || exit 1\n")
    assert main["lifecycle"]["preStop"]["exec"]["command"][-1] == "vfio-manage unbind --all"
    assert env_of(main) == {"HOST_ROOT": "/host"}
    assert {"/sys", "/lib/modules", "/host"} == set(mounts_of(main))
    assert main["resources"] == {"limits": {"memory": "200Mi"}, "requests": {"cpu": "100m", "memory": "200Mi"}}
    moved = container_of(pod_of(policy(hostPaths={"rootFS": "/real"}), VFIO), VFIO)
    assert env_of(moved) == {"HOST_ROOT": "/host"}, "it is where the container has it"
    own = policy(vfioManager={"resources": {"limits": {"cpu": "1"}}, "args": ["x"], "driverManager": {"version": "v9"}})
    pod = pod_of(own, VFIO)
    assert container_of(pod, VFIO)["resources"] == {"limits": {"cpu": "1"}}
    assert container_of(pod, VFIO)["args"] == ["x"]
    manager = container_of(pod, "k8s-driver-manager")
    assert manager["image"].endswith("k8s-driver-manager:v9")
    assert manager["resources"] == {"limits": {"cpu": "1"}}


@pytest.mark.rows("ST-13", "ST-16")
@pytest.mark.parametrize("name", [VGPU_MANAGER, VFIO])
def test_a_driver_is_unloaded_first_and_nobodys_pods_are_evicted_for_that(name: str) -> None:
    manager = container_of(pod_of(policy(), name), "k8s-driver-manager")
    assert (manager["command"], manager["args"]) == (["driver-manager"], ["uninstall_driver"])
    assert env_of(manager)["ENABLE_GPU_POD_EVICTION"] == "false"
    driver = container_of(pod_of(policy(), "nvidia-driver-daemonset"), "k8s-driver-manager")
    assert env_of(driver)["ENABLE_GPU_POD_EVICTION"] == "true"


@pytest.mark.rows("S48", "ST-13", "ST-16")
def test_what_machines_stand_on_is_not_rolled_under_them() -> None:
    kinds = {name: daemonset(name)["spec"]["updateStrategy"]["type"] for name in (*ALWAYS, VGPU_MANAGER, KUBEVIRT)}
    assert {name for name, kind in kinds.items() if kind == "OnDelete"} == {VFIO, VGPU_MANAGER, VGPU_DEVICES}
    assert daemonset(CC, policy("kata"))["spec"]["updateStrategy"]["type"] == "OnDelete"


@pytest.mark.rows("ST-13", "IMG-02")
def test_the_vgpu_manager_is_the_image_of_its_user_for_the_system_of_the_nodes() -> None:
    pod = pod_of(policy(), VGPU_MANAGER)
    main = container_of(pod, "nvidia-vgpu-manager-ctr")
    assert main["image"] == "registry.example.com/vgpu-manager:580.1-ubuntu24.04"
    assert (main["command"], main["args"]) == (["nvidia-driver"], ["init"])
    assert pod["imagePullSecrets"] == [{"name": "mine"}]
    assert (pod["hostPID"], pod["hostIPC"], pod["terminationGracePeriodSeconds"]) == (True, True, 120)
    assert mounts_of(main)["/run/nvidia"]["mountPropagation"] == "Bidirectional"
    assert {"/dev/vfio", "/sys/fs/cgroup", "/lib/firmware", "/host-etc/os-release", "/dev/log"} <= set(mounts_of(main))
    digest = policy(vgpuManager={**VGPU, "version": "sha256:" + "a" * 64})
    assert container_of(pod_of(digest, VGPU_MANAGER), "nvidia-vgpu-manager-ctr")["image"].endswith("a" * 64)


@pytest.mark.rows("ST-13")
def test_parameters_of_kernel_modules_reach_the_vgpu_manager() -> None:
    one = policy(vgpuManager={**VGPU, "kernelModuleConfig": {"name": "parameters"}})
    missing = [f.path for f in problems(one, cluster()) if f.id == "config-missing"]
    assert missing == ["vgpuManager.kernelModuleConfig.name"]
    facts = cluster(config_keys={"ConfigMap/parameters": ("nvidia.conf",)})
    main = container_of(pod_of(one, VGPU_MANAGER, facts), "nvidia-vgpu-manager-ctr")
    assert "/drivers/nvidia.conf" in mounts_of(main)


@pytest.mark.rows("ST-13", "S48")
def test_the_vgpu_manager_serves_one_operating_system() -> None:
    def of(**labels: str) -> Any:
        nodes = [node("a", labels={CONFIG: labels["a"]}), node("b", version="22.04", labels={CONFIG: labels["b"]})]
        return cluster(*nodes)

    def image(facts: ClusterFacts) -> str:
        return str(container_of(pod_of(policy(), VGPU_MANAGER, facts), "nvidia-vgpu-manager-ctr")["image"])

    assert image(of(a="vm-vgpu", b="container")).endswith("-ubuntu24.04")
    assert image(of(a="container", b="vm-vgpu")).endswith("-ubuntu22.04")
    # A node that has vGPUs still counts, whatever is wanted of it.
    facts = of(a="container", b="container")
    held = {"nvidia.com/gpu.deploy.vgpu-manager": "true"}
    assert image(cluster(facts.nodes[0], node("b", version="22.04", labels=held))).endswith("-ubuntu22.04")
    assert f"DaemonSet/{VGPU_MANAGER}" not in objects_of(policy(), facts)
    assert not [f for f in problems(policy(), facts) if f.path == "vgpuManager"]
    (finding,) = [f for f in problems(policy(), of(a="vm-vgpu", b="vm-vgpu")) if f.path == "vgpuManager"]
    assert (finding.severity, finding.id) == ("error", "vgpu-os-mixed")
    assert "ubuntu22.04 and ubuntu24.04" in finding.detail
    unknown = cluster(node("a", "", "", labels={CONFIG: "vm-vgpu"}))
    assert [f.severity for f in problems(policy(), unknown) if f.path == "vgpuManager"] == ["warning"]


@pytest.mark.rows("ST-14", "SBX-03")
def test_vgpus_come_from_the_default_set_or_from_a_config_of_the_user() -> None:
    made = objects_of(policy())["ConfigMap/default-vgpu-devices-config"]
    sets = yaml.safe_load(made["data"]["config.yaml"])
    assert sets["version"] == "v1"
    entries = sets["vgpu-configs"]["default"]
    assert len(entries) == 56
    assert {"device-filter": "0x233010DE", "devices": "all", "vgpu-devices": {"H100XM-40C": 2}} in entries
    assert {"device-filter": "0x234210DE", "devices": "all", "vgpu-devices": {"GH200-96C": 1}} in entries
    main = container_of(pod_of(policy(), VGPU_DEVICES), VGPU_DEVICES)
    assert env_of(main) == {"CONFIG_FILE": "/vgpu-config/config.yaml", "DEFAULT_VGPU_CONFIG": "default"}
    assert {"/vgpu-config", "/sys", "/host", "/driver-root"} == set(mounts_of(main))
    given = {"config": {"name": "mine", "default": "A10-4C"}, "env": [{"name": "DEFAULT_VGPU_CONFIG", "value": "x"}]}
    own = policy(vgpuDeviceManager=given)
    assert "ConfigMap/default-vgpu-devices-config" not in objects_of(own)
    pod = pod_of(own, VGPU_DEVICES)
    assert volume_of(pod, "vgpu-config")["configMap"]["name"] == "mine"
    assert env_of(container_of(pod, VGPU_DEVICES))["DEFAULT_VGPU_CONFIG"] == "A10-4C"
    found = {f.id: f for f in problems(own, cluster())}
    assert found["config-missing"].path == "vgpuDeviceManager.config.name"
    assert found["env-overridden"].path == "vgpuDeviceManager.env"
    there = cluster(config_keys={"ConfigMap/mine": ("config.yaml",)})
    assert "config-missing" not in {f.id for f in problems(own, there)}


@pytest.mark.rows("ST-17", "ST-18", "COM-08")
def test_plugins_of_machines_have_the_sockets_of_the_kubelet() -> None:
    pod = pod_of(policy(hostPaths={"kubeletRootDir": "/data/kubelet"}), KUBEVIRT)
    main = container_of(pod, "nvidia-sandbox-device-plugin-ctr")
    assert set(mounts_of(main)) == {"/var/lib/kubelet/device-plugins", "/dev/vfio", "/var/run/cdi"}
    assert volume_of(pod, "device-plugin")["hostPath"]["path"] == "/data/kubelet/device-plugins"
    assert {e["name"] for e in main["env"]} == {"NODE_NAME", "POD_NAMESPACE"}
    kata = pod_of(policy("kata"), KATA)
    main = container_of(kata, "nvidia-kata-sandbox-device-plugin-ctr")
    assert set(mounts_of(main)) == {"/var/lib/kubelet/device-plugins", "/var/run/cdi"}
    assert {e["name"] for e in main["env"]} == {"NODE_NAME", "POD_NAMESPACE", "POD_SERVICE_ACCOUNT"}
    assert [c["name"] for c in kata["initContainers"]] == ["vfio-pci-validation"]
    assert [c["name"] for c in pod["initContainers"]] == ["vfio-pci-validation", "vgpu-devices-validation"]


@pytest.mark.rows("SBX-05")
def test_the_mode_of_confidential_computing_is_that_of_the_policy() -> None:
    for mode in ("on", "off", "devtools"):
        pod = pod_of(policy("kata", ccManager={"defaultMode": mode}), CC)
        main = container_of(pod, CC)
        assert env_of(main) == {"NVIDIA_VISIBLE_DEVICES": "void", "DEFAULT_CC_MODE": mode}
    assert pod["nodeSelector"]["nvidia.com/cc.capable"] == "true"
    assert pod["terminationGracePeriodSeconds"] == 30
    assert main["lifecycle"]["preStop"]["exec"]["command"][-1] == "/run/nvidia/validations/.cc-manager-ctr-ready"
    assert set(mounts_of(main)) == {"/sys", "/run/nvidia"}


@pytest.mark.rows("ST-17", "ST-18", "ST-14")
@pytest.mark.parametrize(
    ("script", "files", "passes"),
    [
        (WAIT_FOR_VFIO, {"workload-type": "vm-vgpu"}, True),
        (WAIT_FOR_VFIO, {"workload-type": "vm-passthrough\n", "vfio-pci-ready": ""}, True),
        (WAIT_FOR_VFIO, {"workload-type": "vm-passthrough"}, False),
        (WAIT_FOR_VFIO, {"vfio-pci-ready": ""}, False),
        (WAIT_FOR_VGPU_DEVICES, {"workload-type": "vm-passthrough"}, True),
        (WAIT_FOR_VGPU_DEVICES, {"workload-type": "vm-vgpu", "vgpu-devices-ready": ""}, True),
        (WAIT_FOR_VGPU_DEVICES, {"workload-type": "vm-vgpu"}, False),
        (WAIT_FOR_VGPU_MANAGER, {"vgpu-manager-ready": ""}, True),
        (WAIT_FOR_VGPU_MANAGER, {"host-vgpu-manager-ready": ""}, True),
        (WAIT_FOR_VGPU_MANAGER, {}, False),
    ],
)
def test_a_pod_waits_for_what_its_node_needs(tmp_path: Path, script: str, files: dict[str, str], passes: bool) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    text = script.replace("/run/nvidia/validations", str(tmp_path)).replace("sleep 5", "exit 7")
    ended = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
    assert ended.returncode == (0 if passes else 7), ended.stderr
    assert passes or "waiting until" in ended.stdout
