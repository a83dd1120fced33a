# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trials: which nodes run a CUDA pod so that every kind of GPU resource is proved once (S39). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from .._kube._resources import MANAGED_BY, MANAGER, PART, Object
from .._nodes._stage import node_ready
from .._nodes._workload import for_machines
from ._explain import gpus_of

TRIAL = "trial"
SELECTOR = f"{PART}={TRIAL}"
VALIDATOR = "nvidia-operator-validator"
EXPORTER = "nvidia-dcgm-exporter"
_PRODUCT = "nvidia.com/gpu.product"
_GPUS = "nvidia.com/gpu.count"
_CONTAINERS = ("nvidia-smi", "cuda")


@dataclass(frozen=True)
class Trial:
    """One pod that is to take one ``resource`` on ``node``, whose GPUs are of the kind ``product``."""

    node: str
    product: str
    resource: str

    @property
    def what(self) -> str:
        return f"{self.resource} on {self.node} ({self.product})"


@dataclass(frozen=True)
class Program:
    """Where the CUDA program comes from: the image of the validator, and how pods get at it and at GPUs."""

    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: Tuple[str, ...] = ()
    runtime_class: str = ""


def program_of(validator: Optional[Mapping[str, Any]]) -> Optional[Program]:
    """What the validator's DaemonSet says; None without one."""
    spec = ((((validator or {}).get("spec") or {}).get("template") or {}).get("spec")) or {}
    for container in spec.get("containers") or []:
        secrets = tuple(str(item.get("name")) for item in spec.get("imagePullSecrets") or [])
        policy = str(container.get("imagePullPolicy") or "IfNotPresent")
        return Program(str(container["image"]), policy, secrets, str(spec.get("runtimeClassName") or ""))
    return None


def choose(nodes: Sequence[Object], used: Mapping[str, Mapping[str, int]]) -> Tuple[List[Trial], List[Trial]]:
    """Trials to run, one for each product and resource; and those for which nothing is free on any ready node.

    ``used``: node -> GPU resources that its pods hold. Of several nodes the one with most free is taken.
    """
    best: Dict[Tuple[str, str], Tuple[int, Trial]] = {}
    for node in sorted(nodes, key=lambda item: str(item["metadata"]["name"])):
        name, labels = str(node["metadata"]["name"]), node["metadata"].get("labels") or {}
        if not node_ready(node) or (node.get("spec") or {}).get("unschedulable") or for_machines(labels):
            continue
        product = re.sub(r"-MIG-.*$|-SHARED$", "", str(labels.get(_PRODUCT) or "GPU"))
        for resource, amount in gpus_of(node).items():
            free = amount - used.get(name, {}).get(resource, 0)
            known = best.get((product, resource))
            if amount and (known is None or free > known[0]):
                best[product, resource] = (free, Trial(name, product, resource))
    chosen = [best[key] for key in sorted(best)]
    return [trial for free, trial in chosen if free > 0], [trial for free, trial in chosen if free <= 0]


def pod(trial: Trial, program: Program, name: str, namespace: str, seconds: int) -> Object:
    """The pod of a trial: nvidia-smi, then a CUDA program, with one resource, as any user's pod would get it."""
    limits = {"limits": {trial.resource: "1"}}
    commands = {"nvidia-smi": ["nvidia-smi", "-L"], "cuda": ["sh", "-c", "vectorAdd"]}
    made = [
        {
            "name": container,
            "image": program.image,
            "imagePullPolicy": program.pull_policy,
            "command": commands[container],
            "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}],
            "resources": limits,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        for container in _CONTAINERS
    ]
    spec: Object = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": seconds,
        "automountServiceAccountToken": False,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _only(trial.node)}},
        "tolerations": [{"operator": "Exists"}],
        "initContainers": made[:1],
        "containers": made[1:],
    }
    if program.runtime_class:
        spec["runtimeClassName"] = program.runtime_class
    if program.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in program.pull_secrets]
    labels = {MANAGED_BY: MANAGER, PART: TRIAL}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _only(node: str) -> Object:
    """By its name: the label kubernetes.io/hostname may be another one."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {"nodeSelectorTerms": [{"matchFields": fields}]}


def ended(found: Optional[Mapping[str, Any]]) -> bool:
    """Whether the pod of a trial has come to its end, or is gone."""
    return found is None or (found.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def left_over(found: Mapping[str, Any], now: float) -> bool:
    """Whether nobody waits for the pod of a trial any more: it has ended, or is twice as old as it may become.

    A younger one is of a run beside this one, or the kubelet ends it soon. ``now``: seconds since 1970.
    """
    if ended(found):
        return True
    made = datetime.strptime(str(found["metadata"]["creationTimestamp"]), "%Y-%m-%dT%H:%M:%SZ")
    most = int((found.get("spec") or {}).get("activeDeadlineSeconds") or 0)
    return now - made.replace(tzinfo=timezone.utc).timestamp() > 2 * most


def last_words(found: Mapping[str, Any]) -> str:
    """What the first container that failed said last, with its name."""
    status = found.get("status") or {}
    for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        over = (entry.get("state") or {}).get("terminated") or {}
        if over.get("exitCode"):
            said = " ".join(str(over.get("message") or over.get("reason") or "no message").split())[:300]
            return f"{entry.get('name')} ended with {over['exitCode']}: {said}"
    return ""


# -- metrics


_SAMPLE = re.compile(r"^DCGM_FI_\w+\{(?P<labels>[^}]*)\}\s+\S+", re.MULTILINE)
_GPU = re.compile(r'(?:^|,)gpu="([^"]*)"')


def gpus_in(text: str) -> FrozenSet[str]:
    """Indices of the GPUs that a page of metrics in Prometheus' text format tells of."""
    found = (_GPU.search(sample["labels"]) for sample in _SAMPLE.finditer(text))
    return frozenset(match.group(1) for match in found if match)


def judge_metrics(node: Mapping[str, Any], text: str) -> str:
    """What is wrong with the metrics of a node's exporter, "" when every GPU has some."""
    seen, labels = gpus_in(text), node["metadata"].get("labels") or {}
    has = int(labels[_GPUS]) if str(labels.get(_GPUS, "")).isdigit() else 0
    if not seen:
        return "it answers, and tells of no GPU"
    return f"it tells of {len(seen)} GPUs, the node has {has}" if len(seen) < has else ""


def exporters(pods: Sequence[Object]) -> Dict[str, Tuple[str, int]]:
    """Node -> name and port of the exporter's pod that runs there."""
    found = {}
    for item in pods:
        spec = item.get("spec") or {}
        ports = [
            int(port["containerPort"])
            for container in spec.get("containers") or []
            for port in container.get("ports") or []
            if port.get("name") == "metrics"
        ]
        app = (item["metadata"].get("labels") or {}).get("app")
        if app == EXPORTER and ports and (item.get("status") or {}).get("phase") == "Running":
            found[str(spec.get("nodeName"))] = (str(item["metadata"]["name"]), ports[0])
    return found
