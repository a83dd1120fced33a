# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates that ``extraObjects`` may hold: ``{{ .Release.Namespace }}``, ``{{ .Values.x.y }}``; all else is refused.

An entry that is a text holds YAML, which is parsed on the controller before ``load`` sees it: the action plugin calls
``expand`` on the text first, then parses it.
"""

from __future__ import annotations

import re
from typing import Any, Callable, List, Mapping, Tuple

from .._plan import ERROR, Finding
from ._node_pools import judge as judge_node_pool
from ._tree import MISSING, get

_ACTION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_VALUES = re.compile(r"^\.Values((?:\.[A-Za-z0-9_]+)+)$")
_REMEDY = (
    "Write the value itself. Possible are {{ .Release.Namespace }} and {{ .Values.x }} of a key that has a plain value."
)


def expand(text: str, namespace: str, values: Mapping[str, Any]) -> Tuple[str, List[str]]:
    """The text with its templates filled in, and what could not be filled in, one sentence each."""
    wrong: List[str] = []

    def fill(found: re.Match[str]) -> str:
        action = found.group(1).strip()
        if action == ".Release.Namespace":
            return namespace
        known = _VALUES.match(action)
        value = get(values, known.group(1)[1:]) if known else MISSING
        if known and isinstance(value, (str, bool, int, float)):
            return str(value).lower() if isinstance(value, bool) else str(value)
        reason = "has no plain value" if known else "is not possible here"
        wrong.append(f"The template {{{{ {action[:60]} }}}} {reason}.")
        return ""

    filled = _ACTION.sub(fill, text)
    if not wrong and "{{" in _ACTION.sub("", text):
        wrong.append("A template has no end: }} is missing.")
    return filled, wrong


def extra_objects(
    entries: List[Any], namespace: str, values: Mapping[str, Any]
) -> Tuple[Tuple[Mapping[str, Any], ...], List[Finding]]:
    """The user's own objects with templates filled in, and what is wrong with them."""
    objects: List[Mapping[str, Any]] = []
    findings: List[Finding] = []
    for number, entry in enumerate(entries):
        path = f"extraObjects[{number}]"
        if not isinstance(entry, Mapping):
            findings.append(_not_a_map(path, entry))
            continue
        made = _filled(entry, path, lambda text: expand(text, namespace, values), findings)
        findings.extend([*_incomplete(made, path), *judge_node_pool(made, path)])
        objects.append(made)
    return tuple(objects), findings


def _not_a_map(path: str, entry: Any) -> Finding:
    detail = "is a text that was not read as YAML." if isinstance(entry, str) else "is not a map."
    return Finding("policy.extra-object", ERROR, detail, path=path, remedy="Write the object as a map.")


def _filled(value: Any, path: str, fill: Callable[[str], Tuple[str, List[str]]], findings: List[Finding]) -> Any:
    if isinstance(value, Mapping):
        return {
            _filled(name, path, fill, findings): _filled(entry, f"{path}.{name}", fill, findings)
            for name, entry in value.items()
        }
    if isinstance(value, list):
        return [_filled(entry, f"{path}[{number}]", fill, findings) for number, entry in enumerate(value)]
    if isinstance(value, str) and "{{" in value:
        text, wrong = fill(value)
        findings.extend(Finding("policy.template", ERROR, sentence, path=path, remedy=_REMEDY) for sentence in wrong)
        return text
    return value


def _incomplete(made: Mapping[str, Any], path: str) -> List[Finding]:
    metadata = made.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    parts = {"apiVersion": made.get("apiVersion"), "kind": made.get("kind"), "metadata.name": name}
    return [
        Finding(
            "policy.extra-object",
            ERROR,
            "is missing or not a text.",
            path=f"{path}.{part}",
            remedy="Every object needs it.",
        )
        for part, value in parts.items()
        if not isinstance(value, str) or not value
    ]
