# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files are read and written below a root, in one step, with what else they have kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Callable

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Outside, Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.tests.helpers.faults import Died, Steps


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "etc").mkdir()
    return Files(Root(str(tmp_path)))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- Paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/etc/a", "etc/a"),
        ("//etc/./a/", "etc/a"),
        ("/../../etc/a", "etc/a"),
        ("/link/a", "etc/a"),
        ("/up/a", "etc/a"),
        ("/file", "etc/passwd"),
        ("/dangling", "no/where"),
        ("/etc/a/../b", "etc/b"),
    ],
)
def test_a_path_lies_below_the_root_whatever_links_say(files: Files, tmp_path: Path, path: str, real: str) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "up").symlink_to("../../../../../etc")
    (tmp_path / "file").symlink_to("/etc/passwd")
    (tmp_path / "dangling").symlink_to("/no/where")
    assert files.root.at(path) == str(tmp_path / real)


def test_links_in_a_circle_are_refused(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/b")
    (tmp_path / "b").symlink_to("/a")
    with pytest.raises(Outside, match="Too many levels of symbolic links"):
        files.root.at("/a/x")


@pytest.mark.parametrize("path", ["etc/a", "", "/etc/\0a"])
def test_a_path_that_is_not_absolute_is_refused(files: Files, path: str) -> None:
    with pytest.raises(Outside, match="is no absolute path"):
        files.root.at(path)


def test_a_link_that_another_user_made_is_not_followed(files: Files, tmp_path: Path) -> None:
    (tmp_path / "trap").symlink_to("/etc/shadow")
    os.lchown(tmp_path / "trap", 1234, -1)
    with pytest.raises(Outside, match="is a symbolic link that user 1234 made"):
        files.write("/trap", "x")
    assert not (tmp_path / "etc/shadow").exists()
    assert files.remove("/trap")


# --- Reading ----------------------------------------------------------------------------------------------------------


def test_what_is_not_there_reads_as_none(files: Files, tmp_path: Path) -> None:
    (tmp_path / "etc/file").write_text("")
    assert files.read("/etc/none") is None
    assert files.read("/none/none") is None
    assert files.read("/etc/file/none") is None


def test_a_pipe_is_refused_and_does_not_block(files: Files, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "etc/pipe")
    with pytest.raises(Failure, match="/etc/pipe is no plain file"):
        files.read("/etc/pipe")


def test_a_folder_is_refused(files: Files) -> None:
    with pytest.raises(Failure, match="/etc is no plain file"):
        files.read("/etc")


def test_a_file_that_is_too_large_is_refused(files: Files, tmp_path: Path) -> None:
    with (tmp_path / "etc/large").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(Failure, match="larger than 16 MiB"):
        files.read("/etc/large")


def test_bytes_that_are_no_text_survive(files: Files, tmp_path: Path) -> None:
    (tmp_path / "etc/a").write_bytes(b"caf\xe9\r\n")
    text = files.text("/etc/a")
    assert text is not None
    assert not files.write("/etc/a", text)
    assert files.write("/etc/a", text + "more")
    assert (tmp_path / "etc/a").read_bytes() == b"caf\xe9\r\nmore"


# --- Writing ----------------------------------------------------------------------------------------------------------


def test_a_new_file_has_mode_0644_whatever_the_umask_says(files: Files, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        assert files.write("/etc/a", "x\n")
        assert files.write("/etc/b", "x\n", 0o600)
    finally:
        os.umask(old)
    assert mode(tmp_path / "etc/a") == 0o644
    assert mode(tmp_path / "etc/b") == 0o600
    assert sorted(os.listdir(tmp_path / "etc")) == ["a", "b"]


def written(path: Path) -> tuple[int, ...]:
    """What changes with a write, and not when the file is read."""
    found = path.stat()
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def test_nothing_is_written_when_nothing_differs(files: Files, tmp_path: Path) -> None:
    files.write("/etc/a", "x", 0o640)
    before = written(tmp_path / "etc/a")
    steps = Steps()
    assert not Files(files.root, steps).write("/etc/a", "x", 0o640)
    assert not Files(files.root, steps).write("/etc/a", "x")
    assert steps.said == []
    assert written(tmp_path / "etc/a") == before


def test_a_mode_alone_is_changed_in_place(files: Files, tmp_path: Path) -> None:
    files.write("/etc/a", "x")
    number = (tmp_path / "etc/a").stat().st_ino
    assert files.write("/etc/a", "x", 0o600)
    assert (tmp_path / "etc/a").stat().st_ino == number
    assert mode(tmp_path / "etc/a") == 0o600


def test_owner_mode_and_attributes_are_kept(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "etc/a"
    path.write_text("old")
    path.chmod(0o4751)
    os.chown(path, 1234, 5678)
    path.chmod(0o4751)
    os.setxattr(path, "user.note", b"kept")
    os.setxattr(path, "security.selinux", b"system_u:object_r:etc_t:s0\0")
    assert files.write("/etc/a", "new")
    found = path.stat()
    assert (found.st_uid, found.st_gid, mode(path)) == (1234, 5678, 0o4751)
    assert os.getxattr(path, "user.note") == b"kept"
    assert os.getxattr(path, "security.selinux") == b"system_u:object_r:etc_t:s0\0"
    assert path.read_text() == "new"


def test_an_owner_that_is_given_is_set(files: Files, tmp_path: Path) -> None:
    files.write_bytes("/etc/a", b"x", 0o640, (12, 34))
    assert ((tmp_path / "etc/a").stat().st_uid, (tmp_path / "etc/a").stat().st_gid) == (12, 34)
    assert files.write_bytes("/etc/a", b"x", None, (56, 78))
    assert ((tmp_path / "etc/a").stat().st_uid, mode(tmp_path / "etc/a")) == (56, 0o640)


def test_a_file_that_is_a_link_stays_one(files: Files, tmp_path: Path) -> None:
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/real").write_text("old")
    (tmp_path / "etc/a").symlink_to("/opt/real")
    assert files.write("/etc/a", "new")
    assert (tmp_path / "etc/a").is_symlink()
    assert (tmp_path / "opt/real").read_text() == "new"


def test_a_folder_that_is_missing_is_told(files: Files) -> None:
    with pytest.raises(Failure, match="/none/a cannot be written: No such file or directory"):
        files.write("/none/a", "x")


def test_what_a_killed_run_left_is_removed(files: Files, tmp_path: Path) -> None:
    (tmp_path / "etc/.a.gpufleet-0011223344ff").write_text("half")
    (tmp_path / "etc/.ab.gpufleet-0011223344ff").write_text("not ours to judge")
    files.write("/etc/a", "x")
    assert sorted(os.listdir(tmp_path / "etc")) == [".ab.gpufleet-0011223344ff", "a"]


def test_a_write_that_fails_leaves_the_old_file(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write("/etc/a", "old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Failure, match="/etc/a cannot be written: No space left on device"):
        files.write("/etc/a", "new")
    assert (tmp_path / "etc/a").read_text() == "old"
    assert os.listdir(tmp_path / "etc") == ["a"]


# --- Folders and removal ----------------------------------------------------------------------------------------------


def test_folders_are_made_and_those_that_are_there_stay(files: Files, tmp_path: Path) -> None:
    (tmp_path / "etc").chmod(0o711)
    assert files.make_folder("/etc/x/y", 0o700) == ["/etc/x", "/etc/x/y"]
    assert files.make_folder("/etc/x/y", 0o755) == []
    assert [mode(tmp_path / one) for one in ("etc", "etc/x", "etc/x/y")] == [0o711, 0o755, 0o700]


def test_only_an_empty_folder_is_removed(files: Files, tmp_path: Path) -> None:
    files.write("/etc/a", "x")
    assert not files.remove_folder("/etc")
    files.remove("/etc/a")
    assert files.remove_folder("/etc")
    assert not files.remove_folder("/etc")
    assert not (tmp_path / "etc").exists()


def test_removing_a_link_leaves_what_it_leads_to(files: Files, tmp_path: Path) -> None:
    files.write("/etc/a", "x")
    (tmp_path / "etc/b").symlink_to("a")
    assert files.remove("/etc/b")
    assert not files.remove("/etc/b")
    assert os.listdir(tmp_path / "etc") == ["a"]


DOINGS: list[tuple[str, Callable[[Files], object]]] = [
    ("write /etc/a", lambda files: files.write("/etc/a", "new")),
    ("attributes /etc/a", lambda files: files.write("/etc/a", "old", 0o600)),
    ("append to /etc/a", lambda files: files.append("/etc/a", "new")),
    ("remove /etc/a", lambda files: files.remove("/etc/a")),
    ("make folder /etc/b", lambda files: files.make_folder("/etc/b")),
    ("remove folder /etc/c", lambda files: files.remove_folder("/etc/c")),
]


@pytest.mark.parametrize(("what", "do"), DOINGS, ids=[what for what, _do in DOINGS])
def test_every_change_can_be_made_to_fail_before_it_happens(
    files: Files, tmp_path: Path, what: str, do: Callable[[Files], object]
) -> None:
    files.write("/etc/a", "old")
    files.make_folder("/etc/c")
    before = [(one, (tmp_path / "etc" / one).stat()) for one in sorted(os.listdir(tmp_path / "etc"))]
    steps = Steps(at=1, error=Died())
    with pytest.raises(Died):
        do(Files(files.root, steps))
    assert steps.said == [what]
    assert [(one, (tmp_path / "etc" / one).stat()) for one in sorted(os.listdir(tmp_path / "etc"))] == before
    do(files)
    assert [(one, (tmp_path / "etc" / one).stat()) for one in sorted(os.listdir(tmp_path / "etc"))] != before
