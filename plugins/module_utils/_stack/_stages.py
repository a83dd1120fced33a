# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for the stack, stage by stage, and for what the nodes offer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .._kube._connection import Deadline
from .._kube._lists import list_objects
from .._kube._resources import Object, Ref, path, ref
from .._kube._wait import Check, Outcome, explain, pod_ready, rollout_state, wait
from .._kube._watch import Mirror, Query, until
from .._operands._types import Operand
from .._plan import Action
from ._facts import slim_node
from ._journal import Journal

WORKLOADS = ("DaemonSet", "Deployment")
# The validator proves the others, so it is the last to become ready.
LAST = "state-operator-validation"
# An image that the registry does not have: the kubelet has tried it three times by then.
FINAL_AFTER = 30.0
SEEN_WITHIN = 30.0  # seconds in which the DaemonSet controller looks at a changed template
REVISION = "controller-revision-hash"


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


def wait_for(journal: Journal, stages: Sequence[Stage], driver_off: bool = False) -> None:
    """Wait until all stages are ready. Raises Failure that names stage, node, container and cause.

    A stage may take ``stage_timeout`` without any progress: each node that becomes ready starts that time anew, so that
    a large cluster needs no other setting than a small one.
    """
    request = journal.request
    checks = [Check(stage.operand.title, which) for stage in stages for which in stage.workloads]
    before = 0
    while checks:
        limited = [check._replace(seconds=request.stage_timeout) for check in checks]
        outcome = wait(request.connection, limited, request.deadline, request.progress, fail_after=FINAL_AFTER)
        if outcome.ready:
            return
        up = sum(state.up for state in outcome.states.values())
        if outcome.timed_out and up > before and not request.deadline.passed:
            before = up
            continue
        raise journal.failure(_sentence(journal, outcome, driver_off))


def _sentence(journal: Journal, outcome: Outcome, driver_off: bool) -> str:
    text = explain(outcome)
    if driver_off:
        names = _without_driver(journal)
        if names:
            shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            return (
                f"no driver on {shown}: the policy has driver.enabled false, and validation finds none on the host. "
                "Install one there, set driver.enabled to true, or keep the stack off these nodes with the label "
                f"nvidia.com/gpu.deploy.operands=false. {text}"
            )
    return text


def _without_driver(journal: Journal) -> List[str]:
    """Nodes whose pods still look for a driver."""
    pods = list_objects(journal.request.connection, "Pod", journal.request.namespace).items
    found = set()
    for pod in pods:
        for entry in (pod.get("status") or {}).get("initContainerStatuses") or []:
            if entry.get("name") == "driver-validation" and not _succeeded(entry) and pod["spec"].get("nodeName"):
                found.add(str(pod["spec"]["nodeName"]))
    return sorted(found)


def _succeeded(entry: Mapping[str, Any]) -> bool:
    return ((entry.get("state") or {}).get("terminated") or {}).get("exitCode") == 0


def replace_stuck_drivers(journal: Journal, daemonsets: Sequence[Object]) -> int:
    """Delete driver pods of an older template that never became ready: an OnDelete DaemonSet leaves them for ever.

    A driver that runs is never touched here: it reaches a new version by a rollout. Returns how many were deleted.
    """
    request, deleted = journal.request, 0
    connection = request.connection
    for daemonset in daemonsets:
        namespace = daemonset["metadata"]["namespace"]
        # The revision of the newest template is there once the controller has seen it.
        until(connection, ref(daemonset), _seen, Deadline(min(SEEN_WITHIN, journal.request.deadline.left)))
        app = daemonset["spec"]["selector"]["matchLabels"]["app"]
        uid = str(daemonset["metadata"].get("uid"))
        newest = _newest_revision(journal, namespace, app, uid)
        for pod in list_objects(connection, "Pod", namespace, label_selector=f"app={app}").items:
            revision = pod["metadata"]["labels"].get(REVISION)
            # Driver DaemonSets share the label app: pods of another one are not outdated.
            mine = any(str(o.get("uid")) == uid for o in pod["metadata"].get("ownerReferences") or [])
            if mine and newest and revision != newest and not pod_ready(pod) and not _ever_started(pod):
                name = str(pod["metadata"]["name"])
                target = f"Pod {namespace}/{name}"
                reason = "is of an older template and never became ready"
                action = Action(f"delete {target}", "delete", target, reason, True)
                act = partial(connection.request, "DELETE", path("Pod", namespace, name), deadline=request.deadline)
                journal.carry_out([action], act, f"driver: {target} cannot be replaced")
                deleted += 1
    return deleted


def _seen(daemonset: Optional[Mapping[str, Any]]) -> bool:
    if daemonset is None:
        return True
    status = daemonset.get("status") or {}
    return int(status.get("observedGeneration") or 0) >= int(daemonset["metadata"].get("generation") or 0)


def _newest_revision(journal: Journal, namespace: str, app: str, uid: str) -> str:
    revisions = list_objects(
        journal.request.connection, "ControllerRevision", namespace, label_selector=f"app={app}"
    ).items
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
    journal: Journal, nodes: Sequence[Object], missing: Callable[[Mapping[str, Any]], str], what: str
) -> Tuple[List[Object], Dict[str, str]]:
    """Wait until ``missing(node)`` is "" for every node; the nodes then, and what is still missing by node.

    Reads nothing when nothing is missing in ``nodes``. Waits ``stage_timeout`` without progress at most.
    """
    gaps = _gaps(nodes, missing)
    if not gaps or not journal.request.wait:
        return list(nodes), gaps
    request = journal.request
    limit = Deadline(min(request.stage_timeout, request.deadline.left))
    with Mirror(request.connection, {"nodes": Query("Node", keep=slim_node)}) as mirror:
        current = mirror.objects("nodes")
        while True:
            now = _gaps(current, missing)
            if len(now) < len(gaps):
                limit = Deadline(min(request.stage_timeout, request.deadline.left))
            gaps = now
            if not gaps or limit.passed:
                return current, gaps
            first = sorted(gaps)[0]
            request.progress(f"{what}: {len(current) - len(gaps)}/{len(current)} nodes, next {first}: {gaps[first]}")
            mirror.wait(min(5.0, limit.left))
            current = mirror.objects("nodes")


def _gaps(nodes: Sequence[Mapping[str, Any]], missing: Callable[[Mapping[str, Any]], str]) -> Dict[str, str]:
    found = {str(node["metadata"]["name"]): missing(node) for node in nodes}
    return {name: text for name, text in found.items() if text}
