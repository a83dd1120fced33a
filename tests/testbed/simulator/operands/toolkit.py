# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-toolkit`` (gpu-operator.md 7.1, 7.2): installs the toolkit on the host and sets up the container runtime."""

from __future__ import annotations

import posixpath

from ..context import Crash, Ctx, Done, Up
from ..nodefs import normal
from . import Program

MANAGEMENT = "management.nvidia.com/gpu"


def _true(c: Ctx, name: str, default: bool) -> bool:
    value = c.env.get(name, "")
    return default if value == "" else value.lower() == "true"


def step(c: Ctx) -> Up | Done:
    script = c.script()
    if script is not None:
        c.follow(script)
        if script.sources:
            c.spend("Sleeping 5 seconds before starting the toolkit", 5)
    if "driver_root" not in c.mem:
        _start(c)
        c.mem["driver_root"] = True
    return Up()


def _start(c: Ctx) -> None:
    node = c.node
    c.need_privileged("the toolkit cannot be installed on the host")
    if c.env.get("NVIDIA_VISIBLE_DEVICES", "") != "void":
        raise Crash(
            "NVIDIA_VISIBLE_DEVICES is not void: nvidia-container-runtime would be asked for devices before "
            "it is set up"
        )
    # Sourced from driver-ready by the entrypoint; the image's own default is the root of a driver container.
    root = c.env.get("NVIDIA_DRIVER_ROOT") or "/run/nvidia/driver"
    inside = c.env.get("DRIVER_ROOT_CTR_PATH") or "/driver-root"
    driver = c.need_mount(inside, "the driver's files cannot be found", propagation="HostToContainer")
    if node.host_driver != (driver.path == "/"):
        raise Crash(f"failed to locate libcuda.so below {inside} (host path {driver.path}, NVIDIA_DRIVER_ROOT {root})")
    if not node.host_driver and (driver.path != normal(root) or node.driver_root != driver.path):
        raise Crash(f"failed to locate libcuda.so below {inside} (host path {driver.path}, NVIDIA_DRIVER_ROOT {root})")
    install = c.need_env("ROOT", "the toolkit must know where to install itself")
    target = c.need_mount(
        install, f"the toolkit would be installed in the container, not on the host (ROOT={install})", writable=True
    )
    if node.spec.os_id == "cos" and target.path.startswith("/usr/"):
        raise Crash(f"unable to install toolkit: mkdir {target.path}/toolkit: read-only file system")
    pid = c.need_env("TOOLKIT_PID_FILE", "the toolkit locks itself with it")
    c.need_mount(posixpath.dirname(pid), "the PID file cannot be made", host="/run/nvidia/toolkit", writable=True)
    c.spend("Installing NVIDIA container toolkit", 6)
    for name in ("nvidia-container-runtime", "nvidia-ctk", "nvidia-cdi-hook"):
        node.write(f"{target.path}/toolkit/{name}", "elf")
    if _true(c, "CDI_ENABLED", False):
        kind = c.need_env(
            "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND",
            "the runtime must know the CDI kind of management containers",
        )
        place = c.need_mount("/var/run/cdi", "CDI specifications cannot be written", host="/var/run/cdi", writable=True)
        if kind == MANAGEMENT:
            node.write(f"{place.path}/management.nvidia.com-gpu.yaml", f"root: {root}")
            node.cdi_kinds.add(kind)
    if _true(c, "ENABLE_NRI_PLUGIN", False):
        _nri(c)
    else:
        _runtime(c, f"{install}/toolkit/nvidia-container-runtime")
    node.changed()


def _nri(c: Ctx) -> None:
    socket = c.need_env("NRI_SOCKET", "the NRI plugin cannot register itself")
    c.need_env("NRI_NAMESPACE", "the NRI plugin must know which pods may ask for management devices")
    place = c.need_mount(posixpath.dirname(socket), "the runtime's NRI socket cannot be reached")
    version = c.node.spec.runtime.split("://")[-1]
    if posixpath.join(place.path, posixpath.basename(socket)) != "/run/nri/nri.sock":
        raise Crash(f"failed to connect to NRI socket {socket}: {place.path} of the host has none")
    if c.node.runtime == "docker" or (c.node.runtime == "containerd" and int(version.split(".")[0]) < 2):
        raise Crash(f"failed to connect to NRI socket {socket}: {c.node.spec.runtime} has NRI off")
    c.node.nri = True


_NAMES = {"containerd": "containerd", "docker": "docker", "crio": "cri-o"}


def _runtime(c: Ctx, binary: str) -> None:
    node, asked = c.node, c.need_env("RUNTIME", "containerd, docker or crio must be chosen")
    if asked not in _NAMES:
        raise Crash(f"unsupported runtime: {asked!r}")
    if _NAMES[asked] != node.runtime:
        raise Crash(f"unable to set up {asked}: this node runs {node.spec.runtime}")
    own = asked.upper()
    config = c.env.get(f"{own}_CONFIG") or c.need_env(
        "RUNTIME_CONFIG", "the runtime's configuration file must be known"
    )
    host_config = _on_host(c, config, f"{config} cannot be written on the host", writable=True)
    if not node.reads_config(host_config):
        raise Crash(
            f"{asked} of this node reads {node.spec.paths['config']}; {config} is {host_config} of the host: "
            "the handler nvidia would not be known"
        )
    if asked != "docker":
        _drop_in(c, asked)
    if asked != "crio":
        socket = c.env.get(f"{own}_SOCKET") or c.env.get("RUNTIME_SOCKET") or f"/run/{asked}/{asked}.sock"
        host_socket = _on_host(c, socket, f"{socket} cannot be reached: {asked} would not be restarted")
        if normal(host_socket) != normal(node.spec.paths["socket"]):
            raise Crash(
                f"unable to dial: dial unix {socket}: connect: no such file or directory ({host_socket} of "
                f"the host; {asked} listens on {node.spec.paths['socket']})"
            )
    elif c.env.get("CRIO_CONFIG_MODE", "hook") == "hook":
        c.need_mount("/usr/share/containers/oci/hooks.d", "the OCI hook cannot be installed", writable=True)
    c.need_host_pid(f"{asked} cannot be signalled")
    c.spend(f"restarting {asked}", 3)
    main = c.env.get(f"{own}_RUNTIME_CLASS") or c.env.get("RUNTIME_CLASS") or "nvidia"
    for handler in (main, "nvidia-cdi", "nvidia-legacy"):
        node.handlers[handler] = binary
    # With CDI off the toolkit makes nvidia the default runtime unless it is told not to (7.2).
    if _true(c, "NVIDIA_RUNTIME_SET_AS_DEFAULT", True):
        node.default_handler = main


def _on_host(c: Ctx, path: str, why: str, writable: bool = False) -> str:
    """The host path of a file whose folder is mounted."""
    place = c.need_mount(posixpath.dirname(path), why, writable=writable)
    return posixpath.join(place.path, posixpath.basename(path))


def _drop_in(c: Ctx, asked: str) -> None:
    path = c.need_env("RUNTIME_DROP_IN_CONFIG", "the handlers are written there")
    host_path = _on_host(c, path, f"{path} cannot be written on the host", writable=True)
    told = c.env.get("RUNTIME_DROP_IN_CONFIG_HOST_PATH", "")
    if asked == "containerd" and normal(told or "/") != normal(host_path):
        raise Crash(
            f"RUNTIME_DROP_IN_CONFIG_HOST_PATH is {told or 'not set'}, the file is {host_path} of the host: "
            "containerd would not import it"
        )
    if asked == "crio" and normal(posixpath.dirname(host_path)) != "/etc/crio/crio.conf.d":
        raise Crash(f"cri-o does not read {host_path}")
    c.node.write(host_path, "nvidia")


PROGRAM = Program(step)
