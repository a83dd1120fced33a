# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installed packages of the driver and what stands on it, with what holds them at their version."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Callable, List, Set, Tuple

from ._tree import Tree

DPKG = "/var/lib/dpkg/status"
RPM = ("/usr/lib/sysimage/rpm", "/var/lib/rpm")
_STATUS = 256 * 1024 * 1024
_NAMES = re.compile(
    r"\A(nvidia-.+|libnvidia-.+|libcuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|libnvsdm.*|cuda-drivers.*|kmod-nvidia.*|dkms-nvidia|nvlsm"
    r"|xserver-xorg-video-nvidia.*|linux-(?:modules|objects|signatures)-nvidia.*|datacenter-gpu-manager.*"
    r"|xorg-x11-drv-nvidia.*|akmod-nvidia.*|firmware-nvidia-gsp|gdrcopy.*|gdrdrv-dkms|libgdrapi|xorg-x11-nvidia)\Z"
)
_FORMAT = r"%{NAME} %{VERSION}-%{RELEASE}\n"

# A command with its limit in seconds -> exit code, output. Raises OSError when it cannot be run.
Command = Callable[[List[str], float], Tuple[int, str]]


@dataclass
class Package:
    """Keys are documented in gpu_info's RETURN. ``held``: an update leaves it alone."""

    name: str
    version: str
    manager: str
    held: bool


def read(tree: Tree, command: Command) -> List[Package]:
    """What dpkg and rpm have, by name."""
    tree = tree.of("packages")
    found = _dpkg(tree)
    if not found and any(tree.names(folder) for folder in RPM) and tree.kind(DPKG) != "file":
        found = _rpm(tree, command)
    return sorted(found, key=lambda package: package.name)


def _dpkg(tree: Tree) -> List[Package]:
    found = []
    for paragraph in tree.text(DPKG, _STATUS).split("\n\n"):
        fields = dict(re.findall(r"(?m)^(Package|Status|Version): *(.*)$", paragraph))
        words = fields.get("Status", "").split()
        if _NAMES.match(fields.get("Package", "")) and words[-1:] == ["installed"]:
            found.append(Package(fields["Package"], fields.get("Version", ""), "dpkg", words[0] == "hold"))
    return found


def _rpm(tree: Tree, command: Command) -> List[Package]:
    if not tree.live:
        tree.problems.add(tree.part, RPM[0], "rpm's database is read on the running host only", "Run on the host.")
        return []
    try:
        code, output = command(["rpm", "-qa", "--qf", _FORMAT], 60.0)
    except OSError as error:
        tree.problems.add(tree.part, RPM[0], f"rpm cannot be run: {error.strerror or error}", "Look at rpm.")
        return []
    if code:
        tree.problems.add(tree.part, RPM[0], f"rpm ended with {code}", "Look at rpm -qa.")
    locks = _locks(tree)
    found = []
    for line in output.splitlines():
        name, _space, version = line.partition(" ")
        if _NAMES.match(name):
            found.append(Package(name, version, "rpm", any(_locked(name, version, lock) for lock in locks)))
    return found


def _locks(tree: Tree) -> Set[str]:
    """Entries of dnf's and yum's version lock (both forms), and of zypper's locks."""
    found: Set[str] = set()
    for path in (
        "/etc/dnf/plugins/versionlock.list",
        "/etc/yum/pluginconf.d/versionlock.list",
        "/etc/dnf/versionlock.toml",
        "/etc/zypp/locks",
    ):
        for line in tree.text(path).splitlines():
            line = line.strip()
            named = re.match(r"(?:name|solvable_name)\s*[=:]\s*\"?([^\"\s]+)", line)
            if named:
                found.add(named.group(1))
            elif path.endswith(".list") and line and not line.startswith(("#", "!")):
                found.add(line)
    return found


def _locked(name: str, version: str, lock: str) -> bool:
    """``name``, ``name-version*`` or ``name-0:version-release.*`` as the version locks write them."""
    plain = re.sub(r"-\d+:", "-", lock)
    return (
        fnmatch.fnmatchcase(name, plain)
        or fnmatch.fnmatchcase(f"{name}-{version}", plain)
        or (fnmatch.fnmatchcase(f"{name}-{version}.x86_64", plain))
    )
