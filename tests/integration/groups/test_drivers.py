# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Groups of nodes with a driver of their own, and what happens to the nodes that are in none."""

from __future__ import annotations

import pytest

GROUPS = [
    {"name": "old", "selector": "kubernetes.io/hostname=gpu-0001", "driver": {"version": "580.105.08"}},
]


def pods(fleet):
    found = fleet.get("Pod")
    return {
        p["spec"]["nodeName"]: (p["metadata"]["name"], p["metadata"]["uid"])
        for p in found
        if p["metadata"]["labels"].get("app") == "nvidia-driver-daemonset"
    }


@pytest.mark.rows("L12", "S16")
def test_a_group_gets_its_own_driver_and_running_pods_of_other_nodes_stay(facts):
    first = facts.stack({})
    assert not first["failed"], first["msg"]
    before = pods(facts)
    done = facts.stack({}, node_groups=GROUPS)
    assert not done["failed"], done["msg"]
    after = pods(facts)
    assert after["gpu-0000"] == before["gpu-0000"]
    assert after["gpu-0001"][0].startswith("nvidia-driver-daemonset-old-ubuntu24.04-")
    drivers = {node["name"]: node["driver"] for node in facts.run("gpu_cluster_info")["found"]["nodes"]}
    assert drivers["gpu-0001"] == "580.105.08"
    assert drivers["gpu-0000"] != "580.105.08"
    gaps = [finding for finding in done["findings"] if finding["id"] == "groups.gap"]
    assert [finding["target"] for finding in gaps] == ["gpu-0000"]
    offset = facts.offset()
    again = facts.stack({}, node_groups=GROUPS)
    assert (again["failed"], again["plan"], facts.writes(offset)) == (False, [], [])


@pytest.mark.rows("L12")
def test_a_driver_of_a_group_without_drivers_in_the_policy_is_refused(facts):
    offset = facts.offset()
    refused = facts.stack({"driver": {"enabled": False}}, node_groups=GROUPS)
    assert refused["failed"]
    assert "old is to have a driver, and the policy installs none" in refused["msg"]
    assert facts.writes(offset) == []
