# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How adapters reach GPU memory, and the mode of the persistence daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._peer import adapters, choose
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._persistence import (
    DROP_IN,
    UNIT,
    starts,
    wanted_files,
)

from .machine import Machine

OFF = "/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose"
ON = "/usr/bin/nvidia-persistenced --user nvidia-persistenced --persistence-mode --verbose"
PLACE = f"/usr/lib/systemd/system/{UNIT}"


@pytest.mark.rows("H031")
@pytest.mark.parametrize(
    ("asked", "flavour", "kernel", "gpus", "adapter", "way", "modules"),
    [
        ("auto", "open", "6.8.0-45-generic", ["hopper"], True, "dma_buf", ()),
        ("auto", "open", "5.10.0-30-amd64", ["hopper"], True, "peermem", ("nvidia_peermem",)),
        ("auto", "open", "5.12.0", ["turing"], True, "dma_buf", ()),
        ("auto", "proprietary", "6.8.0", ["ampere"], True, "peermem", ("nvidia_peermem",)),
        ("auto", "proprietary", "6.8.0", ["volta"], True, "peermem", ("nvidia_peermem",)),
        ("auto", "open", "6.8.0", ["hopper"], False, "none", ()),
        ("none", "open", "6.8.0", ["hopper"], True, "none", ()),
        ("peermem", "open", "6.8.0", ["hopper"], True, "peermem", ("nvidia_peermem",)),
        ("dma_buf", "open", "6.8.0", ["hopper"], False, "dma_buf", ()),
    ],
)
def test_the_way_follows_flavour_kernel_and_adapters(asked, flavour, kernel, gpus, adapter, way, modules) -> None:
    found = choose(asked, flavour, kernel, gpus, adapter)
    assert (found.way, found.modules, found.problem) == (way, modules, "")
    assert found.why.endswith(".")


@pytest.mark.rows("H031")
def test_a_way_that_cannot_be_is_a_problem_with_all_that_is_missing() -> None:
    problem = choose("dma_buf", "proprietary", "4.18.0-553.el8", ["volta"], True).problem
    assert problem == (
        "DMA-BUF needs the open modules and kernel 5.12 or newer (this is 4.18.0-553.el8) and GPUs from Turing on. "
        "Ask for peermem instead."
    )
    assert "needs ib_core" in choose("peermem", "open", "6.8.0", ["hopper"], False).problem


@pytest.mark.rows("H031")
def test_adapters_are_seen_in_sysfs(tmp_path: Path) -> None:
    assert not adapters(Machine(tmp_path / "none").files)
    assert adapters(Machine(tmp_path / "device", {"/sys/class/infiniband/mlx5_0/x": ""}).files)
    assert adapters(Machine(tmp_path / "core").load(ib_core=0).files)


@pytest.mark.rows("H030")
def test_a_unit_that_starts_with_persistence_off_gets_a_drop_in(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {PLACE: f"[Service]\nType=forking\nExecStart={OFF}\nExecStopPost=/bin/true\n"})
    ((path, text),) = wanted_files(machine.files).items()
    assert path == DROP_IN
    assert text.splitlines()[1:] == [
        "[Service]",
        "ExecStart=",
        "ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose --persistence-mode",
    ]
    machine.put(DROP_IN, text)
    assert wanted_files(machine.files) == {path: text}  # still wanted, so that it is kept


@pytest.mark.rows("H030")
@pytest.mark.parametrize(("command", "on"), [(ON, True), ("/usr/bin/nvidia-persistenced --user x", True), (OFF, False)])
def test_a_unit_that_starts_as_wanted_is_left_alone(tmp_path: Path, command: str, on: bool) -> None:
    assert wanted_files(Machine(tmp_path, {PLACE: f"[Service]\nExecStart={command}\n"}).files, on) == {}


@pytest.mark.rows("H030")
def test_the_mode_can_be_switched_off_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {PLACE: f"[Service]\nExecStart={ON}\n"})
    assert wanted_files(machine.files, on=False)[DROP_IN].endswith("--verbose --no-persistence-mode\n")


@pytest.mark.rows("H030")
def test_drop_ins_of_others_count_in_their_order_and_ours_does_not(tmp_path: Path) -> None:
    machine = Machine(
        tmp_path,
        {
            PLACE: f"[Service]\nExecStart={OFF}\n",
            f"/etc/systemd/system/{UNIT}.d/override.conf": f"[Service]\nExecStart=\nExecStart={ON}\n",
            f"/usr/lib/systemd/system/{UNIT}.d/10-first.conf": "[Service]\nExecStart=\nExecStart=/bin/false\n",
            DROP_IN: "[Service]\nExecStart=\nExecStart=/ours\n",
        },
    )
    assert starts(machine.files) == ON
    assert wanted_files(machine.files) == {}
    assert starts(Machine(tmp_path / "none").files) == ""
    assert wanted_files(Machine(tmp_path / "none").files) == {}
