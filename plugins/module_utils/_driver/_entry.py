# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from the module nvidia_driver to a run on a host and back."""

from __future__ import annotations

from datetime import date
from typing import Optional

from .._module import Module, run_on_host
from ._run import Tools, nvidia_driver


def run_module(module: Module, tools: Optional[Tools] = None) -> None:
    """Carry out a run, and leave by ``exit_json`` or ``fail_json``."""
    given = tools or Tools(today=date.today().isoformat())
    run_on_host(module, lambda progress: nvidia_driver(module.params, module.check_mode, progress, given))
