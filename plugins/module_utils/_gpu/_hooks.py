# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hooks of mig-parted: programs that are run before and after a change.

A file of version v1 names them: ``apply-start``, ``pre-apply-mode``, ``pre-apply-config`` and ``apply-exit``. The last
is run whatever happened after the first.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from .._host._commands import PATH, Runner
from .._plan import ERROR, Failure, Finding

START, MODE, CONFIG, EXIT = "apply-start", "pre-apply-mode", "pre-apply-config", "apply-exit"
NAMES = (START, MODE, CONFIG, EXIT)
TIMEOUT = 600.0  # seconds for each program
_KEYS = ("version", "hooks")
_HOOK_KEYS = ("command", "args", "envs", "workdir")


@dataclass(frozen=True)
class Hook:
    """One program."""

    command: str
    args: Tuple[str, ...] = ()
    envs: Tuple[Tuple[str, str], ...] = ()
    workdir: str = ""


Hooks = Mapping[str, Sequence[Hook]]


def read_hooks(document: object, path: str = "hooks") -> Tuple[Dict[str, List[Hook]], List[Finding]]:
    """The hooks of a file by name, and what is wrong with it."""
    wrong: List[Finding] = []

    def error(where: str, detail: str, remedy: str = "") -> None:
        wrong.append(Finding("mig.hooks", ERROR, detail, "", where, remedy))

    if not isinstance(document, Mapping):
        error(path, f"is a {type(document).__name__}; a file of hooks is a mapping")
        return {}, wrong
    _unknown(document, _KEYS, path, error)
    if document.get("version") != "v1":
        error(f"{path}.version", f"is {document.get('version')!r}; only v1 is known", "Write version: v1.")
    listed = document.get("hooks")
    if not isinstance(listed, Mapping):
        error(f"{path}.hooks", f"is a {type(listed).__name__}; it maps names of hooks to lists of programs")
        return {}, wrong
    _unknown(listed, NAMES, f"{path}.hooks", error)
    made: Dict[str, List[Hook]] = {}
    for name, items in listed.items():
        where = f"{path}.hooks.{name}"
        if not isinstance(items, (list, tuple)):
            error(where, f"is a {type(items).__name__}; it is a list of programs")
            continue
        made[str(name)] = [_hook(item, f"{where}[{number}]", error) for number, item in enumerate(items)]
    return made, wrong


_Error = Callable[..., None]


def _unknown(value: Mapping[Any, Any], known: Sequence[str], path: str, error: _Error) -> None:
    for key in value:
        if key not in known:
            error(f"{path}.{key}", "is not known", f"Known are {', '.join(known)}.")


def _hook(value: object, path: str, error: _Error) -> Hook:
    if not isinstance(value, Mapping):
        error(path, f"is a {type(value).__name__}; a hook is a mapping with a command")
        return Hook("")
    _unknown(value, _HOOK_KEYS, path, error)
    command, folder = value.get("command"), value.get("workdir") or ""
    args, envs = value.get("args") or [], value.get("envs") or {}
    if not isinstance(command, str) or not command:
        error(f"{path}.command", f"is {command!r}; it is the program to run")
    if not _texts(args):
        error(f"{path}.args", "is no list of texts", "Put numbers into quotes.")
        args = []
    if not isinstance(envs, Mapping) or not _texts([*envs, *envs.values()]):
        error(f"{path}.envs", "does not map texts to texts", "Put numbers, true and false into quotes.")
        envs = {}
    if not isinstance(folder, str) or (folder and not folder.startswith("/")):
        error(f"{path}.workdir", f"is {folder!r}; it is a folder of the host, from / on")
        folder = ""
    return Hook(str(command), tuple(args), tuple(envs.items()), folder)


def _texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def variables(label: str, reset: bool) -> Dict[str, str]:
    """What hooks are told of the run, as ``mig-parted apply`` tells its flags: ``false`` and empty where not given. Its
    files are on the controller, so they have no name here."""
    return {
        "MIG_PARTED_CONFIG_FILE": "",
        "MIG_PARTED_SELECTED_CONFIG": label,
        "MIG_PARTED_HOOKS_FILE": "",
        "MIG_PARTED_SKIP_RESET": "false" if reset else "true",
        "MIG_PARTED_MODE_CHANGE_ONLY": "false",
    }


class Run:
    """Runs the hooks around one change. ``told`` is laid over the environment that a hook's own file gives it."""

    def __init__(self, runner: Runner, hooks: Hooks, told: Mapping[str, str], progress: Callable[[str], None]) -> None:
        self._runner, self._hooks, self._told, self._progress = runner, hooks, told, progress
        self._started = False

    def start(self) -> None:
        """Before anything is changed. Raises Failure; nothing of the last hook is run then."""
        self.run(START)
        self._started = True

    def end(self) -> List[str]:
        """After everything, where the first was run to its end; what went wrong, as sentences."""
        if not self._started:
            return []
        self._started = False
        try:
            self.run(EXIT)
        except Failure as failure:
            return [failure.msg]
        return []

    def run(self, name: str) -> None:
        """Programs of one name, in their order. Raises Failure at the first that fails."""
        for hook in self._hooks.get(name, ()):
            self._progress(f"hook {name}: {hook.command}")
            argv = [shutil.which(hook.command, path=PATH) or hook.command, *hook.args]
            environment = {**dict(hook.envs), **self._told}
            try:
                self._runner.run(argv, env=environment, whole=True, folder=hook.workdir or "/", timeout=TIMEOUT)
            except Failure as failure:
                raise Failure(f"Hook {name}: {failure.msg}") from None
