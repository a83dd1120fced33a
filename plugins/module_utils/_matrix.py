# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions that fit together, as data: the one place of the collection where versions live.

Sources: the chart's values of each release of the GPU Operator, and NVIDIA's platform support pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, Mapping, Optional, Tuple

# Component (key of the chart's values) -> repository, image, version.
Images = Mapping[str, Tuple[str, str, str]]

_NGC = "nvcr.io/nvidia"
_CLOUD = "nvcr.io/nvidia/cloud-native"
_K8S = "nvcr.io/nvidia/k8s"


@dataclass(frozen=True)
class Release:
    """One release of the GPU Operator: default image of each component, Kubernetes minors that it was validated with."""

    images: Images
    kubernetes: Tuple[str, ...] = ()
    nfd: str = ""  # version of the Node Feature Discovery chart and image
    drivers: Tuple[str, ...] = field(default=())  # driver versions named beside the default one


RELEASES: Dict[str, Release] = {
    # Chart of tag v26.7.0 (10ee5b36); platform support page of 26.7.
    "v26.7.0": Release(
        images={
            "operator": (_NGC, "gpu-operator", "v26.7.0"),
            "validator": (_NGC, "gpu-operator", "v26.7.0"),
            "nodeStatusExporter": (_NGC, "gpu-operator", "v26.7.0"),
            "driver": (_NGC, "driver", "595.91.07"),
            "driver.manager": (_CLOUD, "k8s-driver-manager", "v0.12.0"),
            "vgpuManager.driverManager": (_CLOUD, "k8s-driver-manager", "v0.12.0"),
            "vfioManager.driverManager": (_CLOUD, "k8s-driver-manager", "v0.12.0"),
            "vfioManager": (_CLOUD, "k8s-driver-manager", "v0.12.0"),
            "toolkit": (_K8S, "container-toolkit", "v1.20.0"),
            "devicePlugin": (_NGC, "k8s-device-plugin", "v0.20.0"),
            "gfd": (_NGC, "k8s-device-plugin", "v0.20.0"),
            "dcgm": (_CLOUD, "dcgm", "4.6.0-1-ubuntu24.04"),
            "dcgmExporter": (_K8S, "dcgm-exporter", "4.6.0-4.8.3-distroless"),
            "migManager": (_CLOUD, "k8s-mig-manager", "v0.15.0"),
            "gds": (_CLOUD, "nvidia-fs", "2.29.4"),
            "gdrcopy": (_CLOUD, "gdrdrv", "v2.6"),
            "vgpuManager": ("", "vgpu-manager", ""),
            "vgpuDeviceManager": (_CLOUD, "vgpu-device-manager", "v0.5.0"),
            "sandboxDevicePlugin": (_NGC, "kubevirt-gpu-device-plugin", "v1.6.0"),
            "kataSandboxDevicePlugin": (_CLOUD, "nvidia-sandbox-device-plugin", "v0.0.5"),
            "ccManager": (_CLOUD, "k8s-cc-manager", "v0.4.3"),
            "draDriver": (_NGC, "dra-driver-nvidia-gpu", "v0.5.0"),
        },
        kubernetes=("1.32", "1.33", "1.34", "1.35", "1.36"),
        nfd="v0.19.0",
        drivers=("610.57.04", "580.173.02", "535.309.01"),
    ),
}

LATEST = "v26.7.0"


def release_named(name: str) -> Optional[str]:
    """The release that a person means: ``v26.7.0``, ``26.7``, ``v25.x`` (newest that is known), "" (newest). None: unknown."""
    plain = name.strip().lower()
    plain = plain[1:] if plain.startswith("v") else plain
    if not plain:
        return LATEST
    wanted = plain[:-2] if plain.endswith(".x") else plain
    fits = [known for known in RELEASES if known[1:] == wanted or known[1:].startswith(wanted + ".")]
    return max(fits, key=version_parts) if fits else None


def version_parts(version: str) -> Tuple[int, ...]:
    """Numbers of a version, for comparison: ``v25.10.1`` -> (25, 10, 1). Parts are compared as numbers, never as text."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
