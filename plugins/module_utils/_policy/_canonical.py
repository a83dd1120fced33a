# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A policy as plain data with nothing left open: to hash (S62), to commit as a lock file (S63), and to read back."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import typing
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .._plan import ERROR, Finding
from ._kinds import LOCK_VERSION
from ._model import Policy
from ._types import described


def canonical(policy: Policy) -> Dict[str, Any]:
    """The whole policy as plain JSON data; ``load`` takes it back."""
    return {"apiVersion": LOCK_VERSION, "kind": "Policy", "spec": json.loads(json.dumps(dataclasses.asdict(policy)))}


def policy_hash(policy: Policy) -> str:
    """sha256 of the policy's meaning: the same for every way to write it, whatever the order of keys."""
    text = json.dumps(canonical(policy), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def restore(spec: Mapping[str, Any]) -> Tuple[Optional[Policy], List[Finding]]:
    """The policy of a canonical ``spec``. Every key must be there: nothing has a default in a lock file."""
    decoder = _Decoder()
    policy = decoder.data_class(Policy, spec, "")
    return (None if decoder.findings else policy), decoder.findings


class _Decoder:
    """From plain data to data classes, by their own types."""

    def __init__(self) -> None:
        self.findings: List[Finding] = []

    def _wrong(self, path: str, detail: str, remedy: str = "") -> None:
        self.findings.append(Finding("policy.locked", ERROR, detail, path=path, remedy=remedy))

    def data_class(self, kind: Any, value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            self._wrong(path, f"is {described(value)}, allowed is a map.")
            return None
        hints = typing.get_type_hints(kind)
        for name in value:
            if name not in hints:
                close = difflib.get_close_matches(name, list(hints), n=1)
                self._wrong(
                    _join(path, name), "is unknown in a locked policy.", f"Did you mean {close[0]}?" if close else ""
                )
        made: Dict[str, Any] = {}
        for name, hint in hints.items():
            if name in value:
                made[name] = self.value(hint, value[name], _join(path, name))
            else:
                self._wrong(_join(path, name), "is missing in a locked policy.", "Write the lock file anew.")
        return None if self.findings else kind(**made)

    def value(self, hint: Any, value: Any, path: str) -> Any:
        if dataclasses.is_dataclass(hint):
            return self.data_class(hint, value, path)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Union:
            return None if value is None else self.value(arguments[0], value, path)
        if origin is tuple:
            return self._tuple(arguments[0], value, path)
        if hint is Any:
            return value
        if not _fits(origin or hint, value):
            self._wrong(path, f"is {described(value)}, which does not fit here.")
        elif isinstance(value, Mapping) and arguments and arguments[1] is str:
            for name, entry in value.items():
                self.value(str, entry, _join(path, name))
        return value

    def _tuple(self, item: Any, value: Any, path: str) -> Any:
        if not isinstance(value, list):
            self._wrong(path, f"is {described(value)}, allowed is a list.")
            return ()
        return tuple(self.value(item, entry, f"{path}[{number}]") for number, entry in enumerate(value))


def _fits(kind: Any, value: Any) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind in (str, int):
        return isinstance(value, kind)
    return isinstance(value, Mapping)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
