# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions that fit together, as data: the one place of the collection where versions live.

judge(FitSet(driver="580.95.05", cuda="13.1", architectures=("volta",)), today="2026-11-27") -> what does not fit
"""

from __future__ import annotations

from ._branches import (
    ARCHITECTURES,
    AS_OF,
    BRANCHES,
    CURRENT,
    ENDED,
    FIRST_UNSUFFIXED,
    GPUS,
    LAST_FOR_OLD_GPUS,
    OPEN,
    OPEN_BY_DEFAULT,
    PAST,
    PROPRIETARY,
    Architecture,
    Branch,
    architecture,
    flavours_for,
)
from ._extended import extended
from ._judge import MATRIX, FitSet, Matrix, Verdict, judge, product_named, runs
from ._releases import LATEST, RELEASES, Images, Release, release_named
from ._tables import (
    CDI_READERS,
    CUDA,
    DCGM,
    HOSTS,
    LIMITS,
    OLDEST_CUDA,
    PRODUCTS,
    TOOLKIT_CDI_070,
    TOOLKIT_CDI_BY_DEFAULT,
)
from ._versions import CUDA_MINOR, branch_of, version_key, version_parts

# The oldest Kubernetes that the collection itself is tested against.
KUBERNETES_FLOOR = LIMITS["kubernetes"].oldest
CONTAINERD_FOR_CDI = LIMITS["containerd"].oldest

__all__ = [
    "ARCHITECTURES",
    "AS_OF",
    "BRANCHES",
    "CDI_READERS",
    "CONTAINERD_FOR_CDI",
    "CUDA",
    "CUDA_MINOR",
    "CURRENT",
    "DCGM",
    "ENDED",
    "FIRST_UNSUFFIXED",
    "GPUS",
    "HOSTS",
    "KUBERNETES_FLOOR",
    "LAST_FOR_OLD_GPUS",
    "LATEST",
    "LIMITS",
    "MATRIX",
    "OLDEST_CUDA",
    "OPEN",
    "OPEN_BY_DEFAULT",
    "PAST",
    "PRODUCTS",
    "PROPRIETARY",
    "RELEASES",
    "TOOLKIT_CDI_070",
    "TOOLKIT_CDI_BY_DEFAULT",
    "Architecture",
    "Branch",
    "FitSet",
    "Images",
    "Matrix",
    "Release",
    "Verdict",
    "architecture",
    "branch_of",
    "extended",
    "flavours_for",
    "judge",
    "product_named",
    "release_named",
    "runs",
    "version_key",
    "version_parts",
]
