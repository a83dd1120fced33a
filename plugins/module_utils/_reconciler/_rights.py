# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rights of the account that reconciles a cluster from inside, and no more (S42).

Nothing may be escalated: what the operands' own roles grant, this account must hold itself, since it has neither of
the verbs ``escalate`` and ``bind``.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

from .._kube._resources import Object, resource
from .._stack._lease import NAME as LEASE
from .._stack._others import OPERATOR_LEASE

Rule = Dict[str, Any]

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
    "Role",
    "RoleBinding",
    "DaemonSet",
    "Deployment",
)
WRITE = ("create", "patch", "delete")


def cluster_rules(objects: Sequence[Object]) -> List[Rule]:
    """Rules that hold in the whole cluster. ``objects``: all that a run may ever make, of any policy."""
    rules = [
        _rule("Node", ("get", "list", "watch", "patch")),
        # Pods that hold GPUs: a MIG layout is never changed under them.
        _rule("Pod", ("list",)),
        # An NFD or a GPU Operator that runs already, in any namespace.
        _rule("Deployment", ("list",)),
        _rule("DaemonSet", ("list",)),
        _rule("Lease", ("list",), names=(OPERATOR_LEASE,)),
    ]
    for kind in CLUSTER_KINDS:
        names = sorted({str(o["metadata"]["name"]) for o in objects if o["kind"] == kind})
        rules.append(_rule(kind, ("list",)))
        if names:
            # A namespace is made by who installs the stack, and removed by who removes it.
            verbs = ("get", "patch") if kind == "Namespace" else ("get", *WRITE)
            watch = ("watch",) if kind == "CustomResourceDefinition" else ()
            rules.append(_rule(kind, (*verbs, *watch), names))
    return rules + granted(objects, ("ClusterRole",))


def namespace_rules(objects: Sequence[Object], named: Iterable[Tuple[str, str]] = ()) -> List[Rule]:
    """Rules that hold in the operands' namespace. ``named``: kinds and names of the user's objects that a run reads."""
    kinds = list(dict.fromkeys([*NAMESPACED_KINDS, *(str(o["kind"]) for o in objects if _namespaced(o))]))
    rules = [_rule(kind, ("get", "list", *WRITE)) for kind in kinds if kind not in ("DaemonSet", "Deployment")]
    rules += [
        _rule("DaemonSet", ("get", "list", "watch", *WRITE)),
        _rule("Deployment", ("get", "list", "watch", *WRITE)),
        # Driver pods that never became ready are replaced.
        _rule("Pod", ("list", "watch", "delete")),
        _rule("Event", ("list", "watch")),
        _rule("Lease", ("create",)),
        _rule("Lease", ("get", "update"), names=(LEASE,)),
    ]
    for kind, name in sorted(set(named)):
        if kind not in kinds:
            rules.append(_rule(kind, ("get",), names=(name,)))
    return rules + granted(objects, ("Role",))


def granted(objects: Sequence[Object], kinds: Sequence[str]) -> List[Rule]:
    """What roles among the objects grant, each once."""
    found: List[Rule] = []
    for made in objects:
        for rule in made.get("rules") or [] if made["kind"] in kinds else []:
            plain = {key: list(value) for key, value in rule.items()}
            if plain not in found:
                found.append(plain)
    return found


def _namespaced(made: Mapping[str, Any]) -> bool:
    return resource(str(made["kind"])).namespaced


def _rule(kind: str, verbs: Sequence[str], names: Sequence[str] = ()) -> Rule:
    found = resource(kind)
    rule: Rule = {"apiGroups": [found.group], "resources": [found.plural], "verbs": list(verbs)}
    return dict(rule, resourceNames=list(names)) if names else rule
