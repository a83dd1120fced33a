# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs are run without a shell, with a limit, and with words for a person when they fail."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import CommandFailed, Runner
from ansible_collections.gpufleet.nvidia.tests.helpers.faults import Died, Steps


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_output_and_status_come_back() -> None:
    done = Runner().run(python("import sys; print(sys.stdin.read()); sys.exit(3)"), check=False, stdin="käse")
    assert (done.rc, done.out, done.err) == (3, "käse\n", "")


def test_a_failure_tells_the_command_the_status_and_the_last_line() -> None:
    with pytest.raises(CommandFailed, match=r"failed with status 4: no such module$") as caught:
        Runner().run(python("import sys; print('a\\nno such module', file=sys.stderr); sys.exit(4)"))
    assert caught.value.how.rc == 4


def test_input_is_not_shown() -> None:
    with pytest.raises(CommandFailed) as caught:
        Runner().run(python("import sys; sys.exit(1)"), stdin="s3cret")
    assert "s3cret" not in caught.value.msg


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandFailed, match=r"`no-such-program` cannot be run on this host: No such file") as caught:
        Runner().run(["no-such-program", "x"], check=False)
    assert caught.value.how.rc == 127


def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    child = f"import time; time.sleep(1.2); open({str(alive)!r}, 'w')"
    parent = f"import subprocess, sys; print('going', flush=True); subprocess.run([sys.executable, '-c', {child!r}])"
    with pytest.raises(CommandFailed, match=r"did not end within 0\.5 s: going"):
        Runner().run(python(parent), timeout=0.5)
    time.sleep(1.2)
    assert not alive.exists()


def test_a_service_left_running_does_not_hold_the_run_up() -> None:
    start = time.monotonic()
    Runner().run(["sh", "-c", "sleep 5 & echo started"])
    assert time.monotonic() - start < 3


def test_the_language_is_fixed_and_the_environment_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("API_TOKEN", "x")
    said = Runner().run(python("import json, os; print(json.dumps(dict(os.environ)))"), env={"MORE": "1"}).out
    assert '"LC_ALL": "C.UTF-8"' in said
    assert '"MORE": "1"' in said
    assert "API_TOKEN" not in said
    assert "de_DE" not in said


def test_the_path_has_the_folders_of_system_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "/usr/sbin" in Runner().run(["sh", "-c", "echo $PATH"]).out


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_run_ends_at_the_nth_command(n: int, tmp_path: Path) -> None:
    steps = Steps(at=n, error=Died())
    runner = Runner(steps)
    for number in range(1, n):
        runner.run(["touch", str(tmp_path / str(number))])
    with pytest.raises(Died):
        runner.run(["touch", str(tmp_path / str(n))])
    assert steps.injected == 1
    assert sorted(os.listdir(tmp_path)) == [str(one) for one in range(1, n)]


def test_the_run_ends_behind_the_nth_command(tmp_path: Path) -> None:
    steps = Steps(at=1, moment="after", error=Died())
    with pytest.raises(Died):
        Runner(steps).run(["touch", str(tmp_path / "made")])
    assert (tmp_path / "made").exists()
