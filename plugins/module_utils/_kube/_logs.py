# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last words of containers that failed, where their pods' statuses do not have them.

Pods of this collection keep them in the status (``FallbackToLogsOnError``); those of others, and those that NVIDIA's
validator makes, do not.
"""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Mapping, Sequence

from ._connection import Connection, Dropped, KubeError
from ._resources import Object, path
from ._wait import pod_ready

MOST = 20  # containers whose log is read in one run: a cause that many nodes share is told by few of them
SECONDS = 5.0


def with_last_words(connection: Connection, pods: Sequence[Object]) -> List[Object]:
    """The same pods; a container that ended with an error and left no message has the last lines of its log as one.

    A log that cannot be read (no right to, a kubelet that does not answer) is left out: the rest is worth having.
    """
    left, found = MOST, []
    for pod in pods:
        silent = [] if pod_ready(pod) else _silent(pod)[:left]
        left -= len(silent)
        found.append(_told(connection, pod, silent) if silent else pod)
    return found


def _entries(pod: Mapping[str, Any]) -> List[Dict[str, Any]]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _ended(entry: Mapping[str, Any]) -> Dict[str, Any]:
    """How a container ended last; {} when it did not."""
    for state in (entry.get("lastState") or {}, entry.get("state") or {}):
        if state.get("terminated"):
            ended: Dict[str, Any] = state["terminated"]
            return ended
    return {}


def _silent(pod: Mapping[str, Any]) -> List[str]:
    failed = [(str(entry["name"]), _ended(entry)) for entry in _entries(pod) if not entry.get("ready")]
    return [name for name, ended in failed if ended.get("exitCode") and not ended.get("message")]


def _told(connection: Connection, pod: Object, silent: Sequence[str]) -> Object:
    made: Object = copy.deepcopy(pod)
    for entry in _entries(made):
        if entry["name"] in silent:
            previous = bool((entry.get("lastState") or {}).get("terminated"))
            _ended(entry)["message"] = _log(connection, made, str(entry["name"]), previous)
    return made


def _log(connection: Connection, pod: Object, container: str, previous: bool) -> str:
    meta = pod["metadata"]
    where = path("Pod", meta["namespace"], meta["name"]) + "/log"
    query = {"container": container, "tailLines": 10, "limitBytes": 4096, "previous": str(previous).lower()}
    try:
        text = connection.stream(where, query, timeout=SECONDS).read().decode("utf-8", "replace")
    except (KubeError, Dropped):
        return ""
    return text.strip()
