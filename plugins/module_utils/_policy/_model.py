# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The typed, complete policy: what is wanted, whichever form the user wrote it in.

Names follow the keys of a ClusterPolicy (nvidia.com/v1) in snake case; values are complete (defaults and nil rules
applied). Blocks that Kubernetes defines (resources, tolerations, env items, probes) stay plain JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple

Json = Dict[str, Any]
Env = Tuple[Mapping[str, Any], ...]  # [{name, value}] or [{name, valueFrom}], in the user's order


@dataclass(frozen=True)
class Image:
    """An image as the policy names it, before the operating system's tag is appended."""

    repository: str = ""
    image: str = ""
    version: str = ""
    pull_policy: str = "IfNotPresent"
    pull_secrets: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Component:
    """Keys that every component shares. ``resources`` None: not given (an operand's own defaults apply)."""

    enabled: bool
    image: Image
    resources: Optional[Json] = None
    args: Tuple[str, ...] = ()
    env: Env = ()
    host_network: bool = False


@dataclass(frozen=True)
class NamedConfig:
    """A ConfigMap that a component reads. ``data`` is not None when we create it (values ``create`` and ``data``)."""

    name: str = ""
    default: str = ""
    data: Optional[Mapping[str, str]] = None


@dataclass(frozen=True)
class ServiceMonitor:
    enabled: bool = False
    interval: str = ""
    scrape_timeout: str = ""
    honor_labels: bool = False
    additional_labels: Mapping[str, str] = field(default_factory=dict)
    relabelings: Tuple[Json, ...] = ()


@dataclass(frozen=True)
class HostPaths:
    root_fs: str = "/"
    driver_install_dir: str = "/run/nvidia/driver"
    kubelet_root_dir: str = "/var/lib/kubelet"


@dataclass(frozen=True)
class DaemonSets:
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    tolerations: Tuple[Json, ...]
    priority_class_name: str
    update_strategy: str  # RollingUpdate, OnDelete
    max_unavailable: str  # number or percentage, as a string
    pod_security_context: Optional[Json] = None
    container_resources: Mapping[str, Json] = field(default_factory=dict)  # by the name of a container


@dataclass(frozen=True)
class Operator:
    runtime_class: str
    service_monitor: ServiceMonitor


@dataclass(frozen=True)
class Validator:
    """The validator's image, and env of the init container of each part (plugin, cuda, driver, toolkit, ...)."""

    image: Image
    resources: Optional[Json] = None
    args: Tuple[str, ...] = ()
    env: Env = ()
    host_network: bool = False
    plugin_env: Env = ()
    cuda_env: Env = ()
    driver_env: Env = ()
    toolkit_env: Env = ()
    vfio_pci_env: Env = ()
    vgpu_manager_env: Env = ()
    vgpu_devices_env: Env = ()


@dataclass(frozen=True)
class Rdma:
    enabled: bool = False
    use_host_mofed: bool = False


@dataclass(frozen=True)
class Licensing:
    secret_name: str = ""
    config_map_name: str = ""  # deprecated, still works; the Secret wins
    nls_enabled: bool = False


@dataclass(frozen=True)
class DriverManager:
    image: Image
    env: Env = ()


@dataclass(frozen=True)
class PodDeletion:
    force: bool = False
    timeout_seconds: int = 300
    delete_empty_dir: bool = False


@dataclass(frozen=True)
class Drain:
    enable: bool = False
    force: bool = False
    pod_selector: str = ""
    timeout_seconds: int = 300
    delete_empty_dir: bool = False


@dataclass(frozen=True)
class UpgradePolicy:
    auto_upgrade: bool
    max_parallel_upgrades: int = 1
    max_unavailable: str = "25%"
    wait_pod_selector: str = ""
    wait_timeout_seconds: int = 0
    pod_deletion: PodDeletion = field(default_factory=PodDeletion)
    drain: Drain = field(default_factory=Drain)


@dataclass(frozen=True)
class Driver(Component):
    manager: DriverManager = field(default_factory=lambda: DriverManager(Image()))
    use_nvidia_driver_crd: bool = False
    kernel_module_type: str = "auto"  # auto, open, proprietary
    use_precompiled: bool = False
    startup_probe: Optional[Json] = None
    liveness_probe: Optional[Json] = None
    readiness_probe: Optional[Json] = None
    rdma: Rdma = field(default_factory=Rdma)
    repo_config: str = ""  # name of a ConfigMap
    cert_config: str = ""  # name of a ConfigMap
    kernel_module_config: str = ""  # name of a ConfigMap
    licensing: Licensing = field(default_factory=Licensing)
    virtual_topology_config: str = ""  # name of a ConfigMap
    secret_env: str = ""  # name of a Secret
    upgrade_policy: UpgradePolicy = field(default_factory=lambda: UpgradePolicy(False))


@dataclass(frozen=True)
class Toolkit(Component):
    install_dir: str = "/usr/local/nvidia"


@dataclass(frozen=True)
class DevicePlugin(Component):
    config: NamedConfig = field(default_factory=NamedConfig)
    mps_root: str = "/run/nvidia/mps"


@dataclass(frozen=True)
class DcgmExporter(Component):
    annotations: Mapping[str, str] = field(default_factory=dict)
    config: NamedConfig = field(default_factory=NamedConfig)
    service_type: str = ""
    service_internal_traffic_policy: str = ""
    service_monitor: ServiceMonitor = field(default_factory=ServiceMonitor)
    host_pid: bool = False
    hpc_job_mapping: bool = False
    hpc_job_mapping_directory: str = "/var/lib/dcgm-exporter/job-mapping"
    enable_pod_labels: bool = False
    enable_pod_uid: bool = False
    pod_label_allowlist_regex: Tuple[str, ...] = ()


@dataclass(frozen=True)
class MigManager(Component):
    config: NamedConfig = field(default_factory=NamedConfig)
    gpu_clients_config: NamedConfig = field(default_factory=NamedConfig)


@dataclass(frozen=True)
class SandboxWorkloads:
    """GPUs for virtual machines. ``default_workload``: of nodes whose label does not say it."""

    enabled: bool = False
    default_workload: str = "container"  # container, vm-passthrough, vm-vgpu
    mode: str = "kubevirt"  # kubevirt, kata


@dataclass(frozen=True)
class VfioManager(Component):
    driver_manager: DriverManager = field(default_factory=lambda: DriverManager(Image()))


@dataclass(frozen=True)
class VgpuManager(VfioManager):
    kernel_module_config: str = ""  # name of a ConfigMap


@dataclass(frozen=True)
class VgpuDeviceManager(Component):
    config: NamedConfig = field(default_factory=NamedConfig)


@dataclass(frozen=True)
class CcManager(Component):
    default_mode: str = "on"  # on, off, devtools


@dataclass(frozen=True)
class CudaToolkit:
    """``cuda``: the version that its image holds. ``install_dir``: folder of the host, one folder in it a version."""

    enabled: bool
    image: Image
    cuda: str = ""
    install_dir: str = "/usr/local/nvidia/cuda"
    resources: Optional[Json] = None


@dataclass(frozen=True)
class Nfd:
    """Node Feature Discovery. ``values`` are the subchart's (node-feature-discovery.*), complete with defaults."""

    enabled: bool
    node_feature_rules: bool
    values: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """What is wanted of one cluster."""

    operator: Operator
    daemonsets: DaemonSets
    host_paths: HostPaths
    validator: Validator
    driver: Driver
    toolkit: Toolkit
    device_plugin: DevicePlugin
    dcgm: Component
    dcgm_exporter: DcgmExporter
    gfd: Component
    mig_manager: MigManager
    node_status_exporter: Component
    gds: Component
    gdrcopy: Component
    nfd: Nfd
    cuda_toolkit: CudaToolkit = field(default_factory=lambda: CudaToolkit(False, Image()))
    sandbox_workloads: SandboxWorkloads = field(default_factory=SandboxWorkloads)
    vgpu_manager: VgpuManager = field(default_factory=lambda: VgpuManager(False, Image()))
    vgpu_device_manager: VgpuDeviceManager = field(default_factory=lambda: VgpuDeviceManager(False, Image()))
    vfio_manager: VfioManager = field(default_factory=lambda: VfioManager(False, Image()))
    sandbox_device_plugin: Component = field(default_factory=lambda: Component(False, Image()))
    kata_sandbox_device_plugin: Component = field(default_factory=lambda: Component(False, Image()))
    cc_manager: CcManager = field(default_factory=lambda: CcManager(False, Image()))
    mig_strategy: str = "single"  # none, single, mixed
    psa_enabled: bool = False
    cdi_enabled: bool = True
    nri_enabled: bool = False
    extra_objects: Tuple[Json, ...] = ()
    release: str = ""  # release of the GPU Operator whose versions are the defaults
