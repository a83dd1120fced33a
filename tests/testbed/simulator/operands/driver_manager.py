# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""k8s-driver-manager, ``driver-manager uninstall_driver`` (gpu-operator.md 5.6): clears the way for a driver
container."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ..context import Crash, Ctx, Done, Object, PodApi, Up, Wait
from . import Program
from .vfio import give_back

# Labels of what holds the GPU, paused while the driver is unloaded (5.6, step 4).
PAUSED = "paused-for-driver-upgrade"
DEPLOY = "nvidia.com/gpu.deploy."
CLIENTS = (
    "operator-validator", "container-toolkit", "device-plugin", "gpu-feature-discovery", "dcgm-exporter",
    "dcgm", "nvsm",
    "sandbox-validator", "sandbox-device-plugin", "vgpu-device-manager", "dra-validator", "dcgm-dra",
    "dcgm-exporter-dra", "mig-manager",
)  # fmt: skip
APPS = {
    "operator-validator": "nvidia-operator-validator", "container-toolkit": "nvidia-container-toolkit-daemonset",
    "device-plugin": "nvidia-device-plugin-daemonset", "gpu-feature-discovery": "gpu-feature-discovery",
    "dcgm-exporter": "nvidia-dcgm-exporter", "dcgm": "nvidia-dcgm", "mig-manager": "nvidia-mig-manager",
    "sandbox-validator": "nvidia-sandbox-validator",
    "sandbox-device-plugin": "nvidia-sandbox-device-plugin-daemonset",
    "vgpu-device-manager": "nvidia-vgpu-device-manager",
}  # fmt: skip


def _set_labels(c: Ctx, labels: dict[str, str]) -> None:
    if labels:
        path = f"/api/v1/nodes/{c.env['NODE_NAME']}"
        c.call("failed to label the node", lambda api: api.patch(path, {"metadata": {"labels": labels}}))


def _restore(c: Ctx, labels: dict[str, str]) -> None:
    values = {}
    for key, value in labels.items():
        if value == PAUSED:
            values[key] = "true"
        elif value.endswith("_" + PAUSED):
            values[key] = value.removesuffix("_" + PAUSED)
    _set_labels(c, values)


def _running(c: Ctx, apps: Iterable[str]) -> list[str]:
    wanted = set(apps)
    return sorted(
        p["metadata"]["name"]
        for p in c.world.pods_on(c.node.name)
        if (p["metadata"].get("labels") or {}).get("app") in wanted
    )


def step(c: Ctx) -> Up | Done:
    if "uninstall_driver" not in c.container.argv:
        raise Crash(f"driver-manager: unknown command {' '.join(c.container.argv[1:]) or '(none)'}")
    labels = _start(c)
    if c.node.host_driver:
        if c.node.labels.get(DEPLOY + "driver") != "pre-installed":
            _set_labels(c, {DEPLOY + "driver": "pre-installed"})
        c.spend("a driver of the host was found: leaving the node to it", 60)
        raise Crash(
            "NVIDIA driver is already pre-installed on the node, disabling the containerized driver on the node"
        )
    digest = c.env.get("DRIVER_CONFIG_DIGEST", "")
    same = digest and digest == c.node.driver_digest and c.env.get("FORCE_REINSTALL") != "true"
    pause: dict[str, str] = {}
    if not c.node.driver_loaded:
        if c.world.faults.of(c.node.name, "nouveau"):
            c.node.modules.add("nouveau")  # in use, by the console for example: delete_module answers EAGAIN
        else:
            c.node.unload_nouveau()
        c.node.fs.remove("/run/nvidia/nvidia-driver.pid")
    elif not same:
        pause = _uninstall(c, labels)
    if not same:
        give_back(c)
        _wait_for_mofed(c)
    c.node.driver_root = ""
    mine = {key: c.node.labels.get(key, "") for key in (DEPLOY + name for name in (*CLIENTS, "client"))}
    _restore(c, mine | pause)
    return Done()


def _start(c: Ctx) -> dict[str, str]:
    """What it must have been given; the node's labels."""
    name = c.need_env("NODE_NAME", "k8s-driver-manager must know its node")
    c.need_env("OPERATOR_NAMESPACE", "k8s-driver-manager looks for operand pods there")
    c.need_privileged("modules cannot be unloaded")
    c.need_mount("/host", "nvidia-smi of the host cannot be looked for", host="/", propagation="HostToContainer")
    c.need_mount(
        "/run/nvidia", "the driver's root cannot be unmounted", host="/run/nvidia", propagation="Bidirectional"
    )
    c.need_mount("/sys", "loaded modules cannot be seen", host="/sys")
    if "labels" not in c.mem:
        node = c.call(f"failed to get node {name}", lambda api: api.get(f"/api/v1/nodes/{name}"))
        c.mem["labels"] = node["metadata"].get("labels") or {}
    return dict(c.mem["labels"])


def _uninstall(c: Ctx, labels: dict[str, str]) -> dict[str, str]:
    """A loaded driver of another configuration: pauses its clients, waits until they are gone, unloads it."""
    pause: dict[str, str] = {}
    for short in CLIENTS:
        value = labels.get(DEPLOY + short, "")
        if value == "true":
            pause[DEPLOY + short] = PAUSED
        elif value and value != "false" and not value.endswith(PAUSED):
            pause[DEPLOY + short] = f"{value}_{PAUSED}"
    if pause and "paused" not in c.mem:
        _set_labels(c, pause)
    c.mem["paused"] = True
    left = _running(c, APPS.values())
    if left:
        raise Wait(f"waiting for pods that hold the GPU to go: {', '.join(left)}")
    busy = gpu_pods(c)
    if busy:
        _evict(c, busy)
        raise Wait(f"waiting for pods that use a GPU to go: {', '.join(busy)}")
    c.spend("unloading the driver", 10)
    c.node.unload_driver()
    c.node.driver_digest = ""
    c.node.fs.remove_tree("/run/nvidia/driver")
    return pause


def _wait_for_mofed(c: Ctx) -> None:
    """GPUDirect RDMA on a node with a Mellanox adapter: its driver, of a container or of the host, comes first."""
    if c.env.get("GPU_DIRECT_RDMA_ENABLED") != "true" or not c.node.spec.mellanox:
        return
    path = "/run/mellanox/drivers"
    c.need_mount(path, "MOFED of a container cannot be seen", host=path, propagation="HostToContainer")
    if "mlx5_core" not in c.node.modules and not c.exists(f"{path}/.driver-ready"):
        raise Wait("waiting for MOFED to be installed")


def _evict(c: Ctx, busy: list[str]) -> None:
    if c.env.get("ENABLE_GPU_POD_EVICTION") != "true" and c.env.get("ENABLE_AUTO_DRAIN") != "true":
        raise Crash(f"unable to unload the driver: GPU is in use by {', '.join(busy)}, and eviction and drain are off")
    if "evicted" in c.mem or _auto_upgrade(c):
        return
    for namespace, pod in (b.split("/") for b in busy):
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        c.call(f"failed to evict {namespace}/{pod}", partial(_post, path, body))
    c.mem["evicted"] = True


def _post(path: str, body: Object, api: PodApi) -> Object:
    return api.post(path, body)


def _auto_upgrade(c: Ctx) -> bool:
    notes = (c.node.obj.get("metadata") or {}).get("annotations") or {}
    return notes.get("nvidia.com/gpu-driver-upgrade-enabled") == "true"


def gpu_pods(c: Ctx) -> list[str]:
    """Pods of users that hold a GPU of this node: namespace/name."""
    out = []
    for pod in c.world.pods_on(c.node.name):
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        for container in pod["spec"].get("containers") or []:
            limits = (container.get("resources") or {}).get("limits") or {}
            if any(key.startswith(("nvidia.com/gpu", "nvidia.com/mig-")) for key in limits):
                out.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
                break
    return sorted(out)


PROGRAM = Program(step)
