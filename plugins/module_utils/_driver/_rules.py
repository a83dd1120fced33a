# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions that a fleet allows for its GPUs: the oldest, the newest, and those that are known to be bad. Pure.

barred(of(read([{"gpus": ["hopper"], "min": "580.65", "excluded": ["580.82.07"]}])[0], ["hopper"]), "580.82.07")
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, List, Mapping, Sequence, Tuple

from .._host_state._driver import numbers
from .._plan import ERROR, WARNING, Finding

BARRED = "version_rule"
_VERSION = re.compile(r"\d{3}(\.\d+){0,2}\Z")


@dataclass(frozen=True)
class Rule:
    """``gpus``: architectures, or words of products' names; () is every GPU. Versions may be cut short: 580 is all of
    the branch."""

    place: str
    gpus: Tuple[str, ...] = ()
    min: str = ""
    max: str = ""
    excluded: Tuple[str, ...] = ()
    reason: str = ""

    def why_not(self, version: str) -> str:
        """Why the rule does not allow a version, as a sentence; "" where it does."""
        now = numbers(version)
        bad = next((one for one in self.excluded if _part(now, one) == numbers(one)), "")
        told = f"{bad} is excluded" if bad else ""
        if self.min and now < numbers(self.min):
            told = f"{self.min} is the oldest that is allowed"
        if self.max and _part(now, self.max) > numbers(self.max):
            told = f"{self.max} is the newest that is allowed"
        return f"{told}{f' ({self.reason})' if self.reason else ''}" if told else ""


def _part(now: Tuple[int, ...], version: str) -> Tuple[int, ...]:
    return now[: len(numbers(version))]


def read(given: Sequence[Mapping[str, Any]]) -> Tuple[Tuple[Rule, ...], List[Finding]]:
    """The rules, and what is wrong with them."""
    rules, found = [], []
    for number, one in enumerate(given):
        place = f"version_rules[{number}]"
        rule = Rule(
            place,
            tuple(one.get("gpus") or ()),
            str(one.get("min") or ""),
            str(one.get("max") or ""),
            tuple(one.get("excluded") or ()),
            str(one.get("reason") or ""),
        )
        rules.append(rule)
        found += _judge(rule)
    return tuple(rules), found


def _judge(rule: Rule) -> List[Finding]:
    found = []
    if not all(one.strip() for one in rule.gpus):
        found.append(
            Finding("empty_rule", ERROR, "has an empty word, which is about no GPU", path=f"{rule.place}.gpus")
        )
    limits = [(path, version) for path, version in (("min", rule.min), ("max", rule.max)) if version]
    for path, version in [*limits, *(("excluded", one) for one in rule.excluded)]:
        if not _VERSION.match(version):
            detail = f"{version!r} is no version of the driver; allowed are versions and their beginnings, like 580.95"
            found.append(Finding("no_version", ERROR, detail, path=f"{rule.place}.{path}"))
    if not (rule.min or rule.max or rule.excluded):
        found.append(Finding("empty_rule", ERROR, "has none of min, max and excluded", path=rule.place))
    elif not found and rule.min and rule.max and _part(numbers(rule.min), rule.max) > numbers(rule.max):
        detail = f"{rule.min} is newer than max, {rule.max}, so no version is allowed"
        found.append(Finding("empty_rule", ERROR, detail, path=f"{rule.place}.min"))
    return found


def of(rules: Sequence[Rule], gpus: Sequence[str]) -> List[Rule]:
    """Those that are about a host, by architectures and names of its GPUs. L4 is not L40S."""
    names = [name.lower() for name in gpus]
    return [rule for rule in rules if not rule.gpus or any(_names(one, name) for one in rule.gpus for name in names)]


def _names(words: str, name: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(words.lower())}(?![a-z0-9])", name) is not None


def barred(rules: Sequence[Rule], version: str) -> str:
    """The first rule that does not allow a version, and why; "" where all do, and for no version."""
    why = (f"{rule.place}: {rule.why_not(version)}" for rule in rules if version and rule.why_not(version))
    return next(why, "")


def exchanged(rules: Sequence[Rule], version: str) -> Finding:
    """What is installed is not allowed any more."""
    detail = f"driver {version} is installed, and not allowed ({barred(rules, version)}), so another takes its place"
    return Finding(BARRED, WARNING, detail, path="version_rules")


def refused(rules: Sequence[Rule], versions: Sequence[str]) -> Finding:
    """None of the versions that could be had is allowed."""
    told = "; ".join(f"{version} ({barred(rules, version)})" for version in versions[:4])
    remedy = "Ask for a version or branch that the rules allow, or change the rules"
    return Finding(BARRED, ERROR, f"not allowed: {told}", path="version_rules", remedy=remedy)
