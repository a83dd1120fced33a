# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole answer: equal to what was recorded on real machines, complete on every host, and never a failure."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pynvml
import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu import _inventory, _nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._collect import Host, as_dict, collect
from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented
from ansible_collections.gpufleet.nvidia.tests.real.gpu_info_truth import compare
from ansible_collections.gpufleet.nvidia.tests.testbed.nvml import Double
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.host_state.trees import (
    RECORDED,
    Files,
    found,
    grow,
    loaded,
    recorded,
)

Answer = tuple[dict[str, Any], dict[str, Any]]
CHECKOUT = Path(__file__).resolve().parents[4]
PASSED_THROUGH = ("virtualization=1", "persistence=1", "domain=0", "bus=0", "device=6")


def truth(name: str) -> Any:
    path = RECORDED / name
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    return ElementTree.XML(path.read_text(encoding="utf-8"))


class Played:
    """A host with files of its own whose GPUs the NVML double plays, through the real pynvml."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.double = Double.create(folder, *words)
        self.root = folder / "root"
        self.root.mkdir()

    def read(self, files: Files | None = None) -> Answer:
        grow(self.root, files or {})
        state, findings = collect(Host(str(self.root), asks=True))
        assert self.double.writes() == []
        return as_dict(state), {finding.id: finding for finding in findings}


Play = Callable[..., Played]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    def make(*words: str) -> Played:
        played = Played(tmp_path, *words)
        for name, value in played.double.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(played.double.library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        return played

    return make


@pytest.mark.parametrize("name", ["h200/{}-idle", "h200/{}-busy", "h100/{}-idle"])
def test_what_was_recorded_on_real_machines_equals_nvidia_smi(name: str) -> None:
    assert compare(truth(name.format("gpu_info") + ".json"), truth(name.format("smi") + ".xml")) == []


def test_the_comparison_finds_a_difference_in_every_field() -> None:
    ours, theirs = truth("h200/gpu_info-idle.json"), truth("h200/smi-idle.xml")
    other = {"persistence_mode": "disabled", "ecc": "disabled", "compute_mode": "prohibited", "virtualization": "none"}
    gpu = ours["gpus"][0]
    for key in ("name", "architecture", "uuid", "serial", "vbios", "firmware", *other):
        before, gpu[key] = gpu[key], other.get(key, "other")
        assert len(compare(ours, theirs)) == 1, key
        gpu[key] = before
    for key in ("current", "pending"):
        gpu["mig"][key] = "enabled"
        assert len(compare(ours, theirs)) == 1, key
        gpu["mig"][key] = "disabled"


@pytest.mark.parametrize(("name", "product"), [("h200", "H200-SXM5-141GB"), ("h100", "H100-SXM5-80GB")])
def test_the_double_gives_what_the_real_machine_gave(play: Play, name: str, product: str) -> None:
    real = truth(f"{name}/gpu_info-idle.json")
    host = play("--product", product, "--count", "1")
    (gpu,) = real["gpus"]
    own = [f"{key}={gpu[key]}" for key in ("uuid", "serial", "vbios")]
    host.double.set("permissions=allow", "gpu=0", *own, *PASSED_THROUGH)
    read, findings = host.read(recorded(name))
    assert read["gpus"] == real["gpus"]
    assert read["nvml"] == real["nvml"]
    assert {key: read["driver"][key] for key in ("state", "version", "flavour")} == {
        key: real["driver"][key] for key in ("state", "version", "flavour")
    }
    assert (read["needs"], findings) == (real["needs"], {})


def test_the_double_and_the_files_of_an_h100_equal_its_nvidia_smi(play: Play) -> None:
    xml = truth("h100/smi.xml")
    host = play("--product", "H100-SXM5-80GB", "--count", "1")
    one = xml.find("gpu")
    words = [f"{key}={one.findtext(path)}" for key, path in (("uuid", "uuid"), ("serial", "serial"))]
    host.double.set("permissions=allow", "gpu=0", *words, *PASSED_THROUGH)
    assert compare(host.read(recorded("h100"))[0], xml) == []


def test_the_mig_layout_with_placements_uuids_and_processes(play: Play) -> None:
    host = play("--product", "H100-SXM5-80GB", "--count", "2")
    host.double.set("permissions=allow", "gpu=1", "mig=1", "instance=9@4", "instance=19@0")
    read, findings = host.read()
    assert [(gpu["mig"]["current"], gpu["mig"]["pending"]) for gpu in read["gpus"]] == [
        ("disabled", "disabled"),
        ("enabled", "enabled"),
    ]
    instances = read["gpus"][1]["mig"]["instances"]
    assert [(one["profile"], one["start"], one["size"]) for one in instances] == [("1g.10gb", 0, 1), ("3g.40gb", 4, 4)]
    uuids = [compute["uuid"] for one in instances for compute in one["compute"]]
    assert len(set(uuids)) == 2
    assert all(uuid.startswith("MIG-") for uuid in uuids)
    assert [compute["profile"] for one in instances for compute in one["compute"]] == ["1g.10gb", "3g.40gb"]
    assert {profile["name"] for profile in read["gpus"][0]["mig"]["profiles"]} >= {"1g.10gb", "7g.80gb"}
    assert findings == {}


def test_gpus_in_every_state_of_mig(play: Play) -> None:
    host = play("--product", "A100-SXM4-40GB", "--count", "3", "--product", "T4", "--count", "1")
    host.double.set(
        "permissions=allow", "gpu=0", "mig_current=1", "mig_pending=1", "gpu=1", "mig_current=0", "mig_pending=1"
    )
    read, findings = host.read()
    assert [(gpu["mig"]["capable"], gpu["mig"]["current"], gpu["mig"]["pending"]) for gpu in read["gpus"]] == [
        ("yes", "enabled", "enabled"),
        ("yes", "disabled", "enabled"),
        ("yes", "disabled", "disabled"),
        ("no", "unsupported", "unsupported"),
    ]
    assert set(findings) == {"mig.empty", "mig.pending"}


def test_processes_on_gpus_and_instances_are_told(play: Play) -> None:
    host = play("--product", "H100-SXM5-80GB", "--count", "2")
    host.double.set("permissions=allow", "gpu=0", "process=4711,mib=512", "gpu=1", "mig=1", "instance=9@0")
    (instance,) = host.read()[0]["gpus"][1]["mig"]["instances"]
    host.double.set("gpu=1", f"process=4712,gi={instance['id']},ci=0,mib=64")
    files = {"/proc/4711/fd/3": "-> /dev/nvidia0", "/proc/4711/maps": "", "/proc/4711/comm": "train\n"}
    processes = {one["pid"]: one for one in host.read(files)[0]["processes"]}
    assert processes[4711]["name"] == "train"
    assert processes[4711]["gpus"] == [0]
    assert [use["gpu_instance"] for use in processes[4711]["uses"]] == [-1]
    assert (processes[4712]["name"], processes[4712]["gpus"]) == ("", [1])
    assert [(use["gpu_instance"], use["compute_instance"]) for use in processes[4712]["uses"]] == [(instance["id"], 0)]


def test_a_user_who_may_not_list_instances_still_sees_the_devices(play: Play) -> None:
    host = play("--product", "H100-SXM5-80GB", "--count", "1")
    host.double.set("permissions=allow", "gpu=0", "mig=1", "instance=9@4")
    host.double.set("fault=nvmlDeviceGetGpuInstances,code=NO_PERMISSION,times=forever")
    read, _findings = host.read()
    (instance,) = read["gpus"][0]["mig"]["instances"]
    assert (instance["profile"], instance["start"]) == ("", -1)
    assert instance["compute"][0]["uuid"].startswith("MIG-")
    problem = next(one for one in read["problems"] if one["path"] == "GPU 0")
    assert "NO_PERMISSION" in problem["why"]
    assert "become" in problem["remedy"]


def test_a_gpu_that_is_lost_does_not_hide_the_others(play: Play) -> None:
    host = play("--product", "H100-SXM5-80GB", "--count", "3")
    host.double.set("permissions=allow", "gpu=1", "lost=1")
    read, _findings = host.read()
    assert [gpu["index"] for gpu in read["gpus"]][:1] == [0]
    assert 2 in [gpu["index"] for gpu in read["gpus"]]
    assert any("GPU_IS_LOST" in one["why"] and one["path"] == "GPU 1" for one in read["problems"])


@pytest.mark.parametrize(
    ("word", "nvml", "driver"),
    [("unloaded", "not_loaded", "absent"), ("mismatch", "mismatch", "mismatch")],
)
def test_a_driver_that_does_not_answer_is_a_state_not_a_failure(play: Play, word: str, nvml: str, driver: str) -> None:
    host = play("--product", "H100-SXM5-80GB", "--count", "1")
    host.double.set(f"driver_state={word}")
    read, _findings = host.read()
    assert (read["nvml"]["state"], read["driver"]["state"]) == (nvml, driver)
    assert read["nvml"]["remedy"]
    assert [one["part"] for one in read["problems"] if one["part"] == "nvml"] == ["nvml"]


def test_a_loaded_module_whose_library_fails_is_told(play: Play) -> None:
    host = play("--product", "H100-SXM5-80GB", "--count", "1")
    host.double.set("driver_state=unloaded")
    read, _findings = host.read(loaded("580.1"))
    assert (read["driver"]["state"], read["driver"]["version"]) == ("failed", "580.1")


def test_a_host_without_pynvml_says_how_to_get_it(tmp_path: Path) -> None:
    host = Host(str(tmp_path), asks=True)

    def missing() -> Any:
        raise _nvml.MissingPynvml("The Python module pynvml is missing for python3. Install the package x.")

    host.opener = missing
    read = as_dict(collect(host)[0])
    assert read["nvml"]["state"] == "no_pynvml"
    assert read["nvml"]["why"] == "The Python module pynvml is missing for python3"
    assert "nvidia-ml-py" in read["nvml"]["remedy"]
    assert [one["part"] for one in read["problems"] if one["part"] == "nvml"] == ["nvml"]


@pytest.mark.parametrize("number", [12, 4, 17, 999])
def test_every_way_in_which_nvml_fails_to_start_is_a_state(number: int) -> None:
    def fail() -> Any:
        raise _nvml.NvmlError(number, "nvmlInit")

    session, cards = _inventory.read(fail, lambda *words: None)
    assert session.state in ("no_library", "permission", "no_access", "failed")
    assert (session.state == "failed") == (number == 999)
    assert session.remedy
    assert cards == []


def test_a_container_with_nvml_and_no_sysfs_knows_its_gpus(play: Play) -> None:
    host = play("--product", "GH200-96GB", "--count", "1")
    host.double.set("permissions=allow")
    read, _findings = host.read({"/.dockerenv": ""})
    (gpu,) = read["gpus"]
    assert (gpu["device_id"], gpu["product"], gpu["flavour"], gpu["seen_by"]) == (
        "10de:2342",
        "GH200 120GB",
        "open",
        ["nvml"],
    )
    assert {one["part"] for one in read["problems"]} >= {"pci", "host"}
    assert read["needs"]["flavour"] == "open"


def test_a_full_host_is_documented_down_to_the_leaves(play: Play, tmp_path: Path) -> None:
    host = play("--product", "A100-SXM4-40GB", "--count", "1")
    host.double.set("permissions=allow", "gpu=0", "mig=1", "instance=9@4", "process=7")
    ko = "/lib/modules/6.8.0/updates/nvidia.ko"
    read, findings = host.read(
        {
            **recorded("h100"),
            "/sys/bus/pci/devices/0000:c1:00.0/vendor": "0x10de\n",
            "/sys/bus/pci/devices/0000:c1:00.0/device": "0x22a3\n",
            "/sys/bus/pci/devices/0000:c1:00.0/class": "0x068000\n",
            ko: b"",
            "/etc/cdi/x.yaml": "kind: nvidia.com/gpu\ndevices:\n- name: a\n",
            "/usr/bin/dockerd": "",
            "/dev/kmsg": "NVRM: Xid (PCI:0000:3b:00): 79, pid=1",
            "/var/lib/dpkg/status": "Package: libcuda1\nStatus: hold ok installed\nVersion: 1\n",
        }
    )
    for key in ("gpus", "switches", "processes", "runtimes", "cdi", "kernel_log", "problems"):
        assert read[key], key
    for key in ("modules", "module_files", "libraries", "packages", "rivals"):
        assert read["driver"][key], key
    answer = {"changed": False, "found": read, "findings": [vars(one) for one in findings.values()]}
    assert undocumented("gpu_info", answer) == []


WORST = 1_000_000


@pytest.mark.parametrize("worst", ["rubbish", "huge", "folder", "pipe", "dangling", "circle", "empty"])
def test_no_file_of_a_host_however_bad_ends_the_run(tmp_path: Path, worst: str) -> None:
    files: dict[str, Any] = {
        **recorded("h100"),
        "/etc/cdi/x.yaml": "devices:",
        "/etc/containerd/config.toml": "",
        "/var/lib/dpkg/status": "",
        "/proc/net/unix": "",
        "/proc/1/environ": "",
        "/proc/9/maps": "",
        "/proc/9/comm": "",
        "/lib/modules/6.8.0/updates/nvidia.ko": "",
        "/lib/modules/6.8.0/modules.dep": "",
        "/sys/class/infiniband/mlx5_0/device/vpd": "",
        "/sys/class/infiniband/mlx5_0/device/vendor": "0x15b3\n",
        "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": "",
        "/sys/kernel/security/lockdown": "",
        "/etc/modprobe.d/x.conf": "",
        "/etc/ld.so.conf.d/x.conf": "",
        "/dev/kmsg": "",
    }
    grow(tmp_path, files)
    for path, content in files.items():
        place = tmp_path / path.lstrip("/")
        if str(content).startswith("-> "):
            continue
        place.unlink()
        if worst == "rubbish":
            place.write_bytes(bytes(range(256)) * 20)
        elif worst == "huge":
            place.write_bytes(b"a: b\n" * (WORST // 5))
        elif worst == "folder":
            place.mkdir()
        elif worst == "pipe":
            os.mkfifo(place)
        elif worst == "empty":
            place.write_bytes(b"")
        else:
            place.symlink_to(place.name if worst == "circle" else "/nowhere")
    state, _findings = collect(Host(str(tmp_path)))
    answer = {"changed": False, "found": as_dict(state), "findings": []}
    assert undocumented("gpu_info", answer) == []
    assert json.dumps(answer)


def test_nothing_at_all_is_an_answer_too(tmp_path: Path) -> None:
    read, findings = found(tmp_path, {})
    assert (read["gpus"], read["driver"]["state"], read["needs"]["flavour"], findings) == ([], "absent", "none", {})
    assert {one["part"] for one in read["problems"]} == {"pci", "host"}
