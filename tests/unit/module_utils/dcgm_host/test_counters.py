# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields and the counters file: what the exporter would stumble over is refused by name before it reads it."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm_host import _counters, _fields
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm_host._counters import Counter
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import errors

GOOD = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature"


def wrong(text: str, *accept: str, dcgm: tuple[int, ...] = ()) -> list[str]:
    return [one.sentence() for one in errors(_counters.read(text, dcgm, accept)[1])]


# The second names of DCGM 4.6 that are known of its documentation, and numbers of both.
RENAMED = {
    112: ("CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS"),
    153: ("GPU_TEMP_LIMIT", "GPU_TEMP_MARGIN_CELSIUS"),
    160: ("POWER_MGMT_LIMIT", "BOARD_POWER_LIMIT_REQUESTED_WATTS"),
    164: ("ENFORCED_POWER_LIMIT", "BOARD_POWER_LIMIT_ENFORCED_WATTS"),
    230: ("XID_ERRORS", "XID_ERROR"),
    390: ("RETIRED_SBE", "PAGE_RETIRED_SBE_TOTAL"),
    393: ("UNCORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_UNCORRECTABLE_TOTAL"),
    395: ("ROW_REMAP_FAILURE", "ROW_REMAP_FAILED"),
}


@pytest.mark.rows("H092")
@pytest.mark.parametrize("number", RENAMED)
def test_both_names_of_a_field_are_known(number: int) -> None:
    assert {f"DCGM_FI_DEV_{name}" for name in RENAMED[number]} <= set(_fields.names_of(number))


def test_links_and_lanes_have_their_numbers() -> None:
    numbers = {
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L5": 405,
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L14": 428,
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_L15_TOTAL": 491,
        "DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_L17": 842,
        "DCGM_FI_DEV_NVSWITCH_LINK_ECC_ERRORS_LANE4": 821,
        "DCGM_FI_DEV_ECC_DBE_AGG_SRM": 345,
        "DCGM_FI_PROF_NVLINK_L17_RX_BYTES": 1075,
        "DCGM_FI_PROF_NVJPG7_ACTIVE": 1032,
        "DCGM_FI_DEV_GPU_RECOVERY_ACTION": 1523,
    }
    assert {name: _fields.FIELDS[name].number for name in numbers} == numbers


@pytest.mark.rows("H089")
def test_the_exporters_own_set_is_without_fault() -> None:
    counters, found = _counters.read("", ())
    assert counters == []
    assert "names no metric" in found[0].detail
    counters, found = _counters.read(_counters.DEFAULT, (4, 4))
    assert found == []
    assert [one.field for one in counters if one.kind == "label"] == ["DCGM_FI_DRIVER_VERSION"]
    assert len(counters) == 26


@pytest.mark.rows("H089", "P119")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("DCGM_FI_DEV_GPU_TEMP, gauge", "has not exactly three parts"),
        ("DCGM_FI_DEV_GPU_TEMP, gauge, Temperature, in degrees", "Take commas out of the help"),
        ("DCGM_FI_DEV_GPU_TEMP, gauge,", "has not exactly three parts"),
        ('DCGM_FI_DEV_GPU_TEMP, gauge, "quoted"', "quotation mark"),
        ("DCGM_FI_DEV_GPU_TEMP, gague, x", "'gague' is no type; allowed are gauge, counter, label"),
        ("DCGM_FI_DEV_GPU_TEMPERATURE, gauge, x", "Did you mean DCGM_FI_DEV_GPU_TEMP"),
        ("GPU_UTIL, gauge, x", "Did you mean DCGM_FI_DEV_GPU_UTIL?"),
        (f"{GOOD}\n{GOOD}", "is there twice"),
        (f"{GOOD}\nDCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, x", "is there twice"),
        ("DCGM_FI_DRIVER_VERSION, label, Driver", "names no metric"),
    ],
)
def test_what_would_end_the_exporter_is_refused_with_its_line(line: str, words: str) -> None:
    (said,) = wrong(f"# a comment\n\n{line}")
    assert words in said
    assert "line 3" in said or "line 4" in said or "no metric" in said


@pytest.mark.rows("H092")
def test_a_name_of_a_later_dcgm_is_refused_with_the_earlier_one() -> None:
    text = "DCGM_FI_DEV_BOARD_POWER_WATTS, gauge, Power"
    assert wrong(text, dcgm=(4, 6, 0)) == wrong(text) == []
    (said,) = wrong(text, dcgm=(4, 5, 3))
    assert "Write DCGM_FI_DEV_POWER_USAGE" in said
    assert "newer DCGM" in wrong("DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, x", dcgm=(4, 5))[0]


def test_an_unknown_field_can_be_accepted() -> None:
    text = "DCGM_FI_DEV_OF_TOMORROW, gauge, x"
    assert wrong(text)
    assert wrong(text, "unknown_field") == []


def test_useless_types_are_told_and_taken() -> None:
    counters, found = _counters.read("DCGM_FI_DEV_GPU_TEMP, histogram, x")
    assert [one.severity for one in found] == ["warning"]
    assert counters[0].kind == "histogram"


WORDS = st.text(st.characters(codec="utf-8", exclude_characters=',"#', exclude_categories=["C", "Z"]), min_size=1)


@given(
    st.lists(st.sampled_from(sorted(_fields.FIELDS)), unique_by=lambda n: _fields.FIELDS[n].number, min_size=1), WORDS
)
def test_what_is_written_is_read_back_and_is_csv_of_three_parts(names: list[str], words: str) -> None:
    counters = [Counter(name, "gauge", words) for name in names]
    text = _counters.render(counters)
    assert _counters.read(text)[0] == counters
    rows = list(csv.reader(io.StringIO(text.partition("\n")[2]), strict=True))
    assert [len(row) for row in rows] == [3] * len(names)


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    counters, found = _counters.read(text)
    assert errors(found) or all(_fields.named(one.field) for one in counters)
