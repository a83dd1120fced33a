# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the end of nvidia-smi and lines of the kernel's log mean."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._inventory import Session
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state import _collect, _kernel_log, _smi
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.host_state.trees import tree

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n"
)


@pytest.mark.rows("H047")
@pytest.mark.parametrize(
    ("code", "output", "state"),
    [
        (0, "0, GPU-1", "ok"),
        (2, "Invalid argument", "argument"),
        (3, "", "not_supported"),
        (4, "Insufficient Permissions", "permission"),
        (6, "No devices were found\n", "no_devices"),
        (0, "No devices were found\n", "no_devices"),
        (8, "", "power"),
        (9, NO_DRIVER, "not_loaded"),
        (1, NO_DRIVER, "not_loaded"),
        (10, "", "interrupts"),
        (12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "no_library"),
        (12, "", "no_library"),
        (13, "", "old_library"),
        (14, "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n", "inforom"),
        (15, "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.", "lost"),
        (255, "Unable to determine the device handle for GPU0: 0000:3B:00.0: Unknown Error\n", "lost"),
        (18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n", "mismatch"),
        (18, "", "mismatch"),
        (255, "Failed to initialize NVML: Unknown Error\n", "no_access"),
        (255, "Failed to initialize NVML: GPU Not Ready\n", "failed"),
        (127, "", "missing"),
        (77, "odd", "failed"),
    ],
)
def test_every_end_of_nvidia_smi_has_a_meaning(code: int, output: str, state: str) -> None:
    read = _smi.verdict(code, output)
    assert read.state == state
    assert bool(read.meaning) == (state != "ok")
    assert _smi.verdict(code, "", output).state == state


TOO_OLD = (
    "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:1db6) installed in this system is not supported by open "
    "nvidia.ko because it does not include the required GPU System Processor (GSP)."
)


def program(folder: Path, script: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def asked(path: str, timeout: float = 20.0) -> tuple[_smi.Verdict, list[dict]]:
    smi, rows = _collect._nvidia_smi(_collect.Host("/", timeout=timeout), path, Session("no_pynvml"))
    return _smi.Verdict(smi.state, smi.why, smi.remedy), list(rows)


@pytest.mark.rows("H047")
def test_an_nvidia_smi_that_hangs_is_ended_in_time(tmp_path: Path) -> None:
    start = time.monotonic()
    read, rows = asked(program(tmp_path, "sleep 60"), 0.5)
    assert time.monotonic() - start < 10
    assert (read, rows) == (_smi.LATE, [])


@pytest.mark.rows("H047")
def test_an_nvidia_smi_that_cannot_be_run_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-smi"
    path.write_text("")
    assert asked(str(path))[0].state == "permission"


def test_gpus_without_pynvml_come_from_nvidia_smi(tmp_path: Path) -> None:
    line = (
        "0, GPU-1, 00000000:3B:00.0, Tesla T4, 580.95.05, 15360, [N/A], [N/A], 7.5, 132, 90.04.A7.00.01, Enabled, "
        "Default, Enabled"
    )
    read, rows = asked(program(tmp_path, f"echo '{line}'; echo broken, line"))
    assert read.state == "ok"
    assert [(row["uuid"], row["name"], row["mig.mode.current"], row["serial"]) for row in rows] == [
        ("GPU-1", "Tesla T4", "", "132")
    ]


def test_nvidia_smi_is_left_alone_where_nvml_answers(tmp_path: Path) -> None:
    path = program(tmp_path, f"touch {tmp_path}/called")
    smi, rows = _collect._nvidia_smi(_collect.Host("/"), path, Session("ok"))
    assert (smi.state, rows) == ("not_asked", [])
    assert not (tmp_path / "called").exists()


@pytest.mark.rows("H048")
@pytest.mark.parametrize(
    ("line", "kind", "bus", "code"),
    [
        (
            "NVRM: API mismatch: the client has the version 580.95.05, but\\x0aNVRM: this kernel module has",
            "mismatch", "", -1,
        ),
        (
            TOO_OLD,
            "needs_proprietary", "0000:3b:00.0", -1,
        ),
        ("NVRM: installed in this system requires use of the NVIDIA open kernel modules.", "needs_open", "", -1),
        ("NVRM: The NVIDIA probe routine was not called for 1 device(s).", "not_probed", "", -1),
        ("NVRM: GPU 0000:01:00.0 is already bound to nouveau.", "bound", "0000:01:00.0", -1),
        ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", "bar", "", -1),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x40:2477)", "init", "0000:3b:00.0", -1),
        ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "lost", "0000:3b:00.0", -1),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.", "xid", "0000:3b:00.0", 79),
        ("NVRM: Xid (PCI:0000:5e:00): 31, pid=4, name=python3, Ch 8, MMU Fault", "xid", "0000:5e:00.0", 31),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30", "sxid", "0000:c1:00.0", 20034),
        ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service", "signature", "", -1),
        ("Loading of unsigned module is rejected", "signature", "", -1),
        ("Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7", "signature", "", -1),
        ("could not insert 'nvidia_current': Required key not available", "signature", "", -1),
        ("nvidia: version magic '6.8.0-59-generic SMP' should be '6.8.0-60-generic SMP'", "other_kernel", "", -1),
        ("modprobe: ERROR: could not insert 'nvidia': Exec format error", "other_kernel", "", -1),
        ("nvidia_uvm: Unknown symbol nvUvmInterfaceSessionCreate (err -2)", "other_kernel", "", -1),
        ("modprobe: ERROR: could not insert 'nvidia': Operation not permitted", "lockdown", "", -1),
        ("modprobe: ERROR: could not insert 'nvidia': No such device", "no_device", "", -1),
        ("modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-60-generic", "not_built", "", -1),
    ],
)  # fmt: skip
def test_every_cause_of_the_kernels_log_is_known(line: str, kind: str, bus: str, code: int) -> None:
    for text in (line, f"3,1234,5678901,-;{line}", f"[   12.345678] {line}"):
        read = _kernel_log.classify(text)
        assert read is not None
        assert (read.kind, read.bus_id, read.code) == (kind, bus, code)
        assert read.cause
        assert "\\x0a" not in read.text
        assert read.remedy


@pytest.mark.rows("H048")
@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)",
        "NVRM: Persistence mode is deprecated and will be removed in a future release.",
        "nouveau 0000:01:00.0: vgaarb: deactivate vga console",
        "usb 1-1: Device not responding",
        "",
    ],
)
def test_lines_that_say_nothing_wrong_are_left_out(line: str) -> None:
    assert _kernel_log.classify(line) is None


@pytest.mark.rows("H048")
def test_equal_causes_are_counted_and_the_last_line_kept(tmp_path: Path) -> None:
    lines = [f"4,{number},{number},-;NVRM: Xid (PCI:0000:3b:00): 13, pid={number}, name=a" for number in range(500)]
    lines += [f"4,1,1,-;NVRM: Xid (PCI:0000:3b:00): {code}, pid=1" for code in range(1000, 1400)]
    read = _kernel_log.read(tree(tmp_path, {"/dev/kmsg": "\n".join(lines)}))
    assert (read[0].code, read[0].count) == (13, 500)
    assert "pid=499" in read[0].text
    assert len(read) == _kernel_log.MOST_KINDS
