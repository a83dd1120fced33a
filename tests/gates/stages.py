# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs everything that `make test` and `make test-all` promise, stage by stage, and ends with one table.

A stage that fails does not stop those after it: one run tells all that is wrong. Exit status 0 only if all passed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass

from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.images import SYSTEMS
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import PROGRAMS

PYTHON = sys.executable
HERE = "ansible_collections.gpufleet.nvidia.tests"
QUICK = ("-m", "not long and not hosts")
ROWS = CHECKOUT / "build/rows"


@dataclass(frozen=True)
class Stage:
    """``rows``: the stage's tests prove rows of the specification, and write down which."""

    name: str
    what: str
    command: tuple[str, ...]
    rows: bool = False
    long: bool = False


def pytest_stage(name: str, what: str, *arguments: str, long: bool = False) -> Stage:
    file = ROWS / f"{name}.json"
    command = (PYTHON, "-m", "pytest", "--rows-file", str(file), "--durations=5", *arguments)
    return Stage(name, what, command, rows=True, long=long)


STAGES: tuple[Stage, ...] = (
    Stage("gates", "lint: all gates", (PYTHON, "-m", f"{HERE}.gates.run")),
    pytest_stage("unit", "unit tests", "tests/unit", "-n", "2", *QUICK),
    Stage("floor-hosts", "what hosts run on the oldest Python", (PYTHON, "-m", f"{HERE}.gates.floor", "hosts")),
    Stage(
        "programs",
        "the testbed's programs, built where the cache lacks them",
        (PYTHON, "-m", f"{HERE}.testbed.programs"),
    ),
    # Each worker has control planes of its own; files stay whole, as their tests share one. They wait more than they
    # work, so there may be more of them than cores.
    pytest_stage(
        "integration",
        "on real control planes with simulated nodes",
        *("tests/integration", "-n", "3", "--dist", "loadfile"),
        *QUICK,
    ),
    pytest_stage("gates-fail", "each gate fails on a planted fault", "tests/gates", *QUICK),
    Stage(
        "host-programs",
        "NVIDIA's toolkit and containerd for hosts, built where the cache lacks them",
        (PYTHON, "-m", f"{HERE}.testbed.programs", *(name for name, one in PROGRAMS.items() if one.asked)),
        long=True,
    ),
    Stage(
        "host-images",
        "images of hosts, made where they are not there",
        (PYTHON, "-m", f"{HERE}.testbed.hosts", "images", *SYSTEMS),
        long=True,
    ),
    pytest_stage("hosts", "on systemd hosts in podman", "tests/integration", "-m", "hosts and not long", long=True),
    pytest_stage("long", "tests marked long", "tests", "-m", "long", long=True),
    Stage(
        "host-roles",
        "a scenario for each role of hosts",
        (PYTHON, "-m", f"{HERE}.gates.scenarios", "--hosts"),
        long=True,
    ),
    Stage(
        "host-changes",
        "a driver's upgrade, downgrade and switch of flavour",
        (PYTHON, "-m", f"{HERE}.gates.scenarios", "nvidia_driver_changes"),
        long=True,
    ),
    Stage("imports", "plugins import on every Python", (PYTHON, "-m", f"{HERE}.gates.run", "all-imports"), long=True),
    Stage(
        "floor-python", "module_utils on the oldest Python", (PYTHON, "-m", f"{HERE}.gates.floor", "python"), long=True
    ),
    Stage("floor-ansible", "the oldest ansible-core", (PYTHON, "-m", f"{HERE}.gates.floor", "ansible"), long=True),
    Stage(
        "molecule",
        "a scenario for each role of clusters",
        (PYTHON, "-m", f"{HERE}.gates.scenarios", "--clusters"),
        long=True,
    ),
    Stage("rows", "docs/rows.md claims only what these tests proved", (PYTHON, "-m", f"{HERE}.gates.rows", "check")),
)


def run(stage: Stage) -> tuple[int, float]:
    print(f"\n==== {stage.name}: {stage.what}", flush=True)
    start = time.monotonic()
    path = str(CHECKOUT / "build/collections")
    variables = os.environ | {"PYTHONPATH": path, "ANSIBLE_COLLECTIONS_PATH": path, "PYTHONUNBUFFERED": "1"}
    ended = subprocess.run(stage.command, cwd=CHECKOUT, env=variables, stdin=subprocess.DEVNULL, check=False)
    return ended.returncode, time.monotonic() - start


def table(results: list[tuple[Stage, int, float]]) -> str:
    rows = [
        f"{'ok' if not status else 'FAIL':<5}{stage.name:<14}{clock(seconds):>8}  {stage.what}"
        for stage, status, seconds in results
    ]
    total = sum(seconds for _stage, _status, seconds in results)
    failed = sum(1 for _stage, status, _seconds in results if status)
    return "\n".join(
        [*rows, f"{'':5}{'in all':<14}{clock(total):>8}  {len(results) - failed} stages passed, {failed} failed"]
    )


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run all stages of the tests, or those named.")
    parser.add_argument("stages", nargs="*", metavar="NAME", help=", ".join(stage.name for stage in STAGES))
    parser.add_argument("--all", action="store_true", help="also the stages that take long")
    options = parser.parse_args(arguments)
    unknown = set(options.stages) - {stage.name for stage in STAGES}
    if unknown:
        parser.error(f"there is no stage {', '.join(sorted(unknown))}")
    chosen = [
        stage
        for stage in STAGES
        if stage.name in options.stages or (not options.stages and (options.all or not stage.long))
    ]
    for file in ROWS.glob("*.json"):
        if file.stem in {stage.name for stage in chosen}:
            file.unlink()
    results = [(stage, *run(stage)) for stage in chosen]
    print(f"\n{table(results)}", flush=True)
    return 1 if any(status for _stage, status, _seconds in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
