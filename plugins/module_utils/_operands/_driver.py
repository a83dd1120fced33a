# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver (ST-03): installs and loads NVIDIA's kernel modules on each node from a container, one OS or kernel a set.

It is never rolled by Kubernetes (OnDelete): a driver must not be unloaded under running work.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._nodes._drivers import DRIVER_LABEL, Driver
from .._policy._model import Component, DriverManager, Image, Json, Policy
from . import _build as b
from ._driver_groups import NAME, OS_LABEL, Group, by_kernel, by_os, plain_kernel
from ._images import for_os, precompiled, pull_policy, reference
from ._scripts import DRIVER_PRE_STOP, DRIVER_STARTUP_PROBE
from ._types import ClusterFacts, NodeFacts, Object, Operand

ACCOUNT = "nvidia-driver"
COMPONENT = {"app.kubernetes.io/component": "nvidia-driver"}
LICENCE_KEY = "gridd.conf"
TOKEN_KEY = "client_configuration_token.tok"
TOPOLOGY_KEY = "nvidia-topologyd.conf"
MODULE_PARAMETERS = "/drivers"
_PROBE_MAP = "nvidia-driver-startup-probe"
_PROBE_SCRIPT = "/usr/local/bin/startup-probe.sh"

# Where each distribution keeps package sources and certificates (DRV-07).
_APT = ("/etc/apt/sources.list.d", "/usr/local/share/ca-certificates")
_YUM = ("/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem")
_ZYPP = ("/etc/zypp/repos.d", "/etc/pki/trust/anchors")
OS_FOLDERS: Mapping[str, Tuple[str, str]] = {
    **dict.fromkeys(("ubuntu", "debian"), _APT),
    **dict.fromkeys(("centos", "rhel", "rhcos", "rocky", "ol"), _YUM),
    **dict.fromkeys(("sles", "sl-micro"), _ZYPP),
}

# What entitles a host to its vendor's packages: path inside, path on the host, type (DRV-12).
_RHEL = (
    ("/run/secrets/etc-pki-entitlement", "/etc/pki/entitlement", "Directory"),
    ("/run/secrets/redhat.repo", "/etc/yum.repos.d/redhat.repo", "File"),
    ("/run/secrets/rhsm", "/etc/rhsm", "Directory"),
)
_SUSE = (
    ("/etc/SUSEConnect", "/etc/SUSEConnect", "FileOrCreate"),
    ("/etc/zypp/credentials.d", "/etc/zypp/credentials.d", "Directory"),
)


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    labels = {"app": NAME, **COMPONENT}
    script = b.config_map(_PROBE_MAP, facts.namespace, {"startup-probe.sh": DRIVER_STARTUP_PROBE}, labels)
    cluster_role = [
        b.rule("config.openshift.io", "clusterversions", "get list"),
        b.rule("", "nodes", "get list patch update watch"),
        b.rule("", "pods", "get list watch"),
        b.rule("", "pods/eviction", "create"),
        b.rule("resource.k8s.io", "resourceclaims", "get list"),
        b.rule("apps", "daemonsets", "get"),
    ]
    made = [*b.rbac(ACCOUNT, facts.namespace, [b.USE_PRIVILEGED_SCC], cluster_role), script]
    for own, group in sets(policy, facts):
        pod = _pod(own, facts, group)
        pod.own_configs = [script]
        made += b.daemonset(pod, own, facts)
    return made


def sets(policy: Policy, facts: ClusterFacts) -> List[Tuple[Policy, Group]]:
    """The DaemonSets that drivers need in this cluster, each with its policy: nodes without a group of their own first.

    Those of a group always carry its name, so that no name moves from one group to another.
    """
    grouped: Dict[Driver, List[NodeFacts]] = {}
    for node in facts.nodes:
        if node.driver is not None:
            grouped.setdefault(node.driver, []).append(node)
    plain = replace(facts, nodes=tuple(node for node in facts.nodes if node.driver is None))
    made = [(policy, replace(group, apart=bool(grouped))) for group in groups(policy, plain)]
    for driver in sorted(grouped, key=lambda one: one.group):
        own = policy_of(policy, driver)
        nodes = replace(facts, nodes=tuple(grouped[driver]), driver_daemonsets={}, driver_os="")
        for group in groups(own, nodes) if driver.enabled else ():
            name = f"{NAME}-{driver.group}-{group.os_tag}"
            if group.kernel:
                name = f"{NAME}-{driver.group}-{plain_kernel(group.kernel)}-{group.os_tag}"
            mark = {DRIVER_LABEL: driver.group}
            selector = {**group.node_selector, **mark}
            made.append(
                (own, replace(group, name=name, node_selector=selector, labels={OS_LABEL: group.os_tag, **mark}))
            )
    return made


def policy_of(policy: Policy, driver: Driver) -> Policy:
    """The policy as nodes of a group have it."""
    was = policy.driver
    image = replace(
        was.image,
        repository=driver.repository or was.image.repository,
        image=driver.image or was.image.image,
        version=driver.version or was.image.version,
    )
    precompiled = was.use_precompiled if driver.precompiled is None else driver.precompiled
    flavour = driver.flavour or was.kernel_module_type
    return replace(policy, driver=replace(was, image=image, use_precompiled=precompiled, kernel_module_type=flavour))


def groups(policy: Policy, facts: ClusterFacts) -> List[Group]:
    """The DaemonSets that the policy's drivers need in this cluster."""
    return by_kernel(facts) if policy.driver.use_precompiled else by_os(facts)


def _pod(policy: Policy, facts: ClusterFacts, group: Group) -> b.Pod:
    volumes = [dict(volume) for volume in _VOLUMES]
    if policy.driver.rdma.enabled and policy.driver.rdma.use_host_mofed:
        volumes = [v if v["name"] != "mlnx-ofed-usr-src" else _HOST_MOFED_SOURCE for v in volumes]
    driver = _driver_container(policy, group)
    manager = driver_manager(policy.driver.manager, policy.driver.resources, True, _rdma_env(policy), [_MELLANOX])
    others = _other_containers(policy, group)
    _add_configs(policy, facts, group, [driver, *others], volumes)
    digest = config_digest(policy, manager, [driver, *others], volumes)
    for item in (manager, driver):
        item["env"] = b.merged_env(item["env"], [{"name": "DRIVER_CONFIG_DIGEST", "value": digest}])
    is_precompiled = {"nvidia.com/precompiled": "true" if policy.driver.use_precompiled else "false"}
    return b.Pod(
        name=group.name,
        deploy="driver",
        account=ACCOUNT,
        containers=[driver, *others],
        init=[manager],
        volumes=volumes,
        labels={"app": NAME, **COMPONENT, **is_precompiled, **group.labels},
        selector={"app": NAME, **group.labels},
        annotations={"openshift.io/scc": ACCOUNT},
        pod_annotations={"kubectl.kubernetes.io/default-container": "nvidia-driver-ctr"},
        node_selector=group.node_selector,
        spec={
            "hostPID": True,
            "affinity": {**_ONE_DRIVER_A_NODE, **(b.without_label(DRIVER_LABEL) if group.apart else {})},
        },
        images=_images_with_secrets(policy),
        host_network=policy.driver.host_network,
        on_delete=True,
    )


_ONE_DRIVER_A_NODE: Json = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {
                    "matchExpressions": [
                        {"key": "app.kubernetes.io/component", "operator": "In", "values": ["nvidia-driver"]}
                    ]
                },
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}

RUN_NVIDIA = b.mount("run-nvidia", "/run/nvidia", propagation="Bidirectional")
_MELLANOX = b.mount("run-mellanox-drivers", "/run/mellanox/drivers", propagation="HostToContainer")
_LOG = b.mount("var-log", "/var/log")
LOG_MOUNTS = (_LOG, b.mount("dev-log", "/dev/log"))
_DEV_LOG_READ = b.mount("dev-log", "/dev/log", read_only=True)

_VOLUMES = (
    b.host_path("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
    b.host_path("var-log", "/var/log"),
    b.host_path("dev-log", "/dev/log"),
    b.host_path("host-os-release", "/etc/os-release"),
    b.host_path("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager", "DirectoryOrCreate"),
    b.host_path("run-nvidia-topologyd", "/run/nvidia-topologyd", "DirectoryOrCreate"),
    b.host_path("mlnx-ofed-usr-src", "/run/mellanox/drivers/usr/src", "DirectoryOrCreate"),
    b.host_path("run-mellanox-drivers", "/run/mellanox/drivers", "DirectoryOrCreate"),
    b.VALIDATIONS_VOLUME,  # mounted by none of the containers: it makes the folder before they start
    b.HOST_VOLUME,
    b.host_path("host-sys", "/sys", "Directory"),
    b.host_path("host-sys-devices-system", "/sys/devices/system", "Directory"),
    b.host_path("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
    b.host_path("nv-firmware", "/run/nvidia/driver/lib/firmware", "DirectoryOrCreate"),
    b.config_volume("driver-startup-probe-script", _PROBE_MAP, mode=0o755),
)
_HOST_MOFED_SOURCE = b.host_path("mlnx-ofed-usr-src", "/usr/src", "DirectoryOrCreate")


def _images_with_secrets(policy: Policy) -> Tuple[Image, ...]:
    images = [policy.driver.manager.image, policy.driver.image]
    images += [part.image for part in (policy.gds, policy.gdrcopy) if part.enabled]
    return tuple(images)


# --- containers ------------------------------------------------------------------------------------------------------


def driver_manager(
    manager: DriverManager,
    resources: Optional[Json],
    evict: bool,
    environment: Sequence[Json] = (),
    mounts: Sequence[Json] = (),
) -> Json:
    """Unloads the old driver: pauses its users on the node, and skips all that when nothing relevant changed.

    ``evict``: whether it may evict pods that use GPUs.
    """
    base = [
        b.NODE_NAME,
        b.env("NVIDIA_VISIBLE_DEVICES", "void"),
        b.env("ENABLE_GPU_POD_EVICTION", "true" if evict else "false"),
        b.env("ENABLE_AUTO_DRAIN", "false"),
        b.env("DRAIN_USE_FORCE", "false"),
        b.env("DRAIN_POD_SELECTOR_LABEL", ""),
        b.env("DRAIN_TIMEOUT_SECONDS", "0s"),
        b.env("DRAIN_DELETE_EMPTYDIR_DATA", "false"),
        b.OPERATOR_NAMESPACE,
    ]
    return b.container(
        "k8s-driver-manager",
        reference(manager.image),
        pull_policy(manager.image),
        command=["driver-manager"],
        args=["uninstall_driver"],
        environment=b.merged_env([*base, *environment], manager.env),
        mounts=[RUN_NVIDIA, b.HOST_MOUNT, b.mount("host-sys", "/sys"), *mounts],
        resources=resources,
    )


def _rdma_env(policy: Policy) -> List[Json]:
    """GPUDirect RDMA, and whether the network driver is the host's own (DRV-04)."""
    rdma = policy.driver.rdma
    if not rdma.enabled:
        return []
    made = [b.env("GPU_DIRECT_RDMA_ENABLED", "true")]
    return [*made, b.env("USE_HOST_MOFED", "true")] if rdma.use_host_mofed else made


def driver_image(policy: Policy, group: Group) -> str:
    image = policy.driver.image
    return precompiled(image, group.kernel, group.os_tag) if group.kernel else for_os(image, group.os_tag)


def _driver_container(policy: Policy, group: Group) -> Json:
    driver = policy.driver
    script: Json = {"exec": {"command": ["sh", _PROBE_SCRIPT]}}
    startup = {"initialDelaySeconds": 60, "failureThreshold": 120, "periodSeconds": 10, "timeoutSeconds": 60}
    more: Json = {"startupProbe": {**script, **startup, **_set(driver.startup_probe)}}
    for name, wanted in (("livenessProbe", driver.liveness_probe), ("readinessProbe", driver.readiness_probe)):
        if _set(wanted):
            more[name] = {**script, "timeoutSeconds": 60, **_set(wanted)}
    return b.main_container(
        "nvidia-driver-ctr",
        driver,
        image=driver_image(policy, group),
        command=["nvidia-driver"],
        args=["init"],
        environment=[
            b.NODE_NAME,
            b.env_from_field("NODE_IP", "status.hostIP"),
            b.env("KERNEL_MODULE_TYPE", driver.kernel_module_type),
            *([b.env("OPEN_KERNEL_MODULES_ENABLED", "true")] if driver.kernel_module_type == "open" else []),
            *([b.env("GDRCOPY_ENABLED", "true")] if policy.gdrcopy.enabled else []),
            *([b.env("GDS_ENABLED", "true")] if policy.gds.enabled else []),
            *_rdma_env(policy),
        ],
        mounts=[
            RUN_NVIDIA,
            b.mount("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager"),
            b.mount("run-nvidia-topologyd", "/run/nvidia-topologyd"),
            *LOG_MOUNTS,
            b.mount("host-os-release", "/host-etc/os-release", read_only=True),
            b.mount("mlnx-ofed-usr-src", "/run/mellanox/drivers/usr/src", propagation="HostToContainer"),
            _MELLANOX,
            b.mount("host-sys-devices-system", "/sys/devices/system"),
            b.mount("firmware-search-path", "/sys/module/firmware_class/parameters/path"),
            b.mount("nv-firmware", "/lib/firmware"),
            b.mount("driver-startup-probe-script", _PROBE_SCRIPT, sub_path="startup-probe.sh"),
        ],
        security=b.SELINUX,
        lifecycle={"preStop": {"exec": {"command": ["/bin/sh", "-c", DRIVER_PRE_STOP]}}},
        **more,
    )


def _set(probe: Optional[Json]) -> Json:
    """The numbers of a probe that the policy gives; 0 means: leave it as it is."""
    return {key: value for key, value in (probe or {}).items() if value}


def _other_containers(policy: Policy, group: Group) -> List[Json]:
    made = []
    if policy.driver.rdma.enabled:
        made.append(_peermem_container(policy, group))
    if policy.gds.enabled:
        made.append(_module_container(policy, policy.gds, "nvidia-fs-ctr", "nvidia-gds-driver", "nvidia_fs", group))
    if policy.gdrcopy.enabled:
        name = "nvidia-gdrcopy-ctr"
        made.append(_module_container(policy, policy.gdrcopy, name, "nvidia-gdrcopy-driver", "gdrdrv", group))
    return made


def _peermem_container(policy: Policy, group: Group) -> Json:
    """Loads nvidia_peermem again whenever the network driver, reinstalled, took it away."""
    probe: Json = {"exec": {"command": ["sh", "-c", "nvidia-driver probe_nvidia_peermem"]}, "timeoutSeconds": 10}
    host_mofed = policy.driver.rdma.use_host_mofed
    return b.container(
        "nvidia-peermem-ctr",
        driver_image(policy, group),
        pull_policy(policy.driver.image),
        command=["nvidia-driver"],
        args=["reload_nvidia_peermem"],
        environment=[b.env("USE_HOST_MOFED", "true")] if host_mofed else [],
        mounts=[RUN_NVIDIA, _LOG, _DEV_LOG_READ, _MELLANOX],
        security=b.SELINUX,
        resources=policy.driver.resources,
        startupProbe={**probe, "initialDelaySeconds": 10, "periodSeconds": 10, "failureThreshold": 120},
        livenessProbe={**probe, "initialDelaySeconds": 30, "periodSeconds": 30, "failureThreshold": 1},
    )


def _module_container(policy: Policy, part: Component, name: str, program: str, module: str, group: Group) -> Json:
    """Builds and loads one more module once the driver is there (DRV-05, DRV-06); args of the policy do not apply."""
    wait = (
        "until [ -d /run/nvidia/driver/usr/src ] && lsmod | grep -q '^nvidia '; do\n"
        "  echo 'waiting for the driver to be installed and loaded'\n"
        f"  sleep 10\ndone\nexec {program} install\n"
    )
    return b.main_container(
        name,
        replace(part, args=(), resources=policy.driver.resources),
        image=for_os(part.image, group.os_tag),
        command=["bash", "-xc"],
        args=[wait],
        mounts=[b.mount("run-nvidia", "/run/nvidia", propagation="HostToContainer"), _LOG, _DEV_LOG_READ],
        security=b.SELINUX,
        startupProbe={
            "exec": {"command": ["sh", "-c", f"lsmod | grep {module}"]},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
            "failureThreshold": 120,
            "timeoutSeconds": 10,
        },
    )


# --- files and secrets of the user -----------------------------------------------------------------------------------


def _add_configs(
    policy: Policy, facts: ClusterFacts, group: Group, containers: List[Json], volumes: List[Json]
) -> None:
    """Mount what the policy names, in the driver's container and where else it is needed."""
    driver = policy.driver
    by_name = {item["name"]: item for item in containers}
    main = by_name["nvidia-driver-ctr"]
    builders = [by_name[name] for name in ("nvidia-fs-ctr", "nvidia-gdrcopy-ctr") if name in by_name]
    _add_licence(policy, main, volumes)
    if driver.virtual_topology_config:
        _add_file(main, "topology-config", "/etc/nvidia/nvidia-topologyd.conf", TOPOLOGY_KEY)
        volumes.append(_files("topology-config", driver.virtual_topology_config, [TOPOLOGY_KEY]))
    with_parameters = [main] + [by_name[name] for name in ("nvidia-peermem-ctr",) if name in by_name]
    add_keys(driver.kernel_module_config, MODULE_PARAMETERS, with_parameters, volumes, facts)
    if driver.secret_env:
        for item in [main, *builders]:
            item["envFrom"] = [{"secretRef": {"name": driver.secret_env}}]
    if driver.use_precompiled:
        _add_host_modules(group, main, volumes)
        return
    repositories, certificates = OS_FOLDERS.get(group.os_id, ("", ""))
    if repositories:
        add_keys(driver.repo_config, repositories, [main, *builders], volumes, facts)
        add_keys(driver.cert_config, certificates, [main, *builders], volumes, facts)
    for number, (inside, path, kind) in enumerate(_subscriptions(policy, facts, group)):
        main["volumeMounts"].append(b.mount(f"subscription-config-{number}", inside, read_only=True))
        volumes.append(b.host_path(f"subscription-config-{number}", path, kind))


def _add_file(item: Json, volume: str, path: str, key: str) -> None:
    item["volumeMounts"].append(b.mount(volume, path, read_only=True, sub_path=key))


def _files(volume: str, name: str, keys: List[str]) -> Json:
    return b.config_volume(volume, name, items={key: key for key in keys})


def add_keys(name: str, folder: str, containers: List[Json], volumes: List[Json], facts: ClusterFacts) -> None:
    """Each key of a ConfigMap as a file in a folder, beside the files that are there."""
    if not name:
        return
    keys = sorted(facts.config_keys.get(f"ConfigMap/{name}", ()))
    if not keys:
        return
    same = [v for v in volumes if v.get("configMap", {}).get("name") == name and v["configMap"].get("items")]
    if same:
        volume = same[0]["name"]
        known = {item["key"] for item in same[0]["configMap"]["items"]}
        same[0]["configMap"]["items"] += [{"key": key, "path": key} for key in keys if key not in known]
    else:
        volume = b.volume_name(name, [v["name"] for v in volumes])
        volumes.append(_files(volume, name, keys))
    for item in containers:
        for key in keys:
            _add_file(item, volume, posixpath.join(folder, key), key)


def _add_licence(policy: Policy, main: Json, volumes: List[Json]) -> None:
    """The licence of a vGPU guest; the Secret wins over the older ConfigMap (DRV-09)."""
    licensing = policy.driver.licensing
    if not licensing.secret_name and not licensing.config_map_name:
        return
    keys = [LICENCE_KEY]
    _add_file(main, "licensing-config", f"/drivers/{LICENCE_KEY}", LICENCE_KEY)
    if licensing.nls_enabled:
        keys.append(TOKEN_KEY)
        _add_file(main, "licensing-config", f"/drivers/ClientConfigToken/{TOKEN_KEY}", TOKEN_KEY)
    volume = _files("licensing-config", licensing.config_map_name, keys)
    if licensing.secret_name:
        items = volume["configMap"]["items"]
        volume = {"name": "licensing-config", "secret": {"secretName": licensing.secret_name, "items": items}}
    volumes.append(volume)


def _add_host_modules(group: Group, main: Json, volumes: List[Json]) -> None:
    if group.os_id in ("sles", "sl-micro"):
        main["volumeMounts"].append(b.mount("lib-modules", "/run/host/lib/modules", read_only=True))
        volumes.append(b.host_path("lib-modules", "/lib/modules", "Directory"))


def _subscriptions(policy: Policy, facts: ClusterFacts, group: Group) -> Tuple[Tuple[str, str, str], ...]:
    if group.os_id in ("sles", "sl-micro"):
        return _SUSE
    wanted = group.os_id == "rhel" and facts.runtime != "crio" and not policy.driver.repo_config
    return _RHEL if wanted else ()


# --- digest ----------------------------------------------------------------------------------------------------------


def config_digest(policy: Policy, manager: Json, containers: List[Json], volumes: List[Json]) -> str:
    """Digest of what an installed driver depends on: an equal one means that nothing need be installed again (DRV-13).

    Resources, probes, pull policies, labels, tolerations and the like are left out on purpose.
    """
    relevant: Dict[str, Any] = {
        "containers": [_installs(item) for item in (manager, *containers)],
        "volumes": sorted((v for v in volumes), key=lambda v: str(v["name"])),
        "hostRoot": policy.host_paths.root_fs or "/",
    }
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:10]


def _installs(item: Json) -> Json:
    keys = ("name", "image", "command", "args", "envFrom", "volumeMounts")
    made = {key: item[key] for key in keys if key in item}
    made["env"] = {e["name"]: e.get("value", "") for e in item.get("env", []) if "valueFrom" not in e}
    made["volumeMounts"] = sorted(made["volumeMounts"], key=lambda m: str(m["mountPath"]))
    return made


OPERAND = Operand(
    name="state-driver",
    title="driver",
    enabled=lambda policy: policy.driver.enabled and not policy.driver.use_nvidia_driver_crd,
    build=build,
    deploy_label=b.DEPLOY + "driver",
)
