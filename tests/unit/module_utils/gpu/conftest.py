# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with GPUs for the tests of this folder."""

from __future__ import annotations

import itertools

import pytest

from .double import Host


@pytest.fixture
def host_with(tmp_path, monkeypatch):
    """Makes a host: ``host_with("A100-SXM4-40GB")``."""
    number = itertools.count()

    def make(*products: str) -> Host:
        folder = tmp_path / f"host-{next(number)}"
        folder.mkdir()
        return Host(folder, monkeypatch, *products)

    return make


@pytest.fixture
def host(host_with):
    """One A100 with MIG on and 1g@0 1g@1 3g@4."""
    made = host_with("A100-SXM4-40GB")
    made.set("gpu=0", "mig=1", "instance=19@0", "instance=19@1", "instance=9@4")
    return made
