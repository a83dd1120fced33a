# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resources, labels and MIG layouts: the worked cases of mig-plugin-gfd.md, sections 6.1, 6.2, 6.5 and 6.6."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.simulator import migparted
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.advertise import (
    PluginConfig,
    PluginError,
    labels,
    load,
    resources,
)
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.node import Gpu, Node, NodeSpec
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.products import PRODUCTS, place

H200, A100 = PRODUCTS["H200-SXM-141GB"], PRODUCTS["A100-SXM4-40GB"]
BALANCED = ["1g.18gb", "1g.18gb", "2g.35gb", "3g.71gb"]


def boards(product: str, *layouts: list[str] | None) -> list[Gpu]:
    """One board for each layout; None means MIG off."""
    return [Gpu(i, f"GPU-{i}", PRODUCTS[product], x is not None, list(x or [])) for i, x in enumerate(layouts)]


def sharing(kind: str, replicas: int = 4, name: str = "nvidia.com/gpu", renamed: bool = False) -> PluginConfig:
    rename = "renameByDefault: true, " if renamed else ""
    return load(f"version: v1\nsharing: {{{kind}: {{{rename}resources: [{{name: {name}, replicas: {replicas}}}]}}}}")


NONE = PluginConfig()
ONES = ["1g.18gb"] * 7


@pytest.mark.parametrize(
    ("case", "gpus", "strategy", "config", "wanted"),
    [
        ("D1", boards("H200-SXM-141GB", *[None] * 8), "single", NONE, {"nvidia.com/gpu": 8}),
        ("D2", boards("H200-SXM-141GB", ONES, ONES), "single", NONE, {"nvidia.com/gpu": 14}),
        ("D3", boards("H200-SXM-141GB", ONES, ONES), "mixed", NONE, {"nvidia.com/mig-1g.18gb": 14}),
        ("D4", boards("H200-SXM-141GB", ONES, ONES), "none", NONE, {"nvidia.com/gpu": 2}),
        (
            "D5",
            boards("H200-SXM-141GB", BALANCED, None),
            "mixed",
            NONE,
            {
                "nvidia.com/mig-1g.18gb": 2,
                "nvidia.com/mig-2g.35gb": 1,
                "nvidia.com/mig-3g.71gb": 1,
                "nvidia.com/gpu": 1,
            },
        ),
        ("D6", boards("H200-SXM-141GB", BALANCED, None), "single", NONE, "same migEnabled value"),
        ("D7 single", boards("H200-SXM-141GB", ONES, []), "single", NONE, "device 1 .* no MIG devices configured"),
        ("D7 mixed", boards("H200-SXM-141GB", ONES, []), "mixed", NONE, {"nvidia.com/mig-1g.18gb": 7}),
        (
            "D8 single",
            boards("A100-SXM4-40GB", ["1g.5gb"] * 6 + ["1g.5gb+me"]),
            "single",
            NONE,
            "more than one MIG device type",
        ),
        (
            "D8 mixed",
            boards("A100-SXM4-40GB", ["1g.5gb"] * 6 + ["1g.5gb+me"]),
            "mixed",
            NONE,
            {"nvidia.com/mig-1g.5gb": 6, "nvidia.com/mig-1g.5gb.me": 1},
        ),
        ("D9 mixed", boards("A100-SXM4-40GB", ["1c.2g.10gb"] * 2), "mixed", NONE, "no resource pattern matches"),
        ("D9 single", boards("A100-SXM4-40GB", ["1c.2g.10gb"] * 2), "single", NONE, {"nvidia.com/gpu": 2}),
        ("D10", boards("H200-SXM-141GB", None, None), "none", sharing("timeSlicing"), {"nvidia.com/gpu": 8}),
        (
            "D11",
            boards("H200-SXM-141GB", None, None),
            "none",
            sharing("timeSlicing", renamed=True),
            {"nvidia.com/gpu.shared": 8},
        ),
        (
            "D12",
            boards("H200-SXM-141GB", ONES, ONES),
            "mixed",
            sharing("timeSlicing", 2, "nvidia.com/mig-1g.18gb"),
            {"nvidia.com/mig-1g.18gb": 28},
        ),
        ("D15", boards("H200-SXM-141GB", None), "mixed", sharing("mps"), "not supported with MPS"),
        ("49 MPS clients", boards("H200-SXM-141GB", None), "none", sharing("mps", 49), "maximum allowed replicas"),
        ("no GPU", [], "single", NONE, {}),
    ],
)
def test_resources_of_the_worked_cases(
    case: str, gpus: list[Gpu], strategy: str, config: PluginConfig, wanted: dict[str, int] | str
) -> None:
    if isinstance(wanted, str):
        with pytest.raises(PluginError, match=wanted):
            resources(gpus, strategy, config)
    else:
        assert resources(gpus, strategy, config) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}",
        "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu}]}}",
        "sharing: {timeSlicing: {resources: []}}",
        "version: v2",
        "[1, 2]",
        "flag: {}",
    ],
)
def test_plugin_configurations_that_are_refused(text: str) -> None:
    with pytest.raises(PluginError):
        load(text)


def made(gpus: list[Gpu], strategy: str, config: PluginConfig = NONE, driver: str = "580.159.04") -> dict[str, str]:
    found = labels(gpus, strategy, config, driver, "PowerEdge XE9680", 1)
    return {key.removeprefix("nvidia.com/"): value for key, value in found.items()}


def test_labels_of_whole_boards() -> None:
    found = made(boards("H200-SXM-141GB", None, None), "none")
    assert found.items() >= {
        "gpu.product": "NVIDIA-H200", "gpu.count": "2", "gpu.replicas": "1", "gpu.sharing-strategy": "none",
        "gpu.memory": "143771", "gpu.family": "hopper", "gpu.compute.major": "9", "gpu.compute.minor": "0",
        "mig.capable": "true", "mps.capable": "false", "gpu.mode": "compute", "gpu.machine": "PowerEdge-XE9680",
        "cuda.driver-version.full": "580.159.04", "cuda.runtime-version.full": "13.0",
    }.items()  # fmt: skip
    assert "mig.strategy" not in found
    assert made(boards("H200-SXM-141GB", None), "single")["mig.strategy"] == "single"


def test_labels_without_a_gpu_are_two() -> None:
    assert made([], "single") == {"gfd.timestamp": "1", "vgpu.present": "false"}


def test_labels_of_one_kind_of_mig_device() -> None:
    found = made(boards("H200-SXM-141GB", ONES, ONES), "single")
    assert found.items() >= {
        "gpu.product": "NVIDIA-H200-MIG-1g.18gb", "gpu.count": "14", "gpu.replicas": "1", "gpu.memory": "16384",
        "gpu.multiprocessors": "16", "gpu.slices.gi": "1", "gpu.slices.ci": "1", "gpu.engines.copy": "1",
        "gpu.engines.decoder": "1", "gpu.engines.encoder": "0", "gpu.engines.jpeg": "1", "gpu.engines.ofa": "0",
    }.items()  # fmt: skip


@pytest.mark.parametrize("layouts", [(ONES, []), (["1g.18gb", "2g.35gb"], ONES), (ONES, None)])
def test_labels_of_a_mixture_under_single_are_invalid(layouts: tuple[list[str] | None, ...]) -> None:
    found = made(boards("H200-SXM-141GB", *layouts), "single")
    assert found.items() >= {
        "gpu.product": "NVIDIA-H200-MIG-INVALID", "gpu.count": "0", "gpu.replicas": "0", "gpu.sharing-strategy": "",
        "gpu.memory": "0", "gpu.family": "hopper",
    }.items()  # fmt: skip


def test_labels_of_mixed_mig_devices_and_their_boards() -> None:
    found = made(boards("H200-SXM-141GB", BALANCED), "mixed")
    assert found.items() >= {"mig-1g.18gb.count": "2", "gpu.count": "1", "gpu.replicas": "0"}.items()


def test_labels_of_shared_gpus() -> None:
    gpus = boards("H200-SXM-141GB", None, None)
    assert made(gpus, "none", sharing("timeSlicing")).items() >= {
        "gpu.product": "NVIDIA-H200-SHARED", "gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing",
        "gpu.count": "2",
    }.items()  # fmt: skip
    assert made(gpus, "none", sharing("timeSlicing", renamed=True))["gpu.product"] == "NVIDIA-H200"
    assert made(gpus, "none", sharing("mps"))["mps.capable"] == "true"
    assert made(boards("H200-SXM-141GB", ONES), "none", sharing("timeSlicing"))["gpu.replicas"] == "0"
    single = made(boards("H200-SXM-141GB", ONES), "single", sharing("timeSlicing"))
    assert single["gpu.product"] == "NVIDIA-H200-MIG-1g.18gb-SHARED"


@pytest.mark.parametrize(("driver", "parts"), [("550.54.14", ("550", "54", "14")), ("460.32", ("460", "32", ""))])
def test_driver_versions_of_two_and_three_parts(driver: str, parts: tuple[str, ...]) -> None:
    found = made(boards("T4", None), "none", driver=driver)
    assert tuple(found[f"cuda.driver-version.{name}"] for name in ("major", "minor", "revision")) == parts


def test_a_driver_version_of_four_parts_is_refused() -> None:
    with pytest.raises(PluginError):
        made(boards("T4", None), "none", driver="1.2.3.4")


@pytest.mark.parametrize(
    ("product", "family"), [("L40S", "ada-lovelace"), ("RTX-PRO-6000", "blackwell"), ("T4", "turing")]
)
def test_families(product: str, family: str) -> None:
    assert made(boards(product, None), "none")["gpu.family"] == family


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({"1g.5gb": 7}, True), ({"1g.5gb": 8}, False), ({"1g.5gb": 3, "2g.10gb": 2}, True),
        ({"1g.5gb": 4, "2g.10gb": 2}, False), ({"2g.10gb": 3, "1g.5gb": 1}, True), ({"3g.20gb": 2}, True),
        ({"3g.20gb": 2, "1g.5gb": 1}, False), ({"4g.20gb": 1, "3g.20gb": 1}, True),
        ({"4g.20gb": 1, "1g.5gb": 4}, False), ({"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}, True),
        ({"1g.10gb": 4}, True), ({"1g.10gb": 3, "2g.10gb": 1}, True), ({"1g.5gb+me": 2}, False),
        ({"1g.5gb+me": 1, "1g.5gb": 2, "2g.10gb": 2}, True),
    ],
)  # fmt: skip
def test_layouts_that_fit_a_board(wanted: dict[str, int], fits: bool) -> None:
    profiles = tuple(p for p in A100.profiles for _unused in range(wanted.get(p.name, 0)))
    assert (place(A100.slots, profiles) is not None) is fits


# -- mig-parted files

HEAD = "version: v1\nmig-configs:\n  a: "


@pytest.mark.parametrize(
    "text",
    [
        "mig-configs: {a: [{devices: all, mig-enabled: false}]}",
        "version: v2",
        "version: v1\nmig-configs: {}",
        HEAD + "[]",
        HEAD + "[{devices: 0, mig-enabled: false}]",
        HEAD + "[{devices: [0, 1], mig-enabled: true}]",
        HEAD + "[{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}]",
        HEAD + "[{devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}}]",
        HEAD + "[{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}}]",
        HEAD + "[{devices: all, mig-enabled: true, mig-devices: {1g5gb: 1}}]",
        HEAD + "[{devices: all, mig-enabled: true, mig-devices: {1g.5gb+1me: 1}}]",
        HEAD + "[{devices: all, mig-enabled: true, mig-devices: {}, more: 1}]",
    ],
)
def test_mig_files_that_are_refused(text: str) -> None:
    with pytest.raises(migparted.LayoutError):
        migparted.parse(text)


def a100(*layouts: list[str] | None) -> Node:
    node = Node(NodeSpec("n", product="A100-SXM4-40GB", gpus=len(layouts)))
    for gpu, layout in zip(node.gpus, layouts, strict=True):
        gpu.mig_enabled, gpu.instances = layout is not None, list(layout or [])
    return node


def applied(node: Node, entry: str, busy: str = "") -> bool:
    entries = migparted.parse(HEAD + f"[{entry}]")["a"]
    migparted.apply(entries, node, node.gpus, busy)
    return migparted.applied(entries, node.gpus)


def test_a_layout_is_applied_to_every_board() -> None:
    node = a100(None, ["3g.20gb"])
    assert applied(node, "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}")
    assert [g.instances for g in node.gpus] == [["1g.5gb"] * 7] * 2
    assert applied(node, "{devices: all, mig-enabled: false}")
    assert [g.mig_enabled for g in node.gpus] == [False, False]


def test_a_filter_keeps_other_boards_as_they_are_and_the_result_is_not_whole() -> None:
    node = a100(None)
    assert not applied(node, "{devices: all, device-filter: '0x233010DE', mig-enabled: true, mig-devices: {}}")
    assert not node.gpus[0].mig_enabled
    assert applied(node, "{devices: all, device-filter: ['0x20B010DE'], mig-enabled: true, mig-devices: {1g.5gb: 1}}")
    assert not applied(node, "{devices: all, device-filter: A100, mig-enabled: false}")


def test_a_layout_that_does_not_fit_leaves_the_board_empty() -> None:
    node = a100(["1g.5gb"])
    with pytest.raises(migparted.LayoutError, match="all orderings failed"):
        applied(node, "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 8}}")
    assert node.gpus[0].instances == []


def test_an_unknown_profile_clears_the_board_and_is_called_a_success() -> None:
    node = a100(["1g.5gb"])
    assert not applied(node, "{devices: all, mig-enabled: true, mig-devices: {9g.99gb: 1}}")
    assert node.gpus[0].instances == []


def test_a_busy_board_keeps_its_instances() -> None:
    node = a100(["1g.5gb"])
    with pytest.raises(migparted.LayoutError, match="In use by another client"):
        applied(node, "{devices: all, mig-enabled: true, mig-devices: {2g.10gb: 1}}", busy="default/job")
    assert node.gpus[0].instances == ["1g.5gb"]


def test_a_board_without_mig_is_skipped_or_refused() -> None:
    node = Node(NodeSpec("n", product="T4", gpus=1))
    assert not applied(node, "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1}}")
    assert applied(node, "{devices: all, mig-enabled: false}")
    with pytest.raises(migparted.LayoutError, match="non MIG-capable"):
        applied(node, "{devices: [0], mig-enabled: true, mig-devices: {1g.5gb: 1}}")


@pytest.mark.rows("P111")
def test_discovery_labels_a_node_with_the_first_of_its_models_and_the_plugin_offers_all() -> None:
    node = Node(NodeSpec("n", product="A10", gpus=1, others=(("T4", 2),)))
    made = labels(node.gpus, "none", PluginConfig(), "580.159.04", "machine", 0)
    assert (made["nvidia.com/gpu.product"], made["nvidia.com/gpu.count"]) == ("NVIDIA-A10", "1")
    assert resources(node.gpus, "none", PluginConfig()) == {"nvidia.com/gpu": 3}


def test_instances_do_not_outlive_an_unloaded_driver_and_the_mode_does_on_ampere_only() -> None:
    ampere, hopper = a100(["1g.5gb"]), Node(NodeSpec("n", product="H100-SXM5-80GB", gpus=1))
    hopper.gpus[0].mig_enabled, hopper.gpus[0].instances = True, ["1g.10gb"]
    for node in (ampere, hopper):
        node.unload_driver()
        assert node.gpus[0].instances == []
    assert (ampere.gpus[0].mig_enabled, hopper.gpus[0].mig_enabled) == (True, False)
