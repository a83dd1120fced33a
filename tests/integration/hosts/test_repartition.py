# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/repartition.yml: a real host over SSH whose node, in a real cluster, is out of the way meanwhile."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.fleets import Fleet
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.practice import COLLECTIONS

pytestmark = pytest.mark.hosts
CHECKOUT = Path(__file__).resolve().parents[3]
NODE = "gpu-0000"
STATE, PLUGIN = "nvidia.com/mig.config.state", "nvidia.com/gpu.deploy.device-plugin"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hosts, Host]]:
    with Hosts(tmp_path_factory.mktemp("repartition")) as hosts:
        host = hosts.start("repartition", "debian13")
        gpus.install(host, "--product", "H200-SXM5-141GB", "--count", "1")
        yield hosts, host


@pytest.fixture
def fleet(facts: Fleet) -> Iterator[Fleet]:
    done = facts.stack({"migManager": {"enabled": False}})
    assert not done["failed"], done["msg"]
    yield facts
    facts.run("mig_node", node=NODE, state="resumed", wait=False)
    facts.kubectl("label", "node", NODE, f"{STATE}-", user="admin")


def repartition(hosts: Hosts, fleet: Fleet, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    variables = {
        "gpufleet_kubeconfig": str(fleet.practice.cluster.kubeconfig()),
        "gpufleet_node": NODE,
        **more,
    }
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", hosts.inventory()]
    command += ["playbooks/repartition.yml", "-e", json.dumps(variables), *arguments]
    return subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def node(fleet: Fleet) -> dict[str, Any]:
    found: dict[str, Any] = fleet.get("Node", NODE, namespace="")
    return found


def plugin_pod(fleet: Fleet) -> str:
    selector = ("-l", "app=nvidia-device-plugin-daemonset", f"--field-selector=spec.nodeName={NODE}")
    return fleet.kubectl("get", "pods", "-n", fleet.namespace, *selector, "-o", "jsonpath={.items[*].metadata.uid}")


def changes(done: subprocess.CompletedProcess[str]) -> int:
    return sum(map(int, re.findall(r"changed=(\d+)", done.stdout)))


@pytest.mark.rows("MH-02", "MH-03", "P081", "P082", "P092")
def test_the_node_is_out_of_the_way_only_where_the_layout_changes(running: tuple[Hosts, Host], fleet: Fleet) -> None:
    hosts, host = running
    layout = [{"profiles": {"1g.18gb": 2, "3g.71gb": 1}}]
    before = plugin_pod(fleet)
    offset = fleet.offset()
    planned = repartition(hosts, fleet, "--check", mig_partition_layout=layout)
    assert planned.returncode == 0, planned.stdout
    assert (fleet.writes(offset), gpus.show(host)["gpus"][0]["instances"]) == ([], [])
    done = repartition(hosts, fleet, mig_partition_layout=layout)
    assert done.returncode == 0, done.stdout
    assert len(gpus.show(host)["gpus"][0]["instances"]) == 3
    labels, spec = node(fleet)["metadata"]["labels"], node(fleet)["spec"]
    assert (labels[STATE], labels[PLUGIN], spec.get("unschedulable")) == ("success", "true", None)
    new = plugin_pod(fleet)
    assert new != before  # it offers the new instances only since it was started anew
    offset = fleet.offset()
    again = repartition(hosts, fleet, mig_partition_layout=layout)
    assert (again.returncode, changes(again), fleet.writes(offset), plugin_pod(fleet)) == (0, 0, [], new)
    refused = repartition(hosts, fleet, mig_partition_layout=[{"profiles": {"3g.71gb": 3}}])
    assert refused.returncode != 0
    live = node(fleet)["metadata"]
    assert (live["labels"][STATE], live["labels"][PLUGIN]) == ("failed", "true")
    assert "do not fit" in live["annotations"]["gpufleet.io/mig-problem"]
    assert plugin_pod(fleet) == new


@pytest.mark.rows("MH-03", "P075")
def test_a_layout_that_waits_for_a_reboot_is_a_failure_that_gives_the_node_back(
    running: tuple[Hosts, Host], fleet: Fleet
) -> None:
    hosts, host = running
    off = repartition(hosts, fleet, mig_partition_layout=[{"enabled": False}])
    assert off.returncode == 0, off.stdout
    host.run([gpus.PROGRAM, "set", gpus.STATE, "gpu=all", "mode_change=reboot"])
    waits = repartition(hosts, fleet, mig_partition_layout=[{"profiles": {"1g.18gb": 7}}])
    host.run([gpus.PROGRAM, "set", gpus.STATE, "gpu=all", "mode_change=immediate"])
    assert waits.returncode != 0
    assert "The layout waits for" in waits.stdout
    live = node(fleet)
    assert (live["metadata"]["labels"][STATE], live["spec"].get("unschedulable")) == ("failed", None)
    assert "The layout waits for" in live["metadata"]["annotations"]["gpufleet.io/mig-problem"]
