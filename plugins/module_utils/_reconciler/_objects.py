# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of the reconciler: a CronJob that runs the playbook ``reconcile`` inside the cluster, and its account."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._kube._resources import MANAGED_BY, MANAGER, PART, Object
from ._rights import Rule

NAME = "gpufleet-reconciler"
FILES = "/etc/gpufleet"
POLICY_FILE = "policy.yaml"
INVENTORY_FILE = "inventory.yaml"


@dataclass(frozen=True)
class Wanted:
    """What the user asked for. ``variables`` are the run's role variables, ``policy`` the merged source of the policy.

    ``seconds``: the longest that a run may take.
    """

    namespace: str
    operands: str
    image: str
    schedule: str
    policy: Mapping[str, Any]
    variables: Mapping[str, Any]
    seconds: int
    suspend: bool = False
    image_pull_secrets: Tuple[str, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    resources: Optional[Mapping[str, Any]] = None


def build(wanted: Wanted, cluster: Sequence[Rule], namespaced: Sequence[Rule]) -> List[Object]:
    """All objects, in the order of creation. ``cluster`` and ``namespaced`` are the account's rights."""
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": wanted.namespace}
    group = "rbac.authorization.k8s.io"
    here, there = wanted.namespace, wanted.operands
    return [
        _object("v1", "Namespace", here, "", labels={"pod-security.kubernetes.io/enforce": "restricted"}),
        _object("v1", "ServiceAccount", NAME, here, automountServiceAccountToken=False),
        _object(f"{group}/v1", "ClusterRole", NAME, "", rules=list(cluster)),
        _object(f"{group}/v1", "ClusterRoleBinding", NAME, "", **_binding("ClusterRole", account, group)),
        _object(f"{group}/v1", "Role", NAME, there, rules=list(namespaced)),
        _object(f"{group}/v1", "RoleBinding", NAME, there, **_binding("Role", account, group)),
        _object("v1", "ConfigMap", NAME, here, data=_files(wanted)),
        _object("batch/v1", "CronJob", NAME, here, spec=_cron_job(wanted)),
    ]


def _object(
    api: str, kind: str, name: str, namespace: str, labels: Optional[Dict[str, str]] = None, **body: Any
) -> Object:
    meta: Dict[str, Any] = {"name": name, "labels": {MANAGED_BY: MANAGER, PART: "reconciler", **(labels or {})}}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": api, "kind": kind, "metadata": meta, **body}


def _binding(kind: str, account: Mapping[str, str], group: str) -> Dict[str, Any]:
    return {"roleRef": {"apiGroup": group, "kind": kind, "name": NAME}, "subjects": [dict(account)]}


def _files(wanted: Wanted) -> Dict[str, str]:
    variables = dict(
        wanted.variables,
        ansible_connection="local",
        cluster_policy_namespace=wanted.operands,
        cluster_policy_policy_files=[f"{FILES}/{POLICY_FILE}"],
    )
    inventory = {"gpu_clusters": {"hosts": {"this-cluster": variables}}}
    return {
        # JSON is YAML. The policy is read as a file, which Ansible does not look for templates in.
        POLICY_FILE: json.dumps(wanted.policy, indent=1, sort_keys=True) + "\n",
        INVENTORY_FILE: inert(inventory) + "\n",
    }


def inert(value: Any) -> str:
    """YAML in which every text is marked as one that Ansible must not look for templates in."""
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(str(key))}: {inert(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(inert(item) for item in value) + "]"
    return f"!unsafe {json.dumps(value)}" if isinstance(value, str) else json.dumps(value)


def _cron_job(wanted: Wanted) -> Dict[str, Any]:
    return {
        "schedule": wanted.schedule,
        "suspend": wanted.suspend,
        # The lease keeps runs apart in any case; this keeps pods from waiting in a row.
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 300,
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": wanted.seconds,
                "template": {"metadata": {"labels": {"app": NAME}}, "spec": _pod(wanted)},
            }
        },
    }


def _pod(wanted: Wanted) -> Dict[str, Any]:
    command = ["ansible-playbook", "-i", f"{FILES}/{INVENTORY_FILE}", "gpufleet.nvidia.reconcile"]
    container: Dict[str, Any] = {
        "name": "reconcile",
        "image": wanted.image,
        "command": command,
        # The file system is read-only but for this folder.
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "ANSIBLE_NOCOLOR", "value": "1"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "files", "mountPath": FILES, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "resources": dict(wanted.resources or {"requests": {"cpu": "100m", "memory": "256Mi"}}),
    }
    pod: Dict[str, Any] = {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "files", "configMap": {"name": NAME}}, {"name": "tmp", "emptyDir": {}}],
    }
    if wanted.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in wanted.image_pull_secrets]
    if wanted.node_selector:
        pod["nodeSelector"] = dict(wanted.node_selector)
    if wanted.tolerations:
        pod["tolerations"] = [dict(one) for one in wanted.tolerations]
    return pod
