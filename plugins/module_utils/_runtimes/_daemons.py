# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a daemon itself says of its configuration: merged from its files, and as it works with it now."""

from __future__ import annotations

import http.client
import json
import socket
import time
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from .._host._commands import Runner
from .._host._files import Files
from .._host._systemd import Units
from .._plan import Failure
from . import _cri, _nri, _pulls, _rootless
from ._cri import Handler, NoAnswer, Status
from ._find import Target
from ._toml import Toml, TomlError, parse
from ._types import Wanted, at, meant, same_program, table

_CRI_PLUGINS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
CANDIDATE = "/run/gpufleet-candidate"  # a file that a daemon judges before it is put in place
_RELOADS = ("docker", "crio")  # by SIGHUP, which leaves everything else alone; containerd would die of it


class Daemon:
    """One runtime's daemon."""

    def __init__(self, target: Target, runner: Runner, progress: Callable[[str], None]) -> None:
        self.target, self._runner, self._progress = target, runner, progress
        self._units = Units(runner)

    # --- From files -----------------------------------------------------------------------------------------------

    def merged(self) -> Optional[Dict[str, Any]]:
        """The configuration that the daemon's own program makes of its files; None where it has no such command.

        Raises Failure where it cannot read them.
        """
        target = self.target
        if target.name == "containerd" and target.program:
            done = self._runner.run([target.program, "--config", target.config, "config", "dump"], check=False)
            if done.rc and "no such file" in done.err and target.config in done.err:
                done = self._runner.run([target.program, "config", "default"], check=False)  # what it runs with then
        elif target.name == "crio" and target.program:
            done = self._runner.run([target.program, "--config", target.config, "config"], check=False)
        else:
            return None
        if done.rc:
            raise Failure(f"{target.name} cannot read its configuration {target.config}: {done.words()}")
        try:
            return parse(done.out)
        except TomlError as error:
            raise Failure(f"`{' '.join(done.argv)}` wrote what is no TOML: {error}") from None

    def without(self, files: Files, path: str, others: Sequence[str]) -> Optional[Dict[str, Any]]:
        """As ``merged``, but of all files except the drop-in ``path``. ``others``: what is imported besides it."""
        text = files.text(self.target.config)
        if self.target.name != "containerd" or text is None or not files.exists(path):
            return self.merged()
        toml = Toml(text)
        toml.set(["imports"], list(others))
        files.write(CANDIDATE, toml.text(), 0o600)
        try:
            return Daemon(replace(self.target, config=CANDIDATE), self._runner, self._progress).merged()
        finally:
            files.remove(CANDIDATE)

    def runtimes(self, merged: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
        """Runtimes by name, of ``merged``."""
        if self.target.name == "crio":
            return table(at(merged or {}, "crio", "runtime", "runtimes"))
        return table(at(_containerd_of(merged or {}), "runtimes"))

    def validate(self, candidate: str) -> None:
        """Have the daemon judge a file before it is put in place, where it can. Raises Failure."""
        target = self.target
        if target.name != "docker" or not target.version or target.version < (23, 0) or not target.program:
            return
        done = self._runner.run([target.program, "--validate", "--config-file", candidate], check=False)
        if done.rc:
            raise Failure(f"dockerd refuses the changed {target.config}, which is not put in place: {done.words()}")

    # --- As it runs -----------------------------------------------------------------------------------------------

    def live(self) -> Status:
        """What the running daemon has. Raises NoAnswer."""
        if self.target.name == "docker":
            return _docker(self.target.socket or "/run/docker.sock")
        if not self.target.socket:
            raise NoAnswer(f"It is not known where {self.target.name} listens.")
        return _cri.status(self.target.socket)

    def environment(self) -> Dict[str, str]:
        """What the daemon was started with; empty where it does not run as a unit."""
        unit = "" if self.target.person else self.target.unit
        return _pulls.started_with(self._runner, unit) if unit else {}

    def would_end(self) -> int:
        """How many running containers a restart ends: those of a Docker that has no live-restore."""
        if self.target.name != "docker":
            return 0
        try:
            info = _info(self.target.socket or "/run/docker.sock")
        except NoAnswer:
            return 0
        return 0 if info.get("LiveRestoreEnabled") else int(info.get("ContainersRunning") or 0)

    def lacks(self, wanted: Wanted) -> str:
        """What the running daemon lacks of what is wanted; "" where it has all. Raises NoAnswer."""
        return self._lacking(self.live(), wanted)

    def _lacking(self, status: Status, wanted: Wanted) -> str:
        if wanted.nri:
            return _nri.lacks(_nri.socket_of(self.merged(), self.target.name))
        return _lacks(status, wanted)

    def activate(self, reloads: bool = True) -> str:
        """Have the daemon read its files, by a reload where it can and may; what was done."""
        unit = self.target.unit
        if self.target.person:
            self._progress(f"reloading {self.target.starter}")
            return _rootless.activate(self._runner, self.target.person, reloads)
        if not unit:
            self._progress(f"running {self.target.starter}")
            self._runner.run(self.target.restart_command, timeout=120)
            return "restart"
        if reloads and self.target.name in _RELOADS and self._units.state(unit).running:
            self._progress(f"reloading {unit}")
            self._runner.run(["systemctl", "reload", "--", unit], timeout=120)
            return "reload"
        self._progress(f"restarting {unit}")
        self._units.restart(unit)
        return "restart"

    def wait(self, wanted: Optional[Wanted], timeout: float) -> None:
        """Until the daemon answers, is ready, and (with ``wanted``) has the runtime. Raises Failure: what it lacks."""
        deadline = time.monotonic() + timeout
        pause, told = 0.05, ""
        while True:
            try:
                status = self.live()
                lacks = self._lacking(status, wanted) if wanted else ""
                lacks = lacks if status.ready else f"it is not ready: {status.reason}"
            except NoAnswer as error:
                lacks = error.msg
            if not lacks:
                return
            if time.monotonic() >= deadline:
                raise Failure(
                    f"{self.target.name} did not come up as wanted within {timeout:.0f} s: {lacks.rstrip('.')}."
                )
            if lacks != told:
                self._progress(f"waiting for {self.target.name}: {lacks}")
                told = lacks
            time.sleep(pause)
            pause = min(1.0, pause * 1.5)


def _lacks(status: Status, wanted: Wanted) -> str:
    """What the running daemon lacks; "" where it has all."""
    handler = status.handler(wanted.name)
    if not status.handlers:
        return ""  # CRI-O before 1.30 lists none: its merged configuration has to do
    if handler is None:
        return f"it has no runtime {wanted.name} (it has {', '.join(one.name for one in status.handlers) or 'none'})"
    if handler.program and not same_program(handler.program, wanted.program):
        return f"its runtime {wanted.name} is {handler.program}, not {wanted.program}"
    if status.default and wanted.default is not None and (status.default == wanted.name) != wanted.default:
        return f"its default runtime is {status.default}"
    return ""


def _containerd_of(merged: Mapping[str, Any]) -> Dict[str, Any]:
    for plugin in _CRI_PLUGINS:
        found = at(merged, "plugins", plugin, "containerd")
        if isinstance(found, dict):
            return found
    return {}


def differences(before: Mapping[str, Any], after: Mapping[str, Any], wanted: Wanted) -> List[str]:
    """Paths of a daemon's merged configuration that differ, besides what was to be changed."""
    old, new = _others(before, wanted), _others(after, wanted)
    for plugin in _CRI_PLUGINS:
        # A default runtime that was not there, so that the plugin could not start, is put back.
        there = table(at(before, "plugins", plugin, "containerd"))
        default = str(there.get("default_runtime_name") or "runc")
        if there and default not in table(there.get("runtimes")):
            table(at(new, "plugins", plugin, "containerd", "runtimes")).pop(default, None)
    return _differences(meant(old) or {}, meant(new) or {}, "")


def _others(merged: Mapping[str, Any], wanted: Wanted) -> Any:
    kept = json.loads(json.dumps(merged, default=str))
    kept.pop("imports", None)
    kept.pop("version", None)
    for plugin in _CRI_PLUGINS:
        cri = table(at(kept, "plugins", plugin))
        containerd = table(cri.get("containerd"))
        table(containerd.get("runtimes")).pop(wanted.name, None)
        cri.pop("enable_cdi", None)
        containerd.pop("enable_cdi", None)
        if wanted.default is not None:
            containerd.pop("default_runtime_name", None)
    if wanted.nri:
        table(kept.get("plugins")).pop(_nri.PLUGIN, None)
        table(kept.get("crio")).pop("nri", None)
    runtime = table(at(kept, "crio", "runtime"))
    table(runtime.get("runtimes")).pop(wanted.name, None)
    if wanted.default is not None:
        runtime.pop("default_runtime", None)
    return meant(kept) or {}


def _differences(one: Any, other: Any, path: str) -> List[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(set(one) | set(other))
        return [
            line for key in keys for line in _differences(one.get(key), other.get(key), f"{path}.{key}".lstrip("."))
        ]
    return [] if one == other else [path]


class _Unix(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(5)
        self.sock.connect(self._path)


def _docker(path: str) -> Status:
    info = _info(path)
    handlers = [Handler(str(name), str(table(one).get("path") or "")) for name, one in info["Runtimes"].items()]
    return Status(True, "", handlers, str(info.get("DefaultRuntime") or ""))


def _info(path: str) -> Dict[str, Any]:
    """Docker's own answer to ``GET /info``. Raises NoAnswer where it is none."""
    connection = _Unix(path)
    try:
        connection.request("GET", "/info")
        info = json.loads(connection.getresponse().read(_cri.MOST_ANSWER))
        info["Runtimes"].items()
        return dict(info)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, http.client.HTTPException) as error:
        raise NoAnswer(f"Docker does not answer on {path}: {error}.") from None
    finally:
        connection.close()
