# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods hide GPUs before their program starts: the script under real shells, and the objects that carry it."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._wait import Trouble
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._causes import cause_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _hidden, _scripts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._device_plugin import OPERAND as PLUGIN_OPERAND
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
    VALUES_FILES,
    cluster,
    container_of,
    objects_of,
    pod_of,
    policy_of,
    values_file,
)

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
UUIDS = [f"GPU-0000000{i}-695b-ea64-5fc5-2218af7a88de" for i in range(4)]
OWN_DEV = "46 40 0:29 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755\n"
HOSTS_DEV = "24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,size=65984560k\n"


class Root:
    """A container with four GPUs: what the driver tells of them, and a file for each device node.

    The minor numbers run against the addresses, as they may.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.bin = root, root / "bin"
        self.bin.mkdir(parents=True)
        (root / "dev").mkdir()
        (root / "proc/self").mkdir(parents=True)
        for index in range(4):
            self.tell(index, UUIDS[index])
            (root / f"dev/nvidia{3 - index}").write_text("")
        self.mounts(HOSTS_DEV.replace(" /dev ", " /host/dev "), OWN_DEV)

    def tell(self, index: int, uuid: str) -> None:
        folder = self.root / f"proc/driver/nvidia/gpus/0000:{index + 1}8:00.0"
        folder.mkdir(parents=True, exist_ok=True)
        lines = (
            f"Model: \t\t {'Tesla T4' if index > 1 else 'NVIDIA H200'}",
            f"IRQ:   \t\t {index}",
            f"GPU UUID: \t {uuid}",
            "Bus Type: \t PCIe",
            f"Bus Location: \t 0000:{index + 1}8:00.0",
            f"Device Minor: \t {3 - index}",
        )
        (folder / "new").write_text("".join(f"{line}\n" for line in lines))
        (folder / "new").rename(folder / "information")

    def mounts(self, *lines: str) -> None:
        (self.root / "proc/self/mountinfo").write_text("".join(lines))

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    @property
    def left(self) -> list[int]:
        """Places of the GPUs that NVML would list."""
        return [i for i in range(4) if not any((self.root / f"dev/nvidia{3 - i}").glob("*"))]

    def moved(self, text: str) -> str:
        for place in ("/proc/", "/dev/nvidia", "/hidden-gpus", "/bin/entrypoint.sh"):
            text = text.replace(place, f"{self.root}{place}")
        return text

    def run(
        self, argv: Sequence[str], *entries: str, node: str = "n1", path: str = "", end: str = "\n", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a container's command with the list; lines of another node are always on it."""
        folder = self.root / "hidden-gpus"
        folder.mkdir(exist_ok=True)
        listed = [("n0", UUIDS[0]), *(("n1", entry) for entry in entries), ("n11", UUIDS[1])]
        (folder / "list").write_text("\n".join(f"{name} {entry}" for name, entry in listed) + end)
        (folder / "hide.sh").write_text(self.moved(_scripts.HIDE_GPUS))
        return subprocess.run(
            [self.moved(word) for word in argv],
            env={"PATH": path or f"{self.bin}:{os.environ['PATH']}", "NODE_NAME": node, **env},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    def hide(self, shell: str, *entries: str, mode: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
        binary = shutil.which(shell) or shell
        argv = [binary, *(["sh"] if shell == "busybox" else []), "/hidden-gpus/hide.sh", "/hidden-gpus/list"]
        return self.run([*argv, *([mode] if mode else [])], *entries, **more)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


@pytest.mark.rows("P099")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("entries", "left"),
    [
        ((UUIDS[1],), [0, 2, 3]),
        (("0000:38:00.0",), [0, 1, 3]),
        (("Tesla T4",), [0, 1]),
        ((UUIDS[0], "0000:48:00.0"), [1, 2]),
        ((UUIDS[2], "Tesla T4"), [0, 1]),
        # Of a list for several nodes the others' GPUs are not here.
        (("GPU-ffffffff-695b-ea64-5fc5-2218af7a88de", "0000:18:00.0"), [1, 2, 3]),
    ],
)
def test_a_folder_that_is_not_empty_takes_the_place_of_a_hidden_gpu(
    root: Root, shell: str, entries: tuple[str, ...], left: list[int]
) -> None:
    done = root.hide(shell, *entries)
    assert (done.returncode, root.left, done.stdout) == (0, left, ""), done.stderr
    assert all((root.root / f"dev/nvidia{3 - i}").is_file() for i in left)
    assert done.stderr.count("hidden: ") == 4 - len(left)
    again = root.hide(shell, *entries)  # as after a restart of the program in the same container
    assert (again.returncode, root.left) == (0, left), again.stderr


@pytest.mark.rows("P099")
@pytest.mark.parametrize("shell", SHELLS)
def test_the_last_line_counts_without_its_newline(root: Root, shell: str) -> None:
    done = root.hide(shell, node="n11", end="")
    assert (done.returncode, root.left, done.stdout) == (0, [0, 2, 3], ""), done.stderr


@pytest.mark.rows("P099")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_alone_tells_the_places_of_the_other_gpus(root: Root, shell: str) -> None:
    nothing = root.root / "nothing"
    nothing.mkdir()
    root.mounts(HOSTS_DEV)
    done = root.hide(shell, UUIDS[1], "0000:48:00.0", mode="indices", path=str(nothing))
    assert (done.returncode, done.stdout, root.left) == (0, "0,2\n", [0, 1, 2, 3]), done.stderr
    assert root.hide(shell, mode="indices", path=str(nothing)).stdout == ""


@pytest.mark.rows("P099")
@pytest.mark.parametrize("shell", SHELLS)
def test_other_nodes_keep_all_their_gpus(root: Root, shell: str) -> None:
    done = root.hide(shell, UUIDS[1], node="n2")
    assert (done.returncode, done.stdout, done.stderr, root.left) == (0, "", "", [0, 1, 2, 3])


SWAPPED = "none of the GPUs that the node is to hide is there"
ALL = "all GPUs of the node are to be hidden"
CANNOT = "a GPU cannot be hidden in its pods"
FAULTS = {
    "swapped": (("GPU-ffffffff-695b-ea64-5fc5-2218af7a88de", "18:00.0"), SWAPPED),
    "all": (("Tesla T4", "NVIDIA H200"), ALL),
    "part of a name": (("Tesla", "T4", "NVIDIA H200 NVL", "0000:18", UUIDS[0][:-1]), SWAPPED),
    "the host's /dev": ((UUIDS[1],), CANNOT),
    "the host's /dev on top": ((UUIDS[1],), CANNOT),
    "no /dev": ((UUIDS[1],), CANNOT),
    "no minor": ((UUIDS[1],), "has no Device Minor"),
    "no driver": ((UUIDS[1],), SWAPPED),
    "rm fails": ((UUIDS[1],), CANNOT),
    "no list": ((UUIDS[1],), "no list at "),
    "no node": ((UUIDS[1],), "no NODE_NAME"),
}


@pytest.mark.rows("P099")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("fault", FAULTS)
def test_where_it_cannot_hide_as_told_nothing_is_started(root: Root, shell: str, fault: str) -> None:
    entries, words = FAULTS[fault]
    information = root.root / "proc/driver/nvidia/gpus/0000:18:00.0/information"
    if fault.startswith("the host's"):
        root.mounts(*([OWN_DEV] if fault.endswith("top") else []), HOSTS_DEV)
    elif fault == "no /dev":
        root.mounts("")
    elif fault == "no minor":
        information.write_text(information.read_text().replace("Minor", "Major"))
    elif fault == "no driver":
        shutil.rmtree(root.root / "proc/driver")
    elif fault == "rm fails":
        root.program("rm", "exit 1")
    root.program("sh", f'exec {shutil.which(shell)} {"sh" if shell == "busybox" else ""} "$@"')
    start = f"{_hidden.HIDE} || exit 1\necho started"
    if fault == "no list":
        start = start.replace("/list", "/lost")
    env = {"node": ""} if fault == "no node" else {}
    done = root.run(["/bin/sh", "-c", start], *entries, **env)
    assert (done.returncode, done.stdout) == (1, "")
    told = cause_of("device plugin", Trouble("CrashLoopBackOff", "", "n", "pod", "main", raw=done.stderr, restarts=2))
    assert words in told.text
    if fault != "all":
        assert root.left == [0, 1, 2, 3]


@pytest.mark.rows("P099")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_device_node_that_is_a_mount_is_unmounted_first(root: Root, shell: str) -> None:
    mounted = root.root / "dev/nvidia2"
    root.mounts(OWN_DEV, f"47 46 0:6 /nvidia2 {mounted} rw - devtmpfs devtmpfs rw\n")
    root.program("umount", 'echo "umount $1"')
    done = root.hide(shell, UUIDS[1])
    assert (done.returncode, done.stdout, root.left) == (0, f"umount {mounted}\n", [0, 2, 3])


@pytest.mark.rows("P099")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("mode", ["", "indices"])
def test_a_gpu_that_nobody_opened_yet_is_opened_to_learn_its_uuid(root: Root, shell: str, mode: str) -> None:
    device = root.root / "dev/nvidia2"
    device.unlink()
    os.mkfifo(device)
    root.tell(1, "GPU-????????-????-????-????-????????????")

    def driver() -> None:
        time.sleep(0.5)
        root.tell(1, UUIDS[1])
        with device.open("w"):
            time.sleep(0.5)

    thread = threading.Thread(target=driver, daemon=True)
    thread.start()
    done = root.hide(shell, UUIDS[1], mode=mode)
    thread.join(10)
    assert (done.returncode, done.stdout) == (0, "0,2,3\n" if mode else ""), done.stderr
    assert UUIDS[1] in done.stderr


# --- the objects -----------------------------------------------------------------------------------------------------

HIDDEN = {"n1": (UUIDS[1], "Tesla T4")}
PODS = {
    "nvidia-device-plugin-daemonset": "nvidia-device-plugin",
    "nvidia-device-plugin-mps-control-daemon": "mps-control-daemon-ctr",
    "gpu-feature-discovery": "gpu-feature-discovery",
    "nvidia-dcgm-exporter": "nvidia-dcgm-exporter",
}
ENGINE = {"dcgm": {"enabled": True}}  # instead of the exporter's own


def started(root: Root, container: Mapping[str, Any], program: str, **env: str) -> tuple[str, list[int]]:
    """What a container's program is told, and what it sees."""
    root.program(program, 'echo "$0 devices=$DCGM_EXPORTER_DEVICES_STR args=$*"')
    done = root.run([*container["command"], *container["args"]], *HIDDEN["n1"], **env)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{root.bin}/", "").strip(), root.left


@pytest.mark.rows("P099")
@pytest.mark.parametrize("name", VALUES_FILES)
def test_while_nothing_is_hidden_no_object_knows_of_it(name: str) -> None:
    assert "hidden" not in str(objects_of(values_file(name)))


@pytest.mark.rows("P099")
@pytest.mark.parametrize("values", [{}, ENGINE])
def test_only_pods_that_list_gpus_change_and_follow_the_list(values: dict[str, Any]) -> None:
    policy = policy_of(values)
    pods = {**PODS, "nvidia-dcgm": "nvidia-dcgm-ctr"} if values else PODS
    if values:
        del pods["nvidia-dcgm-exporter"]
    plain, hiding = objects_of(policy), objects_of(policy, cluster(hidden=HIDDEN))
    assert {key for key in hiding if hiding[key] != plain.get(key)} == {f"DaemonSet/{name}" for name in pods}
    other = objects_of(policy, cluster(hidden={"n1": (UUIDS[2],)}))
    for name, container in pods.items():
        template, changed = (o[f"DaemonSet/{name}"]["spec"]["template"] for o in (hiding, other))
        assert template["metadata"]["annotations"] != changed["metadata"]["annotations"]
        assert template["spec"] == changed["spec"]
        one = container_of(template["spec"], container)
        assert {"name": _hidden.NAME, "mountPath": "/hidden-gpus", "readOnly": True} in one["volumeMounts"]
        assert [e for e in one["env"] if e["name"] == "NODE_NAME"] == [_hidden.b.NODE_NAME]
        assert _hidden.reads(hiding[f"DaemonSet/{name}"])
        assert not _hidden.reads(plain[f"DaemonSet/{name}"])
    (listed,) = _hidden.objects(cluster(hidden=HIDDEN))
    assert listed["data"]["list"] == f"n1 {UUIDS[1]}\nn1 Tesla T4\n"
    assert _hidden.of_config(listed) == HIDDEN
    assert (_hidden.objects(cluster()), _hidden.of_config(None)) == ([], {})


@pytest.mark.rows("P099")
@pytest.mark.parametrize(
    ("name", "program", "values", "told"),
    [
        ("nvidia-device-plugin-daemonset", "entrypoint.sh", {}, "entrypoint.sh devices= args="),
        ("gpu-feature-discovery", "gpu-feature-discovery", {}, "gpu-feature-discovery devices= args="),
        ("gpu-feature-discovery", "gpu-feature-discovery", {"gfd": {"args": ["-v", "a b"]}}, "… devices= args=-v a b"),
        ("nvidia-device-plugin-mps-control-daemon", "mps-control-daemon", {}, "mps-control-daemon devices= args="),
        ("nvidia-dcgm", "nv-hostengine", ENGINE, "… args=-n -b 0.0.0.0 --log-level NONE -f -"),
        ("nvidia-dcgm", "nv-hostengine", {"dcgm": {"enabled": True, "args": ["-n"]}}, "nv-hostengine devices= args=-n"),
    ],
)
def test_programs_start_as_ever_and_see_the_other_gpus(
    root: Root, name: str, program: str, values: dict[str, Any], told: str
) -> None:
    pod = pod_of(policy_of(values), name, cluster(hidden=HIDDEN))
    container = pod["containers"][0]
    said, left = started(root, container, program)
    assert said.endswith(told.lstrip("…"))
    assert left == [0]
    swapped = root.run([*container["command"], *container["args"]], "0000:ff:00.0")
    assert (swapped.returncode, swapped.stdout) == (1, "")


@pytest.mark.rows("P099")
def test_the_plugin_without_a_stack_hides_them_too(root: Root) -> None:
    made = PLUGIN_OPERAND.build(policy_of({}), cluster(hidden=HIDDEN, validated=False))
    (workload,) = [one for one in made if one["kind"] == "DaemonSet"]
    container = container_of(workload["spec"]["template"]["spec"], "nvidia-device-plugin")
    assert started(root, container, "nvidia-device-plugin") == ("nvidia-device-plugin devices= args=", [0])


@pytest.mark.rows("P099")
@pytest.mark.parametrize(
    ("values", "env", "told"),
    [
        ({}, {}, "devices=g:0 args="),
        ({"args": ["-c", "100"]}, {}, "devices=g:0 args=-c 100"),
        ({}, {"DCGM_EXPORTER_DEVICES_STR": "g:1"}, "devices=g:1 args="),
        ({}, {"NODE_NAME": "n2"}, "devices= args="),
    ],
)
def test_the_exporter_watches_the_other_gpus(root: Root, values: Any, env: dict[str, str], told: str) -> None:
    pod = pod_of(policy_of({"dcgmExporter": values}), "nvidia-dcgm-exporter", cluster(hidden=HIDDEN))
    node = env.pop("NODE_NAME", "n1")
    root.program("dcgm-exporter-entrypoint.sh", 'echo "devices=$DCGM_EXPORTER_DEVICES_STR args=$*"')
    container = pod["containers"][0]
    done = root.run([*container["command"], *container["args"]], *HIDDEN["n1"], node=node, **env)
    assert (done.returncode, done.stdout.strip(), root.left) == (0, told, [0, 1, 2, 3]), done.stderr
    swapped = root.run([*container["command"], *container["args"]], UUIDS[0] + "0", node="n1")
    assert (swapped.returncode, swapped.stdout) == (1, "")


@pytest.mark.rows("P099")
@pytest.mark.parametrize(
    "values",
    [
        ENGINE,
        {"dcgmExporter": {"env": [{"name": "DCGM_REMOTE_HOSTENGINE_INFO", "value": "localhost:5555"}]}},
    ],
)
def test_an_exporter_that_asks_another_engine_shows_what_that_one_sees(values: dict[str, Any]) -> None:
    plain = pod_of(policy_of(values), "nvidia-dcgm-exporter")
    assert pod_of(policy_of(values), "nvidia-dcgm-exporter", cluster(hidden=HIDDEN)) == plain
