# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node out of the way while its host gets a MIG layout, and back: what the MIG manager does around a change."""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Sequence

from .._kube._connection import ApiError, Deadline, KubeError
from .._kube._lists import list_objects
from .._kube._nodes_patch import patch_node
from .._kube._resources import Object, Ref, path
from .._kube._watch import Mirror, Query, until
from .._nodes._keys import MIG_STATE
from .._nodes._mig_guard import Pod, gpu_pods, name_of
from .._nodes._mig_pause import (
    FAILED,
    PENDING,
    SUCCESS,
    Patch,
    clients,
    is_client,
    is_paused,
    owner,
    pause,
    resume,
    validators,
)
from .._nodes._stage import gaps_of, offers
from .._plan import ERROR, INFO, WARNING, Action, Check, Failure, Finding, Result, errors, refusal
from ._facts import slim_node
from ._journal import Journal
from ._request import Progress, Request

MIG_MANAGER = "nvidia-mig-manager"
_POLL = 5.0  # seconds between looks, and that one eviction is tried


def mig_node(params: Mapping[str, Any], check: bool, progress: Progress) -> Result:
    """Entry of the module of this name."""
    request = Request.from_params(params, check, progress)
    journal = Journal(request, exclusive=False)  # its keys are its own, and its node's host is worked on by nobody else
    run = _Run(journal, params)
    return journal.guarded("MIG", run.hold if params["state"] == "paused" else run.release)


class _Run:
    def __init__(self, journal: Journal, params: Mapping[str, Any]) -> None:
        self.journal, self.request = journal, journal.request
        self.connection = journal.request.connection
        self.name = str(params["node"])
        self.outcome = str(params["outcome"] or (PENDING if params["state"] == "paused" else SUCCESS))
        self.problem = str(params["problem"] or "")
        self.user_pods, self.patience = str(params["user_pods"]), float(params["user_pods_timeout"])
        self._refuse(self._wrong(params))

    def _wrong(self, params: Mapping[str, Any]) -> List[Finding]:
        allowed = {"paused": ("pending", "rebooting"), "resumed": ("success", "failed")}[params["state"]]
        if self.outcome in allowed:
            return []
        detail = f"{self.outcome} is not how a node can be {params['state']}; allowed are {', '.join(allowed)}"
        return [Finding("mig.outcome", ERROR, detail, path="outcome")]

    # --- Out of the way -------------------------------------------------------------------------------------------

    def hold(self) -> Result:
        """Refuse, or cordon and pause, and wait until no pod holds a GPU. What fails is given back."""
        node = self._node()
        pods = self._pods()
        users = self._users(pods)
        self.journal.found.update(node=self.name, user_pods=sorted(map(name_of, users)), clients=[])
        self._refuse([*self._manager(pods), *self._busy(users)])
        patch = pause(node, self.outcome)
        gone = validators(pods, self.request.namespace)
        evicted = users if self.user_pods == "evict" else []
        self.journal.expect(patch.actions())
        self.journal.expect(_removal("evict", pod, "it holds a GPU") for pod in evicted)
        self.journal.expect(_removal("delete", pod, "the validator makes it anew") for pod in gone)
        if self.request.check:
            return self.journal.result()
        self._patch(node, patch, lambda live: pause(live, self.outcome))
        try:
            self._until_free()
        except (Failure, KubeError) as error:
            self._take_back(error)
            raise
        self.journal.verified.append(Check(f"Node/{self.name}", True, "no pod on it holds a GPU"))
        return self.journal.result()

    def _manager(self, pods: Sequence[Pod]) -> List[Finding]:
        if not _has_manager(pods):
            return []
        detail = "the MIG manager looks after its layout, and two programs must not change the same GPU"
        remedy = "Use gpu_nodes for it, or set migManager.enabled to false in the policy."
        return [Finding("mig.manager", ERROR, detail, f"Node/{self.name}", "node", remedy)]

    def _busy(self, users: Sequence[Pod]) -> List[Finding]:
        target = f"Node/{self.name}"
        names = ", ".join(sorted(map(name_of, users)))
        if users and self.user_pods == "refuse":
            detail = f"users' pods hold its GPUs: {names}"
            remedy = "Let them finish, or say user_pods: wait or evict."
            return [Finding("mig.user-pods", ERROR, detail, target, "user_pods", remedy)]
        if self.user_pods != "evict":
            return []
        lost = [name_of(pod) for pod in users if not owner(pod)]
        back = [name_of(pod) for pod in users if owner(pod) == "DaemonSet"]
        found = []
        if lost:
            detail = f"nobody makes these pods anew, so they are not evicted: {', '.join(sorted(lost))}"
            found.append(Finding("mig.bare-pods", ERROR, detail, target, "user_pods", "Delete them if they may go."))
        if back:
            detail = f"their DaemonSet makes these pods anew at once: {', '.join(sorted(back))}"
            remedy = "Give the DaemonSet the node selector nvidia.com/gpu.deploy.client: 'true', so that it is paused."
            found.append(Finding("mig.daemon-pods", ERROR, detail, target, "user_pods", remedy))
        return found

    def _until_free(self) -> None:
        """Raises Failure when users' pods, or clients, are there still when their time is over."""
        limit = Deadline(self.patience if self.user_pods != "refuse" else 0.0)
        query = Query("Pod", field_selector=f"spec.nodeName={self.name}")
        with Mirror(self.connection, {"pods": query}) as mirror:
            pods = mirror.objects("pods")
            while True:
                users = self._users(pods)
                if not users:
                    break
                if limit.passed:
                    raise self._late(f"{len(users)} users' pods hold its GPUs still", list(map(name_of, users)))
                self.request.progress(f"{self.name}: waiting for {name_of(users[0])} ({limit.left:.0f} s left)")
                if self.user_pods == "evict":
                    self._evict(users)
                mirror.wait(min(_POLL, limit.left))
                pods = mirror.objects("pods")
            self._delete(validators(pods, self.request.namespace))
            limit = Deadline(self.request.stage_timeout)
            while self._held(mirror.objects("pods")):
                if limit.passed:
                    left = self._held(mirror.objects("pods"))
                    raise self._late(f"{len(left)} GPU clients did not go away", left)
                mirror.wait(min(_POLL, limit.left))

    def _users(self, pods: Sequence[Pod]) -> List[Pod]:
        """Pods that hold a GPU and that no paused label takes away."""
        return [pod for pod in gpu_pods(pods, self.request.namespace) if not is_client(pod)]

    def _held(self, pods: Sequence[Pod]) -> List[str]:
        holders = [name_of(pod) for pod in gpu_pods(pods, self.request.namespace)]
        left = sorted({*clients(self._node(), pods), *holders})
        self.journal.found["clients"] = left
        if left:
            self.request.progress(f"{self.name}: waiting for {left[0]} to go")
        return left

    def _late(self, what: str, names: Sequence[str]) -> Failure:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        return self.journal.failure(f"Node {self.name}: {what}: {shown}")

    def _evict(self, users: Sequence[Pod]) -> None:
        """Ask for each once; what a disruption budget refuses now is asked for again later. Raises KubeError."""
        for pod in users:
            meta = pod["metadata"]
            if meta.get("deletionTimestamp"):
                continue
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            }
            where = path("Pod", str(meta["namespace"]), str(meta["name"]), "eviction")
            try:
                self.connection.request("POST", where, body=body, deadline=Deadline(_POLL), idempotent=True)
                self.journal.done.append(f"evict {name_of(pod)}")
            except ApiError as error:
                if error.status not in (404, 429):
                    raise

    def _delete(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            where = path("Pod", str(pod["metadata"]["namespace"]), str(pod["metadata"]["name"]))
            try:
                self.connection.request("DELETE", where)
                self.journal.done.append(f"delete {name_of(pod)}")
            except ApiError as error:
                if error.status != 404:
                    raise

    def _take_back(self, error: Exception) -> None:
        """Labels and cordon as they were: clients never stay paused after a failure."""
        why = error.msg if isinstance(error, Failure) else str(error)
        try:
            patch_node(self.connection, self._node(), lambda live: resume(live, FAILED, why).body())
        except KubeError as second:
            detail = f"it stays cordoned and paused: {second}"
            remedy = "Run this module with state: resumed and outcome: failed."
            self.journal.add_findings([Finding("mig.paused", WARNING, detail, f"Node/{self.name}", remedy=remedy)])
            raise Failure(f"{why} Node {self.name}: {detail}. {remedy}", self.journal.result()) from error
        if isinstance(error, Failure):
            gone = [one.partition(" ")[2] for one in self.journal.done if one.startswith("evict ")]
            stay = f", and evicted pods stay evicted: {', '.join(gone)}" if gone else ""
            error.msg += f" Deploy labels and cordon of the node are as they were; {MIG_STATE} says failed{stay}."

    # --- And back -------------------------------------------------------------------------------------------------

    def release(self) -> Result:
        """Give back, say how it ended, and wait until the kubelet offers what the host has now."""
        node = self._node()
        paused = is_paused(node)
        self.journal.found.update(node=self.name, user_pods=[], clients=[])
        if not paused and _has_manager(self._pods()):
            detail = "the MIG manager says in its labels how its layout is, so nothing is written"
            self.journal.add_findings([Finding("mig.manager", INFO, detail, f"Node/{self.name}", "node")])
            return self.journal.result()
        patch = resume(node, self.outcome, self.problem)
        self.journal.expect(patch.actions())
        if self.request.check:
            return self.journal.result()
        self._patch(node, patch, lambda live: resume(live, self.outcome, self.problem))
        if paused and self.outcome == SUCCESS and self.request.wait:
            self._until_offered()
        return self.journal.result()

    def _until_offered(self) -> None:
        plugin = "nvidia.com/gpu.deploy.device-plugin"
        if (self._node()["metadata"].get("labels") or {}).get(plugin) != "true":
            return

        def ready(node: Any) -> bool:
            return node is not None and not gaps_of(slim_node(node))

        limit = Deadline(self.request.stage_timeout)
        self.request.progress(f"{self.name}: waiting until its kubelet offers the new layout")
        node = until(self.connection, Ref("Node", "", self.name), ready, limit)
        gaps = gaps_of(slim_node(node)) if node else ["it is gone"]
        told = ", ".join(f"{count} {what}" for what, count in (offers(node) if node else {}).items())
        self.journal.verified.append(Check(f"Node/{self.name}", not gaps, "; ".join(gaps) or f"offers {told}"))
        if gaps:
            raise self.journal.failure(f"Node {self.name}: {gaps[0]}. See the pods of the device plugin on it")

    # --- Shared ---------------------------------------------------------------------------------------------------

    def _node(self) -> Object:
        node = self.connection.find(path("Node", None, self.name))
        if node is None:
            raise self.journal.failure(f"There is no node {self.name!r} in the cluster. Give its name as node")
        return node

    def _pods(self) -> List[Object]:
        return list_objects(self.connection, "Pod", field_selector=f"spec.nodeName={self.name}").items

    def _patch(self, node: Object, patch: Patch, anew: Callable[[Mapping[str, Any]], Patch]) -> None:
        if patch.body():
            self.journal.carry_out(
                patch.actions(),
                lambda: patch_node(self.connection, node, lambda live: anew(live).body()),
                f"Node {self.name}",
            )

    def _refuse(self, findings: Sequence[Finding]) -> None:
        self.journal.add_findings(findings)
        if errors(findings):
            raise Failure(refusal(findings), self.journal.result(), self.journal.done, self.journal.remaining)


def _has_manager(pods: Sequence[Pod]) -> bool:
    """By its pod: the node's deploy label stays true where the manager is switched off."""
    return any((pod["metadata"].get("labels") or {}).get("app") == MIG_MANAGER for pod in pods)


def _removal(verb: str, pod: Pod, reason: str) -> Action:
    return Action(f"{verb} {name_of(pod)}", verb, f"Pod {name_of(pod)}", reason, disruptive=verb == "evict")
