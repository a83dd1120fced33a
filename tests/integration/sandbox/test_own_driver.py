# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host driver in a folder of its own: the sandbox validator looks for it where the policy says (L36)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.sandbox.machines import (
    A10_HALF,
    KUBEVIRT,
    apps,
    host,
    offers,
    row,
)

NODE = "vm-own"
OWN = {
    **KUBEVIRT, "sandboxWorkloads": {"enabled": True, "defaultWorkload": "vm-vgpu"}, "vgpuManager": {"enabled": False},
}  # fmt: skip


@pytest.mark.rows("L36", "COM-07", "VAL-09", "VAL-11", "SBX-01")
def test_the_sandbox_validator_finds_the_driver_where_the_policy_says_it_is(fleets: Callable[[str], Any]) -> None:
    fleet = fleets("sandbox-own")
    lost = fleet.stack(OWN, stage_timeout=20, timeout=40)
    assert lost["failed"]
    told = row(lost, NODE)["trouble"]
    assert "sandbox validator" in told
    assert not {"vgpu-manager-ready", "host-vgpu-manager-ready"} & host(fleet, NODE)[0]
    values = {**OWN, "hostPaths": {"driverInstallDir": "/opt/driver"}}
    done = fleet.stack(values)
    assert not done["failed"], done["msg"]
    assert offers(fleet, NODE) == {A10_HALF: "2"}
    assert host(fleet, NODE)[0] == {"workload-type", "vgpu-manager-ready", "vgpu-devices-ready"}
    assert apps(fleet, NODE) == {
        "nvidia-sandbox-validator", "nvidia-sandbox-device-plugin-daemonset", "nvidia-vgpu-device-manager",
    }  # fmt: skip
    offset = fleet.offset()
    again = fleet.stack(values)
    assert (again["changed"], fleet.writes(offset)) == (False, [])
