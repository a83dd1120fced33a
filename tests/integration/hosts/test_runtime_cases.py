# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forty cases judged by real daemons' own programs, beside what nvidia-ctk makes of the same files."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import _containerd, _crio, _docker
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._daemons import differences
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._types import Wanted, at, meant
from ansible_collections.gpufleet.nvidia.tests.helpers.runtime_cases import CASES, Case
from ansible_collections.gpufleet.nvidia.tests.testbed import programs
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, runtimes
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.runtimes.test_cases import given, planned, wanted

pytestmark = pytest.mark.hosts

SYSTEMS = {(1, 6): "debian12-runtimes", (1, 7): "debian13-runtimes", (2, 4): "debian13-runtimes"}
ROOMS = {"containerd": _containerd, "crio": _crio, "docker": _docker}
PLUGINS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
# On the host: each case's files below a folder of its own, and what containerd makes of them.
JUDGE = """
import json, os, subprocess, sys

def lay(folder, files):
    for path, text in files.items():
        place = folder + path
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w") as file:
            file.write(text.replace('"/etc/', '"' + folder + "/etc/"))

def dump(folder):
    config = folder + "/etc/containerd/config.toml"
    command = ["containerd", "--config", config, "config", "dump"]
    if not os.path.exists(config):
        command = ["containerd", "config", "default"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None

def read(folder):
    found = {}
    for above, _folders, names in os.walk(folder):
        for name in names:
            with open(os.path.join(above, name)) as file:
                found[os.path.join(above, name)[len(folder):]] = file.read()
    return found

answers = []
for number, job in enumerate(json.load(sys.stdin)):
    answer = {}
    for which in ("before", "ours", "peer"):
        folder = f"/tmp/cases/{number}/{which}"
        os.makedirs(folder)
        lay(folder, job["ours" if which == "ours" else "before"])
        if which == "peer":
            command = [word.replace("=/etc/", "=" + folder + "/etc/") for word in job["command"]]
            answer["rc"] = subprocess.run(command, capture_output=True).returncode
        answer[which] = {"files": read(folder), "dump": dump(folder) if job["kind"] == "containerd" else None}
    answers.append(answer)
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with Hosts(tmp_path_factory.mktemp("cases")) as hosts:
        for version, system in SYSTEMS.items():
            host = hosts.start(f"cases{version[0]}{version[1]}", system)
            if version == (2, 4):
                runtimes.install_containerd(host)
            host.put("/usr/local/bin/nvidia-ctk", programs.ensure("nvidia-ctk"), mode=0o755)
            host.put("/tmp/judge.py", JUDGE)
        yield hosts


def command(case: Case) -> list[str]:
    """nvidia-ctk, as its users call it for the case."""
    room = ROOMS[case.kind]
    words = ["nvidia-ctk", "--quiet", "runtime", "configure", f"--runtime={case.kind}", f"--config={room.CONFIG}"]
    if case.kind != "docker":
        words.append(f"--drop-in-config={getattr(room, 'DROP_IN', '')}")
    words += [f"--nvidia-runtime-name={case.name}", f"--nvidia-runtime-path={case.program}"]
    return words + ["--nvidia-set-as-default"] * bool(case.set_default) + ["--cdi.enabled"] * case.cdi


def answers(host: Host, cases: list[Case], version: tuple[int, int]) -> list[dict[str, Any]]:
    """What the host makes of the files of each case: as they are, as we change them, as nvidia-ctk does."""
    built_in = containerd_of(host.run(["containerd", "config", "default"]).stdout)["runtimes"]
    jobs = []
    for case in cases:
        files = given(case)
        before = dict(files.files)
        if not case.refused:
            files.take(planned(case, files, version, built_in))
        jobs.append({"kind": case.kind, "before": before, "ours": files.files, "command": command(case)})
    host.run("rm -rf /tmp/cases")
    found: list[dict[str, Any]] = json.loads(
        host.run(["python3", "-B", "/tmp/judge.py"], stdin=json.dumps(jobs).encode(), timeout=300).stdout
    )
    return found


def containerd_of(dump: str) -> dict[str, Any]:
    plugins = tomllib.loads(dump)["plugins"]
    found: dict[str, Any] = next((plugins[name]["containerd"] for name in PLUGINS if name in plugins), {"runtimes": {}})
    return found


def holds(wish: Mapping[str, Any], there: Any) -> bool:
    """Whether everything that is wanted is there; what a daemon adds to it is its own."""
    if not isinstance(there, dict):
        return False
    return all(
        holds(value, there.get(key)) if isinstance(value, Mapping) else meant(there.get(key)) == meant(value)
        for key, value in wish.items()
    )


def effective(case: Case, answer: Mapping[str, Any]) -> bool:
    """Whether a daemon that reads these files has the runtime as the case wants it."""
    if case.kind == "containerd":
        if answer["dump"] is None:
            return False
        found = containerd_of(answer["dump"])
        default = found.get("default_runtime_name")
        return holds(case.entry, found["runtimes"].get(case.name)) and default == (case.default or "runc")
    if case.kind == "docker":
        data = json.loads(answer["files"].get(_docker.CONFIG) or "{}")
        return bool(at(data, "runtimes", case.name, "path")) and data.get("default-runtime", "") == case.default
    merged: dict[str, Any] = {}
    default = ""
    for path in sorted(answer["files"], key=lambda one: (one != _crio.CONFIG, one)):
        runtime = tomllib.loads(answer["files"][path]).get("crio", {}).get("runtime", {})
        merged.update(runtime.get("runtimes", {}))
        default = runtime.get("default_runtime", default)
    return holds(case.entry, merged.get(case.name)) and default == case.default


def changed_besides(case: Case, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What else a daemon does differently."""
    if case.kind == "containerd":
        if before["dump"] is None or after["dump"] is None:
            return ["it cannot be read"] if before["dump"] else []
        ours = Wanted(case.name, case.program, case.set_default)
        return differences(tomllib.loads(before["dump"]), tomllib.loads(after["dump"]), ours)
    if case.kind == "docker":
        old, new = (json.loads(one["files"].get(_docker.CONFIG) or "{}") for one in (before, after))
        for data in (old, new):
            data.get("runtimes", {}).pop(case.name, None)
            data.pop("default-runtime", None)
            data.get("features", {}).pop("cdi", None)
        return [key for key in sorted(old.keys() | new.keys()) if (old.get(key) or None) != (new.get(key) or None)]
    return []


def comments(answer: Mapping[str, Any]) -> int:
    """Those that people wrote; ours is in the drop-in only."""
    return sum(
        line.count("# ")
        for path, text in answer["files"].items()
        for line in text.splitlines()
        if not path.endswith("99-nvidia.toml")
    )


@pytest.mark.rows("H065", "H066", "H067", "H068", "H070", "H072", "H083")
@pytest.mark.parametrize("version", list(SYSTEMS), ids=lambda version: f"{version[0]}.{version[1]}")
def test_the_daemons_own_program_sees_what_the_case_wants(running: Hosts, version: tuple[int, int]) -> None:
    host = running.hosts[f"cases{version[0]}{version[1]}"]
    cases = [case for case in CASES if case.kind in ROOMS and (case.kind != "containerd" or version in case.daemons)]
    wrong, rows = [], []
    for case, answer in zip(cases, answers(host, cases, version), strict=True):
        before, ours, peer = answer["before"], answer["ours"], answer["peer"]
        if case.number == 19 or case.refused:
            if ours["files"] != before["files"]:
                wrong.append(f"{case.number} {case.title}: files are changed")
            shown = "left alone, with the reason"
        else:
            others = changed_besides(case, before, ours)
            if not effective(case, ours) or others or comments(ours) != comments(before):
                wrong.append(f"{case.number} {case.title}: effective {effective(case, ours)}, others {others}")
            shown = "effective"
        others = changed_besides(case, before, peer)
        verdict = "fails" if answer["rc"] else "effective" if effective(case, peer) else "not effective"
        lost = comments(before) - comments(peer)
        more = [f"comments lost: {lost}"] * bool(lost) + [f"others changed: {', '.join(others[:2])}"] * bool(others)
        rows.append(f"| {case.number} | {case.title} | {shown} | {'; '.join([verdict, *more])} |")
    sys.stdout.write(
        f"\nJudged on containerd {version[0]}.{version[1]}: case, ours, nvidia-ctk\n" + "\n".join(rows) + "\n"
    )
    assert wrong == []
    assert wanted(cases[0]).name == "nvidia"
