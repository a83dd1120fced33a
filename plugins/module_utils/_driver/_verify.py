# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end state, by other routes than those that made it: the package database, the module file, the running kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence

from .._host._commands import Runner
from .._host._files import Files
from .._host._packages import Manager
from .._host._systemd import Units
from .._plan import Check
from . import _kernel, _proof
from ._origin import of_driver, upstream
from ._plan import Packages


@dataclass(frozen=True)
class Wanted:
    """What has to hold. ``names``: packages of the driver, ``exact``: those of the catalogue; ``held``: whether they
    are; ``loaded``: whether the running kernel has to have it, too; ``units``: services that have to run where they are
    there."""

    version: str
    flavour: str
    kernel: str
    module: str
    names: Sequence[str]
    held: Sequence[str]
    loaded: bool
    fabric: bool
    units: Sequence[str] = ()
    exact: Sequence[str] = ()


def names_of(packages: Packages, installed: Sequence[str]) -> List[str]:
    """The driver's packages after a run."""
    there = dict.fromkeys([*installed, *packages.pins])
    return [name for name in there if name not in packages.remove]


def prove(wanted: Wanted, runner: Runner, files: Files, units: Units, manager: Manager) -> List[Check]:
    """Every check; the kernel is asked for what it has loaded only where it has to have the new driver."""
    checks = [_packages(wanted, manager), *_held(wanted, manager), _built(wanted, runner, files)]
    if wanted.loaded:
        checks += _proof.prove(runner, files, wanted.version, wanted.flavour, wanted.fabric)
        checks += _units(wanted, units)
    return checks


def _packages(wanted: Wanted, manager: Manager) -> Check:
    found = manager.installed(wanted.names)
    there = {**of_driver(found), **{name: found[name] for name in wanted.exact if name in found}}
    wrong = {name: version for name, version in there.items() if upstream(version) != wanted.version}
    told = ", ".join(f"{name} {version}" for name, version in wrong.items())
    return Check("packages.version", bool(there) and not wrong, told or f"{len(there)} packages of {wanted.version}")


def _held(wanted: Wanted, manager: Manager) -> List[Check]:
    if not wanted.held:
        return []
    held = manager.held(wanted.held)
    free = [name for name in wanted.held if name not in held]
    told = f"not held: {', '.join(free)}" if free else f"{len(wanted.held)} packages are held"
    return [Check("packages.held", not free, told)]


def _built(wanted: Wanted, runner: Runner, files: Files) -> Check:
    built = _kernel.installed(runner, files, wanted.kernel, wanted.module)
    wrong = _kernel.wrong_with(built, wanted.kernel, wanted.version, wanted.flavour)
    return Check("driver.module", not wrong, wrong or f"{built.file if built else ''} is {wanted.version}")


def _units(wanted: Wanted, units: Units) -> List[Check]:
    down = [one.name for one in units.states(list(wanted.units)) if one.exists and not one.running]
    told = f"not running: {', '.join(down)}" if down else f"{len(wanted.units)} services run"
    return [Check("driver.services", not down, told)] if wanted.units else []
