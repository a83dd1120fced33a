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
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ._connection import Connection, Deadline
from ._lists import list_objects
from ._resources import Object, Ref, ref
from ._watch import Mirror, Query

SHOW_EVERY = 5.0  # seconds between two lines of progress about the same stage
REVISION = "controller-revision-hash"
KEPT_LABELS = ("app", "app.kubernetes.io/component", REVISION)
EVENTS_EVERY = 10.0  # seconds between two looks at events
JUDGE_AGAIN = 2.0
HELD_AFTER = 5.0  # seconds after which a rollout that stands still is held up by broken nodes
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
    """What is in the way, in words. ``reason`` is Kubernetes' own word for it; ``final``: waiting is no use.

    ``raw`` is what the kubelet, the runtime or the container's last line said; ``image`` and ``restarts`` are the
    container's.
    """

    reason: str
    message: str
    node: str = ""
    pod: str = ""
    container: str = ""
    final: bool = False
    raw: str = ""
    image: str = ""
    restarts: int = 0

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
    """How a wait ended: the states by workload, and what stopped it (None: all are ready, as far as they can be).

    ``held``: DaemonSets whose controller does not replace pods of an older template because of broken nodes.
    ``late``: pods that are not ready, by DaemonSet.
    """

    states: Dict[Ref, State]
    failed: Optional[Check]
    trouble: Optional[Trouble]
    timed_out: bool
    held: Sequence[Ref] = ()
    late: Mapping[Ref, Sequence[Object]] = {}

    @property
    def ready(self) -> bool:
        """True when every workload is ready."""
        return self.failed is None


class Scene(NamedTuple):
    """What a judge looks at: nodes, pods and workloads as they are now, and the events of the pods' namespaces."""

    nodes: List[Object]
    pods: List[Object]
    workloads: List[Object]
    events: Callable[[], List[Object]]
    titles: Mapping[Ref, str]


class Judge:
    """Says which nodes are broken: they are not waited for. This one waits for all."""

    def keep(self, node: Object) -> Object:
        """A node cut down to what is looked at."""
        return slim_node(node)

    def broken(self, scene: Scene) -> Collection[str]:
        """Names of nodes that cannot become ready."""
        return ()


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
            return Trouble("FailedCreate", f"its pods are refused: {_cause_of_refusal(text)}{text}", raw=text)
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
        return Trouble(str(status.get("reason") or "Failed"), f"the pod failed: {text}", node, name, raw=str(text))
    return _event_trouble(pod, events, node, name) or _pending_trouble(status, node, name)


def _container_trouble(entry: Mapping[str, Any], node: str, pod: str) -> Optional[Trouble]:
    state = entry.get("state") or {}
    container, image = str(entry.get("name")), str(entry.get("image"))
    waiting = state.get("waiting") or {}
    reason, text = str(waiting.get("reason") or ""), str(waiting.get("message") or "").strip()
    if reason in _PULL_REASONS:
        never = bool(_NOT_THERE.search(f"{reason} {text}"))
        message = f"image {image} cannot be pulled: {text or reason}"
        return Trouble(reason, message, node, pod, container, never, text or reason, image)
    restarts = int(entry.get("restartCount") or 0)
    ended = (entry.get("lastState") or {}).get("terminated") or state.get("terminated") or {}
    failed = ended and (int(ended.get("exitCode") or 0) != 0)
    raw = _last_line(ended)
    if reason == "CrashLoopBackOff" or (failed and not entry.get("ready") and restarts > 0):
        message = _crash(ended, restarts)
        return Trouble("CrashLoopBackOff", message, node, pod, container, False, raw, image, restarts)
    if state.get("terminated") and failed:
        return Trouble(str(ended.get("reason") or "Error"), _crash(ended, 0), node, pod, container, False, raw, image)
    if reason and reason not in ("PodInitializing", "ContainerCreating"):
        message = f"the container cannot start: {text or reason}"
        return Trouble(reason, message, node, pod, container, False, text or reason, image, restarts)
    return None


def _last_line(ended: Mapping[str, Any]) -> str:
    text = str(ended.get("message") or "").strip()
    return text.splitlines()[-1] if text else ""


def _crash(ended: Mapping[str, Any], restarts: int) -> str:
    last = _last_line(ended)
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
            shown = text
            if no_handler(text):
                shown = f"its runtime class is not configured in the node's container runtime ({text})"
            return Trouble(reason, f"the pod cannot be set up: {shown}", node, name, raw=text)
        if reason in ("FailedMount", "FailedAttachVolume"):
            return Trouble("FailedMount", f"a volume cannot be mounted: {text}", node, name, raw=text)
    return None


def _pending_trouble(status: Mapping[str, Any], node: str, pod: str) -> Optional[Trouble]:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            text = str(condition.get("message") or "no reason given")
            return Trouble("Unschedulable", f"no node takes the pod: {text}", node, pod, raw=text)
    return None


def no_handler(text: str) -> bool:
    """Whether the runtime says that it does not know the handler of a RuntimeClass (containerd, CRI-O)."""
    return "no runtime for" in text or "runtime handler" in text.lower() or "RuntimeHandler" in text


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
    meta["labels"] = {k: v for k, v in (pod["metadata"].get("labels") or {}).items() if k in KEPT_LABELS}
    spec = {"nodeName": (pod.get("spec") or {}).get("nodeName")}
    kept = ("phase", "reason", "message", "conditions", "initContainerStatuses", "containerStatuses")
    status = {k: v for k, v in (pod.get("status") or {}).items() if k in kept}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": status}


def slim_workload(workload: Object) -> Object:
    """A workload with only that of its pod template which says where pods run."""
    meta = {k: v for k, v in workload["metadata"].items() if k not in ("managedFields", "annotations")}
    spec = {k: v for k, v in workload["spec"].items() if k != "template"}
    template = workload["spec"].get("template") or {}
    where = {k: v for k, v in (template.get("spec") or {}).items() if k in ("nodeSelector", "tolerations")}
    spec["template"] = {"metadata": {"labels": (template.get("metadata") or {}).get("labels") or {}}, "spec": where}
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
    judge: Optional[Judge] = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Wait until every workload of ``checks`` is ready, in the order of the checks as far as messages go.

    One request for each kind and namespace when all are ready already. Otherwise workloads and pods are watched, and
    ``progress`` gets a line when something moved, at most one in five seconds: ``driver: 37/120 nodes ready, slowest
    gpu-07: pulling image``. ``fail_after``: seconds after which a trouble that cannot mend itself (an image that the
    registry does not have) ends the wait. ``judge`` says which nodes are broken: what DaemonSets miss there is not
    waited for, nor does a trouble there end the wait.
    """
    waiting = _Wait(connection, checks, deadline, progress, fail_after, clock, judge)
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
        judge: Optional[Judge],
    ) -> None:
        self.judge = judge
        self.held_since: Optional[float] = None
        self.events: Tuple[float, List[Object]] = (-EVENTS_EVERY, [])
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
        if self.judge:
            queries["Node"] = Query("Node", keep=self.judge.keep)
        with Mirror(self.connection, queries) as mirror:
            return self.follow(mirror)

    def follow(self, mirror: Mirror) -> Outcome:
        while True:
            found = [item for kind, namespace in self.lists for item in mirror.objects(f"{kind}/{namespace}")]
            workloads = {ref(item): item for item in found}
            states = self.states(workloads)
            open_checks = [c for c in self.checks if not states[c.ref].ready]
            pods = self.pods(mirror, workloads, open_checks)
            broken = self.broken(mirror, found)
            held = []
            for check in list(open_checks):
                outdated = _excused(workloads.get(check.ref), pods[check.ref], broken)
                if outdated is not None:
                    open_checks.remove(check)
                    held += [check.ref] if outdated else []
            if not open_checks and (not held or self.held_long()):
                self.show(f"{self.checks[-1].stage}: ready" if self.checks else "ready", force=True)
                return Outcome(states, None, None, False, held)
            self.held_since = self.held_since if held and not open_checks else None
            if not open_checks:
                mirror.wait(0.5)
                continue
            ended = self.ended(open_checks, states, workloads, pods)
            if ended:
                return ended
            first = open_checks[0]
            self.show(_line(first, states[first.ref], pods.get(first.ref, []), len(broken)))
            mirror.wait(self.patience(open_checks))

    def held_long(self) -> bool:
        """Whether nothing but outdated pods has been left for a while: a controller at work would have gone on."""
        self.held_since = self.clock() if self.held_since is None else self.held_since
        return self.clock() - self.held_since >= HELD_AFTER

    def broken(self, mirror: Mirror, workloads: List[Object]) -> Collection[str]:
        """Nodes that the judge has given up."""
        if self.judge is None:
            return ()
        pods = [p for namespace in sorted({n for _kind, n in self.lists}) for p in mirror.objects(f"Pod/{namespace}")]
        titles = {check.ref: check.stage for check in self.checks}
        watched = [w for w in workloads if ref(w) in titles]
        return self.judge.broken(Scene(mirror.objects("Node"), pods, watched, self.recent_events, titles))

    def recent_events(self) -> List[Object]:
        """Events of the namespaces, some seconds old at most."""
        at, found = self.events
        if self.clock() - at >= EVENTS_EVERY:
            namespaces = sorted({namespace for _kind, namespace in self.lists})
            found = [e for n in namespaces for e in list_objects(self.connection, "Event", n).items]
            self.events = (self.clock(), found)
        return found

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
                    if owner.get("controller") is False:
                        continue  # a pod that the validator made goes with its DaemonSet, and is none of it
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
                found = self.hopeless(check, workloads.get(check.ref), pods[check.ref])
                if found is None:
                    self.final_since.pop(check.ref, None)
                elif now - self.final_since.setdefault(check.ref, now) >= self.fail_after * (1 if found.final else 10):
                    return Outcome(states, check, found, False)
        for check in checks:
            late = check.seconds is not None and now - self.started >= check.seconds
            if late or self.deadline.passed:
                trouble = self.trouble(check, workloads.get(check.ref), pods[check.ref])
                slow = {which: [p for p in mine if not pod_ready(p)] for which, mine in pods.items()}
                return Outcome(states, check, trouble, True, (), slow)
        return None

    def hopeless(self, check: Check, workload: Optional[Object], pods: Sequence[Object]) -> Optional[Trouble]:
        """What ends the wait when it lasts. A judge knows better about DaemonSets, node by node."""
        if self.judge is None:
            looked = [_pod_trouble(pod, (), set()) for pod in pods]
            return next((trouble for trouble in looked if trouble and trouble.final), None)
        if workload is None or check.ref.kind == "DaemonSet":
            return None
        return diagnose(workload, pods, self.recent_events() if not pods else ())

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
        return max(0.05, min([JUDGE_AGAIN if self.judge else LOOK_AGAIN, *ends]))

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


def _excused(workload: Optional[Object], pods: Sequence[Object], broken: Collection[str]) -> Optional[bool]:
    """None while a DaemonSet has something to wait for beside broken nodes; else whether pods are of an older template.

    The controller replaces no pod that works while as many others do not as may be unavailable: a broken node holds up
    all the others then.
    """
    if not broken or workload is None or workload["kind"] != "DaemonSet" or not _seen(workload):
        return None
    status = workload.get("status") or {}
    good = [pod for pod in pods if _node_name(pod) not in broken]
    without = int(status.get("desiredNumberScheduled") or 0) - len({_node_name(pod) for pod in pods})
    if without > len(set(broken) - {_node_name(pod) for pod in pods}) or not all(pod_ready(pod) for pod in good):
        return None
    if (workload["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
        return False
    return int(status.get("updatedNumberScheduled") or 0) < len(pods)


def _seen(workload: Mapping[str, Any]) -> bool:
    status = workload.get("status") or {}
    return int(status.get("observedGeneration") or 0) >= int(workload["metadata"].get("generation") or 0)


def _line(check: Check, state: State, pods: Sequence[Object], broken: int = 0) -> str:
    slow = sorted(
        (p for p in pods if not pod_ready(p)),
        key=lambda p: (str(p["metadata"].get("creationTimestamp")), _node_name(p)),
    )
    unit = "pods" if check.ref.kind == "Deployment" else "nodes"
    text = f"{check.stage}: {state.up}/{state.wanted} {unit} ready"
    if broken:
        text += f", {broken} failed"
    if slow:
        where = _node_name(slow[0]) or str(slow[0]["metadata"]["name"])
        return f"{text}, slowest {where}: {doing(slow[0])}"
    return text if state.wanted else f"{check.stage}: {state.reason}"


def _node_name(pod: Mapping[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")
