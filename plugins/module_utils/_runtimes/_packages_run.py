# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The toolkit's packages on a host: look, carry a plan out, prove it. The journal is one of their own (``COMPONENT``).

with Journal(files, COMPONENT) as journal:
    seen = look(manager, files, journal, wanted)
    todo = plan(seen, wanted)
    apply(todo, manager, files, journal, progress)
    checks = prove(todo, manager)
"""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, Optional, Tuple

from .._host._files import Files
from .._host._journal import Journal
from .._host._packages import Manager, _told
from .._host._packages._sources import Source, differing, distrust_again, set_up
from .._plan import WARNING, Check, Failure, Finding, Result, errors
from ._packages import HELD, INSTALLED, NAMES, OBSOLETE, Plan, Seen, Wanted, members, settled
from ._repository import NAME, old_lists, source

COMPONENT = "container_toolkit_packages"
DOCKER = "/etc/docker/daemon.json"  # belongs to nvidia-docker2, and is docker's own
CONFIG = "/etc/nvidia-container-runtime/config.toml"  # the packages' script makes it, and no package owns it
_FOLDER = "folder "  # notes: a folder that the packages brought
_FOLDERS = ("/etc/nvidia-container-runtime", "/etc/nvidia-container-toolkit")

Progress = Callable[[str], None]


def look(manager: Manager, files: Files, journal: Journal, wanted: Wanted) -> Seen:
    """What is on the host; reads only. A repository that is not set up is read into a folder of its own.

    Raises Failure where the package manager or the repository cannot be read.
    """
    installed = manager.installed([*NAMES, *OBSOLETE])
    held = manager.held([name for name in NAMES if name in installed])
    repository, findings = source(wanted.repository, manager.name, files, wanted.accept)
    changed, before = _differing(repository, manager, files)
    candidates = None
    if not errors(findings) and not settled(wanted, installed):
        names = members(wanted, installed)
        candidates = _candidates(names, repository, manager)
    return Seen(manager.name, installed, held, candidates, changed, before, journal.notes(), findings)


def _candidates(names: List[str], repository: Optional[Source], manager: Manager) -> Mapping[str, List[str]]:
    if repository:
        return manager.probe(names, repository.text, repository.key, repository.settings)
    return manager.candidates(names)


def look_absent(manager: Manager, journal: Journal) -> Seen:
    """What is on the host of what is to go."""
    installed = manager.installed(NAMES)
    held = manager.held([name for name in NAMES if name in installed])
    kept = [one.path for one in journal.would_keep()]
    findings = [
        Finding("left_alone", WARNING, "somebody else has changed it since", path, remedy="Look at it by hand")
        for path in kept
    ]
    files: Dict[str, Optional[str]] = {path: None for path in journal.paths() if path not in kept}
    return Seen(
        manager.name, installed, held, files=files, notes=journal.notes(), findings=findings, journal=journal.exists()
    )


def apply(todo: Plan, manager: Manager, files: Files, journal: Journal, progress: Progress) -> List[str]:
    """Carry out a plan. Returns the ids of its actions. Raises Failure with those that were done, and the rest.

    What fails before a package was touched leaves the repository files as they were found.
    """
    work = _Work(todo, manager, files, journal, progress)
    try:
        if todo.give_back:
            work.give_back()
        else:
            work.present()
    except Failure as failure:
        left = [action.id for action in todo.actions if action.id not in work.done]
        raise Failure(failure.msg, Result(findings=todo.findings, plan=todo.actions), work.done, left) from None
    return work.done


def prove(todo: Plan, manager: Manager) -> List[Check]:
    """The end state, as the package manager tells it now."""
    installed = manager.installed([*NAMES, *OBSOLETE])
    checks = []
    if todo.version:
        there = {name: installed[name] for name in NAMES if name in installed}
        wrong = {name: version for name, version in there.items() if version != todo.version}
        wrong.update({name: "not installed" for name in todo.pins if name not in there})
        told = ", ".join(f"{name} {version}" for name, version in (wrong or there).items())
        checks.append(Check("packages-version", not wrong, told))
    return checks + _told.proved(todo.hold, todo.remove, installed, manager)


def _differing(
    repository: Optional[Source], manager: Manager, files: Files
) -> Tuple[Dict[str, Optional[str]], Mapping[str, Optional[str]]]:
    """Repository files to write or remove -> their text; and the text that they have."""
    if not repository:
        return {}, {}
    wanted: Dict[str, Optional[str]] = dict.fromkeys(old_lists(manager.name, files))
    wanted.update(repository.files())
    return differing(wanted, files)


class _Work:
    def __init__(self, todo: Plan, manager: Manager, files: Files, journal: Journal, progress: Progress) -> None:
        self._todo, self._manager, self._files, self._journal = todo, manager, files, journal
        self._progress = progress
        self.done: List[str] = []

    # --- There --------------------------------------------------------------------------------------------------------

    def present(self) -> None:
        todo = self._todo
        fresh = not self._journal.paths() and not self._journal.notes()
        try:
            self._repository()
        except Failure:
            if fresh:
                self._journal.give_back()
                self.done = []
            raise
        self._remember()
        if todo.unhold:
            self._manager.unhold(todo.unhold)
        if todo.pins:
            self._install()
        if todo.hold:
            self._manager.hold(todo.hold)
        self._did("hold-", "unhold-")
        self._remove_obsolete()

    def _repository(self) -> None:
        if self._todo.files:
            self._progress(f"{self._manager.name}: reading the repository")
        set_up(self._todo.files, NAME, self._manager, self._journal)
        self._did("repository-")

    def _remember(self) -> None:
        """What was so before us, written down before it changes."""
        todo = self._todo
        if todo.pins:
            installed = self._manager.installed(list(todo.pins))
            for name in todo.pins:
                self._journal.note(INSTALLED + name, installed.get(name, ""))
            if not installed:
                for folder in _FOLDERS:
                    if not self._files.exists(folder):
                        self._journal.note(_FOLDER + folder, "")
        changing = {*todo.hold, *todo.unhold}
        if changing:
            held = self._manager.held(sorted(changing))
            for name in sorted(changing):
                self._journal.note(HELD + name, name in held)

    def _install(self) -> None:
        todo = self._todo
        self._progress(f"{self._manager.name}: installing the toolkit's packages, {todo.version}")
        try:
            self._manager.install(todo.pins, downgrade=todo.downgrade)
        except Failure:
            self._hold_again()
            raise
        self._did("install-")

    def _hold_again(self) -> None:
        """As it was found, so that the next update of the host does not move what this run could not."""
        there = self._manager.installed(self._todo.unhold)
        if there:
            self._manager.hold(list(there))

    def _remove_obsolete(self) -> None:
        if not self._todo.remove:
            return
        docker = self._files.read(DOCKER)
        # Without purge: docker's configuration is a file of nvidia-docker2, and rpm takes it away all the same.
        self._manager.remove(self._todo.remove, purge=False)
        if docker is not None and self._files.read(DOCKER) is None:
            self._files.write_bytes(DOCKER, docker)
        self._did("remove-")

    # --- Back ---------------------------------------------------------------------------------------------------------

    def give_back(self) -> None:
        todo = self._todo
        if todo.unhold:
            self._manager.unhold(todo.unhold)
        if todo.hold:
            self._manager.hold(todo.hold)
        self._did("hold-", "unhold-")
        if todo.remove:
            self._progress(f"{self._manager.name}: removing the toolkit's packages")
            self._manager.remove(todo.remove, purge=True)
        self._did("remove-")
        self._remains()
        distrust_again(self._manager, self._journal)
        for key in self._journal.notes():
            self._journal.forget(key)
        for kept in self._journal.give_back():
            self._journal.settle(kept.path)
        self._journal.give_back()
        self._did("repository-", "journal")

    def _remains(self) -> None:
        """What the packages' scripts made, where nothing of it was there before us."""
        brought = [key[len(_FOLDER) :] for key in self._journal.notes() if key.startswith(_FOLDER)]
        if CONFIG.rpartition("/")[0] in brought:
            self._files.remove(CONFIG)
        for folder in brought:
            self._files.remove_folder(folder)

    def _did(self, *kinds: str) -> None:
        self.done += [action.id for action in self._todo.actions if action.id.startswith(kinds)]
