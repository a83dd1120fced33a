# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a node whose GPUs are for virtual machines is ready, and what is said when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._trial import choose
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._gate import prove
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._labels import plan_labels
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._stage import gaps_of, offers, row, stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import build
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import NodeFacts
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import cluster, policy_of

from .test_stage import SEEN, pod

H200 = "nvidia.com/GH100_H200_SXM5_141GB"
VALUES = {
    "sandboxWorkloads": {"enabled": True},
    "vgpuManager": {"enabled": True, "repository": "registry.example.com", "version": "580.1"},
}
POLICIES = {
    mode: policy_of({**VALUES, "sandboxWorkloads": {"enabled": True, "mode": mode}}) for mode in ("kubevirt", "kata")
}
DAEMONSETS = {
    mode: [made for made in build(policy, cluster()) if made["kind"] == "DaemonSet"]
    for mode, policy in POLICIES.items()
}
VALIDATOR, PLUGIN = "nvidia-sandbox-validator", "nvidia-sandbox-device-plugin-daemonset"
DEVICES = "nvidia-vgpu-device-manager"
PASSTHROUGH = ("nvidia-vfio-manager", VALIDATOR, PLUGIN)
VGPU = ("nvidia-vgpu-manager-daemonset", DEVICES, VALIDATOR, PLUGIN)
KATA = ("nvidia-vfio-manager", "nvidia-cc-manager", VALIDATOR, "nvidia-kata-sandbox-device-plugin-daemonset")
TITLES = {
    "nvidia-vfio-manager": "VFIO manager",
    "nvidia-vgpu-manager-daemonset": "vGPU manager",
    "nvidia-cc-manager": "confidential computing manager",
    DEVICES: "vGPU device manager",
    VALIDATOR: "sandbox validator",
    PLUGIN: "sandbox device plugin",
    "nvidia-kata-sandbox-device-plugin-daemonset": "Kata device plugin",
}


def node(workload: str, mode: str = "kubevirt", offered: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    # What GPU feature discovery said while the node served containers stays for a moment.
    told = {
        "nvidia.com/gpu.count": "8",
        "nvidia.com/mig.config": "all-1g.10gb",
        "nvidia.com/mig.config.state": "failed",
    }
    labels = {**SEEN, **told, "nvidia.com/gpu.workload.config": workload, "nvidia.com/cc.capable": "true"}
    planned, _notes = plan_labels(POLICIES[mode], NodeFacts("n", labels)).applied(NodeFacts("n", labels))
    status = {"allocatable": offered or {}, "conditions": [{"type": "Ready", "status": "True"}], **more}
    return {"metadata": {"name": "n", "labels": planned}, "status": status}


@pytest.mark.rows("S48", "SBX-01", "S01")
@pytest.mark.parametrize(
    ("workload", "mode", "apps", "resource"),
    [
        ("vm-passthrough", "kubevirt", PASSTHROUGH, H200),
        ("vm-vgpu", "kubevirt", VGPU, "nvidia.com/NVIDIA_H100-40C"),
        ("vm-passthrough", "kata", KATA, "nvidia.com/pgpu"),
    ],
)
def test_a_node_is_ready_once_its_operands_are_and_it_offers_gpus(
    workload: str, mode: str, apps: tuple[str, ...], resource: str
) -> None:
    pods = [pod(app) for app in apps]
    ready = node(workload, mode, {resource: "8", "nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"})
    assert stage(ready, pods, DAEMONSETS[mode]).ready
    assert offers(ready) == {resource: 8}
    for number, app in enumerate(apps):
        at = stage(ready, pods[:number], DAEMONSETS[mode])
        assert (at.stuck, at.failed, at.ready) == (TITLES[app], False, False)
    for none in ({}, {resource: "0"}, {"nvidia.com/gpu": "8"}):
        at = stage(node(workload, mode, none), pods, DAEMONSETS[mode])
        assert (at.stuck, at.failed, at.ready) == (TITLES[apps[-1]], True, False)
        assert "the node offers no GPU" in at.sentence


@pytest.mark.rows("S48", "S01")
def test_a_gpu_that_fell_ill_is_seen_without_knowing_how_many_there_are() -> None:
    assert gaps_of(node("vm-passthrough", offered={H200: "7"}, capacity={H200: "8"})) == [f"offers 7 of 8 {H200}"]
    assert gaps_of(node("vm-passthrough", offered={H200: "3"}, capacity={H200: "3"})) == []
    assert gaps_of(node("vm-passthrough")) == ["offers no GPU to virtual machines"]


def checking(container: str, **state: Any) -> dict[str, Any]:
    entry = {"name": container, "image": "i:1", "state": state or {"running": {}}, "restartCount": 5 if state else 0}
    if state:
        entry["lastState"] = {"terminated": {"exitCode": 1, "message": "error: GPU 0000:3b:00.0 is not ready"}}
    return pod(VALIDATOR, False, initContainerStatuses=[entry])


@pytest.mark.rows("S48", "VAL-09", "VAL-10", "S28")
@pytest.mark.parametrize(
    ("workload", "mode", "container", "words"),
    [
        ("vm-passthrough", "kubevirt", "vfio-pci", ["not bound to vfio-pci", "IOMMU", "VFIO manager's pod"]),
        ("vm-vgpu", "kubevirt", "vgpu-manager", ["vGPU manager does not work", "SR-IOV"]),
        ("vm-vgpu", "kubevirt", "vgpu-devices", ["no vGPUs on the node", "nvidia.com/vgpu.config"]),
        ("vm-passthrough", "kata", "cc-manager", ["confidential computing mode", "nvidia-cc-manager"]),
    ],
)
def test_a_check_that_fails_or_never_ends_says_what_it_means_and_what_to_do(
    workload: str, mode: str, container: str, words: list[str]
) -> None:
    name = f"{container}-validation"
    one = node(workload, mode)
    managers = [pod(app) for app in TITLES if app not in (VALIDATOR, PLUGIN, DEVICES)]
    # The vGPU device manager waits for the validator's word, so it is not what stands in the way.
    waiting = pod(DEVICES, False, initContainerStatuses=[{"name": "vgpu-manager-validation", "state": {"running": {}}}])
    devices = [] if mode == "kata" else [pod(DEVICES) if container == "vgpu-devices" else waiting]
    failing = checking(name, waiting={"reason": "CrashLoopBackOff"})
    for validator, said in ((failing, "error: GPU 0000:3b:00.0"), (checking(name), f"still in {name}")):
        at = stage(one, [*managers, *devices, validator], DAEMONSETS[mode])
        assert (at.stuck, at.failed) == ("sandbox validator", True)
        assert at.sentence.startswith("sandbox validator failed: ")
        assert all(word in at.sentence for word in [*words, said])


@pytest.mark.rows("S48", "ST-14")
def test_a_vgpu_device_manager_that_is_broken_is_named_before_what_waits_for_it() -> None:
    waits = {"reason": "ImagePullBackOff", "message": "not found"}
    broken = pod(DEVICES, False, containerStatuses=[{"name": DEVICES, "image": "i:1", "state": {"waiting": waits}}])
    pods = [pod("nvidia-vgpu-manager-daemonset"), broken, checking("vgpu-devices-validation")]
    assert stage(node("vm-vgpu"), pods, DAEMONSETS["kubevirt"]).stuck == "vGPU device manager"
    # It alone is late: nothing else tells why.
    slow = pod(DEVICES, False, initContainerStatuses=[{"name": "vgpu-manager-validation", "state": {"running": {}}}])
    others = [pod(app) for app in VGPU if app != DEVICES]
    at = stage(node("vm-vgpu", offered={H200: "1"}), [*others, slow], DAEMONSETS["kubevirt"])
    assert (at.stuck, at.failed, at.ready) == ("vGPU device manager", False, False)


@pytest.mark.rows("S39", "S48")
def test_the_row_of_a_node_says_what_it_serves() -> None:
    one = dict(node("vm-passthrough", offered={H200: "8"}), pciGpus={"2335": 8})
    shown = row(one, [pod(app) for app in PASSTHROUGH], DAEMONSETS["kubevirt"])
    assert {key: shown[key] for key in ("workload", "gpus", "mig", "allocatable", "units", "ready", "stage")} == {
        "workload": "vm-passthrough",
        "gpus": 8,
        "mig": "",
        "allocatable": {H200: 8},
        "units": 8,
        "ready": True,
        "stage": "ready",
    }


@pytest.mark.rows("P128", "S48")
def test_a_node_is_opened_by_the_sandbox_validator_too() -> None:
    assert prove([pod(VALIDATOR)], []).validated == ["n"]


@pytest.mark.rows("S39", "S48")
def test_no_cuda_program_is_tried_on_gpus_of_virtual_machines() -> None:
    assert choose([node("vm-passthrough", offered={H200: "8"})], {}) == ([], [])
    assert [trial.resource for trial in choose([node("container", offered={"nvidia.com/gpu": "8"})], {})[0]] == [
        "nvidia.com/gpu"
    ]


@pytest.mark.rows("S48", "VAL-09", "S64")
@pytest.mark.parametrize(
    ("ready", "failed"),
    [("2026-01-01T00:02:00Z", False), ("2026-01-01T00:01:30Z", False), ("2026-01-01T00:01:29Z", True), ("", True)],
)
def test_a_check_that_failed_before_its_manager_was_ready_is_tried_again(ready: str, failed: bool) -> None:
    """The kubelet waits longer and longer between tries: none that came too early says that a node is broken."""
    validator = checking("vfio-pci-validation", waiting={"reason": "CrashLoopBackOff"})
    validator["status"]["initContainerStatuses"][0]["lastState"]["terminated"]["finishedAt"] = "2026-01-01T00:01:30Z"
    manager = pod("nvidia-vfio-manager")
    for condition in manager["status"]["conditions"]:
        condition["lastTransitionTime"] = ready
    at = stage(node("vm-passthrough"), [manager, validator], DAEMONSETS["kubevirt"])
    assert (at.stuck, at.failed, at.ready) == ("sandbox validator", failed, False)
    assert ("is tried again by the kubelet" in at.sentence) is not failed
