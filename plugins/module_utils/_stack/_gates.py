# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes the validator has passed, and which refuse pods with GPUs: read for groups with ``ready_gate``."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Sequence

from .._kube._connection import Connection
from .._kube._lists import list_objects
from .._kube._resources import Object
from .._nodes._gate import IDENTITY, PLUGIN, REFUSED, VALIDATORS, Proof, gate_of, prove
from .._nodes._groups import NodeGroup, Wanted
from .._nodes._keys import GATE
from .._nodes._stage import offers
from .._nodes._taints import identity


def read_proof(connection: Connection, namespace: str) -> Proof:
    """Two lists: pods of two operands, and pods that failed, in all namespaces."""
    selector = f"app in ({', '.join((*VALIDATORS, PLUGIN))})"
    return prove(list_objects(connection, "Pod", namespace, label_selector=selector).items, read_failed(connection))


def read_failed(connection: Connection) -> List[Object]:
    """Pods of all namespaces that failed, with what counts of those that their kubelet refused."""
    return list_objects(connection, "Pod", field_selector="status.phase=Failed", keep=_refused_part).items


def _refused_part(pod: Object) -> Object:
    """Jobs leave thousands of failed pods behind: of those that were not refused nothing is kept."""
    status = pod.get("status") or {}
    meta = {"creationTimestamp": pod["metadata"].get("creationTimestamp")}
    return {"metadata": meta, "spec": pod.get("spec"), "status": status} if status.get("reason") == REFUSED else _OTHER


_OTHER: Object = {"metadata": {}}


def gates_of(nodes: Mapping[str, Object], wanted: Mapping[str, Wanted], proof: Proof) -> Dict[str, str]:
    """What is to become of the taint on each node that a group with ``ready_gate`` has."""
    return {
        name: gate_of(name, _is_there(nodes[name]), bool(offers(nodes[name])), proof)
        for name, one in wanted.items()
        if one.gate is not None
    }


def gated(groups: Sequence[NodeGroup], daemonsets: Iterable[Object]) -> bool:
    """Whether operands have to run on nodes with the taint: a run without groups leaves what another run set up."""
    if groups:
        return any(group.ready_gate for group in groups)
    specs = (made["spec"]["template"]["spec"] for made in daemonsets)
    return any(one.get("key") == GATE for spec in specs for one in spec.get("tolerations") or [])


def _is_there(node: Mapping[str, Any]) -> bool:
    return any(identity(one) == IDENTITY for one in node["spec"].get("taints") or [])
