# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that have one version together: chosen, moved, held, and given back; and which of DCGM's a host needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm_host import _packages, _run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import _package_set
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Runner
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._package_set import Asked
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._systemd import UnitState
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, errors
from ansible_collections.gpufleet.nvidia.tests.helpers.faults import Died, Steps

FOUR = "datacenter-gpu-manager-4"
CORE, CUDA12, CUDA13, THREE = f"{FOUR}-core", f"{FOUR}-cuda12", f"{FOUR}-cuda13", "datacenter-gpu-manager"
NEW, OLD = "1:4.6.0-1", "1:4.4.2-1"
GONE = ("not-found", "inactive", "dead", "")


class Shop:
    """A package manager in memory, which does as apt does: what is held does not move, conflicts are refused."""

    name = "apt"

    def __init__(self, watch: Steps) -> None:
        self.watch = watch
        self.have: dict[str, str] = {}
        self.kept: set[str] = set()
        self.shelf: dict[str, list[str]] = {
            CORE: [NEW, OLD],
            CUDA12: [NEW, OLD],
            CUDA13: [NEW, OLD],
            THREE: ["1:3.3.9-1"],
        }

    def installed(self, names: Sequence[str]) -> dict[str, str]:
        return {name: self.have[name] for name in names if name in self.have}

    def candidates(self, names: Sequence[str]) -> dict[str, list[str]]:
        return {name: self.shelf[name] for name in names if name in self.shelf}

    def install(self, pins: Mapping[str, str], *, downgrade: bool) -> None:
        self.watch("before", "install")
        moved = [name for name in pins if self.have.get(name) != pins[name]]
        assert not self.kept & set(moved), "held"
        assert all(pins[name] in self.shelf[name] for name in moved)
        after = {**self.have, **pins}
        assert not (THREE in after and CORE in after), "conflict"
        self.have = after
        self.watch("after", "install")

    def remove(self, names: Sequence[str], *, purge: bool) -> None:
        self.watch("before", "remove")
        self.have = {name: version for name, version in self.have.items() if name not in names}
        self.kept -= set(names)
        self.watch("after", "remove")

    def held(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self.kept]

    def hold(self, names: Sequence[str]) -> None:
        self.watch("before", "hold")
        self.kept |= set(names) & set(self.have)
        self.watch("after", "hold")

    def unhold(self, names: Sequence[str]) -> None:
        self.watch("before", "unhold")
        self.kept -= set(names)
        self.watch("after", "unhold")


class Host:
    """Its packages, and the journal below a folder."""

    def __init__(self, folder: Path, **have: str) -> None:
        (folder / "var/lib").mkdir(parents=True, exist_ok=True)
        self.root = Root(str(folder))
        self.shop = Shop(Steps())

    def run(self, asked: Asked | None, steps: Steps | None = None) -> _package_set.Plan:
        """Plan, act and prove; None gives back."""
        self.shop.watch = steps or Steps()
        with Journal(Files(self.root, self.shop.watch), "sample") as journal:
            shop: Any = self.shop
            if asked is None:
                todo = _package_set.plan_absent("DCGM", _package_set.look_absent(shop, journal.notes()))
            else:
                todo = _package_set.plan(_package_set.look(shop, journal.notes(), asked), asked)
            if not errors(todo.findings):
                _package_set.apply(todo, shop, journal, lambda line: None)
                assert all(check.ok for check in _package_set.prove(todo, shop))
            if asked is None:
                for key in journal.notes():
                    journal.forget(key)
                journal.give_back()
        return todo


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def asked(*names: str, **more: Any) -> Asked:
    return Asked("DCGM", names or (CORE, CUDA13), **more)


def actions(todo: _package_set.Plan) -> list[tuple[str, str]]:
    return [(action.verb, action.target) for action in todo.actions]


@pytest.mark.parametrize("version", ["4.4.2", "4.4.2-1", "1:4.4.2-1"])
def test_a_version_is_asked_for_with_epoch_and_release_or_without(host: Host, version: str) -> None:
    host.run(asked(version=version))
    assert host.shop.have == {CORE: OLD, CUDA13: OLD}
    assert host.run(asked(version=version)).actions == []
    assert host.run(asked()).actions == []
    assert actions(host.run(asked(version="latest")))[0] == ("upgrade", CORE)
    assert host.shop.have[CORE] == NEW


def test_what_the_repository_lacks_is_named_and_nothing_is_done(host: Host) -> None:
    del host.shop.shelf[CUDA13]
    todo = host.run(asked())
    assert "datacenter-gpu-manager-4-cuda13: none" in todo.findings[0].detail
    assert host.shop.have == {}


def test_what_somebody_else_holds_is_not_moved_unless_accepted(host: Host) -> None:
    host.shop.have, host.shop.kept = {CORE: OLD, CUDA13: OLD}, {CORE}
    assert [one.id for one in errors(host.run(asked(version="4.6.0")).findings)] == ["held"]
    host.run(asked(version="4.6.0", accept=("held",)))
    assert host.shop.have == {CORE: NEW, CUDA13: NEW}
    host.run(None)
    assert host.shop.kept == {CORE}


def test_another_part_joins_at_the_version_that_is_there(host: Host) -> None:
    host.shop.have = {CORE: OLD, CUDA12: OLD}
    host.run(asked(CORE, CUDA12, CUDA13))
    assert set(host.shop.have.values()) == {OLD}


@pytest.mark.rows("H085")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_ends_at_any_step_is_finished_by_the_next_and_given_back(tmp_path: Path, moment: str) -> None:
    wanted = asked(leaves=(THREE,))
    counted = Steps()
    first = Host(tmp_path / "count")
    first.shop.have, first.shop.kept = {THREE: "1:3.3.9-1"}, {THREE}
    first.run(asked(leaves=(THREE,), accept=("held",)), counted)
    assert len(counted.said) > 6
    for at in range(1, len(counted.said) + 1):
        for error in (Died(), Failure("the disk is full")):
            host = Host(tmp_path / f"{moment}{at}{type(error).__name__}")
            host.shop.have, host.shop.kept = {THREE: "1:3.3.9-1"}, {THREE}
            steps = Steps(at, moment, error)
            with pytest.raises(type(error)):
                host.run(asked(leaves=(THREE,), accept=("held",)), steps)
            assert steps.injected
            host.run(asked(leaves=(THREE,), accept=("held",)))
            assert (host.shop.have, host.shop.kept) == ({CORE: NEW, CUDA13: NEW}, {CORE, CUDA13})
            assert host.run(wanted).actions == []
            host.run(None)
            assert (host.shop.have, host.shop.kept) == ({THREE: "1:3.3.9-1"}, {THREE})
            assert not Path(host.root.at("/var/lib/gpufleet")).exists()


# --- Which of DCGM's --------------------------------------------------------------------------------------------------


def choose(cuda: int, *architectures: str, version: str = "", installed: Mapping[str, str] | None = None) -> Any:
    choice, found = _packages.choose(cuda, architectures, version, installed or {})
    return choice, [one.id for one in found]


@pytest.mark.rows("H085")
def test_parts_by_driver_and_gpu() -> None:
    assert choose(13, "hopper")[0].names == (CORE, CUDA13)
    assert choose(12, "ada")[0].names == (CORE, CUDA12)
    closed = (f"{FOUR}-proprietary", f"{FOUR}-proprietary-cuda12")
    for architecture in ("volta", "turing", "ampere"):
        assert choose(12, "hopper", architecture)[0].names == (CORE, CUDA12, *closed)
    assert choose(0, "hopper")[1] == ["no_cuda"]
    assert choose(10, "kepler")[1] == ["no_cuda"]


@pytest.mark.rows("H085")
def test_the_other_generation_goes_first() -> None:
    choice, found = choose(13, "hopper", installed={THREE: "1:3.3.9-1"})
    assert (choice.leaves, found) == ((THREE,), ["dcgm_3"])
    choice, _found = choose(12, "hopper", version="3.3.9", installed={CORE: NEW, CUDA12: NEW})
    assert (choice.names, choice.leaves) == ((THREE,), (CORE, CUDA12))


def test_what_is_there_besides_keeps_up_and_what_came_with_us_for_another_cuda_goes() -> None:
    installed = {CORE: NEW, CUDA12: NEW}
    assert choose(13, "hopper", installed=installed)[0].names == (CORE, CUDA13, CUDA12)
    choice, _found = _packages.choose(13, ["hopper"], "", installed, ours=[CUDA12])
    assert (choice.names, choice.leaves) == ((CORE, CUDA13), (CUDA12,))
    every = {CORE: NEW, f"{FOUR}-cuda-all": NEW}
    assert CUDA13 not in choose(13, "hopper", installed=every)[0].names


@pytest.mark.rows("H085")
@pytest.mark.parametrize("packages", ["dcgm", "none"])
def test_what_came_goes_whatever_packages_says_by_then(
    host: Host, monkeypatch: pytest.MonkeyPatch, packages: str
) -> None:
    host.run(asked())
    assert host.shop.kept
    shop: Any = host.shop
    monkeypatch.setattr(_run.Units, "states", lambda _self, units: [UnitState(one, *GONE, False) for one in units])
    monkeypatch.setattr(_run.Units, "reload", lambda _self: None)
    monkeypatch.setattr(_run, "manager", lambda *_any: shop)
    files = Files(host.root)
    tools = _run.Tools(Runner(), files, lambda: True, lambda _files: _run.Facts())
    params = {"packages": packages, "package_manager": "auto", "state": "absent"}
    with Journal(files, "sample") as journal:
        outcome = _run._Absent(params, False, lambda line: None, tools, journal).go()
    assert outcome.result.changed
    assert (host.shop.have, host.shop.kept) == ({}, set())
