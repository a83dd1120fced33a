# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands on the driver and is judged with it as one set: as its module is asked, else as it is on the host. Pure.

beside, wrong = read({"cuda_toolkit": {"version": "13.0", "accept": []}})
set_of(FitSet(driver="535"), found, beside) -> FitSet(driver="535", cuda="13.0", dcgm="4.5.1", ...)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .._host import _accept
from .._host._package_set import plain
from .._matrix import CUDA_MINOR, FitSet, Matrix, Verdict, branch_of, judge, version_key
from .._plan import ERROR, WARNING, Finding
from ._found import HostFound

LATEST = "latest"
TOOLKIT, CUDA, DCGM = "container_toolkit", "cuda_toolkit", "dcgm_exporter"
#: Name in a FitSet -> the module that brings it.
MODULES = {"toolkit": TOOLKIT, "cuda": CUDA, "dcgm": DCGM}
_VARIABLES = {TOOLKIT: "container_toolkit_version", CUDA: "cuda_toolkit_version", DCGM: "dcgm_exporter_dcgm_version"}
_TOOLKIT = ("nvidia-container-toolkit", "libnvidia-container")
_DCGM = ("datacenter-gpu-manager-4-core", "datacenter-gpu-manager")  # of DCGM 4, and before
_BY_DRIVER = ("cuda_newer_than_driver", "cuda_unknown", "dcgm_too_old", "driver_too_old")  # another driver may do


@dataclass(frozen=True)
class Part:
    """What a module is asked: ``version`` "" keeps what is there, ``latest`` is known by the module only; ``accept``:
    its words."""

    version: str = ""
    accept: Tuple[str, ...] = ()


def read(given: Optional[Mapping[str, Any]]) -> Tuple[Optional[Dict[str, Part]], List[Finding]]:
    """The option ``beside``: module -> what it is asked, without those that are asked nothing; and what is wrong."""
    if given is None:
        return None, []
    parts, wrong = {}, []
    for module in MODULES.values():
        asked = given.get(module) or {}
        if asked.get("version") is not None:
            parts[module] = Part(str(asked["version"]), tuple(asked.get("accept") or ()))
            wrong += _version(module, parts[module].version)
            wrong += _accept.unknown(module, parts[module].accept, f"beside.{module}.accept")
    return parts, wrong


def _version(module: str, version: str) -> List[Finding]:
    if module == CUDA:
        fits, allowed = bool(CUDA_MINOR.match(version)), "a CUDA minor such as 13.0, as a text"
    else:
        fits = version in ("", LATEST) or bool(_key(version))
        allowed = f"a version such as {'4.5.1' if module == DCGM else '1.18.1'}, latest, and nothing"
    detail = f"{version!r} is no version of {module}; allowed is {allowed}"
    remedy = f"Set {_VARIABLES[module]}, where the roles are used"
    return [] if fits else [Finding("no_version", ERROR, detail, path=f"beside.{module}.version", remedy=remedy)]


def _key(version: str) -> Tuple[int, ...]:
    """A package's version as numbers; () where it is none."""
    try:
        return version_key(plain(version))
    except ValueError:
        return ()


def set_of(alone: FitSet, found: HostFound, beside: Optional[Mapping[str, Part]]) -> FitSet:
    """The driver's own set with what stands on it; alone, where ``beside`` is None."""
    if beside is None:
        return alone
    there = {name: plain(version) for name, version in found.installed.items() if _key(version)}
    asked = {module: part.version for module, part in beside.items()}
    return replace(
        alone,
        toolkit=_toolkit(there, asked.get(TOOLKIT)),
        cuda=asked.get(CUDA, found.cuda),
        dcgm=_dcgm(there, asked.get(DCGM)),
    )


def _toolkit(there: Mapping[str, str], asked: Optional[str]) -> Dict[str, str]:
    """Its module gives all packages one version, where none is said the newest that is there."""
    found = {name: one for name, one in there.items() if name.startswith(_TOOLKIT)}
    if asked is None:
        return found
    version = asked or max(found.values(), key=version_key, default="")
    return {} if version in ("", LATEST) else {_TOOLKIT[0]: plain(version)}


def _dcgm(there: Mapping[str, str], asked: Optional[str]) -> str:
    """Its module exchanges an older one for DCGM 4, where no version is said."""
    names = _DCGM if asked is None else _DCGM[:1]
    version = asked or next((there[name] for name in names if name in there), "")
    return "" if version == LATEST else plain(version)


def finding(verdict: Verdict, beside: Mapping[str, Part], stands: bool, path: str) -> Finding:
    """A verdict on what stands on the driver. ``stands``: it is so already; ``path``: the option that says which
    driver."""
    module, row = MODULES[verdict.part], f"The matrix says: {verdict.row}"
    part = beside.get(module)
    if part:
        severity = WARNING if verdict.accept in part.accept else verdict.severity
        driver = ", or nvidia_driver for another driver" if verdict.id in _BY_DRIVER else ""
        accept = f", or have {module} accept {verdict.accept}" if verdict.accept else ""
        remedy = f"Ask {module} for another version{driver}{accept}. {row}"
        where = f"beside.{module}.version"
        return Finding(verdict.id, severity, verdict.message, path=where, remedy=remedy, accept=verdict.accept)
    detail = f"{verdict.message} (it is on this host, and nobody asks for another)"
    if stands or verdict.severity != ERROR:
        return Finding(verdict.id, WARNING, detail, path=path, remedy=row)
    remedy = f"Ask for another driver, or accept left_behind: it stays, and does not work with this one. {row}"
    return Finding(verdict.id, ERROR, detail, path=path, remedy=remedy, accept="left_behind")


def standing(found: HostFound, architectures: Tuple[str, ...], matrix: Matrix, today: str) -> List[Tuple[str, str]]:
    """What does not fit as the host is now: ids and rows, since messages name the driver's version."""
    driver = found.version or found.state.driver.version
    now = FitSet(driver=driver if branch_of(driver) else "", architectures=architectures)
    return [(one.id, one.row) for one in judge(set_of(now, found, {}), matrix, today)]
