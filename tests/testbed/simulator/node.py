# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""State of one simulated GPU node: hardware, kernel modules, driver, container runtime, and what the kubelet offers."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from typing import Any

from .nodefs import NodeFS, normal
from .products import PRODUCTS, Product

Object = dict[str, Any]
VALIDATIONS = "/run/nvidia/validations"

# Where each runtime reads its configuration, and where its socket is. Distributions of Kubernetes that bring their own
# containerd have their own places (k3s, RKE2 and MicroK8s render a template).
RUNTIMES = {
    "containerd": {"config": "/etc/containerd/config.toml", "socket": "/run/containerd/containerd.sock"},
    "k3s": {
        "config": "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl",
        "socket": "/run/k3s/containerd/containerd.sock",
    },
    "rke2": {
        "config": "/var/lib/rancher/rke2/agent/etc/containerd/config.toml.tmpl",
        "socket": "/run/k3s/containerd/containerd.sock",
    },
    "microk8s": {
        "config": "/var/snap/microk8s/current/args/containerd-template.toml",
        "socket": "/var/snap/microk8s/common/run/containerd.sock",
    },
    "docker": {"config": "/etc/docker/daemon.json", "socket": "/run/docker.sock"},
    "cri-o": {"config": "/etc/crio/config.toml", "socket": "/run/crio/crio.sock"},
}


# Drivers that hand a GPU to virtual machines. Grace has one of its own.
VFIO = ("vfio-pci", "nvgrace_gpu_vfio_pci")


@dataclass
class Gpu:
    index: int
    uuid: str
    product: Product
    mig_enabled: bool = False
    instances: list[str] = field(default_factory=list)
    driver: str = ""  # what /sys/bus/pci/devices/ADDRESS/driver leads to, "" for nothing
    vfs: int = 0  # virtual functions that are enabled (sriov_numvfs)
    vgpus: list[str] = field(default_factory=list)  # types of the virtual GPUs that exist on it: A10-12Q
    cc: str = "off"  # mode of confidential computing: on, off, devtools

    @property
    def address(self) -> str:
        return f"0000:{0x17 + self.index:02x}:00.0"

    @property
    def vfio_driver(self) -> str:
        """The best VFIO driver for this GPU, as vfio-manage finds it in modules.alias (7.8)."""
        return VFIO[1] if self.product.name.startswith("NVIDIA GH200") else VFIO[0]


@dataclass(frozen=True)
class NodeSpec:
    """A node as the fleet file describes it."""

    name: str
    product: str = ""
    gpus: int = 0
    others: tuple[tuple[str, int], ...] = ()  # GPUs of other products, after those: product and how many
    os: str = "ubuntu24.04"
    kernel: str = "6.8.0-60-generic"
    runtime: str = "containerd://2.2.3"
    distribution: str = ""  # k3s, rke2, microk8s: where the runtime's files are
    kubelet: str = "v1.36.3"
    kubelet_root: str = "/var/lib/kubelet"  # --root-dir of the kubelet
    nvswitch: bool = False
    mellanox: bool = False
    subscribed: bool = True  # RHEL, SLES: the host is registered with its vendor
    host_driver: str = ""  # version of a driver that the image of the node brings
    driver_folder: str = ""  # where that driver is, when it is not in /usr (GKE's Container-Optimized OS)
    own_plugin: bool = False  # the image of the node brings the device plugin, outside Kubernetes (Bottlerocket)
    handler: str = "nvidia"  # what the image of the node calls its runtime handler
    host_toolkit: bool = False  # the image of the node brings the container toolkit, its runtime handler set up
    mig: tuple[str, ...] = ()  # MIG instances that exist already, on every GPU
    drivers: tuple[str, ...] = ()  # what each GPU is bound to at first, "none" for nothing; one name holds for all
    iommu: bool = True  # the IOMMU is on: without it no GPU can be bound to a VFIO driver
    vgpu: str = ""  # how the host driver for virtual machines shows virtual GPUs: mdev, or vfio (SR-IOV without mdev)
    cc: bool = False  # the CPU can do confidential computing, and the administrator's file for NFD says so
    control_plane: bool = False
    taints: tuple[tuple[tuple[str, str], ...], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    cpu: str = "64"
    memory: str = "515842Mi"
    pods: str = "110"
    cpu_vendor: str = "Intel"
    provider: str = ""

    @property
    def runtime_name(self) -> str:
        return self.runtime.split(":", 1)[0]

    @property
    def os_id(self) -> str:
        return self.os.rstrip("0123456789.")

    @property
    def os_version(self) -> str:
        return self.os[len(self.os_id) :]

    @property
    def os_tag(self) -> str:
        """What driver images of this system are tagged with; only the major version on RHEL and its kin."""
        version = self.os_version.split(".")[0] if self.os_id in ("rhel", "rocky", "ol") else self.os_version
        return self.os_id + version

    @property
    def paths(self) -> dict[str, str]:
        return RUNTIMES[self.distribution or self.runtime_name]


# Files of a host that is registered with its vendor: driver containers mount them to reach packages (3.6).
SUBSCRIPTIONS = {
    "rhel": {"/etc/pki/entitlement/1.pem": "", "/etc/yum.repos.d/redhat.repo": "", "/etc/rhsm/rhsm.conf": ""},
    "sles": {"/etc/zypp/credentials.d/SCCcredentials": "", "/etc/SUSEConnect": ""},
}
OS_NAMES = {
    "ubuntu": "Ubuntu",
    "rhel": "Red Hat Enterprise Linux",
    "rocky": "Rocky Linux",
    "debian": "Debian GNU/Linux",
    "sles": "SLES",
}


def _gpus(spec: NodeSpec) -> list[Gpu]:
    kinds = ((spec.product, spec.gpus), *spec.others) if spec.product else ()
    products = [PRODUCTS[name] for name, count in kinds for _one in range(count)]
    space = uuid.uuid5(uuid.NAMESPACE_DNS, spec.name)
    usual = "nvidia" if spec.host_driver else "nouveau"
    drivers = spec.drivers * len(products) if len(spec.drivers) == 1 else spec.drivers or (usual,) * len(products)
    gpus = [Gpu(i, f"GPU-{uuid.uuid5(space, str(i))}", product) for i, product in enumerate(products)]
    for gpu, driver in zip(gpus, drivers, strict=True):
        gpu.driver = "" if driver == "none" else driver
    for gpu in gpus[: spec.gpus]:
        gpu.mig_enabled, gpu.instances = bool(spec.mig), list(spec.mig)
    return gpus


class Node:
    """What is true on one host. Steps of pods change it under ``lock``; every change raises ``version``."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.lock = threading.RLock()
        self.version = 0
        self.labels: dict[str, str] = dict(spec.labels)
        self.obj: Object = {}
        self.gpus = _gpus(spec)
        self.modules: set[str] = {"overlay", "br_netfilter", "nf_conntrack"}
        if spec.gpus and not spec.host_driver:
            self.modules.add("nouveau")
        if spec.mellanox:
            self.modules.add("mlx5_core")
        paths = spec.paths
        extra = {"/run/mellanox/drivers/.driver-ready": ""} if spec.mellanox else {}
        if spec.cc:
            extra["/etc/kubernetes/node-feature-discovery/features.d/cc"] = "nvidia.com/cc.capable=true\n"
        if spec.subscribed:
            extra |= SUBSCRIPTIONS.get(spec.os_id, {})
        os_release = (
            f'ID="{spec.os_id}"\nVERSION_ID="{spec.os_version}"\nNAME="{OS_NAMES.get(spec.os_id, spec.os_id)}"\n'
        )
        self.fs = NodeFS(
            files={
                "/etc/os-release": os_release,
                paths["config"]: "",
                paths["socket"]: "",
                f"/boot/config-{spec.kernel}": "",
                **extra,
            }
        )
        self.handlers: dict[str, str] = {"runc": "/usr/bin/runc"}
        self.default_handler = "runc"
        self.nri = False  # the toolkit's NRI plugin runs
        self.cdi_kinds: set[str] = set()
        self.driver_version = spec.host_driver  # of the loaded module
        self.driver_digest = ""  # what the driver container noted in /run/nvidia/nvidia-driver.state
        self.driver_root = ""  # host path where a container's driver is mounted
        self.images: set[str] = set()
        self.plugin_uid = ""
        self.offered: dict[
            str, int
        ] = {}  # resources that the device plugin registered, and how many of each are healthy
        self.healthy: dict[str, int] = {}
        self.mps_ready: set[str] = set()
        self.hurt: list[str] = []  # pods of virtual machines that a GPU was taken from
        self._of_the_host()

    def _of_the_host(self) -> None:
        """What the image of the node brings along."""
        spec = self.spec
        if spec.host_driver:
            self.load("nvidia", "nvidia_uvm", "nvidia_modeset", version=spec.host_driver)
            self.fs.write(
                f"{spec.driver_folder}/bin/nvidia-smi" if spec.driver_folder else "/usr/bin/nvidia-smi", "elf"
            )
            self.driver_root = spec.driver_folder
            if spec.vgpu:
                self.load("nvidia_vgpu_vfio")
                self.enable_vfs()
        if spec.own_plugin:
            self.plugin_uid = "the host's own"
            self.offered = {"nvidia.com/gpu": len(self.gpus)}
            self.healthy = dict(self.offered)
        if spec.host_toolkit:
            for handler in (spec.handler, f"{spec.handler}-cdi", f"{spec.handler}-legacy"):
                self.handlers[handler] = "/usr/bin/nvidia-container-runtime"
            self.fs.write("/usr/bin/nvidia-container-runtime", "elf")
            self.cdi_kinds.add("management.nvidia.com/gpu")

    # -- facts that several operands ask for

    @property
    def runtime(self) -> str:
        return self.spec.runtime_name

    @property
    def host_driver(self) -> bool:
        """A driver that the host brings: nvidia-smi below / runs (6.1, driver check, step 2)."""
        return bool(self.spec.host_driver) and self.fs.exists("/usr/bin/nvidia-smi")

    @property
    def driver_loaded(self) -> bool:
        return "nvidia" in self.modules

    @property
    def mig_capable(self) -> bool:
        return any(g.product.mig_capable for g in self.gpus)

    def changed(self) -> None:
        self.version += 1

    def load(self, *modules: str, version: str = "") -> None:
        self.modules.update(modules)
        if version:
            self.driver_version = version
        if "nvidia" in modules:
            self.fs.write("/sys/module/nvidia/refcnt", "0\n")
            for gpu in self.gpus:
                gpu.driver = gpu.driver or "nvidia"  # the kernel offers a new driver the devices that have none
                if gpu.driver == "nvidia":
                    self.fs.write(f"/dev/nvidia{gpu.index}", "")
            self.fs.write("/dev/nvidiactl", "")
        self.changed()

    def unload_driver(self) -> None:
        self.modules -= {
            "nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_peermem", "nvidia_fs", "nvidia_vgpu_vfio", "gdrdrv",
        }  # fmt: skip
        self.driver_version = ""
        self.fs.remove("/sys/module/nvidia/refcnt")
        for gpu in self.gpus:  # instances never outlive a reload; the mode does on Ampere (1.17)
            gpu.instances.clear()
            gpu.vgpus.clear()
            gpu.vfs = 0
            gpu.driver = "" if gpu.driver == "nvidia" else gpu.driver
            gpu.mig_enabled = gpu.mig_enabled and gpu.product.mig_needs_reset
        self.changed()

    def unload_nouveau(self) -> None:
        self.modules.discard("nouveau")
        for gpu in self.gpus:
            gpu.driver = "" if gpu.driver == "nouveau" else gpu.driver

    def unbind_vfio(self) -> None:
        """What ``vfio-manage unbind --all`` does to GPUs that a VFIO driver has."""
        for gpu in self.gpus:
            gpu.driver = "" if gpu.driver in VFIO else gpu.driver
        self.changed()

    def enable_vfs(self) -> None:
        """Every virtual function of the GPUs that have some (Ampere and later)."""
        for gpu in self.gpus:
            if gpu.driver == "nvidia":
                gpu.vfs = gpu.product.virtual_functions
        self.changed()

    @property
    def mdev_parents(self) -> list[Gpu]:
        """GPUs of which /sys/class/mdev_bus shows something: the GPU itself, or its virtual functions."""
        if self.spec.vgpu != "mdev" or "nvidia_vgpu_vfio" not in self.modules:
            return []
        return [g for g in self.gpus if g.driver == "nvidia" and (g.vfs or not g.product.virtual_functions)]

    def write(self, path: str, text: str) -> None:
        if self.fs.write(path, text):
            self.changed()

    def remove(self, path: str) -> None:
        if self.fs.remove(path):
            self.changed()

    def reads_config(self, path: str) -> bool:
        return normal(path) == normal(self.spec.paths["config"])
