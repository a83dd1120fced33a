# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of every kind that the collection makes, with what is hard to compare: defaults, quantities and more."""

from __future__ import annotations

from typing import Any

LABELS = {"app.kubernetes.io/managed-by": "gpufleet"}
RBAC = "rbac.authorization.k8s.io"


def obj(
    api: str, kind: str, namespace: str, name: str, labels: dict[str, str] | None = None, **content: Any
) -> dict[str, Any]:
    meta = {"name": name, "labels": {**LABELS, **(labels or {})}, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **content}


def pod_template() -> dict[str, Any]:
    probe = {"exec": {"command": ["sh", "-c", "true"]}, "initialDelaySeconds": 60, "failureThreshold": 120}
    containers = [
        {
            "name": "driver",
            "image": "nvcr.io/nvidia/driver:580.1",
            "command": ["nvidia-driver"],
            "args": ["init"],
            "env": [
                {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "FROM", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "a", "optional": True}}},
                {"name": "EMPTY", "value": ""},
                {"name": "TEXT", "value": "true"},
            ],
            "envFrom": [{"configMapRef": {"name": "config"}}],
            "ports": [
                {"name": "metrics", "containerPort": 9400, "protocol": "TCP"},
                {"name": "same-udp", "containerPort": 9400, "protocol": "UDP"},
            ],
            "resources": {"limits": {"cpu": "1000m", "memory": "1.5Gi"}, "requests": {"cpu": 0.5}},
            "securityContext": {
                "privileged": True,
                "seLinuxOptions": {"level": "s0"},
                "capabilities": {"add": ["SYS_ADMIN"]},
            },
            "startupProbe": probe,
            "livenessProbe": {"httpGet": {"path": "/health", "port": 9400}},
            "readinessProbe": {
                "httpGet": {"path": "/health", "port": "metrics", "httpHeaders": [{"name": "H", "value": "v"}]}
            },
            "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "rm -f /ready"]}}},
            "volumeMounts": [
                {"name": "run", "mountPath": "/run/nvidia", "mountPropagation": "Bidirectional"},
                {"name": "config", "mountPath": "/config", "readOnly": True, "subPath": "a"},
                {"name": "projected", "mountPath": "/token"},
            ],
        },
        {"name": "side", "image": "busybox", "securityContext": {}, "tty": False, "stdin": True},
    ]
    return {
        "metadata": {"labels": {"app": "d"}, "annotations": {"gpufleet.io/config-hash": "1"}},
        "spec": {
            "serviceAccountName": "sa",
            "hostPID": True,
            "hostNetwork": False,
            "priorityClassName": "system-node-critical",
            "runtimeClassName": "kube-test-nvidia",
            "nodeSelector": {"nvidia.com/gpu.deploy.driver": "true"},
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "dedicated", "value": "gpu"},
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                    }
                }
            },
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [
                {"name": "second-by-name", "image": "busybox", "command": ["true"]},
                {"name": "first-by-name", "image": "busybox", "command": ["true"], "restartPolicy": "Always"},
            ],
            "containers": containers,
            "volumes": [
                {"name": "run", "hostPath": {"path": "/run/nvidia", "type": "DirectoryOrCreate"}},
                {"name": "plain", "hostPath": {"path": "/plain"}},
                {
                    "name": "config",
                    "configMap": {"name": "config", "items": [{"key": "a", "path": "a"}], "defaultMode": 0o700},
                },
                {"name": "empty", "emptyDir": {}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Ki"}},
                {"name": "secret", "secret": {"secretName": "secret", "optional": True}},
                {
                    "name": "projected",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"path": "token"}},
                            {"configMap": {"name": "config", "items": [{"key": "a", "path": "a"}]}},
                            {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                        ]
                    },
                },
                {"name": "down", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ],
        },
    }


def workload(kind: str, namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    template = pod_template()
    return obj(
        "apps/v1", kind, namespace, name, spec={"selector": {"matchLabels": {"app": "d"}}, "template": template, **spec}
    )


def crd(plural: str = "widgets", kind: str = "NodeFeatureGroup", group: str = "nfd.k8s-sigs.io") -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "properties": {
                    "rules": {
                        "type": "array",
                        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    },
                    "size": {"type": "integer", "default": 3},
                },
            },
            "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
    }
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": kind + "List", "shortNames": ["nfg"]}
    note = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/node-feature-discovery/issues/1"}
    made = obj(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", f"{plural}.{group}",
        spec={"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    )  # fmt: skip
    made["metadata"]["annotations"] = note
    return made


def everything(namespace: str) -> list[dict[str, Any]]:
    """In the order of their creation: a namespace, its content, and objects of the whole cluster named after it."""
    subject = {"kind": "ServiceAccount", "name": "sa", "namespace": namespace}
    rule = {"apiGroups": ["apps", ""], "resources": ["daemonsets", "pods"], "verbs": ["get", "list", "watch"]}
    role = {"apiGroup": RBAC, "kind": "Role", "name": "role"}
    cluster_role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": namespace}
    return [
        obj("v1", "Namespace", "", namespace, {"pod-security.kubernetes.io/enforce": "privileged"}),
        crd("nodefeaturegroups"),
        obj("v1", "ServiceAccount", namespace, "sa", automountServiceAccountToken=True),
        obj(
            f"{RBAC}/v1",
            "Role",
            namespace,
            "role",
            rules=[rule, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["x"]}],
        ),
        obj(f"{RBAC}/v1", "RoleBinding", namespace, "role", roleRef=role, subjects=[subject]),
        obj(
            f"{RBAC}/v1",
            "ClusterRole",
            "",
            namespace,
            rules=[rule, {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        ),
        obj(
            f"{RBAC}/v1",
            "ClusterRoleBinding",
            "",
            namespace,
            roleRef=cluster_role,
            subjects=[subject, {"kind": "User", "name": "u"}],
        ),
        obj("v1", "ConfigMap", namespace, "config", data={"a": "line\nline\n", "empty": ""}, binaryData={"b": "AAE="}),
        obj("v1", "Secret", namespace, "secret", stringData={"k": "value"}, type="Opaque"),
        obj(
            "v1",
            "Service",
            namespace,
            "service",
            spec={
                "selector": {"app": "d"},
                "type": "ClusterIP",
                "ports": [{"name": "m", "port": 9400, "targetPort": 9400, "protocol": "TCP"}],
            },
        ),
        obj(
            "v1",
            "Service",
            namespace,
            "headless",
            spec={
                "clusterIP": "None",
                "selector": {"app": "d"},
                "internalTrafficPolicy": "Local",
                "ports": [{"name": "m", "port": 1, "targetPort": "metrics", "protocol": "TCP"}],
            },
        ),
        obj("v1", "ResourceQuota", namespace, "quota", spec={"hard": {"pods": 1000, "requests.cpu": "1000000m"}}),
        obj("node.k8s.io/v1", "RuntimeClass", "", "kube-test-nvidia", handler="nvidia"),
        obj("scheduling.k8s.io/v1", "PriorityClass", "", namespace, value=1000, description="test"),
        workload(
            "DaemonSet",
            namespace,
            "rolling",
            updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
        ),
        workload("DaemonSet", namespace, "on-delete", updateStrategy={"type": "OnDelete"}),
        workload("Deployment", namespace, "deployment", replicas=0, strategy={"rollingUpdate": {"maxSurge": 1}}),
        obj(
            "nfd.k8s-sigs.io/v1alpha1",
            "NodeFeatureGroup",
            namespace,
            "group",
            spec={"rules": [{"name": "r", "matchFeatures": [{"feature": "pci", "n": {"x": None, "y": [1, 2]}}]}]},
        ),
    ]


KINDS = tuple(dict.fromkeys(item["kind"] for item in everything("x")))
