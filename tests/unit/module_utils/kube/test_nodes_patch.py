# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import ApiError, KubeError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._nodes_patch import TRIES, node_patch, patch_node
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import PATIENT, FakeReply, connect, failure

OTHERS = {"key": "theirs", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def node(version: str = "1", taints: Any = (), **labels: str) -> dict[str, Any]:
    meta = {"name": "gpu-1", "resourceVersion": version, "labels": labels}
    return {"metadata": meta, "spec": {"taints": list(taints)} if taints else {}}


def test_nothing_is_sent_for_a_node_that_is_as_wanted() -> None:
    there = node(taints=[OTHERS, GPU], a="1")
    assert node_patch(there, {"a": "1", "gone": None}, taints=[GPU], absent_taints=[{"key": "no"}]) == {}
    connection, transport, _pauses = connect(FakeReply())
    assert patch_node(connection, there, lambda _node: {}) is None
    assert transport.sent == []


def test_only_labels_and_annotations_that_differ_are_sent() -> None:
    patch = node_patch(node(a="1", b="2"), {"a": "1", "b": None, "c": "3"}, {"note": "x"})
    assert patch == {"metadata": {"labels": {"b": None, "c": "3"}, "annotations": {"note": "x"}}}


def test_taints_of_others_stay_and_the_version_of_the_node_is_named() -> None:
    patch = node_patch(node("9", [OTHERS]), taints=[GPU])
    assert patch == {"spec": {"taints": [OTHERS, GPU]}, "metadata": {"resourceVersion": "9"}}
    assert node_patch(node("9", [GPU]), absent_taints=[{"key": GPU["key"]}])["spec"] == {"taints": None}


@PATIENT
@given(
    st.lists(st.sampled_from("abc"), unique=True), st.lists(st.sampled_from("abcd"), unique=True), st.sampled_from("vw")
)
def test_a_patched_node_needs_no_patch(present: list[str], wanted: list[str], value: str) -> None:
    before = [{"key": key, "effect": "NoSchedule", "value": "v"} for key in present]
    wish = [{"key": key, "effect": "NoSchedule", "value": value} for key in wanted]
    patch = node_patch(node(taints=before), taints=wish)
    after = patch["spec"]["taints"] if patch else before
    assert node_patch(node(taints=after or []), taints=wish) == {}
    assert {t["key"] for t in after or []} == {*present, *wanted}


def test_a_conflict_is_computed_anew_on_the_present_node() -> None:
    conflict = FakeReply(409, failure(409, "Conflict"))
    connection, transport, _pauses = connect(conflict, FakeReply(200, node("2", [OTHERS])), FakeReply(200, node("3")))
    patch_node(connection, node("1"), lambda n: node_patch(n, taints=[GPU]))
    first, _get, second = transport.sent
    assert first.body["metadata"]["resourceVersion"] == "1"
    assert second.body == {"metadata": {"resourceVersion": "2"}, "spec": {"taints": [OTHERS, GPU]}}


def test_a_node_that_never_rests_ends_with_its_name() -> None:
    def answer(request: Any) -> FakeReply:
        return FakeReply(200, node("2")) if request.method == "GET" else FakeReply(409, failure(409, "Conflict"))

    connection, transport, _pauses = connect(answer)
    with pytest.raises(KubeError, match="Node gpu-1"):
        patch_node(connection, node("1"), lambda n: node_patch(n, taints=[GPU]))
    assert sum(sent.method == "PATCH" for sent in transport.sent) == TRIES


def test_other_refusals_are_passed_on() -> None:
    connection, _transport, _pauses = connect(FakeReply(403, failure(403, "Forbidden")))
    with pytest.raises(ApiError):
        patch_node(connection, node("1"), lambda n: node_patch(n, {"x": "y"}))
