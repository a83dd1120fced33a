# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the version matrix says of a host: by its GPUs, by the day, by a user's own rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

from .debian_host import DebianHost


@pytest.mark.rows("H006")
@pytest.mark.parametrize(("day", "told"), [("2028-06-30", []), ("2028-07-01", ["warning"]), ("", [])])
def test_the_end_of_a_branch_is_told_on_the_day_of_the_run(tmp_path: Path, day: str, told: list[str]) -> None:
    host = DebianHost(tmp_path).offer("580.95.05")
    host.today = day
    findings = host.go(check=True, branch=580).result.findings
    assert [one.severity for one in findings if one.id == "end_of_life"] == told


@pytest.mark.rows("H006", "S36")
def test_support_that_a_user_has_for_longer_is_believed(tmp_path: Path) -> None:
    host = DebianHost(tmp_path).offer("580.95.05")
    host.today = "2028-07-01"
    own = {"branches": {"580": {"end": "2029-06"}}}
    findings = host.go(check=True, branch=580, matrix=own).result.findings
    assert [one.id for one in findings if one.id == "end_of_life"] == []


@pytest.mark.rows("H005", "S36")
def test_a_version_before_the_first_for_the_product_is_refused_with_its_row(tmp_path: Path) -> None:
    host = DebianHost(tmp_path, device="0x2901").offer("570.86.15")
    with pytest.raises(Failure) as failure:
        host.go(branch=570)
    found = {one.id: one for one in failure.value.result.findings}
    assert found["gpu_too_new"].remedy.startswith("The matrix says: B200: blackwell (10.0), from driver 570.133.20 on")
    assert host.writes() == []
