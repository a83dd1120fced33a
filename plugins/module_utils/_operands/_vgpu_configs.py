# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The set of vGPUs that nodes have by default, by the PCI device id of a GPU (SBX-02).

NVIDIA's own ConfigMap has 711 sets more, one for each vGPU type: who wants another set writes a ConfigMap of their own.
Format: version v1 of the vGPU device manager. The vendor's 10DE follows the device id in a filter.
"""

from __future__ import annotations

import json
from typing import Tuple

# Device ids, vGPU type, how many on each GPU. Two pairs of boards share an id, which has both types then.
DEFAULT: Tuple[Tuple[str, str, int], ...] = (
    ("1DB1", "V100X-8Q", 2),
    ("1DB3", "V100L-8Q", 2),
    ("1DB4", "V100-8Q", 2),
    ("1DB5", "V100DX-16Q", 2),
    ("1DB6", "V100D-16Q", 2),
    ("1DF6", "V100S-16Q", 2),
    ("1E78", "RTX8000P-24Q", 2),
    ("1E78", "RTX6000P-12Q", 2),
    ("1EB8", "T4-8Q", 2),
    ("20B0", "A100X-20C", 2),
    ("20B2", "A100DX-40C", 2),
    ("20B5 20B8", "A100D-40C", 2),
    ("20B7 20B9", "A30-12C", 2),
    ("20F1", "A100-20C", 2),
    ("20F3", "A800DX-40C", 2),
    ("20F5 20FD", "A800D-40C", 2),
    ("20F6", "A800-20C", 2),
    ("2230", "RTXA6000-24Q", 2),
    ("2231", "RTXA5000-12Q", 2),
    ("2233", "RTXA5500-12Q", 2),
    ("2235", "A40-24Q", 2),
    ("2236", "A10-12Q", 2),
    ("2321", "H100L-47C", 2),
    ("2322", "H800-40C", 2),
    ("2324", "H800XM-40C", 2),
    ("2329", "H20-48C", 2),
    ("232C", "H20X-70C", 2),
    ("2330 2336", "H100XM-40C", 2),
    ("2331", "H100-40C", 2),
    ("2335", "H200X-70C", 2),
    ("2337", "H100XS-32C", 2),
    ("2339", "H100XL-47C", 2),
    ("233A", "H800L-47C", 2),
    ("233B", "H200-70C", 2),
    ("2342", "GH200-96C", 1),
    ("2348", "GH200L-144C", 1),
    ("25B6", "A16-8Q", 2),
    ("25B6", "A2-8Q", 2),
    ("26B1", "RTX6000-Ada-24Q", 2),
    ("26B2", "RTX5000-Ada-16Q", 2),
    ("26B3", "RTX5880-Ada-24Q", 2),
    ("26B5", "L40-24Q", 2),
    ("26B9", "L40S-24Q", 2),
    ("26BA", "L20-24Q", 2),
    ("27B6", "L2-12Q", 2),
    ("27B8", "L4-12Q", 2),
    ("2901", "B200X-180C", 1),
    ("2941", "GB200-189C", 1),
    ("2BB5", "DC-48Q", 2),
    ("2BB9", "6000D-84Q", 1),
    ("2C3A", "DC-16Q", 2),
    ("3182", "B300X-269C", 1),
)


def vgpu_config() -> str:
    """The sets as YAML text. Values are written as JSON, which YAML reads."""
    lines = ["version: v1", "vgpu-configs:", "  default:"]
    for ids, kind, count in DEFAULT:
        for device in ids.split():
            lines.append(f'    - device-filter: "0x{device}10DE"')
            lines.append("      devices: all")
            lines.append(f"      vgpu-devices: {json.dumps({kind: count})}")
    return "\n".join(lines) + "\n"
