# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is on a host's disk, so that two moments can be compared. ``PROGRAM`` runs on the host, by its own Python."""

from __future__ import annotations

from typing import Any

#: Left out: file systems of the kernel, what a host writes by itself or when somebody logs in, apt's copies of
#: repositories, and the books of dpkg and apt (the one keeps the order in which packages came, the other comes with the
#: first package that is installed for another; which packages are there tests ask dpkg itself).
PROGRAM = rb"""
import hashlib, json, os, stat, sys

LEFT_OUT = {
    "/dev", "/proc", "/run", "/sys", "/tmp", "/var/cache", "/var/log", "/var/tmp", "/etc/mtab", "/etc/hosts",
    "/var/lib/private", "/var/lib/systemd", "/home/admin/.ansible", "/root/.ansible",
    "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/kubelet", "/var/lib/nvml-double",
    "/var/lib/sudo", "/var/lib/apt/lists", "/var/lib/dpkg/status", "/var/lib/dpkg/status-old",
    "/var/lib/apt/extended_states",
}

# Contents that the last snapshot read, by what changes with every write.
KNOWN = "/run/snapshot.json"
try:
    with open(KNOWN) as file:
        known = json.load(file)
except (OSError, ValueError):
    known = {}
read = {}

def content(path, found):
    key = " ".join(str(one) for one in (path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    read[key] = known.get(key) or digest_of(path)
    return read[key]

def digest_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()[:16]

def entry(path):
    found = os.lstat(path)
    kind = stat.S_IFMT(found.st_mode)
    said = os.readlink(path) if kind == stat.S_IFLNK else content(path, found) if kind == stat.S_IFREG else ""
    return [oct(found.st_mode), found.st_uid, found.st_gid, said]

told = {}
for folder, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in LEFT_OUT and name != "__pycache__"]
    for name in folders + files:
        path = os.path.join(folder, name)
        if path not in LEFT_OUT:
            told[os.fsencode(path).decode("utf-8", "backslashreplace")] = entry(path)
with open(KNOWN, "w", errors="backslashreplace") as file:
    json.dump(read, file)
json.dump(told, sys.stdout)
"""


def differences(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> list[str]:
    """One line for each path that came, went or changed."""
    lines = [f"new: {path}" for path in sorted(after.keys() - before.keys())]
    lines += [f"gone: {path}" for path in sorted(before.keys() - after.keys())]
    for path in sorted(before.keys() & after.keys()):
        if before[path] != after[path]:
            lines.append(f"changed: {path}: {before[path]} -> {after[path]}")
    return lines
