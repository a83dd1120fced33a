# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container runtimes of the GPU nodes: those that the toolkit can be set up for."""

from __future__ import annotations

from typing import Dict, List

from .._matrix import CONTAINERD_FOR_CDI, version_parts
from .._operands._toolkit import RUNTIMES
from .._plan import ERROR, WARNING, Finding
from ._world import World, some


def judge(world: World) -> List[Finding]:
    unknown: Dict[str, List[str]] = {}
    old: Dict[str, List[str]] = {}
    for node in world.gpu_nodes:
        said = str(node["status"]["nodeInfo"].get("containerRuntimeVersion", ""))
        name, _colon, version = said.partition("://")
        if name.replace("cri-o", "crio") not in RUNTIMES:
            unknown.setdefault(said or "no runtime", []).append(node["metadata"]["name"])
        elif name == "containerd" and version_parts(version)[:3] < version_parts(CONTAINERD_FOR_CDI):
            old.setdefault(version, []).append(node["metadata"]["name"])
    found = []
    for said, nodes in sorted(unknown.items()):
        detail = f"{some(nodes)} say that their container runtime is {said}; known are {', '.join(sorted(RUNTIMES))}"
        remedy = "Set toolkit.enabled: false and set the runtime up yourself, or use a known one."
        severity = ERROR if world.policy.toolkit.enabled else WARNING
        found.append(Finding("runtime-unknown", severity, detail, "container runtime", remedy=remedy))
    if world.policy.cdi_enabled:
        for version, nodes in sorted(old.items()):
            detail = f"{some(nodes)} have containerd {version}, which cannot read the CDI files that the toolkit writes"
            remedy = f"Upgrade containerd to {CONTAINERD_FOR_CDI}, or set cdi.enabled: false."
            found.append(Finding("runtime-old", WARNING, detail, "container runtime", remedy=remedy))
    return found
