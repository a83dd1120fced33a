# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks a policy against the schema's table, and works out the value of every key. All problems at once."""

from __future__ import annotations

import difflib
import re
from typing import AbstractSet, Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from .._matrix import LATEST, RELEASES
from .._plan import ERROR, INFO, WARNING, Finding
from ._schema import CHART, DEAD, DEPRECATED, LATER, OLDER, RELEASE, TABLE, UNSET, USED, Key
from ._tree import MISSING, get, merged, put, without_nulls
from ._types import described, problems

Values = Dict[str, Any]  # every key's value, by its path in Helm values ("" has none: keys that nothing reads)

FORMS = ("values", "clusterpolicy")
SUBCHART = "node-feature-discovery"
UNKNOWN = "policy.unknown-key"


class Schema:
    """The table as a tree, for one form. A leaf is a Key, a branch a dict."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.keys: Dict[str, Key] = {}
        self.tree: Dict[str, Any] = {}
        for key in TABLE:
            path = key.path_in(form)
            if path:
                self.keys[path] = key
                put(self.tree, path, key)
        self.paths = sorted({path[: at.start()] for path in self.keys for at in re.finditer(r"\.|$", path)})


SCHEMAS: Dict[str, Schema] = {form: Schema(form) for form in FORMS}


def default_of(key: Key, release: str) -> Any:
    """The chart's default of a key, UNSET when it has none."""
    if key.default is not RELEASE:
        return key.default
    component, part = key.path.rsplit(".", 1)
    images = RELEASES[release].images
    return images[component][("repository", "image", "version").index(part)] if component in images else UNSET


def chart_defaults(release: str) -> Dict[str, Any]:
    """The chart's own values, as a tree."""
    tree: Dict[str, Any] = {}
    for path, key in SCHEMAS["values"].keys.items():
        value = default_of(key, release)
        if value is not UNSET:
            put(tree, path, value)
    return tree


# -- what the user wrote ---------------------------------------------------------------------------------------------


def check(tree: Mapping[str, Any], form: str, release: str) -> Tuple[List[Finding], Set[str]]:
    """Findings about each key that the user wrote, and the keys whose values cannot be used."""
    checker = _Checker(SCHEMAS[form], release)
    checker.walk(tree, SCHEMAS[form].tree, "")
    return checker.findings + _unsupported_blocks(tree, SCHEMAS[form], release), checker.bad


def unknown_keys(tree: Mapping[str, Any], form: str) -> List[str]:
    """Paths of the keys that this form does not have."""
    checker = _Checker(SCHEMAS[form], LATEST)
    checker.walk(tree, SCHEMAS[form].tree, "")
    return [finding.path for finding in checker.findings if finding.id == UNKNOWN]


class _Checker:
    def __init__(self, schema: Schema, release: str) -> None:
        self.schema = schema
        self.release = release
        self.findings: List[Finding] = []
        self.bad: Set[str] = set()

    def walk(self, value: Mapping[str, Any], branch: Mapping[str, Any], where: str) -> None:
        for name, entry in value.items():
            path = f"{where}.{name}" if where else name
            node = branch.get(name)
            if node is None:
                self.findings.append(_unknown(path, name, branch, self.schema))
            elif isinstance(node, Key):
                self._key(path, node, entry)
            elif isinstance(entry, Mapping):
                self.walk(entry, node, path)
            else:
                self._not_a_block(path, node, entry)

    def _not_a_block(self, path: str, node: Mapping[str, Any], entry: Any) -> None:
        if entry is not None:
            allowed = f"a map of {', '.join(list(node)[:6])}{', ...' if len(node) > 6 else ''}"
            self._refuse("policy.type", path, f"is {described(entry)}, allowed is {allowed}.")
        elif self.schema.form == "values":
            detail = "is null, which removes the whole block, and the chart cannot be rendered without it."
            self._refuse(
                "policy.null-block", path, detail, "Leave the key out to keep its defaults, or write keys below it."
            )

    def _refuse(self, id_: str, path: str, detail: str, remedy: str = "") -> None:
        self.bad.add(path)
        self.findings.append(Finding(id_, ERROR, detail, path=path, remedy=remedy))

    def _key(self, path: str, key: Key, value: Any) -> None:
        wrong = problems(key, value)
        for problem in wrong:
            id_ = "policy.value" if problem.where or key.allowed else "policy.type"
            self.findings.append(Finding(id_, ERROR, problem.detail, path=path + problem.where, remedy=problem.remedy))
        if wrong:
            self.bad.add(path)
        elif value is not None:
            self.findings.extend(_status_findings(path, key, value, self.schema.form, self.release))


def _unknown(path: str, name: str, branch: Mapping[str, Any], schema: Schema) -> Finding:
    known = [
        key for key in branch if not (isinstance(branch[key], Key) and branch[key].status_in(schema.form) == OLDER)
    ]
    close = _close(name, known)
    if close:
        guess = path[: len(path) - len(name)] + close
        remedy = f"Did you mean {guess}?"
    else:
        elsewhere = [found for found in schema.paths if found.rsplit(".", 1)[-1].lower() == name.lower()]
        same_part = [found for found in elsewhere if found.split(".")[0] == path.split(".")[0]]
        best = (same_part or elsewhere)[:1] if len(same_part or elsewhere) <= 3 else []
        remedy = (
            f"Did you mean {best[0]}?"
            if best
            else f"Known here: {', '.join(sorted(known)[:12])}{', ...' if len(known) > 12 else ''}."
        )
    where = "Helm values of the GPU Operator have" if schema.form == "values" else "a ClusterPolicy has"
    return Finding(UNKNOWN, ERROR, f"is unknown: {where} no such key.", path=path, remedy=remedy)


def _close(name: str, known: List[str]) -> Optional[str]:
    plain = {key.lower().replace("_", "").replace("-", ""): key for key in known}
    wanted = name.lower().replace("_", "").replace("-", "")
    if wanted in plain:
        return plain[wanted]
    fits = difflib.get_close_matches(wanted, list(plain), n=1, cutoff=0.75)
    return plain[fits[0]] if fits else None


def _status_findings(path: str, key: Key, value: Any, form: str, release: str) -> Iterator[Finding]:
    status = key.status_in(form)
    same = value == default_of(key, release)
    if status in (DEAD, OLDER):
        if value and not same:
            what = (
                "is a key of older charts and has no effect." if status == OLDER else "has no effect: nothing reads it."
            )
            yield Finding(
                f"policy.{'older-key' if status == OLDER else 'dead-key'}", WARNING, what, path=path, remedy=key.note
            )
    elif status == DEPRECATED:
        if value:
            yield Finding("policy.deprecated-key", WARNING, "is deprecated.", path=path, remedy=key.note)
    elif status == CHART:
        if not same:
            yield Finding("policy.chart-key", INFO, "has no effect here.", path=path, remedy=key.note)
    elif status == LATER and key.switch and value:
        yield Finding(
            "policy.not-supported", ERROR, f"is {described(value)}. {key.note}", path=path, remedy="Set it to false."
        )


def _unsupported_blocks(tree: Mapping[str, Any], schema: Schema, release: str) -> List[Finding]:
    """One line for each block of keys that is not supported yet, however many keys of it were written."""
    blocks: Dict[str, Tuple[bool, str]] = {}
    for path, key in schema.keys.items():
        value = get(tree, path) if key.status_in(schema.form) == LATER else MISSING
        if value is MISSING or value is None or (key.switch and value):
            continue
        block = path.rsplit(".", 1)[0] if path.startswith("node-feature-discovery.") else path.split(".")[0]
        block = path if path.startswith(("driver.", "validator.", "node-feature-discovery.")) else block
        default = key.nil if schema.form != "values" else default_of(key, release)
        changed = blocks.get(block, (False, ""))[0] or value != default
        blocks[block] = (changed, key.note)
    found: List[Finding] = []
    for block, (changed, note) in blocks.items():
        detail = "was changed and has no effect." if changed else "is left as it is by default: nothing is lost."
        found.append(Finding("policy.not-supported-unused", INFO, f"{detail} {note}", path=block))
    return found


# -- the value of every key ------------------------------------------------------------------------------------------


def resolve(tree: Mapping[str, Any], form: str, release: str, bad: AbstractSet[str] = frozenset()) -> Values:
    """The value of every key, by its path in Helm values: defaults, rendering rules of the chart and nil rules applied.

    Keys in ``bad`` (as the form writes them) and below are taken as not written.
    """
    values: Values = {}
    for path, key in SCHEMAS[form].keys.items():
        written = get(tree, path)
        if any(path == wrong or path.startswith(wrong + ".") for wrong in bad):
            written = MISSING
        name = key.path or path
        if key.status_in(form) in (DEAD, OLDER, CHART):
            values[name] = key.nil
        elif form == "values":
            values[name] = _rendered(key, written, release)
        else:
            values[name] = key.nil if written is MISSING or written is None else without_nulls(written)
    for key in TABLE:
        if key.path and key.path not in values:  # this form does not have it
            values[key.path] = _elsewhere(key, release)
    return values


def _elsewhere(key: Key, release: str) -> Any:
    """Value of a key that a ClusterPolicy does not have: the chart's default, as the stack comes with its NFD."""
    default = default_of(key, release)
    return default if key.status == USED and default is not UNSET and _chart_itself(key.path) else key.nil


def _chart_itself(path: str) -> bool:
    return path.split(".")[0] in ("nfd", SUBCHART, "clusterPolicy")


def _rendered(key: Key, written: Any, release: str) -> Any:
    """What the chart writes into the ClusterPolicy for a value, and the nil rule where it writes nothing."""
    default = default_of(key, release)
    if written is MISSING:
        value = None if default is UNSET else default
    else:
        value = None if written is None else merged({} if default is UNSET else default, written)
    value = without_nulls(value)
    if value or key.path.startswith(SUBCHART + "."):
        return value
    if key.falsy is not UNSET:
        return key.falsy
    return value if key.keep and value is not None else key.nil
