# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from an Ansible module to a run and back: parameters in, one result shape out, on success and on failure."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping

from .._kube._connection import KubeError, MissingPackage
from .._module import Module, Progress, progress_to, warn
from .._plan import Action, Failure, Result, redacted

Run = Callable[[Mapping[str, Any], bool, Progress], Result]


def run_module(module: Module, run: Run) -> None:
    """Carry out ``run(params, check_mode, progress)`` and leave by ``exit_json`` or ``fail_json``."""
    try:
        result = run(module.params, module.check_mode, progress_to(module.params.get("progress_file")))
    except Failure as failure:
        warn(module, failure.result)
        module.fail_json(**failure.as_dict(), **_diff(module, failure.result.plan))
    except MissingPackage as error:
        missing = Failure(f"{error}. Install it for the interpreter that runs this module.")
        module.fail_json(**missing.as_dict(), exception=error.traceback)
    except KubeError as error:
        module.fail_json(**Failure(f"{error}.").as_dict())
    warn(module, result)
    module.exit_json(**result.as_dict(), **_diff(module, result.plan))


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
