# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that outlive their starter are found again, stopped for certain, and never confused with others."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.processes import Process


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path, "sleeper")
    process.start(["sleep", "60"])
    yield process
    process.stop()


def gone(pid: int, seconds: float = 5) -> bool:
    """It ended, whether or not somebody has asked how."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_running_process_is_found_by_its_file(sleeper: Process, tmp_path: Path) -> None:
    pid = sleeper.pid()

    assert pid is not None
    assert Process(tmp_path, "sleeper").pid() == pid
    assert sleeper.memory() > 0


def test_stopped_process_is_gone_and_so_is_its_file(sleeper: Process, tmp_path: Path) -> None:
    pid = sleeper.pid()
    assert pid is not None
    Process(tmp_path, "sleeper").stop()

    assert sleeper.pid() is None
    assert not sleeper.pid_file.exists()
    assert sleeper.memory() == 0
    assert gone(pid)


def test_process_that_will_not_end_is_made_to(tmp_path: Path) -> None:
    process = Process(tmp_path, "stubborn")
    process.start(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    while "ready" not in process.log.read_text():
        time.sleep(0.02)
    pid = process.pid()
    assert pid is not None
    process.stop(patience=0.3)

    assert gone(pid)


def test_other_process_with_the_same_number_is_left_alone(sleeper: Process, tmp_path: Path) -> None:
    pid = sleeper.pid()
    stale = Process(tmp_path, "stale")
    stale.pid_file.write_text(f"{pid} 1\n")

    assert stale.pid() is None
    stale.stop()
    assert sleeper.pid() == pid
    assert not stale.pid_file.exists()


def test_what_it_says_is_in_its_log(tmp_path: Path) -> None:
    process = Process(tmp_path, "talker")
    assert process.tail() == "(no log)"
    process.start(["sh", "-c", "echo one; echo two >&2; echo three"])
    while process.pid() is not None:
        time.sleep(0.02)

    assert process.tail(2) == "two\nthree"


@pytest.mark.parametrize("tied", [True, False])
def test_only_a_tied_process_ends_with_a_killed_starter(tmp_path: Path, tied: bool) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from ansible_collections.gpufleet.nvidia.tests.testbed.processes import Process\n"
        "Process(Path(sys.argv[1]), 'child').start(['sleep', '60'], tied=sys.argv[2] == 'True')\n"
        "print('started', flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path), str(tied)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "started\n"
        pid = Process(tmp_path, "child").pid()
        assert pid is not None
        starter.kill()

    assert gone(pid, seconds=5 if tied else 1) is tied
    Process(tmp_path, "child").stop()
