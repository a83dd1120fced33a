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
        self.old = self.shape()
        self.untouched = self.ids()
        self.host.forget()
        self.host.run(layout=case.layout)
        self.calls = len(self.host.calls())
        self.new = self.shape()
        assert self.new != self.old

    def again(self) -> None:
        shutil.copy(self.kept, self.host.state)
        self.host.forget()

    def shown(self) -> list:
        return json.loads(self.host.tool("show", str(self.host.state)))["gpus"]

    def shape(self) -> list:
        """Mode and instances of each GPU, without ids."""
        found = []
        for state in self.host.run(state="exported").result.found["gpus"]:
            inside = [(i["profile"], i["start"], sorted(c["slices"] for c in i["compute"])) for i in state["instances"]]
            found.append((state["mig_enabled"], sorted(inside)))
        return found

    def ids(self) -> dict:
        """Of the instances that stay."""
        gpus = self.host.run(state="exported").result.found["gpus"]
        names = {19: 1, 9: 3, 14: 1}
        return {
            (gpu, profile, start): next(
                (
                    each["id"]
                    for each in gpus[gpu]["instances"]
                    if each["start"] == start and each["profile"][0] == str(names[profile])
                ),
                None,
            )
            for gpu, profile, start in self.case.stays
        }

    def judge(self, failed: Failure | None) -> None:
        """What is there after an injection, and after a second run."""
        self.host.set("no_faults=1")
        assert self.ids() == self.untouched
        if failed is None:
            assert self.shape() == self.new
        elif "The old layout is back" in failed.msg and len(self.case.products) == 1:
            assert self.shape() == self.old
        self.host.run(layout=self.case.layout)
        assert self.shape() == self.new
        assert self.ids() == self.untouched


def fail_at(stage: Stage, number: int, when: str) -> bool:
    """Whether the run failed."""
    stage.again()
    stage.host.set(f"fault=nvml*,nth={number},when={when},code=UNKNOWN")
    failed = None
    try:
        stage.host.run(layout=stage.case.layout)
    except Failure as failure:
        failed = failure
    stage.judge(failed)
    return failed is not None


def failures(stage: Stage, step: int) -> int:
    injected = failed = 0
    for when in ("before", "after"):
        for number in range(1, stage.calls + 1, step):
            failed += fail_at(stage, number, when)
            injected += 1
    assert failed > injected / 2
    return injected


@pytest.mark.rows("ML-10", "ML-11")
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_failed_call_leaves_the_old_layout_or_one_to_go_on_from(name, host_with):
    stage = Stage(CASES[name], host_with)
    assert failures(stage, 29) >= 6


@pytest.mark.long
@pytest.mark.rows("ML-10", "ML-11")
@pytest.mark.parametrize("name", sorted(CASES))
def test_any_failed_call_leaves_the_old_layout_or_one_to_go_on_from(name, host_with):
    stage = Stage(CASES[name], host_with)
    assert failures(stage, 1) == 2 * stage.calls


@pytest.mark.rows("ML-11")
@pytest.mark.parametrize("code", ["IN_USE", "NO_PERMISSION", "GPU_IS_LOST", "INSUFFICIENT_RESOURCES"])
def test_each_write_that_fails_takes_the_run_back(code, host_with):
    stage = Stage(CASES["repartition"], host_with)
    writes = 5
    for number in range(1, writes + 1):
        stage.again()
        stage.host.set(f"fault=writes,nth={number},code={code}")
        try:
            stage.host.run(layout=stage.case.layout)
        except Failure as failure:
            assert "The old layout is back." in failure.msg
            stage.judge(failure)
        else:
            assert code == "INSUFFICIENT_RESOURCES"
            stage.judge(None) if stage.shape() == stage.new else None


class Dying(Nvml):
    """Ends the run at a call as a killed process ends: nothing after it is done."""

    at, moment, seen = 0, "before", 0

    def call(self, function, *args, what=""):
        if Dying.at < 0:
            raise Died
        Dying.seen += 1
        if Dying.seen == Dying.at and Dying.moment == "before":
            Dying.at = -1
            raise Died
        answer = super().call(function, *args, what=what)
        if Dying.seen == Dying.at:
            Dying.at = -1
            raise Died
        return answer


def deaths(stage: Stage, step: int) -> int:
    injected, number = 0, 1
    moment = "before"
    while True:
        stage.again()
        Dying.at, Dying.moment, Dying.seen = number, moment, 0
        try:
            stage.host.run(tools=stage.host.tools(Dying), layout=stage.case.layout)
        except Died:
            injected += 1
        if Dying.at >= 0:
            return injected
        stage.host.run(layout=stage.case.layout)
        assert stage.shape() == stage.new
        assert stage.ids() == stage.untouched
        number, moment = (number, "after") if moment == "before" else (number + step, "before")


@pytest.mark.rows("ML-11")
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_run_that_dies_at_a_call_is_ended_by_the_next(name, host_with):
    assert deaths(Stage(CASES[name], host_with), 37) >= 6


@pytest.mark.long
@pytest.mark.rows("ML-11")
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_run_that_dies_at_any_call_is_ended_by_the_next(name, host_with):
    stage = Stage(CASES[name], host_with)
    assert deaths(stage, 1) >= 1.5 * stage.calls


PROGRAM = """
import json, sys
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._partition import Tools, mig_partition
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
params = {"state": "present", "layout": json.loads(sys.argv[2])}
mig_partition(params, False, print, Tools(files=Files(Root(sys.argv[1]))))
"""


@pytest.mark.rows("ML-11")
def test_a_process_that_is_killed_at_a_write_is_followed_by_one_that_ends_its_work(host_with):
    stage = Stage(CASES["repartition"], host_with)
    killed = 0
    for number in range(1, 6):
        for when in ("before", "after"):
            stage.again()
            stage.host.set(f"fault=writes,nth={number},when={when},code=KILL")
            command = [sys.executable, "-c", PROGRAM, str(stage.host.root), json.dumps(stage.case.layout)]
            done = subprocess.run(command, env=environment(stage.host), capture_output=True, text=True, check=False)
            assert done.returncode == -signal.SIGKILL, done.stderr
            killed += 1
            stage.judge(Failure("killed"))
    assert killed == 10
