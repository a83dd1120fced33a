# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What GPUs become: resources of the device plugin and labels of GFD (mig-plugin-gfd.md, sections 4 and 5; cases
6.5, 6.6)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from .node import Gpu
from .products import Product, Profile

P = "nvidia.com/"
STRATEGIES = ("none", "single", "mixed")


class PluginError(Exception):
    """The device plugin (or GFD) does not start; the message is its own."""


@dataclass(frozen=True)
class Sharing:
    kind: str = "none"  # none, time-slicing, mps
    replicas: dict[str, int] = field(default_factory=dict)  # resource -> replicas
    renamed: bool = False


@dataclass(frozen=True)
class PluginConfig:
    flags: dict[str, Any] = field(default_factory=dict)
    sharing: Sharing = Sharing()


def load(text: str | None) -> PluginConfig:
    """A device-plugin configuration file; None and "" are the empty one."""
    if not text or not text.strip():
        return PluginConfig()
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PluginError(f"unable to parse config file: {error}") from None
    if not isinstance(data, dict):
        raise PluginError("unable to parse config file: not a mapping")
    if data.get("version", "v1") != "v1":
        raise PluginError(f"unable to parse config file: unknown version: {data['version']}")
    unknown = set(data) - {"version", "flags", "resources", "sharing", "imex"}
    if unknown:
        raise PluginError(f"unable to parse config file: unknown field {sorted(unknown)[0]!r}")
    sharing = data.get("sharing") or {}
    if "mps" in sharing and sharing["mps"] is not None:  # wins over timeSlicing
        return PluginConfig(data.get("flags") or {}, _sharing("mps", sharing["mps"]))
    if sharing.get("timeSlicing") is not None:
        return PluginConfig(data.get("flags") or {}, _sharing("time-slicing", sharing["timeSlicing"]))
    return PluginConfig(data.get("flags") or {})


def _sharing(kind: str, block: Any) -> Sharing:
    rows = (block or {}).get("resources")
    if not rows:
        raise PluginError("unable to parse config file: no resources specified in sharing block")
    replicas: dict[str, int] = {}
    for row in rows:
        if "name" not in row:
            raise PluginError("unable to parse config file: no resource name specified")
        count = row.get("replicas")
        if not isinstance(count, int) or isinstance(count, bool) or count < 2:
            raise PluginError(f"unable to parse config file: number of replicas must be >= 2, not {count}")
        name = row["name"] if "/" in row["name"] else f"nvidia.com/{row['name']}"
        replicas[name] = count
    return Sharing(kind, replicas, bool(block.get("renameByDefault")))


def base_name(instance: str) -> str:
    """Profile of a MIG device without its compute part: ``1c.2g.10gb`` -> ``2g.10gb``."""
    return re.sub(r"^\d+c\.", "", instance)


def profile_of(gpu: Gpu, instance: str) -> Profile:
    found = gpu.product.profile(base_name(instance))
    assert found is not None, instance
    return found


def _attributes(gpu: Gpu, instance: str) -> tuple[Any, ...]:
    part = re.match(r"^(\d+)c\.", instance)
    profile = profile_of(gpu, instance)
    return (*profile.attributes, int(part.group(1)) if part else profile.slices)


def strategy_of(env: dict[str, str], config: PluginConfig) -> str:
    """Environment over file over default (4.1)."""
    value = env.get("GFD_MIG_STRATEGY") or env.get("MIG_STRATEGY") or config.flags.get("migStrategy") or "none"
    if value not in STRATEGIES:
        raise PluginError(f"unknown strategy: {value}")
    return str(value)


def resources(gpus: list[Gpu], strategy: str, config: PluginConfig) -> dict[str, int]:
    """Resource -> count that the plugin registers. Raises PluginError as the plugin would fail (4.2, 4.3)."""
    if config.sharing.kind == "mps":
        _check_mps(gpus, strategy, config.sharing)
    on = [g for g in gpus if g.mig_enabled]
    if strategy == "none" or not on:
        counts = {"nvidia.com/gpu": len(gpus)} if gpus else {}
    elif strategy == "single":
        counts = _single(gpus, on)
    else:
        counts = _mixed(gpus)
    shared: dict[str, int] = {}
    for name, count in counts.items():
        replicas = config.sharing.replicas.get(name)
        if replicas:
            shared[f"{name}.shared" if config.sharing.renamed else name] = count * replicas
        else:
            shared[name] = count
    return shared


def _check_mps(gpus: list[Gpu], strategy: str, sharing: Sharing) -> None:
    if strategy == "mixed":
        raise PluginError("using --mig-strategy=mixed is not supported with MPS")
    if strategy != "none" and any(g.mig_enabled for g in gpus):
        raise PluginError("sharing using MPS is not supported for MIG devices")
    wanted = sharing.replicas.get("nvidia.com/gpu", 0)
    for gpu in gpus:
        most = 48 if gpu.product.compute >= (7, 5) else 16
        if wanted > most:
            raise PluginError(f"invalid MPS configuration: maximum allowed replicas exceeded: {wanted} > {most}")


def _single(gpus: list[Gpu], on: list[Gpu]) -> dict[str, int]:
    for gpu in on:
        if not gpu.instances:
            raise PluginError(f"device {gpu.index} has an invalid MIG configuration: no MIG devices configured")
    if len(on) != len(gpus):
        raise PluginError("all devices on the node must be configured with the same migEnabled value")
    if len({_attributes(g, i) for g in on for i in g.instances}) > 1:
        raise PluginError("more than one MIG device type present on node")
    return {"nvidia.com/gpu": sum(len(g.instances) for g in on)}


def _mixed(gpus: list[Gpu]) -> dict[str, int]:
    names: list[str] = []
    for gpu in gpus:
        if not gpu.mig_enabled:
            names.append("nvidia.com/gpu")
        for instance in gpu.instances:
            if instance != base_name(instance):
                raise PluginError(f"no resource pattern matches MIG device {instance}")
            names.append(f"nvidia.com/mig-{instance.replace('+', '.')}")
    return {name: names.count(name) for name in dict.fromkeys(names)}


# -- GFD

_CUDA = {
    535: (12, 2),
    550: (12, 4),
    560: (12, 6),
    570: (12, 8),
    575: (12, 9),
    580: (13, 0),
    590: (13, 1),
    595: (13, 2),
    610: (13, 3),
}


def clean(text: str) -> str:
    return "-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", text).split())


def cuda_of(driver: str) -> tuple[int, int]:
    major = int(driver.split(".")[0])
    return _CUDA[max((m for m in _CUDA if m <= major), default=535)]


def labels(gpus: list[Gpu], strategy: str, config: PluginConfig, driver: str, machine: str, now: int) -> dict[str, str]:
    """The labels that GFD makes; all begin with nvidia.com/ (5.2, 5.3)."""
    out = {f"{P}gfd.timestamp": str(now), f"{P}vgpu.present": "false"}
    if not gpus:
        return out
    out[f"{P}gpu.machine"] = clean(machine) or "unknown"
    out |= _versions(driver)
    out[f"{P}mig.capable"] = str(any(g.product.mig_capable for g in gpus)).lower()
    mps = config.sharing.kind == "mps"
    on = [g for g in gpus if g.mig_enabled]
    if mps and on:
        raise PluginError("failed to generate MPS capability: MPS is not supported on MIG-enabled GPUs")
    out[f"{P}mps.capable"] = str(mps).lower()
    # Boards: MIG-enabled ones first, the others of the same name overwrite them. Of several names one wins: by chance
    # in life, the first here.
    for name in reversed(dict.fromkeys(g.product.name for g in gpus)):
        same = [g for g in gpus if g.product.name == name]
        for gpu in sorted(same, key=lambda g: not g.mig_enabled):
            out |= _gpu_labels(
                f"{P}gpu", gpu.product, len(same), config, "nvidia.com/gpu", shareable=not gpu.mig_enabled
            )
    if strategy != "none":
        out[f"{P}mig.strategy"] = strategy
    if strategy == "single" and on:
        out |= _single_labels(gpus, on, config)
    elif strategy == "mixed":
        out |= _mixed_labels(on, config)
    classes = frozenset(g.product.pci_class for g in gpus)
    out[f"{P}gpu.mode"] = {frozenset({"0302"}): "compute", frozenset({"0300"}): "graphics"}.get(classes, "unknown")
    return out


def _versions(driver: str) -> dict[str, str]:
    out: dict[str, str] = {}
    parts = driver.split(".")
    if len(parts) not in (2, 3):
        raise PluginError(f"error getting driver version: unexpected format {driver}")
    revision = parts[2] if len(parts) == 3 else ""
    for name, value in (("major", parts[0]), ("minor", parts[1]), ("rev", revision)):
        out[f"{P}cuda.driver.{name}"] = value
    for name, value in (("major", parts[0]), ("minor", parts[1]), ("revision", revision), ("full", driver)):
        out[f"{P}cuda.driver-version.{name}"] = value
    major, minor = cuda_of(driver)
    for prefix in ("cuda.runtime.", "cuda.runtime-version."):
        out[f"{P}{prefix}major"], out[f"{P}{prefix}minor"] = str(major), str(minor)
    out[f"{P}cuda.runtime-version.full"] = f"{major}.{minor}"
    return out


def _single_labels(gpus: list[Gpu], on: list[Gpu], config: PluginConfig) -> dict[str, str]:
    names = {i for g in on for i in g.instances}
    if len(on) != len(gpus) or any(not g.instances for g in on) or len(names) != 1:
        return {
            f"{P}gpu.product": clean(f"{on[0].product.name} MIG-INVALID"), f"{P}gpu.count": "0",
            f"{P}gpu.replicas": "0", f"{P}gpu.sharing-strategy": "", f"{P}gpu.memory": "0",
        }  # fmt: skip
    count = sum(len(g.instances) for g in on)
    return _mig_labels(f"{P}gpu", on[0], next(iter(names)), count, config, "nvidia.com/gpu")


def _mixed_labels(on: list[Gpu], config: PluginConfig) -> dict[str, str]:
    out: dict[str, str] = {}
    for gpu in on:
        for instance in sorted(set(gpu.instances)):
            count = sum(g.instances.count(instance) for g in on)
            name = f"{P}mig-{instance.replace('+', '.')}"
            out |= _mig_labels(name, gpu, instance, count, config, name)
    return out


def _shared(config: PluginConfig, resource: str, shareable: bool) -> tuple[str, str, str]:
    """replicas, strategy, suffix of the product."""
    if not shareable:
        return "0", "none", ""
    replicas = config.sharing.replicas.get(resource, 1)
    if replicas <= 1:
        return "1", "none", ""
    return str(replicas), config.sharing.kind, "" if config.sharing.renamed else " SHARED"


def _gpu_labels(
    prefix: str, product: Product, count: int, config: PluginConfig, resource: str, shareable: bool
) -> dict[str, str]:
    replicas, strategy, suffix = _shared(config, resource, shareable)
    return {
        f"{prefix}.product": clean(product.name + suffix), f"{prefix}.count": str(count),
        f"{prefix}.replicas": replicas,
        f"{prefix}.sharing-strategy": strategy, f"{prefix}.memory": str(product.memory),
        f"{prefix}.family": product.family,
        f"{prefix}.compute.major": str(product.compute[0]), f"{prefix}.compute.minor": str(product.compute[1]),
    }  # fmt: skip


def _mig_labels(
    prefix: str, gpu: Gpu, instance: str, count: int, config: PluginConfig, resource: str
) -> dict[str, str]:
    profile = profile_of(gpu, instance)
    replicas, strategy, suffix = _shared(config, resource, True)
    part = re.match(r"^(\d+)c\.", instance)
    copy, decoder, encoder, jpeg, ofa = profile.engines
    return {
        f"{prefix}.product": clean(f"{gpu.product.name} MIG-{instance.replace('+', '.')}{suffix}"),
        f"{prefix}.count": str(count), f"{prefix}.replicas": replicas, f"{prefix}.sharing-strategy": strategy,
        f"{prefix}.memory": str(profile.memory), f"{prefix}.multiprocessors": str(profile.multiprocessors),
        f"{prefix}.slices.gi": str(profile.slices),
        f"{prefix}.slices.ci": part.group(1) if part else str(profile.slices),
        f"{prefix}.engines.copy": str(copy), f"{prefix}.engines.decoder": str(decoder),
        f"{prefix}.engines.encoder": str(encoder),
        f"{prefix}.engines.jpeg": str(jpeg), f"{prefix}.engines.ofa": str(ofa),
    }  # fmt: skip
