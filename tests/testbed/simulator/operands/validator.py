# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-validator`` (gpu-operator.md 6.1): driver, toolkit, cuda, plugin, the checks of sandbox workloads, and the
node-status metrics (6.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from ..context import VALIDATIONS, ApiError, Crash, Ctx, Done, Object, Up, Wait
from ..node import VFIO
from . import Program

RETRY = 5.0
SANDBOX = ("vfio-pci", "vgpu-manager", "vgpu-devices", "cc-manager")  # these wait, or do not, in their own ways
PATIENCE = 120.0  # real seconds: on a busy machine the control plane is slow, however fast simulated time goes


def _true(c: Ctx, name: str, default: bool = False) -> bool:
    value = c.env.get(name, "")
    return default if value == "" else value.lower() == "true"


def _out(c: Ctx) -> str:
    return c.env.get("OUTPUT_DIR") or VALIDATIONS


def step(c: Ctx) -> Up | Done:
    component = c.env.get("COMPONENT", "")
    checks: dict[str, Callable[[Ctx], Any]] = {
        "driver": _driver, "toolkit": _toolkit, "cuda": _cuda, "plugin": _plugin, "metrics": _metrics,
        "nvidia-fs": lambda c: _module(c, "nvidia_fs", "nvidia-fs-ready"),
        "gdrcopy": lambda c: _module(c, "gdrdrv", "gdrcopy-ready"),
        "nvidia-peermem": lambda c: _module(c, "nvidia_peermem", "nvidia-peermem-ready"),
        "mofed": _mofed, "vfio-pci": _vfio_pci, "vgpu-manager": _vgpu_manager, "vgpu-devices": _vgpu_devices,
        "cc-manager": _cc_manager,
    }  # fmt: skip
    check = checks.get(component)
    if check is None:
        raise Crash(f"Error: invalid -c <component-name> flag value: {component or '(COMPONENT is not set)'}")
    if c.container.user not in (0, None) and component != "metrics":
        raise Crash(f"open {_out(c)}: permission denied (runs as user {c.container.user})")
    try:
        result = check(c)
    except Crash as crash:
        # WITH_WAIT: the check is tried again inside the process, never a crash. A missing right or mount shows in
        # the log only.
        if _true(c, "WITH_WAIT") and component != "metrics" and component not in SANDBOX:
            raise Wait(f"command failed, retrying after 5 seconds: {crash.message}", RETRY) from None
        raise
    return result if isinstance(result, Up) else Done()


# -- driver


def _driver(c: Ctx) -> None:
    # A user of the image is 1000; only uid 0 may write on the host.
    if c.container.user != 0:
        raise Crash(f"mkdir {VALIDATIONS}: permission denied (runAsUser 0 is needed)")
    c.need_privileged("devices of the host cannot be made")
    out = c.need_mount(_out(c), "the status file must reach the host", host=VALIDATIONS, writable=True)
    host = c.need_mount("/host", "the host's driver cannot be looked for", propagation="HostToContainer")
    host_root = c.env.get("HOST_ROOT") or "/"
    if not c.mem.get("began"):
        c.mem["began"] = True
        c.node.remove(f"{out.path}/driver-ready")  # once: what an earlier container found proves nothing now
    if host.path != host_root:
        raise Crash(f"/host is {host.path} of the host, HOST_ROOT says {host_root}")
    if c.node.host_driver:
        ready = {
            "IS_HOST_DRIVER": "true", "NVIDIA_DRIVER_ROOT": host_root, "DRIVER_ROOT_CTR_PATH": "/host",
            "NVIDIA_DEV_ROOT": host_root, "DEV_ROOT_CTR_PATH": "/host",
        }  # fmt: skip
    else:
        ready = _container_driver(c, host_root)
    if not _true(c, "DISABLE_DEV_CHAR_SYMLINK_CREATION"):
        c.need_mount(
            "/host-dev-char", "links of NVIDIA devices cannot be made in /dev/char", host="/dev/char", writable=True
        )
    text = "".join(f"{key}={value}\n" for key, value in ready.items())
    c.node.write(f"{out.path}/driver-ready", text)


def _container_driver(c: Ctx, host_root: str) -> dict[str, str]:
    root = c.env.get("DRIVER_INSTALL_DIR") or "/run/nvidia/driver"
    inside = c.env.get("DRIVER_INSTALL_DIR_CTR_PATH") or "/run/nvidia/driver"
    namespace = c.need_env("OPERATOR_NAMESPACE", "the driver's DaemonSet is looked for there")
    if _managed(c, namespace):
        if not c.exists(f"{_out(c)}/.driver-ctr-ready"):
            raise Wait(
                "Attempting to validate a driver container installation: waiting for "
                "/run/nvidia/validations/.driver-ctr-ready",
                RETRY,
            )
        flags = c.read(f"{_out(c)}/.driver-ctr-ready") or ""
        for flag, module, name in (
            ("GDRCOPY_ENABLED", "gdrdrv", "gdrcopy-ready"),
            ("GDS_ENABLED", "nvidia_fs", "nvidia-fs-ready"),
            ("GPU_DIRECT_RDMA_ENABLED", "nvidia_peermem", "nvidia-peermem-ready"),
        ):
            if f"{flag}: true" in flags and not (flag == "GPU_DIRECT_RDMA_ENABLED" and not c.node.spec.mellanox):
                _module(c, module, name)
    place = c.need_mount(inside, "the driver container's root cannot be seen", host=root, propagation="HostToContainer")
    if not c.node.driver_loaded or c.node.driver_root != place.path:
        raise Crash(f"no driver found: nvidia-smi is neither below /host nor below {inside}")
    dev_root = (root, "/driver-root") if c.node.fs.is_folder(f"{place.path}/dev") else (host_root, "/host")
    return {
        "IS_HOST_DRIVER": "false", "NVIDIA_DRIVER_ROOT": root, "DRIVER_ROOT_CTR_PATH": "/driver-root",
        "NVIDIA_DEV_ROOT": dev_root[0], "DEV_ROOT_CTR_PATH": dev_root[1],
    }  # fmt: skip


def _managed(c: Ctx, namespace: str) -> bool:
    """A driver DaemonSet of this stack exists in the namespace: then the driver container's own flag is waited for."""
    if c.mem.get("managed"):
        return True
    selector = "labelSelector=app.kubernetes.io%2Fcomponent%3Dnvidia-driver"
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets?{selector}"
    found = c.call("failed to list DaemonSets of the driver", lambda api: api.get(path))
    c.mem["managed"] = bool(found.get("items"))
    return bool(c.mem["managed"])


def _module(c: Ctx, module: str, name: str) -> None:
    if module not in c.node.modules:
        raise Crash(f"{module} is not loaded (lsmod)")
    c.write(f"{_out(c)}/{name}", "")


def _mofed(c: Ctx) -> None:
    if (
        not _true(c, "GPU_DIRECT_RDMA_ENABLED")
        or c.node.labels.get("feature.node.kubernetes.io/pci-15b3.present") != "true"
    ):
        return
    if _true(c, "USE_HOST_MOFED"):
        if "mlx5_core" not in c.node.modules:
            raise Crash("mlx5_core is not loaded (lsmod)")
    elif not c.exists("/run/mellanox/drivers/.driver-ready"):
        raise Crash("stat /run/mellanox/drivers/.driver-ready: no such file or directory")
    c.write(f"{_out(c)}/mofed-ready", "")


# -- toolkit


def _toolkit(c: Ctx) -> None:
    if not c.gpu_injected():
        raise Crash(
            'toolkit is not ready: exec: "nvidia-smi": executable file not found in $PATH (the runtime gave no driver: '
            f"runtimeClassName {c.pod.spec.get('runtimeClassName')!r}, NVIDIA_VISIBLE_DEVICES "
            f"{c.env.get('NVIDIA_VISIBLE_DEVICES')!r})"
        )
    if not c.node.driver_loaded:
        raise Crash(
            "toolkit is not ready: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"
        )
    c.write(f"{_out(c)}/toolkit-ready", "", "toolkit-ready cannot be written")
    _reached_host(c, "toolkit-ready")


def _reached_host(c: Ctx, name: str) -> None:
    place = c.container.place(f"{_out(c)}/{name}")
    if place is None or place.kind != "host" or place.path != f"{VALIDATIONS}/{name}":
        raise Crash(f"open {_out(c)}/{name}: no such file or directory (the host's {VALIDATIONS} is not mounted)")


# -- cuda and plugin: workload pods


def _workload(c: Ctx, kind: str, container: str, resource: str = "") -> None:
    """Pod A or B of 6.1: made with the validator's own rights, waited for until it has succeeded."""
    namespace = c.need_env("OPERATOR_NAMESPACE", "the workload pod is made there")
    node = c.need_env("NODE_NAME", "the workload pod must run on this node")
    image = c.need_env("VALIDATOR_IMAGE", "the workload pod needs an image")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    name = f"{kind}-{hashlib.sha256((c.pod.uid + str(c.mem.get('started'))).encode()).hexdigest()[:5]}"
    if "made" not in c.mem:
        owner = c.call(
            "failed to get DaemonSet nvidia-operator-validator",
            lambda api: api.get(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/nvidia-operator-validator"),
        )
        query = f"?labelSelector=app%3D{kind}&fieldSelector=spec.nodeName%3D{node}"
        old = c.call("failed to list workload pods", lambda api: api.get(pods + query)).get("items") or []
        for pod in old:
            path = f"{pods}/{pod['metadata']['name']}"
            try:
                c.api.delete(path, grace=0)
            except ApiError as error:
                if error.status != 404:
                    raise Crash(f"failed to delete an old workload pod: {error.message}") from None
        body = _pod(c, name, kind, container, image, node, owner, resource)
        c.call("failed to create the workload pod", lambda api: api.post(pods, body))
        c.mem["made"] = name
    pod = c.call("failed to get the workload pod", lambda api: api.get(f"{pods}/{c.mem['made']}"))
    phase = (pod.get("status") or {}).get("phase", "Pending")
    if phase == "Succeeded":
        return
    c.mem["asked"] = c.mem.get("asked", 0) + 1
    since = c.mem.setdefault("waiting", c.world.now())
    if c.world.now() - since > max(c.world.scaled(300.0), PATIENCE):
        raise Crash(f"GPU pod {c.mem['made']} is not ready: phase {phase}")
    raise Wait(f"pod {c.mem['made']} is curently in {phase} phase", RETRY if c.world.scaled(1) else 0.1)


def _pod(c: Ctx, name: str, kind: str, container: str, image: str, node: str, owner: Object, resource: str) -> Object:
    template = owner["spec"]["template"]["spec"]
    policy = c.env.get("VALIDATOR_IMAGE_PULL_POLICY") or "IfNotPresent"
    privileged = not resource
    work: Object = {
        "name": container, "image": image, "imagePullPolicy": policy, "command": ["sh", "-c"], "args": ["vectorAdd"],
        "securityContext": {"privileged": True} if privileged else {"allowPrivilegeEscalation": False},
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}] if privileged else [],
        **({"resources": {"limits": {resource: "1"}}} if resource else {}),
    }  # fmt: skip
    spec: Object = {
        "nodeName": node, "restartPolicy": "OnFailure", "serviceAccountName": c.pod.service_account,
        "readinessGates": [],
        "tolerations": template.get("tolerations") or [],
        "initContainers": [work],
        "containers": [
            {
                "name": kind, "image": image, "imagePullPolicy": policy, "command": ["sh", "-c"],
                "args": ["echo workload validation is successful"],
                "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
            }
        ],
    }  # fmt: skip
    if c.env.get("VALIDATOR_RUNTIME_CLASS"):
        spec["runtimeClassName"] = c.env["VALIDATOR_RUNTIME_CLASS"]
    if c.env.get("VALIDATOR_IMAGE_PULL_SECRETS"):
        spec["imagePullSecrets"] = [{"name": secret} for secret in c.env["VALIDATOR_IMAGE_PULL_SECRETS"].split(",")]
    notes = {f"nvidia.cdi.k8s.io/container.{container}": "management.nvidia.com/gpu=all"} if privileged else {}
    meta = owner["metadata"]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": {"app": kind}, "annotations": notes,
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1", "kind": "DaemonSet", "name": meta["name"], "uid": meta["uid"],
                    "controller": False, "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": spec,
    }  # fmt: skip


def _cuda(c: Ctx) -> None:
    c.need_env("NODE_NAME", "the workload pod must run on this node")
    _reached_host(c, "cuda-ready")
    if _true(c, "WITH_WORKLOAD", True):
        _workload(c, "nvidia-cuda-validator", "cuda-validation")
    c.write(f"{_out(c)}/cuda-ready", "")


def _plugin(c: Ctx) -> None:
    name = c.need_env("NODE_NAME", "the node's resources are read from the API")
    _reached_host(c, "plugin-ready")
    if "resource" not in c.mem:
        node = c.call(f"unable to fetch node by name {name}", lambda api: api.get(f"/api/v1/nodes/{name}"))
        capacity = (node.get("status") or {}).get("capacity") or {}
        found = [
            key
            for key, count in capacity.items()
            if key.startswith(("nvidia.com/gpu", "nvidia.com/mig-")) and int(count) >= 1
        ]
        if not found:
            since = c.mem.setdefault("waiting", c.world.now())
            if c.world.now() - since > max(c.world.scaled(150.0), PATIENCE):
                raise Crash("GPU resources are not discovered by the node")
            raise Wait("GPU resources are not yet discovered by the node", RETRY)
        c.mem["resource"] = next((key for key in found if key.startswith("nvidia.com/mig-")), found[0])
    if _true(c, "WITH_WORKLOAD", True):
        _workload(c, "nvidia-device-plugin-validator", "plugin-validation", c.mem["resource"])
    c.write(f"{_out(c)}/plugin-ready", "")


# -- sandbox workloads

WORKLOADS = ("container", "vm-passthrough", "vm-vgpu")


def _status(c: Ctx, name: str) -> None:
    c.write(f"{_out(c)}/{name}", "")


def _retry(c: Ctx, words: str, message: str) -> None:
    """A check that waits inside the process when it may, and fails otherwise."""
    if _true(c, "WITH_WAIT"):
        raise Wait(words, RETRY)
    raise Crash(f"Error: {message}")


def _begin(c: Ctx, *stale: str) -> None:
    """Status files of an earlier container prove nothing now."""
    if c.container.user != 0:
        raise Crash(f"mkdir {VALIDATIONS}: permission denied (runAsUser 0 is needed)")
    c.need_privileged("the host's devices cannot be seen")
    c.need_mount(_out(c), "the status file must reach the host", host=VALIDATIONS, writable=True)
    if not c.mem.get("began"):
        c.mem["began"] = True
        for name in stale:
            c.remove(f"{_out(c)}/{name}")


def _workload_config(c: Ctx) -> str:
    """The node's workload: its label, or the default of the environment, or of the program; told in workload-type.
    It is looked up once, before any waiting."""
    if "workload" in c.mem:
        return str(c.mem["workload"])
    name = c.need_env("NODE_NAME", f"invalid -n <node-name> flag for {c.env['COMPONENT']} validation")
    path = f"/api/v1/nodes/{name}"
    node = c.call(f"error getting gpu workload config: unable to get node {name}", lambda api: api.get(path))
    asked = (node["metadata"].get("labels") or {}).get("nvidia.com/gpu.workload.config")
    default = c.env.get("DEFAULT_GPU_WORKLOAD_CONFIG", "")
    found = next((one for one in (asked, default) if one in WORKLOADS), "vm-passthrough")
    c.write(f"{_out(c)}/workload-type", found + "\n")
    c.mem["workload"] = found
    return str(found)


def _vfio_pci(c: Ctx) -> None:
    _begin(c, "vfio-pci-ready")
    if _workload_config(c) != "vm-passthrough":
        return
    for gpu in c.node.gpus:
        if gpu.driver not in VFIO:  # no wait loop, whatever WITH_WAIT says
            raise Crash(
                "Error: error validating vfio-pci driver installation: device not bound to 'vfio-pci'; "
                f"device: {gpu.address} driver: '{gpu.driver}'"
            )
    _status(c, "vfio-pci-ready")


_PROGRAMS = ("usr/bin", "usr/sbin", "bin", "sbin")


def _vgpu_manager(c: Ctx) -> None:
    """nvidia-smi below /host or the driver root that is mounted; then what virtual GPUs are made on, for 5 minutes."""
    _begin(c, "vgpu-manager-ready", "host-vgpu-manager-ready")
    if _workload_config(c) != "vm-vgpu":
        return
    c.need_mount("/host", "the host's driver cannot be looked for", host="/", propagation="HostToContainer")
    root = "/run/nvidia/driver"
    c.need_mount(root, "the driver's root cannot be entered", propagation="HostToContainer")
    host = c.node.host_driver
    if not host and not (c.node.driver_loaded and any(c.exists(f"{root}/{p}/nvidia-smi") for p in _PROGRAMS)):
        missing = f"chroot: failed to run command 'nvidia-smi': No such file or directory (below {root})"
        _retry(c, f"{missing}; command failed, retrying after 5 seconds", missing)
    with_vfs = [gpu for gpu in c.node.gpus if gpu.vfs]
    if not (with_vfs or c.node.mdev_parents):
        since = c.mem.setdefault("parents", c.world.now())
        if c.world.now() - since > c.world.scaled(300.0):
            raise Crash(
                "Error: error validating vGPU Manager installation: vGPU Manager parent devices not ready: "
                "context deadline exceeded"
            )
        raise Wait("found 0 mdev parent devices", RETRY)
    _status(c, "host-vgpu-manager-ready" if host else "vgpu-manager-ready")


def _vgpu_devices(c: Ctx) -> None:
    """One mdev device is enough. Virtual GPUs of the SR-IOV kind are no mdev devices, and are not seen (L35)."""
    _begin(c, "vgpu-devices-ready")
    if _workload_config(c) != "vm-vgpu":
        return
    if c.node.spec.vgpu != "mdev" or not any(gpu.vgpus for gpu in c.node.gpus):
        _retry(
            c, "No vGPU devices found, retrying after 5 seconds", "error validating vGPU devices: no vGPU devices found"
        )
    _status(c, "vgpu-devices-ready")


def _cc_manager(c: Ctx) -> None:
    _begin(c, "cc-manager-ready")
    name = c.need_env("NODE_NAME", "the label nvidia.com/cc.capable is read")
    node = c.call(f"unable to fetch node by name {name}", lambda api: api.get(f"/api/v1/nodes/{name}"))
    capable = (node["metadata"].get("labels") or {}).get("nvidia.com/cc.capable") == "true"
    if capable and not c.exists(f"{_out(c)}/.cc-manager-ctr-ready"):
        missing = f"stat: cannot stat '{_out(c)}/.cc-manager-ctr-ready': No such file or directory"
        _retry(c, f"{missing}; command failed, retrying after 5 seconds", f"CC Manager is not ready: {missing}")
    _status(c, "cc-manager-ready")


# -- metrics of the node-status-exporter


def _metrics(c: Ctx) -> Up:
    port = c.env.get("METRICS_PORT", "0")
    if not port.isdigit() or port == "0":
        raise Crash(f"Error: invalid -p <port> flag value: METRICS_PORT is {port!r}")
    name = c.need_env("NODE_NAME", "metrics carry the node's name")
    c.need_env("OPERATOR_NAMESPACE", "the driver's DaemonSet is looked for there")
    c.need_mount(VALIDATIONS, "status files of the host cannot be seen", host=VALIDATIONS)
    c.need_mount("/host", "the driver check cannot be run")
    if "asked" not in c.mem:
        c.call(f"unable to fetch node by name {name}", lambda api: api.get(f"/api/v1/nodes/{name}"))
        c.mem["asked"] = True
    return Up(listens={int(port): ("/metrics", "/")})


# -- the workload itself


def vector_add(c: Ctx) -> Up | Done:
    _see_gpus(c)
    if c.node.spec.nvswitch and c.world.faults.of(c.node.name, "no_fabric_manager"):
        raise Crash(
            "[Vector addition of 50000 elements] Failed to allocate device vector A (error code system not yet "
            "initialized)!"
        )
    c.spend("Vector addition of 50000 elements", 4)
    return Done("Test PASSED")


def nvidia_smi(c: Ctx) -> Up | Done:
    _see_gpus(c)
    return Done("GPU 0")


def _see_gpus(c: Ctx) -> None:
    """What every CUDA or NVML program in a container needs."""
    limits = (c.container.spec.get("resources") or {}).get("limits") or {}
    asked = [key for key in limits if key.startswith(("nvidia.com/gpu", "nvidia.com/mig-"))]
    allocated = any(c.node.offered.get(key) for key in asked)
    if asked and not allocated:
        raise Crash(
            "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
            f"{asked[0]}, which is unexpected"
        )
    if (not allocated and not c.gpu_injected()) or not c.node.driver_loaded:
        raise Crash(
            "[Vector addition of 50000 elements] Failed to allocate device vector A (error code CUDA driver "
            "version is insufficient for CUDA runtime version)!"
        )
    if not c.gpus:
        raise Crash(
            "[Vector addition of 50000 elements] Failed to allocate device vector A (error code no "
            "CUDA-capable device is detected)!"
        )


PROGRAM = Program(step)
VECTOR_ADD = Program(vector_add)
NVIDIA_SMI = Program(nvidia_smi)
