# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of the driver, name by name as NVIDIA's and the distributions' pages have them: written by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._catalog import (
    PackageSet,
    Refusal,
    choose,
    packages,
    sources,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._types import System, Wanted

from . import systems as on

DAY = "2026-11-27"


def names(system: System, wanted: Wanted, *roles: str) -> set[str]:
    return set(packages(system, wanted).names(*roles))


def wish(branch: int, flavour: str = "open", source: str = "nvidia", **more: Any) -> Wanted:
    return Wanted(branch, more.pop("version", ""), flavour, source, **more)


def leaving(found: PackageSet, installed: Iterable[str]) -> set[str]:
    return {name for name in installed if any(fnmatchcase(name, pattern) for pattern in found.leaves)}


# -- whole sets ----------------------------------------------------------------------------------------------------

SETS: dict[str, tuple[System, Wanted, str]] = {
    "ubuntu archive, server build, open": (
        on.UBUNTU_2404,
        wish(580, source="distribution"),
        """nvidia-dkms-580-server-open nvidia-kernel-source-580-server-open nvidia-kernel-common-580-server
        nvidia-utils-580-server nvidia-compute-utils-580-server libnvidia-cfg1-580-server libnvidia-compute-580-server
        nvidia-headless-580-server-open linux-headers-6.8.0-45-generic""",
    ),
    "ubuntu archive, server build, proprietary": (
        on.UBUNTU_2204,
        wish(535, "proprietary", "distribution"),
        """nvidia-dkms-535-server nvidia-kernel-source-535-server nvidia-kernel-common-535-server
        nvidia-utils-535-server nvidia-compute-utils-535-server libnvidia-cfg1-535-server libnvidia-compute-535-server
        nvidia-headless-535-server linux-headers-5.15.0-122-generic""",
    ),
    "ubuntu archive, desktop build, arm64": (
        on.arm(on.UBUNTU_2404),
        wish(580, source="distribution", use="desktop"),
        """nvidia-dkms-580-open nvidia-kernel-source-580-open nvidia-kernel-common-580 nvidia-utils-580
        nvidia-compute-utils-580 libnvidia-cfg1-580 libnvidia-compute-580 nvidia-driver-580-open libnvidia-common-580
        libnvidia-decode-580 libnvidia-encode-580 libnvidia-extra-580 libnvidia-gl-580 xserver-xorg-video-nvidia-580
        linux-headers-6.8.0-45-generic""",
    ),
    "ubuntu precompiled, open": (
        on.UBUNTU_2404,
        wish(580, source="precompiled"),
        """linux-modules-nvidia-580-server-open-generic linux-modules-nvidia-580-server-open-6.8.0-45-generic
        linux-signatures-nvidia-6.8.0-45-generic nvidia-kernel-common-580-server nvidia-utils-580-server
        nvidia-compute-utils-580-server libnvidia-cfg1-580-server libnvidia-compute-580-server
        nvidia-headless-no-dkms-580-server-open""",
    ),
    "ubuntu precompiled, proprietary, arm64": (
        on.arm(on.UBUNTU_2204),
        wish(535, "proprietary", "precompiled"),
        """linux-modules-nvidia-535-server-generic linux-modules-nvidia-535-server-5.15.0-122-generic
        linux-objects-nvidia-535-server-5.15.0-122-generic nvidia-kernel-common-535-server nvidia-utils-535-server
        nvidia-compute-utils-535-server libnvidia-cfg1-535-server libnvidia-compute-535-server
        nvidia-headless-no-dkms-535-server""",
    ),
    "ubuntu, NVIDIA's repository before 590": (
        on.UBUNTU_2404,
        wish(580),
        """nvidia-dkms-580-open nvidia-kernel-source-580-open nvidia-kernel-common-580 nvidia-utils-580
        nvidia-compute-utils-580 libnvidia-cfg1-580 libnvidia-compute-580 nvidia-headless-580-open
        linux-headers-6.8.0-45-generic""",
    ),
    "ubuntu, NVIDIA's repository since 590": (
        on.UBUNTU_2404,
        wish(595, version="595.91.07"),
        """nvidia-driver-pinning-595.91.07 nvidia-dkms-open nvidia-kernel-source-open nvidia-kernel-common nvidia-utils
        nvidia-compute-utils libnvidia-cfg1 libnvidia-compute nvidia-firmware nvidia-headless-open
        linux-headers-6.8.0-45-generic""",
    ),
    "ubuntu, NVIDIA's repository, whole, proprietary": (
        on.UBUNTU_2204,
        wish(595, "proprietary", use="full"),
        """nvidia-driver-pinning-595 nvidia-dkms nvidia-kernel-source nvidia-kernel-common nvidia-utils
        nvidia-compute-utils libnvidia-cfg1 libnvidia-compute nvidia-firmware cuda-drivers nvidia-driver
        libnvidia-common libnvidia-decode libnvidia-encode libnvidia-extra libnvidia-gl xserver-xorg-video-nvidia
        libnvidia-fbc1 linux-headers-5.15.0-122-generic""",
    ),
    "ubuntu 26.04 needs zstd": (
        on.UBUNTU_2604,
        wish(620),
        """nvidia-driver-pinning-620 nvidia-dkms-open nvidia-kernel-source-open nvidia-kernel-common nvidia-utils
        nvidia-compute-utils libnvidia-cfg1 libnvidia-compute nvidia-firmware nvidia-headless-open
        linux-headers-7.0.0-14-generic zstd""",
    ),
    "debian's own, proprietary": (
        on.DEBIAN_12,
        wish(535, "proprietary", "distribution"),
        """nvidia-kernel-dkms nvidia-smi libcuda1 libnvidia-ml1 firmware-nvidia-gsp linux-headers-6.1.0-40-amd64
        linux-headers-amd64""",
    ),
    "debian's own, open, with a desktop": (
        on.DEBIAN_13,
        wish(550, "open", "distribution", use="full", companions=("persistenced",)),
        """nvidia-open-kernel-dkms nvidia-smi libcuda1 libnvidia-ml1 nvidia-driver firmware-nvidia-gsp
        nvidia-persistenced linux-headers-6.12.48-1-cloud-amd64 linux-headers-cloud-amd64""",
    ),
    "debian's own, for Kepler": (
        on.DEBIAN_12,
        wish(470, "proprietary", "distribution"),
        """nvidia-tesla-470-kernel-dkms nvidia-tesla-470-smi libnvidia-tesla-470-cuda1 libnvidia-tesla-470-ml1
        linux-headers-6.1.0-40-amd64 linux-headers-amd64""",
    ),
    "debian, NVIDIA's repository, compute only": (
        on.arm(on.DEBIAN_12),
        wish(595),
        """nvidia-driver-pinning-595 nvidia-kernel-open-dkms nvidia-driver-cuda linux-headers-6.1.0-40-arm64
        linux-headers-arm64""",
    ),
    "debian, NVIDIA's repository, whole, before 590": (
        on.DEBIAN_12,
        wish(580, "proprietary", use="full"),
        """nvidia-kernel-dkms cuda-drivers-580 nvidia-driver nvidia-driver-cuda linux-headers-6.1.0-40-amd64
        linux-headers-amd64""",
    ),
    "debian, NVIDIA's repository, desktop": (
        on.DEBIAN_12,
        wish(595, use="desktop"),
        """nvidia-driver-pinning-595 nvidia-kernel-open-dkms nvidia-driver linux-headers-6.1.0-40-amd64
        linux-headers-amd64""",
    ),
    "EL 8": (
        on.ROCKY_8,
        wish(580),
        """kmod-nvidia-open-dkms nvidia-kmod-common nvidia-modprobe nvidia-persistenced nvidia-driver-cuda
        nvidia-driver-cuda-libs libnvidia-ml libnvidia-cfg dkms elfutils-libelf-devel python3-dnf-plugin-versionlock
        kernel-devel-4.18.0-553.el8_10.x86_64 kernel-headers-4.18.0-553.el8_10.x86_64""",
    ),
    "EL 9, proprietary, whole": (
        on.RHEL_9,
        wish(580, "proprietary", use="full"),
        """kmod-nvidia-latest-dkms nvidia-kmod-common nvidia-modprobe nvidia-persistenced nvidia-driver-cuda
        nvidia-driver-cuda-libs libnvidia-ml libnvidia-cfg nvidia-driver nvidia-driver-libs cuda-drivers dkms
        elfutils-libelf-devel python3-dnf-plugin-versionlock kernel-devel-5.14.0-427.13.1.el9_4.x86_64
        kernel-headers""",
    ),
    "EL 9, precompiled by NVIDIA": (
        on.ORACLE_9,
        wish(580, "proprietary", "precompiled", version="580.95.05"),
        """kmod-nvidia-580.95.05-5.14.0-427.13.1.el9_4 nvidia-kmod-common nvidia-modprobe nvidia-persistenced
        nvidia-driver-cuda nvidia-driver-cuda-libs libnvidia-ml libnvidia-cfg python3-dnf-plugin-versionlock""",
    ),
    "EL 9, signed by the distribution": (
        on.RHEL_9,
        wish(580, "open", "distribution"),
        """kmod-nvidia-open nvidia-kmod-common nvidia-modprobe nvidia-persistenced nvidia-driver-cuda
        nvidia-driver-cuda-libs libnvidia-ml libnvidia-cfg python3-dnf-plugin-versionlock""",
    ),
    "EL 10, arm64": (
        on.arm(on.ALMA_10),
        wish(595, use="desktop"),
        """kmod-nvidia-open-dkms nvidia-kmod-common nvidia-modprobe nvidia-driver nvidia-driver-libs dkms
        elfutils-libelf-devel unzboot python3-dnf-plugin-versionlock kernel-devel-6.12.0-55.9.1.el10_0.aarch64
        kernel-headers""",
    ),
    "Fedora": (
        on.FEDORA,
        wish(595, "proprietary"),
        """kmod-nvidia-latest-dkms nvidia-kmod-common nvidia-modprobe nvidia-persistenced nvidia-driver-cuda
        nvidia-driver-cuda-libs libnvidia-ml libnvidia-cfg dkms elfutils-libelf-devel
        kernel-devel-6.16.9-200.fc42.x86_64 kernel-headers""",
    ),
    "Amazon Linux": (
        on.AMAZON,
        wish(580),
        """kmod-nvidia-open-dkms nvidia-kmod-common nvidia-modprobe nvidia-persistenced nvidia-driver-cuda
        nvidia-driver-cuda-libs libnvidia-ml libnvidia-cfg dkms elfutils-libelf-devel python3-dnf-plugin-versionlock
        kernel-modules-extra kernel-devel-6.1.153-175.280.amzn2023.x86_64""",
    ),
    "Azure Linux, signed": (
        on.AZURE,
        wish(580, source="distribution"),
        """cuda-open nvidia-kmod-common nvidia-modprobe nvidia-persistenced nvidia-driver-cuda nvidia-driver-cuda-libs
        libnvidia-ml libnvidia-cfg python3-dnf-plugin-versionlock""",
    ),
    "SUSE 15": (
        on.SLES_15,
        wish(580, "proprietary"),
        """nvidia-driver-G06 nvidia-compute-G06 nvidia-compute-utils-G06
        kernel-default-devel=6.4.0-150600.23.25""",
    ),
    "SUSE 15, signed": (
        on.LEAP_15,
        wish(570, source="precompiled"),
        "nvidia-open-driver-G06-signed-cuda-kmp-default nvidia-compute-G06 nvidia-compute-utils-G06",
    ),
    "SUSE 16, whole": (
        on.SLES_16,
        wish(595, use="full"),
        """nvidia-open-driver-G07 nvidia-compute-G07 nvidia-compute-utils-G07 nvidia-open
        kernel-default-devel=6.12.0-160000.5""",
    ),
}


@pytest.mark.rows("H008", "H009", "H010", "H016", "H017", "H018", "H019", "H020", "H021", "H022", "H023", "H024")
@pytest.mark.parametrize("case", SETS)
def test_a_set_is_these_packages(case: str) -> None:
    system, wanted, expected = SETS[case]
    assert names(system, wanted) == set(expected.split())


# -- names that go with a kernel -----------------------------------------------------------------------------------


@pytest.mark.rows("H009")
@pytest.mark.parametrize(
    ("system", "kernel", "modules", "signatures"),
    [
        (on.UBUNTU_2404, "6.14.0-33-generic", "580-server-open-generic-hwe-24.04", True),
        (on.UBUNTU_2204, "6.8.0-85-generic", "580-server-open-generic-hwe-22.04", True),
        (on.UBUNTU_2404, "6.8.0-1036-aws", "580-server-open-aws", True),
        (on.UBUNTU_2404, "6.14.0-1014-oracle", "580-server-open-oracle", True),
        (on.arm(on.UBUNTU_2404), "6.8.0-1036-nvidia-64k", "580-server-open-nvidia-64k", False),
        (on.arm(on.UBUNTU_2604), "7.0.0-14-generic", "580-server-open-generic", True),
    ],
)
def test_precompiled_modules_follow_the_flavour_of_the_kernel(
    system: System, kernel: str, modules: str, signatures: bool
) -> None:
    found = names(replace(system, kernel=kernel), wish(580, source="precompiled"), "kernel")
    expected = {f"linux-modules-nvidia-{modules}", f"linux-modules-nvidia-580-server-open-{kernel}"}
    assert found == expected | ({f"linux-signatures-nvidia-{kernel}"} if signatures else set())


@pytest.mark.rows("H023")
def test_kernels_of_amazon_linux_have_names_of_their_own() -> None:
    system = replace(on.AMAZON, kernel="6.12.46-66.121.amzn2023.x86_64")
    found = names(system, wish(580), "headers", "prerequisite")
    assert {"kernel6.12-devel-6.12.46-66.121.amzn2023.x86_64", "kernel6.12-modules-extra"} <= found


@pytest.mark.rows("H023")
def test_amazons_own_repository_has_no_streams() -> None:
    assert packages(on.AMAZON, wish(580)).stream == "580-open"
    assert packages(on.AMAZON, wish(580, source="distribution")).stream == ""


@pytest.mark.rows("H022")
@pytest.mark.parametrize(
    ("system", "kernel"),
    [
        (replace(on.ALMA_10, id="almalinux", version="9.6"), "nvidia-open-kmod"),
        (replace(on.ALMA_10, id="rocky"), "kmod-nvidia-dc-open-latest"),
        (on.RHEL_9, "kmod-nvidia-open"),
        (replace(on.AZURE, kernel="6.12.44.1-1.azl3"), "cuda-open-hwe"),
    ],
)
def test_distributions_sign_the_open_modules(system: System, kernel: str) -> None:
    found = packages(system, wish(580, source="distribution"))
    assert found.names("kernel") == (kernel,)
    assert found.build is False
    assert names(system, wish(580, source="distribution"), "headers") == set()


@pytest.mark.rows("H016")
@pytest.mark.parametrize(
    ("system", "wanted", "module"),
    [
        (on.DEBIAN_12, wish(535, "proprietary", "distribution"), "nvidia-current"),
        (on.DEBIAN_13, wish(550, "open", "distribution"), "nvidia-current-open"),
        (on.DEBIAN_12, wish(470, "proprietary", "distribution"), "nvidia-tesla-470"),
        (on.DEBIAN_12, wish(595), "nvidia"),
        (on.UBUNTU_2404, wish(580, source="distribution"), "nvidia"),
    ],
)
def test_the_module_has_the_name_that_its_packager_gave_it(system: System, wanted: Wanted, module: str) -> None:
    assert packages(system, wanted).module == module


# -- keeping to a branch -------------------------------------------------------------------------------------------


@pytest.mark.rows("H018")
@pytest.mark.parametrize(
    ("system", "wanted", "stream"),
    [
        (on.ROCKY_8, wish(580), "580-open"),
        (on.RHEL_9, wish(580, "proprietary"), "580-dkms"),
        (on.ORACLE_9, wish(580, "proprietary", "precompiled"), "580"),
        (on.ALMA_10, wish(580), ""),
        (on.FEDORA, wish(580), ""),
        (on.AZURE, wish(580), ""),
    ],
)
def test_a_module_stream_keeps_to_a_branch_where_there_are_streams(system: System, wanted: Wanted, stream: str) -> None:
    assert packages(system, wanted).stream == stream


@pytest.mark.rows("H019")
def test_where_there_are_no_streams_every_package_is_locked() -> None:
    found = packages(on.ALMA_10, wish(595))
    assert found.holds == (
        *(
            "kmod-nvidia-open-dkms",
            "nvidia-kmod-common",
            "nvidia-modprobe",
            "nvidia-persistenced",
            "nvidia-driver-cuda",
        ),
        *("nvidia-driver-cuda-libs", "libnvidia-ml", "libnvidia-cfg"),
    )
    assert any("locks are set before the first installation" in note for note in found.notes)


@pytest.mark.rows("H011")
@pytest.mark.parametrize(
    ("wanted", "pin"),
    [
        (wish(580, version="580.95.05"), ()),
        (wish(590), ("nvidia-driver-pinning-590",)),
        (wish(595, version="595.91.07"), ("nvidia-driver-pinning-595.91.07",)),
        (wish(595, source="local", version="595.91.07"), ("nvidia-driver-pinning-595.91.07",)),
        (wish(595, source="distribution"), ()),
    ],
)
def test_a_pinning_package_comes_first_since_590(wanted: Wanted, pin: tuple[str, ...]) -> None:
    found = packages(on.UBUNTU_2404, wanted)
    assert found.names("pinning") == pin
    assert found.names()[: len(pin)] == pin


@pytest.mark.rows("H020")
def test_sets_without_a_desktop_are_there_from_560_on() -> None:
    assert "nvidia-driver" not in names(on.RHEL_9, wish(560))
    old = packages(on.RHEL_9, wish(550))
    assert "nvidia-driver" in old.names()
    assert any("from branch 560 on" in note for note in old.notes)


@pytest.mark.rows("H021")
@pytest.mark.parametrize(
    ("system", "repositories"),
    [
        (on.ROCKY_8, ("epel", "powertools")),
        (on.RHEL_9, ("epel", "codeready-builder-for-rhel-9-x86_64-rpms")),
        (on.ORACLE_9, ("epel", "ol9_codeready_builder")),
        (on.ALMA_10, ("epel", "crb")),
        (on.FEDORA, ()),
        (on.SLES_15, ("PackageHub",)),
        (on.DEBIAN_12, ("contrib",)),
    ],
)
def test_repositories_that_must_be_there_are_named(system: System, repositories: tuple[str, ...]) -> None:
    assert packages(system, wish(580)).repositories == repositories


# -- what goes first -----------------------------------------------------------------------------------------------


@pytest.mark.rows("H015")
def test_crossing_590_is_a_change_of_every_name() -> None:
    before = packages(on.UBUNTU_2404, wish(580, companions=("fabric_manager",)))
    after = packages(on.UBUNTU_2404, wish(595, companions=("fabric_manager",)))
    stays = {"nvidia-fabricmanager", "linux-headers-6.8.0-45-generic"}
    assert leaving(after, before.names()) == set(before.names()) - stays
    assert leaving(before, after.names()) == set(after.names()) - stays


@pytest.mark.rows("H015")
@pytest.mark.parametrize(
    ("system", "wanted", "installed", "leaves"),
    [
        (
            on.UBUNTU_2404,
            wish(595, version="595.91.07"),
            (
                "cuda-drivers-580 nvidia-open-580 nvidia-firmware-580-580.95.05 nvidia-driver-pinning-595.45.04 "
                "nvidia-driver-pinning-595 nvidia-driver-pinning-595.91.07 nvidia-imex-570 nvidia-container-toolkit "
                "libnvidia-container1 nvidia-cuda-toolkit libnvidia-egl-wayland1 datacenter-gpu-manager-4-core"
            ),
            (
                "cuda-drivers-580 nvidia-open-580 nvidia-firmware-580-580.95.05 nvidia-driver-pinning-595.45.04 "
                "nvidia-driver-pinning-595 nvidia-imex-570"
            ),
        ),
        (  # the flavour
            on.UBUNTU_2404,
            wish(580),
            (
                "nvidia-dkms-580 nvidia-kernel-source-580 nvidia-headless-580 nvidia-utils-580 cuda-drivers-580 "
                "cuda-drivers"
            ),
            "nvidia-dkms-580 nvidia-kernel-source-580 nvidia-headless-580 cuda-drivers-580 cuda-drivers",
        ),
        (  # the branch
            on.UBUNTU_2404,
            wish(580, "proprietary"),
            "nvidia-dkms-570 libnvidia-compute-570 nvidia-fabricmanager-570 nvidia-utils-580 libnvidia-decode-580",
            "nvidia-dkms-570 libnvidia-compute-570 nvidia-fabricmanager-570",
        ),
        (  # the origin: Ubuntu's server build against NVIDIA's repository
            on.UBUNTU_2404,
            wish(580),
            "nvidia-dkms-580-server-open nvidia-utils-580-server libnvidia-compute-580-server nvidia-utils-580",
            "nvidia-dkms-580-server-open nvidia-utils-580-server libnvidia-compute-580-server",
        ),
        (
            on.UBUNTU_2404,
            wish(580, source="distribution"),
            (
                "nvidia-dkms-580-open nvidia-utils-580 nvidia-utils nvidia-fabricmanager nvidia-fabricmanager-580 "
                "nvidia-open"
            ),
            "nvidia-dkms-580-open nvidia-utils-580 nvidia-utils nvidia-fabricmanager nvidia-open",
        ),
        (  # from precompiled to built
            on.UBUNTU_2404,
            wish(580, source="distribution"),
            (
                "linux-modules-nvidia-580-server-open-generic nvidia-headless-no-dkms-580-server-open "
                "nvidia-utils-580-server"
            ),
            "linux-modules-nvidia-580-server-open-generic nvidia-headless-no-dkms-580-server-open",
        ),
        (  # from proprietary to open, precompiled
            on.UBUNTU_2404,
            wish(580, source="precompiled"),
            (
                "linux-modules-nvidia-580-server-oracle linux-modules-nvidia-580-server-generic "
                "linux-modules-nvidia-580-server-open-oracle linux-objects-nvidia-580-server-6.8.0-45-generic"
            ),
            (
                "linux-modules-nvidia-580-server-oracle linux-modules-nvidia-580-server-generic "
                "linux-objects-nvidia-580-server-6.8.0-45-generic"
            ),
        ),
        (
            on.DEBIAN_12,
            wish(595),
            "nvidia-open-kernel-dkms nvidia-kernel-dkms nvidia-tesla-470-smi nvidia-smi cuda-drivers-580 nvidia-open",
            "nvidia-open-kernel-dkms nvidia-kernel-dkms nvidia-tesla-470-smi cuda-drivers-580",
        ),
        (
            on.DEBIAN_12,
            wish(535, "proprietary", "distribution"),
            "nvidia-kernel-open-dkms nvidia-driver-cuda nvidia-open nvidia-kernel-dkms nvidia-driver-pinning-595",
            "nvidia-kernel-open-dkms nvidia-driver-cuda nvidia-open nvidia-driver-pinning-595",
        ),
        (
            on.RHEL_9,
            wish(580),
            (
                "kmod-nvidia-latest-dkms akmod-nvidia xorg-x11-drv-nvidia-cuda kmod-nvidia-580.95.05-5.14.0-427.el9 "
                "nvidia-fabric-manager nvidia-fabric-manager-devel cuda-drivers kmod-nvidia-open-dkms "
                "nvidia-driver-cuda"
            ),
            (
                "kmod-nvidia-latest-dkms akmod-nvidia xorg-x11-drv-nvidia-cuda kmod-nvidia-580.95.05-5.14.0-427.el9 "
                "nvidia-fabric-manager cuda-drivers"
            ),
        ),
        (
            on.SLES_15,
            wish(595),
            "nvidia-open-driver-G06-signed-cuda-kmp-default nvidia-compute-G06 nvidia-driver-G07 nvidia-compute-G07",
            "nvidia-open-driver-G06-signed-cuda-kmp-default nvidia-compute-G06 nvidia-driver-G07",
        ),
    ],
)
def test_what_is_in_the_way_goes_first(system: System, wanted: Wanted, installed: str, leaves: str) -> None:
    assert leaving(packages(system, wanted), installed.split()) == set(leaves.split())


# -- companions ----------------------------------------------------------------------------------------------------


@pytest.mark.rows("H027", "H028", "H029", "H032")
@pytest.mark.parametrize(
    ("system", "wanted", "companion", "expected", "exact"),
    [
        (on.UBUNTU_2404, wish(570), "fabric_manager", "nvidia-fabricmanager-570", True),
        (on.UBUNTU_2404, wish(580), "fabric_manager", "nvidia-fabricmanager", True),
        (on.UBUNTU_2404, wish(580, source="distribution"), "fabric_manager", "nvidia-fabricmanager-580", True),
        (on.UBUNTU_2404, wish(595, source="precompiled"), "fabric_manager", "nvidia-fabricmanager-595", True),
        (on.RHEL_9, wish(570), "fabric_manager", "nvidia-fabric-manager", True),
        (on.RHEL_9, wish(580), "fabric_manager", "nvidia-fabricmanager", True),
        (on.SLES_15, wish(580), "fabric_manager", "nvidia-fabricmanager", True),
        (on.UBUNTU_2404, wish(570), "nscq", "libnvidia-nscq-570", True),
        (on.UBUNTU_2404, wish(595), "nscq", "libnvidia-nscq", True),
        (on.UBUNTU_2404, wish(580, source="distribution"), "nscq", "libnvidia-nscq-580", True),
        (on.RHEL_9, wish(570), "nscq", "libnvidia-nscq-570", True),
        (on.RHEL_9, wish(580), "nscq", "libnvidia-nscq", True),
        (on.UBUNTU_2404, wish(560), "nvsdm", "libnvsdm-560", True),
        (on.UBUNTU_2404, wish(580), "nvsdm", "libnvsdm", True),
        (on.RHEL_9, wish(570), "nvsdm", "libnvsdm", True),
        (on.UBUNTU_2404, wish(550), "imex", "nvidia-imex-550", True),
        (on.UBUNTU_2404, wish(580), "imex", "nvidia-imex", True),
        (on.RHEL_9, wish(580), "imex", "nvidia-imex", True),
        (on.UBUNTU_2404, wish(570), "nvlsm", "nvlsm infiniband-diags", False),
        (on.RHEL_9, wish(595), "nvlsm", "nvlsm infiniband-diags", False),
        (on.UBUNTU_2404, wish(595), "persistenced", "", True),
        (on.DEBIAN_12, wish(595), "persistenced", "nvidia-persistenced", True),
        (on.DEBIAN_12, wish(535, source="distribution"), "persistenced", "nvidia-persistenced", False),
        (on.UBUNTU_2404, wish(595), "peermem", "", True),
        (on.UBUNTU_2404, wish(595), "gds", "nvidia-gds nvidia-fs-dkms nvidia-fs", False),
        (on.RHEL_9, wish(595), "gds", "nvidia-gds nvidia-fs-dkms", False),
        (on.UBUNTU_2404, wish(595), "gdrcopy", "gdrdrv-dkms libgdrapi gdrcopy", False),
        (on.RHEL_9, wish(595), "gdrcopy", "gdrcopy gdrcopy-kmod", False),
    ],
)
def test_a_companion_has_the_name_of_its_branch(
    system: System, wanted: Wanted, companion: str, expected: str, exact: bool
) -> None:
    found = packages(system, replace(wanted, companions=(companion,)))
    assert set(found.names("companion")) == set(expected.split())
    assert all(one.exact is exact for one in found.packages if one.role == "companion")
    assert all((name in found.holds) is exact for name in expected.split())


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.rows("H005", "H008", "H016", "H022", "H024", "H027", "H028", "H029", "H032")
@pytest.mark.parametrize(
    ("system", "wanted", "id", "message", "row"),
    [
        (on.UBUNTU_2604, wish(580), "branch_not_made", "has branches from 595 on, not 580", "kernel 7.0"),
        (on.UBUNTU_2604, wish(570, source="distribution"), "branch_not_made", "from 580 on", "kernel 7.0"),
        (on.DEBIAN_13, wish(580, source="distribution"), "no_branch_choice", "of branch 550, not 580", "550"),
        (on.DEBIAN_12, wish(550, source="distribution"), "no_branch_choice", "535 or 470, not 550", "535"),
        (on.DEBIAN_12, wish(550, source="precompiled"), "source_not_here", "no source precompiled", "local"),
        (on.ORACLE_9, wish(580, source="distribution"), "source_not_here", "it has nvidia, precompiled, local", "ol"),
        (on.ALMA_10, wish(580, source="precompiled"), "source_not_here", "no source precompiled", "almalinux"),
        (on.RHEL_9, wish(580, source="precompiled"), "precompiled_not_made", "for the proprietary", "580"),
        (on.RHEL_9, wish(580, "proprietary", "distribution"), "signed_not_made", "the open modules only", "rhel"),
        (on.SLES_15, wish(580, "proprietary", "precompiled"), "signed_not_made", "the open modules only", "SUSE"),
        (on.SLES_15, wish(590), "branch_not_made", "G06 is up to 580, G07 from 595 on", "G07"),
        (on.UBUNTU_2404, wish(620, "proprietary"), "flavour_not_made", "620 has no proprietary", "branch 620"),
        (on.UBUNTU_2404, wish(470), "flavour_not_made", "470 has no open", "branch 470"),
        (on.UBUNTU_2404, wish(601), "branch_unknown", "601 is not in the matrix", "580, 590"),
        (on.UBUNTU_2404, wish(390, "proprietary"), "branch_unknown", "390 is not in the matrix", "470"),
        (on.UBUNTU_2404, wish(580, version="595.91.07"), "version_of_other_branch", "595.91.07", ""),
        (replace(on.UBUNTU_2404, kernel=""), wish(580, source="precompiled"), "kernel_unknown", "one kernel", ""),
        (replace(on.UBUNTU_2404, version="20.04"), wish(580), "system_unknown", "ubuntu 20.04", ""),
        (System("gentoo", "2.17"), wish(580), "system_unknown", "Ubuntu 22.04, 24.04 and 26.04", ""),
        (replace(on.UBUNTU_2404, arch="ppc64le"), wish(580), "system_unknown", "ppc64le", ""),
        (on.UBUNTU_2404, wish(545, companions=("imex",)), "companion_not_made", "550 is the first", "IMEX"),
        (on.UBUNTU_2404, wish(560, companions=("nvlsm",)), "companion_not_made", "570 is the first", "NVLSM"),
        (on.UBUNTU_2404, wish(550, companions=("nvsdm",)), "companion_not_made", "560 is the first", "NVSDM"),
        (on.arm(on.UBUNTU_2404), wish(570, companions=("nvsdm",)), "companion_not_made", "x86_64 only", ""),
        (on.UBUNTU_2404, wish(595, "proprietary", companions=("gds",)), "gds_needs_open", "open kernel modules", ""),
        (
            on.DEBIAN_12,
            wish(535, source="distribution", companions=("fabric_manager",)),
            "companion_not_here",
            "no fabric manager",
            "",
        ),
        (
            on.UBUNTU_2404,
            wish(580, source="distribution", use="desktop", companions=("fabric_manager",)),
            "companion_not_here",
            "follows the server build",
            "",
        ),
        (
            on.UBUNTU_2404,
            wish(580, source="distribution", companions=("imex",)),
            "companion_not_here",
            "NVIDIA's repository has",
            "",
        ),
        (on.UBUNTU_2404, wish(580, use="games"), "not_a_wish", "compute, full, desktop", ""),
    ],
)
def test_what_there_is_not_is_refused_with_its_reason(
    system: System, wanted: Wanted, id: str, message: str, row: str
) -> None:
    with pytest.raises(Refusal) as why:
        packages(system, wanted)
    assert why.value.id == id
    assert message in why.value.message
    assert row in why.value.row


# -- what suits the GPUs -------------------------------------------------------------------------------------------


@pytest.mark.rows("H004", "H005", "H006")
@pytest.mark.parametrize(
    ("system", "gpus", "asked", "expected"),
    [
        (on.UBUNTU_2404, ["hopper"], {}, wish(595)),
        (on.UBUNTU_2404, ["turing", "blackwell"], {}, wish(595)),
        (on.UBUNTU_2404, ["volta"], {}, wish(580, "proprietary")),
        (on.UBUNTU_2404, ["volta", "ampere"], {}, wish(580, "proprietary")),
        (on.UBUNTU_2404, ["kepler"], {}, wish(470, "proprietary")),
        (on.UBUNTU_2404, ["rubin"], {}, wish(620)),
        (on.UBUNTU_2404, ["newer"], {}, wish(620)),
        (on.arm(on.UBUNTU_2404), ["grace-hopper"], {"branch": 535}, wish(535)),
        (on.UBUNTU_2404, ["hopper"], {"branch": 550}, wish(550, "proprietary")),
        (on.UBUNTU_2404, ["hopper"], {"branch": 560}, wish(560)),
        (on.UBUNTU_2404, ["hopper"], {"flavour": "proprietary"}, wish(595, "proprietary")),
        (on.UBUNTU_2404, ["hopper"], {"branch": 620}, wish(620)),
        (on.UBUNTU_2404, ["hopper"], {"source": "precompiled"}, wish(595, source="precompiled")),
        (on.UBUNTU_2604, ["volta"], {}, wish(580, "proprietary", "distribution")),
        (on.UBUNTU_2604, ["hopper"], {}, wish(595)),
        (on.DEBIAN_12, ["hopper"], {"source": "distribution"}, wish(535, "proprietary", "distribution")),
        (on.DEBIAN_13, ["hopper"], {"source": "distribution"}, wish(550, "proprietary", "distribution")),
        (on.DEBIAN_13, ["blackwell"], {}, wish(595)),
        (on.SLES_15, ["volta"], {}, wish(580, "proprietary")),
        (on.SLES_15, ["blackwell"], {}, wish(595)),
        (on.RHEL_9, ["hopper"], {"source": "precompiled"}, wish(595, "proprietary", "precompiled")),
        (on.RHEL_9, ["hopper"], {"source": "distribution"}, wish(595, "open", "distribution")),
        (on.UBUNTU_2404, [], {}, wish(595)),
        (on.UBUNTU_2404, ["turing"], {"source": "local"}, wish(595, source="local")),
    ],
)
def test_branch_flavour_and_source_suit_the_gpus(
    system: System, gpus: list[str], asked: dict[str, Any], expected: Wanted
) -> None:
    assert choose(system, gpus, today=DAY, **asked) == expected


@pytest.mark.rows("H006")
def test_a_branch_past_its_end_is_not_chosen_any_more() -> None:
    assert choose(on.UBUNTU_2404, ["hopper"], today="2027-05-01").branch == 620
    assert choose(on.UBUNTU_2404, ["volta"], today="2030-01-01").branch == 580


@pytest.mark.rows("H004", "H005")
@pytest.mark.parametrize(
    ("gpus", "asked", "id", "message"),
    [
        (["volta", "blackwell"], {}, "gpus_do_not_mix", "blackwell needs the open modules and volta needs"),
        (["kepler", "volta"], {"branch": 580}, "gpu_too_old", "580 no longer drives kepler GPUs: 470 is the last"),
        (["kepler", "ada"], {}, "gpus_do_not_mix", "no branch drives all of kepler, ada"),
        (["volta"], {"branch": 595}, "gpu_too_old", "580 is the last"),
        (["blackwell"], {"branch": 550}, "gpu_too_new", "570 is the first"),
        (["volta"], {"flavour": "open"}, "flavour_does_not_fit", "volta GPUs need the proprietary"),
        (["blackwell"], {"flavour": "proprietary"}, "flavour_does_not_fit", "blackwell GPUs need the open"),
        (["hopper"], {"branch": 620, "flavour": "proprietary"}, "flavour_not_made", "620 has no proprietary"),
        (["thor"], {}, "gpu_without_driver", "of their own"),
        (["unknown"], {}, "gpu_unknown", "'unknown'"),
        (["hopper"], {"branch": 601}, "branch_unknown", "601"),
        (["volta"], {"source": "distribution", "branch": 570, "flavour": "open"}, "flavour_does_not_fit", "volta"),
    ],
)
def test_gpus_that_cannot_have_it_are_told_why(gpus: list[str], asked: dict[str, Any], id: str, message: str) -> None:
    with pytest.raises(Refusal) as why:
        choose(on.UBUNTU_2404, gpus, today=DAY, **asked)
    assert why.value.id == id
    assert message in why.value.message
    assert why.value.row


@pytest.mark.rows("H025")
@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (on.UBUNTU_2404, ("nvidia", "distribution", "precompiled", "local")),
        (on.DEBIAN_13, ("nvidia", "distribution", "local")),
        (on.ROCKY_8, ("nvidia", "precompiled", "local")),
        (on.RHEL_9, ("nvidia", "distribution", "precompiled", "local")),
        (on.ALMA_10, ("nvidia", "distribution", "local")),
        (on.FEDORA, ("nvidia", "local")),
        (on.AMAZON, ("nvidia", "distribution", "precompiled", "local")),
        (on.AZURE, ("nvidia", "distribution", "local")),
        (on.SLES_16, ("nvidia", "precompiled", "local")),
        (on.IMMUTABLE[0], ()),
        (System("gentoo", "2.17"), ()),
    ],
)
def test_a_system_has_these_sources(system: System, expected: tuple[str, ...]) -> None:
    assert sources(system) == expected
