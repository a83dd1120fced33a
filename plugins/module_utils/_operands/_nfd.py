# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node Feature Discovery: the labels that tell which nodes have a GPU, their kernel and their operating system.

It is deployed as the GPU Operator's chart deploys it (subchart 0.19), unless one that somebody else deployed runs
already: then that one is used, and only the NodeFeatureRule is ours (see ``_nfd_found``).
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence

from .._matrix import LATEST, RELEASES
from .._plan import ERROR, WARNING, Finding
from .._policy._model import Policy
from . import _build as b
from ._nfd_crds import GROUP, crds
from ._nfd_found import judge_settings
from ._types import ClusterFacts, Object, Operand

__all__ = ["OPERAND", "build", "crds", "findings"]

RULE_NAME = "nvidia-kernel-modules"
APP_VERSION = RELEASES[LATEST].nfd
ROLES = ("master", "worker", "gc")
_RELEASE = "gpu-operator"
_CONFIG_DIR = "/etc/kubernetes/node-feature-discovery"
_FEATURES_DIR = _CONFIG_DIR + "/features.d/"
_PORT = 8080

# Probes of each part; the policy's are merged over them, and an empty map leaves them as they are.
_PROBES: Dict[str, Dict[str, Dict[str, int]]] = {
    "master": {
        "startupProbe": {"periodSeconds": 10, "failureThreshold": 30},
        "livenessProbe": {"periodSeconds": 10},
        "readinessProbe": {"periodSeconds": 10, "failureThreshold": 10},
    },
    "worker": {
        "livenessProbe": {"initialDelaySeconds": 10, "periodSeconds": 10},
        "readinessProbe": {"initialDelaySeconds": 5, "periodSeconds": 10, "failureThreshold": 10},
    },
    "gc": {
        "livenessProbe": {"initialDelaySeconds": 10, "periodSeconds": 10},
        "readinessProbe": {"initialDelaySeconds": 5, "periodSeconds": 10},
    },
}
_LOCKED_DOWN = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}


def _enabled(policy: Policy) -> bool:
    return policy.nfd.enabled or policy.nfd.node_feature_rules


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    """NFD's objects without the CRDs (see ``crds``); where another NFD runs, only the NodeFeatureRule."""
    objects: List[Object] = []
    if policy.nfd.enabled and not facts.nfd_running:
        values = policy.nfd.values
        if facts.gated:
            worker = values["worker"]
            tolerations = [*(worker.get("tolerations") or []), b.GATE_TOLERATION]
            values = {**values, "worker": {**worker, "tolerations": tolerations}}
        chart = _Chart(values, facts.namespace)
        objects = chart.accounts() + chart.rights() + chart.workloads()
    if policy.nfd.node_feature_rules and (objects or facts.nfd_running):
        objects.append(_module_rule())
    return objects


OPERAND = Operand(name="nfd", title="NFD", enabled=_enabled, build=build)


def findings(policy: Policy, facts: ClusterFacts) -> List[Finding]:
    """What a person should know about the policy's NFD settings before anything is written."""
    found: List[Finding] = []
    if policy.nfd.enabled and not facts.nfd_running:
        for role in ("master", "worker"):
            if not policy.nfd.values[role]["enable"]:
                path = f"node-feature-discovery.{role}.enable"
                text = "is false: no node gets the labels that tell that it has a GPU."
                found.append(Finding("nfd.no-labels", WARNING, text, "", path, "Set it to true."))
        config = policy.nfd.values["worker"].get("config") or {}
        found += judge_settings(config, "node-feature-discovery.worker.config")
    if policy.nfd.node_feature_rules and not policy.nfd.enabled and not facts.nfd_running:
        text = "needs Node Feature Discovery, which is neither enabled nor running."
        remedy = "Set nfd.enabled to true."
        found.append(Finding("nfd.rules-without-nfd", ERROR, text, "", "nfd.nodefeaturerules", remedy))
    return found


# --- rights ----------------------------------------------------------------------------------------------------------

_NODES = b.rule("", ["nodes", "nodes/status"], "get patch update list")
_RIGHTS: Dict[str, List[Object]] = {
    "master": [
        b.rule("", "namespaces", "watch list"),
        _NODES,
        b.rule(GROUP, ["nodefeatures", "nodefeaturerules", "nodefeaturegroups"], "get list watch"),
        b.rule(GROUP, "nodefeaturegroups/status", "patch update"),
        b.rule("coordination.k8s.io", "leases", "create get update", ["nfd-master.nfd.kubernetes.io"]),
    ],
    "worker": [
        b.rule(GROUP, "nodefeatures", "create get update delete"),
        b.rule("", "pods", "get"),
    ],
    "gc": [
        b.rule("", "nodes", "list watch"),
        b.rule(GROUP, "nodefeatures", "delete list"),
        b.rule("topology.node.k8s.io", "noderesourcetopologies", "delete list"),
    ],
}
# The chart's account for taking labels away after NFD: kept, so that a cluster looks the same either way.
_PRUNE = {"helm.sh/hook": "post-delete", "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"}


# --- objects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chart:
    """The subchart's objects from its values (complete, as the policy gives them)."""

    values: Mapping[str, Any]
    namespace: str

    @property
    def name(self) -> str:
        return str(self.values.get("nameOverride") or "node-feature-discovery")

    @property
    def full_name(self) -> str:
        if self.values.get("fullnameOverride"):
            return str(self.values["fullnameOverride"])
        return _RELEASE if self.name in _RELEASE else f"{_RELEASE}-{self.name}"

    @property
    def selector(self) -> Dict[str, str]:
        return {"app.kubernetes.io/name": self.name, "app.kubernetes.io/instance": _RELEASE}

    @property
    def labels(self) -> Dict[str, str]:
        return {**self.selector, "app.kubernetes.io/version": APP_VERSION}

    def roles(self) -> List[str]:
        return [role for role in ROLES if self.values[role]["enable"]]

    # Rights

    def account(self, role: str) -> str:
        """The name of a part's ServiceAccount."""
        account = self.values[role]["serviceAccount"]
        if account.get("name"):
            return str(account["name"])
        if not account.get("create"):
            return "default"
        return self.full_name if role == "master" else f"{self.full_name}-{role}"

    def accounts(self) -> List[Object]:
        wanted = {}
        for role in self.roles():
            if self.values[role]["serviceAccount"].get("create"):
                wanted[self.account(role)] = self.values[role]["serviceAccount"].get("annotations")
        wanted[f"{self.full_name}-prune"] = _PRUNE
        return [
            b.new_object("v1", "ServiceAccount", name, self.namespace, self.labels, notes)
            for name, notes in wanted.items()
        ]

    def rights(self) -> List[Object]:
        objects: List[Object] = []
        for role in self.roles():
            if self.values[role]["rbac"]["create"]:
                kind = "Role" if role == "worker" else "ClusterRole"
                name = self.full_name if role == "master" else f"{self.full_name}-{role}"
                objects += self._bound(kind, name, self.account(role), _RIGHTS[role])
        prune = f"{self.full_name}-prune"
        for made in self._bound("ClusterRole", prune, prune, [_NODES]):
            made["metadata"]["annotations"] = dict(_PRUNE)
            objects.append(made)
        return objects

    def _bound(self, kind: str, name: str, account: str, rules: Sequence[Object]) -> List[Object]:
        return b.bound_role(kind, name, account, self.namespace, rules, self.labels)

    # Workloads

    def workloads(self) -> List[Object]:
        make = {"master": self._master, "worker": self._worker, "gc": self._gc}
        return [made for role in self.roles() for made in make[role]()]

    def _master(self) -> List[Object]:
        config = self._config("master")
        container = self._container("master", _master_args(self.values["master"]), [b.NODE_NAME])
        container["volumeMounts"] = [b.mount("nfd-master-conf", _CONFIG_DIR, read_only=True)]
        template = self._template("master", container, [self._config_volume("master")], config)
        template["spec"]["enableServiceLinks"] = False
        return [config, self._workload("Deployment", "master", template)]

    def _worker(self) -> List[Object]:
        own = self.values["worker"]
        hosts = _HOST_VOLUMES + (_HOST_SOURCES if own.get("mountUsrSrc") else ())
        config = self._config("worker")
        environment = [
            b.NODE_NAME,
            b.env_from_field("POD_NAME", "metadata.name"),
            b.env_from_field("POD_UID", "metadata.uid"),
        ]
        args = ["-owner-refs=pod,ds", f"-port={own.get('port') or _PORT}"]
        container = self._container("worker", args, environment)
        mounts = [b.mount(name, inside, read_only=True) for name, _path, inside in hosts]
        container["volumeMounts"] = [*mounts, b.mount("nfd-worker-conf", _CONFIG_DIR, read_only=True)]
        volumes = [b.host_path(name, path) for name, path, _inside in hosts]
        template = self._template("worker", container, [*volumes, self._config_volume("worker")], config)
        made = self._workload("DaemonSet", "worker", template)
        made["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
        return [config, made]

    def _gc(self) -> List[Object]:
        interval = self.values["gc"].get("interval")
        container = self._container("gc", [f"-gc-interval={interval}"] if interval else [], [b.NODE_NAME])
        return [self._workload("Deployment", "gc", self._template("gc", container, [], None))]

    def _config(self, role: str) -> Object:
        # JSON is YAML, and needs no library to write.
        text = json.dumps(self.values[role].get("config") or {}, indent=2, sort_keys=True) + "\n"
        name = f"{self.full_name}-{role}-conf"
        return b.config_map(name, self.namespace, {f"nfd-{role}.conf": text}, self.labels)

    def _config_volume(self, role: str) -> Object:
        file = f"nfd-{role}.conf"
        return b.config_volume(f"nfd-{role}-conf", f"{self.full_name}-{role}-conf", items={file: file})

    def _container(self, role: str, args: List[str], environment: Sequence[Object]) -> Object:
        own, image = self.values[role], self.values["image"]
        gates = [f"-feature-gates={gate}={_word(on)}" for gate, on in self._gates()]
        variables = {item["name"]: item for item in [*environment, *(own.get("extraEnvs") or [])]}
        made: Object = {
            "name": role,
            "image": f"{image['repository']}:{image.get('tag') or APP_VERSION}",
            "imagePullPolicy": image.get("pullPolicy") or "IfNotPresent",
            "command": [f"nfd-{role}"],
            "args": [*args, *gates, *(str(arg) for arg in own.get("extraArgs") or [])],
            "env": copy.deepcopy(list(variables.values())),
            "ports": [{"name": "http", "containerPort": own.get("port") or _PORT, "protocol": "TCP"}],
            "securityContext": copy.deepcopy(own.get("securityContext") or _LOCKED_DOWN),
        }
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            settings = {**_PROBES[role].get(probe, {}), **(own.get(probe) or {})}
            if settings:
                made[probe] = {"httpGet": {"path": "/healthz", "port": "http"}, **settings}
        if own.get("resources"):
            made["resources"] = copy.deepcopy(own["resources"])
        return made

    def _gates(self) -> List[Any]:
        """The feature gates but the one that is off anyway: NFD's own default is not said again."""
        gates = dict(self.values.get("featureGates") or {})
        if not gates.get("NodeFeatureGroupAPI"):
            gates.pop("NodeFeatureGroupAPI", None)
        return sorted(gates.items())

    def _template(self, role: str, container: Object, volumes: List[Object], config: Optional[Object]) -> Object:
        own = self.values[role]
        spec: Object = {
            "serviceAccountName": self.account(role),
            "dnsPolicy": own.get("dnsPolicy") or "ClusterFirstWithHostNet",
            "containers": [container],
            **_placement(own),
        }
        if volumes:
            spec["volumes"] = volumes
        priority = own.get("priorityClassName") or self.values.get("priorityClassName")
        if priority:
            spec["priorityClassName"] = priority
        if self.values.get("imagePullSecrets"):
            spec["imagePullSecrets"] = copy.deepcopy(self.values["imagePullSecrets"])
        meta: Object = {"labels": {**(own.get("labels") or {}), **self.selector, "role": role}}
        annotations = dict(own.get("annotations") or {})
        if config is not None:
            annotations[b.CONFIG_HASH] = b.content_hash(config["data"])
        if annotations:
            meta["annotations"] = annotations
        return {"metadata": meta, "spec": spec}

    def _workload(self, kind: str, role: str, template: Object) -> Object:
        own = self.values[role]
        notes = own.get("daemonsetAnnotations") if kind == "DaemonSet" else own.get("deploymentAnnotations")
        labels = {**self.labels, "role": role}
        made = b.new_object("apps/v1", kind, f"{self.full_name}-{role}", self.namespace, labels, notes)
        made["spec"] = {"selector": {"matchLabels": {**self.selector, "role": role}}, "template": template}
        if kind == "Deployment":
            made["spec"]["replicas"] = own["replicaCount"]
        if own.get("revisionHistoryLimit") is not None:
            made["spec"]["revisionHistoryLimit"] = own["revisionHistoryLimit"]
        return made


_HOST_VOLUMES = (
    ("host-boot", "/boot", "/host-boot"),
    ("host-os-release", "/etc/os-release", "/host-etc/os-release"),
    ("host-sys", "/sys", "/host-sys"),
    ("host-usr-lib", "/usr/lib", "/host-usr/lib"),
    ("host-lib", "/lib", "/host-lib"),
    ("host-proc-swaps", "/proc/swaps", "/host-proc/swaps"),
    ("features-d", _FEATURES_DIR, _FEATURES_DIR),
)
_HOST_SOURCES = (("host-usr-src", "/usr/src", "/host-usr/src"),)


def _placement(own: Mapping[str, Any]) -> Object:
    spec: Object = {}
    if own.get("hostNetwork"):
        spec["hostNetwork"] = True
    if own.get("tolerations"):
        # The API server keeps no empty value: one that is written would be a difference for ever.
        spec["tolerations"] = [{k: v for k, v in t.items() if v not in (None, "")} for t in own["tolerations"]]
    for key in ("nodeSelector", "affinity"):
        if own.get(key):
            spec[key] = copy.deepcopy(own[key])
    if own.get("podSecurityContext"):
        spec["securityContext"] = copy.deepcopy(own["podSecurityContext"])
    return spec


def _master_args(own: Mapping[str, Any]) -> List[str]:
    args = [f"-port={own.get('port') or _PORT}"]
    if own["replicaCount"] > 1:
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


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_MODULE_LABELS = (
    ("gdrdrv", "nvidia.com/gdrcopy.capable"),
    ("nvidia_fs", "nvidia.com/gds.capable"),
    ("nvidia_peermem", "nvidia.com/peermem.capable"),
)


def _module_rule() -> Object:
    """Labels for kernel modules that are loaded, so that workloads can ask for them."""
    made = b.new_object(f"{GROUP}/v1alpha1", "NodeFeatureRule", RULE_NAME)
    made["spec"] = {
        "rules": [
            {
                "name": f"kernel-module-{module}",
                "labels": {label: "true"},
                "matchFeatures": [{"feature": "kernel.loadedmodule", "matchExpressions": {module: {"op": "Exists"}}}],
            }
            for module, label in _MODULE_LABELS
        ]
    }
    return made
