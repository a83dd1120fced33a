# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""State and conditions of a stack, and of the operator's own objects."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._conditions import (
    broken_off,
    summary,
    waiting_operands,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._policies import judge


def row(name: str = "a", ready: bool = True, trouble: str = "", stage: str = "ready") -> dict[str, Any]:
    return {"name": name, "ready": ready, "trouble": trouble, "stage": stage}


def told(status: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """State; status and reason of Ready; reason of Error; the message of the one that is true."""
    ready, error = status["conditions"]
    assert (ready["type"], error["type"]) == ("Ready", "Error")
    assert {ready["status"], error["status"]} == {"True", "False"}
    true = ready if ready["status"] == "True" else error
    return status["state"], ready["status"], ready["reason"], error["reason"], true["message"]


@pytest.mark.rows("STA-01")
@pytest.mark.parametrize(
    ("nodes", "waiting", "features", "wanted"),
    [
        ([row()], [], True, ("ready", "True", "Reconciled", "Ready")),
        ([], [], False, ("ready", "True", "NFDLabelsMissing", "Ready")),
        ([], [], True, ("ready", "True", "NoGPUNodes", "Ready")),
        ([row()], ["driver"], True, ("notReady", "False", "Error", "OperandNotReady")),
        ([row(), row("b", False, "driver failed: no", "labelled")], [], True,
         ("notReady", "False", "Error", "OperandNotReady")),
        ([row(), row("b", False, "", "operands off")], [], True, ("ready", "True", "Reconciled", "Ready")),
    ],
)  # fmt: skip
def test_each_outcome_has_its_reason(
    nodes: list[dict[str, Any]], waiting: list[str], features: bool, wanted: tuple[str, ...]
) -> None:
    assert told(summary(nodes, waiting, features))[:4] == wanted


@pytest.mark.rows("STA-01", "L24")
def test_the_message_names_operands_and_the_first_nodes_with_their_causes() -> None:
    nodes = [row(f"n{i}", False, f"driver failed: {i}", "labelled") for i in range(7)]
    message = told(summary(nodes, ["driver", "toolkit"], True))[4]
    assert message.startswith("not ready: driver, toolkit; node n0: driver failed: 0; ")
    assert message.endswith("; and nodes n5 and n6")


@pytest.mark.rows("STA-01")
def test_a_run_that_an_error_ended_says_so() -> None:
    assert told(broken_off("no route")) == ("notReady", "False", "Error", "ReconcileFailed", "no route")


@pytest.mark.rows("STA-01")
def test_operands_that_are_not_ready_are_known_by_their_daemonsets() -> None:
    def made(app: str, desired: int, up: int) -> dict[str, Any]:
        return {
            "kind": "DaemonSet",
            "metadata": {"name": app, "generation": 1},
            "spec": {"template": {"metadata": {"labels": {"app": app}}, "spec": {}}},
            "status": {
                "observedGeneration": 1,
                "desiredNumberScheduled": desired,
                "updatedNumberScheduled": up,
                "numberAvailable": up,
                "numberReady": up,
            },
        }

    items = [made("nvidia-dcgm", 2, 2), made("gpu-feature-discovery", 2, 1), made("somebody", 2, 0)]
    assert waiting_operands(items) == ["GPU feature discovery (1 of 2 nodes ready)"]


# --- objects of the operator ------------------------------------------------------------------------------------------


def policy(name: str, made: str, **more: Any) -> dict[str, Any]:
    return {"kind": "ClusterPolicy", "metadata": {"name": name, "creationTimestamp": made}, **more}


def driver(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "NVIDIADriver", "metadata": {"name": name}, "spec": spec}


def counts(*items: dict[str, Any], nodes: tuple[dict[str, Any], ...] = ()) -> tuple[dict[str, str], list[str]]:
    found = judge(items, nodes)
    return {one["name"]: one["counts"] for one in found.rows}, [f.id for f in found.findings]


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
CLUSTER = {"kind": "GPUCluster", "metadata": {"name": "gpu-cluster"}}
GPU = {"feature.node.kubernetes.io/pci-10de.present": "true"}


@pytest.mark.rows("STA-03")
def test_of_several_policies_the_oldest_counts_and_the_others_are_told_to_be_ignored() -> None:
    assert counts(policy("b", LATE), policy("a", EARLY)) == ({"a": "active", "b": "ignored"}, ["policies.several"])
    assert counts(policy("b", EARLY), policy("a", EARLY))[0] == {"a": "active", "b": "ignored"}
    assert counts(policy("a", EARLY)) == ({"a": "active"}, [])
    (finding,) = judge([policy("b", LATE), policy("a", EARLY)]).findings
    assert "the oldest counts, a; ignored: b" in finding.detail


@pytest.mark.rows("STA-03")
def test_a_cluster_policy_beside_a_gpu_cluster_is_a_conflict() -> None:
    found = {"a": "conflict", "gpu-cluster": "conflict"}
    assert counts(policy("a", EARLY), CLUSTER) == (found, ["policies.conflict"])
    assert counts(CLUSTER) == ({"gpu-cluster": "active"}, [])


@pytest.mark.rows("STA-02")
def test_drivers_count_where_they_are_used_and_two_that_choose_a_node_are_a_conflict() -> None:
    nodes = ({"metadata": {"name": "n", "labels": {**GPU, "pool": "a", "zone": "b"}}},)
    one, two = driver("one", nodeSelector={"pool": "a"}), driver("two", nodeSelector={"zone": "b"})
    assert counts(one, two, nodes=nodes) == ({"one": "conflict", "two": "conflict"}, ["policies.drivers"])
    assert counts(one, driver("two", nodeSelector={"zone": "c"}), nodes=nodes)[1] == []
    assert counts(one, driver("d", default=True), nodes=nodes) == ({"one": "active", "d": "active"}, [])
    assert counts(driver("d", default=True), driver("e", default=True))[1] == ["policies.drivers"]
    assert counts(policy("a", EARLY), one, two, nodes=nodes) == (
        {"a": "active", "one": "disabled", "two": "disabled"}, [],
    )  # fmt: skip
    uses = policy("a", EARLY, spec={"driver": {"useNvidiaDriverCRD": True}})
    assert counts(uses, one, two, nodes=nodes)[1] == ["policies.drivers"]


@pytest.mark.rows("STA-01", "STA-02")
def test_an_objects_own_state_and_the_reason_of_the_true_condition_are_told() -> None:
    conditions = [
        {"type": "Ready", "status": "False", "reason": "Error"},
        {"type": "Error", "status": "True", "reason": "OperandNotReady", "message": "state-driver"},
    ]
    status = {"state": "notReady", "conditions": conditions}
    (one,) = judge([policy("a", EARLY, status=status)]).rows
    assert (one["state"], one["reason"], one["message"]) == ("notReady", "OperandNotReady", "state-driver")
    (other,) = judge([driver("d")]).rows
    assert (other["state"], other["reason"], other["counts"]) == ("", "", "active")


@pytest.mark.rows("STA-03")
@pytest.mark.parametrize("spec", [None, {}, {"driver": None}, {"driver": "x"}, {"driver": {}}])
def test_a_policy_without_a_driver_block_uses_no_nvidia_drivers(spec: Any) -> None:
    assert counts(policy("a", EARLY, spec=spec), driver("d")) == ({"a": "active", "d": "disabled"}, [])
