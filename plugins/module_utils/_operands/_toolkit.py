# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container toolkit (ST-04): installs NVIDIA's runtime on the node and tells the container runtime of it."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, Sequence, Tuple

from .._nodes._runtimes import PLAIN, RUNTIME_LABEL, split
from .._nodes._runtimes import Runtime as Setup
from .._policy._model import Json, Policy
from . import _build as b
from ._scripts import CONTAINER_TOOLKIT
from ._types import ClusterFacts, Object, Operand

NAME = "nvidia-container-toolkit-daemonset"
ACCOUNT = "nvidia-container-toolkit"
DEFAULT_INSTALL_DIR = "/usr/local/nvidia"
_CONTAINER = "nvidia-container-toolkit-ctr"
_ENTRYPOINT = "nvidia-container-toolkit-entrypoint"
_HOOKS = "/usr/share/containers/oci/hooks.d"


@dataclass(frozen=True)
class Runtime:
    """Where a container runtime has its files on the host, and the env that names others (RT-02 to RT-04)."""

    config: str
    config_env: str
    drop_in: str = ""
    socket: str = ""
    socket_env: str = ""


RUNTIMES: Mapping[str, Runtime] = {
    "containerd": Runtime(
        config="/etc/containerd/config.toml",
        config_env="CONTAINERD_CONFIG",
        drop_in="/etc/containerd/conf.d/99-nvidia.toml",
        socket="/run/containerd/containerd.sock",
        socket_env="CONTAINERD_SOCKET",
    ),
    "docker": Runtime(
        config="/etc/docker/daemon.json",
        config_env="DOCKER_CONFIG",
        socket="/var/run/docker.sock",
        socket_env="DOCKER_SOCKET",
    ),
    "crio": Runtime(
        config="/etc/crio/config.toml",
        config_env="CRIO_CONFIG",
        drop_in="/etc/crio/crio.conf.d/99-nvidia.conf",
    ),
}


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    entrypoint = b.config_map(_ENTRYPOINT, facts.namespace, {"entrypoint.sh": CONTAINER_TOOLKIT}, {"app": NAME})
    role = [b.USE_PRIVILEGED_SCC, b.rule("apps", "daemonsets", "list")]
    made = [*b.rbac(ACCOUNT, facts.namespace, role), entrypoint]
    first, others = split(node.runtime_setup for node in facts.nodes)
    if not others and first == PLAIN[first.kind]:
        first = PLAIN[facts.runtime]
    for setup in (first, *others):
        pod = _pod(policy, replace(facts, runtime=setup.kind), setup)
        pod.own_configs = [entrypoint]
        if setup in others:
            # The app stays the same: MIG and driver manager find the toolkit's pods by it.
            pod.name = f"{NAME}-{setup.name}"
            pod.node_selector = {RUNTIME_LABEL: setup.name}
            pod.labels = {"app": NAME, RUNTIME_LABEL: setup.name}
        elif others:
            pod.spec["affinity"] = b.without_label(RUNTIME_LABEL)
        made += b.daemonset(pod, policy, facts)
    return made


def _pod(policy: Policy, facts: ClusterFacts, setup: Setup) -> b.Pod:
    toolkit = policy.toolkit
    install_dir = toolkit.install_dir or DEFAULT_INSTALL_DIR
    runtime_env, runtime_mounts, runtime_volumes = _runtime_access(policy, facts, setup)
    main = b.main_container(
        _CONTAINER,
        replace(toolkit, args=(), env=()),  # args are the entrypoint's; env is merged below
        command=["/bin/sh", "-c"],
        args=["/bin/entrypoint.sh"],
        environment=b.merged_env(_environment(policy, facts, install_dir), toolkit.env, runtime_env),
        mounts=[
            b.mount(_ENTRYPOINT, "/bin/entrypoint.sh", read_only=True, sub_path="entrypoint.sh"),
            b.mount("toolkit-root", "/run/nvidia/toolkit"),
            b.mount("run-nvidia-validations", b.VALIDATIONS),
            b.mount("toolkit-install-dir", install_dir),
            b.mount("crio-hooks", _HOOKS),
            b.DRIVER_ROOT_MOUNT,
            b.HOST_MOUNT,
            b.CDI_MOUNT,
            *runtime_mounts,
        ],
        security=b.SELINUX,
    )
    return b.Pod(
        name=NAME,
        deploy="container-toolkit",
        account=ACCOUNT,
        containers=[main],
        init=[b.driver_validation(policy)],
        volumes=[
            b.config_volume(_ENTRYPOINT, _ENTRYPOINT, mode=0o700),
            b.host_path("toolkit-root", "/run/nvidia/toolkit", "DirectoryOrCreate"),
            b.VALIDATIONS_VOLUME,
            b.host_path("toolkit-install-dir", install_dir),
            b.host_path("crio-hooks", _HOOKS if facts.runtime == "crio" else "/run/containers/oci/hooks.d"),
            b.DRIVER_ROOT_VOLUME,
            b.HOST_VOLUME,
            b.HOST_DEV_CHAR_VOLUME,
            b.CDI_VOLUME,
            *runtime_volumes,
        ],
        annotations={"openshift.io/scc": "hostmount-anyuid"},
        spec={"hostPID": True},
        images=(policy.validator.image, toolkit.image),
        host_network=toolkit.host_network,
    )


def _environment(policy: Policy, facts: ClusterFacts, install_dir: str) -> List[Json]:
    made = [
        b.env("ROOT", install_dir),
        b.env("NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND", "management.nvidia.com/gpu"),
        b.env("NVIDIA_VISIBLE_DEVICES", "void"),
        b.env("TOOLKIT_PID_FILE", "/run/nvidia/toolkit/toolkit.pid"),
        b.env_from_field("NRI_NAMESPACE", "metadata.namespace"),
    ]
    if policy.cdi_enabled:
        # Devices come by CDI: nothing needs NVIDIA's runtime as the default.
        made += [
            b.env("CDI_ENABLED", "true"),
            b.env("NVIDIA_RUNTIME_SET_AS_DEFAULT", "false"),
            b.env("NVIDIA_CONTAINER_RUNTIME_MODE", "cdi"),
            b.env("CRIO_CONFIG_MODE", "config"),
        ]
    elif facts.runtime == "crio":
        made.append(b.env("CRIO_CONFIG_MODE", "hook"))
    if policy.nri_enabled:
        made.append(b.env("ENABLE_NRI_PLUGIN", "true"))
    return made


Access = Tuple[List[Json], List[Json], List[Json]]  # env, mounts, volumes


def _runtime_access(policy: Policy, facts: ClusterFacts, setup: Setup) -> Access:
    """What the container needs to reach the host's runtime. With NRI a socket alone: nothing is edited (RT-09)."""
    user = {item["name"]: item.get("value", "") for item in policy.toolkit.env}
    made: Access = ([b.env("RUNTIME", facts.runtime)], [], [])
    if policy.nri_enabled:
        path = user.get("NRI_SOCKET") or "/var/run/nri/nri.sock"
        _reach(made, "nri-socket", path, "/runtime/nri-sock-dir/", ["NRI_SOCKET"], "DirectoryOrCreate")
    else:
        _reach_files(made, setup, user, policy.operator.runtime_class)
    sources = user.get("RUNTIME_CONFIG_SOURCE")
    if sources:
        made[0].append(b.env("RUNTIME_CONFIG_SOURCE", _under_host(sources)))
    return made


def _reach_files(made: Access, setup: Setup, user: Dict[str, str], runtime_class: str) -> None:
    name, runtime = setup.kind, RUNTIMES[setup.kind]
    if name == "containerd":
        made[0].append(b.env("CONTAINERD_RUNTIME_CLASS", runtime_class))
    config = user.get(runtime.config_env) or user.get("RUNTIME_CONFIG") or setup.config or runtime.config
    names = ["RUNTIME_CONFIG", runtime.config_env]
    _reach(made, f"{name}-config", config, "/runtime/config-dir/", names, "DirectoryOrCreate")
    if runtime.drop_in:
        drop_in = user.get("RUNTIME_DROP_IN_CONFIG") or runtime.drop_in
        names = ["RUNTIME_DROP_IN_CONFIG"]
        _reach(made, f"{name}-drop-in-config", drop_in, "/runtime/config-dir.d/", names, "DirectoryOrCreate")
        made[0].append(b.env("RUNTIME_DROP_IN_CONFIG_HOST_PATH", drop_in))
    if runtime.socket:
        path = user.get(runtime.socket_env) or setup.socket or runtime.socket
        _reach(made, f"{name}-socket", path, "/runtime/sock-dir/", ["RUNTIME_SOCKET", runtime.socket_env], "")


def _reach(made: Access, volume: str, path: str, inside: str, names: Sequence[str], kind: str) -> None:
    """Mount the folder of a file of the host, and say where the file is inside, under each of the names."""
    environment, mounts, volumes = made
    environment += [b.env(name, inside + posixpath.basename(path)) for name in names]
    mounts.append(b.mount(volume, inside))
    volumes.append(b.host_path(volume, posixpath.dirname(path), kind))


def _under_host(sources: str) -> str:
    """Sources of the runtime's config, files among them looked up on the host's root, which is mounted (RT-05)."""
    parts = []
    for source in sources.split(","):
        kind, _equals, path = source.partition("=")
        parts.append(f"file={posixpath.join('/host', path.lstrip('/'))}" if kind == "file" and path else source)
    return ",".join(parts)


OPERAND = Operand(
    name="state-container-toolkit",
    title="container toolkit",
    enabled=lambda policy: policy.toolkit.enabled,
    build=build,
    deploy_label=b.DEPLOY + "container-toolkit",
)
