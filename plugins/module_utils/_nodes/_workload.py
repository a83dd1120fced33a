# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPUs of a node are for: containers, or virtual machines with whole GPUs or parts of them (SBX-01)."""

from __future__ import annotations

from typing import Dict, Mapping, Tuple

from .._policy._model import Policy
from ._keys import CONTAINER, CONTAINER_KEYS, DEPLOY, PASSTHROUGH, VGPU, WORKLOAD_CONFIG, WORKLOADS

# Deploy labels of nodes whose GPUs are for virtual machines.
_PASSTHROUGH = ("sandbox-validator", "vfio-manager", "cc-manager", "client")
_VGPU = ("sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager", "sandbox-validator", "cc-manager", "client")
_PLUGINS = {"kubevirt": "sandbox-device-plugin", "kata": "kata-sandbox-device-plugin"}


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


def served_now(labels: Mapping[str, str]) -> str:
    """The workload whose operands a node has now, by its deploy labels; "" while it has none."""
    marks = (("vgpu-manager", VGPU), ("sandbox-validator", PASSTHROUGH), ("operator-validator", CONTAINER))
    return next((workload for key, workload in marks if labels.get(DEPLOY + key)), "")


def for_machines(labels: Mapping[str, str]) -> bool:
    """Whether the operands that a node has now give its GPUs to virtual machines."""
    return served_now(labels) in (PASSTHROUGH, VGPU)
