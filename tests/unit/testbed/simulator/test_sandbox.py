# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose GPUs are for virtual machines: what the programs of sandbox workloads do, and how each one fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.simulator import recorded, shell
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.node import NodeSpec
from ansible_collections.gpufleet.nvidia.tests.unit.testbed.simulator.lab import Lab
from ansible_collections.gpufleet.nvidia.tests.unit.testbed.simulator.sandbox import (
    DEPLOY,
    KATA,
    PASSTHROUGH,
    VGPU,
    Object,
    V,
    container,
    objects,
)

VALIDATOR, VFIO, PLUGIN = "nvidia-sandbox-validator", "nvidia-vfio-manager", "nvidia-sandbox-device-plugin-daemonset"
MANAGER, DEVICES = "nvidia-vgpu-manager-daemonset", "nvidia-vgpu-device-manager"
WORKLOAD = "nvidia.com/gpu.workload.config"
H100 = NodeSpec("gpu-0000", product="H100-SXM5-80GB", gpus=2)
CC = NodeSpec("gpu-0000", product="H100-SXM5-80GB", gpus=2, cc=True, labels=(("nvidia.com/cc.capable", "true"),))
A10 = NodeSpec("gpu-0000", product="A10", gpus=1, vgpu="mdev")
H100_RESOURCE = "nvidia.com/GH100_H100_SXM5_80GB"


def up(
    keys: tuple[str, ...],
    spec: NodeSpec = H100,
    workload: str = "",
    made: dict[str, Object] | None = None,
    seconds: float = 900.0,
    **faults: Any,
) -> Lab:
    lab = Lab(objects() if made is None else made, spec, {"nodes": {"*": faults}} if faults else {})
    lab.set_labels({DEPLOY + key: "true" for key in keys} | ({WORKLOAD: workload} if workload else {}))
    return lab.run(seconds, settled)


def settled(lab: Lab) -> bool:
    """Every DaemonSet of the node's labels has its pod, all are ready, and none is away for a change."""
    templates = {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in lab.kind("DaemonSet")}
    selectors = {name: template.get("nodeSelector") or {} for name, template in templates.items()}
    here = {f"{name}-x" for name, wanted in selectors.items() if wanted.items() <= lab.labels.items()}
    return lab.ready() and here <= set(lab.pods) and not any("paused" in value for value in lab.labels.values())


def files(lab: Lab) -> set[str]:
    return set(lab.node.fs.listing(V))


def drivers(lab: Lab) -> list[str]:
    return [gpu.driver for gpu in lab.node.gpus]


# -- passthrough


@pytest.mark.rows("VAL-09", "VAL-11")
def test_gpus_are_bound_found_and_offered_by_their_names_in_pci_ids() -> None:
    lab = up(PASSTHROUGH)
    assert lab.problems() == {}
    assert drivers(lab) == ["vfio-pci", "vfio-pci"]
    assert lab.allocatable == {H100_RESOURCE: "2"}
    assert files(lab) == {"workload-type", "vfio-pci-ready", "cc-manager-ready"}
    assert lab.node.fs.read(f"{V}/workload-type") == "vm-passthrough\n"


@pytest.mark.rows("VAL-09")
def test_grace_has_a_driver_of_its_own_which_the_check_knows_and_the_plugin_does_not() -> None:
    lab = up(PASSTHROUGH, NodeSpec("gpu-0000", product="GH200-96GB", gpus=1))
    assert (lab.problems(), drivers(lab), lab.allocatable) == ({}, ["nvgrace_gpu_vfio_pci"], {})


@pytest.mark.rows("VAL-09", "VAL-12", "SBX-01")
@pytest.mark.parametrize(
    ("label", "default", "found"),
    [
        ("", "container", "container"),
        ("", "vm-vgpu", "vm-vgpu"),
        ("", "", "vm-passthrough"),
        ("container", "vm-passthrough", "container"),
        ("vm-everything", "vm-vgpu", "vm-vgpu"),
    ],
)
def test_the_nodes_label_goes_before_the_default_of_the_validator(label: str, default: str, found: str) -> None:
    lab = up(("sandbox-validator",), A10, label, objects(workload=default), seconds=60)
    assert lab.node.fs.read(f"{V}/workload-type") == f"{found}\n"
    assert not {"vfio-pci-ready", "vgpu-manager-ready", "vgpu-devices-ready"} & files(lab)
    assert (lab.problems() == {}) is (found == "container")


@pytest.mark.rows("VAL-09")
@pytest.mark.parametrize(
    ("spec", "faults", "bound", "manager", "check"),
    [
        (H100, {"no_iommu": True}, ["", ""], "bind: invalid argument",
         "device not bound to 'vfio-pci'; device: 0000:17:00.0 driver: ''"),
        (NodeSpec("gpu-0000", product="T4", gpus=1, iommu=False), {}, [""], "bind: invalid argument", "driver: ''"),
        (H100, {"vfio_held": [1]}, ["vfio-pci", "nouveau"], "from nouveau: busy", "0000:18:00.0 driver: 'nouveau'"),
    ],
)  # fmt: skip
def test_a_gpu_that_is_not_bound_is_a_warning_of_the_manager_and_a_failure_of_the_check(
    spec: NodeSpec, faults: dict[str, Any], bound: list[str], manager: str, check: str
) -> None:
    # k8s-driver-manager leaves nouveau where it is held.
    lab = up(PASSTHROUGH, spec, seconds=200, **faults, **({"nouveau": True} if "vfio_held" in faults else {}))
    assert drivers(lab) == bound
    assert manager in lab.said
    assert set(lab.problems()) == {VALIDATOR, PLUGIN}
    assert check in lab.problems()[VALIDATOR]
    assert "waiting for /run/nvidia/validations/vfio-pci-ready" in lab.problems()[PLUGIN]
    status = lab.pods[f"{VALIDATOR}-x"]["status"]["initContainerStatuses"][1]
    assert (status["name"], status["restartCount"] > 0) == ("vfio-pci-validation", True)
    assert files(lab) == {"workload-type", "cc-manager-ready"}


@pytest.mark.rows("VAL-09")
def test_a_driver_of_the_host_keeps_the_vfio_manager_from_starting() -> None:
    lab = up(PASSTHROUGH, NodeSpec("gpu-0000", product="T4", gpus=1, host_driver="580.159.04"), seconds=300)
    assert VFIO in lab.problems()
    assert "already pre-installed on the node" in lab.said
    assert "driver: 'nvidia'" in lab.problems()[VALIDATOR]
    assert lab.labels[DEPLOY + "driver"] == "pre-installed"


@pytest.mark.rows("VAL-11")
def test_a_node_goes_from_containers_to_virtual_machines_and_back() -> None:
    lab = Lab(recorded.objects("default") | objects(), H100)
    lab.deploy_labels()
    lab.run()
    assert (lab.problems(), lab.allocatable, drivers(lab)) == ({}, {"nvidia.com/gpu": "2"}, ["nvidia"] * 2)
    container_keys = {key: value for key, value in lab.labels.items() if key.startswith(DEPLOY)}
    vm_keys = {DEPLOY + key: "true" for key in PASSTHROUGH}
    lab.set_labels({**dict.fromkeys(container_keys, None), **vm_keys})
    lab.run(until=settled)
    assert (lab.problems(), drivers(lab)) == ({}, ["vfio-pci"] * 2)
    # The kubelet keeps what an earlier plugin offered, and none of it can be had; for five minutes.
    assert lab.allocatable == {"nvidia.com/gpu": "0", H100_RESOURCE: "2"}
    assert lab.node_object["status"]["capacity"] == {"nvidia.com/gpu": "2", H100_RESOURCE: "2"}
    lab.run(330, lambda lab: False)
    assert lab.node_object["status"]["capacity"] == {"nvidia.com/gpu": "0", H100_RESOURCE: "2"}
    assert files(lab) == {"workload-type", "vfio-pci-ready", "cc-manager-ready"}
    lab.set_labels({**dict.fromkeys(vm_keys, None), **container_keys})
    lab.run(60)
    assert "workload-type" not in files(lab)
    lab.run()
    assert (lab.problems(), drivers(lab)) == ({}, ["nvidia"] * 2)
    assert lab.allocatable == {"nvidia.com/gpu": "2"}


@pytest.mark.rows("S48")
@pytest.mark.parametrize(("hook", "left"), [(True, ["", ""]), (False, ["vfio-pci", "vfio-pci"])])
def test_only_the_pre_stop_command_gives_gpus_back(hook: bool, left: list[str]) -> None:
    made = objects()
    if not hook:
        del container(made, VFIO, VFIO)["lifecycle"]
    lab = up(PASSTHROUGH, made=made)
    lab.set_labels({DEPLOY + "vfio-manager": None})
    lab.tick()
    assert drivers(lab) == left


def holder(resource: str) -> Object:
    """A pod of a user that holds one of a resource."""
    limits = {"limits": {resource: "1"}}
    return {
        "metadata": {"name": "holds", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "resources": limits}]},
        "status": {"phase": "Running"},
    }


@pytest.mark.rows("S48")
@pytest.mark.parametrize(("resource", "hurt"), [(H100_RESOURCE, ["default/holds"]), ("nvidia.com/gpu", [])])
def test_a_gpu_that_is_unbound_is_taken_from_the_machine_that_has_it(resource: str, hurt: list[str]) -> None:
    lab = up(PASSTHROUGH)
    assert lab.node.hurt == []
    lab.world.pods_on = lambda name: [*lab.pods.values(), holder(resource)]
    lab.set_labels({DEPLOY + "vfio-manager": None})
    lab.tick()
    assert lab.node.hurt == hurt


@pytest.mark.rows("S48")
def test_the_vfio_manager_does_not_take_gpus_from_containers() -> None:
    lab = Lab(recorded.objects("default") | objects(), H100)
    lab.deploy_labels()
    lab.run()
    lab.world.pods_on = lambda name: [*lab.pods.values(), holder("nvidia.com/gpu")]
    keys = [key for key in lab.labels if key.startswith(DEPLOY)]
    lab.set_labels({**dict.fromkeys(keys, None), **{DEPLOY + key: "true" for key in PASSTHROUGH}})
    lab.run(300)
    assert drivers(lab) == ["nvidia"] * 2
    assert "GPU is in use by default/holds, and eviction and drain are off" in lab.said


@pytest.mark.rows("S48")
def test_the_driver_manager_takes_gpus_back_that_nobody_gave_back() -> None:
    made = objects()
    del container(made, VFIO, VFIO)["lifecycle"]
    lab = Lab(recorded.objects("default") | made, H100)
    lab.set_labels({DEPLOY + key: "true" for key in PASSTHROUGH})
    lab.run(until=settled)
    lab.set_labels(dict.fromkeys((DEPLOY + key for key in PASSTHROUGH), None))
    lab.tick()
    assert drivers(lab) == ["vfio-pci"] * 2
    lab.deploy_labels()
    lab.run(until=settled)
    assert (lab.problems(), drivers(lab)) == ({}, ["nvidia"] * 2)


def test_a_gpu_that_vfio_has_is_none_that_containers_see() -> None:
    spec = replace(H100, host_driver="580.159.04", host_toolkit=True, drivers=("nvidia", "vfio-pci"))
    lab = Lab(recorded.objects("preinstalled-driver"), spec)
    lab.deploy_labels()
    lab.run(until=settled)
    assert (drivers(lab), lab.allocatable) == (["nvidia", "vfio-pci"], {"nvidia.com/gpu": "1"})
    assert lab.labels["nvidia.com/gpu.count"] == "1"


@pytest.mark.rows("VAL-11")
def test_the_sandbox_validator_takes_all_status_files_along_but_those_with_a_dot() -> None:
    lab = up(KATA, CC)
    lab.set_labels({DEPLOY + "sandbox-validator": None})
    lab.tick()
    assert files(lab) == {".cc-manager-ctr-ready"}
    lab.set_labels({DEPLOY + "cc-manager": None})
    lab.tick()
    assert files(lab) == set()


# -- virtual GPUs


@pytest.mark.rows("VAL-09", "SBX-03")
@pytest.mark.parametrize(
    ("product", "resource"), [("A10", "nvidia.com/NVIDIA_A10-12Q"), ("T4", "nvidia.com/GRID_T4-8Q")]
)
def test_virtual_gpus_of_the_default_configuration_are_made_and_offered(product: str, resource: str) -> None:
    lab = up(VGPU, NodeSpec("gpu-0000", product=product, gpus=1, vgpu="mdev"), "vm-vgpu")
    assert lab.problems() == {}
    assert lab.allocatable == {resource: "2"}
    assert files(lab) == {"workload-type", "vgpu-manager-ready", "vgpu-devices-ready", "cc-manager-ready"}
    assert lab.labels["nvidia.com/vgpu.config.state"] == "success"
    assert lab.labels[DEPLOY + "sandbox-device-plugin"] == "true"
    assert drivers(lab) == ["nvidia"]


@pytest.mark.rows("SBX-03")
def test_the_label_of_a_node_makes_other_virtual_gpus_while_the_clients_are_away() -> None:
    lab = up(VGPU, A10, "vm-vgpu")
    lab.set_labels({"nvidia.com/vgpu.config": "A10-4Q"})
    lab.run(seconds=60, until=lambda lab: lab.labels["nvidia.com/vgpu.config.state"] == "pending")
    assert lab.labels[DEPLOY + "sandbox-device-plugin"] == "paused-for-vgpu-change"
    lab.run(until=lambda lab: lab.labels["nvidia.com/vgpu.config.state"] == "success")
    lab.run(until=settled)
    assert lab.problems() == {}
    assert lab.allocatable == {"nvidia.com/NVIDIA_A10-12Q": "0", "nvidia.com/NVIDIA_A10-4Q": "6"}
    assert {f"{PLUGIN}-x", f"{VALIDATOR}-x"} <= set(lab.deleted)


@pytest.mark.rows("SBX-03", "VAL-09")
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("A10-99Q", "selected vgpu-config not present: A10-99Q"),
        ("too-many", "failed to create 7 A10-4Q vGPU devices"),
    ],
)
def test_virtual_gpus_that_cannot_be_made_fail_in_the_label_and_are_waited_for(config: str, words: str) -> None:
    lab = Lab(objects(), A10)
    labels = {DEPLOY + key: "true" for key in VGPU} | {WORKLOAD: "vm-vgpu", "nvidia.com/vgpu.config": config}
    lab.set_labels(labels)
    lab.run(400, settled)
    assert words in lab.said
    assert lab.labels["nvidia.com/vgpu.config.state"] == "failed"
    assert set(lab.problems()) == {VALIDATOR, PLUGIN}
    assert "No vGPU devices found" in lab.problems()[VALIDATOR]


@pytest.mark.rows("VAL-09")
@pytest.mark.parametrize(
    ("spec", "faults"),
    [(NodeSpec("gpu-0000", product="A10", gpus=1), {}), (A10, {"no_vfs": True})],
)
def test_a_gpu_without_virtual_functions_fails_the_managers_check_after_five_minutes(
    spec: NodeSpec, faults: dict[str, Any]
) -> None:
    lab = up(VGPU, spec, "vm-vgpu", seconds=300, **faults)
    assert "found 0 mdev parent devices" in lab.problems()[VALIDATOR]
    lab.run(200)
    assert "vGPU Manager parent devices not ready" in lab.said
    assert "vgpu-manager-ready" not in files(lab)
    assert "host-vgpu-manager-ready" in lab.problems()[DEVICES]


@pytest.mark.rows("VAL-09", "SBX-01")
def test_a_check_that_waits_does_not_hear_of_another_workload() -> None:
    lab = up(VGPU, replace(A10, vgpu="vfio"), "vm-vgpu", seconds=200)
    lab.set_labels({WORKLOAD: "container"})
    lab.run(100)
    assert "No vGPU devices found" in lab.problems()[VALIDATOR]
    assert lab.node.fs.read(f"{V}/workload-type") == "vm-vgpu\n"


@pytest.mark.rows("VAL-09")
def test_virtual_gpus_of_the_sr_iov_kind_are_made_and_never_seen_by_the_check() -> None:
    lab = up(VGPU, NodeSpec("gpu-0000", product="A10", gpus=1, vgpu="vfio"), "vm-vgpu", seconds=400)
    assert lab.node.gpus[0].vgpus == ["A10-12Q", "A10-12Q"]
    assert "No vGPU devices found" in lab.problems()[VALIDATOR]


@pytest.mark.rows("L36", "VAL-09", "COM-07")
@pytest.mark.parametrize(("mounted", "well"), [("/opt/driver", True), ("/run/nvidia/driver", False)])
def test_the_host_driver_is_looked_for_in_the_root_that_is_mounted(mounted: str, well: bool) -> None:
    spec = replace(A10, host_driver="595.91.03", driver_folder="/opt/driver")
    keys = tuple(key for key in VGPU if key != "vgpu-manager")
    lab = up(keys, spec, "vm-vgpu", objects(root=mounted), seconds=400)
    assert (lab.problems() == {}) is well
    if not well:
        assert "failed to run command 'nvidia-smi'" in lab.problems()[VALIDATOR]


@pytest.mark.rows("VAL-11")
def test_a_host_driver_in_its_usual_place_is_told_by_another_file() -> None:
    spec = replace(A10, host_driver="595.91.03")
    lab = up(tuple(key for key in VGPU if key != "vgpu-manager"), spec, "vm-vgpu")
    assert lab.problems() == {}
    assert "host-vgpu-manager-ready" in files(lab)
    assert "vgpu-manager-ready" not in files(lab)


# -- Kata and confidential computing


@pytest.mark.rows("VAL-10", "VAL-11", "SBX-05")
def test_kata_offers_every_gpu_under_one_name_after_the_mode_is_set() -> None:
    lab = up(KATA, CC)
    assert lab.problems() == {}
    assert lab.allocatable == {"nvidia.com/pgpu": "2"}
    assert [gpu.cc for gpu in lab.node.gpus] == ["on", "on"]
    assert lab.labels["nvidia.com/cc.mode.state"] == "on"
    assert lab.labels["nvidia.com/cc.ready.state"] == "true"
    assert {".cc-manager-ctr-ready", "cc-manager-ready", "vfio-pci-ready"} <= files(lab)


@pytest.mark.rows("SBX-05")
def test_the_label_changes_the_mode_while_the_clients_are_away() -> None:
    lab = up(KATA, CC)
    lab.set_labels({"nvidia.com/cc.mode": "devtools"})
    lab.run(120, until=lambda lab: lab.labels["nvidia.com/cc.mode.state"] == "devtools")
    lab.run(until=settled)
    assert (lab.problems(), [gpu.cc for gpu in lab.node.gpus]) == ({}, ["devtools", "devtools"])
    assert f"{VALIDATOR}-x" in lab.deleted
    assert {key: lab.labels[DEPLOY + key] for key in KATA} == dict.fromkeys(KATA, "true")


def test_other_names_of_kata_gpus() -> None:
    made = objects()
    env = container(made, "nvidia-kata-sandbox-device-plugin-daemonset", "nvidia-kata-sandbox-device-plugin-ctr")["env"]
    env.append({"name": "P_GPU_ALIAS", "value": ""})
    assert up(KATA, made=made).allocatable == {H100_RESOURCE: "2"}
    env[-1]["value"] = "vmgpu"
    assert up(KATA, made=made).allocatable == {"nvidia.com/vmgpu": "2"}


@pytest.mark.rows("VAL-10")
@pytest.mark.parametrize(
    ("spec", "keys", "faults", "where", "words"),
    [
        (CC, tuple(k for k in KATA if k != "cc-manager"), {}, VALIDATOR, ".cc-manager-ctr-ready': No such file"),
        (NodeSpec("gpu-0000", product="A10", gpus=1, cc=True), KATA, {}, "nvidia-cc-manager",
         "Some GPUs are not cc-capable: {'0000:17:00.0'}"),
        (CC, KATA, {"crash": {"nvidia-cc-manager": "Failed to read node labels: Forbidden"}}, "nvidia-cc-manager",
         "Forbidden"),
    ],
)  # fmt: skip
def test_a_manager_that_is_missing_or_fails_is_what_the_check_waits_for(
    spec: NodeSpec, keys: tuple[str, ...], faults: dict[str, Any], where: str, words: str
) -> None:
    lab = up(keys, spec, seconds=200, **faults)
    assert words in lab.problems()[where]
    if spec is CC:
        assert "cc-manager-ready" not in files(lab)


@pytest.mark.rows("SBX-05")
def test_a_mode_that_the_gpus_refuse_shows_in_the_label_alone() -> None:
    lab = up(KATA, CC, cc_fails=True)
    assert (lab.problems(), lab.labels["nvidia.com/cc.mode.state"]) == ({}, "failed")
    assert [gpu.cc for gpu in lab.node.gpus] == ["off", "off"]


# -- what each container needs


def _lacks(key: str, path: str) -> Callable[[Object], None]:
    def change(one: Object) -> None:
        left = [item for item in one[key] if path not in (item.get("mountPath"), item.get("name"))]
        assert len(left) < len(one[key])
        one[key] = left

    return change


def _user(one: Object) -> None:
    del one["securityContext"]["runAsUser"]


def _plain(one: Object) -> None:
    one["securityContext"]["privileged"] = False


@pytest.mark.rows("VAL-09", "VAL-10", "VAL-11")
@pytest.mark.parametrize(
    ("daemonset", "name", "change", "words"),
    [
        (VALIDATOR, "vfio-pci-validation", _user, "runAsUser 0 is needed"),
        (VALIDATOR, "vfio-pci-validation", _plain, "not privileged"),
        (VALIDATOR, "vfio-pci-validation", _lacks("volumeMounts", V), "the status file must reach the host"),
        (VALIDATOR, "vfio-pci-validation", _lacks("env", "NODE_NAME"), "NODE_NAME is not set"),
        (VALIDATOR, "vfio-pci-validation", _lacks("env", "COMPONENT"), "invalid -c <component-name>"),
        (VALIDATOR, "vgpu-manager-validation", _lacks("volumeMounts", "/host"), "host's driver cannot be looked for"),
        (VALIDATOR, "vgpu-manager-validation", _lacks("volumeMounts", "/run/nvidia/driver"), "driver's root cannot"),
        (MANAGER, "nvidia-vgpu-manager-ctr", _lacks("volumeMounts", "/dev/vfio"), "/dev/vfio: no such file"),
        (MANAGER, "nvidia-vgpu-manager-ctr", _lacks("volumeMounts", "/run/nvidia"), "driver's root must reach"),
        (DEVICES, DEVICES, _lacks("env", "DEFAULT_VGPU_CONFIG"), "invalid <default-vgpu-config> flag"),
        (DEVICES, DEVICES, _lacks("volumeMounts", "/vgpu-config"), "/vgpu-config/config.yaml: no such file"),
        (PLUGIN, "nvidia-sandbox-device-plugin-ctr", _lacks("volumeMounts", "/dev/vfio"), "/dev/vfio: no such file"),
        (PLUGIN, "nvidia-sandbox-device-plugin-ctr", _lacks("volumeMounts", "/var/lib/kubelet/device-plugins"),
         "kubelet.sock"),
    ],
)  # fmt: skip
def test_a_container_that_lacks_something_says_what(
    daemonset: str, name: str, change: Callable[[Object], None], words: str
) -> None:
    made = objects()
    change(container(made, daemonset, name))
    lab = up(VGPU, A10, "vm-vgpu", made, seconds=200)
    assert words in lab.problems()[daemonset]


@pytest.mark.rows("S48")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_lacks("volumeMounts", "/lib/modules"), "modules.alias: no such file"),
        (_lacks("volumeMounts", "/host"), 'failed to load "vfio_pci" driver'),
        (_lacks("volumeMounts", "/sys"), "driver_override: read-only"),
        (_plain, "driver_override: read-only"),
    ],
)
def test_a_vfio_manager_that_lacks_something_runs_and_binds_nothing(
    change: Callable[[Object], None], words: str
) -> None:
    made = objects()
    change(container(made, VFIO, VFIO))
    lab = up(PASSTHROUGH, made=made, seconds=120)
    assert words in lab.said
    assert VFIO not in lab.problems()
    assert set(drivers(lab)) == {""}


@pytest.mark.parametrize(("verb", "daemonset"), [("get", VALIDATOR), ("update", DEVICES), ("watch", DEVICES)])
def test_missing_rights_are_the_servers_words(verb: str, daemonset: str) -> None:
    made = objects()
    made["ClusterRole/sandbox"]["rules"][0]["verbs"].remove(verb)
    if verb == "get":  # the driver manager comes first; here the validator alone
        lab = up(("sandbox-validator",), A10, "vm-vgpu", made, seconds=60)
    else:
        lab = up(VGPU, A10, "vm-vgpu", made, seconds=300)
    assert f'cannot {verb} resource "nodes"' in lab.problems()[daemonset]


# -- shell text


def test_steps_of_scripts_that_wait_by_what_a_file_says() -> None:
    text = """until [ -f /v/kind ]; do sleep 5; done
    if [ "$(cat /v/kind)" != "vm-vgpu" ]; then echo no; exit 0; fi
    until [ -f /v/a ] || [ -f /v/b ]; do sleep 5; done
    while [ ! -e /v/c ] || [ ! -e /v/d ]; do sleep 5; done"""
    assert shell.read(text).steps == (
        shell.Step(("/v/kind",)),
        shell.Step(("/v/kind",), "vm-vgpu", equal=False),
        shell.Step(("/v/a", "/v/b")),
        shell.Step(("/v/c",)),
        shell.Step(("/v/d",)),
    )
    text = """cd /v || exit 1; echo "not until there is one"
    read -r kind < /v/kind || :
    [ "$kind" = vm-vgpu ] || exit 0
    until [ -e a ] || [ -e b ]; do echo "waiting until they do"; sleep 5; done"""
    assert shell.read(text).steps == (shell.Step(("/v/kind",), "vm-vgpu", equal=False), shell.Step(("/v/a", "/v/b")))
    assert shell.read('read k < /f; [ "$k" = a ] && exit 0').steps == (shell.Step(("/f",), "a"),)
    assert shell.read("/bin/rm -f /v/.x").removes == ("/v/.x",)
