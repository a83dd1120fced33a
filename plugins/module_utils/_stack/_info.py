# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a cluster's GPUs, read only; for a cluster that the GPU Operator runs as well."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, TypeVar

from .._kube._connection import ApiError, KubeError, MissingPackage
from .._kube._lists import list_objects
from .._kube._logs import with_last_words
from .._kube._resources import Object, ours, path
from .._nodes._gate import prove, refusal_findings
from .._nodes._models import Gpus
from .._nodes._stage import rows
from .._operands._hidden import NAME as HIDDEN
from .._operands._hidden import of_config
from .._plan import Failure, Finding, Result
from ._conditions import summary, waiting_operands
from ._facts import mixed_findings, no_gpu_findings, pci_gpus, read_nodes, with_hardware, without_gpus
from ._gates import read_failed
from ._lease import read_runs, runs_text
from ._others import runs_operator, second_nfd
from ._owners import read_owners
from ._policies import read_policies
from ._request import Progress, Request
from ._table import node_table

try:
    import jmespath
    from jmespath.exceptions import JMESPathError

    HAS_JMESPATH = True
except ImportError:
    HAS_JMESPATH = False


_T = TypeVar("_T")


class InfoResult(Result):
    """Result of an info module: found and findings, and what the query selects."""

    selected: Any = None
    asked = False

    def as_dict(self) -> Dict[str, Any]:
        """Plain data for ``exit_json``."""
        whole = super().as_dict()
        answer = {key: whole[key] for key in ("changed", "found", "findings")}
        return dict(answer, result=self.selected) if self.asked else answer


def gpu_cluster_info(params: Mapping[str, Any], check: bool, progress: Progress) -> InfoResult:
    """Entry of the module of this name."""
    query = _compiled(params.get("query"))
    try:
        request = Request.from_params(params, check, progress)
        return _read(request, query, bool(params.get("show_table")), bool(params.get("owners")))
    except MissingPackage:
        raise
    except KubeError as error:
        raise Failure(f"{error}.", InfoResult()) from error


def _read(request: Request, query: Any, show_table: bool, with_owners: bool) -> InfoResult:
    connection, namespace = request.connection, request.namespace
    hardware: Dict[str, Gpus] = _allowed(lambda: pci_gpus(connection), {})
    hidden = of_config(_allowed(lambda: connection.find(path("ConfigMap", namespace, HIDDEN)), None))
    nodes = with_hardware(read_nodes(connection), hardware, hidden)
    pods = list_objects(connection, "Pod", namespace).items
    daemonsets = list_objects(connection, "DaemonSet", namespace).items
    found_rows = rows(nodes, pods, daemonsets)
    if any(not row["ready"] for row in found_rows):
        pods = with_last_words(connection, pods)
        found_rows = rows(nodes, pods, daemonsets, list_objects(connection, "Event", namespace).items)
    version = connection.get("/version")
    policies = read_policies(connection, nodes)
    refusing = prove(pods, _allowed(lambda: read_failed(connection), [])).refusing
    seconds: List[Finding] = _allowed(lambda: second_nfd(connection), [])
    told = [*_unserved(nodes), *seconds, *refusal_findings(refusing), *no_gpu_findings(without_gpus(nodes, hardware))]
    told += mixed_findings(nodes, hardware)
    result = InfoResult(findings=[*told, *policies.findings])
    result.found = {
        "manager": _manager(request, daemonsets),
        "namespace": namespace,
        "kubernetes": str(version.get("gitVersion", "")),
        "table": node_table(found_rows),
        "nodes": found_rows,
        "status": summary(found_rows, waiting_operands(daemonsets), any(_has_feature(node) for node in nodes)),
        "policies": policies.rows,
        "runs": read_runs(connection, namespace),
        "requests": {"total": connection.stats["requests"], "writes": connection.stats["writes"]},
    }
    if with_owners:
        result.found["owners"] = read_owners(connection)
    if show_table:
        for line in [*result.found["table"], *runs_text(result.found["runs"][:3])]:
            request.progress(line)
    if query is not None:
        result.asked, result.selected = True, _select(query, result.found)
    return result


def _compiled(text: Any) -> Any:
    if not text:
        return None
    if not HAS_JMESPATH:
        raise Failure("query needs the Python package jmespath where this module runs.", InfoResult())
    try:
        return jmespath.compile(text)
    except JMESPathError as error:
        text = f"query: {text!r} is not a JMESPath expression: {' '.join(str(error).split())}"
        raise Failure(text, InfoResult()) from error


def _select(query: Any, found: Mapping[str, Any]) -> Any:
    try:
        return query.search(found)
    except JMESPathError as error:
        text = f"query: cannot be evaluated: {' '.join(str(error).split())}"
        raise Failure(text, InfoResult(found=dict(found))) from error


def _manager(request: Request, daemonsets: Sequence[Object]) -> str:
    if any(ours(daemonset) for daemonset in daemonsets):
        return "gpufleet"
    return "operator" if runs_operator(request.connection) else "none"


def _allowed(read: Callable[[], _T], otherwise: _T) -> _T:
    """What ``read`` gives; ``otherwise`` where the account may not look: the rest of the report is worth having."""
    try:
        return read()
    except ApiError as error:
        if error.status == 403:
            return otherwise
        raise


def _unserved(nodes: Sequence[Object]) -> List[Finding]:
    """Without NFD no node is known to have a GPU."""
    if not nodes or any(_has_feature(node) for node in nodes):
        return []
    detail = "no node has labels of Node Feature Discovery, so no GPU is known"
    return [
        Finding("nfd-labels-missing", "warning", detail, remedy="Run gpufleet.nvidia.cluster_policy, or deploy NFD.")
    ]


def _has_feature(node: Object) -> bool:
    return any(key.startswith("feature.node.kubernetes.io/") for key in node["metadata"].get("labels") or {})
