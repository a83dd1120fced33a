# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver works when kernel, nvidia-smi and PCI say the same; nothing is waited for without a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._proof import expected, fabric, loaded, prove
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._smi import COLUMNS

from ..host_state import trees
from .machine import VERSION, Machine, said

SMI = "/usr/bin/nvidia-smi"
GPUS = {**trees.gpu("0000:06:00.0", "0x2330", "nvidia"), **trees.gpu("0000:07:00.0", "0x2330", "nvidia")}


def answer(count: int = 2, version: str = VERSION) -> str:
    known = {"driver_version": version, "name": "NVIDIA H100"}
    return "".join(", ".join(known.get(name, "[N/A]") for name in COLUMNS) + "\n" for _number in range(count))


def fabric_xml(*states: str) -> str:
    """As nvidia-smi -q -x has it."""
    parts = [
        f"\t\t<fabric>\n\t\t\t<state>{state}</state>\n\t\t\t<status>{status}</status>\n\t\t</fabric>\n"
        for state, _slash, status in (one.partition("/") for one in states)
    ]
    return "<nvidia_smi_log>" + "".join(parts) + "</nvidia_smi_log>"


def host(folder: Path, flavour: str = "open", **more: str) -> Machine:
    machine = Machine(folder, {**GPUS, **trees.loaded(VERSION, flavour), SMI: "", **more})
    machine.answers[f"{SMI} --query-gpu"] = said(answer())
    return machine


@pytest.mark.rows("H047", "H058")
def test_a_driver_that_works_is_proved(tmp_path: Path) -> None:
    machine = host(tmp_path)
    machine.answers[f"{SMI} -q -x"] = said(fabric_xml("Completed/Success", "Completed/Success"))
    checks = prove(machine, machine.files, VERSION, "open", has_fabric=True)
    assert [(check.id, check.ok) for check in checks] == [
        ("driver.loaded", True), ("driver.nvidia_smi", True), ("driver.gpus", True), ("driver.fabric", True),
    ]  # fmt: skip
    assert checks[2].detail == "2 of 2 GPUs"


@pytest.mark.rows("H047")
def test_another_version_or_flavour_than_the_wanted_one_is_no_proof(tmp_path: Path) -> None:
    machine = host(tmp_path, "proprietary")
    check = loaded(machine.files, VERSION, "open")
    assert (check.ok, check.detail) == (False, f"{VERSION} proprietary is loaded, {VERSION} open is wanted")
    assert not loaded(machine.files, "595.91.07").ok
    assert "no driver is loaded" in loaded(Machine(tmp_path / "bare").files, VERSION).detail
    assert [one.id for one in prove(machine, machine.files, "595.91.07")] == ["driver.loaded"]


@pytest.mark.rows("H047")
@pytest.mark.parametrize(
    ("done", "told"),
    [
        (
            said("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.1\n", 18),
            "Unload",
        ),
        (said("No devices were found\n", 6), "the driver is loaded and has no GPU"),
        (said("", -9), "nvidia-smi did not end in time"),
        (said("", 127), "nvidia-smi is not there"),
        (said(answer(version="570.10")), "tells of driver 570.10, 580.95.05 is wanted"),
    ],
)
def test_what_nvidia_smi_says_against_it_is_told(tmp_path: Path, done, told: str) -> None:
    machine = host(tmp_path)
    machine.answers[f"{SMI} --query-gpu"] = done
    check = prove(machine, machine.files, VERSION)[1]
    assert not check.ok
    assert told in check.detail


@pytest.mark.rows("H047", "H058")
def test_a_missing_gpu_is_counted_and_those_for_virtual_machines_are_not(tmp_path: Path) -> None:
    machine = host(tmp_path)
    machine.answers[f"{SMI} --query-gpu"] = said(answer(1))
    counted = prove(machine, machine.files, VERSION)[2]
    assert (counted.ok, counted.detail) == (False, "1 of 2 GPUs: see the kernel's log for the others")
    more = {
        **GPUS,
        **trees.gpu("0000:08:00.0", "0x2330", "vfio-pci"),
        **trees.gpu("0000:09:00.0", "0x2330", "nvidia"),
        "/proc/driver/nvidia/gpus/0000:09:00.0/information": "GPU Excluded:\t Yes\n",
    }
    assert expected(Machine(tmp_path / "more", more).files) == 2


@pytest.mark.rows("H047")
def test_nvidia_smi_that_is_nowhere_is_no_proof(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {**GPUS, **trees.loaded(VERSION)})
    checks = prove(machine, machine.files, VERSION)
    assert [(check.id, check.ok) for check in checks] == [("driver.loaded", True), ("driver.nvidia_smi", False)]
    assert "nvidia-smi is not there" in checks[1].detail


@pytest.mark.rows("H058")
def test_the_fabric_is_waited_for(tmp_path: Path) -> None:
    machine = host(tmp_path)
    answers = [fabric_xml("Not Started/N/A"), fabric_xml("In Progress/N/A"), fabric_xml("Completed/Success")]
    machine.answers[f"{SMI} -q -x"] = lambda argv: said(answers.pop(0))
    slept: list[float] = []
    assert fabric(machine, machine.files, 60.0, slept.append).ok
    assert len(slept) == 2


@pytest.mark.rows("H058")
@pytest.mark.parametrize(
    ("states", "told"),
    [
        (("Completed/Success", "Completed/Not Supported"), "Completed (Not Supported)"),
        (("In Progress/N/A",), "In Progress (N/A)"),
        (("N/A/N/A",), "N/A"),
        ((), "no GPU tells its state"),
    ],
)
def test_a_fabric_that_does_not_complete_is_told_within_the_limit(tmp_path: Path, states, told: str) -> None:
    machine = host(tmp_path)
    machine.answers[f"{SMI} -q -x"] = said(fabric_xml(*states))
    check = fabric(machine, machine.files, 0.0, lambda seconds: None)
    assert not check.ok
    assert told in check.detail
    machine.answers[f"{SMI} -q -x"] = said("", -9)
    assert "in time" in fabric(machine, machine.files, 0.0).detail
