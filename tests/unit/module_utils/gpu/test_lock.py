# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs never change the GPUs of one host at once: neither two of the module, nor one beside the boot program."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu import _boot as boot
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu import _restore as restore
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

from .double import environment

TWO = [{"profiles": {"1g.5gb": 2}}]
# Another process that is at work, until its standard input ends.
HOLDER = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def other_run(host):
    """A run in another process, which has the lock."""
    Files(Root(str(host.root))).make_folder(restore.STATE, 0o700)
    command = [sys.executable, "-c", HOLDER, str(host.root) + restore.STATE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        try:
            yield process
        finally:
            process.kill()


def impatient(host):
    tools = host.tools()
    tools.lock_wait = 0.2
    return tools


@pytest.mark.parametrize("params", [{"layout": TWO}, {"layout": TWO, "check": True}, {"state": "absent"}])
def test_a_run_beside_another_is_refused_after_its_wait_and_goes_on_when_the_other_was_killed(host, params):
    host.forget()
    with other_run(host):
        with pytest.raises(Failure, match=r"Another run of mig_partition .* Run again when it has ended"):
            host.run(tools=impatient(host), **params)
        assert host.calls() == []
    host.run(tools=impatient(host), **params)


def test_a_run_waits_for_another_to_end(host):
    with other_run(host) as process:
        threading.Timer(0.7, process.kill).start()
        began = time.monotonic()
        host.run(layout=TWO)
        assert time.monotonic() - began > 0.5
    assert host.slices().startswith("[1g][1g]")


def test_reading_waits_for_nobody(host):
    with other_run(host):
        assert host.run(state="exported", tools=impatient(host)).result.found["gpus"]


@pytest.mark.rows("MH-06")
def test_the_boot_program_waits_for_a_run_and_gives_up_with_a_sentence(host, monkeypatch, capsys):
    host.run(layout=TWO, restore_at_boot=True)
    host.tool("reboot", str(host.state))
    program, layout = (str(host.root) + path for path in (restore.PROGRAM, restore.LAYOUT))
    with other_run(host) as process:
        monkeypatch.setattr(boot, "LOCK_WAIT", 0.2)
        host.forget()
        assert boot.main([layout]) == 1
        assert "Another run of mig_partition" in capsys.readouterr().err
        assert host.calls() == []
        threading.Timer(0.7, process.kill).start()
        command = [sys.executable, "-I", "-S", program, layout]
        done = subprocess.run(command, env=environment(host), capture_output=True, text=True, check=False)
        assert process.poll() is not None
    assert done.returncode == 0, done.stderr
    assert host.slices().startswith("[1g][1g]")


def test_the_lock_leaves_nothing_behind(host):
    host.run(layout=TWO)
    host.run(state="absent")
    assert not (host.root / "var/lib/gpufleet").exists()
    host.run(check=True, layout=TWO)
    assert not (host.root / "var/lib/gpufleet").exists()


def test_a_folder_that_others_can_write_to_is_not_trusted(host):
    host.run(layout=TWO, restore_at_boot=True)
    (host.root / restore.STATE[1:]).chmod(0o777)
    with pytest.raises(Failure, match="cannot be trusted"):
        host.run(layout=TWO, restore_at_boot=True)
