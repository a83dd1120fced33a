# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of which some nodes give their GPUs to virtual machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.sandbox.machines import BOX, CC, PASS, VGPU, WORKLOAD

# What users and managers of virtual machines write on nodes, beside the deploy labels.
_LABELS = (WORKLOAD, "nvidia.com/vgpu.config", "nvidia.com/cc.mode")


@pytest.fixture
def vms(fleets: Callable[[str], Any]) -> Iterator[Any]:
    """A node for containers, and one each for whole GPUs, vGPUs and confidential computing; none says yet what for."""
    fleet = fleets("sandbox")
    yield fleet
    fleet.kubectl("delete", "pods", "--all", "-n", "default", "--force", "--grace-period=0", user="admin")
    for name in (BOX, PASS, VGPU, CC):
        fleet.kubectl("label", "node", name, *(f"{label}-" for label in _LABELS), user="admin")
