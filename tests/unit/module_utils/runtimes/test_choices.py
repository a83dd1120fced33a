# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choices beside the NVIDIA runtime of root's daemons: NRI, SELinux, Docker without root, daemons without a unit."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Done, Runner
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import (
    _containerd,
    _docker,
    _find,
    _nri,
    _rootless,
    _selinux,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._configure import (
    Job,
    Settings,
    carry_out,
    prepare,
    prove,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._daemons import Daemon, differences
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._find import Target
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._reader import FilesReader
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._toml import parse
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._types import HEADER, Change, Proposal, Wanted
from ansible_collections.gpufleet.nvidia.tests.helpers.runtime_cases import RUNC, P, runtime
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.runtimes.test_cases import BUILT_IN, Given
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.runtimes.test_trees import (
    Image,
    containerd,
    crio,
    docker,
    k3s,
    microk8s,
    unit,
)

TOP = 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
V2 = "io.containerd.grpc.v1.cri"


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


class Recorded(Runner):
    """Programs that answer by table, and are not run."""

    def __init__(self, answers: dict[str, tuple[int, str]] | None = None) -> None:
        super().__init__()
        self.ran: list[list[str]] = []
        self._answers = answers or {}

    def run(self, argv: Any, **_more: Any) -> Done:
        self.ran.append(list(argv))
        rc, out = self._answers.get(" ".join(argv), (0, ""))
        return Done(argv, rc, out, "")


# --- NRI --------------------------------------------------------------------------------------------------------------


def nri(
    files: Given, version: tuple[int, ...] | None, merged: Any = None, drop_in: str = _containerd.DROP_IN
) -> Proposal:
    target = Target("containerd", _containerd.CONFIG, drop_in, version=version)
    return _nri.plan(files, target, _containerd.Places(drop_in=drop_in), merged)


@pytest.mark.rows("RT-09", "S12")
def test_nri_is_switched_on_where_containerd_has_it_off() -> None:
    files = Given({_containerd.CONFIG: TOP})
    merged = {"plugins": {_nri.PLUGIN: {"disable": True, "socket_path": "/var/run/nri/nri.sock"}}}
    files.take(nri(files, (1, 7, 24), merged))
    assert parse(files.files[_containerd.DROP_IN]) == {"version": 2, "plugins": {_nri.PLUGIN: {"disable": False}}}
    assert files.files[_containerd.CONFIG] == TOP
    assert nri(files, (1, 7, 24)).changes == []


@pytest.mark.rows("RT-09")
@pytest.mark.parametrize(
    ("version", "merged"),
    [((2, 4, 2), None), ((2, 0, 0), None), ((1, 7, 24), {"plugins": {_nri.PLUGIN: {"disable": False}}})],
)
def test_nothing_is_written_where_it_is_on(version: tuple[int, ...], merged: Any) -> None:
    assert nri(Given({_containerd.CONFIG: TOP}), version, merged).changes == []


@pytest.mark.rows("RT-09")
def test_what_files_say_of_the_plugin_stays_and_a_later_one_that_has_it_off_is_named() -> None:
    said = f'[plugins."{_nri.PLUGIN}"]\n  disable = true\n  plugin_path = "/opt/site/nri"\n'
    files = Given({_containerd.CONFIG: TOP + said})
    files.take(nri(files, (1, 7, 24)))
    own = parse(files.files[_containerd.DROP_IN])["plugins"][_nri.PLUGIN]
    assert own == {"disable": False, "plugin_path": "/opt/site/nri"}
    files.files["/etc/containerd/conf.d/99-z.toml"] = "version = 2\n" + said
    refused = nri(files, (1, 7, 24))
    assert ([one.id for one in refused.findings], refused.changes) == (["nri_overridden"], [])
    assert "/etc/containerd/conf.d/99-z.toml" in refused.findings[0].detail


@pytest.mark.rows("RT-09")
def test_the_runtime_of_an_earlier_run_goes_with_nri() -> None:
    files = Given({_containerd.CONFIG: TOP})
    files.take(_containerd.plan(files, _containerd.Places(), Wanted(), (2, 4, 2), BUILT_IN))
    assert "nvidia" in files.files[_containerd.DROP_IN]
    files.take(nri(files, (2, 4, 2)))
    assert parse(files.files[_containerd.DROP_IN])["plugins"] == {_nri.PLUGIN: {"disable": False}}
    assert nri(files, (2, 4, 2)).changes == []


@pytest.mark.rows("RT-09")
def test_a_containerd_that_knows_no_nri_is_refused() -> None:
    found = nri(Given({_containerd.CONFIG: TOP}), (1, 6, 20))
    assert [(one.id, one.severity) for one in found.findings] == [("runtime_without_nri", "error")]


@pytest.mark.rows("RT-09", "S12")
def test_each_layout_gets_nri_once_and_is_given_back(image: Image) -> None:
    for layout in (containerd, crio, docker, microk8s):
        layout(image)
    (image.root / "usr/bin/nvidia-container-runtime").unlink()  # it is not needed
    before = image.state()
    planned = image.run(check=True, nri=True)
    assert image.state() == before
    done = image.run(nri=True)
    assert [one.target for one in planned.result.plan] == [one.target for one in done.result.plan]
    assert parse(image.text("etc/crio/crio.conf.d/99-nvidia.toml")) == {"crio": {"nri": {"enable_nri": True}}}
    template = image.text("var/snap/microk8s/current/args/containerd-template.toml")
    assert parse(template)["plugins"][_nri.PLUGIN] == {"disable": False}
    assert "# rendered at each start\n" in template
    assert [one.id for one in done.result.findings if one.target == "docker"] == ["runtime_without_nri"]
    assert not image.run(nri=True).result.changed
    image.run(state="absent")
    assert image.state() == before


@pytest.mark.rows("RT-09")
@pytest.mark.parametrize(("generated", "told"), [("version = 3\n", []), ("version = 2\n", ["nri_off_in_template"])])
def test_k3s_serves_nri_by_its_containerd_2_or_is_told(image: Image, generated: str, told: list[str]) -> None:
    k3s(image)
    image.put("var/lib/rancher/k3s/agent/etc/containerd/config.toml", generated)
    if told:
        with pytest.raises(Failure, match=r"has the interface for NRI plugins off"):
            image.run(nri=True)
    else:
        assert not image.run(nri=True).result.changed


def test_nri_and_the_settings_of_a_runtime_exclude_each_other(image: Image) -> None:
    containerd(image)
    with pytest.raises(Failure, match=r"nri: runtimes get no NVIDIA runtime then"):
        image.run(nri=True, default_runtime=True)


@pytest.mark.rows("RT-09")
def test_nri_is_proved_by_whoever_answers_at_its_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "nri.sock")
    assert "nobody serves NRI plugins at" in _nri.lacks(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listens:
        listens.bind(path)
        listens.listen(1)
        assert _nri.lacks(path) == ""
    merged = {"plugins": {_nri.PLUGIN: {"disable": False, "socket_path": path}}}
    assert (_nri.socket_of(merged, "containerd"), _nri.off(merged, "containerd")) == (path, False)
    assert _nri.off({"plugins": {}}, "containerd")
    changed = {"plugins": {_nri.PLUGIN: {"disable": True}, "other": {"a": 1}}}
    assert differences(merged, changed, Wanted(nri=True)) == ["plugins"]


# --- In place ---------------------------------------------------------------------------------------------------------


def test_an_imported_file_that_hides_what_is_written_in_place_is_named_in_the_plan() -> None:
    later = "version = 2\n" + runtime("nvidia", options='BinaryName = "/opt/old"', runtime_type=f'"{RUNC}"')
    files = Given({_containerd.CONFIG: TOP, "/etc/containerd/conf.d/50-site.toml": later})
    found = _containerd.plan(files, _containerd.Places(drop_in=""), Wanted(), (1, 7, 24), BUILT_IN)
    assert ([one.id for one in found.findings], found.changes) == (["runtime_overridden"], [])
    assert "/etc/containerd/conf.d/50-site.toml is imported by /etc/containerd/config.toml" in found.findings[0].detail
    harmless = f'version = 2\n[plugins."{V2}"]\n  sandbox_image = "example.com/pause:1"\n'
    files = Given({_containerd.CONFIG: TOP, "/etc/containerd/conf.d/50-site.toml": harmless})
    found = _containerd.plan(files, _containerd.Places(drop_in=""), Wanted(), (2, 4, 2), BUILT_IN)
    assert (found.findings, [one.path for one in found.changes]) == ([], [_containerd.CONFIG])


# --- SELinux ----------------------------------------------------------------------------------------------------------


def selinux(image: Image, boolean: str = "", enforce: str = "1") -> Files:
    image.put("sys/fs/selinux/enforce", enforce)
    if boolean:
        image.put("sys/fs/selinux/booleans/container_use_devices", boolean)
    return Files(Root(str(image.root)))


@pytest.mark.rows("H076")
def test_the_boolean_of_selinux_is_set_once_and_given_back(image: Image) -> None:
    files, runner = selinux(image, "0 0"), Recorded()
    devices = _selinux.plan(files, True, podman=True)
    assert [(one.id, one.verb, one.before, one.after) for one in devices.actions] == [
        ("selinux", "update", "off", "on")
    ]
    with Journal(files, "container_toolkit") as journal:
        assert devices.carry_out(runner, journal) == ["selinux"]
        assert runner.ran == [["setsebool", "-P", "container_use_devices", "on"]]
        assert not devices.prove(files)[0].ok  # the kernel does not have it yet
        image.put("sys/fs/selinux/booleans/container_use_devices", "1 1")
        assert devices.prove(files)[0].ok
        assert _selinux.plan(files, True, podman=True).actions == []
        assert [one.after for one in _selinux.back(journal.notes(), files)] == ["off"]
        _selinux.give_back(runner, journal.notes())
        assert runner.ran[-1] == ["setsebool", "-P", "container_use_devices", "off"]
        image.put("sys/fs/selinux/booleans/container_use_devices", "0 0")
        assert _selinux.back(journal.notes(), files) == []


@pytest.mark.rows("H076")
@pytest.mark.parametrize(
    ("boolean", "enforce", "wanted", "podman", "told"),
    [
        ("0 0", "1", None, True, ["selinux_refuses_devices"]),
        ("0 0", "0", None, True, []),
        ("1 1", "1", None, True, []),
        ("0 0", "1", None, False, []),
        ("", "1", True, True, ["no_selinux_boolean"]),
        ("", "1", False, True, []),
    ],
)
def test_what_selinux_refuses_is_told(
    image: Image, boolean: str, enforce: str, wanted: bool | None, podman: bool, told: list[str]
) -> None:
    devices = _selinux.plan(selinux(image, boolean, enforce), wanted, podman)
    assert ([one.id for one in devices.findings], devices.actions) == (told, [])


@pytest.mark.rows("RT-09")
def test_the_boolean_of_an_image_tree_is_refused_and_nothing_is_written(image: Image) -> None:
    containerd(image)
    before = image.state()
    with pytest.raises(Failure, match=r"selinux_devices: .*on a host that runs"):
        image.run(selinux_devices=True)
    assert image.state() == before
    assert image.run(selinux_devices=False).result.changed


# --- Docker without root ----------------------------------------------------------------------------------------------

ALICE = _rootless.Person("alice", 1000, 1001, "/home/alice")


@pytest.mark.rows("H074")
def test_a_users_files_are_touched_with_that_users_rights(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for name in ("setgroups", "setegid", "seteuid"):
        monkeypatch.setattr(os, name, lambda value, name=name: said.append(f"{name} {value}"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "getegid", lambda: 0)
    monkeypatch.setattr(os, "getgroups", lambda: [0, 5])
    image.put("home/alice/notes", "x")
    files = _rootless.SharedFiles(Files(Root(str(image.root))))
    files.lend(ALICE)
    rights = ["setgroups []", "setegid 1001", "seteuid 1000", "seteuid 0", "setegid 0", "setgroups [0, 5]"]
    acts: list[Any] = [
        lambda: files.read("/home/alice/notes"),
        lambda: files.exists("/home/alice/.config"),
        lambda: files.make_folder("/home/alice/.config/docker"),
        lambda: files.write("/home/alice/.config/docker/daemon.json", "{}"),
        lambda: files.remove("/home/alice/.config/docker/daemon.json"),
        lambda: files.remove_folder("/home/alice/.config/docker"),
        lambda: files.read("/etc/../home/alice/notes"),
    ]
    for act in acts:
        said.clear()
        act()
        assert said[: len(rights)] == rights
    said.clear()
    files.write("/home/bob", "{}")
    files.read("/home/alice2/notes")
    assert said == []
    (image.root / "home/alice/folder").mkdir()
    with pytest.raises(Failure, match=r"no plain file"):
        files.read("/home/alice/folder")
    assert said == rights  # given back after a failure too


@pytest.mark.rows("H074")
@pytest.mark.parametrize("home", ["/", "//", "/var", "/var/lib", "/var/lib/gpufleet/x", "/etc", "/usr/sbin", "here"])
def test_a_home_that_would_lend_what_is_roots_is_refused(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setattr(pwd, "getpwnam", lambda name: pwd.struct_passwd((name, "x", 1000, 1001, "", home, "/bin/sh")))
    assert _rootless.person("alice") is None


@pytest.mark.rows("H074")
@pytest.mark.parametrize("home", ["/home/alice", "/var/lib/alice", "/srv/a"])
def test_other_homes_are_taken(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setattr(pwd, "getpwnam", lambda name: pwd.struct_passwd((name, "x", 1000, 1001, "", home, "/bin/sh")))
    assert _rootless.person("alice") == _rootless.Person("alice", 1000, 1001, home)


@pytest.mark.rows("H074")
def test_the_way_back_takes_the_rights_of_a_user_who_is_gone(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(Root(str(image.root)))
    image.put("home/gone/.config/docker/daemon.json", "{}")
    settings = Settings(Wanted(), files, FilesReader(files), lambda line: None)
    who = _rootless.Person("gpufleet-gone", 1000, 1001, "/home/gone")
    target = Target("docker", who.config, "", person=who)
    change = Change(who.config, "{}", '{"runtimes": {}}', "as asked")
    with Journal(files, "container_toolkit") as journal:
        carry_out(Job(target, None, Proposal([change])), settings, journal)
    lent: list[tuple[int, int]] = []

    @contextlib.contextmanager
    def as_person(uid: int, gid: int) -> Iterator[None]:
        lent.append((uid, gid))
        yield

    monkeypatch.setattr(_rootless, "as_person", as_person)
    image.run(state="absent")
    assert image.text("home/gone/.config/docker/daemon.json") == "{}"
    assert set(lent) == {(1000, 1001)}


@pytest.mark.rows("H074")
def test_a_daemon_that_runs_is_reloaded_and_another_restarted_by_its_users_systemd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = Recorded()
    as_alice = ["runuser", "-u", "alice", "--", "env", "XDG_RUNTIME_DIR=/run/user/1000"]
    bus = "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus"
    monkeypatch.setattr(_rootless, "daemon_pid", lambda who: 4711)
    assert _rootless.activate(runner, ALICE, reloads=True) == "reload"
    assert runner.ran == [[*as_alice, bus, "kill", "-HUP", "4711"]]
    monkeypatch.setattr(_rootless, "daemon_pid", lambda who: 0)
    assert _rootless.activate(runner, ALICE, reloads=True) == "restart"
    assert runner.ran[-1] == [*as_alice, bus, "systemctl", "--user", "restart", "docker.service"]


@pytest.mark.rows("H074")
def test_a_number_that_is_no_dockerd_of_the_user_is_not_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = _rootless.Person("me", os.geteuid(), os.getegid(), "/home/me")
    monkeypatch.setattr(_rootless.Person, "runtime_dir", property(lambda self: str(tmp_path)))
    assert _rootless.daemon_pid(me) == 0
    for text in (str(os.getpid()), "1", "0", "-1", "many", ""):
        (tmp_path / "docker.pid").write_text(text)
        assert _rootless.daemon_pid(me) == 0


@pytest.mark.rows("H074")
def test_a_users_daemon_has_its_own_file_socket_and_names() -> None:
    target = Target("docker", ALICE.config, "", socket=ALICE.socket, running=True, named=True, person=ALICE)
    assert target.config == "/home/alice/.config/docker/daemon.json"
    assert target.socket == "/run/user/1000/docker.sock"
    assert (target.label, target.starter) == ("docker@alice", "docker.service of alice")
    assert target.told()["user"] == "alice"
    proposal = _docker.plan(Given({}), target.config, Wanted(), None)
    job = Job(target, None, proposal, activates=True)
    assert [(one.id, one.verb, one.target) for one in job.actions()] == [
        ("docker@alice-0", "create", "/home/alice/.config/docker/daemon.json"),
        ("docker@alice-reload", "reload", "docker.service of alice"),
    ]


@pytest.mark.rows("H074", "P017")
def test_a_flag_of_a_users_dockerd_that_says_the_same_is_refused(image: Image) -> None:
    files = Files(Root(str(image.root)))
    settings = Settings(Wanted(default=True), files, FilesReader(files), lambda line: None)
    flags = ["/usr/bin/dockerd", "--default-runtime=crun"]
    target = Target("docker", ALICE.config, "", flags=flags, named=True, person=ALICE)
    job = prepare(target, settings)
    assert [(one.id, one.path) for one in job.proposal.findings] == [("docker_flag_conflict", ALICE.config)]


@pytest.mark.rows("H074")
@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"name": "crio", "user": "root"}, "crio is not configured for users; allowed is docker"),
        ({"name": "docker", "user": "root"}, "'root' is no user of this host with a home"),
        ({"name": "docker", "user": "nobody-of-that-name"}, "is no user of this host"),
        ({"name": "docker", "user": "nobody", "config": "/x"}, "config: a user's daemon has them in that user's home"),
    ],
)
def test_users_without_a_daemon_of_their_own_are_refused(image: Image, wish: dict[str, Any], sentence: str) -> None:
    targets, findings = _find.find(Root(str(image.root)), None, [wish])
    assert targets == []
    assert [one.path for one in findings] == ["runtimes[0].user"]
    assert sentence in findings[0].detail


@pytest.mark.rows("H074")
def test_users_of_an_image_tree_are_refused(image: Image) -> None:
    with pytest.raises(Failure, match=r"the users of an image tree are not known here"):
        image.run(runtimes=[{"name": "docker", "user": "alice"}])


@pytest.mark.rows("H074")
@pytest.mark.parametrize(
    ("names", "mode", "told"),
    [(["docker"], "auto", True), (["docker"], "legacy", True), (["docker"], "cdi", False), ([], "legacy", False)],
)
def test_a_setting_that_roots_containers_would_miss_is_told(names: list[str], mode: str, told: bool) -> None:
    found = _rootless.shared_setting(names, mode)
    assert [one.id for one in found] == ["no_cgroups_for_all"] * told


# --- Daemons without a unit -------------------------------------------------------------------------------------------


def test_a_daemon_without_a_unit_is_restarted_by_its_command() -> None:
    runner, command = Recorded(), ("/etc/init.d/containerd", "restart")
    target = Target("containerd", _containerd.CONFIG, _containerd.DROP_IN, running=True, restart_command=command)
    job = Job(target, None, Proposal(), activates=True)
    assert [(one.id, one.target, one.disruptive) for one in job.actions()] == [
        ("containerd-restart", "/etc/init.d/containerd restart", True)
    ]
    Daemon(target, runner, lambda line: None).activate(job.reloads)
    assert runner.ran == [list(command)]


@pytest.mark.parametrize(
    ("with_unit", "command", "id"),
    [(True, ["/sbin/x"], "unit_and_command"), (False, ["x", "restart"], "no_path"), (False, ["/sbin/x"], "")],
)
def test_a_command_is_for_daemons_without_a_unit(image: Image, with_unit: bool, command: list[str], id: str) -> None:
    image.put("usr/bin/containerd", "", 0o755)
    if with_unit:
        unit(image, "containerd", "usr/bin/containerd")
    wish = {"name": "containerd", "restart_command": command}
    targets, findings = _find.find(Root(str(image.root)), None, [wish])
    assert [one.id for one in findings] == ([id] if id else [])
    if not id:
        assert targets[0].starter == "/sbin/x"


# --- Rows of the operator's options -----------------------------------------------------------------------------------


@pytest.mark.rows("RT-02", "RT-06", "RT-07", "RT-08")
def test_a_toolkit_in_a_folder_of_its_own_gives_the_class_by_the_name_that_is_asked_for(image: Image) -> None:
    containerd(image)
    image.put("opt/toolkit/nvidia-container-runtime", "", 0o755)
    drop_in = "/etc/containerd/conf.d/50-gpu.toml"
    options = {
        "runtime_path": "/opt/toolkit/nvidia-container-runtime",
        "runtime_name": "gpu",
        "cdi": True,
        "runtimes": [{"name": "containerd", "drop_in": drop_in, "socket": "/run/site/containerd.sock"}],
    }
    done = image.run(**options)
    own = parse(image.text(drop_in))["plugins"][V2]
    assert own["enable_cdi"] is True
    assert own["containerd"]["runtimes"]["gpu"]["options"]["BinaryName"] == "/opt/toolkit/nvidia-container-runtime"
    assert "nvidia" not in own["containerd"]["runtimes"]
    assert done.result.found["runtimes"][0]["socket"] == "/run/site/containerd.sock"
    assert not image.run(**options).result.changed


@pytest.mark.rows("RT-03", "RT-04", "RT-08")
def test_crio_and_docker_get_the_same_class_with_cdi(image: Image) -> None:
    crio(image)
    docker(image)
    image.run(runtime_name="gpu", cdi=True)
    entry = parse(image.text("etc/crio/crio.conf.d/99-nvidia.toml"))["crio"]["runtime"]["runtimes"]["gpu"]
    assert (entry["runtime_path"], entry["runtime_type"]) == (P, "oci")
    text = image.text("etc/docker/daemon.json")
    assert '"log-driver": "journald"' in text
    assert '"cdi": true' in text
    assert f'"path": "{P}"' in text


def test_a_job_that_is_left_alone_has_nothing_to_prove(image: Image) -> None:
    files = Files(Root(str(image.root)))
    settings = Settings(Wanted(nri=True), files, FilesReader(files), lambda line: None, Recorded())
    target = Target("docker", _docker.CONFIG, "", program="/usr/bin/dockerd", running=True)
    job = prepare(target, settings)
    assert (job.activates, job.proposal.changes, prove(job, settings)) == (False, [], [])
    assert HEADER not in str(job.proposal)
