# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes will offer: the worked cases D (device plugin) and G (GPU feature discovery) of the specification."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._predict import (
    Impossible,
    board_name,
    boards_of,
    device_ids,
    offer,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._stage import driver_version
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._mig_configs import layouts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._plugin_config import (
    PluginConfig,
    Sharing,
    ignored_xids,
    read_config,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import errors
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator import advertise
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.node import Gpu
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.products import PRODUCTS

OFF = None
ONES = ("1g.18gb",) * 7
BALANCED = ("1g.18gb", "1g.18gb", "2g.35gb", "3g.71gb")
MIXED_ME = ("1g.5gb",) * 6 + ("1g.5gb+me",)
HALVES = ("1c.2g.10gb",) * 2
GPU = "nvidia.com/gpu"


def sharing(kind="timeSlicing", replicas=4, name=GPU, **more):
    config, findings = read_config(
        {"version": "v1", "sharing": {kind: {**more, "resources": [{"name": name, "replicas": replicas}]}}}, "c"
    )
    assert errors(findings) == []
    return config


PLAIN = PluginConfig()
SLICES_2 = sharing(replicas=2, name="nvidia.com/mig-1g.18gb")
D_CASES = [
    ("D1 none", [OFF] * 8, "none", PLAIN, {GPU: 8}),
    ("D1 single", [OFF] * 8, "single", PLAIN, {GPU: 8}),
    ("D1 mixed", [OFF] * 8, "mixed", PLAIN, {GPU: 8}),
    ("D2", [ONES, ONES], "single", PLAIN, {GPU: 14}),
    ("D3", [ONES, ONES], "mixed", PLAIN, {"nvidia.com/mig-1g.18gb": 14}),
    ("D4", [ONES, ONES], "none", PLAIN, {GPU: 2}),
    (
        "D5",
        [BALANCED, OFF],
        "mixed",
        PLAIN,
        {"nvidia.com/mig-1g.18gb": 2, "nvidia.com/mig-2g.35gb": 1, "nvidia.com/mig-3g.71gb": 1, GPU: 1},
    ),
    ("D6", [BALANCED, OFF], "single", PLAIN, "MIG is on on 1 of 2 boards"),
    ("D7 single", [ONES, ()], "single", PLAIN, "no MIG devices"),
    ("D7 mixed", [ONES, ()], "mixed", PLAIN, {"nvidia.com/mig-1g.18gb": 7}),
    ("D8 single", [MIXED_ME], "single", PLAIN, "2 kinds \\(1g.5gb, 1g.5gb\\+me\\)"),
    ("D8 mixed", [MIXED_ME], "mixed", PLAIN, {"nvidia.com/mig-1g.5gb": 6, "nvidia.com/mig-1g.5gb.me": 1}),
    ("D9 mixed", [HALVES], "mixed", PLAIN, "no name for"),
    ("D9 single", [HALVES], "single", PLAIN, {GPU: 2}),
    ("D10", [OFF, OFF], "none", sharing(), {GPU: 8}),
    ("D11", [OFF, OFF], "none", sharing(renameByDefault=True), {"nvidia.com/gpu.shared": 8}),
    ("D12", [ONES, ONES], "mixed", SLICES_2, {"nvidia.com/mig-1g.18gb": 28}),
    ("D13", [OFF, OFF], "none", sharing("mps", 10), {GPU: 20}),
    ("D15", [OFF], "mixed", sharing("mps"), "MPS does not go with the MIG strategy mixed"),
    ("MPS on MIG", [ONES], "single", sharing("mps"), "boards in MIG mode"),
    ("no GPU", [], "single", PLAIN, {}),
]


@pytest.mark.rows("PLG-02", "PLG-03", "PLG-04", "S17", "P077", "P078")
@pytest.mark.parametrize(("case", "boards", "strategy", "config", "wanted"), D_CASES, ids=[c[0] for c in D_CASES])
def test_resources_of_the_worked_cases(case, boards, strategy, config, wanted):
    if isinstance(wanted, str):
        with pytest.raises(Impossible, match=wanted) as refused:
            offer(boards, strategy, config)
        assert refused.value.remedy
    else:
        assert offer(boards, strategy, config).resources == wanted


@pytest.mark.rows("PLG-03", "S14", "S15")
def test_a_container_that_asks_for_two_shares_is_turned_away_where_the_config_says_so():
    """D13, and the defaults of both kinds."""
    assert sharing("mps", 10).sharing.one_a_container
    assert not sharing("timeSlicing").sharing.one_a_container
    assert sharing("timeSlicing", failRequestsGreaterThanOne=True).sharing.one_a_container
    assert not sharing("mps", failRequestsGreaterThanOne=False).sharing.one_a_container


@pytest.mark.rows("PLG-01")
@pytest.mark.parametrize(
    ("block", "path"),
    [
        ({"resources": [{"name": GPU, "replicas": 1}]}, "c.sharing.timeSlicing.resources[0].replicas"),
        ({"resources": [{"name": GPU}]}, "c.sharing.timeSlicing.resources[0].replicas"),
        ({"resources": [{"name": GPU, "replicas": True}]}, "c.sharing.timeSlicing.resources[0].replicas"),
        ({"resources": [{"name": GPU, "replicas": "4"}]}, "c.sharing.timeSlicing.resources[0].replicas"),
        ({"resources": [{"replicas": 2}]}, "c.sharing.timeSlicing.resources[0].name"),
        ({"resources": [{"name": "x" * 60, "replicas": 2}]}, "c.sharing.timeSlicing.resources[0].name"),
        ({"resources": [{"name": "amd.com/gpu", "replicas": 2}]}, "c.sharing.timeSlicing.resources[0].name"),
        ({"resources": []}, "c.sharing.timeSlicing.resources"),
        (
            {"renameByDefault": "yes", "resources": [{"name": GPU, "replicas": 2}]},
            "c.sharing.timeSlicing.renameByDefault",
        ),
    ],
)  # fmt: skip
def test_what_the_plugin_exits_at_is_refused_with_its_path(block, path):
    """D14."""
    _config, findings = read_config({"version": "v1", "sharing": {"timeSlicing": block}}, "c")
    assert [finding.path for finding in errors(findings)] == [path]


@pytest.mark.rows("PLG-01", "P098")
@pytest.mark.parametrize(
    ("config", "path", "words"),
    [
        ("resources: {gpus: [{pattern: '*', name: a100}]}", "c.resources", "nvidia.com/gpu.product"),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, rename: gpu.two}]}}",
            "c.sharing.timeSlicing.resources[0].rename",
            "renameByDefault",
        ),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: 1}]}}",
            "c.sharing.timeSlicing.resources[0].devices",
            "all devices",
        ),
        (
            "sharing: {timeSlicing: {renamebyDefault: true, resources: [{name: gpu, replicas: 2}]}}",
            "c.sharing.timeSlicing.renamebyDefault",
            "Did you mean renameByDefault?",
        ),
        (
            (
                "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}, "
                "timeSlicing: {resources: [{name: gpu, replicas: 2}]}}"
            ),
            "c.sharing.timeSlicing",
            "takes mps",
        ),
        ("version: v2", "c.version", "v1"),
        ("flags: {migStrategy: several}", "c.flags.migStrategy", "none, single, mixed"),
        ("{", "c", "is not YAML"),
    ],
)  # fmt: skip
def test_keys_that_the_plugin_passes_over_are_refused(config, path, words):
    (finding,) = errors(read_config(config, "c")[1])
    assert finding.path == path
    assert words in finding.sentence()


@pytest.mark.rows("PLG-01")
def test_a_flag_that_a_variable_overrides_is_told_and_an_equal_one_is_not():
    env = {"MIG_STRATEGY": "mixed", "DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri"}
    text = "flags: {migStrategy: single, plugin: {deviceListStrategy: [cdi-annotations, cdi-cri]}}"
    (finding,) = read_config(text, "c", env)[1]
    assert (finding.severity, finding.path) == ("warning", "c.flags.migStrategy")
    assert "MIG_STRATEGY=mixed" in finding.detail


@pytest.mark.rows("PLG-06")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("68,not-an-int,67", ((13, 31, 43, 45, 67, 68, 109), ("not-an-int",))),
        ("", ((13, 31, 43, 45, 68, 109), ())),
        ("all", (None, ())),
        ("xids", (None, ())),
    ],
)
def test_xids_that_leave_devices_healthy(text, wanted):
    """D16."""
    assert ignored_xids(text) == wanted


@pytest.mark.rows("PLG-07", "S15")
@pytest.mark.parametrize(
    ("compute", "replicas", "fits"), [((9, 0), 48, True), ((9, 0), 49, False), ((7, 0), 16, True), ((7, 0), 17, False)]
)
def test_mps_has_a_limit_of_clients_that_depends_on_the_gpu(compute, replicas, fits):
    config = sharing("mps", replicas)
    if fits:
        assert offer([OFF], "none", config, compute).resources == {GPU: replicas}
    else:
        with pytest.raises(Impossible, match=f"{replicas} replicas are more than the {replicas - 1}"):
            offer([OFF], "none", config, compute)


H200 = "NVIDIA-H200"


def of(boards, strategy, config=PLAIN):
    return offer(boards, strategy, config, product=H200).labels


@pytest.mark.rows("GF-01", "GF-02", "GF-03", "GF-04")
@pytest.mark.parametrize(
    ("case", "labels", "wanted"),
    [
        ("G1", of([], "none"), {}),
        (
            "G2",
            of([OFF] * 2, "none"),
            {f"{GPU}.product": H200, f"{GPU}.count": "2", f"{GPU}.replicas": "1", f"{GPU}.sharing-strategy": "none"},
        ),
        (
            "G3",
            of([OFF] * 2, "single"),
            {
                f"{GPU}.product": H200,
                f"{GPU}.count": "2",
                f"{GPU}.replicas": "1",
                f"{GPU}.sharing-strategy": "none",
                "nvidia.com/mig.strategy": "single",
            },
        ),
        (
            "G4",
            of([ONES] * 2, "single"),
            {
                f"{GPU}.product": "NVIDIA-H200-MIG-1g.18gb",
                f"{GPU}.count": "14",
                f"{GPU}.replicas": "1",
                f"{GPU}.sharing-strategy": "none",
                "nvidia.com/mig.strategy": "single",
            },
        ),
        (
            "G8",
            {k: v for k, v in of([BALANCED], "mixed").items() if k.endswith((".count", "gpu.replicas"))},
            {
                "nvidia.com/mig-1g.18gb.count": "2",
                "nvidia.com/mig-2g.35gb.count": "1",
                "nvidia.com/mig-3g.71gb.count": "1",
                f"{GPU}.count": "1",
                f"{GPU}.replicas": "0",
            },
        ),
        (
            "G9",
            of([ONES], "none", sharing()),
            {f"{GPU}.product": H200, f"{GPU}.count": "1", f"{GPU}.replicas": "0", f"{GPU}.sharing-strategy": "none"},
        ),
        (
            "G10",
            of([OFF] * 2, "none", sharing()),
            {
                f"{GPU}.product": "NVIDIA-H200-SHARED",
                f"{GPU}.count": "2",
                f"{GPU}.replicas": "4",
                f"{GPU}.sharing-strategy": "time-slicing",
            },
        ),
        (
            "G11",
            of([OFF] * 2, "none", sharing(renameByDefault=True)),
            {
                f"{GPU}.product": H200,
                f"{GPU}.count": "2",
                f"{GPU}.replicas": "4",
                f"{GPU}.sharing-strategy": "time-slicing",
            },
        ),
        (
            "G12",
            {"p": of([ONES], "single", sharing(replicas=2))[f"{GPU}.product"]},
            {"p": "NVIDIA-H200-MIG-1g.18gb-SHARED"},
        ),
    ],
)
def test_labels_of_the_worked_cases(case, labels, wanted):
    assert labels == wanted


@pytest.mark.rows("GF-02", "P077")
@pytest.mark.parametrize("boards", [[ONES, ()], [("1g.18gb", "2g.35gb")], [ONES, OFF]], ids=["G5", "G6", "G7"])
def test_what_discovery_would_call_invalid_is_refused(boards):
    with pytest.raises(Impossible):
        offer(boards, "single", product=H200)


@pytest.mark.rows("GF-01")
@pytest.mark.parametrize("version", ["550.54.14", "460.32"])
def test_the_version_of_the_driver_is_put_together_from_its_labels(version):
    """G13."""
    made = advertise.labels([Gpu(0, "GPU-0", PRODUCTS["T4"])], "none", advertise.PluginConfig(), version, "x", 0)
    for key in [key for key in made if key.endswith("driver-version.full")]:
        assert driver_version({k: v for k, v in made.items() if k != key}) == version


FAMILIES = {"H200-SXM-141GB": "2335", "A100-SXM4-40GB": "20B0", "A100-SXM4-80GB": "20B2", "A100-PCIe-80GB": "20B5",
            "H100-SXM5-80GB": "2330", "H100-PCIe-80GB": "2331", "GH200-96GB": "2342", "A30": "20B7", "B200": "2901",
            "RTX-PRO-6000": "2BB5"}  # fmt: skip


@pytest.mark.rows("PLG-02")
@pytest.mark.parametrize(("key", "device"), FAMILIES.items())
def test_products_are_told_apart_by_the_labels_that_discovery_writes(key, device):
    product = PRODUCTS[key]
    label = advertise.clean(product.name)
    assert device in device_ids(label, product.memory)
    assert device in device_ids(f"{label}-MIG-1g.10gb", 9728)
    assert device in device_ids(f"{label}-SHARED", product.memory)
    assert board_name(f"{label}-MIG-1g.5gb-SHARED") == label
    for name in ("all-balanced", "all-1g.10gb", "all-1g.35gb"):
        boards = boards_of(layouts()[name], 2, device_ids(label, product.memory))
        for board in boards or []:
            assert {product.profile(p) is not None for p in board} == {True}, (name, board)


@pytest.mark.rows("PLG-02")
def test_a_layout_for_some_boards_alone_tells_nothing_of_the_others():
    entries = [{"devices": [0], "mig-enabled": True, "mig-devices": {"1g.18gb": 7}}]
    assert boards_of(entries, 1, ("2335",)) == [ONES]
    assert boards_of(entries, 2, ("2335",)) is None
    assert boards_of([*entries, {"devices": [1], "mig-enabled": False}], 2) == [ONES, OFF]


@pytest.mark.rows("PLG-02", "PLG-03", "GF-02", "GF-03", "GF-04")
@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
@pytest.mark.parametrize("kind", ["", "timeSlicing", "mps"])
@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("layout", [(OFF, OFF), (ONES, ONES), (BALANCED, OFF), (ONES, ()), (BALANCED, BALANCED)])
def test_prediction_and_simulated_node_agree(strategy, kind, renamed, layout):
    """The simulator has the plugin's rules written down a second time, by other hands."""
    if not kind and renamed:
        kind = "timeSlicing"
    text = "version: v1"
    if kind:
        rename = f"renameByDefault: {str(renamed).lower()}"
        text += f"\nsharing: {{{kind}: {{{rename}, resources: [{{name: {GPU}, replicas: 3}}]}}}}"
    gpus = [Gpu(i, f"GPU-{i}", PRODUCTS["H200-SXM-141GB"], x is not None, list(x or ())) for i, x in enumerate(layout)]
    theirs = advertise.load(text)
    try:
        wanted = advertise.resources(gpus, strategy, theirs)
        labels = advertise.labels(gpus, strategy, theirs, "580.1.2", "x", 0)
    except advertise.PluginError:
        with pytest.raises(Impossible):
            offer(layout, strategy, read_config(text, "c")[0])
        return
    made = offer(layout, strategy, read_config(text, "c")[0], product=H200)
    assert made.resources == wanted
    assert {key: labels.get(key) for key in made.labels} == made.labels


def test_a_config_without_sharing_shares_nothing():
    assert read_config("", "c") == (PluginConfig(), [])
    assert Sharing().name(GPU) == GPU
