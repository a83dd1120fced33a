# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The peers' environment: keyed by what it is made from, used again, and made anew when it is not complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.bench import peers


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    calls: list[Path] = []

    def install(home: Path, report: object) -> None:
        calls.append(home)
        (home / "bin").mkdir(parents=True, exist_ok=True)
        (home / ".complete").touch()

    monkeypatch.setenv("GPUFLEET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(peers, "_install", install)
    return calls


def test_environment_is_installed_once(installed: list[Path]) -> None:
    first = peers.environment()
    assert peers.environment() == first
    assert installed == [first.parent]


def test_an_installation_that_did_not_end_is_made_again(installed: list[Path]) -> None:
    home = peers.environment().parent
    (home / ".complete").unlink()
    peers.environment()
    assert installed == [home, home]


def test_other_versions_have_an_environment_of_their_own(
    installed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = peers.environment()
    other = tmp_path / "constraints.txt"
    other.write_text("kubernetes==1.0\n")
    monkeypatch.setattr(peers, "CONSTRAINTS", other)
    assert peers.environment() != first


def test_only_the_measured_collection_stays(tmp_path: Path) -> None:
    root = tmp_path / "lib" / "python3.13" / "site-packages" / "ansible_collections"
    for name in ("kubernetes/core", "kubernetes/other", "community/general"):
        (root / name).mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/bin/true")
    peers._prune(tmp_path)
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["kubernetes", "kubernetes/core"]


def test_a_package_without_the_collection_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lib" / "python3.13" / "site-packages" / "ansible_collections").mkdir(parents=True)
    with pytest.raises(peers.PeerError, match=r"kubernetes\.core"):
        peers._prune(tmp_path)
