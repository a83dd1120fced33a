# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specifications: one place, made anew when they are stale, never replaced by an empty or a broken one."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Runner
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._cdi import (
    LOWER,
    CdiPlan,
    Host,
    Made,
    Wish,
    generate,
    plan,
    put,
    wrong,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._cdi_units import (
    ENVIRONMENT,
    MARK,
    SERVICE,
    our_units,
    refresh_of,
    unit_changes,
    unit_files,
)

ETC, RUN = "/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"
UUIDS = ("GPU-717875f2-5132-5546-97f6-079b642ab1c8", "GPU-60702580-8e06-5acb-b148-8657e7a20fdd")
HOST = Host(driver="580.159.04", uuids=UUIDS, readers={"containerd": (1, 7, 24)}, toolkit=(1, 20, 2))
HOOK = "/usr/bin/nvidia-cdi-hook"


def spec(
    names: tuple[str, ...] = ("0", "1", *UUIDS, "all"),
    driver: str = "580.159.04",
    version: str = "0.5.0",
    kind: str = "nvidia.com/gpu",
    more: str = "",
) -> str:
    """As nvidia-ctk 1.20 writes it."""
    devices = "".join(
        f'    - name: "{name}"\n      containerEdits:\n        deviceNodes:\n            - path: /dev/nvidia0\n'
        f"              fileMode: 420\n              permissions: rwm\n"
        for name in names
    )
    return f"""\
---
cdiVersion: {version}
kind: {kind}
devices:{" []" if not names else ""}
{devices}containerEdits:
    env:
        - NVIDIA_VISIBLE_DEVICES=void
    deviceNodes:
        - path: /dev/nvidiactl
          hostPath: /dev/nvidiactl
    hooks:
        - hookName: createContainer
          path: {HOOK}
          args:
            - nvidia-cdi-hook
            - update-ldcache
    mounts:
        - hostPath: /usr/lib/libcuda.so.{driver}
          containerPath: /usr/lib/libcuda.so.{driver}
          options:
            - ro
{more}"""


class Machine:
    """A host's files below a folder, with a stand-in for nvidia-ctk that writes what it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.events: list[str] = []
        self.files = Files(Root(str(self.root)), lambda moment, what: self.events.append(f"{moment} {what}"))
        for path in ("dev/nvidia0", "dev/nvidiactl", HOOK[1:], "usr/lib/libcuda.so.580.159.04", "run/x", "etc/x"):
            self.write("/" + path, "")
        (self.root / "var").mkdir()
        (self.root / "var/run").symlink_to("../run")
        self.program = folder / "nvidia-ctk"
        self.answers(spec())

    def write(self, path: str, text: str) -> None:
        place = self.root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def answers(self, text: str | None, says: str = "", rc: int = 0) -> None:
        """What the next nvidia-ctk writes (None: nothing), what it complains of, how it ends."""
        content = self.folder / "content"
        content.write_text(text or "")
        copy = f'for a; do case $a in --output=*) cp {content} "${{a#--output=}}";; esac; done\n'
        self.program.write_text(
            f'#!/bin/sh\necho "$@" >> {self.folder}/calls\nenv >> {self.folder}/env\n'
            f'{"" if text is None else copy}echo "{says}" >&2\nexit {rc}\n'
        )
        self.program.chmod(0o755)

    def plan(self, host: Host = HOST, **wish: Any) -> CdiPlan:
        self.events.clear()
        planned = plan(self.files, Wish(program=str(self.program), **wish), host)
        assert self.events == []
        return planned

    def run(self, host: Host = HOST, **wish: Any) -> tuple[CdiPlan, Made, bool]:
        """A whole run: plan, make, judge, put."""
        planned = self.plan(host, **wish)
        made = Made("", [])
        if planned.make:
            made = generate(Runner(), self.files, planned, Wish(program=str(self.program), **wish), host)
        return planned, made, put(self.files, planned, made.text)

    def read(self, path: str) -> str | None:
        return self.files.text(path)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.rows("H079")
def test_a_missing_specification_is_made_once(machine: Machine) -> None:
    planned, made, changed = machine.run()
    assert (planned.make, made.findings, changed) == ("there is none", [], True)
    assert [(one.verb, one.target) for one in planned.actions] == [("create", ETC)]
    assert machine.read(ETC) == spec()
    assert (machine.root / ETC[1:]).stat().st_mode & 0o777 == 0o644
    assert not (machine.root / "run/gpufleet-cdi").exists()
    planned, made, changed = machine.run()
    assert (planned.make, planned.actions, planned.findings, changed) == ("", [], [], False)
    assert len((machine.folder / "calls").read_text().splitlines()) == 1


@pytest.mark.rows("H079")
def test_it_lies_where_the_service_of_the_toolkit_writes(machine: Machine) -> None:
    machine.write(f"/usr/lib/systemd/system/{SERVICE}", "[Unit]\n")
    assert machine.run()[0].output == RUN
    assert machine.read(RUN) == spec()
    machine.write(
        ENVIRONMENT,
        "# text\nNVIDIA_CTK_CDI_OUTPUT_FILE_PATH='/run/cdi/other.yaml'\nNVIDIA_CTK_CDI_GENERATE_MODE=nvml\n",
    )
    planned = machine.run()[0]
    assert planned.output == "/var/run/cdi/other.yaml"
    assert planned.environment == {"NVIDIA_CTK_CDI_GENERATE_MODE": "nvml"}
    assert "NVIDIA_CTK_CDI_GENERATE_MODE=nvml\n" in (machine.folder / "env").read_text()
    assert machine.read(RUN) is None
    finding = machine.plan(output=ETC).findings[0]
    assert (finding.id, finding.severity) == ("cdi_two_places", "error")
    machine.write(ENVIRONMENT, "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/opt/x.yaml\n")
    planned = machine.plan()
    assert [one.id for one in planned.findings] == ["cdi_output"]
    assert planned.actions == []


@pytest.mark.rows("H079", "H080", "P023", "P024")
@pytest.mark.parametrize(
    ("text", "host", "why"),
    [
        (spec(driver="570.86.15"), HOST, "it names libraries of driver 570.86.15, loaded is 580.159.04"),
        (spec(more="        - hostPath: /gone\n"), HOST, "it names /gone, which the host does not have"),
        (
            spec(more="    deviceNodes:\n        - path: /dev/nvidia0\n          major: 510\n"),
            HOST,
            "other numbers: /dev/nvidia0",
        ),
        (spec(("all",)), HOST, f"it does not name {UUIDS[0]}, {UUIDS[1]}"),
        (spec(), dataclasses.replace(HOST, uuids=UUIDS[:1]), f"it names {UUIDS[1]}, not there any more"),
        (spec(), dataclasses.replace(HOST, uuids=(*UUIDS, "MIG-1")), "it does not name MIG-1"),
        (
            spec(kind="management.nvidia.com/gpu"),
            HOST,
            "its kind is management.nvidia.com/gpu, wanted is nvidia.com/gpu",
        ),
        (spec(()), HOST, "it names no devices"),
        ("---\nx: [1\n", HOST, "it cannot be read"),
        ("", HOST, "there is none"),
    ],
)
def test_a_stale_or_wrong_specification_is_made_anew(machine: Machine, text: str, host: Host, why: str) -> None:
    machine.write(ETC, text)
    planned = machine.plan(host)
    assert why in planned.make
    assert planned.actions[0].reason == planned.make


@pytest.mark.rows("H079")
def test_a_json_specification_is_judged_in_the_same_way(machine: Machine) -> None:
    output = "/etc/cdi/nvidia.json"
    node = {"path": "/dev/nvidia0", "hostPath": "/gone"}
    content = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "0", "containerEdits": {"deviceNodes": [node]}}],
    }
    host = dataclasses.replace(HOST, uuids=None)
    machine.write(output, json.dumps(content))
    assert machine.plan(host, output=output).make == "it names /gone, which the host does not have"
    del node["hostPath"]
    machine.write(output, json.dumps(content))
    assert machine.plan(host, output=output).make == ""


@pytest.mark.rows("H079", "P023", "P025")
@pytest.mark.parametrize(
    ("text", "says", "rc", "why"),
    [
        (None, "failed to initialize NVML: Driver/library version mismatch", 1, "version mismatch"),
        ("", "", 0, "it is no specification"),
        (None, "", 0, "it is no specification"),
        (spec(()), "", 0, "it names no devices"),
        (spec(("all",)), "", 0, f"it does not name {UUIDS[0]}"),
        (spec(driver="580.1.1"), "", 0, "it names libraries of driver 580.1.1"),
        (spec(more="        - hostPath: /gone\n"), "", 0, "it names /gone"),
        (spec(kind="nvidia.com/other"), "", 0, "its kind is nvidia.com/other"),
        (spec(), "killed", 137, "killed"),
        ("\0\1", "", 0, "it is no specification"),
    ],
)
def test_an_empty_or_broken_one_never_replaces_what_is_there(
    machine: Machine, text: str | None, says: str, rc: int, why: str
) -> None:
    old = spec(driver="570.86.15")
    machine.write(ETC, old)
    machine.write(RUN, spec())
    machine.answers(text, says, rc)
    planned, made, changed = machine.run()
    assert planned.make
    assert planned.remove == [RUN]
    assert (made.text, changed) == ("", False)
    assert [(one.id, one.severity) for one in made.findings] == [("cdi_refused", "error")]
    assert why in made.findings[0].detail
    assert "nvidia-smi -L" in made.findings[0].remedy
    assert machine.read(ETC) == old
    assert machine.read(RUN) == spec()
    assert not (machine.root / "run/gpufleet-cdi").exists()


def test_a_program_that_is_not_there_is_told(machine: Machine) -> None:
    machine.program.unlink()
    _planned, made, changed = machine.run()
    assert "cannot be run on this host" in made.findings[0].detail
    assert not changed


@pytest.mark.rows("P025")
@pytest.mark.parametrize("text", [None, spec(driver="570.86.15")])
def test_without_a_loaded_driver_nothing_is_made_and_the_next_step_is_told(machine: Machine, text: str | None) -> None:
    if text:
        machine.write(ETC, text)
    machine.write(RUN, spec())
    planned, _made, changed = machine.run(
        dataclasses.replace(HOST, driver="", uuids=None if text is None else ("GPU-x",))
    )
    assert (planned.make, planned.remove, planned.actions, changed) == ("", [], [], False)
    [finding] = planned.findings
    assert (finding.id, finding.severity) == ("cdi_no_driver", "warning")
    assert f"systemctl restart {SERVICE}" in finding.remedy
    assert machine.read(ETC) == text
    assert not (machine.folder / "calls").exists()


@pytest.mark.rows("H080")
def test_without_any_device_what_is_there_stays(machine: Machine) -> None:
    machine.write(ETC, spec())
    planned, _made, changed = machine.run(dataclasses.replace(HOST, uuids=()))
    assert (planned.make, planned.actions, changed) == ("", [], False)
    assert [(one.id, one.severity) for one in planned.findings] == [("cdi_no_devices", "warning")]
    assert machine.read(ETC) == spec()


@pytest.mark.rows("P024")
@pytest.mark.parametrize(
    ("output", "other", "reason", "severity"),
    [
        (ETC, RUN, "and hides it", "error"),
        (RUN, ETC, "which hides it", "warning"),
        (ETC, "/etc/cdi/nvidia.json", "runtimes take neither", "error"),
    ],
)
def test_of_two_files_the_one_that_nvidia_ctk_made_elsewhere_goes(
    machine: Machine, output: str, other: str, reason: str, severity: str
) -> None:
    machine.write(output, spec())
    machine.write(other, spec(driver="570.86.15") if other.endswith("yaml") else json.dumps(AS_JSON))
    planned, _made, changed = machine.run(output=output)
    assert (planned.make, planned.remove, planned.findings) == ("", [other], [])
    assert reason in planned.actions[0].reason
    assert changed
    assert machine.read(other) is None
    assert machine.read(output) == spec()

    machine.write(
        other, "# by hand\n" + spec() if other.endswith("yaml") else json.dumps({**AS_JSON, "containerEdits": {}})
    )
    planned, _made, changed = machine.run(output=output)
    assert (planned.remove, changed) == ([], False)
    [finding] = planned.findings
    assert (finding.id, finding.severity, finding.target) == ("cdi_rival", severity, other)
    assert machine.read(other)


AS_JSON = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
    "containerEdits": {"hooks": [{"hookName": "createContainer", "path": HOOK, "args": ["nvidia-cdi-hook"]}]},
}


def test_specifications_of_others_stay(machine: Machine) -> None:
    machine.write(ETC, spec())
    others = {
        "/var/run/cdi/management.nvidia.com-gpu.yaml": spec(kind="management.nvidia.com/gpu"),
        "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json": json.dumps(
            {**AS_JSON, "kind": "k8s.device-plugin.nvidia.com/gpu"}
        ),
        "/etc/cdi/example.yaml": spec(("mine",)),
    }
    for path, text in others.items():
        machine.write(path, text)
    planned = machine.plan()
    assert (planned.make, planned.remove, planned.findings) == ("", [], [])
    machine.write("/etc/cdi/renamed.yaml", spec())
    assert [one.id for one in machine.plan().findings] == ["cdi_rival"]
    machine.write("/etc/cdi/broken.yaml", "x\n")
    assert sorted(one.id for one in machine.plan().findings) == ["cdi_rival", "cdi_unreadable"]


@pytest.mark.rows("H080")
def test_made_specifications_go_with_the_driver(machine: Machine) -> None:
    gone = dataclasses.replace(HOST, driver="", installed=False, uuids=None)
    assert machine.run(gone)[2] is False
    machine.write(ETC, spec())
    machine.write(RUN, "# mine\n" + spec())
    planned, _made, changed = machine.run(gone)
    assert changed
    assert [(one.verb, one.target, one.reason) for one in planned.actions] == [
        ("delete", ETC, "no driver is installed any more")
    ]
    assert [(one.id, one.target) for one in planned.findings] == [("cdi_rival", RUN)]
    assert machine.read(ETC) is None
    assert machine.read(RUN)
    assert machine.run(gone)[2] is False


@pytest.mark.rows("H081")
@pytest.mark.parametrize(
    ("readers", "old"),
    [
        ({"containerd": (1, 7, 15)}, "containerd 1.7.15"),
        ({"containerd": (1, 6), "docker": (26, 0, 2), "podman": (5, 1)}, "containerd 1.6 and docker 26.0.2"),
        ({"podman": (4, 9, 4), "crio": (1, 29)}, "crio 1.29 and podman 4.9.4"),
        ({"containerd": (1, 7, 16), "docker": (26, 1), "podman": (5, 1), "crio": (1, 30), "other": (0,)}, ""),
        ({"containerd": ()}, ""),
    ],
)
def test_the_format_is_one_that_every_runtime_reads(machine: Machine, readers: dict[str, Any], old: str) -> None:
    host = dataclasses.replace(HOST, readers=readers)
    machine.write(ETC, spec(version="0.7.0"))
    planned = machine.plan(host)
    assert planned.make == (f"its format 0.7.0 cannot be read by {old}" if old else "")
    assert (f"--feature-flag={LOWER}" in planned.argv) is bool(old)
    planned, made, changed = machine.run(host)
    assert (changed, made.findings) == (bool(old), [])
    assert machine.plan(host).make == ""

    older = dataclasses.replace(host, toolkit=(1, 18, 1))  # has no such flag
    machine.write(ETC, spec(version="0.7.0"))
    planned = machine.plan(older)
    assert planned.make == ""
    assert [one.id for one in planned.findings] == (["cdi_format"] if old else [])
    machine.answers(spec(version="0.7.0"))
    machine.write(ETC, "")
    assert [one.id for one in machine.run(older)[1].findings] == (["cdi_format"] if old else [])


def test_options_become_arguments_of_nvidia_ctk(machine: Machine) -> None:
    assert machine.plan().argv == [str(machine.program), "cdi", "generate"]
    planned = machine.plan(
        kind="example.com/card", mode="nvml", strategies=("uuid",), feature_flags=("a",), disabled_hooks=("chmod",),
        driver_root="/run/nvidia/driver", dev_root="/",
    )  # fmt: skip
    assert planned.argv[3:] == [
        "--vendor=example.com", "--class=card", "--mode=nvml", "--driver-root=/run/nvidia/driver", "--dev-root=/",
        "--device-name-strategy=uuid", "--feature-flag=a", "--disable-hook=chmod",
    ]  # fmt: skip


def test_what_cannot_be_asked_for_is_told_at_once() -> None:
    assert wrong(Wish()) == []
    assert wrong(Wish(output=RUN, kind="runtime.nvidia.com/gpu", mode="csv", strategies=("type-index",))) == []
    found = wrong(Wish(output="/etc/cdi/x.txt", kind="gpu", mode="x", strategies=("uid",)))
    assert [one.path for one in found] == ["cdi.output", "cdi.mode", "cdi.strategies", "cdi.kind"]
    assert all(one.severity == "error" and one.remedy for one in found)
    for output in ("nvidia.yaml", "/opt/nvidia.yaml", "/etc/cdi/.x.yaml", "/etc/cdi/a/b.yaml", ""):
        assert [one.path for one in wrong(Wish(output=output))] == ["cdi.output"]
    assert [one.path for one in wrong(Wish(strategies=()))] == ["cdi.strategies"]


class Countdown:
    """Lets so many moments pass, and fails at the next."""

    def __init__(self, moments: int) -> None:
        self.left = moments

    def __call__(self, moment: str, what: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Failure(f"stopped {moment} {what}")


@pytest.mark.rows("H079", "H080")
def test_a_run_that_is_stopped_anywhere_leaves_the_old_or_the_new_and_the_next_one_ends_it(tmp_path: Path) -> None:
    old, injections = spec(driver="570.86.15"), 0
    while True:
        folder = tmp_path / str(injections)
        folder.mkdir()
        machine = Machine(folder)
        machine.write(ETC, old)
        machine.write(RUN, old)
        stop = Countdown(injections)
        whole, watched = machine.files, Files(machine.files.root, stop)
        machine.files = watched
        wish = Wish(program=str(machine.program))
        planned = plan(watched, wish, HOST)
        try:
            put(watched, planned, generate(Runner(stop), watched, planned, wish, HOST).text)
        except Failure:
            injections += 1
        else:
            break
        machine.files = whole
        assert machine.read(ETC) in (old, spec())
        assert machine.read(RUN) == old or (machine.read(ETC), machine.read(RUN)) == (spec(), None)
        machine.run()
        assert (machine.read(ETC), machine.read(RUN)) == (spec(), None)
        assert machine.plan().actions == []
    assert injections >= 10


# ---- units

OURS = {f"/etc/systemd/system/{SERVICE}", "/etc/systemd/system/nvidia-cdi-refresh.path"}
ARGV = ("/usr/bin/nvidia-ctk", "cdi", "generate", "--driver-root=/a b", "--class=100%$x")


@pytest.mark.rows("H080")
def test_units_of_ours_stand_in_where_the_toolkit_brings_none(machine: Machine) -> None:
    wanted = unit_changes(machine.files, ARGV, ETC, 252)
    assert set(wanted) == OURS
    for path, text in wanted.items():
        assert text is not None
        machine.write(path, text)
    assert unit_changes(machine.files, ARGV, ETC, 252) == {}
    assert refresh_of(machine.files).ours
    assert machine.plan().output == ETC
    assert set(our_units(machine.files)) == OURS
    assert set(unit_changes(machine.files, ARGV[:3], ETC, 252)) == {f"/etc/systemd/system/{SERVICE}"}

    machine.write(f"/usr/lib/systemd/system/{SERVICE}", "[Unit]\n")  # an upgrade of the toolkit
    assert unit_changes(machine.files, ARGV, ETC, 252) == dict.fromkeys(OURS)
    assert machine.plan().output == RUN
    for path in OURS:
        (machine.root / path[1:]).unlink()
    assert unit_changes(machine.files, ARGV, ETC, 252) == {}


def test_a_masked_service_is_wanted_by_nobody(machine: Machine) -> None:
    (machine.root / "etc/systemd/system").mkdir(parents=True)
    (machine.root / f"etc/systemd/system/{SERVICE}").symlink_to("/dev/null")
    assert refresh_of(machine.files).masked
    assert unit_changes(machine.files, ARGV, ETC, 252) == {}
    assert machine.plan().output == ETC
    assert our_units(machine.files) == []


@pytest.mark.rows("H080", "P025")
def test_the_service_checks_before_it_replaces(machine: Machine) -> None:
    service, path = unit_files(ARGV, RUN, 252).values()
    commands = [line.partition("=")[2] for line in service.splitlines() if line.startswith("ExecStart=")]
    assert commands[:3] == [
        "/usr/bin/nvidia-smi -L",
        '/usr/bin/nvidia-ctk cdi generate "--driver-root=/a b" --class=100%%$$x --output=/run/gpufleet-cdi/nvidia.yaml',
        '/bin/grep -q -E "name[^A-Za-z0-9]+[A-Za-z0-9]" /run/gpufleet-cdi/nvidia.yaml',
    ]
    assert commands[-1] == "/bin/mv -T -f /var/run/cdi/.nvidia.yaml.new /var/run/cdi/nvidia.yaml"
    assert "Restart=on-failure" in service
    assert "Restart=" not in unit_files(ARGV, RUN, 239)[f"/etc/systemd/system/{SERVICE}"]
    assert service.startswith(MARK)
    assert path.startswith(MARK)
    for watched in ("/lib/modules/%v/modules.dep", "/usr/bin/nvidia-smi", "/usr/bin/nvidia-ctk"):
        assert f"PathChanged={watched}\n" in path


def test_the_grep_of_the_service_tells_empty_from_good(tmp_path: Path) -> None:
    runner = Runner()
    for number, (text, rc) in enumerate(((spec(), 0), (spec(()), 1), ("", 1), (json.dumps(AS_JSON), 0))):
        file = tmp_path / str(number)
        file.write_text(text)
        argv = ["/bin/grep", "-q", "-E", "name[^A-Za-z0-9]+[A-Za-z0-9]", str(file)]
        assert runner.run(argv, check=False).rc == rc
    assert os.path.exists("/bin/mv")
