# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Never a new MIG layout under a running user pod (S19).

The MIG manager stops operands before it changes a layout, but no user's pod: on a busy GPU it fails half-way. So the
label that starts it is written only on nodes where no user's pod holds a GPU.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Sequence

from .._plan import ERROR, Finding
from ._change import LabelChange
from ._keys import MIG_CONFIG

_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-")

Pod = Mapping[str, Any]


def asks_for_gpu(spec: Mapping[str, Any]) -> bool:
    """Whether a container, an init container too, asks for GPUs or slices of one."""
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        resources = container.get("resources") or {}
        for amounts in (resources.get("limits") or {}, resources.get("requests") or {}):
            if any(name.startswith(_RESOURCES) and str(amount) != "0" for name, amount in amounts.items()):
                return True
    return False


def gpu_pods(pods: Iterable[Pod], namespace: str = "") -> List[Pod]:
    """Users' pods that hold GPUs of a node, or are about to: bound to it, and neither succeeded nor failed.

    ``namespace`` is that of the operands, whose pods do not count. By that alone: anybody may give a pod their labels.
    """
    return [pod for pod in pods if _holds(pod) and not _is_operand(pod, namespace)]


def _holds(pod: Pod) -> bool:
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    spec = pod.get("spec") or {}
    return phase not in ("Succeeded", "Failed") and bool(spec.get("nodeName")) and asks_for_gpu(spec)


def _is_operand(pod: Pod, namespace: str) -> bool:
    return bool(namespace) and (pod.get("metadata") or {}).get("namespace") == namespace


def name_of(pod: Pod) -> str:
    """``namespace/name``."""
    meta = pod.get("metadata") or {}
    return f"{meta.get('namespace', 'default')}/{meta.get('name', '')}"


def touches_mig(change: LabelChange) -> bool:
    """Whether a change would start the MIG manager: only then the node's pods have to be read."""
    return MIG_CONFIG in change.set or MIG_CONFIG in change.remove


def busy_pods(pods: Iterable[Pod], namespace: str = "") -> Dict[str, List[str]]:
    """Names of users' pods that hold GPUs, by node. Give a node's to ``plan_labels`` and ``plan_group`` as ``busy``."""
    found: Dict[str, List[str]] = {}
    for pod in gpu_pods(pods, namespace):
        found.setdefault(str(pod["spec"]["nodeName"]), []).append(name_of(pod))
    return {node: sorted(names) for node, names in sorted(found.items())}


def refusal(node: str, config: str, busy: Sequence[str], severity: str = ERROR) -> Finding:
    """What is said of a node whose layout cannot change now."""
    shown = ", ".join(busy[:5]) + (f" and {len(busy) - 5} more" if len(busy) > 5 else "")
    who = f"{len(busy)} pods hold" if len(busy) > 1 else "a pod holds"
    detail = f"{MIG_CONFIG}={config} is not written: {who} its GPUs ({shown})."
    remedy = "Let them finish or delete them, or wait for them with mig_busy=wait."
    return Finding("nodes.mig-busy", severity, detail, node, "", remedy, "mig_busy=wait")
