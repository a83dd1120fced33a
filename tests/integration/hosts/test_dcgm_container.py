# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dcgm_exporter with a container: a real podman runs an image that has the stand-in for the exporter in it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.hosts.test_dcgm import SHORT, UNIT, Place, verbs
from ansible_collections.gpufleet.nvidia.tests.testbed.dcgm import install
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.podman import podman
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences
from ansible_collections.gpufleet.nvidia.tests.testbed.pki import Authority

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


def from_outside(host: Host, authority: Path | None = None, user: str = "") -> tuple[int, str]:
    """Status and metrics, as another machine gets them; with an authority by TLS."""
    address = podman("port", host.id, "9400/tcp").stdout.decode().strip()
    if authority:
        trusts = ssl.create_default_context(cafile=authority)
        connection = http.client.HTTPSConnection(address, timeout=10, context=trusts)
    else:
        connection = http.client.HTTPConnection(address, timeout=10)
    token = base64.b64encode(f"{user}:x".encode()).decode()
    connection.request("GET", "/metrics", headers={"Authorization": f"Basic {token}"} if user else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


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
    lines = [line for line in from_outside(host)[1].splitlines() if line.startswith("DCGM_FI_DEV_GPU_TEMP{")]
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
    assert uuids[1] in from_outside(host)[1]

    back = place.run(state="absent")
    assert not back.get("failed"), back["msg"]
    assert host.run(["podman", "ps", "--all", "--quiet"]).stdout == ""
    assert differences(before, host.snapshot()) == []


@pytest.mark.rows("H087", "H090")
def test_tls_and_passwords_reach_the_exporter_in_its_container(place: Place, tmp_path: Path) -> None:
    host, authority = place.host, Authority(tmp_path)
    before = host.snapshot()
    certificate, key = authority.issue("exporter", "gpu-host", addresses=["127.0.0.1"])
    host.put("/etc/ssl/exporter.crt", certificate)
    host.put("/etc/ssl/exporter.key", key, mode=0o600)
    web = {"cert_file": "/etc/ssl/exporter.crt", "key_file": "/etc/ssl/exporter.key"}
    users = {"prometheus": "$2y$10$" + "a" * 53}
    asked = {"container": {"engine": "podman", "image": IMAGE}, "metrics": SHORT, "listen_address": "0.0.0.0"}
    done = place.run(**asked, web_config={**web, "basic_auth_users": users})
    assert not done.get("failed"), done["msg"]
    assert host.run(["stat", "-c", "%U %a", "/etc/dcgm-exporter/gpufleet-web.yml"]).stdout == "root 600\n"
    uuid = gpus.show(host)["gpus"][1]["uuid"]
    status, text = from_outside(host, authority.certificate, "prometheus")
    assert (status, uuid in text) == (200, True)
    assert from_outside(host, authority.certificate)[0] == 401
    again = place.run(**asked, web_config={**web, "basic_auth_users": users})
    assert (again["changed"], again["plan"]) == (False, [])
    place.run(state="absent")
    host.run("rm /etc/ssl/exporter.crt /etc/ssl/exporter.key")
    assert differences(before, host.snapshot()) == []
