# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``vfio-manage`` of the driver manager's image (gpu-operator.md 7.8): hands GPUs to virtual machines, and takes them
back."""

from __future__ import annotations

from ..context import Crash, Ctx, Done, Up
from ..node import VFIO
from . import Program


def step(c: Ctx) -> Up | Done:
    script = c.script()
    argv = script.command if script is not None else tuple(c.container.argv)
    if not {"bind", "unbind"} & set(argv[1:]):
        raise Crash(f"No help topic for {argv[1] if len(argv) > 1 else '(none)'!r}")
    if not {"--all", "-a"} & set(argv):
        raise Crash("either --all or --device-id must be specified")
    if "unbind" in argv:
        _unbind(c, argv)
    elif "bound" not in c.mem:
        c.spend("Binding devices", 2)
        _bind(c)
        c.mem["bound"] = True
    return Up() if script is not None and script.forever else Done()


def _bind(c: Ctx) -> None:
    """A GPU that cannot be bound is a warning: the program goes on and ends well. The sandbox validator finds it."""
    for gpu in c.node.gpus:
        wanted = gpu.vfio_driver
        if gpu.driver == wanted:
            continue
        problem = _missing(c)
        if not problem and gpu.index in (c.world.faults.of(c.node.name, "vfio_held") or ()):
            problem = f"failed to unbind device {gpu.address}: failed to unbind {gpu.address} from {gpu.driver}: busy"
        elif not problem:
            gpu.driver = ""
            if not c.node.spec.iommu or c.world.faults.of(c.node.name, "no_iommu"):
                path = f"/sys/bus/pci/drivers/{wanted}/bind"
                problem = (
                    f"failed to bind device {gpu.address} to {wanted}: failed to bind {gpu.address} to {wanted}: "
                    f"write {path}: invalid argument"
                )
            else:
                c.node.modules.add(wanted.replace("-", "_"))
                gpu.driver = wanted
            c.node.changed()
        if problem:
            c.log.append(f"Failed to bind device {gpu.address}: {problem}")


def _missing(c: Ctx) -> str:
    """What the container lacks, in the words of the step that fails without it."""
    modules = c.container.place("/lib/modules")
    if modules is None or modules.kind != "host":
        path = f"/lib/modules/{c.node.spec.kernel}/modules.alias"
        return f"failed to find best vfio variant driver: failed to read file {path}: no such file or directory"
    root = c.container.place(c.env.get("HOST_ROOT") or "/")
    if root is None or root.path != "/":
        return 'failed to load "vfio_pci" driver: no such file or directory (the host is not mounted at HOST_ROOT)'
    sys = c.container.place("/sys")
    if not c.container.privileged or sys is None or sys.path != "/sys" or sys.read_only:
        return "failed to unbind device: open driver_override: read-only file system"
    return ""


def give_back(c: Ctx) -> None:
    """``vfio-manage unbind --all``. The kernel asks a virtual machine to let its GPU go, and waits until it has, so
    that pods of such machines are hurt."""
    if any(gpu.driver in VFIO for gpu in c.node.gpus):
        c.node.hurt += [name for name in _machines(c) if name not in c.node.hurt]
    c.node.unbind_vfio()


def _machines(c: Ctx) -> list[str]:
    """Pods that hold a GPU by a resource of the sandbox device plugins: namespace/name."""
    found = []
    for pod in c.world.pods_on(c.node.name):
        limits = [(one.get("resources") or {}).get("limits") or {} for one in pod["spec"].get("containers") or []]
        held = {key for each in limits for key in each if key.startswith("nvidia.com/")}
        ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if not ended and any(not key.startswith(("nvidia.com/gpu", "nvidia.com/mig-")) for key in held):
            found.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    return sorted(found)


def _unbind(c: Ctx, argv: tuple[str, ...]) -> None:
    if {"--all", "-a"} & set(argv):
        give_back(c)


def hook(c: Ctx, argv: tuple[str, ...]) -> None:
    """The preStop command of the VFIO manager; nothing is unbound where it has none."""
    if argv[0].rsplit("/", 1)[-1] == "vfio-manage" and "unbind" in argv:
        _unbind(c, argv)


PROGRAM = Program(step, hook=hook)
