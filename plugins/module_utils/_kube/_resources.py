# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds and their paths, as literals: no discovery is asked for what is known."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional

from ._connection import KubeError

Object = Dict[str, Any]

MANAGER = "gpufleet"
MANAGED_BY = "app.kubernetes.io/managed-by"
OURS = f"{MANAGED_BY}={MANAGER}"
PART = "gpufleet.io/part"  # label of objects that another module than those of the stack makes, and removes
STACK = f"!{PART}"  # selector of those of the stack
RECONCILER = f"{PART}=reconciler"  # and of those of the reconciler


class Resource(NamedTuple):
    """Where a kind is served. ``group`` is "" for the core group."""

    group: str
    version: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


_RBAC = "rbac.authorization.k8s.io"
_NFD = "nfd.k8s-sigs.io"
_MONITORING = "monitoring.coreos.com"
_ADMISSION = "admissionregistration.k8s.io"

RESOURCES: Dict[str, Resource] = {
    "Namespace": Resource("", "v1", "namespaces", False),
    "Node": Resource("", "v1", "nodes", False),
    "Pod": Resource("", "v1", "pods", True),
    "ServiceAccount": Resource("", "v1", "serviceaccounts", True),
    "ConfigMap": Resource("", "v1", "configmaps", True),
    "Secret": Resource("", "v1", "secrets", True),
    "Service": Resource("", "v1", "services", True),
    "ResourceQuota": Resource("", "v1", "resourcequotas", True),
    "Event": Resource("", "v1", "events", True),
    "Role": Resource(_RBAC, "v1", "roles", True),
    "RoleBinding": Resource(_RBAC, "v1", "rolebindings", True),
    "ClusterRole": Resource(_RBAC, "v1", "clusterroles", False),
    "ClusterRoleBinding": Resource(_RBAC, "v1", "clusterrolebindings", False),
    "DaemonSet": Resource("apps", "v1", "daemonsets", True),
    "Deployment": Resource("apps", "v1", "deployments", True),
    "ReplicaSet": Resource("apps", "v1", "replicasets", True),
    "StatefulSet": Resource("apps", "v1", "statefulsets", True),
    "ControllerRevision": Resource("apps", "v1", "controllerrevisions", True),
    "Job": Resource("batch", "v1", "jobs", True),
    "CronJob": Resource("batch", "v1", "cronjobs", True),
    "Ingress": Resource("networking.k8s.io", "v1", "ingresses", True),
    "NetworkPolicy": Resource("networking.k8s.io", "v1", "networkpolicies", True),
    "PersistentVolumeClaim": Resource("", "v1", "persistentvolumeclaims", True),
    "Lease": Resource("coordination.k8s.io", "v1", "leases", True),
    "PodDisruptionBudget": Resource("policy", "v1", "poddisruptionbudgets", True),
    "PriorityClass": Resource("scheduling.k8s.io", "v1", "priorityclasses", False),
    "RuntimeClass": Resource("node.k8s.io", "v1", "runtimeclasses", False),
    "CustomResourceDefinition": Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", False),
    "ValidatingWebhookConfiguration": Resource(_ADMISSION, "v1", "validatingwebhookconfigurations", False),
    "MutatingWebhookConfiguration": Resource(_ADMISSION, "v1", "mutatingwebhookconfigurations", False),
    "EndpointSlice": Resource("discovery.k8s.io", "v1", "endpointslices", True),
    "NodeFeature": Resource(_NFD, "v1alpha1", "nodefeatures", True),
    "NodeFeatureRule": Resource(_NFD, "v1alpha1", "nodefeaturerules", False),
    "NodeFeatureGroup": Resource(_NFD, "v1alpha1", "nodefeaturegroups", True),
    "ServiceMonitor": Resource(_MONITORING, "v1", "servicemonitors", True),
    "PrometheusRule": Resource(_MONITORING, "v1", "prometheusrules", True),
    "ClusterPolicy": Resource("nvidia.com", "v1", "clusterpolicies", False),
    "NVIDIADriver": Resource("nvidia.com", "v1alpha1", "nvidiadrivers", False),
    "NodePool": Resource("karpenter.sh", "v1", "nodepools", False),
    "EC2NodeClass": Resource("karpenter.k8s.aws", "v1", "ec2nodeclasses", False),
    "GPUCluster": Resource("nvidia.com", "v1alpha1", "gpuclusters", False),
}


class Ref(NamedTuple):
    """The identity of an object; ``namespace`` is "" for kinds of the whole cluster."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"

    @property
    def path(self) -> str:
        """Its path on the API server."""
        return path(self.kind, self.namespace, self.name)


def resource(kind: str) -> Resource:
    """Where a kind is served. Raises ``KubeError`` for a kind that the table lacks."""
    try:
        return RESOURCES[kind]
    except KeyError:
        raise KubeError(f"kind {kind!r} is not one that this collection handles") from None


def path(kind: str, namespace: Optional[str] = None, name: str = "", subresource: str = "") -> str:
    """The path of a collection (no ``name``), an object, or its subresource. No namespace: of all namespaces."""
    found = resource(kind)
    parts = ["/apis", found.group, found.version] if found.group else ["/api", found.version]
    if namespace and found.namespaced:
        parts += ["namespaces", namespace]
    return "/".join(parts + [part for part in (found.plural, name, subresource) if part])


def ref(obj: Mapping[str, Any]) -> Ref:
    """The identity of an object; the namespace is left out for kinds that have none."""
    kind = str(obj["kind"])
    meta = obj["metadata"]
    return Ref(kind, str(meta.get("namespace") or "") if resource(kind).namespaced else "", str(meta["name"]))


def labels(obj: Mapping[str, Any]) -> Dict[str, str]:
    """The labels of an object, never None."""
    found: Dict[str, str] = obj["metadata"].get("labels") or {}
    return found


def ours(obj: Mapping[str, Any]) -> bool:
    """True when the object carries the label of objects that this collection made."""
    return labels(obj).get(MANAGED_BY) == MANAGER
