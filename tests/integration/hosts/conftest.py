# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for the tests of this folder: one of each system, started once in a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.images import PLAIN


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Running hosts, each named as its system."""
    with Hosts(tmp_path_factory.mktemp("hosts")) as running:
        for name in PLAIN:
            running.start(name, name)
        yield running


@pytest.fixture(params=PLAIN)
def host(hosts: Hosts, request: pytest.FixtureRequest) -> Host:
    """One of the running hosts."""
    return hosts.hosts[request.param]
