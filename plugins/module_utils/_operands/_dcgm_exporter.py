# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DCGM exporter (ST-09): metrics of GPUs and of the pods that use them."""

from __future__ import annotations

from typing import List

from .._policy._model import Json, Policy
from . import _build as b
from . import _hidden
from ._dcgm import NAME as DCGM
from ._dcgm import PORT as DCGM_PORT
from ._prometheus_rules import recording_rules
from ._types import ClusterFacts, Object, Operand

NAME = "nvidia-dcgm-exporter"
PORT = 9400
METRICS_KEY = "dcgm-metrics.csv"
_LABELS = {"app": NAME}
_CUSTOM_METRICS = "/etc/dcgm-exporter/dcgm-metrics.csv"
_POD_LABELS = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"
_POD_UID = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"
_ENGINE = "DCGM_REMOTE_HOSTENGINE_INFO"


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    exporter = policy.dcgm_exporter
    configs = b.created_config(policy, facts, exporter.config)
    made = b.rbac(NAME, facts.namespace, [b.USE_PRIVILEGED_SCC, b.rule("", "configmaps", "get list")], labels=_LABELS)
    if _reads_pods(policy):
        rules = [b.rule("", "pods", "get list watch")]
        made += b.bound_role("ClusterRole", NAME + "-read-pods", NAME, facts.namespace, rules, _LABELS)
    made.append(
        b.service(
            NAME,
            facts.namespace,
            "gpu-metrics",
            PORT,
            traffic_policy=exporter.service_internal_traffic_policy,
            kind=exporter.service_type,
        )
    )
    if exporter.service_monitor.enabled:
        made += b.service_monitor(facts, NAME, "gpu-metrics", "app", exporter.service_monitor, "15s")
        made += recording_rules(facts, NAME, exporter.service_monitor.additional_labels)
    return [*made, *configs, *b.daemonset(_pod(policy, facts, configs), policy, facts)]


def _pod(policy: Policy, facts: ClusterFacts, configs: List[Object]) -> b.Pod:
    exporter = policy.dcgm_exporter
    waiting, _run_nvidia = b.wait_for_toolkit(policy)
    healthy = {"httpGet": {"path": "/health", "port": PORT}, "initialDelaySeconds": 45}
    main = b.main_container(
        NAME,
        exporter,
        environment=_environment(policy),
        mounts=[b.mount("pod-gpu-resources", "/var/lib/kubelet/pod-resources", read_only=True)],
        ports=[{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        livenessProbe={**healthy, "periodSeconds": 5},
        readinessProbe=healthy,
    )
    volumes = [
        b.host_path("pod-gpu-resources", b.kubelet_folder(policy, "pod-resources")),
        b.host_path("run-nvidia", "/run/nvidia"),
    ]
    if exporter.hpc_job_mapping:
        directory = exporter.hpc_job_mapping_directory
        main["volumeMounts"].append(b.mount("hpc-job-mapping", directory, read_only=True))
        volumes.append(b.host_path("hpc-job-mapping", directory, "DirectoryOrCreate"))
    if exporter.config.name:
        main["volumeMounts"].append(b.mount("metrics-config", _CUSTOM_METRICS, read_only=True, sub_path=METRICS_KEY))
        volumes.append(b.config_volume("metrics-config", exporter.config.name, items={METRICS_KEY: METRICS_KEY}))
    # An engine of its own, or of the host, is another process's: it hides what it is to hide, or the host decides.
    if facts.hidden and not policy.dcgm.enabled and not _user_env(policy, _ENGINE):
        _hidden.start_exporter(main)
        volumes += _hidden.volumes(facts)
        configs = [*configs, *_hidden.objects(facts)]
    spec: Json = {"automountServiceAccountToken": _needs_token(policy)}
    if exporter.host_pid:
        spec["hostPID"] = True
    return b.Pod(
        name=NAME,
        deploy="dcgm-exporter",
        account=NAME,
        containers=[main],
        init=[waiting],
        volumes=volumes,
        annotations={"openshift.io/scc": NAME},
        pod_annotations=exporter.annotations,
        spec=spec,
        images=(policy.validator.image, exporter.image),
        host_network=exporter.host_network or _engine_on_host(policy),
        gpu_container=NAME,
        own_configs=configs,
    )


def _environment(policy: Policy) -> List[Json]:
    exporter = policy.dcgm_exporter
    made = [
        b.env("DCGM_EXPORTER_LISTEN", f":{PORT}"),
        b.env("DCGM_EXPORTER_KUBERNETES", "true"),
        b.env(
            "DCGM_EXPORTER_COLLECTORS",
            _CUSTOM_METRICS if exporter.config.name else "/etc/dcgm-exporter/dcp-metrics-included.csv",
        ),
        b.NODE_NAME,
    ]
    if policy.dcgm.enabled:
        made.append(b.env(_ENGINE, f"{DCGM}:{DCGM_PORT}"))
    if exporter.hpc_job_mapping:
        made.append(b.env("DCGM_HPC_JOB_MAPPING_DIR", exporter.hpc_job_mapping_directory))
    if exporter.enable_pod_labels:
        made.append(b.env(_POD_LABELS, "true"))
    if exporter.enable_pod_uid:
        made.append(b.env(_POD_UID, "true"))
    if exporter.pod_label_allowlist_regex:
        allowed = ",".join(exporter.pod_label_allowlist_regex)
        made.append(b.env("DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", allowed))
    return made


def _user_env(policy: Policy, name: str) -> str:
    return next((item.get("value", "") for item in policy.dcgm_exporter.env if item["name"] == name), "")


def _reads_pods(policy: Policy) -> bool:
    """Labels and UIDs of pods come from the API (DCG-05), asked for by key or by env."""
    exporter = policy.dcgm_exporter
    by_env = any(_user_env(policy, name) == "true" for name in (_POD_LABELS, _POD_UID))
    return exporter.enable_pod_labels or exporter.enable_pod_uid or by_env


def _needs_token(policy: Policy) -> bool:
    return _reads_pods(policy) or _user_env(policy, "DCGM_EXPORTER_CONFIGMAP_DATA") not in ("", "none")


def _engine_on_host(policy: Policy) -> bool:
    """An engine that runs on the host itself is reached through the host's network only."""
    return _user_env(policy, _ENGINE).startswith("localhost")


OPERAND = Operand(
    name="state-dcgm-exporter",
    title="DCGM exporter",
    enabled=lambda policy: policy.dcgm_exporter.enabled,
    build=build,
    deploy_label=b.DEPLOY + "dcgm-exporter",
)
