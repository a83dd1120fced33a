# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every entry file needs of Ansible: the module as it is used, progress lines, warnings."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, NoReturn, Optional, Protocol

from ._plan import WARNING, Failure, Outcome, Result

Progress = Callable[[str], None]


class Module(Protocol):
    """What is used of AnsibleModule."""

    params: Dict[str, Any]
    check_mode: bool
    _diff: bool

    def warn(self, warning: str) -> None: ...

    def exit_json(self, **result: Any) -> NoReturn: ...

    def fail_json(self, msg: str, **result: Any) -> NoReturn: ...


def progress_to(path: Optional[str]) -> Progress:
    """A function that appends a line to the file which the action plugin follows; it does nothing without one, nor
    where the file belongs to another user (``become_user``)."""
    if not path:
        return lambda line: None
    # The file is the action plugin's: never made here, and never through a link.
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0))
    except PermissionError:
        return lambda line: None

    def show(line: str) -> None:
        os.write(descriptor, (" ".join(line.splitlines()) + "\n").encode("utf-8", "replace"))

    return show


def warn(module: Module, result: Result) -> None:
    """Give the warnings among the findings as Ansible's, unless a person has seen them."""
    for finding in result.findings if not result.shown else ():
        if finding.severity == WARNING:
            module.warn(finding.sentence())


def run_on_host(module: Module, run: Callable[[Progress], Outcome]) -> None:
    """Carry out ``run(progress)``, and leave by ``exit_json`` or ``fail_json``."""
    try:
        outcome = run(progress_to(module.params.get("progress_file")))
    except Failure as failure:
        warn(module, failure.result)
        module.fail_json(**failure.as_dict())
    warn(module, outcome.result)
    module.exit_json(**outcome.as_dict(), **({"diff": outcome.diff} if module._diff else {}))
