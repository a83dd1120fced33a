# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rights of the account: what a run of the stack does, and what it gives to the operands' accounts (S30)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, List, Mapping, Tuple

from .._kube._resources import resource
from .._kube._rights import Right, findings_of
from .._plan import WARNING, Finding

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
    ("NodeFeature", "list", False),
)

EVERYTHING = Right("*", "*", "*")


def to_give(role: Mapping[str, Any]) -> List[Right]:
    """What lets an account make and bind a role without holding what the role gives."""
    kind, meta = str(role["kind"]), role["metadata"]
    where = str(meta.get("namespace") or "") if kind == "Role" else ""
    return [Right(verb, RBAC, resource(kind).plural, where, str(meta["name"])) for verb in ("escalate", "bind")]


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


def judge(world: World) -> List[Finding]:
    """Rights that are missing, one finding a resource; what could not be read, so that a check is blind."""
    found = findings_of(world.denied)
    for kind, why in sorted(world.unread.items()):
        detail = f"{kind} cannot be read, so what depends on it was not checked: {why}"
        found.append(Finding("preflight-blind", WARNING, detail, kind, remedy="Grant the right to list it."))
    return found
