# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what a module returned is what its RETURN promises, down to the leaves of ``found``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.nvidia.tests.helpers.documents import document

# What every module returns, and Ansible adds.
COMMON = frozenset(
    {
        "changed", "deprecations", "diff", "exception", "failed", "invocation", "module_stderr", "module_stdout",
        "msg", "warnings",
    }
)  # fmt: skip
TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "complex": (dict, list),
    "dict": (dict,),
    "float": (float, int),
    "int": (int,),
    "list": (list,),
    "path": (str,),
    "str": (str,),
}


def undocumented(module_name: str, result: Mapping[str, Any]) -> list[str]:
    """Every difference between this result and the module's RETURN, as sentences that begin with the key's path."""
    own = {key: value for key, value in result.items() if key not in COMMON and not key.startswith("_ansible_")}
    return _keys("", document(module_name, "RETURN"), own, bool(result.get("failed")))


def _keys(path: str, documented: Mapping[str, Any], found: Mapping[str, Any], failed: bool) -> list[str]:
    problems = [f"{path}{key}: returned, but not documented" for key in found if key not in documented]
    for key, words in documented.items():
        if key in found:
            problems += _value(f"{path}{key}", words, found[key], failed)
        elif _promised(str(words.get("returned", "always")), failed):
            problems.append(f"{path}{key}: documented as returned {words.get('returned', 'always')}, but missing")
    return problems


def _promised(returned: str, failed: bool) -> bool:
    """Conditions other than these three are sentences for people."""
    return returned == "always" or returned == ("failure" if failed else "success")


def _value(path: str, words: Mapping[str, Any], value: Any, failed: bool) -> list[str]:
    problem = _type(path, str(words.get("type", "raw")), value)
    if problem:
        return [problem]
    inner = words.get("contains")
    if isinstance(value, list):
        return _elements(path, words, value, failed)
    if inner and isinstance(value, dict):
        return _keys(f"{path}.", inner, value, failed)
    return []


def _elements(path: str, words: Mapping[str, Any], value: list[Any], failed: bool) -> list[str]:
    problems = []
    for number, element in enumerate(value):
        place = f"{path}[{number}]"
        problem = _type(place, str(words.get("elements", "raw")), element)
        if problem:
            problems.append(problem)
        elif words.get("contains") and isinstance(element, dict):
            problems += _keys(f"{place}.", words["contains"], element, failed)
    return problems


def _type(path: str, name: str, value: Any) -> str:
    if name == "raw":
        return ""
    fits = isinstance(value, TYPES[name]) and (name == "bool" or not isinstance(value, bool))
    return "" if fits else f"{path}: documented as {name}, but returned as {type(value).__name__} ({value!r})"
