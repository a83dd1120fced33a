# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node status exporter (ST-12): how far the stack has come on a node, as metrics (MON-02)."""

from __future__ import annotations

from typing import List

from .._policy._model import Policy, ServiceMonitor
from . import _build as b
from ._prometheus_rules import alerts
from ._types import ClusterFacts, Object, Operand

NAME = "nvidia-node-status-exporter"
PORT = 8000
_LABELS = {"app": NAME}


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    exporter = policy.node_status_exporter
    main = b.main_container(
        NAME,
        exporter,
        command=["nvidia-validator"],
        environment=[
            b.NODE_NAME,
            b.OPERATOR_NAMESPACE,
            b.env("NVIDIA_VISIBLE_DEVICES", "void"),
            b.env("COMPONENT", "metrics"),
            b.env("METRICS_PORT", str(PORT)),
        ],
        mounts=[b.mount("run-nvidia", "/run/nvidia", propagation="HostToContainer"), b.HOST_MOUNT],
        security=b.AS_ROOT,
        ports=[{"name": "node-status", "containerPort": PORT, "protocol": "TCP"}],
    )
    pod = b.Pod(
        name=NAME,
        deploy="node-status-exporter",
        account=NAME,
        containers=[main],
        volumes=[b.host_path("run-nvidia", "/run/nvidia", "DirectoryOrCreate"), b.HOST_VOLUME],
        annotations={"openshift.io/scc": NAME},
        images=(exporter.image,),
        host_network=exporter.host_network,
    )
    role = [
        b.rule("security.openshift.io", "securitycontextconstraints", "use"),
        b.rule("", "pods", "get list"),
        b.rule("apps", "daemonsets", "get list watch"),
    ]
    return [
        *b.rbac(NAME, facts.namespace, role, [b.rule("", "nodes", "get list watch")], _LABELS),
        b.service(NAME, facts.namespace, "node-status", PORT),
        *b.service_monitor(facts, NAME, "node-status", "app", ServiceMonitor(enabled=True)),
        *alerts(facts, f"{NAME}-alerts", {}),
        *b.daemonset(pod, policy, facts),
    ]


OPERAND = Operand(
    name="state-node-status-exporter",
    title="node status exporter",
    enabled=lambda policy: policy.node_status_exporter.enabled,
    build=build,
    deploy_label=b.DEPLOY + "node-status-exporter",
)
