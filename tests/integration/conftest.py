# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What integration tests share: one real control plane for the whole session, and fleets with simulated nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.fleets import _fleets, _impatient, facts, fleets
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import Cluster

__all__ = ["_fleets", "_impatient", "cluster", "facts", "fleets"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running control plane with kwok and without nodes. Tests clean up after themselves, or use own namespaces."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        running.start_kwok()
        yield running
