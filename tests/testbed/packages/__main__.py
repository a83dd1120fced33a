# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives test hosts a signed apt repository with the toolkit's packages, below /srv/toolkit; for molecule.

python -m ansible_collections.gpufleet.nvidia.tests.testbed.packages --folder build/hosts
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Hosts
from ansible_collections.gpufleet.nvidia.tests.testbed.packages import repository, toolkit
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import ensure

PLACE = "/srv/toolkit"


def main() -> int:
    parser = argparse.ArgumentParser(prog="packages", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/hosts"), help="of the hosts (%(default)s)")
    hosts = Hosts(parser.parse_args().folder, lasting=True).find()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        key = repository.Key(folder)
        (folder / "key.asc").write_text(key.text)
        packages = toolkit.packages({name: ensure(name) for name in ("nvidia-ctk", "nvidia-cdi-hook")})
        repository.apt(packages, folder / "stable/deb/amd64", key)
        key.close()
        packed = subprocess.run(["tar", "-C", folder, "-c", "stable", "key.asc"], capture_output=True, check=True)
    for host in hosts.hosts.values():
        host.run(f"mkdir -p {PLACE} && tar -C {PLACE} --no-same-owner -x", stdin=packed.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
