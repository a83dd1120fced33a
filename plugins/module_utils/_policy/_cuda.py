# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CUDA toolkit of a policy (S35): its image from a version, and whether a driver runs what is built with it."""

from __future__ import annotations

import re
from typing import Tuple

from .._matrix import BRANCHES, LATEST, RELEASES, branch_of, version_parts

REPOSITORY, IMAGE = "nvcr.io/nvidia", "cuda"
# The systems of NVIDIA's images, newest first, and the CUDA version from which on there is one.
_SYSTEMS = (((12, 6), "ubuntu24.04"), ((11, 7), "ubuntu22.04"), ((0,), "ubuntu20.04"))


def newest_for(driver: str) -> str:
    """The newest CUDA version that a driver runs: ``13.2``. "" for a driver that is not known."""
    branch = branch_of(driver or RELEASES[LATEST].images["driver"][2])
    return BRANCHES[branch].cuda if branch in BRANCHES else ""


def tag_of(version: str) -> str:
    """The tag of the image: ``13.0`` is ``13.0.0-devel-ubuntu24.04``. What is a tag already stays."""
    if not re.match(r"^\d+\.\d+(\.\d+)?\Z", version):
        return version
    whole = version if version.count(".") == 2 else version + ".0"
    system = next(name for least, name in _SYSTEMS if version_parts(version)[:2] >= least)
    return f"{whole}-devel-{system}"


def cuda_of(tag: str) -> str:
    """The CUDA version in a tag, "" where it names none."""
    found = re.match(r"^(\d+\.\d+(?:\.\d+)?)(?=-|\Z)", tag)
    return found.group(1) if found else ""


def too_new(cuda: str, runs: str) -> bool:
    """Whether a CUDA version is newer than what a driver runs. Unknown versions are not."""
    wanted, most = version_parts(cuda)[:2], version_parts(runs)[:2]
    return bool(wanted and most and wanted > most)


def branch_for(cuda: str) -> int:
    """The oldest driver branch that runs a CUDA version, 0 if none does."""
    wanted: Tuple[int, ...] = version_parts(cuda)[:2]
    return min((number for number, known in BRANCHES.items() if version_parts(known.cuda)[:2] >= wanted), default=0)
