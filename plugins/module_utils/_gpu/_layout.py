# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layouts as people write them: entries that say which GPUs, and what is wanted of each. Pure.

All problems of a layout are found at once, as findings with the path of the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .._plan import ERROR, INFO, WARNING, Finding
from ._board import Gpu
from ._names import BadName, Name, parse

Filter = Tuple[int, Optional[int]]  # PCI id of device and vendor, and of the subsystem if given

_ENTRY_KEYS = ("gpus", "product", "pci_ids", "enabled", "profiles", "instances")
_INSTANCE_KEYS = ("profile", "count", "start", "compute")
_PCI = re.compile(r"0[xX]([0-9a-fA-F]{8})(?::0[xX]([0-9a-fA-F]{8}))?")
_BUS = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])")
_MOST = 64  # of one profile: more than any GPU has


@dataclass(frozen=True)
class Wish:
    """``count`` instances of a profile; ``compute`` None: those that the name says, packed together."""

    name: Name
    count: int
    start: Optional[int] = None
    compute: Optional[Tuple[int, ...]] = None


@dataclass(frozen=True)
class Entry:
    """``gpus`` None: all. ``wishes`` are for each GPU."""

    path: str
    gpus: Optional[Tuple[Union[int, str], ...]]
    enabled: bool
    wishes: Tuple[Wish, ...] = ()
    product: str = ""
    filters: Optional[Tuple[Filter, ...]] = None

    @property
    def content(self) -> Tuple[bool, Tuple[Wish, ...]]:
        """What is wanted, however it is written."""
        return self.enabled, tuple(sorted(self.wishes, key=str))


@dataclass(frozen=True)
class Silent:
    """A GPU that does not answer, and why. Of ``gpu`` only the index is sure; without a UUID it told nothing."""

    gpu: Gpu
    why: str
    remedy: str

    def __str__(self) -> str:
        uuid = f" ({self.gpu.uuid})" if self.gpu.uuid else ""
        return f"GPU {self.gpu.index}{uuid} does not answer: {self.why}"


@dataclass(frozen=True)
class Assignment:
    """The entry of each GPU, by UUID. ``unmatched``: entries that could match GPUs, and match none."""

    entries: Dict[str, Entry]
    findings: Tuple[Finding, ...]
    unmatched: Tuple[Entry, ...] = ()


class Problems:
    """Findings, collected."""

    def __init__(self) -> None:
        self.found: List[Finding] = []

    def error(self, path: str, detail: str, remedy: str = "", name: str = "layout") -> None:
        self.found.append(Finding(f"mig.{name}", ERROR, detail, "", path, remedy))

    def warn(self, path: str, detail: str, name: str = "layout") -> None:
        self.found.append(Finding(f"mig.{name}", WARNING, detail, "", path))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_layout(value: object, path: str = "layout") -> Tuple[List[Entry], List[Finding]]:
    """Entries of the option ``layout``."""
    problems = Problems()
    if not isinstance(value, (list, tuple)):
        problems.error(path, f"is a {type(value).__name__}; a layout is a list of entries")
        return [], problems.found
    entries = [_entry(item, f"{path}[{n}]", problems) for n, item in enumerate(value)]
    return [entry for entry in entries if entry], problems.found


def _entry(value: object, path: str, problems: Problems) -> Optional[Entry]:
    if not isinstance(value, Mapping):
        problems.error(path, f"is a {type(value).__name__}; an entry is a mapping with gpus and profiles")
        return None
    _unknown(value, _ENTRY_KEYS, path, problems)
    enabled = value.get("enabled")
    enabled = True if enabled is None else enabled
    if not isinstance(enabled, bool):
        problems.error(f"{path}.enabled", f"is {enabled!r}; it is true or false")
        enabled = True
    wishes = _counts(value.get("profiles"), f"{path}.profiles", problems)
    wishes += _instances(value.get("instances"), f"{path}.instances", problems)
    if enabled and value.get("profiles") is None and value.get("instances") is None:
        remedy = "Give profiles ({} takes all instances away), instances, or enabled: false."
        problems.error(path, "says nothing of what its GPUs shall have", remedy)
    if wishes and not enabled:
        problems.error(path, "asks for instances with enabled: false", "Take the instances or enabled: false away.")
    product = value.get("product") or ""
    if not isinstance(product, str):
        problems.error(f"{path}.product", f"is {product!r}; it is a part of the product's name, such as H100")
        product = ""
    filters = value.get("pci_ids")
    if isinstance(filters, (list, tuple)) and not filters:
        problems.error(f"{path}.pci_ids", "is empty and would match every GPU", "Leave it out to mean every GPU.")
    return Entry(
        path,
        _gpus(value.get("gpus", "all"), f"{path}.gpus", problems),
        enabled,
        tuple(wishes),
        product,
        None if filters is None else tuple(read_filters(filters, f"{path}.pci_ids", problems, strict=True)),
    )


def _unknown(value: Mapping[Any, Any], known: Sequence[str], path: str, problems: Problems) -> None:
    for key in value:
        if key not in known:
            problems.error(f"{path}.{key}", "is not known", f"Known are {', '.join(known)}.")


def _gpus(value: object, path: str, problems: Problems) -> Optional[Tuple[Union[int, str], ...]]:
    if value in (None, "all"):
        return None
    listed = value if isinstance(value, (list, tuple)) else [value]
    made: List[Union[int, str]] = []
    for item in listed:
        if is_int(item) and isinstance(item, int) and item >= 0:
            made.append(item)
        elif isinstance(item, str) and item.isascii() and item.isdigit() and len(item) < 5:
            made.append(int(item))
        elif isinstance(item, str) and (item.startswith("GPU-") or _BUS.fullmatch(item)):
            made.append(item)
        else:
            problems.error(path, f"has {item!r}; a GPU is an index, a UUID (GPU-...) or a PCI address (0000:3b:00.0)")
    return tuple(made)


def _counts(value: object, path: str, problems: Problems) -> List[Wish]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        problems.error(path, f"is a {type(value).__name__}; it maps profiles to counts, as in 1g.10gb: 2")
        return []
    return [
        Wish(name, count)
        for key, many in value.items()
        for name, count in [(read_name(key, f"{path}.{key}", problems), read_count(many, f"{path}.{key}", problems))]
        if name and count
    ]


def _instances(value: object, path: str, problems: Problems) -> List[Wish]:
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        problems.error(path, f"is a {type(value).__name__}; it is a list of instances with a profile each")
        return []
    made = [_instance(item, f"{path}[{n}]", problems) for n, item in enumerate(value)]
    return [wish for wish in made if wish]


def _instance(value: object, path: str, problems: Problems) -> Optional[Wish]:
    if not isinstance(value, Mapping):
        problems.error(path, f"is a {type(value).__name__}; an instance is a mapping with a profile")
        return None
    _unknown(value, _INSTANCE_KEYS, path, problems)
    name = read_name(value.get("profile"), f"{path}.profile", problems)
    count = 1 if value.get("count") is None else read_count(value["count"], f"{path}.count", problems)
    start = value.get("start")
    if start is not None and not (is_int(start) and 0 <= start < _MOST):
        problems.error(f"{path}.start", f"is {start!r}; it is the number of a memory slot, counted from 0")
        return None
    if start is not None and count > 1:
        problems.error(path, f"asks for {count} instances at slot {start}", "Give each an entry of its own.")
    return Wish(name, count, start, _compute(value.get("compute"), path, problems)) if name and count else None


def _compute(value: object, path: str, problems: Problems) -> Optional[Tuple[int, ...]]:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not all(is_int(item) and 0 < item <= _MOST for item in value):
        problems.error(f"{path}.compute", f"is {value!r}; it lists the slices of each compute instance, as in [2, 1]")
        return None
    return tuple(sorted(value, reverse=True))


def read_name(value: object, path: str, problems: Problems) -> Optional[Name]:
    """A profile's name; a problem where it is none."""
    try:
        return parse(value)
    except BadName as error:
        problems.error(path, str(error), name="profile")
        return None


def read_count(value: object, path: str, problems: Problems) -> int:
    """How many; 0 where it is no number, with a problem."""
    if not isinstance(value, int) or not is_int(value) or not 0 <= value <= _MOST:
        problems.error(path, f"is {value!r}; it is how many instances, from 0 on")
        return 0
    return value


def is_int(value: object) -> bool:
    """Whether it is a number; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def read_filters(value: object, path: str, problems: Problems, strict: bool) -> List[Filter]:
    """PCI ids such as ``0x233010DE`` or ``0x20B010DE:0x134F10DE``. Others are refused, or match nothing with a warning
    as they do in mig-parted's files."""
    listed = value if isinstance(value, (list, tuple)) else [value]
    made: List[Filter] = []
    for item in listed:
        text = f"0x{item:08X}" if isinstance(item, int) and is_int(item) and item >= 0 else item
        found = _PCI.fullmatch(text) if isinstance(text, str) else None
        if found:
            made.append((int(found.group(1), 16), int(found.group(2), 16) if found.group(2) else None))
            continue
        detail = f"{item!r} is no PCI id and matches no GPU; ids look like 0x233010DE, device before vendor"
        if strict or not isinstance(text, str):
            problems.error(path, detail)
        else:
            problems.warn(path, detail, "filter")
            made.append((0, None))
    return made


# --- which GPU gets which entry ---------------------------------------------------------------------------------------


def assign(
    entries: Sequence[Entry], gpus: Sequence[Gpu], capable: Mapping[str, bool], silent: Sequence[Silent] = ()
) -> Assignment:
    """The entry of each GPU that one matches. ``capable``: whether a GPU can do MIG, by UUID.

    Findings: GPUs that are not there or do not answer, GPUs that cannot do MIG, entries that contradict each other.
    """
    chosen: Dict[str, Entry] = {}
    problems = Problems()
    dumb = {each.gpu.index: each for each in silent}
    every = sorted([*gpus, *(each.gpu for each in silent)], key=lambda gpu: gpu.index)
    named: Dict[int, Entry] = {}
    unmatched: List[Entry] = []
    for entry in entries:
        matched = [gpu for gpu in _named(entry, every, silent, problems) if _passes(entry, gpu)]
        if not matched and (entry.gpus is None or entry.gpus):
            unmatched.append(entry)
        for gpu in matched:
            if gpu.index in dumb:
                named.setdefault(gpu.index, entry)
            elif capable.get(gpu.uuid):
                _choose(chosen, gpu, entry, problems)
            elif entry.enabled:
                _incapable(entry, gpu, problems)
    problems.found += [_silent(dumb[index], named.get(index)) for index in dumb]
    return Assignment(chosen, tuple(problems.found), tuple(unmatched))


def idle(assigned: Assignment, entries: Sequence[Entry], gpus: Sequence[Gpu]) -> List[Finding]:
    """What is said of entries that match no GPU, in a layout that a person wrote for its hosts."""
    return [
        Finding("mig.no-gpu", WARNING, "matches no GPU of this host", "", entry.path) for entry in assigned.unmatched
    ]


def idle_in_file(assigned: Assignment, entries: Sequence[Entry], gpus: Sequence[Gpu]) -> List[Finding]:
    """The same in a file for many kinds of hosts: each takes what is for its GPUs, so one line says it all."""
    if not assigned.unmatched:
        return []
    if len(assigned.unmatched) < len(entries):
        detail = f"{len(assigned.unmatched)} of {len(entries)} entries match no GPU of this host"
        return [Finding("mig.no-gpu", INFO, detail, "", _label(entries))]
    return [Finding("mig.no-gpu", WARNING, f"no entry matches a GPU of this host: {_kinds(gpus)}", "", _label(entries))]


def idle_by_name(assigned: Assignment, entries: Sequence[Entry], gpus: Sequence[Gpu]) -> List[Finding]:
    """The same in a layout that this collection ships: a name that is not for this host's GPUs is a mistake."""
    if not entries or len(assigned.unmatched) < len(entries):
        return []
    remedy = "Take another name, or write the layout."
    detail = f"the layout has nothing for the GPUs of this host: {_kinds(gpus)}"
    return [Finding("mig.no-gpu", ERROR, detail, "", _label(entries), remedy)]


def _label(entries: Sequence[Entry]) -> str:
    return entries[0].path.rpartition("[")[0]


def _kinds(gpus: Sequence[Gpu]) -> str:
    return ", ".join(dict.fromkeys(f"{gpu.name} (0x{gpu.device_id:08X})" for gpu in gpus)) or "there are none"


def _silent(gpu: Silent, entry: Optional[Entry]) -> Finding:
    """An error for a GPU that an entry names, or may mean."""
    target = f"GPU {gpu.gpu.index}"
    if entry is None:
        return Finding("mig.silent-gpu", WARNING, f"{gpu}. It is left alone", target, "", gpu.remedy)
    remedy = f"{gpu.remedy} Or list the other GPUs only (gpus, devices).".strip()
    return Finding("mig.silent-gpu", ERROR, str(gpu), target, entry.path, remedy)


def _choose(chosen: Dict[str, Entry], gpu: Gpu, entry: Entry, problems: Problems) -> None:
    before = chosen.setdefault(gpu.uuid, entry)
    if before.content != entry.content:
        problems.error(
            entry.path, f"wants something else of GPU {gpu.index} than {before.path} does", "", "contradiction"
        )


def _incapable(entry: Entry, gpu: Gpu, problems: Problems) -> None:
    said = f"GPU {gpu.index} ({gpu.name}) cannot do MIG"
    if entry.gpus is None:
        problems.found.append(Finding("mig.not-capable", INFO, f"{said} and is left alone", f"GPU {gpu.index}"))
    else:
        problems.error(entry.path, said, "Take it out of the list.", "not-capable")


def _named(entry: Entry, gpus: Sequence[Gpu], silent: Sequence[Silent], problems: Problems) -> List[Gpu]:
    if entry.gpus is None:
        return list(gpus)
    found = []
    for wanted in entry.gpus:
        same = [gpu for gpu in gpus if _is(gpu, wanted)]
        if not same:
            there = ", ".join(str(gpu.index) for gpu in gpus) or "none"
            told = "".join(f"; {each}" for each in silent if not each.gpu.uuid)
            problems.error(
                entry.path, f"names GPU {wanted}, which is not there", f"There are {there}{told}.", "unknown-gpu"
            )
        found += same
    return found


def _is(gpu: Gpu, wanted: Union[int, str]) -> bool:
    if isinstance(wanted, int):
        return gpu.index == wanted
    return gpu.uuid == wanted or (bus(wanted) != () and bus(gpu.bus_id) == bus(wanted))


def bus(text: str) -> Tuple[int, ...]:
    """A PCI address in numbers, with or without its domain; empty where it is none."""
    found = _BUS.fullmatch(text)
    return tuple(int(part or "0", 16) for part in found.groups()) if found else ()


def _passes(entry: Entry, gpu: Gpu) -> bool:
    if not gpu.uuid:
        return True  # it does not say what it is, so it may be meant
    if entry.product and entry.product.lower() not in gpu.name.lower():
        return False
    if not entry.filters:
        return True
    return any(gpu.device_id == device and sub in (None, gpu.subsystem_id) for device, sub in entry.filters)
