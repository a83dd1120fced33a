# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a reboot necessary is found where the host shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._circumstances import (
    coherent_memory_online,
    lost,
    recovery_action,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._kernel_log import classified

from .machine import Machine, said

SMI = "/usr/bin/nvidia-smi"
GH200, H100 = 0x2342, 0x2330


@pytest.mark.rows("H056")
def test_gpus_that_left_their_bus_are_named_once() -> None:
    line = "NVRM: GPU at PCI:0000:06:00: GPU-1 GPU has fallen off the bus."
    assert lost(classified([line, line, "NVRM: RmInitAdapter failed! 0000:07:00.0"])) == ("0000:06:00.0",)


@pytest.mark.rows("H056")
@pytest.mark.parametrize(
    ("actions", "told"),
    [
        (("None", "None"), ""),
        (("N/A",), ""),
        (("None", "Drain and Reset", "Reboot"), "Reboot"),
        (("Reset",), "Reset"),
    ],
)
def test_what_the_driver_asks_for_is_read(tmp_path: Path, actions: tuple[str, ...], told: str) -> None:
    machine = Machine(tmp_path, {SMI: ""})
    text = "".join(f"\t\t<gpu_recovery_action>{one}</gpu_recovery_action>\n" for one in actions)
    machine.answers[f"{SMI} -q -x"] = said(text)
    assert recovery_action(machine, machine.files) == told


def test_a_driver_that_is_silent_asks_for_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {SMI: ""})
    machine.answers[f"{SMI} -q -x"] = said("", -9)
    assert recovery_action(machine, machine.files) == ""
    assert recovery_action(machine, Machine(tmp_path / "bare").files) == ""


@pytest.mark.rows("H056", "H050")
@pytest.mark.parametrize(
    ("devices", "memory", "processors", "mode", "online"),
    [
        ([GH200], "0-1,4\n", "0\n", '""', True),
        ([GH200], "0-1\n", "0-1\n", '""', False),
        ([GH200], "0-1,4\n", "0\n", '"driver"', False),
        ([H100], "0-1,4\n", "0\n", '""', False),
        ([], "0,2\n", "0\n", '""', False),
    ],
)
def test_memory_of_gpus_that_is_the_systems_is_seen(
    tmp_path: Path, devices: list[int], memory: str, processors: str, mode: str, online: bool
) -> None:
    machine = Machine(
        tmp_path,
        {
            "/sys/devices/system/node/has_memory": memory,
            "/sys/devices/system/node/has_cpu": processors,
            "/proc/driver/nvidia/params": f"CoherentGPUMemoryMode: {mode}\n",
        },
    )
    assert coherent_memory_online(machine.files, devices) is online
