# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes with a driver, as data: CUDA, products, DCGM, the toolkit, Kubernetes, kernels, systems.

Sources are named as in ``_branches``; *CUDA pages* are NVIDIA's pages on CUDA compatibility, *toolkit* the release
notes and sources of the container toolkit, *DCGM* the sources of DCGM 4.6 and of its exporter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple


@dataclass(frozen=True)
class Cuda:
    """A CUDA minor. ``shipped``: drivers that came with it; ``minimum``: the oldest that runs it all the same."""

    minor: str
    shipped: Tuple[str, ...]
    minimum: str
    branch: int
    source: str

    def row(self) -> str:
        shipped = f", shipped with {', '.join(self.shipped)}" if self.shipped else ""
        return f"CUDA {self.minor}: branch {self.branch}{shipped}, runs from driver {self.minimum} on [{self.source}]"


CUDA: Dict[str, Cuda] = {
    one.minor: one
    for one in (
        Cuda("11.8", ("520.61.05",), "450.80.02", 520, "CUDA pages"),
        Cuda("12.0", ("525.60.13",), "525.60.13", 525, "CUDA pages"),
        Cuda("12.1", ("530.30.02",), "525.60.13", 530, "CUDA pages"),
        Cuda("12.2", ("535.54.03", "535.104.05"), "525.60.13", 535, "CUDA pages"),
        Cuda("12.3", ("545.23.06", "545.23.08"), "525.60.13", 545, "CUDA pages"),
        Cuda("12.4", ("550.54.14", "550.54.15"), "525.60.13", 550, "CUDA pages"),
        Cuda("12.5", ("555.42.02", "555.42.06"), "525.60.13", 555, "CUDA pages"),
        Cuda("12.6", ("560.28.03", "560.35.03", "560.35.05"), "525.60.13", 560, "CUDA pages"),
        Cuda("12.8", ("570.26", "570.124.06"), "525.60.13", 570, "CUDA pages"),
        Cuda("12.9", ("575.51.03", "575.57.08"), "525.60.13", 575, "CUDA pages"),
        Cuda("13.0", ("580.65.06", "580.82.07", "580.95.05"), "580", 580, "CUDA pages"),
        Cuda("13.1", ("590.44.01", "590.48.01"), "580", 590, "CUDA pages"),
        Cuda("13.2", ("595.45.04",), "580", 595, "CUDA pages"),
        Cuda("13.3", (), "580", 610, "inferred"),
        Cuda("13.4", (), "580", 615, "inferred"),
        Cuda("13.5", (), "580", 620, "inferred"),
    )
}
#: GPUs that the compilers of CUDA 13 no longer make code for.
WITHOUT_CUDA_13 = ("maxwell", "pascal", "volta")
#: Older than this has reached its end of life.
OLDEST_CUDA = (12, 0)


@dataclass(frozen=True)
class Product:
    """``first``: the branch or driver version that knows it first."""

    name: str
    architecture: str
    capability: str
    first: str
    note: str
    source: str

    @property
    def branch(self) -> int:
        return int(self.first[:3])

    def row(self) -> str:
        note = f", {self.note}" if self.note else ""
        return (
            f"{self.name}: {self.architecture} ({self.capability}), from driver {self.first} on{note} [{self.source}]"
        )


PRODUCTS: Dict[str, Product] = {
    one.name: one
    for one in (
        Product("K80", "kepler", "3.7", "340", "up to 470", "known"),
        Product("M60", "maxwell", "5.2", "352", "up to 580", "known"),
        Product("M40", "maxwell", "5.2", "352", "up to 580", "known"),
        Product("P100", "pascal", "6.0", "375", "up to 580", "known"),
        Product("P40", "pascal", "6.1", "367", "up to 580", "known"),
        Product("P4", "pascal", "6.1", "367", "up to 580", "known"),
        Product("V100", "volta", "7.0", "384", "up to 580", "known"),
        Product("T4", "turing", "7.5", "410", "", "known"),
        Product("Quadro RTX", "turing", "7.5", "410", "", "known"),
        Product("A100", "ampere", "8.0", "450", "MIG", "known"),
        Product("A30", "ampere", "8.0", "460", "MIG", "known"),
        Product("A40", "ampere", "8.6", "460", "", "known"),
        Product("A10", "ampere", "8.6", "455", "", "known"),
        Product("A16", "ampere", "8.6", "470", "", "known"),
        Product("A2", "ampere", "8.6", "470", "", "known"),
        Product("RTX A", "ampere", "8.6", "455", "RTX A2000 to A6000", "known"),
        Product("L4", "ada", "8.9", "525", "", "known"),
        Product("L40", "ada", "8.9", "525", "", "known"),
        Product("L40S", "ada", "8.9", "535", "", "known"),
        Product("H100", "hopper", "9.0", "525", "MIG, fabric manager on HGX", "known"),
        Product("H800", "hopper", "9.0", "525", "MIG, fabric manager on HGX", "known"),
        Product("H20", "hopper", "9.0", "535", "MIG", "known"),
        Product("GH200", "grace-hopper", "9.0", "535", "open modules only", "images"),
        Product("H200", "hopper", "9.0", "535.154", "MIG, fabric manager on HGX", "known"),
        Product("B200", "blackwell", "10.0", "570.133.20", "nvlsm on HGX", "operator"),
        Product("GB200", "blackwell", "10.0", "570", "IMEX", "known"),
        Product("B300", "blackwell", "10.3", "575", "nvlsm on HGX", "known"),
        Product("GB300", "blackwell", "10.3", "575", "IMEX", "known"),
        Product("RTX PRO 6000 Blackwell", "blackwell", "12.0", "575.57.08", "MIG", "operator"),
        Product("GeForce RTX 50", "blackwell", "12.0", "570", "RTX 5050 to 5090", "known"),
        Product("GB10", "blackwell", "12.1", "580", "memory shared with the CPU", "known"),
    )
}

#: Rows that stand for every product whose name begins so.
FAMILIES = ("RTX A", "GeForce RTX 50")


@dataclass(frozen=True)
class Dcgm:
    """``cuda``: majors of CUDA that it has parts for; ``exporters``: exporter versions made for it."""

    version: str
    cuda: Tuple[int, ...]
    exporters: Tuple[str, ...]
    source: str

    def row(self) -> str:
        majors = ", ".join(str(major) for major in self.cuda)
        return f"DCGM {self.version}: CUDA {majors}; exporters {', '.join(self.exporters)} [{self.source}]"


DCGM: Dict[str, Dcgm] = {
    one.version: one
    for one in (
        Dcgm("3.3", (11, 12), ("3.3.5-3.4.1", "3.3.7-3.5.0", "3.3.9-3.6.1"), "image lists of releases; known"),
        Dcgm("4.3", (11, 12, 13), ("4.3.1-4.4.0",), "image lists of releases; known"),
        Dcgm("4.4", (11, 12, 13), ("4.4.2-4.7.0",), "image lists of releases; known"),
        Dcgm("4.5", (11, 12, 13), ("4.5.1-4.8.0", "4.5.3-4.8.2"), "DCGM"),
        Dcgm("4.6", (11, 12, 13), ("4.6.0-4.8.3",), "DCGM"),
    )
}


@dataclass(frozen=True)
class Limit:
    """The oldest version of something that fits, and why."""

    name: str
    oldest: str
    why: str
    source: str

    def row(self) -> str:
        return f"{self.name}: from {self.oldest} on; {self.why} [{self.source}]"


LIMITS: Dict[str, Limit] = {
    "toolkit": Limit(
        "container toolkit",
        "1.17.8",
        "before it CVE-2025-23266 and CVE-2025-23267, CVE-2025-23359 before 1.17.4, CVE-2024-0132 before 1.16.2",
        "toolkit",
    ),
    "kubernetes": Limit(
        "Kubernetes", "1.32", "the oldest that this collection is tested against; the chart's own gate is 1.16", "tests"
    ),
    "containerd": Limit(
        "containerd", "1.7.16", "older ones cannot read the CDI files that the toolkit writes since 1.19", "toolkit"
    ),
    "open_kernel": Limit("kernel for the open modules", "4.15", "older ones are not supported", "guide"),
    "dmabuf_kernel": Limit(
        "kernel for peer memory by DMA-BUF", "5.12", "with the open modules; nvidia-peermem before", "guide"
    ),
    "cdmm": Limit(
        "coherent memory by the driver (CDMM)", "580", "GH200, GB200 and GB300; older ones do not know it", "known"
    ),
    "gds": Limit("nvidia-fs (GDS)", "2.17.5", "from here on it needs the open modules", "operator"),
}

# Parts of the toolkit that came with a release.
TOOLKIT_CDI_BY_DEFAULT = "1.18"  # mode auto means CDI from here on
TOOLKIT_CDI_070 = "1.19"  # format 0.7.0 is the usual one from here on
# What reads CDI files of format 0.7.0, from which version on.
CDI_READERS: Dict[str, str] = {
    "containerd": LIMITS["containerd"].oldest,
    "docker": "26.1",
    "podman": "5.1",
    "crio": "1.30",
}


@dataclass(frozen=True)
class Host:
    """A system whose kernel takes some branches only. ``oldest``: of its own archive; ``repository``: of NVIDIA's."""

    name: str
    oldest: int
    repository: int
    kernel: str
    source: str

    def row(self) -> str:
        return (
            f"{self.name}: kernel {self.kernel}, branches from {self.oldest} on in its own archive, from "
            f"{self.repository} on in NVIDIA's repository [{self.source}]"
        )


HOSTS: Dict[str, Host] = {
    "ubuntu 26.04": Host("ubuntu 26.04", 580, 595, "7.0", "guide, archive"),
}
