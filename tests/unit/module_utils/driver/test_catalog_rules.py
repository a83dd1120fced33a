# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold in every set of packages that the catalogue gives, whatever it was asked."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils import _matrix as matrix
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._catalog import (
    PackageSet,
    Refusal,
    choose,
    packages,
    sources,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._types import (
    COMPANIONS,
    SOURCES,
    USES,
    System,
    Wanted,
)

from . import systems

HOSTS = [*systems.ALL, *(systems.arm(system) for system in systems.ALL)]
GPUS = [name for name in matrix.ARCHITECTURES if name not in ("pre-fermi", "fermi", "thor")]
OPEN_ONLY = ("grace-hopper", "blackwell", "rubin", "newer")
OLD = ("kepler", "maxwell", "pascal", "volta")
NUMBERED = re.compile(r"-[34567]\d\d(?![\d])")
DRIVER_ROLES = ("kernel", "user", "firmware")

hosts = st.sampled_from(HOSTS)
branches = st.sampled_from([number for number in matrix.BRANCHES if number >= 470])
wishes = st.builds(
    Wanted,
    branch=branches,
    version=st.just(""),
    flavour=st.sampled_from(("open", "proprietary")),
    source=st.sampled_from(SOURCES),
    use=st.sampled_from(USES),
    companions=st.lists(st.sampled_from(COMPANIONS), unique=True).map(tuple),
)


def with_version(wanted: Wanted, has_version: bool) -> Wanted:
    known = matrix.BRANCHES[wanted.branch].releases
    return replace(wanted, version=known[0] if has_version and known else "")


def given_set(system: System, wanted: Wanted) -> PackageSet | Refusal:
    try:
        return packages(system, wanted)
    except Refusal as why:
        return why


def chosen(system: System, gpus: list[str], branch: int, flavour: str, source: str) -> Wanted | Refusal:
    try:
        return choose(system, gpus, branch, flavour, source)
    except Refusal as why:
        return why


def is_told(why: Refusal) -> bool:
    return bool(re.fullmatch(r"[a-z_]+", why.id)) and len(why.message) > 20


@pytest.mark.rows("H008", "H010")
@given(hosts, wishes, st.booleans())
def test_a_set_is_held_whole_and_speaks_one_language(system: System, wanted: Wanted, has_version: bool) -> None:
    wanted = with_version(wanted, has_version)
    found = given_set(system, wanted)
    if isinstance(found, Refusal):
        assert is_told(found)
        return
    names = found.names()
    assert len(set(names)) == len(names)
    assert set(found.holds) == {one.name for one in found.packages if one.exact}
    assert [(name, pattern) for name in names for pattern in found.leaves if fnmatchcase(name, pattern)] == []
    if system.id == "ubuntu":
        numbered = {bool(NUMBERED.search(name)) for name in found.names(*DRIVER_ROLES) if "signatures" not in name}
        assert len(numbered) == 1, names
    kernel = " ".join(found.names("kernel"))
    assert kernel or (wanted.source == "precompiled" and not wanted.version)
    if wanted.flavour == "proprietary":
        assert "open" not in kernel
        assert wanted.branch < 620


@pytest.mark.rows("H010", "H011", "H018", "H019")
@given(hosts, wishes, st.booleans())
def test_a_branch_is_kept_by_name_pin_stream_or_lock(system: System, wanted: Wanted, has_version: bool) -> None:
    wanted = with_version(wanted, has_version)
    found = given_set(system, wanted)
    if isinstance(found, Refusal):
        assert is_told(found)
        return
    pins = found.names("pinning")
    own = wanted.source in ("distribution", "precompiled")
    assert bool(pins) == (system.family == "apt" and wanted.branch >= 590 and not own)
    assert not pins or (found.packages[0].name == pins[0] and pins[0].endswith(wanted.version or str(wanted.branch)))
    modular = system.id == "amzn" or (
        system.family == "dnf" and system.version[:2] in ("8.", "9.") and system.id != "azurelinux"
    )
    assert bool(found.stream) == (modular and wanted.source != "distribution")
    assert not found.stream or found.stream.startswith(str(wanted.branch))


@pytest.mark.rows("H004", "H005")
@given(
    hosts,
    st.lists(st.sampled_from(GPUS), min_size=1, max_size=3),
    st.just(0) | branches,
    st.sampled_from(("auto", "open", "proprietary")),
    st.sampled_from(("auto", *SOURCES)),
)
def test_what_is_chosen_drives_every_gpu(
    system: System, gpus: list[str], branch: int, flavour: str, source: str
) -> None:
    wanted = chosen(system, gpus, branch, flavour, source)
    if isinstance(wanted, Refusal):
        assert is_told(wanted)
        return
    assert packages(system, wanted).names()
    assert branch in (0, wanted.branch)
    assert flavour in ("auto", wanted.flavour)
    assert source in ("auto", wanted.source)
    row = matrix.BRANCHES[wanted.branch]
    for name in gpus:
        assert wanted.flavour in matrix.flavours_for(name)
        assert matrix.runs(row, name)
        assert not (name in OPEN_ONLY and wanted.flavour == "proprietary")
        assert not (name in OLD and (wanted.flavour == "open" or wanted.branch > 580))
    assert not (wanted.branch >= 620 and wanted.flavour == "proprietary")


@pytest.mark.rows("H015")
@given(hosts, wishes, wishes)
def test_what_one_set_leaves_is_no_part_of_it_and_the_way_back_is_open(
    system: System, before: Wanted, after: Wanted
) -> None:
    """Names of the one driver that are not names of the other must go, or hold the other up."""
    old, new = given_set(system, before), given_set(system, after)
    if isinstance(old, Refusal) or isinstance(new, Refusal) or system.id != "ubuntu":
        return
    stays = {
        name
        for name in set(old.names(*DRIVER_ROLES)) - set(new.names())
        if not any(fnmatchcase(name, pattern) for pattern in new.leaves)
    }
    if before.branch != after.branch or before.flavour != after.flavour:
        kernel = {name for name in stays if name in old.names("kernel") and "signatures" not in name}
        assert kernel == set()


@pytest.mark.rows("H025")
@pytest.mark.parametrize("system", systems.IMMUTABLE, ids=lambda system: system.id)
def test_packages_are_no_way_on_an_image(system: System) -> None:
    assert sources(system) == ()
    with pytest.raises(Refusal, match="packages are not installed on") as why:
        choose(system, ["hopper"])
    assert why.value.id == "system_immutable"
    with pytest.raises(Refusal):
        packages(system, Wanted(595))


def test_flatcar_is_told_its_own_two_ways() -> None:
    with pytest.raises(Refusal, match=r"/etc/flatcar/nvidia-metadata.*/etc/flatcar/enabled-sysext\.conf"):
        choose(systems.IMMUTABLE[0], ["hopper"])


@pytest.mark.rows("S36")
def test_every_combination_has_a_set_or_a_reason() -> None:
    told: set[str] = set()
    sets = 0
    for system in HOSTS:
        for branch in (0, *matrix.BRANCHES):
            for source in SOURCES:
                for gpu in ("kepler", "volta", "hopper", "blackwell", "rubin"):
                    wanted = chosen(system, [gpu], branch, "auto", source)
                    if isinstance(wanted, Refusal):
                        assert is_told(wanted)
                        told.add(wanted.id)
                    else:
                        sets += bool(packages(system, wanted).names())
    assert sets > 1500
    assert told == {
        *("branch_not_made", "branch_unknown", "gpu_too_new", "gpu_too_old", "no_branch_choice"),
        *("precompiled_not_made", "signed_not_made", "source_not_here"),
    }
