# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans settle, persons' values survive, and all that was changed is given back: for any labels a node may have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._change import LabelChange
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._groups import Wanted, plan_group
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._keys import (
    CONTAINER_KEYS,
    MIG_CONFIG,
    MIG_MANAGER,
    OPERANDS,
    OTHER_KEYS,
    PLUGIN_CONFIG,
    PRESENT,
    UPGRADE_ENABLED,
    WORKLOAD_CONFIG,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._labels import plan_labels, plan_removal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._taints import taint
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import NodeFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._model import Policy
from ansible_collections.gpufleet.nvidia.tests.helpers import operands

FEATURE = "feature.node.kubernetes.io/"
VALUES: tuple[dict[str, Any], ...] = (
    {},
    {"driver": {"enabled": False}, "migManager": {"enabled": False}},
    {"driver": {"upgradePolicy": {"autoUpgrade": False}}, "migManager": {"config": {"default": ""}}},
)

texts = st.sampled_from(
    ["", "true", "false", "pre-installed", "paused-for-driver-upgrade", "paused-for-mig-change", "mine"]
)
values_of_keys: dict[str, st.SearchStrategy[str]] = {
    FEATURE + "pci-10de.present": st.sampled_from(["true", "false"]),
    FEATURE + "pci-0302_10de.present": st.just("true"),
    FEATURE + "kernel-version.full": st.just("6.8.0"),
    "nvidia.com/gpu.product": st.sampled_from(["NVIDIA-H100-PCIe", "Tesla-T4", "NVIDIA-H100-MIG-1g.10gb"]),
    "nvidia.com/mig.capable": st.sampled_from(["true", "false"]),
    "nvidia.com/mig.config.state": st.sampled_from(["success", "failed"]),
    MIG_CONFIG: st.sampled_from(["", "all-disabled", "all-1g.10gb"]),
    PLUGIN_CONFIG: st.sampled_from(["", "any", "mine"]),
    PRESENT: texts,
    OPERANDS: texts,
    WORKLOAD_CONFIG: st.sampled_from(["container", "vm-vgpu", "else"]),
    "nvidia.com/gpu.deploy.nvsm": texts,
    **dict.fromkeys((*CONTAINER_KEYS, MIG_MANAGER, *OTHER_KEYS[:3]), texts),
    "kubernetes.io/os": st.just("linux"),
}
node_labels = st.fixed_dictionaries({}, optional=values_of_keys)
node_notes = st.fixed_dictionaries({}, optional={UPGRADE_ENABLED: texts, "note": texts})
other_taints = st.lists(
    st.sampled_from(
        [
            {"key": "dedicated", "value": "x", "effect": "NoExecute"},
            {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
            {"key": "nvidia.com/gpu", "value": "mine", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
        ]
    ),
    unique_by=lambda one: one["key"] + one["effect"],
)
groups_of_a_node = st.builds(
    Wanted,
    st.just(("group",)),
    st.fixed_dictionaries(
        {}, optional={MIG_CONFIG: st.just("all-balanced"), PLUGIN_CONFIG: st.just("any"), "pool": texts}
    ),
    st.one_of(st.none(), st.builds(taint, st.sampled_from(["", "true"]), st.sampled_from(["NoSchedule", "NoExecute"]))),
)


@cache
def policy(number: int) -> Policy:
    return operands.policy_of(VALUES[number])


class Live:
    """A node that plans are carried out on."""

    def __init__(self, labels: Mapping[str, str], notes: Mapping[str, str], taints: list[dict[str, str]]) -> None:
        self.labels, self.notes, self.taints = dict(labels), dict(notes), [dict(one) for one in taints]

    @property
    def facts(self) -> NodeFacts:
        return NodeFacts("gpu-0", self.labels, self.notes)

    def carry_out(self, change: LabelChange) -> bool:
        self.labels, self.notes = change.applied(self.facts)
        if change.taints is not None:
            self.taints = [dict(one) for one in change.taints]
        return bool(change)

    def by_policy(self, number: int) -> bool:
        return self.carry_out(plan_labels(policy(number), self.facts))

    def by_groups(self, wanted: Wanted) -> bool:
        return self.carry_out(plan_group(self.facts, wanted, self.taints))

    def remove(self) -> bool:
        return self.carry_out(plan_removal(self.facts, taints=self.taints))

    def state(self) -> tuple[Any, ...]:
        return self.labels, self.notes, self.taints


steps = st.lists(st.one_of(st.integers(0, len(VALUES) - 1), groups_of_a_node, st.just(Wanted())), max_size=5)


@pytest.mark.rows("NL-08", "COM-12")
@given(node_labels, node_notes, other_taints, steps)
def test_a_plan_that_is_carried_out_leaves_nothing_to_plan(
    labels: dict[str, str], notes: dict[str, str], taints: list[dict[str, str]], taken: list[Any]
) -> None:
    node = Live(labels, notes, taints)
    for step in taken:
        act = node.by_policy if isinstance(step, int) else node.by_groups
        act(step)
        assert not act(step)


@pytest.mark.rows("S40", "NL-04", "S26")
@given(node_labels, node_notes, other_taints, steps)
def test_removal_gives_back_what_was_there(
    labels: dict[str, str], notes: dict[str, str], taints: list[dict[str, str]], taken: list[Any]
) -> None:
    node = Live(labels, notes, taints)
    for step in taken:
        if isinstance(step, int):
            node.by_policy(step)
        else:
            node.by_groups(step)
    node.remove()
    assert node.state() == (labels, notes, taints)
    assert not node.remove()


@pytest.mark.rows("NL-04", "S40")
@given(
    node_labels, st.sampled_from([*CONTAINER_KEYS, MIG_MANAGER]), st.sampled_from(["false", "mine"]), st.integers(0, 2)
)
def test_what_a_person_sets_after_us_stays(labels: dict[str, str], key: str, value: str, number: int) -> None:
    node = Live(labels, {}, [])
    node.by_policy(0)
    node.labels[key] = value
    node.by_policy(number)
    off = node.labels.get(PRESENT) != "true" or node.labels.get(OPERANDS) == "false"
    assert off or node.labels[key] == value
    node.remove()
    assert node.labels[key] == value


@pytest.mark.rows("S40")
def test_removal_takes_what_operands_wrote_and_lists_what_stays() -> None:
    node = Live({FEATURE + "pci-10de.present": "true", "nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}, {}, [])
    node.by_policy(0)
    # The MIG manager's state; an operand that it pauses; a key that the driver manager empties.
    node.labels.update({"nvidia.com/mig.config.state": "success", "nvidia.com/gpu.deploy.nvsm": ""})
    node.labels["nvidia.com/gpu.deploy.dcgm"] = "paused-for-mig-change"
    node.labels["nvidia.com/gpu.deploy.driver"] = "pre-installed"
    node.labels[MIG_CONFIG] = "all-1g.10gb"
    change = plan_removal(node.facts)
    node.carry_out(change)
    kept = {
        FEATURE + "pci-10de.present": "true",
        "nvidia.com/gpu.product": "NVIDIA-H100-PCIe",
        MIG_CONFIG: "all-1g.10gb",
    }
    assert (node.labels, node.notes) == (kept, {})
    said = {finding.id: finding.detail for finding in change.findings}
    assert MIG_CONFIG in said["nodes.left-changed"]
    assert "nvidia.com/gpu.product" in said["nodes.left"]
    assert set(said) == {"nodes.left-changed", "nodes.left", "nodes.left-features"}
    assert all(change.reasons.get(key) for key in [*change.set, *change.remove])


@pytest.mark.rows("S40", "INS-10")
def test_labels_of_our_nfd_go_with_it() -> None:
    theirs = {"kubernetes.io/os": "linux", FEATURE + "by-hand": "true"}
    node = Live(theirs, {"note": "x"}, [])
    listed = ["pci-10de.present", "kernel-version.full", "nvidia.com/gpu.count", "nvidia.com/gds.capable"]
    seen = {name if "/" in name else FEATURE + name: "true" for name in listed}
    node.labels.update({**seen, "nvidia.com/gfd.timestamp": "1", "nvidia.com/mig-1g.10gb.count": "7"})
    node.notes["nfd.node.kubernetes.io/feature-labels"] = ",".join(listed)
    node.notes["nfd.node.kubernetes.io/master.version"] = "v0.19.0"
    node.by_policy(0)
    foreign = Live(node.labels, node.notes, [])
    node.carry_out(plan_removal(node.facts, nfd_ours=True))
    assert (node.labels, node.notes) == (theirs, {"note": "x"})
    foreign.remove()
    assert set(seen) <= set(foreign.labels)
    assert "nfd.node.kubernetes.io/feature-labels" in foreign.notes


@pytest.mark.rows("S26", "S40")
def test_a_taint_of_ours_stays_remembered_while_taints_are_not_known() -> None:
    node = Live({}, {}, [])
    node.by_groups(Wanted(("g",), {"pool": "a"}, taint("true")))
    node.carry_out(plan_removal(node.facts))
    assert node.labels == {}
    assert node.taints == [taint("true")]
    node.remove()
    assert node.state() == ({}, {}, [])


@pytest.mark.rows("NL-03", "NL-04", "S40")
def test_a_value_that_a_person_set_after_us_outlives_operands_off() -> None:
    node = Live({FEATURE + "pci-10de.present": "true"}, {}, [])
    node.by_policy(0)
    node.labels["nvidia.com/gpu.deploy.dcgm"] = "false"
    node.labels[OPERANDS] = "false"
    node.by_policy(0)
    assert "nvidia.com/gpu.deploy.dcgm" not in node.labels
    off = Live(node.labels, node.notes, [])
    node.labels[OPERANDS] = "true"
    node.by_policy(0)
    assert node.labels["nvidia.com/gpu.deploy.dcgm"] == "false"
    off.remove()
    assert off.labels["nvidia.com/gpu.deploy.dcgm"] == "false"


@pytest.mark.rows("S40", "NL-04")
def test_labels_that_the_driver_manager_emptied_do_not_come_back() -> None:
    start = {FEATURE + "pci-10de.present": "true"}
    node = Live(start, {}, [])
    node.by_policy(0)
    node.labels["nvidia.com/gpu.deploy.sandbox-validator"] = ""
    node.labels[MIG_MANAGER] = ""
    node.by_policy(0)
    node.labels["nvidia.com/gpu.deploy.dra-validator"] = ""
    node.remove()
    assert node.labels == start
