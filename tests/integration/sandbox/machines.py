# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Policies for virtual machines, and what the tests look at."""

from __future__ import annotations

import json
from typing import Any

WORKLOAD = "nvidia.com/gpu.workload.config"
DEPLOY = "nvidia.com/gpu.deploy."
BOX, PASS, VGPU, CC = "box", "vm-pass", "vm-vgpu", "vm-cc"
ON = {"enabled": True}
VGPU_MANAGER = {**ON, "repository": "registry.example.com/nvidia", "image": "vgpu-manager", "version": "595.91.03"}
KUBEVIRT = {
    "sandboxWorkloads": ON, "vfioManager": ON, "sandboxDevicePlugin": ON, "vgpuManager": VGPU_MANAGER,
    "vgpuDeviceManager": ON,
}  # fmt: skip
KATA = {
    "sandboxWorkloads": {**ON, "mode": "kata"}, "vfioManager": ON, "kataSandboxDevicePlugin": ON, "ccManager": ON,
}  # fmt: skip
H100, A10_HALF = "nvidia.com/GH100_H100_SXM5_80GB", "nvidia.com/NVIDIA_A10-12Q"
CONTAINER_KEYS = {
    "driver", "gpu-feature-discovery", "container-toolkit", "device-plugin", "dcgm", "dcgm-exporter",
    "node-status-exporter", "operator-validator", "client",
}  # fmt: skip
PASSTHROUGH_KEYS = {
    "sandbox-device-plugin",
    "sandbox-validator",
    "vfio-manager",
    "kata-manager",
    "cc-manager",
    "client",
}
VGPU_KEYS = {
    "sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager", "sandbox-validator", "cc-manager", "client",
}  # fmt: skip


def serve(fleet: Any, **workloads: str | None) -> None:
    """Say what nodes are for (``_`` for ``-`` in their names); None takes the label away."""
    for name, workload in workloads.items():
        label = f"{WORKLOAD}={workload}" if workload else f"{WORKLOAD}-"
        fleet.kubectl("label", "node", name.replace("_", "-"), "--overwrite", label, user="admin")


def labels(fleet: Any, name: str) -> dict[str, str]:
    return dict(fleet.get("Node", name, namespace="")["metadata"]["labels"])


def deploy_keys(fleet: Any, name: str) -> set[str]:
    """Operands that a node's labels ask for, without the MIG manager and what that writes (nvsm)."""
    found = {key.removeprefix(DEPLOY) for key, value in labels(fleet, name).items() if key.startswith(DEPLOY) and value}
    return found - {"mig-manager", "nvsm"}


def offers(fleet: Any, name: str) -> dict[str, str]:
    """NVIDIA's resources of which the node has some to give."""
    there = fleet.get("Node", name, namespace="")["status"]["allocatable"]
    return {key: count for key, count in there.items() if key.startswith("nvidia.com/") and count != "0"}


def apps(fleet: Any, name: str) -> set[str]:
    """Operands that have a pod on the node; not what the validator of containers made there and left."""
    listed = fleet.kubectl("get", "pods", "-n", fleet.namespace, "-o", "json", f"--field-selector=spec.nodeName={name}")
    owners = [ref for pod in json.loads(listed)["items"] for ref in pod["metadata"].get("ownerReferences", [])]
    return {
        ref["name"]
        for ref in owners
        if ref.get("controller") and ref["kind"] == "DaemonSet" and "node-feature" not in ref["name"]
    }


def host(fleet: Any, name: str) -> tuple[set[str], list[str]]:
    """Status files on the host, and what has each of its GPUs."""
    told = fleet.practice.hosts()[name]
    return set(told["files"]), [gpu["driver"] for gpu in told["gpus"]]


def pod(name: str, node: str, resource: str) -> str:
    """A bare pod that holds one of a resource on a node."""
    container = {"name": "c", "image": "example.com/c:1", "resources": {"limits": {resource: "1"}}}
    return json.dumps(
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "containers": [container], "tolerations": [{"operator": "Exists"}],
                "nodeSelector": {"kubernetes.io/hostname": node},
            },
        }
    )  # fmt: skip


def row(done: dict[str, Any], name: str) -> dict[str, Any]:
    """A node's row of a run's table."""
    return next(one for one in done["found"]["nodes"] if one["name"] == name)
