# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleet files, and the Node objects that are made from them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import yaml

from .kubelet import timestamp
from .node import RUNTIMES, VFIO, NodeSpec
from .pod import Object
from .products import PRODUCTS

FLEETS = Path(__file__).resolve().parents[1] / "fleets"
DRIVERS = ("nvidia", "nouveau", "none", *VFIO)
_FIELDS = {f.name for f in dataclasses.fields(NodeSpec)}
_SYSTEM_IMAGES = (
    "registry.k8s.io/kube-proxy:v1.36.3", "registry.k8s.io/coredns/coredns:v1.14.0", "registry.k8s.io/pause:3.10.2",
    "docker.io/calico/node:v3.31.2", "docker.io/calico/cni:v3.31.2",
)  # fmt: skip


class FleetError(ValueError):
    """A fleet file that says something impossible; the message names the group and the key."""


def path_of(name: str) -> Path:
    return Path(name) if "/" in name or name.endswith((".yaml", ".yml")) else FLEETS / f"{name}.yaml"


def load(name: str, nodes: int | None = None) -> list[NodeSpec]:
    """The nodes of a fleet. With ``nodes``, GPU groups are repeated in turn until there are that many nodes in all."""
    path = path_of(name)
    if not path.is_file():
        raise FleetError(f"no fleet {name!r}; there are: {', '.join(sorted(p.stem for p in FLEETS.glob('*.yaml')))}")
    data = yaml.safe_load(path.read_text())
    if not isinstance(data, dict) or set(data) - {"nodes"} or not data.get("nodes"):
        raise FleetError(f"{path}: one key, nodes, with a list of node groups is expected")
    groups = [_group(path, row) for row in data["nodes"]]
    plan: list[tuple[dict[str, Any], str]] = []
    for group in groups:
        plan += [(group, group["name"])] * group.pop("count")
    if nodes is not None:
        plan = _scaled(path, plan, nodes)
    used: dict[str, int] = {}
    out = []
    totals = {name: sum(1 for _unused, other in plan if other == name) for _unused2, name in plan}
    for group, pattern in plan:
        number = used.get(pattern, 0)
        used[pattern] = number + 1
        plain = pattern if totals[pattern] == 1 else f"{pattern}-{number}"
        own = pattern % number if "%" in pattern else plain
        out.append(NodeSpec(**{**group, "name": own}))
    return out


def _scaled(path: Path, plan: list[tuple[dict[str, Any], str]], nodes: int) -> list[tuple[dict[str, Any], str]]:
    gpu = [row for row in plan if row[0].get("gpus")]
    if not gpu:
        raise FleetError(f"{path}: there is no GPU node to repeat")
    if nodes <= len(plan):
        # Fewer than the file has: GPU nodes first, since that is what a fleet is for.
        return sorted(plan, key=lambda row: not row[0].get("gpus"))[:nodes]
    return plan + [gpu[i % len(gpu)] for i in range(nodes - len(plan))]


def _group(path: Path, row: dict[str, Any]) -> dict[str, Any]:
    where = f"{path}: node group {row.get('name', '(without name)')!r}"
    unknown = set(row) - _FIELDS - {"count"}
    if unknown:
        raise FleetError(
            f"{where}: unknown key {', '.join(sorted(unknown))}; known: {', '.join(sorted(_FIELDS | {'count'}))}"
        )
    if not isinstance(row.get("name"), str):
        raise FleetError(f"{where}: name is missing")
    group = {"count": 1, **row}
    if group.get("gpus") and group.get("product") not in PRODUCTS:
        raise FleetError(f"{where}: product {group.get('product')!r} is not one of {', '.join(PRODUCTS)}")
    if group.get("product") and not group.get("gpus"):
        raise FleetError(f"{where}: gpus is missing")
    group["others"] = tuple((str(name), int(count)) for name, count in (group.get("others") or {}).items())
    strange = [name for name, _count in group["others"] if name not in PRODUCTS]
    if strange:
        raise FleetError(f"{where}: others: {strange[0]!r} is not one of {', '.join(PRODUCTS)}")
    if group["others"] and not group.get("gpus"):
        raise FleetError(f"{where}: others come after gpus of a product, which are missing")
    product = PRODUCTS.get(group.get("product", ""))
    for instance in group.get("mig", ()):
        if product is None or product.profile(instance) is None:
            raise FleetError(f"{where}: {instance} is no MIG profile of {group.get('product')}")
    kind = group.get("distribution") or str(group.get("runtime", "containerd")).split(":", 1)[0]
    if kind not in RUNTIMES:
        raise FleetError(f"{where}: runtime or distribution {kind!r} is not one of {', '.join(RUNTIMES)}")
    _sandbox(where, group)
    group["mig"] = tuple(group.get("mig", ()))
    group["labels"] = tuple(sorted((str(k), str(v)) for k, v in (group.get("labels") or {}).items()))
    group["taints"] = tuple(
        tuple(sorted((str(k), str(v)) for k, v in taint.items())) for taint in group.get("taints") or ()
    )
    return group


def _sandbox(where: str, group: dict[str, Any]) -> None:
    """Keys of GPUs for virtual machines."""
    drivers = group.get("drivers", ())
    group["drivers"] = (drivers,) if isinstance(drivers, str) else tuple(drivers)
    there = group.get("gpus", 0) + sum(count for _name, count in group["others"])
    if len(group["drivers"]) not in (0, 1, there):
        raise FleetError(
            f"{where}: drivers: {len(group['drivers'])} names for {there} GPUs; one, or one for each, holds"
        )
    strange = [name for name in group["drivers"] if name not in DRIVERS]
    if strange:
        raise FleetError(f"{where}: drivers: {strange[0]!r} is not one of {', '.join(DRIVERS)}")
    if group.get("vgpu", "") not in ("", "mdev", "vfio"):
        raise FleetError(f"{where}: vgpu: {group['vgpu']!r} is not one of mdev, vfio")


def ip_of(number: int) -> str:
    return f"10.{number >> 16 & 0xFF}.{number >> 8 & 0xFF}.{number & 0xFF}"


_OS_IMAGE = {
    "ubuntu": "Ubuntu {} LTS", "rhel": "Red Hat Enterprise Linux {}", "rocky": "Rocky Linux {}",
    "debian": "Debian GNU/Linux {}",
    "sles": "SUSE Linux Enterprise Server {}",
}  # fmt: skip


def node_object(spec: NodeSpec, number: int) -> Object:
    """A Node as a kubelet registers it, in the size of a real one. No label of NFD or of NVIDIA is on it."""
    labels = {
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": spec.name,
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", **dict(spec.labels),
    }  # fmt: skip
    if spec.control_plane:
        labels["node-role.kubernetes.io/control-plane"] = ""
        labels["node.kubernetes.io/exclude-from-external-load-balancers"] = ""
    now = timestamp()
    conditions = [
        {
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }
        for kind, status, reason, message in (
            ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        )
    ]  # fmt: skip
    images = [
        {"names": [name, f"{name.split(':')[0]}@sha256:{i:064x}"], "sizeBytes": 10_000_000 + i}
        for i, name in enumerate(_SYSTEM_IMAGES)
    ]
    images += [
        {
            "names": [f"registry.example.com/team/app-{i}@sha256:{i:064x}", f"registry.example.com/team/app-{i}:1.{i}"],
            "sizeBytes": 90_000_000 - i,
        }
        for i in range(45)
    ]
    system = (
        re.sub(r" LTS$", "", _OS_IMAGE.get(spec.os_id, spec.os_id + " {}"))
        if spec.os_id != "ubuntu"
        else _OS_IMAGE["ubuntu"]
    )
    size = {
        "cpu": spec.cpu,
        "memory": spec.memory,
        "pods": spec.pods,
        "ephemeral-storage": "960Gi",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
    }
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": spec.name, "labels": labels,
            "annotations": {
                "kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {
            "podCIDR": f"10.{128 + (number >> 8 & 0x7F)}.{number & 0xFF}.0/24",
            **({"providerID": f"{spec.provider}://{spec.name}"} if spec.provider else {}),
            **({"taints": [dict(taint) for taint in spec.taints]} if spec.taints else {}),
        },
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": ip_of(number + 2)}, {"type": "Hostname", "address": spec.name},
            ],
            "capacity": size, "allocatable": size, "conditions": conditions, "images": images,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": system.format(spec.os_version),
                "kernelVersion": spec.kernel, "containerRuntimeVersion": spec.runtime, "kubeletVersion": spec.kubelet,
                "kubeProxyVersion": "", "machineID": f"{number:032x}",
                "systemUUID": f"{number:08x}-0000-4000-8000-000000000000",
                "bootID": f"{number:08x}-0000-4000-9000-000000000000",
            },
        },
    }  # fmt: skip
