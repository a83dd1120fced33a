# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container runtimes of a host, each with its own socket, unit, program and configuration."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Dict, List, Set, Tuple

from ._tree import Tree

UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_LISTENS = 0x00010000  # SO_ACCEPTCON in /proc/net/unix
_CONFIG = 4 * 1024 * 1024
YES, NO = "yes", "no"


@dataclass(frozen=True)
class Places:
    """Where a runtime's parts are, the usual place first. ``more``: folders of which every file counts."""

    sockets: Tuple[str, ...]
    units: Tuple[str, ...]
    programs: Tuple[str, ...]
    config: Tuple[str, ...]
    more: Tuple[str, ...] = ()


def _programs(*names: str) -> Tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names for folder in ("/usr/bin", "/usr/local/bin", "/usr/sbin"))


def _rancher(name: str) -> Tuple[str, ...]:
    base = f"/var/lib/rancher/{name}/agent/etc/containerd"
    return (f"{base}/config.toml", f"{base}/config.toml.tmpl", f"{base}/config-v3.toml.tmpl")


_RANCHER_SOCKET = "/run/k3s/containerd/containerd.sock"  # of k3s and of RKE2 alike

RUNTIMES: Dict[str, Places] = {
    "containerd": Places(
        ("/run/containerd/containerd.sock",),
        ("containerd.service",),
        _programs("containerd"),
        ("/etc/containerd/config.toml",),
        ("/etc/containerd/conf.d",),
    ),
    "docker": Places(
        ("/run/docker.sock",),
        ("docker.service", "snap.docker.dockerd.service"),
        (*_programs("dockerd"), "/snap/bin/docker"),
        ("/etc/docker/daemon.json", "/var/snap/docker/current/config/daemon.json"),
    ),
    "crio": Places(
        ("/run/crio/crio.sock",),
        ("crio.service", "cri-o.service"),
        _programs("crio"),
        ("/etc/crio/crio.conf",),
        ("/etc/crio/crio.conf.d",),
    ),
    "podman": Places(
        ("/run/podman/podman.sock",),
        ("podman.service", "podman.socket"),
        _programs("podman"),
        ("/etc/containers/containers.conf", "/usr/share/containers/containers.conf"),
        ("/etc/containers/containers.conf.d",),
    ),
    "k3s": Places(
        (_RANCHER_SOCKET,), ("k3s.service", "k3s-agent.service"), (*_programs("k3s"), "/opt/bin/k3s"), _rancher("k3s")
    ),
    "rke2": Places(
        (_RANCHER_SOCKET,),
        ("rke2-server.service", "rke2-agent.service"),
        (*_programs("rke2"), "/opt/rke2/bin/rke2"),
        _rancher("rke2"),
    ),
    "microk8s": Places(
        ("/var/snap/microk8s/common/run/containerd.sock",),
        ("snap.microk8s.daemon-containerd.service",),
        ("/snap/bin/microk8s",),
        (
            "/var/snap/microk8s/current/args/containerd-template.toml",
            "/var/snap/microk8s/current/args/containerd.toml",
        ),
    ),
    "k0s": Places(
        ("/run/k0s/containerd.sock",),
        ("k0scontroller.service", "k0sworker.service"),
        _programs("k0s"),
        ("/etc/k0s/containerd.toml",),
        ("/etc/k0s/containerd.d",),
    ),
}


@dataclass
class Runtime:
    """Keys are documented in gpu_info's RETURN. Parts that are not there are empty."""

    name: str
    socket: str = ""
    listening: str = NO
    unit: str = ""
    program: str = ""
    config: List[str] = field(default_factory=list)
    mentions_nvidia: bool = False


def read(tree: Tree) -> List[Runtime]:
    """Every runtime of which a part is there, by name of the table."""
    tree = tree.of("runtimes")
    listening = _listening(tree)
    found = {}
    for name, places in RUNTIMES.items():
        runtime = _runtime(tree, name, places, listening)
        if runtime.socket or runtime.unit or runtime.program or runtime.config:
            found[name] = runtime
    _share(found)
    return list(found.values())


def _share(found: Dict[str, Runtime]) -> None:
    """k3s and RKE2 use one socket: it is that one's of which there is more."""
    k3s, rke2 = found.get("k3s"), found.get("rke2")
    if not k3s or not rke2:
        return
    less = "rke2" if _parts(rke2) < _parts(k3s) else "k3s" if _parts(k3s) < _parts(rke2) else ""
    if less and not _parts(found[less]):
        del found[less]
    elif less:
        found[less].socket, found[less].listening = "", NO


def _parts(runtime: Runtime) -> int:
    return bool(runtime.unit) + bool(runtime.program) + bool(runtime.config)


def _runtime(tree: Tree, name: str, places: Places, listening: Set[str]) -> Runtime:
    files = [path for path in places.config if tree.kind(path) == "file"]
    for folder in places.more:
        files += [f"{folder}/{file}" for file in tree.names(folder) if tree.kind(f"{folder}/{file}") == "file"]
    socket = next((path for path in places.sockets if tree.kind(path) == "socket" or path in listening), "")
    return Runtime(
        name,
        socket=socket,
        listening=YES if socket and socket in listening else NO,
        unit=next((path for unit in places.units for path in [unit_file(tree, unit)] if path), ""),
        program=next((path for path in places.programs if tree.kind(path) == "file"), ""),
        config=files,
        mentions_nvidia=any(b"nvidia" in tree.data(path, _CONFIG) for path in files),
    )


def unit_file(tree: Tree, unit: str) -> str:
    """The file of a systemd unit; empty without one, and for one that is masked (a link to /dev/null)."""
    for folder in UNIT_FOLDERS:
        path = f"{folder}/{unit}"
        if tree.kind(path) == "file":
            return path
        if tree.link(path) == "null":
            return ""
    return ""


def _listening(tree: Tree) -> Set[str]:
    """Paths of the sockets that a process listens on, in this network namespace."""
    found = set()
    for line in tree.text("/proc/net/unix", 16 * 1024 * 1024).splitlines()[1:]:
        words = line.split(None, 7)
        if len(words) == 8 and words[3].isalnum() and int(words[3], 16) & _LISTENS:
            found.add(_below_run(words[7]))
    return found


def _below_run(path: str) -> str:
    path = posixpath.normpath(path)
    return path[len("/var") :] if path.startswith("/var/run/") else path
