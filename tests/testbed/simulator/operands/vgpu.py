# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host driver for virtual GPUs and the manager of its devices (gpu-operator.md 3.2, 7.3, 7.8).

What the device manager does, and its words, are from its own source, github.com/NVIDIA/vgpu-device-manager.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from ..context import ApiError, Crash, Ctx, Done, Object, Up, Wait
from ..node import Gpu
from . import Program
from . import driver as _driver

LABEL, STATE = "nvidia.com/vgpu.config", "nvidia.com/vgpu.config.state"
DEPLOY, PAUSED = "nvidia.com/gpu.deploy.", "paused-for-vgpu-change"
CLIENTS = {
    "sandbox-device-plugin": "nvidia-sandbox-device-plugin-daemonset", "sandbox-validator": "nvidia-sandbox-validator",
}  # fmt: skip


# -- the host driver

# path in the container, path of the host, why it is needed
_MOUNTS = (
    ("/host-etc/os-release", "/etc/os-release", "the driver's build must know the system of the host"),
    ("/dev/vfio", "/dev/vfio", "virtual machines cannot be given a virtual GPU"),
    ("/sys/fs/cgroup", "/sys/fs/cgroup", "processes of virtual machines cannot be found"),
    ("/var/log", "/var/log", "nvidia-installer cannot write its log"),
    ("/dev/log", "/dev/log", "nvidia-vgpu-mgr has no system log"),
    (_driver.FIRMWARE, _driver.FIRMWARE, "the firmware search path cannot be set"),
)  # fmt: skip


def manager(c: Ctx) -> Up | Done:
    """``nvidia-driver init`` in the user's own image: the driver, all virtual functions, and what virtual GPUs are made
    on."""
    if "init" not in c.container.argv[1:]:
        raise Crash(f"nvidia-driver: unknown command {' '.join(c.container.argv[1:]) or '(none)'}")
    node = c.node
    c.need_privileged("modules cannot be loaded")
    c.need_host_pid("the manager of virtual GPUs needs the host's processes")
    if not c.pod.spec.get("hostIPC"):
        raise Crash("nvidia-vgpu-mgr: the host's shared memory is not visible (hostIPC is not set)")
    place = c.need_mount(
        "/run/nvidia", "the driver's root must reach the host", host="/run/nvidia", propagation="Bidirectional",
        writable=True,
    )  # fmt: skip
    for path, host, why in _MOUNTS:
        c.need_mount(path, why, host=host)
    if c.image.system and c.image.system != node.spec.os_tag:
        raise Crash(f"Could not resolve Linux kernel version: this image is built for {c.image.system}, the node runs "
                    f"{node.spec.os_tag} (kernel {node.spec.kernel})")  # fmt: skip
    if crash := c.world.faults.of(node.name, "driver_crash"):
        raise Crash(str(crash))
    if not node.driver_loaded:
        _install(c)
    if node.driver_root != f"{place.path}/driver":
        node.driver_root = f"{place.path}/driver"
        node.fs.write(f"{node.driver_root}/usr/bin/nvidia-smi", "elf")
        node.changed()
    if "enabled" not in c.mem:
        if node.spec.vgpu and not c.world.faults.of(node.name, "no_vfs"):
            node.enable_vfs()
        c.mem["enabled"] = True
    return Up()


def _install(c: Ctx) -> None:
    slow = c.world.faults.of(c.node.name, "driver_seconds")
    c.spend("Installing NVIDIA vGPU Manager kernel modules", 60.0 if slow is None else float(slow))
    if "nouveau" in c.node.modules:
        raise Crash("modprobe: ERROR: could not insert 'nvidia': No such device (nouveau is loaded)")
    c.node.load("nvidia", "nvidia_vgpu_vfio", version=c.image.version)


# -- devices


def device_manager(c: Ctx) -> Up | Done:
    if "ready" not in c.mem:
        _start(c)
        c.mem["ready"] = True
    wanted = c.node.labels.get(LABEL) or c.env["DEFAULT_VGPU_CONFIG"]
    doing = c.bring_about(wanted, _reconfigure)
    return Up() if doing is None else Up(message=f"vgpu.config {wanted}: {doing}", again=5.0)


def _start(c: Ctx) -> None:
    for name, flag in (
        ("NODE_NAME", "node-name"), ("NAMESPACE", "namespace"), ("CONFIG_FILE", "config-file"),
        ("DEFAULT_VGPU_CONFIG", "default-vgpu-config"),
    ):  # fmt: skip
        c.need_env(name, f"invalid <{flag}> flag: must not be empty string")
    c.need_privileged("virtual GPUs cannot be made")
    c.need_mount("/sys", "virtual GPUs cannot be made", host="/sys", writable=True)
    c.need_mount("/host", "the host's root cannot be entered", host="/")
    for verb in ("get", "list", "watch", "update"):
        c.need_right(verb, "", "nodes")
    c.need_right("list", "", "pods", c.env["NAMESPACE"])


def _label(c: Ctx, values: dict[str, str]) -> None:
    """A read and an update, as the program does it; a conflict is tried again."""
    path = f"/api/v1/nodes/{c.env['NODE_NAME']}"

    def change(api: Any) -> Object:
        node = api.get(path)
        node["metadata"].setdefault("labels", {}).update(values)
        try:
            return dict(api.put(path, node))
        except ApiError as error:
            if error.status == 409:
                raise Wait(f"updating the node: {error.message}", 1.0, timer=True) from None
            raise

    c.call("unable to update the node's labels", change)
    c.node.labels.update(values)


def _finish(c: Ctx, problem: str) -> None:
    if problem:
        c.log.append(f"Failed to apply vGPU config: {problem}")
    state = "failed" if problem else "success"
    back = {DEPLOY + key: "true" for key in CLIENTS if c.node.labels.get(DEPLOY + key) == PAUSED}
    if back or c.node.labels.get(STATE) != state:
        _label(c, {**back, STATE: state})


def _reconfigure(c: Ctx, wanted: str) -> Iterator[str]:
    path = c.env["CONFIG_FILE"]
    text = c.read(path)
    if text is None:
        raise Crash(f"error parsing config file: read error: open {path}: no such file or directory")
    configs = (yaml.safe_load(text) or {}).get("vgpu-configs") or {}
    if wanted not in configs:
        c.log.append(f"selected vgpu-config not present: {wanted}")
        _finish(c, "unable to validate the selected vGPU configuration")
        return
    plan = [(gpu, dict(e.get("vgpu-devices") or {})) for e in configs[wanted] for gpu in c.node.gpus if _meant(e, gpu)]
    if all(_counts(gpu) == kinds for gpu, kinds in plan):
        _finish(c, "")
        return
    paused = {DEPLOY + key: PAUSED for key in CLIENTS if c.node.labels.get(DEPLOY + key) == "true"}
    _label(c, {**paused, STATE: "pending"})
    apps = {CLIENTS[key.removeprefix(DEPLOY)] for key in paused}
    while left := [
        p["metadata"]["name"]
        for p in c.world.pods_on(c.node.name)
        if (p["metadata"].get("labels") or {}).get("app") in apps
    ]:
        yield f"waiting for {', '.join(sorted(left))} to go"
        c = c.mem["c"]
    _finish(c, next(filter(None, (_make(c, gpu, kinds) for gpu, kinds in plan)), ""))
    c.node.changed()


def _meant(entry: Object, gpu: Gpu) -> bool:
    """``device-filter`` (0x<device><vendor>, one or a list) and ``devices`` (all, or numbers) of an entry."""
    filters = entry.get("device-filter")
    if filters and f"0x{gpu.product.device_id:04X}10DE" not in ([filters] if isinstance(filters, str) else filters):
        return False
    devices = entry.get("devices", "all")
    return bool(devices == "all" or gpu.index in devices)


def _counts(gpu: Gpu) -> dict[str, int]:
    return {kind: gpu.vgpus.count(kind) for kind in gpu.vgpus}


def _make(c: Ctx, gpu: Gpu, kinds: dict[str, int]) -> str:
    """Makes the virtual GPUs of one GPU; says what went wrong."""
    if gpu not in c.node.mdev_parents and not (c.node.spec.vgpu == "vfio" and gpu.vfs):
        return f"no parent devices found for GPU at index '{gpu.index}'"
    for kind, count in kinds.items():
        most = gpu.product.vgpu_instances(kind)
        if not most:
            return f"vGPU type {kind} is not supported on GPU (index={gpu.index}, address={gpu.address})"
        if count > most:
            return (
                f"failed to create {count} {kind} vGPU devices on the GPU. ensure '{count}' does not exceed the "
                f"maximum supported instances for '{kind}'"
            )
    gpu.vgpus = [kind for kind, count in kinds.items() for _one in range(count)]
    return ""


MANAGER = Program(manager, stop=_driver.stop)
DEVICE_MANAGER = Program(device_manager)
