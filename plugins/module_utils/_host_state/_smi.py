# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi's end means, and the GPUs that it lists: the way to NVML where Python has no pynvml."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import Dict, List, Tuple

OK = "ok"

# Columns asked for, by nvidia-smi's names.
COLUMNS = (
    "index",
    "uuid",
    "pci.bus_id",
    "name",
    "driver_version",
    "memory.total",
    "mig.mode.current",
    "mig.mode.pending",
    "compute_cap",
    "serial",
    "vbios_version",
    "persistence_mode",
    "compute_mode",
    "ecc.mode.current",
)
QUERY = (f"--query-gpu={','.join(COLUMNS)}", "--format=csv,noheader,nounits")

_NOT_LOADED = (
    "Load it: modprobe nvidia. When that fails, the kernel's log says why: not built for this kernel, Secure Boot, "
    "nouveau, wrong flavour."
)
_NO_DEVICES = (
    "Read the kernel's log: wrong flavour of the modules, a GPU that is lost or excluded, or a container without "
    "devices."
)
_REBOOT = "Reboot the host; when it comes back, the board or its slot needs service."


@dataclass(frozen=True)
class Verdict:
    """How it ended. ``state`` is a name that stays: :data:`OK`, mismatch, not_loaded, no_devices, lost, and so on."""

    state: str
    meaning: str
    remedy: str


# Words of the output and what they mean. They come before exit codes: several causes share one.
_WORDS: Tuple[Tuple[str, Verdict], ...] = (
    (
        r"Driver/library version mismatch",
        Verdict(
            "mismatch",
            "the driver's libraries are of another version than the loaded kernel module",
            "Unload and load the kernel modules, or reboot the host.",
        ),
    ),
    (
        r"couldn't communicate with the NVIDIA driver|NVIDIA driver is not loaded",
        Verdict("not_loaded", "the kernel module is not loaded", _NOT_LOADED),
    ),
    (
        r"No devices were found",
        Verdict(
            "no_devices",
            "the driver is loaded and has no GPU",
            _NO_DEVICES,
        ),
    ),
    (
        r"GPU is lost|GPU has fallen off the bus",
        Verdict("lost", "a GPU does not answer on its bus any more", _REBOOT),
    ),
    (
        r"Unable to determine the device handle",
        Verdict("lost", "a GPU cannot be opened", _REBOOT),
    ),
    (
        r"(couldn't find|not found).*libnvidia-ml|libnvidia-ml\S* (library )?(couldn't|could not) be found",
        Verdict("no_library", "libnvidia-ml.so.1 is not found", "Install the driver's user space, or run ldconfig."),
    ),
    (
        r"infoROM is corrupted",
        Verdict("inforom", "a board's InfoROM is damaged", "The board works, but needs service."),
    ),
    (
        r"Insufficient Permissions",
        Verdict("permission", "the user may not do that", "Run with become: true."),
    ),
    (
        r"Failed to initialize NVML: Unknown Error",
        Verdict(
            "no_access",
            "the driver refuses access, as in a container that has lost its devices",
            "Start the container again; see that its devices stay when systemd reloads.",
        ),
    ),
    (
        r"Failed to initialize NVML",
        Verdict("failed", "the driver's library cannot start", "Read the kernel's log."),
    ),
)
_CODES: Dict[int, Verdict] = {
    2: Verdict("argument", "this nvidia-smi does not know an argument", "It is older than what is asked of it."),
    3: Verdict("not_supported", "the GPU does not offer what was asked", ""),
    4: Verdict("permission", "the user may not do that", "Run with become: true."),
    6: Verdict("no_devices", "the driver is loaded and has no GPU", "Read the kernel's log."),
    8: Verdict("power", "a GPU lacks external power", "Check the power cables."),
    9: Verdict("not_loaded", "the kernel module is not loaded", _NOT_LOADED),
    10: Verdict("interrupts", "the kernel finds a fault with a GPU's interrupts", "Look at the firmware's settings."),
    12: Verdict("no_library", "libnvidia-ml.so.1 is not found", "Install the driver's user space, or run ldconfig."),
    13: Verdict("old_library", "the driver's library is older than nvidia-smi", "Install both in one version."),
    14: Verdict("inforom", "a board's InfoROM is damaged", "The board works, but needs service."),
    15: Verdict("lost", "a GPU does not answer on its bus any more", _REBOOT),
    18: Verdict(
        "mismatch",
        "the driver's libraries are of another version than the loaded kernel module",
        "Unload and load the kernel modules, or reboot the host.",
    ),
    126: Verdict("permission", "nvidia-smi may not be run", "Run with become: true."),
    127: Verdict("missing", "nvidia-smi is not there", "Install the driver's user space."),
}
LATE = Verdict(
    "hung",
    "nvidia-smi did not end in time: a GPU or its firmware hangs",
    "Do not call it again; read the kernel's log for Xid lines and reboot the host.",
)


def verdict(code: int, output: str, error: str = "") -> Verdict:
    """What exit code and texts mean."""
    text = f"{output}\n{error}"
    for words, meant in _WORDS:
        if re.search(words, text, re.IGNORECASE):
            return meant
    if code == 0:
        return Verdict(OK, "", "")
    first = next((line.strip() for line in (error + "\n" + output).splitlines() if line.strip()), "it said nothing")
    return _CODES.get(code, Verdict("failed", f"nvidia-smi ended with {code}: {first[:200]}", "Read the kernel's log."))


def gpus(output: str) -> List[Dict[str, str]]:
    """The lines that :data:`QUERY` gives, by column; what a GPU does not offer is empty."""
    found = []
    for values in csv.reader(output.splitlines(), skipinitialspace=True):
        if len(values) == len(COLUMNS):
            found.append({name: _value(value) for name, value in zip(COLUMNS, values)})
    return found


def _value(text: str) -> str:
    text = text.strip()
    return "" if re.fullmatch(r"\[.*\]|N/A", text) else text
