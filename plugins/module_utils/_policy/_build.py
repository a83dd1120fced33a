# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the value of every key to the typed policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .._matrix import RELEASES
from .._plan import ERROR, Finding
from . import _model as m
from ._cuda import IMAGE, REPOSITORY, cuda_of, newest_for, tag_of
from ._read import Values
from ._rules import runs
from ._tree import put

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
CSV_KEY = "dcgm-metrics.csv"


def build(values: Values, release: str, extra_objects: Tuple[m.Json, ...] = ()) -> Tuple[m.Policy, List[Finding]]:
    """The policy, and findings about images that are named only in part."""
    made = _Builder(values, release)
    return made.policy(extra_objects), made.findings


class _Builder:
    def __init__(self, values: Values, release: str) -> None:
        self.values = values
        self.release = release
        self.findings: List[Finding] = []

    def get(self, path: str) -> Any:
        return self.values[path]

    def text(self, path: str) -> str:
        value = self.values[path]
        return "" if value is None else str(value)

    def flag(self, path: str) -> bool:
        return bool(self.values[path])

    def texts(self, path: str) -> Tuple[str, ...]:
        return tuple(self.values[path] or ())

    def env(self, path: str) -> m.Env:
        return tuple(
            {"name": item["name"], "valueFrom": item["valueFrom"]}
            if item.get("valueFrom")
            else {"name": item["name"], "value": item.get("value", "")}
            for item in self.values[path] or ()
        )

    def image(self, component: str, named: bool = True) -> m.Image:
        """The image of a component (IMG-01): its own three keys, else the release's; named only in part is an error."""
        repository, image, version = (self.text(f"{component}.{part}") for part in ("repository", "image", "version"))
        if not named:
            repository = image = version = ""
        elif not (repository or image or version):
            repository, image, version = RELEASES[self.release].images.get(component, ("", "", ""))
            if not image:
                self._complain(component, f"has no image: that of release {self.release} is not known here.")
        elif (repository or version) and not (repository and image and version):
            parts = {"repository": repository, "image": image, "version": version}
            there = " and ".join(f"{name} ({value})" for name, value in parts.items() if value)
            missing = " and ".join(name for name, value in parts.items() if not value)
            self._complain(component, f"names its image only in part: {there} without {missing}.")
        policy = self.text(f"{component}.imagePullPolicy")
        return m.Image(
            repository=repository,
            image=image,
            version=version,
            pull_policy=policy if policy in PULL_POLICIES else "IfNotPresent",
            pull_secrets=tuple(dict.fromkeys(self.texts(f"{component}.imagePullSecrets"))),
        )

    def _complain(self, component: str, detail: str) -> None:
        """An error where the image is needed; nothing where its component is off."""
        if runs(self.values, component.split(".")[0]):
            remedy = "Give repository, image and version; or image alone, whole; or none of them for the release's."
            self.findings.append(Finding("policy.image", ERROR, detail, path=component, remedy=remedy))

    def resources(self, component: str) -> Optional[m.Json]:
        return self.values[f"{component}.resources"]  # type: ignore[no-any-return]

    def common(self, name: str) -> Dict[str, Any]:
        return {
            "image": self.image(name),
            "resources": self.resources(name),
            "args": self.texts(f"{name}.args"),
            "env": self.env(f"{name}.env"),
            "host_network": self.flag(f"{name}.hostNetwork"),
        }

    def shared(self, name: str) -> Dict[str, Any]:
        return dict(self.common(name), enabled=self.flag(f"{name}.enabled"))

    def component(self, name: str) -> m.Component:
        return m.Component(**self.shared(name))

    def service_monitor(self, path: str) -> m.ServiceMonitor:
        return m.ServiceMonitor(
            enabled=self.flag(f"{path}.enabled"),
            interval=self.text(f"{path}.interval"),
            scrape_timeout=self.text(f"{path}.scrapeTimeout"),
            honor_labels=self.flag(f"{path}.honorLabels"),
            additional_labels=dict(self.get(f"{path}.additionalLabels") or {}),
            relabelings=tuple(self.get(f"{path}.relabelings") or ()),
        )

    def config(self, path: str, default: str = "") -> m.NamedConfig:
        data: Optional[Mapping[str, str]] = None
        if self.flag(f"{path}.create"):
            given = self.get(f"{path}.data") or {}
            data = {CSV_KEY: given} if isinstance(given, str) else dict(given)
        return m.NamedConfig(name=self.text(f"{path}.name"), default=default, data=data)

    def probe(self, path: str) -> Optional[m.Json]:
        names = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
        given = {name: self.get(f"{path}.{name}") for name in names}
        return {name: value for name, value in given.items() if value} or None

    def validator(self) -> m.Validator:
        return m.Validator(
            **self.common("validator"),
            plugin_env=self.env("validator.plugin.env"),
            cuda_env=self.env("validator.cuda.env"),
            driver_env=self.env("validator.driver.env"),
            toolkit_env=self.env("validator.toolkit.env"),
            vfio_pci_env=self.env("validator.vfioPCI.env"),
            vgpu_manager_env=self.env("validator.vgpuManager.env"),
            vgpu_devices_env=self.env("validator.vgpuDevices.env"),
        )

    def upgrade_policy(self) -> m.UpgradePolicy:
        p = "driver.upgradePolicy"
        return m.UpgradePolicy(
            auto_upgrade=self.flag(f"{p}.autoUpgrade"),
            max_parallel_upgrades=self.get(f"{p}.maxParallelUpgrades"),
            max_unavailable=self.text(f"{p}.maxUnavailable"),
            wait_pod_selector=self.text(f"{p}.waitForCompletion.podSelector"),
            wait_timeout_seconds=self.get(f"{p}.waitForCompletion.timeoutSeconds"),
            pod_deletion=m.PodDeletion(
                force=self.flag(f"{p}.gpuPodDeletion.force"),
                timeout_seconds=self.get(f"{p}.gpuPodDeletion.timeoutSeconds"),
                delete_empty_dir=self.flag(f"{p}.gpuPodDeletion.deleteEmptyDir"),
            ),
            drain=m.Drain(
                enable=self.flag(f"{p}.drain.enable"),
                force=self.flag(f"{p}.drain.force"),
                pod_selector=self.text(f"{p}.drain.podSelector"),
                timeout_seconds=self.get(f"{p}.drain.timeoutSeconds"),
                delete_empty_dir=self.flag(f"{p}.drain.deleteEmptyDir"),
            ),
        )

    def driver(self) -> m.Driver:
        return m.Driver(
            **self.shared("driver"),
            manager=self.driver_manager("driver.manager"),
            kernel_module_type=self.text("driver.kernelModuleType"),
            use_precompiled=self.flag("driver.usePrecompiled"),
            startup_probe=self.probe("driver.startupProbe"),
            liveness_probe=self.probe("driver.livenessProbe"),
            readiness_probe=self.probe("driver.readinessProbe"),
            rdma=m.Rdma(enabled=self.flag("driver.rdma.enabled"), use_host_mofed=self.flag("driver.rdma.useHostMofed")),
            repo_config=self.text("driver.repoConfig.configMapName"),
            cert_config=self.text("driver.certConfig.name"),
            kernel_module_config=self.text("driver.kernelModuleConfig.name"),
            licensing=m.Licensing(
                secret_name=self.text("driver.licensingConfig.secretName"),
                config_map_name=self.text("driver.licensingConfig.configMapName"),
                nls_enabled=self.flag("driver.licensingConfig.nlsEnabled"),
            ),
            virtual_topology_config=self.text("driver.virtualTopology.config"),
            secret_env=self.text("driver.secretEnv"),
            upgrade_policy=self.upgrade_policy(),
        )

    def driver_manager(self, path: str) -> m.DriverManager:
        return m.DriverManager(image=self.image(path), env=self.env(f"{path}.env"))

    def sandbox(self) -> Dict[str, Any]:
        """What gives GPUs to virtual machines, by the names of the policy's fields."""
        return {
            "sandbox_workloads": m.SandboxWorkloads(
                enabled=self.flag("sandboxWorkloads.enabled"),
                default_workload=self.text("sandboxWorkloads.defaultWorkload"),
                mode=self.text("sandboxWorkloads.mode"),
            ),
            "vgpu_manager": m.VgpuManager(
                **self.shared("vgpuManager"),
                driver_manager=self.driver_manager("vgpuManager.driverManager"),
                kernel_module_config=self.text("vgpuManager.kernelModuleConfig.name"),
            ),
            "vgpu_device_manager": m.VgpuDeviceManager(
                **self.shared("vgpuDeviceManager"),
                config=m.NamedConfig(
                    self.text("vgpuDeviceManager.config.name"), self.text("vgpuDeviceManager.config.default")
                ),
            ),
            "vfio_manager": m.VfioManager(
                **self.shared("vfioManager"), driver_manager=self.driver_manager("vfioManager.driverManager")
            ),
            "sandbox_device_plugin": self.component("sandboxDevicePlugin"),
            "kata_sandbox_device_plugin": self.component("kataSandboxDevicePlugin"),
            "cc_manager": m.CcManager(**self.shared("ccManager"), default_mode=self.text("ccManager.defaultMode")),
        }

    def dcgm_exporter(self) -> m.DcgmExporter:
        p = "dcgmExporter"
        return m.DcgmExporter(
            **self.shared(p),
            annotations=dict(self.get(f"{p}.annotations") or {}),
            config=self.config(f"{p}.config"),
            service_type=self.text(f"{p}.service.type"),
            service_internal_traffic_policy=self.text(f"{p}.service.internalTrafficPolicy"),
            service_monitor=self.service_monitor(f"{p}.serviceMonitor"),
            host_pid=self.flag(f"{p}.hostPID"),
            hpc_job_mapping=self.flag(f"{p}.hpcJobMapping.enabled"),
            hpc_job_mapping_directory=self.text(f"{p}.hpcJobMapping.directory"),
            enable_pod_labels=self.flag(f"{p}.enablePodLabels"),
            enable_pod_uid=self.flag(f"{p}.enablePodUID"),
            pod_label_allowlist_regex=self.texts(f"{p}.podLabelAllowlistRegex"),
        )

    def cuda_toolkit(self) -> m.CudaToolkit:
        """Parts of the image that are not given are NVIDIA's; without a version, the newest that the driver runs."""
        p = "cudaToolkit"
        version = self.text(f"{p}.version") or newest_for(self.text("driver.version"))
        image = replace(
            self.image(p, named=False),
            repository=self.text(f"{p}.repository") or REPOSITORY,
            image=self.text(f"{p}.image") or IMAGE,
            version=tag_of(version),
        )
        return m.CudaToolkit(
            enabled=self.flag(f"{p}.enabled"),
            image=image,
            resources=self.resources(p),
            cuda=cuda_of(version),
            install_dir=self.text(f"{p}.installDir"),
        )

    def daemonsets(self) -> m.DaemonSets:
        p = "daemonsets"
        return m.DaemonSets(
            labels=dict(self.get(f"{p}.labels") or {}),
            annotations=dict(self.get(f"{p}.annotations") or {}),
            tolerations=tuple(self.get(f"{p}.tolerations") or ()),
            priority_class_name=self.text(f"{p}.priorityClassName"),
            update_strategy=self.text(f"{p}.updateStrategy"),
            max_unavailable=self.text(f"{p}.rollingUpdate.maxUnavailable"),
            pod_security_context=self.get(f"{p}.podSecurityContext"),
            container_resources=dict(self.get(f"{p}.containerResources") or {}),
        )

    def nfd(self) -> m.Nfd:
        values: m.Json = {}
        prefix = "node-feature-discovery."
        for path, value in self.values.items():
            if path.startswith(prefix) and value is not None:
                put(values, path[len(prefix) :], value)
        if not self.values[prefix + "image.tag"]:
            put(values, "image.tag", RELEASES[self.release].nfd)
        return m.Nfd(
            enabled=self.flag("nfd.enabled"), node_feature_rules=self.flag("nfd.nodefeaturerules"), values=values
        )

    def policy(self, extra_objects: Tuple[m.Json, ...]) -> m.Policy:
        return m.Policy(
            operator=m.Operator(
                runtime_class=self.text("operator.runtimeClass"),
                service_monitor=self.service_monitor("operator.metrics.serviceMonitor"),
            ),
            daemonsets=self.daemonsets(),
            host_paths=m.HostPaths(
                root_fs=self.text("hostPaths.rootFS"),
                driver_install_dir=self.text("hostPaths.driverInstallDir"),
                kubelet_root_dir=self.text("hostPaths.kubeletRootDir"),
            ),
            validator=self.validator(),
            driver=self.driver(),
            toolkit=m.Toolkit(**self.shared("toolkit"), install_dir=self.text("toolkit.installDir")),
            device_plugin=m.DevicePlugin(
                **self.shared("devicePlugin"),
                config=self.config("devicePlugin.config", self.text("devicePlugin.config.default")),
                mps_root=self.text("devicePlugin.mps.root"),
            ),
            dcgm=self.component("dcgm"),
            dcgm_exporter=self.dcgm_exporter(),
            gfd=self.component("gfd"),
            mig_manager=m.MigManager(
                **self.shared("migManager"),
                config=self.config("migManager.config", self.text("migManager.config.default")),
                gpu_clients_config=self.config("migManager.gpuClientsConfig"),
            ),
            node_status_exporter=self.component("nodeStatusExporter"),
            gds=self.component("gds"),
            gdrcopy=self.component("gdrcopy"),
            nfd=self.nfd(),
            cuda_toolkit=self.cuda_toolkit(),
            **self.sandbox(),
            mig_strategy=self.text("mig.strategy"),
            psa_enabled=self.flag("psa.enabled"),
            cdi_enabled=self.flag("cdi.enabled"),
            nri_enabled=self.flag("cdi.nriPluginEnabled"),
            extra_objects=extra_objects,
            release=self.release,
        )
