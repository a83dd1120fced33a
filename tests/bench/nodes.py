# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node objects of the size of real ones: 50 images, all conditions, the labels of NFD and of GPU feature discovery.

About 20 KB of JSON each once the API server has added its managedFields.
"""

from __future__ import annotations

import hashlib
from typing import Any

FEATURE = "feature.node.kubernetes.io"
IMAGES = 50
WHEN = "2026-01-01T00:00:00Z"
CPUID = (
    "ADX", "AESNI", "AMXBF16", "AMXINT8", "AMXTILE", "AVX", "AVX2", "AVX512BF16", "AVX512BITALG", "AVX512BW",
    "AVX512CD", "AVX512DQ", "AVX512F", "AVX512FP16", "AVX512IFMA", "AVX512VBMI", "AVX512VBMI2", "AVX512VL",
    "AVX512VNNI", "AVX512VPOPCNTDQ", "AVXVNNI", "CMPXCHG8", "FMA3", "FSRM", "FXSR", "FXSROPT", "GFNI", "HLE",
    "HYPERVISOR", "IBPB", "LAHF", "MOVBE", "MOVDIR64B", "MOVDIRI", "OSXSAVE", "RTM", "SERIALIZE", "SHA",
    "SPEC_CTRL_SSBD", "STIBP", "SYSCALL", "SYSEE", "TSXLDTRK", "VAES", "VMX", "VPCLMULQDQ", "WBNOINVD", "X87",
    "XGETBV1", "XSAVE", "XSAVEC", "XSAVEOPT", "XSAVES",
)  # fmt: skip
CONDITIONS = (
    ("NetworkUnavailable", "False", "RouteCreated", "the network plugin has set up routes for the node"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def name_of(number: int) -> str:
    return f"gpu-{number:05d}"


def node(number: int) -> dict[str, Any]:
    """A GPU node of eight boards that NFD and GPU feature discovery have labelled, without labels of ours."""
    name = name_of(number)
    nfd = {
        **{f"{FEATURE}/cpu-cpuid.{word}": "true" for word in CPUID},
        f"{FEATURE}/cpu-hardware_multithreading": "true",
        f"{FEATURE}/cpu-model.family": "6",
        f"{FEATURE}/cpu-model.id": "143",
        f"{FEATURE}/cpu-model.vendor_id": "Intel",
        f"{FEATURE}/kernel-config.NO_HZ": "true",
        f"{FEATURE}/kernel-config.NO_HZ_FULL": "true",
        f"{FEATURE}/kernel-version.full": "6.8.0-60-generic",
        f"{FEATURE}/kernel-version.major": "6",
        f"{FEATURE}/kernel-version.minor": "8",
        f"{FEATURE}/kernel-version.revision": "0",
        f"{FEATURE}/memory-numa": "true",
        f"{FEATURE}/pci-10de.present": "true",
        f"{FEATURE}/pci-15b3.present": "true",
        f"{FEATURE}/rdma.available": "true",
        f"{FEATURE}/rdma.capable": "true",
        f"{FEATURE}/storage-nonrotationaldisk": "true",
        f"{FEATURE}/system-os_release.ID": "ubuntu",
        f"{FEATURE}/system-os_release.VERSION_ID": "24.04",
        f"{FEATURE}/system-os_release.VERSION_ID.major": "24",
        f"{FEATURE}/system-os_release.VERSION_ID.minor": "04",
    }
    gfd = {
        "nvidia.com/cuda.driver-version.full": "580.82.07",
        "nvidia.com/cuda.driver-version.major": "580",
        "nvidia.com/cuda.driver-version.minor": "82",
        "nvidia.com/cuda.driver-version.revision": "07",
        "nvidia.com/cuda.runtime-version.full": "13.0",
        "nvidia.com/gfd.timestamp": str(1767225600 + number),
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.machine": "PowerEdge-XE9680",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/vgpu.present": "false",
    }
    amounts = {"cpu": "224", "memory": "2113550636Ki", "ephemeral-storage": "1843269236Ki", "hugepages-1Gi": "0"}
    amounts |= {"hugepages-2Mi": "0", "pods": "110", "nvidia.com/gpu": "8"}
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "h100x8",
                "topology.kubernetes.io/region": "region-1",
                "topology.kubernetes.io/zone": f"zone-{number % 3}",
                **nfd,
                **gfd,
            },
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": f'{{"csi.example.com":"{name}"}}',
                "nfd.node.kubernetes.io/feature-labels": ",".join(key.split("/")[1] for key in nfd)
                + ","
                + ",".join(gfd),
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"podCIDR": f"10.200.{number % 250}.0/24", "providerID": f"example:///{name}"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [
                {"type": kind, "status": status, "reason": reason, "message": message,
                 "lastHeartbeatTime": WHEN, "lastTransitionTime": WHEN}
                for kind, status, reason, message in CONDITIONS
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": [_image(number) for number in range(IMAGES)],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "Ubuntu 24.04.3 LTS",
                "kernelVersion": "6.8.0-60-generic", "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.36.3", "kubeProxyVersion": "v1.36.3", "bootID": _digest(f"boot {name}")[:36],
                "machineID": _digest(name)[:32], "systemUUID": _digest(f"system {name}")[:36],
            },
        },
    }  # fmt: skip


def _image(number: int) -> dict[str, Any]:
    repository = f"registry.example.com/platform/component-{number:02d}"
    names = [f"{repository}@sha256:{_digest(repository)}", f"{repository}:v1.{number}.0"]
    return {"names": names, "sizeBytes": 900_000_000 - number * 10_000_000}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
