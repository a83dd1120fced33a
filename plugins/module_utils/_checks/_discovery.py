# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node Feature Discovery: absent, ours, somebody else's, two of them (S30, P114)."""

from __future__ import annotations

from typing import List

from .._nodes._labels import has_features
from .._operands._nfd_found import detect, judge_config
from .._plan import ERROR, INFO, WARNING, Finding
from ._world import World

LABEL = "app.kubernetes.io/managed-by"


def masters(world: World) -> List[str]:
    """Every NFD that is not ours, by its master."""
    found = [detect([item], []) for item in world.deployments] + [detect([], [item]) for item in world.daemonsets]
    return sorted(name for name in found if name)


def judge(world: World) -> List[Finding]:
    foreign, wanted = masters(world), world.policy.nfd.enabled
    found: List[Finding] = []
    if len(foreign) > 1:
        detail = f"{len(foreign)} of them run ({', '.join(foreign)}) and write each other's labels away"
        found.append(Finding("nfd-twice", ERROR, detail, "Node Feature Discovery", remedy="Keep one."))
    if not foreign and not wanted:
        known = any(has_features(node["metadata"]["labels"]) for node in world.nodes)
        detail = "none runs and nfd.enabled is false: " + (
            "nodes that join get no labels" if known else "no node is known to have a GPU"
        )
        severity = WARNING if known else ERROR
        found.append(
            Finding("nfd-absent", severity, detail, "Node Feature Discovery", "nfd.enabled", "Set it to true.")
        )
    if len(foreign) == 1 and wanted:
        found.append(_beside(world, foreign[0]))
    if foreign:
        for name, data in sorted(world.nfd_configs.items()):
            found += judge_config(data, name)
    return found


def _beside(world: World, foreign: str) -> Finding:
    mine = [item for item in world.deployments if (item["metadata"].get("labels") or {}).get(LABEL) == "gpufleet"]
    if any("nfd-master" in item["metadata"]["name"] for item in mine):
        detail = f"runs beside the one that this collection made in {world.namespace}"
        return Finding("nfd-twice", ERROR, detail, foreign, remedy="Set nfd.enabled: false, or uninstall it.")
    return Finding("nfd-foreign", INFO, "runs already and is used; none of our own is deployed", foreign)
