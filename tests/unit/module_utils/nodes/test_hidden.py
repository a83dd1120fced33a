# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that groups keep out of Kubernetes: what may be written, whose they are, and how many are left."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._groups import assign, parse_groups
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._hidden import (
    bounds,
    canonical,
    from_text,
    nowhere,
    to_text,
    unlike_hidden,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._keys import (
    MIG_CONFIG,
    MIG_MANAGER,
    WORKLOAD_CONFIG,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._labels import plan_labels
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._stage import gaps_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import NodeFacts
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import policy_of

UUID = "GPU-81a8fb40-695b-ea64-5fc5-2218af7a88de"
GPU_NODE = {"feature.node.kubernetes.io/pci-10de.present": "true", "pool": "a"}


@pytest.mark.rows("P099")
@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        (UUID, UUID),
        (UUID.upper(), UUID),
        ("0000:18:00.0", "0000:18:00.0"),
        ("18:00.0", "0000:18:00.0"),
        ("00000000:3B:1F.7", "0000:3b:1f.7"),
        ("00010000:18:00.0", "10000:18:00.0"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("Tesla T4", "Tesla T4"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        # Written like one of those, and none.
        (UUID[:-1], ""),
        (UUID + "0", ""),
        ("MIG-81a8fb40-695b-ea64-5fc5-2218af7a88de", ""),
        ("0000:18:00", ""),
        ("0000:18:20.0", ""),
        ("0000:18:00.8", ""),
        ("000:18:00.0", ""),
        ("3", ""),
        ("", ""),
        (" NVIDIA H200", ""),
        ("NVIDIA H200 ", ""),
        ("NVIDIA\nH200", ""),
        (3, ""),
        (None, ""),
        (["x"], ""),
    ],
)
def test_entries_are_spelled_as_the_driver_does(entry: Any, wanted: str) -> None:
    assert canonical(entry) == wanted


@pytest.mark.rows("P099")
@pytest.mark.parametrize(
    ("group", "path", "words"),
    [
        ({"hidden_gpus": UUID}, "hidden_gpus", (UUID, "a list of GPUs to hide is allowed")),
        ({"hidden_gpus": ["GPU-1"]}, "hidden_gpus[0]", ("'GPU-1'", "a UUID (GPU-…)", "0000:18:00.0", "NVIDIA H200")),
        ({"hidden_gpus": ["Tesla T4", 18]}, "hidden_gpus[1]", ("is 18", "Write it in quotes")),
        ({"hidden_gpus": [UUID, "18:00.0", "0000:18:00.0"]}, "hidden_gpus[2]", ("as hidden_gpus[1]", "Leave one")),
        (
            {"hidden_gpus": [UUID], "mig": "all-1g.10gb"},
            "hidden_gpus",
            ("does not go with mig", "a group of their own"),
        ),
        (
            {"hidden_gpus": [UUID], "labels": {WORKLOAD_CONFIG: "vm-vgpu"}},
            "hidden_gpus",
            (f"does not go with {WORKLOAD_CONFIG}: vm-vgpu", "take all GPUs of a node", "a group of their own"),
        ),
        ({"hidden_gpus": ["Tesla T4"] * 1001}, "hidden_gpus", ("has 1001 entries", "1000 at most are allowed")),
        ({"hidden_gpus": [True]}, "hidden_gpus[0]", ("is True", "Write it in quotes")),
        (
            {"hidden_gpus": [UUID], "selector": "nvidia.com/gpu.product=Tesla-T4"},
            "selector",
            ("nvidia.com/gpu.product", "change with what hidden_gpus hides", "kubernetes.io/hostname"),
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(group: dict[str, Any], path: str, words: tuple[str, ...]) -> None:
    (finding,) = parse_groups([{"name": "a", **group}])[1]
    assert (finding.severity, finding.path) == ("error", f"node_groups[0].{path}")
    for word in words:
        assert word in f"{finding.detail} {finding.remedy}"


@pytest.mark.rows("P099")
@pytest.mark.parametrize("item", [None, [UUID], {}])
def test_quotes_are_no_remedy_for_what_is_no_word(item: Any) -> None:
    (finding,) = parse_groups([{"name": "a", "hidden_gpus": [item]}])[1]
    assert (finding.detail.split(":")[0], finding.remedy) == (f"is {item!r}", "")


@pytest.mark.rows("P099")
def test_a_thousand_entries_are_read_in_any_order_to_the_same_list() -> None:
    entries = [f"{bus:02x}:{slot:02x}.{part}" for bus in range(4) for slot in range(32) for part in range(8)][:1000]
    groups, findings = parse_groups(
        [{"name": "a", "hidden_gpus": entries[::-1]}, {"name": "b", "hidden_gpus": entries}]
    )
    assert findings == []
    assert groups[0].hidden_gpus == groups[1].hidden_gpus == tuple(f"0000:{one}" for one in entries)


@pytest.mark.rows("P099")
def test_a_group_without_the_key_or_with_an_empty_list_hides_nothing_and_may_select_by_product() -> None:
    for raw in ({}, {"hidden_gpus": []}, {"hidden_gpus": None}):
        (group,), findings = parse_groups([{"name": "a", "mig": "x", "selector": "nvidia.com/gpu.count=8", **raw}])
        assert (group.hidden_gpus, findings) == ((), [])


@pytest.mark.rows("P099")
@pytest.mark.parametrize(
    ("second", "id"),
    [
        ({"hidden_gpus": ["Tesla T4"]}, "groups.overlap"),
        ({"mig": "all-1g.10gb"}, "groups.hidden-mig"),
        ({"labels": {WORKLOAD_CONFIG: "vm-passthrough"}}, "groups.hidden-machines"),
        ({"labels": {WORKLOAD_CONFIG: "container"}}, ""),
        ({"hidden_gpus": ["18:00.0", UUID]}, ""),
        ({"labels": {"x": "y"}}, ""),
    ],
)
def test_two_groups_of_a_node_may_not_hide_different_gpus_nor_partition_them(second: dict[str, Any], id: str) -> None:
    groups, findings = parse_groups([{"name": "a", "hidden_gpus": [UUID, "18:00.0"]}, {"name": "b", **second}])
    assert findings == []
    wanted, found = assign(groups, [NodeFacts("gpu-0", labels=GPU_NODE)])
    assert [(f.id, f.severity) for f in found] == ([(id, "error")] if id else [])
    assert "gpu-0" in found[0].target + found[0].detail if id else wanted["gpu-0"].hidden == ("0000:18:00.0", UUID)


@pytest.mark.rows("P099")
def test_the_list_is_read_as_it_was_written() -> None:
    hidden = {"gpu-1": ("NVIDIA H200", "0000:18:00.0"), "gpu-0": (UUID,)}
    text = to_text(hidden)
    assert text == f"gpu-0 {UUID}\ngpu-1 NVIDIA H200\ngpu-1 0000:18:00.0\n"
    assert from_text(text) == hidden
    assert (to_text({}), from_text("")) == ("", {})


T4, A10, UNKNOWN = "1eb8", "2236", "ffff"


@pytest.mark.rows("P099")
@pytest.mark.parametrize(
    ("entries", "gpus", "wanted"),
    [
        ((), {T4: 4}, (0, 0)),
        ((UUID,), {T4: 4}, (1, 1)),
        (("0000:18:00.0",), {T4: 4}, (1, 1)),
        (("Tesla T4",), {T4: 2, A10: 1}, (2, 2)),
        (("NVIDIA A10",), {T4: 2, A10: 1}, (1, 1)),
        (("NVIDIA Something",), {UNKNOWN: 2, A10: 1}, (1, 3)),
        ((UUID, "0000:18:00.0"), {T4: 4}, (1, 2)),
        ((UUID, "Tesla T4"), {T4: 2, A10: 1}, (1, 3)),
    ],
)
def test_how_many_gpus_are_hidden(entries: tuple[str, ...], gpus: dict[str, int], wanted: tuple[int, int]) -> None:
    assert bounds(entries, gpus) == wanted


@pytest.mark.rows("P099")
@pytest.mark.parametrize(
    ("entries", "hardware", "wanted"),
    [
        (("NVIDIA A10",), {"a": {T4: 2}, "b": {T4: 1}}, ["NVIDIA A10"]),
        (("NVIDIA A10", "NVIDIA H100 80GB HBM3"), {"a": {T4: 2}, "b": {T4: 1, A10: 1}}, ["NVIDIA H100 80GB HBM3"]),
        # One of the nodes may have it: its bus is not known, or one of its GPUs is not.
        (("NVIDIA A10",), {"a": {T4: 2}}, []),
        (("NVIDIA A10",), {"a": {T4: 2}, "b": {}}, []),
        (("NVIDIA A10",), {"a": {T4: 2}, "b": {UNKNOWN: 1}}, []),
        # The driver's name of a product has other words than that of its PCI id; memory and socket make no product.
        (("NVIDIA H100 80GB HBM3",), {"a": {"2330": 8}, "b": {"2330": 8}}, []),
        (("NVIDIA H100 80GB HBM3",), {"a": {"20b2": 8}, "b": {"20b2": 8}}, ["NVIDIA H100 80GB HBM3"]),
        (("NVIDIA Graphics Device", UUID, "0000:18:00.0"), {"a": {T4: 2}, "b": {T4: 1}}, []),
    ],
)
def test_a_product_that_no_node_of_its_group_has_is_told(
    entries: tuple[str, ...], hardware: dict[str, dict[str, int]], wanted: list[str]
) -> None:
    hidden = {"a": entries, "b": entries, "other": ("18:00.0", "NVIDIA A10")}
    found = nowhere(hidden, {**hardware, "other": {A10: 1}})
    assert [(one.id, one.severity, one.target, one.path) for one in found] == [
        ("groups.hidden-nowhere", "warning", "nodes a and b", "node_groups") for _entry in wanted
    ]
    assert [entry for entry, one in zip(wanted, found, strict=True) if f"names {entry!r}" not in one.detail] == []


@pytest.mark.rows("P099")
def test_a_node_that_shows_a_hidden_gpu_or_too_few_is_told() -> None:
    assert unlike_hidden((UUID,), {T4: 4}, 3) == ""
    assert unlike_hidden((UUID,), {T4: 4}, 4) == f"4 of the node's 4 GPUs are seen, of which {UUID} is to be hidden"
    assert "sees 2 of the node's 4 GPUs, and hidden_gpus hides 1" in unlike_hidden((UUID,), {T4: 4}, 2)


@pytest.mark.rows("P099")
@pytest.mark.parametrize(("seen", "gap"), [(3, ""), (4, "is to be hidden"), (2, "hides 1 of them at most")])
def test_the_check_of_a_node_against_its_hardware_expects_hidden_gpus_to_be_gone(seen: int, gap: str) -> None:
    labels = {"nvidia.com/gpu.count": str(seen), "nvidia.com/gpu.product": "Tesla-T4"}
    status = {"allocatable": {"nvidia.com/gpu": str(seen)}, "capacity": {"nvidia.com/gpu": str(seen)}}
    node = {"metadata": {"name": "n", "labels": labels}, "status": status, "pciGpus": {T4: 4}, "hiddenGpus": (UUID,)}
    found = gaps_of(node)
    assert found == [] if not gap else gap in found[0]


@pytest.mark.rows("P099")
def test_no_mig_manager_runs_where_gpus_are_hidden() -> None:
    labels = {**GPU_NODE, "nvidia.com/mig.capable": "true"}
    policy = policy_of({})
    plain = plan_labels(policy, NodeFacts("n", labels=labels))
    assert plain.set[MIG_MANAGER] == "true"
    assert plain.set[MIG_CONFIG] == "all-disabled"
    hides = plan_labels(policy, NodeFacts("n", labels=labels), hides=True)
    assert {MIG_MANAGER, MIG_CONFIG} & set(hides.set) == set()
    # One that runs there goes, and a layout that somebody asked for is told of.
    after, notes = plain.applied(NodeFacts("n", labels=labels))
    gone = plan_labels(policy, NodeFacts("n", labels=after, annotations=notes), hides=True)
    assert MIG_MANAGER in gone.remove
    assert not gone.findings
    asked = plan_labels(policy, NodeFacts("n", labels={**labels, MIG_CONFIG: "all-1g.10gb"}), hides=True)
    assert [finding.id for finding in asked.findings] == ["nodes.hidden-mig"]
    # And comes back with the last hidden GPU.
    after, notes = gone.applied(NodeFacts("n", labels=after, annotations=notes))
    assert plan_labels(policy, NodeFacts("n", labels=after, annotations=notes)).set[MIG_MANAGER] == "true"
