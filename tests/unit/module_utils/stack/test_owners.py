# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who set labels and taints of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._owners import owners


def entry(manager: str, **fields: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}


@pytest.mark.rows("P130")
def test_gpu_labels_annotations_and_taints_have_owners_and_others_are_left_out() -> None:
    metadata = {
        "f:labels": {".": {}, "f:nvidia.com/gpu.present": {}, "f:kubernetes.io/os": {}},
        "f:annotations": {"f:gpufleet.io/managed-labels": {}, "f:node.alpha.kubernetes.io/ttl": {}},
    }
    fields = [
        entry("gpufleet", **{"f:metadata": metadata}),
        entry("kubeadm", **{"f:spec": {"f:taints": {}, "f:podCIDR": {}}}),
        entry("kubelet", **{"f:status": {}}),
        {"manager": "old"},
    ]
    nodes = [{"metadata": {"name": "b", "managedFields": fields}}, {"metadata": {"name": "a"}}]
    found = [(row["node"], row["kind"], row["key"], row["manager"]) for row in owners(nodes)]
    assert found == [
        ("b", "annotation", "gpufleet.io/managed-labels", "gpufleet"),
        ("b", "label", "nvidia.com/gpu.present", "gpufleet"),
        ("b", "taints", "", "kubeadm"),
    ]
    assert {row["time"] for row in owners(nodes)} == {"2026-01-01T00:00:00Z"}
