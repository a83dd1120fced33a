# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel's log says of GPUs, by cause."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Pattern, Tuple

from ._tree import AS_ROOT, Tree

KMSG = "/dev/kmsg"
MOST_RECORDS = 200_000
MOST_KINDS = 200
_RECORD = 8192
_BUS = re.compile(r"\b([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(\.[0-7])?")

_REBOOT = "Reboot the host; when it comes back, the board or its slot needs service."


@dataclass
class Entry:
    """One cause, as often as it was met. ``kind`` is a name that stays; ``code`` is an Xid's number, else -1."""

    kind: str
    cause: str
    remedy: str
    bus_id: str
    code: int
    count: int
    text: str


_UNTRUSTED = (
    r"Loading of (unsigned )?module.* rejected|Key was rejected by service|Required key not available"
    r"|Lockdown: .*unsigned module loading is restricted"
)
_OTHER_KERNEL = (
    r"\bnvidia\S*: (version magic|disagrees about version of symbol|Unknown symbol)"
    r"|could not insert 'nvidia\S*': (Exec format error|Unknown symbol)"
)
_CAUSES: Tuple[Tuple[Pattern[str], str, str, str], ...] = tuple(
    (re.compile(words), kind, cause, remedy)
    for words, kind, cause, remedy in (
        (
            r"API mismatch: the client has(?: the)? version",
            "mismatch",
            "a program uses libraries of another version than the loaded kernel module",
            "Unload and load the kernel modules, or reboot the host; then start the program again.",
        ),
        (
            r"not supported by open nvidia\.ko because it does not include the required GPU System Processor",
            "needs_proprietary",
            "the open kernel modules cannot drive this GPU",
            "Install the proprietary modules, of branch 580 or older for Maxwell, Pascal and Volta.",
        ),
        (
            r"requires use of the NVIDIA open kernel modules",
            "needs_open",
            "the proprietary kernel modules cannot drive this GPU",
            "Install the open modules.",
        ),
        (
            r"already bound to (?P<what>[\w-]+)",
            "bound",
            "another driver has the GPU",
            "Keep that driver from loading, in the initramfs too, and reboot.",
        ),
        (
            r"The NVIDIA probe routine was not called for \d+ device",
            "not_probed",
            "another driver had the GPU when NVIDIA's was loaded",
            "See which driver is bound to the GPU; keep it from loading and reboot.",
        ),
        (
            r"This PCI I/O region assigned to your NVIDIA device is invalid",
            "bar",
            "the firmware gave the GPU no address space",
            "Turn on decoding above 4G in the firmware's settings; in a virtual machine give it a larger window.",
        ),
        (
            r"GPU has fallen off the bus|GPU is lost",
            "lost",
            "a GPU does not answer on its bus any more",
            _REBOOT,
        ),
        (
            r"RmInitAdapter failed",
            "init",
            "the driver could not start the GPU",
            "See the lines beside it: firmware files missing, power, or a fabric manager that does not run.",
        ),
        (
            _UNTRUSTED,
            "signature",
            "the kernel does not trust the module's signature",
            "Enrol the key that signed it, or install modules that the distribution signs.",
        ),
        (
            _OTHER_KERNEL,
            "other_kernel",
            "the module was built for another kernel",
            "Build or install it for the running kernel.",
        ),
        (
            r"could not insert 'nvidia\S*': Operation not permitted",
            "lockdown",
            "the kernel refuses modules",
            "See Secure Boot and lockdown; a signed module is needed.",
        ),
        (
            r"could not insert 'nvidia\S*': No such device",
            "no_device",
            "no GPU that these modules can drive",
            "Install the flavour and the branch that the GPUs need.",
        ),
        (
            r"Module nvidia\S* not found in directory",
            "not_built",
            "there is no module for the running kernel",
            "Build or install it for the running kernel.",
        ),
    )
)
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9a-fA-F:.]+)\): (?P<code>\d+)")
_SXID = re.compile(r"nvidia-nvswitch\d*: SXid \(PCI:(?P<bus>[0-9a-fA-F:.]+)\): (?P<code>\d+)")


def read(tree: Tree) -> List[Entry]:
    """The entries of this boot's log, oldest first."""
    tree = tree.of("kernel_log")
    if tree.kind(KMSG) == "file":
        return classified(tree.text(KMSG, 16 * 1024 * 1024).splitlines())
    if not tree.live:
        return []
    try:
        return classified(_records(tree.place(KMSG)))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            tree.problems.add(tree.part, KMSG, "the kernel's log may not be read", AS_ROOT)
        else:
            tree.failed(KMSG, error)
        return []


def classified(lines: Iterable[str]) -> List[Entry]:
    """What the lines mean; lines that say nothing of a GPU's trouble are left out, equal causes counted."""
    found: Dict[Tuple[str, str, int], Entry] = {}
    for line in lines:
        entry = classify(line)
        if entry is None:
            continue
        key = (entry.kind, entry.bus_id, entry.code)
        if key in found:
            found[key].count += 1
            found[key].text = entry.text
        elif len(found) < MOST_KINDS:
            found[key] = entry
    return list(found.values())


def classify(line: str) -> Optional[Entry]:
    """One line of the kernel's log, or of what modprobe says."""
    text = line.partition(";")[2] or line if re.match(r"\d+,\d+,\d+,", line) else line
    text = text.replace("\\x0a", " ").strip()[:400]
    for pattern, kind in ((_XID, "xid"), (_SXID, "sxid")):
        found = pattern.search(text)
        if found:
            board = "GPU" if kind == "xid" else "NVSwitch"
            remedy = f"Look up {kind.capitalize()} {found['code']} in NVIDIA's list."
            return Entry(kind, f"the {board} reports an error", remedy, _bus(text), int(found["code"]), 1, text)
    for pattern, kind, cause, remedy in _CAUSES:
        found = pattern.search(text)
        if found:
            what = found.groupdict().get("what") or ""
            return Entry(kind, f"{cause}: {what}" if what else cause, remedy, _bus(text), -1, 1, text)
    return None


def _bus(text: str) -> str:
    found = _BUS.search(text)
    return f"{found.group(1)}{found.group(2) or '.0'}".lower() if found else ""


def _records(path: str) -> Iterable[str]:
    """Records of /dev/kmsg: one for each read, until there are no more."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for _number in range(MOST_RECORDS):
            try:
                record = os.read(descriptor, _RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # records that were overwritten meanwhile
            if not record:
                return
            yield record.decode("utf-8", "replace").partition("\n")[0]
    finally:
        os.close(descriptor)
