# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scripts that run inside pods do what they should, under a plain sh and with a file tree for the node's."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _build, _cuda_toolkit, _driver, _scripts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._driver_groups import by_os
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import cluster, policy_of

PLACES = ("/run/nvidia", "/proc/modules", "/sys/module")
HOST_DRIVER = """\
IS_HOST_DRIVER=true
NVIDIA_DRIVER_ROOT=/
DRIVER_ROOT_CTR_PATH=/host
NVIDIA_DEV_ROOT=/
DEV_ROOT_CTR_PATH=/host
"""


class Node:
    """A folder that stands for a container's root, with programs that say how they were called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        for folder in (self.bin, self.validations, root / "proc", root / "sys/module"):
            folder.mkdir(parents=True)
        (root / "proc/modules").write_text("")
        self.program("sleep", 'echo "slept $1" >> "$ROOT/log"')

    @property
    def validations(self) -> Path:
        return self.root / "run/nvidia/validations"

    @property
    def log(self) -> list[str]:
        log = self.root / "log"
        return log.read_text().splitlines() if log.exists() else []

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def modules(self, *names: str) -> None:
        (self.root / "proc/modules").write_text("".join(f"{name} 16384 0 - Live 0x0\n" for name in names))

    def run(self, script: str, shell: str = "sh", **env: str) -> subprocess.CompletedProcess[str]:
        for place in PLACES:
            script = script.replace(place, f"{self.root}{place}")
        return subprocess.run(
            [shell, "-c", script],
            env={"PATH": f"{self.bin}:{os.environ['PATH']}", "ROOT": str(self.root), **env},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "root")


ENTRYPOINTS = {
    "nvidia-toolkit": _scripts.CONTAINER_TOOLKIT,
    "nvidia-device-plugin": _scripts.DEVICE_PLUGIN,
    "nvidia-mig-manager": _scripts.MIG_MANAGER,
}


@pytest.mark.rows("VAL-02")
@pytest.mark.parametrize("program", ENTRYPOINTS)
def test_an_entrypoint_waits_for_the_driver_and_passes_on_what_is_known_of_it(node: Node, program: str) -> None:
    source = node.validations / "driver-ready"
    later = f'[ "$(wc -l < "$ROOT/log" 2>/dev/null || echo 0)" -ge 2 ] && printf %s "{HOST_DRIVER}" > "{source}"'
    node.program("sleep", f'echo "slept $1" >> "$ROOT/log"; {later}; :')
    node.program(program, 'echo "root=$NVIDIA_DRIVER_ROOT ctr=$DRIVER_ROOT_CTR_PATH host=$IS_HOST_DRIVER args=$#"')
    done = node.run(ENTRYPOINTS[program])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "root=/ ctr=/host host=true args=0"
    waits = done.stdout.count("waiting until the driver")
    assert waits == 2
    assert node.log == ["slept 5"] * (waits + (program == "nvidia-toolkit"))


@pytest.mark.parametrize("program", ENTRYPOINTS)
def test_an_entrypoint_becomes_the_program_so_that_signals_reach_it(node: Node, program: str) -> None:
    (node.validations / "driver-ready").write_text(HOST_DRIVER)
    node.program(program, "exit 7")
    assert node.run(ENTRYPOINTS[program]).returncode == 7
    assert ENTRYPOINTS[program].splitlines()[-1] == f"exec {program}"


@pytest.mark.rows("DP-04")
@pytest.mark.parametrize(
    ("modules", "env", "wanted"),
    [
        ((), {}, "gds= mofed= gdrcopy="),
        (("nvidia", "nvidia_fs"), {}, "gds=true mofed=true gdrcopy="),
        (("gdrdrv", "nvidia"), {}, "gds= mofed= gdrcopy=true"),
        (("nvidia_fs",), {"GDS_ENABLED": "false"}, "gds=false mofed=true gdrcopy="),
        (("gdrdrv",), {"GDRCOPY_ENABLED": "false"}, "gds= mofed= gdrcopy=false"),
        (("nvidia_fs_other", "xgdrdrv"), {}, "gds= mofed= gdrcopy="),
    ],
)  # fmt: skip
def test_the_device_plugin_offers_what_loaded_modules_allow(
    node: Node, modules: tuple[str, ...], env: dict[str, str], wanted: str
) -> None:
    (node.validations / "driver-ready").write_text(HOST_DRIVER)
    node.modules(*modules)
    node.program("nvidia-device-plugin", 'echo "gds=$GDS_ENABLED mofed=$MOFED_ENABLED gdrcopy=$GDRCOPY_ENABLED"')
    assert node.run(_scripts.DEVICE_PLUGIN, **env).stdout.strip() == wanted


@pytest.mark.rows("MIG-05")
@pytest.mark.parametrize("host", ["true", "false"])
def test_the_mig_manager_stops_host_services_only_with_a_driver_of_the_host(node: Node, host: str) -> None:
    (node.validations / "driver-ready").write_text(f"IS_HOST_DRIVER={host}\n")
    node.program("nvidia-mig-manager", 'echo "$WITH_SHUTDOWN_HOST_GPU_CLIENTS"')
    assert node.run(_scripts.MIG_MANAGER).stdout.strip() == host


def test_the_toolkit_is_waited_for(node: Node) -> None:
    node.program("sleep", 'echo "slept $1" >> "$ROOT/log"; : > "$ROOT/run/nvidia/validations/toolkit-ready"')
    done = node.run(_build.WAIT_FOR_TOOLKIT)
    assert done.returncode == 0
    assert node.log == ["slept 5"]


# --- the driver ------------------------------------------------------------------------------------------------------


def driver_up(node: Node) -> None:
    (node.root / "sys/module/nvidia").mkdir()
    (node.root / "sys/module/nvidia/refcnt").write_text("0\n")
    node.program("nvidia-smi", "echo table of GPUs")


@pytest.mark.rows("DRV-03")
def test_the_startup_probe_reports_the_features_of_a_driver_that_is_up(node: Node) -> None:
    driver_up(node)
    done = node.run(_scripts.DRIVER_STARTUP_PROBE, GDS_ENABLED="true")
    assert done.returncode == 0, done.stdout
    flags = (node.validations / ".driver-ctr-ready").read_text()
    assert flags == "GDRCOPY_ENABLED: false\nGDS_ENABLED: true\nGPU_DIRECT_RDMA_ENABLED: false\n"
    assert [path.name for path in node.validations.iterdir()] == [".driver-ctr-ready"]


@pytest.mark.rows("DRV-03")
@pytest.mark.parametrize("status", ["Ready", "Ready\n"])
def test_the_startup_probe_passes_when_the_daemons_are_ready(node: Node, status: str) -> None:
    driver_up(node)
    (node.validations / ".driver-daemons-status").write_text(status)
    assert node.run(_scripts.DRIVER_STARTUP_PROBE).returncode == 0


@pytest.mark.rows("DRV-03")
@pytest.mark.parametrize("fault", ["no module", "daemons", "no daemon status", "nvidia-smi"])
def test_the_startup_probe_fails_and_says_why(node: Node, fault: str) -> None:
    if fault != "no module":
        driver_up(node)
    if fault == "daemons":
        (node.validations / ".driver-daemons-status").write_text("NotReady\n")
    if fault == "no daemon status":
        (node.validations / ".driver-daemons-status").write_text("")
    if fault == "nvidia-smi":
        node.program("nvidia-smi", "exit 9")
    done = node.run(_scripts.DRIVER_STARTUP_PROBE)
    assert done.returncode == 1
    assert done.stdout.strip()
    assert not (node.validations / ".driver-ctr-ready").exists()


@pytest.mark.rows("VAL-11")
def test_a_driver_that_stops_takes_its_flags_with_it(node: Node) -> None:
    for name in (".driver-ctr-ready", ".driver-daemons-status", "toolkit-ready"):
        (node.validations / name).write_text("")
    assert node.run(_scripts.DRIVER_PRE_STOP).returncode == 0
    assert [path.name for path in node.validations.iterdir()] == ["toolkit-ready"]


@pytest.mark.rows("VAL-11")
def test_a_validator_that_stops_takes_all_results_with_it(node: Node) -> None:
    for name in ("driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready", ".driver-ctr-ready"):
        (node.validations / name).write_text("")
    assert node.run(_scripts.VALIDATOR_PRE_STOP).returncode == 0
    assert [path.name for path in node.validations.iterdir()] == [".driver-ctr-ready"]


def test_the_validator_ends_at_once_when_it_is_told_to(node: Node) -> None:
    (node.bin / "sleep").unlink()
    process = subprocess.Popen(["sh", "-c", _scripts.VALIDATOR_MAIN], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    try:
        assert b"passed" in process.stdout.readline()
        process.terminate()
        assert process.wait(timeout=60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.stdout.close()


@pytest.mark.rows("DRV-05", "DRV-06")
@pytest.mark.parametrize(("key", "program"), [("gds", "nvidia-gds-driver"), ("gdrcopy", "nvidia-gdrcopy-driver")])
def test_a_module_is_built_once_the_driver_is_installed_and_loaded(node: Node, key: str, program: str) -> None:
    policy = policy_of({"driver": {"kernelModuleType": "open"}, key: {"enabled": True}})
    made = _driver._other_containers(policy, by_os(cluster())[0])
    assert made[0]["command"] == ["bash", "-xc"]
    node.program(program, 'echo "ran $*"')
    node.program("lsmod", 'cat "$ROOT/proc/modules"')
    node.modules("nvidia_modeset")  # not the driver yet
    steps = (
        'mkdir -p "$ROOT/run/nvidia/driver/usr/src"; [ -e "$ROOT/seen" ] && echo "nvidia 1 0" > "$ROOT/proc/modules"'
    )
    node.program("sleep", f'echo "slept $1" >> "$ROOT/log"; {steps}; : > "$ROOT/seen"')
    done = node.run(made[0]["args"][0], shell="bash")
    assert done.stdout.splitlines()[-1] == "ran install", done.stderr
    assert node.log == ["slept 10", "slept 10"]


@pytest.mark.rows("S35")
def test_a_toolkit_that_is_on_a_node_is_never_taken_from_under_its_pods(tmp_path: Path) -> None:
    """NVIDIA's images need no file of versions; a folder with its name is whole, a partial one is made anew."""
    source, place = tmp_path / "image", tmp_path / "host"
    (source / "bin").mkdir(parents=True)
    (source / "bin/nvcc").write_text("first")
    (place / "13.0.partial").mkdir(parents=True)
    (place / "13.0.partial/half").touch()
    script = _cuda_toolkit.COPY.replace("/usr/local/cuda", str(source)).replace(_cuda_toolkit.INSIDE, str(place))

    def copy(version: str) -> None:
        environment = {"PATH": os.environ["PATH"], "TOOLKIT_VERSION": version}
        subprocess.run(["sh", "-c", script], env=environment, check=True, timeout=20)

    copy("13.0")
    mounted = os.open(place / "13.0", os.O_RDONLY)
    try:
        (source / "bin/nvcc").write_text("second")
        copy("13.0")
        assert os.listdir(mounted) == ["bin"]
    finally:
        os.close(mounted)
    copy("13.1")
    assert sorted(os.listdir(place)) == ["13.0", "13.1", "current"]
    assert os.readlink(place / "current") == "13.1"
    assert [(place / name / "bin/nvcc").read_text() for name in ("13.0", "13.1")] == ["first", "second"]
