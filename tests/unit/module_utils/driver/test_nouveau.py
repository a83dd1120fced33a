# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other drivers of the GPUs are kept out at boot, and unloaded now only where nothing uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._nouveau import FILE, look, unload, wanted_files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

from ..host_state.trees import gpu
from .machine import Machine, said

CONSOLE = {
    "/sys/class/vtconsole/vtcon0/name": "(S) dummy device\n",
    "/sys/class/vtconsole/vtcon0/bind": "0\n",
    "/sys/class/vtconsole/vtcon1/name": "(M) frame buffer device\n",
    "/sys/class/vtconsole/vtcon1/bind": "1\n",
}


@pytest.mark.rows("H042")
def test_the_file_keeps_nouveau_out_and_nova_where_the_kernel_has_it() -> None:
    (text,) = wanted_files("6.8.0-45-generic").values()
    assert text.splitlines()[1:] == ["blacklist nouveau", "options nouveau modeset=0"]
    (newer,) = wanted_files("6.17.2-amd64").values()
    assert "blacklist nova_core\nblacklist nova_drm\n" in newer
    assert list(wanted_files()) == [FILE]


@pytest.mark.rows("H042")
def test_nouveau_that_nothing_uses_is_unloaded(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {**gpu("0000:06:00.0", "0x1eb8", "nouveau"), **CONSOLE, "/proc/fb": "0 astdrmfb\n"})
    machine.load(nouveau=0)
    found = look(machine.files)
    assert (found.loaded, found.bound, found.reboot) == (("nouveau",), ("0000:06:00.0",), "")
    assert unload(machine, machine.files) == ["nouveau"]
    assert machine.ran == ["modprobe -r nouveau"]
    assert look(machine.files).loaded == ()
    assert unload(machine, machine.files) == []


@pytest.mark.rows("H042")
@pytest.mark.parametrize(
    ("files", "uses", "told"),
    [
        ({}, 2, "nouveau drives a display or is in use (2)"),
        ({**CONSOLE, "/proc/fb": "0 nouveaudrmfb\n"}, 0, "The console is on the GPU (nouveaudrmfb)"),
        (CONSOLE, 0, "The console is on the GPU (vtcon1, a frame buffer that /proc/fb does not name)"),
    ],
)
def test_nouveau_with_a_display_or_the_console_waits_for_a_reboot(tmp_path: Path, files, uses: int, told: str) -> None:
    machine = Machine(tmp_path, files).load(nouveau=uses)
    assert told in look(machine.files).reboot
    with pytest.raises(Failure, match=r"Nothing was unloaded. Reboot the host\."):
        unload(machine, machine.files)
    assert machine.ran == []


@pytest.mark.rows("H042")
def test_a_kernel_that_does_not_count_is_not_trusted(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"/proc/modules": "nouveau 100 - - Live 0x0\n"})
    assert "does not tell who uses it" in look(machine.files).reboot


def test_a_console_that_is_not_bound_holds_nothing(tmp_path: Path) -> None:
    unbound = {**CONSOLE, "/sys/class/vtconsole/vtcon1/bind": "0\n", "/proc/fb": "0 nouveaudrmfb\n"}
    assert look(Machine(tmp_path, unbound).load(nouveau=0).files).reboot == ""


@pytest.mark.rows("H042")
def test_nova_is_unloaded_dependents_first(tmp_path: Path) -> None:
    machine = Machine(tmp_path).load(nova_core=0, nova_drm=0)
    assert unload(machine, machine.files) == ["nova_drm", "nova_core"]
    assert machine.ran == ["modprobe -r nova_drm", "modprobe -r nova_core"]


@pytest.mark.rows("H042")
@pytest.mark.parametrize("answer", [said(), said(rc=1, err="modprobe: FATAL: Module nouveau is in use.")])
def test_an_unload_is_proved(tmp_path: Path, answer) -> None:
    machine = Machine(tmp_path).load(nouveau=0)
    machine.answers["modprobe -r"] = answer
    with pytest.raises(Failure, match=r"nouveau could not be unloaded: .*Reboot the host"):
        unload(machine, machine.files)


def test_what_others_do_to_keep_it_out_is_seen_and_our_file_is_none_of_it(tmp_path: Path) -> None:
    machine = Machine(
        tmp_path,
        {
            FILE: wanted_files()[FILE],
            "/usr/lib/modprobe.d/nvidia.conf": "blacklist nouveau\n",
            "/proc/cmdline": "quiet rd.driver.blacklist=nouveau\n",
        },
    )
    assert look(machine.files).blocked == (
        "/usr/lib/modprobe.d/nvidia.conf",
        "kernel command line: rd.driver.blacklist",
    )
