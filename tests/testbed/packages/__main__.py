# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives test hosts a signed apt repository with the toolkit's packages, below /srv/toolkit; for molecule.

python -m ansible_collections.gpufleet.nvidia.tests.testbed.packages --folder build/hosts
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Hosts
from ansible_collections.gpufleet.nvidia.tests.testbed.packages.place import give


def main() -> int:
    parser = argparse.ArgumentParser(prog="packages", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/hosts"), help="of the hosts (%(default)s)")
    give(Hosts(parser.parse_args().folder, lasting=True).find().hosts.values())
    return 0


if __name__ == "__main__":
    sys.exit(main())
