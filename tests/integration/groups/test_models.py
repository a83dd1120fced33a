# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes with GPUs of two models, of which feature discovery labels one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.fleets import Fleet
from ansible_collections.gpufleet.nvidia.tests.testbed import audit
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import USERS

GPU = "nvidia.com/gpu"
MIXED = {"gpu-mixed": {"A10": 1, "Tesla T4": 2}, "gpu-mixed-mig": {"A100 SXM4 80GB": 2, "L4": 1}}
MODELS = {**MIXED, "gpu-plain": {"Tesla T4": 2}}
OFFERS = {"gpu-mixed": {GPU: 3}, "gpu-mixed-mig": {GPU: 3}, "gpu-plain": {GPU: 2}}


RULE = {
    "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
    "kind": "NodeFeatureRule",
    "metadata": {"name": "gpu-models"},
    "spec": {
        "rules": [
            {
                "name": "t4",
                "labels": {"gpu-t4": "true"},
                "matchFeatures": [
                    {
                        "feature": "pci.device",
                        "matchExpressions": {
                            "vendor": {"op": "In", "value": ["10de"]},
                            "device": {"op": "In", "value": ["1eb8"]},
                        },
                    }
                ],
            }
        ]
    },
}


def told(result: dict[str, Any]) -> dict[str, str]:
    return {
        f["target"].removeprefix("node "): f["detail"] for f in result["findings"] if f["id"] == "nodes.mixed-models"
    }


def by_name(rows: list[dict[str, Any]], key: str) -> dict[str, Any]:
    return {row["name"]: row[key] for row in rows}


def lists(fleet: Fleet, since: int) -> int:
    """How often the admin has listed what NFD found."""
    made = audit.requests(fleet.practice.cluster.audit_log, USERS["admin"], since)
    return sum(1 for one in made if (one.verb, one.resource) == ("list", "nodefeatures"))


@pytest.mark.rows("P111")
def test_nodes_with_two_models_come_up_and_are_told_by_every_module_that_looks(
    fleets: Callable[[str], Fleet],
) -> None:
    fleet = fleets("models")
    first = fleet.stack({"mig": {"strategy": "mixed"}})
    assert not first["failed"], first["msg"]
    assert set(told(first)) == set(MIXED)
    assert "(1 A10, 2 Tesla T4)" in told(first)["gpu-mixed"] or "(2 Tesla T4, 1 A10)" in told(first)["gpu-mixed"]
    assert by_name(first["found"]["nodes"], "models") == MODELS
    assert by_name(first["found"]["nodes"], "allocatable") == OFFERS

    # A run that changes nothing looks once, since the labels tell of fewer GPUs than there are; in check mode too.
    for check in (False, True):
        offset = fleet.offset()
        again = fleet.stack({"mig": {"strategy": "mixed"}}, check=check)
        assert (again["failed"], again["changed"], lists(fleet, offset)) == (False, False, 1), again
        assert set(told(again)) == set(MIXED)
        assert by_name(again["found"]["offers"], "resources") == OFFERS
        assert by_name(again["found"]["nodes"], "models") == MODELS

    seen = fleet.run("gpu_cluster_info")
    assert set(told(seen)) == set(MIXED)
    assert by_name(seen["found"]["nodes"], "models") == MODELS
    assert by_name(seen["found"]["nodes"], "gpus") == {"gpu-mixed": 3, "gpu-mixed-mig": 3, "gpu-plain": 2}
    assert all(by_name(seen["found"]["nodes"], "ready").values())
    assert set(told(fleet.run("cluster_preflight", policy={}))) == set(MIXED)

    # What MIG makes of two models is not guessed; the node comes up with it all the same.
    groups = [{"name": "slices", "selector": "kubernetes.io/hostname=gpu-mixed-mig", "mig": "all-1g.10gb"}]
    sliced = fleet.stack({"mig": {"strategy": "mixed"}}, node_groups=groups)
    assert not sliced["failed"], sliced["msg"]
    assert by_name(sliced["found"]["offers"], "known") == {"gpu-mixed": True, "gpu-mixed-mig": False, "gpu-plain": True}
    assert "several models (2 A100 SXM4 80GB, 1 L4)" in by_name(sliced["found"]["offers"], "detail")["gpu-mixed-mig"]
    # Since nothing was computed for the node, the run has not waited for its slices either.
    end, wanted = time.monotonic() + 60, {GPU: 1, "nvidia.com/mig-1g.10gb": 14}
    while by_name(fleet.run("gpu_cluster_info")["found"]["nodes"], "allocatable")["gpu-mixed-mig"] != wanted:
        assert time.monotonic() < end
        time.sleep(0.2)
    again = fleet.stack({"mig": {"strategy": "mixed"}}, node_groups=groups)
    assert (again["failed"], again["changed"]) == (False, False), again


@pytest.mark.rows("P111")
def test_nodes_are_labelled_by_the_ids_of_their_gpus_with_a_rule_of_the_policy(fleets: Callable[[str], Fleet]) -> None:
    fleet = fleets("models")
    done = fleet.stack({"mig": {"strategy": "mixed"}, "extraObjects": [RULE]})
    assert not done["failed"], done["msg"]
    end, wanted = time.monotonic() + 30, {"gpu-mixed", "gpu-plain"}
    while {
        node["metadata"]["name"]
        for node in fleet.get("Node")
        if node["metadata"]["labels"].get("feature.node.kubernetes.io/gpu-t4") == "true"
    } != wanted:
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.rows("P111", "S45")
def test_where_nodes_have_one_model_a_run_that_changes_nothing_does_not_look(facts: Fleet) -> None:
    assert not facts.stack({})["failed"]
    offset = facts.offset()
    again = facts.stack({})
    assert (again["changed"], told(again), lists(facts, offset)) == (False, {}, 0)
