# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dcgm_exporter on a host: real apt, systemd and Prometheus; DCGM's programs are played, and read the NVML double."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented
from ansible_collections.gpufleet.nvidia.tests.testbed.dcgm import install
from ansible_collections.gpufleet.nvidia.tests.testbed.dcgm.packages import FOUR
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences

pytestmark = pytest.mark.hosts

UNIT, ENGINE = "nvidia-dcgm-exporter.service", "nvidia-dcgm.service"
SHORT = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature\nDCGM_FI_DEV_FB_USED, gauge, Used\nDCGM_FI_DRIVER_VERSION, label, x\n"


class Place:
    """The host, and how the module is called on it."""

    def __init__(self, hosts: Hosts, host: Host) -> None:
        self.hosts, self.host = hosts, host

    def run(self, *, check: bool = False, **options: Any) -> dict[str, Any]:
        """One call by Ansible over SSH; its answer is what RETURN says."""
        arguments = json.dumps({"platform": "systemd", "scrape_timeout": 20, **options})
        command = [Path(sys.executable).with_name("ansible"), "-i", self.hosts.inventory(), "gpu_hosts"]
        command += ["-m", "gpufleet.nvidia.dcgm_exporter", "-a", arguments, "--diff", *(["--check"] if check else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert "=>" in done.stdout, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.partition("=>")[2])
        assert undocumented("dcgm_exporter", answer) == []
        assert answer.get("failed", False) == (done.returncode != 0)
        return answer

    def started(self, unit: str) -> str:
        return self.host.run(
            ["systemctl", "show", "--property=ExecMainStartTimestampMonotonic", "--value", unit]
        ).stdout

    def products(self, product: str, count: int) -> None:
        self.host.run([gpus.PROGRAM, "create", "--product", product, "--count", str(count), gpus.STATE])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Hosts(tmp_path_factory.mktemp("dcgm")) as hosts:
        host = hosts.start("telemetry", "debian12-prometheus")
        gpus.install(host, "--product", "H100-SXM5-80GB", "--count", "2")
        install.install(host)
        install.scrape(host, "127.0.0.1:9400")
        place = Place(hosts, host)
        place.run(check=True)  # what logging in leaves behind
        yield place


@pytest.fixture
def clean(place: Place) -> Iterator[Place]:
    """The host as it was found, before and after."""
    place.products("H100-SXM5-80GB", 2)
    before = place.host.snapshot()
    yield place
    place.run(state="absent")
    # Prometheus' own data goes on.
    left = [line for line in differences(before, place.host.snapshot()) if "/var/lib/prometheus" not in line]
    assert left == []


def verbs(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(action["verb"], action["target"]) for action in answer["plan"]]


@pytest.mark.rows("H085", "H086", "H088", "H089", "S21", "P120")
def test_every_wanted_metric_reaches_a_real_prometheus(clean: Place) -> None:
    planned = clean.run(check=True)
    assert ("install", f"{FOUR}-cuda13") in verbs(planned)
    assert planned["verified"] == []
    done = clean.run()
    assert not done.get("failed"), done["msg"]
    assert verbs(done) == verbs(planned)
    assert all(check["ok"] for check in done["verified"])
    absent = {one["name"]: one["reason"] for one in done["found"]["metrics"]["absent"]}
    assert absent == {"DCGM_FI_DEV_VGPU_LICENSE_STATUS": "the host has no vGPU"}
    started = clean.started(UNIT), clean.started(ENGINE)
    again = clean.run()
    assert (again["changed"], again["plan"]) == (False, [])
    assert not clean.run(check=True)["changed"]
    assert (clean.started(UNIT), clean.started(ENGINE)) == started

    host = clean.host
    held = host.run(["apt-mark", "showhold"]).stdout.split()
    assert held == [f"{FOUR}-core", f"{FOUR}-cuda13"]
    deadline = time.monotonic() + 20
    while not (found := install.query(host, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert {one["metric"]["UUID"] for one in found} == {one["uuid"] for one in gpus.show(host)["gpus"]}
    assert found[0]["metric"]["DCGM_FI_DRIVER_VERSION"] == gpus.show(host)["driver"]
    assert install.query(host, "up")[0]["value"][1] == "1"
