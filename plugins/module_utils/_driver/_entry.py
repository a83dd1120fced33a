# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from the module nvidia_driver to a run and back."""

from __future__ import annotations

from datetime import date
from typing import Optional

from .._module import Module, progress_to, warn
from .._plan import Failure
from ._run import Tools, nvidia_driver


def run_module(module: Module, tools: Optional[Tools] = None) -> None:
    """Carry out a run, and leave by ``exit_json`` or ``fail_json``."""
    progress = progress_to(module.params.get("progress_file"))
    try:
        outcome = nvidia_driver(
            module.params, module.check_mode, progress, tools or Tools(today=date.today().isoformat())
        )
    except Failure as failure:
        warn(module, failure.result)
        module.fail_json(**failure.as_dict())
    warn(module, outcome.result)
    module.exit_json(**outcome.as_dict(), **({"diff": outcome.diff} if module._diff else {}))
