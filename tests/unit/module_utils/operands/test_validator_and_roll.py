# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The validator's chain, the namespace, and the hash by which changed configs roll their pods."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._build import CONFIG_HASH, content_hash
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._namespace import namespace
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
    cluster,
    container_of,
    env_of,
    objects_of,
    pod_of,
    policy_of,
)

VALIDATOR = "nvidia-operator-validator"
CHAIN = ["driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation"]


@pytest.mark.rows("S28", "VAL-01", "VAL-05", "VAL-06", "VAL-07")
def test_a_node_is_tried_from_the_driver_upwards() -> None:
    pod = pod_of(policy_of(), VALIDATOR)
    assert [c["name"] for c in pod["initContainers"]] == CHAIN
    parts = [env_of(c)["COMPONENT"] for c in pod["initContainers"]]
    assert parts == ["driver", "toolkit", "cuda", "plugin"]
    waits = [env_of(c)["WITH_WAIT"] for c in pod["initContainers"]]
    assert waits == ["true", "false", "false", "false"]
    assert all(c["securityContext"]["runAsUser"] == 0 for c in pod["initContainers"])


@pytest.mark.rows("VAL-03")
def test_the_driver_check_reaches_the_device_links_of_the_host() -> None:
    check = container_of(pod_of(policy_of(), VALIDATOR), "driver-validation")
    assert {"/host-dev-char", "/host", "/run/nvidia/driver"} <= {m["mountPath"] for m in check["volumeMounts"]}


def test_without_the_device_plugin_it_is_not_tried() -> None:
    pod = pod_of(policy_of({"devicePlugin": {"enabled": False}}), VALIDATOR)
    assert [c["name"] for c in pod["initContainers"]] == CHAIN[:3]


@pytest.mark.rows("VAL-12")
@pytest.mark.parametrize("part", ["driver", "toolkit", "cuda", "plugin"])
def test_env_of_a_part_reaches_its_check(part: str) -> None:
    policy = policy_of({"validator": {part: {"env": [{"name": "WITH_WORKLOAD", "value": "maybe"}]}}})
    pod = pod_of(policy, VALIDATOR)
    told = [c["name"] for c in pod["initContainers"] if env_of(c).get("WITH_WORKLOAD") == "maybe"]
    assert told == [f"{part}-validation"]


@pytest.mark.rows("VAL-12")
def test_env_of_driver_and_toolkit_checks_reaches_those_in_other_pods() -> None:
    env = [{"name": "DISABLE_DEV_CHAR_SYMLINK_CREATION", "value": "true"}]
    policy = policy_of({"validator": {"driver": {"env": env}, "toolkit": {"env": env}}})
    toolkit = container_of(pod_of(policy, "nvidia-container-toolkit-daemonset"), "driver-validation")
    plugin = container_of(pod_of(policy, "nvidia-device-plugin-daemonset"), "toolkit-validation")
    assert env_of(toolkit)["DISABLE_DEV_CHAR_SYMLINK_CREATION"] == "true"
    assert env_of(plugin) == {"DISABLE_DEV_CHAR_SYMLINK_CREATION": "true"}


@pytest.mark.rows("VAL-07")
def test_a_pod_through_the_device_plugin_is_tried_only_on_demand() -> None:
    check = container_of(pod_of(policy_of(), VALIDATOR), "plugin-validation")
    assert env_of(check)["WITH_WORKLOAD"] == "false"
    wanted = policy_of({"validator": {"plugin": {"env": [{"name": "WITH_WORKLOAD", "value": "true"}]}}})
    assert env_of(container_of(pod_of(wanted, VALIDATOR), "plugin-validation"))["WITH_WORKLOAD"] == "true"


@pytest.mark.rows("VAL-11")
def test_results_go_when_the_validator_goes() -> None:
    main = container_of(pod_of(policy_of(), VALIDATOR), VALIDATOR)
    assert main["lifecycle"]["preStop"]["exec"]["command"][:2] == ["sh", "-c"]


@pytest.mark.rows("STA-04", "S37")
@pytest.mark.parametrize("wanted", [True, False])
def test_the_namespace_lets_privileged_pods_in_where_the_policy_says_so(wanted: bool) -> None:
    made = namespace(policy_of({"psa": {"enabled": wanted}}), cluster(namespace="gpu"))
    labels = {k: v for k, v in made["metadata"]["labels"].items() if k.startswith("pod-security.kubernetes.io/")}
    modes = ("enforce", "audit", "warn")
    assert labels == ({f"pod-security.kubernetes.io/{mode}": "privileged" for mode in modes} if wanted else {})
    assert made["metadata"]["name"] == "gpu"


def test_another_namespace_is_used_throughout() -> None:
    made = objects_of(policy_of(), cluster(namespace="gpu"))
    for obj in made.values():
        assert obj["metadata"].get("namespace", "gpu") == "gpu"
        for subject in obj.get("subjects", []):
            assert subject["namespace"] == "gpu"
    assert "gpu-operator" not in {obj["metadata"].get("namespace") for obj in made.values()}


def hashes(values: dict[str, Any], **facts: Any) -> dict[str, str | None]:
    made = objects_of(policy_of(values), cluster(**facts))
    return {
        key.split("/")[1]: obj["spec"]["template"]["metadata"].get("annotations", {}).get(CONFIG_HASH)
        for key, obj in made.items()
        if key.startswith("DaemonSet/")
    }


@pytest.mark.rows("L22", "COM-09")
def test_only_pods_that_read_a_config_carry_a_hash() -> None:
    found = hashes({"dcgm": {"enabled": True}, "nodeStatusExporter": {"enabled": True}})
    assert {name for name, value in found.items() if value} == {
        "nvidia-driver-daemonset",
        "nvidia-container-toolkit-daemonset",
        "nvidia-device-plugin-daemonset",
        "nvidia-mig-manager",
    }


@pytest.mark.rows("L22", "P096")
def test_a_changed_config_in_the_policy_rolls_the_pods_that_read_it() -> None:
    def values(text: str) -> dict[str, Any]:
        return {"devicePlugin": {"config": {"name": "c", "create": True, "data": {"a": text}}}}

    before, after = hashes(values("version: v1")), hashes(values("version: v1 "))
    assert {name for name in before if before[name] != after[name]} == {
        "nvidia-device-plugin-daemonset",
        "nvidia-device-plugin-mps-control-daemon",
        "gpu-feature-discovery",
    }


@pytest.mark.rows("L22")
def test_changed_secrets_and_configs_of_the_user_reach_the_driver_pods_too() -> None:
    driver = {
        "secretEnv": "env",
        "licensingConfig": {"secretName": "licence"},
        "virtualTopology": {"config": "topology"},
    }
    names = ("Secret/env", "Secret/licence", "ConfigMap/topology")
    seen = {hashes({"driver": driver}, config_hashes=dict.fromkeys(names, "1"))["nvidia-driver-daemonset"]}
    for name in names:
        changed = {**dict.fromkeys(names, "1"), name: "2"}
        seen.add(hashes({"driver": driver}, config_hashes=changed)["nvidia-driver-daemonset"])
    assert len(seen) == 4


def test_the_hash_is_about_content_and_not_about_order() -> None:
    assert content_hash({"a": "1", "b": "2"}) == content_hash({"b": "2", "a": "1"})
    assert content_hash({"a": "1"}) != content_hash({"a": "2"})


def test_a_users_annotation_does_not_take_the_place_of_the_hash() -> None:
    values = {"daemonsets": {"annotations": {CONFIG_HASH: "mine"}}}
    assert hashes(values)["nvidia-driver-daemonset"] == hashes({})["nvidia-driver-daemonset"]
