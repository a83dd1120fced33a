# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA driver of a host: what is loaded, and what lies on disk to be loaded next."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, Sequence, Set, Tuple

from . import _modinfo
from ._tree import Tree

VERSION = "/proc/driver/nvidia/version"
MODULES = "/proc/modules"
MOST_FILES = 512

# Modules of NVIDIA's driver and of what stands on it, and those that drive the same GPUs instead.
OURS = re.compile(r"\A(nvidia(_[a-z0-9_]+)?|gdrdrv|nv_peer_mem)\Z")
RIVALS = ("nouveau", "nova_core", "nova_drm", "nvidiafb")

_OPEN_WORDS = "Open Kernel Module"
# The version is the first dotted number after the word for the processor, which is before or after "Kernel Module".
_NVRM = re.compile(r"NVRM version:.*?\b(?:x86_64|aarch64|arm64|x86|ppc64le)\b.*?(\d+\.\d+(?:\.\d+)?)")
_NVRM_ANY = re.compile(r"NVRM version:.*?\b(\d{3}\.\d+(?:\.\d+)?)")
_SO_VERSION = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)\Z")
_MODULE_FILE = re.compile(r"\A(nvidia(?:-current(?:-open)?)?)\.ko(\.gz|\.xz|\.zst)?\Z")
_GSP = re.compile(r"\Agsp\w*\.bin\Z")
_LIBRARIES = ("libnvidia-ml.so", "libcuda.so")
_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/local/nvidia/lib64",
    "/home/kubernetes/bin/nvidia/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
)
_MODULE_FOLDERS = ("updates", "extra", "weak-updates", "kernel/drivers/video", "kernel/drivers/gpu")


@dataclass
class Module:
    """A loaded kernel module. ``references`` is -1 where the kernel does not count them."""

    name: str
    references: int
    used_by: List[str]
    version: str


@dataclass
class Loaded:
    """The driver in the running kernel; ``version`` is empty when there is none."""

    version: str = ""
    flavour: str = ""
    source_version: str = ""
    references: int = -1
    holders: List[str] = field(default_factory=list)
    modules: List[Module] = field(default_factory=list)
    parameters: Dict[str, str] = field(default_factory=dict)


@dataclass
class ModuleFile:
    """A file that modprobe may load. ``running``: it is for the kernel that runs."""

    path: str
    kernel: str
    running: bool
    version: str = ""
    flavour: str = ""
    signer: str = ""


@dataclass
class Library:
    """A library of the driver, by its file name."""

    path: str
    version: str


@dataclass
class OnDisk:
    modules: List[ModuleFile] = field(default_factory=list)
    libraries: List[Library] = field(default_factory=list)
    firmware: List[str] = field(default_factory=list)
    kernels: List[str] = field(default_factory=list)
    runfile: bool = False
    nvidia_smi: str = ""


@dataclass
class Rival:
    """Another driver of the same GPUs, such as nouveau. ``blocked_by``: files and words that keep it from loading."""

    name: str
    loaded: bool
    references: int
    bound: List[str]
    blocked_by: List[str]


@dataclass
class Proc:
    """A GPU as /proc/driver/nvidia/gpus tells of it."""

    bus_id: str
    name: str = ""
    uuid: str = ""
    minor: int = -1
    firmware: str = ""
    vbios: str = ""
    excluded: bool = False


def version_line(text: str) -> Tuple[str, str]:
    """Version and flavour (open, proprietary) of /proc/driver/nvidia/version; both empty when it says none."""
    for line in text.splitlines():
        found = _NVRM.search(line) or _NVRM_ANY.search(line)
        if found:
            return found.group(1), "open" if _OPEN_WORDS in line else "proprietary"
    return "", ""


def flavour_of_licence(licence: str) -> str:
    """Open modules carry the licence of the kernel beside MIT's; the others say NVIDIA."""
    if not licence:
        return ""
    return "open" if "GPL" in licence else "proprietary"


def loaded(tree: Tree) -> Loaded:
    """What the running kernel has, from /proc and /sys."""
    tree = tree.of("driver")
    text = tree.text(VERSION)
    version, flavour = version_line(text)
    if text and not version:
        tree.problems.add(tree.part, VERSION, f"says no version: {text[:120]!r}", "Look at the file.")
    found = Loaded(
        version=version or tree.text("/sys/module/nvidia/version"),
        flavour=flavour,
        source_version=tree.text("/sys/module/nvidia/srcversion"),
        references=tree.number("/sys/module/nvidia/refcnt"),
        holders=tree.names("/sys/module/nvidia/holders"),
        modules=[module for module in modules(tree) if OURS.match(module.name)],
    )
    for line in tree.text("/proc/driver/nvidia/params").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found.parameters[key.strip()] = value.strip().strip('"')
    return found


def modules(tree: Tree) -> List[Module]:
    """Loaded modules that have to do with GPUs: NVIDIA's, and those that drive the same hardware."""
    found = []
    for line in tree.text(MODULES, 4 * 1024 * 1024).splitlines():
        words = line.split()
        if len(words) < 4 or not (OURS.match(words[0]) or words[0] in RIVALS):
            continue
        users = [name for name in words[3].split(",") if name not in ("", "-")]
        count = int(words[2]) if words[2].isdigit() else -1
        found.append(Module(words[0], count, users, tree.text(f"/sys/module/{words[0]}/version")))
    return sorted(found, key=lambda module: module.name)


def rivals(tree: Tree, bound: Dict[str, List[str]], options: Sequence[str]) -> List[Rival]:
    """Other drivers that are loaded or bound. ``bound``: driver -> bus ids of the GPUs that it has."""
    tree = tree.of("driver")
    known = {module.name: module for module in modules(tree)}
    found = []
    for name in RIVALS:
        module = known.get(name)
        there = module is not None or tree.kind(f"/sys/module/{name}") == "folder"
        if there or name == "nouveau" or bound.get(name):
            references = module.references if module else tree.number(f"/sys/module/{name}/refcnt")
            found.append(Rival(name, there, references, bound.get(name, []), _blocked(tree, name, options)))
    return found


def _blocked(tree: Tree, name: str, options: Sequence[str]) -> List[str]:
    blocked = []
    for folder in ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"):
        for file in tree.names(folder):
            path = f"{folder}/{file}"
            if file.endswith(".conf") and re.search(rf"(?m)^\s*blacklist\s+{name}\s*(#.*)?$", tree.text(path)):
                blocked.append(path)
    if "/usr/lib/modprobe.d" in "".join(blocked) and tree.link("/lib"):
        blocked = [path for path in blocked if not path.startswith("/lib/")]
    for word in options:
        key, _equals, value = word.partition("=")
        if key in ("modprobe.blacklist", "rd.driver.blacklist", "module_blacklist") and name in value.split(","):
            blocked.append(f"kernel command line: {key}")
    return blocked


def processors(tree: Tree) -> List[Proc]:
    """GPUs that the loaded driver has, by bus id. Works without NVML and without root."""
    tree = tree.of("driver")
    found = []
    for name in tree.names("/proc/driver/nvidia/gpus"):
        one = Proc(name)
        for line in tree.text(f"/proc/driver/nvidia/gpus/{name}/information").splitlines():
            key, _colon, value = line.partition(":")
            _fill(one, key.strip(), value.strip())
        found.append(one)
    return found


def _fill(one: Proc, key: str, value: str) -> None:
    if key == "Model":
        one.name = value
    elif key == "GPU UUID" and "?" not in value:  # question marks until the GPU was used for the first time
        one.uuid = value
    elif key == "Device Minor" and value.isdigit():
        one.minor = int(value)
    elif key == "GPU Firmware":
        one.firmware = "" if value == "N/A" else value
    elif key == "Video BIOS" and "?" not in value:
        one.vbios = value
    elif key == "GPU Excluded":
        one.excluded = value == "Yes"


def on_disk(tree: Tree, kernel: str, command: _modinfo.Command) -> OnDisk:
    """Modules of every installed kernel, libraries, firmware."""
    tree = tree.of("driver_files")
    found = OnDisk(
        kernels=[name for name in tree.names("/lib/modules") if tree.kind(f"/lib/modules/{name}") == "folder"],
        libraries=_libraries(tree),
        firmware=_firmware(tree),
        runfile=_runfile(tree),
    )
    for release in found.kernels:
        for path in module_files(tree, release):
            found.modules.append(_module_file(tree, path, release, release == kernel, command))
    for folder in (
        "/usr/bin",
        "/usr/local/nvidia/bin",
        "/run/nvidia/driver/usr/bin",
        "/home/kubernetes/bin/nvidia/bin",
    ):
        if not found.nvidia_smi and tree.kind(f"{folder}/nvidia-smi") == "file":
            found.nvidia_smi = f"{folder}/nvidia-smi"
    return found


def _module_file(tree: Tree, path: str, kernel: str, running: bool, command: _modinfo.Command) -> ModuleFile:
    one = ModuleFile(path, kernel, running)
    try:
        told = _modinfo.fields(tree.place(path), command)
    except (_modinfo.Unreadable, OSError) as error:
        tree.problems.add(tree.part, path, str(error), f"Ask modinfo {path} on the host.")
        return one
    one.version = told.get("version", "")
    one.flavour = flavour_of_licence(told.get("license", ""))
    one.signer = told.get("signer", "")
    return one


def module_files(tree: Tree, release: str) -> List[str]:
    """Where the modules named nvidia lie: what depmod wrote down, and the folders that packages use."""
    base = f"/lib/modules/{release}"
    found: Set[str] = set()
    for line in tree.text(f"{base}/modules.dep", 64 * 1024 * 1024).splitlines():
        path = line.partition(":")[0]
        if _MODULE_FILE.match(path.rpartition("/")[2]):
            found.add(path if path.startswith("/") else f"{base}/{path}")
    folders = [f"{base}/{name}" for name in _MODULE_FOLDERS]
    folders += [f"{base}/kernel/{name}" for name in tree.names(f"{base}/kernel") if name.startswith("nvidia")]
    for folder in folders:
        found.update(_search(tree, folder, 3))
    return sorted(path for path in found if tree.kind(path) == "file")[:MOST_FILES]


def _search(tree: Tree, folder: str, depth: int) -> List[str]:
    found = []
    for name in tree.names(folder) if depth else ():
        path = f"{folder}/{name}"
        if _MODULE_FILE.match(name):
            found.append(path)
        elif "." not in name and tree.kind(path) == "folder":
            found += _search(tree, path, depth - 1)
    return found


def _libraries(tree: Tree) -> List[Library]:
    """Files of libnvidia-ml and libcuda that carry a version. One that is reached by two names is told once."""
    found: Dict[str, Library] = {}
    for folder in dict.fromkeys((*_FOLDERS, *_configured(tree))):
        for name in tree.names(folder):
            version = _SO_VERSION.search(name)
            if not version or not name.startswith(_LIBRARIES) or tree.kind(f"{folder}/{name}") != "file":
                continue
            real = tree.real(f"{folder}/{name}")
            found.setdefault(real, Library(f"{folder}/{name}", version.group(1)))
    return sorted(found.values(), key=lambda library: library.path)


def _configured(tree: Tree) -> List[str]:
    """Folders of the dynamic loader's configuration."""
    texts = [tree.text("/etc/ld.so.conf")]
    texts += [
        tree.text(f"/etc/ld.so.conf.d/{name}") for name in tree.names("/etc/ld.so.conf.d") if name[-5:] == ".conf"
    ]
    lines = [line.partition("#")[0].strip() for text in texts for line in text.splitlines()]
    return [line.rstrip("/") for line in lines if line.startswith("/") and " " not in line]


def _firmware(tree: Tree) -> List[str]:
    """Versions of which the firmware for the GPUs' own processor (GSP) is there."""
    folders = ["/lib/firmware/nvidia", "/usr/lib/firmware/nvidia"]
    custom = tree.text("/sys/module/firmware_class/parameters/path")
    if custom:
        folders.append(f"{custom}/nvidia")
    versions = set()
    for folder in folders:
        for name in tree.names(folder):
            if re.fullmatch(r"\d+\.\d+(\.\d+)?", name) and any(map(_GSP.match, tree.names(f"{folder}/{name}"))):
                versions.add(name)
    return sorted(versions, key=numbers)


def _runfile(tree: Tree) -> bool:
    """Whether the driver was put there by NVIDIA's own installer: it leaves its program to take it away again."""
    return any(tree.kind(f"/usr/bin/{name}") == "file" for name in ("nvidia-uninstall", "nvidia-installer"))


def numbers(version: str) -> Tuple[int, ...]:
    """A version for comparison by part: 580.95.10 is newer than 580.95.05, whatever texts say."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def newest(versions: Sequence[str]) -> str:
    return max(versions, key=numbers, default="")
