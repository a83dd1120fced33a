# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specifications within a run: what the host has, the plan of ``_cdi``, and the units that keep them fresh."""

from __future__ import annotations

import os
import re
from typing import Any, Callable, List, Mapping, Optional, Sequence

from .._gpu._nvml import MissingPynvml, Nvml, NvmlError
from .._gpu._services import CDI as SERVICE
from .._host._commands import CommandFailed, Runner
from .._host._files import Files
from .._host._journal import Journal
from .._host._systemd import Units
from .._plan import ERROR, Action, Check, Failure
from . import _cdi, _cdi_units
from ._find import Target

_NUMBERS = re.compile(r"\b(\d+)\.(\d+)\.(\d+)")
_MODULES = ("nvidia.ko", "nvidia-current.ko")


class Specs:
    """The specifications of a host. Nothing is changed before ``carry_out``."""

    def __init__(
        self, files: Files, runner: Runner, progress: Callable[[str], None], given: Mapping[str, Any], path: str
    ) -> None:
        self._files, self._runner, self._progress = files, runner, progress
        texts = {key: str(given[key]) for key in ("output", "mode", "driver_root", "dev_root") if given.get(key)}
        lists = {key: tuple(given[key]) for key in ("strategies", "feature_flags", "disabled_hooks") if given.get(key)}
        self._wish = _cdi.Wish(program=path, **texts, **lists)  # type: ignore[arg-type]

    def prepare(self, targets: Sequence[Target]) -> None:
        """Look at the host and plan. The toolkit's program may not be there yet."""
        self._host = self._look(targets)
        self.plan = _cdi.plan(self._files, self._wish, self._host)
        self.plan.findings[:0] = _cdi.wrong(self._wish, "cdi_spec")
        self._units = _cdi_units.unit_changes(self._files, self.plan.argv, self.plan.output, self._systemd())

    def _look(self, targets: Sequence[Target]) -> _cdi.Host:
        version = (self._files.text("/sys/module/nvidia/version") or "").strip() or self._by_nvml()
        readers = {target.name: target.version for target in targets if target.version}
        toolkit = self._version([self._wish.program, "--version"])
        return _cdi.Host(
            version, bool(version) or self._installed(), self._uuids() if version else None, readers, toolkit
        )

    def _by_nvml(self) -> str:
        """The driver's version where its module is not this kernel's own (WSL, containers)."""
        try:
            with Nvml() as nvml:
                return str(nvml.system()["driver"])
        except (MissingPynvml, NvmlError):
            return ""

    def _version(self, argv: Sequence[str]) -> _cdi.Version:
        try:
            found = _NUMBERS.search(self._runner.run(argv, check=False, timeout=20).out)
        except CommandFailed:
            return ()
        return tuple(int(part) for part in found.groups()) if found else ()

    def _systemd(self) -> int:
        found = re.search(r"systemd (\d+)", self._runner.run(["systemctl", "--version"], check=False).out)
        return int(found.group(1)) if found else 0

    def _installed(self) -> bool:
        """Whether a driver is on the disk for the kernel that runs."""
        listed = self._files.text(f"/lib/modules/{os.uname().release}/modules.dep") or ""
        return any(os.path.basename(line.split(":")[0]).startswith(_MODULES) for line in listed.splitlines())

    def _uuids(self) -> Optional[List[str]]:
        """What can be named by UUID; None where NVML cannot be asked."""
        try:
            with Nvml() as nvml:
                gpus = [nvml.gpu(index) for index in range(int(nvml.call("nvmlDeviceGetCount")))]
                modes = [(gpu, nvml.mode(gpu)) for gpu in gpus]
                plain = [gpu.uuid for gpu, mode in modes if not (mode and mode.current)]
                sliced = [gpu for gpu, mode in modes if mode and mode.current]
                return plain + [device.uuid for gpu in sliced for device in nvml.mig_devices(gpu)]
        except (MissingPynvml, NvmlError):
            return None

    @property
    def toolkit(self) -> _cdi.Version:
        """Release of the toolkit; () where it is not there."""
        return self._host.toolkit

    def actions(self) -> List[Action]:
        """The plan's actions."""
        found = list(self.plan.actions)
        for number, (path, text) in enumerate(self._units.items()):
            verb = "delete" if text is None else "update" if self._files.exists(path) else "create"
            reason = "the toolkit brings its own" if text is None else "makes specifications anew after driver changes"
            found.append(Action(f"cdi-unit-{number}", verb, path, reason))
        return found

    def carry_out(self, journal: Journal) -> List[str]:
        """Make, judge, put in place. Returns ids of what was done. Raises Failure where a new one is refused."""
        done: List[str] = []
        if self.plan.make or self.plan.remove:
            made = _cdi.Made("", [])
            if self.plan.make:
                self._progress(f"making CDI specifications: {self.plan.make}")
                made = _cdi.generate(self._runner, self._files, self.plan, self._wish, self._host)
                refused = [one for one in made.findings if one.severity == ERROR]
                if refused:
                    raise Failure(refused[0].sentence())
            if not self._files.exists(self.plan.output):
                journal.note(note(self.plan.output), "")
            _cdi.put(self._files, self.plan, made.text)
            done += [action.id for action in self.plan.actions]
        if self._units:
            self._write_units(journal)
            done += [action.id for action in self.actions() if action.id.startswith("cdi-unit")]
        return done

    def _write_units(self, journal: Journal) -> None:
        units = Units(self._runner)
        for path, text in self._units.items():
            if text is None:
                units.disable(os.path.basename(path))
                journal.remove(path)
            else:
                journal.write(path, text)
        units.reload()
        if any(self._units.values()):
            units.enable(SERVICE)
            units.enable(_cdi_units.PATH_UNIT)
            units.start(_cdi_units.PATH_UNIT)

    def prove(self) -> List[Check]:
        """What is there now, by its own content."""
        if not self.plan.make:
            return []
        again = _cdi.plan(self._files, self._wish, self._host)
        return [Check("cdi-spec", not again.make, again.make or f"{again.output} fits the driver that is loaded")]


def note(path: str) -> str:
    """Key of the journal's note that a specification was not there before us."""
    return f"cdi:{path}"


def made_by_us(notes: Mapping[str, Any]) -> List[str]:
    """Specifications that the journal knows of."""
    return [key[len(note("")) :] for key in notes if key.startswith(note(""))]


def stop_units(files: Files, runner: Runner) -> bool:
    """Stop and disable units of ours, before their files are given back. Returns whether there were any."""
    units, ours = Units(runner), _cdi_units.our_units(files)
    for path in ours:
        units.stop(os.path.basename(path))
        units.disable(os.path.basename(path))
    return bool(ours)
