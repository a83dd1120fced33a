# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on image trees: real layouts of every runtime, where nothing is started or asked."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Done, Runner
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import _run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._configure import Settings
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._find import Target
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._give_back import GiveBack
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._json import Json
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._reader import FilesReader
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._run import (
    Outcome,
    Tools,
    container_toolkit,
    reload_risk,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._toml import parse
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._types import HEADER, Wanted

PROGRAM = "/usr/bin/nvidia-container-runtime"
RANCHER = "var/lib/rancher/{}/agent/etc/containerd"
V2 = 'plugins."io.containerd.grpc.v1.cri".containerd'
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
    "restart_timeout": 5,
}


class Image:
    """A tree with the files of a host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("usr/bin/nvidia-container-runtime", "#!/bin/sh\n", 0o755)

    def put(self, path: str, text: str = "", mode: int = 0o644) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)

    def text(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    def run(self, check: bool = False, **options: Any) -> Outcome:
        params = {**DEFAULTS, **options, "root": str(self.root)}
        return container_toolkit(params, check, lambda line: None, Tools())

    def state(self) -> dict[str, tuple[int, str]]:
        """Mode and content of every file."""
        found = {}
        for folder, _folders, files in os.walk(self.root):
            for name in files:
                path = Path(folder) / name
                digest = "" if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
                found[str(path.relative_to(self.root))] = (path.lstat().st_mode, digest)
        return found


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


def unit(image: Image, name: str, program: str) -> None:
    image.put(f"usr/lib/systemd/system/{name}.service", f"[Service]\nExecStart={program}\n")
    image.put(program, "", 0o755)


def containerd(image: Image) -> None:
    unit(image, "containerd", "usr/bin/containerd")


def docker(image: Image) -> None:
    unit(image, "docker", "usr/bin/dockerd")
    image.put("etc/docker/daemon.json", '{\n  "log-driver": "journald"\n}\n', 0o600)


def crio(image: Image) -> None:
    unit(image, "crio", "usr/bin/crio")
    image.put("usr/libexec/crio/crun", "", 0o755)
    image.put("etc/crio/crio.conf", "[crio.runtime]\npids_limit = 1024\n")
    image.put(
        "etc/crio/crio.conf.d/10-crio.conf",
        '[crio.runtime]\ndefault_runtime = "crun"\n[crio.runtime.runtimes.crun]\n'
        'runtime_path = "/usr/libexec/crio/crun"\nmonitor_path = "/usr/libexec/crio/conmon"\n',
    )


def k3s(image: Image) -> None:
    unit(image, "k3s", "usr/local/bin/k3s")
    image.put(f"{RANCHER.format('k3s')}/config.toml", f'version = 2\n[{V2}.runtimes.runc]\nruntime_type = "x"\n')


def k3s_with_template(image: Image) -> None:
    k3s(image)
    image.put(f"{RANCHER.format('k3s')}/config.toml.tmpl", "# ours\nversion = 2\n{{ if .X }}\nroot = 1\n{{ end }}\n")


def rke2(image: Image) -> None:
    unit(image, "rke2-agent", "usr/local/bin/rke2")
    image.put(f"{RANCHER.format('rke2')}/config.toml", "version = 3\n")
    image.put(f"{RANCHER.format('rke2')}/config-v3.toml.tmpl", "version = 3\n# of the site\n")


def microk8s(image: Image) -> None:
    unit(image, "snap.microk8s.daemon-containerd", "snap/bin/microk8s")
    image.put(
        "var/snap/microk8s/current/args/containerd-template.toml",
        f'# rendered at each start\nversion = 2\n[{V2}]\n  snapshotter = "${{SNAPSHOTTER}}"\n'
        f'  [{V2}.runtimes.runc]\n    runtime_type = "${{RUNTIME_TYPE}}"\n',
    )


def k0s(image: Image) -> None:
    unit(image, "k0sworker", "usr/local/bin/k0s")
    image.put("etc/k0s/containerd.toml", "# k0s_managed=true\nversion = 2\n")


LAYOUTS = [containerd, docker, crio, k3s, k3s_with_template, rke2, microk8s, k0s]


@pytest.mark.rows("H077", "S11", "P009", "P012", "P015")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("default", [None, True])
def test_each_layout_gets_the_runtime_once_and_is_given_back(image: Image, layout: Any, default: bool | None) -> None:
    layout(image)
    before = image.state()
    planned = image.run(check=True, default_runtime=default)
    assert image.state() == before
    done = image.run(default_runtime=default)
    assert [one.id for one in done.result.plan] == [one.id for one in planned.result.plan]
    assert [one["after"] for one in done.diff] == [one["after"] for one in planned.diff]
    held = image.state()
    again = image.run(default_runtime=default)
    assert (again.result.changed, again.result.plan) == (False, [])
    assert image.state() == held
    planned = image.run(check=True, state="absent")
    assert image.state() == held
    last = image.run(state="absent")
    assert image.state() == before
    assert (last.result.plan, last.diff) == (planned.result.plan, planned.diff)
    assert {one["after_header"]: one["before"] for one in last.diff} == {
        one["after_header"]: one["after"] for one in done.diff
    }
    again = image.run(state="absent")
    assert (again.result.changed, again.result.plan) == (False, [])


def test_the_block_of_a_template_is_between_marks(image: Image) -> None:
    k3s_with_template(image)
    image.run()
    text = image.text(f"{RANCHER.format('k3s')}/config.toml.tmpl")
    assert text.startswith("# ours\nversion = 2\n{{ if .X }}\nroot = 1\n{{ end }}\n")
    block = text.split("# gpufleet.nvidia: begin\n")[1].split("# gpufleet.nvidia: end")[0]
    runtimes = parse(block)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
    assert runtimes["nvidia"]["options"]["BinaryName"] == PROGRAM


def test_k3s_without_a_template_needs_a_restart_and_no_file(image: Image) -> None:
    k3s(image)
    assert image.run().result.plan == []


def test_k3s_gets_a_template_for_what_it_would_not_find(image: Image) -> None:
    k3s(image)
    image.put("opt/x/nvidia-container-runtime", "", 0o755)
    image.run(runtime_name="gpu", runtime_path="/opt/x/nvidia-container-runtime")
    text = image.text(f"{RANCHER.format('k3s')}/config.toml.tmpl")
    assert text.startswith('{{ template "base" . }}\n')
    assert "runtimes.gpu" in text


@pytest.mark.rows("H075", "P014")
def test_crio_tells_the_toolkit_which_program_it_uses(image: Image) -> None:
    crio(image)
    image.run()
    said = parse(image.text("etc/nvidia-container-runtime/config.toml"))
    assert said["nvidia-container-runtime"]["runtimes"] == ["/usr/libexec/crio/crun", "runc", "crun"]
    entry = parse(image.text("etc/crio/crio.conf.d/99-nvidia.toml"))["crio"]["runtime"]["runtimes"]["nvidia"]
    assert entry == {"runtime_path": PROGRAM, "runtime_type": "oci", "monitor_path": "/usr/libexec/crio/conmon"}


@pytest.mark.rows("P014")
def test_a_low_level_program_that_is_missing_is_refused(image: Image) -> None:
    crio(image)
    (image.root / "usr/libexec/crio/crun").unlink()
    before = image.state()
    with pytest.raises(Failure, match=r"CRI-O runs its containers with /usr/libexec/crio/crun, which is not there"):
        image.run()
    assert image.state() == before


@pytest.mark.rows("H078")
def test_settings_of_the_toolkit_are_set_beside_what_is_there(image: Image) -> None:
    docker(image)
    image.put("etc/nvidia-container-runtime/config.toml", "# site\n[nvidia-container-cli]\nload-kmods = false # kept\n")
    image.run(toolkit_config={"nvidia-container-cli.no-cgroups": True})
    text = image.text("etc/nvidia-container-runtime/config.toml")
    assert text.startswith("# site\n")
    assert "load-kmods = false # kept\n" in text
    assert parse(text)["nvidia-container-cli"] == {"load-kmods": False, "no-cgroups": True}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"runtime_name": "a b"}, "runtime_name: 'a b' is no name"),
        ({"runtime_path": "nvidia-container-runtime"}, "is no absolute path"),
        ({"runtime_name": "runc"}, "runtime_name: 'runc' is a runtime of the daemon itself"),
        ({"restart_timeout": 0}, "restart_timeout: 0; allowed are seconds from 1 on"),
        ({"runtimes": [{"name": "foo"}]}, r"runtimes\[0\].name: 'foo' is no runtime; allowed are containerd, docker"),
        ({"runtimes": [{"name": "crio"}]}, "crio is not on this host; there is docker"),
        ({"runtimes": [{"name": "docker", "config": "/etc/x.json"}]}, "reads /etc/docker/daemon.json, not /etc/x.json"),
        ({"runtimes": [{"name": "docker", "colour": "red"}]}, r"runtimes\[0\].colour: colour is no key"),
        ({"runtimes": [{"name": "docker", "drop_in": "/etc/docker/x.json"}]}, "docker reads no drop-ins"),
        ({"toolkit_config": {"nvidia-container-cli.nocgroups": True}}, "nvidia-container-cli.no-cgroups"),
        ({"runtime_path": "/opt/none"}, "/opt/none is not there"),
    ],
)
def test_wrong_options_are_refused_by_name_before_anything_changes(
    image: Image, options: dict[str, Any], sentence: str
) -> None:
    docker(image)
    before = image.state()
    with pytest.raises(Failure, match=r"Refused, nothing has been changed") as caught:
        image.run(**options)
    assert re.search(sentence, caught.value.msg), caught.value.msg
    assert image.state() == before


def test_what_somebody_else_added_since_stays(image: Image) -> None:
    docker(image)
    image.run(default_runtime=True)
    text = image.text("etc/docker/daemon.json")
    image.put("etc/docker/daemon.json", text.replace('"journald"', '"journald",\n  "debug": true'), 0o600)
    done = image.run(state="absent")
    assert [one.verb for one in done.result.plan] == ["update"]
    assert image.text("etc/docker/daemon.json") == '{\n  "log-driver": "journald",\n  "debug": true\n}\n'
    assert not (image.root / "var/lib/gpufleet").exists()


HOSTILE = {
    "binary": b"\x00\xff\xfe" * 100,
    "cut off": b'version = 2\n[plugins."io.containerd',
    "too long": b"# x\n" * 5_000_000,
    "another type of table": b"version = 2\nplugins = 3\n",
    "another type of runtimes": f'version = 2\n[{V2}]\nruntimes = ["runc"]\n'.encode(),
    "another type of a runtime": f'version = 2\n[{V2}.runtimes]\nnvidia = "x"\n'.encode(),
    "another type of imports": b'version = 2\nimports = "/etc/containerd/conf.d/*.toml"\n',
    "a list of plugins": b"version = 2\n[[plugins]]\n",
    "a version below nought": b"version = -1\n",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_named_and_left_alone(image: Image, kind: str) -> None:
    containerd(image)
    path = image.root / "etc/containerd/config.toml"
    path.parent.mkdir(parents=True)
    path.write_bytes(HOSTILE[kind])
    before = image.state()
    with pytest.raises(Failure, match="Refused, nothing has been changed") as caught:
        image.run()
    assert "/etc/containerd/config.toml" in caught.value.msg
    assert image.state() == before


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"runtimes": []}', '{"runtimes": {}, "runtimes": {}}', '{"default-runtime": 3}', "\x00", "{}x"]
)
def test_a_hostile_daemon_json_is_named_and_left_alone(image: Image, text: str) -> None:
    docker(image)
    image.put("etc/docker/daemon.json", text)
    before = image.state()
    with pytest.raises(Failure, match=r"/etc/docker/daemon\.json"):
        image.run()
    assert image.state() == before


def test_what_is_no_file_is_named_and_left_alone(image: Image) -> None:
    docker(image)
    (image.root / "etc/docker/daemon.json").unlink()
    os.mkfifo(image.root / "etc/docker/daemon.json")
    with pytest.raises(Failure, match=r"/etc/docker/daemon\.json is no plain file"):
        image.run()


def test_a_configuration_that_is_a_link_stays_one(image: Image) -> None:
    docker(image)
    (image.root / "etc/docker/daemon.json").rename(image.root / "etc/docker/real.json")
    (image.root / "etc/docker/daemon.json").symlink_to("real.json")
    before = image.state()
    image.run()
    assert (image.root / "etc/docker/daemon.json").is_symlink()
    assert PROGRAM in image.text("etc/docker/real.json")
    image.run(state="absent")
    assert image.state() == before


@pytest.mark.rows("H072")
@pytest.mark.parametrize(
    ("layout", "path", "earlier"),
    [(docker, "etc/docker/daemon.json", "mine"), (crio, "etc/crio/crio.conf.d/99-nvidia.toml", "crun")],
)
def test_the_earlier_default_runtime_comes_back(image: Image, layout: Any, path: str, earlier: str) -> None:
    layout(image)
    if layout is docker:
        image.put(path, '{"default-runtime": "mine", "runtimes": {"mine": {"path": "/x"}}}')
    image.run(default_runtime=True)
    assert 'nvidia"' in image.text(path)
    image.run(default_runtime=False)
    data = Json(image.text(path)).data if layout is docker else parse(image.text(path))["crio"]["runtime"]
    assert data.get("default-runtime") in (earlier, None)
    assert data.get("default_runtime", earlier) == earlier


@pytest.mark.rows("P004")
def test_two_containerds_keep_their_own_files_and_formats(image: Image) -> None:
    containerd(image)
    image.put("etc/containerd/config.toml", "version = 2\n")
    rke2(image)
    image.run()
    assert 'plugins."io.containerd.grpc.v1.cri"' in image.text("etc/containerd/conf.d/99-nvidia.toml")
    template = image.text(f"{RANCHER.format('rke2')}/config-v3.toml.tmpl")
    assert 'plugins."io.containerd.cri.v1.runtime"' in template
    assert "grpc.v1" not in template


@pytest.mark.rows("H084")
def test_a_runtime_that_another_tool_looks_after_is_left_alone(image: Image) -> None:
    """As with Kubespray, whose own variables name the runtime."""
    containerd(image)
    docker(image)
    done = image.run(runtimes=[{"name": "containerd", "placement": "none"}, {"name": "docker"}])
    assert {one.target for one in done.result.plan} == {"/etc/docker/daemon.json"}


@pytest.mark.rows("H082", "P018")
@pytest.mark.parametrize(
    ("mode", "toolkit", "linked", "told"),
    [
        ("legacy", (1, 20, 2), False, True),
        ("auto", (1, 17, 8), False, True),
        ("auto", (1, 20, 2), False, False),
        ("auto", (), False, False),
        ("cdi", (1, 17, 8), False, False),
        ("legacy", (1, 17, 8), True, False),
    ],
)
def test_gpus_that_a_daemon_reload_would_take_are_told(
    image: Image, mode: str, toolkit: tuple[int, ...], linked: bool, told: bool
) -> None:
    image.put("etc/nvidia-container-runtime/config.toml", f'[nvidia-container-runtime]\nmode = "{mode}"\n')
    if linked:
        image.put("dev/char/195:0")
    found = reload_risk(Files(Root(str(image.root))), toolkit)
    assert [one.id for one in found] == ["daemon_reload_takes_gpus"] * told


@pytest.mark.rows("H076")
def test_podmans_old_hook_goes_and_comes_back(image: Image) -> None:
    image.put("usr/bin/podman", "", 0o755)
    image.put("usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", '{"version": "1.0.0"}\n')
    before = image.state()
    assert [one.id for one in image.run().result.plan] == ["podman-hook"]
    assert not (image.root / "usr/share/containers/oci/hooks.d/oci-nvidia-hook.json").exists()
    image.run(state="absent")
    assert image.state() == before


def test_what_is_given_back_does_not_depend_on_what_is_still_there(image: Image) -> None:
    docker(image)
    before = image.state()
    image.run()
    image.run(state="absent", runtimes=[{"name": "crio"}])
    assert image.state() == before


@pytest.mark.parametrize(
    ("more", "left"),
    [("# a note\n", ""), ('\n[plugins."io.containerd.x"]\ny = 1\n', '[plugins."io.containerd.x"]\ny = 1\n')],
)
def test_our_drop_in_that_somebody_edited_keeps_their_part_alone(image: Image, more: str, left: str) -> None:
    containerd(image)
    image.run()
    path = image.root / "etc/containerd/conf.d/99-nvidia.toml"
    path.write_text(path.read_text() + more)
    image.run(state="absent")
    assert path.exists() is bool(left)
    assert not left or (left in path.read_text() and "nvidia-container-runtime" not in path.read_text())


def test_a_second_run_waits_for_the_first(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    docker(image)
    monkeypatch.setattr(_run, "_WAIT", 0.2)
    before = image.state()
    folder = os.open(image.root / "etc", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        with pytest.raises(Failure, match="Another run of container_toolkit has been at work"):
            image.run()
        assert image.run(check=True).result.plan
        assert image.state() == before
    finally:
        os.close(folder)
    image.run()


def test_secrets_of_the_main_file_are_not_read_by_more_people(image: Image) -> None:
    containerd(image)
    text = f"version = 2\n[{V2.removesuffix('.containerd')}.registry.configs.a.auth]\npassword = 's3cret'\n"
    image.put("etc/containerd/config.toml", text, 0o600)
    done = image.run()
    drop_in = image.root / "etc/containerd/conf.d/99-nvidia.toml"
    assert "s3cret" in drop_in.read_text()
    assert drop_in.stat().st_mode & 0o777 == 0o600
    assert "s3cret" not in json.dumps(done.diff)


def test_a_link_to_nothing_is_named_and_stays(image: Image) -> None:
    containerd(image)
    (image.root / "etc/containerd").mkdir(parents=True)
    (image.root / "etc/containerd/config.toml").symlink_to("/srv/none.toml")
    with pytest.raises(Failure, match=r"/etc/containerd/config\.toml is a link to nothing"):
        image.run()
    assert (image.root / "etc/containerd/config.toml").is_symlink()


@pytest.mark.parametrize("text", ['{"runtimes": null}', '{"runtimes": {"nvidia": null}}'])
def test_what_is_nothing_in_daemon_json_is_told(image: Image, text: str) -> None:
    docker(image)
    image.put("etc/docker/daemon.json", text)
    with pytest.raises(Failure, match=r"/etc/docker/daemon\.json: "):
        image.run()
    assert image.text("etc/docker/daemon.json") == text


def test_what_a_user_had_of_that_name_comes_back_beside_later_edits(image: Image) -> None:
    docker(image)
    image.put("etc/docker/daemon.json", '{"default-runtime": "mine", "runtimes": {"nvidia": {"path": "/opt/n"}}}\n')
    image.run(default_runtime=True, cdi=True)
    document = Json(image.text("etc/docker/daemon.json"))
    document.set(["debug"], True)
    image.put("etc/docker/daemon.json", document.text())
    image.run(state="absent")
    assert Json(image.text("etc/docker/daemon.json")).data == {
        "default-runtime": "mine",
        "runtimes": {"nvidia": {"path": "/opt/n"}},
        "debug": True,
    }


def test_the_import_goes_from_a_file_that_was_edited_since(image: Image) -> None:
    containerd(image)
    image.put("etc/containerd/config.toml", "version = 2\n")
    image.run()
    path = image.root / "etc/containerd/config.toml"
    assert "imports" in path.read_text()
    path.write_text(path.read_text() + 'root = "/data"\n')
    image.run(state="absent")
    assert path.read_text() == 'version = 2\nroot = "/data"\n'


class Dumps(Runner):
    """A containerd whose merged configuration has the runtime."""

    def run(self, argv: Any, **more: Any) -> Done:
        return Done(argv, 0, f'[{V2}.runtimes.nvidia.options]\nBinaryName = "{PROGRAM}"\n', "")


@pytest.mark.rows("P021")
@pytest.mark.parametrize(("text", "ok"), [(HEADER, False), ("# of somebody else\n", True)])
def test_our_drop_in_that_is_still_there_is_no_way_back(image: Image, text: str, ok: bool) -> None:
    image.put("etc/containerd/conf.d/99-nvidia.toml", text)
    files = Files(Root(str(image.root)))
    settings = Settings(Wanted(), files, FilesReader(files), lambda line: None, Dumps())
    target = Target("containerd", "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml")
    target.program = "/usr/bin/containerd"
    with Journal(files, "container_toolkit") as journal:
        assert [one.ok for one in GiveBack([target], settings, journal).prove()] == [ok]
