# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device plugins of sandbox workloads (gpu-operator.md 7.8): GPUs that a VFIO driver has, and virtual GPUs.

Names of resources are from the programs' own sources: pkg/device_plugin/device_plugin.go of
github.com/NVIDIA/kubevirt-gpu-device-plugin makes them of pci.ids and of mdev_type/name; cmd/main.go of
github.com/NVIDIA/sandbox-device-plugin (Kata) calls every GPU ``pgpu`` unless P_GPU_ALIAS says otherwise, and takes the
names of pci.ids where that is empty. Both take GPUs with the driver vfio-pci alone.
"""

from __future__ import annotations

import re
from collections import Counter

from ..context import Crash, Ctx, Done, Up
from ..node import Gpu
from . import Program
from .device_plugin import SOCKETS, stop

P = "nvidia.com/"
GRACE = 300.0


def resource_of(name: str) -> str:
    """A name in pci.ids as a resource: ``GH100 [H100 SXM5 80GB]`` -> GH100_H100_SXM5_80GB."""
    return re.sub(r"[^A-Z0-9_]+", "", re.sub(r"\s+", "_", name.upper().replace("/", "_").replace(".", "_")))


def vgpu_resource(gpu: Gpu, kind: str) -> str:
    """What mdev_type/name says: types of GPUs before Ampere have another first word."""
    return f"{'NVIDIA' if gpu.product.virtual_functions else 'GRID'}_{kind}"


def kubevirt(c: Ctx) -> Up | Done:
    c.need_env("NODE_NAME", "the plugin must know its node")
    found = Counter(P + resource_of(gpu.product.pci_name) for gpu in _passed_through(c))
    found.update(P + vgpu_resource(gpu, kind) for gpu in c.node.gpus for kind in gpu.vgpus)
    c.need_mount("/dev/vfio", "groups of the IOMMU cannot be given to a virtual machine", host="/dev/vfio")
    return _offer(c, found)


def kata(c: Ctx) -> Up | Done:
    alias = c.env.get("P_GPU_ALIAS", "pgpu")
    c.need_mount("/var/run/cdi", "CDI specifications cannot be written", host="/var/run/cdi", writable=True)
    found = Counter(P + (alias or resource_of(gpu.product.pci_name)) for gpu in _passed_through(c))
    c.write(f"/var/run/cdi/nvidia.com-{alias or 'gpu'}.yaml", f"devices: {found.total()}")
    return _offer(c, found)


def _passed_through(c: Ctx) -> list[Gpu]:
    return [gpu for gpu in c.node.gpus if gpu.driver == "vfio-pci"]


def _offer(c: Ctx, found: Counter[str]) -> Up:
    """Devices are looked for once, when the plugin starts. What another plugin registered before stays as capacity of
    which nothing can be allocated, and counts nothing any more five minutes after that one went (the kubelet's
    endpointStopGracePeriod)."""
    host = f"{c.node.spec.kubelet_root}/device-plugins"
    c.need_mount(SOCKETS, "failed to dial /var/lib/kubelet/device-plugins/kubelet.sock", host=host, writable=True)
    if not c.container.privileged:
        raise Crash("permission denied: /var/lib/kubelet/device-plugins cannot be written")
    if "resources" not in c.mem:
        c.spend("Registered device plugin with kubelet", 2)
        c.mem["resources"] = dict(found)
    mine: dict[str, int] = c.mem["resources"]
    if c.node.plugin_uid != c.pod.uid:
        c.node.offered = {**c.node.offered, **mine}
        c.node.healthy = {**dict.fromkeys(c.node.offered, 0), **mine}
        c.node.plugin_uid = c.pod.uid
        c.mem["took_over"] = c.world.now()
        c.node.changed()
    if any(count for name, count in c.node.offered.items() if name not in mine):
        if c.world.now() - c.mem["took_over"] < c.world.scaled(GRACE):
            return Up(again=GRACE / 2)
        c.node.offered = {**dict.fromkeys(c.node.offered, 0), **mine}
        c.node.changed()
    return Up()


KUBEVIRT = Program(kubevirt, stop=stop)
KATA = Program(kata, stop=stop)
