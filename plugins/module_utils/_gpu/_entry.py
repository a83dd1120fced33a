# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from the module mig_partition to a run and back."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .._module import Module, progress_to, warn
from .._plan import Failure
from ._partition import Outcome, Tools, mig_partition


def run_module(module: Module, tools: Optional[Tools] = None) -> None:
    """Carry out a run, and leave by ``exit_json`` or ``fail_json``."""
    show = progress_to(module.params.get("progress_file"))
    lines: List[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        show(line)

    try:
        outcome = mig_partition(module.params, module.check_mode, progress, tools or Tools())
    except Failure as failure:
        warn(module, failure.result)
        module.fail_json(**failure.as_dict(), progress=lines)
    warn(module, outcome.result)
    module.exit_json(**outcome.result.as_dict(), progress=lines, **_diff(module, outcome))


def _diff(module: Module, outcome: Outcome) -> Dict[str, Any]:
    return {"diff": outcome.diff} if module._diff and outcome.diff else {}
