# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose GPUs are for virtual machines: their labels, and that none is moved under what uses its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._change import LabelChange
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._keys import (
    CONTAINER_KEYS,
    DEPLOY,
    OTHER_KEYS,
    serves,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._labels import plan_labels
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._mig_guard import ANY_DEVICE, busy_pods
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._workload import served_now
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import NodeFacts
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import policy_of

CONFIG = "nvidia.com/gpu.workload.config"
UPGRADE = "nvidia.com/gpu-driver-upgrade-enabled"
GPU = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/mig.capable": "true",
}
VGPU = {"enabled": True, "repository": "registry.example.com", "version": "580.1"}
VALIDATOR = ("sandbox-validator", "cc-manager", "client")
PASSTHROUGH = {DEPLOY + key for key in (*VALIDATOR, "sandbox-device-plugin", "vfio-manager")}
KATA = {DEPLOY + key for key in (*VALIDATOR, "kata-sandbox-device-plugin", "vfio-manager")}
VGPUS = {DEPLOY + key for key in (*VALIDATOR, "sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager")}
CONTAINERS = {*CONTAINER_KEYS, DEPLOY + "mig-manager"}


def planned(
    labels: Mapping[str, str], sandbox: Mapping[str, Any] | None = None, values: Any = None, **more: Any
) -> LabelChange:
    policy = policy_of({**(values or {}), "sandboxWorkloads": {"enabled": True, **(sandbox or {})}})
    notes = more.pop("annotations", {})
    return plan_labels(policy, NodeFacts("gpu-0", {**GPU, **labels}, notes), **more)


def served(labels: Mapping[str, str], *args: Any, **more: Any) -> set[str]:
    """Deploy labels that are true on a node after a run."""
    after, _notes = planned(labels, *args, **more).applied(NodeFacts("gpu-0", {**GPU, **labels}))
    return {key for key, value in after.items() if key.startswith(DEPLOY) and value == "true"}


def on(keys: set[str]) -> dict[str, str]:
    return dict.fromkeys(keys, "true")


@pytest.mark.rows("S48", "SBX-01", "NL-04", "NL-05")
@pytest.mark.parametrize(
    ("label", "sandbox", "keys"),
    [
        ("", {}, CONTAINERS),
        ("", {"defaultWorkload": "vm-passthrough"}, PASSTHROUGH),
        ("", {"defaultWorkload": "vm-vgpu"}, VGPUS),
        ("", {"defaultWorkload": "vm-passthrough", "mode": "kata"}, KATA),
        ("container", {"defaultWorkload": "vm-vgpu"}, CONTAINERS),
        ("vm-passthrough", {}, PASSTHROUGH),
        ("vm-passthrough", {"mode": "kata"}, KATA),
        ("vm-vgpu", {}, VGPUS),
        ("vm-vgpu", {"enabled": False}, CONTAINERS),
        ("vm-passthrough", {"enabled": False}, CONTAINERS),
    ],
)
@pytest.mark.parametrize("before", [CONTAINERS, PASSTHROUGH, KATA, VGPUS, set()], ids=len)
def test_a_node_has_the_operands_of_its_workload_and_no_others(
    label: str, sandbox: Any, keys: set[str], before: set[str]
) -> None:
    labels = {**on(before), **({CONFIG: label} if label else {})}
    assert served(labels, sandbox) == keys


@pytest.mark.rows("SBX-01", "NL-05")
@pytest.mark.parametrize(
    ("label", "sandbox", "words"),
    [
        ("vm", {}, ["'vm'", "container, vm-passthrough, vm-vgpu", "container is used"]),
        ("vm", {"defaultWorkload": "vm-vgpu"}, ["vm-vgpu is used"]),
        ("vm-vgpu", {"mode": "kata"}, ["whole GPUs only", "container is used"]),
        ("vm-vgpu", {"enabled": False}, ["sandboxWorkloads.enabled is false", "container is used"]),
    ],
)
def test_a_workload_that_a_node_cannot_have_is_told(label: str, sandbox: Any, words: list[str]) -> None:
    (finding,) = planned({CONFIG: label}, sandbox).findings
    assert (finding.id, finding.severity, finding.target) == ("nodes.workload-config", "warning", "gpu-0")
    assert all(word in finding.detail for word in [CONFIG, label, *words])
    assert finding.remedy


@pytest.mark.rows("NL-07", "SBX-01")
def test_drivers_are_upgraded_where_containers_are_served() -> None:
    assert planned({}).annotations_set[UPGRADE] == "true"
    change = planned({CONFIG: "vm-passthrough"}, annotations={UPGRADE: "true"})
    assert UPGRADE in change.annotations_remove


@pytest.mark.rows("MIG-03", "SBX-01")
def test_the_mig_manager_leaves_a_node_of_virtual_machines() -> None:
    change = planned({**on(CONTAINERS), CONFIG: "vm-passthrough"})
    assert DEPLOY + "mig-manager" in change.remove
    assert "nvidia.com/mig.config" not in change.set


def pod(name: str, resource: str, node: str = "gpu-0", namespace: str = "team", phase: str = "Running") -> Any:
    spec = {"nodeName": node, "containers": [{"resources": {"limits": {resource: "1"}}}]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": {"phase": phase}}


@pytest.mark.rows("S48", "SBX-01")
@pytest.mark.parametrize(
    ("before", "label", "sandbox"),
    [
        (CONTAINERS, "vm-passthrough", {}),
        (CONTAINERS, "vm-vgpu", {}),
        (CONTAINERS, "", {"defaultWorkload": "vm-passthrough"}),
        (PASSTHROUGH, "container", {}),
        (PASSTHROUGH, "vm-vgpu", {}),
        (VGPUS, "vm-passthrough", {}),
        (VGPUS, "", {"enabled": False}),
        (KATA, "container", {"mode": "kata"}),
    ],
)
def test_a_node_keeps_its_workload_while_pods_hold_its_gpus(before: set[str], label: str, sandbox: Any) -> None:
    labels = {**on(before), **({CONFIG: label} if label else {})}
    resource = "nvidia.com/gpu" if before is CONTAINERS else "nvidia.com/GH100_H200_SXM5_141GB"
    pods = [pod("virt-launcher-a", resource), pod("virt-launcher-b", resource)]
    held = {"busy": busy_pods(pods).get("gpu-0", ()), "machines": busy_pods(pods, "", ANY_DEVICE)["gpu-0"]}
    change = planned(labels, sandbox, **held)
    gone = {key for key in change.remove if key.startswith(DEPLOY)}
    if "kata" in str(sandbox) or sandbox.get("enabled", True):
        assert gone == set()
    assert served(labels, sandbox, **held) == before
    (finding,) = [f for f in change.findings if f.id == "nodes.workload-busy"]
    assert (finding.severity, finding.target) == ("warning", "gpu-0")
    assert "2 pods hold its GPUs (team/virt-launcher-a, team/virt-launcher-b)" in finding.detail
    assert "End these pods" in finding.remedy
    # Once they are gone it moves.
    assert served(labels, sandbox) != before


@pytest.mark.rows("SBX-01")
def test_pods_that_hold_no_gpu_of_the_node_do_not_keep_it() -> None:
    pods = [
        pod("done", "nvidia.com/gpu", phase="Succeeded"),
        pod("elsewhere", "nvidia.com/gpu", node="gpu-1"),
        pod("operand", "nvidia.com/gpu", namespace="gpu-operator"),
        pod("network", "example.com/nic"),
    ]
    assert "gpu-0" not in busy_pods(pods, "gpu-operator", ANY_DEVICE)
    # A network card's resource of NVIDIA holds no GPU of containers.
    held = {"machines": ["team/network"]}
    assert served({**on(CONTAINERS), CONFIG: "vm-passthrough"}, **held) == PASSTHROUGH


@pytest.mark.rows("S48", "DRV-14")
def test_a_driver_of_the_host_keeps_a_node_from_virtual_machines() -> None:
    labels = {CONFIG: "vm-passthrough", **on(PASSTHROUGH), DEPLOY + "driver": "pre-installed"}
    change = planned(labels)
    (finding,) = [f for f in change.findings if f.id == "nodes.workload-driver"]
    assert "cannot serve vm-passthrough: a driver is installed on its host" in finding.detail
    assert finding.target == "gpu-0"
    assert served(labels) == CONTAINERS - {DEPLOY + "driver"}
    # The mark stays, so that the next run finds the node as this one left it.
    after, notes = change.applied(NodeFacts("gpu-0", {**GPU, **labels}))
    assert not planned(after, annotations=notes)
    assert "nodes.workload-driver" in [f.id for f in planned(after, annotations=notes).findings]
    # Who binds the GPUs to VFIO on the host needs no operand for that.
    assert served(labels, values={"vfioManager": {"enabled": False}}) == PASSTHROUGH
    vgpu = {**labels, CONFIG: "vm-vgpu"}
    assert served(vgpu, values={"vgpuManager": VGPU}) == CONTAINERS - {DEPLOY + "driver"}
    assert served(vgpu) == VGPUS


@pytest.mark.rows("SBX-01", "NL-03")
def test_what_a_person_set_for_an_operand_comes_back_with_its_workload() -> None:
    labels = {**on(CONTAINERS), DEPLOY + "dcgm": "false", CONFIG: "vm-passthrough"}
    moved, notes = planned(labels).applied(NodeFacts("gpu-0", {**GPU, **labels}))
    assert DEPLOY + "dcgm" not in moved
    moved[CONFIG] = "container"
    back, _notes = planned(moved, annotations=notes).applied(NodeFacts("gpu-0", moved, notes))
    assert back[DEPLOY + "dcgm"] == "false"
    assert not {key for key in OTHER_KEYS if key in back}


@pytest.mark.rows("P099", "S48")
def test_a_node_that_hides_gpus_serves_containers() -> None:
    """The VFIO manager and the vGPU manager take all GPUs of a node, those too that its host needs."""
    labels = {CONFIG: "vm-passthrough", **on(PASSTHROUGH)}
    (finding,) = [f for f in planned(labels, hides=True).findings if f.id == "nodes.workload-hidden"]
    assert finding.detail.startswith("hides GPUs, and cannot serve vm-passthrough")
    assert served(labels, hides=True) == {*CONTAINER_KEYS}
    # Machines that run there keep what they have.
    assert served(labels, hides=True, machines=["team/machine"]) == PASSTHROUGH


@pytest.mark.rows("S48", "SBX-03", "SBX-05")
@pytest.mark.parametrize("pause", ["paused-for-mig-change", "paused-for-vgpu-change", "paused-for-cc-mode-change"])
def test_a_plugin_that_a_manager_paused_is_still_to_serve_the_node(pause: str) -> None:
    plugin = DEPLOY + "sandbox-device-plugin"
    assert serves({plugin: pause}, plugin)
    assert not serves({plugin: "paused-by-a-person"}, plugin)
    # It is no value of a person, which would be kept for when the workload comes back.
    labels = {CONFIG: "container", **on(PASSTHROUGH), plugin: pause}
    after, notes = planned(labels).applied(NodeFacts("gpu-0", {**GPU, **labels}))
    assert plugin not in after
    back, _notes = planned({**after, CONFIG: "vm-passthrough"}, annotations=notes).applied(
        NodeFacts("gpu-0", {**after, CONFIG: "vm-passthrough"}, notes)
    )
    assert back[plugin] == "true"


@pytest.mark.rows("S48", "SBX-01")
@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize("key", ["sandbox-validator", "vgpu-manager", "vfio-manager"])
@pytest.mark.parametrize("sandbox", [{}, {"enabled": False}])
def test_a_label_of_a_person_does_not_make_a_node_serve_machines(sandbox: Any, key: str, value: str) -> None:
    """It serves what most of its deploy labels say: training goes on where one of the others was set by hand."""
    labels = {**on(CONTAINERS), DEPLOY + key: value}
    after, _notes = planned(labels, sandbox, busy=["team/training"]).applied(NodeFacts("gpu-0", {**GPU, **labels}))
    assert {name for name in CONTAINERS if after.get(name) == "true"} == CONTAINERS
    assert served_now(labels) == "container"


@pytest.mark.rows("S48", "SBX-01")
@pytest.mark.parametrize("value", ["", "false"])
@pytest.mark.parametrize(
    ("workload", "keys"), [("vm-passthrough", PASSTHROUGH), ("vm-passthrough", KATA), ("vm-vgpu", VGPUS)], ids=range(3)
)
def test_a_node_of_machines_is_held_whatever_label_a_person_takes_away(
    workload: str, keys: set[str], value: str
) -> None:
    for key in sorted(keys):
        labels = {CONFIG: "container", **on(keys), key: value}
        assert served_now(labels) == workload
        change = planned(labels, {"mode": "kata"} if keys == KATA else {}, machines=["team/machine"])
        assert [one.id for one in change.findings] == ["nodes.workload-busy"]
        after, _notes = change.applied(NodeFacts("gpu-0", {**GPU, **labels}))
        assert keys - {key} <= {name for name, now in after.items() if now == "true"}
        assert not set(after) & {DEPLOY + "driver", DEPLOY + "device-plugin"}


@pytest.mark.rows("S48", "NL-05", "P130")
@pytest.mark.parametrize(
    ("labels", "more", "reason"),
    [
        ({"nvidia.com/gpu.deploy.operands": "false"}, {}, "nvidia.com/gpu.deploy.operands is false"),
        ({}, {"no_gpu": True}, "the node has no GPU"),
    ],
)
def test_operands_of_machines_stay_while_machines_run(labels: Any, more: Any, reason: str) -> None:
    """The VFIO manager takes GPUs from machines as it ends: whatever says that no operand is to run there waits."""
    labels = {**labels, CONFIG: "vm-passthrough", **on(PASSTHROUGH)}
    change = planned(labels, machines=["team/machine"], **more)
    (finding,) = [one for one in change.findings if one.id == "nodes.workload-busy"]
    assert f"keeps the operands of vm-passthrough, though {reason}" in finding.detail
    assert "team/machine" in finding.detail
    after, _notes = change.applied(NodeFacts("gpu-0", {**GPU, **labels}))
    assert {key for key in PASSTHROUGH if after.get(key) == "true"} == PASSTHROUGH
    assert served(labels, **more) == set()
    # Containers' operands go, as they always did.
    containers = {**labels, CONFIG: "container", **dict.fromkeys(PASSTHROUGH, ""), **on(CONTAINERS)}
    assert served(containers, busy=["team/training"], machines=["team/training"], **more) == set()


@pytest.mark.rows("SBX-01")
def test_operands_that_are_kept_away_serve_nothing() -> None:
    assert served_now({DEPLOY + "sandbox-validator": "false", DEPLOY + "vfio-manager": ""}) == ""
    assert served_now({DEPLOY + "sandbox-validator": "false", DEPLOY + "device-plugin": "paused-for-mig-change"}) == (
        "container"
    )
