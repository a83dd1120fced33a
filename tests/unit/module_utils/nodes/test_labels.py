# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which labels and annotations put the operands on a node, by the rules of the GPU Operator."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._change import POLICY_MEMORY, LabelChange
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._keys import CONTAINER_KEYS, OTHER_KEYS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._labels import mig_capable, plan_labels
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import NodeFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._model import Policy
from ansible_collections.gpufleet.nvidia.tests.helpers import operands

GPU = {"feature.node.kubernetes.io/pci-10de.present": "true", "feature.node.kubernetes.io/kernel-version.full": "6.8"}
H100 = {**GPU, "nvidia.com/mig.capable": "true", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
DEPLOY = "nvidia.com/gpu.deploy."
# The chart leaves out an empty text, so that the default is used: only a ClusterPolicy can say that there is none.
SPEC = {
    key: {}
    for key in (
        "daemonsets",
        "dcgm",
        "dcgmExporter",
        "devicePlugin",
        "driver",
        "gfd",
        "nodeStatusExporter",
        "operator",
        "toolkit",
    )
}
UPGRADE = "nvidia.com/gpu-driver-upgrade-enabled"


@cache
def policy(values: str) -> Policy:
    return operands.policy_of(values)


def planned(labels: dict[str, str], values: Any = None, **more: Any) -> LabelChange:
    return plan_labels(policy(json.dumps(values)), NodeFacts("gpu-0", labels, more.pop("annotations", {})), **more)


def after(labels: dict[str, str], values: Any = None, **more: Any) -> tuple[dict[str, str], dict[str, str]]:
    node = NodeFacts("gpu-0", labels, more.get("annotations", {}))
    found, notes = planned(labels, values, **more).applied(node)
    return found, {key: value for key, value in notes.items() if key != POLICY_MEMORY}


def severities(change: LabelChange) -> list[tuple[str, str]]:
    return [(finding.id, finding.severity) for finding in change.findings]


@pytest.mark.rows("NL-01", "NL-02", "NL-07", "MIG-03")
@pytest.mark.parametrize("name", operands.VALUES_FILES)
@pytest.mark.parametrize("node", ["gpu-0000", "gpu-0001"])
def test_a_node_ends_with_the_labels_that_the_operator_gave_it(name: str, node: str) -> None:
    recorded = json.loads((operands.FACTS / f"{name}.json").read_text())[f"Node/{node}"]
    wanted = {key.removeprefix("labels."): value for key, value in recorded.items() if key.startswith("labels.")}
    notes = {key.removeprefix("annotations."): v for key, v in recorded.items() if key.startswith("annotations.")}
    start = {
        **GPU,
        **{key: wanted[key] for key in ("nvidia.com/mig.capable", "nvidia.com/gpu.product") if key in wanted},
    }
    node_facts = NodeFacts(node, start)
    labels, annotations = plan_labels(operands.values_file(name), node_facts).applied(node_facts)
    annotations.pop(POLICY_MEMORY)
    assert {key: value for key, value in labels.items() if key.startswith("nvidia.com/")} == wanted
    assert annotations == notes


@pytest.mark.rows("NL-01")
@pytest.mark.parametrize("device", ["pci-10de", "pci-0302_10de", "pci-0300_10de"])
def test_each_of_the_three_pci_labels_makes_a_gpu_node(device: str) -> None:
    labels, _notes = after({f"feature.node.kubernetes.io/{device}.present": "true"})
    assert labels["nvidia.com/gpu.present"] == "true"


@pytest.mark.rows("NL-01")
@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"feature.node.kubernetes.io/pci-10de.present": "false"},
        {"feature.node.kubernetes.io/pci-8086.present": "true"},
        {"feature.node.kubernetes.io/pci-0680_10de.present": "true"},
    ],
)
def test_a_node_without_a_gpu_is_left_alone(labels: dict[str, str]) -> None:
    assert not planned(labels)


@pytest.mark.rows("NL-06", "NL-08", "S54", "P135")
def test_operands_leave_a_node_whose_gpu_is_gone() -> None:
    first = planned(H100)
    labels, notes = first.applied(NodeFacts("gpu-0", H100))
    del labels["feature.node.kubernetes.io/pci-10de.present"]
    found, left = after(labels, annotations=notes)
    assert found["nvidia.com/gpu.present"] == "false"
    assert [key for key in found if key.startswith(DEPLOY)] == []
    assert UPGRADE not in left
    assert found["nvidia.com/mig.config"] == "all-disabled", "a layout that was asked for stays asked for"


@pytest.mark.rows("NL-06", "S25", "P116")
def test_operands_stay_while_nfd_is_away() -> None:
    labels = {"nvidia.com/gpu.present": "true", **dict.fromkeys(CONTAINER_KEYS, "true")}
    change = planned(labels, annotations={UPGRADE: "true"})
    assert not change
    assert severities(change) == [("nodes.nfd-missing", "warning")]


@pytest.mark.rows("NL-03", "S40")
def test_operands_false_takes_all_operands_away_and_true_brings_them_back() -> None:
    full, notes = planned(H100).applied(NodeFacts("gpu-0", H100))
    off, noted = planned({**full, DEPLOY + "operands": "false"}, annotations=notes).applied(
        NodeFacts("gpu-0", {**full, DEPLOY + "operands": "false"}, notes)
    )
    assert [key for key in off if key.startswith(DEPLOY)] == [DEPLOY + "operands"]
    again, _unused = after({**off, DEPLOY + "operands": "true"}, annotations=noted)
    assert {key: value for key, value in again.items() if key != DEPLOY + "operands"} == full


@pytest.mark.rows("NL-03", "NL-04")
def test_a_persons_value_comes_back_with_the_operands() -> None:
    labels = {**GPU, DEPLOY + "dcgm": "false", DEPLOY + "operands": "false"}
    off, notes = planned(labels).applied(NodeFacts("gpu-0", labels))
    assert DEPLOY + "dcgm" not in off
    del off[DEPLOY + "operands"]
    on, _unused = after(off, annotations=notes)
    assert on[DEPLOY + "dcgm"] == "false"
    assert on[DEPLOY + "driver"] == "true"


@pytest.mark.rows("NL-04", "DRV-14")
@pytest.mark.parametrize("value", ["false", "pre-installed", "paused-for-driver-upgrade", "paused-for-mig-change", "x"])
@pytest.mark.parametrize("key", [*CONTAINER_KEYS, DEPLOY + "mig-manager"])
def test_values_that_are_there_are_kept(key: str, value: str) -> None:
    labels, _notes = after({**H100, key: value})
    assert labels[key] == value


@pytest.mark.rows("NL-02")
@pytest.mark.parametrize("key", [*CONTAINER_KEYS, DEPLOY + "mig-manager"])
def test_a_key_that_the_driver_manager_emptied_is_filled(key: str) -> None:
    assert after({**H100, key: ""})[0][key] == "true"


@pytest.mark.rows("NL-04")
@pytest.mark.parametrize("key", OTHER_KEYS)
def test_keys_of_other_stacks_are_removed(key: str) -> None:
    change = planned({**GPU, key: "true"})
    assert key in change.remove
    assert "virtual machines or DRA" in change.reasons[key]


@pytest.mark.rows("NL-04")
@pytest.mark.parametrize(
    "key", [DEPLOY + "nvsm", DEPLOY + "dra-driver", DEPLOY + "mine", "nvidia.com/gpu.workload.config"]
)
def test_other_keys_are_not_touched(key: str) -> None:
    assert after({**GPU, key: "container"})[0][key] == "container"


@pytest.mark.rows("NL-05")
@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("container", []),
        ("vm-passthrough", ["nodes.workload-config"]),
        ("vm-vgpu", ["nodes.workload-config"]),
        ("vm", ["nodes.workload-config"]),
    ],
)
def test_a_workload_that_is_not_supported_is_named_and_containers_are_served(value: str, found: list[str]) -> None:
    change = planned({**GPU, "nvidia.com/gpu.workload.config": value})
    assert [finding.id for finding in change.findings] == found
    assert all(value in finding.detail for finding in change.findings)
    assert set(CONTAINER_KEYS) <= set(change.set)


@pytest.mark.rows("DRV-14")
def test_a_driver_of_the_host_is_said_with_the_way_back() -> None:
    (finding,) = planned({**GPU, DEPLOY + "driver": "pre-installed"}).findings
    assert (finding.severity, finding.target) == ("info", "gpu-0")
    assert "a run some minutes later brings the operand's" in finding.remedy
    assert not planned({**GPU, DEPLOY + "driver": "pre-installed"}, {"driver": {"enabled": False}}).findings


@pytest.mark.rows("MIG-03", "L33")
@pytest.mark.parametrize(
    ("labels", "capable"),
    [
        ({}, False),
        ({"nvidia.com/mig.capable": "true"}, True),
        ({"nvidia.com/mig.capable": "false", "nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}, False),
        ({"nvidia.com/mig.capable": "true", "nvidia.com/vgpu.host-driver-version": "535.1"}, False),
        ({"nvidia.com/mig.capable": "true", "nvidia.com/vgpu.host-driver-version": ""}, True),
        *(
            ({"nvidia.com/gpu.product": product}, True)
            for product in (
                "NVIDIA-A100-SXM4-40GB",
                "A100-SXM4-80GB",
                "NVIDIA-A100X",
                "NVIDIA-A30",
                "NVIDIA-A800-SXM4-80GB",
                "NVIDIA-H100-80GB-HBM3",
                "nvidia-h100-nvl",
                "NVIDIA-H100-PCIe-MIG-1g.10gb",
                "NVIDIA-H200",
                "NVIDIA-H20",
                "NVIDIA-H800",
                "NVIDIA-GH200-480GB",
                "NVIDIA-B200",
                "NVIDIA-B300-SXM6-AC",
                "NVIDIA-GB200",
                "NVIDIA-GB300",
                "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
            )
        ),
        *(
            ({"nvidia.com/gpu.product": product}, False)
            for product in (
                "Tesla-T4",
                "NVIDIA-L40S",
                "NVIDIA-RTX-A3000",
                "NVIDIA-A10",
                "NVIDIA-RTX-6000-Ada-Generation",
                "NVIDIA-A16",
            )
        ),
    ],
)
def test_which_nodes_can_be_partitioned(labels: dict[str, str], capable: bool) -> None:
    assert mig_capable(labels) is capable
    assert (DEPLOY + "mig-manager" in planned({**GPU, **labels}).set) is capable


@pytest.mark.rows("MIG-03")
@pytest.mark.parametrize(
    ("values", "labels", "config"),
    [
        ({}, H100, "all-disabled"),
        ({}, {**H100, "nvidia.com/mig.config": ""}, "all-disabled"),
        ({}, {**H100, "nvidia.com/mig.config": "all-1g.10gb"}, "all-1g.10gb"),
        ({"migManager": {"enabled": False}}, H100, None),
        (
            {
                "apiVersion": "nvidia.com/v1",
                "kind": "ClusterPolicy",
                "spec": {**SPEC, "migManager": {"config": {"default": ""}}},
            },
            H100,
            None,
        ),
        ({}, GPU, None),
        ({}, {**H100, DEPLOY + "operands": "false"}, None),
    ],
)
def test_the_default_layout(values: Any, labels: dict[str, str], config: str | None) -> None:
    assert after(labels, values)[0].get("nvidia.com/mig.config") == config


@pytest.mark.rows("MIG-03", "S19")
def test_the_default_layout_is_not_put_under_a_running_pod() -> None:
    change = planned(H100, busy=["team/train-0"])
    assert "nvidia.com/mig.config" not in change.set
    assert DEPLOY + "mig-manager" in change.set
    (finding,) = change.findings
    assert (finding.id, finding.severity) == ("nodes.mig-busy", "warning")
    assert "team/train-0" in finding.detail


@pytest.mark.rows("MIG-03")
@pytest.mark.parametrize(
    "seen", [{"nvidia.com/gpu.product": "NVIDIA-H100-MIG-1g.10gb"}, {"nvidia.com/mig-1g.10gb.count": "7"}]
)
def test_mig_devices_that_somebody_made_are_not_destroyed(seen: dict[str, str]) -> None:
    change = planned({**H100, **seen})
    assert "nvidia.com/mig.config" not in change.set
    assert severities(change) == [("nodes.foreign-mig", "warning")]


@pytest.mark.rows("NL-07")
@pytest.mark.parametrize(
    ("values", "value"),
    [
        ({}, "true"),
        ({"driver": {"upgradePolicy": {"autoUpgrade": False}}}, None),
        ({"driver": {"enabled": False}}, None),
    ],
)
@pytest.mark.parametrize("before", [{}, {UPGRADE: "true"}, {UPGRADE: "x"}])
def test_the_upgrade_annotation_follows_the_policy(values: Any, value: str | None, before: dict[str, str]) -> None:
    assert after(GPU, values, annotations=before)[1].get(UPGRADE) == value


def test_a_change_says_why_and_patches_only_what_differs() -> None:
    change = planned(
        {**GPU, "nvidia.com/gpu.present": "true", **dict.fromkeys(CONTAINER_KEYS[1:], "true"), "mine": "1"}
    )
    assert change.patch()["metadata"]["labels"] == {DEPLOY + "driver": "true"}
    actions = change.actions()
    assert [(action.verb, action.target) for action in actions] == [
        ("label", "Node/gpu-0"),
        ("annotation", "Node/gpu-0"),
    ]
    assert all(action.reason for action in actions)
    assert (actions[0].before, actions[0].after) == (None, "true")


def test_a_memory_that_cannot_be_read_is_said() -> None:
    for text in ("{", "[]", '{"labels": []}', '{"labels": {"set": 1}}'):
        change = planned(GPU, annotations={POLICY_MEMORY: text})
        assert severities(change) == [("nodes.memory", "warning")], text
        assert json.loads(change.annotations_set[POLICY_MEMORY])["labels"]["set"][DEPLOY + "driver"] == "true"


@pytest.mark.rows("S53", "L30")
def test_a_node_with_another_runtime_is_labelled_and_gets_its_label_back() -> None:
    own = {**GPU, "gpufleet.io/runtime": "mine"}
    for labels in (GPU, own):
        first = planned(labels, apart={"gpufleet.io/runtime": "crio"})
        found, notes = first.applied(NodeFacts("gpu-0", labels))
        assert found["gpufleet.io/runtime"] == "crio"
        node = NodeFacts("gpu-0", found, notes)
        assert not plan_labels(policy("null"), node, apart={"gpufleet.io/runtime": "crio"})
        back, _notes = plan_labels(policy("null"), node).applied(node)
        assert back.get("gpufleet.io/runtime") == labels.get("gpufleet.io/runtime")
