# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module streams of dnf: which one of a module is enabled decides which versions of its packages are seen."""

from __future__ import annotations

import re
from typing import Sequence

from ..._plan import Failure
from .._commands import CommandFailed, Runner
from ._shared import READ, REFRESH, told

_WHY = ("Error:", "Problem", "Unable to resolve", "missing groups or modules")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


def enabled(runner: Runner, module: str) -> str:
    """The stream that is enabled; "" without one, or where no repository has the module."""
    done = runner.run(["dnf", "-q", "module", "list", "--enabled", _checked(module)], check=False, timeout=READ)
    found = re.search(rf"(?m)^{re.escape(module)} +(\S+)", done.out)
    return found.group(1) if found and done.rc == 0 else ""


def enable(runner: Runner, module: str, stream: str) -> None:
    """Have this stream enabled instead of another; "" has none enabled. Packages stay as they are."""
    if enabled(runner, module) == stream:
        return
    _change(runner, ["module", "reset", _checked(module)], f"reset the stream of {module}")
    if stream:
        name = f"{_checked(module)}:{_checked(stream)}"
        _change(runner, ["module", "enable", name], f"enable {name}")


def _change(runner: Runner, words: Sequence[str], what: str) -> None:
    done = runner.run(["dnf", "-q", "-y", *words], check=False, timeout=REFRESH)
    if done.rc:
        raise CommandFailed(f"dnf cannot {what}: {told(done, _WHY)}", done)


def _checked(name: str) -> str:
    if not _NAME.match(name):
        raise Failure(f"{name!r} is no name of a module or a stream.")
    return name
