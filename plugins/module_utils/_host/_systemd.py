# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units of systemd, by systemctl."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import List, Sequence

from .._plan import Failure
from ._commands import CommandFailed, Runner

_UNIT = re.compile(r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]*\.(service|socket|target|timer|path|mount)\Z")
_SHOWN = ("LoadState", "ActiveState", "SubState", "UnitFileState", "NeedDaemonReload")


@dataclass(frozen=True)
class UnitState:
    """What systemd says of a unit: ``loaded`` or ``not-found``, ``active`` or ``failed``, ``enabled`` or ``static``."""

    name: str
    load: str
    active: str
    sub: str
    file: str
    needs_reload: bool

    @property
    def exists(self) -> bool:
        return self.load not in ("not-found", "")

    @property
    def running(self) -> bool:
        """Whether it runs or is about to; a oneshot unit that remains after exit runs too."""
        return self.active in ("active", "reloading", "activating")

    @property
    def enabled(self) -> bool:
        """Whether it starts at boot by its own file's wish."""
        return self.file in ("enabled", "enabled-runtime", "alias")


def wrong_name(unit: str) -> str:
    """Why this cannot be a unit, as a sentence; "" where it can."""
    return "" if _UNIT.match(unit) else f"{unit!r} is no name of a unit; names look like nvidia-persistenced.service."


class Units:
    """Reads and changes units. Each change looks first, and says whether there was anything to do."""

    def __init__(self, runner: Runner, timeout: float = 120.0) -> None:
        self._runner = runner
        self._timeout = timeout

    @staticmethod
    def available() -> bool:
        """Whether systemd runs this host (it does not run a plain container)."""
        return os.path.isdir("/run/systemd/system")

    def state(self, unit: str) -> UnitState:
        """One unit's state. Raises ``Failure`` for a name that is none."""
        return self.states([unit])[0]

    def states(self, units: Sequence[str]) -> List[UnitState]:
        """States of units, in their order, by one call."""
        for wrong in filter(None, map(wrong_name, units)):
            raise Failure(wrong)
        if not units:
            return []
        argv = ["systemctl", "show", f"--property={','.join(_SHOWN)}", "--", *units]
        blocks = self._runner.run(argv, timeout=30).out.strip().split("\n\n")
        if len(blocks) != len(units):
            raise Failure(f"systemctl told of {len(blocks)} units, and not of the {len(units)} it was asked for.")
        return [_state(unit, block) for unit, block in zip(units, blocks)]

    def start(self, unit: str, wait: bool = True) -> bool:
        """Start a unit and wait until systemd says it is up; without ``wait`` the start is only asked for."""
        return not self.state(unit).running and self._job("start", unit, *(() if wait else ("--no-block",)))

    def stop(self, unit: str) -> bool:
        """Stop a unit and wait for its end."""
        return self.state(unit).active not in ("inactive", "failed") and self._job("stop", unit)

    def restart(self, unit: str) -> bool:
        """Restart a unit, or start it."""
        return self._job("restart", unit)

    def enable(self, unit: str) -> bool:
        """Have a unit started at boot; it is not started now."""
        return not self.state(unit).enabled and self._job("enable", unit)

    def disable(self, unit: str) -> bool:
        """Have a unit not started at boot; it is not stopped now."""
        return self.state(unit).enabled and self._job("disable", unit)

    def mask(self, units: Sequence[str]) -> None:
        """Have nobody start units, until they are unmasked or the host is booted anew."""
        if units:
            self._runner.run(["systemctl", "mask", "--runtime", "--", *units], timeout=self._timeout)

    def unmask(self, units: Sequence[str]) -> None:
        """Take back what ``mask`` did."""
        if units:
            self._runner.run(["systemctl", "unmask", "--runtime", "--", *units], timeout=self._timeout)

    def reload(self) -> None:
        """Have systemd read changed unit files."""
        self._runner.run(["systemctl", "daemon-reload"], timeout=self._timeout)

    def _job(self, verb: str, unit: str, *options: str) -> bool:
        try:
            self._runner.run(["systemctl", verb, *options, "--", unit], timeout=self._timeout)
        except CommandFailed as failure:
            raise Failure(f"{unit} did not {verb}: {self.last_words(unit) or failure.how.words()}") from None
        return True

    def last_words(self, unit: str) -> str:
        """The unit's own last line of the journal, which tells more than systemctl."""
        about = f"_SYSTEMD_UNIT={unit}"
        argv = ["journalctl", "--lines=1", "--output=cat", "--quiet", "--no-pager", about]
        told = self._runner.run(argv, check=False, timeout=10)
        return told.words() if told.rc == 0 and told.out.strip() else ""


def _state(unit: str, block: str) -> UnitState:
    said = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    load, active, sub, file, reload = (said.get(key, "") for key in _SHOWN)
    return UnitState(unit, load, active, sub, file, reload == "yes")
