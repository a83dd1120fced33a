# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's kernel modules in the running kernel: unloaded and loaded in the order that their dependencies ask for.

Nothing is ever forced: a module that somebody uses stays, and the failure names who.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Mapping, Sequence, Tuple

from .._host._commands import CommandFailed, Runner
from .._host._files import Files
from .._host_state import _driver, _kernel_log
from .._plan import Failure
from . import _users
from ._kernel import tree_of

#: Dependents first. Names as the kernel has them.
UNLOAD_ORDER = (
    "nvidia_drm",
    "nvidia_modeset",
    "nvidia_uvm",
    "nvidia_peermem",
    "nv_peer_mem",
    "nvidia_fs",
    "gdrdrv",
    "nvidia_vgpu_vfio",
    "nvidia",
)
#: What the others need first.
LOAD_ORDER = (
    "nvidia",
    "nvidia_uvm",
    "nvidia_modeset",
    "nvidia_drm",
    "nvidia_peermem",
    "gdrdrv",
    "nvidia_fs",
)
#: Modules of the kernel that NVIDIA's uses where they are there.
SOFT = ("i2c_core", "ipmi_msghandler", "ipmi_devintf")
#: Modules that a module of ours cannot be loaded without, though nothing loads them by itself.
NEEDS = {"nvidia_peermem": ("ib_core",)}

_MODPROBE_TIME = 180.0  # seconds: loading starts every GPU
_RMMOD_TIME = 120.0
# Causes that the kernel's log tells when modprobe only says that there is no such device.
_CAUSES = ("needs_open", "needs_proprietary", "bound", "not_probed", "bar", "init", "lost", "signature", "other_kernel")


@dataclass(frozen=True)
class Loaded:
    """A module in the running kernel. ``refcnt`` is -1 where the kernel does not count; ``holders``: modules on it."""

    version: str
    refcnt: int
    holders: Tuple[str, ...] = ()

    @property
    def users(self) -> int:
        """How many uses are no other module's: open files, and the kernel's own, such as a console."""
        return max(0, self.refcnt - len(self.holders))


def plain(name: str) -> str:
    """A module's name as the kernel has it; Debian's own packages say current in theirs."""
    kernel = name.replace("-", "_")
    return re.sub(r"\Anvidia_current(_open)?", "nvidia", kernel)


def loaded(files: Files) -> Dict[str, Loaded]:
    """NVIDIA's modules that are loaded, and those that stand on them, by the kernel's name."""
    tree = tree_of(files)
    listed = {each.name: each for each in _driver.modules(tree)}
    found: Dict[str, Loaded] = {}
    for name in UNLOAD_ORDER:
        for real in (name, name.replace("nvidia", "nvidia_current", 1)):
            folder = f"/sys/module/{real}"
            known = listed.get(real)
            if known is None and tree.kind(folder) != "folder":
                continue
            count = known.references if known and known.references >= 0 else tree.number(f"{folder}/refcnt")
            holders = {*(known.used_by if known else ()), *tree.names(f"{folder}/holders")}
            found[real] = Loaded(tree.text(f"{folder}/version"), count, tuple(sorted(holders)))
    return found


def order_of(names: Mapping[str, Loaded]) -> List[str]:
    """Those that are loaded, in the order in which they can go."""
    return sorted(names, key=lambda name: UNLOAD_ORDER.index(plain(name)))


def strangers(found: Mapping[str, Loaded]) -> List[str]:
    """Modules that nobody here knows, and that stand on NVIDIA's."""
    return sorted({each for module in found.values() for each in module.holders} - set(found))


def used(found: Mapping[str, Loaded]) -> List[str]:
    """Modules that something other than a module uses."""
    return [name for name in order_of(found) if found[name].users > 0]


def unload(runner: Runner, files: Files) -> List[str]:
    """Unload all of them. Returns their names in order.

    Raises Failure where one is in use: before anything is unloaded if that can be seen, and else with all loaded again
    that was unloaded (``done`` of the failure where that did not work).
    """
    found = loaded(files)
    _refuse_used(files, found)
    gone: List[str] = []
    for name in order_of(found):
        try:
            runner.run(["rmmod", name], timeout=_RMMOD_TIME)
        except CommandFailed as failure:
            raise _stays(runner, files, name, gone, failure.how.words()) from None
        if name in loaded(files):
            raise _stays(runner, files, name, gone, "rmmod ended well, and it is still there")
        gone.append(name)
    return gone


def _refuse_used(files: Files, found: Mapping[str, Loaded]) -> None:
    unknown = strangers(found)
    if unknown:
        on = ", ".join(unknown)
        raise Failure(
            f"The kernel module {on} stands on NVIDIA's and is none that is known here, so nothing was unloaded. "
            f"Unload it by hand (rmmod {unknown[0]}), then run again, or reboot the host."
        )
    busy = used(found)
    if busy:
        raise Failure(f"{_who(files, busy, found)} Nothing was unloaded.")


def _who(files: Files, busy: Sequence[str], found: Mapping[str, Loaded]) -> str:
    """Who uses modules, and what to do."""
    there = _users.users(files)
    counts = ", ".join(f"{name} {found[name].users}" for name in busy)
    if there:
        return f"Kernel modules are in use ({counts}) by {_users.told(there)}. {_users.hint(there)}"
    what = "a console on the GPU" if plain(busy[0]) == "nvidia_drm" else "persistence mode, a console, or a container"
    return (
        f"Kernel modules are in use ({counts}), and no process with a GPU's file open is seen: {what} may hold them. "
        "Switch persistence mode off (nvidia-smi -pm 0), or reboot the host."
    )


def _stays(runner: Runner, files: Files, name: str, gone: Sequence[str], why: str) -> Failure:
    """A module did not go. What went before it is loaded again, so that the host works on as it did."""
    found = loaded(files)
    who = _who(files, [name], found) if name in found and found[name].users else f"{why}."
    head = f"The kernel module {name} could not be unloaded. {who}"
    if not gone:
        return Failure(f"{head} Nothing was unloaded.")
    try:
        load(runner, files, [plain(each) for each in gone])
    except Failure as failure:
        return Failure(f"{head} Unloaded, and not loaded again: {', '.join(gone)}. {failure.msg}", done=gone)
    return Failure(f"{head} What had been unloaded is loaded again: {', '.join(gone)}.")


def load(runner: Runner, files: Files, wanted: Sequence[str]) -> List[str]:
    """Load modules, in the order in which they need each other; ``nvidia`` always first. Returns those loaded now.

    Raises Failure with the cause where modprobe or the kernel's log tells it.
    """
    there = {plain(name) for name in loaded(files)}
    asked = {plain(name) for name in wanted}
    names = [name for name in LOAD_ORDER if name == "nvidia" or name in asked]
    names += sorted(asked - set(LOAD_ORDER))
    made: List[str] = []
    for name in names:
        if name in there:
            continue
        if name == "nvidia":
            for soft in SOFT:
                runner.run(["modprobe", "--quiet", soft], check=False, timeout=30.0)
        _load_one(runner, files, name, made)
        made.append(name)
    return made


def _load_one(runner: Runner, files: Files, name: str, made: Sequence[str]) -> None:
    lacking = [each for each in NEEDS.get(name, ()) if not files.exists(f"/sys/module/{each}")]
    had = f" Loaded before it: {', '.join(made)}." if made else ""
    if lacking:
        raise Failure(
            f"The kernel module {name} needs {', '.join(lacking)}, which is not loaded.{had} Load the drivers of the "
            "InfiniBand or RoCE adapters first (inbox mlx5_core, or DOCA-OFED), or ask for DMA-BUF instead of peermem.",
            done=made,
        )
    try:
        runner.run(["modprobe", name.replace("_", "-")], timeout=_MODPROBE_TIME)
    except CommandFailed as failure:
        cause = _cause(files, failure)
        raise Failure(f"The kernel module {name} could not be loaded: {cause}{had}", done=made) from None
    if name not in {plain(each) for each in loaded(files)}:
        raise Failure(
            f"modprobe {name} ended well, and the kernel does not have the module. A line `install {name}` or a "
            f"blacklist in /etc/modprobe.d may turn it off: look at `modprobe --showconfig`.{had}",
            done=made,
        )


def _cause(files: Files, failure: CommandFailed) -> str:
    """Why a module was not loaded and what to do: modprobe's words, or what the kernel's log has beside them."""
    words = failure.how.words() if failure.how.rc >= 0 else failure.msg
    said = _kernel_log.classify(words)
    if said is None or said.kind == "no_device":
        logged = [one for one in _kernel_log.read(tree_of(files)) if one.kind in _CAUSES]
        said = logged[-1] if logged else said
    return f"{said.cause} ({words.rstrip('.')}). {said.remedy}" if said else f"{words.rstrip('.')}."


def nodes(runner: Runner, files: Files, gpus: int) -> List[str]:
    """Have the device files made, which no module makes by itself. Returns those that are not there afterwards.

    ``nvidia-modprobe`` comes with the driver; without it the first program of root makes them.
    """
    wanted = ["/dev/nvidiactl", *(f"/dev/nvidia{minor}" for minor in range(gpus)), "/dev/nvidia-uvm"]
    missing = [path for path in wanted if not files.exists(path)]
    program = "/usr/bin/nvidia-modprobe"
    if missing and files.exists(program):
        for minor in [255, *range(gpus)]:
            runner.run([program, "-c", str(minor)], check=False, timeout=60.0)
        runner.run([program, "-u", "-c", "0"], check=False, timeout=60.0)
    return [path for path in wanted if not files.exists(path)]
