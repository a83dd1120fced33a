# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podman with a storage of its own in the cache, and the packages of this machine that it needs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.programs import cache_dir, locked, say

Report = Callable[[str], None]

#: What must be there, and Debian's (and Ubuntu's) package that brings it.
NEEDS = {
    "podman": "podman",
    "runc": "runc",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "iptables": "iptables",
    "debootstrap": "debootstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "ssh": "openssh-client",
}


#: Of every container: those of a server, since a machine's own may be lower than what sshd or containerd ask for, and
#: those that podman would ask for may be more than the machine grants.
LIMITS = ("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=4096:4096")


class HostError(Exception):
    """A host cannot be made, or does not do what was asked; the message says which, and why."""


def missing() -> list[str]:
    """Packages that this machine lacks."""
    os.environ["PATH"] += os.pathsep + "/usr/sbin:/sbin"
    return [package for what, package in NEEDS.items() if not (Path(what).exists() or shutil.which(what))]


def prepare(report: Report = say) -> None:
    """Install what this machine lacks. Raises ``HostError`` where that is not possible."""
    if os.geteuid():
        raise HostError("Test hosts need root, since systemd runs in privileged containers. Run this as root.")
    with locked(cache_dir() / "hosts" / "prepare.lock", lambda: report("Hosts: another run prepares this machine")):
        packages = missing()
        if not packages:
            return
        if not shutil.which("apt-get"):
            raise HostError(f"Test hosts need {', '.join(packages)} (names of Debian's packages). Install them.")
        report(f"Hosts: installing {', '.join(packages)} on this machine, once")
        variables = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            done = subprocess.run(
                ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *command],
                env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                raise HostError(f"apt-get {' '.join(command)} failed: {done.stderr.strip()[-1000:]}")


def podman(
    *arguments: str | Path, check: bool = True, stdin: bytes | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[bytes]:
    """Run podman on our storage, apart from all else that podman keeps on this machine."""
    store = cache_dir() / "hosts" / "storage"
    command = ["podman", "--root", store, "--runroot", Path("/run/gpufleet-hosts") / _name(store), *arguments]
    given = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=timeout, **given)  # type: ignore[call-overload]
    except subprocess.TimeoutExpired:
        raise HostError(f"podman {_short(arguments)} did not end within {timeout:g} s") from None
    if check and done.returncode:
        raise HostError(f"podman {_short(arguments)}: {done.stderr.decode(errors='replace').strip()[-1500:]}")
    ended: subprocess.CompletedProcess[bytes] = done
    return ended


def bridge() -> str:
    """This machine's address on podman's bridge, by which hosts reach it. It is there while any host runs."""
    networks = json.loads(podman("network", "inspect", "podman").stdout)
    gateway: str = networks[0]["subnets"][0]["gateway"]
    return gateway


def _name(store: Path) -> str:
    """A folder for the run-time files of this storage, one for each cache; podman wants its path short."""
    return hashlib.sha256(str(store).encode()).hexdigest()[:12]


def _short(arguments: Sequence[str | Path]) -> str:
    words = " ".join(str(word) for word in arguments)
    return words if len(words) < 300 else words[:300] + "..."
