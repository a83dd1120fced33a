# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our objects for virtual machines, on a node that is simulated in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _nfd
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
    cluster,
    container_of,
    env_of,
    node,
    objects_of,
    pod_of,
    policy_of,
)
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.node import NodeSpec
from ansible_collections.gpufleet.nvidia.tests.unit.testbed.simulator.lab import Lab
from ansible_collections.gpufleet.nvidia.tests.unit.testbed.simulator.sandbox import (
    DEPLOY,
    KATA,
    PASSTHROUGH,
    VGPU,
    V,
)

WORKLOAD = "nvidia.com/gpu.workload.config"
VALIDATOR, DEVICES = "nvidia-sandbox-validator", "nvidia-vgpu-device-manager"
ON = {"enabled": True}
MANAGER = {**ON, "repository": "registry.example.com/nvidia", "image": "vgpu-manager", "version": "595.91.03"}
KUBEVIRT = {
    "sandboxWorkloads": {**ON, "defaultWorkload": "vm-passthrough"}, "vfioManager": ON, "sandboxDevicePlugin": ON,
    "vgpuManager": MANAGER, "vgpuDeviceManager": ON,
}  # fmt: skip
BY_KATA = {
    "sandboxWorkloads": {**ON, "defaultWorkload": "vm-passthrough", "mode": "kata"}, "vfioManager": ON,
    "kataSandboxDevicePlugin": ON, "ccManager": ON,
}  # fmt: skip
H100 = NodeSpec("gpu-0000", product="H100-SXM5-80GB", gpus=2)
CC = replace(H100, cc=True, labels=(("nvidia.com/cc.capable", "true"),))
A10 = NodeSpec("gpu-0000", product="A10", gpus=1, vgpu="mdev", labels=((WORKLOAD, "vm-vgpu"),))
OWN = replace(A10, host_driver="595.91.03", driver_folder="/opt/driver")
OWN_KEYS = tuple(key for key in VGPU if key != "vgpu-manager")


def up(values: dict[str, Any], keys: tuple[str, ...], spec: NodeSpec = H100, seconds: float = 900.0) -> Lab:
    """A node with what our policy makes, after it has had time to come up."""
    policy, facts = policy_of(values), cluster(node(spec.name, labels=dict(spec.labels)))
    nfd = {f"{made['kind']}/{made['metadata']['name']}": made for made in _nfd.build(policy, facts)}
    lab = Lab({**objects_of(policy, facts), **nfd}, spec)
    lab.set_labels({DEPLOY + key: "true" for key in keys} | {"nvidia.com/gpu.present": "true"})
    return lab.run(seconds, lambda lab: lab.time > seconds / 2 and lab.ready())


@pytest.mark.rows("ST-15", "ST-16", "ST-17", "VAL-09", "VAL-11", "S48")
def test_whole_gpus_come_up() -> None:
    lab = up(KUBEVIRT, PASSTHROUGH)
    assert (lab.problems(), lab.allocatable) == ({}, {"nvidia.com/GH100_H100_SXM5_80GB": "2"})
    assert set(lab.node.fs.listing(V)) == {"workload-type", "vfio-pci-ready"}
    lab.set_labels(dict.fromkeys((DEPLOY + key for key in PASSTHROUGH), None))
    lab.tick()
    assert (lab.node.fs.listing(V), {gpu.driver for gpu in lab.node.gpus}) == ([], {""})


@pytest.mark.rows("ST-13", "ST-14", "ST-15", "ST-17", "VAL-09", "S48")
@pytest.mark.parametrize(("product", "resource"), [("A10", "NVIDIA_A10-12Q"), ("T4", "GRID_T4-8Q")])
def test_vgpus_of_the_default_set_come_up(product: str, resource: str) -> None:
    lab = up(KUBEVIRT, VGPU, replace(A10, product=product))
    assert (lab.problems(), lab.allocatable) == ({}, {f"nvidia.com/{resource}": "2"})
    assert set(lab.node.fs.listing(V)) == {"workload-type", "vgpu-manager-ready", "vgpu-devices-ready"}


@pytest.mark.rows("ST-15", "ST-16", "ST-18", "ST-20", "VAL-10", "SBX-05", "S48")
def test_kata_comes_up_with_the_mode_of_the_policy() -> None:
    lab = up({**BY_KATA, "ccManager": {**ON, "defaultMode": "devtools"}}, KATA, CC)
    assert (lab.problems(), lab.allocatable) == ({}, {"nvidia.com/pgpu": "2"})
    assert [gpu.cc for gpu in lab.node.gpus] == ["devtools", "devtools"]
    assert "cc-manager-ready" in lab.node.fs.listing(V)


@pytest.mark.rows("L36", "COM-07", "VAL-09", "ST-15")
def test_the_driver_folder_reaches_the_sandbox_validator() -> None:
    values = {**KUBEVIRT, "vgpuManager": {"enabled": False}}
    well = up({**values, "hostPaths": {"driverInstallDir": "/opt/driver"}}, OWN_KEYS, OWN)
    assert (well.problems(), well.allocatable) == ({}, {"nvidia.com/NVIDIA_A10-12Q": "2"})
    lost = up(values, OWN_KEYS, OWN, seconds=300)
    assert "failed to run command 'nvidia-smi'" in lost.problems()[VALIDATOR]
    assert "host-vgpu-manager-ready" in lost.problems()[DEVICES]


@pytest.mark.rows("VAL-12", "COM-15", "VAL-09")
@pytest.mark.parametrize(("part", "key"), [("vfio-pci", "vfioPCI"), ("vgpu-manager", "vgpuManager"),
                                           ("vgpu-devices", "vgpuDevices")])  # fmt: skip
def test_variables_reach_the_check_that_they_are_for_and_no_other(part: str, key: str) -> None:
    values = {**KUBEVIRT, "validator": {key: {"env": [{"name": "WITH_WAIT", "value": "false"}]}}}
    pod = pod_of(policy_of(values), VALIDATOR)
    said = {one["name"]: env_of(one)["WITH_WAIT"] for one in pod["initContainers"]}
    assert said == {
        name: "false" if name == f"{part}-validation" else "true"
        for name in ("vfio-pci-validation", "vgpu-manager-validation", "vgpu-devices-validation")
    }


@pytest.mark.rows("VAL-12", "VAL-09")
def test_a_check_that_may_not_wait_ends_instead() -> None:
    values = {**KUBEVIRT, "vgpuDeviceManager": {"enabled": False}}
    waits = up(values, VGPU, A10, seconds=300)
    assert waits.problems()[VALIDATOR] == ("vgpu-devices-validation: No vGPU devices found, retrying after 5 seconds")
    env = {"vgpuDevices": {"env": [{"name": "WITH_WAIT", "value": "false"}]}}
    ends = up({**values, "validator": env}, VGPU, A10, seconds=300)
    assert "Error: error validating vGPU devices: no vGPU devices found" in ends.problems()[VALIDATOR]
    # Nor does a variable of one check change what another one finds the node to be for.
    other = {"vfioPCI": {"env": [{"name": "DEFAULT_GPU_WORKLOAD_CONFIG", "value": "container"}]}}
    lab = up({**KUBEVIRT, "validator": other}, ("sandbox-validator",))
    assert lab.problems() == {}
    assert lab.node.fs.read(f"{V}/workload-type") == "vm-passthrough\n"


@pytest.mark.rows("VAL-10", "SBX-01")
def test_nothing_waits_for_a_manager_that_is_off() -> None:
    lab = up({**BY_KATA, "ccManager": {"enabled": False}}, KATA, CC)
    assert (lab.problems(), lab.allocatable) == ({}, {"nvidia.com/pgpu": "2"})
    assert container_of(pod_of(policy_of(BY_KATA), VALIDATOR), "cc-manager-validation")
    assert "cc-manager-ready" not in lab.node.fs.listing(V)
