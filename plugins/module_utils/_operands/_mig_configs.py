# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Named MIG layouts that the manager falls back to (MIG-01), and the host services that hold GPUs (MIG-02).

A layout is named ``all-<profile>``; in names ``.me`` and ``.gfx`` stand for the attributes ``+me`` and ``+gfx``. The
format is mig-parted's v1. Device ids are PCI device ids: the vendor's 10DE follows in a filter.
"""

from __future__ import annotations

import json
from typing import Dict, List, Mapping, Sequence, Tuple

Layout = Dict[str, int]  # profile -> instances on each GPU

# Profile, as a layout's name spells it, and how many fit on a GPU.
UNIFORM: Tuple[Tuple[str, int], ...] = (
    ("1g.5gb", 7),
    ("1g.5gb.me", 1),
    ("2g.10gb", 3),
    ("3g.20gb", 2),
    ("4g.20gb", 1),
    ("7g.40gb", 1),
    ("1g.24gb.gfx", 4),
    ("1g.24gb.me.all", 1),
    ("1g.24gb-me", 4),
    ("2g.48gb", 2),
    ("2g.48gb.gfx", 2),
    ("2g.48gb.me.all", 1),
    ("2g.48gb-me", 2),
    ("4g.96gb", 1),
    ("4g.96gb.gfx", 1),
    ("1g.10gb.me", 1),
    ("1g.20gb", 4),
    ("1g.23gb", 7),
    ("1g.23gb.me", 1),
    ("1g.24gb.me", 1),
    ("2g.20gb", 3),
    ("3g.40gb", 2),
    ("4g.40gb", 1),
    ("7g.80gb", 1),
    ("1g.6gb", 4),
    ("1g.6gb.me", 1),
    ("2g.12gb", 2),
    ("2g.12gb.me", 1),
    ("4g.24gb", 1),
    ("1g.12gb", 7),
    ("1g.12gb.me", 1),
    ("1g.24gb", 4),
    ("1g.45gb", 4),
    ("1g.47gb", 4),
    ("2g.24gb", 3),
    ("2g.45gb", 3),
    ("2g.47gb", 3),
    ("3g.47gb", 2),
    ("4g.47gb", 1),
    ("7g.94gb", 1),
    ("3g.48gb", 2),
    ("3g.90gb", 2),
    ("3g.93gb", 2),
    ("3g.95gb", 2),
    ("4g.48gb", 1),
    ("4g.90gb", 1),
    ("4g.93gb", 1),
    ("4g.95gb", 1),
    ("7g.96gb", 1),
    ("7g.180gb", 1),
    ("7g.186gb", 1),
    ("7g.189gb", 1),
    ("1g.18gb", 7),
    ("1g.18gb.me", 1),
    ("2g.35gb", 3),
    ("3g.71gb", 2),
    ("4g.71gb", 1),
    ("7g.141gb", 1),
    ("1g.36gb", 4),
    ("2g.36gb", 3),
    ("3g.72gb", 2),
    ("4g.72gb", 1),
    ("7g.144gb", 1),
    ("1g.34gb", 7),
    ("1g.34gb.me", 1),
    ("1g.67gb", 4),
    ("2g.67gb", 3),
    ("3g.135gb", 2),
    ("4g.135gb", 1),
    ("7g.269gb", 1),
    ("1g.35gb.me", 1),
    ("1g.70gb", 4),
    ("2g.70gb", 3),
    ("3g.139gb", 2),
    ("4g.139gb", 1),
    ("7g.278gb", 1),
)

# The same profile fits a different number of times on these: name, then device ids and count.
UNIFORM_BY_DEVICE: Tuple[Tuple[str, Tuple[Tuple[str, int], ...]], ...] = (
    ("1g.10gb", (("2330 2331 2322 20B2 20B5 20F3 20F5 2324", 7), ("20B0 20B1 20F1 20F6", 4))),
    ("1g.35gb", (("2335", 4), ("31C2", 7))),
)

# A mix of sizes, by device ids.
BALANCED: Tuple[Tuple[str, Layout], ...] = (
    (
        "20B0 20B1 20F1 20F6",
        {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
    ),
    (
        "2330 2331 2322 20B2 20B5 20F3 20F5 2324",
        {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
    ),
    (
        "20B7",
        {"1g.6gb": 2, "2g.12gb": 1},
    ),
    (
        "2BB5",
        {"1g.24gb": 2, "2g.48gb": 1},
    ),
    (
        "2321 233A",
        {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1},
    ),
    (
        "2342 233D 20B6 2329",
        {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},
    ),
    (
        "2335 233B",
        {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1},
    ),
    (
        "2348",
        {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1},
    ),
    (
        "2901",
        {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},
    ),
    (
        "2941",
        {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1},
    ),
    (
        "3182",
        {"1g.34gb": 2, "2g.67gb": 1, "3g.135gb": 1},
    ),
    (
        "31C2",
        {"1g.35gb": 2, "2g.70gb": 1, "3g.139gb": 1},
    ),
)

_SERVICES = (
    "nvsm",
    "nvsm-mqtt",
    "nvsm-core",
    "nvsm-api-gateway",
    "nvsm-notifier",
    "nv_peer_mem",
    "nvidia-dcgm",
    "dcgm",
    "dcgm-exporter",
)

GPU_CLIENTS = "version: v1\nsystemd-services:\n" + "".join(f"  - {name}.service\n" for name in _SERVICES)


def profile(name: str) -> str:
    """The profile that a layout's name means: ``1g.10gb.me`` is ``1g.10gb+me``."""
    for attribute in ("gfx", "me"):
        name = name.replace(f".{attribute}", f"+{attribute}")
    return name


def layouts() -> Dict[str, List[Dict[str, object]]]:
    """All named layouts, as mig-parted's v1 spells them."""
    made: Dict[str, List[Dict[str, object]]] = {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "all-enabled": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
    }
    for name, count in UNIFORM:
        made[f"all-{name}"] = [_entry({profile(name): count})]
    for name, by_device in UNIFORM_BY_DEVICE:
        made[f"all-{name}"] = [_entry({profile(name): count}, ids.split()) for ids, count in by_device]
    made["all-balanced"] = [_entry(layout, ids.split()) for ids, layout in BALANCED]
    return made


def _entry(layout: Mapping[str, int], devices: Sequence[str] = ()) -> Dict[str, object]:
    entry: Dict[str, object] = {"device-filter": [f"0x{device}10DE" for device in devices]} if devices else {}
    entry.update({"devices": "all", "mig-enabled": True, "mig-devices": dict(layout)})
    return entry


def mig_parted_config() -> str:
    """The layouts as YAML text. Values are written as JSON, which YAML reads: no YAML library is needed."""
    lines = ["version: v1", "mig-configs:"]
    for name, entries in layouts().items():
        lines.append(f"  {name}:")
        for entry in entries:
            items = [f"{key}: {json.dumps(value)}" for key, value in entry.items()]
            lines.append(f"    - {items[0]}")
            lines += [f"      {item}" for item in items[1:]]
    return "\n".join(lines) + "\n"
