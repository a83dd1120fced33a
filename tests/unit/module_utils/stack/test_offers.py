# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes will offer by a policy and their labels, and what is said when they do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Finding, errors
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._offers import (
    NodeOffer,
    Offers,
    mismatch,
    stale_labels,
)
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import policy_of

SERVED = {"nvidia.com/gpu.deploy.device-plugin": "true"}
H200 = {
    **SERVED,
    "nvidia.com/mig.capable": "true",
    "nvidia.com/gpu.product": "NVIDIA-H200",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "143771",
}
GPU = "nvidia.com/gpu"
SHARED = json.dumps({"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": 4}]}}})


def predict(
    labels: dict[str, str], after: Any = None, strict: bool = True, gpus: Any = None, **values: Any
) -> tuple[NodeOffer, list[Finding]]:
    texts = (values.get("devicePlugin") or {}).get("config", {}).get("data", {})
    made = Offers(policy_of(values), texts, strict)
    found, findings = made.of_nodes([("n", labels, {**labels, **(after or {})})], {"n": gpus or {}})
    return found["n"], findings


def configs(**data: str) -> dict[str, Any]:
    return {"config": {"create": True, "name": "configs", "default": "", "data": data}}


@pytest.mark.rows("PLG-02", "S17")
@pytest.mark.parametrize(
    ("labels", "layout", "strategy", "wanted"),
    [
        (H200, "all-disabled", "single", {GPU: 8}),
        (H200, "all-1g.18gb", "single", {GPU: 56}),
        (H200, "all-1g.18gb", "mixed", {"nvidia.com/mig-1g.18gb": 56}),
        (H200, "all-1g.35gb", "mixed", {"nvidia.com/mig-1g.35gb": 32}),
        (
            {**H200, "nvidia.com/gpu.product": "NVIDIA-H200-MIG-1g.18gb", GPU + ".count": "56",
             "nvidia.com/mig.config": "all-1g.18gb"},
            "all-3g.71gb",
            "single",
            {GPU: 16},
        ),
        ({**H200, "nvidia.com/mig.capable": "false"}, "", "mixed", {GPU: 8}),
    ],
)  # fmt: skip
def test_boards_are_counted_and_partitioned(
    labels: dict[str, str], layout: str, strategy: str, wanted: dict[str, int]
) -> None:
    one, findings = predict(labels, {"nvidia.com/mig.config": layout} if layout else {}, mig={"strategy": strategy})
    assert errors(findings) == []
    assert one.offer is not None
    assert one.offer.resources == wanted


@pytest.mark.rows("PLG-02")
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({**H200, GPU + ".count": "0", GPU + ".product": "NVIDIA-H200-MIG-INVALID"}, "counted"),
        (SERVED, "counted"),
        ({**H200, "nvidia.com/mig-1g.18gb.count": "7"}, "do not tell"),
        ({**H200, "nvidia.com/mig.config": "of-my-own"}, "do not tell"),
    ],
)
def test_what_cannot_be_told_is_said(labels: dict[str, str], words: str) -> None:
    one, findings = predict(labels, mig={"strategy": "mixed"})
    assert (one.offer, one.row()["known"], one.row()["resources"]) == (None, False, {})
    assert words in one.unknown
    assert errors(findings) == []


T4 = {**SERVED, "nvidia.com/mig.capable": "false", GPU + ".product": "Tesla-T4", GPU + ".count": "2"}
WITH_A10 = {"1eb8": 2, "2236": 1}
WITH_H200 = {"2335": 8, "1eb8": 2}


@pytest.mark.rows("P111")
@pytest.mark.parametrize(
    ("labels", "gpus", "strategy", "layout", "wanted"),
    [
        (T4, WITH_A10, "none", "", {GPU: 3}),
        (T4, WITH_A10, "single", "", {GPU: 3}),
        (H200, WITH_H200, "mixed", "", {GPU: 10}),
        (H200, WITH_H200, "mixed", "all-disabled", {GPU: 10}),
        (H200, WITH_H200, "none", "all-1g.18gb", {GPU: 10}),
    ],
)
def test_gpus_of_several_models_are_all_counted_where_mig_has_no_part(
    labels: dict[str, str], gpus: dict[str, int], strategy: str, layout: str, wanted: dict[str, int]
) -> None:
    one, findings = predict(labels, {"nvidia.com/mig.config": layout} if layout else {}, gpus=gpus,
                            mig={"strategy": strategy})  # fmt: skip
    assert errors(findings) == []
    assert one.row()["resources"] == wanted
    # Which model feature discovery names is chance, and may be another one the next time.
    assert stale_labels(one, {**labels, GPU + ".product": "NVIDIA-A10", GPU + ".replicas": "1"}) == ""


@pytest.mark.rows("P111")
@pytest.mark.parametrize(
    ("labels", "layout", "strategy", "words"),
    [
        (H200, "all-1g.18gb", "mixed", "several models (2 Tesla T4, 8 H200 SXM 141GB)"),
        (H200, "of-my-own", "mixed", "several models"),
        ({**H200, "nvidia.com/mig-1g.18gb.count": "56"}, "", "mixed", "several models"),
        ({**H200, GPU + ".product": "NVIDIA-H200-MIG-INVALID", GPU + ".count": "0"}, "", "single", "several models"),
        ({**T4, GPU + ".count": ""}, "", "none", "counted"),
    ],
)
def test_what_mig_makes_of_several_models_is_not_guessed(
    labels: dict[str, str], layout: str, strategy: str, words: str
) -> None:
    after = {"nvidia.com/mig.config": layout} if layout else {}
    one, findings = predict(labels, after, gpus=WITH_H200, mig={"strategy": strategy})
    assert (one.row()["known"], errors(findings)) == (False, [])
    assert words in one.row()["detail"]


@pytest.mark.rows("P111", "P105")
def test_the_oldest_of_several_models_decides_how_far_mps_goes() -> None:
    text = json.dumps({"version": "v1", "sharing": {"mps": {"resources": [{"name": GPU, "replicas": 20}]}}})
    shared = configs(a=text)
    shared["config"]["default"] = "a"
    volta = {**T4, GPU + ".compute.major": "7", GPU + ".compute.minor": "5"}
    one, _findings = predict(volta, gpus=WITH_A10, devicePlugin=shared)
    assert one.row()["resources"] == {GPU: 60}
    one, findings = predict(volta, gpus={"1eb8": 2, "1db6": 1}, devicePlugin=shared)
    assert "20 replicas are more than the 16" in one.problem
    assert errors(findings) != []


@pytest.mark.rows("P077", "PLG-04")
def test_a_mixed_layout_is_refused_before_the_product_is_known() -> None:
    unknown = {**SERVED, "nvidia.com/mig.capable": "true"}
    (finding,) = predict(unknown, {"nvidia.com/mig.config": "all-balanced"}, mig={"strategy": "single"})[1]
    assert finding.severity == "error"
    assert "Set mig.strategy to mixed" in finding.remedy


@pytest.mark.rows("PLG-08")
def test_a_label_that_names_no_config_is_refused() -> None:
    (finding,) = predict(H200, {"nvidia.com/device-plugin.config": "share"}, devicePlugin=configs(shared=SHARED))[1]
    assert finding.id == "plugin.impossible"
    assert "which no configuration is named (shared)" in finding.detail


@pytest.mark.rows("PLG-01", "P098", "S03")
def test_keys_without_effect_stop_the_plugins_module_and_are_told_by_the_stack() -> None:
    bad = configs(own="resources: {gpus: [{pattern: a, name: b}]}")
    assert [f.severity for f in predict(H200, devicePlugin=bad)[1]] == ["error"]
    assert [f.severity for f in predict(H200, strict=False, devicePlugin=bad)[1]] == ["warning"]


@pytest.mark.rows("PLG-06")
def test_xids_that_are_no_numbers_are_told() -> None:
    env = [{"name": "DP_DISABLE_HEALTHCHECKS", "value": "68,not-an-int,67"}]
    (finding,) = predict(H200, devicePlugin={"env": env})[1]
    assert "not-an-int" in finding.detail


@pytest.mark.rows("P094", "PLG-03")
@pytest.mark.parametrize(
    ("have", "words"),
    [
        ({GPU: 8}, "does not use the configuration shared"),
        ({}, "registered nothing"),
        ({GPU: 28}, "missing or unhealthy"),
        ({"nvidia.com/mig-1g.18gb": 7}, "another layout"),
    ],
)
def test_a_node_that_differs_is_explained(have: dict[str, int], words: str) -> None:
    one = predict(H200, {"nvidia.com/device-plugin.config": "shared"}, devicePlugin=configs(shared=SHARED))[0]
    assert mismatch(one, H200, {GPU: 32}) == ""
    assert words in mismatch(one, H200, have)
    assert "computed was 32 nvidia.com/gpu" in mismatch(one, H200, have)


@pytest.mark.rows("P094")
def test_a_layout_that_is_not_there_yet_explains_the_difference() -> None:
    labels = {**H200, "nvidia.com/mig.config": "all-1g.18gb", "nvidia.com/mig.config.state": "failed"}
    assert "all-1g.18gb is in state failed" in mismatch(predict(labels)[0], labels, {GPU: 8})


@pytest.mark.rows("P097", "GF-04")
def test_labels_of_another_config_are_seen() -> None:
    one = predict(H200, {"nvidia.com/device-plugin.config": "shared"}, devicePlugin=configs(shared=SHARED))[0]
    assert stale_labels(one, {**H200, GPU + ".product": "NVIDIA-H200-SHARED", GPU + ".replicas": "4"}) == ""
    assert "replicas=1, computed was 4" in stale_labels(one, {GPU + ".replicas": "1"})


# --- how devices are handed out ---------------------------------------------------------------------------------------


def lists(strategy: str, **values: Any) -> list[Finding]:
    plugin = {"env": [{"name": "DEVICE_LIST_STRATEGY", "value": strategy}]}
    return predict({**H200}, devicePlugin=plugin, **values)[1]


@pytest.mark.rows("PLG-05")
@pytest.mark.parametrize("strategy", ["envvar", "cdi-cri", "cdi-annotations,cdi-cri", "envvar,cdi-cri"])
def test_list_strategies_that_the_plugin_knows_are_taken(strategy: str) -> None:
    assert lists(strategy) == []


@pytest.mark.rows("PLG-05")
@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("DEVICE_LIST_STRATEGY", "envvar,volume", "envvar, volume-mounts, cdi-annotations, cdi-cri"),
        ("DEVICE_ID_STRATEGY", "name", "uuid, index"),
        ("SHARED_DEVICES_ALLOCATION_POLICY", "spread", "distributed, packed"),
        ("DEVICE_DISCOVERY_STRATEGY", "pci", "auto, nvml, tegra, vfio"),
    ],
)
def test_a_way_to_hand_devices_out_that_is_none_is_refused(name: str, value: str, allowed: str) -> None:
    _one, found = predict(H200, devicePlugin={"env": [{"name": name, "value": value}]})
    assert [(f.id, f.remedy) for f in errors(found)] == [("plugin-config.invalid", f"Allowed: {allowed}.")]
    assert name in found[0].detail


@pytest.mark.rows("PLG-05")
@pytest.mark.parametrize(
    ("flags", "path"),
    [
        ({"plugin": {"deviceListStrategy": ["envvar", "cdi"]}}, "plugin.deviceListStrategy"),
        ({"plugin": {"deviceListStrategy": []}}, "plugin.deviceListStrategy"),
        ({"plugin": {"deviceIDStrategy": ["uuid"]}}, "plugin.deviceIDStrategy"),
        ({"plugin": {"sharedDevicesAllocationPolicy": "most"}}, "plugin.sharedDevicesAllocationPolicy"),
        ({"deviceDiscoveryStrategy": "pci"}, "deviceDiscoveryStrategy"),
    ],
)
def test_the_same_holds_for_a_named_config(flags: dict[str, Any], path: str) -> None:
    _one, found = predict(H200, devicePlugin=configs(a=json.dumps({"version": "v1", "flags": flags})))
    assert [f.path for f in errors(found)] == [f"devicePlugin.config.data.a.flags.{path}"]


@pytest.mark.rows("PLG-05")
def test_a_strategy_that_nothing_on_the_node_understands_is_told() -> None:
    (told,) = lists("volume-mounts")
    assert "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS" in told.remedy
    env = [{"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS", "value": "true"}]
    assert lists("volume-mounts", toolkit={"env": env}) == []
    (told,) = lists("cdi-cri", cdi={"enabled": False})
    assert told.remedy == "Set cdi.enabled to true."


@pytest.mark.rows("P104", "S15")
@pytest.mark.parametrize(("replicas", "share"), [(2, 50), (4, 25), (7, 14)])
def test_each_clients_share_of_threads_and_memory_is_computed_and_shown(replicas: int, share: int) -> None:
    text = json.dumps({"version": "v1", "sharing": {"mps": {"resources": [{"name": GPU, "replicas": replicas}]}}})
    values = configs(shared=text)
    values["config"]["default"] = "shared"
    one, findings = predict(H200, mig={"strategy": "none"}, devicePlugin=values)
    assert errors(findings) == []
    row = one.row()
    assert (row["sharing"], row["shares"], row["resources"]) == ("mps", {GPU: share}, {GPU: 8 * replicas})


@pytest.mark.rows("S60")
def test_a_config_of_somebody_elses_that_shares_by_time_is_told_of_too() -> None:
    made = Offers(policy_of({"devicePlugin": {"config": {"name": "theirs"}}}), {"a": SHARED, "b": "{}"}, False)
    (told,) = [finding for finding in made.findings if finding.id == "policy.no-isolation"]
    assert told.path == "ConfigMap theirs.a"
    ours = Offers(policy_of({"devicePlugin": configs(a=SHARED)}), {"a": SHARED}, False)
    assert ours.findings == []


def counted(gpus: dict[str, int], labels: dict[str, str], entries: tuple[str, ...], *recounted: int | None) -> Any:
    """The offer of a node that hides GPUs. ``recounted``: given where that changes in this run."""
    base = {"nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/gpu.product": "Tesla-T4", **labels}
    made = Offers(policy_of({}), None, True)
    changed = {"n": recounted[0]} if recounted else {}
    one = made.of_nodes([("n", base, base)], {"n": gpus}, {"n": entries}, changed)[0]["n"]
    return one.unknown or dict(one.offer.resources)


@pytest.mark.rows("P099")
def test_hidden_gpus_are_not_computed_as_offered() -> None:
    t4, mixed, count = {"1eb8": 4}, {"1eb8": 2, "2236": 1}, {"nvidia.com/gpu.count": "4"}
    # Feature discovery does not count them, so its label is right once the pods are new.
    assert counted(t4, {"nvidia.com/gpu.count": "3"}, ("18:00.0",)) == {"nvidia.com/gpu": 3}
    # While the list changes, the label still counts them; what is on the bus tells how many are left.
    assert counted(t4, count, ("0000:18:00.0",), 3) == {"nvidia.com/gpu": 3}
    assert counted(t4, {"nvidia.com/gpu.count": "3"}, (), 4) == {"nvidia.com/gpu": 4}
    assert counted(t4, {}, ("0000:18:00.0",), 3) == {"nvidia.com/gpu": 3}
    assert counted(t4, count, ("0000:18:00.0", "0000:28:00.0"), None) == (
        "how many of its GPUs are hidden is not known yet"
    )
    # Of several models the label counts one.
    assert counted(mixed, {"nvidia.com/gpu.count": "1"}, ("Tesla T4",)) == {"nvidia.com/gpu": 1}
    assert counted(mixed, {"nvidia.com/gpu.count": "2"}, ("NVIDIA A10",)) == {"nvidia.com/gpu": 2}
    assert counted(mixed, {"nvidia.com/gpu.count": "1"}, ("0000:18:00.0", "0000:28:00.0")) == (
        "how many of its GPUs are hidden is not known"
    )
