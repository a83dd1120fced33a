# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual machines keep what gives them their GPUs (S48).

The VFIO manager unbinds GPUs, and the vGPU manager unloads its driver, when their pods end. A pod of the vGPU device
manager makes vGPUs anew when it starts, one of the confidential computing manager sets the mode of GPUs.
"""

from __future__ import annotations

from typing import Callable, List, Mapping, Sequence, Tuple

from .._kube._apply import CREATE, DELETE, REPLACE, UPDATE, Step
from .._kube._connection import Connection
from .._kube._lists import list_objects
from .._kube._resources import Object
from .._nodes._mig_guard import ANY_DEVICE, busy_pods, holding
from .._nodes._workload import runs
from .._operands import _cc_manager, _vfio_manager, _vgpu_device_manager, _vgpu_manager
from .._plan import ERROR, INFO, Finding
from ._nodes import gpu_part

#: DaemonSets that are never rolled, with the label of the nodes on which they run.
MANAGERS: Mapping[str, str] = {
    module.NAME: module.OPERAND.deploy_label
    for module in (_vfio_manager, _vgpu_manager, _vgpu_device_manager, _cc_manager)
}
_HARMFUL: Mapping[str, Tuple[str, ...]] = {
    _vfio_manager.NAME: (DELETE, REPLACE),
    _vgpu_manager.NAME: (DELETE, REPLACE),
    _vgpu_device_manager.NAME: (REPLACE,),
    _cc_manager.NAME: (CREATE, REPLACE),
}


def judge(connection: Connection, steps: Sequence[Step], nodes: Sequence[Object], namespace: str) -> List[Finding]:
    """What of a plan would end or start a manager under virtual machines, and where a new form waits for its pods."""
    mine = [step for step in steps if step.ref.kind == "DaemonSet" and step.ref.name in MANAGERS]
    waits = [step for step in mine if step.verb == UPDATE and step.rolls]
    harms = [step for step in mine if step.verb in _HARMFUL[step.ref.name]]
    return [*_waiting(waits, namespace), *(_in_use(connection, harms, nodes, namespace) if harms else [])]


def idle(connection: Connection, namespace: str) -> Callable[[str, str], bool]:
    """Whether a manager that changes GPUs as it starts may start anew on a node: no pod holds a device there.

    Pods are read once, and only when somebody asks of such a manager.
    """
    held: List[Mapping[str, List[str]]] = []

    def may(daemonset: str, node: str) -> bool:
        if DELETE in _HARMFUL.get(daemonset, (DELETE,)):
            return False
        if not held:
            held.append(busy_pods(list_objects(connection, "Pod", keep=gpu_part).items, namespace, ANY_DEVICE))
        return node not in held[0]

    return may


def _waiting(steps: Sequence[Step], namespace: str) -> List[Finding]:
    detail = (
        "gets a new form, which never reaches a node while its pod there runs: it changes GPUs that machines may use"
    )
    found = []
    for step in steps:
        remedy = (
            f"Where none runs any more: kubectl -n {namespace} delete pod -l app={step.ref.name} "
            "--field-selector spec.nodeName=NODE"
        )
        if DELETE not in _HARMFUL[step.ref.name]:
            remedy = f"Nodes without machines get it now. {remedy}"
        found.append(Finding("machines.not-rolled", INFO, detail, str(step.ref), remedy=remedy))
    return found


def _in_use(connection: Connection, steps: Sequence[Step], nodes: Sequence[Object], namespace: str) -> List[Finding]:
    held = busy_pods(list_objects(connection, "Pod", keep=gpu_part).items, namespace, ANY_DEVICE)
    found = []
    for step in steps:
        key = MANAGERS[step.ref.name]
        mine = {str(node["metadata"]["name"]) for node in nodes if runs(node["metadata"].get("labels") or {}, key)}
        busy = [(name, pods) for name, pods in held.items() if name in mine]
        if busy:
            more = f"; so it is on {len(busy) - 1} more nodes" if len(busy) > 1 else ""
            what = (
                "start, which sets the mode of GPUs in use"
                if step.verb == CREATE
                else "end or start anew, which takes GPUs from what uses them"
            )
            detail = f"would {what}: on {busy[0][0]} {holding(busy[0][1])}{more}"
            remedy = "End these pods first (stop or migrate virtual machines), or leave it as it is in the policy."
            found.append(Finding("machines.in-use", ERROR, detail, str(step.ref), remedy=remedy))
    return found
