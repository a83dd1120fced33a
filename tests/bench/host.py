# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roles of hosts, run a second time on a host that is as it should be, beside the plain tasks that do the same job.

Both hosts are test hosts reached by SSH. Whole processes of ``ansible-playbook`` are timed, in turns. Each play has run
before, and a measured run that changes something ends the bench.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.nvidia.tests.bench import machine, peers
from ansible_collections.gpufleet.nvidia.tests.bench.figures import AT_LEAST, Goal, Row, Sample, row
from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT
from ansible_collections.gpufleet.nvidia.tests.testbed.drivers import place as drivers
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus, runtimes
from ansible_collections.gpufleet.nvidia.tests.testbed.packages import place
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import Report

HOME = CHECKOUT / "build" / "bench" / "hosts"
PATIENCE = 600  # seconds for one play; the first one installs packages
PEER = "plain tasks"
GOAL = Goal(AT_LEAST, 3)
OURS, THEIRS = "ours", "plain"
Task = dict[str, Any]


class BenchError(Exception):
    """A play failed, or a measured run changed something: the figures would be of another job."""


@dataclass(frozen=True)
class Case:
    """``role`` with its ``variables``, and ``tasks`` for the same end.

    ``prepare`` gives both hosts what they have before, and tells variables that are known only then.
    """

    system: str
    role: str
    variables: dict[str, Any]
    tasks: Sequence[Task]
    prepare: Callable[[Host], dict[str, Any]]


# --- the toolkit ------------------------------------------------------------------------------------------------------

VERSION = "1.20.2"
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
KEYRING = "/usr/share/keyrings/nvidia-container-toolkit-keyring.asc"


def _with_runtimes(host: Host) -> dict[str, Any]:
    gpus.install(host, "--product", "H100-SXM5-80GB", "--count", "1")
    gpus.install_driver(host)
    place.give([host])
    runtimes.start(host, "containerd", "docker")
    return {}


def _apt(keyring: str, key: str, name: str, line: str, packages: Sequence[str]) -> list[Task]:
    """A repository with its key, packages in one version each, and their holds."""
    names = [package.partition("=")[0] for package in packages]
    return [
        _task("Key", "copy", src=key, remote_src=True, dest=keyring, mode="0644"),
        _task("Repository", "copy", content=line, dest=f"/etc/apt/sources.list.d/{name}.list", mode="0644"),
        _task("Packages", "apt", name=list(packages), update_cache=True, cache_valid_time=86400),
        _task("Hold", "dpkg_selections", name="{{ item }}", selection="hold") | {"loop": names},
    ]


def _task(title: str, module: str, **options: Any) -> Task:
    return {"name": title, f"ansible.builtin.{module}": options}


def _command(title: str, *argv: str) -> Task:
    return _task(title, "command", argv=list(argv)) | {"changed_when": False}


TOOLKIT = Case(
    "debian12-runtimes",
    "container_toolkit",
    {
        "container_toolkit_version": VERSION,
        "container_toolkit_default_runtime": "nvidia",
        "container_toolkit_repository": {"url": f"file://{place.PLACE}", "key_file": f"{place.PLACE}/key.asc"},
    },
    [
        *_apt(
            KEYRING,
            f"{place.PLACE}/key.asc",
            "nvidia-container-toolkit",
            f"deb [signed-by={KEYRING}] file://{place.PLACE}/stable/deb/amd64 /\n",
            [f"{name}={VERSION}-1" for name in PACKAGES],
        ),
        _command("Docker", "nvidia-ctk", "runtime", "configure", "--runtime=docker", "--set-as-default"),
        _command("containerd", "nvidia-ctk", "runtime", "configure", "--runtime=containerd", "--set-as-default"),
        _command("CDI", "nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml"),
        _task("Docker runs", "service", name="docker", state="started", enabled=True),
        _task("containerd runs", "service", name="containerd", state="started", enabled=True),
    ],
    _with_runtimes,
)

# --- the driver -------------------------------------------------------------------------------------------------------

DRIVER = "580.95.05"
DRIVER_KEYRING = "/usr/share/keyrings/nvidia-driver.asc"
NO_NOUVEAU = "blacklist nouveau\noptions nouveau modeset=0\n"


def _with_headers(host: Host) -> dict[str, Any]:
    """The kernel to build for is the one whose headers are there: the one that runs is the machine's."""
    drivers.give([host], [DRIVER])
    return {"kernel": host.run(["ls", "/lib/modules"]).stdout.strip()}


DRIVERS = Case(
    "debian12-drivers",
    "nvidia_driver",
    {
        "nvidia_driver_version": DRIVER,
        "nvidia_driver_source": "nvidia",
        "nvidia_driver_kernel": "{{ kernel }}",
        "nvidia_driver_apply": "next_boot",
        "nvidia_driver_repository": {"url": f"file://{drivers.PLACE}", "key_file": f"{drivers.PLACE}/key.asc"},
    },
    [
        *_apt(
            DRIVER_KEYRING,
            f"{drivers.PLACE}/key.asc",
            "nvidia-driver",
            f"deb [signed-by={DRIVER_KEYRING}] file://{drivers.PLACE}/debian12/x86_64 /\n",
            [f"{name}={DRIVER}-1" for name in ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced")],
        ),
        _task("nouveau", "copy", content=NO_NOUVEAU, dest="/etc/modprobe.d/nouveau.conf", mode="0644")
        | {"register": "nouveau"},
        _task("Initramfs", "command", argv=["update-initramfs", "-u"]) | {"when": "nouveau is changed"},
        _task("Load at boot", "copy", content="nvidia\n", dest="/etc/modules-load.d/nvidia.conf", mode="0644"),
        _command("Built", "modinfo", "-k", "{{ kernel }}", "-F", "version", "nvidia"),
        _task("Persistence", "service", name="nvidia-persistenced", enabled=True),
    ],
    _with_headers,
)

CASES = {"host.nvidia_driver.noop": DRIVERS, "host.container_toolkit.noop": TOOLKIT}
NAMES = tuple(CASES)


# --- measuring --------------------------------------------------------------------------------------------------------


def run(names: set[str], repeats: int, report: Report) -> list[Row]:
    """Measure these figures. Raises BenchError, PeerError, HostError, ProgramError."""
    stated = machine.stated(machine.load())
    programs = peers.environment(report)
    return [_measure(name, CASES[name], programs, repeats, report, stated) for name in NAMES if name in names]


def _measure(
    name: str, case: Case, programs: Path, repeats: int, report: Report, stated: dict[str, str]
) -> Row:  # fmt: skip
    shutil.rmtree(HOME, ignore_errors=True)
    times: dict[str, list[float]] = {OURS: [], THEIRS: []}
    with Hosts(HOME) as hosts:
        for tool, tasks in ((OURS, [_role(case)]), (THEIRS, case.tasks)):
            known = case.prepare(hosts.start(tool, case.system))
            play = {"name": tool, "hosts": tool, "gather_facts": False, "vars": known, "tasks": list(tasks)}
            (HOME / f"{tool}.yml").write_text(json.dumps([play], indent=1), encoding="utf-8")
        for tool in times:
            report(f"{name}: {tool}: the run that does the job, and one unmeasured")
            _play(hosts, tool, programs)
            _play(hosts, tool, programs)
        for number in range(repeats):
            for tool in sorted(times, reverse=bool(number % 2)):
                seconds, changed = _play(hosts, tool, programs)
                if changed:
                    raise BenchError(f"{name}: {tool} changed {changed} things on a host that was ready")
                report(f"{name}: {tool}: {seconds:.2f} s")
                times[tool].append(seconds)
    ours, theirs = (Sample(tuple(times[tool])) for tool in (OURS, THEIRS))
    return row(name, "s", ours, PEER, theirs, GOAL, tasks=len(case.tasks), **stated)


def _role(case: Case) -> Task:
    role = _task(case.role, "include_role", name=f"gpufleet.nvidia.{case.role}")
    return role | {"vars": case.variables}


def _play(hosts: Hosts, tool: str, programs: Path) -> tuple[float, int]:
    """Seconds of one run, and how many tasks changed something."""
    kept = {key: value for key, value in os.environ.items() if not re.match(r"ANSIBLE_|PYTHON", key)}
    environment = kept | {
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build" / "collections"),
        "ANSIBLE_HOME": str(HOME / "ansible"),
        "NO_COLOR": "1",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    command = [programs / "ansible-playbook", "-i", hosts.inventory(), HOME / f"{tool}.yml"]
    began = time.perf_counter()
    try:
        ended = subprocess.run(
            command, cwd=HOME, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BenchError(f"the play of {tool} did not end within {PATIENCE} s") from None
    seconds = time.perf_counter() - began
    found = re.search(r"\bchanged=(\d+)", ended.stdout)
    if ended.returncode or not found:
        raise BenchError(f"the play of {tool} failed with status {ended.returncode}:\n{ended.stdout[-3000:]}")
    return seconds, int(found.group(1))
