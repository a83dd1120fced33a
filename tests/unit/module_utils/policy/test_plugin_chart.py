# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the device plugin's own chart: read, checked as the chart checks them, and with its defect mended."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Finding
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load, merge
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._model import Policy
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import container_of, env_of, objects_of, pod_of

PLUGIN, GFD = "nvidia-device-plugin-daemonset", "gpu-feature-discovery"
SHARE = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"


def read(*sources: dict[str, Any], namespace: str = "gpu-operator") -> tuple[Policy | None, list[Finding]]:
    tree, found = merge(sources, namespace)
    policy, more = load(tree)
    errors = [finding for finding in found if finding.severity == "error"]
    return (None if errors else policy), found + more


def good(*sources: dict[str, Any]) -> Policy:
    policy, found = read(*sources)
    assert policy is not None, [finding.sentence() for finding in found]
    return policy


@pytest.mark.rows("PLG-09")
def test_values_of_the_plugins_chart_reach_plugin_and_discovery() -> None:
    policy = good(
        {
            "migStrategy": "mixed",
            "failOnInitError": False,
            "deviceListStrategy": ["envvar", "cdi-cri"],
            "deviceIDStrategy": "index",
            "compatWithCPUManager": True,
            "gdsEnabled": True,
            "image": {"repository": "mirror.example.com/nvidia/k8s-device-plugin", "tag": "v0.19.0"},
            "imagePullSecrets": [{"name": "mirror"}],
            "resources": {"limits": {"memory": "1Gi"}},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "priorityClassName": "own",
            "updateStrategy": {"type": "OnDelete"},
            "runtimeClassName": "gpu",
            "config": {"map": {"four": SHARE}},
        }
    )
    pod = pod_of(policy, PLUGIN)
    main = container_of(pod, "nvidia-device-plugin")
    env = env_of(main)
    assert (env["MIG_STRATEGY"], env["FAIL_ON_INIT_ERROR"], env["DEVICE_ID_STRATEGY"]) == ("mixed", "false", "index")
    assert (env["DEVICE_LIST_STRATEGY"], env["PASS_DEVICE_SPECS"]) == ("envvar,cdi-cri", "true")
    assert env["GDS_ENABLED"] == "true"
    assert main["image"] == "mirror.example.com/nvidia/k8s-device-plugin:v0.19.0"
    assert main["resources"] == {"limits": {"memory": "1Gi"}}
    assert {"name": "mirror"} in pod["imagePullSecrets"]
    assert (pod["priorityClassName"], pod["runtimeClassName"]) == ("own", "gpu")
    assert pod["tolerations"] == [{"key": "a", "operator": "Exists"}]
    made = objects_of(policy)
    assert made[f"DaemonSet/{PLUGIN}"]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert made["ConfigMap/device-plugin-configs"]["data"] == {"four": SHARE}
    # The chart's fallback is the only configuration; ours must come to the same.
    assert env_of(container_of(pod, "config-manager"))["DEFAULT_CONFIG"] == "four"


@pytest.mark.rows("PLG-09")
@pytest.mark.parametrize("where", ["gfd", "top"])
def test_what_the_chart_reads_at_the_wrong_place_works_at_both(where: str) -> None:
    block = {"noTimestamp": True, "sleepInterval": "30s"}
    policy = good({"migStrategy": "none", **(block if where == "top" else {"gfd": block})})
    env = env_of(container_of(pod_of(policy, GFD), GFD))
    assert (env["GFD_NO_TIMESTAMP"], env["GFD_SLEEP_INTERVAL"]) == ("true", "30s")


@pytest.mark.rows("PLG-09")
def test_a_tag_alone_keeps_the_image_and_discovery_can_be_left_out() -> None:
    policy = good({"migStrategy": "none", "image": {"tag": "v0.18.2"}, "gfd": {"enabled": False}})
    assert (
        container_of(pod_of(policy, PLUGIN), "nvidia-device-plugin")["image"]
        == "nvcr.io/nvidia/k8s-device-plugin:v0.18.2"
    )
    assert not policy.gfd.enabled


@pytest.mark.rows("PLG-09")
@pytest.mark.parametrize(
    ("values", "path", "words"),
    [
        ({"config": {"map": {"a": SHARE}, "name": "b"}}, "config.name", "together"),
        ({"config": {"map": {"a": SHARE, "b": SHARE}}}, "config.default", "several configurations: a, b"),
        ({"config": {"map": "a"}}, "config.map", "not a map"),
        ({"config": 3, "migStrategy": "none"}, "config", "not a map"),
        ({"migStrategy": "some"}, "mig.strategy", "some"),
        ({"migStrategy": "none", "configg": {}}, "configg", "no such key"),
        ({"gdsEnabled": {}, "failOnInitError": {"a": 1}}, "failOnInitError", "neither a text nor a switch"),
    ],
)
def test_what_the_chart_refuses_is_refused_with_the_path(values: dict[str, Any], path: str, words: str) -> None:
    policy, found = read(values)
    assert policy is None
    assert [words in finding.detail for finding in found if finding.path == path and finding.severity == "error"] == [
        True
    ]


@pytest.mark.rows("PLG-09")
def test_the_default_namespace_must_be_asked_for() -> None:
    policy, found = read({"migStrategy": "none"}, namespace="default")
    assert policy is None
    assert [finding.path for finding in found if finding.severity == "error"] == ["namespace"]
    policy, _found = read({"migStrategy": "none", "allowDefaultNamespace": True}, namespace="default")
    assert policy is not None


@pytest.mark.rows("PLG-09")
def test_a_configuration_called_default_is_the_default_and_what_has_no_place_is_told() -> None:
    values = {
        "config": {"map": {"a": SHARE, "default": SHARE}},
        "affinity": {"nodeAffinity": {}},
        "nodeSelector": {"a": "b"},
    }
    policy, found = read(values)
    assert policy is not None
    assert policy.device_plugin.config.default == "default"
    told = {finding.path: finding.remedy for finding in found if finding.id == "policy.no-effect"}
    assert set(told) == {"affinity", "nodeSelector"}
    assert "nvidia.com/gpu.deploy.device-plugin" in told["nodeSelector"]


@pytest.mark.rows("PLG-09")
def test_other_forms_are_not_taken_for_it_and_more_can_be_laid_over_it() -> None:
    assert good({"mig": {"strategy": "none"}}).mig_strategy == "none"
    both = good(
        {"migStrategy": "mixed", "config": {"map": {"four": SHARE}}},
        {"devicePlugin": {"enabled": True}, "mig": {"strategy": "none"}},
    )
    assert both.mig_strategy == "none"
    assert both.device_plugin.config.default == "four"
