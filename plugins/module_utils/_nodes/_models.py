# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which models of GPUs a node has, by the PCI device ids on its bus (P111).

GPU feature discovery labels a node with product, memory and count of one model, whatever else is plugged in.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Dict, Mapping, Tuple

from .._gpu._pci_ids import kind

Gpus = Mapping[str, int]  # how many GPUs of each PCI device id: four hex digits in lower case


def models(gpus: Gpus) -> Dict[str, int]:
    """How many GPUs of each model. An id that is not known stands for itself, as ``10de:2abc``."""
    found: Dict[str, int] = {}
    for device, count in sorted(gpus.items()):
        name = _known(device)[0] or f"10de:{device}"
        found[name] = found.get(name, 0) + count
    return found


def is_mixed(gpus: Gpus) -> bool:
    """Whether there are GPUs of more than one model. Ids of one product (A100 PCIe 40GB has two) are one model."""
    return len(gpus) > 1 and len(models(gpus)) > 1


def models_text(gpus: Gpus) -> str:
    """``4 A100 PCIe 80GB, 2 Tesla T4``."""
    return ", ".join(f"{count} {name}" for name, count in models(gpus).items())


def lowest_compute(gpus: Gpus) -> Tuple[int, ...]:
    """The lowest compute capability among the GPUs whose id tells it; (9, 0) where none does."""
    return min((known for known in (_known(device)[1] for device in gpus) if known), default=(9, 0))


@cache
def _known(device: str) -> Tuple[str, Tuple[int, ...]]:
    """Product and compute capability of an id, each empty where it is not known. ``5.x`` is (5,)."""
    if not re.match(r"\A[0-9a-f]{4}\Z", device):
        return "", ()
    one = kind(int(device, 16))
    return one.product, tuple(int(number) for number in re.findall(r"\d+", one.compute_capability))
