# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of rows done and not done says what the tests say, and no more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.gates import rows

LISTED = {"groups": [{"title": "All", "rows": {"S01": "one", "DRV-02": "two", "L3": "three"}}], "now": ["S01"]}


def ran(folder: Path, stage: str, **kinds: dict[str, list[str]]) -> None:
    empty: dict[str, dict[str, list[str]]] = {"passed": {}, "failed": {}, "left_out": {}, "carried": {}}
    (folder / f"{stage}.json").write_text(json.dumps(empty | kinds), encoding="utf-8")


def test_the_page_claims_what_passed_and_nothing_else() -> None:
    done = {"S01": ["tests/unit/test_a.py", "tests/integration/test_b.py"], "L3": ["tests/unit/test_a.py"]}
    page = rows.render(LISTED, done)
    assert "Done: 1 of 1 rows of this release, and 1 of 2 others." in page
    assert "| DRV-02 | two | no |  |" in page
    assert rows.claims(page) == {row: set(files) for row, files in done.items()}


@pytest.mark.parametrize(
    ("kinds", "borne_out"),
    [
        ({"passed": {"S01": ["tests/unit/test_a.py"]}}, True),
        ({"passed": {"S01": ["tests/unit/test_other.py"]}}, False),
        ({"passed": {"L3": ["tests/unit/test_a.py"]}}, False),
        ({"passed": {"S01": ["tests/unit/test_a.py"]}, "failed": {"S01": ["tests/unit/test_c.py"]}}, False),
        # A long test proves it, and this run left long tests out.
        ({"left_out": {"S01": ["tests/unit/test_a.py"]}}, True),
        ({}, False),
    ],
)
def test_a_claim_that_no_passed_test_bears_out_is_found(tmp_path: Path, kinds: dict[str, Any], borne_out: bool) -> None:
    page = rows.render(LISTED, {"S01": ["tests/unit/test_a.py"]})
    ran(tmp_path, "unit", **kinds)
    assert (rows.unproved(page, tmp_path) == []) is borne_out


def test_a_stage_that_did_not_run_says_nothing_of_its_tests(tmp_path: Path) -> None:
    page = rows.render(LISTED, {"S01": ["tests/integration/test_b.py"]})
    ran(tmp_path, "unit")
    assert rows.unproved(page, tmp_path) == []
    ran(tmp_path, "integration")
    assert len(rows.unproved(page, tmp_path)) == 1


def test_a_claim_without_any_test_is_found(tmp_path: Path) -> None:
    page = rows.render(LISTED, {"S01": []})
    ran(tmp_path, "unit")
    assert len(rows.unproved(page, tmp_path)) == 1


TESTS = """
import pytest

@pytest.mark.rows("S01")
@pytest.mark.parametrize("count", [2, 3])
def test_good(count, survived):
    survived("kills at API writes", count)
    survived("API faults", 1)

@pytest.mark.rows("S02", "S03")
def test_bad(survived):
    survived("kills at API writes", 100)
    raise AssertionError

@pytest.mark.rows("S03")
@pytest.mark.long
def test_long():
    pass
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "by workers"])
def test_a_run_writes_down_what_its_tests_proved(tmp_path: Path, workers: list[str]) -> None:
    for name, text in {
        "test_it.py": TESTS,
        "conftest.py": (rows.CHECKOUT / "tests/conftest.py").read_text(encoding="utf-8"),
        "pytest.ini": "[pytest]\nmarkers =\n    rows: rows\n    long: long\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "--rows-file", "unit.json", "-m", "not long", *workers]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "\ninjected, and all survived: 2 API faults, 5 kills at API writes\n" in ended.stdout
    here = ["test_it.py"]
    assert json.loads((tmp_path / "unit.json").read_text(encoding="utf-8")) == {
        "passed": {"S01": here},
        "failed": {"S02": here, "S03": here},
        "left_out": {"S03": here},
        "carried": {"S01": here, "S02": here, "S03": here},
    }


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Rows that the collection's tests name, with the files."""
    file = tmp_path_factory.mktemp("rows") / "all.json"
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "--rows-file", str(file), "tests"]
    collected = subprocess.run(command, cwd=rows.CHECKOUT, capture_output=True, text=True, check=False)
    assert collected.returncode == 0, collected.stdout[-3000:]
    found: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))["carried"]
    return found


def test_tests_name_rows_that_there_are(carried: dict[str, list[str]]) -> None:
    listed = {row for group in rows.known()["groups"] for row in group["rows"]}
    assert carried
    assert carried.keys() - listed == set()


def test_the_page_claims_no_row_that_no_test_carries(carried: dict[str, list[str]]) -> None:
    claimed = rows.claims(rows.PAGE.read_text(encoding="utf-8"))
    assert claimed
    wrong = {row: sorted(files - set(carried.get(row, []))) for row, files in claimed.items()}
    assert {row: files for row, files in wrong.items() if files} == {}


def test_the_list_is_complete_and_short() -> None:
    listed = rows.known()
    every = [row for group in listed["groups"] for row in group["rows"]]
    assert len(every) == len(set(every))
    assert set(listed["now"]) <= set(every)
    assert {f"S{number:02d}" for number in range(1, 67)} <= set(every)
    assert all(len(words.split()) <= 12 for group in listed["groups"] for words in group["rows"].values())
