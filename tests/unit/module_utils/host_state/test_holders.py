# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that hold GPUs, found in /proc."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state import _holders
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._tree import AS_ROOT, Problems, Tree
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.host_state.trees import tree

CONTAINER = "4f" * 32


def process(pid: int, name: str, *files: str, maps: str = "", cgroup: str = "") -> dict[str, str]:
    base = f"/proc/{pid}"
    found = {f"{base}/comm": f"{name}\n", f"{base}/maps": maps, f"{base}/cgroup": cgroup, f"{base}/fd/none": "x"}
    return {**found, **{f"{base}/fd/{number}": f"-> {file}" for number, file in enumerate(files)}}


DRM = {
    "/sys/class/drm/card0/device": "-> ../../../devices/pci0000:00/0000:00:02.0",
    "/sys/class/drm/card1/device": "-> ../../../devices/pci0000:00/0000:3b:00.0",
    "/sys/class/drm/renderD129/device": "-> ../../../devices/pci0000:00/0000:3b:00.0",
    "/sys/class/drm/card1-HDMI-A-1/status": "",
    "/sys/class/drm/version": "",
    "/sys/devices/pci0000:00/0000:3b:00.0/vendor": "0x10de\n",
    "/sys/devices/pci0000:00/0000:00:02.0/vendor": "0x8086\n",
}


@pytest.mark.rows("H051")
def test_open_files_of_gpus_are_found(tmp_path: Path) -> None:
    files = {
        **DRM,
        **process(10, "python3", "/dev/null", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia10"),
        **process(11, "mig-holder", "/dev/nvidia-caps/nvidia-cap12"),
        **process(12, "Xorg", "/dev/dri/card1"),
        **process(13, "vaapi", "/dev/dri/card0", "/dev/dri/renderD128"),
        **process(14, "bash", "/dev/pts/0", "/home/user/nvidia0", "/dev/nvme0"),
        **process(15, "gdr", "/dev/gdrdrv", "/dev/nvidia-fs3", "/dev/nvidia-caps-imex-channels/channel0"),
        **process(16, "nvsw", "/dev/nvidia-nvswitch0", "/dev/nvidia-nvlink"),
        "/proc/self": "-> 10",
        "/proc/uptime": "1",
    }
    one = tree(tmp_path, files)
    read = {holder.name: holder for holder in _holders.read(one, True)}
    assert {name: holder.files for name, holder in read.items()} == {
        "python3": ["/dev/nvidia-uvm", "/dev/nvidia1", "/dev/nvidia10", "/dev/nvidiactl"],
        "mig-holder": ["/dev/nvidia-caps/nvidia-cap12"],
        "Xorg": ["/dev/dri/card1"],
        "gdr": ["/dev/gdrdrv", "/dev/nvidia-caps-imex-channels/channel0", "/dev/nvidia-fs3"],
        "nvsw": ["/dev/nvidia-nvlink", "/dev/nvidia-nvswitch0"],
    }
    assert read["python3"].minors == [1, 10]
    assert one.problems.listed() == []


@pytest.mark.rows("H051")
def test_mapped_libraries_and_replaced_ones_are_found(tmp_path: Path) -> None:
    line = "7f00-7f01 r-xp 00000000 08:01 1234  /usr/lib/x86_64-linux-gnu/"
    files = {
        **process(20, "exporter", maps=f"{line}libc.so.6\n{line}libnvidia-ml.so.580.95.05\n"),
        **process(21, "stale", maps=f"{line}libcuda.so.580.95.05 (deleted)\n"),
        **process(22, "libc", maps=f"{line}libc.so.6 (deleted)\n"),
    }
    read = [(one.name, one.libraries, one.old_libraries) for one in _holders.read(tree(tmp_path, files), True)]
    assert read == [("exporter", True, False), ("stale", True, True)]


@pytest.mark.rows("H051")
@pytest.mark.parametrize(
    ("cgroup", "unit", "container"),
    [
        ("0::/system.slice/nvidia-persistenced.service\n", "nvidia-persistenced.service", ""),
        (
            f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{CONTAINER}.scope\n",
            f"cri-containerd-{CONTAINER}.scope",
            CONTAINER,
        ),
        (f"12:devices:/docker/{CONTAINER}\n", "", CONTAINER),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", "session-2.scope", ""),
        ("", "", ""),
    ],
)
def test_units_and_containers_of_holders_are_named(tmp_path: Path, cgroup: str, unit: str, container: str) -> None:
    (read,) = _holders.read(tree(tmp_path, process(30, "x", "/dev/nvidia0", cgroup=cgroup)), True)
    assert (read.unit, read.container) == (unit, container)


def test_processes_that_end_meanwhile_or_are_hidden_do_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {**process(40, "gone"), **process(41, "other", "/dev/nvidia0"), **process(42, "mine", "/dev/nvidia0")}
    scandir = os.scandir

    def some(path: str) -> object:
        if "/41/" in path:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        if "/40/" in path:
            raise ProcessLookupError(errno.ESRCH, "No such process", path)
        return scandir(path)

    one = tree(tmp_path, files)
    monkeypatch.setattr(os, "scandir", some)
    assert [holder.name for holder in _holders.read(one, True)] == ["mine"]
    (problem,) = one.problems.listed()
    assert problem.why == "1 process of other users could not be looked at"
    assert problem.remedy == AS_ROOT


def test_a_container_says_that_it_sees_its_own_processes_only(tmp_path: Path) -> None:
    one = tree(tmp_path, {})
    assert _holders.read(one, False) == []
    assert "host's process namespace" in one.problems.listed()[0].remedy


@pytest.mark.rows("H051")
def test_a_running_process_is_found_by_what_it_has_in_memory(tmp_path: Path) -> None:
    library = tmp_path / "libnvidia-ml.so.580.1"
    library.write_bytes(bytes(4096))
    code = (
        "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); print('mapped', flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(library)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"mapped\n"
        live = Tree("/", "test", Problems())
        before = {holder.pid: holder for holder in _holders.read(live, True)}
        library.unlink()
        after = {holder.pid: holder for holder in _holders.read(live, True)}
        child.communicate(b"")
    assert (before[child.pid].libraries, before[child.pid].old_libraries) == (True, False)
    assert (after[child.pid].libraries, after[child.pid].old_libraries) == (True, True)
    assert before[child.pid].user == os.geteuid()
    assert before[child.pid].name
    assert os.getpid() not in before
