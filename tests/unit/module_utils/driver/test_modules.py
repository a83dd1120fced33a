# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules go and come in the order of their dependencies, never by force, and a failure leaves a host that works."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _users
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._modules import (
    UNLOAD_ORDER,
    Loaded,
    load,
    loaded,
    nodes,
    unload,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.tests.helpers.faults import Died, Steps

from ..host_state.trees import recorded
from .machine import Machine, said

ALL = dict.fromkeys(
    (
        "nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nvidia_fs", "gdrdrv",
        "nvidia_vgpu_vfio",
    ),
    0,
)  # fmt: skip
CONTAINER = "3f2a" * 16


def test_loaded_modules_tell_who_stands_on_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path).load(nvidia=2, nvidia_uvm=0, nvidia_modeset=0, nvidia_drm=1)
    found = loaded(machine.files)
    assert found["nvidia"] == Loaded("", 5, ("nvidia_drm", "nvidia_modeset", "nvidia_uvm"))
    assert {name: module.users for name, module in found.items()} == {
        "nvidia": 2,
        "nvidia_uvm": 0,
        "nvidia_modeset": 0,
        "nvidia_drm": 1,
    }


def test_a_recorded_host_whose_kernel_does_not_count_is_read(tmp_path: Path) -> None:
    found = loaded(Machine(tmp_path, recorded("h100")).files)
    assert {name: module.refcnt for name, module in found.items()} == {"nvidia": -1, "nvidia_uvm": -1}
    assert found["nvidia"].version == "580.159.04"


def test_modules_of_the_kernel_with_a_like_name_are_not_ours(tmp_path: Path) -> None:
    text = "nvidia_wmi_ec_backlight 100 0 - Live 0x0\nnvidia_cspmu 100 0 - Live 0x0\n"
    assert loaded(Machine(tmp_path, {"/proc/modules": text}).files) == {}


@pytest.mark.rows("H053")
def test_everything_is_unloaded_dependents_first(tmp_path: Path) -> None:
    machine = Machine(tmp_path).load(**ALL)
    gone = unload(machine, machine.files)
    assert gone == [name for name in UNLOAD_ORDER if name in ALL]
    assert machine.ran == [f"rmmod {name}" for name in gone]
    assert loaded(machine.files) == {}
    assert unload(machine, machine.files) == []


@pytest.mark.rows("H053")
@pytest.mark.parametrize("name", ["nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_peermem"])
def test_a_module_in_use_stops_all_before_anything_is_unloaded(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path).load(**{**ALL, name: 2})
    machine.process(4711, "python3", cgroup=f"/kubepods/pod1/cri-containerd-{CONTAINER}.scope")
    machine.process(88, "nv-hostengine", cgroup="/system.slice/nvidia-dcgm.service")
    with pytest.raises(Failure) as failed:
        unload(machine, machine.files)
    told = failed.value.msg
    assert f"{name} 2" in told
    assert "python3 (pid 4711, container 3f2a3f2a3f2a)" in told
    assert "nv-hostengine (pid 88, nvidia-dcgm.service)" in told
    assert "Nothing was unloaded." in told
    assert machine.ran == []


@pytest.mark.rows("H053")
def test_a_use_without_a_process_is_told_with_what_may_be_behind_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path).load(nvidia=1)
    with pytest.raises(Failure, match="persistence mode, a console, or a container"):
        unload(machine, machine.files)
    screen = Machine(tmp_path / "screen").load(nvidia=0, nvidia_modeset=0, nvidia_drm=1)
    with pytest.raises(Failure, match="a console on the GPU may hold them"):
        unload(screen, screen.files)


@pytest.mark.rows("H053")
def test_a_module_that_nobody_knows_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path).load(nvidia=0, odd=0)
    with pytest.raises(Failure, match="The kernel module odd stands on NVIDIA's"):
        unload(machine, machine.files)
    assert machine.ran == []


@pytest.mark.rows("H053", "H055")
def test_one_that_stays_brings_back_those_that_went_before_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path).load(nvidia=0, nvidia_uvm=0, nvidia_modeset=0, nvidia_drm=0)

    def taken(argv: list[str]):
        machine.process(4711, "python3")
        machine.load(nvidia_uvm=1)

    machine.answers["rmmod nvidia_uvm"] = taken
    with pytest.raises(Failure) as failed:
        unload(machine, machine.files)
    assert "The kernel module nvidia_uvm could not be unloaded." in failed.value.msg
    assert "python3 (pid 4711)" in failed.value.msg
    assert "What had been unloaded is loaded again: nvidia_drm, nvidia_modeset." in failed.value.msg
    assert sorted(machine.modules) == ["nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"]
    assert failed.value.done == []


@pytest.mark.rows("H055")
def test_a_failure_tells_what_is_unloaded_where_it_cannot_be_loaded_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path).load(nvidia=0, nvidia_uvm=0)
    machine.answers["rmmod nvidia"] = lambda argv: (
        said(rc=1, err="rmmod: ERROR: Resource temporarily unavailable") if argv[1] == "nvidia" else None
    )
    machine.answers["modprobe nvidia-uvm"] = said(rc=1, err="modprobe: ERROR: Key was rejected by service")
    with pytest.raises(Failure) as failed:
        unload(machine, machine.files)
    assert failed.value.done == ["nvidia_uvm"]
    assert "Unloaded, and not loaded again: nvidia_uvm." in failed.value.msg
    assert "does not trust the module's signature" in failed.value.msg


def test_success_is_not_concluded_from_an_exit_status(tmp_path: Path) -> None:
    machine = Machine(tmp_path).load(nvidia=0)
    machine.answers["rmmod"] = said()
    with pytest.raises(Failure, match="it is still there"):
        unload(machine, machine.files)
    fresh = Machine(tmp_path / "fresh")
    fresh.answers["modprobe nvidia"] = said()
    with pytest.raises(Failure, match="the kernel does not have the module"):
        load(fresh, fresh.files, ["nvidia"])


@pytest.mark.rows("H054")
def test_modules_are_loaded_in_the_order_of_their_needs(tmp_path: Path) -> None:
    machine = Machine(tmp_path).load(ib_core=0)
    wanted = ["nvidia-fs", "nvidia-peermem", "nvidia-drm", "nvidia-modeset", "nvidia-uvm", "gdrdrv"]
    made = load(machine, machine.files, wanted)
    assert made == [
        "nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "gdrdrv", "nvidia_fs",
    ]  # fmt: skip
    assert machine.ran[:4] == [
        "modprobe --quiet i2c_core",
        "modprobe --quiet ipmi_msghandler",
        "modprobe --quiet ipmi_devintf",
        "modprobe nvidia",
    ]
    before = len(machine.ran)
    assert load(machine, machine.files, wanted) == []
    assert len(machine.ran) == before


@pytest.mark.rows("H054")
def test_peermem_without_the_adapters_driver_is_refused_before_modprobe(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with pytest.raises(Failure, match=r"needs ib_core, which is not loaded\. Loaded before it: nvidia\.") as failed:
        load(machine, machine.files, ["nvidia_peermem"])
    assert failed.value.done == ["nvidia"]
    assert "modprobe nvidia-peermem" not in machine.ran


@pytest.mark.rows("H054", "H048")
@pytest.mark.parametrize(
    ("words", "log", "told"),
    [
        ("could not insert 'nvidia': Key was rejected by service", "", "does not trust the module's signature"),
        ("could not insert 'nvidia': Exec format error", "", "built for another kernel"),
        ("could not insert 'nvidia': Operation not permitted", "", "the kernel refuses modules"),
        ("FATAL: Module nvidia not found in directory /lib/modules/6.8.0", "", "no module for the running kernel"),
        ("could not insert 'nvidia': No such device", "", "no GPU that these modules can drive"),
        (
            "could not insert 'nvidia': No such device",
            "NVRM: GPU 0000:01:00.0 requires use of the NVIDIA open kernel modules.",
            "the proprietary kernel modules cannot drive this GPU",
        ),
        (
            "could not insert 'nvidia': No such device",
            "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
            "another driver had the GPU",
        ),
        ("something new", "", "something new."),
    ],
)
def test_why_a_module_is_not_loaded_is_told(tmp_path: Path, words: str, log: str, told: str) -> None:
    machine = Machine(tmp_path, {"/dev/kmsg": f"6,1,1,-;{log}\n"} if log else {})
    machine.answers["modprobe nvidia"] = said(rc=1, err=f"modprobe: ERROR: {words}\n")
    with pytest.raises(Failure, match="The kernel module nvidia could not be loaded") as failed:
        load(machine, machine.files, ["nvidia"])
    assert told in failed.value.msg


@pytest.mark.rows("H054")
def test_device_files_are_made_and_those_that_stay_away_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"/usr/bin/nvidia-modprobe": "", "/dev/null": ""})

    def make(argv: list[str]):
        names = {"255": "nvidiactl"}.get(argv[-1], f"nvidia{argv[-1]}")
        machine.put(f"/dev/{'nvidia-uvm' if '-u' in argv else names}", "")
        return said()

    machine.answers["/usr/bin/nvidia-modprobe"] = make
    assert nodes(machine, machine.files, 2) == []
    ran = len(machine.ran)
    assert nodes(machine, machine.files, 2) == []
    assert len(machine.ran) == ran
    bare = Machine(tmp_path / "bare")
    assert nodes(bare, bare.files, 1) == ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"]


@pytest.mark.rows("H055")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_exchange_that_dies_anywhere_is_finished_by_the_next(tmp_path: Path, moment: str) -> None:
    injected = 0
    for at in range(1, 100):
        machine = Machine(tmp_path / str(at)).load(nvidia=0, nvidia_uvm=0, nvidia_modeset=0)
        steps = Steps(at, moment, Died())
        machine.watch = steps
        try:
            unload(machine, machine.files)
            load(machine, machine.files, ["nvidia_uvm", "nvidia_modeset"])
        except Died:
            injected += 1
        machine.watch = Steps()
        unload(machine, machine.files)
        load(machine, machine.files, ["nvidia_uvm", "nvidia_modeset"])
        assert sorted(machine.modules) == ["nvidia", "nvidia_modeset", "nvidia_uvm"]
        if not steps.injected:
            break
    assert injected == 9


@pytest.mark.rows("H053", "H056")
def test_users_are_told_with_where_they_run_and_whether_a_signal_ends_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(7, "a) D (b", "/dev/nvidia-uvm", state="S").process(8, "train", "/dev/nvidia1", state="D")
    found = {user.pid: user for user in _users.users(machine.files)}
    assert (found[7].stuck, found[8].stuck) == (False, True)
    assert found[8].told() == "train (pid 8)"
    many = [_users.User(number, "w") for number in range(12)]
    assert _users.told(many).endswith("w (pid 7) and 4 more")
    assert "quit" in _users.hint([_users.User(1, "nvidia-cuda-mps")])
    assert "drain" in _users.hint([_users.User(1, "python3", container=CONTAINER)])
