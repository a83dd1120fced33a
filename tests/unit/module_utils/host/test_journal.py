# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was there before is given back, whatever happened in between."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Callable

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.tests.helpers.faults import Died, Steps

FOLDER = "var/lib/gpufleet/mig"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "etc/mine").write_text("mine\n")
    (tmp_path / "etc/mine").chmod(0o640)
    (tmp_path / "etc/going").write_text("going\n")
    return tmp_path


def journal(root: Path, steps: Callable[[str, str], None] = Steps(), wait: float = 0.0) -> Journal:
    return Journal(Files(Root(str(root)), steps), "mig", run="r1", wait=wait)


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Everything below the root: modes and contents."""
    found = {}
    for path in sorted(root.rglob("*")):
        content = path.read_text() if path.is_file() else ""
        found[str(path.relative_to(root))] = (stat.S_IMODE(path.stat().st_mode), content)
    return found


def change(one: Journal) -> None:
    """A run that changes, makes and removes files."""
    one.write("/etc/mine", "ours\n")
    one.make_folder("/etc/gpufleet/d")
    one.write("/etc/gpufleet/d/new", "new\n", 0o600)
    one.remove("/etc/going")
    one.note("unit:a.service", {"enabled": True})
    one.write("/etc/mine", "ours again\n", 0o600)


def give_back(one: Journal) -> None:
    for key in one.notes():
        one.forget(key)
    assert one.give_back() == []


def test_all_is_given_back_and_nothing_of_the_journal_remains(root: Path) -> None:
    before = tree(root)
    with journal(root) as one:
        change(one)
        assert tree(root) != before
        assert one.paths() == ["/etc/mine", "/etc/gpufleet/d/new", "/etc/going"]
    with journal(root) as one:
        give_back(one)
    assert tree(root) == before


def test_a_run_that_changes_nothing_leaves_no_journal(root: Path) -> None:
    before = tree(root)
    with journal(root) as one:
        assert not one.write("/etc/mine", "mine\n", 0o640)
        assert not one.remove("/etc/none")
        assert not one.make_folder("/etc")
        one.give_back()
    assert tree(root) == before


def test_the_second_run_writes_nothing(root: Path) -> None:
    with journal(root) as one:
        one.write("/etc/mine", "ours\n")
    steps = Steps()
    with journal(root, steps) as one:
        assert not one.write("/etc/mine", "ours\n")
        one.note("a", 1)
    with journal(root, steps) as one:
        one.note("a", 2)
        assert one.notes() == {"a": 1}
    assert steps.said == ["append to /var/lib/gpufleet/mig/journal.jsonl"]


def test_a_change_is_written_down_before_it_is_made(root: Path) -> None:
    with journal(root, Steps()) as one:
        one.write("/etc/mine", "ours\n")
    lines = [json.loads(line) for line in (root / FOLDER / "journal.jsonl").read_text().splitlines()]
    assert [line["done"] for line in lines] == [False, True]
    assert lines[0]["path"] == "/etc/mine"
    assert lines[0]["run"] == "r1"
    assert (root / FOLDER / "backup" / lines[0]["sha256_before"]).read_text() == "mine\n"
    assert stat.S_IMODE((root / FOLDER).stat().st_mode) == 0o700
    assert stat.S_IMODE((root / FOLDER / "journal.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE((root / FOLDER / "backup" / lines[0]["backup"]).stat().st_mode) == 0o600


def test_what_somebody_else_changed_since_is_left_alone_and_told(root: Path) -> None:
    with journal(root) as one:
        change(one)
    (root / "etc/mine").write_text("an admin was here\n")
    with journal(root) as one:
        assert [kept.path for kept in one.would_keep()] == ["/etc/mine"]
        for key in one.notes():
            one.forget(key)
        kept = one.give_back()
        assert [(left.path, (root / left.backup[1:]).read_text()) for left in kept] == [("/etc/mine", "mine\n")]
    assert (root / "etc/mine").read_text() == "an admin was here\n"
    assert (root / "etc/going").read_text() == "going\n"
    (root / "etc/mine").write_text("mine\n")
    with journal(root) as one:
        assert one.give_back() == []
    assert not (root / "var/lib/gpufleet").exists()


def test_a_change_by_somebody_else_between_two_of_ours_is_not_lost(root: Path) -> None:
    with journal(root) as one:
        one.write("/etc/mine", "ours\n")
    (root / "etc/mine").write_text("ours\nand an admin's\n")
    with journal(root) as one:
        one.write("/etc/mine", "ours, 2\nand an admin's\n")
        assert [kept.path for kept in one.give_back()] == ["/etc/mine"]
    assert (root / "etc/mine").read_text() == "ours, 2\nand an admin's\n"


def test_a_folder_that_others_use_now_stays(root: Path) -> None:
    with journal(root) as one:
        change(one)
    (root / "etc/gpufleet/d/other").write_text("x")
    with journal(root) as one:
        give_back(one)
    assert os.listdir(root / "etc/gpufleet/d") == ["other"]


def test_two_runs_exclude_each_other(root: Path) -> None:
    with journal(root) as one:
        one.note("a", 1)
        with pytest.raises(Failure, match="Another run of mig has been at work"), journal(root, wait=0.1):
            pass
    with journal(root) as two:
        assert two.notes() == {"a": 1}


def test_a_run_that_began_beside_another_one_stops_at_its_first_change(root: Path) -> None:
    with journal(root) as two:
        with journal(root) as one:
            one.write("/etc/mine", "ours\n")
        with pytest.raises(Failure, match="Another run of mig changes this host"):
            two.write("/etc/going", "x")
    assert (root / "etc/going").read_text() == "going\n"


def test_a_torn_last_line_is_dropped(root: Path) -> None:
    before = tree(root)
    with journal(root) as one:
        change(one)
    with (root / FOLDER / "journal.jsonl").open("a") as file:
        file.write('{"path": "/etc/pass')
    with journal(root) as one:
        one.note("b", 1)
    with journal(root) as one:
        assert list(one.notes()) == ["unit:a.service", "b"]
        give_back(one)
    assert tree(root) == before


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"path": "/etc/mine"}', '{"note": "a"}'])
def test_a_damaged_journal_is_not_guessed_at(root: Path, line: str) -> None:
    with journal(root) as one:
        one.note("a", 1)
    text = (root / FOLDER / "journal.jsonl").read_text()
    (root / FOLDER / "journal.jsonl").write_text(f"{text}{line}\n{text}")
    with pytest.raises(Failure, match=r"journal\.jsonl is damaged in line 2"), journal(root):
        pass


def test_a_journal_that_others_can_write_is_not_believed(root: Path) -> None:
    with journal(root) as one:
        one.note("a", 1)
    (root / FOLDER).chmod(0o777)
    with pytest.raises(Failure, match="can be written by others"), journal(root):
        pass


def test_a_missing_backup_is_told_and_nothing_is_overwritten(root: Path) -> None:
    with journal(root) as one:
        one.write("/etc/mine", "ours\n")
    for path in (root / FOLDER / "backup").iterdir():
        path.write_text("something else")
    with journal(root) as one, pytest.raises(Failure, match="/etc/mine cannot be given back: its backup"):
        one.give_back()
    assert (root / "etc/mine").read_text() == "ours\n"


def test_a_link_is_not_removed(root: Path) -> None:
    (root / "etc/link").symlink_to("mine")
    with journal(root) as one, pytest.raises(Failure, match="is a symbolic link"):
        one.remove("/etc/link")
    assert (root / "etc/link").is_symlink()


def _change(root: Path, steps: Steps) -> None:
    with journal(root, steps) as one:
        change(one)


def _give_back(root: Path, steps: Steps) -> None:
    with journal(root, steps) as one:
        give_back(one)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_ends_at_any_step_can_be_finished_and_given_back(tmp_path: Path, moment: str) -> None:
    injected = 0
    for ending in (_change, _give_back):
        n = 0
        while True:
            n += 1
            root = tmp_path / f"{ending.__name__}-{n}"
            root.mkdir()
            (root / "var/lib").mkdir(parents=True)
            (root / "etc").mkdir()
            (root / "etc/mine").write_text("mine\n")
            (root / "etc/going").write_text("going\n")
            before = tree(root)
            if ending is _give_back:
                _change(root, Steps())
            steps = Steps(at=n, moment=moment, error=Died())
            try:
                ending(root, steps)
            except Died:
                injected += steps.injected
                if ending is _change and n % 2:
                    _change(root, Steps())  # half of them are finished first
                    assert (root / "etc/mine").read_text() == "ours again\n"
                _give_back(root, Steps())
                assert tree(root) == before
                continue
            assert n - 1 == len(steps.said)
            break
    assert injected >= 35
