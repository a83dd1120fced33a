# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rights of the account that reconciles a cluster from inside, and no more (S42).

Nothing may be escalated: what the operands' own roles grant, this account must hold itself, since it has neither of
the verbs ``escalate`` and ``bind``.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

from .._kube._resources import Object, resource
from .._stack._lease import NAME as LEASE
from .._stack._others import OPERATOR_LEASE

Rule = Dict[str, Any]


class Right(NamedTuple):
    """One verb on one kind; ``name`` is "" for all objects of it. ``kind`` "" is a URL, which is the name then."""

    group: str
    kind: str
    name: str
    verb: str


# Kinds of the whole cluster that a run looks for by label.
CLUSTER_KINDS = (
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "RuntimeClass",
    "NodeFeatureRule",
)
# Kinds of the operands' namespace.
NAMESPACED_KINDS = (
    "ServiceAccount",
    "ConfigMap",
    "Service",
    "ServiceMonitor",
    "PrometheusRule",
    "Role",
    "RoleBinding",
    "DaemonSet",
    "Deployment",
)
WRITE = ("create", "patch", "delete")


def cluster_rules(objects: Sequence[Object], former: Iterable[str] = ()) -> List[Rule]:
    """Rules that hold in the whole cluster. ``objects``: all that a run may ever make, of any policy.

    ``former``: kinds that earlier policies had, which a run looks for too.
    """
    rules = [
        _rule("Node", ("get", "list", "watch", "patch")),
        # Pods that hold GPUs: a MIG layout is never changed under them.
        _rule("Pod", ("list",)),
        # What NFD saw on the PCI bus of a node that is to be served.
        _rule("NodeFeature", ("list",)),
        # An NFD or a GPU Operator that runs already, in any namespace.
        _rule("Deployment", ("list",)),
        _rule("DaemonSet", ("list",)),
        _rule("Lease", ("list",), names=(OPERATOR_LEASE,)),
    ]
    # Policies have objects of further kinds, such as node pools of Karpenter.
    further = [kind for kind in (*(str(o["kind"]) for o in objects), *former) if not resource(kind).namespaced]
    for kind in dict.fromkeys((*CLUSTER_KINDS, *further)):
        names = sorted({str(o["metadata"]["name"]) for o in objects if o["kind"] == kind})
        rules.append(_rule(kind, ("list",)))
        if names:
            # A namespace is made by who installs the stack, and removed by who removes it.
            verbs = ("get", "patch") if kind == "Namespace" else ("get", *WRITE)
            watch = ("watch",) if kind == "CustomResourceDefinition" else ()
            rules.append(_rule(kind, (*verbs, *watch), names))
    return rules


def namespace_rules(
    objects: Sequence[Object], named: Iterable[Tuple[str, str]] = (), former: Iterable[str] = ()
) -> List[Rule]:
    """Rules that hold in the operands' namespace. ``named``: kinds and names of the user's objects that a run reads."""
    kinds = list(dict.fromkeys([*NAMESPACED_KINDS, *(str(o["kind"]) for o in objects if _namespaced(o))]))
    rules = [_rule(kind, ("get", "list", *WRITE)) for kind in kinds if kind not in ("DaemonSet", "Deployment")]
    rules += [
        _rule("DaemonSet", ("get", "list", "watch", *WRITE)),
        _rule("Deployment", ("get", "list", "watch", *WRITE)),
        # Driver pods that never became ready are replaced.
        _rule("Pod", ("list", "watch", "delete")),
        _rule("Event", ("list", "watch")),
        # Which pods are of a DaemonSet's present revision.
        _rule("ControllerRevision", ("list",)),
        _rule("Lease", ("create",)),
        _rule("Lease", ("get", "update"), names=(LEASE,)),
    ]
    rules += [_rule(kind, ("list",)) for kind in former if resource(kind).namespaced and kind not in kinds]
    for kind, name in sorted(set(named)):
        if kind not in kinds:
            rules.append(_rule(kind, ("get",), names=(name,)))
    return rules


def account_rules(
    objects: Sequence[Object], named: Iterable[Tuple[str, str]] = (), former: Sequence[str] = ()
) -> Tuple[List[Rule], List[Rule]]:
    """The rules of the account in the whole cluster, and in the operands' namespace: each right once."""
    wide = _rights([*cluster_rules(objects, former), *_granted(objects, "ClusterRole")])
    here = _rights([*namespace_rules(objects, named, former), *_granted(objects, "Role")])
    return _rules(_needed(wide, wide)), _rules(_needed(here, here | wide))


def _granted(objects: Sequence[Object], kind: str) -> List[Rule]:
    """What roles among the objects grant."""
    return [rule for made in objects if made["kind"] == kind for rule in made.get("rules") or []]


def _rights(rules: Iterable[Mapping[str, Any]]) -> Set[Right]:
    """Rules taken apart."""
    return {
        Right(group, kind, name, verb)
        for rule in rules
        for group in rule.get("apiGroups") or [""]
        for kind in rule.get("resources") or [""]
        for name in rule.get("resourceNames") or rule.get("nonResourceURLs") or [""]
        for verb in rule["verbs"]
    }


def _needed(rights: Set[Right], known: Set[Right]) -> Set[Right]:
    """Those that ``known`` does not give anyway, by a right to all objects of the kind, or in the whole cluster."""
    general = known - rights
    return {
        right
        for right in rights
        if right not in general
        and not (right.name and right._replace(name="") in known)
        and right._replace(name="") not in general
    }


def _rules(rights: Set[Right]) -> List[Rule]:
    """Rights put together to rules: one for each kind and set of names with the same verbs."""
    verbs: Dict[Tuple[str, str, str], Set[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.kind, right.name), set()).add(right.verb)
    names: Dict[Tuple[str, str, Tuple[str, ...]], List[str]] = {}
    for (group, kind, name), found in verbs.items():
        names.setdefault((group, kind, tuple(sorted(found))), []).append(name)
    rules: List[Rule] = []
    for (group, kind, found_verbs), found_names in sorted(names.items()):
        if not kind:
            rules.append({"nonResourceURLs": sorted(found_names), "verbs": list(found_verbs)})
            continue
        for chosen in ([""], sorted(name for name in found_names if name)):
            if chosen and set(chosen) <= set(found_names):
                rule: Rule = {"apiGroups": [group], "resources": [kind], "verbs": list(found_verbs)}
                rules.append(rule if chosen == [""] else dict(rule, resourceNames=chosen))
    return rules


def _namespaced(made: Mapping[str, Any]) -> bool:
    return resource(str(made["kind"])).namespaced


def _rule(kind: str, verbs: Sequence[str], names: Sequence[str] = ()) -> Rule:
    found = resource(kind)
    rule: Rule = {"apiGroups": [found.group], "resources": [found.plural], "verbs": list(verbs)}
    return dict(rule, resourceNames=list(names)) if names else rule
