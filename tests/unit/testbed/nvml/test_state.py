# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state is shared by processes and survives them; every call is written down."""

from __future__ import annotations

import concurrent.futures
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pynvml
import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.nvml import Double, ProgramError

from .conftest import Make, gpu

START = "import pynvml as n; n.nvmlInit(); g = n.nvmlDeviceGetHandleByIndex(0)\n"


def python(double: Double, script: str, **environment: str) -> subprocess.Popen[str]:
    """Another process that finds the library by its name, as programs on a host do."""
    return subprocess.Popen(
        [sys.executable, "-c", START + script],
        env={**os.environ, **double.environment, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return out


@pytest.mark.rows("FK-03")
def test_another_process_sees_what_this_one_made(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    pynvml.nvmlDeviceSetMigMode(gpu(), 1)
    pynvml.nvmlDeviceCreateGpuInstance(gpu(), 9)
    seen = printed(
        python(double, "print(n.nvmlDeviceGetMigMode(g)[0], n.nvmlDeviceGetGpuInstanceRemainingCapacity(g, 9))")
    )
    assert seen == "1 1\n"
    printed(python(double, "n.nvmlDeviceCreateGpuInstance(g, 9)"))
    assert double.layout() == [("3g.71gb", 0), ("3g.71gb", 4)]


@pytest.mark.rows("FK-03")
def test_processes_and_threads_at_once_lose_nothing(make: Make) -> None:
    """Two processes of four threads each fill one GPU: seven instances are made, no place twice, no attempt lost."""
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=0", "mig=1")
    script = """
from concurrent.futures import ThreadPoolExecutor
def attempt(i):
    try:
        return n.nvmlGpuInstanceGetInfo(n.nvmlDeviceCreateGpuInstance(g, 19)).id
    except n.NVMLError_InsufficientResources:
        return None
print(*ThreadPoolExecutor(4).map(attempt, range(10)))
"""
    made = " ".join(printed(process) for process in [python(double, script) for _unused in range(2)]).split()
    assert sorted(made, key=str) == sorted([*map(str, range(7, 14)), *["None"] * 13])
    assert len(double.layout()) == 7
    assert len([call for call in double.writes() if call["name"] == "SUCCESS"]) == 7


@pytest.mark.rows("FK-03")
@pytest.mark.parametrize("seed", range(3))
def test_a_process_killed_at_any_time_leaves_a_whole_state(make: Make, seed: int) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=0", "mig=1", "instance=19@5")
    process = python(double, "while True: n.nvmlGpuInstanceDestroy(n.nvmlDeviceCreateGpuInstance(g, 5))")
    end = time.monotonic() + 30
    while not double.writes() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(random.Random(seed).uniform(0, 0.05))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    assert double.layout() in ([("1g.18gb", 5)], [("4g.71gb", 0), ("1g.18gb", 5)])
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]  # the lock went with the process


@pytest.mark.rows("FK-03")
def test_half_written_copy_is_never_read(make: Make) -> None:
    """What a writer killed before its last byte leaves behind: the copy that is not in use, in pieces."""
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=0", "mig=1")
    before = double.show()
    content = bytearray(double.state.read_bytes())
    half = (len(content) - 4096) // 2
    unused = 4096 + (half if content[12] == 0 else 0)
    content[unused : unused + half] = b"\xff" * half
    double.state.write_bytes(content)
    assert double.show() == before
    pynvml.nvmlDeviceCreateGpuInstance(gpu(), 0)
    assert double.layout() == [("7g.141gb", 0)]


@pytest.mark.rows("FK-03")
def test_a_writer_leaves_the_copy_in_use_alone_until_the_last_byte(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    copies = []
    for bus in (1, 2, 3):
        before = double.state.read_bytes()
        half = (len(before) - 4096) // 2
        double.set("gpu=0", f"bus={bus}")
        after = double.state.read_bytes()
        start = 4096 + before[12] * half
        assert after[start : start + half] == before[start : start + half]
        assert (after[:12], after[13:4096]) == (before[:12], before[13:4096])
        copies.append((before[12], after[12]))
    assert copies == [(0, 1), (1, 0), (0, 1)]


def test_files_that_are_no_state_are_refused(make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    double = make("T4", 1)
    for content in (b"", b"{}", bytes(9000), double.state.read_bytes()[:5000]):
        double.state.write_bytes(content)
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetCount()
        with pytest.raises(ProgramError, match=r"nvml\.state: (not a state file|the state file cannot be read)"):
            double.show()
    assert f"nvml-double: {double.state}: not a state file of this build" in capfd.readouterr().err


@pytest.mark.rows("NV-01")
def test_no_library_no_driver_and_other_driver_are_three_errors(make: Make, tmp_path: Path) -> None:
    double = make("T4", 1)
    script = "print('started')"
    lost = subprocess.run(
        [sys.executable, "-c", START + script],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "NVMLError_LibraryNotFound" in lost.stderr
    for state, error in (("unloaded", "NVMLError_DriverNotLoaded"), ("mismatch", "NVMLError_LibRmVersionMismatch")):
        double.set(f"driver_state={state}")
        process = python(double, script)
        assert error in process.communicate(timeout=30)[1]
    double.reload()
    assert printed(python(double, script)) == "started\n"
    process = python(double, script, NVML_DOUBLE_STATE=str(tmp_path / "none"))
    assert "NVMLError_DriverNotLoaded" in process.communicate(timeout=30)[1]


@pytest.mark.rows("NV-01")
def test_calls_need_init_and_count_it(make: Make) -> None:
    make("T4", 1)
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    device = gpu()
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetName(device)
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetName(device) == "Tesla T4"


@pytest.mark.rows("FK-06")
def test_every_call_is_written_down_with_arguments_and_result(make: Make) -> None:
    double = make("H200-SXM5-141GB", 2)
    double.log.unlink()
    device = gpu(1)
    pynvml.nvmlDeviceSetMigMode(device, 1)
    instance = pynvml.nvmlDeviceCreateGpuInstance(device, 9)
    compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    pynvml.nvmlComputeInstanceDestroy(compute)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID('GPU-"\n\x7f')
    calls = double.calls()
    assert {call["pid"] for call in calls} == {os.getpid()}
    assert [(call["function"], call["write"], call["arguments"], call["name"], call["made"]) for call in calls] == [
        ("nvmlDeviceGetHandleByIndex_v2", False, {"index": 1}, "SUCCESS", {}),
        (
            "nvmlDeviceSetMigMode",
            True,
            {"device": "1", "mode": 1},
            "SUCCESS",
            {"activation": 0, "current": 1, "pending": 1},
        ),
        ("nvmlDeviceCreateGpuInstance", True, {"device": "1", "id": 9}, "SUCCESS", {"gi": 2, "start": 4, "size": 4}),
        ("nvmlGpuInstanceCreateComputeInstance", True, {"instance": "1/2", "id": 2}, "SUCCESS", {"ci": 0, "start": 0}),
        ("nvmlComputeInstanceDestroy", True, {"instance": "1/2/0"}, "SUCCESS", {}),
        ("nvmlDeviceGetHandleByUUID", False, {"uuid": 'GPU-"\n\x7f'}, "NOT_FOUND", {}),
    ]
    assert [call["function"] for call in double.writes()] == [call["function"] for call in calls[1:5]]


def test_forked_children_use_the_state_too(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=0", "mig=1")
    script = """
import os
for start in range(4):
    if not os.fork():
        n.nvmlDeviceCreateGpuInstance(g, 19)
        os._exit(0)
print(*[os.wait()[1] for _unused in range(4)])
"""
    assert printed(python(double, script)) == "0 0 0 0\n"
    assert len(double.layout()) == 4


@pytest.mark.rows("FK-06")
def test_who_is_not_root_may_read_and_not_write(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("permissions=deny")
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [0, 0]
    with pytest.raises(pynvml.NVMLError_NoPermission):
        pynvml.nvmlDeviceSetMigMode(gpu(), 1)
    with pytest.raises(pynvml.NVMLError_NoPermission):
        pynvml.nvmlDeviceSetPersistenceMode(gpu(), 0)
    double.set("permissions=allow")
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == 0


def test_a_copied_state_is_another_host(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    double = make("H200-SXM5-141GB", 1)
    other = Double(tmp_path / "other.state", double.log, double.folder)
    shutil.copy(double.state, other.state)
    pynvml.nvmlDeviceSetMigMode(gpu(), 1)
    monkeypatch.setenv("NVML_DOUBLE_STATE", str(other.state))
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [0, 0]
    assert (double.show()["gpus"][0]["mig_current"], other.show()["gpus"][0]["mig_current"]) == (1, 0)


def test_program_and_calls_at_once(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(double.set, "gpu=0", f"process={pid}") for pid in range(1, 13)]:
            future.result()
    assert sorted(p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu())) == list(range(1, 13))
