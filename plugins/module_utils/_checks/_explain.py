# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod is pending or never appeared, in one sentence (S61). Pure: the case is read by ``_explain_read``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .._kube._quantities import whole
from .._nodes._keys import GATE
from .._nodes._taints import describe, tolerates
from ._affinity import allowed, closest, hint, impossible, terms
from ._resources import MIG, PREFIX, asked, two_mig_kinds, without_limits
from ._workloads import short
from ._world import some

Object = Mapping[str, Any]


class Answer(NamedTuple):
    """``cause`` is a word that stays the same between releases; ``text`` and ``remedy`` are for a person."""

    cause: str
    text: str
    remedy: str = ""

    def sentence(self, target: str) -> str:
        return " ".join(f"{target} {self.text}. {self.remedy}".split())


@dataclass(frozen=True)
class Room:
    """What a node has of the resources that a pod asks for. ``obstacle``: why the pod cannot run there."""

    name: str
    allocatable: Mapping[str, int]
    free: Mapping[str, int]
    obstacle: str = ""


@dataclass
class Case:
    """A pod, or a workload that has none. ``refusals``: messages of FailedCreate, the latest last."""

    kind: str
    namespace: str
    name: str
    spec: Mapping[str, Any] = field(default_factory=dict)  # of the pod
    pod: Optional[Object] = None
    nodes: Sequence[Object] = ()
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # node -> GPU resources that its pods hold
    refusals: Sequence[str] = ()
    events: Sequence[Object] = ()  # of the pod
    runtime_classes: Sequence[str] = ()
    idle: str = ""  # why a workload wants no pods at all

    @property
    def target(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def explain(case: Case) -> Answer:
    """The first cause in the order in which Kubernetes meets them."""
    if case.pod is None:
        return _no_pod(case)
    if (case.pod.get("spec") or {}).get("nodeName"):
        return _on_a_node(case)
    for cause in _CAUSES:
        found = cause(case)
        if found is not None:
            return found
    return _scheduler(case)


# -- no pod ----------------------------------------------------------------------------------------------------------


def _no_pod(case: Case) -> Answer:
    if case.idle:
        return Answer("idle", f"has no pods, because {case.idle}")
    missing = without_limits(case.spec)
    if missing:
        text = f"requests {_amounts(missing)} without limits, and the API server refuses such pods"
        return Answer("no-limits", text, "Set resources.limits to the same number.")
    runtime = _runtime_class(case)
    if runtime is not None:
        return runtime
    if case.refusals:
        return _refusal(case.refusals[-1])
    text = "has no pods, and no event tells why (events are kept for an hour)"
    return Answer("unknown", text, "Restart its rollout and ask again.")


_QUOTA = re.compile(
    r"exceeded quota: (?P<name>[^,]+), requested: (?P<asked>.+), used: (?P<used>.+), limited: (?P<most>.+)$"
)


def _refusal(message: str) -> Answer:
    text = short(message)
    found = _QUOTA.search(text)
    if found:
        wanted, used, most = (_pairs(found[name]) for name in ("asked", "used", "most"))
        parts = [
            f"{most.get(k, '?')} {_plain(k)}, {used.get(k, '?')} are used, a pod asks for {v}"
            for k, v in wanted.items()
        ]
        text = f"gets no pods: quota {found['name']} allows {'; '.join(parts)}"
        return Answer("quota", text, "Raise the quota, or free some of it.")
    for cause, sign, remedy in _REFUSALS:
        if sign in text:
            return Answer(cause, f"gets no pods: {text.rstrip('.')}", remedy)
    return Answer("refused", f"gets no pods: {text.rstrip('.')}", "See what refuses them.")


_REFUSALS: Tuple[Tuple[str, str, str], ...] = (
    ("no-limits", "Limit must be set", "Set resources.limits to the same number."),
    ("quota", "quota", "Raise the quota, or give the pods what it asks for."),
    ("pod-security", "violates PodSecurity", "Change the pod, or the namespace's pod security level."),
    ("webhook", "webhook", "Mend the webhook, or exempt the namespace from it."),
    ("runtime-class", "RuntimeClass", "Make the RuntimeClass, or take runtimeClassName out."),
)


def _pairs(text: str) -> Dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _plain(key: str) -> str:
    return key[len("requests.") :] if key.startswith("requests.") else key


# -- on a node -------------------------------------------------------------------------------------------------------


def _on_a_node(case: Case) -> Answer:
    pod = case.pod or {}
    status, node = pod.get("status") or {}, pod["spec"]["nodeName"]
    if status.get("phase") == "Failed":
        why = " ".join(str(status.get(key) or "") for key in ("reason", "message")).strip() or "its container failed"
        remedy = "Delete it: the device plugin on the node gave no device." if "Admission" in why else ""
        return Answer("failed", f"failed on {node}: {why.rstrip('.')}", remedy)
    for item in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waits = (item.get("state") or {}).get("waiting") or {}
        if waits.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            said = f": {waits['message']}" if waits.get("message") else ""
            text = f"waits on {node}: container {item['name']} is in {waits['reason']}{said}"
            return Answer("container", text.rstrip("."), f"See its log: kubectl -n {case.namespace} logs {case.name}.")
    for event in reversed(case.events):
        if event.get("reason") in ("FailedCreatePodSandBox", "FailedMount"):
            return _sandbox(str(node), str(event.get("message", "")))
    if status.get("phase") == "Running":
        return Answer("runs", f"runs on {node}")
    return Answer("starting", f"is on {node} and starts: phase {status.get('phase') or 'Pending'}")


def _sandbox(node: str, message: str) -> Answer:
    text = " ".join(message.split())[:300].rstrip(".")
    if "no runtime for" in text or "RuntimeHandler" in text:
        remedy = "See that the container toolkit has run there: gpufleet.nvidia.status names the stage."
        return Answer("runtime-handler", f"cannot start on {node}: its runtime has no such handler: {text}", remedy)
    return Answer("sandbox", f"cannot start on {node}: {text}")


# -- pending ---------------------------------------------------------------------------------------------------------


def _gates(case: Case) -> Optional[Answer]:
    gates = [str(gate.get("name")) for gate in (case.pod or {}).get("spec", {}).get("schedulingGates") or []]
    if not gates:
        return None
    return Answer("gate", f"waits for its scheduling gates {', '.join(gates)}", "Their controller takes them away.")


def _runtime_class(case: Case) -> Optional[Answer]:
    name = case.spec.get("runtimeClassName")
    if not name or name in case.runtime_classes:
        return None
    meant = closest(str(name), case.runtime_classes)
    text = f"names the RuntimeClass {name}, which does not exist{f'. Did you mean {meant}' if meant else ''}"
    return Answer("runtime-class", text, "Make it with gpufleet.nvidia.cluster_policy, or take runtimeClassName out.")


def _resource_names(case: Case) -> Optional[Answer]:
    """A GPU resource that no node offers: misspelt, another MIG profile, another strategy or sharing."""
    offered: Dict[str, int] = {}
    for node in case.nodes:
        for name, amount in gpus_of(node).items():
            offered[name] = offered.get(name, 0) + amount
    for name in sorted(asked(case.spec)):
        if offered.get(name):
            continue
        there = {key: amount for key, amount in offered.items() if amount}
        if not there:
            text = f"asks for {name}, and no node offers GPUs at all"
            return Answer("no-gpus", text, "Bring the stack up: gpufleet.nvidia.status tells how far the nodes are.")
        known = ", ".join(f"{key} ({there[key]})" for key in sorted(there))
        meant = _meant_resource(name, sorted(there))
        text = f"asks for {name}, which no node offers; offered are {known}{f'. Did you mean {meant}' if meant else ''}"
        return Answer("resource-name", text, "Change the resource, or the nodes' MIG layout or sharing.")
    return None


def _meant_resource(name: str, known: Sequence[str]) -> str:
    """Among MIG profiles the one with the same number of slices; else the name that looks most like it."""
    if name.startswith(MIG):
        slices = name[len(MIG) :].split(".")[0]
        same = [one for one in known if one.startswith(f"{MIG}{slices}.")]
        return same[0] if same else ""
    return closest(name, [one for one in known if not one.startswith(MIG)])


def _two_kinds(case: Case) -> Optional[Answer]:
    kinds = two_mig_kinds(case.spec)
    if not kinds or any(all(gpus_of(node).get(kind) for kind in kinds) for node in case.nodes):
        return None
    text = f"asks for {' and '.join(kinds)} in one container: no node offers both, and CUDA would see one of them only"
    return Answer("two-mig", text, "Ask for one kind, or use a container for each.")


def _place(case: Case) -> Optional[Answer]:
    alternatives = terms(case.spec)
    if allowed(alternatives, case.nodes):
        return None
    wish = impossible(alternatives, case.nodes)
    if wish is None:
        said = " or ".join(" and ".join(str(one) for one in term) for term in alternatives)
        return Answer("place", f"may only run where {said}; no node has all of it", "Loosen nodeSelector or affinity.")
    return Answer("place", f"may only run where {wish}{hint(wish, case.nodes)}", "Change nodeSelector or affinity.")


def _taints(case: Case) -> Optional[Answer]:
    """Of the nodes that it may run on and that have what it asks for, none lets it in."""
    fits = [node for node in _able(case) if all(gpus_of(node).get(name) for name in asked(case.spec))]
    kept: Dict[str, List[str]] = {}
    for node in fits:
        text = obstacle(case.spec, node)
        if not text:
            return None
        kept.setdefault(text, []).append(str(node["metadata"]["name"]))
    if not kept:
        needs = ", ".join(sorted(asked(case.spec)))
        return (
            Answer("place", f"may run on {_names(_able(case))} only, and none of them offers {needs}")
            if needs
            else None
        )
    text, names = max(sorted(kept.items()), key=lambda pair: len(pair[1]))
    others = f" ({len(fits) - len(names)} more are kept from it otherwise)" if len(fits) > len(names) else ""
    key = text.split("taint ")[-1].split(":")[0].split("=")[0]
    if text.startswith("taint"):
        remedy = f"Add the toleration {{key: {key}, operator: Exists}}, or take the taint away."
        return Answer("taint", f"does not tolerate the {text} of {some(names)}{others}", remedy)
    return Answer(
        "node", f"can run on {some(names)} only, and {'it is' if len(names) == 1 else 'they are'} {text}{others}"
    )


def obstacle(spec: Mapping[str, Any], node: Object) -> str:
    """A taint that a pod does not tolerate, or the state that such a taint stands for."""
    for taint in (node.get("spec") or {}).get("taints") or []:
        if not tolerates(spec, taint):
            return _STATES.get(str(taint.get("key")), f"taint {describe(taint)}")
    return ""


_STATES = {
    "node.kubernetes.io/unschedulable": "cordoned",
    "node.kubernetes.io/not-ready": "not ready",
    "node.kubernetes.io/unreachable": "unreachable",
    GATE: "kept free until the GPU stack is proved there, or because it refuses pods",
}


def _capacity(case: Case) -> Optional[Answer]:
    needs = asked(case.spec)
    open_nodes = [node for node in _able(case) if not obstacle(case.spec, node)]
    for name, amount in sorted(needs.items()):
        most = max((gpus_of(node).get(name, 0) for node in open_nodes), default=0)
        if most < amount:
            text = f"asks for {amount} {name}, and no node that it may run on has more than {most}"
            return Answer("too-many", text, "Ask for fewer, or spread the work over several pods.")
    rooms = rooms_of(case, open_nodes)
    if not needs or any(all(room.free[name] >= amount for name, amount in needs.items()) for room in rooms):
        return None
    rooms.sort(key=lambda room: (-sum(room.free.values()), room.name))
    parts = [
        f"{room.name} {', '.join(f'{room.free[n]} of {room.allocatable[n]}' for n in sorted(needs))}" for room in rooms
    ]
    text = f"asks for {_amounts(needs)}, and no node has so much free: {some(parts, 5)}"
    return Answer("no-capacity", text, "Wait for other pods, ask for fewer, or add nodes.")


def _scheduler(case: Case) -> Answer:
    """Nothing about GPUs is in the way: the scheduler's own words."""
    said = [str(event.get("message", "")) for event in case.events if event.get("reason") == "FailedScheduling"]
    for condition in ((case.pod or {}).get("status") or {}).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("message"):
            said.append(str(condition["message"]))
    if not said:
        return Answer("waiting", "waits for the scheduler, which has said nothing yet", "Ask again in a moment.")
    text = " ".join(said[-1].split()).split(" preemption:", maxsplit=1)[0].rstrip(".")
    return Answer("scheduler", f"finds no node, for a reason that is not its GPUs: {text}")


_CAUSES: Tuple[Callable[[Case], Optional[Answer]], ...] = (
    _gates,
    _runtime_class,
    _two_kinds,
    _resource_names,
    _place,
    _taints,
    _capacity,
)


# -- nodes -----------------------------------------------------------------------------------------------------------


def gpus_of(node: Object) -> Dict[str, int]:
    """GPU resources that a node offers."""
    amounts = (node.get("status") or {}).get("allocatable") or {}
    return {str(n): whole(a) for n, a in amounts.items() if n.startswith(PREFIX)}


def rooms_of(case: Case, nodes: Sequence[Object]) -> List[Room]:
    """What each node has, and has free, of what the pod asks for."""
    names, found = sorted(asked(case.spec)), []
    able = {str(node["metadata"]["name"]) for node in _able(case)}
    for node in nodes:
        name, has = str(node["metadata"]["name"]), gpus_of(node)
        used = case.used.get(name, {})
        why = obstacle(case.spec, node) if name in able else "nodeSelector or affinity"
        free = {n: max(0, has.get(n, 0) - used.get(n, 0)) for n in names}
        found.append(Room(name, {n: has.get(n, 0) for n in names}, free, why))
    return found


def _able(case: Case) -> List[Object]:
    return allowed(terms(case.spec), case.nodes)


def _amounts(needs: Mapping[str, int]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in sorted(needs.items()))


def _names(nodes: Sequence[Object]) -> str:
    return some([str(node["metadata"]["name"]) for node in nodes])
