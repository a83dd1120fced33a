# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._quantities import (
    is_quantity,
    is_zero,
    quantity,
    same_scalar,
)
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import PATIENT

LIMIT = ("spec", "resources", "limits", "cpu")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        (1, 1),
        ("500m", Fraction(1, 2)),
        (0.5, Fraction(1, 2)),
        ("1Ki", 1024),
        ("1.5Gi", 1536 * 2**20),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12E", 12 * 10**18),
        ("-2", -2),
        ("1.", 1),
        (".5", Fraction(1, 2)),
        ("3n", Fraction(3, 10**9)),
    ],
)
def test_a_quantity_is_an_exact_number(text: object, number: object) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["", "abc", "1kb", "1 Gi", True, None, "1Kim"])
def test_other_text_is_no_quantity(text: object) -> None:
    assert quantity(text) is None


@PATIENT
@given(st.integers(0, 10**9))
def test_the_same_amount_in_other_units_is_the_same(amount: int) -> None:
    assert same_scalar(amount, f"{amount * 1000}m", LIMIT)
    assert same_scalar(f"{amount}Ki", str(amount * 1024), LIMIT)
    assert not same_scalar(amount, str(amount + 1), LIMIT)


def test_only_fields_that_hold_quantities_are_compared_as_such() -> None:
    assert is_quantity(LIMIT)
    assert is_quantity(("spec", "volumes[shm]", "emptyDir", "sizeLimit"))
    assert not is_quantity(("spec", "ports[http]", "targetPort"))
    assert not same_scalar("1000m", "1", ("spec", "args"))


def test_a_number_is_not_its_text_and_not_a_boolean() -> None:
    assert not same_scalar(8080, "8080", ("spec", "targetPort"))
    assert not same_scalar(1, True)
    assert not same_scalar(False, 0)
    assert same_scalar(1, 1.0)


def test_what_the_server_leaves_out_is_zero() -> None:
    assert all(is_zero(value) for value in (None, "", 0, False, [], {}))
    assert not any(is_zero(value) for value in ("0", 1, True, [0], {"a": None}))
