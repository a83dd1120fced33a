# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that a person or a test switches on while the simulator runs: a YAML file, read again when it changes.

    images_missing: ["nvcr.io/nvidia/driver:*"]    # patterns of references that no registry has any more
    images_extra: ["mirror.example.com/*"]         # patterns of references that exist besides registry.yaml
    nodes:                                         # node name or pattern -> faults of its hardware and software
      gpu-h100-*:
        driver_crash: "modprobe: ERROR: could not insert 'nvidia'"   # the driver container ends with this
        driver_seconds: 600                        # how long the driver's installation takes (unscaled)
        driver_hangs: true                         # the driver's installation never ends
        gpus_visible: 7                            # NVML shows fewer GPUs than there are
        crash: {nvidia-dcgm-exporter: "out of memory"}   # container name -> it ends with this message
        not_ready: {nvidia-device-plugin: true}    # container name -> runs, but never becomes ready
        mig_busy: true                             # a process outside Kubernetes holds the GPUs: MIG changes fail
        nouveau: true                              # nouveau holds the GPUs and cannot be unloaded
        no_precompiled: true                       # the driver container finds no package for the node's kernel
        no_handler: true                           # the runtime does not take over the toolkit's handlers
        no_fabric_manager: true                    # NVSwitch systems: CUDA finds a system that is not initialized
        no_iommu: true                             # the kernel was started without IOMMU: no GPU binds to VFIO
        vfio_held: [0]                             # GPUs (by number) that their driver does not let go
        no_vfs: true                               # SR-IOV is off in the firmware: GPUs show no virtual functions
        cc_fails: true                             # the GPUs refuse a change of their confidential computing mode
        down: "PLEG is not healthy"                # the kubelet says NotReady with this message; pods stay as they are

Every hook that operands ask is a method of ``Faults``, so that a new fault is one line here and one where it bites.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Any

import yaml

from .registry import as_list

NODE_KEYS = {
    "driver_crash", "driver_seconds", "driver_hangs", "gpus_visible", "crash", "not_ready", "mig_busy", "nouveau",
    "no_precompiled", "no_handler", "no_fabric_manager", "no_iommu", "vfio_held", "no_vfs", "cc_fails", "down",
}  # fmt: skip


class Faults:
    def __init__(self, data: dict[str, Any] | None = None, path: Path | None = None) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None
        self.set(data or {})

    def set(self, data: dict[str, Any]) -> None:
        unknown = set(data) - {"images_missing", "images_extra", "nodes"}
        for faults in (data.get("nodes") or {}).values():
            unknown |= set(faults or {}) - NODE_KEYS
        if unknown:
            raise ValueError(
                f"unknown faults {', '.join(sorted(unknown))}; known: images_missing, images_extra, "
                f"nodes.*.{{{', '.join(sorted(NODE_KEYS))}}}"
            )
        self.images_missing = as_list(data.get("images_missing"))
        self.images_extra = as_list(data.get("images_extra"))
        self._nodes: dict[str, dict[str, Any]] = data.get("nodes") or {}

    def reload(self) -> bool:
        """Reads the file again when it is another one than before. True when it was read."""
        if self.path is None:
            return False
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            if self._seen is None:
                return False
            self._seen = None
            self.set({})
            return True
        mark = (stat.st_mtime_ns, stat.st_size)
        if mark == self._seen:
            return False
        self.set(yaml.safe_load(self.path.read_text()) or {})
        self._seen = mark
        return True

    def of(self, node: str, key: str) -> Any:
        for pattern, faults in self._nodes.items():
            if fnmatch.fnmatchcase(node, pattern) and key in (faults or {}):
                return faults[key]
        return None

    def crash(self, node: str, container: str) -> str | None:
        return (self.of(node, "crash") or {}).get(container)

    def never_ready(self, node: str, container: str) -> bool:
        return bool((self.of(node, "not_ready") or {}).get(container))

    def visible_gpus(self, node: str, there: int) -> int:
        seen = self.of(node, "gpus_visible")
        return there if seen is None else min(there, int(seen))
