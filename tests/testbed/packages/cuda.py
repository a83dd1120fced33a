# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA's packages of a few minors: names, the alternative that they set, and a compiler that only tells its release."""

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.tests.testbed.packages.package import Package

VERSIONS = {"12.9": "12.9.1", "13.0": "13.0.2", "13.1": "13.1.1"}
PROFILES = ("cuda-toolkit", "cuda-libraries", "cuda-minimal-build")


def packages() -> list[Package]:
    """Each profile of each minor; all of a minor bring the same folder through a part that they share."""
    return [package for minor, version in VERSIONS.items() for package in _minor(minor, version)]


def _minor(minor: str, version: str) -> list[Package]:
    name, folder = minor.replace(".", "-"), f"/usr/local/cuda-{minor}"
    order = minor.replace(".", "")
    compiler = f'#!/bin/sh\necho "Cuda compilation tools, release {minor}, V{version}"\n'.encode()
    config = Package(
        f"cuda-config-{name}", version,
        files={f"{folder}/version.json": (b"{}\n", 0o644)},
        after=f"update-alternatives --quiet --install /usr/local/cuda cuda {folder} {order}\n",
        before_removal=f"update-alternatives --quiet --remove cuda {folder}\n",
    )  # fmt: skip
    nvcc = Package(f"cuda-nvcc-{name}", version, files={f"{folder}/bin/nvcc": (compiler, 0o755)})
    parts = {"cuda-toolkit": (config, nvcc), "cuda-libraries": (config,), "cuda-minimal-build": (config, nvcc)}
    made = [
        Package(
            f"{profile}-{name}", version, depends=tuple((part.name, ">=", part.full) for part in parts[profile]),
            files={f"/usr/share/doc/{profile}-{name}/README": (b"A set of packages.\n", 0o644)},
        )
        for profile in PROFILES
    ]  # fmt: skip
    return [config, nvcc, *made]
