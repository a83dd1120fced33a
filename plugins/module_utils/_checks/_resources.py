# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU resources in pod specs: which containers ask for what."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping

from .._kube._quantities import quantity

PREFIX = "nvidia.com/"
MIG = PREFIX + "mig-"


def containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All containers of a pod, init containers too."""
    yield from spec.get("initContainers") or []
    yield from spec.get("containers") or []


def amounts(container: Mapping[str, Any], kind: str) -> Dict[str, int]:
    """GPU resources in ``limits`` or ``requests`` of a container, without those of 0."""
    found = {}
    for name, amount in ((container.get("resources") or {}).get(kind) or {}).items():
        number = quantity(amount)
        if name.startswith(PREFIX) and number:
            found[str(name)] = int(number)
    return found


def requested(container: Mapping[str, Any]) -> Dict[str, int]:
    """What the scheduler counts for a container: requests, which limits stand in for."""
    return {**amounts(container, "limits"), **amounts(container, "requests")}


def asked(spec: Mapping[str, Any]) -> Dict[str, int]:
    """GPU resources that a pod needs at a time: the sum of its containers, or the most of one init container."""
    total: Dict[str, int] = {}
    for container in spec.get("containers") or []:
        for name, amount in requested(container).items():
            total[name] = total.get(name, 0) + amount
    for container in spec.get("initContainers") or []:
        for name, amount in requested(container).items():
            total[name] = max(total.get(name, 0), amount)
    return total


def two_mig_kinds(spec: Mapping[str, Any]) -> List[str]:
    """MIG resources of the first container that asks for more than one kind; it would see one of them only (P106)."""
    for container in containers(spec):
        kinds = sorted(name for name in requested(container) if name.startswith(MIG))
        if len(kinds) > 1:
            return kinds
    return []


def without_limits(spec: Mapping[str, Any]) -> Dict[str, int]:
    """GPU resources that are requested without a limit: the API server refuses such pods."""
    for container in containers(spec):
        limits = amounts(container, "limits")
        missing = {n: a for n, a in amounts(container, "requests").items() if n not in limits}
        if missing:
            return missing
    return {}


def wants_gpu(spec: Mapping[str, Any], runtime_class: str) -> str:
    """What in a pod that asks for no GPU resource shows that it means to use GPUs; "" when nothing does."""
    if spec.get("runtimeClassName") == runtime_class:
        return f"runtimeClassName: {runtime_class}"
    for container in containers(spec):
        for item in container.get("env") or []:
            if item.get("name") == "NVIDIA_VISIBLE_DEVICES" and item.get("value") not in ("none", "void", ""):
                return f"NVIDIA_VISIBLE_DEVICES={item.get('value', '(from elsewhere)')}"
    for key in sorted(spec.get("nodeSelector") or {}):
        if key.startswith(PREFIX + "gpu."):
            return f"nodeSelector {key}"
    return ""
