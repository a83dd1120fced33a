# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which versions packages get, what moves with them, and what is held; and who made what is there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _catalog
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._catalog import PackageSet
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._origin import (
    of_driver,
    origin,
    origins,
    upstream,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._plan import (
    HELD,
    Seen,
    holds,
    plan,
    settled,
    version_of,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._types import System, Wanted

EL9 = System("rocky", "9.4", ("rhel", "centos", "fedora"), "x86_64", "5.14.0-427.el9.x86_64", "dnf")
UBUNTU = System("ubuntu", "24.04", ("debian",), "x86_64", "6.8.0-45-generic", "apt")
DEBIAN = System("debian", "12", (), "x86_64", "6.1.0-30-amd64", "apt")
OLD, NEW = "580.82.07", "580.95.05"


def el9(version: str = "", branch: int = 580) -> PackageSet:
    return _catalog.packages(EL9, Wanted(branch, version, "open", "nvidia", "compute"))


def rpms(version: str, packages: PackageSet) -> dict[str, str]:
    return {one.name: f"3:{version}-1.el9" if one.exact else "1.0-1.el9" for one in packages.packages}


def both(packages: PackageSet) -> dict[str, list[str]]:
    return {one.name: [f"3:{NEW}-1.el9", f"3:{OLD}-1.el9"] if one.exact else ["1.0-1.el9"] for one in packages.packages}


@pytest.mark.rows("H007", "H018", "H020")
def test_the_newest_of_the_branch_in_its_stream_with_epochs() -> None:
    packages = el9()
    seen = Seen("dnf", {}, stream="580-dkms")
    assert version_of(packages, seen, both(packages), 580, "") == (NEW, [])
    found = plan(packages, seen, both(packages), NEW, hold=True)
    assert {version for name, version in found.pins.items() if name in of_driver(found.pins)} == {f"3:{NEW}-1.el9"}
    assert found.stream == packages.stream == "580-open"
    assert [one.id for one in found.findings] == []


@pytest.mark.rows("P031")
def test_what_is_there_of_the_branch_stays_and_of_another_branch_does_not() -> None:
    packages = el9()
    seen = Seen("dnf", rpms(OLD, packages), stream="580-open")
    assert settled(packages, seen, 580, "") == OLD
    assert settled(packages, seen, 595, "") == ""
    assert settled(packages, seen, 580, "latest") == ""
    assert settled(packages, seen, 580, NEW) == ""
    assert settled(packages, Seen("dnf", {**rpms(OLD, packages), "libnvidia-gl": f"3:{NEW}-1.el9"}), 580, "") == ""


@pytest.mark.rows("H035", "P028")
def test_siblings_that_are_there_move_too_also_downwards() -> None:
    packages = el9(OLD)
    installed = {**rpms(NEW, packages), "nvidia-settings": f"3:{NEW}-1.el9", "nvidia-container-toolkit": "1.20.2-1"}
    candidates = {**both(packages), "nvidia-settings": [f"3:{NEW}-1.el9", f"3:{OLD}-1.el9"]}
    found = plan(packages, Seen("dnf", installed, stream="580-open"), candidates, OLD, hold=True)
    assert found.pins["nvidia-settings"] == f"3:{OLD}-1.el9"
    assert "nvidia-container-toolkit" not in {**found.pins, **dict.fromkeys(found.hold)}
    assert {action.verb for action in found.actions if action.id.startswith("package-")} == {"downgrade"}


@pytest.mark.rows("H033")
def test_our_own_holds_are_lifted_without_a_word_and_those_of_others_are_told() -> None:
    packages = el9(NEW)
    installed = rpms(OLD, packages)
    name = next(one.name for one in packages.packages if one.exact)
    mine = Seen("dnf", installed, [name], {HELD + name: False}, "580-open")
    assert plan(packages, mine, both(packages), NEW, hold=True).findings == []
    foreign = Seen("dnf", installed, [name], {}, "580-open")
    assert [one.id for one in plan(packages, foreign, both(packages), NEW, hold=True).findings] == ["held"]
    taken = plan(packages, foreign, both(packages), NEW, hold=True, accept=["held"])
    assert (taken.findings, name in taken.unhold, name in taken.hold) == ([], True, True)


@given(st.sets(st.sampled_from([one.name for one in el9(NEW).packages]), min_size=1))
def test_whatever_a_mirror_lacks_is_named_and_nothing_else_is_blamed(lacking: set[str]) -> None:
    packages = el9(NEW)
    candidates = {name: versions for name, versions in both(packages).items() if name not in lacking}
    exact = {one.name for one in packages.packages if one.exact}
    version, findings = version_of(packages, Seen("dnf", {}), candidates, 580, NEW)
    if lacking & exact:
        assert (version, [one.id for one in findings]) == ("", ["not_in_repository"])
    else:
        findings = plan(packages, Seen("dnf", {}), candidates, version, hold=True).findings
    blamed = findings[0].detail.partition(":")[0].split(", ")
    assert set(blamed) == ((lacking & exact) or lacking)


@pytest.mark.parametrize(
    ("name", "version", "system", "who"),
    [
        ("nvidia-utils-580-server", "580.95.05-0ubuntu0.24.04.2", UBUNTU, "distribution"),
        ("nvidia-utils-580", "580.95.05-0ubuntu1", UBUNTU, "nvidia"),
        ("nvidia-utils-580", "580.95.05-1ubuntu1", UBUNTU, "nvidia"),
        ("linux-modules-nvidia-580-open-generic", "6.8.0-45.45", UBUNTU, "precompiled"),
        ("nvidia-smi", "535.247.01-1~deb12u1", DEBIAN, "distribution"),
        ("nvidia-driver-cuda", "580.95.05-1", DEBIAN, "nvidia"),
        ("libcuda1", "580.95.05-1", DEBIAN, ""),
        ("kmod-nvidia-open-dkms", "3:580.95.05-1.el9", EL9, "nvidia"),
        ("akmod-nvidia", "3:580.95.05-1.fc41", EL9, "rpmfusion"),
        ("nvidia-open-kmod", "580.95.05-1.el9", EL9, "precompiled"),
    ],
)
@pytest.mark.rows("H038")
def test_names_and_versions_tell_who_made_a_package(name: str, version: str, system: System, who: str) -> None:
    assert origin(name, version, system) == who


@pytest.mark.rows("H038")
def test_what_debian_and_nvidia_both_have_is_nvidias_where_its_own_packages_are_beside_it() -> None:
    both = {"nvidia-kernel-support": "580.95.05-1", "firmware-nvidia-gsp": "580.95.05-1"}
    assert origins(both, DEBIAN) == {"distribution": sorted(both, reverse=True)}
    assert origins({**both, "nvidia-driver-cuda": "580.95.05-1"}, DEBIAN) == {"nvidia": ["nvidia-driver-cuda"]}
    mixed = {"nvidia-smi": "535.247.01-1~deb12u1", "nvidia-driver-cuda": "580.95.05-1"}
    assert origins(mixed, DEBIAN) == {"distribution": ["nvidia-smi"], "nvidia": ["nvidia-driver-cuda"]}


def test_the_drivers_version_is_found_in_that_of_a_package() -> None:
    told: dict[str, Any] = {
        "580.95.05-0ubuntu1": "580.95.05", "3:580.95.05-1.el9": "580.95.05", "575.57-1": "575.57", "1.20.2-1": "",
        "6.8.0-45.45": "", "2.29.4-1": "", "12": "",
    }  # fmt: skip
    assert {full: upstream(full) for full in told} == told
    others = {"nvidia-container-toolkit": "1.20.2-1", "datacenter-gpu-manager-4": "1:4.6.0"}
    mine = {"nvidia-utils-580": "580.95.05-1", **others}
    assert list(of_driver(mine)) == ["nvidia-utils-580"]
    assert holds({**mine, "dkms": "3.0.10-1"}, PackageSet((), holds=("dkms",))) == ["nvidia-utils-580", "dkms"]


@pytest.mark.rows("H016")
def test_tools_that_debian_numbers_by_themselves_are_no_other_version_of_the_driver() -> None:
    bookworm = {
        "libcuda1": "535.261.03-1", "nvidia-kernel-dkms": "535.261.03-1", "nvidia-smi": "535.261.03-1",
        "nvidia-modprobe": "535.161.07-1~deb12u1", "nvidia-persistenced": "535.171.04-1~deb12u1",
    }  # fmt: skip
    assert sorted(of_driver(bookworm)) == ["libcuda1", "nvidia-kernel-dkms", "nvidia-smi"]
    trixie = {"nvidia-smi": "550.163.01-2", "nvidia-modprobe": "570.133.07-1", "nvidia-settings": "550.163.01-1"}
    assert sorted(of_driver(trixie)) == ["nvidia-settings", "nvidia-smi"]
    assert of_driver({"nvidia-modprobe": "570.133.07-1"}) == {}
    repository = {"nvidia-driver-cuda": "580.95.05-1", "nvidia-persistenced": "580.95.05-1"}
    assert of_driver(repository) == repository
    half_done = {**repository, "libcuda1": "580.178.04-1"}
    assert of_driver(half_done) == half_done
    assert origins({"nvidia-modprobe": "535.309.01-0+deb12u1", "libcuda1": "535.309.01-0+deb12u1"}, DEBIAN) == {
        "distribution": ["nvidia-modprobe", "libcuda1"]
    }


def test_a_version_that_is_cut_short_is_told_as_such() -> None:
    packages = el9()
    version, findings = version_of(packages, Seen("dnf", {}), both(packages), 580, "580.95")
    assert version == ""
    assert f"580.95 is no full version; there are {NEW} (" in findings[0].detail
