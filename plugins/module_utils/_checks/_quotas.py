# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quotas of our namespace, those of priority classes too (GKE), against the pods that operands need."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from .._kube._quantities import quantity
from .._plan import ERROR, WARNING, Finding
from ._security import is_quota
from ._world import World, some

GKE = "cloud.google.com/gke-nodepool"


def judge(world: World) -> List[Finding]:
    return _refused(world) + _too_small(world) + _gke(world)


def _refused(world: World) -> List[Finding]:
    by_text: Dict[str, List[str]] = {}
    for name, text in sorted(world.admission.items()):
        if is_quota(text):
            by_text.setdefault(text.partition(" is forbidden: ")[2] or text, []).append(name)
    return [
        Finding(
            "quota-refuses",
            ERROR,
            f"pods of {some(names)} would be refused: {text}",
            f"Namespace {world.namespace}",
            remedy=_remedy(text),
        )
        for text, names in by_text.items()
    ]


def _remedy(text: str) -> str:
    if "match these scopes" in text:
        return "Add a ResourceQuota whose scopeSelector allows the priority class, by extraObjects of the policy."
    if "must specify" in text:
        return "Give the components resources in the policy, or take the key out of the quota."
    return "Raise the quota."


def _too_small(world: World) -> List[Finding]:
    """A quota of pods that one pod fits in, and one for each node does not."""
    needed = len(world.operand_daemonsets) * len(world.gpu_nodes)
    found = []
    for quota in world.quotas:
        spec, used = quota.get("spec") or {}, (quota.get("status") or {}).get("used") or {}
        limit = quantity((spec.get("hard") or {}).get("pods"))
        if limit is None or not _covers(spec, world.policy.daemonsets.priority_class_name):
            continue
        if limit < needed:
            detail = f"allows {limit} pods, of which {used.get('pods', 0)} are used; the operands need up to {needed}"
            target = f"ResourceQuota {world.namespace}/{quota['metadata']['name']}"
            found.append(Finding("quota-small", WARNING, detail, target, remedy="Raise it."))
    return found


def _covers(spec: Mapping[str, Any], priority: str) -> bool:
    """Whether a quota counts pods of the operands' priority class."""
    expressions = (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    if spec.get("scopes") or any(e.get("scopeName") != "PriorityClass" for e in expressions):
        return False
    return all(
        {
            "In": priority in (e.get("values") or []),
            "NotIn": priority not in (e.get("values") or []),
            "Exists": True,
        }.get(e.get("operator"), False)
        for e in expressions
    )


def _gke(world: World) -> List[Finding]:
    """GKE refuses critical pods where no quota names their priority class; a dry run tells it of a namespace only."""
    on_gke = any(GKE in node["metadata"]["labels"] for node in world.nodes)
    priority = world.policy.daemonsets.priority_class_name
    if world.admission or not on_gke or not priority.startswith("system-"):
        return []
    extra = [dict(o) for o in world.policy.extra_objects if o.get("kind") == "ResourceQuota"]
    if any((o.get("spec") or {}).get("scopeSelector") and _covers(o["spec"], priority) for o in extra + world.quotas):
        return []
    detail = f"GKE refuses pods of priority class {priority} in a namespace without a quota that allows it"
    remedy = "Add the ResourceQuota of inventories/gke-cos to extraObjects of the policy."
    return [Finding("quota-gke", ERROR, detail, f"Namespace {world.namespace}", remedy=remedy)]
