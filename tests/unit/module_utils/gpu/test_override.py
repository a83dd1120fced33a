# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG manager that runs on a host as a service applies at boot what a run of ours was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu import _override
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root

BEFORE = '[Service]\nEnvironment="MIG_PARTED_SELECTED_CONFIG=all-disabled"\n'


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(Root(str(tmp_path)))
    made.make_folder(str(Path(_override.FILE).parent))
    return made


@pytest.mark.rows("MH-03")
@pytest.mark.parametrize(
    ("text", "after"),
    [
        (BEFORE, '[Service]\nEnvironment="MIG_PARTED_SELECTED_CONFIG=all-balanced"\n'),
        ("", '[Service]\nEnvironment="MIG_PARTED_SELECTED_CONFIG=all-balanced"\n'),
        (
            "# ours\n[Service]\nEnvironment=MIG_PARTED_SELECTED_CONFIG=x\nNice=5\n",
            '# ours\n[Service]\nEnvironment="MIG_PARTED_SELECTED_CONFIG=all-balanced"\nNice=5\n',
        ),
        (
            "[Service]\nNice=5",
            '[Service]\nNice=5\n[Service]\nEnvironment="MIG_PARTED_SELECTED_CONFIG=all-balanced"\n',
        ),
    ],
)
def test_the_label_that_the_manager_applies_at_boot_follows(files: Files, text: str, after: str) -> None:
    files.write(_override.FILE, text)
    planned = _override.plan(files, "all-balanced")
    assert [(one.id, one.verb, one.target) for one in planned.actions] == [("mig-manager", "update", _override.FILE)]
    assert files.text(_override.FILE) == text
    assert planned.write(files)
    assert files.text(_override.FILE) == after
    assert [check.ok for check in planned.prove(files)] == [True]
    again = _override.plan(files, "all-balanced")
    assert (again.actions, again.findings, again.write(files)) == ([], [], False)


@pytest.mark.rows("MH-03")
def test_a_layout_without_a_label_is_told_of_what_the_manager_would_apply(files: Files) -> None:
    files.write(_override.FILE, BEFORE)
    for label in ("", "two words", 'x"\nExecStart=/bin/sh'):
        planned = _override.plan(files, label)
        assert (planned.text, planned.actions, [one.id for one in planned.findings]) == (
            None,
            [],
            ["mig.manager-label"],
        )
        assert "all-disabled" in planned.findings[0].detail


@pytest.mark.rows("MH-03")
def test_a_host_without_that_manager_gets_no_file(files: Files) -> None:
    planned = _override.plan(files, "all-balanced")
    assert (planned.actions, planned.findings, planned.write(files)) == ([], [], False)
    assert not files.exists(_override.FILE)


@pytest.mark.rows("MH-03")
def test_a_run_writes_the_label_once_and_check_mode_does_not(host_with) -> None:
    host = host_with("H200-SXM5-141GB")
    root = Files(Root(str(host.root)))
    root.make_folder(str(Path(_override.FILE).parent))
    root.write(_override.FILE, BEFORE)
    planned = host.run(check=True, name="all-balanced")
    assert "mig-manager" in [one.id for one in planned.result.plan]
    assert root.text(_override.FILE) == BEFORE
    done = host.run(name="all-balanced")
    assert "all-balanced" in (root.text(_override.FILE) or "")
    assert [check.id for check in done.result.verified if not check.ok] == []
    assert not host.run(name="all-balanced").result.changed


def line(label: str) -> str:
    return f'Environment="{_override.VARIABLE}={label}"\n'


@pytest.mark.rows("MH-03")
def test_the_last_line_counts_as_for_systemd(files: Files) -> None:
    files.write(_override.FILE, "[Service]\n" + line("b") + line("a"))
    planned = _override.plan(files, "b")
    assert [(one.before, one.after) for one in planned.actions] == [("a", "b")]
    planned.write(files)
    assert files.text(_override.FILE) == "[Service]\n" + line("b") * 2


@pytest.mark.rows("MH-03")
@pytest.mark.parametrize(
    "before", [BEFORE, "", "[Service]\n" + line("b") + "Environment=MIG_PARTED_SELECTED_CONFIG=a\nNice=5\n", "Nice=5\n"]
)
def test_what_was_there_before_the_first_run_is_given_back(files: Files, before: str) -> None:
    files.write(_override.FILE, before)
    for label in ("all-balanced", "all-1g.10gb"):
        assert _override.plan(files, label).write(files)
    back = _override.plan_back(files)
    assert [one.verb for one in back.actions] == ["restore"]
    back.write(files)
    assert files.text(_override.FILE) == before


@pytest.mark.rows("MH-03")
@pytest.mark.parametrize(
    "note", ["", "{", "[]", '{"label": "x"}', '{"label": "x", "line": "ExecStart=/bin/sh"}', "[" * 99999]
)
def test_a_label_that_is_not_ours_stays(files: Files, note: str) -> None:
    files.write(_override.FILE, line("x"))
    files.make_folder(str(Path(_override.NOTE).parent))
    files.write(_override.NOTE, note)
    assert _override.plan_back(files) == _override.Override()
    assert _override.plan(files, "y").write(files)
    files.write(_override.FILE, line("z"))  # somebody else's since
    assert _override.plan_back(files) == _override.Override()


@pytest.mark.rows("MH-03")
def test_absent_gives_the_label_back(host_with) -> None:
    host = host_with("H200-SXM5-141GB")
    root = Files(Root(str(host.root)))
    root.make_folder(str(Path(_override.FILE).parent))
    root.write(_override.FILE, BEFORE)
    host.run(name="all-balanced")
    planned = host.run(check=True, state="absent")
    assert "mig-manager" in [one.id for one in planned.result.plan]
    done = host.run(state="absent")
    assert (root.text(_override.FILE), root.exists(_override.NOTE)) == (BEFORE, False)
    assert [check.id for check in done.result.verified if not check.ok] == []
    assert not host.run(state="absent").result.changed
