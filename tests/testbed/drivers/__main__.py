# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives test hosts two H100 in sysfs, and a signed apt repository of drivers below /srv/drivers; for molecule.

python -m ansible_collections.gpufleet.nvidia.tests.testbed.drivers --folder build/hosts 580.95.05 595.91.07
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.drivers import debs, parts
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.packages import repository

PLACE = "/srv/drivers"
# What a first build leaves behind for good, so that a host compares equal when all is given back.
# Debian 12's dkms makes no key as long as there is no kernel to sign for.
FIRST_BUILD = """dkms generate_mok
[ -e /var/lib/dkms/mok.key ] || openssl req -new -x509 -nodes -days 36500 -subj /CN=testbed -newkey rsa:2048 \\
    -outform DER -out /var/lib/dkms/mok.pub -keyout /var/lib/dkms/mok.key
for kernel in $(ls /lib/modules); do depmod $kernel; done"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="drivers", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/hosts"), help="of the hosts (%(default)s)")
    parser.add_argument("versions", nargs="*", default=parts.VERSIONS, help="of the driver; all that are known")
    options = parser.parse_args()
    hosts = Hosts(options.folder, lasting=True).find()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        key = repository.Key(folder)
        (folder / "key.asc").write_text(key.text)
        for system in ("debian12", "debian13"):
            repository.apt(debs.nvidia_debian(options.versions), folder / system / "x86_64", key)
        key.close()
        packed = subprocess.run(
            ["tar", "-C", folder, "-c", "debian12", "debian13", "key.asc"], capture_output=True, check=True
        )
    for host in hosts.hosts.values():
        host.run(f"mkdir -p {PLACE} && tar -C {PLACE} --no-same-owner -x", stdin=packed.stdout)
        gpus.install_pci(host, "2330", "2330")
        host.run(FIRST_BUILD, timeout=300)
    return 0


if __name__ == "__main__":
    sys.exit(main())
