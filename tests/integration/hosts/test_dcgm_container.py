# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dcgm_exporter with a container: a real podman runs an image that has the stand-in for the exporter in it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.hosts.test_dcgm import SHORT, UNIT, Place, verbs
from ansible_collections.gpufleet.nvidia.tests.testbed.dcgm import install
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.podman import podman
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences

pytestmark = pytest.mark.hosts

IMAGE = "registry.example.com/nvidia/dcgm-exporter:4.6.0-4.8.3"
NAME = "nvidia-dcgm-exporter"
# Python and the program, as the host has them; nothing else of it is in the image.
PARTS = "bin lib lib64 usr/bin/python3* usr/lib/python3* usr/lib64 usr/lib/x86_64-linux-gnu usr/bin/dcgm-exporter"
DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Hosts(tmp_path_factory.mktemp("container")) as hosts:
        host = hosts.start("contained", "debian13-runtimes", "--publish", "127.0.0.1::9400")
        gpus.install(host, "--product", "H100-SXM5-80GB", "--count", "2")
        gpus.install_driver(host)
        install.install(host)
        start = f"--change 'ENTRYPOINT [\"{install.EXPORTER}\"]'"
        host.run(f"cd / && tar -c {PARTS} | podman import --quiet {start} - {IMAGE}", timeout=300)
        host.run(["rm", install.EXPORTER])
        nodes = [{"path": path} for path in DEVICES]
        spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu"}
        host.put(
            "/etc/cdi/nvidia.json",
            json.dumps({**spec, "devices": [{"name": "all", "containerEdits": {"deviceNodes": nodes}}]}),
        )
        yield Place(hosts, host)


def from_outside(host: Host) -> str:
    """The metrics, as another machine gets them."""
    address = podman("port", host.id, "9400/tcp").stdout.decode().strip()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.rows("H087", "S21")
def test_the_exporter_runs_in_a_container_of_podman_and_goes_without_a_trace(place: Place) -> None:
    host = place.host
    asked = {"container": {"engine": "podman", "image": IMAGE}, "metrics": SHORT, "listen_address": "0.0.0.0"}
    before = host.snapshot()
    planned = place.run(check=True, **asked)
    assert not planned.get("failed"), planned["msg"]
    assert differences(before, host.snapshot()) == []
    done = place.run(**asked)
    assert not done.get("failed"), done["msg"]
    assert verbs(done) == verbs(planned)
    assert ("pull", IMAGE) not in verbs(done)  # it is there already
    assert all(check["ok"] for check in done["verified"])

    uuids = [one["uuid"] for one in gpus.show(host)["gpus"]]
    lines = [line for line in from_outside(host).splitlines() if line.startswith("DCGM_FI_DEV_GPU_TEMP{")]
    assert [[uuid in line for uuid in uuids] for line in lines] == [[True, False], [False, True]]
    running = host.run(["podman", "ps", "--format", "{{.Names}} {{.Image}}"]).stdout
    assert running == f"{NAME} {IMAGE}\n"
    inside = host.run(["podman", "exec", NAME, "python3", "-c", "import os; print(sorted(os.listdir('/dev')))"]).stdout
    assert {path.rpartition("/")[2] for path in DEVICES} <= set(json.loads(inside.replace("'", '"')))

    started = place.started(UNIT)
    again = place.run(**asked)
    assert (again["changed"], again["plan"]) == (False, [])
    assert place.started(UNIT) == started

    # A container that somebody ends comes again.
    host.run(["podman", "kill", NAME])
    assert not place.run(**asked).get("failed")
    assert uuids[1] in from_outside(host)

    back = place.run(state="absent")
    assert not back.get("failed"), back["msg"]
    assert host.run(["podman", "ps", "--all", "--quiet"]).stdout == ""
    assert differences(before, host.snapshot()) == []
