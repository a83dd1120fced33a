# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of drivers and the testbed's packages were written apart from each other, from the same facts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _catalog
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._types import (
    DISTRIBUTION,
    FLAVOURS,
    NVIDIA,
    PRECOMPILED,
    USES,
    System,
    Wanted,
)
from ansible_collections.gpufleet.nvidia.tests.testbed.drivers import debs, parts, rpms
from ansible_collections.gpufleet.nvidia.tests.testbed.packages.package import Package

NOBLE = System("ubuntu", "24.04", ("debian",), "x86_64", debs.KERNEL, "apt")
BOOKWORM = System("debian", "12", (), "x86_64", "6.1.0-41-amd64", "apt")
TRIXIE = System("debian", "13", (), "x86_64", "6.12.0-41-amd64", "apt")
ROCKY = System("rocky", "9.4", ("rhel", "centos"), "x86_64", f"{rpms.KERNEL}.x86_64", "dnf")
LEAP = System("opensuse-leap", "15.6", ("suse",), "x86_64", "6.4.0-150600.23.25-default", "zypper")
COMPANIONS = ((), ("fabric_manager", "nscq"), ("imex", "nvsdm"), ("nvlsm", "persistenced"), ("gds",), ("gdrcopy",))
ARCHIVE = [*debs.ubuntu(), *debs.ubuntu(server=True)]
TRIXIES = "550.163.01"


@pytest.mark.parametrize(
    ("system", "source", "there", "versions", "sets"),
    [
        (NOBLE, NVIDIA, debs.nvidia_ubuntu(), parts.VERSIONS, 300),
        (NOBLE, DISTRIBUTION, ARCHIVE, parts.VERSIONS, 50),
        (NOBLE, PRECOMPILED, ARCHIVE, parts.VERSIONS, 50),
        (BOOKWORM, NVIDIA, debs.nvidia_debian(), parts.VERSIONS, 300),
        (TRIXIE, DISTRIBUTION, debs.debian(TRIXIES), (TRIXIES,), 6),
        (ROCKY, NVIDIA, rpms.enterprise(), parts.VERSIONS, 300),
        (ROCKY, PRECOMPILED, rpms.enterprise(), parts.VERSIONS, 100),
        (LEAP, NVIDIA, rpms.suse(), parts.VERSIONS, 200),
        (LEAP, PRECOMPILED, rpms.suse(), parts.VERSIONS, 100),
    ],
    ids=lambda value: value.id if isinstance(value, System) else value if isinstance(value, str) else "",
)
def test_every_package_that_the_catalogue_names_is_in_the_repository_of_that_kind(
    system: System, source: str, there: Sequence[Package], versions: Sequence[str], sets: int
) -> None:
    have = {(one.name, one.version) for one in there}
    names = {name for name, _version in have} | {"infiniband-diags"}
    missing: set[str] = set()
    made = 0
    for version, flavour, use, companions in product(versions, FLAVOURS, USES, COMPANIONS):
        try:
            found = _catalog.packages(system, Wanted(parts.branch(version), version, flavour, source, use, companions))
        except _catalog.Refusal:
            continue
        made += 1
        for one in found.packages:
            known = (one.name, version) in have if one.exact else one.name in names
            if not known and one.role not in ("prerequisite", "headers"):
                missing.add(f"{one.name} {version}")
    assert sorted(missing) == []
    assert made >= sets
