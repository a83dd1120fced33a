# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How GPUs are offered and shared: device plugin, its configs, MPS, MIG, and what GPU feature discovery is told."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
    container_of,
    env_of,
    mounts_of,
    objects_of,
    pod_of,
    policy_of,
    values_file,
    volume_of,
)

PLUGIN, MPS, GFD = "nvidia-device-plugin-daemonset", "nvidia-device-plugin-mps-control-daemon", "gpu-feature-discovery"
MAIN = {PLUGIN: "nvidia-device-plugin", MPS: "mps-control-daemon-ctr", GFD: "gpu-feature-discovery"}
PROCESS = {PLUGIN: "nvidia-device-plugin", MPS: "/usr/bin/mps-control-daemon", GFD: "gpu-feature-discovery"}


@pytest.mark.rows("DP-01", "S14")
@pytest.mark.parametrize("name", MAIN)
def test_a_node_chooses_one_of_the_named_configs_by_its_label(name: str) -> None:
    pod = pod_of(policy_of({"devicePlugin": {"config": {"name": "sharing", "default": "any"}}}), name)
    first, follows = (env_of(container_of(pod, c)) for c in ("config-manager-init", "config-manager"))
    for env in (first, follows):
        assert env["NODE_LABEL"] == "nvidia.com/device-plugin.config"
        assert env["DEFAULT_CONFIG"] == "any"
        assert env["FALLBACK_STRATEGIES"] == "empty"
        assert (env["CONFIG_FILE_SRCDIR"], env["CONFIG_FILE_DST"]) == ("/available-configs", "/config/config.yaml")
    assert (first["ONESHOT"], first["SEND_SIGNAL"], first["PROCESS_TO_SIGNAL"]) == ("true", "false", "")
    assert (follows["ONESHOT"], follows["SEND_SIGNAL"], follows["SIGNAL"]) == ("false", "true", "1")
    assert follows["PROCESS_TO_SIGNAL"] == PROCESS[name]
    assert env_of(container_of(pod, MAIN[name]))["CONFIG_FILE"] == "/config/config.yaml"
    assert volume_of(pod, "sharing")["configMap"] == {"name": "sharing"}
    assert volume_of(pod, "config") == {"name": "config", "emptyDir": {}}
    for item in (MAIN[name], "config-manager-init", "config-manager"):
        assert {"/config", "/available-configs"} <= set(mounts_of(container_of(pod, item)))
    # The helper must see the process that it signals.
    assert pod.get("shareProcessNamespace") or pod.get("hostPID")
    assert not (pod.get("shareProcessNamespace") and pod.get("hostPID"))


@pytest.mark.rows("DP-01")
@pytest.mark.parametrize("name", MAIN)
def test_without_named_configs_there_is_no_helper(name: str) -> None:
    pod = pod_of(policy_of(), name)
    assert "config-manager" not in str(pod)
    assert "CONFIG_FILE" not in str(pod)
    assert "shareProcessNamespace" not in pod


@pytest.mark.rows("DP-02", "INS-09", "E8")
def test_configs_that_the_values_hold_are_made_as_they_stand() -> None:
    made = objects_of(values_file("time-slicing"))
    data = made["ConfigMap/plugin-config"]["data"]
    assert yaml.safe_load(data["any"])["sharing"]["timeSlicing"]["resources"][0]["replicas"] == 4
    assert yaml.safe_load(data["a100"]) == {"version": "v1", "flags": {"migStrategy": "mixed"}}


def test_configs_are_made_even_where_only_discovery_reads_them() -> None:
    values = {"enabled": False, "config": {"name": "c", "create": True, "data": {"a": "version: v1"}}}
    made = objects_of(policy_of({"devicePlugin": values}))
    assert made["ConfigMap/c"]["data"] == {"a": "version: v1"}
    assert f"DaemonSet/{PLUGIN}" not in made


@pytest.mark.parametrize("name", ["config", "mps-root", "a.b", "x" * 100])
def test_a_config_may_have_any_name(name: str) -> None:
    for daemonset in MAIN:
        pod = pod_of(policy_of({"devicePlugin": {"config": {"name": name}}}), daemonset)
        names = [v["name"] for v in pod["volumes"]]
        assert len(names) == len(set(names))
        volume = mounts_of(container_of(pod, "config-manager"))["/available-configs"]["name"]
        assert volume_of(pod, volume)["configMap"]["name"] == name


@pytest.mark.rows("DP-03", "S15", "P103")
def test_mps_runs_where_discovery_found_that_it_is_asked_for() -> None:
    pod = pod_of(policy_of(), MPS)
    assert pod["nodeSelector"]["nvidia.com/mps.capable"] == "true"
    mounts = container_of(pod, "mps-control-daemon-mounts")
    assert mounts["command"] == ["mps-control-daemon", "mount-shm"]
    assert mounts_of(mounts)["/mps"]["mountPropagation"] == "Bidirectional"
    assert [c["name"] for c in pod["initContainers"]] == ["toolkit-validation", "mps-control-daemon-mounts"]


@pytest.mark.rows("DP-03", "L38")
def test_another_mps_root_is_shared_by_daemon_and_plugin() -> None:
    spec = {"devicePlugin": {"mps": {"root": "/data/mps"}}}
    policy = policy_of(
        {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "c"}, "spec": spec}
    )
    for name in (PLUGIN, MPS):
        pod = pod_of(policy, name)
        assert volume_of(pod, "mps-root")["hostPath"]["path"] == "/data/mps"
        assert volume_of(pod, "mps-shm")["hostPath"]["path"] == "/data/mps/shm"
    assert env_of(pod_of(policy, PLUGIN)["containers"][0])["MPS_ROOT"] == "/data/mps"


@pytest.mark.rows("DP-04")
def test_features_that_the_policy_turns_on_are_offered_by_the_plugin() -> None:
    values: dict[str, Any] = {
        "driver": {"kernelModuleType": "open"},
        "gds": {"enabled": True},
        "gdrcopy": {"enabled": True},
    }
    env = env_of(pod_of(policy_of(values), PLUGIN)["containers"][0])
    assert (env["GDS_ENABLED"], env["MOFED_ENABLED"], env["GDRCOPY_ENABLED"]) == ("true", "true", "true")
    assert not {"GDS_ENABLED", "MOFED_ENABLED", "GDRCOPY_ENABLED"} & set(
        env_of(pod_of(policy_of(), PLUGIN)["containers"][0])
    )


@pytest.mark.rows("DP-05", "S17", "E6")
@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_the_mig_strategy_is_the_same_everywhere(strategy: str) -> None:
    policy = policy_of({"mig": {"strategy": strategy}})
    places = [container_of(pod_of(policy, name), main) for name, main in MAIN.items()]
    for item in places:
        env = env_of(item)
        assert env["MIG_STRATEGY"] == strategy
        assert env.get("NVIDIA_MIG_MONITOR_DEVICES") == (None if strategy == "none" else "all")
    validation = container_of(pod_of(policy, "nvidia-operator-validator"), "plugin-validation")
    assert env_of(validation)["MIG_STRATEGY"] == strategy


@pytest.mark.rows("P087")
@pytest.mark.parametrize("values", [{}, {"mig": {"strategy": "single"}}, {"mig": {"strategy": "mixed"}}])
def test_the_plugin_may_see_all_mig_devices_wherever_it_offers_them(values: dict[str, Any]) -> None:
    container = container_of(pod_of(policy_of(values), PLUGIN), MAIN[PLUGIN])
    assert {"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"} in container["env"]
    assert container["securityContext"] == {"privileged": True}


def test_what_is_set_for_discovery_alone_does_not_part_it_from_the_plugin() -> None:
    env = [{"name": "MIG_STRATEGY", "value": "mixed"}, {"name": "CONFIG_FILE", "value": "/x"}]
    values = {"gfd": {"env": env}, "devicePlugin": {"config": {"name": "c"}}}
    found = env_of(pod_of(policy_of(values), GFD)["containers"][0])
    assert (found["MIG_STRATEGY"], found["CONFIG_FILE"]) == ("single", "/config/config.yaml")


@pytest.mark.rows("DP-06")
def test_discovery_hands_its_findings_to_nfd() -> None:
    made = objects_of(policy_of())
    main = made[f"DaemonSet/{GFD}"]["spec"]["template"]["spec"]["containers"][0]
    assert "/etc/kubernetes/node-feature-discovery/features.d" in mounts_of(main)
    rules = {rule["resources"][0]: rule["verbs"] for rule in made["Role/nvidia-gpu-feature-discovery"]["rules"]}
    assert set(rules["nodefeatures"]) == {"get", "list", "watch", "create", "update"}


# --- MIG manager -----------------------------------------------------------------------------------------------------


@pytest.mark.rows("MIG-01")
def test_our_layouts_are_what_the_mig_manager_falls_back_to() -> None:
    pod = pod_of(policy_of(), "nvidia-mig-manager")
    env = env_of(pod["containers"][0])
    assert env["DEFAULT_CONFIG_FILE"] == "/mig-parted-config/config-default.yaml"
    assert "CONFIG_FILE" not in env
    assert volume_of(pod, "mig-parted-config")["configMap"] == {
        "name": "default-mig-parted-config",
        "items": [{"key": "config.yaml", "path": "config-default.yaml"}],
    }


@pytest.mark.rows("MIG-02")
def test_layouts_and_clients_of_the_user_take_the_place_of_ours() -> None:
    policy = policy_of({"migManager": {"config": {"name": "layouts"}, "gpuClientsConfig": {"name": "clients"}}})
    made = objects_of(policy)
    assert not [key for key in made if key.startswith("ConfigMap/default-")]
    assert "ConfigMap/layouts" not in made
    pod = pod_of(policy, "nvidia-mig-manager")
    env = env_of(pod["containers"][0])
    assert env["CONFIG_FILE"] == "/mig-parted-config/config.yaml"
    assert "DEFAULT_CONFIG_FILE" not in env
    assert volume_of(pod, "mig-parted-config")["configMap"] == {"name": "layouts"}
    assert volume_of(pod, "gpu-clients")["configMap"] == {"name": "clients"}


@pytest.mark.rows("MIG-02", "INS-09")
def test_layouts_that_the_values_hold_are_made() -> None:
    values = {"config": {"name": "layouts", "create": True, "data": {"config.yaml": "version: v1"}}}
    made = objects_of(policy_of({"migManager": values}))
    assert made["ConfigMap/layouts"]["data"] == {"config.yaml": "version: v1"}


@pytest.mark.rows("MIG-04")
def test_the_mig_manager_may_pause_the_operands_of_its_node() -> None:
    made = objects_of(policy_of())
    rules = {rule["resources"][0]: set(rule["verbs"]) for rule in made["ClusterRole/nvidia-mig-manager"]["rules"]}
    assert rules["nodes"] >= {"get", "patch", "update", "watch"}
    role = {rule["resources"][0]: set(rule["verbs"]) for rule in made["Role/nvidia-mig-manager"]["rules"]}
    assert "delete" in role["pods"]


@pytest.mark.rows("PLG-05", "RT-08")
@pytest.mark.parametrize(
    ("values", "lists", "cdi"),
    [
        ({}, "cdi-annotations,cdi-cri", True),
        ({"cdi": {"enabled": False}}, "envvar", False),
        (
            {"devicePlugin": {"env": [{"name": "DEVICE_LIST_STRATEGY", "value": "envvar,cdi-cri"}]}},
            "envvar,cdi-cri",
            True,
        ),
    ],
)
def test_how_devices_are_handed_out_follows_cdi_unless_the_policy_says_so(
    values: dict[str, Any], lists: str, cdi: bool
) -> None:
    env = env_of(container_of(pod_of(policy_of(values), PLUGIN), "nvidia-device-plugin"))
    assert env["DEVICE_LIST_STRATEGY"] == lists
    assert env["DEVICE_ID_STRATEGY"] == "uuid"
    assert (env.get("CDI_ENABLED") == "true") is cdi
    assert (env.get("CDI_ANNOTATION_PREFIX") == "cdi.k8s.io/") is cdi
    assert (env.get("NVIDIA_CDI_HOOK_PATH") == "/usr/local/nvidia/toolkit/nvidia-cdi-hook") is cdi
