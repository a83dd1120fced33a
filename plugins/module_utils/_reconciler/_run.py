# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installing, changing and removing the reconciler of a cluster."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from .._kube._apply import Plan, owned, plan, rehearse
from .._kube._resources import RECONCILER, STACK, Object, path
from .._operands import OPERANDS, _nfd
from .._operands._namespace import namespace as namespace_object
from .._operands._problems import named_by
from .._operands._types import ClusterFacts, NodeFacts
from .._plan import ERROR, Failure, Finding, Result, errors, refusal
from .._policy._load import merge, policy_hash
from .._policy._model import Image, Policy
from .._stack._journal import Journal
from .._stack._nodes import read_groups
from .._stack._request import Progress, Request, read_policy
from .._stack._stack import former_kinds
from ._objects import NAME, Wanted, build
from ._rights import CLUSTER_KINDS, account_rules

KINDS = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "CronJob",
)
SPARE = 300  # seconds that a run may take to start and to end, beside its own limits
_FIELD = r"(\*|[0-9A-Za-z]+)([-/,][0-9A-Za-z*]+)*"
_SCHEDULE = re.compile(rf"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|{_FIELD}( {_FIELD}){{4}})$")


def reconciler(params: Mapping[str, Any], check: bool, progress: Progress) -> Result:
    """Entry of the module of this name."""
    request = Request.from_params(params, check, progress)
    # What it writes is not what runs of the stack write: those go on meanwhile.
    journal = Journal(request, exclusive=False)
    wanted: List[Object] = []
    if params["state"] == "present":
        _judge(params, journal)
        wanted = _wanted(params, journal)
        if request.connection.find(path("Namespace", name=request.namespace)) is None:
            detail = "is not there, so there is nothing to reconcile yet"
            remedy = "Run gpufleet.nvidia.site once: it also proves that the policy works."
            journal.add_findings([Finding("namespace-missing", ERROR, detail, request.namespace, remedy=remedy)])
    made = plan(
        request.connection, wanted, kinds=KINDS, scope=RECONCILER, drift=request.drift, deadline=request.deadline
    )
    journal.add_findings(made.findings)
    _refuse(journal)
    journal.expect(step.action() for step in made.steps)
    journal.found.update(namespace=params["own_namespace"], name=NAME, installed=_installed(made))
    if check:
        journal.add_findings(rehearse(request.connection, made, request.deadline))
        _refuse(journal)
        return journal.result()
    journal.run_steps(made.steps, "reconciler")
    journal.wait_gone(made.steps)
    journal.found.update(installed=bool(wanted))
    return journal.result()


def _judge(params: Mapping[str, Any], journal: Journal) -> None:
    if not params.get("image"):
        detail = "is missing: the image in which the run happens"
        remedy = "Build one from meta/execution-environment.yml of the collection with ansible-builder."
        journal.add_findings([Finding("reconciler.image", ERROR, detail, path="image", remedy=remedy)])
    if not _SCHEDULE.match(params["schedule"]):
        detail = f"is {params['schedule']!r}: five fields of cron, or @hourly and its like, are allowed"
        journal.add_findings([Finding("reconciler.schedule", ERROR, detail, path="schedule")])
    if params["watch"] < 0:
        detail = f"is {params['watch']}: seconds from 0 on are allowed"
        journal.add_findings([Finding("reconciler.watch", ERROR, detail, path="watch")])
    if params["own_namespace"] == params["namespace"]:
        detail = f"is {params['namespace']}, the namespace of the operands, where pods may be privileged"
        remedy = "Give the reconciler a namespace of its own."
        journal.add_findings([Finding("reconciler.namespace", ERROR, detail, path="own_namespace", remedy=remedy)])
    journal.add_findings(read_groups(journal.request)[1])


def _wanted(params: Mapping[str, Any], journal: Journal) -> List[Object]:
    policy = read_policy(params, journal.findings)
    journal.found["policy_hash"] = policy_hash(policy)
    documents = [s for s in params.get("policy_documents") or [] if s]
    source, _findings = merge([*documents, *([params["policy"]] if params.get("policy") else [])])
    former = former_kinds(journal.request.connection.find(path("Namespace", name=journal.request.namespace)))
    objects = [*makeable(policy, params["namespace"]), *_made(journal.request, former)]
    named = [(item.kind, item.name) for item in named_by(policy)]
    wanted = Wanted(
        namespace=params["own_namespace"],
        operands=params["namespace"],
        image=params.get("image") or "",
        schedule=params["schedule"],
        policy=source,
        variables=_variables(params),
        seconds=int(params["timeout"]) + int(params["watch"]) + SPARE,
        suspend=params["suspend"],
        image_pull_secrets=tuple(params.get("image_pull_secrets") or ()),
        node_selector=params.get("node_selector") or {},
        tolerations=params.get("tolerations") or (),
        resources=params.get("resources"),
    )
    return build(wanted, *account_rules(objects, named, former))


def makeable(policy: Policy, namespace: str) -> List[Object]:
    """Every object that a run of the policy may make or remove, those of operands that are off included."""
    labels = {
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
    }
    node = NodeFacts("any", labels=labels, kernel="any")
    policy = _with_images(replace(policy, nfd=replace(policy.nfd, enabled=True, node_feature_rules=True)))
    facts = ClusterFacts(namespace=namespace, nodes=(node,), service_monitor_crd=True, prometheus_rule_crd=True)
    objects = [namespace_object(policy, facts), *_nfd.crds(), *_nfd.build(policy, facts)]
    for operand in OPERANDS:
        objects += operand.build(policy, facts)
    return objects + [dict(item) for item in policy.extra_objects]


def _with_images(part: Any) -> Any:
    """The same policy with a name where the release has no image for a part that is off: rights do not depend on it."""
    if isinstance(part, Image):
        return part if part.image else replace(part, repository="", image="none", version="")
    if not is_dataclass(part) or isinstance(part, type):
        return part
    return replace(part, **{one.name: _with_images(getattr(part, one.name)) for one in fields(part)})


def _made(request: Request, former: Sequence[str]) -> List[Object]:
    """What is in the cluster of an earlier policy, by kind and name: the next run may have to take it away."""
    kinds = dict.fromkeys([*CLUSTER_KINDS, *former])
    found = [o for kind in kinds for o in owned(request.connection, kind, deadline=request.deadline, scope=STACK).items]
    return [{"kind": o["kind"], "metadata": {"name": o["metadata"]["name"]}} for o in found]


def _variables(params: Mapping[str, Any]) -> Dict[str, Any]:
    """Variables of the role cluster_policy for the run inside the cluster."""
    pairs: Tuple[Tuple[str, Any], ...] = (
        ("cluster_policy_set_values", list(params.get("set_values") or [])),
        ("cluster_policy_release", params.get("release") or ""),
        ("cluster_policy_image_registry", params.get("image_registry") or ""),
        ("cluster_policy_max_failed_nodes", params["max_failed_nodes"]),
        ("cluster_policy_accept", list(params.get("accept") or [])),
        ("gpufleet_node_groups", list(params.get("node_groups") or [])),
        ("cluster_policy_drift", params["drift"]),
        ("cluster_policy_stage_timeout", params["stage_timeout"]),
        ("cluster_policy_timeout", params["timeout"]),
        ("cluster_policy_watch", params["watch"]),
    )
    return {name: value for name, value in pairs if value not in ("", [])}


def _installed(made: Plan) -> bool:
    return any(which.kind == "CronJob" for which in made.live)


def _refuse(journal: Journal) -> None:
    if errors(journal.findings):
        raise Failure(refusal(journal.findings), journal.result())
