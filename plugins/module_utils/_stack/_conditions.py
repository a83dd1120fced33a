# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a stack in one word, and the pair of conditions Ready and Error with the operator's reasons (STA-01).

Unlike a ClusterPolicy's, the message names operands and nodes, so that one node out of order hides nothing (L24).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from .._kube._resources import Object
from .._kube._wait import rollout_state
from .._nodes._causes import names
from .._nodes._stage import title_of

STATE_READY, NOT_READY = "ready", "notReady"
MOST = 5  # nodes whose sentences are told


def summary(nodes: Sequence[Mapping[str, Any]], waiting: Sequence[str], features: bool) -> Dict[str, Any]:
    """State and conditions. ``nodes``: rows of GPU nodes; ``waiting``: operands that are not ready; ``features``:
    whether any node has labels of NFD."""
    if not features:
        return _ready("NFDLabelsMissing", "no node has labels of Node Feature Discovery: no GPU is known")
    if not nodes:
        return _ready("NoGPUNodes", "no node has a GPU")
    late = [row for row in nodes if not row["ready"] and row["stage"] != "operands off"]
    if not waiting and not late:
        return _ready("Reconciled", f"all operands are ready on {len(nodes)} GPU nodes")
    told = [f"not ready: {', '.join(waiting)}"] if waiting else []
    told += [f"node {row['name']}: {row['trouble'] or 'no reason given'}" for row in late[:MOST]]
    if len(late) > MOST:
        told.append(f"and {names([str(row['name']) for row in late[MOST:]])}")
    return _failed("OperandNotReady", "; ".join(told))


def broken_off(message: str) -> Dict[str, Any]:
    """Of a run that an error ended."""
    return _failed("ReconcileFailed", message)


def waiting_operands(daemonsets: Sequence[Object]) -> List[str]:
    """What people call the operands whose DaemonSets are not ready by their own status."""
    found = {}
    for made in daemonsets:
        title = title_of((made["spec"]["template"].get("metadata") or {}).get("labels") or {})
        state = rollout_state(made)
        if title and not state.ready:
            found[title] = state.reason
    return [f"{title} ({reason})" for title, reason in sorted(found.items())]


def _ready(reason: str, message: str) -> Dict[str, Any]:
    return _pair(STATE_READY, ("True", reason, message), ("False", "Ready", ""))


def _failed(reason: str, message: str) -> Dict[str, Any]:
    return _pair(NOT_READY, ("False", "Error", ""), ("True", reason, message))


def _pair(state: str, ready: Sequence[str], error: Sequence[str]) -> Dict[str, Any]:
    keys = ("status", "reason", "message")
    both = (("Ready", ready), ("Error", error))
    return {"state": state, "conditions": [{"type": kind, **dict(zip(keys, values))} for kind, values in both]}
