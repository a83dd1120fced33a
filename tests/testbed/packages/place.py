# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A signed apt repository with the toolkit's packages on hosts, below /srv/toolkit."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host
from ansible_collections.gpufleet.nvidia.tests.testbed.packages import repository, toolkit
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import ensure

PLACE = "/srv/toolkit"


def give(hosts: Iterable[Host]) -> None:
    """Put it there, with its key in ``key.asc``."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        key = repository.Key(folder)
        (folder / "key.asc").write_text(key.text)
        packages = toolkit.packages({name: ensure(name) for name in ("nvidia-ctk", "nvidia-cdi-hook")})
        repository.apt(packages, folder / "stable/deb/amd64", key)
        key.close()
        packed = subprocess.run(["tar", "-C", folder, "-c", "stable", "key.asc"], capture_output=True, check=True)
    for host in hosts:
        host.run(f"mkdir -p {PLACE} && tar -C {PLACE} --no-same-owner -x", stdin=packed.stdout)
