# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin (ST-06), and its named configs, which GPU feature discovery and the MPS daemon share (DP-01)."""

from __future__ import annotations

from typing import List, Optional, Tuple

from .._policy._model import Json, Policy
from . import _build as b
from . import _hidden
from ._images import pull_policy, reference
from ._scripts import DEVICE_PLUGIN
from ._types import ClusterFacts, Object, Operand

NAME = "nvidia-device-plugin-daemonset"
ACCOUNT = "nvidia-device-plugin"
READ_NODES = b.rule("", "nodes", "get list watch")
DEFAULT_MPS_ROOT = "/run/nvidia/mps"
_ENTRYPOINT = "nvidia-device-plugin-entrypoint"
_HOST_DRIVER = [
    b.env("NVIDIA_DRIVER_ROOT", "/"),
    b.env("DRIVER_ROOT_CTR_PATH", "/host"),
    b.env("NVIDIA_DEV_ROOT", "/"),
    b.env("DEV_ROOT_CTR_PATH", "/host"),
]


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    entrypoint = b.config_map(_ENTRYPOINT, facts.namespace, {"entrypoint.sh": DEVICE_PLUGIN}, {"app": NAME})
    configs = plugin_configs(policy, facts)
    waiting, validations = b.wait_for_toolkit(policy, whole_run=False)
    # What the validator finds out about the driver is read by the script; without a validator it is the host's own.
    start: Json = {"command": ["/bin/sh", "-c"], "args": ["/bin/entrypoint.sh"]}
    script = [b.mount(_ENTRYPOINT, "/bin/entrypoint.sh", read_only=True, sub_path="entrypoint.sh")]
    proofs = [b.mount("run-nvidia-validations", b.VALIDATIONS)]
    environment = _environment(policy)
    if not facts.validated:
        start, script, proofs = {"command": ["nvidia-device-plugin"]}, [], []
        environment += _HOST_DRIVER
    main = b.main_container(
        "nvidia-device-plugin",
        policy.device_plugin,
        **start,
        environment=environment,
        mounts=[
            *script,
            b.mount("device-plugin", "/var/lib/kubelet/device-plugins"),
            *proofs,
            b.DRIVER_ROOT_MOUNT,
            b.HOST_MOUNT,
            b.CDI_MOUNT,
            b.mount("mps-root", "/mps"),
            b.mount("mps-shm", "/dev/shm"),
        ],
    )
    if facts.hidden:
        _hidden.start(main, "nvidia-device-plugin")
    pod = b.Pod(
        name=NAME,
        deploy="device-plugin",
        account=ACCOUNT,
        containers=[main],
        init=[waiting],
        volumes=[
            b.config_volume(_ENTRYPOINT, _ENTRYPOINT, mode=0o700),
            b.host_path("device-plugin", b.kubelet_folder(policy, "device-plugins")),
            validations,
            b.DRIVER_ROOT_VOLUME,
            b.HOST_VOLUME,
            b.CDI_VOLUME,
            *mps_volumes(policy),
            *_hidden.volumes(facts),
        ],
        annotations={"openshift.io/scc": "hostmount-anyuid"},
        images=(policy.validator.image, policy.device_plugin.image),
        host_network=policy.device_plugin.host_network,
        gpu_container="nvidia-device-plugin",
        own_configs=[entrypoint, *configs, *_hidden.objects(facts)],
    )
    add_config_manager(pod, policy, "nvidia-device-plugin", policy.device_plugin.resources)
    rbac = b.rbac(ACCOUNT, facts.namespace, [b.USE_PRIVILEGED_SCC], [READ_NODES])
    return [*rbac, *([entrypoint] if facts.validated else []), *configs, *b.daemonset(pod, policy, facts)]


def plugin_env(policy: Policy) -> List[Json]:
    """Variables of the plugin's container, the policy's own among them."""
    return b.merged_env(_environment(policy), policy.device_plugin.env)


def _environment(policy: Policy) -> List[Json]:
    made = [
        b.env("PASS_DEVICE_SPECS", "true"),
        b.env("FAIL_ON_INIT_ERROR", "true"),
        b.env("DEVICE_LIST_STRATEGY", "cdi-annotations,cdi-cri" if policy.cdi_enabled else "envvar"),
        b.env("DEVICE_ID_STRATEGY", "uuid"),
        b.env("NVIDIA_VISIBLE_DEVICES", "all"),
        b.env("NVIDIA_DRIVER_CAPABILITIES", "all"),
        b.env("MPS_ROOT", policy.device_plugin.mps_root or DEFAULT_MPS_ROOT),
    ]
    if policy.gds.enabled:
        made += [b.env("GDS_ENABLED", "true"), b.env("MOFED_ENABLED", "true")]
    if policy.gdrcopy.enabled:
        made.append(b.env("GDRCOPY_ENABLED", "true"))
    made += b.mig_env(policy)
    if policy.cdi_enabled:
        made += [b.env("CDI_ENABLED", "true"), b.env("CDI_ANNOTATION_PREFIX", "cdi.k8s.io/"), *b.cdi_hook_path(policy)]
    return made


def mps_volumes(policy: Policy) -> List[Json]:
    """Where MPS daemons and their clients meet: pipes and logs, and shared memory (DP-03)."""
    root = policy.device_plugin.mps_root or DEFAULT_MPS_ROOT
    return [
        b.host_path("mps-root", root, "DirectoryOrCreate"),
        b.host_path("mps-shm", root.rstrip("/") + "/shm"),
    ]


def plugin_configs(policy: Policy, facts: ClusterFacts) -> List[Object]:
    """The ConfigMap of named configs, where the policy holds its data."""
    return b.created_config(policy, facts, policy.device_plugin.config)


def add_config_manager(pod: b.Pod, policy: Policy, process: str, resources: Optional[Json]) -> None:
    """Let a pod follow the config that its node's label names: a helper links it, and signals ``process`` on a change.

    ``pod.containers[0]`` is the one that reads the config.
    """
    config, image = policy.device_plugin.config, policy.device_plugin.image
    if not config.name:
        return
    volume = b.volume_name(config.name, [v["name"] for v in pod.volumes] + ["config"])
    mounts = [b.mount("config", "/config"), b.mount(volume, "/available-configs")]
    main = pod.containers[0]
    b.add_env(main, "CONFIG_FILE", "/config/config.yaml")
    main["volumeMounts"] = [*main["volumeMounts"], *mounts]
    for name, once in (("config-manager-init", True), ("config-manager", False)):
        helper = b.container(
            name,
            reference(image),
            pull_policy(image),
            command=["config-manager"],
            environment=_config_manager_env(config.default, "" if once else process),
            mounts=mounts,
            security={} if once else None,
            resources=resources,
        )
        (pod.init if once else pod.containers).append(helper)
    if not pod.spec.get("hostPID"):
        pod.spec["shareProcessNamespace"] = True
    pod.volumes += [b.config_volume(volume, config.name), {"name": "config", "emptyDir": {}}]
    pod.images = (*pod.images, image)


def _config_manager_env(default: str, process: str) -> List[Json]:
    values: Tuple[Tuple[str, str], ...] = (
        ("ONESHOT", "false" if process else "true"),
        ("KUBECONFIG", ""),
        ("NODE_LABEL", "nvidia.com/device-plugin.config"),
        ("CONFIG_FILE_SRCDIR", "/available-configs"),
        ("CONFIG_FILE_DST", "/config/config.yaml"),
        ("DEFAULT_CONFIG", default),
        ("FALLBACK_STRATEGIES", "empty"),
        ("SEND_SIGNAL", "true" if process else "false"),
        ("SIGNAL", "1" if process else ""),
        ("PROCESS_TO_SIGNAL", process),
    )
    return [b.NODE_NAME, *(b.env(name, value) for name, value in values)]


OPERAND = Operand(
    name="state-device-plugin",
    title="device plugin",
    enabled=lambda policy: policy.device_plugin.enabled,
    build=build,
    deploy_label=b.DEPLOY + "device-plugin",
)
