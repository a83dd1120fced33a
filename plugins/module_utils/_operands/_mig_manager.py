# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG manager (ST-11): cuts the GPUs of a node into the layout that its label ``nvidia.com/mig.config`` names."""

from __future__ import annotations

from typing import List

from .._policy._model import Json, Policy
from . import _build as b
from ._mig_configs import GPU_CLIENTS, mig_parted_config
from ._scripts import MIG_MANAGER
from ._types import ClusterFacts, Object, Operand

NAME = "nvidia-mig-manager"
CONFIG_KEY = "config.yaml"
CLIENTS_KEY = "clients.yaml"
_ENTRYPOINT = "nvidia-mig-manager-entrypoint"
_LAYOUTS = "default-mig-parted-config"
_CLIENTS = "default-gpu-clients"


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    configs = _configs(policy, facts)
    role = [
        b.USE_PRIVILEGED_SCC,
        b.rule("", "pods", "get list watch delete"),
        b.rule("", "configmaps", "get list create update patch"),
    ]
    nodes = [b.rule("", "nodes", "get list watch update patch"), b.rule("", "pods", "list")]
    rbac = b.rbac(NAME, facts.namespace, role, nodes)
    return [*rbac, *configs, *b.daemonset(_pod(policy, configs), policy, facts)]


def _configs(policy: Policy, facts: ClusterFacts) -> List[Object]:
    """The entrypoint, and layouts and clients: ours, or those of the policy."""
    manager, namespace = policy.mig_manager, facts.namespace
    made = [b.config_map(_ENTRYPOINT, namespace, {"entrypoint.sh": MIG_MANAGER}, {"app": NAME})]
    if not manager.config.name:
        made.append(b.config_map(_LAYOUTS, namespace, {CONFIG_KEY: mig_parted_config()}))
    if not manager.gpu_clients_config.name:
        made.append(b.config_map(_CLIENTS, namespace, {CLIENTS_KEY: GPU_CLIENTS}))
    made += b.created_config(policy, facts, manager.config)
    return made + b.created_config(policy, facts, manager.gpu_clients_config)


def _pod(policy: Policy, configs: List[Object]) -> b.Pod:
    manager = policy.mig_manager
    waiting, validations = b.wait_for_toolkit(policy, whole_run=False)
    main = b.main_container(
        NAME,
        manager,
        command=["/bin/sh", "-c"],
        args=["/bin/entrypoint.sh"],
        environment=_environment(policy),
        mounts=[
            b.mount(_ENTRYPOINT, "/bin/entrypoint.sh", read_only=True, sub_path="entrypoint.sh"),
            b.mount("run-nvidia-validations", b.VALIDATIONS),
            b.mount("host-sys", "/sys"),
            b.mount("mig-parted-config", "/mig-parted-config"),
            b.mount("gpu-clients", "/gpu-clients"),
            b.HOST_MOUNT_WRITABLE,
            b.DRIVER_ROOT_MOUNT,
            b.CDI_MOUNT,
        ],
    )
    if manager.config.name:
        layouts = b.config_volume("mig-parted-config", manager.config.name)
    else:
        # The manager makes layouts from the hardware; this file is what it falls back to, hence its other name.
        layouts = b.config_volume("mig-parted-config", _LAYOUTS, items={CONFIG_KEY: "config-default.yaml"})
    return b.Pod(
        name=NAME,
        deploy="mig-manager",
        account=NAME,
        containers=[main],
        init=[waiting],
        volumes=[
            b.config_volume(_ENTRYPOINT, _ENTRYPOINT, mode=0o700),
            validations,
            b.host_path("host-sys", "/sys", "Directory"),
            layouts,
            b.config_volume("gpu-clients", manager.gpu_clients_config.name or _CLIENTS),
            b.HOST_VOLUME,
            b.DRIVER_ROOT_VOLUME,
            b.CDI_VOLUME,
        ],
        spec={"hostPID": True, "hostIPC": True},
        images=(policy.validator.image, manager.image),
        host_network=manager.host_network,
        gpu_container=NAME,
        own_configs=configs,
    )


def _environment(policy: Policy) -> List[Json]:
    made = [
        b.NODE_NAME,
        b.env_from_field("POD_NAME", "metadata.name"),
        b.env_from_field("POD_NAMESPACE", "metadata.namespace"),
        b.env("GPU_CLIENTS_FILE", "/gpu-clients/clients.yaml"),
        b.env_from_field("DEFAULT_GPU_CLIENTS_NAMESPACE", "metadata.namespace"),
    ]
    if policy.mig_manager.config.name:
        made.append(b.env("CONFIG_FILE", "/mig-parted-config/config.yaml"))
    else:
        made.append(b.env("DEFAULT_CONFIG_FILE", "/mig-parted-config/config-default.yaml"))
    if policy.cdi_enabled:
        made += [b.env("CDI_ENABLED", "true"), *b.cdi_hook_path(policy)]
    return made


OPERAND = Operand(
    name="state-mig-manager",
    title="MIG manager",
    enabled=lambda policy: policy.mig_manager.enabled,
    build=build,
    deploy_label=b.DEPLOY + "mig-manager",
)
