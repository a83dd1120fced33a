# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Problems that are named before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import problems
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import ERROR, Finding
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
    VALUES_FILES,
    cluster,
    node,
    policy_of,
    values_file,
)


def found(values: dict[str, Any], facts: ClusterFacts | None = None) -> list[Finding]:
    return problems(policy_of(values), facts or cluster())


@pytest.mark.parametrize("name", VALUES_FILES)
def test_the_values_files_have_none(name: str) -> None:
    assert problems(values_file(name), cluster()) == []


NAMED: list[tuple[str, dict[str, Any], str, tuple[str, ...]]] = [
    ("driver.repoConfig.configMapName", {"driver": {"repoConfig": {"configMapName": "x"}}}, "ConfigMap/x", ("a",)),
    ("driver.certConfig.name", {"driver": {"certConfig": {"name": "x"}}}, "ConfigMap/x", ("a",)),
    ("driver.kernelModuleConfig.name", {"driver": {"kernelModuleConfig": {"name": "x"}}}, "ConfigMap/x", ("a",)),
    (
        "driver.virtualTopology.config",
        {"driver": {"virtualTopology": {"config": "x"}}},
        "ConfigMap/x",
        ("nvidia-topologyd.conf",),
    ),
    ("driver.secretEnv", {"driver": {"secretEnv": "x"}}, "Secret/x", ("A",)),
    (
        "driver.licensingConfig.secretName",
        {"driver": {"licensingConfig": {"secretName": "x"}}},
        "Secret/x",
        ("gridd.conf", "client_configuration_token.tok"),
    ),
    ("devicePlugin.config.name", {"devicePlugin": {"config": {"name": "x", "default": "a"}}}, "ConfigMap/x", ("a",)),
    ("dcgmExporter.config.name", {"dcgmExporter": {"config": {"name": "x"}}}, "ConfigMap/x", ("dcgm-metrics.csv",)),
    ("migManager.config.name", {"migManager": {"config": {"name": "x"}}}, "ConfigMap/x", ("config.yaml",)),
    (
        "migManager.gpuClientsConfig.name",
        {"migManager": {"gpuClientsConfig": {"name": "x"}}},
        "ConfigMap/x",
        ("clients.yaml",),
    ),
]
ANY_KEY = (
    "driver.repoConfig.configMapName",
    "driver.certConfig.name",
    "driver.kernelModuleConfig.name",
    "driver.secretEnv",
)


@pytest.mark.rows("DRV-07", "DRV-08", "DRV-09", "DRV-10", "DRV-11", "DP-01", "DCG-01", "MIG-02")
@pytest.mark.parametrize(("path", "values", "name", "keys"), NAMED, ids=[item[0] for item in NAMED])
def test_what_the_policy_names_must_be_there(
    path: str, values: dict[str, Any], name: str, keys: tuple[str, ...]
) -> None:
    (missing,) = found(values)
    assert (missing.severity, missing.path, missing.id) == (ERROR, path, "config-missing")
    assert "does not exist" in missing.detail
    assert found(values, cluster(config_keys={name: keys})) == []
    if path not in ANY_KEY:
        (finding,) = found(values, cluster(config_keys={name: ("other",)}))
        assert (finding.severity, finding.path, finding.id) == (ERROR, path, "config-key-missing")
        assert keys[0] in finding.detail
        assert "other" in finding.detail


@pytest.mark.parametrize(
    "values",
    [
        {"driver": {"enabled": False, "repoConfig": {"configMapName": "x"}}},
        {"dcgmExporter": {"enabled": False, "config": {"name": "x"}}},
        {"migManager": {"enabled": False, "config": {"name": "x"}}},
        {"devicePlugin": {"config": {"name": "x", "create": True, "data": {"a": "version: v1"}}}},
    ],
)
def test_what_no_pod_reads_or_we_make_need_not_be_there(values: dict[str, Any]) -> None:
    assert found(values) == []


def test_a_token_is_needed_only_with_a_licence_server_in_the_cloud() -> None:
    values = {"driver": {"licensingConfig": {"secretName": "x", "nlsEnabled": False}}}
    assert found(values, cluster(config_keys={"Secret/x": ("gridd.conf",)})) == []


def test_all_are_named_at_once() -> None:
    values = {"driver": {"secretEnv": "a", "certConfig": {"name": "b"}}, "migManager": {"config": {"name": "c"}}}
    assert len(found(values)) == 3


def test_two_files_in_one_place_are_refused() -> None:
    values = {"driver": {"kernelModuleConfig": {"name": "params"}, "licensingConfig": {"secretName": "licence"}}}
    keys = {
        "ConfigMap/params": ("gridd.conf", "nvidia.conf"),
        "Secret/licence": ("gridd.conf", "client_configuration_token.tok"),
    }
    (finding,) = found(values, cluster(config_keys=keys))
    assert finding.id == "mount-twice"
    assert "/drivers/gridd.conf" in finding.detail


@pytest.mark.rows("COM-13")
@pytest.mark.parametrize("values", [{}, {"driver": {"usePrecompiled": True, "version": "595"}}])
def test_a_node_that_gets_no_driver_is_named(values: dict[str, Any]) -> None:
    unknown = node("new", "", "") if not values else node("new", kernel="")
    (finding,) = found(values, cluster(node("a"), unknown))
    assert finding.target == "Node new"
    assert finding.severity != ERROR
    assert ("kernel-version" in finding.detail) == bool(values)


def test_a_system_whose_folders_are_not_known_is_refused_only_where_they_matter() -> None:
    facts = cluster(node("a", "flatcar", "4230.2.1"), config_keys={"ConfigMap/repos": ("a",)})
    assert found({}, facts) == []
    (finding,) = found({"driver": {"repoConfig": {"configMapName": "repos"}}}, facts)
    assert (finding.severity, finding.path) == (ERROR, "driver.repoConfig.configMapName")
    assert "flatcar" in finding.detail


def test_env_that_the_stack_sets_itself_is_pointed_out() -> None:
    (finding,) = found({"gfd": {"env": [{"name": "MIG_STRATEGY", "value": "mixed"}]}})
    assert (finding.path, finding.severity) == ("gfd.env", "warning")


@pytest.mark.rows("L15")
def test_probes_that_the_operator_does_not_survive_are_pointed_out() -> None:
    (finding,) = found({"driver": {"livenessProbe": {"periodSeconds": 30}}})
    assert (finding.path, finding.severity) == ("driver.livenessProbe", "info")


@pytest.mark.rows("P099")
def test_a_list_of_hidden_gpus_that_no_config_map_holds_is_refused() -> None:
    entry = "GPU-81a8fb40-695b-ea64-5fc5-2218af7a88de"
    size = len(f"gpu-00000 {entry}\n")
    fits, most = {}, 900_000 // size
    for index in range(most):
        fits[f"gpu-{index:05}"] = (entry,)
    assert found({}, cluster(hidden=fits)) == []
    (finding,) = found({}, cluster(hidden={**fits, "gpu-99999": (entry,)}))
    assert (finding.id, finding.severity, finding.path) == ("groups.hidden-too-long", "error", "node_groups")
    for word in ("hidden_gpus", f"{(most + 1) * size} bytes", "900000", f"{most + 1} nodes"):
        assert word in finding.detail
