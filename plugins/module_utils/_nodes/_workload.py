# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPUs of a node are for: containers, or virtual machines with whole GPUs or parts of them (SBX-01)."""

from __future__ import annotations

from typing import Dict, Mapping, Tuple

from .._policy._model import Policy
from ._keys import (
    CC_MODE,
    CONTAINER,
    CONTAINER_KEYS,
    DEPLOY,
    PASSTHROUGH,
    VGPU,
    VGPU_CONFIG,
    WORKLOAD_CONFIG,
    WORKLOADS,
)

MACHINE_KEYS = (VGPU_CONFIG, CC_MODE)  # labels whose managers change the GPUs of virtual machines
# Deploy labels of nodes whose GPUs are for virtual machines.
_PASSTHROUGH = ("sandbox-validator", "vfio-manager", "cc-manager", "client")
_VGPU = ("sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager", "sandbox-validator", "cc-manager", "client")
_PLUGINS = {"kubevirt": "sandbox-device-plugin", "kata": "kata-sandbox-device-plugin"}
_OF_CONTAINERS = tuple(key for key in CONTAINER_KEYS if key != DEPLOY + "client")
_OF_MACHINES = tuple(DEPLOY + key for key in sorted({*_PASSTHROUGH, *_VGPU, *_PLUGINS.values()} - {"client"}))
_OF_VGPUS, _OF_VFIO = (DEPLOY + "vgpu-manager", DEPLOY + "vgpu-device-manager"), (DEPLOY + "vfio-manager",)


def workload_of(policy: Policy, labels: Mapping[str, str]) -> str:
    """What a node is to serve: its label where that is one that it may have, else the policy's default."""
    sandbox = policy.sandbox_workloads
    if not sandbox.enabled:
        return CONTAINER
    said = labels.get(WORKLOAD_CONFIG, "")
    return said if said in possible(policy) else sandbox.default_workload


def possible(policy: Policy) -> Tuple[str, ...]:
    """Workloads that nodes may have: Kata's machines have whole GPUs only."""
    return WORKLOADS[:-1] if policy.sandbox_workloads.mode == "kata" else WORKLOADS


def keys_of(policy: Policy) -> Dict[str, Tuple[str, ...]]:
    """Deploy labels by workload."""
    plugin = _PLUGINS[policy.sandbox_workloads.mode]
    machines = {PASSTHROUGH: (plugin, *_PASSTHROUGH), VGPU: _VGPU}
    return {CONTAINER: CONTAINER_KEYS, **{name: tuple(DEPLOY + key for key in keys) for name, keys in machines.items()}}


def runs(labels: Mapping[str, str], key: str) -> bool:
    """Whether an operand is on a node by its deploy label, paused or not: "false" keeps it away."""
    return labels.get(key, "") not in ("", "false")


def served_now(labels: Mapping[str, str]) -> str:
    """The workload whose operands a node has now, by its deploy labels; "" while it has none.

    Most of them decide: a person may have set or removed one by hand, and "false" keeps an operand away.
    """

    def count(keys: Tuple[str, ...]) -> int:
        return sum(runs(labels, key) for key in keys)

    machines, containers = count(_OF_MACHINES), count(_OF_CONTAINERS)
    if machines <= containers:
        return CONTAINER if containers else ""
    return VGPU if count(_OF_VGPUS) > count(_OF_VFIO) else PASSTHROUGH


def for_machines(labels: Mapping[str, str]) -> bool:
    """Whether the operands that a node has now give its GPUs to virtual machines."""
    return served_now(labels) in (PASSTHROUGH, VGPU)
