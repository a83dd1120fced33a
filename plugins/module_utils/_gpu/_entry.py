# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from the module mig_partition to a run and back."""

from __future__ import annotations

import os
from typing import Any, Dict, NoReturn, Optional, Protocol

from .._plan import WARNING, Failure, Result
from ._execute import Progress
from ._partition import Outcome, Tools, mig_partition


class Module(Protocol):
    """What is used of AnsibleModule."""

    params: Dict[str, Any]
    check_mode: bool
    _diff: bool

    def warn(self, warning: str) -> None: ...

    def exit_json(self, **result: Any) -> NoReturn: ...

    def fail_json(self, msg: str, **result: Any) -> NoReturn: ...


def run_module(module: Module, tools: Optional[Tools] = None) -> None:
    """Carry out a run, and leave by ``exit_json`` or ``fail_json``."""
    try:
        outcome = mig_partition(
            module.params, module.check_mode, _progress(module.params.get("progress_file")), tools or Tools()
        )
    except Failure as failure:
        _warn(module, failure.result)
        module.fail_json(**failure.as_dict())
    _warn(module, outcome.result)
    module.exit_json(**outcome.result.as_dict(), **_diff(module, outcome))


def _progress(path: Optional[str]) -> Progress:
    if not path:
        return lambda line: None
    # The file is the action plugin's: never made here, and never through a link.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)

    def show(line: str) -> None:
        os.write(descriptor, (" ".join(line.splitlines()) + "\n").encode("utf-8", "replace"))

    return show


def _warn(module: Module, result: Result) -> None:
    for finding in result.findings:
        if finding.severity == WARNING:
            module.warn(finding.sentence())


def _diff(module: Module, outcome: Outcome) -> Dict[str, Any]:
    return {"diff": outcome.diff} if module._diff and outcome.diff else {}
