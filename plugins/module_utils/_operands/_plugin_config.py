# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A named config of the device plugin (PLG-01): what it shares, and what the plugin would refuse or pass over.

The plugin exits on some mistakes and says nothing of others: both are findings here, with the path of the key.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._plan import ERROR, WARNING, Finding

try:
    import yaml

    HAS_YAML = True
except ImportError:  # configs that this collection writes are JSON
    HAS_YAML = False

PREFIX = "nvidia.com/"
TIME_SLICING = "time-slicing"
MPS = "mps"
STRATEGIES = ("none", "single", "mixed")
# How devices are handed to containers (PLG-05). Several may be given.
LISTS = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
_CHOICES: Tuple[Tuple[str, str, Tuple[str, ...]], ...] = (
    ("plugin.deviceListStrategy", "DEVICE_LIST_STRATEGY", LISTS),
    ("plugin.deviceIDStrategy", "DEVICE_ID_STRATEGY", ("uuid", "index")),
    ("plugin.sharedDevicesAllocationPolicy", "SHARED_DEVICES_ALLOCATION_POLICY", ("distributed", "packed")),
    ("deviceDiscoveryStrategy", "DEVICE_DISCOVERY_STRATEGY", ("auto", "nvml", "tegra", "vfio")),
)
# XIDs that do not make a device unhealthy, whatever is configured (PLG-06).
HARMLESS_XIDS = (13, 31, 43, 45, 68, 109)

_TOP = ("version", "flags", "resources", "sharing", "imex")
_FLAGS = (
    "migStrategy",
    "failOnInitError",
    "mpsRoot",
    "nvidiaDriverRoot",
    "nvidiaDevRoot",
    "gdrcopyEnabled",
    "gdsEnabled",
    "mofedEnabled",
    "useNodeFeatureAPI",
    "deviceDiscoveryStrategy",
    "plugin",
    "gfd",
)
_PLUGIN_FLAGS = (
    "passDeviceSpecs",
    "deviceListStrategy",
    "deviceIDStrategy",
    "cdiAnnotationPrefix",
    "nvidiaCTKPath",
    "containerDriverRoot",
    "sharedDevicesAllocationPolicy",
)
_GFD_FLAGS = ("oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile")
_SHARING = ("timeSlicing", "mps")
_BLOCK = ("renameByDefault", "failRequestsGreaterThanOne", "resources")
_RESOURCE = ("name", "rename", "devices", "replicas")
# Flags for which the DaemonSet sets a variable: that one counts, not the file.
_ENV_OF: Tuple[Tuple[str, str], ...] = (
    ("migStrategy", "MIG_STRATEGY"),
    ("failOnInitError", "FAIL_ON_INIT_ERROR"),
    ("mpsRoot", "MPS_ROOT"),
    ("gdrcopyEnabled", "GDRCOPY_ENABLED"),
    ("gdsEnabled", "GDS_ENABLED"),
    ("mofedEnabled", "MOFED_ENABLED"),
    ("plugin.passDeviceSpecs", "PASS_DEVICE_SPECS"),
    ("plugin.deviceListStrategy", "DEVICE_LIST_STRATEGY"),
    ("plugin.deviceIDStrategy", "DEVICE_ID_STRATEGY"),
    ("plugin.cdiAnnotationPrefix", "CDI_ANNOTATION_PREFIX"),
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")


@dataclass(frozen=True)
class Sharing:
    """How many pods share each of a resource. ``kind`` is "" (none), time-slicing or mps."""

    kind: str = ""
    replicas: Mapping[str, int] = field(default_factory=dict)  # resource -> replicas
    renamed: bool = False
    one_a_container: bool = False  # a container that asks for two of them is turned away

    def of(self, resource: str) -> int:
        return self.replicas.get(resource, 1)

    def name(self, resource: str) -> str:
        """The name under which a resource is offered."""
        return resource + ".shared" if self.renamed and self.of(resource) > 1 else resource


@dataclass(frozen=True)
class PluginConfig:
    """``mig_strategy`` is "" where the config does not choose one."""

    sharing: Sharing = Sharing()
    mig_strategy: str = ""


class _Reader:
    def __init__(self, path: str) -> None:
        self.path = path
        self.findings: List[Finding] = []

    def refuse(self, key: str, detail: str, remedy: str = "", id: str = "plugin-config.invalid") -> None:
        path = f"{self.path}.{key}" if key else self.path
        self.findings.append(Finding(id, ERROR, detail, "", path, remedy))

    def block(self, value: Any, key: str, known: Sequence[str]) -> Mapping[str, Any]:
        """A mapping with known keys; {} where it is none."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.refuse(key, f"is {value!r}: a dictionary with {', '.join(known)} is allowed.")
            return {}
        for name in value:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, 1)
                remedy = f"Did you mean {near[0]}?" if near else ""
                where = f"{key}.{name}" if key else str(name)
                self.refuse(where, f"is unknown: {', '.join(known)} are allowed.", remedy, "plugin-config.unknown-key")
        return value

    def flag(self, block: Mapping[str, Any], name: str, key: str, default: bool) -> bool:
        value = block.get(name, default)
        if isinstance(value, bool):
            return value
        self.refuse(f"{key}.{name}", f"is {value!r}: true or false is allowed.")
        return default


def read_config(source: Any, path: str, env: Optional[Mapping[str, str]] = None) -> Tuple[PluginConfig, List[Finding]]:
    """A config from its text (or as a dictionary), and all that is wrong with it. Use it only without an error.

    ``env``: variables of the plugin's container, which win over the file.
    """
    reader = _Reader(path)
    data = _parse(reader, source)
    top = reader.block(data, "", _TOP)
    if top.get("version", "v1") != "v1":
        reader.refuse("version", f"is {top['version']!r}: v1 is allowed.")
    flags = reader.block(top.get("flags"), "flags", _FLAGS)
    reader.block(flags.get("plugin"), "flags.plugin", _PLUGIN_FLAGS)
    reader.block(flags.get("gfd"), "flags.gfd", _GFD_FLAGS)
    strategy = flags.get("migStrategy") or ""
    if strategy and strategy not in STRATEGIES:
        reader.refuse("flags.migStrategy", f"is {strategy!r}: {', '.join(STRATEGIES)} are allowed.")
    _judge_choices(reader, flags)
    _judge_names(reader, top.get("resources"))
    channels = reader.block(top.get("imex"), "imex", ("channelIDs", "required")).get("channelIDs")
    if channels not in (None, [], [0]):
        reader.refuse("imex.channelIDs", f"is {channels!r}: [] and [0] are allowed.")
    reader.findings += _without_effect(path, flags, env or {})
    return PluginConfig(_sharing(reader, top.get("sharing")), str(strategy)), reader.findings


def _parse(reader: _Reader, source: Any) -> Any:
    if not isinstance(source, str):
        return source
    try:
        return json.loads(source)
    except ValueError:
        pass
    if not HAS_YAML:
        reader.refuse("", "cannot be read here: the Python library PyYAML is missing.", "Install it.")
        return None
    try:
        return yaml.safe_load(source)
    except (yaml.YAMLError, RecursionError) as error:
        reader.refuse("", f"is not YAML: {' '.join(str(error).split())}.")
        return None


def wrong_choices(name: str, value: str) -> Tuple[str, ...]:
    """Items of a variable of the plugin's container that the plugin does not know; () for other variables."""
    for _key, variable, allowed in _CHOICES:
        if variable == name:
            items = value.split(",") if name == "DEVICE_LIST_STRATEGY" else [value]
            return tuple(item for item in items if item and item not in allowed)
    return ()


def allowed_for(name: str) -> Tuple[str, ...]:
    """What a variable of the plugin's container may be."""
    return next((allowed for _key, variable, allowed in _CHOICES if variable == name), ())


def _judge_choices(reader: _Reader, flags: Mapping[str, Any]) -> None:
    """Ways to hand devices out: the plugin exits on one that it does not know."""
    for key, name, allowed in _CHOICES:
        value = _flag_at(flags, key)
        many = isinstance(value, (list, tuple)) and name == "DEVICE_LIST_STRATEGY"
        items = list(value) if many else [] if value is None else str(value).split(",")
        wrong = [str(item) for item in items if item not in allowed]
        if wrong or (value is not None and not items):
            reader.refuse(f"flags.{key}", f"is {_text(value)!r}: {', '.join(allowed)} are allowed.")


def _flag_at(flags: Mapping[str, Any], key: str) -> Any:
    value: Any = flags
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _judge_names(reader: _Reader, resources: Any) -> None:
    """Names by product: the plugin has the key, and passes over what is in it (P098)."""
    if resources:
        reader.refuse(
            "resources",
            "has no effect: the plugin passes over names of resources that are given here.",
            "Leave it out, and tell products apart by the label nvidia.com/gpu.product or by a quota for each pool.",
            "plugin-config.ignored",
        )


def _without_effect(path: str, flags: Mapping[str, Any], env: Mapping[str, str]) -> List[Finding]:
    found = []
    for key, name in _ENV_OF:
        value = _flag_at(flags, key)
        if value is None or name not in env or _text(value) == env[name]:
            continue
        detail = f"is {_text(value)}, and has no effect: the policy sets {name}={env[name]}, which counts."
        remedy = "Set mig.strategy of the policy." if key == "migStrategy" else "Set it in devicePlugin.env."
        found.append(Finding("plugin-config.ignored", WARNING, detail, "", f"{path}.flags.{key}", remedy))
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(str(item) for item in value) if isinstance(value, (list, tuple)) else str(value)


def _sharing(reader: _Reader, raw: Any) -> Sharing:
    sharing = reader.block(raw, "sharing", _SHARING)
    present = [name for name in _SHARING if sharing.get(name) is not None]
    if len(present) == 2:
        detail = "has no effect beside sharing.mps: of both the plugin takes mps."
        reader.refuse("sharing.timeSlicing", detail, "Leave one of them out.", "plugin-config.ignored")
    if not present:
        return Sharing()
    name = present[-1]
    key = f"sharing.{name}"
    block = reader.block(sharing[name], key, _BLOCK)
    rows = block.get("resources")
    if not isinstance(rows, (list, tuple)) or not rows:
        reader.refuse(f"{key}.resources", "is missing or empty: a list with at least one resource is needed.")
        rows = []
    renamed = reader.flag(block, "renameByDefault", key, False)
    replicas: Dict[str, int] = {}
    for index, row in enumerate(rows):
        where = f"{key}.resources[{index}]"
        resource, count = _resource(reader, row, where)
        if resource in replicas:
            reader.refuse(f"{where}.name", f"is {resource}, as in an earlier entry.")
        if resource and count:
            replicas[resource] = count
            _judge_length(reader, resource + (".shared" if renamed else ""), where)
    kind = MPS if name == "mps" else TIME_SLICING
    one = reader.flag(block, "failRequestsGreaterThanOne", key, kind == MPS)
    return Sharing(kind, replicas, renamed, one)


def _resource(reader: _Reader, row: Any, where: str) -> Tuple[str, int]:
    entry = reader.block(row, where, _RESOURCE)
    name, count = entry.get("name"), entry.get("replicas")
    if not isinstance(name, str) or not name:
        detail = "is missing." if name is None else f"is {name!r}: a text is allowed."
        reader.refuse(f"{where}.name", detail, "Name the resource: nvidia.com/gpu or nvidia.com/mig-<profile>.")
        name = ""
    if isinstance(count, bool) or not isinstance(count, int) or count < 2:
        detail = (
            "is missing: a number from 2 on is needed." if count is None else f"is {count!r}: 2 and more is allowed."
        )
        remedy = "Leave the resource out when it is not to be shared." if count == 1 else ""
        reader.refuse(f"{where}.replicas", detail, remedy)
        count = 0
    if entry.get("rename") is not None:
        detail = "has no effect: the plugin passes over it."
        reader.refuse(f"{where}.rename", detail, "Use renameByDefault of the block.", "plugin-config.ignored")
    if entry.get("devices", "all") != "all":
        detail = "has no effect: the plugin shares all devices of a resource."
        reader.refuse(f"{where}.devices", detail, "Leave it out.", "plugin-config.ignored")
    return (name if "/" in name or not name else PREFIX + name), count


def _judge_length(reader: _Reader, resource: str, where: str) -> None:
    if not resource.startswith(PREFIX):
        reader.refuse(f"{where}.name", f"is {resource!r}: resources of {PREFIX} can be shared.")
    elif len(resource) > 63 or not _NAME.match(resource[len(PREFIX) :]):
        reader.refuse(f"{where}.name", f"would be offered as {resource!r}, which is no name of a resource.")


def ignored_xids(text: str) -> Tuple[Optional[Tuple[int, ...]], Tuple[str, ...]]:
    """XIDs that leave devices healthy with DP_DISABLE_HEALTHCHECKS=text, and its items that the plugin passes over.

    None for the XIDs means that health is not watched at all.
    """
    items = [item.strip() for item in text.split(",") if item.strip()]
    if any(item.lower() in ("all", "xids") for item in items):
        return None, ()
    bad = tuple(item for item in items if not item.isdigit())
    return tuple(sorted({*HARMLESS_XIDS, *(int(item) for item in items if item.isdigit())})), bad
