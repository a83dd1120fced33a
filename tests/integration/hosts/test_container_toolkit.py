# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""container_toolkit on hosts with real daemons: containerd 1.6, 1.7 and 2.4, and Debian's Docker."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.on_hosts import LIBRARY, MODULE, give
from ansible_collections.gpufleet.nvidia.tests.testbed import programs
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, runtimes
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences

pytestmark = pytest.mark.hosts

PROGRAM = "/usr/bin/nvidia-container-runtime"
# The low-level runtime of the toolkit needs a driver: this one writes down how it is called, and runs runc.
STAND_IN = '#!/bin/sh\necho "$@" >> /var/log/nvidia-container-runtime.calls\nexec runc "$@"\n'
SYSTEMS = {"1.6": "debian12-runtimes", "1.7": "debian13-runtimes", "2.4": "debian13-runtimes"}
CONFIG, DROP_IN, DAEMON = (
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/99-nvidia.toml",
    "/etc/docker/daemon.json",
)

# As the module runs, without Ansible's wrapping: options from standard input, the result to standard output. At the
# step that is given it fails, or is killed.
RUN = f"""
import json, sys
from {MODULE}.plugins.module_utils._host._commands import Runner
from {MODULE}.plugins.module_utils._host._files import Files
from {MODULE}.plugins.module_utils._plan import Failure
from {MODULE}.plugins.module_utils._runtimes._run import Tools, container_toolkit
from {MODULE}.tests.helpers.faults import Steps

given = json.load(sys.stdin)
error = Failure("injected") if given["fault"] == "fail" else None
steps = Steps(given["at"], given["moment"], error)
tools = Tools(runner=Runner(steps), files=lambda root: Files(root, steps))
try:
    outcome = container_toolkit(given["params"], given["check"], lambda line: None, tools)
    result = dict(outcome.result.as_dict(), failed=False, diff=outcome.diff)
except Failure as failure:
    result = dict(failure.as_dict(), failed=True)
print(json.dumps(dict(result, steps=steps.said, injected=steps.injected)))
"""
DEFAULTS: dict[str, Any] = {
    "state": "present",
    "packages": "none",
    "runtimes": None,
    "runtime_name": "nvidia",
    "runtime_path": PROGRAM,
    "default_runtime": None,
    "cdi": False,
    "cdi_specs": True,
    "cdi_spec": None,
    "toolkit_config": None,
    "restart": True,
    "restart_timeout": 30,
    "root": "/",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A host of each version of containerd, with it and docker."""
    with Hosts(tmp_path_factory.mktemp("toolkit")) as hosts:
        for name, system in SYSTEMS.items():
            host = hosts.start(f"containerd{name.replace('.', '')}", system)
            if name == "2.4":
                runtimes.install_containerd(host)
            give(host, "plugins/module_utils", "tests/helpers/faults.py")
            host.put("/tmp/run.py", RUN)
            host.put(PROGRAM, STAND_IN, mode=0o755)
            runtimes.start(host, "containerd", "docker")
            runtimes.give_image(host, "containerd", "docker")
        yield hosts


@pytest.fixture(params=list(SYSTEMS))
def host(running: Hosts, request: pytest.FixtureRequest) -> Iterator[Host]:
    """One of them, which is given back as it was."""
    host = running.hosts[f"containerd{request.param.replace('.', '')}"]
    yield host
    toolkit(host, state="absent")
    host.run(f"rm -rf /etc/containerd/conf.d {CONFIG} {DAEMON}")
    restart(host)


def toolkit(
    host: Host, check: bool = False, at: int = 0, moment: str = "before", fault: str = "fail", **options: Any
) -> dict[str, Any]:
    """One run; ``at``: the step at which it fails or is killed. A killed one has no result."""
    given = {"params": {**DEFAULTS, **options}, "check": check, "at": at, "moment": moment, "fault": fault}
    command = ["env", f"PYTHONPATH={LIBRARY}", "python3", "-B", "/tmp/run.py"]
    done = host.run(command, stdin=json.dumps(given).encode(), check=False)
    if done.returncode == -9 or done.returncode == 137:
        return {"killed": True}
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def merged(host: Host) -> dict[str, Any]:
    """What containerd makes of its files."""
    return tomllib.loads(host.run("containerd config dump || containerd config default").stdout)


def handlers(host: Host) -> dict[str, Any]:
    """The runtimes of that."""
    for plugin in ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"):
        if plugin in merged(host)["plugins"]:
            found: dict[str, Any] = merged(host)["plugins"][plugin]["containerd"]["runtimes"]
            return found
    raise AssertionError("no plugin of the CRI")


def started(host: Host, unit: str) -> str:
    return host.run(["systemctl", "show", "--property=MainPID,ActiveEnterTimestampMonotonic", unit]).stdout


@pytest.mark.rows("H070", "H071", "H073", "S11", "P013")
def test_every_runtime_gets_it_once_and_gives_it_back(host: Host) -> None:
    before = host.snapshot()
    planned = toolkit(host, check=True)
    assert not planned["failed"], planned["msg"]
    assert differences(before, host.snapshot()) == []
    first = toolkit(host)
    assert not first["failed"], first["msg"]
    assert [action["id"] for action in first["plan"]] == [action["id"] for action in planned["plan"]]
    assert {check["id"] for check in first["verified"] if check["ok"]} == {
        "containerd-files",
        "containerd-live",
        "docker-live",
    }
    assert handlers(host)["nvidia"]["options"]["BinaryName"] == PROGRAM
    assert "runc" in handlers(host)
    held = host.snapshot(), started(host, "containerd"), started(host, "docker")
    second = toolkit(host)
    assert (second["changed"], second["plan"], second["failed"]) == (False, [], False)
    assert differences(held[0], host.snapshot()) == []
    assert held[1:] == (started(host, "containerd"), started(host, "docker"))
    last = toolkit(host, state="absent")
    assert not last["failed"], last["msg"]
    assert differences(before, host.snapshot()) == []
    assert "nvidia" not in handlers(host)
    assert "nvidia" not in docker_runtimes(host)


@pytest.mark.rows("P001", "P002", "P005", "H067", "H068", "H069")
def test_files_of_others_stay_and_are_followed(host: Host) -> None:
    text = (
        "# made by the installer\n"
        "version = 2\n"
        'imports = ["/etc/containerd/conf.d/*.toml"]\n'
        '[plugins."io.containerd.grpc.v1.cri"]\n'
        '  [plugins."io.containerd.grpc.v1.cri".cni]\n'
        '    bin_dir = "/opt/other/bin"  # not the default\n'
        '  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n'
        '    runtime_type = "io.containerd.runc.v2"\n'
        '    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]\n'
        "      SystemdCgroup = true\n"
    )
    host.run("mkdir -p /etc/containerd")
    host.put(CONFIG, text)
    host.run(["systemctl", "restart", "containerd"])
    done = toolkit(host, runtimes=[{"name": "containerd"}])
    assert not done["failed"], done["msg"]
    assert host.get(CONFIG).decode() == text
    assert handlers(host)["nvidia"]["options"]["SystemdCgroup"] is True
    assert "/opt/other/bin" in json.dumps(merged(host))
    # The installer comes again, with another folder: our drop-in must not hide that.
    host.put(CONFIG, text.replace("/opt/other/bin", "/opt/third/bin"))
    again = toolkit(host, runtimes=[{"name": "containerd"}])
    assert not again["failed"], again["msg"]
    assert "/opt/third/bin" in json.dumps(merged(host))
    assert "/opt/other/bin" not in json.dumps(merged(host))
    # And without the import.
    host.put(CONFIG, "".join(line for line in text.splitlines(True) if not line.startswith("imports")))
    assert "nvidia" not in handlers(host)
    third = toolkit(host, runtimes=[{"name": "containerd"}])
    assert CONFIG in {action["target"] for action in third["plan"]}
    assert "nvidia" in handlers(host)
    assert toolkit(host, runtimes=[{"name": "containerd"}])["plan"] == []


@pytest.mark.rows("H071", "P020")
def test_containers_run_on_through_the_restart_and_the_reload(host: Host) -> None:
    host.run(["ctr", "run", "--detach", runtimes.BUSYBOX, "stays"])
    host.run(["docker", "run", "--detach", "--name", "stays", "--network", "none", runtimes.BUSYBOX])
    try:
        pids = containers(host)
        assert len(pids) == 2
        done = toolkit(host)
        assert not done["failed"], done["msg"]
        assert {action["verb"] for action in done["plan"] if action["id"].startswith("docker-re")} == {"reload"}
        assert containers(host) == pids
    finally:
        host.run("ctr tasks kill --signal KILL stays; docker rm --force stays", check=False)
        host.run("sleep 1; ctr containers delete stays", check=False)


def containers(host: Host) -> set[str]:
    """Processes of containers, each with the time of its start."""
    by_ctr = [line.split()[1] for line in host.run(["ctr", "tasks", "list"]).stdout.splitlines()[1:]]
    by_docker = host.run("docker ps -q | xargs -r docker inspect --format '{{.State.Pid}}'").stdout.split()
    pids = [pid for pid in (*by_ctr, *by_docker) if pid != "0"]
    return {f"{pid} {host.run(['stat', '--format=%Y', f'/proc/{pid}']).stdout.strip()}" for pid in pids}


@pytest.mark.rows("H072", "P021")
def test_the_default_runtime_comes_back(host: Host) -> None:
    host.run("mkdir -p /etc/docker")
    host.put(DAEMON, '{"default-runtime": "mine", "runtimes": {"mine": {"path": "/usr/sbin/runc"}}}\n')
    host.run(["systemctl", "restart", "docker"])
    done = toolkit(host, default_runtime=True)
    assert not done["failed"], done["msg"]
    assert docker_default(host) == "nvidia"
    assert containerd_default(host) == "nvidia"
    back = toolkit(host, default_runtime=False)
    assert not back["failed"], back["msg"]
    assert docker_default(host) == "mine"
    assert containerd_default(host) == "runc"
    assert toolkit(host, default_runtime=False)["plan"] == []


@pytest.mark.rows("P021")
def test_what_was_the_default_is_none_any_more_when_it_is_given_back(host: Host) -> None:
    """Without a daemon.json before: Docker takes a key that is gone for unchanged."""
    host.run(["docker", "run", "--detach", "--name", "stays", "--network", "none", runtimes.BUSYBOX])
    try:
        before, pids = host.snapshot(), containers(host)
        assert not toolkit(host, default_runtime=True)["failed"]
        assert docker_default(host) == "nvidia"
        done = toolkit(host, state="absent")
        assert not done["failed"], done["msg"]
        assert (docker_default(host), "nvidia" in docker_runtimes(host)) == ("runc", False)
        assert containerd_default(host) == "runc"
        assert (differences(before, host.snapshot()), containers(host)) == ([], pids)
    finally:
        host.run("docker rm --force stays", check=False)


def docker_runtimes(host: Host) -> list[str]:
    return list(json.loads(host.run(["docker", "info", "--format", "{{json .Runtimes}}"]).stdout))


def docker_default(host: Host) -> str:
    return host.run(["docker", "info", "--format", "{{.DefaultRuntime}}"]).stdout.strip()


def containerd_default(host: Host) -> str:
    plugins = merged(host)["plugins"]
    cri = plugins.get("io.containerd.cri.v1.runtime") or plugins["io.containerd.grpc.v1.cri"]
    return str(cri["containerd"]["default_runtime_name"])


def test_a_daemon_that_does_not_come_up_gets_its_old_files_back(host: Host) -> None:
    """As by a unit that refuses whatever we wrote: the restart fails with the new file only."""
    guard = f"[Service]\nExecStartPre=/bin/sh -c '! test -e {DROP_IN}'\n"
    host.run("mkdir -p /etc/systemd/system/containerd.service.d")
    host.put("/etc/systemd/system/containerd.service.d/guard.conf", guard)
    host.run(["systemctl", "daemon-reload"])
    before = host.snapshot()
    try:
        failed = toolkit(host, runtimes=[{"name": "containerd"}], restart_timeout=10)
        assert failed["failed"]
        assert "The old files are back, and containerd.service runs with them." in failed["msg"]
        assert host.run(["systemctl", "is-active", "containerd"]).stdout == "active\n"
        assert "nvidia" not in handlers(host)
        assert [line for line in differences(before, host.snapshot()) if "gpufleet" not in line] == []
    finally:
        host.run("rm -r /etc/systemd/system/containerd.service.d; systemctl daemon-reload")
        host.run("systemctl reset-failed containerd; systemctl restart containerd")


def test_a_file_that_the_daemon_cannot_read_is_left_alone(host: Host) -> None:
    host.run("mkdir -p /etc/containerd")
    host.put(CONFIG, "version = 2\n[plugins\n")
    before = host.snapshot()
    failed = toolkit(host)
    assert failed["failed"]
    assert failed["msg"].startswith("Refused, nothing has been changed.")
    assert CONFIG in failed["msg"]
    assert differences(before, host.snapshot()) == []


@pytest.mark.rows("H083")
def test_what_nvidia_ctk_or_a_person_configured_is_left_alone(host: Host) -> None:
    """Equal in what it does, though not in its bytes: nothing is written, nothing restarted."""
    host.put("/usr/local/bin/nvidia-ctk", programs.ensure("nvidia-ctk"), mode=0o755)
    host.run("mkdir -p /etc/containerd /etc/docker")
    text = (
        'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n'
        '  runtime_type = "io.containerd.runc.v2"\n'
    )
    host.put(CONFIG, text)
    host.run("nvidia-ctk --quiet runtime configure --runtime=containerd")
    host.run(f"nvidia-ctk --quiet runtime configure --runtime=docker --nvidia-runtime-path={PROGRAM}")
    restart(host)
    unchanged(host)
    by_hand = "    BinaryName = '/usr/bin/nvidia-container-runtime' # by hand\n"
    entry = (
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes."nvidia"]\n  runtime_type = "io.containerd.runc.v2"\n'
    )
    options = '  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes."nvidia".options]\n'
    host.run("rm -r /etc/containerd/conf.d")
    host.put(CONFIG, text + entry + options + by_hand)
    host.put(DAEMON, f'{{"runtimes":{{"nvidia":{{"runtimeArgs":[],"path":"{PROGRAM}"}}}}}}')
    restart(host)
    unchanged(host)


def restart(host: Host) -> None:
    for unit in ("containerd", "docker"):
        host.run(f"systemctl reset-failed {unit}; systemctl restart {unit}", timeout=120)  # not "too often"


def unchanged(host: Host) -> None:
    before = host.snapshot(), started(host, "containerd"), started(host, "docker")
    done = toolkit(host)
    assert (done["failed"], done["plan"], done["changed"]) == (False, [], False), done
    assert differences(before[0], host.snapshot()) == []
    assert before[1:] == (started(host, "containerd"), started(host, "docker"))


@pytest.mark.rows("RT-09", "S12")
def test_nri_plugins_are_served_afterwards_and_no_more_when_it_is_given_back(host: Host) -> None:
    before = host.snapshot()
    if host.name.endswith("16"):
        refused = toolkit(host, nri=True)
        assert "containerd 1.6 knows no NRI" in refused["msg"]
        assert differences(before, host.snapshot()) == []
        return
    off = host.name.endswith("17")
    planned = toolkit(host, check=True, nri=True)
    assert differences(before, host.snapshot()) == []
    assert [action["id"] for action in planned["plan"]] == (
        ["containerd-0", "containerd-1", "containerd-restart"] if off else []
    )
    done = toolkit(host, nri=True)
    assert not done["failed"], done["msg"]
    assert {check["id"]: check["ok"] for check in done["verified"]} == {
        "containerd-files": True,
        "containerd-live": True,
    }
    assert "nvidia" not in handlers(host)
    assert merged(host)["plugins"]["io.containerd.nri.v1.nri"]["disable"] is False
    assert host.run("test -S /var/run/nri/nri.sock", check=False).returncode == 0
    again = toolkit(host, nri=True)
    assert (again["failed"], again["changed"], again["plan"]) == (False, False, [])
    back = toolkit(host, state="absent")
    assert not back["failed"], back["msg"]
    assert merged(host)["plugins"]["io.containerd.nri.v1.nri"]["disable"] is off


# On the host itself: fails or is killed at each step of a run, and says what containerd and docker read then.
LOOP = """
import json, subprocess, sys

params, states, pace = json.loads(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3])

def run(state, at=0, moment="before", fault="fail"):
    given = {"params": dict(params, state=state), "check": False, "at": at, "moment": moment, "fault": fault}
    command = [sys.executable, "-B", "/tmp/run.py"]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True)
    if done.returncode == -9:
        return {"killed": True, "failed": True}
    if done.returncode:
        sys.exit(f"{state} at {at}: {done.stderr}")
    return json.loads(done.stdout)

def shell(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True)

def dump(when):  # what containerd makes of its files; the list of files that it reads may be longer for a while
    read = shell("containerd config dump || containerd config default")
    if read.returncode or "runtimes.runc" not in read.stdout:
        sys.exit(f"{when}: containerd cannot read its files, or lost runc: {read.stderr}")
    return "".join(line for line in read.stdout.splitlines(True) if not line.startswith("imports"))

def comes_up(when, allowed):  # as after a crash of the host: both daemons start with what is on the disk
    if dump(when) not in allowed:
        sys.exit(f"{when}: containerd reads neither the old nor the new configuration")
    up = "systemctl reset-failed {0}; systemctl restart {0} && {1}"
    for unit, asked in (("containerd", "ctr version"), ("docker", "docker info")):
        done = shell(up.format(unit, asked))
        if done.returncode:
            sys.exit(f"{when}: {unit} does not come up: {done.stderr}")
    shell("systemctl reset-failed containerd docker")  # not "too often"

injected = 0
for state in states:
    other = "absent" if state == "present" else "present"
    run(other)
    allowed = [dump(f"before {state}")]
    steps = len(run(state)["steps"])
    allowed.append(dump(f"after {state}"))
    for at in range(1, steps + 1, pace):
        run(other)
        kind = "kill" if at % 2 else "fail"
        moment = "after" if at % 4 > 1 else "before"
        broken = run(state, at, moment, kind)
        injected += broken.get("killed") or broken["injected"]
        comes_up(f"{state}, {kind} {moment} step {at}", allowed)
        again = run(state)
        if again["failed"]:
            sys.exit(f"{state}, {kind} {moment} step {at}, then: {again['msg']}")
        third = run(state)
        if third["plan"]:
            sys.exit(f"{state}, {kind} {moment} step {at}: a third run has something to do: {third['plan']}")
run("absent")
print(injected)
"""


def injected(host: Host, states: str, pace: int) -> int:
    """Faults at every ``pace``-th step of the states, such as ``present,absent``."""
    host.put("/tmp/loop.py", LOOP)
    words = [json.dumps(DEFAULTS), states, str(pace)]
    command = ["env", f"PYTHONPATH={LIBRARY}", "python3", "-B", "/tmp/loop.py", *words]
    done = host.run(command, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("host", ["1.7"], indirect=True)
def test_a_fault_at_some_steps_leaves_old_or_new_and_the_next_run_converges(
    host: Host, survived: Callable[[str, int], None]
) -> None:
    count = injected(host, "present,absent", 9)
    survived("kills and failures at steps of the container toolkit", count)
    assert count >= 5


@pytest.mark.long
@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_fault_at_any_step_leaves_old_or_new_and_the_next_run_converges(
    host: Host, state: str, survived: Callable[[str, int], None]
) -> None:
    count = injected(host, state, 1)
    survived("kills and failures at steps of the container toolkit", count)
    assert count >= 20
