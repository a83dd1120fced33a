# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every key of the GPU Operator's Helm values and of a ClusterPolicy, as a table.

The table drives reading, checking, defaults and the documentation: a new key is one row here.

Node Feature Discovery's keys are a subchart's: what the user wrote over the defaults, taken as it is.

How any other value comes about. Helm values: the user's value, else the chart's ``default``; a value that is empty is
mostly not rendered by the chart, then ``nil`` applies (``keep`` rows are rendered as they are, ``falsy`` is what the
chart renders instead).
A ClusterPolicy: the value, else ``nil``, which is the CRD's default or the controller's rule for an absent key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Tuple

from .._nodes._keys import WORKLOADS


class _Mark:
    """A value of its own kind, told from every value that a user can write."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


UNSET: Any = _Mark("unset")
RELEASE: Any = _Mark("of the release")  # the default is the image part that the operator's release names

# What becomes of a key.
USED = "used"
CHART = "chart"  # about the operator's own Deployment, hooks or names, which are not needed here
DEAD = "dead"  # accepted by the chart or the CRD, read by nothing
DEPRECATED = "deprecated"  # works still
LATER = "later"  # works in the operator, not supported here yet
OLDER = "older"  # a key of an older chart, gone since


@dataclass(frozen=True)
class Key:
    """One key. ``path``: in Helm values; ``cp``: in a ClusterPolicy spec (None: the same, "": not there)."""

    path: str
    type: str
    default: Any = UNSET
    about: str = ""
    cp: Optional[str] = None
    nil: Any = None
    keep: bool = False
    falsy: Any = UNSET
    allowed: Tuple[str, ...] = ()
    minimum: Optional[int] = None
    maximum: Optional[int] = None
    pattern: str = ""
    status: str = USED
    cp_status: str = ""  # where it differs from ``status``
    note: str = ""  # what to do, for a key that is not simply used
    switch: bool = False  # a LATER key that turns something on that we cannot do
    in_values: bool = True

    def path_in(self, form: str) -> str:
        """Path of the key in that form, "" when the form does not have it."""
        if form == "values":
            return self.path if self.in_values else ""
        return self.path if self.cp is None else self.cp

    def status_in(self, form: str) -> str:
        return self.cp_status if form != "values" and self.cp_status else self.status


K = Key

_CR_ONLY = "The chart never renders this key. Give a ClusterPolicy instead of Helm values to set it."
_OFF_CLUSTER = "It is about the operator's own Deployment; this collection runs no controller in the cluster."
_RELEASE_NOTE = (
    "No controller runs in the cluster. The option release chooses the versions of a release of the operator."
)
_OPENSHIFT = "OpenShift is not supported yet."
_DRA = "Dynamic resource allocation (GPUCluster) is not supported yet."
_DRIVER_CRD = "NVIDIADriver objects are not supported yet: driver settings come from this policy."

_TOLERATE_GPU: List[Dict[str, str]] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_TOLERATE_CONTROL_PLANE = {"key": _CONTROL_PLANE, "operator": "Equal", "value": "", "effect": "NoSchedule"}
_PREFER_CONTROL_PLANE = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "preference": {
                    "matchExpressions": [
                        {"key": "node-role.kubernetes.io/control-plane", "operator": "In", "values": [""]}
                    ]
                },
            }
        ]
    }
}


@dataclass(frozen=True)
class Part:
    """A component: its name in values and ClusterPolicy, what it is, whether it is on by default, what nil means."""

    name: str
    title: str
    default: Optional[bool]  # None: has no ``enabled``
    nil: bool = True
    no_args: bool = False  # the operator ignores ``args``
    no_resources: bool = False  # a container of the driver's pods: takes driver.resources, shares its network


PARTS: Tuple[Part, ...] = (
    Part("validator", "validator of each stage on a node", None),
    Part("driver", "driver container", True),
    Part("toolkit", "container toolkit", True, no_args=True),
    Part("devicePlugin", "device plugin", True),
    Part("dcgm", "standalone DCGM host engine", False),
    Part("dcgmExporter", "DCGM exporter", True),
    Part("gfd", "GPU feature discovery", True),
    Part("migManager", "MIG manager", True),
    Part("nodeStatusExporter", "node status exporter", False, nil=False),
    Part("gds", "GPUDirect Storage driver", False, nil=False, no_args=True, no_resources=True),
    Part("gdrcopy", "GDRCopy driver", False, nil=False, no_args=True, no_resources=True),
    Part("vgpuManager", "vGPU manager", False, nil=False),
    Part("vgpuDeviceManager", "vGPU device manager", True, nil=False),
    Part("vfioManager", "VFIO manager", True, nil=False),
    Part("sandboxDevicePlugin", "KubeVirt device plugin", True, nil=False),
    Part("kataSandboxDevicePlugin", "Kata device plugin", True, nil=False),
    Part("ccManager", "confidential computing manager", True, nil=False),
)


def _image(prefix: str, title: str, secrets_in_values: bool = True) -> Tuple[Key, ...]:
    """Keys that name an image. All parts empty: the release's image; repository and version empty: image as it is."""
    secrets = K(f"{prefix}.imagePullSecrets", "strings", [], f"names of pull secrets of the {title}")
    if not secrets_in_values:
        secrets = replace(secrets, default=UNSET, status=DEAD, cp_status=USED, note=_CR_ONLY)
    return (
        K(f"{prefix}.repository", "string", RELEASE, f"repository of the {title} image"),
        K(f"{prefix}.image", "image", RELEASE, f"image of the {title}"),
        K(f"{prefix}.version", "version", RELEASE, f"tag of the {title} image, or a digest (sha256:...)"),
        K(
            f"{prefix}.imagePullPolicy",
            "string",
            "IfNotPresent",
            "Always, IfNotPresent or Never; anything else is IfNotPresent",
        ),
        secrets,
    )


def _shared(part: Part) -> Tuple[Key, ...]:
    """Keys that every component shares."""
    name = part.name
    rows: List[Key] = []
    if part.default is not None:
        rows.append(K(f"{name}.enabled", "bool", part.default, f"deploy the {part.title}", nil=part.nil, keep=True))
    rows.extend(_image(name, part.title))
    rows.append(K(f"{name}.resources", "resources", {}, "requests and limits of every main container of its pods"))
    rows.append(K(f"{name}.args", "strings", [], "arguments of the main container, in place of its own"))
    rows.append(K(f"{name}.env", "env", [], "environment of the main container, over its own"))
    rows.append(K(f"{name}.hostNetwork", "bool", False, "pods use the network of their node", nil=False))
    if part.no_args:
        rows = [
            _dead(row, "The operator ignores arguments of this component. Use env.")
            if row.path.endswith(".args")
            else row
            for row in rows
        ]
    if part.no_resources:
        note = "It is a container of the driver's pods: set it on driver."
        rows = [_dead(row, note) if row.path.endswith((".resources", ".hostNetwork")) else row for row in rows]
    return tuple(rows)


def _dead(row: Key, note: str) -> Key:
    return replace(row, status=DEAD, note=note)


def _probe(prefix: str, defaults: Dict[str, int], about: str) -> Tuple[Key, ...]:
    names = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    return tuple(
        K(
            f"{prefix}.{name}",
            "int",
            defaults.get(name, UNSET),
            f"{about}: {name}",
            minimum=0 if name.startswith("initial") else 1,
        )
        for name in names
    )


def _service_monitor(prefix: str, enabled: Any, interval: Any, timeout: Any, title: str) -> Tuple[Key, ...]:
    """A ServiceMonitor is rendered as a block: false stays false."""
    unset = enabled is UNSET
    return (
        K(
            f"{prefix}.enabled",
            "bool",
            enabled,
            f"ServiceMonitor of the {title} (where Prometheus' CRD is there)",
            nil=False,
            keep=True,
        ),
        K(f"{prefix}.interval", "duration", interval, "time between scrapes", nil=""),
        K(f"{prefix}.scrapeTimeout", "duration", timeout, "limit of one scrape", nil=""),
        K(
            f"{prefix}.honorLabels",
            "bool",
            UNSET if unset else False,
            "keep labels of the scraped metrics",
            nil=False,
            keep=True,
        ),
        K(f"{prefix}.additionalLabels", "map", UNSET if unset else {}, "labels of the ServiceMonitor", nil={}),
        K(f"{prefix}.relabelings", "objects", UNSET if unset else [], "relabelings before the scrape", nil=[]),
    )


def _later(rows: Tuple[Key, ...], note: str) -> Tuple[Key, ...]:
    return tuple(replace(row, status=LATER, note=note) for row in rows)


def _values_only(rows: Tuple[Key, ...]) -> Tuple[Key, ...]:
    return tuple(replace(row, cp="") for row in rows)


# fmt: off
_CHART_KEYS: Tuple[Key, ...] = _values_only(
    (
        K("platform.openshift", "bool", False, "the cluster is OpenShift", status=LATER, note=_OPENSHIFT, switch=True),
        K("nfd.enabled", "bool", True, "deploy Node Feature Discovery (one that runs already is used)", nil=False,
          keep=True),
        K("nfd.nodefeaturerules", "bool", False,
          "NodeFeatureRule that labels nodes by loaded modules (GDRCopy, GDS, peermem)", nil=False),
        K("clusterPolicy.deployCR", "bool", True, "make the ClusterPolicy", nil=False, keep=True),
        K("gpuCluster.deployCR", "bool", False, "make a GPUCluster (dynamic resource allocation)", status=LATER,
          note=_DRA, switch=True),
        K("extraObjects", "list", [],
          "objects of your own, as maps; {{ .Release.Namespace }} and {{ .Values.x }} are filled in", nil=[]),
        K("nameOverride", "string", UNSET, "label app.kubernetes.io/name of the operator's own objects", status=CHART,
          note=_OFF_CLUSTER),
        K("fullnameOverride", "string", UNSET, "label of the operator's own objects", status=CHART, note=_OFF_CLUSTER),
        K("cert-manager", "object", UNSET, "settings of cert-manager", status=DEAD,
          note="The operator never needed cert-manager: nothing is lost."),
        K("global", "object", UNSET, "values that Helm shares between charts", status=DEAD,
          note="No template of the chart reads it."),
    )
)

_OPERATOR_CHART: Tuple[Key, ...] = tuple(
    replace(row, cp="", status=CHART, note=_RELEASE_NOTE if row.path == "operator.version" else _OFF_CLUSTER)
    for row in (
        *_image("operator", "operator"),
        K("operator.env", "env", [], "environment of the operator"),
        K("operator.priorityClassName", "string", "system-node-critical", "priority of the operator"),
        K("operator.nodeSelector", "map", {"kubernetes.io/os": "linux"}, "nodes of the operator"),
        K("operator.tolerations", "tolerations", [_TOLERATE_CONTROL_PLANE], "tolerations of the operator"),
        K("operator.affinity", "object", _PREFER_CONTROL_PLANE, "affinity of the operator"),
        K("operator.annotations", "map", {"openshift.io/scc": "restricted-readonly"},
          "annotations of the operator's pods"),
        K("operator.labels", "map", UNSET, "labels of the operator's own objects"),
        K("operator.logging.timeEncoding", "enum", "epoch", "time stamps of the operator's log",
          allowed=("epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano")),
        K("operator.logging.level", "int-or-text", "info", "log level of the operator"),
        K("operator.logging.develMode", "bool", False, "log of the operator for developers"),
        K("operator.resources", "resources",
          {"limits": {"cpu": "500m", "memory": "350Mi"}, "requests": {"cpu": "200m", "memory": "100Mi"}},
          "resources of the operator"),
        K("operator.cleanupCRD", "bool", False, "delete the CRDs when the chart is removed"),
        K("operator.upgradeCRD", "bool", True, "update the CRDs before an upgrade of the chart"),
        K("operator.hostNetwork", "bool", False, "the operator uses the network of its node"),
    )
)

_OPERATOR: Tuple[Key, ...] = (
    K("operator.runtimeClass", "name", "nvidia", "RuntimeClass of operands and workloads, and its handler",
      nil="nvidia"),
    K("operator.use_ocp_driver_toolkit", "bool", False, "build the driver with OpenShift's toolkit", status=DEAD,
      note="It has an effect on OpenShift only."),
    *_service_monitor("operator.metrics.serviceMonitor", UNSET, UNSET, UNSET, "operator"),
)

_COMMON: Tuple[Key, ...] = (
    K("hostPaths.rootFS", "path", "/", "root of the node's file system", nil="/"),
    K("hostPaths.driverInstallDir", "path", "/run/nvidia/driver", "where the driver's files are found",
      nil="/run/nvidia/driver"),
    K("hostPaths.kubeletRootDir", "path", UNSET, "directory of the kubelet (device plugin, DCGM exporter)",
      nil="/var/lib/kubelet"),
    K("daemonsets.labels", "map", {}, "labels of every operand and its pods", nil={}),
    K("daemonsets.annotations", "map", {}, "annotations of every operand and its pods", nil={}),
    K("daemonsets.tolerations", "tolerations", _TOLERATE_GPU, "tolerations of every operand, in place of their own",
      nil=_TOLERATE_GPU),
    K("daemonsets.priorityClassName", "name", "system-node-critical", "priority of every operand",
      nil="system-node-critical"),
    K("daemonsets.updateStrategy", "enum", "RollingUpdate", "how operands change (the driver is always OnDelete)",
      nil="RollingUpdate", allowed=("RollingUpdate", "OnDelete")),
    K("daemonsets.rollingUpdate.maxUnavailable", "percent", "1",
      "nodes whose operands change at once, as a number or a percentage", nil="1"),
    K("daemonsets.containerResources", "sizes", UNSET,
      "resources of single containers by their name, over those of their component; a key of this collection", nil={}),
    K("daemonsets.podSecurityContext", "object", UNSET, "security context of every operand's pods", status=DEAD,
      cp_status=USED, note=_CR_ONLY),
    K("psa.enabled", "bool", False, "label the namespace for privileged pods", nil=False, keep=True),
    K("cdi.enabled", "bool", True, "containers get GPUs through the Container Device Interface", nil=True, keep=True),
    K("cdi.nriPluginEnabled", "bool", False, "toolkit runs as a plugin of the container runtime, no RuntimeClass",
      nil=False),
    K("cdi.default", "bool", UNSET, "CDI as the default mode", status=DEAD, note="cdi.enabled alone decides."),
    K("mig.strategy", "enum", "single", "how MIG devices are offered", nil="", allowed=("none", "single", "mixed")),
    K("psp.enabled", "bool", UNSET, "pod security policies", status=DEAD,
      note="Kubernetes has none since 1.25. Use psa.enabled."),
)

_VALIDATOR: Tuple[Key, ...] = (
    K("validator.plugin.env", "env", [], "environment of the check of the device plugin", nil=[]),
    K("validator.cuda.env", "env", UNSET, "environment of the CUDA check", nil=[]),
    K("validator.driver.env", "env", UNSET, "environment of the driver check", nil=[]),
    K("validator.toolkit.env", "env", UNSET, "environment of the toolkit check", nil=[]),
    K("validator.vfioPCI.env", "env", UNSET, "environment of the VFIO check", nil=[]),
    K("validator.vgpuManager.env", "env", UNSET, "environment of the vGPU manager check", nil=[]),
    K("validator.vgpuDevices.env", "env", UNSET, "environment of the vGPU devices check", nil=[]),
)

_UPGRADE = "driver.upgradePolicy"
_DRIVER: Tuple[Key, ...] = (
    K("driver.nvidiaDriverCRD.enabled", "bool", False, "NVIDIADriver objects describe the drivers",
      cp="driver.useNvidiaDriverCRD", status=LATER, note=_DRIVER_CRD, switch=True, nil=False),
    K("driver.nvidiaDriverCRD.deployDefaultCR", "bool", True, "make an NVIDIADriver for all nodes", cp="", status=LATER,
      note=_DRIVER_CRD),
    K("driver.nvidiaDriverCRD.driverType", "enum", "gpu", "type of that driver", cp="", status=LATER, note=_DRIVER_CRD,
      allowed=("gpu", "vgpu", "vgpu-host-manager")),
    K("driver.nvidiaDriverCRD.nodeSelector", "map", {}, "nodes of that driver", cp="", status=DEAD,
      note="The chart never renders it."),
    K("driver.kernelModuleType", "enum", "auto", "which kernel modules: auto chooses by GPU", nil="auto",
      allowed=("auto", "open", "proprietary")),
    K("driver.usePrecompiled", "bool", False, "driver images with modules made for one kernel", nil=False, keep=True),
    K("driver.useOpenKernelModules", "bool", UNSET, "open kernel modules", status=DEAD,
      note="Write driver.kernelModuleType: open."),
    *_probe(
        "driver.startupProbe",
        {"initialDelaySeconds": 60, "periodSeconds": 10, "timeoutSeconds": 60, "failureThreshold": 120},
        "startup probe",
    ),
    *_probe("driver.livenessProbe", {}, "liveness probe"),
    *_probe("driver.readinessProbe", {}, "readiness probe"),
    K("driver.rdma.enabled", "bool", False, "GPUDirect RDMA through nvidia-peermem", nil=False, keep=True),
    K("driver.rdma.useHostMofed", "bool", False, "network drivers are installed on the host", nil=False, keep=True),
    K("driver.repoConfig.configMapName", "name", "", "ConfigMap with package repositories", nil=""),
    K("driver.certConfig.name", "name", "", "ConfigMap with certificates", nil=""),
    K("driver.kernelModuleConfig.name", "name", "", "ConfigMap with kernel module parameters", nil=""),
    K("driver.licensingConfig.secretName", "name", "", "Secret with gridd.conf and the licence token", nil=""),
    K("driver.licensingConfig.configMapName", "name", UNSET, "ConfigMap with gridd.conf", nil="", status=DEPRECATED,
      note="It works still; licences belong in a Secret: driver.licensingConfig.secretName."),
    K("driver.licensingConfig.nlsEnabled", "bool", True, "licences come from NVIDIA's licence system", nil=False,
      keep=True),
    K("driver.virtualTopology.config", "name", "", "ConfigMap with nvidia-topologyd.conf", nil=""),
    K("driver.secretEnv", "name", "", "Secret whose keys become environment of the driver", nil=""),
    K(f"{_UPGRADE}.autoUpgrade", "bool", True, "new drivers reach running nodes by themselves, node by node", nil=False,
      falsy=False),
    K(f"{_UPGRADE}.maxParallelUpgrades", "int", 1, "nodes upgraded at once; 0 is no limit", nil=1, falsy=0, minimum=0),
    K(f"{_UPGRADE}.maxUnavailable", "percent", "25%", "nodes that may be unavailable; the chart turns 0 into 25%",
      nil="25%", falsy="25%"),
    K(f"{_UPGRADE}.waitForCompletion.podSelector", "string", "", "pods that are waited for", nil=""),
    K(f"{_UPGRADE}.waitForCompletion.timeoutSeconds", "int", 0, "limit of that wait; 0 is none", nil=0, keep=True,
      minimum=0),
    K(f"{_UPGRADE}.gpuPodDeletion.force", "bool", False, "delete pods that no controller owns",
      cp=f"{_UPGRADE}.podDeletion.force", nil=False, falsy=False),
    K(f"{_UPGRADE}.gpuPodDeletion.timeoutSeconds", "int", 300, "limit of the deletion of GPU pods; 0 is none",
      cp=f"{_UPGRADE}.podDeletion.timeoutSeconds", nil=300, keep=True, minimum=0),
    K(f"{_UPGRADE}.gpuPodDeletion.deleteEmptyDir", "bool", False, "delete pods with emptyDir volumes too",
      cp=f"{_UPGRADE}.podDeletion.deleteEmptyDir", nil=False, falsy=False),
    K(f"{_UPGRADE}.drain.enable", "bool", False, "drain the node when GPU pods could not be deleted", nil=False,
      falsy=False),
    K(f"{_UPGRADE}.drain.force", "bool", False, "drain pods that no controller owns", nil=False, falsy=False),
    K(f"{_UPGRADE}.drain.podSelector", "string", "", "pods that are drained", nil=""),
    K(f"{_UPGRADE}.drain.timeoutSeconds", "int", 300, "limit of the drain; 0 is none", nil=300, keep=True, minimum=0),
    K(f"{_UPGRADE}.drain.deleteEmptyDir", "bool", False, "drain pods with emptyDir volumes too", nil=False,
      falsy=False),
    *_image("driver.manager", "driver manager", secrets_in_values=False),
    K("driver.manager.env", "env", [], "environment of the driver manager", nil=[]),
)

_OPERANDS: Tuple[Key, ...] = (
    K("toolkit.installDir", "path", "/usr/local/nvidia", "where the toolkit is installed on the node",
      nil="/usr/local/nvidia"),
    K("devicePlugin.config.name", "name", "", "ConfigMap with named configurations", nil=""),
    K("devicePlugin.config.default", "string", "",
      "configuration of nodes without label nvidia.com/device-plugin.config", nil=""),
    K("devicePlugin.config.create", "bool", False, "make that ConfigMap from data", cp="", nil=False),
    K("devicePlugin.config.data", "texts", {}, "configurations by name, each a YAML text", cp="", nil={}),
    K("devicePlugin.mps.root", "path", "/run/nvidia/mps", "directory of MPS on the node", nil="/run/nvidia/mps",
      status=DEAD, cp_status=USED, note=_CR_ONLY),
    K("dcgm.hostPort", "int", UNSET, "port on the node", status=DEAD,
      note="The engine is reached through its Service."),
    K("dcgmExporter.annotations", "map", UNSET, "annotations of the exporter's pods", nil={}),
    K("dcgmExporter.config.name", "name", UNSET, "ConfigMap with dcgm-metrics.csv", nil=""),
    K("dcgmExporter.config.create", "bool", UNSET, "make that ConfigMap from data", cp="", nil=False),
    K("dcgmExporter.config.data", "text", UNSET, "lines of dcgm-metrics.csv", cp="", nil=""),
    K("dcgmExporter.service.type", "string", UNSET, "type of the exporter's Service", nil=""),
    K("dcgmExporter.service.internalTrafficPolicy", "enum", "Cluster", "Local: a client gets its own node's exporter",
      nil="", allowed=("Cluster", "Local")),
    *_service_monitor("dcgmExporter.serviceMonitor", True, "15s", "10s", "DCGM exporter"),
    K("dcgmExporter.hostPID", "bool", False, "exporter sees the processes of its node", nil=False),
    K("dcgmExporter.hpcJobMapping.enabled", "bool", UNSET, "metrics carry the job that a workload manager names",
      nil=False),
    K("dcgmExporter.hpcJobMapping.directory", "path", UNSET, "where the workload manager writes jobs",
      nil="/var/lib/dcgm-exporter/job-mapping"),
    K("dcgmExporter.enablePodLabels", "bool", False, "metrics carry labels of pods", nil=False),
    K("dcgmExporter.enablePodUID", "bool", False, "metrics carry the uid of pods", nil=False),
    K("dcgmExporter.podLabelAllowlistRegex", "strings", UNSET, "which labels of pods", nil=[]),
    K("migManager.config.name", "name", "", "ConfigMap with config.yaml (named MIG layouts)", nil=""),
    K("migManager.config.default", "enum", "all-disabled", "layout of nodes that have none", nil="all-disabled",
      allowed=("all-disabled", "")),
    K("migManager.config.create", "bool", False, "make that ConfigMap from data", cp="", nil=False),
    K("migManager.config.data", "texts", {}, "key config.yaml: the layouts, a YAML text", cp="", nil={}),
    K("migManager.gpuClientsConfig.name", "name", "", "ConfigMap with clients.yaml (services to stop before a change)",
      nil=""),
    K("migManager.gpuClientsConfig.create", "bool", UNSET, "make that ConfigMap from data", cp="", nil=False),
    K("migManager.gpuClientsConfig.data", "texts", UNSET, "key clients.yaml: the services, a YAML text", cp="", nil={}),
)

_SANDBOX_KEYS: Tuple[Key, ...] = (
    K("sandboxWorkloads.enabled", "bool", False, "nodes may give their GPUs to virtual machines", nil=False, keep=True),
    K("sandboxWorkloads.defaultWorkload", "enum", "container",
      "workload of nodes without label nvidia.com/gpu.workload.config", allowed=WORKLOADS, nil="container"),
    K("sandboxWorkloads.mode", "enum", "kubevirt", "what runs the virtual machines", allowed=("kubevirt", "kata"),
      nil="kubevirt"),
    K("vgpuManager.kernelModuleConfig.name", "name", "", "ConfigMap with kernel module parameters", nil=""),
    *_image("vgpuManager.driverManager", "driver manager", secrets_in_values=False),
    K("vgpuManager.driverManager.env", "env", [], "environment of the driver manager", nil=[]),
    *_image("vfioManager.driverManager", "driver manager", secrets_in_values=False),
    K("vfioManager.driverManager.env", "env", [], "environment of the driver manager", nil=[]),
    K("vgpuDeviceManager.config.name", "name", "", "ConfigMap with config.yaml (named sets of vGPUs)", nil=""),
    K("vgpuDeviceManager.config.default", "string", "default",
      "set of vGPUs of nodes without label nvidia.com/vgpu.config", nil="default"),
    K("ccManager.defaultMode", "enum", "on", "confidential computing mode of nodes without label nvidia.com/cc.mode",
      allowed=("on", "off", "devtools"), nil="on"),
)

_KATA_MANAGER = K("kataManager", "object", UNSET, "Kata manager", status=DEAD,
                  note="The operator runs no Kata manager any more.")

_DRA_KEYS: Tuple[Key, ...] = _values_only(
    _later(
        (
            *_image("draDriver", "DRA driver"),
            K("draDriver.featureGates", "boolmap", UNSET, "feature gates of the DRA driver"),
            K("draDriver.gpus", "object", UNSET, "DRA driver of GPUs"),
            K("draDriver.computeDomains", "object", UNSET, "DRA driver of compute domains"),
        ),
        _DRA,
    )
)


def _nfd_pod(name: str, kind: str) -> Tuple[Key, ...]:
    """Keys that master, worker, gc and topology updater of Node Feature Discovery share."""
    p = f"node-feature-discovery.{name}"
    return (
        K(f"{p}.annotations", "map", {}, f"annotations of the {name}'s pods"),
        K(f"{p}.{kind}Annotations", "map", {}, f"annotations of the {name}"),
        K(f"{p}.labels", "map", UNSET, f"labels of the {name}'s pods"),
        K(f"{p}.nodeSelector", "map", {}, f"nodes of the {name}"),
        K(f"{p}.extraArgs", "strings", UNSET, f"further arguments of the {name}"),
        K(f"{p}.extraEnvs", "objects", UNSET, f"further environment of the {name}"),
        K(f"{p}.hostNetwork", "bool", False, f"{name} uses the network of its node"),
        K(f"{p}.dnsPolicy", "string", "ClusterFirstWithHostNet", f"DNS of the {name}"),
        K(f"{p}.podSecurityContext", "object", {}, f"security context of the {name}'s pods"),
        K(f"{p}.rbac.create", "bool", True, f"make the rights of the {name}"),
        K(f"{p}.serviceAccount.annotations", "map", {}, f"annotations of the {name}'s ServiceAccount"),
        K(f"{p}.revisionHistoryLimit", "int", UNSET, "old revisions that are kept", minimum=0),
        K(f"{p}.livenessProbe", "object", UNSET, f"liveness probe of the {name}"),
        K(f"{p}.readinessProbe", "object", UNSET, f"readiness probe of the {name}"),
        K(f"{p}.startupProbe", "object", UNSET, f"startup probe of the {name}"),
    )


_NFD = "node-feature-discovery"
_NFD_LATER = "This part of Node Feature Discovery is not deployed by this collection."
_NFD_KEYS: Tuple[Key, ...] = _values_only(
    (
        K(f"{_NFD}.image.repository", "string", "registry.k8s.io/nfd/node-feature-discovery",
          "image of Node Feature Discovery"),
        K(f"{_NFD}.image.tag", "version", UNSET, "its tag; the release's where not given"),
        K(f"{_NFD}.image.pullPolicy", "enum", "IfNotPresent", "when it is pulled",
          allowed=("Always", "IfNotPresent", "Never")),
        K(f"{_NFD}.imagePullSecrets", "objects", [], "pull secrets, as a list of {name: ...}"),
        K(f"{_NFD}.priorityClassName", "name", "system-node-critical", "priority of its pods"),
        K(f"{_NFD}.featureGates", "boolmap", {}, "feature gates"),
        K(f"{_NFD}.nameOverride", "string", "", "name of its objects"),
        K(f"{_NFD}.fullnameOverride", "string", "", "whole name of its objects"),
        K(f"{_NFD}.namespaceOverride", "string", "", "namespace of its objects", status=DEAD,
          note="It runs in the namespace of the stack."),
        K(f"{_NFD}.enableNodeFeatureApi", "bool", UNSET, "nodes' features travel as objects", status=OLDER,
          note="Node Feature Discovery 0.17 and later always does."),
        K(f"{_NFD}.nodeFeatureRule", "object", UNSET, "settings of the CRDs", status=OLDER,
          note="The CRDs are always made."),
        K(f"{_NFD}.tls", "object", UNSET, "certificates between worker and master", status=OLDER,
          note="They talk through the API server now."),
        K(f"{_NFD}.master.enable", "bool", True, "deploy the master"),
        K(f"{_NFD}.master.config", "object", {"extraLabelNs": ["nvidia.com"]}, "nfd-master.conf"),
        K(f"{_NFD}.master.replicaCount", "int", 1, "masters", minimum=0),
        K(f"{_NFD}.master.port", "int", 8080, "port of the master", minimum=1, maximum=65535),
        K(f"{_NFD}.master.instance", "string", UNSET, "name of this instance, where several run"),
        K(f"{_NFD}.master.extraLabelNs", "strings", UNSET, "label namespaces beside its own"),
        K(f"{_NFD}.master.denyLabelNs", "strings", UNSET, "label namespaces that are refused"),
        K(f"{_NFD}.master.enableTaints", "bool", UNSET, "rules may taint nodes"),
        K(f"{_NFD}.master.featureRulesController", "bool", UNSET, "read NodeFeatureRules"),
        K(f"{_NFD}.master.resyncPeriod", "duration", UNSET, "time between full passes"),
        K(f"{_NFD}.master.nfdApiParallelism", "int", UNSET, "nodes worked on at once", minimum=1),
        K(f"{_NFD}.master.resourceLabels", "strings", UNSET, "labels offered as resources", status=OLDER,
          note="Rules offer extended resources now."),
        K(f"{_NFD}.master.service", "object", UNSET, "Service of the master", status=OLDER,
          note="It has none any more."),
        K(f"{_NFD}.master.serviceAccount.create", "bool", True, "make the ServiceAccount"),
        K(f"{_NFD}.master.serviceAccount.name", "name", "node-feature-discovery", "its name"),
        K(f"{_NFD}.master.tolerations", "tolerations", [_TOLERATE_CONTROL_PLANE], "tolerations of the master"),
        K(f"{_NFD}.master.affinity", "object", _PREFER_CONTROL_PLANE, "affinity of the master"),
        K(f"{_NFD}.master.securityContext", "object", UNSET, "security context of the master"),
        K(f"{_NFD}.master.resources", "resources",
          {"limits": {"memory": "4Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}}, "resources of the master"),
        *_nfd_pod("master", "deployment"),
        K(f"{_NFD}.worker.enable", "bool", True, "deploy the workers"),
        K(f"{_NFD}.worker.config", "object",
          {"sources": {"pci": {"deviceClassWhitelist": ["02", "0200", "0207", "0300", "0302"],
                               "deviceLabelFields": ["vendor"]}}},
          "nfd-worker.conf"),
        K(f"{_NFD}.worker.options", "object", UNSET, "nfd-worker.conf", status=OLDER,
          note="Write it under worker.config."),
        K(f"{_NFD}.worker.port", "int", 8080, "port of the worker", minimum=1, maximum=65535),
        K(f"{_NFD}.worker.updateStrategy", "object",
          {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}, "how workers change"),
        K(f"{_NFD}.worker.mountUsrSrc", "bool", False, "workers see the node's /usr/src"),
        K(f"{_NFD}.worker.priorityClassName", "string", "", "priority of the workers"),
        K(f"{_NFD}.worker.serviceAccount.create", "bool", False, "make a ServiceAccount of their own"),
        K(f"{_NFD}.worker.serviceAccount.name", "name", "node-feature-discovery", "its name"),
        K(f"{_NFD}.worker.tolerations", "tolerations", [_TOLERATE_CONTROL_PLANE, *_TOLERATE_GPU],
          "tolerations of the workers"),
        K(f"{_NFD}.worker.affinity", "object", {}, "affinity of the workers"),
        K(f"{_NFD}.worker.securityContext", "object", UNSET, "security context of the workers"),
        K(f"{_NFD}.worker.resources", "resources",
          {"limits": {"memory": "512Mi"}, "requests": {"cpu": "5m", "memory": "64Mi"}}, "resources of the workers"),
        *_nfd_pod("worker", "daemonset"),
        K(f"{_NFD}.gc.enable", "bool", True, "deploy the garbage collector"),
        K(f"{_NFD}.gc.replicaCount", "int", 1, "garbage collectors", minimum=0),
        K(f"{_NFD}.gc.interval", "duration", "1h", "time between its passes"),
        K(f"{_NFD}.gc.port", "int", 8080, "port of the garbage collector", minimum=1, maximum=65535),
        K(f"{_NFD}.gc.serviceAccount.create", "bool", False, "make a ServiceAccount of its own"),
        K(f"{_NFD}.gc.serviceAccount.name", "name", "node-feature-discovery", "its name"),
        K(f"{_NFD}.gc.tolerations", "tolerations", [], "tolerations of the garbage collector"),
        K(f"{_NFD}.gc.affinity", "object", {}, "affinity of the garbage collector"),
        K(f"{_NFD}.gc.resources", "resources",
          {"limits": {"memory": "1Gi"}, "requests": {"cpu": "10m", "memory": "128Mi"}},
          "resources of the garbage collector"),
        *_nfd_pod("gc", "deployment"),
        *(
            K(f"{_NFD}.{name}", "any" if name.endswith("hostUsers") else "object", UNSET, about, status=LATER,
              note=_NFD_LATER)
            for name, about in (
                ("topologyUpdater", "topology updater"),
                ("prometheus", "PodMonitor of Node Feature Discovery"),
                ("postDeleteCleanup", "job that removes labels when the chart is removed"),
                ("master.networkPolicy", "NetworkPolicy of the master"),
                ("worker.networkPolicy", "NetworkPolicy of the workers"),
                ("gc.networkPolicy", "NetworkPolicy of the garbage collector"),
                ("master.podDisruptionBudget", "disruption budget of the master"),
                ("gc.podDisruptionBudget", "disruption budget of the garbage collector"),
                ("master.hostUsers", "user namespace of the master"),
                ("worker.hostUsers", "user namespace of the workers"),
                ("gc.hostUsers", "user namespace of the garbage collector"),
            )
        ),
    )
)

_OURS = "; a key of this collection"
_CUDA_TOOLKIT: Tuple[Key, ...] = (
    K("cudaToolkit.enabled", "bool", UNSET, "put the CUDA toolkit on GPU nodes, for pods to mount" + _OURS, nil=False,
      keep=True),
    K("cudaToolkit.version", "version", UNSET,
      "CUDA version (13.0 or 13.0.1) or tag of the image; the newest that the driver runs" + _OURS, nil=""),
    K("cudaToolkit.repository", "string", UNSET, "repository of the CUDA image" + _OURS, nil=""),
    K("cudaToolkit.image", "image", UNSET, "CUDA image" + _OURS, nil=""),
    K("cudaToolkit.imagePullPolicy", "string", UNSET, "Always, IfNotPresent or Never" + _OURS, nil=""),
    K("cudaToolkit.imagePullSecrets", "strings", UNSET, "names of pull secrets of the CUDA image" + _OURS, nil=[]),
    K("cudaToolkit.resources", "resources", UNSET, "resources of its containers" + _OURS),
    K("cudaToolkit.installDir", "path", UNSET, "folder of the node in which each version has its own" + _OURS,
      nil="/usr/local/nvidia/cuda"),
)

_OLDER_KEYS: Tuple[Key, ...] = (
    K("operator.defaultRuntime", "string", UNSET, "container runtime", status=DEAD,
      note="The runtime is found on each node."),
    K("operator.initContainer", "object", UNSET, "image of init containers", status=DEAD,
      note="The validator's image is used."),
    K("operator.defaultGPUMode", "string", UNSET, "workload of nodes", cp="", status=DEAD,
      note="The CRD has no such key. See sandboxWorkloads."),
    *_values_only(
        (
            K("operator.migStrategy", "string", UNSET, "MIG strategy", status=OLDER, note="Write mig.strategy."),
            K("operator.validator", "object", UNSET, "validator", status=OLDER, note="Write it under validator."),
            K("operator.clusterversion", "any", UNSET, "version of the cluster", status=OLDER,
              note="Nothing reads it."),
            K("replicaCount", "int", UNSET, "operators", status=OLDER, note="The operator always ran once."),
            K("dcgmPodExporter", "object", UNSET, "exporter of pods' GPUs", status=OLDER, note="dcgmExporter does it."),
            *(
                K(f"{name}.{key}", "any", UNSET, f"{key} of one component", status=OLDER,
                  note=f"Write daemonsets.{key}.")
                for name in ("driver", "toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager")
                for key in ("tolerations", "priorityClassName")
            ),
            *(
                K(f"{name}.{key}", "any", UNSET, f"{key} of one component", status=OLDER,
                  note="Operands choose nodes by the labels nvidia.com/gpu.deploy.* only.")
                for name in ("driver", "toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager")
                for key in ("nodeSelector", "affinity")
            ),
            *(
                K(f"{name}.{key}", "object", UNSET, f"{key} of one component", status=OLDER,
                  note="Operands run privileged; pods: daemonsets.podSecurityContext of a ClusterPolicy.")
                for name in ("validator", "driver", "toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager")
                for key in ("podSecurityContext", "securityContext")
            ),
        )
    ),
    # A ClusterPolicy has these two beside the chart's keys of the same name.
    K("", "map", UNSET, "labels of the operator", cp="operator.labels", status=DEAD, note="Nothing reads it.",
      in_values=False),
    K("", "map", UNSET, "annotations of the operator", cp="operator.annotations", status=DEAD, note="Nothing reads it.",
      in_values=False),
)

# fmt: on


def _ordered() -> Tuple[Key, ...]:
    """All rows; those of one component together, in the order in which nodes come up."""
    shared = {part.name: _shared(part) for part in PARTS}
    special = _VALIDATOR + _DRIVER + _OPERANDS
    rows: List[Key] = [*_CHART_KEYS, *_COMMON, *_OPERATOR, *_OPERATOR_CHART]
    for part in PARTS:
        rows.extend(shared[part.name])
        rows.extend(row for row in special if row.path.split(".")[0] == part.name)
    rows.extend((*_CUDA_TOOLKIT, *_SANDBOX_KEYS, _KATA_MANAGER, *_DRA_KEYS, *_NFD_KEYS, *_OLDER_KEYS))
    return tuple(rows)


TABLE: Tuple[Key, ...] = _ordered()
