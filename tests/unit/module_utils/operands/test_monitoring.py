# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics: DCGM, its exporter, the node status exporter, and what a Prometheus operator is told of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
    cluster,
    container_of,
    env_of,
    mounts_of,
    objects_of,
    pod_of,
    policy_of,
    volume_of,
)

EXPORTER = "nvidia-dcgm-exporter"
MONITORED = cluster(service_monitor_crd=True)


def exporter(**keys: Any) -> dict[str, Any]:
    return pod_of(policy_of({"dcgmExporter": keys}), EXPORTER)


@pytest.mark.rows("DCG-01", "S21", "INS-09")
def test_counters_of_the_user_take_the_place_of_the_images() -> None:
    values = {
        "dcgmExporter": {"config": {"name": "counters", "create": True, "data": "DCGM_FI_DEV_GPU_TEMP, gauge, t"}}
    }
    made = objects_of(policy_of(values))
    assert made["ConfigMap/counters"]["data"] == {"dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, t"}
    pod = made[f"DaemonSet/{EXPORTER}"]["spec"]["template"]["spec"]
    path = "/etc/dcgm-exporter/dcgm-metrics.csv"
    assert env_of(pod["containers"][0])["DCGM_EXPORTER_COLLECTORS"] == path
    assert mounts_of(pod["containers"][0])[path]["subPath"] == "dcgm-metrics.csv"
    assert volume_of(pod, "metrics-config")["configMap"]["name"] == "counters"


@pytest.mark.rows("DCG-02", "E7")
def test_an_engine_of_its_own_is_reached_on_the_same_node_only() -> None:
    made = objects_of(policy_of({"dcgm": {"enabled": True}}))
    main = made[f"DaemonSet/{EXPORTER}"]["spec"]["template"]["spec"]["containers"][0]
    assert env_of(main)["DCGM_REMOTE_HOSTENGINE_INFO"] == "nvidia-dcgm:5555"
    assert made["Service/nvidia-dcgm"]["spec"]["internalTrafficPolicy"] == "Local"
    assert made["Service/nvidia-dcgm"]["spec"]["ports"][0]["port"] == 5555


def test_without_it_the_exporter_has_the_engine_in_itself() -> None:
    made = objects_of(policy_of())
    assert "DCGM_REMOTE_HOSTENGINE_INFO" not in str(made[f"DaemonSet/{EXPORTER}"])
    assert not [key for key in made if key.endswith("/nvidia-dcgm")]


@pytest.mark.rows("L39")
@pytest.mark.parametrize(("engine", "network"), [("localhost:5555", True), ("10.0.0.1:5555", None)])
def test_an_engine_on_the_host_needs_the_hosts_network(engine: str, network: bool | None) -> None:
    env = [{"name": "DCGM_REMOTE_HOSTENGINE_INFO", "value": engine}]
    pod = exporter(env=env)
    assert pod.get("hostNetwork") == network
    with_dcgm = policy_of({"dcgm": {"enabled": True}, "dcgmExporter": {"env": env}})  # the user's env wins over it
    assert pod_of(with_dcgm, EXPORTER).get("hostNetwork") == network


@pytest.mark.rows("DCG-03", "S21")
def test_the_service_is_of_the_type_that_is_asked_for() -> None:
    values = {"dcgmExporter": {"service": {"type": "NodePort", "internalTrafficPolicy": "Local"}}}
    spec = objects_of(policy_of(values))[f"Service/{EXPORTER}"]["spec"]
    assert (spec["type"], spec["internalTrafficPolicy"]) == ("NodePort", "Local")
    assert spec["ports"] == [{"name": "gpu-metrics", "port": 9400, "targetPort": 9400, "protocol": "TCP"}]


SETTINGS = {
    "enabled": True,
    "interval": "30s",
    "scrapeTimeout": "20s",
    "honorLabels": True,
    "additionalLabels": {"release": "prometheus", "app": "mine"},
    "relabelings": [{"action": "labeldrop", "regex": "pod"}],
}


@pytest.mark.rows("DCG-04", "ST-09")
def test_the_exporter_is_announced_to_prometheus() -> None:
    made = objects_of(policy_of({"dcgmExporter": {"serviceMonitor": SETTINGS}}), MONITORED)
    monitor = made[f"ServiceMonitor/{EXPORTER}"]
    assert monitor["metadata"]["labels"].items() >= {"release": "prometheus", "app": EXPORTER}.items()
    assert monitor["spec"] == {
        "jobLabel": "app",
        "endpoints": [
            {
                "port": "gpu-metrics",
                "path": "/metrics",
                "interval": "30s",
                "scrapeTimeout": "20s",
                "honorLabels": True,
                "relabelings": [{"action": "labeldrop", "regex": "pod"}],
            }
        ],
        "namespaceSelector": {"matchNames": ["gpu-operator"]},
        "selector": {"matchLabels": {"app": EXPORTER}},
    }
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= made[f"Service/{EXPORTER}"]["metadata"]["labels"].items()
    )


@pytest.mark.rows("DCG-04", "ST-02", "ST-12")
def test_a_cluster_that_does_not_know_service_monitors_gets_none() -> None:
    made = objects_of(policy_of({"nodeStatusExporter": {"enabled": True}}))
    assert not [key for key in made if key.startswith("ServiceMonitor/")]


@pytest.mark.rows("DCG-04")
def test_a_service_monitor_that_is_not_wanted_is_not_made() -> None:
    made = objects_of(policy_of({"dcgmExporter": {"serviceMonitor": {"enabled": False}}}), MONITORED)
    assert f"ServiceMonitor/{EXPORTER}" not in made


@pytest.mark.rows("MON-04", "ST-02")
def test_the_stack_itself_is_announced_to_prometheus() -> None:
    made = objects_of(policy_of({"operator": {"metrics": {"serviceMonitor": SETTINGS}}}), MONITORED)
    monitor = made["ServiceMonitor/gpu-operator"]
    assert monitor["spec"]["jobLabel"] == "operator"
    assert monitor["spec"]["endpoints"][0].items() >= {"port": "gpu-operator-metrics", "interval": "30s"}.items()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert made["Service/gpu-operator"]["spec"]["ports"][0]["name"] == "gpu-operator-metrics"


@pytest.mark.rows("MON-02", "ST-12", "S29")
def test_the_node_status_exporter_is_scraped() -> None:
    made = objects_of(policy_of({"nodeStatusExporter": {"enabled": True}}), MONITORED)
    pod = made["DaemonSet/nvidia-node-status-exporter"]["spec"]["template"]["spec"]
    assert env_of(pod["containers"][0])["METRICS_PORT"] == "8000"
    assert made["Service/nvidia-node-status-exporter"]["spec"]["ports"][0]["name"] == "node-status"
    assert made["ServiceMonitor/nvidia-node-status-exporter"]["spec"]["endpoints"][0]["port"] == "node-status"
    assert "initContainers" not in pod


@pytest.mark.rows("DCG-05")
@pytest.mark.parametrize(
    ("keys", "reads", "token"),
    [
        ({}, False, False),
        ({"enablePodLabels": True}, True, True),
        ({"enablePodUID": True}, True, True),
        ({"env": [{"name": "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "value": "true"}]}, True, True),
        ({"env": [{"name": "DCGM_EXPORTER_CONFIGMAP_DATA", "value": "ns:name"}]}, False, True),
        ({"env": [{"name": "DCGM_EXPORTER_CONFIGMAP_DATA", "value": "none"}]}, False, False),
    ],
)
def test_the_exporter_may_read_pods_only_where_it_is_told_to(keys: dict[str, Any], reads: bool, token: bool) -> None:
    made = objects_of(policy_of({"dcgmExporter": keys}))
    pod = made[f"DaemonSet/{EXPORTER}"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is token
    assert (f"ClusterRole/{EXPORTER}-read-pods" in made) is reads
    if reads:
        rules = made[f"ClusterRole/{EXPORTER}-read-pods"]["rules"]
        assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
        binding = made[f"ClusterRoleBinding/{EXPORTER}-read-pods"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": EXPORTER, "namespace": "gpu-operator"}]


@pytest.mark.rows("DCG-05")
def test_labels_of_pods_are_filtered() -> None:
    env = env_of(
        exporter(enablePodLabels=True, enablePodUID=True, podLabelAllowlistRegex=["^app$", "^team"])["containers"][0]
    )
    assert env["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"] == "true"
    assert env["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"] == "true"
    assert env["DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"] == "^app$,^team"


@pytest.mark.rows("DCG-06")
def test_jobs_of_a_scheduler_are_mapped() -> None:
    pod = exporter(hpcJobMapping={"enabled": True, "directory": "/var/jobs"})
    assert env_of(pod["containers"][0])["DCGM_HPC_JOB_MAPPING_DIR"] == "/var/jobs"
    assert mounts_of(pod["containers"][0])["/var/jobs"]["readOnly"] is True
    assert volume_of(pod, "hpc-job-mapping")["hostPath"] == {"path": "/var/jobs", "type": "DirectoryOrCreate"}


@pytest.mark.rows("DCG-07")
def test_processes_of_the_host_and_annotations_of_pods() -> None:
    policy = policy_of({"dcgmExporter": {"hostPID": True, "annotations": {"note": "x"}}})
    template = objects_of(policy)[f"DaemonSet/{EXPORTER}"]["spec"]["template"]
    assert template["spec"]["hostPID"] is True
    assert template["metadata"]["annotations"]["note"] == "x"
    assert "hostPID" not in exporter()


def test_probes_ask_the_exporter_itself() -> None:
    main = container_of(exporter(), EXPORTER)
    for probe in ("livenessProbe", "readinessProbe"):
        assert main[probe]["httpGet"] == {"path": "/health", "port": 9400}
        assert main[probe]["initialDelaySeconds"] == 45


RULES = replace(MONITORED, prometheus_rule_crd=True)


def rules_of(made: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    (group,) = made[f"PrometheusRule/{name}"]["spec"]["groups"]
    return {rule.get("record") or rule["alert"]: rule for rule in group["rules"]}


@pytest.mark.rows("L44", "S23")
def test_dashboards_find_their_names_wherever_prometheus_operator_is_and_memory_is_in_bytes() -> None:
    rules = rules_of(objects_of(policy_of({"dcgmExporter": {"serviceMonitor": SETTINGS}}), RULES), EXPORTER)
    assert rules["accelerator_memory_used_bytes"]["expr"] == "DCGM_FI_DEV_FB_USED * 1048576"
    assert "FB_FREE" in rules["accelerator_memory_total_bytes"]["expr"]
    assert rules["accelerator_sm_clock_hertz"]["expr"] == "DCGM_FI_DEV_SM_CLOCK * 1000000"
    assert set(rules) == {
        "accelerator_gpu_utilization", "accelerator_memory_used_bytes", "accelerator_memory_total_bytes",
        "accelerator_power_usage_watts", "accelerator_temperature_celsius", "accelerator_sm_clock_hertz",
        "accelerator_memory_clock_hertz",
    }  # fmt: skip
    labels = objects_of(policy_of({"dcgmExporter": {"serviceMonitor": SETTINGS}}), RULES)[f"PrometheusRule/{EXPORTER}"]
    assert labels["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.rows("L44")
def test_alerts_look_at_the_first_stage_that_is_missing() -> None:
    made = objects_of(policy_of({"nodeStatusExporter": {"enabled": True}}), RULES)
    rules = rules_of(made, "nvidia-node-status-exporter-alerts")
    ready = {name: rule["expr"] for name, rule in rules.items()}
    assert ready["GPUOperatorNodeDeploymentDriverFailed"] == "gpu_operator_node_driver_ready == 0"
    assert "driver_ready == 1" in ready["GPUOperatorNodeDeploymentToolkitFailed"]
    assert "toolkit_ready == 1" in ready["GPUOperatorNodeDeploymentCudaFailed"]
    assert "devices_total < 1" in ready["GPUOperatorNodeDeploymentFailed"]
    assert {rule["for"] for rule in rules.values()} == {"30m"}
    assert all("$labels.node" in rule["annotations"]["summary"] for rule in rules.values())


@pytest.mark.rows("L44")
def test_rules_are_made_only_where_they_are_known_and_what_they_are_about_is_on() -> None:
    on = {"nodeStatusExporter": {"enabled": True}}
    assert not [key for key in objects_of(policy_of(on), MONITORED) if key.startswith("PrometheusRule/")]
    off = {"dcgmExporter": {"serviceMonitor": {"enabled": False}}}
    assert not [key for key in objects_of(policy_of(off), RULES) if key.startswith("PrometheusRule/")]
    assert len([key for key in objects_of(policy_of(on), RULES) if key.startswith("PrometheusRule/")]) == 2
