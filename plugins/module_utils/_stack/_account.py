# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the account of a run may do what the run has planned, asked before the first write (S30, S42).

A run with nothing to do asks nothing. What is asked for is what this plan needs, so that an account with just the
rights of its work passes, such as the reconciler's.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, Sequence, Set, Tuple

from .._kube._apply import CREATE, DELETE, REPLACE, Step
from .._kube._connection import ApiError, Connection
from .._kube._resources import resource
from .._kube._rights import Held, Right, findings_of, given_away
from .._plan import Finding
from ._lease import NAME as LEASE

RBAC = "rbac.authorization.k8s.io"
# What waiting for the operands reads, in their namespace.
_WATCHED = ("DaemonSet", "Deployment", "Pod")


def lacking(
    connection: Connection, steps: Sequence[Step], nodes: Iterable[str], namespace: str, wait: bool
) -> List[Finding]:
    """Rights that the plan needs and the account lacks. ``nodes``: those whose labels or taints are to change."""
    try:
        held = Held(connection, namespace)
    except ApiError as error:
        if error.status in (403, 404):  # a server that does not say what an account may do: the writes will tell
            return []
        raise
    if not held.complete:
        return []
    needed = [*_of_steps(steps), *_of_nodes(nodes), *_of_a_run(namespace, wait)]
    roles = [step.wanted for step in steps if step.wanted is not None and step.ref.kind in ("ClusterRole", "Role")]
    bound = {_bound_role(step) for step in steps}
    needed += given_away(role for role in roles if not _may_give(held, role, bound))
    return findings_of(right for right in dict.fromkeys(needed) if not held.has(right))


def _bound_role(step: Step) -> Tuple[str, str]:
    """Kind and name of the role that a step binds; empty for other steps."""
    found = (step.wanted or {}).get("roleRef") or {}
    return str(found.get("kind", "")), str(found.get("name", ""))


def _may_give(held: Held, role: Mapping[str, Any], bound: Set[Tuple[str, str]]) -> bool:
    """Whether the account may make a role, and bind it where it does so, without holding what the role gives."""
    kind, meta = str(role["kind"]), role["metadata"]
    name, where = str(meta["name"]), str(meta.get("namespace") or "") if kind == "Role" else ""
    verbs = ("escalate", "bind") if (kind, name) in bound else ("escalate",)
    return all(held.has(Right(verb, RBAC, resource(kind).plural, where, name)) for verb in verbs)


def _of_steps(steps: Sequence[Step]) -> List[Right]:
    found = []
    for step in steps:
        at = resource(step.ref.kind)
        verbs = {DELETE: ("delete",), REPLACE: ("delete", "create", "patch"), CREATE: ("create", "patch")}
        for verb in verbs.get(step.verb, ("patch",)):
            found.append(Right(verb, at.group, at.plural, step.ref.namespace, step.ref.name))
    return found


def _of_nodes(nodes: Iterable[str]) -> List[Right]:
    at = resource("Node")
    return [Right("patch", at.group, at.plural, "", name) for name in nodes]


def _of_a_run(namespace: str, wait: bool) -> List[Right]:
    lease = resource("Lease")
    found = [Right("create", lease.group, lease.plural, namespace)]
    found += [Right(verb, lease.group, lease.plural, namespace, LEASE) for verb in ("get", "update")]
    for kind in _WATCHED if wait else ():
        at = resource(kind)
        found += [Right(verb, at.group, at.plural, namespace) for verb in ("list", "watch")]
    if wait:
        found.append(Right("list", "", "events", namespace))
        found.append(Right("watch", "", "nodes"))
    return found
