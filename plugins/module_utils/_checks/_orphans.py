# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NodeFeatures of nodes that are gone, and of one node in two namespaces: they slow NFD or make labels flap (P117)."""

from __future__ import annotations

from typing import Dict, List

from .._kube._resources import ours
from .._plan import WARNING, Finding
from ._machines import NODE
from ._world import World, some


def judge(world: World) -> List[Finding]:
    known = {node["metadata"]["name"] for node in world.nodes}
    gone: Dict[str, List[str]] = {}
    homes: Dict[str, List[str]] = {}
    for feature in world.features:
        meta = feature["metadata"]
        node = str((meta.get("labels") or {}).get(NODE) or meta["name"])
        if node not in known:
            gone.setdefault(meta["namespace"], []).append(meta["name"])
        elif meta["name"] == node:  # the worker's; GPU feature discovery's has a name of its own
            homes.setdefault(node, []).append(meta["namespace"])
    found = []
    for namespace, names in sorted(gone.items()):
        detail = f"{len(names)} NodeFeature{'s are' if len(names) > 1 else ' is'} of nodes that are gone: {some(names)}"
        whose = "" if _is_ours(world, namespace) else ", if its owner agrees"
        remedy = f"Delete with: kubectl -n {namespace} delete nodefeature {' '.join(names[:3])}{whose}."
        found.append(Finding("nodefeature-orphan", WARNING, detail, f"Namespace {namespace}", remedy=remedy))
    twice = sorted(node for node, spaces in homes.items() if len(spaces) > 1)
    if twice:
        where = ", ".join(sorted({space for node in twice for space in homes[node]}))
        detail = f"{some(twice)} have NodeFeatures in several namespaces ({where}): their labels flap"
        remedy = "Keep one NFD, and delete the NodeFeatures that the other one left."
        found.append(Finding("nodefeature-twice", WARNING, detail, "Node Feature Discovery", remedy=remedy))
    return found


def _is_ours(world: World, namespace: str) -> bool:
    return namespace == world.namespace and world.live_namespace is not None and ours(world.live_namespace)
