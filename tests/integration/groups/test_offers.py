# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes will offer is said before anything is applied, and is what they show afterwards."""

from __future__ import annotations

import json

import pytest

ONE, TWO = "kubernetes.io/hostname=gpu-0000", "kubernetes.io/hostname=gpu-0001"  # eight H100, one T4


def config(kind="timeSlicing", replicas=4, name="nvidia.com/gpu", **more):
    return {"version": "v1", "sharing": {kind: {**more, "resources": [{"name": name, "replicas": replicas}]}}}


@pytest.fixture
def mixed(facts):
    done = facts.stack({"mig": {"strategy": "mixed"}})
    assert not done["failed"], done["msg"]
    return facts


def by_node(result):
    return {row["name"]: row for row in result["found"]["offers"]}


def shown(fleet):
    return {node["name"]: node["allocatable"] for node in fleet.run("gpu_cluster_info")["found"]["nodes"]}


@pytest.mark.rows("S14", "S16", "S17", "PLG-02", "PLG-03", "PLG-08", "GF-05", "P107")
def test_slices_on_one_node_and_shares_on_another_are_computed_first_and_shown_afterwards(mixed):
    groups = [
        {"name": "slices", "selector": ONE, "mig": "all-1g.10gb", "device_plugin": "slices"},
        {"name": "shared", "selector": TWO, "device_plugin": "shared"},
    ]
    configs = {
        "shared": config(replicas=3, renameByDefault=True, failRequestsGreaterThanOne=True),
        "slices": config(replicas=2, name="nvidia.com/mig-1g.10gb"),
    }
    params = {"configs": configs, "node_groups": groups, "policy": {"mig": {"strategy": "mixed"}}}
    offset = mixed.offset()
    planned = mixed.run("device_plugin", check=True, **params)
    assert not planned["failed"], planned["msg"]
    assert mixed.writes(offset) == []
    wanted = {"gpu-0000": {"nvidia.com/mig-1g.10gb": 112}, "gpu-0001": {"nvidia.com/gpu.shared": 3}}
    assert {name: row["resources"] for name, row in by_node(planned).items()} == wanted
    assert by_node(planned)["gpu-0001"]["one_a_container"] is True
    assert by_node(planned)["gpu-0001"]["shares"] == {"nvidia.com/gpu": 33}
    done = mixed.run("device_plugin", **params)
    assert not done["failed"], done["msg"]
    assert shown(mixed) == wanted
    assert [check["ok"] for check in done["verified"]] == [True, True]
    again = mixed.run("device_plugin", **params)
    assert (again["failed"], again["changed"], again["plan"]) == (False, False, [])
    assert {name: row["resources"] for name, row in by_node(again).items()} == wanted


@pytest.mark.rows("S16", "PLG-04", "PLG-07", "P077")
@pytest.mark.parametrize(
    ("groups", "configs", "strategy", "words"),
    [
        (
            [{"name": "g", "selector": ONE, "mig": "all-balanced"}],
            {},
            "single",
            ("Node gpu-0000: its MIG devices are of 3 kinds", "Set mig.strategy to mixed"),
        ),
        (
            [{"name": "g", "selector": ONE, "mig": "all-1g.10gb", "device_plugin": "mps"}],
            {"mps": config("mps")},
            "single",
            ("Node gpu-0000: MPS does not go with boards in MIG mode", "all-disabled"),
        ),
        (
            [{"name": "g", "selector": TWO, "device_plugin": "mps"}],
            {"mps": config("mps")},
            "mixed",
            ("Node gpu-0001: MPS does not go with the MIG strategy mixed", "timeSlicing"),
        ),
        (
            [{"name": "g", "selector": TWO, "device_plugin": "mps"}],
            {"mps": config("mps", 49)},
            "none",
            ("49 replicas are more than the 48", "Set 48 or fewer"),
        ),
        (
            [{"name": "g", "selector": TWO, "device_plugin": "own"}],
            {"own": {"resources": {"gpus": [{"pattern": "*", "name": "t4"}]}}},
            "none",
            ("devicePlugin.config.data.own.resources: has no effect",),
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(mixed, groups, configs, strategy, words):
    offset = mixed.offset()
    refused = mixed.run("device_plugin", configs=configs, node_groups=groups, policy={"mig": {"strategy": strategy}})
    assert refused["failed"]
    for part in words:
        assert part in refused["msg"]
    assert mixed.writes(offset) == []
    assert "panic" not in json.dumps(refused)


@pytest.mark.rows("P097", "PLG-08")
def test_discovery_that_runs_without_the_plugins_config_is_told(mixed):
    groups = [{"name": "shared", "selector": TWO, "device_plugin": "shared"}]
    done = mixed.run(
        "device_plugin", configs={"shared": config()}, node_groups=groups, policy={"mig": {"strategy": "mixed"}}
    )
    assert not done["failed"], done["msg"]
    told = [finding for finding in done["findings"] if finding["id"] == "plugin.labels"]
    assert [finding["target"] for finding in told] == ["Node gpu-0001"]
    assert "cluster_policy" in told[0]["remedy"]
    values = {
        "mig": {"strategy": "mixed"},
        "devicePlugin": {"config": {"create": True, "name": "shares", "data": {"shared": json.dumps(config())}}},
    }
    whole = mixed.stack(values, node_groups=groups)
    assert not whole["failed"], whole["msg"]
    node = mixed.get("Node", "gpu-0001", namespace="")
    assert node["metadata"]["labels"]["nvidia.com/gpu.replicas"] == "4"
    assert by_node(whole)["gpu-0001"]["resources"] == {"nvidia.com/gpu": 4}


@pytest.mark.rows("P105", "P103", "P095")
def test_boards_that_mps_cannot_share_are_told_the_others_go_on_and_another_config_serves_them(facts):
    configs = {"mps": json.dumps(config("mps")), "shared": json.dumps(config(replicas=2))}
    values = {
        "mig": {"strategy": "none"},
        "devicePlugin": {"config": {"create": True, "name": "shares", "data": configs}},
    }

    def groups(second):
        return [
            {"name": "first", "selector": ONE, "device_plugin": "mps"},
            {"name": "second", "selector": TWO, "device_plugin": second},
        ]

    facts.control(
        nodes={"gpu-0001": {"crash": {"mps-control-daemon-ctr": "error getting minor number: Not Supported"}}}
    )
    done = facts.stack(values, node_groups=groups("mps"), max_failed_nodes="1")
    assert not done["failed"], done["msg"]
    (told,) = [finding for finding in done["findings"] if finding["id"] == "node.failed"]
    assert told["target"] == "node gpu-0001"
    assert told["detail"].startswith("MPS failed: the node's boards do not tell their device numbers")
    assert "timeSlicing" in told["remedy"]
    assert shown(facts)["gpu-0000"] == {"nvidia.com/gpu": 32}
    assert shown(facts)["gpu-0001"] == {}
    served = facts.stack(values, node_groups=groups("shared"))
    assert not served["failed"], served["msg"]
    assert shown(facts) == {"gpu-0000": {"nvidia.com/gpu": 32}, "gpu-0001": {"nvidia.com/gpu": 2}}
