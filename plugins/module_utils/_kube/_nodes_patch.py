# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Patches of nodes, computed anew where somebody else was faster.

Nodes belong to others. A label or annotation is one key of a map, so a merge patch touches nothing else. Taints are a
list that is replaced as a whole: the patch names the version of the node that it was computed from, and is computed
anew when somebody else changed the node meanwhile.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional

from ._connection import JSON, MERGE_PATCH, ApiError, Connection, Deadline, KubeError
from ._resources import MANAGER, Object, Ref

TRIES = 8
# What is answered is not the node with its images, which is most of what it weighs.
METADATA = f"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"


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
