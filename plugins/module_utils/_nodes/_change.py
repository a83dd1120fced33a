# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of one node's metadata, and the memory of what was there before, so that all of it can be given back.

The memory is one annotation on the node, written together with the change that it remembers::

    {"labels": {"set": {key: value that we wrote}, "was": {key: value that was there}}, "annotations": {...},
     "taints": {...}, "had": [keys that operands write, or empty, and that were so before us]}

Parts that are empty are left out. ``was`` without ``set`` is a key that we removed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Tuple

from .._plan import WARNING, Action, Finding
from ._keys import DEPLOY

POLICY_MEMORY = "gpufleet.io/managed-labels"
GROUP_MEMORY = "gpufleet.io/managed-group"


class Node(Protocol):
    """What planning reads of a node: ``NodeFacts`` fits."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...

    @property
    def annotations(self) -> Mapping[str, str]: ...


Taint = Mapping[str, str]  # {key, value, effect}, as in a node's spec


@dataclass(frozen=True)
class LabelChange:
    """What changes on one node. ``reasons`` has one entry a key; ``was`` the values before, for the diff.

    ``taints`` is the node's whole new list, or None where taints stay as they are: the API replaces the list at once,
    so a patch with taints must carry the node's resourceVersion.
    """

    node: str
    set: Mapping[str, str] = field(default_factory=dict)
    remove: Tuple[str, ...] = ()
    annotations_set: Mapping[str, str] = field(default_factory=dict)
    annotations_remove: Tuple[str, ...] = ()
    taints: Optional[Tuple[Taint, ...]] = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    was: Mapping[str, str] = field(default_factory=dict)
    findings: Tuple[Finding, ...] = ()

    def __bool__(self) -> bool:
        """Whether the node has to be written."""
        labels = bool(self.set or self.remove)
        return labels or bool(self.annotations_set or self.annotations_remove) or self.taints is not None

    def patch(self) -> Dict[str, Any]:
        """A JSON merge patch of the node; {} when nothing changes."""
        meta: Dict[str, Any] = {}
        for name, new, gone in (
            ("labels", self.set, self.remove),
            ("annotations", self.annotations_set, self.annotations_remove),
        ):
            part: Dict[str, Optional[str]] = {**new, **dict.fromkeys(gone)}
            if part:
                meta[name] = part
        body: Dict[str, Any] = {"metadata": meta} if meta else {}
        if self.taints is not None:
            body["spec"] = {"taints": [dict(t) for t in self.taints] or None}
        return body

    def actions(self) -> List[Action]:
        """One action a key that a person cares about (our memory is not one)."""
        actions = []
        for kind, new, gone in (
            ("label", self.set, self.remove),
            ("annotation", self.annotations_set, self.annotations_remove),
        ):
            for key in sorted([*new, *gone]):
                if key in (POLICY_MEMORY, GROUP_MEMORY):
                    continue
                verb = kind if key in new else f"un{kind}"
                reason = self.reasons.get(key, "")
                before, after = self.was.get(key), new.get(key)
                target = f"Node/{self.node}"
                actions.append(Action(f"{target}:{key}", verb, target, reason, False, before, after))
        for key in sorted(k for k in self.reasons if k.startswith("taint ")):
            target = f"Node/{self.node}"
            actions.append(Action(f"{target}:{key}", "taint", target, self.reasons[key], False, self.was.get(key)))
        return actions

    def applied(self, node: Node) -> Tuple[Dict[str, str], Dict[str, str]]:
        """Labels and annotations of the node after this change."""
        labels = {k: v for k, v in {**node.labels, **self.set}.items() if k not in self.remove}
        notes = {**node.annotations, **self.annotations_set}
        return labels, {k: v for k, v in notes.items() if k not in self.annotations_remove}


class Scope:
    """Values of one kind (labels, annotations, taints) as they are to be, and what we remember of them."""

    def __init__(
        self, values: Mapping[str, str], memory: Mapping[str, Any], is_trace: Callable[[str, str], bool]
    ) -> None:
        self.before = dict(values)
        self.values = dict(values)
        self.ours: Dict[str, str] = dict(memory.get("set") or {})
        self.was: Dict[str, str] = dict(memory.get("was") or {})
        self._is_trace = is_trace

    def put(self, key: str, value: str) -> bool:
        """Sets a value; what was there is remembered. False when it is there already, whoever put it."""
        old = self.values.get(key)
        if old == value:
            return False
        if old is not None and key not in self.ours:
            self._remember(key, old)
        self.values[key] = self.ours[key] = value
        return True

    def drop(self, key: str, transient: Callable[[str], bool]) -> bool:
        """Removes a value; one of the user's is remembered, one of ours or of an operand's is not."""
        if key not in self.values:
            return False
        old = self.values.pop(key)
        if key not in self.ours:
            self._remember(key, old)
        elif self.ours.pop(key) != old and not transient(old):
            self.was[key] = old
        return True

    def restore(self, key: str) -> None:
        """Puts back what was there before us."""
        self.values[key] = self.was.pop(key)
        self.ours.pop(key, None)

    def undo(self, key: str, transient: Callable[[str], bool]) -> bool:
        """Gives back one key that we set. False where somebody else has changed it since: then it stays as it is."""
        value, old, now = self.ours.pop(key), self.was.pop(key, None), self.values.get(key)
        if now is None or (now != value and not transient(now)):
            return False
        if old is None:
            del self.values[key]
        else:
            self.values[key] = old
        return True

    def give_back(self, transient: Callable[[str, str], bool]) -> List[str]:
        """Undoes all that is remembered. Answers the keys that somebody else has changed since."""
        changed = []
        for key in sorted(self.ours):
            if not self.undo(key, partial(transient, key)) and key in self.values:
                changed.append(key)
        for key in sorted(self.was):
            self.values.setdefault(key, self.was.pop(key))
        return changed

    def memory(self) -> Dict[str, Dict[str, str]]:
        return {name: part for name, part in (("set", self.ours), ("was", self.was)) if part}

    def _remember(self, key: str, old: str) -> None:
        if not self._is_trace(key, old):
            self.was[key] = old


class Draft:
    """A node on its way to what is wanted; ``change`` answers the difference."""

    def __init__(self, node: Node, memory_key: str, taints: Optional[Mapping[str, str]] = None) -> None:
        self.node = node
        self.memory_key = memory_key
        self.reasons: Dict[str, str] = {}
        self.findings: List[Finding] = []
        self._memory = self._read()
        self.first = not self._memory
        self.had: List[str] = [str(key) for key in self._memory.get("had") or []]
        notes = {k: v for k, v in node.annotations.items() if k != memory_key}
        self.labels = Scope(node.labels, self._part("labels"), self.is_trace)
        self.annotations = Scope(notes, self._part("annotations"), self.is_trace)
        self.taints = Scope(taints or {}, self._part("taints"), self.is_trace)

    def is_trace(self, key: str, old: str) -> bool:
        """Whether a value is none of a person's: the driver manager empties deploy labels that are absent."""
        return old == "" and key.startswith(DEPLOY) and not self.first and key not in self.had

    def _read(self) -> Dict[str, Any]:
        text = self.node.annotations.get(self.memory_key, "")
        if not text:
            return {}
        try:
            memory = json.loads(text)
        except ValueError:
            memory = None
        if isinstance(memory, dict) and all(_is_scope(memory.get(n)) for n in ("labels", "annotations", "taints")):
            return memory
        detail = f"its annotation {self.memory_key} cannot be read: what was there before our first run is not known."
        self.findings.append(Finding("nodes.memory", WARNING, detail, self.node.name))
        return {}

    def _part(self, name: str) -> Mapping[str, Any]:
        part = self._memory.get(name)
        return part if isinstance(part, Mapping) else {}

    def put(self, key: str, value: str, reason: str) -> None:
        if self.labels.put(key, value):
            self.reasons[key] = reason

    def drop(self, key: str, reason: str, transient: Callable[[str], bool]) -> None:
        if self.labels.drop(key, transient):
            self.reasons[key] = reason

    def find(self, id: str, severity: str, detail: str, remedy: str = "") -> None:
        self.findings.append(Finding(id, severity, detail, self.node.name, "", remedy))

    def change(self, taints: Optional[Tuple[Taint, ...]] = None) -> LabelChange:
        """The difference between the node as it is and the draft, with the memory of it."""
        notes = dict(self.annotations.values)
        memory = self._remembered()
        if memory == self._memory and self.memory_key in self.node.annotations:
            notes[self.memory_key] = self.node.annotations[self.memory_key]
        elif memory:
            notes[self.memory_key] = json.dumps(memory, sort_keys=True, separators=(",", ":"))
        label_set, label_gone = _difference(self.labels.before, self.labels.values)
        note_set, note_gone = _difference(self.node.annotations, notes)
        touched = [*label_set, *label_gone, *note_set, *note_gone]
        was = {**self.annotations.before, **self.labels.before}
        return LabelChange(
            node=self.node.name,
            set=label_set,
            remove=label_gone,
            annotations_set=note_set,
            annotations_remove=note_gone,
            taints=taints,
            reasons={k: v for k, v in self.reasons.items() if k in touched or (taints and k.startswith("taint "))},
            was={k: was[k] for k in touched if k in was},
            findings=tuple(self.findings),
        )

    def _remembered(self) -> Dict[str, Any]:
        memory: Dict[str, Any] = {}
        for name in ("labels", "annotations", "taints"):
            part = getattr(self, name).memory()
            if part:
                memory[name] = part
        if memory and self.had:
            memory["had"] = sorted(self.had)
        return memory


def _is_scope(part: Any) -> bool:
    if part is None:
        return True
    return isinstance(part, dict) and all(isinstance(part.get(name, {}), dict) for name in ("set", "was"))


def _difference(before: Mapping[str, str], after: Mapping[str, str]) -> Tuple[Dict[str, str], Tuple[str, ...]]:
    if before == after:
        return {}, ()
    changed = {k: v for k, v in after.items() if before.get(k) != v}
    return dict(sorted(changed.items())), tuple(sorted(k for k in before if k not in after))
