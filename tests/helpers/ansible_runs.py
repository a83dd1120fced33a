# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible as people start it: one module on the test hosts, or a playbook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.nvidia.tests.helpers.documents import CHECKOUT
from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Hosts
from ansible_collections.gpufleet.nvidia.tests.testbed.practice import COLLECTIONS


def module(hosts: Hosts, name: str, *more: str, timeout: int = 120, **options: Any) -> dict[str, Any]:
    """The answer of a module on a host, with ``failed``; ``more``: options of ``ansible``. All of it is documented."""
    command = [Path(sys.executable).with_name("ansible"), "-i", hosts.inventory(), "gpu_hosts", *more]
    command += ["-m", f"gpufleet.nvidia.{name}", "-a", json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    answer: dict[str, Any] = json.loads(done.stdout.partition("=>")[2])
    answer["failed"] = done.returncode != 0
    assert undocumented(name, answer) == []
    return answer


def playbook(inventory: Path, book: str | Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A run of a playbook of the checkout, which reached its end."""
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", inventory, book, *options],
        cwd=CHECKOUT,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "PLAY RECAP" in done.stdout, done.stdout + done.stderr
    return done
