# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages DCGM is on a host, by driver and GPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, List, Mapping, Sequence, Tuple

from .._host._package_set import plain
from .._plan import ERROR, INFO, Finding

THREE = "datacenter-gpu-manager"
FOUR = "datacenter-gpu-manager-4"
CORE = f"{FOUR}-core"
CUDA = (11, 12, 13)
#: Profiling metrics of these come from a closed module in a package of its own.
WITH_CLOSED_MODULE = ("maxwell", "pascal", "volta", "turing", "ampere")
#: Every name, so that what is there of another major version or CUDA is seen.
EVERY = (
    THREE,
    CORE,
    *(f"{FOUR}-cuda{major}" for major in CUDA),
    f"{FOUR}-cuda-all",
    f"{FOUR}-proprietary",
    *(f"{FOUR}-proprietary-cuda{major}" for major in CUDA),
)


@dataclass(frozen=True)
class Choice:
    """``names`` to have in one version, ``leaves`` to go first."""

    names: Tuple[str, ...]
    leaves: Tuple[str, ...] = ()


def choose(
    cuda: int, architectures: Iterable[str], version: str, installed: Mapping[str, str], ours: Sequence[str] = ()
) -> Tuple[Choice, List[Finding]]:
    """``cuda``: major version that the driver runs, 0 where no driver tells; ``version`` as asked for; ``ours``:
    packages that came with us."""
    if plain(version).startswith("3."):
        return Choice((THREE,), tuple(name for name in EVERY if name != THREE and name in installed)), []
    major = cuda or _there(installed)
    if major not in CUDA:
        known = ", ".join(map(str, CUDA))
        detail = f"no driver tells which CUDA it runs, and DCGM comes for one of {known}"
        if cuda:
            detail = f"the driver runs CUDA {cuda}, and DCGM comes for one of {known}"
        remedy = "Install the driver first, give cuda_major, or leave packages alone (packages: none)"
        return Choice((CORE,)), [Finding("no_cuda", ERROR, detail, path="cuda_major", remedy=remedy)]
    names = [CORE]
    if f"{FOUR}-cuda-all" not in installed:
        names.append(f"{FOUR}-cuda{major}")
    if set(architectures) & set(WITH_CLOSED_MODULE):
        names += [f"{FOUR}-proprietary", f"{FOUR}-proprietary-cuda{major}"]
    # What is there besides keeps up: all of one version depend on the same core.
    names += [name for name in EVERY if name in installed and name not in (*names, THREE) and name not in ours]
    leaves = [name for name in EVERY if name in installed and name not in names]
    return Choice(tuple(names), tuple(leaves)), _told(installed)


def _there(installed: Mapping[str, str]) -> int:
    """The CUDA of what is installed."""
    return max((major for major in CUDA if f"{FOUR}-cuda{major}" in installed), default=0)


def _told(installed: Mapping[str, str]) -> List[Finding]:
    if THREE not in installed:
        return []
    detail = f"{THREE} {installed[THREE]} goes: DCGM 4 conflicts with it, and its library has another name"
    remedy = "Programs that were linked to libdcgm.so.3, exporters too, have to be replaced"
    return [Finding("dcgm_3", INFO, detail, target=THREE, remedy=remedy)]


def version_of(installed: Mapping[str, str]) -> Tuple[int, ...]:
    """DCGM's version as numbers; () without one."""
    text = plain(installed.get(CORE) or installed.get(THREE) or "")
    return tuple(int(part) for part in text.split(".") if part.isdigit())
