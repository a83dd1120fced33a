# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rights of the account: what a run of the stack does, and what it gives to the operands' accounts (S30)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple

from .._kube._resources import resource
from .._plan import ERROR, WARNING, Finding

if TYPE_CHECKING:
    from ._world import World

RBAC = "rbac.authorization.k8s.io"
# What a run reads and does beside the objects that it owns.
_BESIDE: Tuple[Tuple[str, str, bool], ...] = (
    ("Node", "get list watch patch", False),
    ("Pod", "list watch delete", True),
    ("Event", "list watch", True),
    ("ControllerRevision", "list", True),
    ("Lease", "get create update", True),
)


class Right(NamedTuple):
    """One question to the API server. ``namespace`` "" means in the whole cluster; ``given``: for the operands."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    given: bool = False

    def __str__(self) -> str:
        group = f".{self.group}" if self.group else ""
        name = f"/{self.name}" if self.name else ""
        return f"{self.verb} {self.resource}{group}{name}"

    def attributes(self) -> Dict[str, str]:
        """As ``resourceAttributes`` of a SelfSubjectAccessReview."""
        kind, _slash, sub = self.resource.partition("/")
        made = {"verb": self.verb, "group": self.group, "resource": kind, "subresource": sub}
        return {k: v for k, v in {**made, "namespace": self.namespace, "name": self.name}.items() if v or k == "group"}


EVERYTHING = Right("*", "*", "*")
ESCALATE = (Right("escalate", RBAC, "clusterroles"), Right("bind", RBAC, "clusterroles"))


def of_a_run(kinds: Iterable[str], namespace: str) -> List[Right]:
    """What a run needs: to list every kind that it may own, and to make, change and remove objects of them."""
    found = []
    for kind in kinds:
        at = resource(kind)
        where = namespace if at.namespaced else ""
        found.append(Right("list", at.group, at.plural))
        found += [Right(verb, at.group, at.plural, where) for verb in ("get", "create", "patch", "delete")]
    for kind, verbs, namespaced in _BESIDE:
        at = resource(kind)
        where = namespace if namespaced else ""
        found += [Right(verb, at.group, at.plural, where) for verb in verbs.split()]
    return list(dict.fromkeys(found))


def of_operands(wanted: Iterable[Mapping[str, object]]) -> List[Right]:
    """What roles of the operands hold: Kubernetes lets nobody give rights away that he does not hold himself."""
    found: Set[Right] = set()
    for made in wanted:
        if made["kind"] in ("ClusterRole", "Role"):
            meta = made["metadata"]
            where = str(meta.get("namespace", "")) if made["kind"] == "Role" and isinstance(meta, Mapping) else ""
            rules = made.get("rules")
            found |= {right for rule in (rules if isinstance(rules, list) else ()) for right in _of_rule(rule, where)}
    return sorted(found)


def _of_rule(rule: Mapping[str, Sequence[str]], namespace: str) -> Iterator[Right]:
    for group in rule.get("apiGroups") or ():
        for kind in rule.get("resources") or ():
            for verb in rule.get("verbs") or ():
                for name in rule.get("resourceNames") or ("",):
                    yield Right(verb, group, kind, namespace, name, True)


def judge(world: World) -> List[Finding]:
    """Rights that are missing, one finding a resource; what could not be read, so that a check is blind."""
    missing: Dict[Tuple[bool, str, str, str], List[str]] = {}
    for right in world.denied:
        missing.setdefault((right.given, right.group, right.resource, right.namespace), []).append(right.verb)
    found = []
    for (given, group, name, namespace), verbs in sorted(missing.items()):
        where = f" in namespace {namespace}" if namespace else " in the whole cluster"
        what = f"{name}{'.' + group if group else ''}{where}"
        said = ", ".join(dict.fromkeys(verbs))
        if given:
            detail = f"the account cannot give the operands the right to {said} {what}, because it does not hold it"
            remedy = "Use an account with cluster-admin, or grant it this right or escalate and bind on clusterroles."
            found.append(Finding("rights-to-give", ERROR, detail, what, remedy=remedy))
        else:
            detail = f"the account may not {said} {what}"
            remedy = "Use an account with cluster-admin, or grant it this right."
            found.append(Finding("rights-missing", ERROR, detail, what, remedy=remedy))
    for kind, why in sorted(world.unread.items()):
        detail = f"{kind} cannot be read, so what depends on it was not checked: {why}"
        found.append(Finding("preflight-blind", WARNING, detail, kind, remedy="Grant the right to list it."))
    return found
