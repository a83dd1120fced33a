# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The VFIO manager (ST-16): takes GPUs from their driver and binds them to VFIO, so that machines can have them whole.

It is never rolled by Kubernetes (OnDelete): when it stops it unbinds GPUs, and machines may run on them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import List

from .._policy._model import Json, Policy
from . import _build as b
from ._driver import driver_manager
from ._scripts import VFIO_MANAGER, VFIO_PRE_STOP
from ._types import ClusterFacts, Object, Operand

NAME = "nvidia-vfio-manager"
RESOURCES: Json = {"limits": {"memory": "200Mi"}, "requests": {"cpu": "100m", "memory": "200Mi"}}


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    cluster_role = [
        b.rule("", "nodes", "get list patch watch"),
        b.rule("", "pods", "get list watch"),
        b.rule("", "pods/eviction", "create"),
    ]
    return [*b.rbac(NAME, facts.namespace, None, cluster_role), *b.daemonset(_pod(policy), policy, facts)]


def _pod(policy: Policy) -> b.Pod:
    manager = policy.vfio_manager
    main = b.main_container(
        NAME,
        replace(manager, resources=manager.resources or RESOURCES),
        command=["/bin/sh", "-c"],
        args=[VFIO_MANAGER],
        environment=[b.env("HOST_ROOT", "/host")],
        mounts=[
            b.mount("host-sys", "/sys"),
            b.mount("host-lib-modules", "/lib/modules", read_only=True),
            b.HOST_MOUNT_WRITABLE,
        ],
        security=b.SELINUX,
        lifecycle={"preStop": {"exec": {"command": ["/bin/sh", "-c", VFIO_PRE_STOP]}}},
    )
    return b.Pod(
        name=NAME,
        deploy="vfio-manager",
        account=NAME,
        containers=[main],
        init=[driver_manager(manager.driver_manager, manager.resources, evict=False)],
        volumes=[
            b.host_path("host-sys", "/sys", "Directory"),
            b.host_path("host-lib-modules", "/lib/modules", "Directory"),
            b.host_path("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
            b.HOST_VOLUME,
        ],
        labels={"name": NAME},
        selector={"name": NAME},
        spec={"terminationGracePeriodSeconds": 30},
        images=(manager.driver_manager.image, manager.image),
        host_network=manager.host_network,
        on_delete=True,
    )


OPERAND = Operand(
    name="state-vfio-manager",
    title="VFIO manager",
    enabled=lambda policy: policy.sandbox_workloads.enabled and policy.vfio_manager.enabled,
    build=build,
    deploy_label=b.DEPLOY + "vfio-manager",
)
