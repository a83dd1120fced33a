# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builders that all operands share, and the settings that are common to every DaemonSet (COM-01 to COM-08).

Defaults that the API server fills in itself are left out, so that we own only what we mean.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .._nodes._keys import GATE, GATE_EFFECT
from .._policy._model import Component, Image, Json, NamedConfig, Policy, ServiceMonitor
from ._images import pull_policy, reference
from ._types import ClusterFacts, Object

MANAGED_BY = {"app.kubernetes.io/managed-by": "gpufleet"}
CONFIG_HASH = "gpufleet.io/config-hash"
DEPLOY = "nvidia.com/gpu.deploy."
GPU_TOLERATION: Json = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
GATE_TOLERATION: Json = {"key": GATE, "operator": "Exists", "effect": GATE_EFFECT}
PRIORITY_CLASS = "system-node-critical"
DEFAULT_INSTALL_DIR = "/run/nvidia/driver"
VALIDATIONS = "/run/nvidia/validations"


# --- objects -------------------------------------------------------------------------------------------------------


def new_object(
    api_version: str,
    kind: str,
    name: str,
    namespace: str = "",
    labels: Optional[Mapping[str, str]] = None,
    annotations: Optional[Mapping[str, str]] = None,
) -> Object:
    """An object with metadata that says it is ours."""
    metadata: Json = {"name": name, "labels": {**(labels or {}), **MANAGED_BY}}
    if namespace:
        metadata["namespace"] = namespace
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def config_map(
    name: str, namespace: str, data: Mapping[str, str], labels: Optional[Mapping[str, str]] = None
) -> Object:
    made = new_object("v1", "ConfigMap", name, namespace, labels)
    made["data"] = dict(data)
    return made


def service(
    name: str,
    namespace: str,
    port_name: str,
    port: int,
    scraped: bool = True,
    traffic_policy: str = "",
    kind: str = "",
) -> Object:
    """A Service with one port in front of the pods ``app: <name>``; ``scraped`` marks it for Prometheus."""
    annotations = {"prometheus.io/scrape": "true"} if scraped else None
    made = new_object("v1", "Service", name, namespace, {"app": name}, annotations)
    made["spec"] = {
        "type": kind or "ClusterIP",
        "selector": {"app": name},
        "ports": [{"name": port_name, "port": port, "targetPort": port, "protocol": "TCP"}],
    }
    if traffic_policy:
        made["spec"]["internalTrafficPolicy"] = traffic_policy
    return made


def service_monitor(
    facts: ClusterFacts, name: str, port: str, job_label: str, settings: ServiceMonitor, interval: str = ""
) -> List[Object]:
    """A ServiceMonitor of the Service ``name``, where the cluster knows the kind (DCG-04, MON-04)."""
    if not facts.service_monitor_crd:
        return []
    labels = {**settings.additional_labels, "app": name}
    made = new_object("monitoring.coreos.com/v1", "ServiceMonitor", name, facts.namespace, labels)
    endpoint: Json = {"port": port, "path": "/metrics"}
    optional = {
        "interval": settings.interval or interval,
        "scrapeTimeout": settings.scrape_timeout,
        "honorLabels": settings.honor_labels,
        "relabelings": copy.deepcopy(list(settings.relabelings)),
    }
    endpoint.update({key: value for key, value in optional.items() if value})
    made["spec"] = {
        "jobLabel": job_label,
        "endpoints": [endpoint],
        "namespaceSelector": {"matchNames": [facts.namespace]},
        "selector": {"matchLabels": {"app": name}},
    }
    return [made]


def rule(group: str, resources: Union[str, Sequence[str]], verbs: str, names: Sequence[str] = ()) -> Json:
    """A rule of a role; ``verbs`` are separated by blanks."""
    made: Json = {
        "apiGroups": [group],
        "resources": [resources] if isinstance(resources, str) else list(resources),
        "verbs": verbs.split(),
    }
    if names:
        made["resourceNames"] = list(names)
    return made


USE_PRIVILEGED_SCC = rule("security.openshift.io", "securitycontextconstraints", "use", ["privileged"])


def rbac(
    name: str,
    namespace: str,
    role: Optional[Sequence[Json]] = None,
    cluster_role: Optional[Sequence[Json]] = None,
    labels: Optional[Mapping[str, str]] = None,
) -> List[Object]:
    """A ServiceAccount with what it may do: in the namespace (``role``) and in the cluster (``cluster_role``)."""
    made = [new_object("v1", "ServiceAccount", name, namespace, labels)]
    if role is not None:
        made += bound_role("Role", name, name, namespace, role, labels)
    if cluster_role is not None:
        made += bound_role("ClusterRole", name, name, namespace, cluster_role)
    return made


def bound_role(
    kind: str,
    name: str,
    account: str,
    namespace: str,
    rules: Sequence[Json],
    labels: Optional[Mapping[str, str]] = None,
) -> List[Object]:
    """A Role or ClusterRole, and its binding of the same name to an account of the namespace."""
    api, where = "rbac.authorization.k8s.io/v1", namespace if kind == "Role" else ""
    made = new_object(api, kind, name, where, labels)
    made["rules"] = copy.deepcopy(list(rules))
    binding = new_object(api, kind + "Binding", name, where, labels)
    binding["roleRef"] = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    binding["subjects"] = [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]
    return [made, binding]


# --- parts of pods -------------------------------------------------------------------------------------------------


def env(name: str, value: str) -> Json:
    """An environment variable. An empty value is left out: the API server stores none either."""
    return {"name": name, "value": value} if value else {"name": name}


def env_from_field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


NODE_NAME = env_from_field("NODE_NAME", "spec.nodeName")
OPERATOR_NAMESPACE = env_from_field("OPERATOR_NAMESPACE", "metadata.namespace")


def merged_env(base: Iterable[Json], *more: Iterable[Mapping[str, Any]]) -> List[Json]:
    """One list without duplicates: a later value takes the place of an earlier one of the same name.

    Places are kept because a value may refer to an earlier variable.
    """
    merged: Dict[str, Json] = {item["name"]: item for item in base}
    for items in more:
        for item in items:
            given = item.get("valueFrom")
            plain = env(item["name"], str(item.get("value", "")))
            merged[item["name"]] = {"name": item["name"], "valueFrom": copy.deepcopy(given)} if given else plain
    return list(merged.values())


def mount(name: str, path: str, read_only: bool = False, propagation: str = "", sub_path: str = "") -> Json:
    made: Json = {"name": name, "mountPath": path}
    if read_only:
        made["readOnly"] = True
    if propagation:
        made["mountPropagation"] = propagation
    if sub_path:
        made["subPath"] = sub_path
    return made


def host_path(name: str, path: str, kind: str = "") -> Json:
    """A volume of the host; ``kind`` as Kubernetes names it (DirectoryOrCreate, ...), "" checks nothing."""
    source = {"path": path, "type": kind} if kind else {"path": path}
    return {"name": name, "hostPath": source}


def kubelet_folder(policy: Policy, name: str) -> str:
    """A folder of the kubelet on the host. Containers have it at its usual place, wherever the kubelet is (COM-08)."""
    return policy.host_paths.kubelet_root_dir.rstrip("/") + "/" + name


def config_volume(
    volume: str, name: str, mode: Optional[int] = None, items: Optional[Mapping[str, str]] = None
) -> Json:
    """A volume with a ConfigMap's keys; ``items`` maps chosen keys to file names."""
    source: Json = {"name": name}
    if mode is not None:
        source["defaultMode"] = mode
    if items is not None:
        source["items"] = [{"key": key, "path": path} for key, path in items.items()]
    return {"name": volume, "configMap": source}


def created_config(policy: Policy, facts: ClusterFacts, config: NamedConfig) -> List[Object]:
    """A ConfigMap whose content stands in the policy, with the labels that the chart gives it (INS-09)."""
    if not config.name or config.data is None:
        return []
    labels = {"app.kubernetes.io/name": "gpu-operator", "app.kubernetes.io/instance": "gpu-operator"}
    if policy.release:
        labels["app.kubernetes.io/version"] = "v" + policy.release.lstrip("v")
    return [config_map(config.name, facts.namespace, config.data, labels)]


def container(
    name: str,
    image: str,
    policy: str,
    command: Sequence[str] = (),
    args: Sequence[str] = (),
    environment: Sequence[Json] = (),
    mounts: Sequence[Json] = (),
    security: Optional[Json] = None,
    resources: Optional[Json] = None,
    **more: Any,
) -> Json:
    """A container, privileged unless ``security`` says otherwise; what is empty is left out.

    The end of the log of one that fails stands in the pod's status, where a person finds the cause without more rights.
    """
    made: Json = {"name": name, "image": image, "imagePullPolicy": policy}
    made["terminationMessagePolicy"] = "FallbackToLogsOnError"
    for key, value in (("command", command), ("args", args), ("env", environment), ("volumeMounts", mounts)):
        if value:
            made[key] = list(value)
    security = {"privileged": True} if security is None else security
    if security:
        made["securityContext"] = dict(security)
    if resources:
        made["resources"] = resources
    made.update(more)
    return made


def main_container(
    name: str,
    component: Component,
    image: str = "",
    args: Sequence[str] = (),
    environment: Sequence[Json] = (),
    **more: Any,
) -> Json:
    """The main container of a component: its image, args, env and resources over the operand's own (COM-05)."""
    return container(
        name,
        image or reference(component.image),
        pull_policy(component.image),
        args=component.args or args,
        environment=merged_env(environment, component.env),
        resources=component.resources,
        **more,
    )


AS_ROOT: Json = {"privileged": True, "runAsUser": 0}
SELINUX: Json = {"privileged": True, "seLinuxOptions": {"level": "s0"}}


def validation(policy: Policy, name: str, environment: Sequence[Json], mounts: Sequence[Json], **more: Any) -> Json:
    """An init container that runs the validator's image as root."""
    return container(
        name,
        reference(policy.validator.image),
        pull_policy(policy.validator.image),
        command=["sh", "-c"],
        args=more.pop("args", ["nvidia-validator"]),
        environment=environment,
        mounts=mounts,
        security=more.pop("security", AS_ROOT),
        resources=policy.validator.resources,
        **more,
    )


TOOLKIT_VALIDATION = "toolkit-validation"
WAIT_FOR_TOOLKIT = f"""\
while [ ! -e {VALIDATIONS}/toolkit-ready ]; do
  echo "waiting until the container toolkit has been validated on this node"
  sleep 5
done
"""


def wait_for_toolkit(policy: Policy, whole_run: bool = True) -> Tuple[Json, Json]:
    """Init container that holds a pod until GPUs can be given to it, and the volume it looks at.

    ``whole_run``: look through /run/nvidia instead of its folder of validations (some operands mount only one of them).
    """
    volume, path = ("run-nvidia", "/run/nvidia") if whole_run else ("run-nvidia-validations", VALIDATIONS)
    waiting = validation(
        policy,
        TOOLKIT_VALIDATION,
        merged_env([], policy.validator.toolkit_env),
        [mount(volume, path, propagation="HostToContainer")],
        args=[WAIT_FOR_TOOLKIT],
    )
    # Made where it is missing: driver and toolkit, which make it otherwise, may both be the host's own.
    return waiting, host_path(volume, path, "DirectoryOrCreate")


DRIVER_ROOT_MOUNT = mount("driver-install-dir", "/driver-root", propagation="HostToContainer")
HOST_MOUNT = mount("host-root", "/host", read_only=True, propagation="HostToContainer")
HOST_MOUNT_WRITABLE = mount("host-root", "/host", propagation="HostToContainer")
VALIDATIONS_VOLUME = host_path("run-nvidia-validations", VALIDATIONS, "DirectoryOrCreate")
DRIVER_ROOT_VOLUME = host_path("driver-install-dir", DEFAULT_INSTALL_DIR, "DirectoryOrCreate")
HOST_VOLUME = host_path("host-root", "/")
CDI_MOUNT = mount("cdi-root", "/var/run/cdi")
CDI_VOLUME = host_path("cdi-root", "/var/run/cdi", "DirectoryOrCreate")


def driver_validation(policy: Policy) -> Json:
    """Init container that waits for a driver, of the host or of our driver pods, and says where it is."""
    base = [env("WITH_WAIT", "true"), env("COMPONENT", "driver"), OPERATOR_NAMESPACE]
    return validation(
        policy,
        "driver-validation",
        merged_env(base, policy.validator.driver_env),
        [
            HOST_MOUNT,
            mount("driver-install-dir", DEFAULT_INSTALL_DIR, propagation="HostToContainer"),
            mount("run-nvidia-validations", VALIDATIONS, propagation="Bidirectional"),
            mount("host-dev-char", "/host-dev-char"),
        ],
        security={**AS_ROOT, **SELINUX},
    )


HOST_DEV_CHAR_VOLUME = host_path("host-dev-char", "/dev/char")


def mig_env(policy: Policy) -> List[Json]:
    """How MIG devices are offered, and the right to see all of them (DP-05)."""
    strategy = policy.mig_strategy
    made = [env("MIG_STRATEGY", strategy)] if strategy else []
    return made if strategy == "none" else [*made, env("NVIDIA_MIG_MONITOR_DEVICES", "all")]


def cdi_hook_path(policy: Policy) -> List[Json]:
    """Where the toolkit's CDI hook is on the host; unknown when the toolkit is not ours (RT-08)."""
    if not policy.toolkit.enabled:
        return []
    return [env("NVIDIA_CDI_HOOK_PATH", policy.toolkit.install_dir.rstrip("/") + "/toolkit/nvidia-cdi-hook")]


def volume_name(config_name: str, taken: Iterable[str] = ()) -> str:
    """A volume's name for a ConfigMap that a user named: the same, where it can be a volume's name and is free."""
    usable = len(config_name) <= 63 and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", config_name)
    if usable and config_name not in taken:
        return config_name
    return "config-" + hashlib.sha256(config_name.encode()).hexdigest()[:16]


def without_label(key: str) -> Json:
    """Affinity to nodes that do not have a label."""
    term = {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


# --- DaemonSets ----------------------------------------------------------------------------------------------------


@dataclass
class Pod:
    """What is particular to one operand's DaemonSet. ``gpu_container`` is the one that must see the GPUs.

    ``own_configs`` are the ConfigMaps of ours that it may read; which ones it does is seen from its volumes.
    """

    name: str
    deploy: str
    account: str
    containers: List[Json]
    init: List[Json] = field(default_factory=list)
    volumes: List[Json] = field(default_factory=list)
    labels: Mapping[str, str] = field(default_factory=dict)
    selector: Optional[Mapping[str, str]] = None  # default: all of ``labels``
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    spec: Json = field(default_factory=dict)
    images: Tuple[Image, ...] = ()
    host_network: bool = False
    gpu_container: str = ""
    on_delete: bool = False
    own_configs: Sequence[Object] = ()


def daemonset(pod: Pod, policy: Policy, facts: ClusterFacts) -> List[Object]:
    """The DaemonSet, with the settings that the policy has for all of them. None while no node has a GPU (COM-13)."""
    if not facts.nodes:
        return []
    labels = {"app": pod.name, **pod.labels}
    selector = labels if pod.selector is None else pod.selector
    made = new_object(
        "apps/v1",
        "DaemonSet",
        pod.name,
        facts.namespace,
        {**policy.daemonsets.labels, **labels},
        {**pod.annotations, **policy.daemonsets.annotations},
    )
    spec = _pod_spec(pod, policy, facts)
    template: Json = {"metadata": {"labels": {**policy.daemonsets.labels, **labels}}, "spec": spec}
    annotations = _pod_annotations(pod, policy, facts, spec)
    if annotations:
        template["metadata"]["annotations"] = annotations
    made["spec"] = {
        "selector": {"matchLabels": dict(selector)},
        "updateStrategy": _update_strategy(pod, policy),
        "template": template,
    }
    return [made]


def _pod_spec(pod: Pod, policy: Policy, facts: ClusterFacts) -> Json:
    spec: Json = {
        "serviceAccountName": pod.account,
        "priorityClassName": policy.daemonsets.priority_class_name or PRIORITY_CLASS,
        "nodeSelector": {DEPLOY + pod.deploy: "true", **pod.node_selector},
        "tolerations": [
            *(policy.daemonsets.tolerations or [GPU_TOLERATION]),
            *([GATE_TOLERATION] if facts.gated else []),
        ],
        "initContainers": pod.init,
        "containers": pod.containers,
        "volumes": pod.volumes,
        **pod.spec,
    }
    # Operands share parts with each other and with the policy: a copy of our own may be changed.
    spec = copy.deepcopy(spec)
    if not facts.validated:
        _wait_for_nobody(spec)
    if not spec["initContainers"]:
        del spec["initContainers"]
    secrets = list(dict.fromkeys(name for image in pod.images for name in image.pull_secrets))
    if secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in secrets]
    if policy.daemonsets.pod_security_context:
        spec["securityContext"] = copy.deepcopy(policy.daemonsets.pod_security_context)
    if pod.host_network:
        spec.update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    if pod.gpu_container and runtime_class(policy, facts):
        spec["runtimeClassName"] = runtime_class(policy, facts)
    _move_host_root(spec, policy.host_paths.root_fs)
    _move_driver_root(spec, policy.host_paths.driver_install_dir)
    for item in [*spec.get("initContainers", []), *spec["containers"]]:
        if item["name"] in policy.daemonsets.container_resources:
            item["resources"] = copy.deepcopy(policy.daemonsets.container_resources[item["name"]])
    return spec


def _wait_for_nobody(spec: Json) -> None:
    """Without the stack's validator its proofs never come; volumes that only served to see them go, too."""
    spec["initContainers"] = [item for item in spec["initContainers"] if item["name"] != TOOLKIT_VALIDATION]
    containers = [*spec["initContainers"], *spec["containers"]]
    mounted = {item["name"] for container in containers for item in container.get("volumeMounts") or []}
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] in mounted]


def runtime_class(policy: Policy, facts: ClusterFacts) -> str:
    """Runtime class of pods that use GPUs. None ("") where CRI-O uses a hook, or NRI annotations (RT-08, RT-09)."""
    if policy.nri_enabled or (facts.runtime == "crio" and not policy.cdi_enabled):
        return ""
    return policy.operator.runtime_class


def _pod_annotations(pod: Pod, policy: Policy, facts: ClusterFacts, spec: Json) -> Dict[str, str]:
    annotations = dict(pod.pod_annotations)
    if pod.gpu_container and policy.nri_enabled:
        annotations[f"nvidia.cdi.k8s.io/container.{pod.gpu_container}"] = "management.nvidia.com/gpu=all"
    annotations.update(policy.daemonsets.annotations)
    hashes = {f"ConfigMap/{c['metadata']['name']}": content_hash(c["data"]) for c in pod.own_configs}
    read = {name: hashes.get(name) or facts.config_hashes.get(name) for name in configs_read(spec)}
    known = {name: value for name, value in read.items() if value}
    if known:
        annotations[CONFIG_HASH] = content_hash(known)
    return annotations


class EnvSource(NamedTuple):
    """A key of a ConfigMap or Secret that is the value of a variable."""

    kind: str
    name: str
    key: str
    needed: bool

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"


def env_sources(environment: Iterable[Mapping[str, Any]]) -> List[EnvSource]:
    """Objects that variables get their values from (L41)."""
    found = []
    for item in environment:
        for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            source = (item.get("valueFrom") or {}).get(key)
            if source:
                found.append(EnvSource(kind, str(source["name"]), str(source["key"]), not source.get("optional")))
    return found


def configs_read(spec: Json) -> List[str]:
    """``ConfigMap/name`` and ``Secret/name`` of what a pod reads, sorted."""
    found = set()
    for volume in spec.get("volumes", []):
        if "configMap" in volume:
            found.add(f"ConfigMap/{volume['configMap']['name']}")
        if "secret" in volume:
            found.add(f"Secret/{volume['secret']['secretName']}")
    for item in [*spec.get("initContainers", []), *spec["containers"]]:
        found.update(f"Secret/{source['secretRef']['name']}" for source in item.get("envFrom", []))
        found.update(source.id for source in env_sources(item.get("env", [])))
    return sorted(found)


def content_hash(data: Mapping[str, str]) -> str:
    """Hash of the data of a ConfigMap or Secret, as it stands in the API."""
    return hashlib.sha256(json.dumps(dict(data), sort_keys=True).encode()).hexdigest()


def _update_strategy(pod: Pod, policy: Policy) -> Json:
    if pod.on_delete or policy.daemonsets.update_strategy == "OnDelete":
        return {"type": "OnDelete"}
    wanted = policy.daemonsets.max_unavailable
    if not wanted:
        return {"type": "RollingUpdate"}
    value: Union[str, int] = wanted if wanted.endswith("%") else int(wanted)
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": value}}


def _move_host_root(spec: Json, root: str) -> None:
    """The host's root is elsewhere (COM-06): the volumes move, and every container is told."""
    if root in ("", "/") or not _move_volume(spec, "host-root", root):
        return
    _move_volume(spec, "host-dev-char", root.rstrip("/") + "/dev/char")
    for item in spec.get("initContainers", []) + spec["containers"]:
        add_env(item, "HOST_ROOT", root)


def _move_driver_root(spec: Json, directory: str) -> None:
    """The driver is installed elsewhere (COM-07): the volume moves, and the driver's validation looks there."""
    if directory in ("", DEFAULT_INSTALL_DIR) or not _move_volume(spec, "driver-install-dir", directory):
        return
    for item in spec.get("initContainers", []):
        if item["name"] == "driver-validation":
            add_env(item, "DRIVER_INSTALL_DIR", directory)
            add_env(item, "DRIVER_INSTALL_DIR_CTR_PATH", directory)
            item["volumeMounts"] = [
                {**m, "mountPath": directory} if m["name"] == "driver-install-dir" else m for m in item["volumeMounts"]
            ]


def _move_volume(spec: Json, name: str, path: str) -> bool:
    for volume in spec["volumes"]:
        if volume["name"] == name:
            volume["hostPath"] = {**volume["hostPath"], "path": path}
            return True
    return False


def add_env(item: Json, name: str, value: str) -> None:
    """Set a variable, unless the user has set it."""
    present = item.get("env", [])
    if all(e["name"] != name for e in present):
        item["env"] = [*present, env(name, value)]
