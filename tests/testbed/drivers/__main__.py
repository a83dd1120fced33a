# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives test hosts two H100 in sysfs, and a signed apt repository of drivers below /srv/drivers; for molecule.

python -m ansible_collections.gpufleet.nvidia.tests.testbed.drivers --folder build/hosts 580.95.05 595.91.07
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.drivers import parts, place
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Hosts


def main() -> int:
    parser = argparse.ArgumentParser(prog="drivers", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/hosts"), help="of the hosts (%(default)s)")
    parser.add_argument("versions", nargs="*", default=parts.VERSIONS, help="of the driver; all that are known")
    options = parser.parse_args()
    place.give(Hosts(options.folder, lasting=True).find().hosts.values(), options.versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
