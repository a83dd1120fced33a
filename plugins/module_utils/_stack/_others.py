# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else runs a part of the stack: the GPU Operator's controller, and a Node Feature Discovery that is not ours."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, List, Mapping, Optional

from .._kube._connection import Connection
from .._kube._lists import list_objects
from .._operands._nfd_found import detect, masters
from .._plan import ERROR, WARNING, Finding

OPERATOR_LEASE = "53822513.nvidia.com"


def runs_operator(connection: Connection) -> bool:
    """Whether the GPU Operator's controller runs."""
    return bool(operator_findings(connection))


def operator_findings(connection: Connection) -> List[Finding]:
    """An error for each controller of the GPU Operator that runs, by its Deployment or by a lease that it holds."""
    where = [
        f"Deployment {d['metadata']['namespace']}/{d['metadata']['name']}"
        for d in list_objects(connection, "Deployment", label_selector="app=gpu-operator").items
        if (d.get("spec") or {}).get("replicas", 1) > 0
    ]
    if not where:
        leases = list_objects(connection, "Lease", field_selector=f"metadata.name={OPERATOR_LEASE}").items
        where = [
            f"lease {lease['metadata']['namespace']}/{OPERATOR_LEASE}"
            for lease in leases
            if _held(lease, connection.now())
        ]
    return [
        Finding(
            "operator-runs",
            ERROR,
            "the GPU Operator's controller runs in this cluster and would undo what is written here",
            target=place,
            remedy="Uninstall its Helm chart or scale its Deployment to 0, then run again.",
        )
        for place in where
    ]


def _held(lease: Mapping[str, Any], now: float) -> bool:
    spec = lease.get("spec") or {}
    renewed = str(spec.get("renewTime") or "")
    if not spec.get("holderIdentity") or not renewed:
        return False
    try:
        then = datetime.strptime(renewed.split(".", 1)[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return True
    # A controller that is gone stops renewing; three times the duration is long enough to be sure.
    return now - then.timestamp() < 3 * float(spec.get("leaseDurationSeconds") or 60)


def foreign_nfd(connection: Connection) -> Optional[str]:
    """The master of an NFD that is not ours, as "Deployment namespace/name", or None."""
    return detect(list_objects(connection, "Deployment").items, list_objects(connection, "DaemonSet").items)


def second_nfd(connection: Connection) -> List[Finding]:
    """A warning when more than one Node Feature Discovery runs: each takes the labels of the other for stale ones."""
    deployments, daemonsets = list_objects(connection, "Deployment").items, list_objects(connection, "DaemonSet").items
    found = masters([*deployments, *daemonsets])
    if len(found) < 2:
        return []
    detail = f"{len(found)} Node Feature Discoveries run, which write the same labels of nodes: {', '.join(found)}"
    remedy = "Remove all but one; with nfd.enabled false the collection deploys none."
    return [Finding("nfd.two", WARNING, detail, found[-1], remedy=remedy)]
