# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vGPU device manager (ST-14): makes the vGPUs that a node's label ``nvidia.com/vgpu.config`` names (SBX-03).

It is never rolled by Kubernetes (OnDelete): a pod that starts makes vGPUs anew, which machines may use.
"""

from __future__ import annotations

from typing import List

from .._policy._model import Policy
from . import _build as b
from ._scripts import WAIT_FOR_VGPU_MANAGER
from ._types import ClusterFacts, Object, Operand
from ._vgpu_configs import vgpu_config

NAME = "nvidia-vgpu-device-manager"
CONFIG_KEY = "config.yaml"
_DEFAULT = "default-vgpu-devices-config"


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    named = policy.vgpu_device_manager.config.name
    configs = [] if named else [b.config_map(_DEFAULT, facts.namespace, {CONFIG_KEY: vgpu_config()})]
    rbac = b.rbac(
        NAME,
        facts.namespace,
        [b.rule("", "pods", "get list watch")],
        [b.rule("", "nodes", "get list watch update")],
    )
    return [*rbac, *configs, *b.daemonset(_pod(policy, configs), policy, facts)]


def _pod(policy: Policy, configs: List[Object]) -> b.Pod:
    manager = policy.vgpu_device_manager
    waiting = b.validation(
        policy,
        "vgpu-manager-validation",
        [],
        [b.mount("run-nvidia-validations", b.VALIDATIONS, propagation="HostToContainer")],
        args=[WAIT_FOR_VGPU_MANAGER],
    )
    # The default set follows from the policy alone: what a user sets for it by env is void.
    default = b.env("DEFAULT_VGPU_CONFIG", manager.config.default)
    main = b.main_container(
        NAME,
        manager,
        environment=[
            b.env_from_field("NAMESPACE", "metadata.namespace"),
            b.NODE_NAME,
            b.env("CONFIG_FILE", f"/vgpu-config/{CONFIG_KEY}"),
        ],
        mounts=[
            b.mount("vgpu-config", "/vgpu-config"),
            b.mount("host-sys", "/sys"),
            b.HOST_MOUNT_WRITABLE,
            b.DRIVER_ROOT_MOUNT,
        ],
    )
    main["env"] = b.merged_env(main["env"], [default])
    return b.Pod(
        name=NAME,
        deploy="vgpu-device-manager",
        account=NAME,
        containers=[main],
        init=[waiting],
        volumes=[
            b.config_volume("vgpu-config", manager.config.name or _DEFAULT),
            b.host_path("host-sys", "/sys", "Directory"),
            b.HOST_VOLUME,
            b.DRIVER_ROOT_VOLUME,
            b.VALIDATIONS_VOLUME,
        ],
        images=(policy.validator.image, manager.image),
        host_network=manager.host_network,
        on_delete=True,
        own_configs=configs,
    )


OPERAND = Operand(
    name="state-vgpu-device-manager",
    title="vGPU device manager",
    enabled=lambda policy: policy.sandbox_workloads.enabled and policy.vgpu_device_manager.enabled,
    build=build,
    deploy_label=b.DEPLOY + "vgpu-device-manager",
)
