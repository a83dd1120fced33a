# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG layouts as files say them, and what applying one does to the GPUs of a node (mig-plugin-gfd.md 1.1, 1.5 to
1.8)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from .advertise import base_name
from .node import Gpu, Node
from .products import Profile, place

_NAME = re.compile(r"^(?:(\d+)c\.)?(\d+)g\.(\d+)gb(?:([+-])([A-Za-z][\w.]*(?:,[A-Za-z][\w.]*)*))?$")


class LayoutError(Exception):
    """A file, a selection or an application that mig-parted refuses."""


@dataclass(frozen=True)
class Entry:
    devices: tuple[int, ...] | None  # None: all
    filters: tuple[int, ...] | None  # PCI ids (device << 16 | vendor); None: every device
    enabled: bool
    instances: tuple[tuple[str, int], ...]

    def covers(self, gpu: Gpu) -> bool:
        if self.filters is not None and (gpu.product.device_id << 16 | 0x10DE) not in self.filters:
            return False
        return self.devices is None or gpu.index in self.devices


def parse(text: str) -> dict[str, tuple[Entry, ...]]:
    """A mig-parted v1 file: name -> entries."""
    data = yaml.safe_load(text)
    if data is None:
        return {}
    if not isinstance(data, dict) or "version" not in data:
        raise LayoutError("unable to parse with missing 'version' field")
    if data["version"] != "v1":
        raise LayoutError(f"unknown version: {data['version']}")
    unknown = set(data) - {"version", "mig-configs"}
    if unknown:
        raise LayoutError(f"unexpected field: {sorted(unknown)[0]}")
    configs = data.get("mig-configs", {})
    if "mig-configs" in data and not configs:
        raise LayoutError("at least one entry in 'mig-configs' is required")
    out = {}
    for name, entries in configs.items():
        if not entries:
            raise LayoutError(f"at least one entry in '{name}' is required")
        out[str(name)] = tuple(_entry(e) for e in entries)
    return out


def _entry(data: dict[str, Any]) -> Entry:
    unknown = set(data) - {"devices", "device-filter", "mig-enabled", "mig-devices"}
    if unknown:
        raise LayoutError(f"unexpected field: {sorted(unknown)[0]}")
    devices = data.get("devices")
    if devices == "all":
        chosen: tuple[int, ...] | None = None
    elif isinstance(devices, list) and all(isinstance(d, int) for d in devices):
        chosen = tuple(devices)
    else:
        raise LayoutError(f"invalid value for 'devices': {devices!r}")
    filters = data.get("device-filter")
    ids = None
    if filters:
        ids = tuple(_device(f) for f in (filters if isinstance(filters, list) else [filters]))
    enabled = data.get("mig-enabled")
    if not isinstance(enabled, bool):
        raise LayoutError("missing required field: mig-enabled")
    return Entry(chosen, ids, enabled, _instances(enabled, data.get("mig-devices")))


def _instances(enabled: bool, instances: dict[str, int] | None) -> tuple[tuple[str, int], ...]:
    if enabled and instances is None:
        raise LayoutError("missing required field: mig-devices")
    if not enabled and instances:
        raise LayoutError("mig-devices included when mig-enabled is false")
    for name, count in (instances or {}).items():
        if not _NAME.match(name):
            raise LayoutError(f"invalid format for MIG profile: {name}")
        if count < 0:
            raise LayoutError(f"invalid count for {name}: {count}")
    if instances and not any(instances.values()):
        raise LayoutError("all counts for all MIG devices are 0")
    return tuple(sorted((instances or {}).items()))


def _device(text: str) -> int:
    try:
        return int(str(text).split(":", 1)[0], 0)
    except ValueError:
        return 0  # a name that does not parse matches nothing, in silence


def _layout(gpu: Gpu) -> dict[str, int]:
    return {name: gpu.instances.count(name) for name in gpu.instances}


def mode_applied(entries: tuple[Entry, ...], gpus: list[Gpu]) -> bool:
    for gpu in gpus:
        for entry in (e for e in entries if e.covers(gpu)):
            if not gpu.product.mig_capable:
                if entry.enabled:
                    return False
            elif gpu.mig_enabled != entry.enabled:
                return False
    return True


def applied(entries: tuple[Entry, ...], gpus: list[Gpu]) -> bool:
    """mig-parted's assert: every GPU is visited and equal (1.2, 1.6)."""
    for gpu in gpus:
        mine = [e for e in entries if e.covers(gpu)]
        if not mine:
            return False
        entry = mine[-1]
        if not gpu.product.mig_capable:
            if entry.enabled:
                return False
            continue
        if gpu.mig_enabled != entry.enabled or _layout(gpu) != dict(entry.instances):
            return False
    return True


def apply(entries: tuple[Entry, ...], node: Node, gpus: list[Gpu], busy: str) -> None:
    """Sets modes, then instances. ``busy`` names what holds the GPUs, "" when nothing does."""
    for entry in entries:
        for gpu in (g for g in gpus if entry.covers(g)):
            _set_mode(entry, gpu, busy)
    for entry in entries:
        for gpu in (g for g in gpus if entry.covers(g) and g.product.mig_capable):
            wanted = dict(entry.instances)
            if not entry.enabled or _layout(gpu) == wanted:
                continue
            if gpu.instances and busy:
                raise LayoutError(
                    f"error clearing MigConfig on GPU {gpu.index}: error destroying GPU instance: "
                    f"In use by another client ({busy})"
                )
            gpu.instances = _create(gpu, gpus, wanted)
    node.changed()


def _set_mode(entry: Entry, gpu: Gpu, busy: str) -> None:
    if not gpu.product.mig_capable:
        if entry.devices is not None and entry.enabled:
            raise LayoutError(f"cannot set MIG mode on non MIG-capable GPU {gpu.index}")
        return
    if gpu.mig_enabled == entry.enabled:
        return
    if busy:
        raise LayoutError(f"error setting MIG mode on GPU {gpu.index}: In use by another client ({busy})")
    gpu.instances.clear()
    gpu.mig_enabled = entry.enabled


def _create(gpu: Gpu, gpus: list[Gpu], wanted: dict[str, int]) -> list[str]:
    known = {p.name for g in gpus for p in g.product.profiles}
    if any(base_name(name) not in known for name in wanted):
        return []  # a name that no GPU knows: cleared, and called a success (1.8, step 2)
    groups: list[Profile] = []
    for name, count in wanted.items():
        profile = gpu.product.profile(base_name(name))
        if profile is None:
            gpu.instances = []
            raise LayoutError(
                f"error applying MIG configuration with all orderings: {name} is no profile of GPU {gpu.index}"
            )
        part = int(name.split("c.")[0]) if "c." in name else profile.slices
        groups += [profile] * -(-count * part // profile.slices)
    if place(gpu.product.slots, tuple(sorted(groups, key=lambda p: p.name))) is None:
        gpu.instances = []
        raise LayoutError(
            f"error setting MIGConfig on GPU {gpu.index}: error attempting multiple config orderings: all "
            "orderings failed"
        )
    return [name for name in sorted(wanted) for _unused in range(wanted[name])]
