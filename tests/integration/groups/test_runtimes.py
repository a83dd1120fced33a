# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One cluster with containerd, CRI-O, k3s and MicroK8s: each node's toolkit has the runtime and files of its node."""

from __future__ import annotations

import pytest

LABEL = "gpufleet.io/runtime"


@pytest.fixture
def runtimes(fleets):
    return fleets("runtimes")


def toolkits(fleet):
    name = "nvidia-container-toolkit-daemonset"
    return {d["metadata"]["name"] for d in fleet.get("DaemonSet") if d["metadata"]["name"].startswith(name)}


@pytest.mark.long
@pytest.mark.rows("S53", "L30", "L31")
def test_a_toolkit_for_each_runtime_is_found_by_the_nodes_and_taken_back(runtimes):
    planned = runtimes.stack({}, check=True)
    assert not planned["failed"], planned["msg"]
    done = runtimes.stack({})
    assert not done["failed"], done["msg"]
    assert {
        node["name"]: node["ready"] for node in runtimes.run("gpu_cluster_info")["found"]["nodes"]
    } == dict.fromkeys(("gpu-containerd", "gpu-crio", "gpu-k3s", "gpu-microk8s"), True)
    plain = "nvidia-container-toolkit-daemonset"
    assert toolkits(runtimes) == {plain, f"{plain}-crio", f"{plain}-k3s", f"{plain}-microk8s"}
    offset = runtimes.offset()
    again = runtimes.stack({})
    assert (again["failed"], again["plan"], runtimes.writes(offset)) == (False, [], [])
    runtimes.empty()
    assert not [n for n in runtimes.get("Node", namespace="") if LABEL in n["metadata"]["labels"]]
    assert toolkits(runtimes) == set()
