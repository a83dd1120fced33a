# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a node has come, what failed first, and what it should offer."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._labels import plan_labels
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._stage import (
    OPERAND_APPS,
    driver_version,
    expected,
    gaps_of,
    mig_text,
    offers,
    row,
    rows,
    stage,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import build
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import NodeFacts
from ansible_collections.gpufleet.nvidia.tests.helpers import operands

SEEN = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/kernel-version.full": "6.8.0-60-generic",
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
}
GFD = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/cuda.driver-version.full": "595.91.07",
}
POLICY = operands.policy_of()
DAEMONSETS = [made for made in build(POLICY, operands.cluster()) if made["kind"] == "DaemonSet"]
# MPS runs only where GPU feature discovery says so; the node status exporter is off by default.
RUNNING = [(app, title) for app, title in OPERAND_APPS if title not in ("MPS", "node status exporter")]


def node(labels: dict[str, str], allocatable: dict[str, str] | None = None, ready: str = "True") -> dict[str, Any]:
    planned, _notes = plan_labels(POLICY, NodeFacts("n", labels)).applied(NodeFacts("n", labels))
    status = {
        "allocatable": {"cpu": "8", **(allocatable or {})},
        "conditions": [{"type": "Ready", "status": ready}],
        "nodeInfo": {"containerRuntimeVersion": "containerd://2.1.0", "osImage": "Ubuntu", "kernelVersion": "6.8.0"},
    }
    return {"metadata": {"name": "n", "labels": planned}, "status": status}


def pod(app: str, ready: bool = True, on: str = "n", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{app}-x", "namespace": "gpu-operator", "labels": {"app": app}},
        "spec": {"nodeName": on},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}], **status},
    }


def up_to(title: str) -> list[dict[str, Any]]:
    """Ready pods of all operands before one."""
    titles = [name for _app, name in RUNNING]
    return [pod(app) for app, _title in RUNNING[: titles.index(title)]]


@pytest.mark.rows("S01", "S54")
@pytest.mark.parametrize(
    ("labels", "reached", "stuck"),
    [
        ({}, "no NFD labels", "NFD"),
        ({"feature.node.kubernetes.io/kernel-version.full": "6.8"}, "no GPU", ""),
        ({**SEEN, "nvidia.com/gpu.deploy.operands": "false"}, "operands off", "operands"),
        (SEEN, "labelled", "driver"),
    ],
)
def test_stages_before_any_operand(labels: dict[str, str], reached: str, stuck: str) -> None:
    at = stage(node(labels), [], DAEMONSETS)
    assert (at.reached, at.stuck, at.ready) == (reached, stuck, False)
    assert bool(at.trouble) is bool(stuck)


@pytest.mark.rows("S01")
def test_a_node_that_is_down_or_not_labelled_yet_is_named_first() -> None:
    down = stage(node(SEEN, ready="False"), up_to("validator"), DAEMONSETS)
    assert (down.reached, down.stuck, down.failed) == ("GPU seen", "node", True)
    bare = {"metadata": {"name": "n", "labels": SEEN}, "status": {}}
    assert (stage(bare).reached, stage(bare).stuck) == ("GPU seen", "labels")


@pytest.mark.rows("S01", "S28")
@pytest.mark.parametrize(("app", "title"), RUNNING)
def test_the_first_operand_that_is_broken_is_named_with_container_and_cause(app: str, title: str) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    broken = pod(app, False, containerStatuses=[{"name": "main", "image": "i:1", "state": {"waiting": waiting}}])
    before = up_to(title)
    later = [pod(name, False) for name, _title in RUNNING if pod(name) not in before and name != app]
    elsewhere = pod(app, on="other")
    one = node({**SEEN, **GFD}, {"nvidia.com/gpu": "8"})
    at = stage(one, [*later, elsewhere, broken, *before], DAEMONSETS)
    assert (at.stuck, at.failed) == (title, True)
    assert at.reached == (RUNNING[len(before) - 1][1] if before else "labelled")
    assert at.sentence.startswith(f"{title} failed: image i:1 cannot be pulled (main: not found)")
    assert "Correct repository, image or version in the policy" in at.sentence
    assert title in at.missing


@pytest.mark.rows("S01")
def test_an_operand_that_takes_its_time_is_not_broken() -> None:
    building = pod(
        "nvidia-driver-daemonset",
        False,
        initContainerStatuses=[{"name": "k8s-driver-manager", "state": {"running": {}}}],
    )
    at = stage(node(SEEN), [building], DAEMONSETS)
    assert (at.stuck, at.failed) == ("driver", False)
    assert "in k8s-driver-manager" in at.trouble
    absent = stage(node(SEEN), [], DAEMONSETS)
    assert (absent.trouble, absent.failed) == ("its pod is not there yet", False)


@pytest.mark.rows("S01", "DM-02")
def test_a_paused_operand_says_who_paused_it() -> None:
    labels = {**SEEN, **GFD, "nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change"}
    at = stage(node(labels), up_to("device plugin"), DAEMONSETS)
    assert at.stuck == "device plugin"
    assert "paused by nvidia.com/gpu.deploy.device-plugin=paused-for-mig-change" in at.trouble


@pytest.mark.rows("S09", "S10")
def test_an_operand_that_the_node_does_not_want_is_not_waited_for() -> None:
    labels = {
        **SEEN,
        **GFD,
        "nvidia.com/gpu.deploy.driver": "pre-installed",
        "nvidia.com/gpu.deploy.dcgm-exporter": "false",
    }
    pods = [pod(app) for app, title in RUNNING if title not in ("driver", "DCGM exporter")]
    assert stage(node(labels, {"nvidia.com/gpu": "8"}), pods, DAEMONSETS).ready


ALL = [pod(app) for app, _title in RUNNING]


@pytest.mark.rows("S01", "S39")
def test_a_node_is_ready_only_when_it_offers_what_its_hardware_has() -> None:
    whole = stage(node({**SEEN, **GFD}, {"nvidia.com/gpu": "8"}), ALL, DAEMONSETS)
    assert (whole.reached, whole.ready, whole.trouble) == ("ready", True, "")
    less = stage(node({**SEEN, **GFD}, {"nvidia.com/gpu": "7"}), ALL, DAEMONSETS)
    assert (less.reached, less.stuck, less.failed) == ("validator", "allocatable", True)
    assert less.trouble == "offers 7 nvidia.com/gpu, its hardware has 8"
    none = stage(node(SEEN, {}), ALL, DAEMONSETS)
    assert (none.reached, none.stuck, none.failed) == ("toolkit", "device plugin", True)
    assert none.trouble == "its pod runs, and the node offers no GPU"


def test_a_thousand_shared_gpus_are_1k_to_the_api_server() -> None:
    many = {**SEEN, **GFD, "nvidia.com/gpu.replicas": "125", "nvidia.com/gpu.product": "H100-SHARED"}
    one = node(many, {"nvidia.com/gpu": "1k"})
    one["status"]["capacity"] = {"nvidia.com/gpu": "1k"}
    assert stage(one, ALL, DAEMONSETS).ready
    assert offers(one) == {"nvidia.com/gpu": 1000}


@pytest.mark.rows("P100", "P101", "S39")
def test_a_gpu_that_fell_ill_is_missed_even_when_feature_discovery_no_longer_counts_it() -> None:
    seven = {**SEEN, **GFD, "nvidia.com/gpu.count": "7"}
    one = node(seven, {"nvidia.com/gpu": "7"})
    assert stage(one, ALL, DAEMONSETS).ready
    one["status"]["capacity"] = {"nvidia.com/gpu": "8"}
    assert stage(one, ALL, DAEMONSETS).trouble == "offers 7 nvidia.com/gpu, its hardware has 8"


@pytest.mark.rows("P129", "S26")
@pytest.mark.parametrize(
    ("taint", "kept"),
    [
        ({"key": "dedicated", "value": "batch", "effect": "NoExecute"}, True),
        ({"key": "dedicated", "value": "batch", "effect": "PreferNoSchedule"}, False),
        ({"key": "nvidia.com/gpu", "effect": "NoSchedule"}, False),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, False),
    ],
)
def test_a_taint_that_keeps_the_first_operand_away_is_named(taint: dict[str, str], kept: bool) -> None:
    one = {**node(SEEN), "spec": {"taints": [taint]}}
    at = stage(one, [], DAEMONSETS)
    assert at.failed is kept
    assert ("dedicated=batch:NoExecute" in at.trouble) is kept


@pytest.mark.rows("S28", "VAL-06", "VAL-07")
def test_what_is_wrong_with_a_workload_of_the_validator_is_what_is_wrong_with_the_node() -> None:
    text = "[Vector addition] (error code system not yet initialized)!"
    ended = {"terminated": {"exitCode": 1, "message": text}}
    broken = {"name": "cuda-validation", "restartCount": 2, "lastState": ended}
    broken["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    workload = pod("nvidia-cuda-validator", False, initContainerStatuses=[broken])
    waits = [{"name": "cuda-validation", "state": {"running": {}}}]
    validator = pod("nvidia-operator-validator", False, initContainerStatuses=waits)
    at = stage(node({**SEEN, **GFD}, {"nvidia.com/gpu": "8"}), [*up_to("validator"), validator, workload], DAEMONSETS)
    assert (at.stuck, at.failed) == ("validator", True)
    assert "fabric manager does not run" in at.sentence
    assert "Start nvidia-fabricmanager" in at.sentence


@pytest.mark.rows("S09", "DRV-14", "VAL-01")
def test_a_node_without_any_driver_is_broken_only_where_no_driver_pod_is_to_come() -> None:
    waits = [{"name": "driver-validation", "state": {"running": {}}}]
    toolkit = pod("nvidia-container-toolkit-daemonset", False, initContainerStatuses=waits)
    others = [made for made in DAEMONSETS if made["metadata"]["name"] != "nvidia-driver-daemonset"]
    at = stage(node(SEEN), [toolkit], others)
    assert (at.stuck, at.failed) == ("toolkit", True)
    assert "no driver" in at.trouble
    assert not stage(node(SEEN), [toolkit, pod("nvidia-driver-daemonset", False)], DAEMONSETS).failed


@pytest.mark.rows("MIG-04", "S19")
@pytest.mark.parametrize(("state", "failed"), [("pending", False), ("rebooting", False), ("failed", True)])
def test_a_layout_that_is_not_there_yet_is_said(state: str, failed: bool) -> None:
    labels = {**SEEN, **GFD, "nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": state}
    at = stage(node(labels, {"nvidia.com/gpu": "8"}), ALL, DAEMONSETS)
    assert (at.stuck, at.failed) == ("MIG configuration", failed)
    assert at.trouble == f"nvidia.com/mig.config=all-1g.10gb is in state {state}"


@pytest.mark.rows("DP-02", "DP-05", "S14", "S17")
@pytest.mark.parametrize(
    ("labels", "resources"),
    [
        # D1, D4: whole boards
        ({"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "1"}, {"nvidia.com/gpu": 8}),
        ({"nvidia.com/gpu.count": "8"}, {"nvidia.com/gpu": 8}),
        # D2: one kind of slice, strategy single
        (
            {
                "nvidia.com/gpu.count": "14",
                "nvidia.com/gpu.product": "NVIDIA-H200-MIG-1g.18gb",
                "nvidia.com/mig.strategy": "single",
            },
            {"nvidia.com/gpu": 14},
        ),
        # D3, G8: slices, strategy mixed
        (
            {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "0", "nvidia.com/mig-1g.18gb.count": "14"},
            {"nvidia.com/mig-1g.18gb": 14},
        ),
        # D10, G10: time slicing
        (
            {
                "nvidia.com/gpu.count": "2",
                "nvidia.com/gpu.replicas": "4",
                "nvidia.com/gpu.product": "NVIDIA-H200-SHARED",
            },
            {"nvidia.com/gpu": 8},
        ),
        # D11, G11: the same, renamed
        (
            {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.product": "NVIDIA-H200"},
            {"nvidia.com/gpu.shared": 8},
        ),
        # D12: slices shared
        (
            {
                "nvidia.com/mig-1g.18gb.count": "14",
                "nvidia.com/mig-1g.18gb.replicas": "2",
                "nvidia.com/mig-1g.18gb.product": "NVIDIA-H200-MIG-1g.18gb-SHARED",
            },
            {"nvidia.com/mig-1g.18gb": 28},
        ),
        # G9: boards in MIG mode, strategy none: how many are shared is not told
        ({"nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "0"}, {}),
        # G5: a layout that strategy single cannot offer
        ({"nvidia.com/gpu.count": "0", "nvidia.com/gpu.replicas": "0"}, {}),
        ({}, {}),
    ],
)
def test_what_hardware_labels_promise(labels: dict[str, str], resources: dict[str, int]) -> None:
    assert expected(labels) == resources


def test_a_layout_that_does_not_fit_the_strategy_is_explained() -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H200-MIG-INVALID",
        "nvidia.com/gpu.count": "0",
        "nvidia.com/gpu.replicas": "0",
    }
    (line,) = gaps_of({"metadata": {"labels": labels}, "status": {}})
    assert "does not fit the MIG strategy single" in line


@pytest.mark.parametrize(
    ("labels", "version"),
    [
        ({}, ""),
        ({"nvidia.com/cuda.driver-version.full": "595.91.07"}, "595.91.07"),
        (
            {
                "nvidia.com/cuda.driver.major": "550",
                "nvidia.com/cuda.driver.minor": "54",
                "nvidia.com/cuda.driver.rev": "14",
            },
            "550.54.14",
        ),
        (
            {
                "nvidia.com/cuda.driver.major": "460",
                "nvidia.com/cuda.driver.minor": "32",
                "nvidia.com/cuda.driver.rev": "",
            },
            "460.32",
        ),
        ({"nvidia.com/cuda.driver-version.major": "550", "nvidia.com/cuda.driver-version.minor": "54"}, "550.54"),
    ],
)
def test_the_driver_is_read_from_new_and_old_labels(labels: dict[str, str], version: str) -> None:
    assert driver_version(labels) == version


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"nvidia.com/gpu.product": "Tesla-T4"}, ""),
        ({"nvidia.com/mig.capable": "true"}, "not set"),
        ({"nvidia.com/mig.config": "all-disabled"}, "all-disabled"),
        (
            {
                "nvidia.com/mig.config": "all-1g.10gb",
                "nvidia.com/mig.config.state": "success",
                "nvidia.com/mig.strategy": "mixed",
            },
            "all-1g.10gb (success), mixed",
        ),
    ],
)
def test_mig_in_words(labels: dict[str, str], text: str) -> None:
    assert mig_text(labels) == text


@pytest.mark.rows("S39")
def test_the_row_of_a_node() -> None:
    one = node({**SEEN, **GFD}, {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "0"})
    assert row(one, ALL, DAEMONSETS) == {
        "name": "n",
        "product": "NVIDIA-H100-80GB-HBM3",
        "models": {},
        "workload": "container",
        "gpus": 8,
        "driver": "595.91.07",
        "mig": "all-disabled",
        "allocatable": {"nvidia.com/gpu": 8},
        "units": 8,
        "stage": "ready",
        "ready": True,
        "failed": False,
        "trouble": "",
        "os": "ubuntu24.04",
        "kernel": "6.8.0-60-generic",
        "runtime": "containerd://2.1.0",
    }
    early = row(node(SEEN), [], DAEMONSETS)
    assert (early["gpus"], early["product"], early["trouble"]) == (-1, "", "driver: its pod is not there yet")


@pytest.mark.rows("P088")
def test_units_are_what_pods_can_use_and_cards_what_discovery_counts() -> None:
    slices = {**SEEN, **GFD, "nvidia.com/gpu.replicas": "0", "nvidia.com/mig-1g.10gb.count": "56"}
    assert (row(node(slices), [], [])["gpus"], row(node(slices), [], [])["units"]) == (8, 0)  # nothing offered yet
    found = row(node(slices, {"nvidia.com/mig-1g.10gb": "54", "nvidia.com/mig-2g.20gb": "1"}), ALL, DAEMONSETS)
    assert (found["gpus"], found["units"]) == (8, 55)


def test_rows_are_of_gpu_nodes_only_and_sorted() -> None:
    nodes = []
    for name, labels in (("b", SEEN), ("a", SEEN), ("cpu", {})):
        one = node(labels)
        one["metadata"]["name"] = name
        nodes.append(one)
    found = rows(nodes, [pod("nvidia-driver-daemonset", on="b")], DAEMONSETS)
    assert [(one["name"], one["stage"]) for one in found] == [("a", "labelled"), ("b", "driver")]
