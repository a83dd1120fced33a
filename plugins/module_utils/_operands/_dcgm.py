# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DCGM's host engine as a pod of its own (ST-08), reached by the exporter of the same node only (DCG-02)."""

from __future__ import annotations

from typing import List

from .._policy._model import Policy
from . import _build as b
from . import _hidden
from ._types import ClusterFacts, Object, Operand

NAME = "nvidia-dcgm"
PORT = 5555
# What the image starts nv-hostengine with.
_ARGS = ("-n", "-b", "0.0.0.0", "--log-level", "NONE", "-f", "-")


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    waiting, run_nvidia = b.wait_for_toolkit(policy)
    answers = {"tcpSocket": {"port": PORT}, "initialDelaySeconds": 15}
    main = b.main_container(
        "nvidia-dcgm-ctr",
        policy.dcgm,
        ports=[{"name": "dcgm", "containerPort": PORT, "protocol": "TCP"}],
        livenessProbe=answers,
        readinessProbe=answers,
    )
    if facts.hidden:
        _hidden.start(main, "nv-hostengine", _ARGS)
    pod = b.Pod(
        name=NAME,
        deploy="dcgm",
        account=NAME,
        containers=[main],
        init=[waiting],
        volumes=[run_nvidia, *_hidden.volumes(facts)],
        annotations={"openshift.io/scc": "hostmount-anyuid"},
        images=(policy.validator.image, policy.dcgm.image),
        host_network=policy.dcgm.host_network,
        gpu_container="nvidia-dcgm-ctr",
        own_configs=_hidden.objects(facts),
    )
    return [
        *b.rbac(NAME, facts.namespace, [b.USE_PRIVILEGED_SCC]),
        b.service(NAME, facts.namespace, "dcgm", PORT, scraped=False, traffic_policy="Local"),
        *b.daemonset(pod, policy, facts),
    ]


OPERAND = Operand(
    name="state-dcgm",
    title="DCGM",
    enabled=lambda policy: policy.dcgm.enabled,
    build=build,
    deploy_label=b.DEPLOY + "dcgm",
)
