# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The confidential computing manager: sets the GPUs' mode that the label ``nvidia.com/cc.mode`` names (SBX-05).

It is never rolled by Kubernetes (OnDelete): a pod that starts sets the mode of GPUs, which machines may use.
"""

from __future__ import annotations

from dataclasses import replace
from typing import List

from .._policy._model import Policy
from . import _build as b
from ._types import ClusterFacts, Object, Operand
from ._vfio_manager import RESOURCES

NAME = "nvidia-cc-manager"
CAPABLE = "nvidia.com/cc.capable"


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    role = [b.rule("", "pods", "get list watch")]
    nodes = [b.rule("", "nodes", "get list patch watch")]
    return [*b.rbac(NAME, facts.namespace, role, nodes), *b.daemonset(_pod(policy), policy, facts)]


def _pod(policy: Policy) -> b.Pod:
    manager = policy.cc_manager
    main = b.main_container(
        NAME,
        replace(manager, resources=manager.resources or RESOURCES),
        environment=[
            b.NODE_NAME,
            b.env("NVIDIA_VISIBLE_DEVICES", "void"),
            b.env("DEFAULT_CC_MODE", manager.default_mode),
        ],
        mounts=[b.mount("host-sys", "/sys"), b.mount("run-nvidia", "/run/nvidia")],
        security=b.SELINUX,
        lifecycle={"preStop": {"exec": {"command": ["/bin/rm", "-f", f"{b.VALIDATIONS}/.cc-manager-ctr-ready"]}}},
    )
    return b.Pod(
        name=NAME,
        deploy="cc-manager",
        account=NAME,
        containers=[main],
        volumes=[
            b.host_path("host-sys", "/sys", "Directory"),
            b.host_path("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
        ],
        labels={"name": NAME},
        selector={"name": NAME},
        node_selector={CAPABLE: "true"},
        spec={"terminationGracePeriodSeconds": 30},
        images=(manager.image,),
        host_network=manager.host_network,
        on_delete=True,
    )


OPERAND = Operand(
    name="state-cc-manager",
    title="confidential computing manager",
    enabled=lambda policy: (
        policy.sandbox_workloads.enabled and policy.sandbox_workloads.mode == "kata" and policy.cc_manager.enabled
    ),
    build=build,
    deploy_label=b.DEPLOY + "cc-manager",
)
