# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MPS control daemon (mig-plugin-gfd.md 4.7; gpu-operator.md 7.4). Its pods exist only where GFD says
nvidia.com/mps.capable."""

from __future__ import annotations

from ..advertise import PluginError, resources, strategy_of
from ..context import Crash, Ctx, Done, Up
from . import Program
from .device_plugin import config_of

ROOT = "/run/nvidia/mps"


def step(c: Ctx) -> Up | Done:
    if "mount-shm" in c.container.argv:
        c.need_privileged("mount: permission denied")
        place = c.need_mount(
            "/mps", "the shared memory of MPS must reach the host", propagation="Bidirectional", writable=True
        )
        c.node.write(f"{place.path}/shm/.mounted", "")
        return Done()
    c.need_env("NODE_NAME", "the MPS daemon must know its node")
    config = config_of(c)
    if config.sharing.kind != "mps":
        return Up(message="No devices are configured for MPS sharing; waiting")
    c.need_gpu("mps-control-daemon")
    c.need_host_pid("MPS servers cannot see the processes of their clients")
    place = c.need_mount("/mps", "pipes of the MPS daemon must be on the host", writable=True)
    c.need_mount("/dev/shm", "MPS clients would have no shared memory", host=f"{place.path}/shm")
    if not c.node.fs.exists(f"{place.path}/shm/.mounted"):
        raise Crash(f"{place.path}/shm is not a tmpfs: mount-shm did not run")
    try:
        counts = resources(c.gpus, strategy_of(c.env, config), config)
    except PluginError as error:
        raise Crash(f"error getting daemons: {error}") from None
    for name in config.sharing.replicas:
        if name in counts and name not in c.node.mps_ready:
            c.node.mps_ready.add(name)
            c.node.write(f"{place.path}/{name.split('/')[-1]}/.started", "")
    return Up()


def stop(c: Ctx) -> None:
    if c.node.mps_ready and "mount-shm" not in c.container.argv:
        c.node.mps_ready.clear()
        c.node.changed()


PROGRAM = Program(step, stop=stop)
