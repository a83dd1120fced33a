# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver container and its companions: nvidia-driver, nvidia-fs, gdrcopy (gpu-operator.md 3.6, 3.5)."""

from __future__ import annotations

import math

from ..context import Crash, Ctx, Done, Up, Wait
from . import Program

FLAG = "/run/nvidia/validations/.driver-ctr-ready"
OPEN_ONLY = {10, 12, 13}  # Blackwell and later have open kernel modules only


def _true(value: str) -> str:
    return "true" if value.lower() == "true" else "false"


def step(c: Ctx) -> Up | Done:
    verb = next((a for a in c.container.argv[1:] if not a.startswith("-")), "")
    if verb == "init":
        return _init(c)
    if verb == "reload_nvidia_peermem":
        return _peermem(c)
    raise Crash(f"nvidia-driver: unknown command {verb or '(none)'}: usage: nvidia-driver COMMAND [ARG...]")


FIRMWARE = "/sys/module/firmware_class/parameters/path"
# path in the container, path of the host, why it is needed
_MOUNTS = (
    ("/host-etc/os-release", "/etc/os-release", "the driver's build must know the system of the host"),
    (FIRMWARE, FIRMWARE, "the firmware search path cannot be set"),
    ("/lib/firmware", "/run/nvidia/driver/lib/firmware", "the kernel would not find the GSP firmware"),
    ("/var/log", "/var/log", "nvidia-installer cannot write its log"),
    ("/dev/log", "/dev/log", "nvidia-persistenced has no system log"),
    ("/sys/devices/system", "/sys/devices/system", "CPUs and NUMA memory cannot be brought online"),
)  # fmt: skip


def _init(c: Ctx) -> Up | Done:
    node = c.node
    c.need_privileged("modules cannot be loaded")
    c.need_host_pid("nvidia-persistenced and the check for another driver instance need the host's processes")
    place = c.need_mount(
        "/run/nvidia",
        "the driver's root must reach the host",
        host="/run/nvidia",
        propagation="Bidirectional",
        writable=True,
    )
    for path, host, why in _MOUNTS:
        c.need_mount(path, why, host=host)
    if node.spec.nvswitch:
        path = "/run/nvidia-fabricmanager"
        c.need_mount(path, "fabric manager of an NVSwitch system has no socket folder", host=path)
    if node.spec.mellanox:
        path = "/run/mellanox/drivers"
        c.need_mount(path, "MOFED of a container cannot be seen", host=path, propagation="HostToContainer")
    c.need_env("NODE_NAME", "the driver container must know its node")
    _fits(c)
    crash = c.world.faults.of(node.name, "driver_crash")
    if crash:
        raise Crash(str(crash))
    digest = c.env.get("DRIVER_CONFIG_DIGEST", "")
    if not (node.driver_loaded and node.driver_digest and node.driver_digest == digest):
        _install(c)
        node.driver_digest = digest
    if node.driver_root != place.path + "/driver":
        node.driver_root = place.path + "/driver"
        node.fs.make("/run/nvidia/driver/usr/src")
        node.fs.make("/run/nvidia/driver/dev")
        node.fs.write("/run/nvidia/driver/usr/bin/nvidia-smi", "elf")
        node.fs.write("/run/nvidia/driver/usr/lib/libnvidia-ml.so.1", "elf")
        node.fs.write("/run/nvidia/nvidia-driver.pid", "1")
        node.fs.write("/run/nvidia/nvidia-driver.state", digest)
        node.changed()
    return Up()


def _install(c: Ctx) -> None:
    node = c.node
    if c.world.faults.of(node.name, "no_precompiled"):
        raise Crash(f"No precompiled package found for kernel {node.spec.kernel}")
    if c.world.faults.of(node.name, "driver_hangs"):
        raise Wait("Installing NVIDIA driver kernel modules", 60)
    slow = c.world.faults.of(node.name, "driver_seconds")
    usual = 25.0 if c.image.kernel else 110.0
    c.spend("Installing NVIDIA driver kernel modules", usual if slow is None else float(slow))
    if "nouveau" in node.modules:
        raise Crash("modprobe: ERROR: could not insert 'nvidia': No such device (nouveau is loaded)")
    if not node.driver_loaded:
        node.load("nvidia", "nvidia_uvm", "nvidia_modeset", version=c.image.version)


def _fits(c: Ctx) -> None:
    """The image must be made for the system of the node, a precompiled one for its kernel, the modules for its GPUs."""
    spec, image = c.node.spec, c.image
    kind = c.need_env("KERNEL_MODULE_TYPE", "auto, open or proprietary must be chosen")
    if kind not in ("auto", "open", "proprietary"):
        raise Crash(f"KERNEL_MODULE_TYPE {kind} is not one of auto, open, proprietary")
    for gpu in c.node.gpus:
        failed = "modprobe: ERROR: could not insert 'nvidia': No such device"
        if kind == "proprietary" and gpu.product.compute[0] in OPEN_ONLY:
            raise Crash(f"NVRM: {gpu.product.name} requires use of the open kernel modules: {failed}")
        if kind == "open" and gpu.product.compute < (7, 5):
            raise Crash(f"NVRM: open kernel modules do not support {gpu.product.name}: {failed}")
    if image.system and image.system != spec.os_tag:
        raise Crash(
            f"Could not resolve Linux kernel version: this image is built for {image.system}, the node runs "
            f"{spec.os_tag} "
            f"(kernel {spec.kernel}): E: Unable to locate package linux-headers-{spec.kernel}"
        )
    if image.kernel and image.kernel != spec.kernel:
        raise Crash(
            f"modprobe: FATAL: Module nvidia not found in directory /lib/modules/{spec.kernel} (precompiled "
            f"for {image.kernel})"
        )


def startup(c: Ctx) -> str:
    """``sh /usr/local/bin/startup-probe.sh``: module loaded, daemons ready, nvidia-smi; then the flag file (3.6)."""
    probe = (c.container.spec.get("startupProbe") or {}).get("exec", {}).get("command") or []
    if c.container.argv[1:2] == ["reload_nvidia_peermem"] or "probe_nvidia_peermem" in " ".join(probe):
        # Without a Mellanox driver there is nothing to load: the probe passes so that the container is not restarted.
        return (
            "nvidia-peermem module is not loaded"
            if "mlx5_core" in c.node.modules and "nvidia_peermem" not in c.node.modules
            else ""
        )
    path = next((word for word in probe if word.endswith(".sh")), "")
    text = c.read(path) if path else None
    if text is None:
        return f"sh: 0: cannot open {path or 'a script'}: No such file"
    if "nvidia-smi" not in text:
        return f"{path} does not run nvidia-smi"
    if not c.node.driver_loaded:
        return "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"
    if "driver-ctr-ready" in text:
        lines = [
            f"{name}={_true(c.env.get(name, ''))}"
            for name in ("GDRCOPY_ENABLED", "GDS_ENABLED", "GPU_DIRECT_RDMA_ENABLED")
        ]
        if c.exists("/run/nvidia"):
            c.node.fs.make("/run/nvidia/validations")
        try:
            c.write(FLAG, "\n".join(line.replace("=", ": ") for line in lines) + "\n")
        except Crash as crash:
            return crash.message
    return ""


def stop(c: Ctx) -> None:
    """The container's root goes; modules stay loaded until a driver manager unloads them."""
    if c.node.driver_root and "init" in c.container.argv:
        c.node.driver_root = ""
        c.node.fs.remove_tree("/run/nvidia/driver/usr")
        c.node.fs.remove_tree("/run/nvidia/driver/dev")
        c.node.changed()


def _needs_driver(c: Ctx, what: str) -> None:
    if not c.node.driver_loaded or not c.node.driver_root:
        raise Wait(f"{what}: waiting for nvidia to be loaded")


def _peermem(c: Ctx) -> Up | Done:
    c.need_privileged("nvidia_peermem cannot be loaded")
    c.need_mount("/run/nvidia", "the driver's root is not there", host="/run/nvidia")
    mofed = "mlx5_core" in c.node.modules
    if c.env.get("USE_HOST_MOFED") != "true":
        mofed = mofed and c.exists("/run/mellanox/drivers/.driver-ready")
    if mofed and c.node.driver_loaded and c.node.driver_root and "nvidia_peermem" not in c.node.modules:
        c.node.load("nvidia_peermem")
    return Up(again=5.0 if "nvidia_peermem" not in c.node.modules and mofed else math.inf)


def _companion(module: str, verb: str) -> Program:
    def run(c: Ctx) -> Up | Done:
        script = c.script()
        if verb not in (script.command if script else c.container.argv):
            raise Crash(f"{module}: unknown command {' '.join(c.container.argv)}")
        c.need_privileged(f"{module} cannot be loaded")
        c.need_mount("/run/nvidia", "the driver's sources are not there", host="/run/nvidia")
        _needs_driver(c, module)
        if c.image.system and c.image.system != c.node.spec.os_tag:
            raise Crash(f"{module}: this image is built for {c.image.system}, the node runs {c.node.spec.os_tag}")
        c.spend(f"building {module}", 20)
        if module not in c.node.modules:
            c.node.load(module)
        return Up()

    return Program(run, startup=lambda c: "" if module in c.node.modules else f"{module} is not loaded")


PROGRAM = Program(step, startup, stop)
GDS = _companion("nvidia_fs", "install")
GDRCOPY = _companion("gdrdrv", "install")
