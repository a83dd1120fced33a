# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for the stack, stage by stage, and for what the nodes offer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from .._kube._connection import Connection, Deadline
from .._kube._lists import list_objects
from .._kube._resources import Object, Ref, path, ref
from .._kube._wait import (
    EVENTS_EVERY,
    REVISION,
    Check,
    Outcome,
    Scene,
    explain,
    pod_ready,
    rollout_state,
    slim_pod,
    slim_workload,
    wait,
)
from .._kube._watch import Mirror, Query, until
from .._nodes._causes import cause_of
from .._nodes._stage import title_of
from .._operands._types import Operand
from .._plan import WARNING, Action, Finding
from ._facts import slim_node
from ._journal import Journal
from ._verdicts import Verdicts

WORKLOADS = ("DaemonSet", "Deployment")
# The validator proves the others, so it is the last to become ready.
LAST = "state-operator-validation"
# An image that the registry does not have: the kubelet has tried it three times by then.
FINAL_AFTER = 30.0
SEEN_WITHIN = 30.0  # seconds in which the DaemonSet controller looks at a changed template


@dataclass(frozen=True)
class Stage:
    """An operand and the DaemonSets and Deployments that it runs."""

    operand: Operand
    workloads: Tuple[Ref, ...]


def stages_of(built: Sequence[Tuple[Operand, Sequence[Object]]]) -> List[Stage]:
    """Stages that have something to wait for, in the order in which they become ready."""
    found = [Stage(operand, tuple(ref(o) for o in objects if o["kind"] in WORKLOADS)) for operand, objects in built]
    return sorted((stage for stage in found if stage.workloads), key=lambda stage: stage.operand.name == LAST)


def stage_rows(stages: Sequence[Stage], live: Mapping[Ref, Object]) -> List[Dict[str, Any]]:
    """Stages as they are returned by modules."""
    rows = []
    for stage in stages:
        states = [rollout_state(live[which]) for which in stage.workloads if which in live]
        desired, ready = sum(s.wanted for s in states), sum(s.up for s in states)
        waiting = len(states) < len(stage.workloads) or any(not s.ready for s in states)
        rows.append(
            {
                "name": stage.operand.name,
                "title": stage.operand.title,
                "state": "waiting" if waiting else ("ready" if desired else "no nodes"),
                "workloads": [which.name for which in stage.workloads],
                "desired": desired,
                "ready": ready,
            }
        )
    return rows


def all_ready(stages: Sequence[Stage], live: Mapping[Ref, Object]) -> bool:
    """Whether every workload was ready when it was last read."""
    refs = [which for stage in stages for which in stage.workloads]
    return all(which in live and rollout_state(live[which]).ready for which in refs)


def wait_for(journal: Journal, stages: Sequence[Stage], verdicts: Verdicts) -> None:
    """Wait until all stages are ready on all nodes that can become ready. ``verdicts`` knows the others then.

    A stage may take ``stage_timeout`` without any progress: each node that becomes ready starts that time anew, so that
    a large cluster needs no other setting than a small one. Nodes that are not ready by then count as broken, too.
    Raises Failure for what is no node's fault: a Deployment, or a workload that is gone.
    """
    request = journal.request
    checks = [Check(stage.operand.title, which) for stage in stages for which in stage.workloads]
    before = 0
    while checks:
        limited = [check._replace(seconds=request.stage_timeout) for check in checks]
        outcome = wait(
            request.connection, limited, request.deadline, request.progress, fail_after=FINAL_AFTER, judge=verdicts
        )
        if outcome.ready and not outcome.held:
            return
        if outcome.held:
            if not _replace_held(journal, outcome.held, verdicts):
                return
            continue
        up = sum(state.up for state in outcome.states.values())
        if outcome.timed_out and up > before and not request.deadline.passed:
            before = up
            continue
        if outcome.timed_out and _give_up(journal, outcome, {c.ref: c.stage for c in checks}, verdicts):
            continue
        raise journal.failure(_sentence(outcome))


def _give_up(journal: Journal, outcome: Outcome, titles: Mapping[Ref, str], verdicts: Verdicts) -> bool:
    """Count nodes whose time is over as broken. False when there was none to count, so that nothing would change."""
    late: Dict[str, Tuple[Object, str]] = {}
    for which, pods in outcome.late.items():
        for pod in pods:
            late.setdefault(_node_of(pod), (pod, titles[which]))
    found = sorted(name for name in late if name and name not in verdicts.failed)
    for name in found:
        verdicts.give_up(name, *late[name], journal.request.stage_timeout)
    return bool(found)


def _sentence(outcome: Outcome) -> str:
    text = explain(outcome)
    if outcome.failed is None or outcome.trouble is None:
        return text
    return f"{text}. {cause_of(outcome.failed.stage, outcome.trouble).remedy}"


def _replace_held(journal: Journal, held: Sequence[Ref], verdicts: Verdicts) -> int:
    """Delete outdated pods on good nodes, as many at once as may be unavailable, and say how many were deleted.

    Only where the new template is not itself in doubt: it runs somewhere, or something else broke the nodes on which it
    does not. Then one pod is replaced at first.
    """
    request, deleted = journal.request, 0
    for which in held:
        daemonset = request.connection.find(which.path)
        if daemonset is None:
            continue
        labels = daemonset["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        newest = _newest_revision(journal, which.namespace, selector, str(daemonset["metadata"].get("uid")))
        pods = list_objects(request.connection, "Pod", which.namespace, label_selector=selector).items
        new = [p for p in pods if p["metadata"]["labels"].get(REVISION) == newest]
        old = sorted((p for p in pods if p not in new and _node_of(p) not in verdicts.failed), key=_node_of)
        proved = any(pod_ready(pod) for pod in new)
        layer = title_of(daemonset["spec"]["template"]["metadata"].get("labels") or {})
        if not newest or not old:
            continue
        if not proved and all(verdicts.stuck_at(_node_of(pod)) in ("", layer) for pod in new):
            detail = f"{len(old)} of its pods keep the older template, since none of the new ones has come up"
            remedy = "Mend what is told of these nodes, or go back to the settings before, then run again."
            journal.add_findings([Finding("rollout.held", WARNING, detail, str(which), remedy=remedy)])
            continue
        for pod in old[: _at_once(daemonset, len(pods)) if proved else 1]:
            _delete_pod(journal, pod, "is of an older template, and broken nodes hold up its controller", which.name)
            deleted += 1
    return deleted


def _node_of(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _at_once(daemonset: Mapping[str, Any], pods: int) -> int:
    """How many pods the update strategy of a DaemonSet replaces at once."""
    strategy = (daemonset["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    text = str(strategy.get("maxUnavailable") or 1)
    return max(1, int(text[:-1]) * pods // 100 if text.endswith("%") else int(text))


def _delete_pod(journal: Journal, pod: Mapping[str, Any], reason: str, what: str) -> None:
    meta = pod["metadata"]
    target = f"Pod {meta['namespace']}/{meta['name']}"
    action = Action(f"delete {target}", "delete", target, reason, True)
    where = path("Pod", meta["namespace"], meta["name"])
    act = partial(journal.request.connection.request, "DELETE", where, deadline=journal.request.deadline)
    journal.carry_out([action], act, f"{what}: {target} cannot be replaced")


def replace_outdated(
    journal: Journal, daemonsets: Sequence[Object], idle: Callable[[str, str], bool] = lambda name, node: False
) -> int:
    """Delete pods of an older template that never became ready: an OnDelete DaemonSet leaves them for ever.

    A driver that runs is never touched here: it reaches a new version by a rollout. ``idle(daemonset, node)``: whether
    a pod that works may be replaced too, since nothing there uses what it does. Returns how many were deleted.
    """
    request, deleted = journal.request, 0
    connection = request.connection
    for daemonset in daemonsets:
        namespace = daemonset["metadata"]["namespace"]
        # The revision of the newest template is there once the controller has seen it.
        until(connection, ref(daemonset), _seen, Deadline(min(SEEN_WITHIN, journal.request.deadline.left)))
        app = daemonset["spec"]["template"]["metadata"]["labels"]["app"]
        uid = str(daemonset["metadata"].get("uid"))
        newest = _newest_revision(journal, namespace, f"app={app}", uid)
        for pod in list_objects(connection, "Pod", namespace, label_selector=f"app={app}").items:
            revision = pod["metadata"]["labels"].get(REVISION)
            # Driver DaemonSets share the label app: pods of another one are not outdated.
            mine = any(str(o.get("uid")) == uid for o in pod["metadata"].get("ownerReferences") or [])
            if not mine or not newest or revision == newest:
                continue
            name, why = daemonset["metadata"]["name"], ""
            if not pod_ready(pod) and not _ever_started(pod):
                why = "never became ready"
            elif idle(name, _node_of(pod)):
                why = "nothing uses what it does"
            if why:
                _delete_pod(journal, pod, f"is of an older template, and {why}", name)
                deleted += 1
    return deleted


def _seen(daemonset: Optional[Mapping[str, Any]]) -> bool:
    if daemonset is None:
        return True
    status = daemonset.get("status") or {}
    return int(status.get("observedGeneration") or 0) >= int(daemonset["metadata"].get("generation") or 0)


def _newest_revision(journal: Journal, namespace: str, selector: str, uid: str) -> str:
    connection = journal.request.connection
    revisions = list_objects(connection, "ControllerRevision", namespace, label_selector=selector).items
    own = [r for r in revisions if any(str(o.get("uid")) == uid for o in r["metadata"].get("ownerReferences") or [])]
    if not own:
        return ""
    newest = max(own, key=lambda r: int(r.get("revision") or 0))
    return str((newest["metadata"].get("labels") or {}).get(REVISION) or "")


def _ever_started(pod: Mapping[str, Any]) -> bool:
    """Whether its main container ever ran: then a driver may be loaded, and the pod is not ours to replace."""
    entries = (pod.get("status") or {}).get("containerStatuses") or []
    return any(e.get("started") or "running" in (e.get("state") or {}) or (e.get("lastState") or {}) for e in entries)


def wait_for_nodes(
    journal: Journal,
    nodes: Sequence[Object],
    missing: Callable[[Mapping[str, Any]], str],
    what: str,
    patience: float = float("inf"),
) -> Tuple[List[Object], Dict[str, str]]:
    """Wait until ``missing(node)`` is "" for every node; the nodes then, and what is still missing by node.

    Reads nothing when nothing is missing in ``nodes``. Waits ``stage_timeout`` without progress at most, or
    ``patience`` seconds if that is less.
    """
    gaps = _gaps(nodes, missing)
    if not gaps or not journal.request.wait:
        return list(nodes), gaps
    request = journal.request
    limit = Deadline(min(request.stage_timeout, patience, request.deadline.left))
    with Mirror(request.connection, {"nodes": Query("Node", keep=slim_node)}) as mirror:
        current = mirror.objects("nodes")
        while True:
            now = _gaps(current, missing)
            if len(now) < len(gaps):
                limit = Deadline(min(request.stage_timeout, patience, request.deadline.left))
            gaps = now
            if not gaps or limit.passed:
                return current, gaps
            first = sorted(gaps)[0]
            request.progress(f"{what}: {len(current) - len(gaps)}/{len(current)} nodes, next {first}: {gaps[first]}")
            mirror.wait(min(5.0, limit.left))
            current = mirror.objects("nodes")


def wait_until_proved(journal: Journal, names: Collection[str], verdicts: Verdicts) -> List[Object]:
    """Wait until each of the named nodes is ready by its own word, or broken for good; the nodes then.

    What a node offers is what its kubelet says; why it does not is told by its pods.
    """
    request, namespace = journal.request, journal.request.namespace
    queries = {
        "nodes": Query("Node", keep=slim_node),
        "pods": Query("Pod", namespace, keep=slim_pod),
        "daemonsets": Query("DaemonSet", namespace, keep=slim_workload),
    }
    left, shown = len(names) + 1, ""
    limit = Deadline(0.0)
    events = _Recent(request.connection, namespace)
    with Mirror(request.connection, queries) as mirror:
        while True:
            nodes = mirror.objects("nodes")
            scene = Scene(nodes, mirror.objects("pods"), mirror.objects("daemonsets"), events, {})
            late = verdicts.unproved(scene, names)
            if len(late) < left:
                left, limit = len(late), Deadline(min(request.stage_timeout, request.deadline.left))
            if not late:
                return nodes
            if limit.passed:
                for name, at in late.items():
                    verdicts.late(name, at, request.stage_timeout)
                return nodes
            first = sorted(late)[0]
            line = f"allocatable: {len(names) - len(late)}/{len(names)} nodes, next {first}: {late[first].trouble}"
            if line != shown:
                request.progress(line)
            shown = line
            mirror.wait(min(2.0, limit.left))


class _Recent:
    """Events of a namespace, some seconds old at most."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self.connection, self.namespace = connection, namespace
        self.found: List[Object] = []
        self.until = Deadline(0.0)

    def __call__(self) -> List[Object]:
        if self.until.passed:
            self.found = list_objects(self.connection, "Event", self.namespace).items
            self.until = Deadline(EVENTS_EVERY)
        return self.found


def _gaps(nodes: Sequence[Mapping[str, Any]], missing: Callable[[Mapping[str, Any]], str]) -> Dict[str, str]:
    found = {str(node["metadata"]["name"]): missing(node) for node in nodes}
    return {name: text for name, text in found.items() if text}
