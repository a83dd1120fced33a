# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changes on nodes, by the policy and by their groups, and the writing of it: one patch a node."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from .._kube._lists import list_objects
from .._kube._nodes_patch import patch_node
from .._kube._resources import Object, path
from .._nodes._change import LabelChange
from .._nodes._drivers import DRIVER_LABEL
from .._nodes._gate import VALIDATOR, refusal_findings
from .._nodes._groups import NodeGroup, Wanted, assign, parse_groups, plan_group
from .._nodes._hidden import Hidden
from .._nodes._keys import GATE, GATE_EFFECT, PRESENT
from .._nodes._labels import has_features, has_gpu, plan_labels
from .._nodes._mig_guard import ANY_DEVICE, busy_pods, touches_mig
from .._nodes._models import Gpus
from .._nodes._runtimes import RUNTIME_LABEL, split
from .._nodes._stage import is_gpu_node
from .._nodes._taints import untolerated
from .._nodes._workload import MACHINE_KEYS, served_now
from .._operands._types import NodeFacts
from .._plan import ERROR, Action, Finding
from .._policy._model import Policy
from ._facts import mixed_findings, no_gpu_findings, node_facts, pci_gpus, slim_node, without_gpus
from ._gates import gates_of, read_proof
from ._journal import Journal
from ._request import Request

AT_ONCE = 8  # nodes that are written at once: no node waits for another

Busy = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class NodeChange:
    """All that changes on one node. ``parts`` follow each other: each was planned on what the one before leaves."""

    node: Object
    parts: Tuple[LabelChange, ...]

    def __bool__(self) -> bool:
        return any(self.parts)

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    @property
    def findings(self) -> List[Finding]:
        return [finding for part in self.parts for finding in part.findings]

    @property
    def touches_mig(self) -> bool:
        """Whether the MIG manager will start."""
        return any(touches_mig(part) for part in self.parts)

    @property
    def moves(self) -> bool:
        """Whether its GPUs are to serve others: containers or virtual machines."""
        now = served_now(self.node["metadata"]["labels"])
        return now not in ("", served_now(self.labels_after()))

    @property
    def touches_machines(self) -> bool:
        """Whether a manager is to change GPUs that virtual machines may have."""
        return any(key in part.set or key in part.remove for part in self.parts for key in MACHINE_KEYS)

    @property
    def is_new(self) -> bool:
        """Whether operands are to come to it that did not run there before."""
        return any(part.set.get(PRESENT) == "true" for part in self.parts)

    def labels_after(self) -> Mapping[str, str]:
        """The node's labels after all parts."""
        labels: Dict[str, str] = dict(self.node["metadata"]["labels"])
        for part in self.parts:
            labels = {k: v for k, v in {**labels, **part.set}.items() if k not in part.remove}
        return labels

    def actions(self) -> List[Action]:
        """Actions of all parts; where two parts set a key, the later one counts."""
        return list({action.id: action for part in self.parts for action in part.actions()}.values())

    def patch(self) -> Dict[str, Any]:
        """One merge patch. Taints are a list that is replaced at once, so the patch then names the node's version."""
        meta: Dict[str, Any] = {}
        body: Dict[str, Any] = {}
        for part in self.parts:
            piece = part.patch()
            for key, values in (piece.get("metadata") or {}).items():
                meta.setdefault(key, {}).update(values)
            if "spec" in piece:
                body["spec"] = piece["spec"]
        if meta:
            body["metadata"] = meta
        if "spec" in body:
            body.setdefault("metadata", {})["resourceVersion"] = self.node["metadata"]["resourceVersion"]
        return body


class NodePlanner:
    """Plans nodes by a policy (None: by groups alone) and by groups.

    ``gating``: whether it looks after the taints of groups with ``ready_gate``, or leaves them as they are.
    """

    def __init__(
        self, request: Request, policy: Optional[Policy], groups: Sequence[NodeGroup], gating: bool = False
    ) -> None:
        self.request = request
        self.gating = gating
        self.gates: Mapping[str, str] = {}
        self.policy = policy
        self.groups = groups
        self.busy: Busy = {}
        #: Users' pods that hold any device of NVIDIA, as virtual machines do, by node.
        self.machines: Busy = {}
        #: Names of configurations that exist; None where that is not known.
        self.mig_configs: Optional[Sequence[str]] = None
        self.plugin_configs: Optional[Sequence[str]] = None
        self._apart: Dict[str, Dict[str, str]] = {}
        #: What groups say that is to be hidden, by node.
        self.hidden: Hidden = {}
        #: Nodes marked as having a driver of the host, on which none is found any more.
        self.driverless: Collection[str] = ()
        #: Nodes with a label that tells of a GPU, and without one on their PCI bus.
        self.gpuless: Collection[str] = ()
        #: GPUs on the PCI bus of nodes, once they were looked at.
        self.hardware: Mapping[str, Gpus] = {}
        self.looked = False

    def look(self, nodes: Sequence[Object]) -> List[Finding]:
        """Read what NFD found on the PCI bus of all nodes, a long list; what it tells of these nodes."""
        self.hardware, self.looked = pci_gpus(self.request.connection), True
        return mixed_findings(nodes, self.hardware)

    def plan(self, nodes: Sequence[Object]) -> Tuple[List[NodeChange], List[Finding]]:
        """Changes of the nodes that need one, and findings. Pods are only read where a MIG layout or what a node serves
        would change."""
        wanted, findings = self._assign(nodes)
        self.hide(nodes)
        self.busy, self.machines = {}, {}
        findings = findings + self._plan_gates(nodes, wanted)
        self._set_apart(nodes)
        changes = self._changes(nodes, wanted)
        if self.policy is not None and any(change.is_new for change in changes):
            # The list of all that NFD found is long: it is read when a node is to be served that was not before.
            mixed = self.look(nodes)
            self.gpuless = without_gpus(nodes, self.hardware)
            findings = findings + no_gpu_findings(self.gpuless) + mixed
            changes = self._changes(nodes, wanted) if self.gpuless else changes
        if any(change.touches_mig or change.touches_machines or change.moves for change in changes):
            pods = list_objects(self.request.connection, "Pod", keep=gpu_part).items
            self.busy = busy_pods(pods, self.request.namespace)
            self.machines = busy_pods(pods, self.request.namespace, ANY_DEVICE)
            changes = self._changes(nodes, wanted)
        findings = findings + [finding for change in changes for finding in change.findings]
        return [change for change in changes if change], findings

    def _plan_gates(self, nodes: Sequence[Object], wanted: Mapping[str, Wanted]) -> List[Finding]:
        if not self.gating or all(one.gate is None for one in wanted.values()):
            return []
        proof = read_proof(self.request.connection, self.request.namespace)
        self.gates = gates_of({str(node["metadata"]["name"]): node for node in nodes}, wanted, proof)
        return refusal_findings(proof.refusing)

    def facts_of(self, node: Object) -> NodeFacts:
        """A node as operands see it, with what its groups say of its runtime and driver."""
        facts = node_facts(node)
        mine = [group for group in self.groups if group.selector.matches(facts.labels)]
        for group in mine:
            if group.runtime is not None:
                facts = replace(facts, runtime=group.runtime.kind, setup=group.runtime)
        return replace(facts, driver=next((group.driver for group in mine if group.driver is not None), None))

    def hide(self, nodes: Sequence[Object]) -> Hidden:
        """What is to be hidden on each node, and remember it.

        A node of which NFD has not (or no longer) told that it has a GPU is among them: once it does, pods come.
        """
        named = [(str(node["metadata"]["name"]), node["metadata"].get("labels") or {}) for node in nodes]
        self.hidden = {
            name: group.hidden_gpus
            for group in self.groups
            if group.hidden_gpus
            for name, labels in named
            if group.selector.matches(labels) and (is_gpu_node(labels) or not has_features(labels))
        }
        return self.hidden

    def _set_apart(self, nodes: Sequence[Object]) -> None:
        """Labels of nodes whose runtime is not set up as the first one of the cluster, or whose group has a driver."""
        self._apart = {}
        if self.policy is None:
            return
        found = [facts for facts in map(self.facts_of, nodes) if has_gpu(facts.labels)]
        first, _others = split(facts.runtime_setup for facts in found)
        for facts in found:
            if self.policy.toolkit.enabled and facts.runtime_setup != first:
                self._apart.setdefault(facts.name, {})[RUNTIME_LABEL] = facts.runtime_setup.name
            if self.policy.driver.enabled and facts.driver is not None:
                self._apart.setdefault(facts.name, {})[DRIVER_LABEL] = facts.driver.group

    def _assign(self, nodes: Sequence[Object]) -> Tuple[Dict[str, Wanted], List[Finding]]:
        if not self.groups:
            return {}, []
        facts = [node_facts(node) for node in nodes]
        gpu_nodes = [node for node in facts if has_gpu(node.labels)]
        return assign(self.groups, gpu_nodes, self.mig_configs, self.plugin_configs)

    def _changes(self, nodes: Sequence[Object], wanted: Mapping[str, Wanted]) -> List[NodeChange]:
        return [self.change(node, wanted.get(str(node["metadata"]["name"]), Wanted())) for node in nodes]

    def change(self, node: Object, wanted: Wanted) -> NodeChange:
        """The change of one node as it is now."""
        facts = node_facts(node)
        busy, machines = self.busy.get(facts.name, ()), self.machines.get(facts.name, ())
        if self.policy is not None and not self.groups:
            # Groups that another run (gpu_nodes) set up are not this one's to take back.
            return NodeChange(node, (self._labels_of(self.policy, facts, busy),))
        wanted = replace(wanted, gate=self.gates.get(facts.name, wanted.gate))
        first = plan_group(facts, wanted, node["spec"].get("taints") or [], busy, machines=machines)
        if self.policy is None:
            return NodeChange(node, (first,))
        labels, annotations = first.applied(facts)
        after = NodeFacts(facts.name, labels, annotations, facts.runtime, facts.kernel)
        return NodeChange(node, (first, self._labels_of(self.policy, after, busy)))

    def _labels_of(self, policy: Policy, facts: NodeFacts, busy: Sequence[str]) -> LabelChange:
        gone, none = facts.name in self.driverless, facts.name in self.gpuless
        machines, hides = self.machines.get(facts.name, ()), facts.name in self.hidden
        return plan_labels(policy, facts, busy, self._apart.get(facts.name), gone, none, machines, hides)

    def write(self, journal: Journal, changes: Sequence[NodeChange]) -> None:
        """Carry out changes, several nodes at once; one that somebody else changed meanwhile is planned anew.

        Ends with the first node that cannot be written, once those that are on their way have ended.
        """
        wanted, _findings = self._assign([change.node for change in changes])

        def write(number: int, change: NodeChange) -> None:
            if number == 1 or number % 50 == 0:
                self.request.progress(f"nodes: labels of {change.name} ({number}/{len(changes)})")
            compute = partial(self._patch_now, wanted.get(change.name, Wanted()))
            act = partial(patch_node, self.request.connection, change.node, compute, self.request.deadline)
            journal.carry_out(change.actions(), act, f"node {change.name}: its labels cannot be written")

        each_at_once(write, changes)

    def _patch_now(self, wanted: Wanted, live: Mapping[str, Any]) -> Dict[str, Any]:
        """The patch of a node as it is now, which may be another than when it was planned."""
        return self.change(slim_node(dict(live)), wanted).patch()


def each_at_once(write: Callable[[int, NodeChange], None], changes: Sequence[NodeChange]) -> None:
    """``write(number from 1, change)`` for every change, a few at a time; after a failure no further one is begun."""
    if len(changes) < 2:
        for change in changes:
            write(1, change)
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(changes))) as pool:
        ends = [pool.submit(write, number, change) for number, change in enumerate(changes, 1)]
        try:
            for end in ends:
                end.result()
        finally:
            for end in ends:
                end.cancel()


def untolerated_taints(groups: Sequence[NodeGroup], daemonsets: Sequence[Object]) -> List[Finding]:
    """Taints of groups that would drive the operands themselves off the nodes."""
    found = []
    for index, group in enumerate(groups):
        gate = untolerated(daemonsets, [{"key": GATE, "effect": GATE_EFFECT}]) if group.ready_gate else []
        if gate:
            remedy = "Run gpufleet.nvidia.cluster_policy with these groups first, which adds the toleration."
            path_of = f"node_groups[{index}].ready_gate"
            found.append(Finding("groups.untolerated", ERROR, f"{gate[0]}.", group.name, path_of, remedy))
        sentences = untolerated(daemonsets, [group.taint]) if group.taint is not None else []
        if sentences:
            more = f" and {len(sentences) - 1} more" if len(sentences) > 1 else ""
            remedy = "Use the effect NoSchedule, or add the toleration to daemonsets.tolerations of the policy."
            path_of = f"node_groups[{index}].taint"
            found.append(Finding("groups.untolerated", ERROR, f"{sentences[0]}{more}.", group.name, path_of, remedy))
    return found


def gates_without_proof(groups: Sequence[NodeGroup], daemonsets: Sequence[Object]) -> List[Finding]:
    """Groups whose nodes would be closed for good: nothing there passes them."""
    if any(made["metadata"]["name"] == VALIDATOR for made in daemonsets):
        return []
    detail = f"no DaemonSet {VALIDATOR} is in this namespace, so nothing would ever open the nodes"
    remedy = "Run gpufleet.nvidia.cluster_policy with these groups first, or name the namespace of its operands."
    return [
        Finding("groups.no-validator", ERROR, f"{detail}.", group.name, f"node_groups[{index}].ready_gate", remedy)
        for index, group in enumerate(groups)
        if group.ready_gate
    ]


def live_configs(request: Request, workload: str, container: str) -> Optional[List[str]]:
    """Names of the configurations that a DaemonSet in the cluster offers; None where there is none to ask.

    The device plugin mounts a ConfigMap with one key a configuration, at ``/available-configs``.
    """
    live = request.connection.find(path("DaemonSet", request.namespace, workload))
    if live is None:
        return None
    spec = live["spec"]["template"]["spec"]
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    mounts = [m for c in containers if c["name"] == container for m in c.get("volumeMounts") or []]
    names = [m["name"] for m in mounts if m["mountPath"] == "/available-configs"]
    for volume in spec.get("volumes") or []:
        if volume["name"] in names and volume.get("configMap"):
            found = request.connection.find(path("ConfigMap", request.namespace, volume["configMap"]["name"]))
            return sorted((found or {}).get("data") or {})
    return []


def read_groups(request: Request) -> Tuple[List[NodeGroup], List[Finding]]:
    """The groups of the module's parameters."""
    return parse_groups(request.node_groups)


def gpu_part(pod: Object) -> Object:
    """A pod cut down to who it is, where it is, and which resources it asks for."""
    spec = pod.get("spec") or {}

    def amounts(name: str) -> List[Dict[str, Any]]:
        return [{"resources": c.get("resources") or {}} for c in spec.get(name) or []]

    meta = {k: pod["metadata"].get(k) for k in ("name", "namespace", "labels")}
    parts = {"containers": amounts("containers"), "initContainers": amounts("initContainers")}
    status = {"phase": (pod.get("status") or {}).get("phase")}
    return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": spec.get("nodeName"), **parts}, "status": status}
