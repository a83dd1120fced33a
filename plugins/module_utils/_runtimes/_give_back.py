# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``state: absent``: files as they were found; of those that somebody else changed since, our part is taken out."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence

from .._host._journal import Journal
from .._host._systemd import Units
from .._plan import WARNING, Action, Check, Failure, Finding
from . import _rancher, _specs
from ._configure import Settings, note, owed
from ._cri import NoAnswer
from ._daemons import Daemon
from ._find import Target
from ._json import Json, JsonError
from ._toml import Toml, TomlError
from ._types import HEADER, Change, Wanted, at, table

_PLUGINS = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")


class GiveBack:
    """One run of it. ``targets``: the runtimes that are there."""

    def __init__(self, targets: Sequence[Target], settings: Settings, journal: Journal) -> None:
        self._settings, self._journal = settings, journal
        self._targets = list(targets)
        self._kept = {kept.path for kept in journal.would_keep()}
        self._edits = [change for path in journal.paths() if path in self._kept for change in self._edit(path)]
        made = _specs.made_by_us(settings.earlier)
        self._specs = [path for path in made if settings.files.exists(path)]
        self._waiting = [target for target in self._targets if self._must_start(target)]

    def changes(self) -> List[Change]:
        """Files before and after."""
        restored = [
            Change(path, self._settings.reader.text(path), self._journal.original(path), "as it was found")
            for path in self._journal.paths()
            if path not in self._kept
        ]
        return restored + self._edits

    def plan(self) -> List[Action]:
        """Files first, then daemons."""
        restored = [path for path in self._journal.paths() if path not in self._kept]
        found = [Action(f"restore-{n}", "restore", path, "as it was found") for n, path in enumerate(restored)]
        reason = "our part is taken out; somebody else has changed the rest since"
        for number, one in enumerate(self._edits):
            verb = "delete" if one.after is None else "update"
            found.append(Action(f"clean-{number}", verb, one.path, reason))
        for number, path in enumerate(self._specs):
            found.append(Action(f"cdi-{number}", "delete", path, "it was not there before"))
        for target in self._waiting:
            reason = "its configuration is given back"
            found.append(Action(f"{target.name}-restart", "restart", target.unit, reason, disruptive=True))
        return found

    def findings(self) -> List[Finding]:
        """Files that keep what somebody else wrote, and that nothing of ours could be found in."""
        edited = {one.path for one in self._edits}
        return [
            Finding(
                "left_alone", WARNING, "somebody else has changed it since, and nothing of ours can be told in it",
                path, remedy="Look at it by hand",
            )
            for path in sorted(self._kept - edited)
        ]  # fmt: skip

    def carry_out(self) -> List[str]:
        """Give back, have daemons read it. Returns ids of what was done."""
        ids = [action.id for action in self.plan()]
        for target in self._waiting:
            self._journal.note(owed(target.unit), True)
        for key in self._journal.notes():
            if key.startswith(note("")):
                self._journal.note(owed(""), True)  # keeps the journal until all is done
                self._journal.forget(key)
        self._restore()
        for target in self._waiting:
            self._start(target)
            self._journal.forget(owed(target.unit))
        for key in self._journal.notes():
            self._journal.forget(key)
        self._journal.give_back()
        return ids

    def _restore(self) -> None:
        runner, files = self._settings.runner, self._settings.files
        stopped = bool(runner and _specs.stop_units(files, runner))
        self._journal.give_back()
        if stopped and runner:
            Units(runner).reload()
        for path in self._specs:
            files.remove(path)
        for change in self._edits:
            if change.after is None:
                files.remove(change.path)
            else:
                files.write(change.path, change.after)
        for path in self._kept:
            self._journal.settle(path)

    def _start(self, target: Target) -> None:
        if not self._settings.runner:
            return
        daemon = Daemon(target, self._settings.runner, self._settings.progress)
        try:
            if target.name == "docker":
                self._forget_in_docker(target)
            daemon.activate(reloads=target.name == "docker")
            if target.name != "podman":
                daemon.wait(None, self._settings.timeout)
            self._journal.give_back()
        except Failure as failure:
            raise Failure(
                f"The files are as they were found, and {target.name} does not come up: {failure.msg}"
            ) from None

    def _forget_in_docker(self, target: Target) -> None:
        """Docker takes what its file does not say for unchanged when it reloads: so for the reload, and until the next
        ``give_back``, the file says it. A restart would stop all containers."""
        text = self._settings.reader.text(target.config)
        document = Json(text or "")
        for key in ("runtimes", "features"):
            if key not in document.data:
                document.set([key], {})
        if "default-runtime" not in document.data:
            document.set(["default-runtime"], "runc")
        if document.text() != (text or ""):
            self._journal.write(target.config, document.text())

    def prove(self) -> List[Check]:
        """By each daemon's own words."""
        checks = []
        for target in self._targets:
            if not self._settings.runner:
                continue
            daemon = Daemon(target, self._settings.runner, self._settings.progress)
            merged = daemon.merged()
            if merged is not None:
                there = self._settings.wanted.name in daemon.runtimes(merged)
                detail = "is configured by somebody else still" if there else "is in its configuration no longer"
                checks.append(Check(f"{target.name}-files", True, f"{self._settings.wanted.name} {detail}"))
            elif target.name == "docker" and target in self._waiting:
                checks.append(self._prove_docker(daemon))
        return checks

    def _prove_docker(self, daemon: Daemon) -> Check:
        name, target = self._settings.wanted.name, daemon.target
        try:
            there = daemon.live().handler(name) is not None
        except NoAnswer as error:
            return Check("docker-live", False, error.msg)
        told = Json(self._settings.reader.text(target.config) or "").data
        said = name in table(told.get("runtimes"))
        if there and not said:
            return Check("docker-live", False, f"it has the runtime {name} still. Restart {target.unit} when it may")
        return Check("docker-live", True, f"it has what {target.config} says")

    # --- What is to do --------------------------------------------------------------------------------------------

    def _must_start(self, target: Target) -> bool:
        if not self._settings.runner or not self._settings.restart or not target.running or not target.unit:
            return False
        if owed(target.unit) in self._journal.notes():
            return True
        return any(belongs(path, target) for path in self._journal.paths())

    def _edit(self, path: str) -> List[Change]:
        text = self._settings.reader.text(path)
        if text is None:
            return []
        after = without(path, text, self._settings.wanted, self._settings.earlier)
        return [Change(path, text, after, "our part")] if after != text else []


def belongs(path: str, target: Target) -> bool:
    """Whether a file is one of those that a daemon reads."""
    folders = [os.path.dirname(one) for one in (target.config, target.drop_in) if one]
    if target.name in ("k3s", "rke2"):
        folders.append(f"/etc/rancher/{target.name}/config.yaml.d")
    return path == target.config or os.path.dirname(path) in folders


def without(path: str, text: str, wanted: Wanted, notes: Dict[str, Any]) -> Optional[str]:
    """The file without our part; None where nothing else is in it. The same text where nothing of ours can be told."""
    if path.endswith(".json"):
        return _without_json(text, wanted, str(notes.get(note("docker")) or ""))
    if _rancher.has_block(text):
        return _rancher.without_block(text)
    try:
        toml = Toml(text)
    except TomlError:
        return text
    for plugin in _PLUGINS:
        if text.startswith(HEADER):
            toml.delete(["plugins", plugin])  # all of it is ours, what it repeats of other files too
        _take_out(
            toml, ["plugins", plugin, "containerd"], "default_runtime_name", wanted, notes.get(note("containerd"))
        )
    _take_out(toml, ["crio", "runtime"], "default_runtime", wanted, notes.get(note("crio")))
    return toml.text() if _says_more(toml.data) else None


def _take_out(toml: Toml, place: List[str], key: str, wanted: Wanted, earlier: Any) -> None:
    toml.delete([*place, "runtimes", wanted.name])
    if at(toml.data, *place, key) == wanted.name:
        if earlier:
            toml.set([*place, key], str(earlier))
        else:
            toml.delete([*place, key])


def _says_more(data: Any) -> bool:
    """Whether anything but the version is left."""
    if isinstance(data, dict):
        return any(_says_more(value) for key, value in data.items() if key != "version")
    return True


def _without_json(text: str, wanted: Wanted, earlier: str) -> Optional[str]:
    try:
        document = Json(text)
    except JsonError:
        return text
    document.delete(["runtimes", wanted.name])
    if table(document.data.get("runtimes")) == {} and "runtimes" in document.data:
        document.delete(["runtimes"])
    if document.data.get("default-runtime") == wanted.name:
        if earlier:
            document.set(["default-runtime"], earlier)
        else:
            document.delete(["default-runtime"])
    return document.text() if document.data else None
