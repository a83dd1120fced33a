# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``state: absent``: files as they were found; of those that somebody else changed since, our part is taken out."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence, Union

from .._host._journal import Journal
from .._host._systemd import Units
from .._plan import WARNING, Action, Check, Failure, Finding
from . import _pulls, _rancher, _specs
from ._configure import Settings, names_of, owed
from ._cri import NoAnswer
from ._daemons import Daemon
from ._find import Target
from ._json import Json, JsonError
from ._nri import PLUGIN
from ._toml import Toml, TomlError
from ._types import HEADER, Change, at, table

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
        self._stale = {one.label for one in self._targets if self._is_stale(one)}
        affected = [target for target in self._targets if self._is_affected(target)]
        self._waiting = affected if settings.restart else []
        self.owing = [] if settings.restart else affected
        self.done: List[str] = []

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
            found.append(Action(f"{target.label}-restart", "restart", target.starter, reason, disruptive=True))
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
        ] + [
            Finding(
                "restart_owed", WARNING, f"{target.starter} works with the runtime until it is restarted, which is not "
                f"asked for", target.name, remedy="Run again with restart: true",
            )
            for target in self.owing
        ] + [
            one
            for target in self._waiting
            if target.label in self._stale and self._settings.runner
            for one in _pulls.stops(
                target.label,
                Daemon(target, self._settings.runner, self._settings.progress).would_end(),
                self._settings.accept,
            )
        ]  # fmt: skip

    def carry_out(self) -> None:
        """Give back, have daemons read it; ``done`` has the ids of what was done. Raises Failure."""
        ids = [action.id for action in self.plan()]
        for target in (*self._waiting, *self.owing):
            self._journal.note(owed(target.starter), True)  # keeps the journal until all is done
        self._restore()
        self.done += [one for one in ids if not one.endswith("-restart")]
        for target in self._waiting:
            self._start(target)
            self._journal.forget(owed(target.starter))
            self.done.append(f"{target.label}-restart")
        still = {owed(target.starter) for target in self.owing}
        for key in self._journal.notes():
            if key not in still:
                self._journal.forget(key)
        self._journal.give_back()

    def _restore(self) -> None:
        runner, files = self._settings.runner, self._settings.files
        stopped = bool(runner and _specs.stop_units(files, runner))
        drop_ins = [path for path in self._journal.paths() if path.endswith(_pulls.DROP_IN) and files.exists(path)]
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
        units = {one.unit for one in (*self._waiting, *self.owing) if one.unit and not one.person}
        units.update(path.rsplit("/", 2)[1][: -len(".d")] for path in drop_ins)
        for unit in sorted(units):
            if runner:
                _pulls.heed(runner, files, unit, changed=_pulls.drop_in(unit) in drop_ins)

    def _start(self, target: Target) -> None:
        if not self._settings.runner:
            return
        daemon = Daemon(target, self._settings.runner, self._settings.progress)
        try:
            reloads = target.name == "docker" and target.label not in self._stale
            if reloads:
                self._forget_in_docker(target)
            # One that has no CRI, being there for Docker alone, answers neither before nor afterwards.
            silent = target.label in self._stale and not _answers(daemon)
            daemon.activate(reloads)
            if target.name != "podman" and not silent:
                daemon.wait(None, self._settings.timeout)
            self._journal.give_back()
        except (Failure, JsonError) as error:
            told = error.msg if isinstance(error, Failure) else f"{target.config}: {error}. Mend it, then run again."
            raise Failure(f"The files are as they were found, and {target.name} does not come up: {told}") from None

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
            self._journal.make_folder(os.path.dirname(target.config))  # it may have gone with the file
            self._journal.write(target.config, document.text())

    def prove(self) -> List[Check]:
        """By each daemon's own words."""
        checks = []
        for target in self._targets:
            if not self._settings.runner:
                continue
            daemon = Daemon(target, self._settings.runner, self._settings.progress)
            if target in self._waiting and target.label in self._stale:
                gone = _pulls.MARK not in daemon.environment()
                detail = "it pulls images as before" if gone else "it has variables of image_pulls still"
                checks.append(Check(f"{target.label}-environment", gone, detail))
            try:
                merged = daemon.merged()
            except Failure as failure:
                checks.append(Check(f"{target.label}-files", False, failure.msg))
                continue
            if merged is not None:
                there = self._settings.wanted.name in daemon.runtimes(merged)
                ours = there and (self._settings.reader.text(target.drop_in) or "").startswith(HEADER)
                detail = "is configured by somebody else still" if there else "is in its configuration no longer"
                detail = f"is in {target.drop_in} still" if ours else detail
                checks.append(Check(f"{target.label}-files", not ours, f"{self._settings.wanted.name} {detail}"))
            elif target.name == "docker" and target in self._waiting:
                checks.append(self._prove_docker(daemon))
        return checks

    def _prove_docker(self, daemon: Daemon) -> Check:
        name, target = self._settings.wanted.name, daemon.target
        try:
            there = daemon.live().handler(name) is not None
        except NoAnswer as error:
            return Check("docker-live", False, error.msg)
        try:
            told = Json(self._settings.reader.text(target.config) or "").data
        except JsonError as error:
            return Check("docker-live", False, f"{target.config}: {error}")
        said = name in table(told.get("runtimes"))
        if there and not said:
            return Check("docker-live", False, f"it has the runtime {name} still. Restart {target.starter} when it may")
        return Check("docker-live", True, f"it has what {target.config} says")

    # --- What is to do --------------------------------------------------------------------------------------------

    def _is_affected(self, target: Target) -> bool:
        if not self._settings.runner or not target.running or not target.starter:
            return False
        if owed(target.starter) in self._journal.notes() or target.label in self._stale:
            return True
        return any(belongs(path, target) for path in self._journal.paths())

    def _is_stale(self, target: Target) -> bool:
        """Whether it was started with variables of ours that it is started without afterwards."""
        path, runner = _pulls.drop_in(target.unit), self._settings.runner
        stays = path in self._kept and not any(one.path == path and one.after is None for one in self._edits)
        if self._settings.files.exists(path) and (stays or path not in self._journal.paths()):
            return False
        return runner is not None and _pulls.MARK in Daemon(target, runner, self._settings.progress).environment()

    def _edit(self, path: str) -> List[Change]:
        text = self._settings.reader.text(path)
        if text is None:
            return []
        names = [self._settings.wanted.name, *names_of(self._settings.earlier)]
        after = without(path, text, self._journal.original(path), names, self._journal.paths())
        return [Change(path, text, after, "our part")] if after != text else []


def _answers(daemon: Daemon) -> bool:
    try:
        daemon.live()
    except NoAnswer:
        return False
    return True


def belongs(path: str, target: Target) -> bool:
    """Whether a file is one of those that a daemon reads."""
    folders = [os.path.dirname(one) for one in (target.config, target.drop_in) if one]
    if target.name in ("k3s", "rke2"):
        folders.append(f"/etc/rancher/{target.name}/config.yaml.d")
    return path == target.config or os.path.dirname(path) in folders


def without(path: str, text: str, original: Optional[str], names: Sequence[str], ours: Sequence[str]) -> Optional[str]:
    """The file with our part as it was in ``original``; None where nothing else is in it and there was no file.

    ``names``: runtimes that we made; ``ours``: files that we wrote. The same text where nothing of ours can be told.
    """
    if _rancher.has_block(text):
        return _rancher.without_block(text)
    if _pulls.is_ours(path):
        return original if text.startswith(HEADER) else text
    try:
        if path.endswith(".json"):
            document = Json(text)
            _json_back(document, Json(original or "").data, names)
            return document.text() if document.data or original is not None else None
        toml = Toml(text)
        _toml_back(toml, text.startswith(HEADER), Toml(original or "").data, names, ours)
    except (TomlError, JsonError):
        return text
    return toml.text() if _says_more(toml.data) or original is not None else None


def _json_back(document: Json, before: Dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        _back(document, before, ["runtimes", name])
    if table(document.data.get("runtimes")) == {} and "runtimes" not in before:
        document.delete(["runtimes"])
    if document.data.get("default-runtime") in (*names, "runc"):
        _back(document, before, ["default-runtime"])
    if at(document.data, "features", "cdi") is True:
        _back(document, before, ["features", "cdi"])
        if document.data.get("features") == {} and "features" not in before:
            document.delete(["features"])


def _toml_back(toml: Toml, whole: bool, before: Dict[str, Any], names: Sequence[str], ours: Sequence[str]) -> None:
    for plugin in _PLUGINS:
        if whole:
            toml.delete(["plugins", plugin])  # all of it is ours, what it repeats of other files too
            toml.delete(["plugins", PLUGIN])
        _table_back(toml, before, ["plugins", plugin, "containerd"], "default_runtime_name", names)
        for cdi in (["plugins", plugin, "enable_cdi"], ["plugins", plugin, "containerd", "enable_cdi"]):
            if at(toml.data, *cdi) is True:
                _back(toml, before, cdi)
    _table_back(toml, before, ["crio", "runtime"], "default_runtime", names)
    for switch, ours_is in ((["plugins", PLUGIN, "disable"], False), (["crio", "nri", "enable_nri"], True)):
        if at(toml.data, *switch) is ours_is:
            _back(toml, before, switch)
    imports = toml.data.get("imports")
    if isinstance(imports, list):
        earlier = before.get("imports", [])
        kept = [one for one in imports if one in earlier or one not in ours]
        if kept or earlier:
            toml.set(["imports"], kept)
        elif len(kept) != len(imports):
            toml.delete(["imports"])


def _table_back(toml: Toml, before: Dict[str, Any], place: List[str], key: str, names: Sequence[str]) -> None:
    for name in names:
        _back(toml, before, [*place, "runtimes", name])
    if at(toml.data, *place, key) in names:
        _back(toml, before, [*place, key])


def _back(document: Union[Json, Toml], before: Dict[str, Any], place: List[str]) -> None:
    """One place as it was."""
    was = at(before, *place)
    if at(document.data, *place) == was:
        return
    document.delete(place)
    if was is not None:
        document.set(place, was)


def _says_more(data: Any) -> bool:
    """Whether anything but the version is left."""
    if isinstance(data, dict):
        return any(_says_more(value) for key, value in data.items() if key != "version")
    return True
