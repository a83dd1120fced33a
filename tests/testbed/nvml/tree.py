# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the driver on a played host: what lies below /proc/driver and /dev, with MIG's capability tree.

Device nodes are plain empty files: making real ones needs rights, and nothing reads them here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Double

#: What the driver numbers, whether or not it is there: 32 GPUs of 15 instances of 8 compute instances.
GPUS, INSTANCES, COMPUTE_INSTANCES = 32, 15, 8
#: Minor of a capability node -> mode that the driver asks for.
MODES = {"config": 0o400, "monitor": 0o444}


def access_minor(gpu: int, gi: int, ci: int | None = None) -> int:
    """The minor number of /dev/nvidia-caps/nvidia-cap<n> that gives access to an instance."""
    of_instance = 3 + gpu * INSTANCES * (1 + COMPUTE_INSTANCES) + gi * (1 + COMPUTE_INSTANCES)
    return of_instance if ci is None else of_instance + 1 + ci


def mig_minors() -> Iterator[str]:
    """Lines of /proc/driver/nvidia-caps/mig-minors."""
    yield "config 1"
    yield "monitor 2"
    for gpu in range(GPUS):
        for gi in range(INSTANCES):
            yield f"gpu{gpu}/gi{gi}/access {access_minor(gpu, gi)}"
            for ci in range(COMPUTE_INSTANCES):
                yield f"gpu{gpu}/gi{gi}/ci{ci}/access {access_minor(gpu, gi, ci)}"


def _capability(minor: int, mode: int) -> str:
    return f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n"


def _information(gpu: dict[str, Any], driver: str) -> str:
    address = f"{gpu['domain']:04x}:{gpu['bus']:02x}:{gpu['device']:02x}.0"
    return (
        f"Model: \t\t {gpu['name']}\nIRQ:   \t\t 41\nGPU UUID: \t {gpu['uuid']}\n"
        f"Video BIOS: \t {gpu['vbios'].lower()}\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n"
        f"DMA Mask: \t 0xfffffffffffff\nBus Location: \t {address}\nDevice Minor: \t {gpu['minor']}\n"
        f"GPU Firmware: \t {driver if gpu['gsp'] else 'N/A'}\nGPU Excluded:\t No\n"
    )


def _files(host: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Path below the root, content, mode."""
    driver = host["driver"]
    proc, caps = "proc/driver/nvidia", "proc/driver/nvidia/capabilities"
    version = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build\n"
    yield f"{proc}/version", version, 0o444
    yield f"{proc}/params", "ModifyDeviceFiles: 1\nDeviceFileMode: 438\nImexChannelCount: 2048\n", 0o444
    yield "proc/driver/nvidia-caps/mig-minors", "".join(f"{line}\n" for line in mig_minors()), 0o444
    for number, (name, mode) in enumerate(MODES.items(), start=1):
        yield f"{caps}/mig/{name}", _capability(number, mode), 0o444
        yield f"dev/nvidia-caps/nvidia-cap{number}", "", mode
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        yield f"dev/{name}", "", 0o666
    for gpu in host["gpus"]:
        minor = gpu["minor"]
        address = f"{gpu['domain']:04x}:{gpu['bus']:02x}:{gpu['device']:02x}.0"
        yield f"{proc}/gpus/{address}/information", _information(gpu, driver), 0o444
        yield f"dev/nvidia{minor}", "", 0o666
        for gi in gpu["instances"]:
            nodes = {f"gi{gi['gi']}": access_minor(minor, gi["gi"])}
            nodes.update({f"gi{gi['gi']}/ci{c['ci']}": access_minor(minor, gi["gi"], c["ci"]) for c in gi["cis"]})
            for name, number in nodes.items():
                yield f"{caps}/gpu{minor}/mig/{name}/access", _capability(number, 0o444), 0o444
                yield f"dev/nvidia-caps/nvidia-cap{number}", "", 0o444


def write_tree(double: Double, root: Path) -> None:
    """Write the driver's files as they are now below ``root``; what an earlier call wrote goes first."""
    host = double.show()
    for folder in ("proc/driver/nvidia", "proc/driver/nvidia-caps", "dev/nvidia-caps"):
        shutil.rmtree(root / folder, ignore_errors=True)
    for node in (root / "dev").glob("nvidia*"):
        node.unlink()
    for gpu in host["gpus"]:
        if gpu["slots"]:
            (root / f"proc/driver/nvidia/capabilities/gpu{gpu['minor']}/mig").mkdir(parents=True)
    for path, content, mode in _files(host):
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        file.chmod(mode)
