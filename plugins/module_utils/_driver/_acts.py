# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be done beside packages: files of modprobe, initramfs, modules of the running kernel. Reads only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._host._commands import Runner
from .._host._files import Files
from .._host._packages._sources import differing
from .._host._systemd import Units, UnitState
from .._plan import ERROR, INFO, WARNING, Action, Finding
from . import (
    _circumstances,
    _imex,
    _initramfs,
    _kernel,
    _modules,
    _nouveau,
    _parameters,
    _peer,
    _persistence,
    _reload,
    _secure_boot,
    _services,
    _users,
)
from ._catalog import PackageSet
from ._found import HostFound
from ._reload import Reload, ReloadFacts
from ._request import NEXT_BOOT, NOW, Request
from ._types import DESKTOP, FABRIC_MANAGER, FULL, GDRCOPY, GDS, IMEX, NVLSM, PEERMEM, PERSISTENCED, Wanted

_KUBELET = ("/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf", "/var/lib/rancher", "/var/snap/microk8s")
UNITS = {
    FABRIC_MANAGER: "nvidia-fabricmanager.service",
    IMEX: _imex.UNIT,
    PERSISTENCED: _persistence.UNIT,
}
#: Files that units read at their start.
UNIT_FILES = {_persistence.DROP_IN: _persistence.UNIT, _imex.NODES: _imex.UNIT}
RESTART = "restart "  # notes of the journal: units whose files have changed, until they have started anew
#: Modules of the kernel that companions work with; the fabric manager of NVLink 5 reaches its switches by the last.
_MODULES = {PEERMEM: "nvidia_peermem", GDS: "nvidia_fs", GDRCOPY: "gdrdrv", NVLSM: "ib_umad"}
IN_USE = "gpus_in_use"
_AT_BOOT = "/etc/modules-load.d/gpufleet-nvidia.conf"


@dataclass
class Acts:
    """``files`` to write or remove, ``before`` their text now; ``initramfs``: why it is made anew; ``build``: why DKMS
    is asked; ``why``: why the running kernel needs its modules anew, and ``reload`` how; ``reboot``: why it has to be
    booted for that instead; ``units``: services to be turned on, at once where ``starts``: none of them comes up
    without the modules; ``restart``: those that run with files of before; ``modules``: of companions, to be loaded
    beside the driver."""

    files: Dict[str, Optional[str]] = field(default_factory=dict)
    before: Dict[str, Optional[str]] = field(default_factory=dict)
    initramfs: str = ""
    build: str = ""
    why: str = ""
    reload: Reload = field(default_factory=Reload)
    in_place: bool = False
    unload: bool = False
    rivals: bool = False
    signed: bool = False
    reboot: Tuple[str, ...] = ()
    units: List[str] = field(default_factory=list)
    starts: bool = True
    restart: List[str] = field(default_factory=list)
    modules: List[str] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class Goal:
    """What the kernel is to have: NVIDIA's version and flavour; ``moves``: packages are exchanged for it;
    ``mok_pending``: the firmware does not know the key of modules that are built here."""

    version: str
    wanted: Wanted
    packages: PackageSet
    moves: bool
    mok_pending: bool = False

    @property
    def module(self) -> str:
        """The kernel module's name: Debian's own is nvidia-current."""
        return self.packages.module


class Reader:
    """Looks at what there is, and says what has to be done."""

    def __init__(
        self, found: HostFound, request: Request, runner: Runner, files: Files, units: Optional[Units]
    ) -> None:
        self._found, self._request = found, request
        self._runner, self._files, self._systemd = runner, files, units

    def options(self, branch: int) -> Dict[str, Dict[str, Any]]:
        """Parameters of modules: those that this hardware needs, and over them those that are asked for."""
        kubernetes = any(self._files.exists(path) for path in _KUBELET)
        needed = _parameters.defaults(self._found.devices, branch, kubernetes)
        return _parameters.merged(needed, self._request.parameters)

    def look(self, goal: Goal, notes: Mapping[str, Any]) -> Acts:
        """Everything beside packages."""
        acts = Acts()
        acts.findings += _parameters.judge(self._request.parameters, "parameters")
        if [one for one in acts.findings if one.severity == ERROR]:
            return acts
        options = self.options(goal.wanted.branch)
        acts.findings += _parameters.elsewhere(options, self._files)
        peer = self._peer(goal)
        if peer.problem:
            acts.findings.append(Finding("no_peermem", ERROR, peer.problem, path="companions", accept="no_peermem"))
        elif peer.way == _peer.PEERMEM and self._peer(goal, _peer.AUTO).way == _peer.DMA_BUF:
            detail = "network adapters reach the memory of these GPUs by DMA-BUF too, without nvidia-peermem"
            remedy = "Leave peermem out of companions, unless a program asks for it"
            acts.findings.append(Finding("dma_buf", INFO, detail, path="companions", remedy=remedy))
        acts.findings += _imex.look(self._request.imex_nodes, IMEX in goal.wanted.companions, self._files)
        wanted = self._wanted_files(goal, options)
        acts.files, acts.before = differing(wanted, self._files)
        kept = [path for path in wanted if path not in acts.files]
        owed = str(notes.get("initramfs", ""))
        acts.initramfs = owed or _initramfs.needed(list(acts.files), self._files, self._found.kernel, kept)
        self._kernel(acts, goal, options)
        self._modules(acts, goal)
        self._units(acts, goal)
        self._restart(acts, notes)
        return acts

    def _wanted_files(self, goal: Goal, options: Mapping[str, Mapping[str, Any]]) -> Dict[str, Optional[str]]:
        wanted: Dict[str, Optional[str]] = {}
        modules = self._beside(goal)
        if modules:
            lines = [name.replace("_", "-") if name.startswith("nvidia") else name for name in modules]
            wanted[_AT_BOOT] = "\n".join(["# Made by gpufleet.nvidia.nvidia_driver.", *lines, ""])
        elif self._files.exists(_AT_BOOT):
            wanted[_AT_BOOT] = None
        rivals = _nouveau.look(self._files)
        if rivals.loaded or rivals.bound or self._files.exists(_nouveau.FILE):
            wanted.update(_nouveau.wanted_files(self._found.kernel))
        text = _parameters.render(options, goal.module)
        if text or self._files.exists(_parameters.FILE):
            wanted[_parameters.FILE] = text or None
        if PERSISTENCED in goal.wanted.companions:
            wanted.update(_persistence.wanted_files(self._files))
        if IMEX in goal.wanted.companions:
            wanted.update(_imex.wanted_files(self._request.imex_nodes))
        return wanted

    def _beside(self, goal: Goal) -> List[str]:
        """Modules of companions."""
        refused = [PEERMEM] if self._peer(goal).problem else []
        return [name for one, name in _MODULES.items() if one in goal.wanted.companions and one not in refused]

    def _peer(self, goal: Goal, way: str = _peer.PEERMEM) -> _peer.Peer:
        """How network adapters reach GPU memory, where that is asked for."""
        asked = way if PEERMEM in goal.wanted.companions else _peer.NONE
        kinds = [gpu.architecture for gpu in self._found.gpus]
        return _peer.choose(asked, goal.wanted.flavour, self._found.kernel, kinds, _peer.adapters(self._files))

    # --- The modules --------------------------------------------------------------------------------------------------

    def _kernel(self, acts: Acts, goal: Goal, options: Mapping[str, Mapping[str, Any]]) -> None:
        found, files = self._found, self._files
        acts.signed = _secure_boot.state(files).signed_only
        # A key that waits to be confirmed has signed the module: signing anew would not help.
        signed = acts.signed and not goal.mok_pending
        built = _kernel.installed(self._runner, files, found.kernel, goal.module)
        acts.build = _kernel.wrong_with(built, found.kernel, goal.version, goal.wanted.flavour, signed)
        rivals = _nouveau.look(files)
        acts.rivals = bool(rivals.loaded)
        acts.why = self._why(goal, options)
        acts.unload = bool(_modules.loaded(files))
        if not acts.why:
            return
        if self._request.apply == NEXT_BOOT:
            acts.reboot = (f"{acts.why} As apply: next_boot asks, that is left to the next boot.",)
            return
        acts.reload = _reload.decide(self._facts(goal, rivals.reboot if rivals.loaded else ""))
        acts.in_place = acts.reload.in_place
        if not acts.in_place:
            self._not_in_place(acts)

    def _not_in_place(self, acts: Acts) -> None:
        acts.reboot = (acts.why, *acts.reload.reasons)
        waits = acts.reload.waiting_helps and self._request.apply == NOW
        for reason in acts.reload.reasons:
            if waits:
                remedy = "Stop it, or accept gpus_in_use: the new driver is loaded by the next boot then"
                acts.findings.append(Finding(IN_USE, ERROR, reason, path="apply", remedy=remedy, accept=IN_USE))
            else:
                remedy = "Reboot the host soon: programs that start before it find libraries that do not fit"
                acts.findings.append(Finding("reboot_needed", WARNING, reason, path="apply", remedy=remedy))

    def _why(self, goal: Goal, options: Mapping[str, Mapping[str, Any]]) -> str:
        """Why the running kernel needs its modules anew; "" where it has what is wanted."""
        driver = self._found.state.driver
        if not self._found.gpus:
            return ""  # an image, or a host that waits for its GPUs
        if not driver.version:
            return f"Driver {goal.version} is not loaded."
        if driver.version != goal.version:
            return f"Driver {driver.version} is loaded, {goal.version} is wanted."
        if driver.flavour and driver.flavour != goal.wanted.flavour:
            return f"The {driver.flavour} modules are loaded, the {goal.wanted.flavour} ones are wanted."
        differs = _parameters.differs(options, self._files)
        if differs:
            told = ", ".join(f"{one.name} is {one.now}, {one.wanted} is wanted" for one in differs[:4])
            return f"Parameters of the loaded modules differ: {told}."
        return ""

    def _facts(self, goal: Goal, rival: str) -> ReloadFacts:
        drm = goal.wanted.use in (FULL, DESKTOP)
        wanted = ["nvidia", "nvidia_uvm", "nvidia_modeset", *(["nvidia_drm"] if drm else [])]
        peer = self._peer(goal)
        wanted += [] if peer.problem else list(peer.modules)
        facts = in_use(self._found, self._files, self._running())
        wanted += [name for name in map(_modules.plain, facts.modules) if name not in wanted]
        multi_node = self._found.multi_node and IMEX in goal.wanted.companions
        return replace(
            facts,
            wanted=tuple(wanted),
            mok_pending=goal.mok_pending,
            rival=rival,
            fabric=multi_node,
            recovery_action=_circumstances.recovery_action(self._runner, self._files) if facts.modules else "",
        )

    def _modules(self, acts: Acts, goal: Goal) -> None:
        """Of companions, those that are not loaded, and that the reload of the driver does not load."""
        if self._found.gpus and (acts.in_place or not acts.why):
            with_it = [_modules.plain(name) for name in acts.reload.load]
            lacking = [name for name in self._beside(goal) if not self._files.exists(f"/sys/module/{name}")]
            acts.modules = [name for name in lacking if name not in with_it]

    # --- Services -----------------------------------------------------------------------------------------------------

    def _running(self) -> Tuple[str, ...]:
        if self._systemd is None:
            return ()
        return tuple(one.name for one in self._systemd.states(_services.STOP_ORDER) if one.running)

    def _units(self, acts: Acts, goal: Goal) -> None:
        wanted = [UNITS[name] for name in goal.wanted.companions if name in UNITS]
        acts.starts = bool(self._found.gpus) and (acts.in_place or not acts.why)
        if goal.moves or self._systemd is None:
            acts.units = wanted
            return
        there = [one for one in self._systemd.states(wanted) if one.exists]
        down = [one for one in there if not (_at_boot(one) and (one.running or not acts.starts))]
        acts.units = [one.name for one in down]

    def _restart(self, acts: Acts, notes: Mapping[str, Any]) -> None:
        """Units that run with files of before, and that nothing else starts anew."""
        stale = [UNIT_FILES[path] for path in acts.files if path in UNIT_FILES]
        stale += still_stale(notes, self._files)
        # What waits for the boot is read there.
        running = [one for one in self._running() if one not in acts.reload.stop] if stale and acts.starts else []
        acts.restart = [name for name in dict.fromkeys(stale) if name in running]


def boot_of(files: Files) -> str:
    """The kernel's name of the boot that it runs since."""
    return _kernel.tree_of(files).text("/proc/sys/kernel/random/boot_id")


def still_stale(notes: Mapping[str, Any], files: Files) -> List[str]:
    """Units whose files have changed since they started: a boot since then has started them anew."""
    boot = boot_of(files)
    return [key[len(RESTART) :] for key, since in notes.items() if key.startswith(RESTART) and since == boot]


def in_use(found: HostFound, files: Files, running: Sequence[str]) -> ReloadFacts:
    """Who and what uses the modules that are loaded. ``running``: units that run, of those that use GPUs."""
    loaded = _modules.loaded(files)
    return ReloadFacts(
        modules=loaded,
        users=tuple(_users.users(files)),
        running=tuple(running),
        kernel=found.running,
        module_for_kernel=found.kernel == found.running,
        persistence=any(gpu.persistence_mode == "enabled" for gpu in found.gpus),
        console=_nouveau.console_on(_kernel.tree_of(files), "nvidia") if "nvidia_drm" in loaded else "",
        passthrough=tuple(gpu.bus_id for gpu in found.gpus if gpu.driver in ("vfio-pci", "pci-stub")),
        vgpu_guests="nvidia_vgpu_vfio" in loaded,
        xids=tuple(entry.code for entry in found.state.kernel_log if entry.code >= 0) if loaded else (),
        lost=_circumstances.lost(found.state.kernel_log) if loaded else (),
        coherent_memory_online=bool(loaded) and _circumstances.coherent_memory_online(files, found.devices),
        sees_all_processes=found.state.host.sees_all_processes,
    )


def _at_boot(unit: UnitState) -> bool:
    """Whether it comes up at boot; one that is static is started by others."""
    return unit.enabled or unit.file in ("static", "indirect", "generated")


def actions(acts: Acts, goal: Goal) -> Tuple[List[Action], List[Action], List[Action]]:
    """What is shown: before the packages, between them and their holds, after them."""
    before = [_file(path, text, acts.before.get(path)) for path, text in acts.files.items()]
    after: List[Action] = []
    if acts.in_place:
        stop = acts.reload.stop
        before += [Action(f"stop-{name}", "stop", name, "it uses the GPUs", True) for name in stop]
        if acts.unload or acts.rivals:
            before.append(Action("unload", "unload", "the kernel modules", acts.why, True))
        reason = acts.why or "they are to be used at once"
        after.append(Action("load", "load", ", ".join(acts.reload.load), reason, after=goal.version))
        after += [Action(f"start-{name}", "start", name, "it ran before") for name in acts.reload.start]
    between = []
    if acts.build and not goal.moves:
        between.append(Action("build", "build", f"the module for {goal.version}", acts.build))
    if acts.initramfs:
        after.insert(0, Action("initramfs", "rebuild", "the initramfs", acts.initramfs))
    after += [Action(f"beside-{name}", "load", name, "a companion works with it") for name in acts.modules]
    after += [Action(f"restart-{name}", "restart", name, "it runs with the file of before") for name in acts.restart]
    verb = "start" if acts.starts else "enable"
    after += [Action(f"unit-{name}", verb, name, "the driver's companion") for name in acts.units]
    return before, between, after


def _file(path: str, text: Optional[str], before: Optional[str]) -> Action:
    verb = "delete" if text is None else "create" if before is None else "update"
    reasons = {
        _nouveau.FILE: "other drivers would take the GPUs first",
        _parameters.FILE: "parameters of the modules",
        _persistence.DROP_IN: "persistence mode",
        _AT_BOOT: "nothing else loads it at boot",
        _imex.NODES: "the hosts of the NVLink domain",
    }
    return Action(f"file-{path.rpartition('/')[2]}", verb, path, reasons.get(path, "as asked"))


def diff(acts: Acts) -> List[Dict[str, str]]:
    """Ansible's diff of the files, one for each."""
    return [
        {"before_header": path, "after_header": path, "before": acts.before.get(path) or "", "after": text or ""}
        for path, text in acts.files.items()
    ]
