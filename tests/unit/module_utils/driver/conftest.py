# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _found

from .debian_host import NEW, OLD, DebianHost


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DebianHost:
    """A host with two H100 and no driver, whose repository has two versions. Its disks are large."""
    monkeypatch.setattr(_found, "_space", lambda place: (100 << 30, False))
    return DebianHost(tmp_path / "host").offer(OLD, NEW)
