# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/versions.md, from the matrix and the catalogue of driver packages; `scripts/render-docs` writes it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from ansible_collections.gpufleet.nvidia.plugins.module_utils import _matrix as matrix
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _catalog as catalog
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._types import (
    COMPANIONS,
    SOURCES,
    System,
    Wanted,
)

Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], str]

_RHEL = ("rhel", "centos", "fedora")
_EL9 = "5.14.0-427.13.1.el9_4.x86_64"
SYSTEMS: tuple[tuple[str, System], ...] = (
    ("Ubuntu 22.04", System("ubuntu", "22.04", (), "x86_64", "5.15.0-122-generic", "apt")),
    ("Ubuntu 24.04", System("ubuntu", "24.04", (), "x86_64", "6.8.0-45-generic", "apt")),
    ("Ubuntu 26.04", System("ubuntu", "26.04", (), "x86_64", "7.0.0-14-generic", "apt")),
    ("Debian 12", System("debian", "12", (), "x86_64", "6.1.0-40-amd64", "apt")),
    ("Debian 13", System("debian", "13", (), "x86_64", "6.12.48-amd64", "apt")),
    ("Rocky Linux 8", System("rocky", "8.10", _RHEL, "x86_64", "4.18.0-553.el8_10.x86_64", "dnf")),
    ("RHEL 9", System("rhel", "9.4", (), "x86_64", _EL9, "dnf")),
    ("AlmaLinux 9", System("almalinux", "9.4", _RHEL, "x86_64", _EL9, "dnf")),
    ("Rocky Linux 9", System("rocky", "9.4", _RHEL, "x86_64", _EL9, "dnf")),
    ("Oracle Linux 9", System("ol", "9.4", (), "x86_64", _EL9, "dnf")),
    ("RHEL 10", System("rhel", "10.0", (), "x86_64", "6.12.0-55.9.1.el10_0.x86_64", "dnf")),
    ("Fedora", System("fedora", "42", (), "x86_64", "6.16.9-200.fc42.x86_64", "dnf")),
    ("Amazon Linux 2023", System("amzn", "2023", (), "x86_64", "6.1.153-175.280.amzn2023.x86_64", "dnf")),
    ("Azure Linux 3", System("azurelinux", "3.0", (), "x86_64", "6.6.96.1-1.azl3", "dnf")),
    ("SLES 15", System("sles", "15.6", ("suse",), "x86_64", "6.4.0-150600.23.25-default", "zypper")),
    ("SLES 16", System("sles", "16.0", ("suse",), "x86_64", "6.12.0-160000.5-default", "zypper")),
)
IMAGES = ("flatcar", "talos", "bottlerocket", "cos", "rhcos", "fedora-coreos")
GPUS = tuple(name for name in matrix.ARCHITECTURES if name not in ("pre-fermi", "fermi", "thor"))
BRANCHES = tuple(number for number in matrix.BRANCHES if number >= 470)

INTRO = f"""# Versions that fit together

What the collection knows of versions, with the source of each row, as of {matrix.AS_OF}. A set that does not fit is
refused with the row that says so. Rows of your own go into the option `matrix` of nvidia_driver.

*support list*: NVIDIA's supported drivers and CUDA toolkit versions. *guide*: NVIDIA's driver installation guide.
*operator*: the platform page of the GPU Operator. *PCI list*: the public list of PCI ids. *images*: sources of NVIDIA's
driver containers. *CUDA pages*: NVIDIA's pages on CUDA compatibility. *known*: told everywhere, not read in these.

"""


def page(table: Table, made_by: str) -> str:
    parts = [INTRO + made_by + "\n", "## Branches of the driver", "", _branches(table), ""]
    parts += [
        "## GPUs and branches",
        "",
        _GPU_NOTE,
        "",
        _gpus(table),
        "",
        "## CUDA",
        "",
        _CUDA_NOTE,
        "",
        _cuda(table),
        "",
    ]
    parts += ["## First driver of a product", "", _products(table), ""]
    parts += ["## Limits", "", _limits(table), "", "## DCGM", "", _dcgm(table), ""]
    parts += ["## Packages", "", _PACKAGES_NOTE, ""]
    for name, system in SYSTEMS:
        parts += [f"### {name}", "", _system(system, table), ""]
    parts += ["### Image-based systems", "", _images(table), "", "## Companions", "", _COMPANIONS_NOTE, ""]
    return "\n".join([*parts, _companions(table)]) + "\n"


_GPU_NOTE = "Kernel modules that drive a GPU with a branch: o open, p proprietary, empty: the branch does not drive it."
_CUDA_NOTE = (
    "A driver runs every CUDA up to its own. A newer minor of the same major runs from the minimum on, without what is "
    "new in it.\nCompilers of CUDA 13 make no code for Maxwell, Pascal and Volta."
)
_PACKAGES_NOTE = """\
For compute, without companions, on x86_64. `B` is the branch, `KERNEL` the kernel that will run. A row
holds for those of its GPUs that the branch drives with these modules: see above. On arm64 `libnvidia-fbc1` and, before
Ubuntu 26.04, the signatures package are not there, and EL 10 needs `unzboot`."""
_COMPANIONS_NOTE = (
    "Each has the driver's exact version, and is held with it; those with a star have numbers of their own."
)


def _branches(table: Table) -> str:
    header = ("branch", "type", "end of life", "CUDA", "GPUs", "kernel modules", "releases", "source")
    ends = {"": "-", matrix.PAST: "over", matrix.ENDED: "over, no longer made"}
    return table(
        header,
        [
            (
                str(one.number),
                one.kind,
                ends.get(one.end, one.end + (", over" if one.standing() == matrix.PAST else "")),
                one.cuda,
                f"{one.oldest} to {one.newest}",
                ", ".join(one.flavours),
                ", ".join(one.releases) or "-",
                one.source,
            )
            for one in matrix.BRANCHES.values()
        ],
    )


def _gpus(table: Table) -> str:
    def cell(branch: matrix.Branch, name: str) -> str:
        if not matrix.runs(branch, name):
            return ""
        return "/".join(one[0] for one in matrix.flavours_for(name) if one in branch.flavours)

    rows = [(str(one.number), *(cell(one, name) for name in GPUS)) for one in matrix.BRANCHES.values()]
    return table(("branch", *GPUS), rows)


def _cuda(table: Table) -> str:
    rows = [
        (row.minor, str(row.branch), ", ".join(row.shipped) or "-", row.minimum, row.source)
        for row in matrix.CUDA.values()
    ]
    return table(("CUDA", "branch", "drivers shipped with it", "minimum", "source"), rows)


def _products(table: Table) -> str:
    rows = [
        (row.name, row.architecture, row.capability, row.first, row.note or "-", row.source)
        for row in matrix.PRODUCTS.values()
    ]
    return table(("product", "architecture", "compute capability", "first driver", "note", "source"), rows)


def _limits(table: Table) -> str:
    rows = [(row.name, row.oldest, row.why, row.source) for row in matrix.LIMITS.values()]
    for host in matrix.HOSTS.values():
        rows.append((host.name, str(host.oldest), host.row().partition(": ")[2].rpartition(" [")[0], host.source))
    return table(("what", "from", "why", "source"), rows)


def _dcgm(table: Table) -> str:
    rows = [
        (row.version, ", ".join(str(one) for one in row.cuda), ", ".join(row.exporters), row.source)
        for row in matrix.DCGM.values()
    ]
    return table(("DCGM", "CUDA", "exporters", "source"), rows)


# -- packages ------------------------------------------------------------------------------------------------------


def _system(system: System, table: Table) -> str:
    """A row for each outcome, with every branch and GPU that has it; which of them go together the page says above."""
    found: dict[tuple[str, str, str], tuple[set[int], set[str]]] = {}
    for source, branch, gpu in product(SOURCES, BRANCHES, GPUS):
        for flavour in _flavours(branch, gpu):
            told = _outcome(system, Wanted(branch, "", flavour, source))
            branches, gpus = found.setdefault((source, *told), (set(), set()))
            branches.add(branch)
            gpus.add(gpu)
    rows: dict[tuple[str, ...], list[str]] = {}
    for (source, flavour, text), (branches, gpus) in found.items():
        rows.setdefault((_ranges(tuple(sorted(branches))), _span(gpus), flavour, text), []).append(source)
    header = ("source", "branches", "GPUs", "kernel modules", "packages, or why there are none")
    told = [f"- {note}" for note in _notes(system)]
    return "\n".join([table(header, [(", ".join(names), *row) for row, names in rows.items()]), "", *told])


def _notes(system: System) -> list[str]:
    """What every set of the system says, and what has to be enabled for it."""
    notes: dict[str, dict[str, None]] = {}
    for source, branch in product(catalog.sources(system), BRANCHES):
        for flavour in matrix.BRANCHES[branch].flavours:
            try:
                found = catalog.packages(system, Wanted(branch, "", flavour, source))
            except catalog.Refusal:
                continue
            needed = ", ".join(found.repositories)
            for note in (*found.notes, *([f"Repositories that have to be enabled: {needed}."] if needed else [])):
                notes.setdefault(note, {})[source] = None
    return [f"{', '.join(names)}: {note}" for note, names in notes.items()]


def _span(gpus: set[str]) -> str:
    names = [name for name in GPUS if name in gpus]
    return ", ".join(names) if len(names) < 3 else f"{names[0]} to {names[-1]}"


def _flavours(branch: int, gpu: str) -> list[str]:
    known = matrix.BRANCHES[branch]
    return [one for one in matrix.flavours_for(gpu) if one in known.flavours and matrix.runs(known, gpu)]


def _outcome(system: System, wanted: Wanted) -> tuple[str, str]:
    """Flavour, and the packages or the reason, without branch and kernel."""
    try:
        found = catalog.packages(system, wanted)
    except catalog.Refusal as why:
        flavour = wanted.flavour if why.id in ("signed_not_made", "precompiled_not_made") else "-"
        return flavour, f"refused: {why.message}".replace(f"not {wanted.branch}", "not B")
    text = " ".join(f"`{name}`" for name in found.names())
    if found.stream:
        text = f"stream `{found.stream}`; {text}"
    plain = system.kernel.removesuffix(f".{system.arch}").removesuffix("-default")
    text = text.replace(system.kernel, "KERNEL").replace(plain, "KERNEL")
    return wanted.flavour, text.replace(str(wanted.branch), "B")


def _ranges(branches: tuple[int, ...]) -> str:
    """515, 520, 525 -> 515 to 525, where no branch that is known lies between."""
    runs: list[list[int]] = []
    for number in branches:
        if runs and BRANCHES.index(number) == BRANCHES.index(runs[-1][-1]) + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _images(table: Table) -> str:
    return table(("system", "why there are none"), [(name, _refused(System(name, "1"))) for name in IMAGES])


def _refused(system: System) -> str:
    try:
        catalog.packages(system, Wanted(matrix.LAST_FOR_OLD_GPUS))
    except catalog.Refusal as why:
        return why.message
    raise AssertionError(f"{system.id} has packages")


def _companions(table: Table) -> str:
    by_name = dict(SYSTEMS)
    cases = [
        ("Debian and Ubuntu, NVIDIA's repository", by_name["Ubuntu 24.04"], "nvidia"),
        ("Ubuntu's archive", by_name["Ubuntu 24.04"], "distribution"),
        ("Debian's archive", by_name["Debian 12"], "distribution"),
        ("rpm, NVIDIA's repository", by_name["RHEL 9"], "nvidia"),
    ]
    rows = []
    for companion in COMPANIONS:
        for title, system, source in cases:
            found: dict[str, list[int]] = {}
            for branch in (one for one in BRANCHES if one >= 535):
                told = _companion(system, Wanted(branch, "", "open", source, companions=(companion,)))
                found.setdefault(told, []).append(branch)
            rows += [(companion, title, _ranges(tuple(branches)), told) for told, branches in found.items() if told]
    return table(("companion", "where", "branches", "packages, or why there are none"), rows)


def _companion(system: System, wanted: Wanted) -> str:
    try:
        found = catalog.packages(system, wanted)
    except catalog.Refusal as why:
        told = f"refused: {why.message}".replace(f"branch {wanted.branch}:", "branch B:")
        return "" if why.id == "no_branch_choice" else told
    own = [one for one in found.packages if one.role == "companion"]
    text = " ".join(f"`{one.name}`{'' if one.exact else '*'}" for one in own).replace(str(wanted.branch), "B")
    return text or "a part of the driver"
