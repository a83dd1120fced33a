# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of NVIDIA's kernel modules: one file, names checked, and compared with what the loaded modules use.

Options count from the next load of a module on; a file alone proves nothing.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Union

from .._gpu import _pci_ids
from .._host._files import Files
from .._host_state import _driver
from .._matrix import LIMITS
from .._plan import ERROR, WARNING, Finding
from ._kernel import tree_of
from ._modules import plain

FILE = "/etc/modprobe.d/gpufleet-nvidia.conf"
_HEAD = "# Made by gpufleet.nvidia.nvidia_driver. Options count from the next load of a module on.\n"

Value = Union[str, int, bool]
Options = Mapping[str, Mapping[str, Value]]  # by module, then by name

#: What the modules know, by module. NVIDIA's own carries the prefix NVreg_.
KNOWN: Dict[str, Tuple[str, ...]] = {
    "nvidia": (
        "NVreg_CoherentGPUMemoryMode",
        "NVreg_CreateImexChannel0",
        "NVreg_DeviceFileGID",
        "NVreg_DeviceFileMode",
        "NVreg_DeviceFileUID",
        "NVreg_DmaRemapPeerMmio",
        "NVreg_DynamicPowerManagement",
        "NVreg_DynamicPowerManagementVideoMemoryThreshold",
        "NVreg_EnableDbgBreakpoint",
        "NVreg_EnableGpuFirmware",
        "NVreg_EnableGpuFirmwareLogs",
        "NVreg_EnableMSI",
        "NVreg_EnablePCIERelaxedOrderingMode",
        "NVreg_EnablePCIeGen3",
        "NVreg_EnableResizableBar",
        "NVreg_EnableS0ixPowerManagement",
        "NVreg_EnableStreamMemOPs",
        "NVreg_EnableUserNUMAManagement",
        "NVreg_ExcludedGpus",
        "NVreg_GpuBlacklist",
        "NVreg_GrdmaPciTopoCheckOverride",
        "NVreg_IgnoreMMIOCheck",
        "NVreg_ImexChannelCount",
        "NVreg_InitializeSystemMemoryAllocations",
        "NVreg_KMallocHeapMaxSize",
        "NVreg_MemoryPoolSize",
        "NVreg_ModifyDeviceFiles",
        "NVreg_NvLinkDisable",
        "NVreg_OpenRmEnableUnsupportedGpus",
        "NVreg_PreserveVideoMemoryAllocations",
        "NVreg_RegisterPCIDriver",
        "NVreg_RegistryDwords",
        "NVreg_RegistryDwordsPerDevice",
        "NVreg_ResmanDebugLevel",
        "NVreg_RestrictProfilingToAdminUsers",
        "NVreg_RmLogonRC",
        "NVreg_RmMsg",
        "NVreg_RmNvlinkBandwidthLinkCount",
        "NVreg_S0ixPowerManagementVideoMemoryThreshold",
        "NVreg_TemporaryFilePath",
        "NVreg_UsePageAttributeTable",
        "NVreg_VMallocHeapMaxSize",
    ),
    "nvidia-drm": ("fbdev", "modeset"),
    "nvidia-modeset": ("config_file", "disable_hdmi_frl", "disable_vrr_memclk_switch", "vblank_sem_control"),
    "nvidia-peermem": ("peerdirect_support", "persistent_api_support"),
    "nvidia-uvm": (
        "uvm_ats_mode",
        "uvm_debug_enable_push_acquire_info",
        "uvm_debug_prints",
        "uvm_disable_hmm",
        "uvm_disable_peer_access",
        "uvm_enable_builtin_tests",
        "uvm_global_oversubscription",
        "uvm_leak_checker",
        "uvm_page_table_location",
        "uvm_perf_access_counter_migration_enable",
        "uvm_perf_fault_batch_count",
        "uvm_perf_fault_coalesce",
        "uvm_perf_fault_max_batches_per_service",
        "uvm_perf_fault_max_throttle_per_service",
        "uvm_perf_fault_replay_policy",
        "uvm_perf_prefetch_enable",
        "uvm_perf_prefetch_min_faults",
        "uvm_perf_prefetch_threshold",
        "uvm_perf_thrashing_enable",
        "uvm_perf_thrashing_threshold",
    ),
}
# What /proc/driver/nvidia/params calls by another name than the module.
_SHOWN = {"RmProfilingAdminOnly": "RestrictProfilingToAdminUsers"}
_LINE = re.compile(r"^\s*options\s+(\S+)\s+(.*)$")
_PAIR = re.compile(r'([A-Za-z0-9_]+)=("[^"]*"|\S*)')
_WORD = re.compile(r"[ !#-\[\]-~]*\Z")  # modprobe joins a line that ends with a backslash to the next
_CDMM_FROM = int(LIMITS["cdmm"].oldest)
# Device ids of GPUs whose memory the kernel can take as its own: GH200, GB200, GB300.
_COHERENT = (_pci_ids.GRACE_HOPPER, range(0x2941, 0x2942), range(0x31A1, 0x31A2), range(0x31C2, 0x31C4))
CDMM = ("nvidia", "NVreg_CoherentGPUMemoryMode", "driver")


@dataclass(frozen=True)
class Differs:
    """An option that a loaded module has another value of than the file gives: ``now`` is that."""

    module: str
    name: str
    wanted: str
    now: str


def coherent(device: int) -> bool:
    """Whether the memory of this GPU can show up as memory of the system."""
    return any(device in ids for ids in _COHERENT)


def defaults(devices: Sequence[int], branch: int, kubernetes: bool) -> Dict[str, Dict[str, Value]]:
    """Options that a host needs without being asked: the driver keeps coherent memory to itself on nodes of
    Kubernetes, which would else hand GPU memory out to pods as ordinary memory."""
    module, name, value = CDMM
    needs = kubernetes and branch >= _CDMM_FROM and any(coherent(device) for device in devices)
    return {module: {name: value}} if needs else {}


def merged(first: Options, over: Options) -> Dict[str, Dict[str, Value]]:
    """Options with others laid over them."""
    modules = sorted({*first, *over})
    return {module: {**first.get(module, {}), **over.get(module, {})} for module in modules}


def judge(options: Mapping[str, Any], path: str = "module_parameters") -> List[Finding]:
    """Names that no module knows, with the nearest one that there is, and values that no file can hold. ``options`` is
    as a user wrote it: anything may be in it."""
    found: List[Finding] = []
    for module, values in options.items():
        if module not in KNOWN:
            allowed = ", ".join(KNOWN)
            detail = f"{module!r} is no module of the driver; allowed are {allowed}"
            found.append(
                Finding("unknown_module", ERROR, detail, path=f"{path}.{module}", remedy=_near(module, tuple(KNOWN)))
            )
            continue
        if not isinstance(values, Mapping):
            detail = f"{values!r} is no map of options; it looks like NVreg_EnableMSI: 1"
            found.append(Finding("wrong_parameter", ERROR, detail, path=f"{path}.{module}"))
            continue
        for name, value in values.items():
            where = f"{path}.{module}.{name}"
            if name not in KNOWN[module]:
                detail = f"the module {module} has no option {name!r}"
                found.append(Finding("unknown_parameter", ERROR, detail, path=where, remedy=_near(name, KNOWN[module])))
            elif not isinstance(value, (str, int)):
                detail = f"{value!r} cannot be given; allowed are text, whole numbers, true and false"
                found.append(Finding("wrong_parameter", ERROR, detail, path=where))
            elif not _WORD.match(_text(value)):
                detail = f"{value!r} cannot be given; allowed are printable characters without quotes and backslashes, "
                detail += "on one line"
                found.append(Finding("wrong_parameter", ERROR, detail, path=where))
    return found


def _near(name: Any, known: Sequence[str]) -> str:
    plain_names = {each.lower().replace("nvreg_", ""): each for each in known}
    asked = str(name).lower().replace("nvreg_", "")
    near = difflib.get_close_matches(asked, plain_names, 1, 0.6)
    return f"Did you mean {plain_names[near[0]]}?" if near else f"It has: {', '.join(known)}."


def render(options: Options, module: str = "nvidia") -> str:
    """The file's text, "" where there is nothing to give. ``module``: ``nvidia-current`` with Debian's own packages."""
    lines = []
    for name in sorted(options):
        values = options[name]
        if values:
            real = name.replace("nvidia", module, 1)
            lines.append(f"options {real} " + " ".join(f"{key}={_quoted(values[key])}" for key in sorted(values)))
    return _HEAD + "\n".join(lines) + "\n" if lines else ""


def _quoted(value: Value) -> str:
    text = _text(value)
    return f'"{text}"' if re.search(r"[\s;,#]", text) or not text else text


def _text(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def effective(files: Files) -> Dict[str, Dict[str, str]]:
    """What the loaded modules use, by module and name; a module that is not loaded has no entry."""
    tree = tree_of(files)
    found: Dict[str, Dict[str, str]] = {}
    shown = _driver.loaded(tree).parameters
    if shown:
        found["nvidia"] = {f"NVreg_{_SHOWN.get(name, name)}": value for name, value in shown.items()}
    for module in KNOWN:
        folder = f"/sys/module/{module.replace('-', '_')}/parameters"
        values = {name: tree.text(f"{folder}/{name}") for name in tree.names(folder)}
        if values:
            found[module] = {**found.get(module, {}), **values}
    return found


def differs(options: Options, files: Files) -> List[Differs]:
    """Options of loaded modules with another value than is wanted. Those that a module does not tell are left out."""
    now = effective(files)
    return [
        Differs(module, name, _text(value), now[module][name])
        for module, values in sorted(options.items())
        for name, value in sorted(values.items())
        if name in now.get(module, {}) and not same(_text(value), now[module][name])
    ]


def same(one: str, other: str) -> bool:
    """Whether two spellings mean the same to the kernel: 0x1 and 1, Y and 1, 0666 and 438, -1 and 4294967295."""
    return _meaning(one) == _meaning(other)


def _meaning(text: str) -> Union[int, str]:
    plain_text = text.strip().strip('"')
    if plain_text in ("Y", "y", "N", "n"):
        return int(plain_text in ("Y", "y"))
    try:
        octal = re.fullmatch(r"0[0-7]+", plain_text)
        return (int(plain_text, 8) if octal else int(plain_text, 0)) & 0xFFFFFFFF
    except ValueError:
        return plain_text


def elsewhere(options: Options, files: Files) -> List[Finding]:
    """Other files that give one of the options another value: which one wins is the order of their names."""
    tree = tree_of(files)
    found = []
    for folder in ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d"):
        for path in (f"{folder}/{name}" for name in tree.names(folder) if name.endswith(".conf")):
            for module, name, value in _given(tree.text(path) if path != FILE else ""):
                wanted = options.get(module, {}).get(name)
                if wanted is not None and not same(_text(wanted), value):
                    detail = f"gives the module {module} {name}={value}, and {_text(wanted)} is wanted"
                    remedy = "Take the option out there."
                    found.append(Finding("parameter_elsewhere", WARNING, detail, path, remedy=remedy))
    return found


def _given(text: str) -> List[Tuple[str, str, str]]:
    """Module, name and value of each option in a file of modprobe."""
    given = []
    for line in text.replace("\\\n", " ").splitlines():
        match = _LINE.match(line)
        if match:
            module = plain(match.group(1)).replace("_", "-")
            given += [(module, name, value.strip('"')) for name, value in _PAIR.findall(match.group(2))]
    return given
