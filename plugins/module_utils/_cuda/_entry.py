# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from the module cuda_toolkit to a run and back."""

from __future__ import annotations

from typing import Optional

from .._module import Module, warn
from .._plan import Failure
from ._toolkit import Tools, cuda_toolkit


def run_module(module: Module, tools: Optional[Tools] = None) -> None:
    """Carry out a run, and leave by ``exit_json`` or ``fail_json``."""
    try:
        result = cuda_toolkit(module.params, module.check_mode, tools or Tools())
    except Failure as failure:
        warn(module, failure.result)
        module.fail_json(**failure.as_dict())
    warn(module, result)
    module.exit_json(**result.as_dict())
