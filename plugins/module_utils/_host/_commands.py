# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one place that runs programs on a host."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from typing import IO, Callable, Dict, Mapping, Optional, Sequence

from .._plan import Failure

#: Called with "before" or "after" and a sentence, around everything that may change the host. Tests let it raise, or
#: kill the process, at the n-th call.
Watch = Callable[[str, str], None]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_OUTPUT = 4 * 1024 * 1024


class Done:
    """How a program ended: exit status (negative for a signal), and what it wrote."""

    def __init__(self, argv: Sequence[str], rc: int, out: str, err: str) -> None:
        self.argv = list(argv)
        self.rc = rc
        self.out = out
        self.err = err

    def words(self) -> str:
        """The last line that tells what was wrong."""
        lines = [line.strip() for line in (self.err.strip() or self.out.strip()).splitlines() if line.strip()]
        return lines[-1][:500] if lines else "it said nothing"


class CommandFailed(Failure):
    """A program ended with an error, took too long, or is not there (``how.rc`` 127)."""

    def __init__(self, msg: str, how: Done) -> None:
        super().__init__(msg)
        self.how = how


def unwatched(moment: str, what: str) -> None:
    """The watch of a run that nobody disturbs."""


class Runner:
    """Runs programs without a shell, with a fixed language and search path, and never without a time limit."""

    def __init__(self, watch: Watch = unwatched) -> None:
        self._watch = watch

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        timeout: float = 60.0,
        env: Optional[Mapping[str, str]] = None,
        stdin: str = "",
        whole: bool = False,
        folder: str = "/",
    ) -> Done:
        """Run a program to its end in ``folder``. ``env`` is added to a small environment, or is all of it with
        ``whole``; ``stdin`` is never shown in messages.

        Raises ``CommandFailed`` where the program is not there or takes longer than ``timeout`` seconds (it is killed
        then, with all that it started in its session), and with ``check`` where its exit status is not 0.
        """
        what = " ".join(argv)
        self._watch("before", what)
        done = _run(list(argv), timeout, dict(env or {}) if whole else _environment(env), stdin, folder)
        self._watch("after", what)
        if check and done.rc != 0:
            ended = f"was killed by signal {-done.rc}" if done.rc < 0 else f"failed with status {done.rc}"
            raise CommandFailed(f"`{what}` {ended}: {done.words()}", done)
        return done


def _environment(more: Optional[Mapping[str, str]]) -> Dict[str, str]:
    kept = {name: os.environ[name] for name in ("HOME", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return {"PATH": PATH, "LC_ALL": "C.UTF-8", "LANGUAGE": "C", **kept, **(more or {})}


class _Process(subprocess.Popen):  # type: ignore[type-arg]
    """A program in a session of its own. Not ``run_command``: the boot unit runs without Ansible."""

    def end(self) -> None:
        """Kill it, and all that it started in its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


def _run(argv: Sequence[str], timeout: float, env: Mapping[str, str], stdin: str, folder: str) -> Done:
    # Files instead of pipes: a service that the program leaves running may hold a pipe open for good.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        try:
            process = _Process(
                argv, stdin=given, stdout=out, stderr=err, env=dict(env), cwd=folder, start_new_session=True
            )
        except OSError as error:  # the program's, or the folder's
            raise CommandFailed(
                f"`{error.filename or argv[0]}` cannot be run on this host: {error.strerror}.",
                Done(argv, 127, "", str(error)),
            ) from None
        late = False
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            if process.returncode is None:
                process.end()
        done = Done(argv, process.returncode, _text(out), _text(err))
    if late:
        raise CommandFailed(f"`{' '.join(argv)}` did not end within {timeout:g} s: {done.words()}", done)
    return done


def _text(file: IO[bytes]) -> str:
    """The end of what was written, if it is too much to keep."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MOST_OUTPUT))
    return file.read().decode("utf-8", "replace")
