# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual machines keep what gives them their GPUs: the VFIO manager unbinds GPUs, the vGPU manager unloads its driver,
when their pods end (S48)."""

from __future__ import annotations

from typing import List, Mapping, Sequence

from .._kube._apply import DELETE, REPLACE, UPDATE, Step
from .._kube._connection import Connection
from .._kube._lists import list_objects
from .._kube._resources import Object
from .._nodes._mig_guard import ANY_DEVICE, busy_pods, holding
from .._operands import _vfio_manager, _vgpu_manager
from .._plan import ERROR, INFO, Finding
from ._nodes import gpu_part

#: DaemonSets that are never rolled, with the label of the nodes on which they run.
MANAGERS: Mapping[str, str] = {module.NAME: module.OPERAND.deploy_label for module in (_vfio_manager, _vgpu_manager)}


def judge(connection: Connection, steps: Sequence[Step], nodes: Sequence[Object], namespace: str) -> List[Finding]:
    """What of a plan would end a manager under virtual machines, and where a new form of one waits for its pods."""
    mine = [step for step in steps if step.ref.kind == "DaemonSet" and step.ref.name in MANAGERS]
    waits = [step for step in mine if step.verb == UPDATE and step.rolls]
    ends = [step for step in mine if step.verb in (DELETE, REPLACE)]
    return [*_waiting(waits, namespace), *(_in_use(connection, ends, nodes, namespace) if ends else [])]


def _waiting(steps: Sequence[Step], namespace: str) -> List[Finding]:
    detail = (
        "gets a new form, which reaches a node once its pod there is deleted: virtual machines would lose their GPUs"
    )
    return [
        Finding(
            "machines.not-rolled",
            INFO,
            detail,
            str(step.ref),
            remedy=f"Where none runs any more: kubectl -n {namespace} delete pod -l app={step.ref.name} "
            "--field-selector spec.nodeName=NODE",
        )
        for step in steps
    ]


def _in_use(connection: Connection, steps: Sequence[Step], nodes: Sequence[Object], namespace: str) -> List[Finding]:
    held = busy_pods(list_objects(connection, "Pod", keep=gpu_part).items, namespace, ANY_DEVICE)
    found = []
    for step in steps:
        key = MANAGERS[step.ref.name]
        mine = {str(node["metadata"]["name"]) for node in nodes if (node["metadata"].get("labels") or {}).get(key)}
        busy = [(name, pods) for name, pods in held.items() if name in mine]
        if busy:
            more = f"; so it is on {len(busy) - 1} more nodes" if len(busy) > 1 else ""
            detail = f"would end, which takes GPUs from what uses them: on {busy[0][0]} {holding(busy[0][1])}{more}"
            remedy = "End these pods first (stop or migrate virtual machines), or leave it as it is in the policy."
            found.append(Finding("machines.in-use", ERROR, detail, str(step.ref), remedy=remedy))
    return found
