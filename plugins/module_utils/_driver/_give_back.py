# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back: packages that were not there before us go, holds and files are as they were found.

Packages that were there before, in another version, stay in the version that they have; that is told. Those that had to
go for others are not installed again; what would leave a host without them is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from .._host._commands import Runner
from .._host._files import Files
from .._host._journal import Journal
from .._host._packages import _exchange, _streams
from .._host._packages._exchange import Exchange
from .._host._packages._sources import distrust_again
from .._host._systemd import Units
from .._plan import ERROR, INFO, WARNING, Action, Check, Failure, Finding
from . import _initramfs, _kernel, _modules, _reload, _services
from ._acts import IN_USE, UNIT_FILES, in_use
from ._execute import MODULE, UNIT
from ._found import HostFound
from ._origin import of_driver
from ._plan import BROUGHT, HELD, INSTALLED, STREAM
from ._request import NEXT_BOOT, NOW, Request
from ._services import Services
from ._shop import Shop

NOT_OURS = "not_ours"
LOST = "driver_not_back"


@dataclass
class GiveBack:
    """Planned when it is made; ``reboot``: why the host has to be booted afterwards."""

    found: HostFound
    request: Request
    runner: Runner
    files: Files
    units: Units
    services: Services
    shop: Shop
    journal: Journal
    progress: Any
    findings: List[Finding] = field(default_factory=list)
    done: List[str] = field(default_factory=list)
    reboot: Tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._notes: Mapping[str, Any] = self.journal.notes()
        self._remove = self._removed()
        self._kept = [one.path for one in self.journal.would_keep()]
        self._paths = [path for path in self.journal.paths() if path not in self._kept]
        self._initramfs = _initramfs.needed(self._paths, self.files, self.found.kernel) if self._paths else ""
        self._reload = _reload.Reload()
        self._unloads = bool(self._remove) and bool(_modules.loaded(self.files))
        if self._unloads:
            self._judge_use()
        self._turned, self._stale = self._judge_units()
        self._plan = self.plan()
        for path in self._kept:
            detail = "somebody else has changed it since, so it stays"
            self.findings.append(Finding("left_alone", WARNING, detail, path, remedy="Look at it by hand"))

    # --- Plan ---------------------------------------------------------------------------------------------------------

    def _removed(self) -> List[str]:
        """Packages that we brought; with ``not_ours`` accepted all of the driver's."""
        installed = self.found.installed
        before = dict(self._notes.get(BROUGHT, {})) if BROUGHT in self._notes else dict(installed)
        ours = [name for name in of_driver(installed) if name not in before]
        noted = [key[len(INSTALLED) :] for key, was in self._notes.items() if key.startswith(INSTALLED) and not was]
        ours += [name for name in noted if name not in ours]
        theirs = [name for name in of_driver(installed) if name in before]
        self._judge_lost(before)
        if theirs and NOT_OURS in self.request.accept:
            return [*ours, *theirs]
        if theirs:
            moved = [name for name in theirs if before.get(name) != installed[name]]
            detail = f"{len(theirs)} packages of the driver were there before this module came, and stay"
            detail += f" ({len(moved)} of them in a newer or older version than then)" if moved else ""
            remedy = "Accept not_ours to have them removed too"
            self.findings.append(Finding("driver_stays", INFO, detail, remedy=remedy, accept=NOT_OURS))
        return ours

    def _judge_lost(self, before: Mapping[str, str]) -> None:
        """Packages of before that this module removed for others (a new name, another flavour) cannot be given back."""
        lost = {name: one for name, one in of_driver(before).items() if name not in self.found.installed}
        if not lost:
            return
        told = ", ".join(f"{name} {one}" for name, one in list(lost.items())[:6])
        held = [name for name in lost if self._notes.get(HELD + name) is True]
        detail = f"{len(lost)} packages of the driver that was there before ({told}) have been replaced by others, "
        detail += "which are removed now; the host loses them"
        detail += f", and somebody's hold of {', '.join(held)}" if held else ""
        remedy = "Keep the driver, or accept not_ours and install the earlier driver by its version afterwards"
        self.findings.append(Finding(LOST, ERROR, detail, remedy=remedy, accept=NOT_OURS))

    def _judge_units(self) -> Tuple[List[Tuple[str, str]], List[str]]:
        """What is to be turned off again, as verb and unit; and units that run with files which are given back."""
        before = {key[len(UNIT) :]: was for key, was in self._notes.items() if key.startswith(UNIT)}
        read = [UNIT_FILES[path] for path in self._paths if path in UNIT_FILES]
        turned, stale = [], []
        for state in self.units.states(list(dict.fromkeys([*before, *read]))) if before or read else []:
            enabled, ran = before.get(state.name, [True, True])
            turned += [("disable", state.name)] if state.enabled and not enabled else []
            turned += [("stop", state.name)] if state.running and not ran else []
            stale += [state.name] if state.running and ran and state.name in read else []
        return turned, stale

    def _judge_use(self) -> None:
        if self.request.apply == NEXT_BOOT:
            self.reboot = ("The kernel modules stay loaded until the next boot, as apply: next_boot asks.",)
            self._unloads = False
            return
        facts = in_use(self.found, self.files, self.services.running())
        self._reload = _reload.decide(facts)
        if self._reload.in_place:
            return
        self.reboot, self._unloads = self._reload.reasons, False
        waits = self._reload.waiting_helps and self.request.apply == NOW
        remedy = "Stop it, or accept gpus_in_use: the modules stay loaded until the next boot then"
        for reason in self._reload.reasons if waits else ():
            self.findings.append(Finding(IN_USE, ERROR, reason, path="apply", remedy=remedy, accept=IN_USE))

    def plan(self) -> List[Action]:
        """What is done, in order."""
        found: List[Action] = []
        if self._unloads:
            found += [Action(f"stop-{name}", "stop", name, "it uses the GPUs", True) for name in self._reload.stop]
            found.append(Action("unload", "unload", "the kernel modules", "their driver is removed", True))
        found += [Action(f"unit-{verb}-{name}", verb, name, "as it was found") for verb, name in self._turned]
        found += [
            Action(f"hold-{name}", "unhold", name, "it is removed, or was not held before") for name in self._freed()
        ]
        for name in self._remove:
            before = self.found.installed.get(name)
            found.append(Action(f"package-{name}", "remove", name, "it was not there before", before=before))
        if STREAM in self._notes:
            found.append(
                Action("stream", "reset", MODULE, "the stream that was enabled before", after=self._notes[STREAM])
            )
        found += [
            Action(f"file-{number}", "restore", path, "as it was found") for number, path in enumerate(self._paths)
        ]
        found += [Action(f"restart-{name}", "restart", name, "its file is as it was found") for name in self._stale]
        if self._initramfs:
            found.append(Action("initramfs", "rebuild", "the initramfs", self._initramfs))
        if not found and self.journal.exists() and not self._kept:
            found.append(Action("journal", "forget", "what was noted of the driver", "an earlier run did not end"))
        return found

    def _freed(self) -> List[str]:
        """Holds to be lifted: of what goes, and those that we set."""
        ours = [key[len(HELD) :] for key, was in self._notes.items() if key.startswith(HELD) and was is False]
        return [name for name in self.found.held if name in ours or name in self._remove]

    def diff(self) -> List[Dict[str, str]]:
        """Files before and after."""
        return [
            {"before_header": path, "after_header": path, "before": self.files.text(path) or "",
             "after": self.journal.original(path) or ""}
            for path in self._paths if path.endswith((".conf", ".list", ".sources", ".repo"))
        ]  # fmt: skip

    # --- Acts ---------------------------------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """All of it. Raises Failure; the journal stays then, and a second run goes on."""
        manager = self.shop.manager
        if self._unloads:
            self.services.stop(self._reload.stop, ())
            try:
                _modules.unload(self.runner, self.files)
            except Failure as failure:
                wrong = " ".join(self.services.start())
                raise Failure(f"{failure.msg} Nothing has been removed. {wrong}".rstrip()) from None
            self._did("stop-", "unload")
        for verb, name in self._turned:
            (self.units.disable if verb == "disable" else self.units.stop)(name)
        self._did("unit-")
        manager.unhold(self._freed())
        self._did("hold-")
        if self._remove:
            self.progress(f"{manager.name}: removing the driver")
            self._packages()
        self._did("package-")
        if STREAM in self._notes:
            _streams.enable(self.runner, MODULE, str(self._notes[STREAM] or ""))
            self._did("stream")
        self._files()
        if self._initramfs:
            _initramfs.rebuild(self.runner, self.files, self.found.kernel)
        self._did("initramfs")
        self._forget()
        self._did("journal")

    def _packages(self) -> None:
        """One transaction: the driver, and what came with it as far as nothing else needs it by now."""
        manager = self.shop.manager
        there = manager.installed(self._remove)
        driver = [name for name in there if name in of_driver(self.found.installed)]
        brought = self._unneeded(driver, [name for name in there if name not in driver])
        _exchange.carry_out(manager.name, self.runner, Exchange({}, (*driver, *brought), purge=True))

    def _unneeded(self, driver: List[str], brought: List[str]) -> List[str]:
        """What came with the driver, without that which would take others along; those are told."""
        while brought and self._would_take(driver + brought, ()):
            needed = {name: self._would_take([*driver, name], brought) for name in brought}
            stays = [name for name in brought if needed[name]] or brought
            for name in stays:
                detail = f"it came with the driver, and {', '.join(needed[name]) or 'another package'} needs it now"
                self.findings.append(Finding("package_stays", INFO, detail, name))
            brought = [name for name in brought if name not in stays]
        return brought

    def _would_take(self, names: List[str], known: Sequence[str]) -> List[str]:
        """What the package manager would remove with packages, beside those that go anyway."""
        outlook = _exchange.foresee(self.shop.manager.name, self.runner, Exchange({}, tuple(names)))
        return [name for name in outlook.goes if name not in names and name not in known]

    def _files(self) -> None:
        distrust_again(self.shop.manager, self.journal)
        for kept in self.journal.give_back():
            self.journal.settle(kept.path)
        self._did("file-")
        if self._stale:
            self.units.reload()
        for name in self._stale:
            if self.units.state(name).exists:  # else it went with its package
                self.units.restart(name)
        self._did("restart-")

    def _forget(self) -> None:
        """The journal has served: what it noted is given back, or told."""
        self.files.remove(_services.STOPPED)
        for key in self.journal.notes():
            self.journal.forget(key)
        self.journal.give_back()

    def _did(self, *starts: str) -> None:
        self.done += [one.id for one in self._plan if one.id.startswith(starts) and one.id not in self.done]

    def prove(self) -> List[Check]:
        """The end state, read anew."""
        left = self.shop.manager.installed(self._remove)
        stays = [one.target for one in self.findings if one.id == "package_stays"]
        wrong = [name for name in left if name not in stays]
        checks = [Check("packages.removed", not wrong, f"still there: {', '.join(wrong)}" if wrong else "gone")]
        if self._unloads:
            there = list(_modules.loaded(self.files))
            checks.append(Check("driver.unloaded", not there, ", ".join(there) or "no module is loaded"))
        if self._remove and not [name for name in of_driver(self.found.installed) if name not in self._remove]:
            built = _kernel.installed(self.runner, self.files, self.found.kernel)
            checks.append(Check("driver.module", built is None, built.file if built else "no module file"))
        return checks
