# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists in pages, whole or of metadata only."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional

from ._connection import JSON, ApiError, Connection, Deadline
from ._resources import Object, path, resource

OLDER_TRIES = 3  # an API server that lags behind another catches up soon; one that was restored never does
PAGE = 500  # objects in one answer, so that no answer of a large cluster is huge
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Listing(NamedTuple):
    """The objects, the resource version that a watch can go on from, and whether the server serves the kind at all."""

    items: List[Object]
    resource_version: str
    served: bool


def list_objects(
    connection: Connection,
    kind: str,
    namespace: Optional[str] = None,
    *,
    label_selector: str = "",
    field_selector: str = "",
    metadata_only: bool = False,
    optional: bool = False,
    keep: Optional[Callable[[Object], Object]] = None,
    deadline: Optional[Deadline] = None,
) -> Listing:
    """All objects of a kind, in one namespace or in all, with ``kind`` and ``apiVersion`` set in each.

    ``optional``: a kind that the server does not serve (no CRD) gives an empty listing with ``served`` false, not an
    error. ``keep`` makes each object smaller as its page comes in. A list that grew too old between pages is read
    anew, and so is one that is older than what this connection has seen.
    """
    where = path(kind, namespace)
    query: Dict[str, Any] = {"limit": PAGE}
    query.update({k: v for k, v in (("labelSelector", label_selector), ("fieldSelector", field_selector)) if v})
    accept = f"{METADATA},{JSON}" if metadata_only else JSON
    identity = {"kind": kind, "apiVersion": resource(kind).api_version}
    items: List[Object] = []
    older = 0
    while True:
        try:
            page = connection.get(where, query, accept=accept, deadline=deadline)
        except ApiError as error:
            if error.status == 410 and "continue" in query:
                del query["continue"]
                items = []
                continue
            if optional and error.unknown_kind:
                return Listing([], "", False)
            raise
        meta = page.get("metadata") or {}
        version = str(meta.get("resourceVersion") or "")
        if "continue" not in query and connection.is_older(kind, version, older == OLDER_TRIES):
            older += 1
            connection.pause(older, deadline)
            continue
        for item in page.get("items") or []:
            item.update(identity)
            items.append(keep(item) if keep else item)
        if not meta.get("continue"):
            return Listing(items, version, True)
        query["continue"] = meta["continue"]
