# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changes a host, on real ones: units of systemd, and a process that is killed at each of its steps."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.on_hosts import CHECKOUT, LIBRARY, MODULE, give
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences

pytestmark = pytest.mark.hosts

PARTS = (
    "plugins/module_utils/_plan.py",
    "plugins/module_utils/_host",
    "plugins/module_utils/_driver/_services.py",
    "tests/helpers/faults.py",
)

# A component in small: a unit, its configuration, a file of the host that it changes; and the way back.
COMPONENT = f"""
import sys
from {MODULE}.plugins.module_utils._host._commands import Runner
from {MODULE}.plugins.module_utils._host._files import Files
from {MODULE}.plugins.module_utils._host._journal import Journal
from {MODULE}.plugins.module_utils._host._systemd import Units
from {MODULE}.tests.helpers.faults import Steps

UNIT = (
    "[Service]\\nType=oneshot\\nRemainAfterExit=yes\\nExecStart=/bin/true\\n"
    "[Install]\\nWantedBy=multi-user.target\\n"
)

def present(steps):
    files, units = Files(watch=steps), Units(Runner(steps))
    with Journal(files, "sample") as journal:
        journal.make_folder("/etc/sample")
        journal.write("/etc/sample/config", "a = 1\\n", 0o600)
        journal.write("/etc/issue", "GPU host\\n")
        if journal.write("/etc/systemd/system/sample.service", UNIT) or units.state("sample.service").needs_reload:
            units.reload()
        journal.note("enabled", units.state("sample.service").enabled)
        units.enable("sample.service")
        units.start("sample.service")

def absent(steps):
    files, units = Files(watch=steps), Units(Runner(steps))
    with Journal(files, "sample") as journal:
        if units.state("sample.service").exists:
            units.stop("sample.service")
            units.disable("sample.service")
        journal.forget("enabled")
        assert journal.give_back() == []
        units.reload()

steps = Steps(int(sys.argv[2]), sys.argv[3])
(present if sys.argv[1] == "present" else absent)(steps)
print(len(steps.said))
"""


@pytest.fixture
def library(host: Host) -> Host:
    """A host with the collection's host library, as a module has it."""
    give(host, *(str(path) for part in PARTS for path in _files(CHECKOUT / part)))
    host.put("/tmp/component.py", COMPONENT)
    return host


def _files(path: Path) -> list[Path]:
    found = [path] if path.is_file() else sorted(path.glob("*.py"))
    return [one.relative_to(CHECKOUT) for one in found]


def component(host: Host, state: str) -> subprocess.CompletedProcess[str]:
    return host.run(f"PYTHONPATH={LIBRARY} python3 -B /tmp/component.py {state} 0 before")


def test_units_are_enabled_started_stopped_and_given_back(library: Host) -> None:
    before = library.snapshot()
    component(library, "present")
    assert library.run(["systemctl", "is-enabled", "sample.service"]).stdout == "enabled\n"
    assert library.run(["systemctl", "is-active", "sample.service"]).stdout == "active\n"
    second = library.snapshot()
    component(library, "present")
    assert differences(second, library.snapshot()) == []
    component(library, "absent")
    assert library.run(["systemctl", "is-active", "sample.service"], check=False).stdout == "inactive\n"
    assert differences(before, library.snapshot()) == []


def test_a_unit_that_fails_tells_its_own_words(library: Host) -> None:
    library.put(
        "/etc/systemd/system/sad.service", "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo no GPU; exit 1'\n"
    )
    program = (
        f"from {MODULE}.plugins.module_utils._host._commands import Runner\n"
        f"from {MODULE}.plugins.module_utils._host._systemd import Units\n"
        "Units(Runner()).start('sad.service')\n"
    )
    done = library.run(["env", f"PYTHONPATH={LIBRARY}", "python3", "-B", "-c", program], check=False)
    assert "sad.service did not start: no GPU" in done.stderr
    library.run("rm /etc/systemd/system/sad.service; systemctl daemon-reload; systemctl reset-failed")


# Stops and starts services of a driver; `die` ends the process, as a kill does, while they are away.
SERVICES = f"""
import os, sys
from {MODULE}.plugins.module_utils._driver._services import Services
from {MODULE}.plugins.module_utils._host._commands import Runner
from {MODULE}.plugins.module_utils._host._files import Files
from {MODULE}.plugins.module_utils._host._systemd import Units

services = Services(Units(Runner()), Files(), print)
if sys.argv[1] == "stop":
    print(services.stop(services.running()), flush=True)
    os._exit(9)
print(services.start())
"""
NAMES = ("nvidia-persistenced", "nvidia-dcgm", "dcgm-exporter")


@pytest.mark.rows("H052")
def test_services_of_a_driver_stay_away_until_they_are_started_again(library: Host) -> None:
    for name in NAMES:
        after = "After=nvidia-persistenced.service" if name == "nvidia-dcgm" else ""
        library.put(
            f"/usr/lib/systemd/system/{name}.service", f"[Unit]\n{after}\n[Service]\nExecStart=/bin/sleep 9999\n"
        )
    library.put("/tmp/services.py", SERVICES)
    units = " ".join(f"{name}.service" for name in NAMES)
    library.run(f"systemctl daemon-reload; systemctl start {units}")
    run = f"PYTHONPATH={LIBRARY} python3 -B /tmp/services.py"
    stopped = library.run(f"{run} stop", check=False)
    assert stopped.stdout.splitlines()[-1] == str([f"{name}.service" for name in reversed(NAMES)])
    assert "active" not in library.run(f"systemctl is-active {units}", check=False).stdout.split()
    refused = library.run("systemctl restart nvidia-dcgm.service", check=False)
    assert "masked" in refused.stderr
    assert library.run(f"{run} start").stdout.splitlines()[-1] == "[]"
    assert library.run(f"systemctl is-active {units}").stdout.split() == ["active"] * len(NAMES)
    assert "masked" not in library.run(f"systemctl is-enabled {units}", check=False).stdout
    assert library.run("ls /var/lib/gpufleet/nvidia_driver").stdout == ""
    library.run(f"systemctl stop {units}; cd /usr/lib/systemd/system; rm {units}; rm -r /var/lib/gpufleet")
    library.run("systemctl daemon-reload")


# Kills the component at each of its steps, on the host itself, and lets another run finish it.
KILLER = """
import os, subprocess, sys

def component(state, at=0, moment="before"):
    command = [sys.executable, "-B", "/tmp/component.py", state, str(at), moment]
    done = subprocess.run(command, capture_output=True, text=True)
    if at == 0 and done.returncode:
        sys.exit(f"{state} after a kill: {done.stderr}")
    return done

state, steps = sys.argv[1], int(sys.argv[2])
killed = 0
for at in range(1, steps + 1):
    if state == "absent":
        component("present")
    killed += component(state, at, "after" if at % 2 else "before").returncode == -9
    if state == "present" and at % 3 == 0:
        component("present")
        if open("/etc/issue").read() != "GPU host\\n":
            sys.exit(f"killed at {at}, and not finished by the next run")
    component("absent")
    if os.path.exists("/etc/sample") or os.path.exists("/var/lib/gpufleet"):
        sys.exit(f"killed at {at}, and not given back")
print(killed)
"""


@pytest.mark.parametrize(("state", "host"), [("present", "debian12"), ("absent", "debian13")], indirect=["host"])
def test_a_run_killed_at_any_step_is_finished_by_the_next_and_given_back(
    library: Host, state: str, survived: Callable[[str, int], None]
) -> None:
    before = library.snapshot()
    component(library, "present")
    steps = int(component(library, "absent").stdout)
    if state == "present":
        steps = int(component(library, "present").stdout)
        component(library, "absent")
    assert steps >= 15
    library.put("/tmp/killer.py", KILLER)
    command = f"PYTHONPATH={LIBRARY} python3 -B /tmp/killer.py {state} {steps}"
    killed = int(library.run(command, timeout=400).stdout)
    survived("kills at steps on a host", killed)
    assert killed == steps
    assert differences(before, library.snapshot()) == []
