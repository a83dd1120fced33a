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

from ansible_collections.gpufleet.nvidia.tests.helpers.documents import options
from ansible_collections.gpufleet.nvidia.tests.helpers.on_hosts import LIBRARY, MODULE, give
from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented
from ansible_collections.gpufleet.nvidia.tests.testbed.dcgm import install
from ansible_collections.gpufleet.nvidia.tests.testbed.dcgm.packages import CLOSED_MODULE, FOUR, THREE
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences

pytestmark = pytest.mark.hosts

UNIT, ENGINE = "nvidia-dcgm-exporter.service", "nvidia-dcgm.service"
SHORT = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature\nDCGM_FI_DEV_FB_USED, gauge, Used\nDCGM_FI_DRIVER_VERSION, label, x\n"


# As the module runs, without Ansible's wrapping: options from standard input, the result to standard output.
RUN = f"""
import json, sys
from {MODULE}.plugins.module_utils._dcgm_host._run import Tools, dcgm_exporter
from {MODULE}.plugins.module_utils._plan import Failure

given = json.load(sys.stdin)
diff = []
try:
    outcome = dcgm_exporter(given["params"], given["check"], lambda line: None, Tools())
    result, diff = outcome.result.as_dict(), outcome.diff
except Failure as failure:
    result = dict(failure.as_dict(), failed=True)
print(json.dumps([diff, result]))
"""
DEFAULTS = {name: words.get("default") for name, words in options("dcgm_exporter").items()}


class Place:
    """The host, and how the module is called on it."""

    def __init__(self, hosts: Hosts, host: Host) -> None:
        self.hosts, self.host = hosts, host
        give(host, "plugins/module_utils")
        host.put("/tmp/run.py", RUN)
        host.ssh("sudo true")  # what logging in leaves behind

    def run(self, *, check: bool = False, **given: Any) -> dict[str, Any]:
        """One run; its answer is what RETURN says."""
        params = {**DEFAULTS, "platform": "systemd", "scrape_timeout": 20, **given}
        command = ["env", f"PYTHONPATH={LIBRARY}", "python3", "-B", "/tmp/run.py"]
        done = self.host.run(command, stdin=json.dumps({"params": params, "check": check}).encode(), check=False)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any]
        self.diff, answer = json.loads(done.stdout)
        assert undocumented("dcgm_exporter", answer) == []
        return answer

    def ansible(self, *more: str, **given: Any) -> dict[str, Any]:
        """The same by Ansible over SSH."""
        command = [Path(sys.executable).with_name("ansible"), "-i", self.hosts.inventory(), "gpu_hosts", *more]
        arguments = json.dumps({"platform": "systemd", **given})
        command += ["-m", "gpufleet.nvidia.dcgm_exporter", "-a", arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert "=>" in done.stdout, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.partition("=>")[2])
        assert undocumented("dcgm_exporter", answer) == []
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
        host.run(["systemctl", "stop", "prometheus"])
        yield Place(hosts, host)


@pytest.fixture
def clean(place: Place) -> Iterator[Place]:
    """The host as it was found, before and after."""
    place.products("H100-SXM5-80GB", 2)
    before = place.host.snapshot()
    yield place
    place.run(state="absent")
    left = [line for line in differences(before, place.host.snapshot()) if "prometheus" not in line]
    assert left == []


def verbs(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(action["verb"], action["target"]) for action in answer["plan"]]


@pytest.mark.rows("H085", "H086", "H088", "H089", "S21", "P120")
def test_every_wanted_metric_reaches_a_real_prometheus(clean: Place) -> None:
    planned = clean.ansible("--check")
    assert ("install", f"{FOUR}-cuda13") in verbs(planned)
    assert clean.run(check=True)["plan"] == planned["plan"]
    headers = {one["after_header"]: one["after"] for one in clean.diff}
    assert "DCGM_FI_DEV_GPU_TEMP, gauge" in headers["/etc/dcgm-exporter/gpufleet-counters.csv"]
    assert planned["verified"] == []
    done = clean.run()
    assert not done.get("failed"), done["msg"]
    assert verbs(done) == verbs(planned)
    assert all(check["ok"] for check in done["verified"])
    absent = {one["name"]: one["reason"] for one in done["found"]["metrics"]["absent"]}
    assert absent == {"DCGM_FI_DEV_VGPU_LICENSE_STATUS": "the host has no vGPU"}
    started = clean.started(UNIT), clean.started(ENGINE)
    again = clean.ansible()
    assert (again["changed"], again["plan"]) == (False, [])
    assert not clean.run(check=True)["changed"]
    assert (clean.started(UNIT), clean.started(ENGINE)) == started

    host = clean.host
    install.scrape(host, "127.0.0.1:9400")
    held = host.run(["apt-mark", "showhold"]).stdout.split()
    assert held == [f"{FOUR}-core", f"{FOUR}-cuda13"]
    deadline = time.monotonic() + 20
    while not (found := install.query(host, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert {one["metric"]["UUID"] for one in found} == {one["uuid"] for one in gpus.show(host)["gpus"]}
    assert found[0]["metric"]["DCGM_FI_DRIVER_VERSION"] == gpus.show(host)["driver"]
    assert install.query(host, "up")[0]["value"][1] == "1"
    host.run(["systemctl", "stop", "prometheus"])


@pytest.mark.rows("H089", "P119")
def test_a_counters_file_that_would_end_the_exporter_is_refused_before_anything_is_written(clean: Place) -> None:
    before = clean.host.snapshot()
    refused = clean.run(metrics="DCGM_FI_DEV_GPU_TEMPS, gauge, a, b\nDCGM_FI_DEV_FB_USE, gauge, x\n")
    assert refused["failed"]
    assert "has not exactly three parts" in refused["msg"]
    assert "Did you mean DCGM_FI_DEV_FB_USED?" in refused["msg"]
    assert differences(before, clean.host.snapshot()) == []
    # The stand-in ends for such a file, as the real one does.
    clean.host.put("/tmp/bad.csv", "DCGM_FI_DEV_FB_USE, gauge, x\n")
    ended = clean.host.run(f"DCGM_EXPORTER_COLLECTORS=/tmp/bad.csv {install.EXPORTER}", check=False)
    assert "could not find DCGM field" in ended.stderr


@pytest.mark.rows("H086", "H091", "P125")
def test_it_starts_anew_only_when_something_that_it_works_with_has_changed(clean: Place) -> None:
    host = clean.host
    assert not clean.run(metrics=SHORT).get("failed")
    engine, exporter = clean.started(ENGINE), clean.started(UNIT)

    # The same in other words.
    assert not clean.run(metrics=SHORT.replace(", ", " ,  ") + "\n# end\n")["changed"]
    assert (clean.started(ENGINE), clean.started(UNIT)) == (engine, exporter)

    # One more metric: the exporter alone.
    more = SHORT + "DCGM_FI_DEV_SM_CLOCK, gauge, Clock\n"
    changed = clean.run(metrics=more)
    assert [verb for verb, _target in verbs(changed)] == ["update", "restart"]
    assert clean.started(ENGINE) == engine
    assert clean.started(UNIT) != exporter

    # MIG instances come: both, since the exporter knows those of its start.
    exporter = clean.started(UNIT)
    host.run([gpus.PROGRAM, "set", gpus.STATE, "gpu=0", "mig=1", "instance=9@4", "instance=19@0"])
    assert ("restart", UNIT) in verbs(clean.run(metrics=more, check=True))
    sliced = clean.run(metrics=more)
    assert not sliced.get("failed"), sliced["msg"]
    assert "of 2 of 2 MIG instances" in next(one["detail"] for one in sliced["verified"] if one["id"] == "gpus")
    assert not clean.run(metrics=more)["changed"]

    # Another driver's library takes the place of the one that the engine has in memory.
    engine = clean.started(ENGINE)
    host.run(f"cp {gpus.LIBRARY} /tmp/new && mv /tmp/new {gpus.LIBRARY}")
    replaced = clean.run(metrics=more)
    assert "a library that has been replaced" in next(a["reason"] for a in replaced["plan"] if a["target"] == ENGINE)
    assert clean.started(ENGINE) != engine
    assert not clean.run(metrics=more)["changed"]


@pytest.mark.rows("H086")
def test_a_change_of_the_driver_restarts_both_without_a_run(clean: Place) -> None:
    assert not clean.run(metrics=SHORT).get("failed")
    engine, exporter = clean.started(ENGINE), clean.started(UNIT)
    clean.host.run("cp -p /usr/bin/nvidia-smi /root/kept; echo >>/usr/bin/nvidia-smi")
    deadline = time.monotonic() + 20
    while clean.started(UNIT) == exporter and time.monotonic() < deadline:
        time.sleep(0.2)
    assert clean.started(ENGINE) != engine
    assert clean.started(UNIT) != exporter
    clean.host.run(["mv", "/root/kept", "/usr/bin/nvidia-smi"])
    assert not clean.run(metrics=SHORT).get("failed")


@pytest.mark.rows("H085")
def test_dcgm_3_goes_for_4_and_comes_back(clean: Place) -> None:
    host = clean.host
    host.run(f"apt-get -qq install --yes datacenter-gpu-manager=1:{THREE}-1 && systemctl enable --now {ENGINE}")
    planned = clean.run(check=True, metrics=SHORT)
    assert ("remove", "datacenter-gpu-manager") in verbs(planned)
    assert "dcgm_3" in {finding["id"] for finding in planned["findings"]}
    done = clean.run(metrics=SHORT)
    assert not done.get("failed"), done["msg"]
    assert not clean.run(metrics=SHORT)["changed"]
    back = clean.run(state="absent")
    assert not back.get("failed"), back["msg"]
    listed = host.run(
        "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n' 'datacenter-gpu-manager*'"
    ).stdout
    assert [line for line in listed.splitlines() if line.endswith("ii ")] == [f"datacenter-gpu-manager 1:{THREE}-1 ii "]
    assert host.run(["systemctl", "is-active", ENGINE]).stdout == "active\n"
    host.run(f"systemctl disable --now {ENGINE}; apt-get -qq purge --yes datacenter-gpu-manager")


@pytest.mark.rows("H085", "H091")
def test_ampere_gets_the_closed_module_and_its_profiling_metrics(clean: Place) -> None:
    clean.products("A30", 1)
    done = clean.run(dcgm_version="4.4.2")
    assert not done.get("failed"), done["msg"]
    assert ("install", f"{FOUR}-proprietary") in verbs(done)
    assert ("install", f"{FOUR}-proprietary-cuda13") in verbs(done)
    came = {one["name"] for one in done["found"]["metrics"]["absent"]}
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" not in came
    # Without it they are named with what to do, and everything else comes.
    clean.host.run(["rm", CLOSED_MODULE])
    clean.host.run(["systemctl", "restart", UNIT])
    without = clean.run(dcgm_version="4.4.2")
    assert not without.get("failed"), without["msg"]
    reasons = {one["name"]: one["reason"] for one in without["found"]["metrics"]["absent"]}
    assert "datacenter-gpu-manager-4-proprietary" in reasons["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
    clean.host.put(CLOSED_MODULE, "closed\n")
    moved = clean.run(dcgm_version="4.6.0")
    assert ("upgrade", f"{FOUR}-proprietary") in verbs(moved)
    assert ("restart", ENGINE) in verbs(moved)
    refused = clean.run(dcgm_version="4.9.9")
    assert "is not to be had in version 4.9.9" in refused["msg"]


@pytest.mark.rows("P120")
def test_a_metric_that_does_not_come_for_no_known_reason_fails_the_run_and_can_be_accepted(clean: Place) -> None:
    metrics = SHORT + "DCGM_FI_DEV_PSTATE, gauge, State\n"  # the stand-in knows it, and gives none
    failed = clean.run(metrics=metrics, scrape_timeout=2)
    assert failed["failed"]
    assert "without a reason that is known: DCGM_FI_DEV_PSTATE" in failed["msg"]
    taken = clean.run(metrics=metrics, scrape_timeout=2, accept=["metric_absent"])
    assert not taken.get("failed"), taken["msg"]
    assert {"name": "DCGM_FI_DEV_PSTATE", "reason": "unknown"} in taken["found"]["metrics"]["absent"]
