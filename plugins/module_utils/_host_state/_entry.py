# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from the module gpu_info to the readers and back."""

from __future__ import annotations

from .._module import Module
from .._plan import Result
from ._collect import Host, as_dict, collect


def run_module(module: Module) -> None:
    """Read the host and leave by ``exit_json``: what could not be read is a problem in the answer, never a failure."""
    params = module.params
    host = Host(params["root"], params["pynvml"] or "", float(params["command_timeout"]))
    found, findings = collect(host)
    result = Result(findings=findings, found=as_dict(found)).as_dict()
    module.exit_json(changed=False, found=result["found"], findings=result["findings"])
