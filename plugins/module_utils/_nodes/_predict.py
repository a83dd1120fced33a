# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node will offer, computed from its GPUs, their MIG layout, the MIG strategy and the sharing (PLG-02..04).

It follows the device plugin, which decides on the resources, and GPU feature discovery, which decides on the labels.
Combinations at which either of them exits are an ``Impossible``.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from .._operands._mig_configs import profile
from .._operands._plugin_config import MPS, PluginConfig, Sharing

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"
NO_CONFIG = PluginConfig()

Board = Optional[Tuple[str, ...]]  # None: MIG is off. Else the profiles of its MIG devices, () while it has none.


class Impossible(ValueError):
    """The plugin or feature discovery would not start. ``remedy`` says what would fit."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True)
class Offer:
    """``resources`` are those of the device plugin. ``labels``: of GPU feature discovery, those that follow from the
    layout and the sharing. ``notes``: what works and is not as one might think."""

    resources: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: Tuple[str, ...] = ()


# --- layouts ---------------------------------------------------------------------------------------------------------

# Products that the shipped layouts tell apart: product label, memory in GiB from and below, PCI device ids.
_DEVICES: Tuple[Tuple[str, float, float, str], ...] = (
    (r"A[18]00", 30, 60, "20B0 20B1 20F1 20F6"),
    (r"A[18]00", 60, 90, "20B2 20B5 20F3 20F5"),
    (r"A30", 0, 999, "20B7"),
    (r"H200(?:-NVL)?", 0, 999, "2335 233B"),
    (r"GH200", 0, 110, "2342"),
    (r"GH200", 110, 999, "2348"),
    (r"H[18]00", 70, 85, "2330 2331 2322 2324"),
    (r"H[18]00", 85, 95, "2321 233A"),
    (r"H100", 95, 110, "233D"),
    (r"H20", 0, 110, "2329"),
    (r"GB200", 0, 999, "2941"),
    (r"B200", 0, 999, "2901"),
    (r"B300", 0, 999, "3182"),
    (r"GB300", 0, 999, "31C2"),
    (r"RTX-PRO-6000-Blackwell", 0, 999, "2BB5"),
)
_GRACE = "GH200"  # the size in its name is not that of its GPU


def board_name(product: str) -> str:
    """The product label without what layout and sharing add to it."""
    return re.sub(r"(-MIG-.*|-SHARED)$", "", product)


def device_ids(product: str, memory: int) -> Tuple[str, ...]:
    """PCI device ids that a product may have, by its label; () if unknown. ``memory``: its label in MiB, or 0."""
    name = board_name(product)
    size = re.search(r"(\d+)GB", name) if _GRACE not in name else None
    gib = float(size.group(1)) if size else (memory / 1024 if "-MIG-" not in product else 0.0)
    for pattern, least, below, found in _DEVICES:
        if re.search(rf"(?:^|-){pattern}(?:-|$)", name, re.IGNORECASE) and (not gib or least <= gib < below):
            return tuple(found.split())
    return ()


def boards_of(
    entries: Sequence[Mapping[str, object]], count: int, devices: Sequence[str] = ()
) -> Optional[List[Board]]:
    """What a layout (entries of mig-parted's v1) makes of ``count`` boards of one of these PCI device ids.

    None when that cannot be told: the layout leaves boards as they are, or asks for a device that is not known.
    """
    made: Dict[int, Board] = {}
    for entry in entries:
        if entry.get("device-filter") and not devices:
            return None
        if not _passes(entry.get("device-filter"), devices):
            continue
        chosen = entry.get("devices")
        for index in range(count) if chosen == "all" else [i for i in _numbers(chosen) if i < count]:
            made[index] = _profiles(entry)
    return [made[index] for index in range(count)] if len(made) == count else None


def _numbers(value: object) -> List[int]:
    return [item for item in value if isinstance(item, int)] if isinstance(value, (list, tuple)) else []


def _passes(wanted: object, devices: Sequence[str]) -> bool:
    filters = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(filters, (list, tuple)) or not filters:
        return True
    return any(str(item).upper().startswith(f"0X{device}10DE") for item in filters for device in devices)


def _profiles(entry: Mapping[str, object]) -> Board:
    devices = entry.get("mig-devices")
    if not entry.get("mig-enabled"):
        return None
    counts = devices if isinstance(devices, Mapping) else {}
    return tuple(str(name) for name, number in counts.items() for _one in range(int(number)))


# --- what the plugin offers ------------------------------------------------------------------------------------------


def offer(
    boards: Sequence[Board],
    strategy: str,
    config: PluginConfig = NO_CONFIG,
    compute: Tuple[int, ...] = (9, 0),
    product: str = "",
) -> Offer:
    """What a node with these boards offers. Raises Impossible. ``product`` as in the label, without a suffix."""
    sharing = config.sharing
    if not boards:
        return Offer()
    if sharing.kind == MPS:
        _judge_mps(boards, strategy, sharing, compute)
    on = [board for board in boards if board is not None]
    notes: List[str] = []
    if strategy == "none" or not on:
        counts = {GPU: len(boards)}
        if on:
            notes.append("MIG is on, and strategy none offers whole boards, on which no CUDA program runs")
    elif strategy == "single":
        counts = _single(boards, on)
    else:
        counts = _mixed(boards)
        empty = sum(1 for board in on if not board)
        if empty:
            notes.append(f"{empty} of {len(boards)} boards have MIG on and no MIG devices: they offer nothing")
    notes += _unused(counts, sharing)
    resources = {sharing.name(name): count * sharing.of(name) for name, count in sorted(counts.items())}
    return Offer(resources, _labels(boards, strategy, sharing, product), tuple(notes))


def _judge_mps(boards: Sequence[Board], strategy: str, sharing: Sharing, compute: Tuple[int, ...]) -> None:
    if strategy == "mixed":
        raise Impossible(
            "MPS does not go with the MIG strategy mixed",
            "Set mig.strategy to single or none, or share by timeSlicing instead",
        )
    if any(board is not None for board in boards):
        raise Impossible(
            "MPS does not go with boards in MIG mode",
            "Choose the MIG configuration all-disabled for the node, or share by timeSlicing instead",
        )
    most = 48 if compute >= (7, 5) else 16
    wanted = max(sharing.replicas.values(), default=0)
    if wanted > most:
        raise Impossible(f"{wanted} replicas are more than the {most} that MPS has on this GPU", f"Set {most} or fewer")


def _single(boards: Sequence[Board], on: Sequence[Tuple[str, ...]]) -> Dict[str, int]:
    if len(on) != len(boards):
        raise Impossible(
            f"MIG is on on {len(on)} of {len(boards)} boards, and strategy single needs it on all or on none",
            "Set mig.strategy to mixed, or choose a MIG configuration for all boards",
        )
    if any(not board for board in on):
        raise Impossible(
            "a board has MIG on and no MIG devices, at which strategy single fails",
            "Set mig.strategy to mixed, or choose a MIG configuration that gives every board devices",
        )
    kinds = sorted({canonical(name) for board in on for name in board})
    if len(kinds) > 1:
        raise Impossible(
            f"its MIG devices are of {len(kinds)} kinds ({', '.join(kinds)}), and strategy single needs one",
            "Set mig.strategy to mixed, or choose a MIG configuration with one profile",
        )
    return {GPU: sum(len(board) for board in on)}


def _mixed(boards: Sequence[Board]) -> Dict[str, int]:
    counts: Counter[str] = Counter()
    for board in boards:
        if board is None:
            counts[GPU] += 1
        for name in board or ():
            if canonical(name) != re.sub(r"^\d+c\.", "", canonical(name)):
                raise Impossible(
                    f"MIG devices {name} have a part of their instance's compute, which strategy mixed has no name for",
                    "Set mig.strategy to single, or choose a MIG configuration with whole instances",
                )
            counts[MIG + plain(name)] += 1
    return dict(counts)


def _unused(counts: Mapping[str, int], sharing: Sharing) -> List[str]:
    """Resources that a config shares and the node does not have: the plugin says nothing of them."""
    return [f"{name} is to be shared, and the node has none" for name in sharing.replicas if name not in counts]


def canonical(name: str) -> str:
    """``1c.1g.5gb`` is ``1g.5gb``; ``1g.5gb.me`` is ``1g.5gb+me``."""
    found = re.match(r"(\d+)c\.(\d+)g\.", profile(name))
    text = profile(name)
    return text[found.end(1) + 2 :] if found and found.group(1) == found.group(2) else text


def plain(name: str) -> str:
    """The profile as resources and labels spell it."""
    return canonical(name).replace("+", ".")


# --- what feature discovery says -------------------------------------------------------------------------------------


def _labels(boards: Sequence[Board], strategy: str, sharing: Sharing, product: str) -> Dict[str, str]:
    on = [board for board in boards if board is not None]
    off = len(boards) - len(on)
    found = _row(GPU, product, len(boards), sharing if off else None)
    if strategy == "none":
        return found
    found["nvidia.com/mig.strategy"] = strategy
    if not on:
        return found
    kinds: Counter[str] = Counter(plain(name) for board in on for name in board)
    if strategy == "single":
        (kind,) = kinds
        return {**found, **_row(GPU, f"{product}-MIG-{kind}" if product else "", kinds[kind], sharing)}
    for kind, count in kinds.items():
        found.update(_row(MIG + kind, f"{product}-MIG-{kind}" if product else "", count, sharing))
    return found


def _row(resource: str, product: str, count: int, sharing: Optional[Sharing]) -> Dict[str, str]:
    """Labels of one resource; without ``sharing`` it cannot be shared."""
    replicas = sharing.of(resource) if sharing else 0
    shared = sharing is not None and replicas > 1
    found = {
        f"{resource}.count": str(count),
        f"{resource}.replicas": str(replicas),
        f"{resource}.sharing-strategy": sharing.kind if sharing is not None and shared else "none",
    }
    if product:
        suffix = "-SHARED" if shared and sharing is not None and not sharing.renamed else ""
        found[f"{resource}.product"] = product + suffix
    return found
