# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/versions.md, made by scripts/render-docs: that it is up to date is proved with the other pages that it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[3] / "docs/versions.md").read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """Rows of the table under a title."""
    section = PAGE.split(f"# {title}\n", 1)[1].split("\n#", 1)[0]
    table = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1:]]


@pytest.mark.rows("S36")
def test_branches_are_told_with_their_end() -> None:
    found = {row[0]: row[1:4] for row in rows("Branches of the driver")}
    assert found["580"] == ["LTSB", "2028-06", "13.0"]
    assert found["535"] == ["LTSB", "2026-06, over", "12.2"]
    assert found["470"] == ["legacy", "over, no longer made", "11.4"]
    assert len(found) == 24


@pytest.mark.rows("S36")
@pytest.mark.parametrize(
    ("system", "source", "branches", "gpus", "flavour", "told"),
    [
        ("Ubuntu 24.04", "nvidia, local", "590 to 615", "turing to hopper", "proprietary", "`nvidia-dkms`"),
        ("Ubuntu 24.04", "nvidia, local", "470 to 580", "kepler to hopper", "proprietary", "`nvidia-dkms-B`"),
        ("Ubuntu 24.04", "precompiled", "515 to 620", "turing to newer", "open", "`linux-signatures-nvidia-KERNEL`"),
        ("Ubuntu 26.04", "nvidia, local", "470 to 590", "kepler to blackwell", "-", "branches from 595 on, not B"),
        ("Debian 13", "distribution", "550", "turing to grace-hopper", "open", "`nvidia-open-kernel-dkms`"),
        ("Rocky Linux 8", "nvidia, local", "560 to 620", "turing to newer", "open", "stream `B-open`; "),
        ("RHEL 10", "precompiled", "470 to 620", "kepler to newer", "-", "no source precompiled"),
        ("SLES 15", "nvidia, local, precompiled", "590", "turing to blackwell", "-", "G07 from 595 on"),
    ],
)
def test_each_combination_is_on_the_page(
    system: str, source: str, branches: str, gpus: str, flavour: str, told: str
) -> None:
    fits = [row for row in rows(system) if row[:4] == [source, branches, gpus, flavour]]
    assert [told in row[4] for row in fits] == [True]


@pytest.mark.rows("H025")
def test_images_are_told_why() -> None:
    assert [row[0] for row in rows("Image-based systems")] == [
        *("flatcar", "talos", "bottlerocket", "cos", "rhcos", "fedora-coreos")
    ]


@pytest.mark.rows("H027")
def test_companions_change_their_names_at_580() -> None:
    found = [row[1:] for row in rows("Companions") if row[0] == "fabric_manager"]
    assert ["rpm, NVIDIA's repository", "535 to 575", "`nvidia-fabric-manager`"] in found
    assert ["rpm, NVIDIA's repository", "580 to 620", "`nvidia-fabricmanager`"] in found
    assert ["Ubuntu's archive", "535 to 620", "`nvidia-fabricmanager-B`"] in found
