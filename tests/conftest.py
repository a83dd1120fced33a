# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes down which rows of the specification the tests of a run have proved (``--rows-file``), and how many faults
they have injected and got over."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine time says nothing of a test. `floor` is for a second run on another Python.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("floor", settings.get_profile("any"), max_examples=10)
settings.load_profile("any")

# Programs that tests start find the collection as the tests do.
_TREE = str(Path(__file__).resolve().parents[1] / "build/collections")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_TREE, os.environ.get("PYTHONPATH")]))

PROPERTY = "row"
SURVIVED = "survived"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rows-file",
        type=Path,
        help="write {passed, failed, left_out, carried}: each row id -> test files. carried: all that tests name",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Workers of pytest-xdist report to the process that started them, which alone writes the file.
    if config.getoption("--rows-file"):
        keeper = WorkersRows(config) if hasattr(config, "workerinput") else RowKeeper(config)
        config.pluginmanager.register(keeper, "gpufleet-rows")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks travel with a test's report as properties, so they arrive from workers too."""
    for mark in item.iter_markers("rows"):
        for row in mark.args:
            item.user_properties.append((PROPERTY, row))


@pytest.fixture
def survived(record_property: Callable[[str, object], None]) -> Callable[[str, int], None]:
    """``survived("kills at API writes", 6)``: how many faults of a kind this test has injected. Counts once it passes,
    in one line at the end of the run."""

    def record(kind: str, count: int) -> None:
        record_property(SURVIVED, f"{count} {kind}")

    return record


def injected_line(passed: Iterable[pytest.TestReport]) -> str:
    """The counts of all tests that passed; "" where none injected anything."""
    counts: Counter[str] = Counter()
    for report in passed:
        for name, value in report.user_properties if report.when == "call" else ():
            if name == SURVIVED:
                count, _space, kind = str(value).partition(" ")
                counts[kind] += int(count)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return f"injected, and all survived: {told}" if told else ""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    line = injected_line(terminalreporter.getreports("passed"))
    if line:
        terminalreporter.write_line(line)


def note(rows: dict[str, set[str]], item: pytest.Item) -> None:
    for mark in item.iter_markers("rows"):
        for row in mark.args:
            rows[row].add(item.nodeid.split("::")[0])


class Collected:
    """What tests say of rows before any has run: those that are there, and those that are left out."""

    def __init__(self) -> None:
        self.left_out: dict[str, set[str]] = defaultdict(set)
        self.carried: dict[str, set[str]] = defaultdict(set)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        note(self.carried, item)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        for item in items:
            note(self.left_out, item)


class WorkersRows(Collected):
    """A worker alone sees what is collected: it hands that over when it ends."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        self.config = config

    def pytest_sessionfinish(self) -> None:
        output: dict[str, Any] = self.config.workeroutput  # type: ignore[attr-defined]
        for kind in ("left_out", "carried"):
            output[f"rows_{kind}"] = {row: sorted(files) for row, files in getattr(self, kind).items()}


class RowKeeper(Collected):
    """Collects what each test says it proves and what became of it. A row with one failed test is not proved."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        self.file: Path = config.getoption("--rows-file").absolute()
        self.passed: dict[str, set[str]] = defaultdict(set)
        self.failed: dict[str, set[str]] = defaultdict(set)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of pytest-xdist ended; one that was killed has told nothing."""
        told = getattr(node, "workeroutput", {})
        for kind in ("left_out", "carried"):
            for row, files in told.get(f"rows_{kind}", {}).items():
                getattr(self, kind)[row].update(files)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = [str(row) for name, row in report.user_properties if name == PROPERTY]
        file = report.nodeid.split("::")[0]
        for row in rows:
            if report.outcome != "passed":
                self.failed[row].add(file)
            elif report.when == "call":
                self.passed[row].add(file)

    def pytest_sessionfinish(self) -> None:
        for row, files in self.failed.items():
            self.passed[row] -= files
        kinds = {"passed": self.passed, "failed": self.failed, "left_out": self.left_out, "carried": self.carried}
        text = {kind: {row: sorted(found[row]) for row in sorted(found) if found[row]} for kind, found in kinds.items()}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
