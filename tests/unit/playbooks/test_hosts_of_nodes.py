# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks for hosts that are nodes of a cluster: a lost host is given back, and hosts.yml leaves such hosts alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.ansible_runs import playbook

# Nobody listens there.
LOST = {"ansible_host": "127.0.0.1", "ansible_port": 1, "mig_partition_name": "all-balanced"}


def play(folder: Path, name: str, host: dict[str, object]) -> str:
    """What a playbook says of one host; the cluster's address is one that nobody has."""
    inventory, kubeconfig = folder / "hosts.json", folder / "kubeconfig"
    inventory.write_text(json.dumps({"gpu_hosts": {"hosts": {"gpu-07.example.com": host}}}))
    kubeconfig.write_text("{}")
    told = json.dumps({"gpufleet_kubeconfig": str(kubeconfig)})
    done = playbook(inventory, f"playbooks/{name}", "-e", told)
    assert done.returncode != 0, done.stdout
    return " ".join(done.stdout.split())


@pytest.mark.long
@pytest.mark.rows("MH-02")
def test_a_node_whose_host_is_lost_is_given_back(tmp_path: Path) -> None:
    said = play(tmp_path, "repartition.yml", {**LOST, "gpufleet_node": "gpu-07"})
    assert "TASK [Node back, without its layout]" in said
    assert "TASK [Node out of the way]" not in said


@pytest.mark.long
@pytest.mark.rows("MH-02")
def test_a_host_that_is_lost_at_its_layout_has_failed(tmp_path: Path) -> None:
    said = play(tmp_path, "repartition.yml", dict(LOST))
    told = said.partition("TASK [This host is not done]")[2]
    assert "gpu-07.example.com cannot be reached: " in told
    assert re.search(r"failed=1 .*rescued=1", told)


@pytest.mark.rows("MH-02")
def test_hosts_that_are_nodes_of_a_cluster_are_refused_before_they_are_looked_at(tmp_path: Path) -> None:
    said = play(tmp_path, "hosts.yml", {"ansible_connection": "local", "gpufleet_node": "gpu-07"})
    assert "gpu-07.example.com is the node gpu-07 of a cluster" in said
    assert "TASK [Look at the host]" not in said
