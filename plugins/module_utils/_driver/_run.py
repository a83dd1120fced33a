# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of nvidia_driver: find, judge, plan everything, refuse or act, prove; or give back."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from .._gpu._nvml import Nvml, Opener
from .._host import _lock
from .._host._commands import Runner
from .._host._files import Files
from .._host._journal import Journal
from .._host._root import Root
from .._host._systemd import Units
from .._host_state import _packages as _state_packages
from .._host_state._collect import Host as StateHost
from .._host_state._system import ENABLED
from .._plan import ERROR, WARNING, Action, Check, Failure, Finding, Result, errors, refusal
from .._plan import Outcome as PlainOutcome
from . import _acts, _findings, _found, _kernel, _request, _secure_boot, _settings, _verify
from ._acts import Acts, Goal, Reader
from ._choice import Choice, choose, fits, matrix_of
from ._execute import MOVING, Host, Todo, Work
from ._found import HostFound
from ._give_back import GiveBack
from ._origin import of_driver
from ._plan import Packages, Seen
from ._request import Request
from ._services import Services
from ._shop import Shop

COMPONENT = "nvidia_driver"
_WAIT = 60.0  # seconds for another run to end
_COHERENT = "NVreg_CoherentGPUMemoryMode"

Progress = Callable[[str], None]


@dataclass
class Tools:
    """What a run works with; tests give others. ``live``: whether the root is the running machine's; ``asks``: whether
    NVML may be asked; ``today``: the day by which branches are judged, "" for the day of the matrix."""

    runner: Runner = field(default_factory=Runner)
    files: Callable[[Root], Files] = Files
    live: Callable[[Root], bool] = lambda root: root.folder == "/"
    opener: Opener = lambda: Nvml("")
    asks: bool = True
    today: str = ""


@dataclass
class Outcome(PlainOutcome):
    """``reboot``: why the host has to be booted (empty: it has not)."""

    reboot: Tuple[str, ...] = ()

    def as_dict(self) -> Dict[str, Any]:
        return dict(super().as_dict(), reboot_required=bool(self.reboot), reboot_reasons=list(self.reboot))


def nvidia_driver(params: Mapping[str, Any], check: bool, progress: Progress, tools: Tools) -> Outcome:
    """One run of the module. Raises Failure."""
    request, wrong = _request.read(params)
    if wrong:
        raise Failure(refusal(wrong), Result(findings=wrong))
    root = Root(request.root)
    live = tools.live(root)
    if not live and not check:
        remedy = "Run in check mode: findings and plan are made from the files there"
        detail = "a driver is installed on the running host only"
        wrong = [Finding("not_this_host", ERROR, detail, path="root", remedy=remedy)]
        raise Failure(refusal(wrong), Result(findings=wrong))
    if root.folder == "/" and os.geteuid():
        raise Failure("Only root may install a driver. Run with become: true. Nothing has been changed.")
    return _Run(request, check, progress, tools, root, live).go()


class _Run:
    def __init__(self, request: Request, check: bool, progress: Progress, tools: Tools, root: Root, live: bool) -> None:
        self._request, self._check, self._progress, self._tools = request, check, progress, tools
        self._root, self._live = root, live
        self._runner = tools.runner
        self._files = tools.files(root)
        self._units = Units(self._runner)
        self._services = Services(self._units, self._files, progress)
        self._result = Result()

    def go(self) -> Outcome:
        """Plan, then act, unless this is check mode or there is nothing to do."""
        with (
            _lock.alone(self._root.at, COMPONENT, _WAIT, self._check, "/usr"),
            Journal(self._files, COMPONENT) as journal,
        ):
            found = self._found()
            self._result.found = found.told()
            shop = Shop(found, self._request, self._runner, self._files, journal, self._live)
            if self._request.absent:
                return self._absent(found, shop, journal)
            return self._present(found, shop, journal)

    def _found(self) -> HostFound:
        host = StateHost(self._request.root, asks=self._live and self._tools.asks)
        host.runner, host.opener = self._runner, self._tools.opener
        return _found.read(host, self._request.kernel)

    def _refuse(self) -> None:
        findings = self._result.findings
        if errors(findings):
            self._result.changed = False
            named = {one.accept for one in findings}
            unused = [name for name in self._request.accept if name not in named]
            if unused:
                detail = f"{', '.join(unused)}: no finding here has that name"
                remedy = "Each finding tells the word that accepts it"
                findings.append(Finding("accept_unused", WARNING, detail, path="accept", remedy=remedy))
            raise Failure(refusal(self._result.findings), self._result)

    # --- There --------------------------------------------------------------------------------------------------------

    def _present(self, found: HostFound, shop: Shop, journal: Journal) -> Outcome:
        result = self._result
        matrix, wrong = matrix_of(self._request)
        choice = choose(found, self._request, matrix, self._tools.today)
        result.findings += wrong
        reader = Reader(found, self._request, self._runner, self._files, self._units if self._live else None)
        self._builds(found)
        result.findings += _findings.look(self._asked(found, choice, reader))
        packages, seen = self._bought(shop, choice)
        self._judged(choice, packages, fits(found, choice, self._request, packages.version, matrix, self._tools.today))
        self._refuse()
        if choice.wanted is None or choice.packages is None:
            raise Failure("No driver could be chosen for this host. Ask for a branch.", result)
        goal = Goal(packages.version, choice.wanted, choice.packages, packages.moves, self._key_waits(found, choice))
        acts = reader.look(goal, journal.notes())
        result.findings += _findings.accepted(acts.findings, self._request.accept)
        result.findings += self._unsaved(acts)
        result.plan = self._plan(found, shop, packages, goal, acts)
        result.changed = bool(result.plan)
        self._refuse()
        if not self._check:
            self._act(self._todo(found, shop, packages, seen, goal, acts), journal, shop)
            wanted = self._verified(found, packages, goal, acts)
            result.verified += _verify.prove(wanted, self._runner, self._files, self._units, shop.manager)
            self._refuse_unproved()
        return Outcome(result, [*shop.diff(), *_acts.diff(acts)], acts.reboot)

    def _asked(self, found: HostFound, choice: Choice, reader: Reader) -> _findings.Asked:
        options = reader.options(choice.wanted.branch) if choice.wanted else {}
        coherent = _COHERENT in options.get("nvidia", {})
        return _findings.Asked(found, self._request, choice.wanted, choice.packages, coherent)

    def _builds(self, found: HostFound) -> None:
        """What building modules here depends on."""
        found.headers = _kernel.headers_missing(self._files, found.kernel) or ""
        if not self._live:
            return
        compiler = _kernel.compiler(self._files, self._runner, found.kernel)
        found.compiler = compiler.problem if compiler.found else ""  # one that is not there comes with dkms
        if found.state.host.secure_boot == ENABLED:
            key = _secure_boot.key(self._files)
            now = _secure_boot.enrolment(self._runner, key.certificate) if key else _secure_boot.NOT_ENROLLED
            found.enrolled = now == _secure_boot.ENROLLED
            found.certificate = key.certificate if key and now == _secure_boot.PENDING else ""

    def _unsaved(self, acts: Acts) -> List[Finding]:
        """Settings of GPUs that would be lost with the old modules."""
        if not (self._live and acts.in_place and acts.unload):
            return []
        why = _settings.cannot_save(self._tools.opener, self._files)
        if why:
            remedy = "Put that right, or ask for apply: next_boot"
            return [Finding("settings_lost", ERROR, why, path="apply", remedy=remedy)]
        detail = "NVML does not tell locked clocks, so they are lost when the modules are loaded anew"
        remedy = "Lock them again afterwards (nvidia-smi -lgc, -lmc), if anybody had"
        return [Finding("locked_clocks", WARNING, detail, path="apply", remedy=remedy)]

    def _key_waits(self, found: HostFound, choice: Choice) -> bool:
        asked = _findings.Asked(found, self._request, choice.wanted, choice.packages)
        return found.state.host.secure_boot == ENABLED and not found.enrolled and asked.builds

    def _bought(self, shop: Shop, choice: Choice) -> Tuple[Packages, Seen]:
        """What is to be done with packages; where something is wrong already, as far as can be told."""
        try:
            return shop.look(choice)
        except Failure:
            if errors(self._result.findings) or errors(choice.findings):
                return Packages(), Seen("", {})
            raise

    def _judged(self, choice: Choice, packages: Packages, verdicts: Sequence[Finding]) -> None:
        """What catalogue, repositories and matrix have to say. Each is told once."""
        more = _findings.accepted([*choice.findings, *packages.findings, *verdicts], self._request.accept)
        known = {one.id for one in self._result.findings}
        self._result.findings += [one for one in more if one.id not in known]

    def _plan(self, found: HostFound, shop: Shop, packages: Packages, goal: Goal, acts: Acts) -> List[Action]:
        before, between, after = _acts.actions(acts, goal)
        holds = [one for one in packages.actions if one.id.startswith("hold-")]
        ready = [one for one in packages.actions if one.target in packages.first or one.id == "stream"]
        first = [one for one in ready if one not in holds]
        rest = [one for one in packages.actions if one not in first and one not in holds]
        if found.state.driver.runfile:
            reason = "it was installed by NVIDIA's own installer, and packages take its place"
            rest.insert(0, Action("runfile", "remove", "the driver of NVIDIA's installer", reason, True))
        if goal.mok_pending and not found.certificate:
            reason = "Secure Boot loads only modules whose key the firmware trusts"
            after.append(Action("mok", "enrol", "the key of modules that are built here", reason))
        return [*shop.actions(), *first, *before, *rest, *between, *holds, *after]

    def _todo(self, found: HostFound, shop: Shop, packages: Packages, seen: Seen, goal: Goal, acts: Acts) -> Todo:
        return Todo(
            packages, seen, goal.packages, goal.wanted.flavour, found.kernel, goal.module,
            signed=acts.signed and not goal.mok_pending,
            before=found.installed,
            old_version=found.version,
            sources=shop.changed,
            source=shop.name,
            files=acts.files,
            files_before=acts.before,
            runfile=found.state.driver.runfile,
            initramfs=acts.initramfs,
            reload=acts.in_place,
            unload=acts.unload,
            rivals=acts.rivals,
            persistence_off=acts.reload.persistence_off,
            stop=acts.reload.stop,
            mask=acts.reload.mask,
            load=acts.reload.load,
            units=acts.units,
            starts=acts.starts,
            modules=acts.modules,
            gpus=len(found.gpus),
            persistenced="persistenced" in goal.wanted.companions,
            password=self._request.mok_password if goal.mok_pending and not found.certificate else "",
            actions=self._result.plan,
        )  # fmt: skip

    def _act(self, todo: Todo, journal: Journal, shop: Shop) -> None:
        owed = bool(self._services.owed()) or _settings.owed(self._files) or MOVING in journal.notes()
        if not (todo.actions or owed):
            return
        host = Host(
            self._runner, self._files, self._units, self._services, shop.manager, journal, self._progress,
            self._tools.opener, self._there,
        )  # fmt: skip
        work = Work(todo, host)
        try:
            work.carry_out()
        except Failure as failure:
            self._result.changed = bool(failure.done)
            raise Failure(failure.msg, self._result, failure.done, failure.remaining) from None
        self._result.verified += [Check("driver.restored", False, one) for one in work.wrong]
        self._result.findings += work.findings

    def _there(self) -> Tuple[Dict[str, str], List[str]]:
        tree = _kernel.tree_of(self._files)
        found = _state_packages.read(tree, _kernel.command_of(self._runner))
        return {one.name: one.version for one in found}, [one.name for one in found if one.held]

    def _verified(self, found: HostFound, packages: Packages, goal: Goal, acts: Acts) -> _verify.Wanted:
        return _verify.Wanted(
            packages.version, goal.wanted.flavour, found.kernel, goal.module,
            names=_verify.names_of(packages, list(of_driver(found.installed))),
            exact=[one.name for one in goal.packages.packages if one.exact],
            held=packages.hold,
            loaded=acts.starts,
            fabric=found.state.needs.fabric != "none",
            units=[unit for name, unit in _acts.UNITS.items() if name in goal.wanted.companions],
        )  # fmt: skip

    def _refuse_unproved(self) -> None:
        wrong = [check for check in self._result.verified if not check.ok]
        if wrong:
            told = "; ".join(f"{check.id}: {check.detail}" for check in wrong)
            raise Failure(f"The end state does not hold: {told}.", self._result, [one.id for one in self._result.plan])

    # --- Back ---------------------------------------------------------------------------------------------------------

    def _absent(self, found: HostFound, shop: Shop, journal: Journal) -> Outcome:
        result = self._result
        work = GiveBack(
            found, self._request, self._runner, self._files, self._units, self._services, shop, journal, self._progress
        )
        known = len(work.findings)
        result.findings += _findings.accepted(work.findings, self._request.accept)
        result.plan = work.plan()
        result.changed = bool(result.plan)
        self._refuse()
        if not self._check and result.plan:
            try:
                work.carry_out()
            except Failure as failure:
                result.changed = bool(work.done)
                left = [one.id for one in result.plan if one.id not in work.done]
                raise Failure(failure.msg, result, work.done, left) from None
            result.findings += work.findings[known:]
            result.verified = work.prove()
            self._refuse_unproved()
        return Outcome(result, work.diff(), work.reboot)
