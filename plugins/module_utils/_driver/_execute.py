# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries a plan out: everything that can fail without harm first, then the exchange of the driver, then its proof.

What fails between the first touch of the old driver and the proof of the new one puts the old packages back. The note
``moving`` of the journal says from which version to which; a run that is killed leaves it, and the next one goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .._gpu._nvml import Opener
from .._host._commands import Runner
from .._host._files import Files
from .._host._journal import Journal
from .._host._packages import Manager, _exchange, _streams
from .._host._packages._apt import ENV as QUIET
from .._host._packages._exchange import Exchange
from .._host._packages._shared import INSTALL
from .._host._packages._sources import set_up
from .._host._systemd import Units
from .._plan import ERROR, Action, Failure, Finding, Result
from . import _initramfs, _kernel, _modules, _nouveau, _persistence, _secure_boot, _settings
from ._acts import RESTART, UNIT_FILES, boot_of, still_stale
from ._catalog import PackageSet
from ._origin import like_driver, upstream
from ._plan import BROUGHT, HELD, INSTALLED, PINNING, STREAM, Packages, Seen, holds
from ._services import Services
from ._types import APT

_ROUNDS = 4  # of dependencies of dependencies
MODULE = "nvidia-driver"  # the module of dnf's streams
MOVING = "moving"  # note: {"from": version, "to": version} while the driver is exchanged
UNIT = "unit "  # notes: whether it was enabled and ran before us
REBUILD = "initramfs"  # note: why it is to be made anew, until that is done

Progress = Callable[[str], None]


@dataclass
class Todo:
    """What is to be done, in the order of the module's plan.

    ``sources``: files of the repository; ``files``: those of modprobe (None: to be removed); ``reload``: whether the
    running kernel gets the modules anew, with ``stop`` and ``load`` in order; ``unload``: whether some are
    loaded; ``rivals``: whether nouveau is unloaded; ``units``: services of companions that have to run, at once where
    ``starts``, else from the next boot on; ``modules``: those that companions work with.
    """

    packages: Packages
    seen: Seen
    wanted: PackageSet
    flavour: str = ""
    kernel: str = ""
    module: str = "nvidia"
    signed: bool = False
    before: Mapping[str, str] = field(default_factory=dict)
    old_version: str = ""
    sources: Mapping[str, Optional[str]] = field(default_factory=dict)
    source: str = ""
    files: Mapping[str, Optional[str]] = field(default_factory=dict)
    files_before: Mapping[str, Optional[str]] = field(default_factory=dict)
    runfile: bool = False
    initramfs: str = ""
    reload: bool = False
    unload: bool = False
    rivals: bool = False
    stop: Sequence[str] = ()
    load: Sequence[str] = ()
    mask: Sequence[str] = ()
    units: Sequence[str] = ()
    starts: bool = True
    modules: Sequence[str] = ()
    gpus: int = 0
    persistence_off: bool = False
    persistenced: bool = False
    password: str = ""
    actions: List[Action] = field(default_factory=list)


def completed(
    packages: Packages, what: Exchange, manager: Manager, runner: Runner
) -> Tuple[Exchange, _exchange.Outlook, Tuple[str, ...]]:
    """The transaction with the dependencies that have to be named, its outlook, and what it would remove unasked.

    Writes nothing. Dependencies of the driver's packages are lower bounds: what would come newer is asked for in the
    version.
    """
    pins = dict(what.pins)
    for _round in range(_ROUNDS):
        what = replace(what, pins=pins)
        outlook = _exchange.foresee(manager.name, runner, what)
        strays = [name for name, one in like_driver(outlook.comes).items() if upstream(one) != packages.version]
        strays = [name for name in strays if name not in pins]
        found = manager.candidates(strays)
        fits = {name: [one for one in found.get(name, ()) if upstream(one) == packages.version] for name in strays}
        more = {name: versions[0] for name, versions in fits.items() if versions}
        if not more:
            break
        pins = {**pins, **more}
    return what, outlook, tuple(name for name in outlook.goes if name not in what.remove)


def goes_too(packages: Packages, manager: Manager, runner: Runner) -> List[Finding]:
    """Packages of others that the driver would push out, as far as that can be told before anything is set up."""
    what = Exchange({**packages.first, **packages.pins}, tuple(packages.remove), packages.version)
    try:
        others = completed(packages, what, manager, runner)[2]
    except Failure:  # it may need what is set up first; what stays wrong then ends the run before the driver is touched
        return []
    if not others:
        return []
    return [
        Finding(
            "removes_others",
            ERROR,
            _pushed_out(others, what),
            "",
            "driver.packages",
            "Remove it first, if nothing needs it",
        )
    ]


def _pushed_out(others: Sequence[str], what: Exchange) -> str:
    return f"{', '.join(others)} would be removed too, since it cannot be beside {', '.join(list(what.pins)[:5])}"


@dataclass
class Host:
    """What the work is done with. ``there``: packages of the driver that are installed now, and which are held."""

    runner: Runner
    files: Files
    units: Units
    services: Services
    manager: Manager
    journal: Journal
    progress: Progress
    opener: Opener
    there: Callable[[], Tuple[Dict[str, str], List[str]]]


class Work:
    """One run. ``done`` are ids of actions; ``wrong`` sentences that a person must see, and that undo nothing."""

    def __init__(self, todo: Todo, host: Host) -> None:
        self._todo, self._host = todo, host
        self._touched = self._loading = self._freed = False
        self._owed = REBUILD in host.journal.notes()
        self._rivals: List[str] = []  # modules of other drivers that were unloaded
        self._runfile = ""  # what became of the driver of NVIDIA's installer
        self._unloaded: List[str] = []
        self.done: List[str] = []
        self.wrong: List[str] = []
        self.findings: List[Finding] = []

    def carry_out(self) -> None:
        """All of it. Raises Failure with what was done, what remains, and which driver the host has now."""
        fresh = not self._host.journal.paths() and not self._host.journal.notes()
        try:
            self._ready()
        except Failure as failure:
            now = self._unready()
            if fresh and not self.done:
                self._host.journal.give_back()
            raise self._stopped(failure.msg, f"The driver has not been touched. {now}".rstrip()) from None
        try:
            self._exchange()
        except Failure as failure:
            raise self._stopped(failure.msg, self._back()) from None
        try:
            self._settle()
        except Failure as failure:
            version = self._todo.packages.version
            raise self._stopped(failure.msg, f"Driver {version} is installed; run again, or reboot the host.") from None

    def _stopped(self, msg: str, now: str) -> Failure:
        left = [action.id for action in self._todo.actions if action.id not in self.done]
        return Failure(f"{msg.rstrip()} {now}", Result(plan=self._todo.actions), self.done, left)

    def _did(self, *starts: str) -> None:
        for action in self._todo.actions:
            if action.id.startswith(starts) and action.id not in self.done:
                self.done.append(action.id)

    # --- Before the old driver is touched -----------------------------------------------------------------------------

    def _ready(self) -> None:
        todo, host = self._todo, self._host
        self._mend()
        if todo.sources:
            host.progress(f"{host.manager.name}: reading the repository")
            set_up(todo.sources, todo.source, host.manager, host.journal)
            self._did("repository-")
        if todo.packages.moves:
            self._remember()
        if todo.packages.stream:
            host.journal.note(STREAM, todo.seen.stream)
            _streams.enable(host.runner, MODULE, todo.packages.stream)
            self._did("stream")
        if todo.packages.first:
            host.progress(f"{host.manager.name}: installing what the driver needs")
            self._freed = True
            self._free([*todo.packages.first, *self._old_pinning])
            first = Exchange(todo.packages.first, self._old_pinning)
            self._note_new(_exchange.foresee(host.manager.name, host.runner, first))
            _exchange.carry_out(host.manager.name, host.runner, first)
            self._did(*(f"package-{name}" for name in todo.packages.first))
        headers = _kernel.headers_missing(host.files, todo.kernel) if todo.wanted.build and self._what.pins else None
        if headers:
            raise Failure(headers)
        if not self._what.empty:
            self._complete()
        if self._what.pins:
            host.progress(f"{host.manager.name}: downloading driver {todo.packages.version}")
            _exchange.download(host.manager.name, host.runner, self._what)

    def _unready(self) -> str:
        """Stream, pinning and holds as they were; what stays of what was done before the driver, as a sentence."""
        todo, host = self._todo, self._host
        told = []
        try:
            if "stream" in self.done:
                _streams.enable(host.runner, MODULE, todo.seen.stream)
                self.done.remove("stream")
            if self._freed:
                self._pinning_back()
        except Failure as failure:
            told.append(f"What keeps its version could not be put back: {failure.msg}")
        stays = [action.target for action in todo.actions if action.id in self.done]
        told += [f"These stay, and the next run needs them: {', '.join(stays)}."] if stays else []
        return " ".join(told)

    def _pinning_back(self) -> None:
        """The packages that keep the repository to a version, and the holds that were lifted for them."""
        todo, host = self._todo, self._host
        old = {name: todo.seen.installed[name] for name in self._old_pinning}
        new = [name for name in todo.packages.first if name.startswith(PINNING) and name not in todo.seen.installed]
        there = host.manager.installed([*old, *new])
        pins = {name: version for name, version in old.items() if there.get(name) != version}
        gone = tuple(name for name in new if name in there)
        _exchange.carry_out(host.manager.name, host.runner, Exchange(pins, gone))
        self.done = [one for one in self.done if one not in [f"package-{name}" for name in gone]]
        held = [name for name in todo.packages.unhold if name in [*todo.packages.first, *old]]
        host.manager.hold(held)

    def _complete(self) -> None:
        """Name what comes as a dependency, and refuse what would push others out, while the old driver still runs."""
        packages = self._todo.packages
        what, outlook, others = completed(packages, self._what, self._host.manager, self._host.runner)
        if others:
            raise Failure(f"{_pushed_out(others, what)}. Remove it first, if nothing needs it.")
        self._note_new(outlook)
        for name in what.pins:
            if name not in packages.pins:
                self._host.journal.note(INSTALLED + name, self._todo.seen.installed.get(name, ""))
        packages.pins.update(what.pins)

    def _note_new(self, outlook: _exchange.Outlook) -> None:
        """Dependencies that were not there before go with the driver again."""
        comes = [name for name in outlook.comes if ":" not in name]
        there = self._host.manager.installed(comes)
        for name in comes:
            if name not in there:
                self._host.journal.note(INSTALLED + name, "")

    @property
    def _what(self) -> Exchange:
        """The one transaction in which the driver is exchanged."""
        gone = self._old_pinning if self._todo.packages.first else ()
        packages = self._todo.packages
        return Exchange(packages.pins, tuple(name for name in packages.remove if name not in gone), packages.version)

    @property
    def _old_pinning(self) -> Tuple[str, ...]:
        """Packages that keep the repository to the old version go when the new one comes: they exclude each other."""
        return tuple(name for name in self._todo.packages.remove if name.startswith(PINNING))

    def _mend(self) -> None:
        """What a killed run of the package manager left half done."""
        if MOVING in self._host.journal.notes() and self._host.manager.name == APT:
            self._host.runner.run(["dpkg", "--configure", "-a"], check=False, timeout=INSTALL, env=QUIET)

    def _remember(self) -> None:
        """What was so before us, written down before it changes."""
        todo, journal = self._todo, self._host.journal
        for name in [*todo.packages.first, *todo.packages.pins, *todo.packages.remove]:
            journal.note(INSTALLED + name, todo.seen.installed.get(name, ""))
        journal.note(BROUGHT, dict(todo.before))

    def _free(self, names: Iterable[str]) -> None:
        """Lift holds, noted before."""
        held = [name for name in self._todo.packages.unhold if name in names]
        for name in held:
            self._host.journal.note(HELD + name, True)
        self._host.manager.unhold(held)

    # --- The exchange -------------------------------------------------------------------------------------------------

    def _exchange(self) -> None:
        todo, host = self._todo, self._host
        for state in host.units.states(list(todo.units)):
            if state.exists:  # those of packages that come go with them
                host.journal.note(UNIT + state.name, [state.enabled, state.running])
        self._write_files()
        if todo.reload:
            self._make_way()
        if todo.runfile:
            host.progress("removing the driver of NVIDIA's installer")
            self._runfile = "The driver of NVIDIA's installer may be removed in part, and is not put back."
            host.runner.run(["nvidia-uninstall", "--silent"], timeout=INSTALL)
            self._runfile = "The driver of NVIDIA's installer is removed, and is not put back."
            self._did("runfile")
        if not self._what.empty:
            host.journal.note(MOVING, {"from": todo.old_version, "to": todo.packages.version})
            self._touched = True
            self._free([*todo.packages.pins, *todo.packages.remove])
            host.progress(f"{host.manager.name}: installing driver {todo.packages.version}")
            _exchange.carry_out(host.manager.name, host.runner, self._what)
        self._did("package-")
        if todo.packages.version:
            _kernel.prove_built(
                host.runner, host.files, todo.kernel, todo.packages.version,
                flavour=todo.flavour, signed=todo.signed, name=todo.module,
            )  # fmt: skip
            self._did("build")
        self._hold()
        if todo.reload:
            self._load()

    def _write_files(self) -> None:
        todo, journal = self._todo, self._host.journal
        if todo.initramfs:
            journal.note(REBUILD, todo.initramfs)
        for path, text in todo.files.items():
            if path in UNIT_FILES:
                continue  # their packages come first
            if text is None:
                journal.remove(path)
            else:
                journal.make_folder(path.rpartition("/")[0])
                journal.write(path, text)
            self._did(f"file-{path.rpartition('/')[2]}")

    def _make_way(self) -> None:
        """Stop what holds the GPUs and unload the old modules; what fails here leaves the host as it was."""
        todo, host = self._todo, self._host
        if todo.unload:
            _settings.save(host.opener, host.files)
        host.services.stop(todo.stop, todo.mask)
        if todo.persistence_off:
            _settings.persistence_off(host.opener)
        self._did("stop-")
        if todo.rivals:
            self._rivals = _nouveau.unload(host.runner, host.files)
        if todo.unload:
            host.progress("unloading the kernel modules")
            self._unloaded = _modules.unload(host.runner, host.files)
        self._did("unload")

    def _hold(self) -> None:
        """What has come as a dependency is held as well, so what is there is looked at anew."""
        packages, host = self._todo.packages, self._host
        hold = list(packages.hold)
        if packages.moves and packages.hold_all:
            there, held = host.there()
            hold = [name for name in holds({**there, **packages.first}, self._todo.wanted) if name not in held]
        for name in [*hold, *packages.release]:
            host.journal.note(HELD + name, name in self._todo.seen.held)
        host.manager.hold(hold)
        host.manager.unhold(packages.release)
        self._did("hold-")

    def _load(self) -> None:
        todo, host = self._todo, self._host
        self._loading = True
        host.progress("loading the kernel modules")
        _modules.load(host.runner, host.files, todo.load)
        missing = _modules.nodes(host.runner, host.files, todo.gpus)
        if missing:
            self.wrong.append(f"Device files are not there: {', '.join(missing)}.")
        self._did("load")

    # --- Afterwards ---------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        todo, host = self._todo, self._host
        host.journal.forget(MOVING)
        host.services.unmask()  # systemd enables and starts no unit that is masked
        if todo.initramfs:
            host.progress("making the initramfs anew")
            _initramfs.rebuild(host.runner, host.files, todo.kernel)
            host.journal.forget(REBUILD)
            self._did("initramfs")
        self._unit_files()
        self._beside()
        for name in todo.units:
            if host.units.state(name).exists:
                host.units.enable(name)
        self.wrong += host.services.start(todo.units if todo.starts else ())
        self.wrong += self._restore()
        if todo.password:
            self._stage()
        self._did("unit-", "start-")

    def _unit_files(self) -> None:
        """Files that units read. Some units come with packages, so this could not be done before; units that run with
        the files of before start anew, if not in this run then in the next."""
        todo, host = self._todo, self._host
        wanted = {path: text for path, text in todo.files.items() if path in UNIT_FILES and text is not None}
        if todo.persistenced:
            wanted.update(_persistence.wanted_files(host.files))
        for path, text in wanted.items():
            if host.files.text(path) != text:
                host.journal.note(RESTART + UNIT_FILES[path], boot_of(host.files))
                host.journal.make_folder(path.rpartition("/")[0])
                host.journal.write(path, text)
        self._did(*(f"file-{path.rpartition('/')[2]}" for path in wanted))
        self._restart()

    def _restart(self) -> None:
        host = self._host
        noted = [key[len(RESTART) :] for key in host.journal.notes() if key.startswith(RESTART)]
        stale = still_stale(host.journal.notes(), host.files)
        if noted:
            host.units.reload()
        for name in noted:
            runs = name in stale and host.units.state(name).running
            if runs and self._todo.starts:
                host.progress(f"restarting {name}")
                host.units.restart(name)
            if not runs or self._todo.starts:
                host.journal.forget(RESTART + name)
        self._did("restart-")

    def _beside(self) -> None:
        """Modules that companions work with; the driver itself works without them."""
        for name in self._todo.modules:
            done = self._host.runner.run(["modprobe", name.replace("_", "-")], check=False, timeout=60.0)
            if done.rc:
                self.wrong.append(f"The kernel module {name} could not be loaded: {done.words()}")
            else:
                self._did(f"beside-{name}")

    def _restore(self) -> List[str]:
        """Settings that GPUs lost with their old modules, as soon as new ones are loaded."""
        loaded = self._todo.reload or bool(_modules.loaded(self._host.files))
        return _settings.restore(self._host.opener, self._host.files, self._host.progress) if loaded else []

    def _stage(self) -> None:
        staged = _secure_boot.stage(self._host.runner, self._host.files, self._todo.password)
        if staged.mok_enrolment_pending:
            self.findings.append(_secure_boot.pending(staged.certificate))
        self._did("mok")

    # --- Back ---------------------------------------------------------------------------------------------------------

    def _back(self) -> str:
        """The old packages, holds, modules and services again; a sentence about which driver the host has now."""
        stays = self._new_stays() if self._loading else ""
        host = self._host
        files = "" if stays else self._files_back()
        told = stays or (self._packages_back() if self._touched else self._untouched())
        if self._unloaded and not stays:
            try:
                _modules.load(host.runner, host.files, [_modules.plain(name) for name in self._unloaded])
            except Failure as failure:
                told += f" Its modules were not loaded again: {failure.msg}"
        told += "" if stays else self._rivals_back()
        wrong = [*([files] if files else []), *host.services.start(), *self._restore()]
        gone = [self._runfile] if self._runfile and self._touched else []
        return " ".join([told, *gone, *wrong])

    def _rivals_back(self) -> str:
        left = []
        for name in reversed(self._rivals):
            try:
                self._host.runner.run(["modprobe", name], timeout=60.0)
            except Failure:
                left.append(name)
        return f" {', '.join(left)} was unloaded, and comes back with the next boot." if left else ""

    def _files_back(self) -> str:
        """Files for modprobe and systemd as this run found them; which ones are not, as a sentence."""
        todo, journal = self._todo, self._host.journal
        left = []
        for path in todo.files:
            text = todo.files_before.get(path)
            try:
                if text is None:
                    journal.remove(path)
                else:
                    journal.write(path, text)
            except Failure as failure:
                left.append(f"{path} stays as this run wrote it: {failure.msg}")
        if not (left or self._touched or self._owed):
            journal.forget(REBUILD)  # with packages, some of their scripts have made it with the new files
        self.done = [one for one in self.done if left or not one.startswith("file-")]
        return " ".join(left)

    def _untouched(self) -> str:
        """Said where no package was exchanged."""
        return (
            f"No package has been exchanged. {self._runfile}"
            if self._runfile
            else "The old driver has not been touched."
        )

    def _new_stays(self) -> str:
        """Modules of the new driver that were loaded have to go before the old packages come back; why they do not."""
        try:
            _modules.unload(self._host.runner, self._host.files)
        except Failure as failure:
            return f"Driver {self._todo.packages.version} is installed and partly loaded. {failure.msg}"
        return ""

    def _packages_back(self) -> str:
        todo, host = self._todo, self._host
        old = todo.old_version or "none"
        moved = [*todo.packages.pins, *todo.packages.remove]
        try:
            there = host.manager.installed(moved)
            pins = {
                name: version
                for name in moved
                for version in [todo.seen.installed.get(name, "")]
                if version and there.get(name) != version
            }
            ours = [*todo.packages.pins, *(name for name in todo.packages.first if name.startswith(PINNING))]
            there = {**there, **host.manager.installed(ours)}
            new = tuple(name for name in ours if name in there and name not in todo.seen.installed)
            if host.manager.name == APT:
                host.runner.run(["dpkg", "--configure", "-a"], check=False, timeout=INSTALL, env=QUIET)
            _exchange.carry_out(host.manager.name, host.runner, Exchange(pins, new))
            again = [name for name in todo.packages.unhold if name in host.manager.installed(todo.packages.unhold)]
            host.manager.hold(again)
            host.journal.forget(MOVING)
        except Failure as failure:
            now = ", ".join(f"{name} {version}" for name, version in self._now(moved).items()) or "none of its packages"
            return f"The old packages ({old}) could not be put back: {failure.msg} Installed now: {now}. Run again."
        return f"The old packages ({old}) are back." if todo.old_version else "What had been installed is gone again."

    def _now(self, names: Sequence[str]) -> Dict[str, str]:
        try:
            return self._host.manager.installed(names)
        except Failure:
            return {}
