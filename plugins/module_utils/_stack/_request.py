# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run was asked to do: the parameters of a module, read into one typed thing, with the policy complete."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from .._kube._connection import Connection, Deadline
from .._plan import Failure, Finding, Result, errors, refusal
from .._policy._load import load, merge
from .._policy._model import Policy
from .._policy._registry import below, relocated
from ._budget import parse_budget

Progress = Callable[[str], None]


@dataclass
class Request:
    """One call of a module of the stack."""

    connection: Connection
    namespace: str
    check: bool
    progress: Progress
    node_groups: List[Dict[str, Any]] = field(default_factory=list)
    drift: str = "correct"
    wait: bool = True
    stage_timeout: float = 1800.0
    max_failed_nodes: str = "0"
    deadline: Deadline = field(default_factory=lambda: Deadline(7200.0))
    lock_wait: float = 120.0
    skip_if_locked: bool = False
    everywhere: bool = True  # whether objects of ours are looked for in all namespaces
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def from_params(
        cls, params: Mapping[str, Any], check: bool, progress: Progress, connection: Optional[Connection] = None
    ) -> Request:
        """From the parameters of any module of the cluster plane; nothing is sent yet.

        ``connection``: one that is open already.
        """
        return cls(
            connection=connection or Connection.open(params),
            namespace=params["namespace"],
            check=check,
            progress=progress,
            node_groups=_groups(params),
            drift=params.get("drift") or "correct",
            wait=bool(params.get("wait", True)),
            stage_timeout=_seconds(params, "stage_timeout", 1800.0),
            max_failed_nodes=_budget(params),
            deadline=Deadline(_seconds(params, "timeout", 7200.0)),
            lock_wait=_lock_wait(params),
            everywhere=bool(params.get("all_namespaces", True)),
            skip_if_locked=params.get("if_locked") == "skip",
        )

    @property
    def owned_in(self) -> Optional[str]:
        """The namespace in which objects of ours are looked for; None for all."""
        return None if self.everywhere else self.namespace


def _seconds(params: Mapping[str, Any], name: str, default: float) -> float:
    """A limit in seconds; None, for a module that lacks the option, means the default. Raises Failure below 1."""
    value = params.get(name)
    if value is None:
        return default
    if float(value) < 1:
        raise Failure(f"{name} is {value}: seconds from 1 on are allowed. Nothing has been changed.")
    return float(value)


def _budget(params: Mapping[str, Any]) -> str:
    try:
        return parse_budget(params.get("max_failed_nodes"))
    except ValueError as error:
        raise Failure(f"{error}. Nothing has been changed.") from error


def _groups(params: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The groups as they were written, with the drivers' repositories below the one registry that was asked for."""
    groups, registry = list(params.get("node_groups") or []), str(params.get("image_registry") or "")
    for index, group in enumerate(groups):
        driver = group.get("driver") if isinstance(group, Mapping) else None
        repository = driver.get("repository") if isinstance(driver, Mapping) else None
        if registry and isinstance(repository, str) and repository:
            moved = below(registry.strip().rstrip("/"), repository)
            groups[index] = dict(group, driver=dict(driver or {}, repository=moved))
    return groups


def _lock_wait(params: Mapping[str, Any]) -> float:
    """Seconds to wait for another run; 0 does not wait. Raises Failure below 0."""
    value = params.get("lock_wait")
    if value is not None and float(value) < 0:
        raise Failure(f"lock_wait is {value}: seconds from 0 on are allowed. Nothing has been changed.")
    return 120.0 if value is None else float(value)


def read_policy(
    params: Mapping[str, Any], findings: List[Finding], extra: Optional[Mapping[str, Any]] = None
) -> Policy:
    """The policy of a module's parameters: files, then ``policy``, then ``extra``, then ``set_values``.

    Findings are added to ``findings``; raises Failure with every problem when there is an error among them.
    """
    sources: List[Mapping[str, Any]] = [s for s in params.get("policy_documents") or [] if s]
    sources += [source for source in (params.get("policy"), extra) if source]
    merged, problems = merge(sources, str(params["namespace"]))
    findings += problems
    policy: Optional[Policy] = None
    if not errors(problems):
        policy, problems = load(
            merged,
            set_strings=_strings(params.get("set_values")),
            release=params.get("release") or "",
            namespace=params["namespace"],
            accept=_strings(params.get("accept")),
        )
        findings += problems
    if policy is None or errors(findings):
        raise Failure(refusal(findings), Result(findings=list(findings)))
    registry = str(params.get("image_registry") or "")
    return relocated(policy, registry) if registry else policy


def _strings(values: Optional[Sequence[Any]]) -> List[str]:
    return [str(value) for value in values or []]
