# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts as the catalogue is asked about them, one for each distribution."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._types import System

_EL8, _EL9, _EL10 = "4.18.0-553.el8_10.x86_64", "5.14.0-427.13.1.el9_4.x86_64", "6.12.0-55.9.1.el10_0.x86_64"
_RHEL = ("rhel", "centos", "fedora")

UBUNTU_2204 = System("ubuntu", "22.04", ("debian",), "x86_64", "5.15.0-122-generic", "apt")
UBUNTU_2404 = System("ubuntu", "24.04", ("debian",), "x86_64", "6.8.0-45-generic", "apt")
UBUNTU_2604 = System("ubuntu", "26.04", ("debian",), "x86_64", "7.0.0-14-generic", "apt")
DEBIAN_12 = System("debian", "12", (), "x86_64", "6.1.0-40-amd64", "apt")
DEBIAN_13 = System("debian", "13", (), "x86_64", "6.12.48-1-cloud-amd64", "apt")
ROCKY_8 = System("rocky", "8.10", _RHEL, "x86_64", _EL8, "dnf")
RHEL_9 = System("rhel", "9.4", ("fedora",), "x86_64", _EL9, "dnf")
ORACLE_9 = System("ol", "9.4", ("fedora",), "x86_64", _EL9, "dnf")
ALMA_10 = System("almalinux", "10.0", _RHEL, "x86_64", _EL10, "dnf")
FEDORA = System("fedora", "42", (), "x86_64", "6.16.9-200.fc42.x86_64", "dnf")
AMAZON = System("amzn", "2023", ("fedora",), "x86_64", "6.1.153-175.280.amzn2023.x86_64", "dnf")
AZURE = System("azurelinux", "3.0", (), "x86_64", "6.6.96.1-1.azl3", "dnf")
SLES_15 = System("sles", "15.6", ("suse",), "x86_64", "6.4.0-150600.23.25-default", "zypper")
LEAP_15 = System("opensuse-leap", "15.6", ("suse", "opensuse"), "x86_64", "6.4.0-150600.23.25-default", "zypper")
SLES_16 = System("sles", "16.0", ("suse",), "x86_64", "6.12.0-160000.5-default", "zypper")

ALL = (
    *(UBUNTU_2204, UBUNTU_2404, UBUNTU_2604, DEBIAN_12, DEBIAN_13),
    *(ROCKY_8, RHEL_9, ORACLE_9, ALMA_10, FEDORA, AMAZON, AZURE, SLES_15, LEAP_15, SLES_16),
)
_IMAGES = ("flatcar", "talos", "bottlerocket", "cos", "rhcos", "fedora-coreos")
IMMUTABLE = (
    *(System(name, "1", (), "x86_64", "6.6.100", "immutable") for name in _IMAGES),
    System("fedora", "42", (), "x86_64", FEDORA.kernel, "immutable"),
)


def arm(system: System) -> System:
    """The same on arm64."""
    kernel = system.kernel.replace("x86_64", "aarch64").replace("amd64", "arm64")
    return replace(system, arch="aarch64", kernel=kernel)
