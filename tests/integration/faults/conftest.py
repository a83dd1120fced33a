# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleets with faults switched on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack import _stages


@pytest.fixture(autouse=True, scope="module")
def _impatient() -> Iterator[None]:
    """Simulated nodes fail faster than real ones: what is given five minutes in life is given ten seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_stages, "FINAL_AFTER", 1.0)
        yield
