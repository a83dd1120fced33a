# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DCGM's packages: NVIDIA's names, versions with their epoch, conflicts, dependencies, and the service of them.

The programs stand in for the real ones (``program.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.dcgm.program import CLOSED_MODULE
from ansible_collections.gpufleet.nvidia.tests.testbed.packages.package import Package

PROGRAM = b"#!/usr/bin/python3\n" + Path(__file__).with_name("program.py").read_bytes()
FOUR = "datacenter-gpu-manager-4"
VERSIONS = ("4.4.2", "4.6.0")
THREE = "3.3.9"
UNIT = """[Unit]
Description=NVIDIA DCGM service

[Service]
ExecStart=/usr/bin/nv-hostengine -n --service-account nvidia-dcgm
Restart=on-abort

[Install]
WantedBy=multi-user.target
Alias=dcgm.service
"""
RELOAD = "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n"
# As debhelper has it: what runs is stopped before its files go.
STOP = "if [ -d /run/systemd/system ]; then systemctl stop nvidia-dcgm.service || true; fi\n"


def packages(versions: Sequence[str] = VERSIONS, three: bool = True) -> list[Package]:
    """DCGM 4 at each version, and 3 for the move from it."""
    made = [_engine("datacenter-gpu-manager", THREE, (f"{FOUR}-core",))] if three else []
    for version in versions:
        made.append(_engine(f"{FOUR}-core", version, ("datacenter-gpu-manager",)))
        made += [_part(f"cuda{major}", version, provides=(FOUR,)) for major in (11, 12, 13)]
        made.append(_part("proprietary", version, files={CLOSED_MODULE: (b"closed\n", 0o644)}))
        made += [_part(f"proprietary-cuda{major}", version) for major in (11, 12, 13)]
    return made


def _engine(name: str, version: str, conflicts: tuple[str, ...]) -> Package:
    return Package(
        name, version, epoch="1", conflicts=conflicts, after=RELOAD, before_removal=STOP,
        files={
            "/usr/bin/nv-hostengine": (PROGRAM, 0o755),
            "/usr/lib/systemd/system/nvidia-dcgm.service": (UNIT.encode(), 0o644),
        },
    )  # fmt: skip


def _part(name: str, version: str, provides: tuple[str, ...] = (), files: dict | None = None) -> Package:
    path = f"/usr/share/doc/{FOUR}-{name}/README"
    return Package(
        f"{FOUR}-{name}", version, epoch="1", provides=provides, depends=((f"{FOUR}-core", "=", f"1:{version}-1"),),
        files=files or {path: (b"A part of DCGM.\n", 0o644)},
    )  # fmt: skip
