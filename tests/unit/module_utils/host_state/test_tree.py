# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of hosts that are broken, hostile or not there: nothing hangs, nothing is raised, and the reason is told."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state import _tree
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.host_state.trees import tree


def test_what_is_not_there_is_empty_and_no_problem(tmp_path: Path) -> None:
    one = tree(tmp_path, {"/etc/broken": "-> nowhere", "/etc/file": "text"})
    assert (one.text("/none"), one.text("/etc/broken"), one.text("/etc/file/below")) == ("", "", "")
    assert (one.names("/none"), one.link("/none"), one.kind("/none"), one.number("/none")) == ([], "", "", -1)
    assert one.problems.listed() == []


def test_a_pipe_in_the_place_of_a_file_does_not_hold_the_run(tmp_path: Path) -> None:
    one = tree(tmp_path, {"/sys/x": ""})
    os.mkfifo(tmp_path / "sys/pipe")
    start = time.monotonic()
    assert one.text("/sys/pipe") == ""
    assert time.monotonic() - start < 1
    assert [problem.why for problem in one.problems.listed()] == ["could not be read: is not a regular file"]


def test_a_folder_and_a_device_are_no_files(tmp_path: Path) -> None:
    one = tree(tmp_path, {"/etc/folder/file": ""})
    assert one.text("/etc/folder") == ""
    live = _tree.Tree("/", "test", _tree.Problems())
    assert live.text("/dev/zero") == ""
    assert [problem.path for tree in (one, live) for problem in tree.problems.listed()] == ["/etc/folder", "/dev/zero"]


def test_a_file_that_is_too_long_is_cut_and_told(tmp_path: Path) -> None:
    one = tree(tmp_path, {"/long": "x" * 5000})
    assert len(one.text("/long", 100)) == 100
    assert "longer than 100 bytes" in one.problems.listed()[0].why


def test_binary_rubbish_becomes_text_without_nul(tmp_path: Path) -> None:
    one = tree(tmp_path, {"/rubbish": b"\xff\xfe\0\0a\n", "/number": b"\x00\x01"})
    assert one.text("/rubbish").endswith("a")
    assert "\0" not in one.text("/rubbish")
    assert one.number("/number") == -1


def test_links_stay_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    root = tmp_path / "root"
    one = tree(
        root,
        {
            "/etc/absolute": "-> /etc/inside",
            "/etc/up": f"-> {'../' * 30}{str(tmp_path).lstrip('/')}/secret",
            "/etc/out": f"-> {tmp_path}/secret",
            "/etc/inside": "inside",
            "/folder": "-> /etc",
        },
    )
    assert one.text("/etc/absolute") == "inside"
    assert one.text("/folder/absolute") == "inside"
    assert (one.text("/etc/up"), one.text("/etc/out")) == ("", "")


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    one = tree(tmp_path, {"/a": "-> b", "/b": "-> a"})
    assert one.text("/a") == ""
    assert one.kind("/a") == ""
    assert one.names("/a") == []
    assert "links" in one.problems.listed()[0].why


def test_what_the_user_may_not_read_says_become(tmp_path: Path) -> None:
    one = tree(tmp_path, {})
    one.failed("/sys/secret", PermissionError(13, "Permission denied"))
    problem = one.problems.listed()[0]
    assert (problem.part, problem.path, problem.why) == ("test", "/sys/secret", "could not be read: Permission denied")
    assert problem.remedy == _tree.AS_ROOT


def test_a_problem_is_told_once(tmp_path: Path) -> None:
    one = tree(tmp_path, {"/etc/folder/file": ""})
    for _number in range(3):
        one.text("/etc/folder")
    assert len(one.problems.listed()) == 1
