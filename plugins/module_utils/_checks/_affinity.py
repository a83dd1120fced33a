# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a pod may run by its nodeSelector and node affinity, and which of its wishes no node fulfils."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple

Node = Mapping[str, Any]
_WORDS = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Wish:
    """One requirement on a label (or the name) of a node."""

    key: str
    operator: str
    values: Tuple[str, ...] = ()
    of_name: bool = False

    def holds(self, node: Node) -> bool:
        """Whether a node fulfils it; a missing label fulfils NotIn and DoesNotExist."""
        labels = {"metadata.name": node["metadata"]["name"]} if self.of_name else node["metadata"].get("labels") or {}
        there, value = self.key in labels, str(labels.get(self.key, ""))
        if self.operator in ("Gt", "Lt"):
            return there and self._compares(value)
        answers = {
            "In": there and value in self.values,
            "NotIn": not there or value not in self.values,
            "Exists": there,
            "DoesNotExist": not there,
        }
        return bool(answers.get(self.operator, False))

    def _compares(self, value: str) -> bool:
        try:
            left, right = int(value), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return left > right if self.operator == "Gt" else left < right

    def __str__(self) -> str:
        if self.operator == "In" and len(self.values) == 1:
            return f"{self.key}={self.values[0]}"
        return " ".join(part for part in (self.key, self.operator, ", ".join(self.values)) if part)


Term = Tuple[Wish, ...]


def terms(spec: Mapping[str, Any]) -> List[Term]:
    """Alternatives, each with wishes that must all hold; the nodeSelector is part of each."""
    fixed = tuple(Wish(str(k), "In", (str(v),)) for k, v in sorted((spec.get("nodeSelector") or {}).items()))
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not affinity:
        return [fixed]
    return [fixed + _term(term) for term in affinity.get("nodeSelectorTerms") or []]


def _term(term: Mapping[str, Any]) -> Term:
    made = [_wish(item, False) for item in term.get("matchExpressions") or []]
    return tuple(made + [_wish(item, True) for item in term.get("matchFields") or []])


def _wish(item: Mapping[str, Any], of_name: bool) -> Wish:
    values = tuple(str(value) for value in item.get("values") or ())
    return Wish(str(item.get("key", "")), str(item.get("operator", "")), values, of_name)


def allowed(alternatives: Sequence[Term], nodes: Iterable[Node]) -> List[Node]:
    """Nodes that one of the alternatives lets a pod run on."""
    return [node for node in nodes if any(all(wish.holds(node) for wish in term) for term in alternatives)]


def impossible(alternatives: Sequence[Term], nodes: Sequence[Node]) -> Optional[Wish]:
    """The first wish that no node fulfils; None where it is only their combination that none does."""
    for term in alternatives:
        for wish in term:
            if not any(wish.holds(node) for node in nodes):
                return wish
    return None


def hint(wish: Wish, nodes: Sequence[Node]) -> str:
    """What the nodes have instead, and what was probably meant."""
    labels = [node["metadata"].get("labels") or {} for node in nodes]
    if wish.of_name:
        return f"; the cluster has no such node{_meant(wish.values, [str(n['metadata']['name']) for n in nodes])}"
    values = sorted({str(one[wish.key]) for one in labels if wish.key in one})
    if not values:
        keys = sorted({str(key) for one in labels for key in one})
        return f": no node has the label {wish.key}{_meant((wish.key,), keys)}"
    shown = ", ".join(values[:5]) + (f" and {len(values) - 5} more" if len(values) > 5 else "")
    return f"; nodes have {shown}{_meant(wish.values, values)}"


def _meant(wanted: Sequence[str], known: Sequence[str]) -> str:
    best = next((guess for guess in (closest(one, known) for one in wanted) if guess), "")
    return f". Did you mean {best}" if best else ""


def closest(wanted: str, known: Sequence[str]) -> str:
    """The known text that was probably meant: it holds the wanted one, or the other way round, or looks like it."""
    low = wanted.lower()
    inside = [one for one in known if low and (low in one.lower() or one.lower() in low)]
    if inside:
        return max(sorted(inside), key=lambda one: SequenceMatcher(None, low, one.lower()).ratio())
    words = set(_WORDS.findall(low))
    shared = {one: len(words & set(_WORDS.findall(one.lower()))) for one in sorted(known)}
    if max(shared.values(), default=0) > 1:
        return max(shared, key=lambda one: shared[one])
    scored = [(SequenceMatcher(None, low, one.lower()).ratio(), one) for one in sorted(known)]
    best = max(scored, default=(0.0, ""), key=lambda pair: pair[0])
    return best[1] if best[0] >= 0.6 else ""
