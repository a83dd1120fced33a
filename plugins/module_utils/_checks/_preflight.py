# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entry of the module cluster_preflight: one look, every check, one table (S30, L55)."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from .._kube._connection import KubeError, MissingPackage
from .._plan import SEVERITIES, Failure, Finding, errors
from .._policy._model import Policy
from .._stack._request import Progress, Request, read_policy
from . import (
    _discovery,
    _fits,
    _kernels,
    _machines,
    _orphans,
    _quotas,
    _rights,
    _rivals,
    _runtimes,
    _security,
    _version,
    _webhooks,
    _workloads,
)
from ._read import Reader
from ._result import ShownResult
from ._world import World


class Check(NamedTuple):
    """A line of the table, and the function that judges."""

    title: str
    judge: Callable[[World], List[Finding]]


CHECKS: Tuple[Check, ...] = (
    Check("policy", lambda world: list(world.of_run)),
    Check("Kubernetes", _version.judge),
    Check("rights", _rights.judge),
    Check("pod security", _security.judge),
    Check("quotas", _quotas.judge),
    Check("NFD", _discovery.judge),
    Check("NFD leftovers", _orphans.judge),
    Check("runtimes", _runtimes.judge),
    Check("kernels", _kernels.judge),
    Check("machines", _machines.judge),
    Check("versions", _fits.judge),
    Check("webhooks", _webhooks.judge),
    Check("rivals", _rivals.judge),
    Check("workloads", _workloads.judge),
)
OK = "ok"
SHOWN = 20  # findings of one check in the table


def cluster_preflight(params: Mapping[str, Any], check: bool, progress: Progress) -> ShownResult:
    """Entry of the module of this name. Raises Failure when a finding is an error."""
    of_policy: List[Finding] = []
    try:
        policy = read_policy(params, of_policy)
        result = _judged(Request.from_params(params, check, progress), policy, of_policy)
    except MissingPackage:
        raise
    except KubeError as error:
        raise Failure(f"{error}.", ShownResult()) from error
    except Failure as failure:
        raise Failure(failure.msg, ShownResult(findings=failure.result.findings)) from failure
    for line in result.found["table"] if params.get("show_table") else ():
        progress(line)
    if errors(result.findings):
        raise Failure(_refusal(result), result)
    return result


def _judged(request: Request, policy: Policy, of_policy: List[Finding]) -> ShownResult:
    request.progress("reading the cluster")
    world = Reader(request, policy).read()
    world.of_run = of_policy + world.of_run
    judged = [(one.title, one.judge(world)) for one in CHECKS]
    result = ShownResult(findings=[finding for _title, found in judged for finding in found])
    stats = request.connection.stats
    result.found = {
        "kubernetes": world.kubernetes,
        "namespace": request.namespace,
        "gpu_nodes": [str(node["metadata"]["name"]) for node in world.gpu_nodes],
        "checks": [{"name": title, "result": worst(found), "findings": len(found)} for title, found in judged],
        "table": table(judged),
        "requests": {"total": stats["requests"], "writes": stats["writes"]},
    }
    return result


def worst(findings: Sequence[Finding]) -> str:
    """ok, info, warning or error."""
    return min((f.severity for f in findings), key=SEVERITIES.index, default=OK)


def table(judged: Sequence[Tuple[str, Sequence[Finding]]]) -> List[str]:
    """A line for each check that found nothing and for each finding, those of a check by severity."""
    rows = [("CHECK", "RESULT", "WHAT WAS FOUND, AND WHAT TO DO")]
    for title, findings in judged:
        ordered = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
        rows += [(title, finding.severity, _sentence(finding)) for finding in ordered[:SHOWN]]
        if len(ordered) > SHOWN:
            rows.append((title, ordered[SHOWN].severity, f"... and {len(ordered) - SHOWN} more"))
        if not ordered:
            rows.append((title, OK, ""))
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{row[0]:<{wide[0]}}  {row[1]:<{wide[1]}}  {row[2]}".rstrip() for row in rows]
    return [*lines, _count([finding for _title, found in judged for finding in found])]


def _sentence(finding: Finding) -> str:
    """With the target, also where the finding has a path."""
    text = " ".join(finding.sentence().split())
    return f"{finding.target}: {text}" if finding.path and finding.target else text


def _count(findings: Sequence[Finding]) -> str:
    number: Dict[str, int] = {name: sum(1 for f in findings if f.severity == name) for name in SEVERITIES}
    if not findings:
        return "nothing stands in the way"
    words = ", ".join(f"{count} {name}{'s' * (count != 1)}" for name, count in number.items() if count)
    return words.replace("infos", "notes").replace("1 info", "1 note")


def _refusal(result: ShownResult) -> str:
    found = errors(result.findings)
    lines = "\n".join(f"- {_sentence(finding)}" for finding in found)
    return f"The cluster is not ready for this policy, {len(found)} error{'s' * (len(found) != 1)}:\n{lines}"
