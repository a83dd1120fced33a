# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Never a new MIG layout under a running user pod (S19).

The MIG manager stops operands before it changes a layout, but no user's pod: on a busy GPU it fails half-way. So the
label that starts it is written only on nodes where no user's pod holds a GPU.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

from .._plan import ERROR, Finding
from ._change import LabelChange
from ._keys import MIG_CONFIG

_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-")
# Device plugins of virtual machines name what they offer after the GPU or vGPU: any name may be theirs.
ANY_DEVICE = ("nvidia.com/",)

Pod = Mapping[str, Any]


def asks_for_gpu(spec: Mapping[str, Any], resources: Tuple[str, ...] = _RESOURCES) -> bool:
    """Whether a container, an init container too, asks for GPUs or slices of one: ``resources`` are how names begin."""
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        asked = container.get("resources") or {}
        for amounts in (asked.get("limits") or {}, asked.get("requests") or {}):
            if any(name.startswith(resources) and str(amount) != "0" for name, amount in amounts.items()):
                return True
    return False


def gpu_pods(pods: Iterable[Pod], namespace: str = "", resources: Tuple[str, ...] = _RESOURCES) -> List[Pod]:
    """Users' pods that hold GPUs of a node, or are about to: bound to it, and neither succeeded nor failed.

    ``namespace`` is that of the operands, whose pods do not count. By that alone: anybody may give a pod their labels.
    """
    return [pod for pod in pods if _holds(pod, resources) and not _is_operand(pod, namespace)]


def _holds(pod: Pod, resources: Tuple[str, ...]) -> bool:
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    spec = pod.get("spec") or {}
    return phase not in ("Succeeded", "Failed") and bool(spec.get("nodeName")) and asks_for_gpu(spec, resources)


def _is_operand(pod: Pod, namespace: str) -> bool:
    return bool(namespace) and (pod.get("metadata") or {}).get("namespace") == namespace


def name_of(pod: Pod) -> str:
    """``namespace/name``."""
    meta = pod.get("metadata") or {}
    return f"{meta.get('namespace', 'default')}/{meta.get('name', '')}"


def touches_mig(change: LabelChange) -> bool:
    """Whether a change would start the MIG manager: only then the node's pods have to be read."""
    return MIG_CONFIG in change.set or MIG_CONFIG in change.remove


def busy_pods(
    pods: Iterable[Pod], namespace: str = "", resources: Tuple[str, ...] = _RESOURCES
) -> Dict[str, List[str]]:
    """Names of users' pods that hold GPUs, by node. Give a node's to ``plan_labels`` and ``plan_group`` as ``busy``."""
    found: Dict[str, List[str]] = {}
    for pod in gpu_pods(pods, namespace, resources):
        found.setdefault(str(pod["spec"]["nodeName"]), []).append(name_of(pod))
    return {node: sorted(names) for node, names in sorted(found.items())}


def holding(pods: Sequence[str]) -> str:
    """``2 pods hold its GPUs (a/b, c/d)``."""
    shown = ", ".join(pods[:5]) + (f" and {len(pods) - 5} more" if len(pods) > 5 else "")
    return f"{f'{len(pods)} pods hold' if len(pods) > 1 else 'a pod holds'} its GPUs ({shown})"


def refusal(node: str, config: str, busy: Sequence[str], severity: str = ERROR) -> Finding:
    """What is said of a node whose layout cannot change now."""
    detail = f"{MIG_CONFIG}={config} is not written: {holding(busy)}."
    remedy = "Let them finish or delete them, or wait for them with mig_busy=wait."
    return Finding("nodes.mig-busy", severity, detail, node, "", remedy, "mig_busy=wait")
