# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IMEX: the hosts of one NVLink domain, an address in each line of a file that every one of them has. Pure."""

from __future__ import annotations

import ipaddress
from typing import Dict, List, Sequence

from .._host._files import Files
from .._plan import ERROR, WARNING, Finding

UNIT = "nvidia-imex.service"
NODES = "/etc/nvidia-imex/nodes_config.cfg"


def judge(nodes: Sequence[str]) -> List[Finding]:
    """What is wrong with the addresses."""
    found = []
    for number, node in enumerate(nodes):
        path = f"imex_nodes[{number}]"
        try:
            ipaddress.ip_address(node)
        except ValueError:
            detail = f"{node!r} is no address; allowed are those of IPv4 and IPv6, such as 192.0.2.7"
            found.append(Finding("imex_node", ERROR, detail, path=path))
        if node in nodes[:number]:
            found.append(
                Finding("imex_node", ERROR, f"{node} is there twice", path=path, remedy="Leave one of them out")
            )
    return found


def look(nodes: Sequence[str], wanted: bool, files: Files) -> List[Finding]:
    """Nodes without IMEX, and IMEX without nodes. ``wanted``: whether IMEX is among the companions."""
    if nodes and not wanted:
        detail = "addresses are given, and imex is not among the companions of this host"
        return [
            Finding("imex_nodes", ERROR, detail, path="imex_nodes", remedy="Add imex to companions, or leave them out")
        ]
    if wanted and not nodes and not (files.text(NODES) or "").split():
        detail = f"{NODES} names no host, and IMEX does not start without"
        return [
            Finding("imex_nodes", WARNING, detail, path="imex_nodes", remedy="Give the addresses of the domain's hosts")
        ]
    return []


def wanted_files(nodes: Sequence[str]) -> Dict[str, str]:
    """The file with its text; none where nobody says which hosts there are."""
    return {NODES: "".join(f"{node}\n" for node in nodes)} if nodes else {}
