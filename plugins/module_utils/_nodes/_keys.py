# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels and annotations of nodes, by the names that the GPU Operator and its operands give them."""

from __future__ import annotations

FEATURE = "feature.node.kubernetes.io/"
PRESENT = "nvidia.com/gpu.present"
DEPLOY = "nvidia.com/gpu.deploy."
OPERANDS = DEPLOY + "operands"
MIG_MANAGER = DEPLOY + "mig-manager"
MIG_CONFIG = "nvidia.com/mig.config"
MIG_STATE = "nvidia.com/mig.config.state"
PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
WORKLOAD_CONFIG = "nvidia.com/gpu.workload.config"
UPGRADE_ENABLED = "nvidia.com/gpu-driver-upgrade-enabled"
ALL_DISABLED = "all-disabled"

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
# Keys of the operator's other stacks: sandbox workloads and DRA. gpu.deploy.dra-driver is not swept, because pods may
# hold claims of its driver.
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
OPERAND_KEYS = (MIG_STATE, "nvidia.com/gpu-driver-upgrade-state", DEPLOY + "nvsm")
