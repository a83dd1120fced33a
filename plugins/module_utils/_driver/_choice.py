# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which driver a host gets: what is asked for, else what is there and fits, else what suits its GPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import List, Mapping, Optional, Tuple

from .._host_state._driver import numbers
from .._matrix import FitSet, Matrix, architecture, extended, judge
from .._plan import ERROR, Finding
from . import _beside, _catalog
from ._catalog import PackageSet, Refusal
from ._found import HostFound
from ._origin import of_driver, upstream
from ._request import AUTO, Request
from ._types import FABRIC_MANAGER, FLAVOURS, IMEX, NSCQ, NVLSM, NVSDM, PERSISTENCED, Wanted

_PATHS = {"flavour": "flavour", "branch": "branch", "source": "source", "companion": "companions", "system": ""}


@dataclass
class Choice:
    """``wanted`` and ``packages`` are None where nothing could be chosen; then a finding says why."""

    wanted: Optional[Wanted] = None
    packages: Optional[PackageSet] = None
    findings: List[Finding] = field(default_factory=list)
    architectures: Tuple[str, ...] = ()


def choose(found: HostFound, request: Request, matrix: Matrix, today: str) -> Choice:
    """The driver that a host is to have, its version left open unless one is asked for."""
    result = Choice(architectures=_architectures(found))
    branch = request.branch or _branch(request.exact) or installed_branch(found)
    flavour = request.flavour if request.flavour != AUTO else _flavour_there(found, branch)
    source = request.source if request.source != AUTO else _source_there(found)
    try:
        wanted = _catalog.choose(found.system, result.architectures, branch, flavour, source, matrix, today)
        result.wanted = replace(
            wanted, version=request.exact, use=request.use, companions=companions(found, request.companions)
        )
        result.packages = _catalog.packages(found.system, result.wanted, matrix)
    except Refusal as refused:
        result.findings.append(_refused(refused))
    return result


def fits(found: HostFound, choice: Choice, request: Request, version: str, matrix: Matrix, today: str) -> List[Finding]:
    """What the matrix says on a day of the whole set: the driver, the host, and what is judged beside it."""
    wanted = choice.wanted
    if wanted is None:
        # Why none could be chosen is told already; what does not fit the one that is asked for is told all the same.
        asked = request.exact or str(request.branch or "")
        alone = FitSet(driver=asked, architectures=choice.architectures)
    else:
        alone = FitSet(
            driver=version or str(wanted.branch),
            flavour=wanted.flavour,
            architectures=choice.architectures,
            products=tuple(dict.fromkeys(gpu.product for gpu in found.gpus if gpu.product)),
            fabric_manager=version if FABRIC_MANAGER in wanted.companions else "",
            kernel=found.kernel,
            os=f"{found.system.id} {found.system.version}",
        )
    stands = _beside.standing(found, choice.architectures, matrix, today) if request.beside is not None else []
    path = "version" if request.exact else "branch"
    told = []
    for one in judge(_beside.set_of(alone, found, request.beside), matrix, today):
        if one.part in _beside.MODULES:
            told.append(_beside.finding(one, request.beside or {}, (one.id, one.row) in stands, path))
        elif wanted:
            remedy = f"The matrix says: {one.row}"
            told.append(Finding(one.id, one.severity, one.message, path="branch", remedy=remedy, accept=one.accept))
    return told


def matrix_of(request: Request) -> Tuple[Matrix, List[Finding]]:
    """The matrix with the user's own rows."""
    try:
        return extended(request.matrix), []
    except ValueError as error:
        return extended({}), [Finding("matrix", ERROR, str(error), path="matrix")]


def companions(found: HostFound, asked: Tuple[str, ...]) -> Tuple[str, ...]:
    """``auto`` is what the host's hardware needs."""
    if AUTO not in asked:
        return asked
    fabric = {"nvswitch": (FABRIC_MANAGER, NSCQ), "nvlink5": (FABRIC_MANAGER, NVLSM, NVSDM)}
    needed = (PERSISTENCED, *fabric.get(found.state.needs.fabric, ()), *((IMEX,) if found.multi_node else ()))
    return tuple(dict.fromkeys([*needed, *(one for one in asked if one != AUTO)]))


def installed_branch(found: HostFound) -> int:
    """The branch of the driver's packages that are there; 0 without any, or with several."""
    branches = {numbers(upstream(version))[0] for version in of_driver(found.installed).values()}
    return branches.pop() if len(branches) == 1 else 0


def _branch(version: str) -> int:
    return numbers(version)[0] if version else 0


def _architectures(found: HostFound) -> Tuple[str, ...]:
    return tuple(dict.fromkeys(architecture(gpu.architecture, gpu.flavour) for gpu in found.gpus))


def _flavour_there(found: HostFound, branch: int) -> str:
    """What is there and fits stays; a switch of flavour is for those who ask for it, or who change the branch."""
    there = {file.flavour for file in found.state.driver.module_files if file.kernel == found.kernel}
    if branch == installed_branch(found) and len(there) == 1 and found.state.needs.flavour == "either":
        flavour = there.pop()
        return flavour if flavour in FLAVOURS else AUTO
    return AUTO


def _source_there(found: HostFound) -> str:
    origins: Mapping[str, object] = found.origins
    there = [name for name in origins if name in _catalog.sources(found.system)]
    return there[0] if len(there) == 1 else AUTO


def _refused(refused: Refusal) -> Finding:
    path = next((path for part, path in _PATHS.items() if part in refused.id), "")
    row = f"The matrix says: {refused.row}" if refused.row else ""
    return Finding(refused.id, ERROR, refused.message, path=path, remedy=row)
