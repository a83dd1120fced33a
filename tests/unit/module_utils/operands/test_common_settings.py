# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that all DaemonSets share."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
    container_of,
    env_of,
    mounts_of,
    objects_of,
    pod_of,
    policy_of,
    volume_of,
)

EVERYTHING: dict[str, Any] = {"dcgm": {"enabled": True}, "nodeStatusExporter": {"enabled": True}}


def daemonsets(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = {k: o for k, o in objects_of(policy_of({**EVERYTHING, **values})).items() if o["kind"] == "DaemonSet"}
    assert len(found) == 10
    return {key.split("/")[1]: obj for key, obj in found.items()}


@pytest.mark.rows("COM-01", "E11")
def test_labels_and_annotations_reach_daemonsets_and_pods_but_never_break_a_selector() -> None:
    labels = {"cloudprovider": "aws", "app": "mine", "app.kubernetes.io/part-of": "mine"}
    given = {"labels": {**labels, "app.kubernetes.io/managed-by": "me"}, "annotations": {"note": "x"}}
    for name, obj in daemonsets({"daemonsets": given}).items():
        template = obj["spec"]["template"]["metadata"]
        for metadata in (obj["metadata"], template):
            assert metadata["labels"]["cloudprovider"] == "aws"
            assert metadata["annotations"]["note"] == "x"
        assert template["labels"]["app"] == name
        assert obj["spec"]["selector"]["matchLabels"].items() <= template["labels"].items()
        assert obj["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "gpufleet"


@pytest.mark.rows("COM-02")
def test_tolerations_and_priority_are_replaced() -> None:
    wanted = [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoExecute"}]
    for obj in daemonsets({"daemonsets": {"tolerations": wanted, "priorityClassName": "high"}}).values():
        pod = obj["spec"]["template"]["spec"]
        assert pod["tolerations"] == wanted
        assert pod["priorityClassName"] == "high"


@pytest.mark.rows("COM-03")
@pytest.mark.parametrize(("given", "wanted"), [("3", 3), ("30%", "30%")])
def test_all_but_the_driver_roll_at_the_pace_that_is_given(given: str, wanted: str | int) -> None:
    for name, obj in daemonsets({"daemonsets": {"rollingUpdate": {"maxUnavailable": given}}}).items():
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": wanted}}
        assert obj["spec"]["updateStrategy"] == ({"type": "OnDelete"} if "driver-daemonset" in name else rolling)


@pytest.mark.rows("COM-03")
def test_on_delete_is_for_all() -> None:
    for obj in daemonsets({"daemonsets": {"updateStrategy": "OnDelete"}}).values():
        assert obj["spec"]["updateStrategy"] == {"type": "OnDelete"}


MAIN = {
    "driver": ("nvidia-driver-daemonset", "nvidia-driver-ctr"),
    "toolkit": ("nvidia-container-toolkit-daemonset", "nvidia-container-toolkit-ctr"),
    "validator": ("nvidia-operator-validator", "nvidia-operator-validator"),
    "devicePlugin": ("nvidia-device-plugin-daemonset", "nvidia-device-plugin"),
    "dcgm": ("nvidia-dcgm", "nvidia-dcgm-ctr"),
    "dcgmExporter": ("nvidia-dcgm-exporter", "nvidia-dcgm-exporter"),
    "gfd": ("gpu-feature-discovery", "gpu-feature-discovery"),
    "migManager": ("nvidia-mig-manager", "nvidia-mig-manager"),
    "nodeStatusExporter": ("nvidia-node-status-exporter", "nvidia-node-status-exporter"),
}


def component_pod(key: str, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod of a component with values of its own, and the pod's main container."""
    pod = pod_of(policy_of({**EVERYTHING, key: {**EVERYTHING.get(key, {}), **values}}), MAIN[key][0])
    return pod, container_of(pod, MAIN[key][1])


@pytest.mark.rows("COM-05", "E5")
@pytest.mark.parametrize("key", MAIN)
def test_env_of_a_component_is_added_and_wins(key: str) -> None:
    before = env_of(component_pod(key, {})[1])
    given = {"NEW": "1", **dict.fromkeys(list(before)[:1], "mine")}
    if key == "toolkit":
        given = {"NEW": "1", "NVIDIA_VISIBLE_DEVICES": "mine"}
    if key == "driver":
        given = {"NEW": "1", "KERNEL_MODULE_TYPE": "proprietary"}
    if key == "gfd":
        given = {"NEW": "1", "GFD_SLEEP_INTERVAL": "5s"}
    _pod, main = component_pod(key, {"env": [{"name": name, "value": value} for name, value in given.items()]})
    after = env_of(main)
    assert after.items() >= given.items()
    assert {k: v for k, v in after.items() if k not in given and k != "DRIVER_CONFIG_DIGEST"} == {
        k: v for k, v in before.items() if k not in given and k != "DRIVER_CONFIG_DIGEST"
    }


def test_an_env_that_stood_for_a_field_takes_the_users_value() -> None:
    _pod, main = component_pod("dcgmExporter", {"env": [{"name": "NODE_NAME", "value": "mine"}]})
    assert [e for e in main["env"] if e["name"] == "NODE_NAME"] == [{"name": "NODE_NAME", "value": "mine"}]


@pytest.mark.rows("COM-05")
@pytest.mark.parametrize("key", [key for key in MAIN if key != "toolkit"])
def test_args_of_a_component_replace_its_own(key: str) -> None:
    assert component_pod(key, {"args": ["--verbose"]})[1]["args"] == ["--verbose"]


@pytest.mark.rows("COM-05")
@pytest.mark.parametrize("key", MAIN)
def test_host_network_brings_the_dns_of_the_cluster_along(key: str) -> None:
    pod, _main = component_pod(key, {"hostNetwork": True})
    assert pod["hostNetwork"] is True
    assert pod["dnsPolicy"] == "ClusterFirstWithHostNet"


@pytest.mark.rows("COM-05")
@pytest.mark.parametrize("key", MAIN)
def test_resources_go_to_every_main_container_and_those_of_the_validator_to_validations(key: str) -> None:
    mine, validators = {"limits": {"memory": "1Gi"}}, {"requests": {"cpu": "10m"}}
    values = {**EVERYTHING, "validator": {"resources": validators}}
    values["devicePlugin"] = {"config": {"name": "c"}}
    values[key] = {**values.get(key, {}), "resources": mine}
    pod = pod_of(policy_of(values), MAIN[key][0])
    for item in pod["containers"]:
        assert item["resources"] == mine, item["name"]
    for item in pod.get("initContainers", []):
        wanted = mine if key == "validator" or not item["name"].endswith("validation") else validators
        assert item["resources"] == wanted, item["name"]


@pytest.mark.rows("COM-06")
def test_another_host_root_moves_volumes_and_tells_containers() -> None:
    values = {
        "hostPaths": {"rootFS": "/host-os/"},
        "validator": {"driver": {"env": [{"name": "HOST_ROOT", "value": "/x"}]}},
    }
    pod = pod_of(policy_of(values), "nvidia-container-toolkit-daemonset")
    assert volume_of(pod, "host-root")["hostPath"]["path"] == "/host-os/"
    assert volume_of(pod, "host-dev-char")["hostPath"]["path"] == "/host-os/dev/char"
    assert env_of(pod["containers"][0])["HOST_ROOT"] == "/host-os/"
    assert env_of(pod["initContainers"][0])["HOST_ROOT"] == "/x"
    assert "HOST_ROOT" not in str(pod_of(policy_of(values), "nvidia-dcgm-exporter"))


@pytest.mark.rows("COM-07")
def test_another_driver_folder_is_where_the_validation_looks() -> None:
    policy = policy_of({"hostPaths": {"driverInstallDir": "/opt/driver"}})
    for name in ("nvidia-container-toolkit-daemonset", "nvidia-operator-validator"):
        pod = pod_of(policy, name)
        assert volume_of(pod, "driver-install-dir")["hostPath"]["path"] == "/opt/driver"
        checks = container_of(pod, "driver-validation")
        assert env_of(checks)["DRIVER_INSTALL_DIR"] == "/opt/driver"
        assert env_of(checks)["DRIVER_INSTALL_DIR_CTR_PATH"] == "/opt/driver"
        assert "/opt/driver" in mounts_of(checks)
        assert "/run/nvidia/driver" not in mounts_of(checks)
    plugin = pod_of(policy, "nvidia-device-plugin-daemonset")
    assert mounts_of(plugin["containers"][0])["/driver-root"]["name"] == "driver-install-dir"
    assert volume_of(plugin, "driver-install-dir")["hostPath"]["path"] == "/opt/driver"
    driver = pod_of(policy, "nvidia-driver-daemonset")
    assert "/opt/driver" not in str(driver)
    left = [name for name, made in objects_of(policy).items() if "/run/nvidia/driver'" in str(made)]
    assert left == [], "nobody looks in the old folder any more"


@pytest.mark.rows("COM-08")
def test_another_kubelet_folder_moves_pod_resources() -> None:
    pod = pod_of(policy_of({"hostPaths": {"kubeletRootDir": "/data/kubelet"}}), "nvidia-dcgm-exporter")
    assert volume_of(pod, "pod-gpu-resources")["hostPath"]["path"] == "/data/kubelet/pod-resources"
    assert "/var/lib/kubelet/pod-resources" in mounts_of(pod["containers"][0])
