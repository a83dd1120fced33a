# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with container runtimes: Debian's containerd, docker and podman, and a newer containerd, really run there."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus, runtimes
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.__main__ import main
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import TOOLKIT, ensure

pytestmark = pytest.mark.hosts

CONTAINERD = {"debian12-runtimes": "1.6.", "debian13-runtimes": "1.7.", "upstream": "v2.4.2"}
# The version of the configuration that `containerd config dump` writes.
FORMATS = {"debian12-runtimes": 2, "debian13-runtimes": 2, "upstream": 4}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A host of each version of containerd, with it and docker; started as from the command line."""
    with Hosts(tmp_path_factory.mktemp("runtimes")) as hosts:
        for name in CONTAINERD:
            host = hosts.start(name, "debian13-runtimes" if name == "upstream" else name)
            assert enabled(host) == []
        words = ["runtimes", "--folder", str(hosts.folder), "--upstream", "upstream", "containerd", "docker", "podman"]
        assert main(words) == 0
        yield hosts


@pytest.fixture(params=list(CONTAINERD))
def host(running: Hosts, request: pytest.FixtureRequest) -> Host:
    return running.hosts[request.param]


def enabled(host: Host) -> list[str]:
    units = host.run(["systemctl", "list-unit-files", "--state=enabled", "--no-legend", "--plain"]).stdout
    return [line.split()[0] for line in units.splitlines() if line.startswith(("containerd", "docker", "podman"))]


def by_socket(host: Host, socket: str, path: str) -> Any:
    """GET over a socket on the host, past the runtime's own client."""
    program = (
        "import http.client, socket, sys\n"
        "c = http.client.HTTPConnection('localhost')\n"
        "c.sock = socket.socket(socket.AF_UNIX)\n"
        "c.sock.connect(sys.argv[1])\n"
        "c.request('GET', sys.argv[2])\n"
        "print(c.getresponse().read().decode())\n"
    )
    return json.loads(host.run(["python3", "-c", program, socket, path]).stdout)


def test_containerd_of_the_named_version_answers_and_dumps_its_merged_configuration(host: Host) -> None:
    server = host.run("ctr version").stdout.partition("Server:")[2]
    assert f"Version:  {CONTAINERD[host.name]}" in server
    dumped = tomllib.loads(host.run(["containerd", "config", "dump"]).stdout)
    assert dumped["version"] == FORMATS[host.name]


def test_a_container_runs_in_containerd(host: Host) -> None:
    command = ["ctr", "run", "--rm", runtimes.BUSYBOX, "one", "sh", "-c", "echo in $(cat /proc/1/comm) $$"]
    assert host.run(command).stdout == "in sh 1\n"
    assert host.run(["ctr", "containers", "list", "--quiet"]).stdout == ""


def test_docker_answers_on_its_socket_and_runs_a_container(host: Host) -> None:
    told = by_socket(host, "/run/docker.sock", "/info")
    assert told["DefaultRuntime"] == "runc"
    assert "runc" in told["Runtimes"]
    command = ["docker", "run", "--rm", "--network", "none", runtimes.BUSYBOX, "sh", "-c", "echo in; exit 3"]
    done = host.run(command, check=False)
    assert (done.stdout, done.returncode) == ("in\n", 3)


def test_podman_runs_a_container(host: Host) -> None:
    command = ["podman", "run", "--rm", "--network", "none", "--hostname", "box", runtimes.BUSYBOX, "hostname"]
    assert host.run(command).stdout == "box\n"


def test_containers_go_on_while_containerd_starts_anew(host: Host) -> None:
    host.run(["ctr", "run", "--detach", runtimes.BUSYBOX, "stays"])
    host.run(["docker", "run", "--detach", "--name", "stays", "--network", "none", runtimes.BUSYBOX])
    before = host.run(["ctr", "tasks", "list"]).stdout.splitlines()[1].split()
    started = host.run("docker inspect --format '{{.State.Pid}} {{.State.Running}}' stays").stdout
    host.run(["systemctl", "restart", "containerd.service"])
    assert host.run(["ctr", "tasks", "list"]).stdout.splitlines()[1].split() == before
    assert host.run("docker inspect --format '{{.State.Pid}} {{.State.Running}}' stays").stdout == started
    host.run("docker rm --force stays; ctr tasks kill --signal KILL stays; ctr tasks delete stays; ctr c delete stays")


def test_the_real_nvidia_ctk_describes_a_hosts_gpus_and_podman_gives_one_to_a_container(running: Hosts) -> None:
    host = running.hosts["debian13-runtimes"]
    gpus.install(host, "--product", "T4", "--count", "2")
    gpus.install_driver(host)
    host.restart()
    for name in TOOLKIT:
        host.put(f"/usr/bin/{name}", ensure(name), mode=0o755)
    host.ssh("sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
    listed = host.run(["nvidia-ctk", "cdi", "list"]).stdout.split()
    assert {"nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=all"} < set(listed)
    command = ["podman", "run", "--rm", "--network", "none", "--device", "nvidia.com/gpu=1", runtimes.BUSYBOX]
    found = host.run([*command, "sh", "-c", "cd /dev; echo nvidia*"]).stdout.split()
    assert found == ["nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidia1", "nvidiactl"]
