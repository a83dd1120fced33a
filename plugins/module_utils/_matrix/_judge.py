# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether versions fit together: a whole set is judged as one, and each verdict quotes the row that it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Callable, Iterator, List, Mapping, Optional, Tuple

from ._branches import ARCHITECTURES, BRANCHES, ENDED, GPUS, PAST, PROPRIETARY, Architecture, Branch
from ._releases import RELEASES, Release
from ._tables import CUDA, DCGM, FAMILIES, HOSTS, LIMITS, PRODUCTS, WITHOUT_CUDA_13, Cuda, Dcgm, Host, Limit, Product
from ._versions import branch_of, version_key, version_parts

ERROR = "error"
WARNING = "warning"

END_OF_LIFE = "end_of_life"


@dataclass(frozen=True)
class Matrix:
    """Every table; :func:`extended` makes one with a user's own rows."""

    branches: Mapping[int, Branch] = field(default_factory=lambda: BRANCHES)
    architectures: Mapping[str, Architecture] = field(default_factory=lambda: GPUS)
    cuda: Mapping[str, Cuda] = field(default_factory=lambda: CUDA)
    products: Mapping[str, Product] = field(default_factory=lambda: PRODUCTS)
    dcgm: Mapping[str, Dcgm] = field(default_factory=lambda: DCGM)
    limits: Mapping[str, Limit] = field(default_factory=lambda: LIMITS)
    hosts: Mapping[str, Host] = field(default_factory=lambda: HOSTS)
    releases: Mapping[str, Release] = field(default_factory=lambda: RELEASES)


MATRIX = Matrix()


@dataclass(frozen=True)
class Verdict:
    """What does not fit. ``row``: the line of the matrix that says so; ``accept``: "" where it cannot be accepted;
    ``part``: what does not fit the rest, by its name in :class:`FitSet`."""

    id: str
    severity: str
    message: str
    row: str
    accept: str = ""
    part: str = "driver"


@dataclass(frozen=True)
class FitSet:
    """Versions that are to work together; "" and () are no part of it. ``driver``: a full version or a branch.

    ``architectures`` as :data:`ARCHITECTURES` spells them, ``products`` as gpu_info gives them. ``toolkit``: each
    package with its version. ``os``: id and version, "ubuntu 26.04". ``gds`` is the version of nvidia-fs.
    """

    driver: str = ""
    flavour: str = ""
    architectures: Tuple[str, ...] = ()
    fabric_manager: str = ""
    imex: str = ""
    toolkit: Mapping[str, str] = field(default_factory=dict)
    cuda: str = ""
    plugin: str = ""
    dcgm: str = ""
    kubernetes: str = ""
    kernel: str = ""
    os: str = ""
    products: Tuple[str, ...] = ()
    gds: str = ""


Rule = Callable[[FitSet, Matrix, str], Iterator[Verdict]]


def judge(wanted: FitSet, matrix: Matrix = MATRIX, today: str = "") -> List[Verdict]:
    """Everything that speaks against the set on a day; [] where it fits. ``today`` "" is the day of the tables.

    Raises ValueError with the text where a version is none.
    """
    return [
        replace(verdict, part=part)
        for part, rules in _RULES
        for rule in rules
        for verdict in rule(wanted, matrix, today)
    ]


def runs(branch: Branch, architecture: str, matrix: Matrix = MATRIX) -> bool:
    """Whether a branch drives GPUs of an architecture."""
    known = matrix.architectures.get(architecture)
    if known is None or not known.flavours:
        return False
    places = [ARCHITECTURES.index(name) for name in (branch.oldest, architecture, branch.newest)]
    return places == sorted(places) and known.first <= branch.number <= (known.last or branch.number)


def product_named(name: str, matrix: Matrix = MATRIX) -> Optional[Product]:
    """The row of a product by the name that gpu_info gives: the longest that stands in it as words."""
    text = f" {name.replace('-', ' ')} "
    fits = [known for known in matrix.products if f" {known}{'' if known in FAMILIES else ' '}" in text]
    return matrix.products[max(fits, key=len)] if fits else None


# -- the driver ----------------------------------------------------------------------------------------------------


def _branch(wanted: FitSet, matrix: Matrix) -> Optional[Branch]:
    number = branch_of(wanted.driver)
    return matrix.branches.get(number) if number is not None else None


def _driver_is_known(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    if not wanted.driver:
        return
    number = branch_of(wanted.driver)
    if number is None:
        raise ValueError(f"{wanted.driver!r} is no version of the driver: those look like 580.95.05, or 580")
    branch = matrix.branches.get(number)
    known = ", ".join(str(one) for one in sorted(matrix.branches))
    if branch is None:
        yield Verdict(
            "branch_unknown", ERROR, f"driver {wanted.driver} is of branch {number}, which is not in the matrix",
            f"branches: {known}", "branch_unknown",
        )  # fmt: skip
        return
    standing = branch.standing(today)
    if standing in (PAST, ENDED):
        severity = ERROR if standing == ENDED else WARNING
        message = f"driver {wanted.driver}: branch {number} (CUDA {branch.cuda}) has reached its end of life"
        yield Verdict(END_OF_LIFE, severity, f"{message}; {_instead(wanted, matrix, today)}", branch.row(), END_OF_LIFE)


def _instead(wanted: FitSet, matrix: Matrix, today: str) -> str:
    """Living branches for the same GPUs, the one with the latest end first."""
    fits = [
        branch
        for branch in matrix.branches.values()
        if branch.standing(today) not in (PAST, ENDED)
        and branch.kind in ("LTSB", "PB")
        and all(runs(branch, name, matrix) for name in wanted.architectures)
    ]
    if not fits:
        return "no branch that lives drives these GPUs: keep it, and accept that nobody mends it"
    names = [f"{branch.number} (until {branch.end})" for branch in sorted(fits, key=lambda one: one.end, reverse=True)]
    return f"use {' or '.join(names)}"


def _gpus(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    branch = _branch(wanted, matrix)
    for name in wanted.architectures:
        known = matrix.architectures.get(name)
        if known is None:
            told = f"architectures: {', '.join(matrix.architectures)}"
            yield Verdict("gpu_unknown", ERROR, f"{name!r} is no architecture that is known", told)
        elif not known.flavours:
            message = f"GPUs of {name} have a driver of their own, not one of these branches"
            yield Verdict("gpu_without_driver", ERROR, message, known.row(name))
        else:
            yield from _gpu(name, known, branch, matrix)


def _gpu(name: str, known: Architecture, branch: Optional[Branch], matrix: Matrix) -> Iterator[Verdict]:
    if branch is None or runs(branch, name, matrix):
        return
    if known.last and branch.number > known.last:
        message = f"branch {branch.number} no longer drives {name} GPUs: {known.last} is the last that does"
        yield Verdict("gpu_too_old", ERROR, message, known.row(name))
    else:
        first = f"{known.first} is the first that does" if known.first else "the newest branch may"
        message = f"branch {branch.number} does not know {name} GPUs yet: {first}"
        yield Verdict("gpu_too_new", ERROR, message, known.row(name))


def _products(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    for name in wanted.products:
        product = product_named(name, matrix)
        if product is None or not wanted.driver:
            continue
        first, driver = version_key(product.first), version_key(wanted.driver)
        if driver[: len(first)] < first[: len(driver)]:
            message = f"driver {wanted.driver} does not know the {name} yet: {product.first} is the first that does"
            yield Verdict("gpu_too_new", ERROR, message, product.row())


def _flavour(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    known = {name: matrix.architectures[name] for name in wanted.architectures if name in matrix.architectures}
    usable = {name: row for name, row in known.items() if row.flavours}
    only = {row.flavours[0]: (name, row) for name, row in usable.items() if len(row.flavours) == 1}
    if len(only) > 1:
        told = " and ".join(f"{name} needs the {flavour} modules" for flavour, (name, _row) in sorted(only.items()))
        rows = "; ".join(row.row(name) for _flavour_name, (name, row) in sorted(only.items()))
        yield Verdict("gpus_do_not_mix", ERROR, f"no driver is for all GPUs of this host: {told}", rows)
        return
    for flavour, (name, row) in only.items():
        if wanted.flavour and wanted.flavour != flavour:
            message = f"{name} GPUs need the {flavour} kernel modules, and {wanted.flavour} ones are wanted"
            yield Verdict("flavour_does_not_fit", ERROR, message, row.row(name))
    branch, comes_to = _branch(wanted, matrix), wanted.flavour or next(iter(only), "")
    if branch and comes_to and comes_to not in branch.flavours:
        message = f"branch {branch.number} has no {comes_to} kernel modules"
        yield Verdict("flavour_not_made", ERROR, message, branch.row())


def _companions(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    for name, version in (("fabric manager", wanted.fabric_manager), ("IMEX", wanted.imex)):
        if version and wanted.driver and not _same(version, wanted.driver):
            yield Verdict(
                f"{name.replace(' ', '_').lower()}_differs",
                ERROR,
                f"the {name} is of version {version}, the driver of {wanted.driver}: CUDA would fail with error 802",
                f"{name}: exactly the driver's version [guide]",
            )


def _same(version: str, driver: str) -> bool:
    """A branch, given for a version, is equal to each of its versions."""
    one, other = version_key(version), version_key(driver)
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter] if shorter == 1 else one == other


# -- CUDA ----------------------------------------------------------------------------------------------------------


def _cuda(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    if not wanted.cuda:
        return
    key = version_key(wanted.cuda)
    minor = ".".join(str(part) for part in key[:2])
    old = [name for name in wanted.architectures if name in WITHOUT_CUDA_13]
    if key >= (13,) and old:
        message = f"CUDA {wanted.cuda} makes no code for {', '.join(old)} GPUs; use CUDA 12.9 or older"
        yield Verdict("cuda_without_gpu", ERROR, message, f"CUDA 13: not for {', '.join(WITHOUT_CUDA_13)} [CUDA pages]")
    branch = _branch(wanted, matrix)
    if branch is None or version_key(branch.cuda) >= key[:2]:
        return
    yield _newer_cuda(wanted, branch, matrix.cuda.get(minor))


def _newer_cuda(wanted: FitSet, branch: Branch, row: Optional[Cuda]) -> Verdict:
    if row is None:
        message = f"CUDA {wanted.cuda} is not in the matrix, and driver {wanted.driver} runs CUDA up to {branch.cuda}"
        return Verdict("cuda_unknown", ERROR, message, branch.row(), "cuda_unknown")
    minimum, driver = version_key(row.minimum), version_key(wanted.driver)
    if driver[: len(minimum)] < minimum[: len(driver)]:
        message = (
            f"CUDA {wanted.cuda} needs driver {row.minimum} or newer, best branch {row.branch}; this is {wanted.driver}"
        )
        return Verdict("driver_too_old", ERROR, message, row.row())
    message = (
        f"CUDA {wanted.cuda} is newer than driver {wanted.driver} (up to {branch.cuda}): it runs, without what is new "
        "in it and without PTX of its own; a driver of branch "
    )
    return Verdict("cuda_newer_than_driver", WARNING, f"{message}{row.branch} has all of it", row.row())


# -- what stands on the driver -------------------------------------------------------------------------------------


def _toolkit(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    versions = {name: version_key(version) for name, version in wanted.toolkit.items() if version}
    if len(set(versions.values())) > 1:
        told = ", ".join(f"{name} {wanted.toolkit[name]}" for name in sorted(versions))
        rule = "container toolkit: all packages of one version [toolkit]"
        yield Verdict("toolkit_mixed", ERROR, f"the packages of the toolkit differ: {told}", rule)
    limit = matrix.limits["toolkit"]
    old = sorted(name for name, version in versions.items() if version < version_key(limit.oldest))
    if old:
        message = f"{', '.join(f'{name} {wanted.toolkit[name]}' for name in old)}: known to be insecure"
        yield Verdict("insecure_version", ERROR, message, limit.row(), "insecure_version")


def _dcgm(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    if not wanted.dcgm:
        return
    key = version_key(wanted.dcgm)
    row = matrix.dcgm.get(".".join(str(part) for part in key[:2]))
    branch = _branch(wanted, matrix)
    if row is None:
        told = f"DCGM: {', '.join(matrix.dcgm)}"
        yield Verdict("dcgm_unknown", WARNING, f"DCGM {wanted.dcgm} is not in the matrix", told, "dcgm_unknown")
    elif branch and version_key(branch.cuda)[0] not in row.cuda:
        message = f"DCGM {wanted.dcgm} has no part for CUDA {branch.cuda} of driver {wanted.driver}"
        yield Verdict("dcgm_too_old", ERROR, message, row.row(), "dcgm_too_old")


def _kubernetes(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    if not wanted.kubernetes:
        return
    parts = version_parts(wanted.kubernetes)[:2]
    minor, limit = ".".join(str(part) for part in parts), matrix.limits["kubernetes"]
    if parts < version_key(limit.oldest):
        message = f"Kubernetes {minor} is older than {limit.oldest}, the oldest that this collection works with"
        yield Verdict("kubernetes_too_old", ERROR, message, limit.row())
        return
    name = _release_of(wanted.plugin, matrix)
    if name and minor not in matrix.releases[name].kubernetes:
        validated = ", ".join(matrix.releases[name].kubernetes)
        message = f"Kubernetes {minor} is not among those that device plugin {wanted.plugin} was validated with"
        yield Verdict(
            "kubernetes_not_validated", WARNING, message, f"release {name}: Kubernetes {validated} [operator]"
        )


def _release_of(plugin: str, matrix: Matrix) -> str:
    """The release of the operator that has this device plugin, where its Kubernetes versions are known."""
    for name, release in matrix.releases.items():
        if plugin and release.kubernetes and version_parts(release.images["devicePlugin"][2]) == version_parts(plugin):
            return name
    return ""


def _kernel(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    limit = matrix.limits["open_kernel"]
    if not (wanted.kernel and wanted.driver and _opens(wanted, matrix)):
        return
    if version_key(wanted.kernel)[:2] < version_key(limit.oldest):
        message = f"kernel {wanted.kernel} is too old for the open kernel modules"
        yield Verdict("kernel_too_old", ERROR, message, limit.row())


def _opens(wanted: FitSet, matrix: Matrix) -> bool:
    """Whether it comes to the open modules: asked for, or nothing else drives the GPUs."""
    only = [matrix.architectures[name].flavours for name in wanted.architectures if name in matrix.architectures]
    return wanted.flavour == "open" or ("open",) in only


def _system(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    row, branch = matrix.hosts.get(wanted.os), _branch(wanted, matrix)
    if row is None or branch is None:
        return
    if branch.number < row.oldest:
        message = f"branch {branch.number} does not build on kernel {row.kernel} of {row.name}"
        yield Verdict("system_too_new", ERROR, message, row.row())
    elif branch.number < row.repository:
        message = f"branch {branch.number} is older than kernel {row.kernel} of {row.name}: see that its module builds"
        yield Verdict("driver_older_than_kernel", WARNING, message, row.row(), "driver_older_than_kernel")


def _gds(wanted: FitSet, matrix: Matrix, today: str) -> Iterator[Verdict]:
    limit = matrix.limits["gds"]
    if wanted.gds and wanted.flavour == PROPRIETARY and version_key(wanted.gds) >= version_key(limit.oldest):
        message = f"nvidia-fs {wanted.gds} needs the open kernel modules, and the proprietary ones are wanted"
        yield Verdict("gds_needs_open", ERROR, message, limit.row())


_RULES: Tuple[Tuple[str, Tuple[Rule, ...]], ...] = (
    ("driver", (_driver_is_known, _gpus, _products, _flavour, _companions)),
    ("cuda", (_cuda,)),
    ("toolkit", (_toolkit,)),
    ("dcgm", (_dcgm,)),
    ("kubernetes", (_kubernetes,)),
    ("driver", (_kernel, _system)),
    ("gds", (_gds,)),
)
