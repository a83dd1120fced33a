# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entry of the module gpu_explain: reads what concerns one pod or workload, and explains it."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from .._kube._connection import Connection, KubeError, MissingPackage
from .._kube._lists import list_objects
from .._kube._resources import Object, path
from .._plan import INFO, WARNING, Failure, Finding
from .._stack._facts import read_nodes
from .._stack._info import InfoResult
from .._stack._request import Progress
from ._affinity import closest
from ._explain import Case, explain, rooms_of
from ._resources import asked
from ._result import ShownResult
from ._workloads_found import template_of

KINDS = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicaSet")
FINE = ("runs", "starting", "idle")


def gpu_explain(params: Mapping[str, Any], check: bool, progress: Progress) -> InfoResult:
    """Entry of the module of this name."""
    try:
        return _explained(Connection.open(params), *_named(str(params["pod"])), progress)
    except MissingPackage:
        raise
    except KubeError as error:
        raise Failure(f"{error}.", InfoResult()) from error


def _named(text: str) -> Tuple[str, str]:
    namespace, slash, name = text.strip().partition("/")
    namespace, name = (namespace, name) if slash else ("default", namespace)
    if not namespace or not name or "/" in name:
        raise Failure(f"pod: {text!r} is not namespace/name, nor a name in the namespace default.", InfoResult())
    return namespace, name


def _explained(connection: Connection, namespace: str, name: str, progress: Progress) -> InfoResult:
    case = read_case(connection, namespace, name)
    answer = explain(case)
    sentence = answer.sentence(case.target)
    severity = INFO if answer.cause in FINE else WARNING
    result = ShownResult(findings=[Finding(answer.cause, severity, answer.text, case.target, remedy=answer.remedy)])
    result.found = {
        "target": case.target,
        "cause": answer.cause,
        "sentence": sentence,
        "asked": asked(case.spec),
        "nodes": [
            {"name": room.name, "allocatable": room.allocatable, "free": room.free, "obstacle": room.obstacle}
            for room in (rooms_of(case, case.nodes) if asked(case.spec) else ())
        ],
    }
    progress(sentence)
    return result


class _Finder:
    """Finds a pod, or a workload of this name and the pod of it that is worst off."""

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self.connection = connection
        self.namespace = namespace
        self.name = name

    def case(self) -> Case:
        pod = self.connection.find(path("Pod", self.namespace, self.name))
        if pod is not None:
            return self._of_pod(pod)
        for kind in KINDS:
            found = self.connection.find(path(kind, self.namespace, self.name))
            if found is not None:
                return self._of_workload(kind, found)
        raise Failure(self._unknown(), InfoResult())

    def _unknown(self) -> str:
        names = []
        for kind in ("Pod", *KINDS):
            listing = list_objects(self.connection, kind, self.namespace, metadata_only=True)
            names += [str(item["metadata"]["name"]) for item in listing.items]
        meant = closest(self.name, names)
        kinds = ", ".join(KINDS)
        guess = f" Did you mean {meant}?" if meant else ""
        return (
            f"In namespace {self.namespace} there is no pod {self.name}, and nothing that makes pods has this name "
            f"({kinds}).{guess} A pod that the API server refused leaves no trace: apply it again and read the answer."
        )

    def _of_pod(self, pod: Object, kind: str = "Pod", name: str = "") -> Case:
        case = Case(kind, self.namespace, name or str(pod["metadata"]["name"]), pod.get("spec") or {}, pod)
        case.events = self._events([("Pod", str(pod["metadata"]["name"]))])
        self._cluster(case)
        return case

    def _of_workload(self, kind: str, workload: Object) -> Case:
        makers = self._makers(kind, workload)
        uids = {str(maker["metadata"]["uid"]) for maker in makers}
        pods = [pod for pod in list_objects(self.connection, "Pod", self.namespace).items if _owned(pod, uids)]
        pods = [pod for pod in pods if (pod.get("status") or {}).get("phase") != "Succeeded"]
        if pods:
            return self._of_pod(min(pods, key=_standing), "Pod")
        case = Case(kind, self.namespace, self.name, template_of(kind, workload.get("spec") or {}))
        case.idle = _idle(kind, workload.get("spec") or {})
        case.refusals = _conditions(makers)
        events = self._events([(str(maker["kind"]), str(maker["metadata"]["name"])) for maker in makers])
        told = [str(event.get("message", "")) for event in events if event.get("reason") == "FailedCreate"]
        case.refusals = case.refusals or told
        self._cluster(case)
        return case

    def _makers(self, kind: str, workload: Object) -> List[Object]:
        """The workload and what it makes that makes pods: ReplicaSets of a Deployment, Jobs of a CronJob."""
        workload["kind"] = kind
        below = {"Deployment": "ReplicaSet", "CronJob": "Job"}.get(kind)
        uid = {str(workload["metadata"]["uid"])}
        made = list_objects(self.connection, below, self.namespace).items if below else []
        return [workload, *(item for item in made if _owned(item, uid))]

    def _events(self, about: Sequence[Tuple[str, str]]) -> List[Object]:
        found = []
        for kind, name in about:
            selector = f"involvedObject.kind={kind},involvedObject.name={name}"
            found += list_objects(self.connection, "Event", self.namespace, field_selector=selector).items
        return sorted(found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))

    def _cluster(self, case: Case) -> None:
        case.nodes = read_nodes(self.connection)
        classes = list_objects(self.connection, "RuntimeClass", metadata_only=True).items
        case.runtime_classes = sorted(str(item["metadata"]["name"]) for item in classes)
        if asked(case.spec):
            case.used = read_used(self.connection)


def read_used(connection: Connection) -> Dict[str, Dict[str, int]]:
    """GPU resources that pods hold, by node."""
    selector = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
    found: Dict[str, Dict[str, int]] = {}
    for pod in list_objects(connection, "Pod", field_selector=selector, keep=_holding).items:
        node = found.setdefault(str(pod["node"]), {})
        for name, amount in pod["asked"].items():
            node[name] = node.get(name, 0) + amount
    return found


def read_case(connection: Connection, namespace: str, name: str) -> Case:
    """What concerns one pod or workload. Raises Failure where there is none of this name."""
    return _Finder(connection, namespace, name).case()


def _holding(pod: Object) -> Object:
    spec = pod.get("spec") or {}
    return {"node": spec.get("nodeName"), "asked": asked(spec)}


def _owned(item: Object, uids: Any) -> bool:
    owners = item["metadata"].get("ownerReferences") or []
    return any(owner.get("controller") and owner.get("uid") in uids for owner in owners)


def _standing(pod: Object) -> Tuple[int, str]:
    """Pending before running: the pod that needs an explanation comes first."""
    status = pod.get("status") or {}
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or [])
    order = {"Pending": 0, "Failed": 1}.get(str(status.get("phase")), 2)
    return 3 if ready else order, str(pod["metadata"]["name"])


def _idle(kind: str, spec: Mapping[str, Any]) -> str:
    if spec.get("replicas") == 0:
        return "replicas is 0"
    if spec.get("suspend"):
        return "suspend is true"
    return "it waits for its schedule" if kind == "CronJob" else ""


def _conditions(makers: Sequence[Object]) -> List[str]:
    """What a ReplicaSet says of pods that it could not make, the newest ReplicaSet last."""
    said: List[Tuple[str, str]] = []
    for maker in makers:
        for condition in (maker.get("status") or {}).get("conditions") or []:
            if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
                said.append((str(maker["metadata"].get("creationTimestamp", "")), str(condition.get("message", ""))))
    return [message for _when, message in sorted(said)]
