# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import ApiError, KubeError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._nodes_patch import TRIES, patch_node
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, connect, failure

OTHERS = {"key": "theirs", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def node(version: str = "1", taints: Any = (), **labels: str) -> dict[str, Any]:
    meta = {"name": "gpu-1", "resourceVersion": version, "labels": labels}
    return {"metadata": meta, "spec": {"taints": list(taints)} if taints else {}}


def tainted(node: Any) -> dict[str, Any]:
    """A patch of a list, which names the version that it was made from."""
    version = node["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "spec": {"taints": [*node["spec"].get("taints", []), GPU]}}


def test_nothing_is_sent_for_a_node_that_is_as_wanted() -> None:
    there = node(taints=[OTHERS, GPU], a="1")
    connection, transport, _pauses = connect(FakeReply())
    assert patch_node(connection, there, lambda _node: {}) is None
    assert transport.sent == []


def test_a_conflict_is_computed_anew_on_the_present_node() -> None:
    conflict = FakeReply(409, failure(409, "Conflict"))
    connection, transport, _pauses = connect(conflict, FakeReply(200, node("2", [OTHERS])), FakeReply(200, node("3")))
    patch_node(connection, node("1"), tainted)
    first, _get, second = transport.sent
    assert first.body["metadata"]["resourceVersion"] == "1"
    assert second.body == {"metadata": {"resourceVersion": "2"}, "spec": {"taints": [OTHERS, GPU]}}


def test_a_node_that_never_rests_ends_with_its_name() -> None:
    def answer(request: Any) -> FakeReply:
        return FakeReply(200, node("2")) if request.method == "GET" else FakeReply(409, failure(409, "Conflict"))

    connection, transport, _pauses = connect(answer)
    with pytest.raises(KubeError, match="Node gpu-1"):
        patch_node(connection, node("1"), tainted)
    assert sum(sent.method == "PATCH" for sent in transport.sent) == TRIES


def test_other_refusals_are_passed_on() -> None:
    connection, _transport, _pauses = connect(FakeReply(403, failure(403, "Forbidden")))
    with pytest.raises(ApiError):
        patch_node(connection, node("1"), tainted)
