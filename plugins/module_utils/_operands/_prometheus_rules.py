# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for Prometheus wherever its operator is, not on OpenShift alone (L44).

Recording rules give the exporter's counters the names that dashboards use; alerts tell of nodes on which the stack does
not come up. The operator maps the used memory to a utilisation in percent: here it is memory, in bytes.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from . import _build as b
from ._types import ClusterFacts, Object

MIB, MHZ = "1048576", "1000000"
# Name of the rule -> expression over DCGM's counters, in base units.
RECORDED: Tuple[Tuple[str, str], ...] = (
    ("accelerator_gpu_utilization", "DCGM_FI_DEV_GPU_UTIL"),
    ("accelerator_memory_used_bytes", f"DCGM_FI_DEV_FB_USED * {MIB}"),
    ("accelerator_memory_total_bytes", f"(DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) * {MIB}"),
    ("accelerator_power_usage_watts", "DCGM_FI_DEV_POWER_USAGE"),
    ("accelerator_temperature_celsius", "DCGM_FI_DEV_GPU_TEMP"),
    ("accelerator_sm_clock_hertz", f"DCGM_FI_DEV_SM_CLOCK * {MHZ}"),
    ("accelerator_memory_clock_hertz", f"DCGM_FI_DEV_MEM_CLOCK * {MHZ}"),
)
_NODE = "gpu_operator_node_"
# Each looks at the first stage that is missing, so that one cause gives one alert.
ALERTS: Tuple[Tuple[str, str, str], ...] = (
    (
        "GPUOperatorNodeDeploymentDriverFailed",
        f"{_NODE}driver_ready == 0",
        "The driver of node {{ $labels.node }} has not been ready for 30 minutes.",
    ),
    (
        "GPUOperatorNodeDeploymentToolkitFailed",
        f"{_NODE}driver_ready == 1 and on (node) {_NODE}toolkit_ready == 0",
        "The container toolkit of node {{ $labels.node }} has not been ready for 30 minutes.",
    ),
    (
        "GPUOperatorNodeDeploymentCudaFailed",
        f"{_NODE}toolkit_ready == 1 and on (node) {_NODE}cuda_ready == 0",
        "No CUDA program has run on node {{ $labels.node }} for 30 minutes.",
    ),
    (
        "GPUOperatorNodeDeploymentFailed",
        f"{_NODE}cuda_ready == 1 and on (node) {_NODE}device_plugin_devices_total < 1",
        "Node {{ $labels.node }} has offered no GPU for 30 minutes.",
    ),
)


def recording_rules(facts: ClusterFacts, name: str, labels: Mapping[str, str]) -> List[Object]:
    """Of the DCGM exporter; nothing where the cluster does not know the kind."""
    return _made(facts, name, labels, [{"record": record, "expr": expr} for record, expr in RECORDED])


def alerts(facts: ClusterFacts, name: str, labels: Mapping[str, str]) -> List[Object]:
    """Of the node status exporter; nothing where the cluster does not know the kind."""
    rules = [
        {
            "alert": alert,
            "expr": expr,
            "for": "30m",
            "labels": {"severity": "warning"},
            "annotations": {"summary": summary, "description": "Run gpufleet.nvidia.status: it names the cause."},
        }
        for alert, expr, summary in ALERTS
    ]
    return _made(facts, name, labels, rules)


def _made(facts: ClusterFacts, name: str, labels: Mapping[str, str], rules: List[Dict[str, Any]]) -> List[Object]:
    if not facts.prometheus_rule_crd:
        return []
    made = b.new_object("monitoring.coreos.com/v1", "PrometheusRule", name, facts.namespace, {**labels, "app": name})
    made["spec"] = {"groups": [{"name": name, "rules": rules}]}
    return [made]
