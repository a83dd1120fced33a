# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vGPU manager (ST-13): the host's driver that cuts GPUs into vGPUs, from an image that its user has built.

It is never rolled by Kubernetes (OnDelete): virtual machines would lose their GPUs under themselves.
"""

from __future__ import annotations

from typing import List, Tuple

from .._nodes._keys import VGPU
from .._nodes._workload import served_now, workload_of
from .._policy._model import Policy
from . import _build as b
from ._driver import LOG_MOUNTS, MODULE_PARAMETERS, RUN_NVIDIA, add_keys, driver_manager
from ._images import for_os
from ._types import ClusterFacts, NodeFacts, Object, Operand

NAME = "nvidia-vgpu-manager-daemonset"
ACCOUNT = "nvidia-vgpu-manager"


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    cluster_role = [
        b.rule("", "nodes", "get list patch watch"),
        b.rule("", "pods", "get list watch"),
        b.rule("", "pods/eviction", "create"),
        b.rule("apps", "daemonsets", "get"),
    ]
    tags = os_tags(policy, facts)
    made = b.daemonset(_pod(policy, facts, tags[0]), policy, facts) if len(tags) == 1 else []
    return [*b.rbac(ACCOUNT, facts.namespace, None, cluster_role), *made]


def nodes_of(policy: Policy, facts: ClusterFacts) -> List[NodeFacts]:
    """Nodes that have vGPUs, or are to have them."""
    return [node for node in facts.nodes if VGPU in (workload_of(policy, node.labels), served_now(node.labels))]


def os_tags(policy: Policy, facts: ClusterFacts) -> Tuple[str, ...]:
    """Operating systems of these nodes; that of all nodes while there are none. The image is made for one."""
    mine = nodes_of(policy, facts)
    tags = tuple(sorted({node.os_tag for node in mine or facts.nodes if node.os_tag}))
    return tags if mine or len(tags) == 1 else ()


def _pod(policy: Policy, facts: ClusterFacts, os_tag: str) -> b.Pod:
    manager = policy.vgpu_manager
    main = b.main_container(
        "nvidia-vgpu-manager-ctr",
        manager,
        image=for_os(manager.image, os_tag),
        command=["nvidia-driver"],
        args=["init"],
        mounts=[
            RUN_NVIDIA,
            b.mount("host-os-release", "/host-etc/os-release"),
            b.mount("vfio", "/dev/vfio"),
            b.mount("cgroup", "/sys/fs/cgroup"),
            *LOG_MOUNTS,
            b.mount("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
            b.mount("nv-firmware", "/lib/firmware"),
        ],
        security=b.SELINUX,
    )
    volumes = [
        b.host_path("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
        b.host_path("host-os-release", "/etc/os-release"),
        b.host_path("vfio", "/dev/vfio", "Directory"),
        b.host_path("cgroup", "/sys/fs/cgroup", "Directory"),
        b.host_path("var-log", "/var/log"),
        b.host_path("dev-log", "/dev/log"),
        b.host_path("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
        b.host_path("nv-firmware", "/run/nvidia/driver/lib/firmware", "DirectoryOrCreate"),
        b.HOST_VOLUME,
        b.host_path("host-sys", "/sys", "Directory"),
    ]
    add_keys(manager.kernel_module_config, MODULE_PARAMETERS, [main], volumes, facts)
    return b.Pod(
        name=NAME,
        deploy="vgpu-manager",
        account=ACCOUNT,
        containers=[main],
        init=[driver_manager(manager.driver_manager, manager.resources, evict=False)],
        volumes=volumes,
        pod_annotations={"kubectl.kubernetes.io/default-container": "nvidia-vgpu-manager-ctr"},
        spec={"hostPID": True, "hostIPC": True, "terminationGracePeriodSeconds": 120},
        images=(manager.driver_manager.image, manager.image),
        host_network=manager.host_network,
        on_delete=True,
    )


OPERAND = Operand(
    name="state-vgpu-manager",
    title="vGPU manager",
    enabled=lambda policy: (
        policy.sandbox_workloads.enabled and policy.vgpu_manager.enabled and not policy.driver.use_nvidia_driver_crd
    ),
    build=build,
    deploy_label=b.DEPLOY + "vgpu-manager",
)
