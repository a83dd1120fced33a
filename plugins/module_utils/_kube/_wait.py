# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a workload ready, and if not: which container of which pod on which node is in the way, and why.

``rollout_state`` and ``diagnose`` are pure. ``wait`` watches workloads and their pods until all are ready, something
is wrong for good, or the deadline passes; it never sleeps for a fixed time.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ._connection import Connection, Deadline
from ._lists import list_objects
from ._resources import Object, Ref, ref
from ._watch import Mirror, Query

SHOW_EVERY = 5.0  # seconds between two lines of progress about the same stage
LOOK_AGAIN = 10.0  # seconds after which time alone may have changed the verdict (``fail_after``)

_PULL_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_NOT_THERE = re.compile(
    r"not found|manifest unknown|does not exist|repository .* denied|InvalidImageName", re.IGNORECASE
)


class State(NamedTuple):
    """Of a workload: ready, why, and its pods: ready ones, wanted ones, and those of an older template."""

    ready: bool
    reason: str
    up: int = 0
    wanted: int = 0
    outdated: int = 0


@dataclass(frozen=True)
class Trouble:
    """What is in the way, in words. ``reason`` is Kubernetes' own word for it; ``final``: waiting is no use."""

    reason: str
    message: str
    node: str = ""
    pod: str = ""
    container: str = ""
    final: bool = False

    def __str__(self) -> str:
        where = [f"node {self.node}" if self.node else "", f"pod {self.pod}" if self.pod else ""]
        where.append(f"container {self.container}" if self.container else "")
        place = ", ".join(part for part in where if part)
        return f"{place}: {self.message}" if place else self.message


class Check(NamedTuple):
    """One workload to wait for, under the name of its stage. ``wanted`` is the least number of its pods (0: none
    need be, as in a cluster without GPU nodes). ``seconds`` limits this stage alone, counted from the start of the
    wait."""

    stage: str
    ref: Ref
    wanted: int = 0
    seconds: Optional[float] = None


class Outcome(NamedTuple):
    """How a wait ended: the states by workload, and what stopped it (None: all are ready)."""

    states: Dict[Ref, State]
    failed: Optional[Check]
    trouble: Optional[Trouble]
    timed_out: bool

    @property
    def ready(self) -> bool:
        """True when every workload is ready."""
        return self.failed is None


# --- readiness ------------------------------------------------------------------------------------------------------


def rollout_state(workload: Mapping[str, Any], wanted: int = 0) -> State:
    """Readiness of a DaemonSet or Deployment from its own status.

    RollingUpdate and Deployment: updated = available = desired. OnDelete: every pod is ready, of whatever template (a
    new one reaches running pods only when they are replaced), and ``outdated`` counts the older ones. Never ready
    while the controller has not seen the newest spec, or with fewer pods than ``wanted``.
    """
    status = workload.get("status") or {}
    seen, newest = int(status.get("observedGeneration") or 0), int(workload["metadata"].get("generation") or 0)
    if workload["kind"] == "Deployment":
        return _deployment_state(workload, status, seen >= newest)
    desired = int(status.get("desiredNumberScheduled") or 0)
    updated, ready = int(status.get("updatedNumberScheduled") or 0), int(status.get("numberReady") or 0)
    available = int(status.get("numberAvailable") or 0)
    on_delete = (workload["spec"].get("updateStrategy") or {}).get("type") == "OnDelete"
    outdated = max(0, desired - updated) if on_delete else 0
    good = ready if on_delete else min(updated, available)
    if seen < newest:
        return State(False, "the controller has not seen its newest form yet", 0, max(desired, wanted), outdated)
    if desired < wanted:
        return State(
            False, f"{desired} of {wanted} nodes match its node selector", min(good, desired), wanted, outdated
        )
    if good < desired:
        return State(False, f"{good} of {desired} nodes ready", good, desired, outdated)
    return State(True, f"{good} of {desired} nodes ready" if desired else "no node needs it", good, desired, outdated)


def _deployment_state(workload: Mapping[str, Any], status: Mapping[str, Any], seen: bool) -> State:
    replicas = workload["spec"].get("replicas")
    desired = 1 if replicas is None else int(replicas)
    good = min(int(status.get("updatedReplicas") or 0), int(status.get("availableReplicas") or 0))
    total = int(status.get("replicas") or 0)
    if not seen:
        return State(False, "the controller has not seen its newest form yet", 0, desired)
    if good < desired or total > desired:
        return State(False, f"{good} of {desired} pods ready", good, desired)
    return State(True, f"{good} of {desired} pods ready", good, desired)


def pod_ready(pod: Mapping[str, Any]) -> bool:
    """True when the kubelet says so, and the pod is not on its way out."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


# --- diagnosis ------------------------------------------------------------------------------------------------------


def diagnose(
    workload: Mapping[str, Any],
    pods: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]] = (),
    nodes: Sequence[Mapping[str, Any]] = (),
) -> Optional[Trouble]:
    """What is wrong with a workload, the gravest first; None when its pods are ready or only take their time.

    ``pods`` are its own. ``events`` may be of a whole namespace. ``nodes`` tell which nodes are not ready (metadata
    and conditions).
    """
    refused = _refused(workload, pods, events)
    if refused:
        return refused
    down = {str(n["metadata"]["name"]) for n in nodes if not _node_ready(n)}
    troubles = [t for t in (_pod_trouble(p, events, down) for p in pods if not pod_ready(p)) if t]
    return min(troubles, key=lambda t: (_gravity(t), t.node, t.pod), default=None)


_GRAVITY = ("PullNeverWorks", "CrashLoopBackOff", "Pull", "FailedCreatePodSandBox", "FailedMount", "Unschedulable")


def _gravity(trouble: Trouble) -> int:
    name = trouble.reason
    if name in _PULL_REASONS:
        name = "PullNeverWorks" if trouble.final else "Pull"
    if name in ("Error", "OOMKilled"):
        name = "CrashLoopBackOff"
    return _GRAVITY.index(name) if name in _GRAVITY else len(_GRAVITY)


def _refused(
    workload: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
) -> Optional[Trouble]:
    """Pods that were never made: refused by pod security, a quota, a webhook, or a missing ServiceAccount."""
    which = ref(workload)
    owners = {which.name} | {str(r["name"]) for p in pods for r in p["metadata"].get("ownerReferences") or []}
    for event in _newest(events):
        about = event.get("involvedObject") or {}
        mine = str(about.get("name")) in owners or str(about.get("name", "")).startswith(which.name + "-")
        current = about.get("uid") in (None, "", workload["metadata"].get("uid")) or about.get("kind") == "ReplicaSet"
        if event.get("reason") == "FailedCreate" and mine and current and _later(event, pods):
            text = str(event.get("message") or "").replace("Error creating: ", "")
            return Trouble("FailedCreate", f"its pods are refused: {_cause_of_refusal(text)}{text}")
    return None


def _cause_of_refusal(text: str) -> str:
    if "violates PodSecurity" in text:
        fix = "pod-security.kubernetes.io/enforce=privileged"
        return f"pod security of the namespace does not allow them (label it {fix}). "
    if "exceeded quota" in text or "must specify" in text:
        return "a ResourceQuota of the namespace is in the way. "
    if "insufficient quota to match these scopes" in text:
        return "this cluster allows their priority class only with a ResourceQuota in the namespace. "
    if "webhook" in text:
        return "an admission webhook denies them. "
    return ""


def _pod_trouble(pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], down: Set[str]) -> Optional[Trouble]:
    name, node = str(pod["metadata"]["name"]), str((pod.get("spec") or {}).get("nodeName") or "")
    status = pod.get("status") or {}
    if node in down:
        return Trouble("NodeNotReady", "the node is not ready, its kubelet does not report", node, name)
    if pod["metadata"].get("deletionTimestamp"):
        return Trouble("Terminating", "the old pod has not ended yet", node, name)
    for entry in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        found = _container_trouble(entry, node, name)
        if found:
            return found
    if status.get("phase") == "Failed":
        text = status.get("message") or status.get("reason") or "no reason given"
        return Trouble(str(status.get("reason") or "Failed"), f"the pod failed: {text}", node, name)
    return _event_trouble(pod, events, node, name) or _pending_trouble(status, node, name)


def _container_trouble(entry: Mapping[str, Any], node: str, pod: str) -> Optional[Trouble]:
    state = entry.get("state") or {}
    container, image = str(entry.get("name")), str(entry.get("image"))
    waiting = state.get("waiting") or {}
    reason, text = str(waiting.get("reason") or ""), str(waiting.get("message") or "").strip()
    if reason in _PULL_REASONS:
        never = bool(_NOT_THERE.search(f"{reason} {text}"))
        return Trouble(reason, f"image {image} cannot be pulled: {text or reason}", node, pod, container, never)
    ended = (entry.get("lastState") or {}).get("terminated") or state.get("terminated") or {}
    failed = ended and (int(ended.get("exitCode") or 0) != 0)
    if reason == "CrashLoopBackOff" or (failed and not entry.get("ready") and int(entry.get("restartCount") or 0) > 0):
        return Trouble("CrashLoopBackOff", _crash(ended, int(entry.get("restartCount") or 0)), node, pod, container)
    if state.get("terminated") and failed:
        return Trouble(str(ended.get("reason") or "Error"), _crash(ended, 0), node, pod, container)
    if reason and reason not in ("PodInitializing", "ContainerCreating"):
        return Trouble(reason, f"the container cannot start: {text or reason}", node, pod, container)
    return None


def _crash(ended: Mapping[str, Any], restarts: int) -> str:
    text = str(ended.get("message") or "").strip()
    last = text.splitlines()[-1] if text else ""
    why = (
        "ran out of memory"
        if ended.get("reason") == "OOMKilled"
        else f"ended with exit code {ended.get('exitCode', '?')}"
    )
    times = f" ({restarts} restart{'s' if restarts != 1 else ''})" if restarts else ""
    return f"the container {why}{times}{': ' + last if last else ''}"


def _event_trouble(
    pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], node: str, name: str
) -> Optional[Trouble]:
    """What the kubelet only tells in events: volumes and the pod's sandbox."""
    for event in _newest(events):
        about = event.get("involvedObject") or {}
        same = about.get("uid") in (None, "", pod["metadata"].get("uid"))
        if about.get("kind") != "Pod" or about.get("name") != name or not same:
            continue
        reason, text = str(event.get("reason") or ""), str(event.get("message") or "")
        if reason == "FailedCreatePodSandBox":
            if "no runtime for" in text or "RuntimeHandler" in text:
                text = f"its runtime class is not configured in the node's container runtime ({text})"
            return Trouble(reason, f"the pod cannot be set up: {text}", node, name)
        if reason in ("FailedMount", "FailedAttachVolume"):
            return Trouble("FailedMount", f"a volume cannot be mounted: {text}", node, name)
    return None


def _pending_trouble(status: Mapping[str, Any], node: str, pod: str) -> Optional[Trouble]:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            text = str(condition.get("message") or "no reason given")
            return Trouble("Unschedulable", f"no node takes the pod: {text}", node, pod)
    return None


def _newest(events: Iterable[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    return sorted(events, key=_time, reverse=True)


def _time(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    found = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(found or event["metadata"].get("creationTimestamp") or "")


def _later(event: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> bool:
    """False when a pod was made after the refusal: it is over."""
    return all(str(p["metadata"].get("creationTimestamp") or "") <= _time(event)[:19] + "Z" for p in pods)


def _node_ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return all(c.get("status") == "True" for c in conditions if c.get("type") == "Ready")


def doing(pod: Mapping[str, Any]) -> str:
    """What a pod that is not ready is busy with, in a few words."""
    status = pod.get("status") or {}
    for entry in status.get("initContainerStatuses") or []:
        state = entry.get("state") or {}
        if "running" in state:
            return f"in {entry.get('name')}"
        if "waiting" in state and state["waiting"].get("reason") not in (None, "PodInitializing"):
            return f"{entry.get('name')}: {state['waiting']['reason']}"
    for entry in status.get("containerStatuses") or []:
        reason = ((entry.get("state") or {}).get("waiting") or {}).get("reason")
        if reason and reason != "PodInitializing":
            return "pulling image" if reason == "ContainerCreating" else f"{entry.get('name')}: {reason}"
        if not entry.get("ready"):
            return f"starting {entry.get('name')}"
    return "waiting for a node" if not (pod.get("spec") or {}).get("nodeName") else "starting"


# --- waiting --------------------------------------------------------------------------------------------------------


def slim_pod(pod: Object) -> Object:
    """A pod without what is not looked at here: a list of thousands must fit in memory."""
    meta = {k: v for k, v in pod["metadata"].items() if k not in ("managedFields", "annotations", "labels")}
    spec = {"nodeName": (pod.get("spec") or {}).get("nodeName")}
    kept = ("phase", "reason", "message", "conditions", "initContainerStatuses", "containerStatuses")
    status = {k: v for k, v in (pod.get("status") or {}).items() if k in kept}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": status}


def slim_workload(workload: Object) -> Object:
    """A workload without its pod template."""
    meta = {k: v for k, v in workload["metadata"].items() if k not in ("managedFields", "annotations")}
    spec = {k: v for k, v in workload["spec"].items() if k != "template"}
    return {**workload, "metadata": meta, "spec": spec}


def slim_node(node: Object) -> Object:
    """Name and conditions of a node."""
    conditions = [c for c in (node.get("status") or {}).get("conditions") or [] if c.get("type") == "Ready"]
    return {"kind": "Node", "metadata": {"name": node["metadata"]["name"]}, "status": {"conditions": conditions}}


def wait(
    connection: Connection,
    checks: Sequence[Check],
    deadline: Deadline,
    progress: Callable[[str], None] = lambda line: None,
    *,
    fail_after: Optional[float] = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Wait until every workload of ``checks`` is ready, in the order of the checks as far as messages go.

    One request for each kind and namespace when all are ready already. Otherwise workloads and pods are watched, and
    ``progress`` gets a line when something moved, at most one in five seconds: ``driver: 37/120 nodes ready, slowest
    gpu-07: pulling image``. ``fail_after``: seconds after which a trouble that cannot mend itself (an image that the
    registry does not have) ends the wait.
    """
    waiting = _Wait(connection, checks, deadline, progress, fail_after, clock)
    return waiting.run()


class _Wait:
    def __init__(
        self,
        connection: Connection,
        checks: Sequence[Check],
        deadline: Deadline,
        progress: Callable[[str], None],
        fail_after: Optional[float],
        clock: Callable[[], float],
    ) -> None:
        self.connection = connection
        self.checks = checks
        self.deadline = deadline
        self.progress = progress
        self.fail_after = fail_after
        self.clock = clock
        self.started = clock()
        self.shown: Tuple[str, float] = ("", -SHOW_EVERY)
        self.final_since: Dict[Ref, float] = {}
        self.lists = {(c.ref.kind, c.ref.namespace) for c in checks}

    def run(self) -> Outcome:
        workloads: Dict[Ref, Object] = {}
        for kind, namespace in sorted(self.lists):
            for item in list_objects(self.connection, kind, namespace, keep=slim_workload).items:
                workloads[ref(item)] = item
        states = self.states(workloads)
        if all(state.ready for state in states.values()):
            return Outcome(states, None, None, False)
        queries = {f"{kind}/{namespace}": Query(kind, namespace, keep=slim_workload) for kind, namespace in self.lists}
        for namespace in {namespace for _kind, namespace in self.lists}:
            queries[f"Pod/{namespace}"] = Query("Pod", namespace, keep=slim_pod)
        with Mirror(self.connection, queries) as mirror:
            return self.follow(mirror)

    def follow(self, mirror: Mirror) -> Outcome:
        while True:
            found = [item for kind, namespace in self.lists for item in mirror.objects(f"{kind}/{namespace}")]
            workloads = {ref(item): item for item in found}
            states = self.states(workloads)
            open_checks = [c for c in self.checks if not states[c.ref].ready]
            if not open_checks:
                self.show(f"{self.checks[-1].stage}: ready" if self.checks else "ready", force=True)
                return Outcome(states, None, None, False)
            pods = self.pods(mirror, workloads, open_checks)
            ended = self.ended(open_checks, states, workloads, pods)
            if ended:
                return ended
            first = open_checks[0]
            self.show(_line(first, states[first.ref], pods.get(first.ref, [])))
            mirror.wait(self.patience(open_checks))

    def states(self, workloads: Mapping[Ref, Object]) -> Dict[Ref, State]:
        out: Dict[Ref, State] = {}
        for check in self.checks:
            workload = workloads.get(check.ref)
            missing = State(False, "it does not exist", 0, check.wanted)
            out[check.ref] = rollout_state(workload, check.wanted) if workload else missing
        return out

    def pods(self, mirror: Mirror, workloads: Mapping[Ref, Object], checks: Sequence[Check]) -> Dict[Ref, List[Object]]:
        """Pods of workloads that are not ready: a DaemonSet's by owner, a Deployment's by its ReplicaSets' names."""
        out: Dict[Ref, List[Object]] = {c.ref: [] for c in checks}
        by_owner: Dict[str, List[Object]] = {}
        for namespace in {c.ref.namespace for c in checks}:
            for pod in mirror.objects(f"Pod/{namespace}"):
                for owner in pod["metadata"].get("ownerReferences") or []:
                    by_owner.setdefault(str(owner.get("uid")), []).append(pod)
                    if owner.get("kind") == "ReplicaSet":
                        deployment = str(owner.get("name")).rsplit("-", 1)[0]
                        by_owner.setdefault(f"{namespace}/{deployment}", []).append(pod)
        for which in out:
            workload = workloads.get(which)
            if workload and which.kind == "Deployment":
                out[which] = by_owner.get(f"{which.namespace}/{which.name}", [])
            elif workload:
                out[which] = by_owner.get(str(workload["metadata"].get("uid")), [])
        return out

    def ended(
        self,
        checks: Sequence[Check],
        states: Dict[Ref, State],
        workloads: Mapping[Ref, Object],
        pods: Mapping[Ref, List[Object]],
    ) -> Optional[Outcome]:
        """The outcome if the wait is over: a trouble that stays, or no time left."""
        now = self.clock()
        if self.fail_after is not None:
            for check in checks:
                final = [t for t in (_pod_trouble(p, (), set()) for p in pods[check.ref]) if t and t.final]
                if not final:
                    self.final_since.pop(check.ref, None)
                elif now - self.final_since.setdefault(check.ref, now) >= self.fail_after:
                    return Outcome(states, check, final[0], False)
        for check in checks:
            late = check.seconds is not None and now - self.started >= check.seconds
            if late or self.deadline.passed:
                return Outcome(states, check, self.trouble(check, workloads.get(check.ref), pods[check.ref]), True)
        return None

    def trouble(self, check: Check, workload: Optional[Object], pods: Sequence[Object]) -> Trouble:
        """The cause of a timeout, with events and nodes, which are only read now."""
        if workload is None:
            return Trouble("NotFound", f"{check.ref} does not exist")
        events = list_objects(self.connection, "Event", check.ref.namespace).items
        nodes = list_objects(self.connection, "Node", keep=slim_node).items if pods else []
        found = diagnose(workload, pods, events, nodes)
        if found:
            return found
        slow = next((p for p in sorted(pods, key=_node_name) if not pod_ready(p)), None)
        if slow is not None:
            return Trouble("NotReady", f"still {doing(slow)}", _node_name(slow), str(slow["metadata"]["name"]))
        return Trouble("NotReady", rollout_state(workload, check.wanted).reason)

    def patience(self, checks: Sequence[Check]) -> float:
        """How long to wait for a change before time itself is looked at."""
        ends = [self.deadline.left] + [
            c.seconds - (self.clock() - self.started) for c in checks if c.seconds is not None
        ]
        if self.fail_after is not None:
            ends += [self.fail_after - (self.clock() - since) for since in self.final_since.values()]
        return max(0.05, min([LOOK_AGAIN, *ends]))

    def show(self, line: str, force: bool = False) -> None:
        last, at = self.shown
        now = self.clock()
        if line != last and (force or now - at >= SHOW_EVERY or line.split(":")[0] != last.split(":")[0]):
            self.shown = (line, now)
            self.progress(line)


def explain(outcome: Outcome) -> str:
    """One sentence for a wait that did not end well: stage, how far it came, node, container and cause."""
    check, trouble = outcome.failed, outcome.trouble
    if check is None:
        return "everything is ready"
    state = outcome.states[check.ref]
    how = "is not ready in time" if outcome.timed_out else "cannot become ready"
    return f"stage {check.stage} {how} ({check.ref}: {state.reason}){': ' + str(trouble) if trouble else ''}"


def _line(check: Check, state: State, pods: Sequence[Object]) -> str:
    slow = sorted(
        (p for p in pods if not pod_ready(p)),
        key=lambda p: (str(p["metadata"].get("creationTimestamp")), _node_name(p)),
    )
    unit = "pods" if check.ref.kind == "Deployment" else "nodes"
    text = f"{check.stage}: {state.up}/{state.wanted} {unit} ready"
    if slow:
        where = _node_name(slow[0]) or str(slow[0]["metadata"]["name"])
        return f"{text}, slowest {where}: {doing(slow[0])}"
    return text if state.wanted else f"{check.stage}: {state.reason}"


def _node_name(pod: Mapping[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")
