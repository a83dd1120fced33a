# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The counters file: which fields the exporter gives, in its own form: FIELD, type, help.

The exporter reads it as CSV and ends at its start for a line that has not exactly three parts, for a stray quote, and
for a field or type that it does not know. So the whole file is judged here, and written anew in one form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from .._plan import ERROR, WARNING, Finding
from . import _fields

LABEL = "label"
TYPES = ("gauge", "counter", LABEL)
USELESS = ("histogram", "summary")  # taken by the exporter's parser, and never filled
_MOST = 1000  # lines

# The exporter's own set.
DEFAULT = """\
DCGM_FI_DEV_SM_CLOCK, gauge, SM clock (MHz)
DCGM_FI_DEV_MEM_CLOCK, gauge, Memory clock (MHz)
DCGM_FI_DEV_MEMORY_TEMP, gauge, Memory temperature (degrees Celsius)
DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (degrees Celsius)
DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (W)
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy since the driver was loaded (mJ)
DCGM_FI_DEV_PCIE_REPLAY_COUNTER, counter, PCIe retries
DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (percent)
DCGM_FI_DEV_MEM_COPY_UTIL, gauge, Memory utilization (percent)
DCGM_FI_DEV_ENC_UTIL, gauge, Encoder utilization (percent)
DCGM_FI_DEV_DEC_UTIL, gauge, Decoder utilization (percent)
DCGM_FI_DEV_XID_ERRORS, gauge, Number of the last Xid
DCGM_FI_DEV_FB_FREE, gauge, Memory free (MiB)
DCGM_FI_DEV_FB_USED, gauge, Memory used (MiB)
DCGM_FI_DEV_FB_RESERVED, gauge, Memory reserved (MiB)
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, counter, NVLink traffic of all links
DCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, vGPU license status
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS, counter, Rows remapped for uncorrectable errors
DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS, counter, Rows remapped for correctable errors
DCGM_FI_DEV_ROW_REMAP_FAILURE, gauge, Whether remapping of rows has failed
DCGM_FI_DRIVER_VERSION, label, Driver version
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Share of time in which the graphics or compute engine is active
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, Share of cycles in which the tensor pipe is active
DCGM_FI_PROF_DRAM_ACTIVE, gauge, Share of cycles in which the memory interface is active
DCGM_FI_PROF_PCIE_TX_BYTES, gauge, PCIe bytes sent per second
DCGM_FI_PROF_PCIE_RX_BYTES, gauge, PCIe bytes received per second
"""


@dataclass(frozen=True)
class Counter:
    """One line."""

    field: str
    kind: str
    help: str

    @property
    def number(self) -> int:
        """DCGM's number of the field; 0 for one that is not known."""
        known = _fields.named(self.field)
        return known.number if known else 0


def read(text: str, dcgm: Sequence[int] = (), accept: Sequence[str] = ()) -> Tuple[List[Counter], List[Finding]]:
    """The lines, and all that is wrong with them. ``dcgm``: its version where known, since names came with 4.6."""
    found: List[Finding] = []
    counters: List[Counter] = []
    lines = text.splitlines()
    if len(lines) > _MOST:
        return [], [Finding("metrics", ERROR, f"has {len(lines)} lines; allowed are {_MOST}", path="metrics")]
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        counter, problems = _line(line, f"metrics, line {number}", dcgm, accept)
        found += problems
        if counter and any(one.number == counter.number != 0 for one in counters):
            detail = f"{counter.field} is there twice, and the exporter would give two series of it"
            found.append(Finding("metrics", ERROR, detail, path=f"metrics, line {number}", remedy="Leave one out"))
        elif counter:
            counters.append(counter)
    if not found and not [one for one in counters if one.kind != LABEL]:
        found.append(Finding("metrics", ERROR, "names no metric, so the exporter would give nothing", path="metrics"))
    return counters, found


def _line(line: str, path: str, dcgm: Sequence[int], accept: Sequence[str]) -> Tuple[Optional[Counter], List[Finding]]:
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != 3 or not all(parts):
        detail = f"{line.strip()!r} has not exactly three parts: FIELD, type, help"
        remedy = "Take commas out of the help" if len(parts) > 3 else ""
        return None, [Finding("metrics", ERROR, detail, path=path, remedy=remedy)]
    field, kind, help_text = parts
    if '"' in line or any(ord(letter) < 32 and letter != "\t" for letter in line):
        detail = (
            f"{line.strip()!r} has a quotation mark or a control character, which the exporter's reader stumbles over"
        )
        return None, [Finding("metrics", ERROR, detail, path=path)]
    found = _kind(kind, path) + _field(field, path, dcgm, accept)
    return Counter(field, kind, " ".join(help_text.split())), found


def _kind(kind: str, path: str) -> List[Finding]:
    if kind in TYPES:
        return []
    if kind in USELESS:
        detail = f"the type {kind} is taken and never filled"
        return [Finding("metrics", WARNING, detail, path=path, remedy=f"Use one of {', '.join(TYPES)}")]
    return [Finding("metrics", ERROR, f"{kind!r} is no type; allowed are {', '.join(TYPES)}", path=path)]


def _field(field: str, path: str, dcgm: Sequence[int], accept: Sequence[str]) -> List[Finding]:
    known = _fields.named(field)
    if known is None:
        like = _fields.nearest(field)
        detail = f"{field} is no field of DCGM that is known here, and the exporter would not start"
        remedy = f"Did you mean {like}?" if like else "Look it up in DCGM's list of fields"
        severity = WARNING if "unknown_field" in accept else ERROR
        return [Finding("unknown_field", severity, detail, path=path, remedy=remedy, accept="unknown_field")]
    if known.later and dcgm and tuple(dcgm[:2]) < _fields.RENAMED_IN:
        older = [name for name in _fields.names_of(known.number) if not _fields.FIELDS[name].later]
        detail = f"{field} came with DCGM 4.6, and this is {'.'.join(map(str, dcgm))}"
        remedy = f"Write {older[0]}" if older else "Ask for a newer DCGM"
        return [Finding("later_field", ERROR, detail, path=path, remedy=remedy)]
    return []


def render(counters: Sequence[Counter]) -> str:
    """The file."""
    lines = [f"{one.field}, {one.kind}, {one.help}\n" for one in counters]
    return "# Made by gpufleet.nvidia.dcgm_exporter: FIELD, type, help\n" + "".join(lines)
