# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against a driver's installation, or should be known of the host: one small function per question. Pure.

Findings that can be accepted name themselves in ``accept``: the option ``accept`` takes that name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Iterator, List, Optional, Sequence, Tuple

from .._host_state._driver import numbers
from .._host_state._shape import GpuState
from .._host_state._system import ENABLED
from .._plan import ERROR, INFO, WARNING, Finding
from . import _secure_boot as _secure_boot_state
from ._catalog import PackageSet
from ._found import SPACE, HostFound, older_kernel_runs
from ._request import Request
from ._types import FABRIC_MANAGER, GDS, IMMUTABLE, PEERMEM, PRECOMPILED, Wanted

_PASS_THROUGH = ("vfio-pci", "pci-stub", "xen-pciback")
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Asked:
    """What the questions are about; without ``wanted`` and ``packages`` where nothing could be chosen. ``coherent``:
    whether the driver is told to keep memory to itself that the processor sees as well."""

    found: HostFound
    request: Request
    wanted: Optional[Wanted] = None
    packages: Optional[PackageSet] = None
    coherent: bool = False

    @property
    def builds(self) -> bool:
        """Whether the kernel modules are built on the host."""
        return self.packages is not None and self.packages.build


def look(asked: Asked) -> List[Finding]:
    """Every finding, those accepted as warnings."""
    found = [finding for question in _QUESTIONS for finding in question(asked)]
    return accepted(found, asked.request.accept)


def accepted(findings: Sequence[Finding], accept: Sequence[str]) -> List[Finding]:
    """The same, with errors that the user accepts as warnings."""
    return [
        replace(one, severity=WARNING, remedy="")
        if one.severity == ERROR and one.accept in accept and one.accept
        else one
        for one in findings
    ]


def _error(name: str, detail: str, remedy: str, target: str = "", path: str = "", accept: bool = True) -> Finding:
    return Finding(name, ERROR, detail, target, path, remedy, name if accept else "")


def _named(gpu: GpuState) -> str:
    return gpu.name or gpu.product or gpu.device_id


# --- Hardware ---------------------------------------------------------------------------------------------------------


def _no_gpu(asked: Asked) -> Iterator[Finding]:
    if not asked.found.gpus:
        yield _error(
            "no_gpu", "this host has no NVIDIA GPU", "Take the host out of the group, or accept no_gpu for an image"
        )


def _unknown_gpu(asked: Asked) -> Iterator[Finding]:
    for gpu in asked.found.gpus:
        if gpu.architecture != "unknown":
            continue
        if gpu.flavour == "open":
            detail = f"a GPU with PCI id {gpu.device_id}, which is not known, and is taken for a new one"
            yield Finding(
                "unknown_gpu", WARNING, detail, gpu.bus_id, remedy="A newer release of the collection may know it"
            )
        else:
            detail = f"a GPU with PCI id {gpu.device_id}, which is not known, so nobody can tell which driver fits"
            yield _error("unknown_gpu", detail, "Ask for a branch and a flavour, and accept unknown_gpu", gpu.bus_id)


def _impossible(asked: Asked) -> Iterator[Finding]:
    needs = asked.found.state.needs
    if needs.flavour == "impossible":
        remedy = "Move some of the GPUs to another host, or give them to virtual machines"
        yield _error("gpus_do_not_mix", needs.why, remedy, accept=False)


def _passed_through(asked: Asked) -> Iterator[Finding]:
    for gpu in asked.found.gpus:
        if gpu.driver in _PASS_THROUGH:
            remedy = "Bind it to nvidia, or accept that this GPU is for virtual machines"
            yield _error("passed_through", f"{_named(gpu)} is bound to {gpu.driver}", remedy, gpu.bus_id)


def _vgpu(asked: Asked) -> Iterator[Finding]:
    if any(module.name == "nvidia_vgpu_vfio" for module in asked.found.state.driver.modules):
        detail = "the host's vGPU manager is loaded, which serves virtual machines and is a product of its own"
        yield _error("vgpu", detail, "Leave the driver of this host alone", accept=False)


def _bars(asked: Asked) -> Iterator[Finding]:
    for bus_id in asked.found.zero_bars:
        detail = "the firmware gave a memory region of this GPU no addresses, so that no driver can use it"
        yield _error("no_bar", detail, "Turn on decoding above 4G in the firmware's settings", bus_id)


def _iommu(asked: Asked) -> Iterator[Finding]:
    options = asked.found.state.host.kernel_options
    translated = any(gpu.iommu_group >= 0 for gpu in asked.found.gpus) and "iommu=pt" not in options
    companions = asked.wanted.companions if asked.wanted else ()
    if translated and not asked.found.state.host.virtual_machine and {PEERMEM, GDS} & set(companions):
        detail = "the IOMMU translates what GPUs and other devices send each other, which slows it down"
        yield Finding("iommu", WARNING, detail, remedy="Boot the kernel with iommu=pt, or turn the IOMMU off")


def _fabric(asked: Asked) -> Iterator[Finding]:
    companions = asked.wanted.companions if asked.wanted else ()
    fabric = asked.found.state.needs.fabric
    if fabric == "none" and FABRIC_MANAGER in companions:
        detail = "the host has no NVSwitch, and the service of the fabric manager fails on such a host"
        yield _error("no_fabric", detail, "Take fabric_manager out of companions", path="companions")
    if fabric != "none" and asked.wanted and FABRIC_MANAGER not in companions:
        detail = "the host has NVSwitches, and CUDA says that the system is not initialized without a fabric manager"
        yield _error("fabric_missing", detail, "Add fabric_manager to companions", path="companions")
    for one in asked.found.state.driver.packages if fabric != "none" else ():
        loaded = asked.found.state.driver.version
        unequal = loaded and numbers(one.version)[-4:-1] != () and loaded not in one.version
        if unequal and one.name.startswith(("nvidia-fabricmanager", "nvidia-fabric-manager")) and "dev" not in one.name:
            detail = f"is {one.version} and the driver that is loaded {loaded}; the service does not start so"
            yield Finding("fabric_version", WARNING, detail, one.name, remedy="They get one version with this driver")


def _coherent(asked: Asked) -> Iterator[Finding]:
    if asked.coherent and "NVreg_CoherentGPUMemoryMode" not in str(asked.request.parameters):
        detail = (
            "GPU and processor share their memory; the driver manages the GPU's (NVreg_CoherentGPUMemoryMode=driver)"
        )
        remedy = "For GPU memory as a NUMA node of the system, say so in parameters"
        yield Finding("coherent_memory", INFO, detail, path="parameters", remedy=remedy)


# --- System -----------------------------------------------------------------------------------------------------------


def _system(asked: Asked) -> Iterator[Finding]:
    found = asked.found
    if found.system.family == IMMUTABLE or (found.read_only and found.system.family):
        detail = (
            f"{found.state.host.os_name or found.system.id} has its programs in an image, which packages cannot change"
        )
        yield _error("immutable_system", detail, "Use the image or the extension of that system which has the driver",
                     accept=False)  # fmt: skip
    elif not found.system.family:
        name = found.state.host.os_name or found.system.id or "this system"
        detail = f"{name} is none that packages of the driver are known for"
        yield _error(
            "unknown_system", detail, "Install the driver by hand; the other modules work with it", accept=False
        )
    elif found.dnf5:
        detail = "the package manager of this host is dnf 5, which cannot exchange packages in one transaction"
        yield _error("dnf5", detail, "Install the driver by hand; the other modules work with it", accept=False)


def _dgx(asked: Asked) -> Iterator[Finding]:
    if asked.found.dgx:
        detail = "this is DGX OS, which brings and updates its own driver"
        yield _error("vendor_image", detail, "Leave the driver to it, or accept that this run changes it")


def _runfile(asked: Asked) -> Iterator[Finding]:
    if asked.found.state.driver.runfile:
        detail = "the driver was installed by NVIDIA's own installer (.run), and packages beside it break both"
        yield _error(
            "runfile", detail, "Run nvidia-uninstall, or accept that this run takes it over", path="driver.runfile"
        )


def _nobodys(asked: Asked) -> Iterator[Finding]:
    """A driver of an image, or of the host that a container runs on."""
    driver = asked.found.state.driver
    brought = asked.found.version or asked.found.origins or driver.runfile or asked.found.operator
    if driver.version and not brought:
        detail = f"driver {driver.version} is loaded, and no package of this host has brought it"
        yield _error("driver_of_image", detail, "Find out who brought it, or accept that packages take its place")


def _operator(asked: Asked) -> Iterator[Finding]:
    if asked.found.operator:
        detail = "a driver container manages the driver of this host (/run/nvidia/driver)"
        remedy = "Turn the driver off in the GPU Operator or in cluster_policy for this node, then run again"
        yield _error("managed_by_operator", detail, remedy, accept=False)


def _foreign(asked: Asked) -> Iterator[Finding]:
    if asked.wanted is None:
        return
    ours = {asked.wanted.source, "nvidia" if asked.wanted.source == "local" else asked.wanted.source}
    if asked.wanted.source in ("distribution", PRECOMPILED):  # the distribution makes both
        ours |= {"distribution", PRECOMPILED}
    for origin, names in asked.found.origins.items():
        if origin not in ours:
            detail = f"{', '.join(sorted(names)[:6])}: packages of another source ({origin}) than {asked.wanted.source}"
            remedy = f"Ask for source: {origin}, or accept that they are removed"
            yield _error("foreign_origin", detail, remedy, path="source")


def _space(asked: Asked) -> Iterator[Finding]:
    for folder, needed in SPACE.items():
        free = asked.found.free.get(folder)
        if free is not None and free < needed:
            detail = f"{free // _MIB} MiB are free, {needed // _MIB} MiB are needed"
            yield _error("no_space", detail, "Make room there: remove old kernels, or caches of packages", folder)


def _updates(asked: Asked) -> Iterator[Finding]:
    if asked.found.updates and not asked.request.hold:
        detail = "updates the host by itself, and would exchange the libraries under the loaded kernel module"
        yield Finding("unattended", WARNING, detail, asked.found.updates, "hold", "Leave hold on")


# --- Kernel -----------------------------------------------------------------------------------------------------------


def _nouveau(asked: Asked) -> Iterator[Finding]:
    for rival in asked.found.state.driver.rivals:
        if rival.loaded or rival.bound:
            detail = f"is loaded and drives {', '.join(rival.bound) or 'no GPU yet'}"
            yield Finding(
                "other_driver", INFO, detail, rival.name, remedy="It is kept from loading, and unloaded if unused"
            )


def _secure_boot(asked: Asked) -> Iterator[Finding]:
    if asked.found.state.host.secure_boot != ENABLED or asked.found.enrolled or not asked.builds:
        return
    detail = "Secure Boot is on, and the firmware does not know the key that modules built here are signed with"
    remedy = (
        "Ask for source: precompiled where the distribution signs modules, or accept secure_boot: the key is "
        "registered then, and somebody has to confirm it at the console during the next boot"
    )
    yield _error("secure_boot", detail, remedy, path="source")
    if "secure_boot" not in asked.request.accept:
        return
    if asked.found.certificate:
        yield _secure_boot_state.pending(asked.found.certificate)
        return
    problem = _secure_boot_state.password_problem(asked.request.mok_password)
    if problem:
        detail = problem if asked.request.mok_password else "is not given, and the console asks for it at the next boot"
        remedy = "Give a one-time password for the console, of printable characters"
        yield _error("mok_password", detail, remedy, path="mok_password", accept=False)


def _lockdown(asked: Asked) -> Iterator[Finding]:
    host = asked.found.state.host
    if host.lockdown in ("integrity", "confidentiality") and host.secure_boot != ENABLED and asked.builds:
        detail = f"the kernel is locked down ({host.lockdown}) and loads signed modules only"
        yield Finding("lockdown", WARNING, detail, remedy="Sign the modules, or boot without lockdown")


def _headers(asked: Asked) -> Iterator[Finding]:
    if not asked.found.headers or not asked.builds or asked.packages is None:
        return
    if any(one.role == "headers" for one in asked.packages.packages):
        remedy = "They are installed before the driver is touched"
        yield Finding("no_headers", INFO, asked.found.headers, asked.found.kernel, remedy=remedy)
    else:
        yield _error("no_headers", asked.found.headers, "Install the headers of that kernel", asked.found.kernel)


def _compiler(asked: Asked) -> Iterator[Finding]:
    if asked.found.compiler and asked.builds:
        yield _error("compiler", asked.found.compiler, "Install the compiler that the kernel was built with")


def _next_kernel(asked: Asked) -> Iterator[Finding]:
    if older_kernel_runs(asked.found) and not asked.request.kernel:
        found = asked.found
        detail = f"{found.kernel} runs, and {found.newest_kernel} will after the next boot"
        remedy = f"Boot it first, or ask for kernel: {found.newest_kernel}"
        yield Finding("newer_kernel", WARNING, detail, path="kernel", remedy=remedy)
    if asked.request.kernel and asked.request.kernel not in asked.found.state.driver.kernels:
        there = ", ".join(asked.found.state.driver.kernels) or "none"
        detail = f"{asked.request.kernel} is not installed; there are {there}"
        yield _error("no_such_kernel", detail, "Install it first", path="kernel", accept=False)


def _mismatch(asked: Asked) -> Iterator[Finding]:
    if asked.found.state.driver.state == "mismatch":
        remedy = "It is put in order by loading the modules anew, or by a reboot"
        yield Finding("mismatch", WARNING, asked.found.state.driver.why, path="found.driver", remedy=remedy)


_QUESTIONS: Tuple[Callable[[Asked], Iterator[Finding]], ...] = (
    _no_gpu,
    _unknown_gpu,
    _impossible,
    _passed_through,
    _vgpu,
    _bars,
    _iommu,
    _fabric,
    _coherent,
    _system,
    _dgx,
    _runfile,
    _nobodys,
    _operator,
    _foreign,
    _space,
    _updates,
    _nouveau,
    _secure_boot,
    _lockdown,
    _headers,
    _compiler,
    _next_kernel,
    _mismatch,
)
