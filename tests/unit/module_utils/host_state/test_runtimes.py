# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container runtimes, CDI specifications and packages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state import _cdi, _packages, _runtimes
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.host_state.trees import listen, tree

UNIX = "Num       RefCount Protocol Flags    Type St Inode Path\n"


def listening(*paths: str) -> dict[str, str]:
    lines = "".join(f"00000000a: 00000002 00000000 00010000 0001 01 {n} {path}\n" for n, path in enumerate(paths))
    return {
        "/proc/net/unix": f"{UNIX}00000000b: 00000003 00000000 00000000 0001 03 9 /run/other.sock\nrubbish\n{lines}"
    }


def named(found: list[_runtimes.Runtime]) -> dict[str, _runtimes.Runtime]:
    return {runtime.name: runtime for runtime in found}


def test_every_runtime_is_found_with_its_own_parts(tmp_path: Path) -> None:
    files = {
        "/etc/containerd/config.toml": "version = 2\n",
        "/etc/containerd/conf.d/99-nvidia.toml": "[plugins.'nvidia']\n",
        "/usr/bin/containerd": "",
        "/lib/systemd/system/containerd.service": "",
        "/usr/bin/dockerd": "",
        "/etc/docker/daemon.json": "{}",
        "/usr/lib/systemd/system/docker.service": "",
        "/usr/bin/crio": "",
        "/etc/crio/crio.conf.d/10-crio.conf": "",
        "/usr/bin/podman": "",
        "/usr/local/bin/k3s": "",
        "/etc/systemd/system/k3s-agent.service": "",
        "/var/lib/rancher/k3s/agent/etc/containerd/config.toml": "runtime 'nvidia'",
        "/snap/bin/microk8s": "",
        "/var/snap/microk8s/current/args/containerd-template.toml": "",
        "/etc/k0s/containerd.toml": "",
        "/var/run": "-> /run",
        **listening("/run/containerd/containerd.sock", "/var/run/docker.sock", "/run/k3s/containerd/containerd.sock"),
    }
    one = tree(tmp_path, files)
    with listen(tmp_path / "run/docker.sock"), listen(tmp_path / "run/containerd/containerd.sock"):
        found = named(_runtimes.read(one))
    assert list(found) == ["containerd", "docker", "crio", "podman", "k3s", "microk8s", "k0s"]
    assert found["containerd"] == _runtimes.Runtime(
        "containerd",
        "/run/containerd/containerd.sock",
        "yes",
        "/lib/systemd/system/containerd.service",
        "/usr/bin/containerd",
        ["/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"],
        True,
    )
    assert (found["docker"].socket, found["docker"].listening, found["docker"].mentions_nvidia) == (
        "/run/docker.sock",
        "yes",
        False,
    )
    assert (found["k3s"].listening, found["k3s"].mentions_nvidia) == ("yes", True)
    assert (found["k0s"].socket, found["k0s"].program, found["k0s"].config) == ("", "", ["/etc/k0s/containerd.toml"])
    assert one.problems.listed() == []


def test_a_socket_that_was_left_behind_does_not_count_as_running(tmp_path: Path) -> None:
    one = tree(tmp_path, {**listening()})
    with listen(tmp_path / "run/containerd/containerd.sock"):
        (found,) = _runtimes.read(one)
    assert (found.socket, found.listening) == ("/run/containerd/containerd.sock", "no")


@pytest.mark.parametrize(
    ("files", "owner"),
    [
        ({"/usr/local/bin/rke2": "", "/etc/systemd/system/rke2-agent.service": ""}, ["rke2"]),
        ({"/usr/local/bin/k3s": "", "/etc/systemd/system/k3s.service": ""}, ["k3s"]),
        ({"/opt/rke2/bin/rke2": "", "/usr/local/bin/k3s": "", "/etc/systemd/system/k3s.service": ""}, ["k3s"]),
    ],
)
def test_the_socket_that_k3s_and_rke2_share_belongs_to_the_one_that_is_there(
    tmp_path: Path, files: dict[str, str], owner: list[str]
) -> None:
    found = _runtimes.read(tree(tmp_path, {**files, **listening("/run/k3s/containerd/containerd.sock")}))
    assert [one.name for one in found if one.socket] == owner


def test_a_masked_unit_is_no_unit(tmp_path: Path) -> None:
    files = {
        "/etc/systemd/system/docker.service": "-> /dev/null",
        "/lib/systemd/system/docker.service": "",
        "/usr/bin/dockerd": "",
    }
    (found,) = _runtimes.read(tree(tmp_path, files))
    assert (found.name, found.unit) == ("docker", "")


GENERATED = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - name: NVIDIA_VISIBLE_DEVICES=void
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      name: not-this-one
  name: "0"
- name: GPU-7d1e  # by UUID
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- containerEdits: {}
  name: 'all'
kind: nvidia.com/gpu
"""
INDENTED = """\
kind: nvidia.com/gpu
cdiVersion: '0.6.0'
devices:
  - name: a
    containerEdits:
      env: []
  -   name: b
"""


@pytest.mark.parametrize(
    ("name", "text", "kind", "version", "devices", "drivers"),
    [
        ("nvidia.yaml", GENERATED, "nvidia.com/gpu", "0.5.0", ["0", "GPU-7d1e", "all"], ["580.95.05"]),
        ("x.yml", INDENTED, "nvidia.com/gpu", "0.6.0", ["a", "b"], []),
        ("x.yaml", "kind: a.b/c\ndevices: []\n", "a.b/c", "", [], []),
        (
            "x.json",
            json.dumps({"cdiVersion": "0.7.0", "kind": "a.b/c", "devices": [{"name": "0"}, {"name": "1"}]}),
            "a.b/c",
            "0.7.0",
            ["0", "1"],
            [],
        ),
        ("x.yaml", '{"kind": "a.b/c", "devices": [{"name": "0"}]}', "a.b/c", "", ["0"], []),
    ],
)
def test_cdi_files_of_every_form_are_read(
    tmp_path: Path, name: str, text: str, kind: str, version: str, devices: list[str], drivers: list[str]
) -> None:
    one = tree(tmp_path, {f"/etc/cdi/{name}": text})
    assert _cdi.read(one) == [_cdi.Spec(f"/etc/cdi/{name}", kind, version, devices, drivers)]
    assert one.problems.listed() == []


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.json", "{", "no JSON"),
        ("a.json", "[" * 100_000, "no JSON"),
        ("a.json", "[]", "no list of devices"),
        ("a.json", '{"devices": [{}]}', "has no name"),
        ("a.yaml", "devices: [{name: x}]\n", "could not be found"),
        ("a.yaml", "\x00\xff rubbish", "could not be found"),
        ("a.yaml", "", "is empty"),
    ],
)
def test_a_broken_cdi_file_is_told(tmp_path: Path, name: str, text: str, why: str) -> None:
    one = tree(tmp_path, {f"/var/run/cdi/{name}": text})
    _cdi.read(one)
    (problem,) = one.problems.listed()
    assert why in problem.why
    assert "nvidia-ctk cdi generate" in problem.remedy


def test_cdi_files_that_name_the_same_devices_are_told(tmp_path: Path) -> None:
    old = "kind: nvidia.com/gpu\ndevices:\n- name: '0'\n"
    files = {
        "/etc/cdi/old.yaml": old,
        "/etc/cdi/other.yaml": "kind: example.com/gpu\ndevices:\n- name: '0'\n",
        "/var/run/cdi/a.yaml": old,
        "/var/run/cdi/b.yaml": old,
        "/var/run/cdi/readme.txt": old,
        "/var/run/cdi/.swap.yaml": old,
    }
    first, other, second, third = _cdi.read(tree(tmp_path, files))
    assert (first.path, first.hidden_by) == ("/etc/cdi/old.yaml", "/var/run/cdi/b.yaml")
    assert (other.hidden_by, other.conflicts_with) == ("", "")
    assert (second.conflicts_with, third.conflicts_with) == ("/var/run/cdi/b.yaml", "/var/run/cdi/a.yaml")


STATUS = """\
Package: nvidia-driver-580-server
Status: hold ok installed
Version: 580.95.05-0ubuntu1
Description: text
 Package: not-this

Package: libcuda1
Status: install ok installed
Version: 535.1-1

Package: nvidia-dkms-570
Status: deinstall ok config-files
Version: 570.1

Package: libnvjpeg-13-0
Status: install ok installed
Version: 13.0

Package: nvidia-container-toolkit
Status: install ok half-installed
Version: 1.18.0-1
"""


def no_command(argv: list[str], limit: float) -> tuple[int, str]:
    raise OSError(2, "No such file or directory")


def test_packages_of_dpkg_with_their_holds(tmp_path: Path) -> None:
    found = _packages.read(tree(tmp_path, {_packages.DPKG: STATUS}), no_command)
    assert [(one.name, one.version, one.manager, one.held) for one in found] == [
        ("libcuda1", "535.1-1", "dpkg", False),
        ("nvidia-driver-580-server", "580.95.05-0ubuntu1", "dpkg", True),
    ]


def test_packages_of_rpm_with_version_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/var/lib/rpm/rpmdb.sqlite": "",
        "/etc/dnf/plugins/versionlock.list": "# lock\nkmod-nvidia-open-dkms-3:580.95.05-1.el9.*\n!nvidia-driver-0:1\n",
        "/etc/dnf/versionlock.toml": 'version = "1.0"\n[[packages]]\nname = "nvidia-persistenced"\n',
        "/etc/zypp/locks": "type: package\nsolvable_name: nvidia-fabricmanager*\n",
    }
    one = tree(tmp_path, files)
    root = str(tmp_path)
    monkeypatch.setattr(_packages.Tree, "live", property(lambda self: True))
    monkeypatch.setattr(_packages.Tree, "place", lambda self, path, last=True: root + path)
    listed = (
        "bash 5.1-1\nkmod-nvidia-open-dkms 580.95.05-1.el9\nnvidia-driver 580.95.05-1.el9\n"
        "nvidia-persistenced 580.95.05-1.el9\nnvidia-fabricmanager 580.95.05-1\n"
    )
    found = _packages.read(one, lambda argv, limit: (0, listed))
    assert [(package.name, package.held) for package in found] == [
        ("kmod-nvidia-open-dkms", True),
        ("nvidia-driver", False),
        ("nvidia-fabricmanager", True),
        ("nvidia-persistenced", True),
    ]
    assert _packages.read(one, no_command) == []
    assert "rpm cannot be run" in one.problems.listed()[0].why


def test_rpms_database_of_another_root_is_not_read(tmp_path: Path) -> None:
    one = tree(tmp_path, {"/var/lib/rpm/rpmdb.sqlite": ""})
    assert _packages.read(one, no_command) == []
    assert one.problems.listed()[0].part == "packages"
