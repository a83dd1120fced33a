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
SLICED = [{"profiles": {"1g.6gb": 4}}]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with Hosts(tmp_path_factory.mktemp("chain")) as running:
        for name in ("gpu-1", "gpu-2"):
            host = running.start(name, "debian13")
            gpus.install(host, "--product", "A30", "--count", "1")
            install.install(host)
            host.ssh("sudo true")  # what logging in leaves behind
        yield running


def play(hosts: Hosts, *options: str, book: str = "hosts.yml", **variables: Any) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", hosts.inventory(), f"playbooks/{book}"]
    command += ["--extra-vars", json.dumps({**USUAL, **variables}), *options]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=300)


def metrics(host: Host) -> str:
    program = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9400/metrics').read().decode())"
    return host.run(["python3", "-c", program]).stdout


@pytest.mark.rows("S30")
def test_what_cannot_be_is_found_on_all_hosts_before_the_first_is_changed(hosts: Hosts) -> None:
    before = {name: host.snapshot() for name, host in hosts.hosts.items()}
    refused = play(hosts, gpufleet_components=["toolkit", "drivers"])
    assert refused.returncode
    assert "has drivers; allowed are" in refused.stdout, refused.stdout
    two = hosts.hosts["gpu-2"]
    two.run(["mv", install.EXPORTER, "/root/exporter"])
    refused = play(hosts)
    two.run(["mv", "/root/exporter", install.EXPORTER])
    assert refused.returncode
    assert "gpu-2 has no program" in refused.stdout, refused.stdout
    refused = play(hosts, gpufleet_components=["toolkit", "cuda"], cuda_toolkit_version="13.9")
    assert refused.returncode
    assert "CUDA 13.9 is not in the matrix" in refused.stdout, refused.stdout
    assert "PLAY [Components]" not in refused.stdout, refused.stdout
    planned = play(hosts, "--check")
    assert planned.returncode == 0, planned.stdout
    for name, host in hosts.hosts.items():
        assert differences(before[name], host.snapshot()) == []


@pytest.mark.rows("S30", "S36")
@pytest.mark.parametrize("book", ["hosts.yml", "preflight.yml"])
def test_a_driver_and_a_cuda_that_do_not_fit_are_refused_before_anything_is_written(hosts: Hosts, book: str) -> None:
    before = {name: host.snapshot() for name, host in hosts.hosts.items()}
    wanted = {"nvidia_driver_branch": 535, "nvidia_driver_accept": ["driver_of_image"], "cuda_toolkit_version": "13.0"}
    refused = play(hosts, book=book, gpufleet_components=["driver", "cuda"], **wanted)
    assert refused.returncode
    assert "beside.cuda_toolkit.version: CUDA 13.0 needs driver 580 or newer" in refused.stdout, refused.stdout
    assert "The matrix says: CUDA 13.0: branch 580" in refused.stdout, refused.stdout
    fits = play(hosts, book=book, gpufleet_components=["driver", "cuda"], **{**wanted, "cuda_toolkit_version": "12.2"})
    assert "host_preflight" in fits.stdout
    assert "beside.cuda_toolkit" not in fits.stdout, fits.stdout
    for name, host in hosts.hosts.items():
        assert differences(before[name], host.snapshot()) == []


@pytest.mark.rows("S09", "S21")
def test_the_chain_host_by_host_and_a_second_run_that_has_nothing_to_do(hosts: Hosts) -> None:
    done = play(hosts, mig_partition_layout=SLICED)
    assert done.returncode == 0, done.stdout
    assert "Left out on gpu-1: driver, cuda" in done.stdout, done.stdout
    for host in hosts.hosts.values():
        assert metrics(host).count("DCGM_FI_DEV_FB_USED{") == 4
    again = play(hosts, mig_partition_layout=SLICED)
    assert again.stdout.count("changed=0") == 2, again.stdout
    left = play(hosts)
    assert "Left out on gpu-2: driver, cuda, mig (no layout is asked for)" in left.stdout, left.stdout


def test_a_host_that_fails_leaves_those_after_it_as_they_are(hosts: Hosts) -> None:
    before = hosts.hosts["gpu-2"].snapshot()
    failed = play(hosts, mig_partition_layout=[{"profiles": {"9g.99gb": 1}}])
    assert failed.returncode
    assert "9g.99gb" in failed.stdout, failed.stdout
    assert differences(before, hosts.hosts["gpu-2"].snapshot()) == []
