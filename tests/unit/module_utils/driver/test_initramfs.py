# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The initramfs is made anew where what it holds has changed, by the program of the distribution, and only then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _nouveau, _parameters
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._initramfs import (
    command,
    has_nvidia,
    image,
    needed,
    rebuild,
    tool,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

from .machine import KERNEL, Machine, said

DEBIAN = {"/usr/sbin/update-initramfs": "", "/usr/bin/dracut": "", f"/boot/initrd.img-{KERNEL}": "old"}
EL = {"/usr/bin/dracut": "", f"/boot/initramfs-{KERNEL}.img": "old"}
SUSE = {"/sbin/mkinitrd": "", f"/boot/initrd-{KERNEL}": "old"}


@pytest.mark.rows("H043")
@pytest.mark.parametrize(
    ("files", "one", "every"),
    [
        (DEBIAN, f"update-initramfs -u -k {KERNEL}", "update-initramfs -u -k all"),
        (EL, f"dracut -f --kver {KERNEL}", "dracut -f --regenerate-all"),
        (SUSE, f"mkinitrd -k vmlinuz-{KERNEL} -i initrd-{KERNEL}", "mkinitrd"),
    ],
)
def test_each_family_has_its_program(tmp_path: Path, files, one: str, every: str) -> None:
    program = tool(Machine(tmp_path, files).files)
    assert " ".join(command(program, KERNEL, all_kernels=False)) == one
    assert " ".join(command(program, KERNEL, all_kernels=True)) == every


@pytest.mark.rows("H043")
def test_nouveaus_file_asks_for_it_and_nvidias_options_only_where_nvidia_is_inside(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DEBIAN)
    assert _nouveau.FILE in needed([_nouveau.FILE], machine.files, KERNEL)
    assert needed([], machine.files, KERNEL) == ""
    assert needed([_parameters.FILE], machine.files, KERNEL) == ""
    machine.put("/etc/initramfs-tools/modules", "# nvidia is not here\nnvidia_drm\n")
    assert _parameters.FILE in needed([_parameters.FILE], machine.files, KERNEL)


@pytest.mark.parametrize(
    ("path", "text", "inside"),
    [
        ("/etc/initramfs-tools/modules", "# nvidia\n", False),
        ("/etc/dracut.conf.d/nvidia.conf", 'force_drivers+=" nvidia nvidia_modeset "\n', True),
        ("/usr/lib/dracut/dracut.conf.d/99.conf", 'add_drivers+=" nvidia "\n', True),
        ("/etc/dracut.conf", 'omit_drivers+=" nouveau "\n', False),
        ("/usr/share/initramfs-tools/hooks/framebuffer-nvidia", "", True),
    ],
)
def test_whether_nvidia_is_inside_is_read_from_what_makes_it(
    tmp_path: Path, path: str, text: str, inside: bool
) -> None:
    assert has_nvidia(Machine(tmp_path, {path: text}).files) is inside


@pytest.mark.rows("H043")
def test_a_file_that_a_killed_run_wrote_is_newer_than_the_image(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {**DEBIAN, _nouveau.FILE: "x"})
    place = tmp_path / f"boot/initrd.img-{KERNEL}"
    os.utime(place, ns=(10, 10))
    assert "is newer than" in needed([], machine.files, KERNEL, [_nouveau.FILE])
    os.utime(place)
    assert needed([], machine.files, KERNEL, [_nouveau.FILE]) == ""
    assert needed([], machine.files, KERNEL, ["/etc/modprobe.d/none.conf"]) == ""


def test_a_host_without_such_a_program_or_image_needs_none(tmp_path: Path) -> None:
    bare = Machine(tmp_path)
    assert (tool(bare.files), image(bare.files, KERNEL)) == ("", "")
    assert needed([_nouveau.FILE], bare.files, KERNEL) == ""
    with pytest.raises(Failure, match="neither update-initramfs nor dracut nor mkinitrd"):
        rebuild(bare, bare.files, KERNEL)
    fresh = Machine(tmp_path / "fresh", {"/usr/bin/dracut": "", _nouveau.FILE: "x"})
    assert needed([], fresh.files, KERNEL, [_nouveau.FILE]) == ""


@pytest.mark.rows("H043")
def test_a_rebuild_is_proved_on_the_image(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DEBIAN)
    machine.answers["update-initramfs"] = lambda argv: machine.put(f"/boot/initrd.img-{KERNEL}", "a new one") and said()
    assert rebuild(machine, machine.files, KERNEL, all_kernels=True) == ["update-initramfs", "-u", "-k", "all"]
    machine.answers["update-initramfs"] = said("update-initramfs is disabled")
    with pytest.raises(Failure, match="is still the old file"):
        rebuild(machine, machine.files, KERNEL)


@pytest.mark.rows("H043")
def test_a_failed_rebuild_tells_what_the_next_boot_does(tmp_path: Path) -> None:
    machine = Machine(tmp_path, EL)
    machine.answers["dracut"] = said(rc=1, err="dracut: No space left on device")
    with pytest.raises(Failure, match=r"No space left on device.*The old one is in use.*run again"):
        rebuild(machine, machine.files, KERNEL)
