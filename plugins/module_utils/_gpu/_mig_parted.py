# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of mig-parted, version v1: reading one label of them, writing the layout that is there, making all layouts that
the hardware can have. Documents are plain data; YAML and JSON are read on the controller."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._plan import Finding
from ._board import Gpu, Profile
from ._geometry import slots_of
from ._layout import Entry, Filter, Problems, Wish, is_int, read_count, read_filters, read_name

_KEYS = ("version", "mig-configs")
_ENTRY_KEYS = ("devices", "device-filter", "mig-enabled", "mig-devices")

Config = Dict[str, Any]


def read_config(document: object, label: str = "", path: str = "config") -> Tuple[List[Entry], List[Finding]]:
    """The entries of a label; of the only one where none is named. The whole file is judged."""
    problems = Problems()
    if document is None or document == {}:
        problems.error(path, "is empty and has no label to choose")
        return [], problems.found
    if not isinstance(document, Mapping):
        problems.error(path, f"is a {type(document).__name__}; a mig-parted file is a mapping")
        return [], problems.found
    _check_keys(document, _KEYS, path, problems)
    if "version" not in document:
        problems.error(path, "has no version", "Write version: v1.")
    elif document["version"] != "v1":
        problems.error(f"{path}.version", f"is {document['version']!r}; only v1 is known")
    labels = _labels(document.get("mig-configs", {}), f"{path}.mig-configs", "mig-configs" in document, problems)
    chosen = _chosen(labels, label, path, problems)
    return chosen, problems.found


def _check_keys(value: Mapping[Any, Any], known: Sequence[str], path: str, problems: Problems) -> None:
    for key in value:
        if key not in known:
            problems.error(f"{path}.{key}", "is not known", f"Known are {', '.join(known)}.")


def _labels(value: object, path: str, given: bool, problems: Problems) -> Dict[str, List[Entry]]:
    if not isinstance(value, Mapping) or (given and not value):
        problems.error(path, "has no labels; it maps a label to a list of entries")
        return {}
    made: Dict[str, List[Entry]] = {}
    for label, items in value.items():
        where = f"{path}.{label}"
        if not isinstance(items, (list, tuple)) or not items:
            problems.error(where, "is no list of entries, or has none")
            items = []
        entries = [_entry(item, f"{where}[{n}]", problems) for n, item in enumerate(items)]
        made[str(label)] = [entry for entry in entries if entry]
    return made


def _chosen(labels: Mapping[str, List[Entry]], label: str, path: str, problems: Problems) -> List[Entry]:
    there = ", ".join(sorted(labels)) or "none"
    if label:
        if label not in labels:
            problems.error(path, f"has no label {label}", f"There are {there}.", "label")
        return labels.get(label, [])
    if len(labels) == 1:
        return next(iter(labels.values()))
    if labels or not problems.found:
        problems.error(path, f"has {len(labels)} labels, and none is chosen", f"Set name. There are {there}.", "label")
    return []


def _entry(value: object, path: str, problems: Problems) -> Optional[Entry]:
    if not isinstance(value, Mapping):
        problems.error(path, f"is a {type(value).__name__}; an entry is a mapping")
        return None
    _check_keys(value, _ENTRY_KEYS, path, problems)
    devices = value.get("devices")
    gpus: Optional[Tuple[int, ...]] = None
    if isinstance(devices, (list, tuple)) and all(is_int(item) and item >= 0 for item in devices):
        gpus = tuple(devices)
    elif devices != "all":
        problems.error(f"{path}.devices", f"is {devices!r}; it is all or a list of numbers, as in [0, 1]")
    enabled = value.get("mig-enabled")
    if not isinstance(enabled, bool):
        problems.error(f"{path}.mig-enabled", f"is {enabled!r}; it must be there, as true or false")
    filters = value.get("device-filter")
    return Entry(
        path,
        gpus,
        enabled is True,
        tuple(_devices(value.get("mig-devices"), enabled, f"{path}.mig-devices", problems)),
        "",
        _filters(filters, f"{path}.device-filter", problems),
    )


def _filters(value: object, path: str, problems: Problems) -> Optional[Tuple[Filter, ...]]:
    return None if value in (None, "", []) else tuple(read_filters(value, path, problems, strict=False))


def _devices(value: object, enabled: object, path: str, problems: Problems) -> List[Wish]:
    if value is None:
        if enabled is True:
            problems.error(path, "is missing, although mig-enabled is true", "Write {} for no instances.")
        return []
    if not isinstance(value, Mapping):
        problems.error(path, f"is a {type(value).__name__}; it maps profiles to counts")
        return []
    if value and enabled is False:
        problems.error(path, "asks for instances, although mig-enabled is false")
    if value and all(many == 0 and is_int(many) for many in value.values()):
        problems.error(path, "has only counts of 0", "Write {} for no instances.")
    wishes = []
    for key, many in value.items():
        name, count = read_name(key, f"{path}.{key}", problems), read_count(many, f"{path}.{key}", problems)
        if name and count:
            wishes.append(Wish(name, count))
    return wishes


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Current:
    """What a GPU has: compute instances as ``1c.2g.10gb`` or ``2g.10gb``, one for each."""

    gpu: Gpu
    enabled: bool
    devices: Tuple[str, ...] = ()


def export(found: Sequence[Current], label: str = "current", complete: bool = True) -> Config:
    """The layout that is there as a file with one label; GPUs that are alike share an entry. ``complete``: no GPU of
    the host is missing, so that ``devices: all`` may be written."""
    alike: Dict[Tuple[bool, Tuple[Tuple[str, int], ...]], List[Gpu]] = {}
    for each in found:
        alike.setdefault((each.enabled, tuple(sorted(Counter(each.devices).items()))), []).append(each.gpu)
    kinds = {each.gpu.device_id for each in found}
    entries = []
    for (enabled, devices), gpus in alike.items():
        mine = {gpu.device_id for gpu in gpus}
        every = complete and len(gpus) == sum(each.gpu.device_id in mine for each in found)
        entry: Dict[str, Any] = {}
        if len(kinds) > 1 and len(alike) > 1:
            ids = [f"0x{device:08X}" for device in sorted(mine)]
            entry["device-filter"] = ids[0] if len(ids) == 1 else ids
        entry["devices"] = "all" if every else sorted(gpu.index for gpu in gpus)
        entry["mig-enabled"] = enabled
        entry["mig-devices"] = dict(devices)
        entries.append(entry)
    return {"version": "v1", "mig-configs": {label: entries}}


def generate(boards: Mapping[int, Sequence[Profile]]) -> Config:
    """Every uniform layout and a balanced one that boards can have; ``boards``: device id -> profiles."""
    configs: Dict[str, List[Dict[str, Any]]] = {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "all-enabled": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
    }
    layouts: Dict[str, Dict[Tuple[Tuple[str, int], ...], List[int]]] = {}
    for device, profiles in boards.items():
        for profile in profiles:
            label = f"all-{profile.name.replace('+', '.')}"
            layouts.setdefault(label, {}).setdefault(((profile.name, profile.count),), []).append(device)
        mixed = _balanced(profiles)
        if mixed:
            layouts.setdefault("all-balanced", {}).setdefault(mixed, []).append(device)
    for label, variants in layouts.items():
        configs[label] = [
            {
                **({"device-filter": [f"0x{device:08X}" for device in devices]} if len(boards) > 1 else {}),
                "devices": "all",
                "mig-enabled": True,
                "mig-devices": dict(counts),
            }
            for counts, devices in variants.items()
        ]
    return {"version": "v1", "mig-configs": configs}


def _balanced(profiles: Sequence[Profile]) -> Tuple[Tuple[str, int], ...]:
    """Two of one slice, one of two, and one of three where the board has eight slots."""
    shape = {8: ((1, 2), (2, 1), (3, 1)), 4: ((1, 2), (2, 1))}.get(slots_of(profiles), ())
    made = []
    for slices, many in shape:
        plain = [p for p in profiles if p.slices == slices and not set("+-") & set(p.name)]
        if not plain:
            return ()
        made.append((max(plain, key=lambda p: p.count).name, many))
    return tuple(made)


def as_yaml(config: Config) -> str:
    """The file's text. Values are written as JSON, which YAML reads."""
    lines = [f"version: {config['version']}", "mig-configs:"]
    for label, entries in config["mig-configs"].items():
        lines.append(f"  {json.dumps(label)}:")
        for entry in entries:
            items = [f"{key}: {json.dumps(value)}" for key, value in entry.items()]
            lines.append(f"    - {items[0]}")
            lines += [f"      {item}" for item in items[1:]]
    return "\n".join(lines) + "\n"
