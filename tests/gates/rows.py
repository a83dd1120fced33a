# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/rows.md: which rows of the specification are done, from tests that ran and passed.

``rows.py write`` makes it from what the stages of the last run wrote into build/rows. ``rows.py check`` fails when it
claims a row for a test file in which no test of that row passed.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT

PAGE = CHECKOUT / "docs/rows.md"
LIST = CHECKOUT / "tests/fixtures/rows.yaml"
EVIDENCE = CHECKOUT / "build/rows"
# Where the tests of each stage lie; those marked long or hosts lie anywhere.
FOLDERS = {
    "unit": "tests/unit/",
    "integration": "tests/integration/",
    "gates-fail": "tests/gates/",
    "long": "",
    "hosts": "",
}

Rows = Mapping[str, Iterable[str]]


def known() -> dict[str, Any]:
    listed: dict[str, Any] = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return listed


def evidence(kind: str, folder: Path = EVIDENCE) -> dict[str, set[str]]:
    """Row id -> test files, of one kind (passed, failed, left_out, carried), over all stages that ran."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted(folder.glob("*.json")):
        if file.stem in FOLDERS:
            for row, tests in json.loads(file.read_text(encoding="utf-8"))[kind].items():
                found[row] |= set(tests)
    return found


def proved(folder: Path = EVIDENCE) -> dict[str, set[str]]:
    """Row id -> files whose tests of that row all passed."""
    failed = evidence("failed", folder)
    found = {row: tests - failed.get(row, set()) for row, tests in evidence("passed", folder).items()}
    return {row: tests for row, tests in found.items() if tests and not failed.get(row)}


def render(listed: Mapping[str, Any], done: Rows) -> str:
    """The page: a count, then a table for each group of rows."""
    now = list(listed["now"])
    rows = [row for group in listed["groups"] for row in group["rows"]]
    now_done = sum(1 for row in now if row in done)
    others_done = sum(1 for row in rows if row in done and row not in now)
    lines = [
        "<!-- Made by `make rows` from tests that ran and passed. Changes by hand are lost. -->",
        "",
        "# Rows done and not done",
        "",
        "Each row is something that the GPU Operator does, or that was asked for. A row is done when tests that carry",
        "its id ran and passed; their files stand beside it. Rows in **bold** are what the present release is about.",
        "",
        f"Done: {now_done} of {len(now)} rows of this release, and {others_done} of {len(rows) - len(now)} others.",
    ]
    for group in listed["groups"]:
        lines += ["", f"## {group['title']}", "", "| row | what | done | tests |", "|---|---|---|---|"]
        for row, words in group["rows"].items():
            name = f"**{row}**" if row in now else row
            tests = ", ".join(f"`{file.removeprefix('tests/')}`" for file in sorted(done.get(row, ())))
            lines.append(f"| {name} | {words} | {'yes' if row in done else 'no'} | {tests} |")
    return "\n".join(lines) + "\n"


def claims(page: str) -> dict[str, set[str]]:
    """Row id -> test files, as the page says."""
    found = {}
    for row, done, tests in re.findall(r"(?m)^\| \**([A-Z]+-?\d+)\** \|.*\| (yes|no) \| (.*?) ?\|$", page):
        if done == "yes":
            found[row] = {f"tests/{file}" for file in re.findall(r"`([^`]+)`", tests)} or {"(no test)"}
    return found


def unproved(page: str, folder: Path = EVIDENCE) -> list[str]:
    """Claims of the page that the stages which ran do not bear out."""
    ran = [FOLDERS[file.stem] for file in folder.glob("*.json") if FOLDERS.get(file.stem)]
    passed, left_out = proved(folder), evidence("left_out", folder)
    return [
        f"{row}: docs/rows.md says that {file} proves it, but no test of that row passed there"
        for row, files in claims(page).items()
        for file in sorted(files)
        if (file == "(no test)" or file.startswith(tuple(ran)))
        and file not in passed.get(row, set()) | left_out.get(row, set())
    ]


def write() -> int:
    stages = sorted(file.stem for file in EVIDENCE.glob("*.json") if file.stem in FOLDERS)
    missing = sorted(FOLDERS.keys() - set(stages))
    if missing:
        print(f"The tests of {', '.join(missing)} have not run here, and what they prove would be lost: make test-all")
        return 1
    PAGE.write_text(render(known(), proved()), encoding="utf-8")
    print(f"{PAGE.relative_to(CHECKOUT)}: {len(proved())} rows done, from the stages {', '.join(stages)}")
    return 0


def check() -> int:
    page = PAGE.read_text(encoding="utf-8")
    problems = unproved(page)
    print("\n".join(problems) if problems else f"{len(claims(page))} rows claimed, all borne out")
    more = sorted(proved().keys() - claims(page).keys())
    if more:
        print(f"proved, and not in docs/rows.md yet (make rows): {', '.join(more)}")
    return 1 if problems else 0


if __name__ == "__main__":
    commands = {"write": write, "check": check}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(f"usage: rows.py {'|'.join(commands)}")
    sys.exit(commands[sys.argv[1]]())
