# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NFD saw on the machines before any driver ran: nouveau, NVSwitches that need a fabric manager, GPUs of several
models (S30)."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from .._plan import ERROR, WARNING, Finding
from .._stack._facts import by_node, mixed_findings
from ._world import World, some

NODE = "nfd.node.kubernetes.io/node-name"
NVSWITCH = {"class": "0680", "vendor": "10de"}


def facts_of(feature: Mapping[str, Any]) -> Dict[str, bool]:
    """Of one NodeFeature: is nouveau loaded, are there NVSwitches."""
    features = (feature.get("spec") or {}).get("features") or {}
    modules = ((features.get("flags") or {}).get("kernel.loadedmodule") or {}).get("elements") or {}
    devices = ((features.get("instances") or {}).get("pci.device") or {}).get("elements") or []
    attributes = [device.get("attributes") or {} for device in devices]
    switch = any(all(a.get(key) == value for key, value in NVSWITCH.items()) for a in attributes)
    return {"nouveau": "nouveau" in modules, "nvswitch": switch}


def judge(world: World) -> List[Finding]:
    gpu = {node["metadata"]["name"] for node in world.gpu_nodes}
    seen: Dict[str, List[str]] = {"nouveau": [], "nvswitch": []}
    for feature in world.features:
        node = str((feature["metadata"].get("labels") or {}).get(NODE, ""))
        for fact in (name for name, there in feature["facts"].items() if there and node in gpu):
            seen[fact].append(node)
    inside = world.policy.driver.enabled
    told = ((str((f["metadata"].get("labels") or {}).get(NODE, "")), f["gpus"]) for f in world.features)
    found = mixed_findings(world.nodes, by_node(told))
    if seen["nouveau"]:
        who = some(sorted(set(seen["nouveau"])))
        if inside:
            detail, remedy = (
                f"nouveau is loaded on {who}; the driver manager unloads it",
                "Deny it on the hosts for good.",
            )
            found.append(Finding("nouveau-loaded", WARNING, detail, "driver", remedy=remedy))
        else:
            detail = f"nouveau is loaded on {who}, so NVIDIA's driver of the hosts is not"
            remedy = "Deny nouveau on the hosts, rebuild the initramfs and reboot, or set driver.enabled: true."
            found.append(Finding("nouveau-loaded", ERROR, detail, "driver", "driver.enabled", remedy))
    if seen["nvswitch"] and not inside:
        who = some(sorted(set(seen["nvswitch"])))
        detail = f"{who} have NVSwitches, and the drivers are the hosts' own (driver.enabled: false)"
        remedy = (
            "See that nvidia-fabricmanager of the driver's exact version runs there: without it CUDA does not start."
        )
        found.append(Finding("fabric-manager", WARNING, detail, "driver", "driver.enabled", remedy))
    return found
