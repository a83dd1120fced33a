# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All parts of a host's state together: read once, joined, and looked over for what does not fit."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._gpu import _inventory
from .._gpu._inventory import Card, Session
from .._gpu._nvml import Nvml, Opener
from .._host._commands import CommandFailed, Runner
from .._plan import Finding
from . import _cdi, _driver, _findings, _holders, _join, _kernel_log, _packages, _pci, _runtimes, _smi, _system
from ._shape import DriverState, Found, Smi
from ._tree import Problems, Tree

_NOT_RUNNABLE = 126


class Host:
    """The files below ``root``, and what is asked beside them.

    ``asks``: whether NVML and nvidia-smi are asked; by default where the files are those of the running machine.
    """

    def __init__(self, root: str = "/", pynvml: str = "", timeout: float = 20.0, asks: Optional[bool] = None) -> None:
        self.tree = Tree(root, "host", Problems())
        self.opener: Opener = lambda: Nvml(pynvml)
        self.timeout = timeout
        self.runner = Runner()
        self.asks = self.tree.live if asks is None else asks

    def command(self, argv: Sequence[str], timeout: float) -> Tuple[int, str]:
        """Exit code and output; OSError when the program is not there or does not end in time."""
        try:
            done = self.runner.run(argv, check=False, timeout=timeout)
        except CommandFailed as error:
            raise OSError(0, error.msg) from None
        return done.rc, done.out


def collect(host: Host) -> Tuple[Found, List[Finding]]:
    """The state and what a person should know of it. Never raises on what the host has."""
    tree = host.tree
    uname = (platform.release(), platform.machine()) if tree.live else ("", "")
    system = _system.read(tree, *uname)
    pci = _pci.read(tree)
    files = _driver.on_disk(tree, system.kernel, host.command)
    session, cards = _nvml(host)
    smi, rows = _nvidia_smi(host, files.nvidia_smi, session)
    gpus = _join.gpus(pci.gpus, _driver.processors(tree), cards, rows)
    bound: Dict[str, List[str]] = {}
    for gpu in pci.gpus:
        bound.setdefault(gpu.driver, []).append(gpu.bus_id)
    found = Found(
        system,
        gpus,
        pci.switches,
        pci.nvlink5,
        _join.needs(gpus, len(pci.switches), len(pci.nvlink5)),
        _driver_state(_driver.loaded(tree), files, session, smi),
        session,
        smi,
        _join.processes(_holders.read(tree, system.sees_all_processes), cards, gpus),
        _runtimes.read(tree),
        _cdi.read(tree),
        _kernel_log.read(tree),
    )
    found.driver.packages = _packages.read(tree, host.command)
    found.driver.rivals = _driver.rivals(tree, bound, system.kernel_options)
    found.problems = tree.problems.listed()
    return found, _findings.look(found)


def as_dict(found: Found) -> Dict[str, Any]:
    """Plain data."""
    return asdict(found)


def _nvml(host: Host) -> Tuple[Session, List[Card]]:
    if not host.asks:
        return Session("not_asked", "the files are not those of the running machine"), []
    session, cards = _inventory.read(host.opener, host.tree.problems.add)
    if session.state != _inventory.OK:
        host.tree.problems.add("nvml", "", session.why, session.remedy)
    return session, cards


def _nvidia_smi(host: Host, path: str, session: Session) -> Tuple[Smi, List[Mapping[str, str]]]:
    """nvidia-smi's answer, asked for only where NVML could not be."""
    smi = Smi(path)
    if not host.asks or session.state == _inventory.OK or not path:
        return smi, []
    rows: List[Mapping[str, str]] = []
    try:
        done = host.runner.run([path, *_smi.QUERY], check=False, timeout=host.timeout)
    except (CommandFailed, OSError):
        ended = _smi.LATE if os.access(path, os.X_OK) else _smi.verdict(_NOT_RUNNABLE, "")
    else:
        ended = _smi.verdict(done.rc, done.out, done.err)
        rows = list(_smi.gpus(done.out)) if done.rc == 0 else []
    smi.state, smi.why, smi.remedy = ended.state, ended.meaning, ended.remedy
    return smi, rows


def _driver_state(loaded: _driver.Loaded, files: _driver.OnDisk, session: Session, smi: Smi) -> DriverState:
    state = DriverState(
        version=loaded.version or session.driver_version,
        flavour=loaded.flavour,
        source_version=loaded.source_version,
        references=loaded.references,
        holders=loaded.holders,
        modules=loaded.modules,
        parameters=loaded.parameters,
        module_files=files.modules,
        libraries=files.libraries,
        firmware=files.firmware,
        kernels=files.kernels,
        runfile=files.runfile,
    )
    state.state, state.why = _state(state, session, smi)
    return state


def _state(driver: DriverState, session: Session, smi: Smi) -> Tuple[str, str]:
    """The truth is a loaded module and a driver that answers; files alone are no driver (P041)."""
    answers = [one for one in (session.state, smi.state) if one != "not_asked"]
    libraries = {library.version for library in driver.libraries}
    if "ok" in answers:
        return "ready", ""
    if "mismatch" in answers:
        return "mismatch", session.why if session.state == "mismatch" else smi.why
    if driver.version:
        if libraries and driver.version not in libraries:
            return "mismatch", f"{driver.version} is loaded, libraries are {', '.join(sorted(libraries))}"
        if "no_pynvml" not in answers and answers:
            return "failed", session.why or smi.why
        return "loaded", "NVML could not be asked"
    if any(file.running for file in driver.module_files):
        return "not_loaded", "a module for the running kernel is on disk, and none is loaded"
    if driver.module_files or libraries:
        return "files_only", "files of a driver are there, and no module for the running kernel"
    return "absent", ""
