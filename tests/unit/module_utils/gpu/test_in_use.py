# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A MIG mode that cannot change since something holds the GPU is told as that, and not as a reset that is missing."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._board import Gpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._services import holders_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

ON = [{"profiles": {}}]
OFF = [{"enabled": False}]


def failed(host, **params) -> Failure:
    with pytest.raises(Failure) as failure:
        host.run(**params)
    return failure.value


@pytest.mark.rows("MM-02", "P079")
@pytest.mark.parametrize("product", ["A100-SXM4-40GB", "H200-SXM5-141GB"])
@pytest.mark.parametrize("reset", [False, True])
def test_mig_is_not_switched_on_under_what_the_driver_does_not_name(host_with, product, reset):
    host = host_with(product)
    host.set("gpu=0", "clients=1")
    tools = host.tools()
    tools.holders_of = lambda gpu: ["nv-hostengine (pid 71, nvidia-dcgm.service)"]
    failure = failed(host, layout=ON, reset=reset, tools=tools)
    assert failure.msg == (
        "GPU 0: MIG cannot be switched on while programs hold the GPU: nv-hostengine (pid 71, nvidia-dcgm.service). "
        "Stop it, or name its service in services, then run again. The old layout is back."
    )
    assert failure.result.found["reset_required"] == []
    assert host.systemctl.ran == []
    gpu = host.gpu()
    assert (gpu["mig_current"], gpu["mig_pending"]) == (0, 0)
    host.set("gpu=0", "clients=0")
    assert host.run(layout=ON).result.found["gpus"][0]["mig_enabled"]


@pytest.mark.rows("MM-02")
def test_mig_stays_on_with_its_instances_when_it_cannot_be_switched_off(host):
    host.set("gpu=0", "clients=1")
    before = host.slices()
    msg = failed(host, layout=OFF).msg
    assert "MIG cannot be switched off while something holds the GPU, and the driver names no program." in msg
    assert "DCGM, monitoring and containers with the GPU's device file do." in msg
    assert host.slices() == before
    assert host.gpu()["mig_pending"] == 1


@pytest.mark.rows("MM-02")
def test_a_refusal_by_the_call_itself_is_told_alike(host_with):
    host = host_with("H200-SXM5-141GB")
    host.set("fault=nvmlDeviceSetMigMode,code=IN_USE")
    assert "MIG cannot be switched on while something holds the GPU" in failed(host, layout=ON).msg
    host.set("fault=nvmlDeviceSetMigMode,code=UNKNOWN")
    assert "nvmlDeviceSetMigMode of GPU 0: UNKNOWN" in failed(host, layout=ON).msg


def test_programs_that_have_the_gpus_file_open_are_named(tmp_path):
    for pid, name, opened in ((71, "nv-hostengine", "/dev/nvidia3"), (72, "other", "/dev/nvidia1"), (73, "sh", "/x")):
        folder = tmp_path / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "fd" / "4").symlink_to(opened)
        (folder / "maps").write_text("")
        (folder / "comm").write_text(f"{name}\n")
        (folder / "cgroup").write_text(f"0::/system.slice/{name}.service\n" if pid == 71 else "0::/\n")
    gpu = Gpu(0, "GPU-a", "", "", 0, 0, 3, 0)
    assert holders_of(gpu, str(tmp_path)) == ["nv-hostengine (pid 71, nv-hostengine.service)"]
