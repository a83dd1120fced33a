# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specifications of a host: which devices they name, and for which driver they were made.

JSON files are read in whole. Hosts have no YAML library: of YAML files the few keys that matter are read, as generators
write them (block style); what is written otherwise becomes a problem.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ._tree import Tree

# The later folder wins when both name a device.
FOLDERS = ("/etc/cdi", "/var/run/cdi")
_MOST = 8 * 1024 * 1024
_DRIVER = re.compile(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)\b")
_KEY = re.compile(r"\A(?P<indent> *)(?P<dash>(?:- +)*)(?P<key>[A-Za-z]+):(?: +(?P<value>.*))?\Z")


@dataclass
class Spec:
    """Keys are documented in gpu_info's RETURN. See :func:`_compare` for the last two."""

    path: str
    kind: str = ""
    version: str = ""
    devices: List[str] = field(default_factory=list)
    driver_versions: List[str] = field(default_factory=list)
    hidden_by: str = ""
    conflicts_with: str = ""


def read(tree: Tree) -> List[Spec]:
    """All files of both folders, in the order in which they are looked at."""
    tree = tree.of("cdi")
    found = []
    for folder in FOLDERS:
        for name in tree.names(folder):
            if name.endswith((".json", ".yaml", ".yml")) and not name.startswith("."):
                spec = _spec(tree, f"{folder}/{name}")
                if spec:
                    found.append(spec)
    _compare(found)
    return found


def _spec(tree: Tree, path: str) -> Optional[Spec]:
    content = tree.data(path, _MOST)
    text = content.decode("utf-8", "replace")
    if not text.strip():
        if tree.kind(path) == "file" and not any(one.path == path for one in tree.problems.listed()):
            tree.problems.add(tree.part, path, "is empty", "Make it again: nvidia-ctk cdi generate.")
        return None
    try:
        return parsed(path, text)
    except ValueError as error:
        tree.problems.add(tree.part, path, f"is no specification: {error}", "Make it again: nvidia-ctk cdi generate.")
        return Spec(path)


def parsed(path: str, text: str) -> Spec:
    """One specification. Raises ValueError for what is none."""
    kind, version, names = _json(text) if path.endswith(".json") else _yaml(text)
    return Spec(path, kind, version, names, sorted(set(_DRIVER.findall(text))))


def host_paths(text: str) -> Dict[str, Optional[int]]:
    """Paths of the host that a specification names, with the major number where it tells one."""
    found: Dict[str, Optional[int]] = {}
    for item in _json_items(text) if text.lstrip().startswith("{") else _yaml_items(text):
        path, major = item.get("hostPath") or item.get("path"), str(item.get("major", ""))
        if isinstance(path, str) and path.startswith("/"):
            found[path] = int(major) if major.isdigit() else found.get(path)
    return found


def _json_items(text: str) -> Iterator[Mapping[str, Any]]:
    try:
        todo = [json.loads(text)]
    except (ValueError, RecursionError):
        return
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            yield value
            todo += value.values()
        elif isinstance(value, list):
            todo += value


def _yaml_items(text: str) -> Iterator[Mapping[str, Any]]:
    """Items of block lists, each key with its scalar."""
    at: Dict[int, Dict[str, str]] = {}
    for line in text.splitlines():
        found = _KEY.match(line.rstrip())
        if not found:
            continue
        column = len(found["indent"]) + len(found["dash"])
        for ended in [one for one in at if one > column or (found["dash"] and one == column)]:
            yield at.pop(ended)
        if found["dash"]:
            at[column] = {}
        if column in at:
            at[column][found["key"]] = _scalar(found["value"] or "")
    yield from at.values()


def _json(text: str) -> Tuple[str, str, List[str]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON ({error})") from error
    if not isinstance(content, dict) or not isinstance(content.get("devices"), list):
        raise ValueError("it has no list of devices")
    names = [_name(device) for device in content["devices"]]
    return str(content.get("kind", "")), str(content.get("cdiVersion", "")), names


def _name(device: Any) -> str:
    if not isinstance(device, dict) or not isinstance(device.get("name"), str):
        raise ValueError("a device has no name")
    return str(device["name"])


def _yaml(text: str) -> Tuple[str, str, List[str]]:
    """Top-level scalars, and the names of the items of the list ``devices``."""
    if text.lstrip().startswith("{"):
        return _json(text)
    top: Dict[str, str] = {}
    names: List[str] = []
    section, dash, item = "", -1, -1
    for line in text.splitlines():
        found = _KEY.match(line.rstrip())
        if not found:
            continue
        indent = len(found["indent"])
        column = indent + len(found["dash"])
        if column == 0:
            section, dash = found["key"], -1
            top[found["key"]] = _scalar(found["value"] or "")
        elif section == "devices":
            # The first dash tells where the list stands; each of its dashes where its item's keys stand.
            if found["dash"] and dash in (-1, indent):
                dash, item = indent, column
            if column == item and found["key"] == "name":
                names.append(_scalar(found["value"] or ""))
    if "devices" not in top or (not names and top["devices"] not in ("", "[]", "null")):
        raise ValueError("its devices could not be found (they are not written as a block list)")
    return top.get("kind", ""), top.get("cdiVersion", ""), names


def _scalar(text: str) -> str:
    text = text.strip()
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[1:end] if end > 0 else text[1:]
    return text.partition(" #")[0].strip()


def _compare(specs: List[Spec]) -> None:
    """Of two files that name a device, the one in the later folder counts; in one folder neither does."""
    for number, spec in enumerate(specs):
        for other in specs[number + 1 :]:
            if spec.kind != other.kind or not set(spec.devices) & set(other.devices):
                continue
            if spec.path.rpartition("/")[0] == other.path.rpartition("/")[0]:
                spec.conflicts_with, other.conflicts_with = other.path, spec.path
            else:
                spec.hidden_by = other.path
