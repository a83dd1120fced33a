# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose host is said to have a driver, and has none any more (P137, L11).

The driver manager marks a node on which it finds a driver with ``pre-installed``, and no driver pod comes back to look
again. The node's other pods do look: while they find a driver they are through at once, so one that has sought it for
minutes tells that there is none.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Collection, List, Mapping, Sequence

from .._kube._connection import Connection
from .._kube._lists import list_objects
from .._kube._resources import Object
from .._kube._wait import slim_pod
from .._nodes._keys import DEPLOY

SOUGHT = 120.0  # seconds for which a pod looks for a driver until there is none
LOOKING = "driver-validation"


def driverless(connection: Connection, nodes: Sequence[Object], namespace: str) -> Collection[str]:
    """Names of nodes whose mark is void. Pods are read only where a node is marked."""
    marked = {
        str(node["metadata"]["name"])
        for node in nodes
        if (node["metadata"].get("labels") or {}).get(DEPLOY + "driver") == "pre-installed"
    }
    if not marked:
        return ()
    pods = list_objects(connection, "Pod", namespace, keep=slim_pod).items
    return {name for name in marked if seeks_in_vain(_of(pods, name), connection.now())}


def _of(pods: Sequence[Object], name: str) -> List[Object]:
    return [pod for pod in pods if (pod.get("spec") or {}).get("nodeName") == name]


def seeks_in_vain(pods: Sequence[Mapping[str, Any]], now: float) -> bool:
    """Whether a pod of a node has looked for a driver for so long that there is none."""
    for pod in pods:
        for entry in (pod.get("status") or {}).get("initContainerStatuses") or []:
            since = ((entry.get("state") or {}).get("running") or {}).get("startedAt")
            if entry.get("name") == LOOKING and since and now - _seconds(str(since), now) >= SOUGHT:
                return True
    return False


def _seconds(text: str, otherwise: float) -> float:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return otherwise
