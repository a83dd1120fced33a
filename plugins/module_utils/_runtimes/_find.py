# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container runtimes of a host as targets: each configuration file bound to the daemon that really reads it."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._host._commands import CommandFailed, Runner
from .._host._root import Root
from .._host_state import _runtimes as _state
from .._host_state._tree import Problems, Tree
from .._plan import ERROR, Finding
from . import _containerd, _crio, _docker, _rootless
from ._rootless import Person
from ._types import Version

AUTO, DROP_IN, IN_PLACE, NONE = "auto", "drop_in", "in_place", "none"
_NO_DROP_IN = (AUTO, IN_PLACE, NONE)
PLACEMENTS = (AUTO, DROP_IN, IN_PLACE, NONE)
_RANCHER = "/var/lib/rancher/{0}/agent/etc/containerd/config.toml"
# Where each daemon reads its configuration unless it is started otherwise, and where our part of it goes.
FILES: Dict[str, Tuple[str, str]] = {
    "containerd": (_containerd.CONFIG, _containerd.DROP_IN),
    "docker": (_docker.CONFIG, ""),
    "crio": (_crio.CONFIG, _crio.DROP_IN),
    "podman": ("", ""),
    "k3s": (_RANCHER.format("k3s"), ""),
    "rke2": (_RANCHER.format("rke2"), ""),
    "microk8s": ("/var/snap/microk8s/current/args/containerd-template.toml", ""),
    "k0s": ("/etc/k0s/containerd.toml", "/etc/k0s/containerd.d/nvidia.toml"),
}
_SNAP_DOCKER = "/var/snap/docker/current/config/daemon.json"
_CONFIG_FLAGS = {
    "containerd": ("--config", "-c"), "docker": ("--config-file",), "crio": ("--config", "-c"),
}  # fmt: skip
_SOCKET_FLAGS = {"containerd": ("--address", "-a"), "docker": ("--host", "-H"), "crio": ("--listen",)}
_VERSION = re.compile(r"\bv?(\d+)\.(\d+)\.(\d+)")


@dataclass
class Target:
    """A runtime that is configured. ``flags``: how its daemon is started; ``named``: the user named it;
    ``restart_command``: restarts a daemon that no unit of systemd starts; ``person``: who runs it, where root does not.
    """

    name: str
    config: str
    drop_in: str
    unit: str = ""
    socket: str = ""
    program: str = ""
    flags: List[str] = field(default_factory=list)
    version: Version = None
    running: bool = False
    placement: str = AUTO
    named: bool = False
    restart_command: Tuple[str, ...] = ()
    person: Optional[Person] = None

    @property
    def label(self) -> str:
        """Tells it from others of its name: ``docker``, ``docker@alice``."""
        return f"{self.name}@{self.person.name}" if self.person else self.name

    @property
    def starter(self) -> str:
        """What starts the daemon: its unit, or the command that restarts it; "" where neither is known."""
        if self.person:
            return f"{_rootless.UNIT} of {self.person.name}"
        return self.unit or " ".join(self.restart_command)

    def told(self) -> Dict[str, Any]:
        """As ``found.runtimes`` of the module."""
        return {
            "name": self.name,
            "user": self.person.name if self.person else "",
            "unit": self.unit,
            "socket": self.socket,
            "program": self.program,
            "version": ".".join(str(part) for part in self.version) if self.version else "",
            "running": self.running,
            "config": self.config,
            "drop_in": self.drop_in,
        }


def find(
    root: Root, runner: Optional[Runner], asked: Optional[Sequence[Mapping[str, Any]]]
) -> Tuple[List[Target], List[Finding]]:
    """The runtimes that are there, or those that were asked for. ``runner``: None for an image tree."""
    there = {one.name: one for one in _state.read(Tree(root.folder, "runtimes", Problems()))}
    findings: List[Finding] = []
    if asked is None:
        # Files that a removed runtime left are not one.
        targets = [_target(one, runner) for one in there.values() if one.unit or one.program]
        return sorted(targets, key=lambda one: list(FILES).index(one.name)), findings
    targets = []
    for number, wish in enumerate(asked):
        path = f"runtimes[{number}]"
        wrong = _wrong(wish, path)
        findings += wrong
        if wrong:
            continue
        name = str(wish["name"])
        if wish.get("user"):
            targets += rootless([str(wish["user"])], runner, there.get(name))
            continue
        if name not in there and not wish.get("config"):
            findings.append(
                Finding(
                    "runtime_not_found", ERROR, f"{name} is not on this host; there is {', '.join(there) or 'none'}",
                    name, path, "Install it first, or leave it out",
                )
            )  # fmt: skip
            continue
        runtime = there.get(name) or _state.Runtime(name)
        found = _target(replace(runtime, unit=str(wish.get("unit") or runtime.unit)), runner)
        target, refused = _as_asked(found, wish, path)
        findings += refused
        targets.append(target)
    return targets, findings


def rootless(users: Sequence[str], runner: Optional[Runner], docker: Optional[_state.Runtime] = None) -> List[Target]:
    """Docker of users who run it without root. ``docker``: what the host has of it; programs of users are not run."""
    found = []
    for person in filter(None, map(_rootless.person, users)):
        pid = _rootless.daemon_pid(person)
        target = Target(
            "docker", person.config, "", socket=person.socket, program=docker.program if docker else "",
            flags=_rootless.flags(pid) if pid else [], running=bool(pid), named=True, person=person,
        )  # fmt: skip
        if runner and target.program:
            target.version = _version(runner, target.program)
        found.append(target)
    return found


def _wrong(wish: Mapping[str, Any], path: str) -> List[Finding]:
    found = []
    known = ("name", "config", "drop_in", "unit", "socket", "placement", "restart_command", "user")
    for key in sorted(set(wish) - set(known)):
        found.append(
            Finding("unknown_key", ERROR, f"{key} is no key; allowed are {', '.join(known)}", path=f"{path}.{key}")
        )
    if wish.get("name") not in FILES:
        found.append(
            Finding(
                "unknown_runtime", ERROR, f"{wish.get('name')!r} is no runtime; allowed are {', '.join(FILES)}",
                path=f"{path}.name",
            )
        )  # fmt: skip
    name = str(wish.get("name"))
    if name in FILES and not FILES[name][1]:
        for key in [one for one in ("drop_in", "placement") if wish.get(one) and wish[one] not in _NO_DROP_IN]:
            found.append(Finding("no_drop_ins", ERROR, f"{name} reads no drop-ins; leave it out", path=f"{path}.{key}"))
    if name == "crio" and wish.get("placement") == IN_PLACE:
        detail = "CRI-O is configured by a drop-in only; allowed are auto, drop_in, none"
        found.append(Finding("no_placement", ERROR, detail, path=f"{path}.placement"))
    for key in ("config", "drop_in", "socket"):
        value = wish.get(key)
        if value is not None and not (isinstance(value, str) and os.path.isabs(value)):
            found.append(Finding("no_path", ERROR, f"{value!r} is no absolute path", path=f"{path}.{key}"))
    if wish.get("placement", AUTO) not in PLACEMENTS:
        found.append(
            Finding(
                "unknown_placement", ERROR, f"{wish['placement']!r}; allowed are {', '.join(PLACEMENTS)}",
                path=f"{path}.placement",
            )
        )  # fmt: skip
    found += _wrong_user(wish, path)
    command = wish.get("restart_command") or []
    if command and not os.path.isabs(str(command[0])):
        detail = f"{command[0]!r} is no absolute path of a program"
        found.append(Finding("no_path", ERROR, detail, path=f"{path}.restart_command"))
    return found


def _wrong_user(wish: Mapping[str, Any], path: str) -> List[Finding]:
    user = wish.get("user")
    if not user:
        return []
    if wish.get("name") != "docker":
        detail = f"{wish.get('name')} is not configured for users; allowed is docker"
        return [Finding("no_user", ERROR, detail, path=f"{path}.user", remedy="Leave user out")]
    others = ("config", "drop_in", "unit", "socket", "placement", "restart_command")
    given = [one for one in others if wish.get(one) not in (None, [], "", AUTO)]
    if given:
        detail = f"{', '.join(given)}: a user's daemon has them in that user's home; leave them out beside user"
        return [Finding("no_user", ERROR, detail, path=f"{path}.user")]
    if _rootless.person(str(user)) is None:
        detail = (
            f"{user!r} is no user of this host with a home apart from root's folders; root's own daemon is configured "
            "without user"
        )
        return [Finding("no_user", ERROR, detail, path=f"{path}.user")]
    return []


def _as_asked(found: Target, wish: Mapping[str, Any], path: str) -> Tuple[Target, List[Finding]]:
    findings = []
    command = tuple(str(word) for word in wish.get("restart_command") or ())
    if command and found.unit:
        findings.append(
            Finding(
                "unit_and_command", ERROR, f"{found.unit} starts it, so systemd restarts it", found.name,
                f"{path}.restart_command", "Leave restart_command out",
            )
        )  # fmt: skip
    config = wish.get("config")
    if config and found.unit and os.path.normpath(config) != os.path.normpath(found.config):
        findings.append(
            Finding(
                "other_config", ERROR, f"{found.unit} reads {found.config}, not {config}", found.name, f"{path}.config",
                "Leave config out, or give the file that the daemon reads",
            )
        )  # fmt: skip
    return (
        replace(
            found,
            config=config or found.config,
            drop_in=wish.get("drop_in") or found.drop_in,
            socket=wish.get("socket") or found.socket,
            placement=wish.get("placement", AUTO),
            named=True,
            restart_command=command,
        ),
        findings,
    )


def _target(found: _state.Runtime, runner: Optional[Runner]) -> Target:
    config, drop_in = FILES[found.name]
    unit = os.path.basename(found.unit)
    if unit.startswith("snap.docker"):
        config = _SNAP_DOCKER
    target = Target(
        found.name, config, drop_in, unit, found.socket, found.program, running=found.listening == _state.YES
    )
    if runner is None:
        return target
    if unit:
        target.flags, target.running = _started(runner, unit, target.running)
    if target.flags and found.name in _CONFIG_FLAGS:
        target.program = target.flags[0] if os.path.isabs(target.flags[0]) else target.program
        target.config = _flag(target.flags, _CONFIG_FLAGS[found.name]) or config
        socket = _flag(target.flags, _SOCKET_FLAGS[found.name])
        target.socket = socket.replace("unix://", "") if socket.startswith(("/", "unix://")) else target.socket
    if target.config != config and target.drop_in.startswith(os.path.dirname(config)):
        below = os.path.relpath(drop_in, os.path.dirname(config))
        target.drop_in = os.path.join(os.path.dirname(target.config), below)
    folder = _flag(target.flags, ("--config-dir", "-d")) if found.name == "crio" else ""
    if folder:
        target.drop_in = os.path.join(folder, os.path.basename(drop_in))
    if target.program and found.name in (*_CONFIG_FLAGS, "podman"):
        target.version = _version(runner, target.program)
    return target


def _started(runner: Runner, unit: str, running: bool) -> Tuple[List[str], bool]:
    """The daemon's command line as it runs, or as its unit would start it; and whether it runs."""
    shown = ("ActiveState", "MainPID", "ExecStart")
    done = runner.run(["systemctl", "show", f"--property={','.join(shown)}", "--", unit], check=False, timeout=30)
    said = dict(line.split("=", 1) for line in done.out.splitlines() if "=" in line)
    pid = said.get("MainPID", "0")
    if pid.isdigit() and int(pid) > 0:
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                line = [word for word in file.read(65536).split("\0") if word]
                return line, True
        except OSError:
            pass
    found = re.search(r"argv\[\]=(.*?) ;", said.get("ExecStart", ""))
    try:
        return shlex.split(found.group(1)) if found else [], said.get("ActiveState") == "active" or running
    except ValueError:
        return [], running


def _flag(line: Sequence[str], names: Sequence[str]) -> str:
    """The value of a flag, in either form; "" without one."""
    for number, word in enumerate(line):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else (line[number + 1] if number + 1 < len(line) else "")
    return ""


def _version(runner: Runner, program: str) -> Version:
    try:
        done = runner.run([program, "--version"], check=False, timeout=20)
    except CommandFailed:
        return None
    found = _VERSION.search(done.out)
    return tuple(int(part) for part in found.groups()) if found else None
