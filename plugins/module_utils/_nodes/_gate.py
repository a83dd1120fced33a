# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The taint that keeps users' pods off a node until the stack is proved there, or while it refuses them (P128, P102).

Who makes nodes may give it to them at join (kubelet, Karpenter): it is taken away all the same, by the first run that
finds the validator ready on the node.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence

from .._kube._wait import pod_ready
from .._plan import WARNING, Finding
from ._causes import names
from ._change import Draft
from ._keys import GATE, GATE_EFFECT
from ._mig_guard import asks_for_gpu

IDENTITY = f"{GATE}:{GATE_EFFECT}"
# What is to become of it on a node: its value, or one of these two.
STARTING, REFUSING = "starting", "refuses-pods"
KEEP, OPEN = "keep", ""

VALIDATOR, PLUGIN = "nvidia-operator-validator", "nvidia-device-plugin-daemonset"
VALIDATORS = (VALIDATOR, "nvidia-sandbox-validator")
REFUSED = "UnexpectedAdmissionError"  # the kubelet, when the device plugin gives it no device
MANY = 3  # pods of one node: one alone may be bad luck

Pod = Mapping[str, Any]


class Refusals(NamedTuple):
    """Pods with GPUs that a node's kubelet refused since its device plugin started. ``said``: the newest answer."""

    pods: int
    said: str


class Proof(NamedTuple):
    """``validated``: nodes on which the validator is ready. ``refusing``: nodes that refuse many pods."""

    validated: Sequence[str] = ()
    refusing: Mapping[str, Refusals] = {}


def prove(operands: Iterable[Pod], failed: Iterable[Pod]) -> Proof:
    """From pods of validator and device plugin, and from pods in the phase Failed."""
    validated: List[str] = []
    started: Dict[str, str] = {}
    for pod in operands:
        node, app = str((pod.get("spec") or {}).get("nodeName") or ""), (pod["metadata"].get("labels") or {}).get("app")
        if app in VALIDATORS and pod_ready(pod):
            validated.append(node)
        elif app == PLUGIN:
            started[node] = max(_started(pod), started.get(node, ""))
    return Proof(sorted(validated), _refusing(failed, started))


def _started(plugin: Pod) -> str:
    """When the plugin's container started last."""
    status = plugin.get("status") or {}
    for item in status.get("containerStatuses") or []:
        if item.get("name") == "nvidia-device-plugin":
            running = (item.get("state") or {}).get("running") or {}
            return str(running.get("startedAt") or status.get("startTime") or "")
    return str(status.get("startTime") or "")


def _refusing(failed: Iterable[Pod], started: Mapping[str, str]) -> Dict[str, Refusals]:
    refused: Dict[str, List[Pod]] = {}
    for pod in failed:
        status, spec = pod.get("status") or {}, pod.get("spec") or {}
        node = str(spec.get("nodeName") or "")
        if status.get("reason") == REFUSED and asks_for_gpu(spec) and _made(pod) > started.get(node, ""):
            refused.setdefault(node, []).append(pod)
    return {
        node: Refusals(len(pods), str(max(pods, key=_made)["status"].get("message") or REFUSED).strip())
        for node, pods in sorted(refused.items())
        if len(pods) >= MANY
    }


def _made(pod: Pod) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")


def refusal_findings(refusing: Mapping[str, Refusals]) -> List[Finding]:
    """One finding a node: how many pods, and what the kubelet said."""
    remedy = (
        "Delete the pod of the device plugin on the node, which looks at the GPUs anew, and look for Xid errors in the "
        "node's kernel log. With ready_gate in its group such a node takes no further pods until then."
    )
    return [
        Finding(
            "node.refuses-pods",
            WARNING,
            f"its kubelet refused {found.pods} pods with GPUs since the device plugin started "
            f"({found.said.rstrip('.')[:240]})",
            names([node]),
            remedy=remedy,
        )
        for node, found in sorted(refusing.items())
    ]


def gate_of(name: str, there: bool, offers: bool, proof: Proof) -> str:
    """What is to become of the taint on a node of a group with ``ready_gate``.

    ``there``: the node has it. A node that offers GPUs without it is in service: it is not taken out of it.
    """
    if name in proof.refusing:
        return REFUSING
    if name in proof.validated:
        return OPEN
    return KEEP if there or offers else STARTING


_REASONS = {
    STARTING: "pods stay away until the validator has passed the node",
    REFUSING: "its kubelet refuses pods with GPUs",
    OPEN: "the validator has passed the node",
}


def plan_gate(draft: Draft, gate: str) -> None:
    """Puts the taint on the draft, or takes it away, whoever put it there."""
    scope = draft.taints
    if gate == KEEP or scope.values.get(IDENTITY, OPEN) == gate:
        return
    if gate == OPEN:
        del scope.values[IDENTITY]
        scope.ours.pop(IDENTITY, None)
    else:
        scope.values[IDENTITY] = scope.ours[IDENTITY] = gate
    draft.reasons[f"taint {IDENTITY}"] = _REASONS[gate]
