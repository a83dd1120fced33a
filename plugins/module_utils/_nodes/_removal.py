# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Giving back all that we changed on a node: labels, annotations and taints (S40)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import List, Mapping, Optional, Sequence

from .._plan import INFO
from ._change import POLICY_MEMORY, Draft, LabelChange, Node, Taint
from ._groups import Wanted, plan_group
from ._keys import DEPLOY, FEATURE, OPERAND_KEYS, transient

_NFD_LISTED = "nfd.node.kubernetes.io/feature-labels"
_GFD_KEY = re.compile(
    r"nvidia\.com/(?:gfd\.timestamp|cuda\..+|mig\.(?:capable|strategy)|mps\.capable|vgpu\..+|mig-[^/]+\.[^/]+"
    r"|gpu\.(?:machine|product|count|replicas|sharing-strategy|memory|family|mode|clique|multiprocessors"
    r"|compute\..+|slices\..+|engines\..+))$"
)


def plan_removal(
    node: Node, nfd_ours: bool = False, taints: Optional[Sequence[Taint]] = None, busy: Sequence[str] = ()
) -> LabelChange:
    """Gives back all labels, annotations and taints that we changed on a node, those of node groups too.

    Labels that NFD and GPU feature discovery wrote go only when the NFD that wrote them was ours: another NFD takes GPU
    feature discovery's labels away by itself, when the feature object of the removed operand is gone. What stays is a
    finding. ``taints`` are those of the node now; without them a taint of ours stays, and stays remembered. ``busy``
    matters only while the MIG manager still runs (see ``plan_group``).
    """
    first = plan_group(node, Wanted(), taints, busy)
    labels, annotations = first.applied(node)
    return _joined(node, first, _give_back(_Plain(node.name, labels, annotations), nfd_ours))


class _Plain:
    def __init__(self, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        self.name = name
        self.labels = labels
        self.annotations = annotations


def _give_back(node: Node, nfd_ours: bool) -> LabelChange:
    draft = Draft(node, POLICY_MEMORY)
    changed = draft.labels.give_back(lambda key, value: key.startswith(DEPLOY) and transient(value))
    draft.annotations.give_back(lambda _key, _value: False)
    if not draft.first:
        _drop_written(draft)
    if nfd_ours:
        _drop_features(draft)
    _list_left(draft, changed)
    change = draft.change()
    reasons = dict.fromkeys([*change.set, *change.remove], "was not there, or had this value, before our first run")
    return replace(change, reasons={**reasons, **change.reasons})


def _drop_written(draft: Draft) -> None:
    for key, value in list(draft.labels.values.items()):
        if (key in OPERAND_KEYS and key not in draft.had) or draft.is_trace(key, value):
            del draft.labels.values[key]
            draft.reasons[key] = "was written by an operand that is removed"


def _drop_features(draft: Draft) -> None:
    """Takes away what our NFD listed as its own, and GPU feature discovery's labels, which came through it."""
    notes = draft.annotations.values
    listed = [name.strip() for name in notes.get(_NFD_LISTED, "").split(",") if name.strip()]
    written = {name if "/" in name else FEATURE + name for name in listed}
    for key in list(draft.labels.values):
        if key in written or (_GFD_KEY.match(key) and key not in draft.had):
            del draft.labels.values[key]
            draft.reasons[key] = "was written by the Node Feature Discovery that is removed"
    for key in [k for k in notes if k.startswith("nfd.node.kubernetes.io/")]:
        del notes[key]
        draft.reasons[key] = "was written by the Node Feature Discovery that is removed"


def _list_left(draft: Draft, changed: List[str]) -> None:
    labels = draft.labels.values
    if changed:
        detail = f"keeps {', '.join(changed)}: changed by somebody else after us."
        draft.find("nodes.left-changed", INFO, detail)
    nvidia = sorted(k for k in labels if k.startswith("nvidia.com/") and k not in changed)
    if nvidia:
        draft.find("nodes.left", INFO, f"keeps {', '.join(nvidia)}: not written by us.")
    features = [k for k in labels if k.startswith(FEATURE)]
    if features:
        draft.find(
            "nodes.left-features", INFO, f"keeps {len(features)} labels {FEATURE}*: written by an NFD that is not ours."
        )


def _joined(node: Node, first: LabelChange, second: LabelChange) -> LabelChange:
    """Two changes of a node, one after the other, as one."""
    labels, notes = first.applied(node)
    labels, notes = second.applied(_Plain(node.name, labels, notes))
    keys = {**node.annotations, **node.labels}
    label_set = {k: v for k, v in labels.items() if node.labels.get(k) != v}
    note_set = {k: v for k, v in notes.items() if node.annotations.get(k) != v}
    label_gone = tuple(sorted(k for k in node.labels if k not in labels))
    note_gone = tuple(sorted(k for k in node.annotations if k not in notes))
    touched = [*label_set, *label_gone, *note_set, *note_gone]
    return LabelChange(
        node=node.name,
        set=label_set,
        remove=label_gone,
        annotations_set=note_set,
        annotations_remove=note_gone,
        taints=second.taints if second.taints is not None else first.taints,
        reasons={
            k: v for k, v in {**first.reasons, **second.reasons}.items() if k in touched or k.startswith("taint ")
        },
        was={k: keys[k] for k in touched if k in keys},
        findings=first.findings + second.findings,
    )
