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
        ({"config": {"map": {"a": SHARE, "b": SHARE}}}, "config.default", "one of the configurations: a, b"),
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


@pytest.mark.rows("PLG-09")
def test_an_image_without_a_tag_is_taken_with_the_tag_of_the_release() -> None:
    usual = container_of(pod_of(good({"migStrategy": "none"}), PLUGIN), "nvidia-device-plugin")["image"]
    own = good({"migStrategy": "none", "image": {"repository": "mirror.example.com:5000/nvidia/k8s-device-plugin"}})
    image = container_of(pod_of(own, PLUGIN), "nvidia-device-plugin")["image"]
    assert image == "mirror.example.com:5000/nvidia/k8s-device-plugin:" + usual.rpartition(":")[2]


@pytest.mark.rows("PLG-09")
@pytest.mark.parametrize("name", ["k8s-device-plugin", "/k8s-device-plugin", "mirror.example.com/"])
@pytest.mark.parametrize("tag", ["", "v0.19.0"])
def test_an_image_that_cannot_be_split_is_refused(name: str, tag: str) -> None:
    policy, found = read({"migStrategy": "none", "image": {"repository": name, "tag": tag}})
    assert policy is None
    assert [finding.path for finding in found if finding.severity == "error"] == ["image.repository"]


@pytest.mark.rows("PLG-09")
@pytest.mark.parametrize(
    ("values", "path", "words"),
    [
        ({"devicePlugin": {"enabledd": True}}, "devicePlugin.enabledd", "mean devicePlugin.enabled?"),
        ({"devicePlugin": {"enabled": "yes"}}, "devicePlugin.enabled", "not true or false"),
        ({"gfd": {"enabld": True}}, "gfd.enabld", "mean gfd.enabled?"),
        ({"gfd": [1]}, "gfd", "not a map"),
        ({"config": {"maap": {}}}, "config.maap", "mean config.map?"),
        ({"config": {"fallbackStrategies": ["first"]}}, "config.fallbackStrategies", "has first"),
        ({"config": {"fallbackStrategies": "empty"}}, "config.fallbackStrategies", "not a list"),
        ({"image": {"tagg": "v1"}}, "image.tagg", "mean image.tag?"),
        ({"image": {"tag": 0.2}}, "image.tag", "not a text"),
        ({"image": [1]}, "image", "not a map"),
        ({"updateStrategy": "OnDelete"}, "updateStrategy", "not a map"),
        ({"updateStrategy": {"rollingUpdate": 1}}, "updateStrategy.rollingUpdate", "not a map"),
        ({"updateStrategy": {"rollingUpdate": {"maxUnavailabel": 1}}}, "updateStrategy.rollingUpdate.maxUnavailabel",
         "mean updateStrategy.rollingUpdate.maxUnavailable?"),
        ({"cdi": {"enabled": True}}, "cdi.enabled", "no such key"),
    ],
)  # fmt: skip
def test_keys_and_kinds_below_the_top_are_checked(values: dict[str, Any], path: str, words: str) -> None:
    policy, found = read({"migStrategy": "none", **values})
    assert policy is None
    (error,) = [finding for finding in found if finding.severity == "error"]
    assert error.path == path
    assert words in error.sentence()


@pytest.mark.rows("PLG-09")
def test_what_is_below_the_top_without_effect_is_told_and_nulls_are_as_if_not_there() -> None:
    values = {"migStrategy": "none", "gfd": {"securityContext": {"privileged": True}, "sleepInterval": None},
              "image": None, "config": {"name": None}, "devicePlugin": {"enableHostNetwork": False}}  # fmt: skip
    policy, found = read(values)
    assert policy is not None
    assert [finding.path for finding in found if finding.id == "policy.no-effect"] == ["gfd.securityContext"]


@pytest.mark.rows("PLG-09")
@pytest.mark.parametrize(
    ("names", "fallbacks", "default"),
    [
        (["default", "b"], ["empty"], ""),
        (["a", "b"], ["named", "single", "empty"], ""),
        (["a"], ["named", "single"], "a"),
        (["a"], ["empty", "single"], ""),
    ],
)
def test_fallbacks_choose_the_configuration_in_their_order(
    names: list[str], fallbacks: list[str], default: str
) -> None:
    policy = good({"config": {"map": dict.fromkeys(names, SHARE), "fallbackStrategies": fallbacks}})
    assert policy.device_plugin.config.default == default


@pytest.mark.rows("PLG-09")
@pytest.mark.parametrize(
    "over",
    [{"image": {"tag": "v0.18.2"}}, {"tolerations": []}, {"priorityClassName": "x"}, {"config": {"default": "a"}}],
)
@pytest.mark.parametrize("turned", [False, True])
def test_files_of_one_set_of_values_are_of_one_form(over: dict[str, Any], turned: bool) -> None:
    files = [{"migStrategy": "mixed", "config": {"map": {"a": SHARE, "default": SHARE}}}, over]
    assert good(*files[:: -1 if turned else 1]).mig_strategy == "mixed"


@pytest.mark.rows("PLG-09")
@pytest.mark.parametrize(
    "under", [{"driver": {"enabled": False}}, {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": {}}]
)
def test_a_key_of_its_chart_over_another_form_is_an_unknown_key(under: dict[str, Any]) -> None:
    policy, found = read(under, {"migStrategy": "mixed"})
    assert policy is None
    errors = [finding for finding in found if finding.severity == "error"]
    assert [(finding.id, finding.path.rpartition(".")[2]) for finding in errors] == [
        ("policy.unknown-key", "migStrategy")
    ]
