# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels and annotations of nodes, by the names that the GPU Operator and its operands give them, and what they say."""

from __future__ import annotations

import re
from typing import Mapping

FEATURE = "feature.node.kubernetes.io/"
PRESENT = "nvidia.com/gpu.present"
DEPLOY = "nvidia.com/gpu.deploy."
OPERANDS = DEPLOY + "operands"
MIG_MANAGER = DEPLOY + "mig-manager"
MIG_CONFIG = "nvidia.com/mig.config"
MIG_STATE = "nvidia.com/mig.config.state"
PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
WORKLOAD_CONFIG = "nvidia.com/gpu.workload.config"
# What the GPUs of a node are for: containers, virtual machines with whole GPUs, or with parts of them.
CONTAINER, PASSTHROUGH, VGPU = WORKLOADS = ("container", "vm-passthrough", "vm-vgpu")
# What starts a manager that changes GPUs of virtual machines.
VGPU_CONFIG, CC_MODE = "nvidia.com/vgpu.config", "nvidia.com/cc.mode"
UPGRADE_ENABLED = "nvidia.com/gpu-driver-upgrade-enabled"
ALL_DISABLED = "all-disabled"
# The taint of nodes on which the stack is not proved yet (_gate).
GATE = "gpufleet.io/not-ready"
GATE_EFFECT = "NoSchedule"

GPU_LABELS = tuple(f"{FEATURE}{device}.present" for device in ("pci-10de", "pci-0302_10de", "pci-0300_10de"))
CONTAINER_KEYS = tuple(
    DEPLOY + name
    for name in (
        "driver",
        "gpu-feature-discovery",
        "container-toolkit",
        "device-plugin",
        "dcgm",
        "dcgm-exporter",
        "node-status-exporter",
        "operator-validator",
        "client",
    )
)
# Keys of virtual machines (_workload), and of DRA. gpu.deploy.dra-driver is not swept, because pods may hold claims of
# its driver.
OTHER_KEYS = tuple(
    DEPLOY + name
    for name in (
        "sandbox-device-plugin",
        "kata-sandbox-device-plugin",
        "sandbox-validator",
        "vfio-manager",
        "kata-manager",
        "cc-manager",
        "vgpu-manager",
        "vgpu-device-manager",
        "dra-validator",
        "dcgm-dra",
        "dcgm-exporter-dra",
    )
)
# Written by operands while they run: nobody else's once the operands are gone.
OPERAND_KEYS = (
    MIG_STATE,
    "nvidia.com/vgpu.config.state",
    "nvidia.com/cc.mode.state",
    "nvidia.com/cc.ready.state",
    "nvidia.com/gpu-driver-upgrade-state",
    DEPLOY + "nvsm",
)
# Values of deploy labels while the managers of MIG, vGPUs and confidential computing change GPUs.
PAUSES = ("paused-for-mig-change", "paused-for-vgpu-change", "paused-for-cc-mode-change")

# Families that NVIDIA's MIG guide lists; products are the names that GPU feature discovery writes.
_MIG_PRODUCT = re.compile(
    r"(?:^|-)(?:A100X?|A800|A30X?|H100|H800|H20|H200|GH200|B200|B300|GB200|GB300"
    r"|RTX-PRO-(?:4500|5000|6000)-Blackwell)(?:-|$)",
    re.IGNORECASE,
)


def has_gpu(labels: Mapping[str, str]) -> bool:
    """Whether NFD has seen an NVIDIA GPU on the node."""
    return any(labels.get(key) == "true" for key in GPU_LABELS)


def has_features(labels: Mapping[str, str]) -> bool:
    """Whether NFD has labelled the node at all."""
    return any(key.startswith(FEATURE) for key in labels)


def mig_capable(labels: Mapping[str, str]) -> bool:
    """Whether the node's GPUs can be partitioned: by GPU feature discovery's word, else by the product's name."""
    if labels.get("nvidia.com/vgpu.host-driver-version"):
        return False
    said = labels.get("nvidia.com/mig.capable")
    if said is not None:
        return said == "true"
    return bool(_MIG_PRODUCT.search(labels.get("nvidia.com/gpu.product", "")))


def has_mig_devices(labels: Mapping[str, str]) -> bool:
    """Whether GPU feature discovery has seen MIG devices (it does not look with strategy none)."""
    if "-MIG-" in labels.get("nvidia.com/gpu.product", ""):
        return True
    return any(key.startswith("nvidia.com/mig-") and key.endswith(".count") for key in labels)


def serves(labels: Mapping[str, str], plugin: str = DEPLOY + "device-plugin") -> bool:
    """Whether a device plugin is to run on the node, now or as soon as a manager is done that paused it."""
    return labels.get(plugin) in ("true", *PAUSES)


def transient(value: str) -> bool:
    """A value of a deploy label that an operand gave it while it worked, not a person."""
    return value in ("", "pre-installed", *PAUSES) or value.endswith("paused-for-driver-upgrade")
