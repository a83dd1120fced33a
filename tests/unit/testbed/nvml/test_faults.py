# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults, busy GPUs, modes that need a reset or a reboot, and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pynvml
import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed import nvml
from ansible_collections.gpufleet.nvidia.tests.testbed.nvml import Double, ProgramError

from .conftest import Make, gpu
from .test_state import python

CODES = {
    name.removeprefix("NVML_ERROR_"): value
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
}


@pytest.mark.rows("FK-06", "NV-02")
@pytest.mark.parametrize("name", sorted(CODES))
def test_every_code_can_be_asked_for_and_arrives_as_its_class(make: Make, name: str) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set(f"fault=nvmlDeviceGetMigMode,code={name}")
    with pytest.raises(pynvml.NVMLError) as raised:
        pynvml.nvmlDeviceGetMigMode(gpu())
    assert raised.value.value == CODES[name]
    assert raised.type is pynvml.nvmlExceptionClass(CODES[name])
    assert str(raised.value) not in ("", f"NVML Error with code {CODES[name]}")
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [0, 0]


@pytest.mark.rows("FK-06")
def test_the_nth_call_fails_and_only_it(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=0", "mig=1")
    double.set("fault=nvmlDeviceCreateGpuInstance,nth=3,code=IN_USE")
    done = []
    for _unused in range(5):
        try:
            pynvml.nvmlDeviceCreateGpuInstance(gpu(), 19)
            done.append(True)
        except pynvml.NVMLError_InUse:
            done.append(False)
    assert done == [True, True, False, True, True]
    assert len(double.layout()) == 4
    assert double.show()["faults"] == []


@pytest.mark.rows("FK-06")
def test_faults_count_over_processes_and_last_as_long_as_asked(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("fault=nvmlDeviceSet*,nth=2,times=2,code=TIMEOUT")
    script = "n.nvmlDeviceSetPersistenceMode(g, 0)"
    codes = []
    for _unused in range(4):
        process = python(double, script)
        process.communicate(timeout=30)
        codes.append(process.returncode)
    assert codes == [0, 1, 1, 0]
    double.set("fault=writes,times=forever,code=UNKNOWN")
    for _unused in range(3):
        with pytest.raises(pynvml.NVMLError_Unknown):
            pynvml.nvmlDeviceSetMigMode(gpu(), 1)
    double.set("no_faults=1")
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == 0


@pytest.mark.rows("FK-06")
def test_a_call_can_fail_after_its_effect(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=0", "mig=1")
    double.set("fault=nvmlDeviceCreateGpuInstance,code=UNKNOWN,when=after")
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlDeviceCreateGpuInstance(gpu(), 0)
    assert double.layout() == [("7g.141gb", 0)]


@pytest.mark.rows("FK-03", "FK-06")
@pytest.mark.parametrize(("when", "made"), [("before", 1), ("after", 2)])
def test_a_process_can_be_killed_at_the_nth_call(make: Make, when: str, made: int) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=0", "mig=1")
    double.set(f"fault=writes,nth=2,code=KILL,when={when}")
    process = python(double, "for _unused in range(4): n.nvmlDeviceCreateGpuInstance(g, 19)")
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert len(double.layout()) == made
    assert double.writes()[-1]["name"] == f"KILLED_{when.upper()}"
    assert double.show()["faults"] == []
    pynvml.nvmlDeviceCreateGpuInstance(gpu(), 19)  # nothing is left locked


@pytest.mark.rows("FK-06")
@pytest.mark.parametrize(
    "text",
    ["f,code=NOPE", "f,nth=0", "f,times=0", "f,when=later", ",code=UNKNOWN", "f,n=1", "f,nth=-1", "f,nth", "f" * 70],
)
def test_faults_that_make_no_sense_are_refused(make: Make, text: str) -> None:
    double = make("T4", 1)
    with pytest.raises(ProgramError, match=r"fault|when|nth|wanted"):
        double.set(f"fault={text}")
    assert double.show()["faults"] == []


@pytest.mark.rows("FK-06")
def test_a_lost_gpu_answers_nothing_until_it_is_reset(make: Make) -> None:
    double = make("H200-SXM5-141GB", 2)
    device = gpu(0)
    double.set("gpu=0", "lost=1")
    for call in (pynvml.nvmlDeviceGetUUID, pynvml.nvmlDeviceGetMigMode, pynvml.nvmlDeviceGetMemoryInfo):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            call(device)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        gpu(0)
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlDeviceGetName(gpu(1)) == "NVIDIA H200"
    double.reset("0")
    assert pynvml.nvmlDeviceGetName(device) == "NVIDIA H200"


# --- processes ---


@pytest.mark.rows("FK-06")
def test_processes_are_seen_on_the_gpu_and_on_their_mig_device(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=0", "mig=1", "instance=19@0", "instance=9@4", "process=41,gi=7,ci=0,mib=512")
    double.set("gpu=0", "process=42,gi=2,ci=0,mib=2048", "process=43,gi=2,ci=0,kind=graphics")
    first, second = (pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), index) for index in (0, 1))
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(first)] == [42]
    (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(second)
    assert (process.pid, process.usedGpuMemory, process.gpuInstanceId, process.computeInstanceId) == (
        41,
        512 << 20,
        7,
        0,
    )
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu())] == [41, 42]
    assert [p.pid for p in pynvml.nvmlDeviceGetGraphicsRunningProcesses(gpu())] == [43]
    assert pynvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu()) == []
    assert pynvml.nvmlDeviceGetMemoryInfo(second).used == 512 << 20
    assert pynvml.nvmlDeviceGetMemoryInfo(second).free == (16384 - 512) << 20
    assert pynvml.nvmlSystemGetProcessName(42) == "/usr/bin/process-42"
    double.set("gpu=0", "no_process=42")
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu())] == [41]
    double.set("gpu=0", "no_process=all")
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(gpu()) == []


@pytest.mark.rows("FK-06")
def test_busy_instances_are_not_destroyed_and_the_others_are(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=0", "mig=1", "instance=19@0", "instance=19@1", "process=41,gi=7,ci=0")
    busy, idle = (pynvml.nvmlDeviceGetGpuInstanceById(gpu(), gi) for gi in (7, 8))
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlComputeInstanceDestroy(pynvml.nvmlGpuInstanceGetComputeInstanceById(busy, 0))
    pynvml.nvmlComputeInstanceDestroy(pynvml.nvmlGpuInstanceGetComputeInstanceById(idle, 0))
    pynvml.nvmlGpuInstanceDestroy(idle)
    assert double.layout() == [("1g.18gb", 0)]


@pytest.mark.rows("FK-06")
def test_a_process_on_the_whole_gpu_blocks_mode_and_instances(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=0", "process=41")
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == pynvml.NVML_ERROR_IN_USE
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
    with pytest.raises(ProgramError, match="GPU 0 cannot be reset: In use"):
        double.reset("0")
    double.set("gpu=0", "mig=1")
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlDeviceCreateGpuInstance(gpu(), 19)


# --- modes ---


def instances(double: Double) -> int:
    return len(double.layout())


@pytest.mark.rows("FK-06")
def test_mode_changes_at_once_and_takes_the_instances_along(make: Make) -> None:
    double = make("H200-SXM5-141GB", 2)
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == 0
    assert (pynvml.nvmlDeviceGetMigMode(gpu(0)), pynvml.nvmlDeviceGetMigMode(gpu(1))) == ([1, 1], [0, 0])
    pynvml.nvmlDeviceCreateGpuInstance(gpu(), 19)
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == 0
    assert instances(double) == 1
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 0) == 0
    assert (pynvml.nvmlDeviceGetMigMode(gpu()), instances(double)) == ([0, 0], 0)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetMigMode(gpu(), 2)


@pytest.mark.rows("FK-06")
def test_mode_that_needs_a_reset_waits_for_it(make: Make) -> None:
    double = make("A100-SXM4-40GB", 2)
    double.set("gpu=all", "mode_change=reset")
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == pynvml.NVML_ERROR_RESET_REQUIRED
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 0) == 0  # the present mode again: nothing is pending any more
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [0, 0]
    pynvml.nvmlDeviceSetMigMode(gpu(), 1)
    double.reset("1")
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
    double.reset("0")
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]
    double.reboot()
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]  # on the board, on Ampere


@pytest.mark.rows("FK-06")
def test_mode_in_a_virtual_machine_waits_for_a_reboot(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=all", "mode_change=reboot", "virtualization=1")
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == pynvml.NVML_ERROR_RESET_REQUIRED
    with pytest.raises(ProgramError, match="Not Supported"):
        double.reset("0")
    double.reload()
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
    double.reboot()
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]
    pynvml.nvmlDeviceCreateGpuInstance(gpu(), 19)
    double.reboot()
    assert (pynvml.nvmlDeviceGetMigMode(gpu()), instances(double)) == ([0, 0], 0)  # Hopper forgets


@pytest.mark.rows("FK-06")
def test_clients_hold_the_mode_until_they_go(make: Make) -> None:
    double = make("H100-SXM5-80GB", 1)
    double.set("gpu=0", "clients=1")
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == pynvml.NVML_ERROR_IN_USE
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
    double.set("gpu=0", "clients=0")
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == 0
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]


@pytest.mark.rows("FK-06")
def test_minor_numbers_can_move_with_a_mode_change(make: Make) -> None:
    double = make("H200-SXM5-141GB", 3)
    double.set("shift_minors=1")
    pynvml.nvmlDeviceSetMigMode(gpu(1), 1)
    assert [pynvml.nvmlDeviceGetMinorNumber(gpu(index)) for index in range(3)] == [1, 2, 0]


def test_settings_are_kept(make: Make) -> None:
    double = make("H100-SXM5-80GB", 1)
    pynvml.nvmlDeviceSetPersistenceMode(gpu(), 0)
    pynvml.nvmlDeviceSetComputeMode(gpu(), pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    pynvml.nvmlDeviceSetPowerManagementLimit(gpu(), 500000)
    pynvml.nvmlDeviceSetEccMode(gpu(), 0)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetPowerManagementLimit(gpu(), 900000)
    assert pynvml.nvmlDeviceGetPersistenceMode(gpu()) == 0
    assert pynvml.nvmlDeviceGetComputeMode(gpu()) == 3
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu()) == 500000
    assert pynvml.nvmlDeviceGetEccMode(gpu()) == [1, 0]
    double.reset("0")
    assert pynvml.nvmlDeviceGetEccMode(gpu()) == [0, 0]


def test_an_xid_reaches_who_waits_for_it(make: Make) -> None:
    double = make("H100-SXM5-80GB", 2)
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(gpu(1), pynvml.nvmlEventTypeXidCriticalError, events)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, 1)
    script = f"import subprocess, time; time.sleep(0.2); subprocess.run({[str(double.folder / 'nvml-double')]!r}"
    setter = subprocess.Popen([sys.executable, "-c", f"{script} + ['set', {str(double.state)!r}, 'gpu=1', 'xid=79'])"])
    started = time.monotonic()
    event = pynvml.nvmlEventSetWait_v2(events, 30000)
    setter.wait(timeout=30)
    assert time.monotonic() - started < 25
    assert (event.eventData, event.eventType) == (79, pynvml.nvmlEventTypeXidCriticalError)
    assert pynvml.nvmlDeviceGetIndex(event.device) == 1
    pynvml.nvmlEventSetFree(events)
    assert double.show()["gpus"][1]["xid"] == 0


def test_fabric_of_a_host(make: Make) -> None:
    double = make("GH200-96GB", 1)
    double.set("gpu=0", "fabric_state=3", "clique=4", "cluster=" + "0a" * 16)
    old, new = pynvml.c_nvmlGpuFabricInfo_t(), pynvml.c_nvmlGpuFabricInfoV_t()
    for call, info in ((pynvml.nvmlDeviceGetGpuFabricInfo, old), (pynvml.nvmlDeviceGetGpuFabricInfoV, new)):
        call(gpu(), pynvml.byref(info))
        assert (bytes(info.clusterUuid), info.cliqueId, info.state) == (b"\x0a" * 16, 4, 3)
    assert pynvml.nvmlDeviceGetAddressingMode(gpu()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpu=7", "lost=1"], "the host has 1 GPUs"),
        (["lost=1"], "keys of a GPU come behind gpu=N"),
        (["gpu=0", "colour=red"], "colour: unknown for a GPU"),
        (["gpu=0", "lost=yes"], "lost=yes: a number"),
        (["gpu=0", "lost"], "NAME=VALUE"),
        (["gpu=0", "mode_change=magic"], "immediate reset reboot"),
        (["gpu=0", "name=" + "n" * 80], "at most 63 characters"),
        (["gpu=0", "instance=19"], "Not Supported"),
        (["gpu=0", "mig=1", "instance=19@7"], "Invalid Argument"),
        (["gpu=0", "process=0x"], "a number"),
    ],
)
def test_settings_that_make_no_sense_change_nothing(make: Make, arguments: list[str], message: str) -> None:
    double = make("H200-SXM5-141GB", 1)
    before = double.show()
    with pytest.raises(ProgramError, match=message):
        double.set(*arguments)
    assert double.show() == before


def test_name_drift_of_a_driver(make: Make) -> None:
    make("A100-SXM4-80GB", 1).set("gpu=0", "profile.2.name=3g.39gb", "profile.2.mib=40000")
    info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(), 2)
    assert (info.name, info.memorySizeMB) == ("MIG 3g.39gb", 40000)


def test_program_shows_its_use() -> None:
    done = subprocess.run([nvml.build() / nvml.PROGRAM], capture_output=True, text=True, env=os.environ, check=False)
    assert (done.returncode, "nvml-double create" in done.stderr) == (2, True)
