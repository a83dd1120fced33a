# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The library on a test host, for programs that call it there without Ansible."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host

CHECKOUT = Path(__file__).resolve().parents[2]
MODULE = "ansible_collections.gpufleet.nvidia"
LIBRARY = "/tmp/library"


def library(host: Host, *parts: str) -> None:
    """Put folders of module_utils below ``LIBRARY``; programs have it in ``sys.path``."""
    place = CHECKOUT / "plugins/module_utils"
    files = [*place.glob("*.py"), *(one for part in parts for one in (place / part).glob("*.py"))]
    give(host, *(str(one.relative_to(CHECKOUT)) for one in files))


def give(host: Host, *files: str) -> None:
    """Put files and folders of the checkout below ``LIBRARY``."""
    command = ["tar", "-C", CHECKOUT, "--exclude=__pycache__", "-c", *files]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    root = f"{LIBRARY}/{MODULE.replace('.', '/')}"
    host.run(f"mkdir -p {root} && tar -C {root} -x", stdin=packed)


def like_rpm(host: Host) -> None:
    """rpm's database where zypper looks for it, no key for what lies on the disk, and no repository of dnf's own."""
    host.put("/etc/rpm/macros", "%_dbpath /var/lib/rpm\n")
    host.run("rpm --initdb")
    if host.exists("/etc/dnf"):
        host.put("/etc/dnf/vars/releasever", "9\n")
        host.put("/etc/dnf/plugins/local.conf", "[main]\nenabled = false\n")
