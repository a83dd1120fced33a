# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which driver DaemonSets a cluster needs: one for each operating system of its GPU nodes, or for each kernel.

The first keeps the plain name; a name never moves from one operating system to another while both have nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Sequence

from ._types import ClusterFacts, NodeFacts

NAME = "nvidia-driver-daemonset"
FEATURE = "feature.node.kubernetes.io/"
KERNEL = FEATURE + "kernel-version.full"
OS_ID = FEATURE + "system-os_release.ID"
OS_VERSION = FEATURE + "system-os_release.VERSION_ID"
OS_MAJOR = OS_VERSION + ".major"
OS_LABEL = "nvidia.com/node.os-version"
MAJOR_ONLY = ("ol", "rocky", "rhel")


@dataclass(frozen=True)
class Group:
    """Nodes that one driver DaemonSet serves. ``kernel`` is "" unless drivers are precompiled."""

    name: str
    os_id: str
    os_tag: str
    kernel: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # tell its pods from those of the other groups
    apart: bool = False  # whether it keeps away from nodes whose group has a driver of its own


def by_os(facts: ClusterFacts) -> List[Group]:
    """One group for each OS tag, the plain name first. Nodes whose OS is not known yet are in none."""
    nodes = _nodes_by_tag(facts)
    names = _names(sorted(nodes), facts)
    made = []
    for tag in sorted(nodes, key=lambda tag: (names[tag] != NAME, tag)):
        plain = names[tag] == NAME
        made.append(
            Group(
                name=names[tag],
                os_id=nodes[tag][0].os_id,
                os_tag=tag,
                node_selector={} if plain and len(nodes) == 1 else _os_selector(nodes[tag]),
                labels={} if plain else {OS_LABEL: tag},
            )
        )
    return made


def by_kernel(facts: ClusterFacts) -> List[Group]:
    """One group for each kernel and OS tag, for drivers that are built for one kernel (DRV-02)."""
    pairs: Dict[str, Dict[str, List[NodeFacts]]] = {}
    for tag, nodes in _nodes_by_tag(facts).items():
        for node in nodes:
            if node.kernel:
                pairs.setdefault(node.kernel, {}).setdefault(tag, []).append(node)
    made = []
    for kernel in sorted(pairs):
        for tag in sorted(pairs[kernel]):
            nodes = pairs[kernel][tag]
            selector = {KERNEL: kernel, **({} if len(pairs[kernel]) == 1 else _os_selector(nodes))}
            made.append(Group(f"{NAME}-{plain_kernel(kernel)}-{tag}", nodes[0].os_id, tag, kernel, selector))
    return made


def plain_kernel(kernel: str) -> str:
    """The kernel's version without the architecture, as part of a name: ``5.14.0-427.el9.4``."""
    without = re.sub(r"(x86_64|aarch64)(_64k)?", "", kernel)
    return re.sub(r"[^a-z0-9.-]", ".", without.lower()).strip(".-")


def _nodes_by_tag(facts: ClusterFacts) -> Dict[str, List[NodeFacts]]:
    found: Dict[str, List[NodeFacts]] = {}
    for node in facts.nodes:
        if node.os_tag:
            found.setdefault(node.os_tag, []).append(node)
    return found


def _names(tags: Sequence[str], facts: ClusterFacts) -> Dict[str, str]:
    """A DaemonSet that exists keeps its OS; the plain name goes to the first OS that has none, where it is free."""
    existing = dict(facts.driver_daemonsets)
    if facts.driver_os:
        existing.setdefault(NAME, facts.driver_os)
    # One of a kernel (drivers were precompiled before) is no name of an operating system. The plain name wins.
    named = [(name, tag) for name, tag in sorted(existing.items(), reverse=True) if name in (NAME, f"{NAME}-{tag}")]
    names = {tag: name for name, tag in named if tag in tags}
    for tag in tags:
        if tag not in names:
            names[tag] = f"{NAME}-{tag}" if NAME in names.values() else NAME
    return names


def _os_selector(nodes: Sequence[NodeFacts]) -> Dict[str, str]:
    """Labels that all nodes of one OS tag have. A tag with the major version alone covers several minor versions."""
    first = nodes[0]
    majors = {node.labels.get(OS_MAJOR, "") for node in nodes}
    if first.os_id in MAJOR_ONLY and len(majors) == 1 and "" not in majors:
        return {OS_ID: first.os_id, OS_MAJOR: majors.pop()}
    return {OS_ID: first.os_id, OS_VERSION: first.os_version}
