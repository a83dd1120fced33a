# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forty cases, judged by our model of how daemons merge files; real daemons judge them in tests/integration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import _containerd, _crio, _docker
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._json import Json
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._types import Broken, Proposal, Wanted, meant
from ansible_collections.gpufleet.nvidia.tests.helpers.runtime_cases import CASES, Case

BUILT_IN = {"runc": {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": "", "SystemdCgroup": False}}}


class Given:
    """Files in memory."""

    def __init__(self, files: Mapping[str, str | None]) -> None:
        self.files = {path: text for path, text in files.items() if text is not None}

    def text(self, path: str) -> str | None:
        return self.files.get(path)

    def glob(self, pattern: str) -> list[str]:
        return sorted(path for path in self.files if _containerd._matches(path, pattern))

    def take(self, proposal: Proposal) -> None:
        for change in proposal.changes:
            assert self.files.get(change.path) == change.before
            if change.after is None:
                del self.files[change.path]
            else:
                self.files[change.path] = change.after


def wanted(case: Case) -> Wanted:
    return Wanted(case.name, case.program, case.set_default, case.cdi)


def given(case: Case) -> Given:
    room = {"containerd": _containerd, "crio": _crio, "docker": _docker}[case.kind]
    return Given({room.CONFIG: case.text, getattr(room, "DROP_IN", ""): case.drop_in})


def planned(
    case: Case, files: Given, daemon: tuple[int, int] | None, built_in: Mapping[str, Any] | None = None
) -> Proposal:
    if case.kind == "docker":
        return _docker.plan(files, _docker.CONFIG, wanted(case), (26, 1))
    if case.kind == "crio":
        return _crio.plan(files, _crio.CONFIG, _crio.DROP_IN, wanted(case), {})
    return _containerd.plan(files, _containerd.Places(), wanted(case), daemon, built_in or BUILT_IN)


def outcome(case: Case, files: Given, daemon: tuple[int, int] | None) -> tuple[Any, str]:
    """The runtime's table, and the default runtime."""
    if case.kind == "docker":
        data = Json(files.text(_docker.CONFIG) or "").data
        return data.get("runtimes", {}).get(case.name), data.get("default-runtime", "")
    if case.kind == "crio":
        runtimes, default = _crio.effective(_crio.load(files, _crio.CONFIG))
        return runtimes.get(case.name), default
    now = _containerd.effective(_containerd.load(files, _containerd.Places()), daemon)
    return now.runtimes.get(case.name), now.default


PLANNED = [
    pytest.param(case, daemon, id=f"{case.number}-{case.title}-{'.'.join(map(str, daemon)) if daemon else 'unknown'}")
    for case in CASES
    if case.kind in ("containerd", "docker", "crio")
    for daemon in ((*case.daemons, None) if case.kind == "containerd" else (None,))
]


@pytest.mark.rows("H065", "H066", "H067", "H068", "H072", "H073", "H075", "H083", "S11", "P019")
@pytest.mark.parametrize(("case", "daemon"), PLANNED)
def test_a_case_ends_as_it_has_to_and_stays_so(case: Case, daemon: tuple[int, int] | None) -> None:
    files = given(case)
    before = dict(files.files)
    if case.refused:
        with pytest.raises(Broken, match=case.refused):
            planned(case, files, daemon)
        assert files.files == before
        return
    proposal = planned(case, files, daemon)
    files.take(proposal)
    entry, default = outcome(case, files, daemon)
    if case.number == 19:
        assert [one.id for one in proposal.findings] == ["containerd_without_cri"]
        assert files.files == before
        return
    assert not proposal.findings
    assert (meant(entry), default) == (meant(case.entry), case.default)
    assert not planned(case, files, daemon).changes, "a second run has something to do"
    for path, text in before.items():
        for line in (text or "").splitlines():
            if "#" in line and path.endswith("config.toml"):
                assert line in (files.text(path) or ""), "a comment is lost"
