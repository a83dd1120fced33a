# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words of the option ``accept`` of modules on hosts: each names findings that do not stop a run then. Pure."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from .._plan import ERROR, Finding

#: Module -> its words: those of its own findings, and of the version matrix for its part.
ACCEPTABLE: Dict[str, Tuple[str, ...]] = {
    "container_toolkit": ("held", "insecure_version", "restart_stops_containers", "unsigned_repository"),
    "cuda_toolkit": ("cuda_unknown", "held"),
    "dcgm_exporter": ("dcgm_too_old", "dcgm_unknown", "held", "metric_absent", "unknown_field"),
    "nvidia_driver": (
        *("branch_unknown", "compiler", "driver_of_image", "driver_older_than_kernel", "end_of_life", "fabric_missing"),
        *("foreign_origin", "gpus_in_use", "held", "left_behind", "no_bar", "no_fabric", "no_gpu", "no_headers"),
        *("no_peermem", "no_space", "not_ours", "passed_through", "runfile", "secure_boot", "unknown_gpu"),
        *("unsigned_repository", "vendor_image"),
    ),
}


def unknown(module: str, accept: Sequence[str], path: str = "accept") -> List[Finding]:
    """Words that accept nothing: a slip there would let somebody believe that it does. ``path``: that of the option."""
    allowed = ACCEPTABLE[module]
    return [
        Finding(
            "no_finding", ERROR, f"{name!r} is no finding that can be accepted; allowed are {', '.join(allowed)}",
            path=f"{path}[{number}]",
        )
        for number, name in enumerate(accept) if name not in allowed
    ]  # fmt: skip
