# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of faults shows the sentences that the integration tests compare runs with, and no others."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack import _stages
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._verdicts import UNITS
from ansible_collections.gpufleet.nvidia.tests.integration.faults.sentences import page_rows

PAGE = (Path(__file__).resolve().parents[3] / "docs/faults.md").read_text()


def test_the_table_has_each_fault_with_its_sentence() -> None:
    lines = PAGE.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = list(takewhile(bool, lines[first:]))
    assert table[2:] == page_rows()


def test_the_times_of_the_page_are_those_of_the_code() -> None:
    assert {name: units * _stages.FINAL_AFTER for name, units in UNITS.items()} == {
        "final": 30,
        "moment": 120,
        "long": 300,
    }
    assert all(words in PAGE for words in ("half a minute", "two minutes", "after five"))
