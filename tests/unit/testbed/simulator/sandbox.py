# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DaemonSets of sandbox workloads as the fact sheet tells of NVIDIA's operator (gpu-operator.md 3.2, 3.4, 7.3), made
without our code: what the simulator's programs are held against."""

from __future__ import annotations

import copy
from typing import Any

Object = dict[str, Any]
V = "/run/nvidia/validations"
DEPLOY = "nvidia.com/gpu.deploy."
OPERATOR = "nvcr.io/nvidia/gpu-operator:v26.7.0"
MANAGER = "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0"
PASSTHROUGH = ("sandbox-device-plugin", "sandbox-validator", "vfio-manager", "client")
KATA = ("kata-sandbox-device-plugin", "sandbox-validator", "vfio-manager", "cc-manager", "client")
VGPU = ("sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager", "sandbox-validator", "client")

_FIELDS = {"NODE_NAME": "spec.nodeName", "OPERATOR_NAMESPACE": "metadata.namespace", "NAMESPACE": "metadata.namespace"}


def _container(name: str, image: str, mounts: dict[str, str], env: dict[str, str] | None = None, **more: Any) -> Object:
    """``mounts``: path in the container -> path of the host, after ``>`` its propagation, or ``configMap:NAME``."""
    variables = [
        {"name": key, "valueFrom": {"fieldRef": {"fieldPath": _FIELDS[key]}}} if value == "" else
        {"name": key, "value": value}
        for key, value in (env or {}).items()
    ]  # fmt: skip
    return {
        "name": name, "image": image, "env": variables, "mounts": mounts,
        "securityContext": {"privileged": True, "runAsUser": 0}, **more,
    }  # fmt: skip


def _daemonset(name: str, label: str, inits: list[Object], main: Object, **spec: Any) -> Object:
    volumes: dict[str, Object] = {}
    for container in [*inits, main]:
        container["volumeMounts"] = []
        for path, source in container.pop("mounts").items():
            where, _unused, propagation = source.partition(">")
            volume = f"v{sorted({*volumes, source}).index(source)}-{abs(hash(where))}"
            if where.startswith("configMap:"):
                volumes[where] = {"name": volume, "configMap": {"name": where.removeprefix("configMap:")}}
            else:
                volumes[where] = volumes.get(where) or {"name": volume, "hostPath": {"path": where}}
            mount = {"name": volumes[where]["name"], "mountPath": path}
            container["volumeMounts"].append(mount | ({"mountPropagation": propagation} if propagation else {}))
    template = {
        "nodeSelector": {DEPLOY + label: "true"}, "serviceAccountName": "sandbox", "initContainers": inits,
        "containers": [main], "volumes": list(volumes.values()), **spec,
    }  # fmt: skip
    meta = {"labels": {"app": name}}
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "gpu-operator", **meta},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": meta, "spec": template}},
    }  # fmt: skip


def _driver_manager() -> Object:
    env = {"NODE_NAME": "", "OPERATOR_NAMESPACE": "", "ENABLE_GPU_POD_EVICTION": "false", "ENABLE_AUTO_DRAIN": "false"}
    mounts = {"/run/nvidia": "/run/nvidia>Bidirectional", "/host": "/>HostToContainer", "/sys": "/sys"}
    return _container("k8s-driver-manager", MANAGER, mounts, env, command=["driver-manager"], args=["uninstall_driver"])


def _check(component: str, root: str, **mounts: str) -> Object:
    env = {"COMPONENT": component, "NODE_NAME": "", "WITH_WAIT": "true"}
    env["DEFAULT_GPU_WORKLOAD_CONFIG"] = "vm-passthrough"
    places = {V: f"{V}>Bidirectional"}
    if component in ("vfio-pci", "vgpu-manager"):
        places["/host"] = "/>HostToContainer"
    if component == "vgpu-manager":
        places["/run/nvidia/driver"] = f"{root}>HostToContainer"
    return _container(f"{component}-validation", OPERATOR, places, env, command=["sh", "-c"], args=["nvidia-validator"])


def _shell(name: str, text: str) -> Object:
    return _container(name, OPERATOR, {V: f"{V}>HostToContainer"}, command=["sh", "-c"], args=[text])


def _wait(workload: str, name: str, ready: str) -> Object:
    kind, there = f"{V}/workload-type", f"{V}/{ready}"
    return _shell(
        name,
        f"until [ -f {kind} ]; do sleep 5; done; "
        f'if [ "$(<{kind})" != "{workload}" ]; then echo not needed; exit 0; fi; '
        f"until [ -f {there} ]; do sleep 5; done",
    )


VGPU_CONFIG = """version: v1
vgpu-configs:
  default:
    - {device-filter: "0x1EB810DE", devices: all, vgpu-devices: {T4-8Q: 2}}
    - {device-filter: ["0x223610DE"], devices: all, vgpu-devices: {A10-12Q: 2}}
  A10-4Q:
    - {devices: all, vgpu-devices: {A10-4Q: 6}}
  too-many:
    - {devices: all, vgpu-devices: {A10-4Q: 7}}
"""


def objects(root: str = "/run/nvidia/driver", workload: str = "vm-passthrough") -> dict[str, Object]:
    """All DaemonSets, one account with the rights of 3.4, and the configurations of virtual GPUs."""
    sleep = "echo all validations are successful; while true; do sleep 86400; done"
    checks = [_check(name, root) for name in ("cc-manager", "vfio-pci", "vgpu-manager", "vgpu-devices")]
    for check in checks:
        next(e for e in check["env"] if e["name"] == "DEFAULT_GPU_WORKLOAD_CONFIG")["value"] = workload
    clear = {"preStop": {"exec": {"command": ["/bin/sh", "-c", f"rm -f {V}/*"]}}}
    plugin = {"/var/lib/kubelet/device-plugins": "/var/lib/kubelet/device-plugins", "/var/run/cdi": "/var/run/cdi"}
    vfio_wait = _wait("vm-passthrough", "vfio-pci-validation", "vfio-pci-ready")
    vgpu_wait = _wait("vm-vgpu", "vgpu-devices-validation", "vgpu-devices-ready")
    either = f"until [ -f {V}/vgpu-manager-ready ] || [ -f {V}/host-vgpu-manager-ready ]; do sleep 5; done"
    firmware = "/sys/module/firmware_class/parameters/path"
    made = [
        _daemonset(
            "nvidia-sandbox-validator", "sandbox-validator", checks,
            _container("nvidia-sandbox-validator", OPERATOR, {V: V}, command=["sh", "-c"], args=[sleep],
                       lifecycle=clear),
        ),
        _daemonset(
            "nvidia-vfio-manager", "vfio-manager", [_driver_manager()],
            _container(
                "nvidia-vfio-manager", MANAGER, {"/sys": "/sys", "/lib/modules": "/lib/modules", "/host": "/"},
                {"HOST_ROOT": "/host"}, command=["/bin/sh", "-c"],
                args=["vfio-manage bind --all && while true; do sleep 86400; done"],
                lifecycle={"preStop": {"exec": {"command": ["/bin/sh", "-c", "vfio-manage unbind --all"]}}},
            ),
        ),
        _daemonset(
            "nvidia-vgpu-manager-daemonset", "vgpu-manager", [_driver_manager()],
            _container(
                "nvidia-vgpu-manager-ctr", "registry.example.com/nvidia/vgpu-manager:595.91.03-ubuntu24.04",
                {"/run/nvidia": "/run/nvidia>Bidirectional", "/host-etc/os-release": "/etc/os-release",
                 "/dev/vfio": "/dev/vfio", "/sys/fs/cgroup": "/sys/fs/cgroup", "/var/log": "/var/log",
                 "/dev/log": "/dev/log", firmware: firmware},
                command=["nvidia-driver"], args=["init"],
            ),
            hostPID=True, hostIPC=True,
        ),
        _daemonset(
            "nvidia-vgpu-device-manager", "vgpu-device-manager", [_shell("vgpu-manager-validation", either)],
            _container(
                "nvidia-vgpu-device-manager", "nvcr.io/nvidia/cloud-native/vgpu-device-manager:v0.5.0",
                {"/vgpu-config": "configMap:default-vgpu-devices-config", "/sys": "/sys", "/host": "/",
                 "/driver-root": f"{root}>HostToContainer"},
                {"NODE_NAME": "", "NAMESPACE": "", "CONFIG_FILE": "/vgpu-config/config.yaml",
                 "DEFAULT_VGPU_CONFIG": "default"},
            ),
        ),
        _daemonset(
            "nvidia-sandbox-device-plugin-daemonset", "sandbox-device-plugin", [vfio_wait, vgpu_wait],
            _container("nvidia-sandbox-device-plugin-ctr", "nvcr.io/nvidia/kubevirt-gpu-device-plugin:v1.6.0",
                       {**plugin, "/dev/vfio": "/dev/vfio"}, {"NODE_NAME": ""}),
        ),
        _daemonset(
            "nvidia-kata-sandbox-device-plugin-daemonset", "kata-sandbox-device-plugin", [copy.deepcopy(vfio_wait) | {
                "mounts": {V: f"{V}>HostToContainer"}}],
            _container("nvidia-kata-sandbox-device-plugin-ctr",
                       "nvcr.io/nvidia/cloud-native/nvidia-sandbox-device-plugin:v0.0.5", plugin, {"NODE_NAME": ""}),
        ),
        _daemonset(
            "nvidia-cc-manager", "cc-manager", [],
            _container(
                "nvidia-cc-manager", "nvcr.io/nvidia/cloud-native/k8s-cc-manager:v0.4.3",
                {"/sys": "/sys", "/run/nvidia": "/run/nvidia"}, {"NODE_NAME": "", "DEFAULT_CC_MODE": "on"},
                lifecycle={"preStop": {"exec": {"command": ["/bin/rm", "-f", f"{V}/.cc-manager-ctr-ready"]}}},
            ),
        ),
    ]  # fmt: skip
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch", "update", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    ]
    subjects = [{"kind": "ServiceAccount", "name": "sandbox", "namespace": "gpu-operator"}]
    ref = {"kind": "ClusterRole", "name": "sandbox"}
    return {f"DaemonSet/{one['metadata']['name']}": one for one in made} | {
        "ClusterRole/sandbox": {"kind": "ClusterRole", "metadata": {"name": "sandbox"}, "rules": rules},
        "ClusterRoleBinding/sandbox": {
            "kind": "ClusterRoleBinding", "metadata": {"name": "sandbox"}, "subjects": subjects, "roleRef": ref,
        },
        "ConfigMap/default-vgpu-devices-config": {
            "metadata": {"name": "default-vgpu-devices-config"}, "data": {"config.yaml": VGPU_CONFIG},
        },
    }  # fmt: skip


def container(made: dict[str, Object], daemonset: str, name: str) -> Object:
    """A container of a DaemonSet, to take something from."""
    spec = made[f"DaemonSet/{daemonset}"]["spec"]["template"]["spec"]
    found: Object = next(c for c in [*spec["initContainers"], *spec["containers"]] if c["name"] == name)
    return found
