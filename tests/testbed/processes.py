# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that outlive their starter, known by files: DIR/NAME.pid (pid and start time) and DIR/NAME.log.

A pid alone is not enough to stop a process later: the kernel gives numbers anew. With the start time beside it,
a process that merely has the same number is never touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


def _started(pid: int) -> str:
    """When the process ``pid`` began, in the kernel's ticks; empty when it is gone or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name stands in parentheses and may hold anything; what follows it does not.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _die_with_starter() -> None:
    """Run in the new process: ask the kernel for SIGTERM when the starter ends, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Process:
    """A named process in a folder. Shapes: ``NAME.pid`` holds ``PID START\\n``, ``NAME.log`` its output."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.pid_file = folder / f"{name}.pid"
        self.log = folder / f"{name}.log"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str | Path], env: Mapping[str, str] | None = None, *, tied: bool = False) -> None:
        """Start it in a session of its own, so that a terminal's Ctrl-C does not reach it.

        ``tied``: it ends when the thread that started it does, so that a killed test run leaves nothing behind.
        """
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [str(word) for word in command], cwd=self.log.parent, env=env, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_die_with_starter if tied else None,
            )  # fmt: skip
        self.pid_file.write_text(f"{self._child.pid} {_started(self._child.pid)}\n")

    def pid(self) -> int | None:
        """Its pid while it runs, else None."""
        if self._child is not None:
            self._child.poll()
        try:
            number, started = self.pid_file.read_text().split()
        except (OSError, ValueError):
            return None
        return int(number) if _started(int(number)) == started else None

    def stop(self, patience: float = 3.0) -> None:
        """Ask it to end, then make it; returns when it is gone."""
        deadline = time.monotonic() + patience
        asked = None
        while (pid := self.pid()) is not None:
            wanted = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
            if asked != wanted:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, wanted)
                asked = wanted
            time.sleep(0.02)
        self.pid_file.unlink(missing_ok=True)

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

    def memory(self) -> int:
        """Resident memory in bytes; 0 when it does not run."""
        pid = self.pid()
        if pid is None:
            return 0
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")
