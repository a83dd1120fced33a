# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host as a folder, with programs that change it as the real ones do, and faults at any of its steps."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional, Union

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import CommandFailed, Done, unwatched
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root

from ..host_state.trees import grow, module_file

KERNEL = "6.8.0-45-generic"
VERSION = "580.95.05"
#: What stands on what.
NEEDS = {
    "nvidia_uvm": ("nvidia",),
    "nvidia_modeset": ("nvidia",),
    "nvidia_drm": ("nvidia_modeset", "nvidia"),
    "nvidia_peermem": ("nvidia", "ib_core"),
    "nvidia_fs": ("nvidia",),
    "gdrdrv": ("nvidia",),
    "nvidia_vgpu_vfio": ("nvidia",),
    "odd": ("nvidia",),
    "nova_drm": ("nova_core",),
}

Answer = Union[Done, Callable[[Sequence[str]], Optional[Done]]]


def said(out: str = "", rc: int = 0, err: str = "") -> Done:
    return Done([], rc, out, err)


class Machine:
    """The host, and the runner of its programs. ``answers``: by the first words of a command, what it says or does."""

    def __init__(self, root: Path, files: Mapping[str, str | bytes] | None = None) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        self.watch = unwatched
        self.answers: dict[str, Answer] = {}
        self.ran: list[str] = []
        self.stdin: list[str] = []
        self.modules: dict[str, int] = {}  # by name, uses that are no other module's
        grow(root, {"/proc/sys/kernel/osrelease": f"{KERNEL}\n", "/proc/modules": "", **(files or {})})

    @property
    def files(self) -> Files:
        return Files(Root(str(self.root)), self._watched)

    def _watched(self, moment: str, what: str) -> None:
        """The watch that is set when something happens, not the one that was when the files were asked for."""
        self.watch(moment, what)

    def text(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    # --- Programs ---------------------------------------------------------------------------------------------------

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        timeout: float = 60.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> Done:
        what = " ".join(argv)
        self.watch("before", what)
        self.ran.append(what)
        self.stdin.append(stdin)
        done = self._answer(list(argv))
        done.argv = list(argv)
        self.watch("after", what)
        if done.rc == 127:
            raise CommandFailed(f"`{argv[0]}` cannot be run on this host: No such file or directory.", done)
        if done.rc == -9:
            raise CommandFailed(f"`{what}` did not end within {timeout:g} s: {done.words()}", done)
        if check and done.rc:
            raise CommandFailed(f"`{what}` failed with status {done.rc}: {done.words()}", done)
        return done

    def _answer(self, argv: list[str]) -> Done:
        what = " ".join(argv)
        for words in sorted(self.answers, key=len, reverse=True):
            if what.startswith(words):
                given = self.answers[words]
                done = given(argv) if callable(given) else given
                if done is not None:
                    return Done(argv, done.rc, done.out, done.err)
        known = {"rmmod": self._rmmod, "modprobe": self._modprobe}.get(argv[0])
        return known(argv[1:]) if known else said(rc=127)

    def changes(self) -> list[str]:
        """What was run, without what only asks."""
        asks = ("systemctl show", "dkms status", "modinfo", "mokutil --test-key", "gcc")
        return [one for one in self.ran if not one.startswith(asks)]

    # --- Modules ----------------------------------------------------------------------------------------------------

    def load(self, **uses: int) -> Machine:
        """Have modules loaded, each with uses of its own."""
        self.modules.update(uses)
        self._show()
        return self

    def users_of(self, name: str) -> list[str]:
        return [one for one in self.modules if name in NEEDS.get(one, ())]

    def _rmmod(self, words: list[str]) -> Done:
        name = words[0]
        if name not in self.modules:
            return said(rc=1, err=f"rmmod: ERROR: Module {name} is not currently loaded\n")
        if self.users_of(name):
            return said(rc=1, err=f"rmmod: ERROR: Module {name} is in use by: {' '.join(self.users_of(name))}\n")
        if self.modules[name]:
            return said(rc=1, err=f"rmmod: ERROR: Module {name} is in use\n")
        del self.modules[name]
        self._show()
        return said()

    def _modprobe(self, words: list[str]) -> Done:
        if words[0] == "-r":
            return self._rmmod(words[1:])
        name = words[-1].replace("-", "_")
        if words[0] == "--quiet":
            return said(rc=1)
        lacking = [one for one in NEEDS.get(name, ()) if one not in self.modules and one.startswith("ib_")]
        if lacking:
            return said(rc=1, err=f"modprobe: ERROR: could not insert '{name}': Unknown symbol in module\n")
        for one in (*reversed(NEEDS.get(name, ())), name):
            self.modules.setdefault(one, 0)
        self._show()
        return said()

    def _show(self) -> None:
        lines = []
        folder = self.root / "sys/module"
        for old in folder.glob("*"):
            if old.name in (*NEEDS, "nvidia", "nouveau", "nova_core", "ib_core") and old.name not in self.modules:
                shutil.rmtree(old)
        for name, uses in self.modules.items():
            on_it = self.users_of(name)
            lines.append(f"{name} 1000 {uses + len(on_it)} {','.join(on_it) + ',' if on_it else '-'} Live 0x0 (O)")
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / "refcnt").write_text(f"{uses + len(on_it)}\n")
        (self.root / "proc/modules").write_text("\n".join(lines) + "\n")

    # --- What hosts have --------------------------------------------------------------------------------------------

    def process(self, pid: int, name: str, *opened: str, cgroup: str = "", state: str = "S") -> Machine:
        """A process with files open."""
        base = self.root / f"proc/{pid}"
        (base / "fd").mkdir(parents=True)
        for number, path in enumerate(opened or ("/dev/nvidia0",)):
            (base / f"fd/{number}").symlink_to(path)
        (base / "maps").write_text("")
        (base / "comm").write_text(f"{name}\n")
        (base / "stat").write_text(f"{pid} ({name}) {state} 1 1 1 0 -1")
        (base / "cgroup").write_text(f"0::{cgroup}\n")
        return self

    def module(self, name: str = "nvidia", version: str = VERSION, kernel: str = KERNEL, **fields: str) -> bytes:
        """A module file of the driver."""
        told = {"license": "Dual MIT/GPL", "version": version, "vermagic": f"{kernel} SMP preempt mod_unload "}
        return module_file(**{**told, "name": name, **fields})

    def put(self, path: str, content: bytes | str) -> Machine:
        grow(self.root, {path: content})
        return self


class Systemd:
    """Units of a machine, as systemctl tells of them and changes them: state, and whether they are masked."""

    def __init__(self, machine: Machine, **active: str) -> None:
        self.active = {f"{name.replace('_', '-')}.service": state for name, state in active.items()}
        self.masked: set[str] = set()
        self.broken: set[str] = set()
        self.slow: dict[str, int] = {}  # how often a unit is still activating when asked
        machine.answers["systemctl"] = self.answer
        machine.answers["journalctl"] = said(rc=1)

    def running(self) -> set[str]:
        return {name for name, state in self.active.items() if state == "active"}

    def answer(self, argv: Sequence[str]) -> Done:
        verb, units = argv[1], [word for word in argv[2:] if not word.startswith("--")]
        if verb == "show":
            return said("\n\n".join(self._show(unit) for unit in units))
        if verb in ("mask", "unmask"):
            (self.masked.update if verb == "mask" else self.masked.difference_update)(units)
            return said()
        unit = units[0]
        if verb == "start" and unit in self.masked:
            return said(rc=1, err=f"Failed to start {unit}: Unit {unit} is masked.")
        failed = verb == "start" and unit in self.broken
        self.active[unit] = "failed" if failed else "inactive" if verb == "stop" else "active"
        return said(rc=1, err=f"Job for {unit} failed.") if failed and "--no-block" not in argv else said()

    def _show(self, unit: str) -> str:
        active = self.active.get(unit, "inactive")
        if active == "active" and self.slow.get(unit, 0) > 0:
            self.slow[unit] -= 1
            active = "activating"
        load = "masked" if unit in self.masked else "loaded" if unit in self.active else "not-found"
        file = "masked-runtime" if unit in self.masked else "enabled"
        return f"LoadState={load}\nActiveState={active}\nSubState=\nUnitFileState={file}\nNeedDaemonReload=no"
