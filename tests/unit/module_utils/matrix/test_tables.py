# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of the matrix: what NVIDIA's pages say, written down a second time by hand, and what must hold in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils import _matrix as matrix
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu import _pci_ids

BOTH = ("open", "proprietary")
DAY = "2026-11-27"

# Branch, type, CUDA, standing on the day of the tables, one GPU that it drives, one that it does not.
BRANCHES = [
    (390, "legacy", "9.1", "ended", "fermi", "turing"),
    (470, "legacy", "11.4", "ended", "kepler", "ada"),
    (515, "PB", "11.7", "ended", "maxwell", "kepler"),
    (520, "NFB", "11.8", "ended", "maxwell", "ada"),
    (525, "PB", "12.0", "ended", "hopper", "grace-hopper"),
    (530, "NFB", "12.1", "ended", "ada", "blackwell"),
    (535, "LTSB", "12.2", "past", "grace-hopper", "blackwell"),
    (545, "NFB", "12.3", "past", "volta", "blackwell"),
    (550, "PB", "12.4", "past", "volta", "blackwell"),
    (555, "NFB", "12.5", "past", "hopper", "kepler"),
    (560, "NFB", "12.6", "past", "pascal", "blackwell"),
    (565, "NFB", "12.7", "past", "pascal", "fermi"),
    (570, "PB", "12.8", "past", "blackwell", "kepler"),
    (575, "NFB", "12.9", "past", "blackwell", "rubin"),
    (580, "LTSB", "13.0", "current", "volta", "rubin"),
    (590, "NFB", "13.1", "past", "turing", "volta"),
    (595, "PB", "13.2", "current", "blackwell", "pascal"),
    (610, "NFB", "13.3", "past", "ada", "maxwell"),
    (615, "NFB", "13.4", "current", "ampere", "volta"),
    (620, "LTSB", "13.5", "current", "rubin", "volta"),
]


@pytest.mark.rows("H005", "S36")
@pytest.mark.parametrize(("number", "kind", "cuda", "standing", "drives", "drives_not"), BRANCHES)
def test_a_branch_is_as_the_support_list_has_it(
    number: int, kind: str, cuda: str, standing: str, drives: str, drives_not: str
) -> None:
    branch = matrix.BRANCHES[number]
    assert (branch.kind, branch.cuda, branch.standing(DAY)) == (kind, cuda, standing)
    assert matrix.runs(branch, drives)
    assert not matrix.runs(branch, drives_not)


@pytest.mark.rows("H006")
@pytest.mark.parametrize(
    ("number", "day", "standing"),
    [
        (580, "2028-06-30", "current"),
        (580, "2028-07-01", "past"),
        (595, "2027-03-31", "current"),
        (595, "2027-04-01", "past"),
        (620, "2029-09-01", "current"),
        (620, "2029-10-01", "past"),
        (535, "2026-06-30", "current"),
        (535, "", "past"),
        (615, "2031-01-01", "current"),
    ],
)
def test_the_end_of_life_is_judged_by_the_day_that_is_handed_in(number: int, day: str, standing: str) -> None:
    assert matrix.BRANCHES[number].standing(day) == standing


@pytest.mark.rows("H004", "H005")
@pytest.mark.parametrize(
    ("name", "flavours", "last"),
    [
        ("fermi", ("proprietary",), 390),
        ("kepler", ("proprietary",), 470),
        ("maxwell", ("proprietary",), 580),
        ("pascal", ("proprietary",), 580),
        ("volta", ("proprietary",), 580),
        ("turing", BOTH, 0),
        ("ampere", BOTH, 0),
        ("ada", BOTH, 0),
        ("hopper", BOTH, 0),
        ("grace-hopper", ("open",), 0),
        ("blackwell", ("open",), 0),
        ("rubin", ("open",), 0),
        ("newer", ("open",), 0),
        ("thor", (), 0),
        ("something", (), 0),
    ],
)
def test_an_architecture_takes_its_flavours_up_to_its_last_branch(
    name: str, flavours: tuple[str, ...], last: int
) -> None:
    assert matrix.flavours_for(name) == flavours
    assert (matrix.GPUS[name].last if name in matrix.GPUS else 0) == last


@pytest.mark.rows("H005")
def test_from_620_on_there_are_open_modules_only() -> None:
    assert matrix.BRANCHES[620].flavours == ("open",)
    assert matrix.BRANCHES[615].flavours == BOTH


@pytest.mark.rows("H002")
@pytest.mark.parametrize(
    ("device", "name"),
    [
        (0x2330, "hopper"),
        (0x2342, "grace-hopper"),
        (0x1DB6, "volta"),
        (0x2901, "blackwell"),
        (0x3FFF, "newer"),
        (0x1A00, "unknown"),
    ],
)
def test_what_a_pci_id_tells_has_its_name_in_the_matrix(device: int, name: str) -> None:
    kind = _pci_ids.kind(device)
    assert matrix.architecture(kind.architecture, kind.flavour) == name


def test_every_gpu_that_the_pci_list_knows_is_in_the_matrix() -> None:
    told = {_pci_ids.kind(device).architecture for device in range(0x0600, 0x3400)} - {"unknown"}
    assert told <= set(matrix.ARCHITECTURES)


@pytest.mark.rows("S36")
@pytest.mark.parametrize(
    ("minor", "branch", "minimum", "shipped"),
    [
        ("11.8", 520, "450.80.02", "520.61.05"),
        ("12.0", 525, "525.60.13", "525.60.13"),
        ("12.1", 530, "525.60.13", "530.30.02"),
        ("12.2", 535, "525.60.13", "535.104.05"),
        ("12.3", 545, "525.60.13", "545.23.06"),
        ("12.4", 550, "525.60.13", "550.54.14"),
        ("12.5", 555, "525.60.13", "555.42.06"),
        ("12.6", 560, "525.60.13", "560.35.05"),
        ("12.8", 570, "525.60.13", "570.124.06"),
        ("12.9", 575, "525.60.13", "575.57.08"),
        ("13.0", 580, "580", "580.95.05"),
        ("13.1", 590, "580", "590.48.01"),
        ("13.2", 595, "580", "595.45.04"),
        ("13.5", 620, "580", ""),
    ],
)
def test_a_cuda_is_as_the_compatibility_pages_have_it(minor: str, branch: int, minimum: str, shipped: str) -> None:
    row = matrix.CUDA[minor]
    assert (row.branch, row.minimum) == (branch, minimum)
    assert (shipped in row.shipped) if shipped else not row.shipped


@pytest.mark.rows("H096")
def test_tables_agree_with_each_other() -> None:
    for minor, row in matrix.CUDA.items():
        assert matrix.BRANCHES[row.branch].cuda == minor
        assert all(matrix.branch_of(version) == row.branch for version in row.shipped)
    for number, branch in matrix.BRANCHES.items():
        assert branch.number == number
        assert all(matrix.branch_of(version) == number for version in branch.releases)
        keys = [matrix.version_key(version) for version in branch.releases]
        assert keys == sorted(keys, reverse=True)
    for product in matrix.PRODUCTS.values():
        row_of = matrix.GPUS[product.architecture]
        assert product.branch >= row_of.first
        assert not row_of.last or product.branch <= row_of.last
    drivers = [release.images["driver"][2] for release in matrix.RELEASES.values()]
    drivers += [version for release in matrix.RELEASES.values() for version in release.drivers]
    unknown = [version for version in drivers if version not in matrix.BRANCHES[int(version[:3])].releases]
    assert unknown == []


@pytest.mark.rows("H096")
def test_every_row_has_its_source() -> None:
    tables = (matrix.BRANCHES, matrix.GPUS, matrix.CUDA, matrix.PRODUCTS, matrix.DCGM, matrix.LIMITS, matrix.HOSTS)
    rows = [row for table in tables for row in table.values()]
    assert len(rows) > 80
    assert all(row.source for row in rows)


@pytest.mark.rows("H007")
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("580.95.05", (580, 95, 5)),
        ("575.57.08", (575, 57, 8)),
        ("570.26", (570, 26)),
        ("v1.20.2-1", (1, 20, 2)),
        ("550.54.14-0ubuntu0.24.04.1", (550, 54, 14)),
        ("6.8.0-45-generic", (6, 8, 0)),
    ],
)
def test_versions_are_numbers_by_part(text: str, key: tuple[int, ...]) -> None:
    assert matrix.version_key(text) == key


@pytest.mark.rows("H007")
@pytest.mark.parametrize("text", ["", "latest", "v", ".5", "5.", "1..2"])
def test_a_text_that_is_no_version_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no version") as caught:
        matrix.version_key(text)
    assert repr(text) in str(caught.value)


@pytest.mark.rows("H007")
@given(st.lists(st.integers(0, 999), min_size=1, max_size=4), st.lists(st.integers(0, 999), min_size=1, max_size=4))
def test_versions_are_ordered_as_their_numbers(one: list[int], other: list[int]) -> None:
    texts = [".".join(f"{part:02}" for part in parts) for parts in (one, other)]
    assert (matrix.version_key(texts[0]) < matrix.version_key(texts[1])) == (one < other)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("H200 SXM 141GB", "H200"),
        ("Tesla V100 SXM2 16GB", "V100"),
        ("RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell"),
        ("RTX A4500", "RTX A"),
        ("GeForce RTX 5090", "GeForce RTX 50"),
        ("GH200 120GB", "GH200"),
        ("A2 / A16", "A16"),
        ("L40S", "L40S"),
        ("A100 PCIe 80GB", "A100"),
    ],
)
def test_a_product_has_its_row(name: str, row: str) -> None:
    found = matrix.product_named(name)
    assert found is not None
    assert found.name == row


def test_a_product_that_has_no_row_has_none() -> None:
    assert matrix.product_named("Tesla T10 16GB") is None
