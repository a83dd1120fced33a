# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of a host's packages belong to the driver, in which version, and who made them. Pure.

Package managers do not keep where a package came from; the forms of versions and names tell.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping

from ._types import DISTRIBUTION, NVIDIA, PRECOMPILED, System

RPM_FUSION = "rpmfusion"

_OTHERS = re.compile(
    r"nvidia-container-.+|libnvidia-container.+|nvidia-docker2|datacenter-gpu-manager.*|nvidia-cuda-.+|nvidia-fs.*"
    r"|nvidia-gds.*|gdrcopy.*|gdrdrv-dkms|libgdrapi|nvlsm|nvidia-driver-pinning-.+|nvidia-release|nvidia-(dkms-)?kmod-common-.+"
)
#: Debian makes these from sources of their own, and their numbers are older or newer than the driver's.
_TOOLS = re.compile(r"nvidia-(modprobe|persistenced|settings|xconfig)")
_UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)(?![\d.]*\d)")
_DISTRIBUTION_OWN = re.compile(r"ubuntu0\b|~\d\d\.\d\d|[~+]deb\d+u|~bpo\d")
_UBUNTU_REPOSITORY = re.compile(r"-\d+ubuntu[1-9]\d*\Z")
_KERNEL_OWN = re.compile(r"linux-(modules|objects|signatures)-nvidia")
_DEBIAN_OWN = re.compile(r"nvidia-(open-kernel-dkms|legacy-check|tesla-.+)")
#: Debian's by their names, unless NVIDIA's own are beside them: its repository for Debian has these too.
_DEBIAN_TOO = re.compile(r"nvidia-(smi|alternative|kernel-support|driver-bin|vdpau-driver)|firmware-nvidia-gsp")
_NVIDIA_OWN = re.compile(
    r"nvidia-driver-cuda(-libs)?|nvidia-open(-\d+)?|cuda-drivers(-\d+)?|nvidia-kernel-open-dkms|nvidia-kmod-common"
    r"|kmod-nvidia-(open|latest)-dkms|dkms-nvidia|nvidia-headless(-no-dkms)?(-open)?|nvidia-dkms(-open)?"
)
_FUSION = re.compile(r"xorg-x11-drv-nvidia.*|akmod-nvidia.*")
_SIGNED = re.compile(
    r"nvidia-open-kmod|kmod-nvidia-dc-open-.+|kmod-nvidia-open|cuda-open.*|nvidia-open-driver-G0\d-signed.*"
)


def upstream(version: str) -> str:
    """NVIDIA's version in a package's: ``580.95.05`` of ``3:580.95.05-1.el9``; "" where it is no driver's."""
    found = _UPSTREAM.match(version)
    return found.group(1) if found else ""


def of_driver(packages: Mapping[str, str]) -> Dict[str, str]:
    """Those of the packages that carry the driver's version: not the toolkit, DCGM, or what has numbers of its own."""
    found = like_driver(packages)
    drivers = {upstream(version) for name, version in found.items() if not _TOOLS.fullmatch(name)}
    return {
        name: version for name, version in found.items() if not _TOOLS.fullmatch(name) or upstream(version) in drivers
    }


def like_driver(packages: Mapping[str, str]) -> Dict[str, str]:
    """Those whose versions look like the driver's, tools with their own numbers among them."""
    return {
        name: version for name, version in packages.items() if not _OTHERS.fullmatch(name) and upstream(version) != ""
    }


def origins(packages: Mapping[str, str], system: System) -> Dict[str, List[str]]:
    """Who made the driver's packages -> their names, of those of which something tells."""
    found: Dict[str, List[str]] = {}
    for name, version in of_driver(packages).items():
        found.setdefault(origin(name, version, system), []).append(name)
    found.pop("", None)
    if NVIDIA in found and DISTRIBUTION in found and system.id == "debian":
        own = [name for name in found[DISTRIBUTION] if not _DEBIAN_TOO.fullmatch(name) or "~deb" in packages[name]]
        found[DISTRIBUTION] = own
    return {one: names for one, names in found.items() if names}


def origin(name: str, version: str, system: System) -> str:
    """Who made a package: distribution, nvidia, precompiled (by the distribution), rpmfusion; "": nothing tells."""
    if _KERNEL_OWN.match(name) or _SIGNED.fullmatch(name):
        return PRECOMPILED
    if _FUSION.fullmatch(name):
        return RPM_FUSION
    if system.family == "apt":
        if _DISTRIBUTION_OWN.search(version) or _is_debian(name, system):
            return DISTRIBUTION
        if _UBUNTU_REPOSITORY.search(version):
            return NVIDIA
    return NVIDIA if _NVIDIA_OWN.fullmatch(name) else ""


def _is_debian(name: str, system: System) -> bool:
    return system.id == "debian" and bool(_DEBIAN_OWN.fullmatch(name) or _DEBIAN_TOO.fullmatch(name))
