# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for the far side: a transport that answers from a script, and a model of server-side apply."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Connection, Dropped

# A loaded machine is no fault of the code: no limit for the time of one example.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass
class FakeReply:
    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, list[str]] = field(default_factory=dict)
    broken: Dropped | None = None
    stream: Iterator[bytes] | None = None

    def header(self, name: str) -> list[str]:
        return list(self.headers.get(name, []))

    def read(self) -> bytes:
        if self.broken:
            raise self.broken
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    def lines(self) -> Iterator[bytes]:
        return self.stream or iter(())

    def close(self) -> None:
        return


@dataclass(frozen=True)
class Sent:
    method: str
    url: str
    headers: Mapping[str, str]
    body: Any


class ScriptTransport:
    """Answers each request with the next entry of a script: a reply, an exception to raise, or a function of both."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.sent: list[Sent] = []

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float) -> FakeReply:
        request = Sent(method, url, dict(headers), json.loads(body) if body else None)
        self.sent.append(request)
        entry = self.script.pop(0) if len(self.script) > 1 or not callable(self.script[0]) else self.script[0]
        if isinstance(entry, Exception):
            raise entry
        return entry(request) if callable(entry) else entry


def connect(*script: Any, **options: Any) -> tuple[Connection, ScriptTransport, list[float]]:
    """A connection on a script, what it sent, and the pauses that it made instead of sleeping."""
    transport, pauses = ScriptTransport(*script), []
    sleep: Callable[[float], None] = pauses.append
    return Connection(transport, "https://cluster.test:6443", sleep=sleep, **options), transport, pauses


def failure(status: int, reason: str = "", message: str = "no", **more: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message, **more}


# --- a model of server-side apply -----------------------------------------------------------------------------------
# Maps merge by key, lists of things with a name by name; every other list, and each map under "atomic", is one value.


def tree(value: Any, key: str = "") -> dict[str, Any]:
    if key == "atomic" or not value:
        return {}
    if isinstance(value, dict):
        return {"f:" + k: tree(v, k) for k, v in value.items()}
    if isinstance(value, list) and all(isinstance(item, dict) and "name" in item for item in value):
        return {_key(item): {".": {}, **tree(item)} for item in value}
    return {}


def _key(item: Mapping[str, Any]) -> str:
    return "k:" + json.dumps({"name": item["name"]}, separators=(",", ":"))


def fields_of(obj: Mapping[str, Any]) -> dict[str, Any]:
    meta = {k: v for k, v in obj["metadata"].items() if k in ("labels", "annotations")}
    out = tree({k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")})
    return {**out, "f:metadata": tree(meta)} if tree(meta) else out


def apply(live: Mapping[str, Any] | None, wanted: Mapping[str, Any], manager: str = "gpufleet") -> dict[str, Any]:
    """What the server stores after a forced apply."""
    old = copy.deepcopy(dict(live)) if live else {"metadata": {}}
    entries = old["metadata"].pop("managedFields", [])
    mine = next((e["fieldsV1"] for e in entries if (e["manager"], e["operation"]) == (manager, "Apply")), {})
    rest = [e for e in entries if (e["manager"], e["operation"]) != (manager, "Apply")]
    wish = fields_of(wanted)
    for entry in rest:
        entry["fieldsV1"] = _not_changed(entry["fieldsV1"], old, wanted) or {}
    out = _removed(old, mine, [wish, *(e["fieldsV1"] for e in rest)])
    out = _merge(out or {}, copy.deepcopy(dict(wanted)))
    rest = [e for e in rest if e["fieldsV1"]]
    out["metadata"]["managedFields"] = [*rest, {"manager": manager, "operation": "Apply", "fieldsV1": wish}]
    return out


def update(live: Mapping[str, Any], new: Mapping[str, Any], manager: str) -> dict[str, Any]:
    """What the server stores after another manager changed the object to ``new`` by an update."""
    out = copy.deepcopy(dict(new))
    entries = copy.deepcopy(live["metadata"]["managedFields"])
    before, after = fields_of(live), fields_of(new)
    for entry in entries:
        entry["fieldsV1"] = _still_there(entry["fieldsV1"], live, new)
    changed = _changed(after, live, new)
    same = next((e for e in entries if (e["manager"], e["operation"]) == (manager, "Update")), None)
    if same is None:
        same = {"manager": manager, "operation": "Update", "fieldsV1": {}}
        entries.append(same)
    same["fieldsV1"] = _union(same["fieldsV1"], changed)
    assert before is not None
    out["metadata"]["managedFields"] = [e for e in entries if e["fieldsV1"]]
    return out


def _at(value: Any, name: str) -> Any:
    if name.startswith("f:"):
        return value.get(name[2:]) if isinstance(value, dict) else None
    found = [i for i in value or [] if isinstance(i, dict) and _key(i) == name] if isinstance(value, list) else []
    return found[0] if found else None


def _is_leaf(node: Mapping[str, Any]) -> bool:
    return all(name == "." for name in node)


def _not_changed(node: Mapping[str, Any], old: Any, wanted: Any) -> dict[str, Any]:
    """Ownership that another manager keeps when ``wanted`` is forced on ``old``."""
    out: dict[str, Any] = {}
    for name, below in node.items():
        if name == ".":
            out[name] = below
            continue
        a, b = _at(old, name), _at(wanted, name)
        if b is None or (_is_leaf(below) and a == b):
            out[name] = below
        elif not _is_leaf(below):
            kept = _not_changed(below, a, b)
            if kept:
                out[name] = kept
    return out


def _still_there(node: Mapping[str, Any], old: Any, new: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, below in node.items():
        if name == ".":
            out[name] = below
            continue
        a, b = _at(old, name), _at(new, name)
        if b is None:
            continue
        if _is_leaf(below):
            if a == b:
                out[name] = below
        else:
            kept = _still_there(below, a, b)
            if kept:
                out[name] = kept
    return out


def _changed(node: Mapping[str, Any], old: Any, new: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, below in node.items():
        if name == ".":
            continue
        a, b = _at(old, name), _at(new, name)
        if a == b:
            continue
        if _is_leaf(below) or a is None:
            out[name] = below
        else:
            out[name] = _changed(below, a, b)
    return {name: below for name, below in out.items() if below or _is_leaf(node.get(name, {}))}


def _union(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(one)
    for name, below in two.items():
        out[name] = _union(out[name], below) if name in out else below
    return out


def _removed(value: Any, old: Mapping[str, Any], kept: list[Mapping[str, Any]]) -> Any:
    """``value`` without what the manager owned (``old``) and nobody owns any more (``kept``). None: nothing is left."""
    if isinstance(value, dict):
        out = {}
        for key, item in value.items():
            name = "f:" + key
            left = [k[name] for k in kept if name in k]
            if name not in old or (left and _is_leaf(old[name])):
                out[key] = item
            elif not _is_leaf(old[name]):
                rest = _removed(item, old[name], left)
                if rest not in (None, {}, []) or left:
                    out[key] = rest if rest is not None else type(item)()
        return out
    return _removed_items(value, old, kept) if isinstance(value, list) else None


def _removed_items(value: list[Any], old: Mapping[str, Any], kept: list[Mapping[str, Any]]) -> list[Any]:
    items = []
    for item in value:
        name = _key(item)
        left = [k[name] for k in kept if name in k]
        if name not in old:
            items.append(item)
        elif left:
            items.append(_removed(item, {k: v for k, v in old[name].items() if k != "f:name"}, left))
    return items


def _merge(old: Any, new: Any, key: str = "") -> Any:
    if key == "atomic":
        return new
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{k: _merge(old[k], v, k) if k in old else v for k, v in new.items()}}
    named = [isinstance(x, list) and x and all(isinstance(i, dict) and "name" in i for i in x) for x in (old, new)]
    if all(named):
        mine = [_merge(_at(old, _key(i)), i) if _at(old, _key(i)) else i for i in new]
        return mine + [i for i in old if not _at(new, _key(i))]
    return new
