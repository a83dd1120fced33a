# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node whose host gets a new MIG layout: its GPU clients paused as the MIG manager pauses them, and given back.

What was there is one annotation on the node, written together with the change, so that a run after a killed one, or a
person, can give it back::

    {"cordoned": whether we cordoned it, "labels": {key: value that was there}}
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from .._plan import Action
from ._keys import DEPLOY, MIG_STATE
from ._mig_guard import Pod, name_of

PAUSED = "paused-for-mig-change"
MEMORY = "gpufleet.io/mig-pause"
PROBLEM = "gpufleet.io/mig-problem"
PENDING, REBOOTING, SUCCESS, FAILED = "pending", "rebooting", "success", "failed"
CLIENT = DEPLOY + "client"
# Deploy labels, and the apps whose pods are gone once they are paused.
_APPS: Dict[str, Tuple[str, ...]] = {
    DEPLOY + "device-plugin": ("nvidia-device-plugin-daemonset", "nvidia-device-plugin-mps-control-daemon"),
    DEPLOY + "gpu-feature-discovery": ("gpu-feature-discovery",),
    DEPLOY + "dcgm-exporter": ("nvidia-dcgm-exporter",),
    DEPLOY + "dcgm": ("nvidia-dcgm",),
    DEPLOY + "nvsm": (),
    CLIENT: (),
}
#: Pods that the validator made; nothing runs in them that a person would miss.
VALIDATORS = ("nvidia-cuda-validator", "nvidia-device-plugin-validator")
_MOST_WORDS = 500  # of a problem; annotations are for people


@dataclass(frozen=True)
class Patch:
    """What changes on a node. ``None`` takes a key away; ``cordon``: None leaves that as it is."""

    node: str
    labels: Mapping[str, Optional[str]] = field(default_factory=dict)
    annotations: Mapping[str, Optional[str]] = field(default_factory=dict)
    cordon: Optional[bool] = None
    was: Mapping[str, Optional[str]] = field(default_factory=dict)
    reason: str = ""

    def body(self) -> Dict[str, Any]:
        """As a merge patch; {} when nothing changes."""
        meta = {"labels": dict(self.labels), "annotations": dict(self.annotations)}
        body: Dict[str, Any] = {name: part for name, part in meta.items() if part}
        whole: Dict[str, Any] = {"metadata": body} if body else {}
        if self.cordon is not None:
            whole["spec"] = {"unschedulable": True if self.cordon else None}
        return whole

    def actions(self) -> List[Action]:
        """What a person cares about; our memory is not among it."""
        target = f"Node/{self.node}"
        found = []
        for kind, part in (("label", self.labels), ("annotation", self.annotations)):
            for key, value in sorted(part.items()):
                verb = kind if value is not None else f"un{kind}"
                if key != MEMORY:
                    found.append(Action(f"{target}:{key}", verb, target, self.reason, False, self.was.get(key), value))
        if self.cordon is not None:
            verb = "cordon" if self.cordon else "uncordon"
            found.append(
                Action(f"{target}:{verb}", verb, target, self.reason, self.cordon, not self.cordon, self.cordon)
            )
        return found


def pause(node: Mapping[str, Any], state: str = PENDING) -> Patch:
    """Cordon a node and pause its GPU clients. A label that is ``false`` or not there stays; one that an earlier run
    paused is remembered as it was before that."""
    labels, notes = _maps(node)
    memory = _memory(notes)
    kept: Dict[str, str] = dict(memory.get("labels") or {})
    new: Dict[str, Optional[str]] = {}
    for key in _APPS:
        value = labels.get(key)
        if value not in (None, "false", PAUSED):
            new[key] = PAUSED
            kept.setdefault(key, str(value))
    cordons = not node.get("spec", {}).get("unschedulable")
    new.update({} if labels.get(MIG_STATE) == state else {MIG_STATE: state})
    said = json.dumps({"cordoned": bool(memory.get("cordoned")) or cordons, "labels": kept}, sort_keys=True)
    gone = {PROBLEM: None} if PROBLEM in notes else {}
    return Patch(
        str(node["metadata"]["name"]),
        new,
        {**({} if notes.get(MEMORY) == said else {MEMORY: said}), **gone},
        True if cordons else None,
        {**labels, **notes},
        "its host gets a new MIG layout",
    )


def resume(node: Mapping[str, Any], state: str, problem: str = "") -> Patch:
    """Give back what ``pause`` changed, and say how it ended. An admin's cordon stays, and so do labels that somebody
    has changed since. An empty deploy label counts as true, as for the MIG manager."""
    labels, notes = _maps(node)
    memory = _memory(notes)
    new: Dict[str, Optional[str]] = {
        key: value or "true" for key, value in (memory.get("labels") or {}).items() if labels.get(key) == PAUSED
    }
    new.update({} if labels.get(MIG_STATE) == state else {MIG_STATE: state})
    said: Dict[str, Optional[str]] = {MEMORY: None} if MEMORY in notes else {}
    words = problem[:_MOST_WORDS] or None
    said.update({} if notes.get(PROBLEM) == words else {PROBLEM: words})
    lifts = bool(memory.get("cordoned")) and bool(node.get("spec", {}).get("unschedulable"))
    reason = "its host has its MIG layout" if state == SUCCESS else "its host did not get its MIG layout"
    return Patch(str(node["metadata"]["name"]), new, said, False if lifts else None, {**labels, **notes}, reason)


def is_paused(node: Mapping[str, Any]) -> bool:
    """Whether a run has paused it and not given it back."""
    return MEMORY in _maps(node)[1]


def clients(node: Mapping[str, Any], pods: Iterable[Pod]) -> List[str]:
    """Pods that are there still although their label is paused: ``namespace/name``, sorted."""
    labels = _maps(node)[0]
    apps = {app for key, found in _APPS.items() if labels.get(key) == PAUSED for app in found}
    left = []
    for pod in pods:
        app = (pod["metadata"].get("labels") or {}).get("app")
        wants = (pod.get("spec") or {}).get("nodeSelector") or {}
        if app in apps or (CLIENT in wants and labels.get(CLIENT) == PAUSED):
            left.append(name_of(pod))
    return sorted(left)


def is_client(pod: Pod) -> bool:
    """Whether its DaemonSet takes it away once the label of clients is paused. Pods of others stay, whatever they
    select: only the controller of DaemonSets looks at that again."""
    return owner(pod) == "DaemonSet" and CLIENT in ((pod.get("spec") or {}).get("nodeSelector") or {})


def validators(pods: Iterable[Pod], namespace: str) -> List[Pod]:
    """Pods of the validator that hold a GPU until they are deleted. ``namespace``: that of the operands, since pods of
    others may have the same label."""
    found = []
    for pod in pods:
        meta = pod["metadata"]
        if meta.get("namespace") == namespace and (meta.get("labels") or {}).get("app") in VALIDATORS:
            found.append(pod)
    return found


def owner(pod: Pod) -> str:
    """Kind of the controller that makes a pod anew; "" for a pod that nobody would."""
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(one.get("kind")) for one in owners if one.get("controller")), "")


def _maps(node: Mapping[str, Any]) -> Tuple[Mapping[str, str], Mapping[str, str]]:
    meta = node["metadata"]
    return meta.get("labels") or {}, meta.get("annotations") or {}


def _memory(notes: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        found = json.loads(notes.get(MEMORY) or "{}")
    except (ValueError, RecursionError):  # nested deeper than Python goes
        return {}
    fits = isinstance(found, dict) and isinstance(found.get("labels", {}), dict)
    return found if fits else {}
