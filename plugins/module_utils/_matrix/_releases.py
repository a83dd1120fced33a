# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases of the GPU Operator, with the version of each operand.

Sources: the chart's values of each release, and NVIDIA's platform support pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Mapping, Optional, Tuple

from ._versions import version_parts

# Component (key of the chart's values) -> repository, image, version.
Images = Mapping[str, Tuple[str, str, str]]

_NGC = "nvcr.io/nvidia"
_CLOUD = "nvcr.io/nvidia/cloud-native"
_K8S = "nvcr.io/nvidia/k8s"


@dataclass(frozen=True)
class Release:
    """A release of the GPU Operator: default image of each component, Kubernetes minors that it was validated with."""

    images: Images
    kubernetes: Tuple[str, ...] = ()
    nfd: str = ""  # version of the Node Feature Discovery chart and image
    drivers: Tuple[str, ...] = field(default=())  # driver versions named beside the default one


def _one_image(release: str) -> Dict[str, Tuple[str, str, str]]:
    """Since 25.10 the operator's own image is the validator too."""
    own = (_NGC, "gpu-operator", release)
    return {"operator": own, "validator": own, "nodeStatusExporter": own}


def _two_images(release: str) -> Dict[str, Tuple[str, str, str]]:
    validator = (_CLOUD, "gpu-operator-validator", release)
    return {"operator": (_NGC, "gpu-operator", release), "validator": validator, "nodeStatusExporter": validator}


def _driver(version: str, manager: str) -> Dict[str, Tuple[str, str, str]]:
    own = (_CLOUD, "k8s-driver-manager", manager)
    return {
        "driver": (_NGC, "driver", version),
        "driver.manager": own,
        "vgpuManager.driverManager": own,
        "vfioManager.driverManager": own,
        "vgpuManager": ("", "vgpu-manager", ""),
    }


def _plugin(toolkit: str, plugin: str) -> Dict[str, Tuple[str, str, str]]:
    return {
        "toolkit": (_K8S, "container-toolkit", toolkit),
        "devicePlugin": (_NGC, "k8s-device-plugin", plugin),
        "gfd": (_NGC, "k8s-device-plugin", plugin),
    }


def _dcgm(engine: str, exporter: str) -> Dict[str, Tuple[str, str, str]]:
    return {"dcgm": (_CLOUD, "dcgm", engine), "dcgmExporter": (_K8S, "dcgm-exporter", exporter)}


RELEASES: Dict[str, Release] = {
    # Chart of tag v26.7.0 (10ee5b36); platform support page of 26.7.
    "v26.7.0": Release(
        images={
            **_one_image("v26.7.0"),
            **_driver("595.91.07", "v0.12.0"),
            **_plugin("v1.20.0", "v0.20.0"),
            **_dcgm("4.6.0-1-ubuntu24.04", "4.6.0-4.8.3-distroless"),
            "vfioManager": (_CLOUD, "k8s-driver-manager", "v0.12.0"),
            "migManager": (_CLOUD, "k8s-mig-manager", "v0.15.0"),
            "gds": (_CLOUD, "nvidia-fs", "2.29.4"),
            "gdrcopy": (_CLOUD, "gdrdrv", "v2.6"),
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
    # Chart of v26.3.1, as published with it; NFD v0.18.3 with 26.3.0 and 26.3.3.
    "v26.3.1": Release(
        images={
            **_one_image("v26.3.1"),
            **_driver("580.126.20", "v0.10.0"),
            **_plugin("v1.19.0", "v0.19.0"),
            **_dcgm("4.5.2-1-ubuntu22.04", "4.5.1-4.8.0-distroless"),
            "vfioManager": (_CLOUD, "k8s-driver-manager", "v0.10.0"),
            "migManager": (_CLOUD, "k8s-mig-manager", "v0.14.0"),
            "gds": (_CLOUD, "nvidia-fs", "2.27.3"),
            "gdrcopy": (_CLOUD, "gdrdrv", "v2.5.2"),
            "vgpuDeviceManager": (_CLOUD, "vgpu-device-manager", "v0.4.2"),
            "sandboxDevicePlugin": (_NGC, "kubevirt-gpu-device-plugin", "v1.5.0"),
            "kataSandboxDevicePlugin": (_CLOUD, "nvidia-sandbox-device-plugin", "v0.0.3"),
            "ccManager": (_CLOUD, "k8s-cc-manager", "v0.4.0"),
        },
        kubernetes=("1.32", "1.33", "1.34", "1.35"),
        nfd="v0.18.3",
    ),
    # Release notes of 25.10.1, and image lists made for mirrors of it. GDS and GDRCopy: not found.
    "v25.10.1": Release(
        images={
            **_one_image("v25.10.1"),
            **_driver("580.105.08", "v0.9.1"),
            **_plugin("v1.18.1", "v0.18.1"),
            **_dcgm("4.4.2-1-ubuntu22.04", "4.4.2-4.7.0-distroless"),
            "migManager": (_CLOUD, "k8s-mig-manager", "v0.13.1"),
            "vgpuDeviceManager": (_CLOUD, "vgpu-device-manager", "v0.4.1"),
            "sandboxDevicePlugin": (_NGC, "kubevirt-gpu-device-plugin", "v1.4.0"),
            "ccManager": (_CLOUD, "k8s-cc-manager", "v0.1.1"),
        },
        kubernetes=("1.29", "1.30", "1.31", "1.32", "1.33", "1.34"),
        nfd="v0.18.2",
    ),
    # Release notes of 25.3.4, and image lists of clusters with it. DCGM's own image, GDS and GDRCopy: not found.
    "v25.3.4": Release(
        images={
            **_two_images("v25.3.4"),
            **_driver("580.82.07", "v0.8.1"),
            **_plugin("v1.17.8-ubuntu20.04", "v0.17.4"),
            "dcgmExporter": (_K8S, "dcgm-exporter", "4.3.1-4.4.0-ubuntu22.04"),
            "migManager": (_CLOUD, "k8s-mig-manager", "v0.12.3-ubuntu20.04"),
        },
        nfd="v0.17.3",
    ),
    # Image lists of clusters with 24.9.2. GDS and GDRCopy: not found.
    "v24.9.2": Release(
        images={
            **_two_images("v24.9.2"),
            **_driver("550.144.03", "v0.7.0"),
            **_plugin("v1.17.4-ubuntu20.04", "v0.17.0"),
            **_dcgm("3.3.9-1-ubuntu22.04", "3.3.9-3.6.1-ubuntu22.04"),
            "migManager": (_CLOUD, "k8s-mig-manager", "v0.10.0-ubuntu20.04"),
            "vgpuDeviceManager": (_CLOUD, "vgpu-device-manager", "v0.2.8"),
            "sandboxDevicePlugin": (_NGC, "kubevirt-gpu-device-plugin", "v1.2.10"),
            "ccManager": (_CLOUD, "k8s-cc-manager", "v0.1.1"),
        },
        nfd="v0.16.6",
    ),
    # Component matrix of 24.6.1, and the chart's values of that line.
    "v24.6.1": Release(
        images={
            **_two_images("v24.6.1"),
            **_driver("550.90.07", "v0.6.10"),
            **_plugin("v1.16.1-ubuntu20.04", "v0.16.2-ubi8"),
            **_dcgm("3.3.7-1-ubuntu22.04", "3.3.7-3.5.0-ubuntu22.04"),
            "migManager": (_CLOUD, "k8s-mig-manager", "v0.8.0-ubuntu20.04"),
            "gds": (_CLOUD, "nvidia-fs", "2.17.5"),
            "gdrcopy": (_CLOUD, "gdrdrv", "v2.4.1-1"),
            "vgpuDeviceManager": (_CLOUD, "vgpu-device-manager", "v0.2.7"),
            "sandboxDevicePlugin": (_NGC, "kubevirt-gpu-device-plugin", "v1.2.9"),
            "ccManager": (_CLOUD, "k8s-cc-manager", "v0.1.1"),
        },
        nfd="v0.16.3",
        drivers=("560.35.03", "550.90.12", "535.183.06"),
    ),
    # Image lists made for mirrors of 24.3.0. GDS and GDRCopy: not found.
    "v24.3.0": Release(
        images={
            **_two_images("v24.3.0"),
            **_driver("550.54.15", "v0.6.8"),
            **_plugin("v1.15.0-ubuntu20.04", "v0.15.0-ubi8"),
            **_dcgm("3.3.5-1-ubuntu22.04", "3.3.5-3.4.1-ubuntu22.04"),
            "migManager": (_CLOUD, "k8s-mig-manager", "v0.7.0-ubuntu20.04"),
            "vgpuDeviceManager": (_CLOUD, "vgpu-device-manager", "v0.2.6"),
            "sandboxDevicePlugin": (_NGC, "kubevirt-gpu-device-plugin", "v1.2.7"),
            "ccManager": (_CLOUD, "k8s-cc-manager", "v0.1.1"),
        },
        nfd="v0.15.4",
    ),
}

LATEST = "v26.7.0"


def release_named(name: str) -> Optional[str]:
    """The release that is meant: ``v26.7.0``, ``26.7``, ``v25.x`` (the newest known), "" (newest). None: unknown."""
    plain = name.strip().lower()
    plain = plain[1:] if plain.startswith("v") else plain
    if not plain:
        return LATEST
    wanted = plain[:-2] if plain.endswith(".x") else plain
    fits = [known for known in RELEASES if known[1:] == wanted or known[1:].startswith(wanted + ".")]
    return max(fits, key=version_parts) if fits else None
