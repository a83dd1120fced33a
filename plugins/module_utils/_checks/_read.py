# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a cluster: everything that the checks judge, with the rights that the account has."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .._kube._connection import ApiError, Connection
from .._kube._lists import list_objects
from .._kube._resources import Object, ours, path
from .._kube._rights import Right, given_away
from .._operands import _nfd, build, problems
from .._operands._namespace import namespace as namespace_object
from .._operands._nfd_found import judge_labels
from .._operands._problems import unused_sizes
from .._operands._types import ClusterFacts
from .._plan import errors
from .._policy._model import Policy
from .._stack._facts import gpus_of, node_facts, read_named, slim_node, with_nodes
from .._stack._gates import gated
from .._stack._nodes import read_groups, untolerated_taints
from .._stack._others import operator_findings
from .._stack._request import Request
from .._stack._stack import KINDS, OPTIONAL
from ._discovery import masters
from ._machines import NODE, facts_of
from ._rights import EVERYTHING, of_a_run, to_give
from ._rivals import what_is
from ._webhooks import service_of
from ._workloads_found import workloads_of
from ._world import World

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
HOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
SYSTEM = ("kube-system", "kube-public", "kube-node-lease")


class Reader:
    """Reads lists as far as the account may; what it may not is noted."""

    def __init__(self, request: Request, policy: Policy) -> None:
        self.connection: Connection = request.connection
        self.request = request
        self.namespace = request.namespace
        self.policy = policy
        self.unread: Dict[str, str] = {}

    def read(self) -> World:
        world = World(self.policy, ClusterFacts(namespace=self.namespace), now=self.connection.now())
        world.kubernetes = str(self.connection.get("/version").get("gitVersion", ""))
        world.nodes = self._list("Node", keep=slim_node)
        world.live_namespace = self._allowed("Namespace", self._namespace, None)
        world.deployments = self._list("Deployment")
        world.daemonsets = self._list("DaemonSet")
        world.features = self._list("NodeFeature", keep=_feature)
        world.rivals = self._allowed("Lease", lambda: operator_findings(self.connection), [])
        self._plan(world)
        world.workloads = self._workloads(world)
        world.refusals = self._list("Event", field_selector="reason=FailedCreate")
        world.quotas = self._list("ResourceQuota", self.namespace)
        self._webhooks(world)
        world.denied = self._denied(world.wanted, world.facts.gated)
        world.admission = self._admission(world)
        world.unread = self.unread
        return world

    # -- lists -------------------------------------------------------------------------------------------------------

    def _allowed(self, kind: str, read: Callable[[], Any], otherwise: Any) -> Any:
        """What ``read`` gives; ``otherwise`` where the account lacks the right, which is noted."""
        try:
            return read()
        except ApiError as error:
            if not error.forbidden_by_rights:
                raise
            self.unread[kind] = error.message
            return otherwise

    def _list(
        self,
        kind: str,
        namespace: Optional[str] = None,
        keep: Optional[Callable[[Object], Object]] = None,
        field_selector: str = "",
    ) -> List[Object]:
        def read() -> List[Object]:
            return list_objects(
                self.connection,
                kind,
                namespace,
                keep=keep,
                field_selector=field_selector,
                optional=True,
                deadline=self.request.deadline,
            ).items

        found: List[Object] = self._allowed(kind, read, [])
        return found

    def _namespace(self) -> Optional[Object]:
        return self.connection.find(path("Namespace", name=self.namespace))

    # -- what a run would apply --------------------------------------------------------------------------------------

    def _plan(self, world: World) -> None:
        """The facts, objects and findings of a run, as far as they can be told before one."""
        keys, hashes = self._allowed("ConfigMap", lambda: self._named(world), ({}, {}))
        foreign = masters(world)
        groups, found = read_groups(self.request)
        facts = ClusterFacts(
            namespace=self.namespace,
            config_keys=keys,
            config_hashes=hashes,
            nfd_running=bool(foreign),
            gated=gated(groups, [d for d in world.daemonsets if d["metadata"].get("namespace") == self.namespace]),
        )
        world.facts = with_nodes(facts, [node_facts(node) for node in world.gpu_nodes])
        found = list(found) + problems(self.policy, world.facts) + _nfd.findings(self.policy, world.facts)
        for node in world.nodes:
            found += judge_labels(str(node["metadata"]["name"]), node["metadata"]["labels"])
        if not errors(found):
            world.wanted = self._objects(world.facts)
            found += untolerated_taints(groups, world.operand_daemonsets)
            found += unused_sizes(self.policy, world.operand_daemonsets)
        world.of_run = found
        if foreign:
            world.nfd_configs = self._nfd_configs(foreign)

    def _named(self, world: World) -> Tuple[Mapping[str, Tuple[str, ...]], Mapping[str, str]]:
        if world.live_namespace is None:
            return {}, {}
        return read_named(self.connection, self.policy, self.namespace)

    def _objects(self, facts: ClusterFacts) -> List[Object]:
        made = [namespace_object(self.policy, facts)]
        if self.policy.nfd.enabled:
            made += [*([] if facts.nfd_running else _nfd.crds()), *_nfd.build(self.policy, facts)]
        return [*made, *build(self.policy, facts)]

    def _nfd_configs(self, foreign: Sequence[str]) -> Dict[str, Mapping[str, str]]:
        """Configurations of workers in the namespaces of NFDs that are not ours."""
        found = {}
        for where in sorted({name.split(" ", 1)[1].split("/", 1)[0] for name in foreign}):
            for item in self._list("ConfigMap", where):
                if "nfd-worker.conf" in (item.get("data") or {}):
                    found[f"ConfigMap {where}/{item['metadata']['name']}"] = item["data"]
        return found

    # -- what others run ---------------------------------------------------------------------------------------------

    def _workloads(self, world: World) -> List[Any]:
        daemonsets = [made for made in world.daemonsets if what_is(made) is None]
        others = [
            item for kind in ("StatefulSet", "Job", "CronJob", "Pod") for item in self._list(kind, keep=_pod_part)
        ]
        items = [item for item in [*world.deployments, *daemonsets, *others] if item and not ours(item)]
        hidden = {self.namespace, *SYSTEM}
        return workloads_of(item for item in items if item["metadata"].get("namespace") not in hidden)

    def _webhooks(self, world: World) -> None:
        world.webhooks = [config for kind in HOOKS for config in self._list(kind)]
        named = {service_of(hook) for config in world.webhooks for hook in config.get("webhooks") or []}
        services: Dict[Tuple[str, str], Optional[int]] = {}
        for service in sorted(item for item in named if item is not None):
            services[service] = self._allowed("Service", partial(self._ready, *service), 1)
        world.services = services

    def _ready(self, namespace: str, name: str) -> Optional[int]:
        """Ready endpoints of a service; None where there is no such service."""
        if self.connection.find(path("Service", namespace, name)) is None:
            return None
        selector = f"kubernetes.io/service-name={name}"
        slices = list_objects(self.connection, "EndpointSlice", namespace, label_selector=selector).items
        ends = [end for one in slices for end in one.get("endpoints") or []]
        return sum(1 for end in ends if (end.get("conditions") or {}).get("ready") is not False)

    # -- the server's own word ---------------------------------------------------------------------------------------

    def _denied(self, wanted: Sequence[Object], gated: bool = False) -> List[Right]:
        """Rights that a run needs and that the account lacks. ``gated``: it looks for pods that a node refused."""
        if self._may(EVERYTHING):
            return []
        extra = {str(made["kind"]) for made in self.policy.extra_objects}
        asked = of_a_run(
            [kind for kind in [*KINDS, *sorted(extra - set(KINDS))] if kind not in OPTIONAL], self.namespace
        )
        asked += [Right("list", "", "pods")] if gated else []
        roles = [made for made in wanted if made["kind"] in ("ClusterRole", "Role")]
        asked += given_away(role for role in roles if not all(self._may(right) for right in to_give(role)))
        return [right for right in asked if not self._may(right)]

    def _may(self, right: Right) -> bool:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": right.attributes()},
        }
        answer = self.connection.request("POST", REVIEWS, body=body, idempotent=True).body
        return bool((answer.get("status") or {}).get("allowed"))

    def _admission(self, world: World) -> Dict[str, str]:
        """Each DaemonSet's pod, sent as a dry run: "" where it would be let in, or the refusal."""
        said: Dict[str, str] = {}
        if world.live_namespace is None:
            return said
        for made in world.operand_daemonsets:
            text = self._dry_run(made)
            if text is None:
                break
            said[made["metadata"]["name"]] = text
            if "calling webhook" in text:
                break  # each further one would wait for it as long
        return said

    def _dry_run(self, daemonset: Object) -> Optional[str]:
        """None where the account may not ask."""
        template = daemonset["spec"]["template"]
        # Made in the same run, before the pods: they need not be there now.
        spec = {k: v for k, v in template["spec"].items() if k not in ("serviceAccountName", "runtimeClassName")}
        meta = {**template["metadata"], "name": f"preflight-{daemonset['metadata']['name']}"[:63].rstrip("-.")}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        try:
            self.connection.request("POST", path("Pod", self.namespace), query={"dryRun": "All"}, body=body)
        except ApiError as error:
            if error.forbidden_by_rights:
                return None
            return "" if "does not support dry run" in error.message else error.message
        return ""


def _feature(item: Object) -> Object:
    meta = item["metadata"]
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key == NODE}
    return {
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "labels": labels},
        "facts": facts_of(item),
        "gpus": gpus_of(item),
    }


def _pod_part(item: Object) -> Object:
    """A workload as it is; of pods only those that nothing else makes, since there are many."""
    owners: Iterable[Mapping[str, Any]] = item["metadata"].get("ownerReferences") or ()
    if item["kind"] in ("Pod", "Job") and any(owner.get("controller") for owner in owners):
        return {}
    return item
