# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from the module gpu_info to the readers and back."""

from __future__ import annotations

import os
from typing import Any, Mapping

from .._module import Module
from .._plan import Result
from ._collect import Host, as_dict, collect


def run_module(module: Module) -> None:
    """Read the host and leave by ``exit_json``: what could not be read is a problem in the answer, never a failure.

    Options that mean nothing are refused by ``fail_json``.
    """
    params = module.params
    wrong = _wrong(params)
    if wrong:
        module.fail_json(msg=f"{wrong}. Nothing has been read.")
    host = Host(params["root"], params["pynvml"] or "", float(params["command_timeout"]))
    found, findings = collect(host)
    result = Result(findings=findings, found=as_dict(found)).as_dict()
    module.exit_json(changed=False, found=result["found"], findings=result["findings"])


def _wrong(params: Mapping[str, Any]) -> str:
    root = str(params["root"])
    if not os.path.isabs(root) or not os.path.isdir(root):
        return f"root is {root!r}: the folder where the host's / is, as an absolute path, is allowed"
    if int(params["command_timeout"]) < 1:
        return f"command_timeout is {params['command_timeout']}: seconds from 1 on are allowed"
    return ""
