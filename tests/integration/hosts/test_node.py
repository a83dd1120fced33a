# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Kubernetes node on a test host: pods run, one of an unknown runtime does not, a restart leaves pods alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.podman import podman
from ansible_collections.gpufleet.nvidia.tests.testbed.node import Node, pod
from ansible_collections.gpufleet.nvidia.tests.testbed.node.__main__ import main
from ansible_collections.gpufleet.nvidia.tests.testbed.node.node import CONFIG, CONTAINERD

pytestmark = pytest.mark.hosts

RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}
CHECKOUT = Path(__file__).resolve().parents[3]
CALLS = "/var/log/nvidia-container-runtime.calls"
# Stands in for NVIDIA's: tells that it was called, and does what runc does.
STAND_IN = f"""\
#!/bin/sh
echo "$*" >>{CALLS}
exec /usr/sbin/runc "$@"
"""
PLAY = """
- hosts: all
  gather_facts: false
  roles:
    - role: gpufleet.nvidia.container_toolkit
      vars:
        container_toolkit_packages: none
"""


def test_the_command_line_starts_finds_and_ends_a_node(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--folder", str(tmp_path / "cli"), "gpu-7"]
    assert main(["up", *words]) == 0
    assert "gpu-7: Ready after" in capfd.readouterr().out
    node = Node(tmp_path / "cli", "gpu-7", lasting=True).find()
    node.apply(pod("stays"))
    node.wait("pod/stays", "condition=Ready")
    before = node.container("stays")
    assert main(["up", *words]) == 0
    assert node.container("stays") == before
    assert main(["down", *words]) == 0
    assert (node.cluster.running(), (tmp_path / "cli").exists()) == ({}, False)
    assert podman("container", "exists", node.host.id, check=False).returncode == 1


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("node")) as running:
        yield running


def test_the_node_runs_containerd_2_and_this_release_of_kubernetes(node: Node) -> None:
    told = node.get(f"node/{node.name}")["status"]["nodeInfo"]
    assert (told["containerRuntimeVersion"], told["kubeletVersion"]) == ("containerd://2.4.2", "v1.36.3")


def test_a_plain_pod_runs_and_its_words_and_network_reach_the_cluster(node: Node) -> None:
    node.apply(pod("once", command=["sh", "-c", "hostname; ip -4 -o addr show eth0"]))
    node.wait("pod/once", "jsonpath={.status.phase}=Succeeded")
    words = node.kubectl("logs", "once").stdout.split()
    assert words[0] == "once"
    assert f"{node.get('pod/once')['status']['podIP']}/24" in words


def test_a_pod_of_a_runtime_that_nobody_configured_does_not_start_and_the_reason_is_shown(node: Node) -> None:
    node.apply(RUNTIME_CLASS, pod("gpu", runtime_class="nvidia"), pod("other"))
    line = node.wait_for_event("gpu", "FailedCreatePodSandBox")
    assert 'no runtime for "nvidia" is configured' in line
    assert node.get("pod/gpu")["status"]["phase"] == "Pending"
    node.wait("pod/other", "condition=Ready")


@pytest.mark.rows("RT-02", "RT-07", "H070", "H071")
def test_the_role_lets_the_pod_start_and_kubelet_and_other_pods_go_on(node: Node, tmp_path: Path) -> None:
    node.apply(RUNTIME_CLASS, pod("gpu", runtime_class="nvidia"), pod("other"))
    node.wait("pod/other", "condition=Ready")
    before, kubelet = node.container("other"), node.host.run("pidof kubelet").stdout
    node.host.put("/usr/bin/nvidia-container-runtime", STAND_IN, mode=0o755)
    (tmp_path / "play.yml").write_text(PLAY)
    program = Path(sys.executable).parent / "ansible-playbook"
    command = [program, "-i", node.hosts.inventory(), tmp_path / "play.yml"]
    places = {"ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/collections")}
    done = subprocess.run(command, env=os.environ | places, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert node.host.get(CONFIG).decode().startswith(CONTAINERD.split("version", maxsplit=1)[0])
    node.wait("pod/gpu", "condition=Ready")
    calls = node.host.get(CALLS).decode().splitlines()
    assert [line for line in calls if " create " in line and node.container("gpu")[0] in line]
    assert (node.container("other"), node.host.run("pidof kubelet").stdout) == (before, kubelet)
    assert not [line for line in calls if before[0] in line]
    assert node.host.run(["systemctl", "is-active", "kubelet", "containerd"]).stdout == "active\nactive\n"


def test_a_node_comes_back_with_its_pods_after_a_boot(node: Node) -> None:
    node.apply(pod("kept"))
    node.wait("pod/kept", "condition=Ready")
    node.host.restart()
    node.wait("pod/kept", "jsonpath={.status.containerStatuses[0].restartCount}=1")
    node.wait("pod/kept", "condition=Ready")
    node.wait(f"node/{node.name}", "condition=Ready")
