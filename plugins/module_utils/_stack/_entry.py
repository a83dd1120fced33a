# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from an Ansible module to a run and back: parameters in, one result shape out, on success and on failure."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Protocol

from .._kube._connection import KubeError, MissingPackage
from .._plan import WARNING, Action, Failure, Result, redacted


class Module(Protocol):
    """What is used of AnsibleModule."""

    params: Dict[str, Any]
    check_mode: bool
    _diff: bool

    def warn(self, warning: str) -> None: ...

    def exit_json(self, **result: Any) -> NoReturn: ...

    def fail_json(self, msg: str, **result: Any) -> NoReturn: ...


Progress = Callable[[str], None]
Run = Callable[[Mapping[str, Any], bool, Progress], Result]


def run_module(module: Module, run: Run) -> None:
    """Carry out ``run(params, check_mode, progress)`` and leave by ``exit_json`` or ``fail_json``."""
    try:
        result = run(module.params, module.check_mode, progress_to(module.params.get("progress_file")))
    except Failure as failure:
        _warn(module, failure.result)
        module.fail_json(**failure.as_dict(), **_diff(module, failure.result.plan))
    except MissingPackage as error:
        missing = Failure(f"{error}. Install it for the interpreter that runs this module.")
        module.fail_json(**missing.as_dict(), exception=error.traceback)
    except KubeError as error:
        module.fail_json(**Failure(f"{error}.").as_dict())
    _warn(module, result)
    module.exit_json(**result.as_dict(), **_diff(module, result.plan))


def progress_to(path: Optional[str]) -> Progress:
    """A function that appends a line to the file which the action plugin follows; it does nothing without one."""
    if not path:
        return lambda line: None
    # The file is the action plugin's: never made here, and never through a link.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0))

    def show(line: str) -> None:
        os.write(descriptor, (" ".join(line.splitlines()) + "\n").encode("utf-8", "replace"))

    return show


def _warn(module: Module, result: Result) -> None:
    for finding in result.findings if not result.shown else ():
        if finding.severity == WARNING:
            module.warn(finding.sentence())


def _diff(module: Module, plan: List[Action]) -> Dict[str, Any]:
    if not module._diff:
        return {}
    return {
        "diff": [
            {
                "before_header": action.target,
                "after_header": f"{action.target} ({action.reason})",
                "before": _text(action.before),
                "after": _text(action.after),
            }
            for action in plan
        ]
    }


def _text(value: Any) -> str:
    return "" if value is None else json.dumps(redacted(value), indent=2, sort_keys=True) + "\n"
