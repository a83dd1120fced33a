# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other drivers of the same GPUs (nouveau, and nova of newer kernels): kept from loading, and unloaded where that is
safe."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

from .._host._commands import CommandFailed, Runner
from .._host._files import Files
from .._host_state import _driver, _pci, _system
from .._host_state._tree import Tree
from .._plan import Failure
from ._kernel import tree_of

FILE = "/etc/modprobe.d/gpufleet-nouveau.conf"
_HEAD = "# Made by gpufleet.nvidia.nvidia_driver: these would take the GPUs before NVIDIA's modules can."
_NOVA_FROM = (6, 15)
#: Dependents first.
ORDER = ("nova_drm", "nova_core", "nouveau", "nvidiafb")


@dataclass(frozen=True)
class Nouveau:
    """What is there. ``loaded``: names, dependents first; ``bound``: bus ids of GPUs that they have; ``blocked``:
    whether something other than our file keeps nouveau from loading; ``reboot``: why they cannot be unloaded."""

    loaded: Tuple[str, ...] = ()
    bound: Tuple[str, ...] = ()
    blocked: Tuple[str, ...] = ()
    reboot: str = ""


def wanted_files(kernel: str = "") -> Dict[str, str]:
    """The file that keeps them from loading, with its text. ``kernel``: those from 6.15 on have nova as well."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", kernel)[:2])
    nova = ("blacklist nova_core", "blacklist nova_drm") if numbers >= _NOVA_FROM else ()
    return {FILE: "\n".join((_HEAD, "blacklist nouveau", *nova, "options nouveau modeset=0")) + "\n"}


def look(files: Files) -> Nouveau:
    """What drives the GPUs instead of NVIDIA's modules."""
    tree = tree_of(files)
    bound: Dict[str, List[str]] = {}
    for gpu in _pci.read(tree).gpus:
        bound.setdefault(gpu.driver, []).append(gpu.bus_id)
    rivals = _driver.rivals(tree, bound, _system.read(tree).kernel_options)
    there = [each for each in rivals if each.loaded]
    names = sorted((each.name for each in there), key=ORDER.index)
    blocked = [path for each in rivals if each.name == "nouveau" for path in each.blocked_by if path != FILE]
    return Nouveau(
        tuple(names),
        tuple(sorted(bus for each in rivals for bus in each.bound)),
        tuple(blocked),
        _reboot(tree, there) if there else "",
    )


def _reboot(tree: Tree, there: Sequence[_driver.Rival]) -> str:
    """Why drivers cannot be unloaded, as a sentence; "" where they can."""
    stands = {each.name: len(each.used_by) for each in _driver.modules(tree)}
    for each in there:
        if each.references < 0:
            return f"{each.name} is loaded and the kernel does not tell who uses it: it can only be left out at boot."
        if each.references > stands.get(each.name, 0):
            return f"{each.name} drives a display or is in use ({each.references}): it can only be left out at boot."
    screens = console_on(tree, "nouveau", "nova", "nvidia")
    return f"The console is on the GPU ({screens}): {there[0].name} can only be left out at boot." if screens else ""


def console_on(tree: Tree, *drivers: str) -> str:
    """The frame buffer that the text console is drawn on, where it is one of these drivers', or where the kernel does
    not name it; "" where the console is elsewhere."""
    folder = "/sys/class/vtconsole"
    bound = [
        name
        for name in tree.names(folder)
        if tree.number(f"{folder}/{name}/bind") == 1 and "frame buffer" in tree.text(f"{folder}/{name}/name")
    ]
    if not bound:
        return ""
    named = [line.partition(" ")[2].strip() for line in tree.text("/proc/fb").splitlines() if " " in line]
    if not named:
        return f"{bound[0]}, a frame buffer that /proc/fb does not name"
    return next((name for name in named if any(driver in name for driver in drivers)), "")


def unload(runner: Runner, files: Files) -> List[str]:
    """Unload them where nothing uses them. Returns their names. Raises Failure where that cannot be, or failed."""
    found = look(files)
    if found.reboot:
        raise Failure(f"{found.reboot} Nothing was unloaded. Reboot the host.")
    for name in found.loaded:
        if name not in look(files).loaded:
            continue  # modprobe takes what stood below the one before
        try:
            runner.run(["modprobe", "-r", name], timeout=60.0)
            wrong = "modprobe ended well, and it is still there" if name in look(files).loaded else ""
        except CommandFailed as failure:
            wrong = failure.how.words().rstrip(".")
        if wrong:
            raise Failure(f"{name} could not be unloaded: {wrong}. Reboot the host: it is kept out then.")
    return list(found.loaded)
