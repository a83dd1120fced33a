# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rights of an account: one right, what roles give away, and which of many an account lacks, in sentences."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple

from .._plan import ERROR, Finding
from ._connection import Connection

RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
# Nobody gives a run rights in this namespace alone: what an account may do there it may do everywhere.
ANYWHERE = "kube-node-lease"


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


def given_away(wanted: Iterable[Mapping[str, object]]) -> List[Right]:
    """What roles hold: Kubernetes lets nobody give rights away that he does not hold himself."""
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


class Held:
    """The rights that the server says an account has: two requests, however many rights are asked for.

    ``complete`` is false where the server cannot list them all (authorizers beside RBAC): then nothing follows.
    """

    def __init__(self, connection: Connection, namespace: str) -> None:
        self.complete = True
        self.namespace = namespace
        self._anywhere = self._rules(connection, ANYWHERE)
        self._here = self._rules(connection, namespace)

    def _rules(self, connection: Connection, namespace: str) -> List[Mapping[str, Sequence[str]]]:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        }
        status = connection.request("POST", RULES, body=body, idempotent=True).body.get("status") or {}
        self.complete = self.complete and not status.get("incomplete")
        return list(status.get("resourceRules") or [])

    def has(self, right: Right) -> bool:
        """Whether the account holds a right. Of other namespaces nothing was asked, so nothing is missing there."""
        if right.namespace not in ("", self.namespace):
            return True
        return any(_covers(rule, right) for rule in (self._here if right.namespace else self._anywhere))


def _covers(rule: Mapping[str, Sequence[str]], right: Right) -> bool:
    names = rule.get("resourceNames") or ()
    wanted = (("verbs", right.verb), ("apiGroups", right.group), ("resources", right.resource))
    fits = all({"*", value} & set(rule.get(key) or ()) for key, value in wanted)
    return fits and (not names or bool(right.name and right.name in names))


def findings_of(denied: Iterable[Right]) -> List[Finding]:
    """Rights that are missing, one finding a resource."""
    missing: Dict[Tuple[bool, str, str, str], List[str]] = {}
    for right in denied:
        missing.setdefault((right.given, right.group, right.resource, right.namespace), []).append(right.verb)
    found = []
    for (given, group, name, namespace), verbs in sorted(missing.items()):
        where = f" in namespace {namespace}" if namespace else " in the whole cluster"
        what = f"{name}{'.' + group if group else ''}{where}"
        said = ", ".join(dict.fromkeys(verbs))
        if given:
            detail = f"the account cannot give the operands the right to {said} {what}, because it does not hold it"
            remedy = "Use an account with cluster-admin, or grant it this right, or escalate and bind on such roles."
            found.append(Finding("rights-to-give", ERROR, detail, what, remedy=remedy))
        else:
            detail = f"the account may not {said} {what}"
            remedy = "Use an account with cluster-admin, or grant it this right (the reconciler's: install it again)."
            found.append(Finding("rights-missing", ERROR, detail, what, remedy=remedy))
    return found
