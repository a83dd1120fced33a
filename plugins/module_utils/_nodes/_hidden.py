# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of a node that are kept out of Kubernetes (P099): what a group says of them, and what is left to see.

An entry is a UUID, a PCI address or a product's name, each as the driver spells it. At least one entry of a node's list
has to be there, and one GPU has to be left: the pods see to that (``_operands._hidden``).
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence, Tuple

from .._plan import WARNING, Finding
from ._causes import names
from ._keys import CONTAINER, WORKLOAD_CONFIG
from ._models import Gpus, models
from ._selector import Selector, quote

Hidden = Mapping[str, Tuple[str, ...]]  # entries by node

_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[01][0-9a-f]\.[0-7])\Z", re.IGNORECASE)
# What is written like one of those and is none must not pass as the name of a product.
_LIKE_THEM = re.compile(r"(?:GPU|MIG)-|[0-9a-f:.]+\Z", re.IGNORECASE)
_MODEL = re.compile(r"[A-Za-z0-9][ -~]{0,94}[!-~]\Z")
_ALLOWED = "a UUID (GPU-…), a PCI address (0000:18:00.0) or the exact name of a product (NVIDIA H200) is allowed."


MOST = 1000  # entries of a group
_APART = "put these nodes into a group of their own."


def read_hidden(
    raw: Any, selector: Selector, mig: Any, labels: Mapping[str, str], refuse: Callable[[str, str, str], None]
) -> Tuple[str, ...]:
    """The key ``hidden_gpus`` of a group, sorted; ``refuse(key, detail, remedy)`` is told of each problem."""
    if raw is None:
        return ()
    if not isinstance(raw, (list, tuple)):
        refuse("hidden_gpus", f"is {raw!r}: a list of GPUs to hide is allowed.", "")
        return ()
    if len(raw) > MOST:
        refuse("hidden_gpus", f"has {len(raw)} entries: {MOST} at most are allowed.", "Make several groups of it.")
        return ()
    found: Dict[str, int] = {}  # which item said it first
    for index, item in enumerate(raw):
        key, entry = f"hidden_gpus[{index}]", canonical(item)
        if not entry:
            refuse(key, f"is {item!r}: {_ALLOWED}", quote(item))
        elif entry in found:
            refuse(key, f"is {item!r}, as hidden_gpus[{found[entry]}].", "Leave one of them out.")
        found.setdefault(entry, index)
    if found and mig:
        detail = "does not go with mig: the MIG manager partitions all GPUs of a node, hidden or not."
        refuse("hidden_gpus", detail, f"Leave mig out, or {_APART}")
    workload = labels.get(WORKLOAD_CONFIG, CONTAINER)
    if found and workload != CONTAINER:
        detail = f"does not go with {WORKLOAD_CONFIG}: {workload}: virtual machines take all GPUs of a node."
        refuse("hidden_gpus", detail, f"Leave one of the two out, or {_APART}")
    moving = [one.key for one in selector.requirements if one.key.startswith("nvidia.com/")]
    if found and moving:
        detail = (
            f"has {moving[0]}: such labels change with what hidden_gpus hides, and the nodes would leave the group."
        )
        refuse("selector", detail, "Select these nodes by another label, as kubernetes.io/hostname.")
    return tuple(sorted(entry for entry in found if entry))


def canonical(item: object) -> str:
    """An entry as the driver spells it: ``GPU-<hex>``, ``0000:18:00.0``, or a product's name. "" if it is none."""
    text = item if isinstance(item, str) else ""
    if _UUID.match(text):
        return "GPU-" + text[4:].lower()
    address = _PCI.match(text)
    if address:
        return f"{int(address.group(1) or '0', 16):04x}:{address.group(2).lower()}"
    return text if _MODEL.match(text) and not _LIKE_THEM.match(text) else ""


# --- the list --------------------------------------------------------------------------------------------------------


def to_text(hidden: Hidden) -> str:
    """The list as pods read it: lines ``<node> <what to hide>``; "" when nothing is hidden."""
    return "".join(f"{name} {entry}\n" for name in sorted(hidden) for entry in hidden[name])


def from_text(text: str) -> Dict[str, Tuple[str, ...]]:
    """The same list, by node."""
    found: Dict[str, Tuple[str, ...]] = {}
    for line in text.splitlines():
        name, _blank, entry = line.partition(" ")
        found[name] = (*found.get(name, ()), entry)
    return found


_NO_PRODUCT = re.compile(r"\D*\Z|(sxm|hbm)\d+\Z|\d+gb\Z")  # words that GPUs of several products have


def nowhere(hidden: Hidden, hardware: Mapping[str, Gpus]) -> List[Finding]:
    """Products that none of the nodes with the same list has, as far as the ids on all their PCI buses are known.

    The driver's name of a product has other words than that of its id, so one word in common is enough to be there.
    """
    alike: Dict[Tuple[str, ...], List[str]] = {}
    for name in sorted(hidden):
        alike.setdefault(hidden[name], []).append(name)
    found: List[Finding] = []
    for entries, nodes in alike.items():
        there = {model for name in nodes for model in models(hardware.get(name) or {"": 0})}
        if any(model.startswith("10de:") for model in there):
            continue
        words = {word for model in there for word in _words(model)}
        for entry in entries:
            mine = {word for word in _words(entry) if not _NO_PRODUCT.match(word)}
            if mine and not mine & words and not _UUID.match(entry) and not _PCI.match(entry):
                detail = f"names {entry!r} in hidden_gpus, and by their PCI buses these nodes have none: "
                detail += f"{', '.join(sorted(there))}."
                remedy = "Write the name as nvidia-smi shows it, or take it out of the list."
                found.append(Finding("groups.hidden-nowhere", WARNING, detail, names(nodes), "node_groups", remedy))
    return found


# --- what is left ----------------------------------------------------------------------------------------------------


def bounds(entries: Sequence[str], gpus: Gpus) -> Tuple[int, int]:
    """How many of these GPUs on a node's bus are hidden: at least, and at most. (0, 0) without entries.

    A UUID or an address is one GPU, or none where it belongs to another node of the group. A product is as many as
    are there; where its name is not that of a known PCI id, that is not known.
    """
    if not entries:
        return 0, 0
    there = sum(gpus.values())
    found = [_count(entry, gpus, there) for entry in entries]
    if len(found) == 1:
        return found[0]
    return 1, min(there, sum(most for _least, most in found))


def _count(entry: str, gpus: Gpus, there: int) -> Tuple[int, int]:
    if _UUID.match(entry) or _PCI.match(entry):
        return 1, 1
    counts = [count for name, count in models(gpus).items() if _words(name) == _words(entry)]
    return (counts[0], counts[0]) if counts else (1, there)


def _words(name: str) -> Iterable[str]:
    """``NVIDIA A100-SXM4-80GB`` and ``A100 SXM4 80GB`` are one product."""
    return {word for word in re.split(r"[ -]+", name.lower()) if word != "nvidia"}


def unlike_hidden(entries: Sequence[str], gpus: Gpus, seen: int) -> str:
    """How the number of GPUs that are seen differs from what is to be hidden; "" when it does not."""
    there, (least, most) = sum(gpus.values()), bounds(entries, gpus)
    if seen > there - least:
        return f"{seen} of the node's {there} GPUs are seen, of which {', '.join(entries)} is to be hidden"
    if seen < there - most:
        return f"the driver sees {seen} of the node's {there} GPUs, and hidden_gpus hides {most} of them at most"
    return ""
