# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A part of a host is judged by the matrix, and what that says of the driver alone is not the part's business."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import _fit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._matrix import FitSet
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Finding


def judged(driver: str, cuda: str, architectures: tuple[str, ...], accept: tuple[str, ...]) -> list[Finding]:
    return _fit.findings(FitSet(driver=driver, architectures=architectures), "version", accept, cuda=cuda)


def ids(driver: str, cuda: str, *architectures: str, accept: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(one.severity, one.id) for one in judged(driver, cuda, architectures, accept)]


@pytest.mark.rows("S35", "S36")
def test_what_does_not_run_is_refused_with_its_row() -> None:
    (finding,) = judged("535.309.01", "13.0", ("turing",), ())
    assert (finding.severity, finding.path) == ("error", "version")
    assert "needs driver 580 or newer" in finding.detail
    assert finding.remedy.startswith("The matrix says: CUDA 13.0: branch 580")


def test_what_runs_with_limits_is_told_and_what_fits_is_not() -> None:
    assert ids("535.309.01", "12.9", "turing") == [("warning", "cuda_newer_than_driver")]
    assert ids("580.159.04", "12.9", "turing") == []
    assert ids("580.159.04", "13.0", "volta") == [("error", "cuda_without_gpu")]


def test_one_that_nobody_knows_can_be_accepted() -> None:
    assert ids("580.159.04", "13.9", "hopper") == [("error", "cuda_unknown")]
    assert ids("580.159.04", "13.9", "hopper", accept=("cuda_unknown",)) == [("warning", "cuda_unknown")]


def test_a_dcgm_without_a_part_for_the_driver_is_refused() -> None:
    (finding,) = _fit.findings(FitSet(driver="580.159.04"), "dcgm_version", (), dcgm="3.3.9")
    assert (finding.severity, finding.id) == ("error", "dcgm_too_old")
    assert "DCGM 3.3: CUDA 11, 12" in finding.remedy
    assert _fit.findings(FitSet(driver="580.159.04"), "dcgm_version", (), dcgm="4.6.0") == []
