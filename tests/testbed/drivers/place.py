# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A place on Debian hosts that has the drivers' packages, as a mirror without internet has them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.drivers import debs
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.packages import repository

PLACE = "/srv/drivers"
# What a first build leaves behind for good, so that a host compares equal when all is given back.
# Debian 12's dkms makes no key as long as there is no kernel to sign for.
FIRST_BUILD = """dkms generate_mok
[ -e /var/lib/dkms/mok.key ] || openssl req -new -x509 -nodes -days 36500 -subj /CN=testbed -newkey rsa:2048 \\
    -outform DER -out /var/lib/dkms/mok.pub -keyout /var/lib/dkms/mok.key
for kernel in $(ls /lib/modules); do depmod $kernel; done"""


def give(hosts: Iterable[Host], versions: Sequence[str]) -> None:
    """Two H100 in sysfs and signed repositories of these versions of the driver below PLACE, with key.asc."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        key = repository.Key(folder)
        (folder / "key.asc").write_text(key.text)
        for system in ("debian12", "debian13"):
            repository.apt(debs.nvidia_debian(versions), folder / system / "x86_64", key)
        key.close()
        packed = subprocess.run(
            ["tar", "-C", folder, "-c", "debian12", "debian13", "key.asc"], capture_output=True, check=True
        )
    for host in hosts:
        host.run(f"mkdir -p {PLACE} && tar -C {PLACE} --no-same-owner -x", stdin=packed.stdout)
        gpus.install_pci(host, "2330", "2330")
        host.run(FIRST_BUILD, timeout=300)
