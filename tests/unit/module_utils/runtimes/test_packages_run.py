# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of the packages that ends at any of its steps is finished by the next one, and given back whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._packages import (
    NAMES,
    Wanted,
    plan,
    plan_absent,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._packages_run import (
    COMPONENT,
    apply,
    look,
    look_absent,
    prove,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._repository import Repository
from ansible_collections.gpufleet.nvidia.tests.helpers.faults import Died, Steps

OLD = "/etc/apt/sources.list.d/nvidia-docker.list"
CONFIG = "/etc/nvidia-container-runtime/config.toml"


class Shop:
    """A package manager in memory that does what apt does: what is held does not move, configuration is made."""

    name = "apt"

    def __init__(self, files: Files, watch: Steps) -> None:
        self.files, self.watch = files, watch
        self.have: dict[str, str] = {}
        self.kept: list[str] = []

    def _step(self, what: str, *change: object) -> None:
        self.watch("before", what)
        for one in change:
            one()  # type: ignore[operator]
        self.watch("after", what)

    def installed(self, names: Sequence[str]) -> dict[str, str]:
        return {name: self.have[name] for name in names if name in self.have}

    def candidates(self, names: Sequence[str]) -> dict[str, list[str]]:
        return {name: ["1.20.2-1", "1.19.1-1"] for name in names}

    def probe(self, names: Sequence[str], source: str, key: bytes, settings: str = "") -> dict[str, list[str]]:
        return self.candidates(names)

    def refresh(self, repository: str = "") -> None:
        self._step("refresh")

    def trusted(self) -> list[str]:
        return []

    def distrust(self, keys: Sequence[str]) -> None:
        assert list(keys) == []

    def install(self, pins: Mapping[str, str], *, downgrade: bool) -> None:
        assert not [name for name in pins if name in self.kept and self.have.get(name) != pins[name]]

        def made() -> None:
            self.have.update(pins)
            os.makedirs(self.files.root.at(os.path.dirname(CONFIG)), exist_ok=True)
            Path(self.files.root.at(CONFIG)).write_text("made by the packages\n")

        self._step("install", made)

    def remove(self, names: Sequence[str], *, purge: bool) -> None:
        self._step("remove", lambda: [self.have.pop(name, "") for name in names])
        self.kept = [name for name in self.kept if name in self.have]

    def held(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self.kept]

    def hold(self, names: Sequence[str]) -> None:
        self._step("hold", lambda: self.kept.extend(name for name in names if name not in self.kept))

    def unhold(self, names: Sequence[str]) -> None:
        self._step("unhold", lambda: [self.kept.remove(name) for name in names if name in self.kept])


class Machine:
    """A host's files below a folder, and its packages; each run may end at a step."""

    def __init__(self, folder: Path) -> None:
        self.root = Root(str(folder))
        for part in ("etc/apt/sources.list.d", "usr/share/keyrings", "var/lib"):
            (folder / part).mkdir(parents=True)
        (folder / OLD[1:]).write_text("deb old\n")
        self.shop = Shop(Files(self.root), Steps())

    def run(self, state: str, version: str = "", steps: Steps | None = None) -> None:
        watch = steps or Steps()
        files = Files(self.root, watch)
        self.shop.files, self.shop.watch = files, watch
        source = Repository("https://mirror.example.com")
        with Journal(files, COMPONENT) as journal:
            if state == "absent":
                todo = plan_absent(look_absent(self.shop, journal))
            else:
                wanted = Wanted(version=version, repository=source, accept=("unsigned_repository",))
                todo = plan(look(self.shop, files, journal, wanted), wanted)
            if todo.actions:
                apply(todo, self.shop, files, journal, lambda _line: None)
            assert [check for check in prove(todo, self.shop) if not check.ok] == []

    def disk(self) -> dict[str, str]:
        top = Path(self.root.folder)
        return {str(one): one.read_text() if one.is_file() else "" for one in sorted(top.rglob("*"))}


def ended(machine: Machine, state: str, version: str, at: int, moment: str) -> bool:
    """Whether the run was ended at that step, as by a kill."""
    steps = Steps(at, moment, Died())
    try:
        machine.run(state, version, steps)
    except Died:
        return True
    assert not steps.injected
    return False


@pytest.mark.rows("H061", "H062")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_ends_anywhere_is_finished_by_the_next_and_given_back(tmp_path: Path, moment: str) -> None:
    injected = 0
    for at in range(1, 200):
        machine = Machine(tmp_path / f"{at}")
        before = machine.disk()
        if not ended(machine, "present", "1.19.1", at, moment):
            break
        injected += 1
        if at % 2:
            machine.run("present", "1.19.1")
            assert machine.shop.have == dict.fromkeys(NAMES, "1.19.1-1")
            assert sorted(machine.shop.kept) == sorted(NAMES)
            assert ended(machine, "present", "1.20.2", 2, moment)
            machine.run("present", "1.20.2")
            assert machine.shop.have == dict.fromkeys(NAMES, "1.20.2-1")
            assert sorted(machine.shop.kept) == sorted(NAMES)
        machine.run("absent")
        assert (machine.shop.have, machine.shop.kept) == ({}, [])
        assert machine.disk() == before
    assert injected > 15


def test_a_removal_that_ends_anywhere_is_finished_by_the_next(tmp_path: Path) -> None:
    injected = 0
    for at in range(1, 200):
        machine = Machine(tmp_path / f"{at}")
        before = machine.disk()
        machine.run("present")
        more = ended(machine, "absent", "", at, "after")
        machine.run("absent")
        assert (machine.shop.have, machine.shop.kept) == ({}, [])
        assert machine.disk() == before
        if not more:
            break
        injected += 1
    assert injected > 10
