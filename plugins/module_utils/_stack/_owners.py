# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who set the GPU labels and taints of nodes, and when: the API server writes it down for every field (P130)."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Sequence

from .._kube._connection import Connection
from .._kube._lists import list_objects
from .._kube._resources import Object

GPU_KEYS = ("nvidia.com/", "gpufleet.io/")
TAINTS = "taints"


def read_owners(connection: Connection) -> List[Dict[str, str]]:
    """Rows of all nodes. Metadata is enough: it holds the owners of every field."""
    return owners(list_objects(connection, "Node", metadata_only=True).items)


def owners(nodes: Sequence[Object]) -> List[Dict[str, str]]:
    """One row for each label and annotation of GPUs and for the taints of a node, by node and key.

    Taints are one list, of which the server knows one owner at a time.
    """
    rows = [row for node in nodes for row in _of_node(node)]
    return sorted(rows, key=lambda row: (row["node"], row["kind"], row["key"], row["manager"]))


def _of_node(node: Mapping[str, Any]) -> Iterable[Dict[str, str]]:
    meta = node["metadata"]
    for entry in meta.get("managedFields") or []:
        who = {
            "node": str(meta["name"]),
            "manager": str(entry.get("manager") or ""),
            "operation": str(entry.get("operation") or ""),
            "time": str(entry.get("time") or ""),
        }
        fields = entry.get("fieldsV1") or {}
        for kind, name in (("label", "f:labels"), ("annotation", "f:annotations")):
            for field in (fields.get("f:metadata") or {}).get(name) or {}:
                key = field[2:]
                if field.startswith("f:") and key.startswith(GPU_KEYS):
                    yield {**who, "kind": kind, "key": key}
        if "f:taints" in (fields.get("f:spec") or {}):
            yield {**who, "kind": TAINTS, "key": ""}
