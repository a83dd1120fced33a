# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mig_partition over SSH on a host with systemd, with mig-parted's files of the controller: a reset by nvidia-smi."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus

pytestmark = pytest.mark.hosts
CONFIG = """\
version: v1
mig-configs:
  two:
    - devices: [0]
      mig-enabled: true
      mig-devices: {1g.5gb: 2}
"""
HOOKS = """\
version: v1
hooks:
  apply-exit:
    - command: sh
      args: [-c, 'echo "$WHO $MIG_PARTED_SELECTED_CONFIG $MIG_PARTED_SKIP_RESET" >>/run/hooks']
      envs: {WHO: me}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hosts, Host]]:
    """Two A100 whose MIG mode changes by a reset only."""
    with Hosts(tmp_path_factory.mktemp("reset")) as hosts:
        host = hosts.start("reset", "debian13")
        gpus.install(host, "--product", "A100-SXM4-40GB", "--count", "2")
        host.run([gpus.PROGRAM, "set", gpus.STATE, "gpu=all", "mode_change=reset"])
        # The double's variables reach this Python, and nothing that the module starts.
        variables = " ".join(f"{name}={value}" for name, value in gpus.VARIABLES.items())
        host.put("/usr/local/bin/gpu-python", f'#!/bin/sh\nexec env {variables} python3 "$@"\n', mode=0o755)
        yield hosts, host


def partition(hosts: Hosts, folder: Path) -> dict[str, Any]:
    """The module's answer."""
    files = {"config_file": CONFIG, "hooks_file": HOOKS}
    for name, text in files.items():
        (folder / name).write_text(text)
    given = {name: str(folder / name) for name in files}
    arguments = json.dumps({**given, "name": "two", "reset": True, "restore_at_boot": False})
    command = [Path(sys.executable).with_name("ansible"), "-i", hosts.inventory(), "gpu_hosts", "-a", arguments]
    command += ["-m", "gpufleet.nvidia.mig_partition", "-e", "ansible_python_interpreter=/usr/local/bin/gpu-python"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.partition("=>")[2])
    assert undocumented("mig_partition", answer) == []
    return answer


def places(host: Host, gpu: int) -> list[tuple[str, int]]:
    return [(each["name"], each["start"]) for each in gpus.show(host)["gpus"][gpu]["instances"]]


@pytest.mark.rows("MH-05", "MM-04")
def test_the_gpu_whose_mode_changes_is_reset_and_no_other(running: tuple[Hosts, Host], tmp_path: Path) -> None:
    hosts, host = running
    host.run([gpus.PROGRAM, "set", gpus.STATE, "gpu=1", "process=4711"])
    answer = partition(hosts, tmp_path)
    assert (answer["changed"], answer["found"]["reset_required"]) == (True, [])
    assert answer["progress"][:2] == ["GPU 0: MIG on", "GPU 0: reset"]
    resets = [call["arguments"] for call in gpus.calls(host) if call["function"] == "nvidia-smi --gpu-reset"]
    assert len(resets) == 1
    assert places(host, 0) == [("1g.5gb", 0), ("1g.5gb", 1)]
    assert [each["pid"] for each in gpus.show(host)["gpus"][1]["processes"]] == [4711]
    assert not partition(hosts, tmp_path)["changed"]
    assert not host.exists("/var/lib/gpufleet")
    assert host.get("/run/hooks") == b"me two false\n"  # of the one run that changed something
