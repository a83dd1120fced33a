# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a figure was taken on, in plain words."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path


def stated(load: float, meminfo: str | None = None) -> dict[str, str]:
    """Keys of a row: the machine with the load that others made when the measurement began, and the day."""
    text = Path("/proc/meminfo").read_text() if meminfo is None else meminfo
    found = re.search(r"MemTotal:\s+(\d+) kB", text)
    memory = f", {int(found.group(1)) / 2**20:.0f} GiB of memory" if found else ""
    cores = len(os.sched_getaffinity(0))
    plural = "core" if cores == 1 else "cores"
    return {
        "machine": f"a machine with {cores} {plural}{memory}, {occupied(load, cores)} (load {load:.1f})",
        "taken": datetime.now(UTC).date().isoformat(),
    }


def occupied(load: float, cores: int) -> str:
    """Whether others used the machine: the figures of a busy one say little."""
    if load <= 0.25 * cores:
        return "idle"
    return "busy with other work" if load > 0.75 * cores else "lightly used by others"


def load() -> float:
    """Mean number of processes that wanted to run in the last minute."""
    return os.getloadavg()[0]
