# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operating systems and kernels of the GPU nodes, and the driver images that they need (S08, S30)."""

from __future__ import annotations

from typing import Dict, List

from .._operands._driver import groups
from .._operands._images import for_os, precompiled
from .._plan import INFO, WARNING, Finding
from ._world import World, some

# For others NVIDIA publishes no precompiled images: they are built by the site.
PRECOMPILED_FOR = ("ubuntu22.04", "ubuntu24.04")


def judge(world: World) -> List[Finding]:
    driver = world.policy.driver
    if not driver.enabled or driver.use_nvidia_driver_crd or not world.gpu_nodes:
        return []
    return _precompiled(world) if driver.use_precompiled else _systems(world)


def _systems(world: World) -> List[Finding]:
    made = groups(world.policy, world.facts)
    if len(made) < 2:
        return []
    count: Dict[str, int] = {}
    for node in world.facts.nodes:
        count[node.os_tag] = count.get(node.os_tag, 0) + 1
    names = ", ".join(f"{group.os_tag} ({count[group.os_tag]})" for group in made)
    images = ", ".join(for_os(world.policy.driver.image, group.os_tag) for group in made)
    detail = f"GPU nodes have {len(made)} operating systems: {names}. Each gets its own driver image: {images}"
    return [Finding("several-systems", INFO, detail, "driver")]


def _precompiled(world: World) -> List[Finding]:
    found = []
    for group in groups(world.policy, world.facts):
        nodes = [n.name for n in world.facts.nodes if n.kernel == group.kernel and n.os_tag == group.os_tag]
        image = precompiled(world.policy.driver.image, group.kernel, group.os_tag)
        if group.os_tag in PRECOMPILED_FOR:
            detail = f"kernel {group.kernel} ({some(nodes)}) needs the image {image}"
            found.append(Finding("precompiled-image", INFO, detail, "driver", "driver.usePrecompiled"))
            continue
        detail = f"{some(nodes)} run {group.os_tag}, for which no precompiled images are published; needed is {image}"
        remedy = "Build it and name your registry in driver.repository, or set driver.usePrecompiled: false."
        found.append(Finding("precompiled-unpublished", WARNING, detail, "driver", "driver.usePrecompiled", remedy))
    return found
