# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from the module container_toolkit to a run on a host and back."""

from __future__ import annotations

from typing import Optional

from .._module import Module, run_on_host
from ._run import Tools, container_toolkit


def run_module(module: Module, tools: Optional[Tools] = None) -> None:
    """Carry out a run, and leave by ``exit_json`` or ``fail_json``."""
    given = tools or Tools()
    run_on_host(module, lambda progress: container_toolkit(module.params, module.check_mode, progress, given))
