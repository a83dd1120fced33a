# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods, and what makes pods, as workloads: one shape for all kinds."""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, Tuple

from .._kube._resources import Object
from ._world import Workload

_ENDED = ("Succeeded", "Failed", "Complete")


def workloads_of(items: Iterable[Object]) -> List[Workload]:
    """Those that are not done."""
    found = []
    for item in items:
        spec, status = item.get("spec") or {}, item.get("status") or {}
        if not _is_done(item["kind"], spec, status):
            meta = item["metadata"]
            pod, runs = template_of(item["kind"], spec), _runs(item["kind"], spec, status)
            found.append(Workload(item["kind"], meta.get("namespace", ""), meta["name"], pod, runs))
    return found


def template_of(kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec of the pods that an object makes, or of the pod that it is."""
    if kind == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    if kind == "Pod":
        return spec
    return (spec.get("template") or {}).get("spec") or {}


def _is_done(kind: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    if kind == "Pod":
        return status.get("phase") in _ENDED
    if kind == "Job":
        conditions = status.get("conditions") or []
        return any(c.get("type") in _ENDED and c.get("status") == "True" for c in conditions)
    return spec.get("replicas") == 0


_COUNTS: Mapping[str, Tuple[str, ...]] = {
    "DaemonSet": ("numberReady",),
    "Job": ("ready", "succeeded"),
    "CronJob": ("lastSuccessfulTime",),
}


def _runs(kind: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    if kind == "Pod":
        return bool(spec.get("nodeName"))
    return any(status.get(name) for name in _COUNTS.get(kind, ("readyReplicas",)))
