# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A call that fails, or a process that dies at one, leaves the old layout, or one from which a second run goes on."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._nvml import Nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.tests.helpers.faults import Died

from .double import Host, environment

# Calls that change something, as the driver's library names them.
WRITES = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceDestroy",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceCreateComputeInstanceWithPlacement",
    "nvmlComputeInstanceDestroy",
)


@dataclass(frozen=True)
class Case:
    """A change of one host. ``stays``: (GPU, profile id, slot) of instances that no plan may touch."""

    products: tuple[str, ...]
    setup: tuple[str, ...]
    layout: list
    stays: tuple[tuple[int, int, int], ...]


CASES = {
    "repartition": Case(
        ("A100-SXM4-40GB",),
        ("gpu=0", "mig=1", "instance=19@0", "instance=19@1", "instance=9@4,ci=0@0,ci=0@1"),
        [{"instances": [{"profile": "3g.20gb", "compute": [2, 1]}, {"profile": "2g.10gb"}, {"profile": "1g.5gb"}]}],
        ((0, 19, 0), (0, 9, 4)),
    ),
    "switched on": Case(("H200-SXM5-141GB",), ("gpu=0", "mig=0"), [{"profiles": {"1c.2g.35gb": 2, "4g.71gb": 1}}], ()),
    "switched off": Case(
        ("H200-SXM5-141GB",), ("gpu=0", "mig=1", "instance=14@2", "instance=19@0"), [{"enabled": False}], ()
    ),
    "two GPUs": Case(
        ("A30", "A30"),
        ("gpu=0", "mig=1", "instance=14@0", "instance=14@1", "gpu=1", "mig=1", "instance=5@0"),
        [{"gpus": [0], "profiles": {"2g.12gb": 1, "1g.6gb": 1}}, {"gpus": [1], "profiles": {"4g.24gb": 1}}],
        ((0, 14, 0),),
    ),
}


class Stage:
    """A case's host, set back before each injection."""

    def __init__(self, case: Case, host_with) -> None:
        self.case = case
        self.host: Host = host_with(*case.products)
        self.host.set(*case.setup)
        self.kept = self.host.folder / "kept"
        shutil.copy(self.host.state, self.kept)
        self.old, self.untouched = self.look()
        self.host.forget()
        self.host.run(layout=case.layout)
        self.calls, self.writes = len(self.host.calls()), len(self.host.writes())
        self.new, stay = self.look()
        assert self.new != self.old
        assert stay == self.untouched

    def again(self) -> None:
        shutil.copy(self.kept, self.host.state)
        self.host.forget()

    def look(self) -> tuple[list, dict]:
        """By the double's own program: mode and instances of each GPU, and ids of the instances that stay."""
        gpus = json.loads(self.host.tool("show", str(self.host.state)))["gpus"]
        shape = [
            (gpu["mig_current"], sorted((i["id"], i["start"], sorted(c["size"] for c in i["cis"])) for i in there))
            for gpu in gpus
            for there in [gpu["instances"]]
        ]
        stay = {
            spot: [i["gi"] for i in gpus[spot[0]]["instances"] if (i["id"], i["start"]) == spot[1:]]
            for spot in self.case.stays
        }
        return shape, stay

    def run(self, tools=None) -> Failure | None:
        try:
            self.host.run(tools=tools, layout=self.case.layout)
        except Failure as failure:
            return failure
        return None

    def judge(self, failed: Failure | None) -> None:
        """What is there after an injection, and after a second run."""
        self.host.set("no_faults=1")
        shape, stay = self.look()
        assert stay == self.untouched
        if failed is None:
            assert shape == self.new
        elif "The old layout is back" in failed.msg and len(self.case.products) == 1:
            assert shape == self.old
        assert self.run() is None
        assert self.look() == (self.new, self.untouched)


def failures(stage: Stage, step: int) -> int:
    """A failure at every ``step``-th call, and after each write has been carried out."""
    faults = [f"nvml*,nth={number},when=before" for number in range(1, stage.calls + 1, step)]
    faults += [f"writes,nth={number},when=after" for number in range(1, stage.writes + 1)]
    failed = 0
    for fault in faults:
        stage.again()
        stage.host.set(f"fault={fault},code=UNKNOWN")
        failure = stage.run()
        stage.judge(failure)
        failed += failure is not None
    sys.stdout.write(f"{len(faults)} failed calls injected at {stage.calls} calls, {failed} of them failed the run\n")
    assert failed > len(faults) / 2
    return len(faults)


@pytest.mark.rows("ML-10", "ML-11")
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_failed_call_leaves_the_old_layout_or_one_to_go_on_from(name, host_with):
    stage = Stage(CASES[name], host_with)
    assert failures(stage, 97) >= stage.writes + 2


@pytest.mark.long
@pytest.mark.rows("ML-10", "ML-11")
@pytest.mark.parametrize("name", sorted(CASES))
def test_any_failed_call_leaves_the_old_layout_or_one_to_go_on_from(name, host_with):
    stage = Stage(CASES[name], host_with)
    assert failures(stage, 1) == stage.calls + stage.writes


@pytest.mark.rows("ML-11", "P091")
@pytest.mark.parametrize("code", ["IN_USE", "INSUFFICIENT_RESOURCES"])
def test_each_write_that_fails_takes_the_run_back(code, host_with):
    stage = Stage(CASES["repartition"], host_with)
    backs = 0
    for number in range(1, stage.writes + 1):
        stage.again()
        stage.host.set(f"fault=writes,nth={number},code={code}")
        failure = stage.run()
        stage.host.set("no_faults=1")
        if failure is not None:
            assert "The old layout is back." in failure.msg
            assert stage.look() == (stage.old, stage.untouched)
            backs += 1
    assert backs >= stage.writes - (code == "INSUFFICIENT_RESOURCES")


class Dying(Nvml):
    """Ends the run at a call as a killed process ends: nothing after it is done."""

    at, moment, seen = 0, "before", 0

    def call(self, function, *args, what=""):
        if Dying.at < 0:
            raise Died
        Dying.seen += function in WRITES
        here = function in WRITES and Dying.seen == Dying.at
        if here and Dying.moment == "before":
            Dying.at = -1
            raise Died
        answer = super().call(function, *args, what=what)
        if here:
            Dying.at = -1
            raise Died
        return answer


@pytest.mark.rows("ML-11")
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_run_that_dies_at_a_write_is_ended_by_the_next(name, host_with):
    stage = Stage(CASES[name], host_with)
    died = 0
    for number in range(1, stage.writes + 1):
        for moment in ("before", "after"):
            stage.again()
            Dying.at, Dying.moment, Dying.seen = number, moment, 0
            with pytest.raises(Died):
                stage.run(stage.host.tools(Dying))
            died += 1
            stage.judge(Failure("died"))
    sys.stdout.write(f"{died} deaths injected at {stage.writes} writes\n")
    assert died == 2 * stage.writes


PROGRAM = """
import json, sys
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._partition import Tools, mig_partition
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
params = {"state": "present", "layout": json.loads(sys.argv[2])}
tools = Tools(files=Files(Root(sys.argv[1])), is_root=lambda: True)
mig_partition(params, False, print, tools)
"""


@pytest.mark.long
@pytest.mark.rows("ML-11")
def test_a_process_that_is_killed_at_a_write_is_followed_by_one_that_ends_its_work(host_with):
    stage = Stage(CASES["repartition"], host_with)
    killed = 0
    for number in range(1, stage.writes + 1):
        for when in ("before", "after"):
            stage.again()
            stage.host.set(f"fault=writes,nth={number},when={when},code=KILL")
            command = [sys.executable, "-c", PROGRAM, str(stage.host.root), json.dumps(stage.case.layout)]
            done = subprocess.run(command, env=environment(stage.host), capture_output=True, text=True, check=False)
            assert done.returncode == -signal.SIGKILL, done.stderr
            killed += 1
            stage.judge(Failure("killed"))
    sys.stdout.write(f"{killed} processes killed\n")
    assert killed == 2 * stage.writes
