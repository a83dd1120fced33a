# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The named MIG layouts, read back by a YAML parser."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _mig_configs

# As the operator's list spells them: name, instances on each GPU.
_UNFILTERED = """
1g.5gb:7 1g.5gb.me:1 2g.10gb:3 3g.20gb:2 4g.20gb:1 7g.40gb:1 1g.24gb.gfx:4 1g.24gb.me.all:1 1g.24gb-me:4 2g.48gb:2
2g.48gb.gfx:2 2g.48gb.me.all:1 2g.48gb-me:2 4g.96gb:1 4g.96gb.gfx:1 1g.10gb.me:1 1g.20gb:4 1g.23gb:7 1g.23gb.me:1
1g.24gb.me:1 2g.20gb:3 3g.40gb:2 4g.40gb:1 7g.80gb:1 1g.6gb:4 1g.6gb.me:1 2g.12gb:2 2g.12gb.me:1 4g.24gb:1 1g.12gb:7
1g.12gb.me:1 1g.24gb:4 1g.45gb:4 1g.47gb:4 2g.24gb:3 2g.45gb:3 2g.47gb:3 3g.47gb:2 4g.47gb:1 7g.94gb:1 3g.48gb:2
3g.90gb:2 3g.93gb:2 3g.95gb:2 4g.48gb:1 4g.90gb:1 4g.93gb:1 4g.95gb:1 7g.96gb:1 7g.180gb:1 7g.186gb:1 7g.189gb:1
1g.18gb:7 1g.18gb.me:1 2g.35gb:3 3g.71gb:2 4g.71gb:1 7g.141gb:1 1g.36gb:4 2g.36gb:3 3g.72gb:2 4g.72gb:1 7g.144gb:1
1g.34gb:7 1g.34gb.me:1 1g.67gb:4 2g.67gb:3 3g.135gb:2 4g.135gb:1 7g.269gb:1 1g.35gb.me:1 1g.70gb:4 2g.70gb:3 3g.139gb:2
4g.139gb:1 7g.278gb:1
"""
UNFILTERED = _UNFILTERED.split()

FILTERED = {
    "all-1g.10gb": [
        ("2330 2331 2322 20B2 20B5 20F3 20F5 2324", {"1g.10gb": 7}),
        ("20B0 20B1 20F1 20F6", {"1g.10gb": 4}),
    ],
    "all-1g.35gb": [("2335", {"1g.35gb": 4}), ("31C2", {"1g.35gb": 7})],
    "all-balanced": [
        ("20B0 20B1 20F1 20F6", {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}),
        ("2330 2331 2322 20B2 20B5 20F3 20F5 2324", {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}),
        ("20B7", {"1g.6gb": 2, "2g.12gb": 1}),
        ("2BB5", {"1g.24gb": 2, "2g.48gb": 1}),
        ("2321 233A", {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1}),
        ("2342 233D 20B6 2329", {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1}),
        ("2335 233B", {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1}),
        ("2348", {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1}),
        ("2901", {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1}),
        ("2941", {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1}),
        ("3182", {"1g.34gb": 2, "2g.67gb": 1, "3g.135gb": 1}),
        ("31C2", {"1g.35gb": 2, "2g.70gb": 1, "3g.139gb": 1}),
    ],
}


@pytest.fixture(scope="module")
def layouts() -> dict[str, list[dict[str, Any]]]:
    read = yaml.safe_load(_mig_configs.mig_parted_config())
    assert set(read) == {"version", "mig-configs"}
    assert read["version"] == "v1"
    return read["mig-configs"]


@pytest.mark.rows("MIG-01")
def test_there_are_81_names(layouts: dict[str, Any]) -> None:
    assert len(layouts) == 81
    names = {"all-disabled", "all-enabled", *FILTERED, *(f"all-{item.split(':')[0]}" for item in UNFILTERED)}
    assert set(layouts) == names


@pytest.mark.rows("MIG-01")
def test_disabled_and_enabled_cut_nothing(layouts: dict[str, Any]) -> None:
    assert layouts["all-disabled"] == [{"devices": "all", "mig-enabled": False}]
    assert layouts["all-enabled"] == [{"devices": "all", "mig-enabled": True, "mig-devices": {}}]


@pytest.mark.rows("MIG-01")
@pytest.mark.parametrize("item", UNFILTERED)
def test_a_uniform_layout_fills_each_gpu(layouts: dict[str, Any], item: str) -> None:
    name, count = item.split(":")
    profile = name.replace(".me", "+me").replace(".gfx", "+gfx")
    assert layouts[f"all-{name}"] == [{"devices": "all", "mig-enabled": True, "mig-devices": {profile: int(count)}}]


@pytest.mark.rows("MIG-01")
@pytest.mark.parametrize("name", FILTERED)
def test_a_layout_that_depends_on_the_gpu_says_which(layouts: dict[str, Any], name: str) -> None:
    wanted = [
        {
            "device-filter": [f"0x{device}10DE" for device in devices.split()],
            "devices": "all",
            "mig-enabled": True,
            "mig-devices": layout,
        }
        for devices, layout in FILTERED[name]
    ]
    assert layouts[name] == wanted


@pytest.mark.rows("MIG-01")
def test_no_layout_asks_for_more_slices_than_a_gpu_has(layouts: dict[str, Any]) -> None:
    for name, entries in layouts.items():
        for entry in entries:
            devices = entry.get("mig-devices", {})
            slices = sum(int(re.match(r"\d", profile)[0]) * count for profile, count in devices.items())  # type: ignore[index]
            assert slices <= 7, name


@pytest.mark.rows("MIG-02")
def test_services_of_the_host_that_hold_gpus_are_listed() -> None:
    read = yaml.safe_load(_mig_configs.GPU_CLIENTS)
    names = "nvsm nvsm-mqtt nvsm-core nvsm-api-gateway nvsm-notifier nv_peer_mem nvidia-dcgm dcgm dcgm-exporter"
    assert read == {"version": "v1", "systemd-services": [f"{name}.service" for name in names.split()]}
