# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Types of the schema's keys: what is allowed, in words, and the check of one value."""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ._schema import Key


class Problem(NamedTuple):
    """What is wrong with a value. ``where`` is the path below the key, such as ``[0].name``."""

    where: str
    detail: str
    remedy: str = ""


Check = Callable[[Key, Any], Iterator[Problem]]

_QUANTITY = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?\d+(\.\d*)?))?$")
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_DURATION = re.compile(r"^(0|(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?)$")
_PERCENT = re.compile(r"^\d+%?$")
_IMAGE = re.compile(r"[a-zA-Z0-9-]+")
_VERSION = re.compile(r"^(sha256:[0-9a-f]{64}|[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})$")
_LABEL_NAME = re.compile(r"^([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?/)?[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$")

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION = {
    "key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int,
}  # fmt: skip

WORDS: Dict[str, str] = {
    "bool": "true or false",
    "int": "a whole number",
    "string": "a text",
    "text": "a text",
    "version": "a version as a text, in quotes",
    "image": "the name of an image",
    "name": "the name of a Kubernetes object",
    "path": "an absolute path",
    "enum": "one of the names",
    "percent": "a whole number or a percentage such as 25%",
    "duration": "a time such as 15s or 1h30m",
    "int-or-text": "a whole number or a text",
    "map": "a map of names to texts",
    "texts": "a map of names to texts",
    "boolmap": "a map of names to true or false",
    "strings": "a list of texts",
    "env": "a list of {name, value} or {name, valueFrom}",
    "tolerations": "a list of tolerations",
    "resources": "{requests, limits}",
    "sizes": "resources by the name of a container",
    "objects": "a list of maps",
    "object": "a map",
    "list": "a list",
    "any": "any value",
}


def described(value: Any) -> str:
    """A value in words for a message: short, and in the user's own notation."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        text = value if len(value) <= 60 else value[:57] + "..."
        return f"the text {json.dumps(text, ensure_ascii=False)}"
    if isinstance(value, Mapping):
        return "a map" if value else "an empty map"
    return "a list" if value else "an empty list"


def allowed(key: Key) -> str:
    """What a key may hold, in words."""
    if key.allowed:
        return "one of " + ", ".join(name or '""' for name in key.allowed)
    words = WORDS[key.type]
    if key.minimum is not None and key.maximum is not None:
        return f"{words} from {key.minimum} to {key.maximum}"
    return f"{words}, {key.minimum} or more" if key.minimum is not None else words


def problems(key: Key, value: Any) -> List[Problem]:
    """Everything that is wrong with the value of a key; null is always right (the key counts as absent)."""
    return [] if value is None else list(_CHECKS[key.type](key, value))


def _wrong(key: Key, value: Any, where: str = "", words: str = "", remedy: str = "") -> Problem:
    return Problem(where, f"is {described(value)}, allowed is {words or allowed(key)}.", remedy)


def _bool(key: Key, value: Any) -> Iterator[Problem]:
    if isinstance(value, bool):
        return
    remedy = ""
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        remedy = f"Write {value.strip().lower()} without quotes."
    yield _wrong(key, value, remedy=remedy)


def _int(key: Key, value: Any) -> Iterator[Problem]:
    if isinstance(value, bool) or not isinstance(value, int):
        remedy = f"Write {value} without quotes." if isinstance(value, str) and value.isdigit() else ""
        yield _wrong(key, value, remedy=remedy)
        return
    if (key.minimum is not None and value < key.minimum) or (key.maximum is not None and value > key.maximum):
        yield _wrong(key, value)


def _string(key: Key, value: Any) -> Iterator[Problem]:
    if not isinstance(value, str):
        yield _wrong(key, value, remedy=_quote(value))


def _quote(value: Any) -> str:
    return "Put it in quotes." if isinstance(value, (bool, int, float)) else ""


def _matching(pattern: re.Pattern[str], search: bool = False) -> Check:
    def check(key: Key, value: Any) -> Iterator[Problem]:
        if not isinstance(value, str):
            yield _wrong(key, value, remedy=_quote(value))
        elif value and not (pattern.search(value) if search else pattern.match(value)):
            yield _wrong(key, value)

    return check


def _version(key: Key, value: Any) -> Iterator[Problem]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield _wrong(
            key,
            value,
            remedy="YAML reads a version without quotes as a number, so that 595.10 becomes 595.1. Put it in quotes.",
        )
    else:
        yield from _matching(_VERSION)(key, value)


def _path(key: Key, value: Any) -> Iterator[Problem]:
    if not isinstance(value, str) or (
        value and (not value.startswith("/") or ".." in value.split("/") or "\n" in value)
    ):
        yield _wrong(key, value)


def _enum(key: Key, value: Any) -> Iterator[Problem]:
    if isinstance(value, str) and (value in key.allowed or value == ""):
        return
    remedy = ""
    if isinstance(value, bool) and ("on" in key.allowed or "off" in key.allowed):
        remedy = "YAML reads on and off without quotes as true and false: put it in quotes."
    yield _wrong(key, value, remedy=remedy)


def _percent(key: Key, value: Any) -> Iterator[Problem]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return
    if not isinstance(value, str) or (value and not _PERCENT.match(value)):
        yield _wrong(key, value)


def _int_or_text(key: Key, value: Any) -> Iterator[Problem]:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        yield _wrong(key, value)


def _map_of(item: str, good: Callable[[Any], bool], label: bool = False) -> Check:
    def check(key: Key, value: Any) -> Iterator[Problem]:
        if not isinstance(value, Mapping):
            yield _wrong(key, value)
            return
        for name, entry in value.items():
            if label and not _LABEL_NAME.match(name):
                yield Problem(
                    f".{name}", "is not a name that Kubernetes accepts (prefix/name of letters, digits, '-', '_', '.')."
                )
            elif entry is not None and not good(entry):
                yield _wrong(key, entry, f".{name}", item, _quote(entry))

    return check


def _list_of(item: str, good: Callable[[Any], bool]) -> Check:
    def check(key: Key, value: Any) -> Iterator[Problem]:
        if not isinstance(value, list):
            yield _wrong(key, value)
            return
        for index, entry in enumerate(value):
            if not good(entry):
                yield _wrong(key, entry, f"[{index}]", item, _quote(entry) if item == "a text" else "")

    return check


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def _env(key: Key, value: Any) -> Iterator[Problem]:
    """Values of environment variables may be secret: messages never show them."""
    if not isinstance(value, list):
        yield _wrong(
            key, value, remedy='Write a list: - {name: NAME, value: "value"}.' if isinstance(value, Mapping) else ""
        )
        return
    first: Dict[str, int] = {}
    for index, item in enumerate(value):
        yield from _env_item(index, item)
        name = item.get("name") if isinstance(item, Mapping) else None
        if isinstance(name, str) and name:
            if name in first:
                yield Problem(f"[{index}].name", f"is {name} again, as in [{first[name]}].", "Keep one of them.")
            first.setdefault(name, index)


def _env_item(index: int, item: Any) -> Iterator[Problem]:
    if not isinstance(item, Mapping):
        yield Problem(f"[{index}]", f"is {_kind(item)}, allowed is {{name, value}}.")
        return
    for name in item:
        if name not in ("name", "value", "valueFrom"):
            yield Problem(f"[{index}].{name}", "is unknown, allowed is name and value or valueFrom.")
    if item.get("valueFrom") is not None:
        yield from _env_source(index, item)
    name = item.get("name")
    if not isinstance(name, str) or not name or "=" in name or "\x00" in name:
        yield Problem(f"[{index}].name", f"is {_kind(name)}, allowed is the name of an environment variable.")
    content = item.get("value")
    if content is not None and not isinstance(content, str):
        yield Problem(f"[{index}].value", f"is {_kind(content)}, allowed is a text.", _quote(content))


# Where the value of a variable may come from, with the keys that must be given.
ENV_SOURCES: Dict[str, Tuple[str, ...]] = {
    "configMapKeyRef": ("name", "key"),
    "secretKeyRef": ("name", "key"),
    "fieldRef": ("fieldPath",),
    "resourceFieldRef": ("resource",),
}
_MORE_OF_SOURCE = {"optional": bool, "apiVersion": str, "containerName": str, "divisor": str}


def _env_source(index: int, item: Mapping[str, Any]) -> Iterator[Problem]:
    """A variable whose value is in a ConfigMap or Secret, or is the pod's own."""
    where, source = f"[{index}].valueFrom", item["valueFrom"]
    if item.get("value"):
        yield Problem(where, "does not go with value.", "Keep one of them.")
    if not isinstance(source, Mapping) or len(source) != 1 or not set(source) <= set(ENV_SOURCES):
        yield Problem(where, f"is no source of a value, allowed is one of {', '.join(ENV_SOURCES)}.")
        return
    ((kind, body),) = source.items()
    needed = ENV_SOURCES[kind]
    if not isinstance(body, Mapping):
        yield Problem(f"{where}.{kind}", f"is {_kind(body)}, allowed is a map with {' and '.join(needed)}.")
        return
    for key in needed:
        if not isinstance(body.get(key), str) or not body[key]:
            yield Problem(f"{where}.{kind}.{key}", f"is {_kind(body.get(key))}, allowed is a text.")
    for key, value in body.items():
        if key not in needed and not isinstance(value, _MORE_OF_SOURCE.get(key, ())):
            yield Problem(f"{where}.{kind}.{key}", "is unknown, or not of the kind that Kubernetes knows.")


def _kind(value: Any) -> str:
    """The kind of a value, not the value."""
    if value is None:
        return "missing"
    names: Sequence[Tuple[Any, str]] = (
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "not a good name"),
        (Mapping, "a map"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "a list")


def _tolerations(key: Key, value: Any) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield _wrong(key, value)
        return
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            yield _wrong(key, item, f"[{index}]", "a map of key, operator, value, effect")
            continue
        for name, entry in item.items():
            problem = _toleration_entry(name, entry)
            if problem:
                yield Problem(f"[{index}].{name}", *problem)
        if item.get("operator") == "Exists" and item.get("value"):
            yield Problem(f"[{index}].value", "must be empty where operator is Exists.")


def _toleration_entry(name: str, entry: Any) -> Optional[Tuple[str, str]]:
    kind = _TOLERATION.get(name)
    if kind is None:
        return f"is unknown, allowed is {', '.join(_TOLERATION)}.", ""
    if entry is None:
        return None
    if isinstance(entry, bool) or not isinstance(entry, kind):
        return f"is {described(entry)}, allowed is {WORDS['int'] if kind is int else WORDS['string']}.", _quote(entry)
    if name == "operator" and entry not in ("Exists", "Equal", ""):
        return f"is {described(entry)}, allowed is Exists or Equal.", ""
    if name == "effect" and entry and entry not in _EFFECTS:
        return f"is {described(entry)}, allowed is one of {', '.join(_EFFECTS)}.", ""
    return None


def _resources(key: Key, value: Any) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield _wrong(key, value)
        return
    for section, amounts in value.items():
        if section not in ("requests", "limits"):
            yield Problem(f".{section}", "is unknown, allowed is requests and limits.")
        elif amounts is not None and not isinstance(amounts, Mapping):
            yield _wrong(key, amounts, f".{section}", "a map of resources to amounts")
        else:
            for name, amount in (amounts or {}).items():
                if amount is not None and not _is_quantity(amount):
                    yield _wrong(key, amount, f".{section}.{name}", "an amount such as 500m, 2 or 128Mi")


def _sizes(key: Key, value: Any) -> Iterator[Problem]:
    """Resources by the name of a container."""
    if not isinstance(value, Mapping):
        yield _wrong(key, value)
        return
    for name, sizes in value.items():
        for problem in _resources(key, sizes):
            yield Problem(f".{name}{problem.where}", problem.detail, problem.remedy)


def _is_quantity(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float)) or (isinstance(value, str) and bool(_QUANTITY.match(value)))


def _simple(good: Callable[[Any], bool]) -> Check:
    def check(key: Key, value: Any) -> Iterator[Problem]:
        if not good(value):
            yield _wrong(key, value)

    return check


_CHECKS: Dict[str, Check] = {
    "bool": _bool,
    "int": _int,
    "string": _string,
    "text": _string,
    "version": _version,
    "image": _matching(_IMAGE, search=True),
    "name": _matching(_NAME),
    "path": _path,
    "enum": _enum,
    "percent": _percent,
    "duration": _matching(_DURATION),
    "int-or-text": _int_or_text,
    "map": _map_of("a text", _is_text, label=True),
    "texts": _map_of("a text", _is_text),
    "boolmap": _map_of("true or false", lambda value: isinstance(value, bool)),
    "strings": _list_of("a text", _is_text),
    "env": _env,
    "tolerations": _tolerations,
    "resources": _resources,
    "sizes": _sizes,
    "objects": _list_of("a map", _is_map),
    "object": _simple(_is_map),
    "list": _simple(lambda value: isinstance(value, list)),
    "any": _simple(lambda value: True),
}
