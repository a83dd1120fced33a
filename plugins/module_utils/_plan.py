# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every module of the collection returns: findings, a plan of actions with reasons, and checks of the end state.

Shapes are those of the collection's result: see ``docs/architecture.md``.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Sequence

ERROR = "error"
WARNING = "warning"
INFO = "info"
SEVERITIES = (ERROR, WARNING, INFO)

REDACTED = "(redacted)"
_SECRET_PARTS = (
    "password",
    "passwd",
    "token",
    "secret",
    "secretdata",
    "privatekey",
    "apikey",
    "accesskey",
    "credential",
)
_ENV_PATH = re.compile(r"\.env\[([^\]]+)\]\.value$")


@dataclass(frozen=True)
class Finding:
    """Something about the input or the target that a person should know, found before anything is written.

    ``path`` is the dotted path of the key (``driver.version``), ``target`` the host, node or object it is about,
    ``remedy`` what to do, ``accept`` the option that lets the run go on all the same ("" where nothing does).
    """

    id: str
    severity: str
    detail: str
    target: str = ""
    path: str = ""
    remedy: str = ""
    accept: str = ""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity of a finding is one of {', '.join(SEVERITIES)}, not {self.severity!r}")

    def sentence(self) -> str:
        """One line for a person: where, what, and what to do."""
        where = self.path or self.target
        text = f"{where}: {self.detail}" if where else self.detail
        end = "" if text.endswith((".", "!", "?", ":")) else "."
        return f"{text}{end} {self.remedy}" if self.remedy else text


@dataclass(frozen=True)
class Action:
    """One change, with its reason. ``before`` and ``after`` hold only what differs."""

    id: str
    verb: str
    target: str
    reason: str
    disruptive: bool = False
    before: Any = None
    after: Any = None


@dataclass(frozen=True)
class Check:
    """A proof of the end state, by another route than the one that wrote it."""

    id: str
    ok: bool
    detail: str


@dataclass
class Result:
    """The result of a module that changes things; the same keys in check mode and in a real run.

    ``shown``: a person has seen the findings already, so they are not given as warnings too.
    """

    shown: ClassVar[bool] = False
    changed: bool = False
    findings: List[Finding] = field(default_factory=list)
    plan: List[Action] = field(default_factory=list)
    found: Dict[str, Any] = field(default_factory=dict)
    verified: List[Check] = field(default_factory=list)

    def as_dict(self) -> Dict[str, Any]:
        """Plain data for ``exit_json``, secrets redacted."""
        return {
            "changed": self.changed,
            "findings": [asdict(f) for f in self.findings],
            "plan": [redacted(asdict(a)) for a in self.plan],
            "found": self.found,
            "verified": [asdict(c) for c in self.verified],
        }


@dataclass
class Outcome:
    """What a run on a host ends with: the result, and its diff."""

    result: Result
    diff: List[Dict[str, str]] = field(default_factory=list)

    def as_dict(self) -> Dict[str, Any]:
        """Plain data for ``exit_json``."""
        return self.result.as_dict()


class Failure(Exception):
    """The run cannot go on. ``msg`` names layer, target, cause, next step; ``done``, ``remaining`` are action ids."""

    def __init__(
        self, msg: str, result: Optional[Result] = None, done: Sequence[str] = (), remaining: Sequence[str] = ()
    ) -> None:
        super().__init__(msg)
        self.msg = msg
        self.result = result or Result()
        self.done = list(done)
        self.remaining = list(remaining)

    def as_dict(self) -> Dict[str, Any]:
        """Plain data for ``fail_json``: the keys of the result, and msg; where there is a plan, done and remaining."""
        result = dict(self.result.as_dict(), msg=self.msg)
        return dict(result, done=self.done, remaining=self.remaining) if "plan" in result else result


def errors(findings: Sequence[Finding]) -> List[Finding]:
    """The findings that stop a run."""
    return [f for f in findings if f.severity == ERROR]


def refusal(findings: Sequence[Finding]) -> str:
    """The message of a run that is refused: every error, one a line, and that nothing was changed."""
    lines = [f"- {f.sentence()}{_word(f)}" for f in errors(findings)]
    count = f"{len(lines)} problem{'s' if len(lines) != 1 else ''}"
    return f"Refused, nothing has been changed. {count}:\n" + "\n".join(lines)


def _word(finding: Finding) -> str:
    """What to write where the sentence says that it can be accepted, but not by which word."""
    said = not finding.accept or finding.accept in finding.sentence()
    return "" if said else f" (accept: [{finding.accept}])"


def redacted(value: Any) -> Any:
    """The same value with the contents of secrets replaced (data of Secret objects, and keys that name a secret)."""
    if isinstance(value, Mapping):
        hidden: Sequence[str] = ("data", "stringData") if value.get("kind") == "Secret" else ()
        if isinstance(value.get("name"), str) and "value" in value and _names_secret(value["name"]):
            hidden = ("value",)  # an environment variable
        return {k: _hidden(v) if k in hidden or _is_secret_key(k, v) else redacted(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(v) for v in value]
    return value


def _is_secret_key(key: Any, value: Any) -> bool:
    """A key whose text is a secret; blocks and names of objects (``secret: {secretName: a}``) are none."""
    found = _ENV_PATH.search(str(key))
    if found:
        return _names_secret(found.group(1))
    return isinstance(value, str) and _names_secret(str(key))


def _hidden(value: Any) -> Any:
    """Keys stay, since they tell what is missing; values go."""
    return dict.fromkeys(value, REDACTED) if isinstance(value, Mapping) else REDACTED


def _names_secret(key: str) -> bool:
    plain = key.lower().replace("_", "").replace("-", "")
    return any(plain.endswith(part) for part in _SECRET_PARTS) and not plain.startswith("automount")
