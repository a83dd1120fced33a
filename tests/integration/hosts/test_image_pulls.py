# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images that real daemons pull by a proxy which looks inside: containerd 1.6, 1.7 and 2.4, and Debian's Docker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.ansible_runs import playbook
from ansible_collections.gpufleet.nvidia.tests.helpers.on_hosts import LIBRARY, MODULE, give
from ansible_collections.gpufleet.nvidia.tests.integration.hosts.test_container_toolkit import (
    PROGRAM,
    RUN,
    STAND_IN,
    SYSTEMS,
    containers,
    restart,
    started,
)
from ansible_collections.gpufleet.nvidia.tests.integration.hosts.test_container_toolkit import (
    toolkit as module,
)
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, runtimes
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences
from ansible_collections.gpufleet.nvidia.tests.testbed.pki import Authority

pytestmark = [pytest.mark.hosts, pytest.mark.rows("P046")]

PASSWORD = "p%40ss"  # its beginning, which no file and no message spells otherwise
PROXY = f"http://puller:{PASSWORD}$word@127.0.0.1:3128"
CA = "/etc/pki/proxy.pem"
# By the proxy's authority, and by two that the host trusts: Go programs read the first such file, and the folder.
INSIDE, TRUSTED = "registry.example.com", ("file.example.com", "folder.example.com")
PLACES = (CA, "/etc/ssl/ca-bundle.pem", "/etc/ssl/certs/site.pem")
FILES = ("/etc/systemd/system/{0}.service.d/gpufleet-image-pulls.conf", "/etc/gpufleet/{0}.service/environment")
# Speaks TLS itself for whatever it is asked to connect to, and writes down what it was asked for, inside too.
RECORDER = """
import base64, socketserver, ssl

class Asked(socketserver.StreamRequestHandler):
    timeout = 10

    def say(self, *words):
        with open("/run/recorder.log", "a") as file:
            print(*words, file=file)

    def handle(self):
        head = []
        while (line := self.rfile.readline(65536).decode().strip()) and len(head) < 100:
            head.append(line)
        place = head[0].split()[1]
        word = [line.split()[-1] for line in head if line.lower().startswith("proxy-authorization")]
        self.say(head[0].split()[0], place, *(base64.b64decode(one).decode() for one in word))
        if not head[0].startswith("CONNECT"):
            return
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        name = place.partition(":")[0]
        context.load_cert_chain(f"/etc/recorder/{name}.crt", f"/etc/recorder/{name}.key")
        try:
            with context.wrap_socket(self.connection, server_side=True) as inside:
                self.say("INSIDE", name, inside.recv(65536).split(b"\\r\\n")[0].decode())
                inside.sendall(b"HTTP/1.1 404 Not Found\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
        except (OSError, ssl.SSLError) as error:
            self.say("REFUSED", name, type(error).__name__)

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

Server(("127.0.0.1", 3128), Asked).serve_forever()
"""
# `ctr` of containerd 1 pulls by itself: what a kubelet asks for is asked here.
PULL = f"""
import socket, sys
from {MODULE}.plugins.module_utils._runtimes import _cri

name = sys.argv[1].encode()
image = b"\\x0a" + bytes([len(name)]) + name
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
    connection.settimeout(20)
    connection.connect("/run/containerd/containerd.sock")
    try:
        _cri._call(connection, "/runtime.v1.ImageService/PullImage", b"\\x0a" + bytes([len(image)]) + image, 20)
    except ValueError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A host of each version of containerd, with it, docker, and the proxy."""
    folder = tmp_path_factory.mktemp("pulls")
    authorities = {server: Authority(folder / server) for server in (INSIDE, *TRUSTED)}
    with Hosts(folder / "hosts") as hosts:
        for name, system in SYSTEMS.items():
            host = hosts.start(f"pulls{name.replace('.', '')}", system)
            if name == "2.4":
                runtimes.install_containerd(host)
            give(host, "plugins/module_utils", "tests/helpers/faults.py")
            for path, text in (("/tmp/run.py", RUN), ("/tmp/pull.py", PULL), ("/tmp/recorder.py", RECORDER)):
                host.put(path, text)
            host.put(PROGRAM, STAND_IN, mode=0o755)
            for (server, authority), place in zip(authorities.items(), PLACES, strict=True):
                certificate, key = authority.issue(server, server, addresses=[server])
                host.put(f"/etc/recorder/{server}.crt", certificate)
                host.put(f"/etc/recorder/{server}.key", key)
                host.put(place, authority.certificate.read_text() + authority.private_key.read_text(), mode=0o600)
            host.run(
                "rm -f /etc/ssl/certs/ca-certificates.crt"
            )  # the bundle that lies in the folder, and would be both
            host.run("systemd-run --quiet --unit=recorder --property=RuntimeMaxSec=1h python3 /tmp/recorder.py")
            runtimes.start(host, "containerd", "docker")
            runtimes.give_image(host, "docker")
            assert not toolkit(host)["failed"]
        yield hosts


@pytest.fixture(params=list(SYSTEMS))
def host(running: Hosts, request: pytest.FixtureRequest) -> Iterator[Host]:
    """One of them, whose runtimes have the NVIDIA runtime and pull without a proxy."""
    host = running.hosts[f"pulls{request.param.replace('.', '')}"]
    yield host
    host.run("docker rm --force stays; rm -rf /etc/systemd/system/docker.service.d/site.conf", check=False)
    host.run(
        "rm -rf /etc/systemd/system/containerd.service.d/guard.conf /etc/containerd/config.toml "
        "/etc/docker/daemon.json; systemctl daemon-reload"
    )
    toolkit(host, image_pulls={})
    toolkit(host, state="absent")
    restart(host)
    toolkit(host)


def toolkit(host: Host, **options: Any) -> dict[str, Any]:
    """One run; systemd has not seen too many restarts before it."""
    host.run("systemctl reset-failed containerd docker", check=False)
    return module(host, **options)


def pulled(host: Host, runtime: str, registry: str) -> list[str]:
    """What the proxy was asked for while a daemon pulled an image, which no registry has."""
    host.run("rm -f /run/recorder.log")
    image = f"{registry}/busybox:1"
    if runtime == "docker":
        host.run(["timeout", "30", "docker", "pull", "--quiet", image], check=False)
    else:
        host.run(["env", f"PYTHONPATH={LIBRARY}", "python3", "-B", "/tmp/pull.py", image])
    return host.run("cat /run/recorder.log", check=False).stdout.splitlines()


def inside(lines: list[str], name: str) -> bool:
    """Whether the daemon trusted the proxy's certificate, and asked it for the image."""
    return any(line.startswith(f"INSIDE {name} ") and "/v2/" in line for line in lines)


def environ(host: Host, runtime: str) -> list[str]:
    pid = host.run(["systemctl", "show", "--property=MainPID", "--value", runtime]).stdout.strip()
    return host.run(f"tr '\\0' '\\n' </proc/{pid}/environ").stdout.splitlines()


def all_started(host: Host) -> list[str]:
    return [started(host, unit) for unit in ("containerd", "docker")]


def done(result: dict[str, Any]) -> dict[str, Any]:
    assert not result["failed"], result["msg"]
    assert PASSWORD not in json.dumps(result)
    return result


def test_daemons_pull_by_the_proxy_and_trust_its_certificates_besides_the_hosts(host: Host) -> None:
    before, restarted = host.snapshot(), all_started(host)
    # An environment that says nothing is left as it is.
    assert done(toolkit(host, image_pulls={}))["plan"] == []
    assert (differences(before, host.snapshot()), all_started(host)) == ([], restarted)
    pulls = {"proxy": PROXY, "no_proxy": ["direct.example.com", "192.0.2.0/24"]}
    planned = done(toolkit(host, check=True, image_pulls=pulls))
    assert (differences(before, host.snapshot()), all_started(host)) == ([], restarted)
    first = done(toolkit(host, image_pulls=pulls))
    assert [action["id"] for action in first["plan"]] == [action["id"] for action in planned["plan"]]
    assert {action["id"] for action in first["plan"]} >= {"containerd-restart", "docker-restart"}
    assert {"containerd-environment", "docker-environment", "docker-live"} <= {one["id"] for one in first["verified"]}
    for runtime in ("containerd", "docker"):
        lines = pulled(host, runtime, INSIDE)
        assert f"CONNECT {INSIDE}:443 puller:p@ss$word" in lines, lines
        assert not inside(lines, INSIDE), lines  # nobody trusts it yet
        assert pulled(host, runtime, "direct.example.com") == []
        # Nobody but root reads the password: not in the file, and not by asking systemd.
        assert PASSWORD in host.run(["cat", FILES[1].format(runtime)]).stdout
        assert host.run(["runuser", "-u", "admin", "--", "cat", FILES[1].format(runtime)], check=False).returncode == 1
        assert PASSWORD not in host.run(["runuser", "-u", "admin", "--", "systemctl", "show", runtime]).stdout
    with_ca = pulls | {"ca_file": CA}
    done(toolkit(host, image_pulls=with_ca))
    for runtime in ("containerd", "docker"):
        assert inside(pulled(host, runtime, INSIDE), INSIDE)
        for server in TRUSTED:
            assert inside(pulled(host, runtime, server), server)
        assert "PRIVATE KEY" not in host.run(f"cat /etc/gpufleet/{runtime}.service/certificates/*").stdout
    held, restarted = host.snapshot(), all_started(host)
    second = done(toolkit(host, image_pulls=with_ca))
    assert (second["changed"], second["plan"]) == (False, [])
    # Not asked for is not taken away.
    assert done(toolkit(host))["plan"] == []
    assert (differences(held, host.snapshot()), all_started(host)) == ([], restarted)
    gone = done(toolkit(host, image_pulls={"proxy": "", "no_proxy": [], "ca_file": ""}))
    assert {"containerd-restart", "docker-restart"} <= {action["id"] for action in gone["plan"]}
    assert not any(host.exists(path.format(runtime)) for path in FILES for runtime in ("containerd", "docker"))
    for runtime in ("containerd", "docker"):
        assert not [line for line in environ(host, runtime) if "PROXY" in line or "GPUFLEET" in line]
        assert pulled(host, runtime, INSIDE) == []


def test_what_was_there_is_given_back(host: Host) -> None:
    toolkit(host, state="absent")
    before = host.snapshot()
    done(toolkit(host, image_pulls={"proxy": PROXY, "ca_file": CA}))
    assert any("HTTPS_PROXY" in line for line in environ(host, "docker"))
    back = done(toolkit(host, state="absent"))
    assert {one["id"] for one in back["verified"] if one["ok"]} >= {"containerd-environment", "docker-environment"}
    assert differences(before, host.snapshot()) == []
    for runtime in ("containerd", "docker"):
        assert not [line for line in environ(host, runtime) if "PROXY" in line or "GPUFLEET" in line]
        assert "gpufleet" not in host.run(["systemctl", "show", "--property=DropInPaths", runtime]).stdout
    assert done(toolkit(host, state="absent"))["plan"] == []


@pytest.mark.parametrize("host", ["1.7"], indirect=True)
def test_a_restart_that_would_end_containers_is_refused_until_it_does_not(host: Host) -> None:
    pulls = {"proxy": PROXY}
    host.run(["docker", "run", "--detach", "--name", "stays", "--network", "none", runtimes.BUSYBOX])
    before, pids, restarted = host.snapshot(), containers(host), all_started(host)
    refused = toolkit(host, image_pulls=pulls)
    assert "ends its 1 running containers" in refused["msg"]
    assert "accept: [restart_stops_containers]" in refused["msg"]
    assert (differences(before, host.snapshot()), all_started(host)) == ([], restarted)
    # With restart: false the files are there, and whoever restarts it later gets what they say.
    owed = done(toolkit(host, image_pulls=pulls, restart=False))
    assert {one["id"] for one in owed["findings"]} >= {"restart_owed"}
    assert (containers(host), all_started(host)) == (pids, restarted)
    assert "gpufleet" in host.run(["systemctl", "show", "--property=DropInPaths", "docker"]).stdout
    assert "ends its 1 running containers" in toolkit(host, image_pulls=pulls)["msg"]
    host.put(
        "/etc/docker/daemon.json",
        host.get("/etc/docker/daemon.json").decode().replace("{", '{"live-restore": true, ', 1),
    )
    host.run(["systemctl", "reload", "docker"])
    done(toolkit(host, image_pulls=pulls))
    assert containers(host) == pids
    assert f"HTTPS_PROXY={PROXY}" in environ(host, "docker")
    # And the way back, with a container that a restart would end.
    host.put(
        "/etc/docker/daemon.json", host.get("/etc/docker/daemon.json").decode().replace('"live-restore": true, ', "", 1)
    )
    host.run("systemctl reload docker; docker info --format '{{.LiveRestoreEnabled}}'")
    held = host.snapshot()
    if host.run(["docker", "info", "--format", "{{.LiveRestoreEnabled}}"]).stdout.strip() == "false":
        assert "ends its 1 running containers" in toolkit(host, state="absent")["msg"]
        assert differences(held, host.snapshot()) == []
    done(toolkit(host, state="absent", accept=["restart_stops_containers"]))
    assert not [line for line in environ(host, "docker") if "PROXY" in line]


@pytest.mark.parametrize("host", ["1.7"], indirect=True)
def test_what_somebody_else_set_is_told_and_not_overwritten(host: Host) -> None:
    site = "/etc/systemd/system/docker.service.d/site.conf"
    host.run("mkdir -p /etc/systemd/system/docker.service.d")
    host.put(site, '[Service]\nEnvironment="HTTPS_PROXY=http://other.example.com:3128" \\\n  A=b\n')
    host.run("systemctl daemon-reload")
    before, restarted = host.snapshot(), all_started(host)
    refused = toolkit(host, image_pulls={"proxy": PROXY})
    assert f"{site}: sets HTTPS_PROXY for docker.service already" in refused["msg"]
    assert PASSWORD not in json.dumps(refused)
    assert (differences(before, host.snapshot()), all_started(host)) == ([], restarted)
    # For Docker alone: containerd may be told.
    done(toolkit(host, image_pulls={"proxy": PROXY}, runtimes=[{"name": "containerd"}]))
    assert f"HTTPS_PROXY={PROXY}" in environ(host, "containerd")


@pytest.mark.parametrize("host", ["1.7"], indirect=True)
def test_a_daemon_that_does_not_come_up_gets_its_old_environment_back(host: Host) -> None:
    """As by a unit that refuses whatever is started with a proxy."""
    done(toolkit(host, image_pulls={"no_proxy": ["a.example.com"]}))
    host.put(
        "/etc/systemd/system/containerd.service.d/guard.conf",
        "[Service]\nExecStartPre=/bin/sh -c 'test -z \"$HTTPS_PROXY\"'\n",
    )
    host.run("systemctl daemon-reload")
    before = host.snapshot()
    failed = toolkit(host, image_pulls={"proxy": PROXY}, runtimes=[{"name": "containerd"}], restart_timeout=10)
    assert failed["failed"]
    assert "The old files are back, and containerd.service runs with them." in failed["msg"]
    assert PASSWORD not in json.dumps(failed)
    assert [line for line in differences(before, host.snapshot()) if "/var/lib/gpufleet" not in line] == []
    assert "NO_PROXY=a.example.com" in environ(host, "containerd")
    assert host.run(["stat", "--format=%a", FILES[1].format("containerd")]).stdout == "600\n"


@pytest.mark.parametrize("host", ["1.7"], indirect=True)
def test_a_containerd_that_is_there_for_docker_alone_is_not_waited_for(host: Host) -> None:
    """Its CRI is off, so that nobody answers what other runs wait for."""
    toolkit(host, state="absent")
    host.put("/etc/containerd/config.toml", 'disabled_plugins = ["cri"]\n')
    host.run(["systemctl", "restart", "containerd"])
    before = host.snapshot()
    done(toolkit(host, image_pulls={"proxy": PROXY}))
    assert f"HTTPS_PROXY={PROXY}" in environ(host, "containerd")
    assert done(toolkit(host, image_pulls={"proxy": PROXY}))["plan"] == []
    done(toolkit(host, state="absent"))
    assert differences(before, host.snapshot()) == []
    assert not [line for line in environ(host, "containerd") if "PROXY" in line]


@pytest.mark.parametrize("host", ["1.7"], indirect=True)
def test_a_run_that_is_killed_at_any_step_is_ended_by_the_next(host: Host) -> None:
    pulls = {"proxy": PROXY, "ca_file": CA}
    only = [{"name": "containerd"}]
    steps = len(done(toolkit(host, image_pulls=pulls, runtimes=only))["steps"])
    killed = 0
    for at in range(1, steps + 1, 2):
        done(toolkit(host, image_pulls={}, runtimes=only))
        killed += bool(
            toolkit(host, image_pulls=pulls, runtimes=only, at=at, moment="after", fault="kill").get("killed")
        )
        done(toolkit(host, image_pulls=pulls, runtimes=only))
        assert f"HTTPS_PROXY={PROXY}" in environ(host, "containerd"), at
        assert done(toolkit(host, image_pulls=pulls, runtimes=only))["plan"] == [], at
    assert killed > 8


ROLE = """
- hosts: gpu_hosts
  gather_facts: false
  roles:
    - role: gpufleet.nvidia.container_toolkit
"""


@pytest.mark.parametrize("host", ["1.7"], indirect=True)
def test_one_variable_of_the_inventory_reaches_the_daemons(running: Hosts, host: Host, tmp_path: Path) -> None:
    book = tmp_path / "book.yml"
    book.write_text(ROLE)

    def role(**variables: Any) -> str:
        given = json.dumps({"container_toolkit_packages": "none", **variables})
        ended = playbook(running.inventory(), book, "--limit", host.name, "--diff", "-vvv", "-e", given)
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    fleet = {
        "gpufleet_proxy": "http://127.0.0.1:3128",
        "gpufleet_no_proxy": "direct.example.com",
        "gpufleet_ca_file": CA,
    }
    role(**fleet)
    for runtime in ("containerd", "docker"):
        assert inside(pulled(host, runtime, INSIDE), INSIDE)
        assert pulled(host, runtime, "direct.example.com") == []
    # The role's own variable says otherwise, with a password, which nothing of the output tells.
    said = role(**fleet, container_toolkit_image_pulls={"proxy": PROXY, "no_proxy": []})
    assert "EnvironmentFile" not in said  # the drop-in is as it was
    assert "GPUFLEET_IMAGE_PULLS" in said
    assert PASSWORD not in said
    assert f"CONNECT {INSIDE}:443 puller:p@ss$word" in pulled(host, "docker", INSIDE)
    assert not any(line.startswith("NO_PROXY") for line in environ(host, "docker"))
    role()
    assert pulled(host, "docker", INSIDE) == []
