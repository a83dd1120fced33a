# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules across keys: each provoked, and quiet where it does not apply."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._matrix import LATEST
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._read import resolve
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._schema import TABLE, USED


def found(source: dict[str, Any], severity: str = "error", **options: Any) -> dict[str, str]:
    return {f.path: f.sentence() for f in load(source, **options)[1] if f.severity == severity}


CONFIG = {"create": True, "name": "plugin-config", "data": {"any": "version: v1"}}


@pytest.mark.rows("INS-03")
@pytest.mark.parametrize(
    ("rule", "source", "paths"),
    [
        (1, {"gpuCluster": {"deployCR": True}, "driver": {"enabled": False}}, ["gpuCluster.deployCR"]),
        (2, {"gpuCluster": {"deployCR": True}, "clusterPolicy": {"deployCR": False}}, ["driver.enabled"]),
        (3, {"cdi": {"enabled": False, "nriPluginEnabled": True}}, ["cdi.nriPluginEnabled"]),
        (4, {"cdi": {"nriPluginEnabled": True}, "toolkit": {"enabled": False}}, ["cdi.nriPluginEnabled"]),
        (5, {"devicePlugin": {"config": {"create": True, "name": "a"}}}, ["devicePlugin.config.data"]),
        (6, {"devicePlugin": {"config": dict(CONFIG, name="")}}, ["devicePlugin.config.name"]),
    ],
)
def test_what_makes_helm_fail_is_refused(rule: int, source: dict[str, Any], paths: list[str]) -> None:
    refused = {f.path for f in load(source)[1] if f.id == "policy.contradiction"}
    assert sorted(refused) == paths, rule


@pytest.mark.rows("INS-03")
def test_rule_7_a_gpu_cluster_is_refused_whatever_the_cluster_offers() -> None:
    source = {"gpuCluster": {"deployCR": True}, "clusterPolicy": {"deployCR": False}, "driver": {"enabled": False}}
    assert "not supported yet" in found(source)["gpuCluster.deployCR"]


@pytest.mark.rows("INS-03")
def test_all_of_helms_rules_are_quiet_on_a_good_policy() -> None:
    source = {
        "cdi": {"enabled": True, "nriPluginEnabled": True},
        "devicePlugin": {"config": dict(CONFIG, default="any")},
    }
    assert found(source) == {}


@pytest.mark.rows("INS-03", "INS-02")
def test_rules_hold_for_a_cluster_policy_too() -> None:
    spec = {"cdi": {"enabled": False, "nriPluginEnabled": True}, "toolkit": {"enabled": False}}
    sentences = [f.detail for f in load(spec, kind="clusterpolicy")[1] if f.id == "policy.contradiction"]
    assert len(sentences) == 2


def test_a_policy_that_deploys_nothing_is_refused() -> None:
    assert set(found({"clusterPolicy": {"deployCR": False}})) == {"clusterPolicy.deployCR"}


@pytest.mark.rows("INS-09")
@pytest.mark.parametrize(
    ("values", "name", "key"),
    [
        ({"devicePlugin": {"config": CONFIG}}, "device_plugin.config", "any"),
        ({"dcgmExporter": {"config": {"create": True, "name": "c", "data": "DCGM_FI_DEV_GPU_TEMP, gauge, t"}}},
         "dcgm_exporter.config", "dcgm-metrics.csv"),
        ({"migManager": {"config": {"create": True, "name": "c", "data": {"config.yaml": "version: v1"}}}},
         "mig_manager.config", "config.yaml"),
        ({"migManager": {"gpuClientsConfig": {"create": True, "name": "c", "data": {"clients.yaml": "x: []"}}}},
         "mig_manager.gpu_clients_config", "clients.yaml"),
    ],
)  # fmt: skip
def test_config_maps_are_made_from_data(values: dict[str, Any], name: str, key: str) -> None:
    policy, _findings = load(values)
    config: Any = policy
    for part in name.split("."):
        config = getattr(config, part)
    assert list(config.data) == [key]
    (block,) = values.values()
    (written,) = block.values()
    not_made = {next(iter(values)): {next(iter(block)): dict(written, create=False)}}
    policy, findings = load(not_made)
    config = policy
    for part in name.split("."):
        config = getattr(config, part)
    assert config.data is None
    assert [f.id for f in findings] == ["policy.no-effect"]


@pytest.mark.rows("INS-09")
@pytest.mark.parametrize(
    ("block", "values"),
    [
        ("migManager.config", {"migManager": {"config": {"create": True, "name": "c", "data": {"other": "x"}}}}),
        (
            "migManager.gpuClientsConfig",
            {"migManager": {"gpuClientsConfig": {"create": True, "name": "c", "data": {"other": "x"}}}},
        ),
        ("dcgmExporter.config", {"dcgmExporter": {"config": {"create": True, "name": "c"}}}),
    ],
)
def test_a_config_map_without_what_is_read_is_refused(block: str, values: dict[str, Any]) -> None:
    assert set(found(values)) == {f"{block}.data"}


def test_a_default_configuration_that_is_not_there_is_answered_with_the_nearest() -> None:
    sentence = found({"devicePlugin": {"config": dict(CONFIG, default="any1")}})["devicePlugin.config.default"]
    assert "Did you mean any?" in sentence
    assert "devicePlugin.config.default" in found({"devicePlugin": {"config": {"default": "any"}}}, "warning")


@pytest.mark.parametrize("name", ["gds", "gdrcopy"])
def test_precompiled_drivers_exclude_gds_and_gdrcopy(name: str) -> None:
    source = {"driver": {"usePrecompiled": True, "kernelModuleType": "open", "version": "595"}, name: {"enabled": True}}
    assert set(found(source)) == {f"{name}.enabled"}
    assert found({"driver": {"usePrecompiled": True, "version": "595"}}) == {}


def test_precompiled_drivers_want_a_branch_and_no_digest() -> None:
    assert set(found({"driver": {"usePrecompiled": True, "version": "sha256:" + "0" * 64}})) == {"driver.version"}
    assert '"595"' in found({"driver": {"usePrecompiled": True}}, "warning")["driver.version"]


@pytest.mark.parametrize(
    ("version", "kind", "refused"),
    [
        ("2.29.4", "auto", True),
        ("2.29.4", "proprietary", True),
        ("2.29.4", "open", False),
        ("2.17.4", "auto", False),
        ("2.17.5", "auto", True),
    ],
)
def test_gds_needs_open_modules(version: str, kind: str, refused: bool) -> None:
    source = {"gds": {"enabled": True, "version": version}, "driver": {"kernelModuleType": kind}}
    assert ("gds.enabled" in found(source)) == refused


def test_parts_of_the_driver_pod_without_driver_are_told() -> None:
    source = {
        "driver": {"enabled": False, "rdma": {"enabled": True}, "usePrecompiled": True},
        "gds": {"enabled": True},
        "gdrcopy": {"enabled": True},
    }
    assert found(source) == {}
    assert set(found(source, "warning")) == {
        "driver.rdma.enabled",
        "driver.usePrecompiled",
        "gds.enabled",
        "gdrcopy.enabled",
    }


def test_two_licences_and_an_idle_allow_list_are_told() -> None:
    source = {
        "driver": {"licensingConfig": {"secretName": "a", "configMapName": "b"}},
        "dcgmExporter": {"podLabelAllowlistRegex": ["app"]},
    }
    told = {f.path for f in load(source)[1] if f.id == "policy.no-effect"}
    assert told == {"driver.licensingConfig.configMapName", "dcgmExporter.podLabelAllowlistRegex"}


def test_time_slicing_says_that_memory_is_shared() -> None:
    data = {"any": "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"}
    assert (
        "MPS"
        in found({"devicePlugin": {"config": dict(CONFIG, data=data)}}, "info")["devicePlugin.config.data.any"].upper()
    )
    assert found({"devicePlugin": {"config": CONFIG}}, "info") == {}


@pytest.mark.parametrize(
    ("version", "severity"), [("470.82.01", "error"), ("550.163.01", "warning"), ("580.173.02", "")]
)
def test_a_driver_at_its_end_of_life_is_answered(version: str, severity: str) -> None:
    source = {"driver": {"version": version}}
    if severity:
        assert "595.91.07" in found(source, severity)["driver.version"]
    else:
        assert load(source)[1] == []
    source["driver"]["enabled"] = False
    assert load(source)[1] == []


def test_a_finding_that_can_be_accepted_does_not_stop_the_run_once_it_is() -> None:
    source = {"driver": {"version": "470.82.01"}, "mig": {"strategy": "nonsense"}}
    ids = [f.accept for f in load(source)[1] if f.accept]
    assert ids == ["policy.driver-end-of-life"]
    assert load(source, accept=ids)[0] is None
    del source["mig"]
    policy, findings = load(source, accept=ids)
    assert policy is not None
    assert [f.severity for f in findings] == ["warning"]


def test_one_mistake_gives_one_finding_although_rules_read_the_key() -> None:
    source = {"devicePlugin": {"config": {"create": True, "name": "c", "data": "a text"}}}
    assert [f.path for f in load(source)[1]] == ["devicePlugin.config.data"]


TIME_SLICED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"


@pytest.mark.rows("S60")
def test_sharing_by_time_says_that_memory_is_not_kept_apart_and_what_would_do_it() -> None:
    data = {"any": f"version: v1\n{TIME_SLICED}", "alone": "version: v1"}
    told = found({"devicePlugin": {"config": dict(CONFIG, data=data)}}, "info")
    assert set(told) == {"devicePlugin.config.data.any"}
    assert "not kept apart in memory" in told["devicePlugin.config.data.any"]
    assert "sharing.mps" in told["devicePlugin.config.data.any"]
    assert "MIG" in told["devicePlugin.config.data.any"]


# --- zero, false and keys that nothing reads ------------------------------------------------------------------------


def nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    return dict(value)


SWITCHES = [key.path for key in TABLE if key.type == "bool" and key.status == USED and key.in_values]
ZEROES = [
    key.path
    for key in TABLE
    if key.type == "int" and key.minimum == 0 and key.status == USED and key.in_values and "Probe" not in key.path
]


@pytest.mark.rows("L50")
@pytest.mark.parametrize("path", SWITCHES)
def test_false_can_be_said_of_every_switch(path: str) -> None:
    values = resolve(nested(path, False), "values", LATEST, set())
    assert values[path] is False, path


@pytest.mark.rows("L50")
@pytest.mark.parametrize("path", ZEROES)
def test_zero_can_be_said_of_every_number_that_may_be_zero(path: str) -> None:
    assert resolve(nested(path, 0), "values", LATEST, set())[path] == 0


@pytest.mark.rows("L50")
def test_zeroes_that_are_taken_for_nothing_are_told_with_what_to_write() -> None:
    path = "driver.upgradePolicy.maxUnavailable"
    assert '"0%"' in found(nested(path, 0), "warning")[path]
    probe = "driver.startupProbe.initialDelaySeconds"
    assert "Write 1." in found(nested(probe, 0), "warning")[probe]
    assert found(nested(probe, 0), "warning", kind="clusterpolicy")[probe]
    policy, findings = load(nested(path, "0%"))
    assert policy is not None
    assert policy.driver.upgrade_policy.max_unavailable == "0%"
    assert findings == []


@pytest.mark.rows("L50")
def test_keys_that_nothing_reads_are_told() -> None:
    dead = {
        "operator": {"defaultRuntime": "crio"},
        "driver": {"useOpenKernelModules": True},
        "dcgm": {"hostPort": 5555},
    }
    told = {f.path for f in load(dead)[1]}
    assert {"operator.defaultRuntime", "driver.useOpenKernelModules", "dcgm.hostPort"} <= told
