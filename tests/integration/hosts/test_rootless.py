# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""container_toolkit and Docker that a user really runs without root, with a systemd of the user's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.on_hosts import give
from ansible_collections.gpufleet.nvidia.tests.integration.hosts.test_container_toolkit import (
    PROGRAM,
    RUN,
    STAND_IN,
    toolkit,
)
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences

pytestmark = pytest.mark.hosts
USER, HOME = "admin", "/home/admin"
CONFIG, OURS = f"{HOME}/.config/docker/daemon.json", [{"name": "docker", "user": USER}]
# What Docker's own start script comes to, with the host's network: nobody but root makes one on a host that is a
# container.
UNIT = """\
[Unit]
Description=Docker without root
[Service]
Environment=PATH=/usr/bin:/sbin:/usr/sbin:/bin
ExecStart=/usr/bin/rootlesskit --net=host --copy-up=/etc --copy-up=/run --state-dir=%t/rootlesskit \\
  sh -c 'rm -f /run/docker /run/containerd; exec dockerd --iptables=false --bridge=none --storage-driver=vfs'
Type=notify
NotifyAccess=all
KillMode=mixed
Delegate=yes
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with Hosts(tmp_path_factory.mktemp("rootless")) as hosts:
        host = hosts.start("rootless", "debian13-rootless")
        give(host, "plugins/module_utils", "tests/helpers/faults.py")
        host.put("/tmp/run.py", RUN)
        host.put(PROGRAM, STAND_IN, mode=0o755)
        host.run(
            f"grep -q ^{USER}: /etc/subuid || usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {USER}"
        )
        host.put(f"{HOME}/.config/systemd/user/docker.service", UNIT)
        host.run(f"chown -R {USER}: {HOME} && loginctl enable-linger {USER}")
        host.run("for _ in $(seq 100); do test -S /run/user/1000/bus && exit; sleep 0.1; done; exit 1")
        as_user(host, "systemctl --user start docker.service")
        yield host


def as_user(host: Host, command: str) -> str:
    words = ["runuser", "-u", USER, "--", "env", "XDG_RUNTIME_DIR=/run/user/1000", "sh", "-c", command]
    return host.run(words, timeout=120).stdout


def info(host: Host) -> dict[str, Any]:
    said = as_user(host, "DOCKER_HOST=unix:///run/user/1000/docker.sock docker info --format '{{json .}}'")
    found: dict[str, Any] = json.loads(said)
    return found


@pytest.mark.rows("H074", "RT-04")
def test_a_users_docker_gets_the_runtime_without_a_restart_and_gives_it_back(host: Host) -> None:
    before, pid = host.snapshot(), as_user(host, "cat /run/user/1000/docker.pid")
    planned = toolkit(host, check=True, runtimes=OURS)
    assert differences(before, host.snapshot()) == []
    assert [action["target"] for action in planned["plan"]] == [
        "/etc/nvidia-container-runtime/config.toml", CONFIG, f"docker.service of {USER}",
    ]  # fmt: skip
    done = toolkit(host, runtimes=OURS)
    assert not done["failed"], done["msg"]
    assert info(host)["Runtimes"]["nvidia"]["path"] == PROGRAM
    assert as_user(host, "cat /run/user/1000/docker.pid") == pid
    owner = host.run(["stat", "-c", "%U %a", f"{HOME}/.config/docker", CONFIG]).stdout.split()
    assert owner == [USER, "755", USER, "644"]
    assert "no-cgroups = true" in host.run("cat /etc/nvidia-container-runtime/config.toml").stdout
    again = toolkit(host, runtimes=OURS)
    assert (again["failed"], again["changed"], again["plan"]) == (False, False, [])
    back = toolkit(host, state="absent")
    assert not back["failed"], back["msg"]
    assert "nvidia" not in info(host)["Runtimes"]
    assert differences(before, host.snapshot()) == []


@pytest.mark.rows("H074")
def test_links_in_a_users_home_do_not_lead_to_roots_files(host: Host) -> None:
    """Root would write /etc/docker/daemon.json for the user; the user may not, and so it stays."""
    as_user(host, f"mkdir -p {HOME}/.config && ln -s /etc/docker {HOME}/.config/docker")
    host.run("mkdir -p /etc/docker && echo '{}' >/etc/docker/daemon.json && chmod 644 /etc/docker/daemon.json")
    failed = toolkit(host, runtimes=OURS)
    as_user(host, f"rm {HOME}/.config/docker")
    assert failed["failed"]
    assert host.run("cat /etc/docker/daemon.json").stdout == "{}\n"
    assert not toolkit(host, state="absent")["failed"]
