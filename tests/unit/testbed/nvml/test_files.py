# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi and the driver's files of a played host."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pynvml
import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.nvml import SMI, Double
from ansible_collections.gpufleet.nvidia.tests.testbed.nvml.tree import access_minor, mig_minors, write_tree

from .conftest import Make, gpu

RECORDED = Path(__file__).parent / "recorded"


def smi(double: Double, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [double.folder / SMI, *arguments],
        env={**os.environ, **double.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


@pytest.mark.rows("FK-09")
@pytest.mark.parametrize(("product", "count", "file"), [("H200-SXM5-141GB", 2, "h200"), ("H100-SXM5-80GB", 1, "h100")])
def test_tables_of_profiles_are_the_real_ones_byte_by_byte(make: Make, product: str, count: int, file: str) -> None:
    double = make(product, count)
    for command in ("lgip", "lgipp"):
        assert smi(double, "mig", f"-{command}") == (RECORDED / f"{command}-{file}.txt").read_text()


@pytest.mark.rows("FK-09")
def test_tables_follow_the_state(make: Make) -> None:
    double = make("H100-SXM5-80GB", 1)
    double.set("gpu=0", "mig=1", "instance=9@4")
    assert "|   0  MIG 3g.40gb          9     1/2        39.50      No     60     3" in smi(double, "mig", "-lgip")
    uuid = double.show()["gpus"][0]["instances"][0]["cis"][0]["uuid"]
    assert f"  MIG 3g.40gb     Device  0: (UUID: {uuid})\n" in smi(double, "-L")


@pytest.mark.rows("FK-09")
def test_queries_answer_as_the_real_one_did(make: Make) -> None:
    double = make("H200-SXM5-141GB", 1)
    double.set("gpu=0", "bus=0", "device=6", "uuid=GPU-00000000-0000-0000-0000-000000334960")
    fields = "name,uuid,mig.mode.current,mig.mode.pending,driver_version,pci.bus_id,memory.total,compute_cap"
    assert smi(double, f"--query-gpu={fields}", "--format=csv") == (
        "name, uuid, mig.mode.current, mig.mode.pending, driver_version, pci.bus_id, memory.total [MiB], compute_cap\n"
        "NVIDIA H200, GPU-00000000-0000-0000-0000-000000334960, Disabled, Disabled, 580.159.04, 00000000:00:06.0, "
        "143771 MiB, 9.0\n"
    )
    assert smi(double, "--query-gpu=memory.total,index", "--format=csv,noheader,nounits") == "143771, 0\n"
    said = smi(double, "--query-gpu=colour", "--format=csv", code=2)
    assert said == 'Field "colour" is not a valid field to query.\n\n'


@pytest.mark.rows("FK-09")
def test_a_reset_touches_the_named_gpus_and_is_written_down(make: Make) -> None:
    double = make("A100-SXM4-40GB", 3)
    double.set("gpu=all", "mode_change=reset")
    for index in range(3):
        pynvml.nvmlDeviceSetMigMode(gpu(index), 1)
    address = pynvml.nvmlDeviceGetPciInfo(gpu(2)).busId
    double.log.unlink()
    assert smi(double, "--gpu-reset", "-i", f"0,{address}").endswith("was successfully reset.\nAll done.\n")
    assert [call["arguments"] for call in double.writes()] == [{"gpus": f"0,{address}"}]
    assert [pynvml.nvmlDeviceGetMigMode(gpu(index)) for index in range(3)] == [[1, 1], [0, 1], [1, 1]]


@pytest.mark.rows("FK-09")
def test_a_reset_that_one_gpu_refuses_touches_none(make: Make) -> None:
    double = make("A100-SXM4-40GB", 2)
    double.set("gpu=all", "mode_change=reset", "gpu=1", "process=41")
    pynvml.nvmlDeviceSetMigMode(gpu(0), 1)
    assert "The following GPUs could not be reset:\n  GPU 00000000:11:00.0: In use by another client\n" in smi(
        double, "-r", code=3
    )
    assert pynvml.nvmlDeviceGetMigMode(gpu(0)) == [0, 1]
    assert "Unable to determine the device handle for GPU 9" in smi(double, "-r", "-i", "9", code=6)
    double.set("permissions=deny")
    assert "Insufficient Permissions" in smi(double, "-r", code=4)


@pytest.mark.rows("FK-09")
def test_nvidia_smi_without_its_driver(make: Make) -> None:
    double = make("T4", 1)
    double.set("driver_state=unloaded")
    assert smi(double, "-L", code=9).startswith("NVIDIA-SMI has failed because it couldn't communicate with")
    double.set("driver_state=mismatch")
    assert smi(double, "-L", code=18) == "Failed to initialize NVML: Driver/library version mismatch\n"


@pytest.mark.rows("FK-08")
def test_minors_of_capabilities() -> None:
    assert (access_minor(0, 0), access_minor(0, 0, 0)) == (3, 4)
    assert (access_minor(3, 3, 3), access_minor(6, 11, 5)) == (439, 918)
    lines = list(mig_minors())
    assert lines[:4] == ["config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4"]
    assert [int(line.split()[1]) for line in lines] == list(range(1, len(lines) + 1))


@pytest.mark.rows("FK-08")
def test_tree_of_capabilities_follows_minors_and_instances(make: Make, tmp_path: Path) -> None:
    double = make("H200-SXM5-141GB", 2, "T4", 1)
    double.set("gpu=0", "minor=1", "mig=1", "instance=9@4,ci=0,ci=0", "gpu=1", "minor=0")
    root = tmp_path / "root"
    write_tree(double, root)
    caps = root / "proc/driver/nvidia/capabilities"
    found = {str(path.relative_to(caps)): path.read_text() for path in caps.rglob("*") if path.is_file()}
    numbers = {name: int(re.findall(r"DeviceFileMinor: (\d+)\n", text)[0]) for name, text in found.items()}
    assert numbers == {
        "mig/config": 1,
        "mig/monitor": 2,
        "gpu1/mig/gi2/access": 3 + 135 + 18,
        "gpu1/mig/gi2/ci0/access": 3 + 135 + 18 + 1,
        "gpu1/mig/gi2/ci1/access": 3 + 135 + 18 + 2,
    }
    assert found["mig/config"] == "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n"
    assert sorted(path.name for path in caps.iterdir()) == ["gpu0", "gpu1", "mig"]
    nodes = sorted(int(path.name[len("nvidia-cap") :]) for path in (root / "dev/nvidia-caps").iterdir())
    assert nodes == sorted(numbers.values())
    information = (root / "proc/driver/nvidia/gpus/0000:07:00.0/information").read_text()
    assert "Device Minor: \t 1\n" in information
    double.set("gpu=0", "no_instances=1")
    write_tree(double, root)
    assert [path.name for path in sorted((root / "dev/nvidia-caps").iterdir())] == ["nvidia-cap1", "nvidia-cap2"]
