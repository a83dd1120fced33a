# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables for people: columns as wide as their content."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

NODE_COLUMNS: Tuple[Tuple[str, str], ...] = (
    ("NODE", "name"),
    ("PRODUCT", "product"),
    ("GPUS", "gpus"),
    ("DRIVER", "driver"),
    ("MIG", "mig"),
    ("OFFERS", "allocatable"),
    ("STAGE", "stage"),
)
WIDEST = 48


def node_table(nodes: Sequence[Mapping[str, Any]], most: int = 60) -> List[str]:
    """Lines of a table of nodes. Of a long list those that are not ready come first, and the rest is counted."""
    shown = sorted(nodes, key=lambda node: (bool(node["ready"]), str(node["name"])))[:most]
    if len(nodes) <= most:
        shown = list(nodes)
    rows = [[title for title, _key in NODE_COLUMNS]]
    rows += [[_cell(node.get(key), key) for _title, key in NODE_COLUMNS] for node in shown]
    lines = _aligned(rows)
    if len(nodes) > len(shown):
        lines.append(f"... and {len(nodes) - len(shown)} more")
    ready = sum(1 for node in nodes if node["ready"])
    lines.append(f"{ready} of {len(nodes)} GPU nodes ready" if nodes else "no GPU nodes")
    lines += [f"{node['name']}: {node['trouble']}" for node in shown if node.get("trouble") and not node["ready"]]
    return lines


def _cell(value: Any, key: str) -> str:
    if isinstance(value, Mapping):
        offers: Dict[str, Any] = dict(value)
        text = ", ".join(f"{offers[name]} {name.split('/', 1)[-1]}" for name in sorted(offers))
    elif key == "gpus" and isinstance(value, int) and value < 0:
        text = ""
    else:
        text = str(value if value is not None else "")
    text = text or "-"
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."


def _aligned(rows: Sequence[Sequence[str]]) -> List[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
