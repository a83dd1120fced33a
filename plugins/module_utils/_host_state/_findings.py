# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What does not fit together on a host, in sentences for people: one small function per question."""

from __future__ import annotations

import os
from typing import Callable, Iterator, List, Tuple

from .._gpu import _pci_ids
from .._gpu._inventory import DISABLED, ENABLED, UNKNOWN
from .._plan import ERROR, INFO, WARNING, Finding
from ._driver import newest, numbers
from ._shape import Found, GpuState
from ._system import ENABLED as BOOT_ENABLED

_PASS_THROUGH = ("vfio-pci", "pci-stub", "xen-pciback")
_RELOAD = "Unload and load the kernel modules, or reboot the host, after its GPU programs have ended."


def look(found: Found) -> List[Finding]:
    """Every finding, by part."""
    return [finding for question in _QUESTIONS for finding in question(found)]


def _branch(version: str) -> int:
    return (numbers(version) or (0,))[0]


def _gpu_ids(found: Found) -> Iterator[Finding]:
    for gpu in found.gpus:
        if gpu.device_id and gpu.architecture == UNKNOWN:
            yield Finding(
                "gpu.unknown",
                WARNING,
                f"a GPU with PCI id {gpu.device_id}, which is not known",
                target=gpu.bus_id,
                remedy="A newer release of this collection may know it."
                + (" It is taken for a new one that needs the open modules." if gpu.flavour == _pci_ids.OPEN else ""),
            )


def _needs(found: Found) -> Iterator[Finding]:
    if found.needs.flavour == "impossible":
        yield Finding(
            "driver.impossible",
            ERROR,
            found.needs.why,
            path="needs",
            remedy="Move some of the GPUs to another host, or give them to virtual machines.",
        )


def _flavour(found: Found) -> Iterator[Finding]:
    driver = found.driver
    for gpu in found.gpus if driver.version else ():
        name = gpu.name or gpu.product or gpu.device_id
        if driver.flavour and gpu.flavour in (_pci_ids.OPEN, _pci_ids.PROPRIETARY) and gpu.flavour != driver.flavour:
            yield Finding(
                "driver.flavour",
                ERROR,
                f"{name} needs the {gpu.flavour} modules, the {driver.flavour} ones are loaded",
                target=gpu.bus_id,
                remedy=f"Install the {gpu.flavour} modules.",
            )
        branch = _branch(driver.version)
        if (gpu.last_branch and branch > gpu.last_branch) or branch < gpu.first_branch:
            allowed = f"{gpu.first_branch} to {gpu.last_branch}" if gpu.last_branch else f"{gpu.first_branch} or newer"
            yield Finding(
                "driver.branch",
                ERROR,
                f"{name} is driven by branches {allowed}, branch {branch} is loaded",
                target=gpu.bus_id,
                remedy="Install a driver of such a branch.",
            )


def _libraries(found: Found) -> Iterator[Finding]:
    driver = found.driver
    versions = sorted({library.version for library in driver.libraries}, key=numbers)
    if driver.version and versions and driver.version not in versions:
        yield Finding(
            "driver.libraries",
            ERROR,
            f"the loaded kernel module is {driver.version}, the libraries on disk are {', '.join(versions)}",
            path="driver.libraries",
            remedy=_RELOAD,
        )
    elif len(versions) > 1:
        where = ", ".join(f"{library.path}" for library in driver.libraries)
        yield Finding(
            "driver.several_libraries",
            WARNING,
            f"libraries of several versions are on disk: {where}",
            path="driver.libraries",
            remedy="Remove what is left of old installations, then run ldconfig.",
        )


def _module_files(found: Found) -> Iterator[Finding]:
    driver = found.driver
    running = sorted({file.version for file in driver.module_files if file.running and file.version})
    if driver.version and running and driver.version not in running:
        yield Finding(
            "driver.loaded_is_old",
            WARNING,
            f"{driver.version} is loaded, {', '.join(running)} is on disk for the running kernel",
            path="driver.module_files",
            remedy=_RELOAD,
        )
    if driver.module_files and not running and found.host.kernel:
        kernels = ", ".join(sorted({file.kernel for file in driver.module_files}))
        yield Finding(
            "driver.other_kernel",
            ERROR if not driver.version else WARNING,
            f"the kernel {found.host.kernel} runs, modules on disk are for {kernels}",
            path="driver.module_files",
            remedy="Build or install the module for the running kernel, or boot one of those.",
        )
    last = newest(driver.kernels)
    built = any(file.kernel == last for file in driver.module_files)
    if running and not built and numbers(last) > numbers(found.host.kernel):
        yield Finding(
            "driver.next_kernel",
            WARNING,
            f"the kernel {last} will run after a reboot, and has no NVIDIA module",
            path="driver.kernels",
            remedy=f"Build or install the module for {last} before the reboot.",
        )


def _firmware(found: Found) -> Iterator[Finding]:
    driver = found.driver
    missing = driver.firmware and driver.version not in driver.firmware
    if driver.version and driver.flavour == _pci_ids.OPEN and missing and found.nvml.state != "ok":
        yield Finding(
            "driver.firmware",
            ERROR,
            f"no firmware for {driver.version} on disk, there is {', '.join(driver.firmware)}",
            path="driver.firmware",
            remedy="Install the firmware of the same version.",
        )


def _packages(found: Found) -> Iterator[Finding]:
    packages = found.driver.packages
    if found.driver.runfile and any("dkms" in one.name or "driver" in one.name for one in packages):
        yield Finding(
            "driver.two_installations",
            ERROR,
            "the driver was installed by NVIDIA's own installer and by packages",
            path="driver.runfile",
            remedy="Run nvidia-uninstall, then install the packages again.",
        )
    toolkit = {
        one.version for one in packages if one.name.startswith(("nvidia-container-toolkit", "libnvidia-container"))
    }
    if len(toolkit) > 1:
        yield Finding(
            "toolkit.mixed",
            ERROR,
            f"the packages of the container toolkit are of several versions: {', '.join(sorted(toolkit, key=numbers))}",
            path="driver.packages",
            remedy="Install all of them in one version, and hold all of them.",
        )


def _fabric(found: Found) -> Iterator[Finding]:
    managers = [one for one in found.driver.packages if one.name.startswith("nvidia-fabricmanager")]
    if found.needs.fabric == "none":
        for one in managers if found.gpus else ():
            yield Finding(
                "fabric.unneeded",
                WARNING,
                f"{one.name} is installed, and the host has no NVSwitch",
                path="needs.fabric",
                remedy="Remove it: its service fails on such a host.",
            )
        return
    for one in managers:
        if found.driver.version and numbers(one.version)[:3] != numbers(found.driver.version)[:3]:
            yield Finding(
                "fabric.version",
                ERROR,
                f"{one.name} is {one.version}, the driver {found.driver.version}: CUDA will say that the system is not "
                "initialized",
                path="driver.packages",
                remedy="Install both in one version, and hold both.",
            )
    known = {"dpkg", "rpm"} & {one.manager for one in found.driver.packages}
    if not managers and known:
        yield Finding(
            "fabric.missing",
            ERROR,
            "the host has NVSwitches, and no fabric manager is installed",
            path="needs.fabric",
            remedy="Install it in the driver's version.",
        )


def _bound(found: Found) -> Iterator[Finding]:
    for gpu in found.gpus:
        if gpu.driver in _PASS_THROUGH:
            yield Finding(
                "gpu.passed_through",
                INFO,
                f"is bound to {gpu.driver}, for virtual machines",
                target=gpu.bus_id,
                remedy="Bind it to nvidia to use it on this host.",
            )
        elif gpu.driver and gpu.driver != "nvidia":
            yield Finding(
                "gpu.other_driver",
                ERROR,
                f"is bound to {gpu.driver}",
                target=gpu.bus_id,
                remedy=f"Keep {gpu.driver} from loading, in the initramfs too, and reboot the host.",
            )
        elif not gpu.driver and found.driver.version and "sysfs" in gpu.seen_by:
            yield from _unbound(gpu)
    for rival in found.driver.rivals:
        if rival.loaded and not rival.bound:
            yield Finding(
                f"driver.{rival.name}",
                WARNING,
                f"the module {rival.name} is loaded: it may take GPUs before NVIDIA's does",
                path="driver.rivals",
                remedy=f"Blacklist {rival.name}, make the initramfs again, and reboot.",
            )


def _unbound(gpu: GpuState) -> Iterator[Finding]:
    if "nvml" in gpu.seen_by or "driver" in gpu.seen_by:  # a sandbox that shows the device without its driver
        return
    yield Finding(
        "gpu.unbound",
        ERROR,
        "has no driver, although NVIDIA's is loaded",
        target=gpu.bus_id,
        remedy="Read the kernel's log: the modules may be of the wrong flavour or branch for it.",
    )


def _missing(found: Found) -> Iterator[Finding]:
    for gpu in found.gpus if found.nvml.state == "ok" else ():
        if "nvml" not in gpu.seen_by and gpu.driver in ("nvidia", ""):
            why = "is excluded by the driver's settings" if gpu.excluded else "does not appear in NVML"
            yield Finding(
                "gpu.not_in_nvml",
                WARNING,
                why,
                target=gpu.bus_id,
                remedy="See NVreg_ExcludedGpus in the module's parameters."
                if gpu.excluded
                else "Read the kernel's log for Xid lines; in a container, see which devices it was given.",
            )


def _secure_boot(found: Found) -> Iterator[Finding]:
    if found.host.secure_boot != BOOT_ENABLED:
        return
    for file in found.driver.module_files:
        if file.running and file.version and not file.signer:
            yield Finding(
                "driver.unsigned",
                ERROR,
                f"{file.path} has no signature, and Secure Boot is on: the kernel will refuse it",
                path="host.secure_boot",
                remedy="Sign it with an enrolled key, or install modules that the distribution signs.",
            )


def _mig(found: Found) -> Iterator[Finding]:
    for gpu in found.gpus:
        mig = gpu.mig
        if {mig.current, mig.pending} == {ENABLED, DISABLED}:
            yield Finding(
                "mig.pending",
                WARNING,
                f"MIG is {mig.current} now and will be {mig.pending} after a reset",
                target=gpu.bus_id,
                remedy="Reset the GPU, or reboot the host where resets are not possible (virtual machines).",
            )
        elif mig.current == ENABLED and not mig.instances:
            yield Finding(
                "mig.empty",
                WARNING,
                "MIG is on and there is no instance: the GPU can be used by nobody",
                target=gpu.bus_id,
                remedy="Make instances, or turn MIG off.",
            )
        for instance in mig.instances:
            if not instance.compute:
                yield Finding(
                    "mig.half_made",
                    WARNING,
                    f"GPU instance {instance.id} has no compute instance: nobody can use it",
                    target=gpu.bus_id,
                    remedy="Make one, or remove the instance.",
                )


def _old_libraries(found: Found) -> Iterator[Finding]:
    old = [f"{one.name or 'process'} ({one.pid})" for one in found.processes if one.old_libraries]
    if old:
        yield Finding(
            "process.old_libraries",
            WARNING,
            f"runs with libraries that were replaced on disk: {', '.join(old)}",
            path="processes",
            remedy="Start it again.",
        )


def _cdi(found: Found) -> Iterator[Finding]:
    loaded = found.driver.version
    for spec in found.cdi:
        if loaded and spec.driver_versions and loaded not in spec.driver_versions:
            yield Finding(
                "cdi.old",
                ERROR,
                f"names libraries of {', '.join(spec.driver_versions)}, the driver is {loaded}",
                target=spec.path,
                remedy="Make it again: nvidia-ctk cdi generate.",
            )
        if spec.hidden_by:
            yield Finding(
                "cdi.hidden",
                WARNING,
                f"names devices that {spec.hidden_by} names as well; that one counts",
                target=spec.path,
                remedy=f"Remove {os.path.basename(spec.path)}, unless it is meant as a reserve.",
            )
        if spec.conflicts_with:
            yield Finding(
                "cdi.conflict",
                ERROR,
                f"names devices that {spec.conflicts_with} names as well: runtimes take neither",
                target=spec.path,
                remedy="Remove one of the two.",
            )


_QUESTIONS: Tuple[Callable[[Found], Iterator[Finding]], ...] = (
    _gpu_ids,
    _needs,
    _flavour,
    _libraries,
    _module_files,
    _firmware,
    _packages,
    _fabric,
    _bound,
    _missing,
    _secure_boot,
    _mig,
    _old_libraries,
    _cdi,
)
