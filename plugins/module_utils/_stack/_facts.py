# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of a cluster that objects depend on, read over its API."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from .._kube._connection import Connection
from .._kube._lists import list_objects
from .._kube._resources import Object, path
from .._nodes._causes import names
from .._nodes._hidden import Hidden
from .._nodes._keys import has_gpu
from .._nodes._models import Gpus, is_mixed, models_text
from .._nodes._runtimes import detect
from .._operands._build import content_hash
from .._operands._problems import named_by
from .._operands._types import ClusterFacts, NodeFacts
from .._plan import WARNING, Finding
from .._policy._model import Policy

KERNEL = "feature.node.kubernetes.io/kernel-version.full"
NFD_NODE = "nfd.node.kubernetes.io/node-name"
DRIVER_DAEMONSET = "nvidia-driver-daemonset"


def read_nodes(connection: Connection) -> List[Object]:
    """All nodes, each cut down to what is looked at: identity, taints, allocatable, capacity, nodeInfo, Ready."""
    return list_objects(connection, "Node", keep=slim_node).items


def slim_node(node: Object) -> Object:
    """A node cut down to what this collection looks at."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": meta["name"],
            "resourceVersion": meta.get("resourceVersion", ""),
            "labels": _shared(meta.get("labels") or {}),
            "annotations": _shared(meta.get("annotations") or {}),
        },
        "spec": {"taints": spec.get("taints") or [], "unschedulable": bool(spec.get("unschedulable"))},
        "status": {
            "allocatable": status.get("allocatable") or {},
            "capacity": status.get("capacity") or {},
            "nodeInfo": status.get("nodeInfo") or {},
            "conditions": [c for c in status.get("conditions") or [] if c.get("type") == "Ready"],
        },
    }


def _shared(texts: Mapping[str, str]) -> Dict[str, str]:
    """Nodes of one kind have a hundred keys and most values in common: each is kept once."""
    return {sys.intern(key): sys.intern(value) for key, value in texts.items()}


def pci_gpus(connection: Connection) -> Dict[str, Gpus]:
    """NVIDIA GPUs that NFD's workers see on the PCI bus, by node: what the hardware has, whatever the driver sees."""

    def counted(feature: Object) -> Object:
        return {"node": (feature["metadata"].get("labels") or {}).get(NFD_NODE, ""), "gpus": gpus_of(feature)}

    items = list_objects(connection, "NodeFeature", optional=True, keep=counted).items
    return by_node((item["node"], item["gpus"]) for item in items)


def by_node(told: Iterable[Tuple[str, Optional[Gpus]]]) -> Dict[str, Gpus]:
    """What :func:`gpus_of` found, by node: of several NodeFeatures of a node the one that tells of most GPUs."""
    found: Dict[str, Gpus] = {}
    for node, gpus in told:
        if gpus is not None and sum(gpus.values()) >= sum(found.get(node, {}).values()):
            found[node] = gpus
    return found


def gpus_of(feature: Mapping[str, Any]) -> Optional[Gpus]:
    """How many GPUs (3D or VGA controllers of NVIDIA) of each PCI device id a NodeFeature tells of; None where it is
    not about PCI."""
    instances = ((feature.get("spec") or {}).get("features") or {}).get("instances") or {}
    devices = [e.get("attributes") or {} for e in (instances.get("pci.device") or {}).get("elements") or []]
    gpus = [d for d in devices if d.get("vendor") == "10de" and d.get("class") in ("0300", "0302")]
    return dict(Counter(sys.intern(str(d.get("device", "")).lower()) for d in gpus)) if devices else None


def with_hardware(
    nodes: Sequence[Object], gpus: Mapping[str, Gpus], hidden: Hidden = MappingProxyType({})
) -> List[Object]:
    """The same nodes, each with the GPUs on its PCI bus where those are known, and with those to hide."""
    found = []
    for node in nodes:
        name = node["metadata"]["name"]
        more: Object = {"pciGpus": gpus[name]} if name in gpus else {}
        if name in hidden:
            more["hiddenGpus"] = hidden[name]
        found.append({**node, **more} if more else node)
    return found


def without_gpus(nodes: Sequence[Object], gpus: Mapping[str, Gpus]) -> List[str]:
    """Nodes whose labels tell of a GPU, and of which NFD's own list of PCI devices has none (P115)."""
    names = [str(node["metadata"]["name"]) for node in nodes if has_gpu(node["metadata"].get("labels") or {})]
    return sorted(name for name in names if name in gpus and not gpus[name])


def no_gpu_findings(found: Sequence[str]) -> List[Finding]:
    """A label is a hint: another device of NVIDIA, or whoever set it, may be behind it."""
    if not found:
        return []
    detail = "has a label of NFD that tells of an NVIDIA GPU, and there is none on its PCI bus: it is not served"
    remedy = "Take the label away, or have NFD's worker label devices of the classes 0300 and 0302 alone."
    return [Finding("nodes.no-gpu", WARNING, detail, names(found), remedy=remedy)]


def mixed_findings(nodes: Iterable[Mapping[str, Any]], gpus: Mapping[str, Gpus]) -> List[Finding]:
    """Nodes with several models: labels that a pod selects by are true of one of them only (P111)."""
    found: Dict[str, List[str]] = {}
    for name in sorted(str(node["metadata"]["name"]) for node in nodes):
        if is_mixed(gpus.get(name, {})):
            found.setdefault(models_text(gpus[name]), []).append(name)
    detail = "has GPUs of several models ({}): the labels of GPU feature discovery (product, memory, count) tell of "
    detail += "one of them, and a pod that asks for a GPU gets any"
    remedy = "Give such nodes a label of their own through node_groups (selector kubernetes.io/hostname) and have pods "
    remedy += "select that, not product or memory. Where it matters which GPU a pod gets, keep one model a node."
    return [
        Finding("nodes.mixed-models", WARNING, detail.format(text), names(found[text]), remedy=remedy)
        for text in sorted(found)
    ]


def node_facts(node: Mapping[str, Any]) -> NodeFacts:
    """A node as operands see it."""
    meta = node["metadata"]
    labels = meta.get("labels") or {}
    info = node["status"].get("nodeInfo") or {}
    version = str(info.get("containerRuntimeVersion", ""))
    runtime = version.split(":", 1)[0]
    return NodeFacts(
        name=meta["name"],
        labels=labels,
        annotations=meta.get("annotations") or {},
        runtime={"cri-o": "crio"}.get(runtime, runtime),
        kernel=labels.get(KERNEL, ""),
        setup=detect(version, str(info.get("kubeletVersion", "")), labels),
    )


def cluster_runtime(nodes: Sequence[NodeFacts]) -> str:
    """The runtime that operands are set up for: containerd as soon as one GPU node has it, or none is known."""
    found: Set[str] = {node.runtime for node in nodes}
    if "containerd" in found:
        return "containerd"
    return next((name for name in ("crio", "docker") if name in found), "containerd")


def driver_daemonsets(daemonsets: Sequence[Mapping[str, Any]], known: Sequence[str]) -> Dict[str, str]:
    """Driver DaemonSets by name, with the operating system's tag that each serves now."""
    found = {str(made["metadata"]["name"]): driver_os(made, known) for made in daemonsets}
    return {name: tag for name, tag in found.items() if name.startswith(DRIVER_DAEMONSET) and tag}


def driver_os(daemonset: Mapping[str, Any], known: Sequence[str]) -> str:
    """The operating system's tag that a driver DaemonSet serves, from its image; "" when that does not tell."""
    for container in daemonset["spec"]["template"]["spec"].get("containers") or []:
        if container["name"] == "nvidia-driver-ctr":
            tag = str(container.get("image", ""))
            for name in sorted(known, key=len, reverse=True):
                if tag.endswith("-" + name):
                    return name
            match = re.search(r"-([a-z][a-z-]*[0-9][0-9.]*)$", tag)
            return match.group(1) if match else ""
    return ""


def read_named(
    connection: Connection, policy: Policy, namespace: str
) -> Tuple[Dict[str, Tuple[str, ...]], Dict[str, str]]:
    """Keys and content hashes of the objects that the policy names, by ``ConfigMap/name``; contents are dropped."""
    keys: Dict[str, Tuple[str, ...]] = {}
    hashes: Dict[str, str] = {}
    for item in named_by(policy):
        live = connection.find(path(item.kind, namespace, item.name))
        if live is not None:
            data = {**(live.get("data") or {}), **(live.get("binaryData") or {})}
            keys[item.id] = tuple(sorted(data))
            hashes[item.id] = content_hash(data)
    return keys, hashes


def with_nodes(facts: ClusterFacts, nodes: Sequence[NodeFacts]) -> ClusterFacts:
    """The same facts with other GPU nodes."""
    return replace(facts, nodes=tuple(sorted(nodes, key=lambda n: n.name)), runtime=cluster_runtime(nodes))
