# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU products: PCI ids, memory, compute capability, and MIG profiles with their placements (mig-plugin-gfd.md,
section 2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Profile:
    """A MIG profile. ``starts`` and ``size`` count memory slots; engines are copy, decoder, encoder, jpeg, ofa."""

    name: str
    slices: int
    memory: int
    multiprocessors: int
    max_count: int
    starts: tuple[int, ...]
    size: int
    engines: tuple[int, int, int, int, int] = (1, 0, 0, 0, 0)

    @property
    def attributes(self) -> tuple[int, ...]:
        """What nvmlDeviceAttributes tells: the device plugin compares these, GFD compares names."""
        return (self.memory, self.multiprocessors, self.slices, *self.engines)


@dataclass(frozen=True)
class Product:
    name: str
    device_id: int
    memory: int
    multiprocessors: int
    compute: tuple[int, int]
    pci_class: str = "0302"
    profiles: tuple[Profile, ...] = ()
    slots: int = 8
    mig_needs_reset: bool = False

    @property
    def pci_name(self) -> str:
        """The device's name in pci.ids."""
        return PCI_NAMES[self.device_id]

    @property
    def virtual_functions(self) -> int:
        """How many SR-IOV functions it has with the host driver for virtual machines: none before Ampere."""
        return 16 if self.compute >= (8, 0) else 0

    def vgpu_instances(self, kind: str) -> int:
        """How many virtual GPUs of a type fit on it, 0 for a type that it does not have: ``A10-12Q`` -> 2."""
        series, gigabytes = VGPU[self.device_id]
        found = re.fullmatch(rf"{re.escape(series)}-(\d+)[ABCQ]", kind)
        return gigabytes // int(found[1]) if found and int(found[1]) else 0

    @property
    def cc_capable(self) -> bool:
        return self.compute >= (9, 0)

    @property
    def mig_capable(self) -> bool:
        return bool(self.profiles)

    @property
    def family(self) -> str:
        major, minor = self.compute
        if major == 7:
            return "turing" if minor >= 5 else "volta"
        if major == 8:
            return "ada-lovelace" if minor >= 9 else "ampere"
        return {
            1: "tesla",
            2: "fermi",
            3: "kepler",
            5: "maxwell",
            6: "pascal",
            9: "hopper",
            10: "blackwell",
            12: "blackwell",
            13: "rubin",
        }.get(major, "undefined")

    def profile(self, name: str) -> Profile | None:
        return next((p for p in self.profiles if p.name == name), None)


def _eight_slots(
    names: tuple[str, str, str, str, str, str],
    memory: tuple[int, int, int, int, int],
    sms: tuple[int, int, int, int, int, int],
    ampere: bool = False,
) -> tuple[Profile, ...]:
    """The common geometry of 2.1: 1g, 1g+me, 1g with double memory, 2g, 3g, 4g, 7g."""
    one, double, two, three, four, seven = names
    m1, m2, m3, m4, m7 = memory
    if ampere:
        engines = [
            (1, 0, 0, 0, 0),
            (1, 1, 0, 1, 1),
            (1, 1, 0, 0, 0),
            (2, 1, 0, 0, 0),
            (3, 2, 0, 0, 0),
            (4, 2, 0, 0, 0),
            (7, 5, 0, 1, 1),
        ]
    else:
        engines = [
            (1, 1, 0, 1, 0),
            (1, 1, 0, 1, 1),
            (1, 1, 0, 1, 0),
            (2, 2, 0, 2, 0),
            (3, 3, 0, 3, 0),
            (4, 4, 0, 4, 0),
            (8, 7, 0, 7, 1),
        ]
    seven_starts = (0, 1, 2, 3, 4, 5, 6)
    return (
        Profile(one, 1, m1, sms[0], 7, seven_starts, 1, engines[0]),
        Profile(one + "+me", 1, m1, sms[0], 1, seven_starts, 1, engines[1]),
        Profile(double, 1, m2, sms[1], 4, (0, 2, 4, 6), 2, engines[2]),
        Profile(two, 2, m2, sms[2], 3, (0, 2, 4), 2, engines[3]),
        Profile(three, 3, m3, sms[3], 2, (0, 4), 4, engines[4]),
        Profile(four, 4, m4, sms[4], 1, (0,), 4, engines[5]),
        Profile(seven, 7, m7, sms[5], 1, (0,), 8, engines[6]),
    )


_HOPPER_SM = (16, 26, 32, 60, 64, 132)
_AMPERE_SM = (14, 14, 28, 42, 56, 98)

_H100_80 = _eight_slots(
    ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), (9984, 20096, 40448, 40448, 81152), _HOPPER_SM
)
_H200 = _eight_slots(
    ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    (16384, 33280, 71424, 71424, 143360),
    _HOPPER_SM,
)
_GH200_96 = _eight_slots(
    ("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"), (11264, 23552, 47616, 47616, 95232), _HOPPER_SM
)
_A100_40 = _eight_slots(
    ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    (4864, 9856, 19968, 19968, 40192),
    _AMPERE_SM,
    ampere=True,
)
_A100_80 = _eight_slots(
    ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    (9728, 19968, 40192, 40192, 80896),
    _AMPERE_SM,
    ampere=True,
)
_B200 = _eight_slots(
    ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
    (22528, 45312, 90624, 90624, 181248),
    (18, 30, 36, 70, 72, 148),
)
_A30 = (
    Profile("1g.6gb", 1, 5952, 14, 4, (0, 1, 2, 3), 1, (1, 1, 0, 0, 0)),
    Profile("1g.6gb+me", 1, 5952, 14, 1, (0, 1, 2, 3), 1, (1, 1, 0, 1, 1)),
    Profile("2g.12gb", 2, 11968, 28, 2, (0, 2), 2, (2, 2, 0, 0, 0)),
    Profile("2g.12gb+me", 2, 11968, 28, 1, (0, 2), 2, (2, 2, 0, 1, 1)),
    Profile("4g.24gb", 4, 24000, 56, 1, (0,), 4, (4, 4, 0, 1, 1)),
)
_RTX_PRO_6000 = (
    Profile("1g.24gb", 1, 24192, 46, 4, (0, 1, 2, 3), 1, (1, 1, 1, 1, 0)),
    Profile("1g.24gb+me", 1, 24192, 46, 1, (0, 1, 2, 3), 1, (1, 1, 1, 1, 1)),
    Profile("1g.24gb+gfx", 1, 24192, 46, 4, (0, 1, 2, 3), 1, (1, 1, 1, 1, 0)),
    Profile("1g.24gb-me", 1, 24192, 46, 4, (0, 1, 2, 3), 1, (1, 0, 0, 0, 0)),
    Profile("2g.48gb", 2, 48512, 94, 2, (0, 2), 2, (2, 2, 2, 2, 0)),
    Profile("2g.48gb+gfx", 2, 48512, 94, 2, (0, 2), 2, (2, 2, 2, 2, 0)),
    Profile("2g.48gb-me", 2, 48512, 94, 2, (0, 2), 2, (2, 0, 0, 0, 0)),
    Profile("4g.96gb", 4, 97280, 188, 1, (0,), 4, (4, 4, 4, 4, 1)),
    Profile("4g.96gb+gfx", 4, 97280, 188, 1, (0,), 4, (4, 4, 4, 4, 1)),
)

# Keys are what fleet files say; names are what NVML says.
PRODUCTS: dict[str, Product] = {
    "H100-SXM5-80GB": Product("NVIDIA H100 80GB HBM3", 0x2330, 81559, 132, (9, 0), profiles=_H100_80),
    "H100-PCIe-80GB": Product("NVIDIA H100 PCIe", 0x2331, 81559, 114, (9, 0), profiles=_H100_80),
    "H200-SXM-141GB": Product("NVIDIA H200", 0x2335, 143771, 132, (9, 0), profiles=_H200),
    "GH200-96GB": Product("NVIDIA GH200 480GB", 0x2342, 97871, 132, (9, 0), profiles=_GH200_96),
    "A100-SXM4-40GB": Product(
        "NVIDIA A100-SXM4-40GB", 0x20B0, 40960, 108, (8, 0), profiles=_A100_40, mig_needs_reset=True
    ),
    "A100-SXM4-80GB": Product(
        "NVIDIA A100-SXM4-80GB", 0x20B2, 81920, 108, (8, 0), profiles=_A100_80, mig_needs_reset=True
    ),
    "A100-PCIe-80GB": Product(
        "NVIDIA A100 80GB PCIe", 0x20B5, 81920, 108, (8, 0), profiles=_A100_80, mig_needs_reset=True
    ),
    "A30": Product("NVIDIA A30", 0x20B7, 24576, 56, (8, 0), profiles=_A30, slots=4, mig_needs_reset=True),
    "B200": Product("NVIDIA B200", 0x2901, 183359, 148, (10, 0), profiles=_B200),
    "RTX-PRO-6000": Product(
        "NVIDIA RTX PRO 6000 Blackwell Server Edition", 0x2BB5, 97887, 188, (12, 0), profiles=_RTX_PRO_6000, slots=4
    ),
    "T4": Product("Tesla T4", 0x1EB8, 15360, 40, (7, 5)),
    "L4": Product("NVIDIA L4", 0x27B8, 23034, 58, (8, 9)),
    "L40S": Product("NVIDIA L40S", 0x26B9, 46068, 142, (8, 9)),
    "A10": Product("NVIDIA A10", 0x2236, 23028, 72, (8, 6)),
    "V100-SXM2-32GB": Product("Tesla V100-SXM2-32GB", 0x1DB5, 32768, 80, (7, 0)),
}

# Names in pci.ids, which the sandbox device plugins make resources of.
PCI_NAMES = {
    0x1DB5: "GV100GL [Tesla V100 SXM2 32GB]", 0x1EB8: "TU104GL [Tesla T4]", 0x20B0: "GA100 [A100 SXM4 40GB]",
    0x20B2: "GA100 [A100 SXM4 80GB]", 0x20B5: "GA100 [A100 PCIe 80GB]", 0x20B7: "GA100GL [A30 PCIe]",
    0x2236: "GA102GL [A10]", 0x2330: "GH100 [H100 SXM5 80GB]", 0x2331: "GH100 [H100 PCIe]",
    0x2335: "GH100 [H200 SXM 141GB]", 0x2342: "GH100 [GH200 120GB / 480GB]", 0x26B9: "AD102GL [L40S]",
    0x27B8: "AD104GL [L4]", 0x2901: "GB100 [B200]",
    0x2BB5: "GB202GL [RTX PRO 6000 Blackwell Server Edition]",
}  # fmt: skip
# Series of virtual GPU types and gigabytes that they divide, by device id (gpu-operator.md 7.8).
VGPU = {
    0x1DB5: ("V100DX", 32), 0x1EB8: ("T4", 16), 0x20B0: ("A100X", 40), 0x20B2: ("A100DX", 80), 0x20B5: ("A100D", 80),
    0x20B7: ("A30", 24), 0x2236: ("A10", 24), 0x2330: ("H100XM", 80), 0x2331: ("H100", 80), 0x2335: ("H200X", 141),
    0x2342: ("GH200", 96), 0x26B9: ("L40S", 48), 0x27B8: ("L4", 24), 0x2901: ("B200X", 180), 0x2BB5: ("DC", 96),
}  # fmt: skip


@lru_cache(maxsize=4096)
def place(slots: int, wanted: tuple[Profile, ...]) -> tuple[int, ...] | None:
    """Start slots for the wanted instances, or None when they do not fit together (2.1; worked cases 6.2).

    Mirrors mig-parted, which tries every order of creation: a layout that has any placement is found.
    """
    counts: dict[str, int] = {}
    for profile in wanted:
        counts[profile.name] = counts.get(profile.name, 0) + 1
        if counts[profile.name] > profile.max_count:
            return None
    order = sorted(range(len(wanted)), key=lambda i: (-wanted[i].size, wanted[i].starts))
    starts: list[int] = [0] * len(wanted)

    def fill(position: int, used: int) -> bool:
        if position == len(order):
            return True
        profile = wanted[order[position]]
        for start in profile.starts:
            mask = ((1 << profile.size) - 1) << start
            if start + profile.size <= slots and not used & mask:
                starts[order[position]] = start
                if fill(position + 1, used | mask):
                    return True
        return False

    return tuple(starts) if fill(0, 0) else None
