# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_info over SSH on hosts with systemd: as root, as a user, before a driver is there and after."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences

pytestmark = pytest.mark.hosts


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hosts, Host]]:
    """A host of its own, since GPUs stay on a host."""
    with Hosts(tmp_path_factory.mktemp("info")) as hosts:
        yield hosts, hosts.start("info", "debian13")


def read(hosts: Hosts, *words: str) -> dict[str, Any]:
    """The module's answer, which is as documented."""
    command = [Path(sys.executable).with_name("ansible"), "-i", hosts.inventory(), "gpu_hosts", "-m"]
    words = ("gpufleet.nvidia.gpu_info", *words)
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.partition("=>")[2])
    assert undocumented("gpu_info", answer) == []
    return answer


def test_a_host_without_a_driver(running: tuple[Hosts, Host]) -> None:
    hosts, _host = running
    found = read(hosts)["found"]
    assert (found["gpus"], found["driver"]["state"], found["host"]["os_id"]) == ([], "absent", "debian")
    assert found["nvml"]["state"] in ("no_pynvml", "no_library")


def test_a_host_with_gpus_holders_and_runtimes(running: tuple[Hosts, Host]) -> None:
    hosts, host = running
    # sudo gives the variables by which the double knows its state to nobody: this Python has them.
    variables = " ".join(f"{name}={value}" for name, value in gpus.VARIABLES.items())
    host.put("/usr/local/bin/gpu-python", f'#!/bin/sh\nexec env {variables} python3 "$@"\n', mode=0o755)
    python = ("-e", "ansible_python_interpreter=/usr/local/bin/gpu-python")
    gpus.install(host, "--product", "H100-SXM5-80GB", "--count", "2")
    host.run([gpus.PROGRAM, "set", gpus.STATE, "gpu=1", "mig=1", "instance=9@4", "instance=19@0"])
    # A file of the right name that anybody may open, and a service that holds it.
    host.run("mknod -m 666 /dev/nvidia1 c 1 3")
    host.run("systemd-run --unit gpu-holder sh -c 'exec sleep 600 3</dev/nvidia1'")
    host.run("systemd-run --unit fake-runtime systemd-socket-activate -l /run/containerd/containerd.sock true")
    host.put("/etc/containerd/config.toml", "version = 2\n[plugins.'nvidia']\n")
    host.put("/etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndevices:\n- name: '0'\n")
    host.put("/etc/modprobe.d/blacklist-nouveau.conf", "blacklist nouveau\n")
    before, written = host.snapshot(), len([call for call in gpus.calls(host) if call["write"]])

    root = read(hosts, *python)
    user = read(hosts, "-e", "ansible_become=false", *python)

    assert differences(before, host.snapshot()) == []
    assert len([call for call in gpus.calls(host) if call["write"]]) == written
    found = root["found"]
    assert found["nvml"]["state"] == "ok", (found["nvml"], found["nvidia_smi"], found["problems"])
    assert [(gpu["name"], gpu["mig"]["current"]) for gpu in found["gpus"]] == [
        ("NVIDIA H100 80GB HBM3", "disabled"),
        ("NVIDIA H100 80GB HBM3", "enabled"),
    ]
    assert [(one["profile"], one["start"]) for one in found["gpus"][1]["mig"]["instances"]] == [
        ("1g.10gb", 0),
        ("3g.40gb", 4),
    ]
    assert found["driver"]["state"] == "ready"
    assert found["driver"]["rivals"][0]["blocked_by"] == ["/etc/modprobe.d/blacklist-nouveau.conf"]
    (holder,) = [one for one in found["processes"] if "/dev/nvidia1" in one["files"]]
    assert (holder["name"], holder["user"], holder["unit"], holder["gpus"]) == ("sleep", 0, "gpu-holder.service", [1])
    (runtime,) = [one for one in found["runtimes"] if one["name"] == "containerd"]
    assert (runtime["socket"], runtime["listening"]) == ("/run/containerd/containerd.sock", "yes")
    assert runtime["mentions_nvidia"]
    assert [one["devices"] for one in found["cdi"]] == [["0"]]

    assert user["found"]["gpus"] == found["gpus"]
    assert user["found"]["runtimes"] == found["runtimes"]
    assert not any(one["files"] for one in user["found"]["processes"])
    told = [one["remedy"] for one in user["found"]["problems"] if one["part"] == "processes"]
    assert "Run with become: true." in told
