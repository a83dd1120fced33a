# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node Feature Discovery: the labels that tell which nodes have a GPU, their kernel and their operating system.

It is deployed as the GPU Operator's chart deploys it (subchart 0.19), unless one that somebody else deployed runs
already: then that one is used, and only the NodeFeatureRule is ours.
"""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._plan import ERROR, WARNING, Finding
from .._policy._model import Policy
from ._nfd_crds import crds
from ._nfd_found import judge_settings
from ._types import ClusterFacts, Object, Operand

__all__ = ["DEFAULTS", "OPERAND", "build", "crds", "findings", "merged"]

FULL_NAME = "gpu-operator-node-feature-discovery"
RULE_NAME = "nvidia-kernel-modules"
APP_VERSION = "v0.19.0"
MANAGED_BY = {"app.kubernetes.io/managed-by": "gpufleet"}
_NAME = {"app.kubernetes.io/name": "node-feature-discovery", "app.kubernetes.io/instance": "gpu-operator"}
_CONFIG_DIR = "/etc/kubernetes/node-feature-discovery"
_FEATURES_DIR = _CONFIG_DIR + "/features.d/"
_RBAC = "rbac.authorization.k8s.io"

# The subchart's values with the GPU Operator's own on top: what the policy says is merged over them, as Helm does.
DEFAULTS: Dict[str, Any] = {
    "image": {
        "repository": "registry.k8s.io/nfd/node-feature-discovery",
        "pullPolicy": "IfNotPresent",
        "tag": APP_VERSION,
    },
    "imagePullSecrets": [],
    "priorityClassName": "system-node-critical",
    "featureGates": {},
    "master": {
        "enable": True,
        "replicaCount": 1,
        "port": 8080,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "hostNetwork": False,
        "config": {"extraLabelNs": ["nvidia.com"]},
        "serviceAccount": {"create": True, "name": "node-feature-discovery"},
        "rbac": {"create": True},
        "resources": {"limits": {"memory": "4Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Equal", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {
                            "matchExpressions": [
                                {"key": "node-role.kubernetes.io/control-plane", "operator": "In", "values": [""]}
                            ]
                        },
                    }
                ]
            }
        },
        "startupProbe": {"periodSeconds": 10, "failureThreshold": 30},
        "livenessProbe": {"periodSeconds": 10},
        "readinessProbe": {"periodSeconds": 10, "failureThreshold": 10},
    },
    "worker": {
        "enable": True,
        "port": 8080,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "hostNetwork": False,
        "mountUsrSrc": False,
        "config": {
            "sources": {
                "pci": {
                    "deviceClassWhitelist": ["02", "0200", "0207", "0300", "0302"],
                    "deviceLabelFields": ["vendor"],
                }
            }
        },
        "serviceAccount": {"create": False, "name": "node-feature-discovery"},
        "rbac": {"create": True},
        "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "5m", "memory": "64Mi"}},
        "tolerations": [
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Equal", "effect": "NoSchedule"},
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        ],
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
        "livenessProbe": {"initialDelaySeconds": 10, "periodSeconds": 10},
        "readinessProbe": {"initialDelaySeconds": 5, "periodSeconds": 10, "failureThreshold": 10},
    },
    "gc": {
        "enable": True,
        "replicaCount": 1,
        "interval": "1h",
        "port": 8080,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "hostNetwork": False,
        "serviceAccount": {"create": False, "name": "node-feature-discovery"},
        "rbac": {"create": True},
        "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "10m", "memory": "128Mi"}},
        "livenessProbe": {"initialDelaySeconds": 10, "periodSeconds": 10},
        "readinessProbe": {"initialDelaySeconds": 5, "periodSeconds": 10},
    },
    "topologyUpdater": {"enable": False},
    "prometheus": {"enable": False},
}


def _enabled(policy: Policy) -> bool:
    return policy.nfd.enabled or policy.nfd.node_feature_rules


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    """NFD's objects without the CRDs (see ``crds``); where another NFD runs, only the NodeFeatureRule."""
    objects: List[Object] = []
    if policy.nfd.enabled and not facts.nfd_running:
        values = merged(DEFAULTS, policy.nfd.values)
        objects += _accounts(values, facts.namespace) + _rights(values, facts.namespace)
        objects += _master(values, facts.namespace) + _worker(values, facts.namespace) + _gc(values, facts.namespace)
    if policy.nfd.node_feature_rules and (objects or facts.nfd_running):
        objects.append(_module_rule())
    return objects


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Dict[str, Any]:
    """Helm's merge of values: maps merge, all else is replaced, and a null takes the key away."""
    result = copy.deepcopy(dict(base))
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


# -- names and rights -------------------------------------------------------------------------------------------------


def _meta(name: str, namespace: str = "", role: str = "", annotations: Optional[Mapping[str, str]] = None) -> Object:
    labels = {**_NAME, "app.kubernetes.io/version": APP_VERSION, **MANAGED_BY}
    if role:
        labels["role"] = role
    meta: Object = {"name": name, "labels": labels}
    if namespace:
        meta["namespace"] = namespace
    if annotations:
        meta["annotations"] = dict(annotations)
    return meta


_PRUNE = {"helm.sh/hook": "post-delete", "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"}


def _account(values: Mapping[str, Any], role: str) -> str:
    """The name of a role's ServiceAccount by the chart's rules."""
    account = values[role].get("serviceAccount") or {}
    if account.get("name"):
        return str(account["name"])
    if not account.get("create"):
        return "default"
    return FULL_NAME if role == "master" else f"{FULL_NAME}-{role}"


def _running(values: Mapping[str, Any]) -> List[str]:
    return [role for role in ("master", "worker", "gc") if values[role].get("enable")]


def _accounts(values: Mapping[str, Any], namespace: str) -> List[Object]:
    wanted: Dict[str, Optional[Mapping[str, str]]] = {}
    for role in _running(values):
        if (values[role].get("serviceAccount") or {}).get("create"):
            wanted[_account(values, role)] = values[role]["serviceAccount"].get("annotations")
    objects = [_named("v1", "ServiceAccount", _meta(name, namespace, "", notes)) for name, notes in wanted.items()]
    objects.append(_named("v1", "ServiceAccount", _meta(f"{FULL_NAME}-prune", namespace, "", _PRUNE)))
    return objects


def _named(api_version: str, kind: str, meta: Object, **body: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **body}


def _may(group: str, resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()) -> Object:
    rule: Object = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    if names:
        rule["resourceNames"] = list(names)
    return rule


_NODES = _may("", ["nodes", "nodes/status"], ["get", "patch", "update", "list"])
_CLUSTER_RIGHTS: Dict[str, List[Object]] = {
    "master": [
        _may("", ["namespaces"], ["watch", "list"]),
        _NODES,
        _may("nfd.k8s-sigs.io", ["nodefeatures", "nodefeaturerules", "nodefeaturegroups"], ["get", "list", "watch"]),
        _may("nfd.k8s-sigs.io", ["nodefeaturegroups/status"], ["patch", "update"]),
        _may("coordination.k8s.io", ["leases"], ["create", "get", "update"], ["nfd-master.nfd.kubernetes.io"]),
    ],
    "gc": [
        _may("", ["nodes"], ["list", "watch"]),
        _may("nfd.k8s-sigs.io", ["nodefeatures"], ["delete", "list"]),
        _may("topology.node.k8s.io", ["noderesourcetopologies"], ["delete", "list"]),
    ],
}
_WORKER_RIGHTS = [
    _may("nfd.k8s-sigs.io", ["nodefeatures"], ["create", "get", "update", "delete"]),
    _may("", ["pods"], ["get"]),
]


def _bound(kind: str, name: str, namespace: str, account: str, rules: List[Object], notes: Any = None) -> List[Object]:
    """A role of ``kind`` and its binding to a ServiceAccount."""
    inside = namespace if kind == "Role" else ""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    reference = {"apiGroup": _RBAC, "kind": kind, "name": name}
    return [
        _named(f"{_RBAC}/v1", kind, _meta(name, inside, "", notes), rules=copy.deepcopy(rules)),
        _named(f"{_RBAC}/v1", f"{kind}Binding", _meta(name, inside, "", notes), roleRef=reference, subjects=[subject]),
    ]


def _rights(values: Mapping[str, Any], namespace: str) -> List[Object]:
    objects: List[Object] = []
    for role in _running(values):
        if not (values[role].get("rbac") or {}).get("create"):
            continue
        account = _account(values, role)
        if role == "worker":
            objects += _bound("Role", f"{FULL_NAME}-worker", namespace, account, _WORKER_RIGHTS)
        else:
            name = FULL_NAME if role == "master" else f"{FULL_NAME}-{role}"
            objects += _bound("ClusterRole", name, namespace, account, _CLUSTER_RIGHTS[role])
    prune = f"{FULL_NAME}-prune"
    return objects + _bound("ClusterRole", prune, namespace, prune, [_NODES], _PRUNE)


# -- workloads --------------------------------------------------------------------------------------------------------


def _config(role: str, values: Mapping[str, Any], namespace: str) -> Object:
    # JSON is YAML, and needs no library to write.
    text = json.dumps(values[role].get("config") or {}, indent=2, sort_keys=True) + "\n"
    return _named("v1", "ConfigMap", _meta(f"{FULL_NAME}-{role}-conf", namespace), data={f"nfd-{role}.conf": text})


def _hash(config: Object) -> str:
    return hashlib.sha256(json.dumps(config["data"], sort_keys=True).encode()).hexdigest()[:16]


def _from_field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _probe(settings: Mapping[str, Any]) -> Object:
    return {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, **settings}


_LOCKED_DOWN = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}


def _container(role: str, values: Mapping[str, Any], args: List[str], env: List[Object]) -> Object:
    own, image = values[role], values["image"]
    container: Object = {
        "name": role,
        "image": f"{image['repository']}:{image.get('tag') or APP_VERSION}",
        "imagePullPolicy": image.get("pullPolicy") or "IfNotPresent",
        "command": [f"nfd-{role}"],
        "args": args + [f"-feature-gates={k}={_word(v)}" for k, v in sorted(values["featureGates"].items())],
        "env": env + list(own.get("extraEnvs") or []),
        "ports": [{"name": "http", "containerPort": int(own.get("port") or 8080), "protocol": "TCP"}],
        "securityContext": merged(_LOCKED_DOWN, own.get("securityContext") or {}),
    }
    container["args"] += [str(arg) for arg in own.get("extraArgs") or []]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if own.get(probe):
            container[probe] = _probe(own[probe])
    if own.get("resources"):
        container["resources"] = copy.deepcopy(own["resources"])
    return container


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pod(
    role: str, values: Mapping[str, Any], container: Object, volumes: List[Object], config: Optional[Object]
) -> Object:
    own = values[role]
    spec: Object = {
        "serviceAccountName": _account(values, role),
        "dnsPolicy": own.get("dnsPolicy") or "ClusterFirstWithHostNet",
        "containers": [container],
    }
    if volumes:
        spec["volumes"] = volumes
    if own.get("hostNetwork"):
        spec["hostNetwork"] = True
    priority = own.get("priorityClassName") or values.get("priorityClassName")
    if priority:
        spec["priorityClassName"] = priority
    secrets = [s if isinstance(s, Mapping) else {"name": s} for s in values.get("imagePullSecrets") or []]
    if secrets:
        spec["imagePullSecrets"] = secrets
    spec.update(_placement(own))
    meta: Object = {"labels": {**_NAME, "role": role}}
    annotations = dict(own.get("annotations") or {})
    if config is not None:
        annotations["gpufleet.io/config-hash"] = _hash(config)
    if annotations:
        meta["annotations"] = annotations
    return {"metadata": meta, "spec": spec}


def _placement(own: Mapping[str, Any]) -> Object:
    spec: Object = {}
    if own.get("tolerations"):
        spec["tolerations"] = [_toleration(t) for t in own["tolerations"]]
    for key, target in (
        ("nodeSelector", "nodeSelector"),
        ("affinity", "affinity"),
        ("podSecurityContext", "securityContext"),
    ):
        if own.get(key):
            spec[target] = copy.deepcopy(own[key])
    return spec


def _toleration(toleration: Mapping[str, Any]) -> Object:
    """The API server keeps no empty value: one that is written would be a difference for ever."""
    return {k: v for k, v in toleration.items() if v not in (None, "")}


def _workload(kind: str, role: str, namespace: str, template: Object, notes: Any, **more: Any) -> Object:
    spec = {"selector": {"matchLabels": {**_NAME, "role": role}}, "template": template}
    spec.update({k: v for k, v in more.items() if v is not None})
    return _named("apps/v1", kind, _meta(f"{FULL_NAME}-{role}", namespace, role, notes), spec=spec)


def _config_mount(role: str) -> Tuple[Object, Object]:
    file = f"nfd-{role}.conf"
    volume = {
        "name": f"nfd-{role}-conf",
        "configMap": {"name": f"{FULL_NAME}-{role}-conf", "items": [{"key": file, "path": file}]},
    }
    return volume, {"name": f"nfd-{role}-conf", "mountPath": _CONFIG_DIR, "readOnly": True}


def _master(values: Mapping[str, Any], namespace: str) -> List[Object]:
    own = values["master"]
    if not own.get("enable"):
        return []
    config = _config("master", values, namespace)
    volume, mount = _config_mount("master")
    env = [_from_field("NODE_NAME", "spec.nodeName")]
    container = _container("master", values, _master_args(own), env)
    container["volumeMounts"] = [mount]
    template = _pod("master", values, container, [volume], config)
    template["spec"]["enableServiceLinks"] = False
    deployment = _workload(
        "Deployment",
        "master",
        namespace,
        template,
        own.get("deploymentAnnotations"),
        replicas=own.get("replicaCount", 1),
        revisionHistoryLimit=own.get("revisionHistoryLimit"),
    )
    return [config, deployment]


def _master_args(own: Mapping[str, Any]) -> List[str]:
    args = [f"-port={own.get('port') or 8080}"]
    if int(own.get("replicaCount") or 1) > 1:
        args.append("-enable-leader-election")
    if own.get("enableTaints"):
        args.append("-enable-taints")
    for key, flag in (("extraLabelNs", "-extra-label-ns"), ("denyLabelNs", "-deny-label-ns")):
        if own.get(key):
            args.append(f"{flag}={','.join(own[key])}")
    for key, flag in (
        ("instance", "-instance"),
        ("resyncPeriod", "-resync-period"),
        ("nfdApiParallelism", "-nfd-api-parallelism"),
        ("featureRulesController", "-featurerules-controller"),
    ):
        if own.get(key) not in (None, ""):
            args.append(f"{flag}={_word(own[key])}")
    return args


_HOST_VOLUMES = (
    ("host-boot", "/boot", "/host-boot"),
    ("host-os-release", "/etc/os-release", "/host-etc/os-release"),
    ("host-sys", "/sys", "/host-sys"),
    ("host-usr-lib", "/usr/lib", "/host-usr/lib"),
    ("host-lib", "/lib", "/host-lib"),
    ("host-proc-swaps", "/proc/swaps", "/host-proc/swaps"),
    ("features-d", _FEATURES_DIR, _FEATURES_DIR),
)


def _worker(values: Mapping[str, Any], namespace: str) -> List[Object]:
    own = values["worker"]
    if not own.get("enable"):
        return []
    hosts = list(_HOST_VOLUMES)
    if own.get("mountUsrSrc"):
        hosts.append(("host-usr-src", "/usr/src", "/host-usr/src"))
    config = _config("worker", values, namespace)
    volume, mount = _config_mount("worker")
    env = [
        _from_field("NODE_NAME", "spec.nodeName"),
        _from_field("POD_NAME", "metadata.name"),
        _from_field("POD_UID", "metadata.uid"),
    ]
    container = _container("worker", values, ["-owner-refs=pod,ds", f"-port={own.get('port') or 8080}"], env)
    container["volumeMounts"] = [{"name": n, "mountPath": at, "readOnly": True} for n, _path, at in hosts] + [mount]
    volumes = [{"name": n, "hostPath": {"path": path}} for n, path, _at in hosts] + [volume]
    daemon = _workload(
        "DaemonSet",
        "worker",
        namespace,
        _pod("worker", values, container, volumes, config),
        own.get("daemonsetAnnotations"),
        updateStrategy=copy.deepcopy(own.get("updateStrategy")),
        revisionHistoryLimit=own.get("revisionHistoryLimit"),
    )
    return [config, daemon]


def _gc(values: Mapping[str, Any], namespace: str) -> List[Object]:
    own = values["gc"]
    if not own.get("enable"):
        return []
    args = [f"-gc-interval={own['interval']}"] if own.get("interval") else []
    container = _container("gc", values, args, [_from_field("NODE_NAME", "spec.nodeName")])
    deployment = _workload(
        "Deployment",
        "gc",
        namespace,
        _pod("gc", values, container, [], None),
        own.get("deploymentAnnotations"),
        replicas=own.get("replicaCount", 1),
        revisionHistoryLimit=own.get("revisionHistoryLimit"),
    )
    return [deployment]


_MODULE_LABELS = (
    ("gdrdrv", "nvidia.com/gdrcopy.capable"),
    ("nvidia_fs", "nvidia.com/gds.capable"),
    ("nvidia_peermem", "nvidia.com/peermem.capable"),
)


def _module_rule() -> Object:
    """Labels for kernel modules that are loaded, so that workloads can ask for them."""
    rules = [
        {
            "name": f"kernel-module-{module}",
            "labels": {label: "true"},
            "matchFeatures": [{"feature": "kernel.loadedmodule", "matchExpressions": {module: {"op": "Exists"}}}],
        }
        for module, label in _MODULE_LABELS
    ]
    meta = {"name": RULE_NAME, "labels": dict(MANAGED_BY)}
    return _named("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule", meta, spec={"rules": rules})


OPERAND = Operand(name="nfd", title="NFD", enabled=_enabled, build=build)


def findings(policy: Policy, facts: ClusterFacts) -> List[Finding]:
    """What a person should know about the policy's NFD settings before anything is written."""
    found: List[Finding] = []
    values = merged(DEFAULTS, policy.nfd.values)
    if policy.nfd.enabled and not facts.nfd_running:
        for key in ("topologyUpdater", "prometheus"):
            if (values.get(key) or {}).get("enable"):
                path = f"node-feature-discovery.{key}.enable"
                found.append(Finding("nfd.unsupported", ERROR, "is not supported yet.", "", path, "Leave it out."))
        for role in ("master", "worker"):
            if not values[role].get("enable"):
                path = f"node-feature-discovery.{role}.enable"
                text = "without it no node gets the labels that tell that it has a GPU."
                found.append(Finding("nfd.no-labels", WARNING, text, "", path, "Set it to true."))
        found += judge_settings(values["worker"].get("config") or {}, "node-feature-discovery.worker.config")
    if policy.nfd.node_feature_rules and not policy.nfd.enabled and not facts.nfd_running:
        text = "needs Node Feature Discovery, which is neither enabled nor running."
        remedy = "Set nfd.enabled to true."
        found.append(Finding("nfd.rules-without-nfd", ERROR, text, "", "nfd.nodefeaturerules", remedy))
    return found
