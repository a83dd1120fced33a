# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Day two of a cluster by its API alone: upgrade, MIG change and removal, and no way to any host."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.alone import Controller

NODE = "gpu-0000"
OLD = {"toolkit": {"version": "v1.19.1"}, "devicePlugin": {"version": "v0.19.0"}}


def versions(fleet: Any) -> dict[str, str]:
    """Of the containers that run on the node, by the pods' own word."""
    selector = f"--field-selector=spec.nodeName={NODE},status.phase=Running"
    listed = fleet.kubectl("get", "pods", "-n", fleet.namespace, selector, "-o", "json")
    containers = [c for pod in json.loads(listed)["items"] for c in pod["spec"]["containers"]]
    names = {"nvidia-container-toolkit-ctr": "toolkit", "nvidia-device-plugin": "plugin"}
    return {names[c["name"]]: c["image"].rpartition(":")[2] for c in containers if c["name"] in names}


def offered(fleet: Any) -> dict[str, str]:
    found = fleet.get("Node", NODE, namespace="")["status"]["allocatable"]
    return {name: count for name, count in found.items() if name.startswith("nvidia.com/") and count != "0"}


@pytest.mark.long
@pytest.mark.rows("S41")
def test_upgrade_mig_change_and_removal_take_the_api_alone(facts: Any, tmp_path: Path) -> None:
    facts.empty()
    controller = Controller(tmp_path)
    controller.without_ssh()
    inventory = tmp_path / "inventory.json"
    # The name of the inventory's host leads nowhere.
    inventory.write_text(json.dumps({"gpu_clusters": {"hosts": {"cluster-a.example.com": {}}}}))
    common = {
        "gpufleet_kubeconfig": str(facts.practice.cluster.kubeconfig()),
        "cluster_policy_stage_timeout": 90,
        "cluster_verify_metrics": False,  # simulated pods have no network
    }

    controller.play(inventory, "playbooks/site.yml", **common, cluster_policy_policy=OLD)
    assert versions(facts) == {"toolkit": "v1.19.1", "plugin": "v0.19.0"}
    assert offered(facts) == {"nvidia.com/gpu": "8"}

    controller.play(inventory, "playbooks/cluster.yml", **common)
    assert versions(facts) == {"toolkit": "v1.20.0", "plugin": "v0.20.0"}

    slices = [{"name": "slices", "selector": f"kubernetes.io/hostname={NODE}", "mig": "all-1g.10gb"}]
    controller.play(inventory, "playbooks/cluster.yml", **common, gpufleet_node_groups=slices)
    assert offered(facts) == {"nvidia.com/gpu": "56"}
    again = controller.play(inventory, "playbooks/cluster.yml", **common, gpufleet_node_groups=slices)
    assert re.search(r"cluster-a\.example\.com .* changed=0 ", again), again

    controller.play(inventory, "playbooks/remove.yml", **common)
    assert facts.get("DaemonSet") == []
    labels = facts.get("Node", NODE, namespace="")["metadata"]["labels"]
    assert not [name for name in labels if name.startswith("nvidia.com/gpu.deploy.")]
