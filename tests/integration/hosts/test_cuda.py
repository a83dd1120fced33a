# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cuda_toolkit on a host with real apt: one minor, tied to the driver by the matrix, and everything given back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.ansible_runs import module
from ansible_collections.gpufleet.nvidia.tests.testbed.dcgm import install
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences
from ansible_collections.gpufleet.nvidia.tests.testbed.packages import cuda

pytestmark = pytest.mark.hosts


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hosts, Host]]:
    with Hosts(tmp_path_factory.mktemp("cuda")) as hosts:
        host = hosts.start("builder", "debian12")
        gpus.install(host, "--product", "T4", "--count", "1")
        install.serve(host, cuda.packages())
        host.ssh("sudo true")
        yield hosts, host


def run(hosts: Hosts, *more: str, **options: Any) -> dict[str, Any]:
    return module(hosts, "cuda_toolkit", *more, **options)


def compiler(host: Host) -> str:
    return host.run(["/usr/local/cuda/bin/nvcc", "--version"]).stdout


@pytest.mark.rows("S35", "S36")
def test_one_minor_by_the_driver_and_back(running: tuple[Hosts, Host]) -> None:
    hosts, host = running
    before = host.snapshot()
    assert run(hosts, "--check", version="13.0")["changed"]
    assert differences(before, host.snapshot()) == []

    host.run([gpus.PROGRAM, "set", gpus.STATE, "driver=535.309.01", "cuda=12020"])
    refused = run(hosts, version="13.0")
    assert refused["failed"]
    assert "CUDA 13.0 needs driver 580 or newer" in refused["msg"]
    assert "CUDA 13.0: branch 580" in refused["msg"]  # the row
    newer = run(hosts, version="12.9")
    assert not newer.get("failed"), newer["msg"]
    assert "cuda_newer_than_driver" in {finding["id"] for finding in newer["findings"]}
    assert "release 12.9," in compiler(host)
    assert not run(hosts, version="12.9")["changed"]

    host.run([gpus.PROGRAM, "set", gpus.STATE, "driver=580.159.04", "cuda=13000"])
    beside = run(hosts, version="13.1", default=False)
    assert not beside.get("failed"), beside["msg"]
    assert host.run(["/usr/local/cuda-13.1/bin/nvcc", "--version"]).stdout
    assert "release 12.9," in compiler(host)
    moved = run(hosts, version="13.1")
    assert [action["verb"] for action in moved["plan"]] == ["update"]
    assert "release 13.1," in compiler(host)
    assert "is no CUDA minor" in run(hosts, version="12")["msg"]
    assert "is not to be had" in run(hosts, version="13.0", package_version="13.0.9")["msg"]

    gone = run(hosts, state="absent")
    assert not gone.get("failed"), gone["msg"]
    assert host.run("dpkg-query -W -f '${Package} ${db:Status-Abbrev}\\n' 'cuda-*'", check=False).stdout == ""
    # apt's list of what came as a dependency is made, and stays.
    assert set(differences(before, host.snapshot())) <= {"new: /var/lib/apt/extended_states"}
    assert not run(hosts, state="absent")["changed"]
