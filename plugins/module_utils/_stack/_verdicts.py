# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes are broken, which are only slow, and how many may be broken.

A node is broken when the first thing that is not in order on it has been broken for as long as its cause deserves: an
image that no registry has soon, a crash loop after the kubelet's back-off. Broken nodes are not waited for, and a node
that mends itself meanwhile is waited for again.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timezone
from typing import Callable, Collection, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .._kube._resources import Object, ref
from .._kube._wait import Judge, Scene, diagnose, pod_ready
from .._nodes._causes import FINAL, LONG, MOMENT, SILENT, cause_of, names
from .._nodes._hidden import Hidden
from .._nodes._keys import has_features
from .._nodes._models import Gpus
from .._nodes._stage import (
    ALLOCATABLE,
    OPERAND_APPS,
    READY,
    Stage,
    down,
    is_gpu_node,
    node_ready,
    pod_stage,
    stage,
    unseen_gpus,
)
from .._nodes._taints import tolerates
from .._plan import WARNING, Finding
from ._facts import slim_node, with_hardware

# Patience in units of the time that an image which is nowhere is given.
UNITS = {FINAL: 1.0, MOMENT: 4.0, LONG: 10.0}
SEEN_FOR = 0.05  # units that a node must have been seen broken, however long it says it has been: lists may be stale
EVENTS_AFTER = 0.5  # units that a node must have been stuck for until events are read
NFD = "NFD"
_OPERANDS = {title for _app, title in OPERAND_APPS}


class Verdicts(Judge):
    """``failed``: broken nodes, with the stage at which each stands. ``layers``: operands that count, if not all do.

    ``clock`` measures time here; ``now`` is the API server's, by which it tells since when something is as it is.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        unit: Callable[[], float],
        layers: Optional[Collection[str]] = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.failed: Dict[str, Stage] = {}
        self.hardware: Mapping[str, Gpus] = {}  # GPUs on the PCI bus, by node
        self.hidden: Hidden = {}
        # How what a node offers differs from what was computed for it; None where nothing was.
        self.unlike: Callable[[Object], Optional[str]] = lambda node: None
        self.layers = layers
        self._clock = clock
        self._unit = unit
        self._now = now
        self._stuck: Dict[str, Tuple[str, float]] = {}  # where a node stands, broken or slow, and since when
        self._broken: Dict[str, Tuple[str, float]] = {}  # what is broken on it, and since when
        self._last: Dict[str, Stage] = {}
        self._over: Set[str] = set()  # nodes whose time is over
        self._next = 0.0

    def keep(self, node: Object) -> Object:
        """What stages need of a node."""
        return slim_node(node)

    def broken(self, scene: Scene) -> Collection[str]:
        """Nodes that operands need not be waited for on."""
        if self._clock() >= self._next:
            began = self._clock()
            self._look(scene)
            # Looking at thousands of nodes takes its time: never more than a part of all.
            self._next = self._clock() + max(0.5, 5 * (self._clock() - began))
        return set(self.failed)

    def _look(self, scene: Scene) -> None:
        mine = _by_node(scene.pods)
        known: List[Object] = [w for w in scene.workloads if w["kind"] == "DaemonSet"]
        others = {str(w["metadata"].get("uid")): w for w in known if scene.titles.get(ref(w)) == NFD}
        for node in scene.nodes:
            name = str(node["metadata"]["name"])
            operands = [w for w in known if w not in others.values()]
            at = self._told(node, mine.get(name, []), operands, others, scene.events)
            self._last[name] = at
            self.tell(name, at if at.stuck in _OPERANDS | {"node", NFD} else Stage(at.reached))

    def _stage(
        self,
        node: Object,
        pods: Sequence[Object],
        daemonsets: Sequence[Object],
        others: Mapping[str, Object],
        events: Sequence[Object],
    ) -> Stage:
        if not node_ready(node):
            return down(node)
        for uid, made in others.items():
            own = [p for p in pods if any(str(o.get("uid")) == uid for o in p["metadata"].get("ownerReferences") or [])]
            if any(pod_ready(pod) for pod in own):
                continue
            if own:
                return pod_stage(NFD, own[0], events)
            if all(tolerates(made["spec"]["template"]["spec"], t) for t in node["spec"]["taints"]):
                return _refused_or_slow(made, events)
        return stage(node, pods, daemonsets, events, self.layers) if daemonsets else Stage("")

    def tell(self, name: str, at: Stage) -> None:
        """A look at a node: it counts as broken once it has been so for long enough."""
        if name in self._over and at.stuck and not at.ready:
            return
        self._over.discard(name)
        seen = self._lasts(self._broken, name, at.stuck if at.failed else "")
        enough = UNITS[at.patience] * self._unit()
        if at.failed and max(seen, _age(at.since, self._now())) >= enough and seen >= SEEN_FOR * self._unit():
            self.failed[name] = at
        else:
            self.failed.pop(name, None)

    def stuck_at(self, name: str) -> str:
        """The layer at which a node is broken; "" when it is not."""
        return self.failed[name].stuck if name in self.failed else ""

    def late(self, name: str, at: Stage, seconds: float = 0.0) -> None:
        """A node whose time is over counts as broken, whatever it does."""
        text = at.trouble if at.failed else f"not ready after {seconds:g} s: {at.trouble or 'no reason given'}"
        remedy = at.remedy or "If it only takes its time, raise stage_timeout."
        self.failed[name] = replace(at, failed=True, trouble=text, remedy=remedy)
        self._over.add(name)

    def give_up(self, name: str, pod: Object, title: str, seconds: float) -> None:
        """The same of a node whose pod of a stage is late."""
        at = self._last.get(name)
        self.late(name, at if at is not None and at.stuck else pod_stage(title, pod), seconds)

    def unproved(self, scene: Scene, among: Collection[str]) -> Dict[str, Stage]:
        """Nodes of ``among`` that are neither ready nor broken for good, and where they stand."""
        mine, found = _by_node(scene.pods), {}
        for node in with_hardware(scene.nodes, self.hardware, self.hidden):
            name = str(node["metadata"]["name"])
            if name in among:
                at = self._told(node, mine.get(name, []), scene.workloads, {}, scene.events)
                other = self.unlike(node) if at.ready or at.stuck == ALLOCATABLE else None
                if other == "" and not unseen_gpus(node):
                    at = Stage(READY, True)  # labels of another configuration may promise something else
                elif other:
                    remedy = "See the log of the device plugin's pod on the node."
                    at = Stage(at.reached, False, ALLOCATABLE, other, True, remedy=remedy)
                self.tell(name, at)
                if not at.ready and name not in self.failed:
                    found[name] = at
        return found

    def _told(
        self,
        node: Object,
        pods: Sequence[Object],
        daemonsets: Sequence[Object],
        others: Mapping[str, Object],
        events: Callable[[], List[Object]],
    ) -> Stage:
        """Where a node stands; events, which are many, are read only when it has stood there for a while."""
        at = self._stage(node, pods, daemonsets, others, ())
        stuck_for = self._lasts(self._stuck, str(node["metadata"]["name"]), at.stuck)
        if at.failed or not at.stuck or stuck_for <= EVENTS_AFTER * self._unit():
            return at
        return self._stage(node, pods, daemonsets, others, events())

    def _lasts(self, seen: Dict[str, Tuple[str, float]], name: str, what: str) -> float:
        """Seconds for which the same has been seen of a node."""
        now = self._clock()
        if seen.get(name, ("", 0.0))[0] != what:
            seen[name] = (what, now)
        return now - seen.setdefault(name, (what, now))[1]

    def unexplained(self) -> List[str]:
        """Broken nodes on which a container ended without a word."""
        return sorted(name for name, at in self.failed.items() if at.trouble.endswith(SILENT))

    def explain(self, nodes: Sequence[Object], pods: Sequence[Object], daemonsets: Sequence[Object]) -> None:
        """Look at those again, with pods that have the last words of their containers."""
        mine = _by_node(pods)
        for node in nodes:
            name = str(node["metadata"]["name"])
            if name in self.unexplained():
                at = stage(node, mine.get(name, []), daemonsets, (), self.layers)
                if at.failed and at.stuck == self.failed[name].stuck:
                    self.failed[name] = at

    def findings(self, nodes: Sequence[Object]) -> List[Finding]:
        """One warning for each cause, with the nodes that it is about."""
        there = {str(node["metadata"]["name"]) for node in nodes}
        return [
            Finding("node.failed", WARNING, f"{at.stuck} failed: {at.trouble}", names(found), remedy=at.remedy)
            for at, found in self._by_cause(there)
        ]

    def counted(self, nodes: Sequence[Object]) -> List[str]:
        """Broken nodes that count: those with GPUs, and those of which NFD could not tell."""
        found = []
        for node in nodes:
            labels, at = node["metadata"].get("labels") or {}, self.failed.get(str(node["metadata"]["name"]))
            unknown = at is not None and at.stuck == NFD and not has_features(labels)
            if at is not None and (is_gpu_node(labels) or unknown):
                found.append(str(node["metadata"]["name"]))
        return sorted(found)

    def summary(self, counted: Sequence[str], total: int, allowed: int) -> str:
        """The sentences of broken nodes, and how many there are."""
        lines = [f"{names(found)}: {at.sentence}" for at, found in self._by_cause(set(counted))]
        count = f"{len(counted)} of {total} GPU nodes failed, {f'{allowed} may' if allowed else 'none may'}"
        if len(lines) == 1:
            return f"{lines[0]} {count}"
        return "\n- ".join([f"{count}:", *lines])

    def _by_cause(self, among: Collection[str]) -> List[Tuple[Stage, List[str]]]:
        causes: Dict[Tuple[str, str], Tuple[Stage, List[str]]] = {}
        for name in sorted(set(self.failed) & set(among)):
            at = self.failed[name]
            causes.setdefault((at.stuck, at.trouble), (at, []))[1].append(name)
        return list(causes.values())


def _age(since: str, now: float) -> float:
    """Seconds since a time that the API server tells, by its own clock; 0 when it tells none."""
    try:
        then = datetime.strptime(since, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return 0.0
    return max(0.0, now - then.timestamp())


def _by_node(pods: Sequence[Object]) -> Dict[str, List[Object]]:
    found: Dict[str, List[Object]] = {}
    for pod in pods:
        found.setdefault(str((pod.get("spec") or {}).get("nodeName") or ""), []).append(pod)
    return found


def _refused_or_slow(made: Object, events: Sequence[Object]) -> Stage:
    trouble = diagnose(made, [], events)
    if trouble is None:
        return Stage("", False, NFD, "its pod is not there yet")
    cause = cause_of(NFD, trouble)
    return Stage("", False, NFD, cause.text, True, (), cause.remedy, cause.patience)
