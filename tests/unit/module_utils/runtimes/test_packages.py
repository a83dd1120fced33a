# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which version the toolkit's packages get, and what speaks against it. On real hosts: tests/integration/hosts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._packages import compare
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import errors
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._packages import (
    BASE,
    FLOOR,
    HELD,
    INSTALLED,
    NAMES,
    Plan,
    Seen,
    Wanted,
    members,
    plan,
    plan_absent,
)

ALL = ["1.20.2-1", "1.19.1-1", "1.17.8-1", "1.17.4-1"]


def at(version: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names or NAMES, version)


def seen(installed: dict[str, str] | None = None, held: Any = (), **more: Any) -> Seen:
    candidates = more.pop("candidates", only(ALL))
    return Seen("apt", installed or {}, held, candidates, **more)


def only(versions: list[str]) -> dict[str, list[str]]:
    return dict.fromkeys(NAMES, versions)


def ids(result: Plan) -> list[str]:
    return [one.id for one in result.findings]


def verbs(result: Plan) -> dict[str, str]:
    return {action.target: action.verb for action in result.actions}


@pytest.mark.rows("H061", "P022")
def test_all_four_get_the_newest_and_are_held() -> None:
    result = plan(seen(), Wanted())
    assert result.pins == at("1.20.2-1")
    assert result.hold == [*NAMES]
    assert not result.downgrade
    assert ids(result) == []


@pytest.mark.parametrize("asked", ["", "1.19.1", "1.19.1-1"])
def test_what_is_there_and_held_needs_nothing(asked: str) -> None:
    result = plan(seen(at("1.19.1-1"), NAMES, candidates=None), Wanted(version=asked))
    assert (result.actions, result.findings, result.pins) == ([], [], {})


@pytest.mark.rows("H061")
def test_an_older_version_comes_only_when_it_is_asked_for() -> None:
    older = only(["1.17.8-1"])
    newest = plan(seen(at("1.19.1-1"), NAMES, candidates=older), Wanted(version="latest"))
    assert newest.actions == []
    asked = plan(seen(at("1.19.1-1"), NAMES, candidates=older, notes={HELD + one: False for one in NAMES}),
                 Wanted(version="1.17.8"))  # fmt: skip
    assert asked.pins == at("1.17.8-1")
    assert asked.downgrade
    assert set(verbs(asked).values()) == {"downgrade"}
    assert asked.unhold == asked.hold == [*NAMES]


@pytest.mark.rows("H061")
@pytest.mark.parametrize("lacks", NAMES)
def test_a_repository_that_lacks_one_of_them_is_told_by_name(lacks: str) -> None:
    candidates = dict(only(ALL), **{lacks: ALL[1:]})
    result = plan(seen(candidates=candidates), Wanted(version="1.20.2"))
    assert ids(result) == ["toolkit_not_in_repository"]
    assert result.findings[0].detail.startswith(f"{lacks}: not to be had in version 1.20.2")
    assert (result.pins, result.actions) == ({}, [])
    # No version asked: the newest that all of them have.
    assert plan(seen(candidates=candidates), Wanted()).pins == at("1.19.1-1")
    del candidates[lacks]
    result = plan(seen(candidates=candidates), Wanted())
    assert result.findings[0].detail.startswith(f"{lacks}: not in the host's repositories")


@pytest.mark.rows("H061", "P022")
def test_mixed_versions_are_told_and_become_the_newest_of_them() -> None:
    mixed = dict(at("1.17.8-1"), libnvidia_container1="", **{"libnvidia-container1": "1.19.1-1"})
    result = plan(seen(mixed), Wanted())
    assert ids(result) == ["mixed_versions"]
    assert result.pins == at("1.19.1-1")
    # That one is nowhere to be had: the next newer one, never an older one.
    result = plan(seen(mixed, candidates=only(["1.20.2-1", "1.17.8-1"])), Wanted())
    assert result.pins == at("1.20.2-1")
    result = plan(seen(mixed, candidates=only(["1.17.8-1"])), Wanted())
    assert ids(result) == ["mixed_versions", "toolkit_not_in_repository"]


@pytest.mark.rows("H063")
@pytest.mark.parametrize("installed", [{}, at("1.17.4-1")])
def test_versions_below_the_floor_are_refused(installed: dict[str, str]) -> None:
    asked = "" if installed else "1.17.4"
    result = plan(seen(installed, NAMES if installed else ()), Wanted(version=asked))
    assert [(one.id, one.severity, one.accept) for one in result.findings] == [
        ("insecure_version", "error", "insecure_version")
    ]
    accepted = plan(seen(installed), Wanted(version=asked, accept=("insecure_version",)))
    assert errors(accepted.findings) == []
    assert plan(seen(candidates=only([f"{FLOOR}-1"])), Wanted()).findings == []


@pytest.mark.rows("H064")
def test_cdi_alone_needs_the_base_and_siblings_that_are_there_move_with_it() -> None:
    base = plan(seen(), Wanted(profile="base"))
    assert base.pins == at("1.20.2-1", BASE)
    assert base.hold == [BASE]
    both = plan(seen(at("1.19.1-1", BASE, "libnvidia-container1")), Wanted(profile="base", version="1.20.2"))
    assert both.pins == at("1.20.2-1", BASE, "libnvidia-container1")
    full = plan(seen(at("1.19.1-1", BASE), [BASE]), Wanted())
    assert full.pins == at("1.19.1-1")
    assert BASE not in verbs(full)


def test_what_somebody_else_holds_moves_only_when_accepted() -> None:
    foreign = plan(seen(at("1.19.1-1"), NAMES), Wanted(version="1.20.2"))
    assert ids(foreign) == ["held"]
    assert errors(foreign.findings)
    accepted = plan(seen(at("1.19.1-1"), NAMES), Wanted(version="1.20.2", accept=("held",), hold=False))
    assert ids(accepted) == []
    assert accepted.unhold == accepted.hold == [*NAMES]  # held again, since they were


def test_holds_of_ours_go_when_they_are_not_wanted() -> None:
    notes = {HELD + one: False for one in NAMES}
    result = plan(seen(at("1.19.1-1"), NAMES, notes=notes), Wanted(hold=False))
    assert result.unhold == [*NAMES]
    assert set(verbs(result).values()) == {"unhold"}
    assert plan(seen(at("1.19.1-1"), NAMES), Wanted(hold=False)).actions == []


@pytest.mark.rows("H062")
def test_obsolete_packages_go_once_the_toolkit_is_there() -> None:
    result = plan(seen(dict(at("1.19.1-1"), **{"nvidia-docker2": "2.14.0-1"}), NAMES), Wanted())
    assert result.remove == ["nvidia-docker2"]
    assert verbs(result) == {"nvidia-docker2": "remove"}
    lacking = plan(seen({"nvidia-docker2": "2.14.0-1"}, candidates={}), Wanted())
    assert lacking.remove == []


def test_the_way_back_takes_only_what_came_with_us() -> None:
    notes: dict[str, Any] = {INSTALLED + one: "" for one in NAMES[1:]}
    notes[INSTALLED + NAMES[0]] = "1.17.8-1"
    notes.update({HELD + one: False for one in NAMES[1:]}, **{HELD + NAMES[0]: True})
    result = plan_absent(seen(at("1.19.1-1"), NAMES[1:], notes=notes))
    assert result.remove == [*NAMES[1:]]
    assert result.unhold == [*NAMES[1:]]
    assert result.hold == [NAMES[0]]
    assert ids(result) == ["version_stays"]
    assert plan_absent(seen(at("1.19.1-1"), NAMES)).actions == []


_VERSION = st.sampled_from(ALL)
_INSTALLED = st.dictionaries(st.sampled_from(NAMES), _VERSION)
_CANDIDATES = st.dictionaries(st.sampled_from(NAMES), st.sets(_VERSION).map(lambda some: sorted(some, reverse=True)))
_WANTED = st.builds(
    Wanted,
    profile=st.sampled_from(["full", "base"]),
    version=st.sampled_from(["", "latest", "1.19.1", "1.20.2-1", "9.9"]),
    hold=st.booleans(),
    accept=st.sampled_from([(), ("insecure_version", "held")]),
)


@pytest.mark.rows("H061", "P022")
@given(_INSTALLED, st.sets(st.sampled_from(NAMES)), _CANDIDATES, _WANTED)
def test_any_plan_ends_in_one_version_and_a_second_one_is_empty(
    installed: dict[str, str], held: set[str], candidates: dict[str, list[str]], wanted: Wanted
) -> None:
    first = plan(Seen("apt", installed, sorted(held & set(installed)), candidates), wanted)
    if errors(first.findings):
        return
    names = members(wanted, installed)
    for name, version in first.pins.items():
        assert version in candidates.get(name, ()) or installed.get(name) == version
    after = dict(installed, **first.pins)
    assert len({after[name] for name in names}) == 1
    if not wanted.version or wanted.version == "latest":
        assert not any(compare("apt", installed[name], after[name]) > 0 for name in installed)
    holds = (held & set(installed) - set(first.unhold)) | set(first.hold)
    notes = {HELD + name: name in held for name in NAMES if name in {*first.hold, *first.unhold}}
    second = plan(Seen("apt", after, sorted(holds), candidates, notes=notes), wanted)
    assert second.actions == []
    if wanted.hold:
        assert set(names) <= holds
