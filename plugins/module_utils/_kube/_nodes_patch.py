# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smallest patch for labels, annotations and taints of a node, and only where something differs.

Nodes belong to others. A label or annotation is one key of a map, so a merge patch touches nothing else. Taints are a
list that is replaced as a whole: the patch names the version of the node that it was computed from, and is computed
anew when somebody else changed the node meanwhile.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ._connection import JSON, MERGE_PATCH, ApiError, Connection, Deadline, KubeError
from ._resources import MANAGER, Object, Ref

TRIES = 8
# What is answered is not the node with its images, which is most of what it weighs.
METADATA = f"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"


def node_patch(
    node: Mapping[str, Any],
    labels: Optional[Mapping[str, Optional[str]]] = None,
    annotations: Optional[Mapping[str, Optional[str]]] = None,
    taints: Optional[Sequence[Mapping[str, str]]] = None,
    absent_taints: Sequence[Mapping[str, str]] = (),
) -> Dict[str, Any]:
    """The merge patch that is needed, {} when nothing differs.

    A value of None removes a label or annotation. ``taints`` (``{key, value, effect}``) are set, ``absent_taints``
    (``{key}`` or ``{key, effect}``) removed; a taint is known by its key and effect, and all others stay.
    """
    meta: Dict[str, Any] = {}
    for name, wanted in (("labels", labels), ("annotations", annotations)):
        present = node["metadata"].get(name) or {}
        changed = {k: v for k, v in (wanted or {}).items() if present.get(k) != v}
        if changed:
            meta[name] = changed
    patch: Dict[str, Any] = {"metadata": meta} if meta else {}
    before = node.get("spec", {}).get("taints") or []
    after = _tainted(before, taints or (), absent_taints)
    if after != before:
        patch["spec"] = {"taints": after or None}
        patch.setdefault("metadata", {})["resourceVersion"] = node["metadata"]["resourceVersion"]
    return patch


def patch_node(
    connection: Connection,
    node: Mapping[str, Any],
    compute: Callable[[Mapping[str, Any]], Dict[str, Any]],
    deadline: Optional[Deadline] = None,
) -> Optional[Object]:
    """Send what ``compute(node)`` says, computed anew after a conflict; the node's metadata as it is then.

    None when there was nothing to send.

    Raises ``ApiError``, or ``KubeError`` when the node changes faster than it can be patched.
    """
    which = Ref("Node", "", str(node["metadata"]["name"]))
    for tries in range(1, TRIES + 1):
        patch = compute(node)
        if not patch:
            return None
        try:
            # The same patch twice is the same as once: with a resource version, the second is a conflict that is
            # computed anew.
            answer = connection.request(
                "PATCH",
                which.path,
                query={"fieldManager": MANAGER},
                body=patch,
                content_type=MERGE_PATCH,
                accept=METADATA,
                deadline=deadline,
                idempotent=True,
            )
            return answer.body
        except ApiError as error:
            if error.status != 409:
                raise
            connection.pause(tries, deadline)
        node = connection.get(which.path, deadline=deadline)
    raise KubeError(f"{which} is changed by others all the time and could not be patched")


def _tainted(
    before: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, str]], absent: Sequence[Mapping[str, str]]
) -> List[Dict[str, Any]]:
    wished = {(t["key"], t["effect"]): {k: v for k, v in t.items() if v not in ("", None)} for t in wanted}
    after: List[Dict[str, Any]] = []
    for taint in before:
        identity = (taint["key"], taint["effect"])
        if identity in wished:
            new = wished.pop(identity)
            same = taint.get("value", "") == new.get("value", "")
            after.append(dict(taint) if same else dict(new))
        elif not any(t["key"] == taint["key"] and t.get("effect") in (None, "", taint["effect"]) for t in absent):
            after.append(dict(taint))
    return after + [dict(t) for t in wished.values()]
