# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One program per image: what the container of an operand does on a node.

``find`` knows images and command lines only: what an image is comes from the registry, never from a pod's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ..context import Crash, Ctx, Done, Up

Step = Callable[[Ctx], Up | Done]


@dataclass(frozen=True)
class Program:
    """``step`` moves the process on; ``startup`` runs an exec startup probe and says what is wrong; ``stop`` is
    SIGTERM; ``hook`` is what a preStop command runs in the container."""

    step: Step
    startup: Callable[[Ctx], str] | None = None
    stop: Callable[[Ctx], None] | None = None
    hook: Callable[[Ctx, tuple[str, ...]], None] | None = None


def _unknown(c: Ctx) -> Up | Done:
    what = " ".join(c.container.argv) or "(the image's own command)"
    raise Crash(f'exec: "{what[:120]}": executable file not found in $PATH in image {c.container.image}', 127)


UNKNOWN = Program(_unknown)


@cache
def _tables() -> dict[str, dict[str, Program]]:
    """Program of an image -> name of a command ("" is the image's own) -> what it does."""
    # Here, not above: these modules import Program from this one.
    from . import (
        cc_manager,
        cuda_toolkit,
        dcgm,
        dcgm_exporter,
        device_plugin,
        driver,
        driver_manager,
        gfd,
        mig_manager,
        mps,
        nfd_pods,
        sandbox_plugins,
        toolkit,
        vfio,
        vgpu,
    )
    from . import shells as _shells
    from . import validator as _validator

    return {
        "driver-manager": {"driver-manager": driver_manager.PROGRAM, "vfio-manage": vfio.PROGRAM},
        "driver": {"nvidia-driver": driver.PROGRAM},
        "gds": {"nvidia-gds-driver": driver.GDS},
        "gdrcopy": {"nvidia-gdrcopy-driver": driver.GDRCOPY},
        "toolkit": {"nvidia-toolkit": toolkit.PROGRAM, "nvidia-ctk-installer": toolkit.PROGRAM},
        "operator": {
            "nvidia-validator": _validator.PROGRAM, "vectorAdd": _validator.VECTOR_ADD, "sleep": _shells.WAITER,
            "nvidia-smi": _validator.NVIDIA_SMI,
        },
        "device-plugin": {
            "nvidia-device-plugin": device_plugin.PROGRAM,
            "gpu-feature-discovery": gfd.PROGRAM,
            "config-manager": device_plugin.CONFIG_MANAGER,
            "mps-control-daemon": mps.PROGRAM,
            "": device_plugin.PROGRAM,
        },
        "dcgm": {"nv-hostengine": dcgm.PROGRAM, "": dcgm.PROGRAM},
        "dcgm-exporter": {
            "dcgm-exporter": dcgm_exporter.PROGRAM, "dcgm-exporter-entrypoint.sh": dcgm_exporter.PROGRAM,
            "": dcgm_exporter.PROGRAM,
        },
        "mig-manager": {"nvidia-mig-manager": mig_manager.PROGRAM, "": mig_manager.PROGRAM},
        "nfd": {"nfd-worker": nfd_pods.WORKER, "nfd-master": nfd_pods.MASTER, "nfd-gc": nfd_pods.GC},
        "vgpu-manager": {"nvidia-driver": vgpu.MANAGER},
        "vgpu-device-manager": {"nvidia-k8s-vgpu-dm": vgpu.DEVICE_MANAGER, "": vgpu.DEVICE_MANAGER},
        "sandbox-device-plugin": {
            "nvidia-kubevirt-gpu-device-plugin": sandbox_plugins.KUBEVIRT, "": sandbox_plugins.KUBEVIRT,
        },
        "kata-sandbox-device-plugin": {"nvidia-sandbox-device-plugin": sandbox_plugins.KATA, "": sandbox_plugins.KATA},
        "cc-manager": {"k8s-cc-manager": cc_manager.PROGRAM, "": cc_manager.PROGRAM},
        "cuda": {"ln": cuda_toolkit.PROGRAM, "sleep": _shells.WAITER},
        "shell": {"": _shells.WAITER},
    }  # fmt: skip


def find(c: Ctx) -> Program:
    """The program that a container becomes. A shell that only waits is the same in every image."""
    known = _tables().get(c.image.program, {}) if c.image else {}
    argv = c.container.argv
    if not argv:
        return known.get("", UNKNOWN)
    script = c.script()
    if script is not None:
        argv = list(script.command)
        if not argv or (script.forever and argv[0].rsplit("/", 1)[-1] not in known):
            return _tables()["shell"][""]
    return known.get(argv[0].rsplit("/", 1)[-1], UNKNOWN)
