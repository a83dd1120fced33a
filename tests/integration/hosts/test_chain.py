# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/hosts.yml on two hosts: a look at all first, then host by host, and nothing more after one that fails."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.documents import CHECKOUT
from ansible_collections.gpufleet.nvidia.tests.testbed.dcgm import install
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences

pytestmark = pytest.mark.hosts
COUNTERS = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature\nDCGM_FI_DEV_FB_USED, gauge, Used\n"
USUAL: dict[str, Any] = {
    "gpufleet_components": ["toolkit", "mig", "exporter"],  # the image brings the driver
    "container_toolkit_packages": "none",
    "dcgm_exporter_metrics": COUNTERS,
    "dcgm_exporter_scrape_timeout": 20,
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with Hosts(tmp_path_factory.mktemp("chain")) as running:
        for name in ("gpu-1", "gpu-2"):
            host = running.start(name, "debian13")
            gpus.install(host, "--product", "A30", "--count", "1")
            install.install(host)
            host.ssh("sudo true")
        yield running


def play(hosts: Hosts, *options: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", hosts.inventory(), "playbooks/hosts.yml"]
    command += ["--extra-vars", json.dumps({**USUAL, **variables}), *options]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=300)


def metrics(host: Host) -> str:
    program = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9400/metrics').read().decode())"
    return host.run(["python3", "-c", program]).stdout


@pytest.mark.rows("S09", "S21")
def test_the_chain_and_its_budget(hosts: Hosts) -> None:
    one, two = hosts.hosts["gpu-1"], hosts.hosts["gpu-2"]
    before = {name: host.snapshot() for name, host in hosts.hosts.items()}

    # What cannot be is found on all hosts before the first is changed.
    refused = play(hosts, gpufleet_components=["toolkit", "drivers"])
    assert refused.returncode
    assert "has drivers; allowed are" in refused.stdout
    two.run([gpus.PROGRAM, "set", gpus.STATE, "driver_state=unloaded"])
    refused = play(hosts)
    assert refused.returncode
    assert "The driver of gpu-2 is" in refused.stdout
    two.run([gpus.PROGRAM, "set", gpus.STATE, "driver_state=loaded"])
    planned = play(hosts, "--check")
    assert planned.returncode == 0, planned.stdout
    for name, host in hosts.hosts.items():
        assert differences(before[name], host.snapshot()) == []

    # One that fails leaves those after it as they are.
    one.run(["mv", install.EXPORTER, "/root/exporter"])
    failed = play(hosts)
    assert failed.returncode
    assert "NVIDIA publishes no package of the exporter" in failed.stdout
    assert differences(before["gpu-2"], two.snapshot()) == []
    one.run(["mv", "/root/exporter", install.EXPORTER])

    done = play(hosts, mig_partition_layout=[{"profiles": {"1g.6gb": 4}}])
    assert done.returncode == 0, done.stdout
    assert "Left out on gpu-1: driver, cuda" in done.stdout
    for host in (one, two):
        assert metrics(host).count("DCGM_FI_DEV_FB_USED{") == 4
    again = play(hosts, mig_partition_layout=[{"profiles": {"1g.6gb": 4}}])
    assert again.stdout.count("changed=0") == 2, again.stdout
    left = play(hosts)
    assert "Left out on gpu-2: driver, cuda, mig (no layout is asked for)" in left.stdout
