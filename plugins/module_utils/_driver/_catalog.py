# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of the driver: for a system and a wish, the set, or why there is none. Pure.

packages(System("ubuntu", "24.04"), choose(system, ["hopper"])).names() -> ("nvidia-driver-pinning-595", ...)
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence, Tuple

from .._matrix import (
    CURRENT,
    HOSTS,
    LATEST,
    MATRIX,
    OPEN_BY_DEFAULT,
    RELEASES,
    Branch,
    FitSet,
    Matrix,
    branch_of,
    judge,
    runs,
)
from ._sets import Package, PackageSet, Refusal
from ._sets_apt import debian, ubuntu
from ._sets_rpm import AMAZON, AZURE, EL, FEDORA, SIGNED, major, rpm, suse
from ._types import (
    DISTRIBUTION,
    FLAVOURS,
    IMMUTABLE,
    LOCAL,
    NVIDIA,
    OPEN,
    PRECOMPILED,
    PROPRIETARY,
    SOURCES,
    USES,
    System,
    Wanted,
)

__all__ = ["Package", "PackageSet", "Refusal", "choose", "packages", "sources"]

AUTO = "auto"
_UBUNTU, _DEBIAN, _SUSE = "ubuntu", "debian", "suse"
_OLDEST = 470  # names of older branches are not known

_IMAGES: Mapping[str, str] = {
    "flatcar": "Flatcar builds its driver at boot (NVIDIA_DRIVER_VERSION in /etc/flatcar/nvidia-metadata), or takes a "
    "signed system extension named in /etc/flatcar/enabled-sysext.conf",
    "talos": "on Talos the driver is a system extension of the image",
    "bottlerocket": "on Bottlerocket the driver is a part of the NVIDIA variant of the image",
    "cos": "on Container-Optimized OS the cloud's own installer brings the driver",
    "rhcos": "on RHEL CoreOS the driver comes as a container, from the cluster plane",
    "fedora-coreos": "on Fedora CoreOS a kernel module has to be layered, and is built for each image",
}
_SUPPORTED = (
    "Ubuntu 22.04, 24.04 and 26.04, Debian 12 and 13, EL 8 to 10, Fedora, Amazon Linux 2023, SUSE 15 and 16, "
    "Azure Linux 3 and 4"
)
_VERSIONS: Dict[str, Tuple[str, ...]] = {_UBUNTU: ("22.04", "24.04", "26.04"), _DEBIAN: ("12", "13")}
_MAJORS: Dict[str, range] = {
    EL: range(8, 11),
    _SUSE: range(15, 17),
    AZURE: range(3, 5),
    FEDORA: range(39, 100),
    AMAZON: range(2023, 2024),
}
_IDS = {
    "ubuntu": _UBUNTU,
    "debian": _DEBIAN,
    "fedora": FEDORA,
    "amzn": AMAZON,
    "azurelinux": AZURE,
    **dict.fromkeys(("rhel", "centos", "rocky", "almalinux", "ol"), EL),
    **dict.fromkeys(("sles", "sled", "sles_sap", "opensuse-leap"), _SUSE),
}


def sources(system: System) -> Tuple[str, ...]:
    """Sources that the system can have, the one that is chosen first first. () where packages are no way at all."""
    try:
        return _sources(system, _kind(system))
    except Refusal:
        return ()


def packages(system: System, wanted: Wanted, matrix: Matrix = MATRIX) -> PackageSet:
    """The set. Raises :class:`Refusal`. Whether the GPUs take the flavour is what :func:`choose` sees to."""
    kind = _kind(system)
    _check(system, kind, wanted, matrix)
    if kind == _UBUNTU:
        return ubuntu(system, wanted)
    if kind == _DEBIAN:
        return debian(system, wanted)
    return suse(system, wanted) if kind == _SUSE else rpm(system, wanted, kind)


def choose(
    system: System,
    architectures: Sequence[str],
    branch: int = 0,
    flavour: str = AUTO,
    source: str = AUTO,
    matrix: Matrix = MATRIX,
    today: str = "",
) -> Wanted:
    """The driver for the GPUs of a host: what is asked for, and the rest as it suits. Raises :class:`Refusal`.

    ``architectures``: as ``_matrix.architecture`` names them. A branch past its end is taken only where nothing else
    drives the GPUs, or where it is asked for: the judge of the matrix tells of it.
    """
    kind = _kind(system)
    if branch and branch not in matrix.branches:
        raise _unknown(branch, matrix)
    gpus = tuple(dict.fromkeys(architectures))
    _judged(FitSet(str(branch or ""), "" if flavour == AUTO else flavour, gpus), matrix, today)
    wishes = [
        Wanted(number, "", modules, one)
        for number in ([branch] if branch else _branches(gpus, matrix, today))
        for one in ([source] if source != AUTO else _sources(system, kind))
        for modules in _flavours(number, gpus, flavour, matrix)
        if one != LOCAL or source == LOCAL
    ]
    refused: List[Refusal] = []
    for wish in wishes:
        try:
            packages(system, wish, matrix)
        except Refusal as why:
            refused.append(why)
        else:
            return wish
    if refused:
        raise refused[0]
    raise Refusal("gpus_do_not_mix", f"no branch drives all of {', '.join(gpus)}", _rows(gpus, matrix))


# -- systems -------------------------------------------------------------------------------------------------------


def _kind(system: System) -> str:
    if system.family == IMMUTABLE or system.id in _IMAGES:
        told = _IMAGES.get(system.id, "its files belong to an image, and the driver has to come with that")
        raise Refusal("system_immutable", f"packages are not installed on {system.id or 'this system'}: {told}")
    kind = _IDS.get(system.id) or (EL if "rhel" in system.like and system.id not in _IDS else "")
    if not kind or not _is_supported(kind, system):
        name = " ".join(part for part in (system.id, system.version) if part) or "this system"
        raise Refusal("system_unknown", f"which packages {name} has is not known; known are {_SUPPORTED}")
    if system.arch not in ("x86_64", "aarch64"):
        arch = system.arch or "an architecture that nothing on this host tells"
        raise Refusal("system_unknown", f"there is no driver for {arch}; there are those for x86_64 and aarch64")
    return kind


def _is_supported(kind: str, system: System) -> bool:
    if kind in _VERSIONS:
        return system.version in _VERSIONS[kind]
    number = system.version.partition(".")[0]
    return number.isdigit() and int(number) in _MAJORS[kind]


def _sources(system: System, kind: str) -> Tuple[str, ...]:
    own = kind in (_UBUNTU, _DEBIAN, AMAZON, AZURE) or (kind == EL and system.id in SIGNED and major(system) > 8)
    prebuilt = kind in (_UBUNTU, AMAZON, _SUSE) or (kind == EL and major(system) < 10)
    has = {NVIDIA: True, DISTRIBUTION: own, PRECOMPILED: prebuilt, LOCAL: True}
    return tuple(name for name in (NVIDIA, DISTRIBUTION, PRECOMPILED, LOCAL) if has[name])


# -- what can be had -----------------------------------------------------------------------------------------------


def _unknown(branch: int, matrix: Matrix) -> Refusal:
    known = ", ".join(str(number) for number in sorted(matrix.branches) if number >= _OLDEST)
    return Refusal("branch_unknown", f"branch {branch} is not in the matrix; there are {known}", f"branches: {known}")


def _check(system: System, kind: str, wanted: Wanted, matrix: Matrix) -> None:
    if wanted.use not in USES or wanted.flavour not in FLAVOURS or wanted.source not in SOURCES:
        allowed = f"{', '.join(USES)}; {', '.join(FLAVOURS)}; {', '.join(SOURCES)}"
        raise Refusal("not_a_wish", f"{wanted.use}, {wanted.flavour}, {wanted.source}: allowed are {allowed}")
    if wanted.source not in _sources(system, kind):
        told = ", ".join(_sources(system, kind))
        message = f"{system.id} {system.version} has no source {wanted.source}; it has {told}"
        raise Refusal("source_not_here", message, f"{system.id} {system.version}: {told} [guide]")
    branch = matrix.branches.get(wanted.branch)
    if branch is None or branch.number < _OLDEST:
        raise _unknown(wanted.branch, matrix)
    _check_branch(system, wanted, branch)


def _check_branch(system: System, wanted: Wanted, branch: Branch) -> None:
    if wanted.version and branch_of(wanted.version) != branch.number:
        raise Refusal("version_of_other_branch", f"{wanted.version} is no version of branch {branch.number}")
    if wanted.flavour not in branch.flavours:
        message = f"branch {branch.number} has no {wanted.flavour} kernel modules"
        raise Refusal("flavour_not_made", message, branch.row())
    row = HOSTS.get(f"{system.id} {system.version}")
    if row is None:
        return
    oldest = row.repository if wanted.source in (NVIDIA, LOCAL) else row.oldest
    if branch.number < oldest:
        where = "NVIDIA's repository" if wanted.source in (NVIDIA, LOCAL) else "its own archive"
        message = f"{where} for {row.name} has branches from {oldest} on, not {branch.number}"
        raise Refusal("branch_not_made", message, row.row())


# -- what suits the GPUs -------------------------------------------------------------------------------------------

_OF_THE_GPUS = frozenset(
    (
        *("gpu_unknown", "gpu_without_driver", "gpu_too_old", "gpu_too_new"),
        *("gpus_do_not_mix", "flavour_does_not_fit", "flavour_not_made"),
    )
)


def _judged(wanted: FitSet, matrix: Matrix, today: str) -> None:
    for verdict in judge(wanted, matrix, today):
        if verdict.id in _OF_THE_GPUS:
            raise Refusal(verdict.id, verdict.message, verdict.row)


def _branches(gpus: Tuple[str, ...], matrix: Matrix, today: str) -> List[int]:
    """Branches that drive all GPUs, best first: living ones before others, the release's own, long support, newest."""
    usual = branch_of(RELEASES[LATEST].images["driver"][2])
    fits = [one for one in matrix.branches.values() if all(runs(one, name, matrix) for name in gpus)]

    def rank(one: Branch) -> Tuple[bool, bool, bool, int]:
        alive = one.standing(today) == CURRENT
        return (not alive, one.number != usual, one.kind not in ("LTSB", "PB"), -one.number)

    return [one.number for one in sorted(fits, key=rank)]


def _flavours(branch: int, gpus: Tuple[str, ...], flavour: str, matrix: Matrix) -> List[str]:
    """Those that branch and GPUs take, best first: the open ones from 560 on."""
    takes = [set(matrix.architectures[name].flavours) for name in gpus if name in matrix.architectures]
    fits = set(matrix.branches[branch].flavours).intersection(*takes)
    best = OPEN if branch >= OPEN_BY_DEFAULT else PROPRIETARY
    ordered = sorted(fits, key=lambda name: name != best)
    return [name for name in ordered if flavour in (AUTO, name)]


def _rows(gpus: Tuple[str, ...], matrix: Matrix) -> str:
    return "; ".join(matrix.architectures[name].row(name) for name in gpus)
