# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The taint ``nvidia.com/gpu`` that keeps other pods off GPU nodes, and who would not get past it (S26)."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ._change import Draft, Taint
from ._keys import GATE

KEY = "nvidia.com/gpu"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def taint(value: str = "", effect: str = "NoSchedule") -> Dict[str, str]:
    """The GPU taint as the API writes it: without a value where that is empty."""
    made = {"key": KEY, "effect": effect}
    if value:
        made["value"] = value
    return made


def identity(one: Taint) -> str:
    """What makes two taints the same for the API: key and effect."""
    return f"{one.get('key', '')}:{one.get('effect', '')}"


def values_of(taints: Iterable[Taint]) -> Dict[str, str]:
    """Values of a node's taints by identity."""
    return {identity(one): str(one.get("value") or "") for one in taints}


def plan_taint(draft: Draft, wanted: Optional[Taint], gated: bool = False) -> None:
    """Puts the wanted taint on the draft, and takes away one that we put there and that is not wanted any more.

    A taint of the same key and effect that somebody else put there serves as well, whatever its value: it stays.
    ``gated``: the taint of ``_gate`` is looked after elsewhere.
    """
    scope = draft.taints
    keep = identity(wanted) if wanted is not None else ""
    for known in list(scope.ours):
        if known != keep and not (gated and known.startswith(f"{GATE}:")) and scope.undo(known, _never):
            draft.reasons[f"taint {known}"] = "no node group asks for it any more"
    if wanted is None:
        return
    value, there = str(wanted.get("value") or ""), keep in scope.values
    if not there or (keep in scope.ours and scope.values[keep] == scope.ours[keep] != value):
        scope.put(keep, value)
        draft.reasons[f"taint {keep}"] = "only pods that tolerate it are to run on the node"


def _never(_value: str) -> bool:
    return False


def taints_after(taints: Sequence[Taint], draft: Draft) -> Optional[Tuple[Taint, ...]]:
    """The node's whole list with the draft's changes, others untouched and in order; None when nothing differs."""
    before, after = draft.taints.before, draft.taints.values
    if before == after:
        return None
    kept = [dict(one) for one in taints if identity(one) in after]
    for one in kept:
        if before[identity(one)] != after[identity(one)]:
            one["value"] = after[identity(one)]
            if not one["value"]:
                del one["value"]
    for key in sorted(set(after) - set(before)):
        name, effect = key.rsplit(":", 1)
        kept.append({"key": name, "effect": effect, **({"value": after[key]} if after[key] else {})})
    return tuple(kept)


def tolerates(pod_spec: Mapping[str, Any], one: Taint) -> bool:
    """Whether a pod may run beside a taint (PreferNoSchedule asks for nothing)."""
    if one.get("effect") == "PreferNoSchedule":
        return True
    return any(_matches(toleration, one) for toleration in pod_spec.get("tolerations") or [])


def _matches(toleration: Mapping[str, Any], one: Taint) -> bool:
    if toleration.get("effect") and toleration["effect"] != one.get("effect"):
        return False
    operator = toleration.get("operator") or "Equal"
    if not toleration.get("key"):
        return bool(operator == "Exists")
    if toleration["key"] != one.get("key"):
        return False
    if operator == "Exists":
        return True
    return bool(operator == "Equal" and (toleration.get("value") or "") == (one.get("value") or ""))


def describe(one: Taint) -> str:
    """``nvidia.com/gpu=true:NoSchedule``."""
    value = f"={one['value']}" if one.get("value") else ""
    return f"{one.get('key')}{value}:{one.get('effect')}"


def untolerated(objects: Iterable[Mapping[str, Any]], taints: Iterable[Taint]) -> List[str]:
    """DaemonSets among objects whose pods lack a toleration for one of the taints, as sentences."""
    wanted = list(taints)
    found = []
    for made in objects:
        if made.get("kind") != "DaemonSet":
            continue
        spec = made["spec"]["template"]["spec"]
        name = made["metadata"]["name"]
        found += [f"DaemonSet {name} does not tolerate {describe(one)}" for one in wanted if not tolerates(spec, one)]
    return found
