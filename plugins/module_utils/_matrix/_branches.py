# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Branches of the driver, architectures of GPUs, and which of them go together.

Sources, as the tables name them: *support list* is NVIDIA's "Supported Drivers and CUDA Toolkit Versions" (editions of
615 and 620), *guide* the Driver Installation Guide (580 to 620), *operator* the platform page of GPU Operator 26.7,
*PCI list* the public list of PCI ids, *images* the sources of the driver's container images, *known* what is told
everywhere and was not read in one of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple

OPEN = "open"
PROPRIETARY = "proprietary"
BOTH = (OPEN, PROPRIETARY)

#: The day on which the tables were read: branches are judged by it where no day is handed in.
AS_OF = "2026-11-27"
ENDED = "ended"  # NVIDIA makes no more of it, and nobody else does
PAST = "past"  # its end has passed; images and packages are there still
CURRENT = "current"
KINDS = ("LTSB", "PB", "NFB", "legacy")
_KIND_WORDS = {
    "LTSB": "long term support",
    "PB": "production branch",
    "NFB": "new feature branch",
    "legacy": "legacy",
}


@dataclass(frozen=True)
class Architecture:
    """``flavours``: kernel modules that drive it. ``first``, ``last``: branches, 0 where none is known."""

    flavours: Tuple[str, ...]
    first: int
    last: int
    capability: str
    source: str

    def row(self, name: str) -> str:
        limit = f"from {self.first or 'the first'} to {self.last or 'the newest'}"
        return f"{name}: kernel modules {' or '.join(self.flavours) or 'none'}, branches {limit} [{self.source}]"


#: In order of age. ``grace-hopper`` and ``newer`` are names of ours: see :func:`architecture`.
GPUS: Dict[str, Architecture] = {
    "pre-fermi": Architecture((PROPRIETARY,), 0, 340, "1.x", "PCI list, known"),
    "fermi": Architecture((PROPRIETARY,), 0, 390, "2.x", "PCI list, support list"),
    "kepler": Architecture((PROPRIETARY,), 340, 470, "3.x", "PCI list, support list"),
    "maxwell": Architecture((PROPRIETARY,), 352, 580, "5.x", "PCI list, support list"),
    "pascal": Architecture((PROPRIETARY,), 367, 580, "6.x", "PCI list, support list"),
    "volta": Architecture((PROPRIETARY,), 384, 580, "7.0", "PCI list, support list"),
    "turing": Architecture(BOTH, 410, 0, "7.5", "PCI list, guide"),
    "ampere": Architecture(BOTH, 450, 0, "8.0, 8.6", "PCI list, guide"),
    "ada": Architecture(BOTH, 525, 0, "8.9", "PCI list, guide"),
    "hopper": Architecture(BOTH, 525, 0, "9.0", "PCI list, guide"),
    "grace-hopper": Architecture((OPEN,), 535, 0, "9.0", "guide, images"),
    "blackwell": Architecture((OPEN,), 570, 0, "10.0 to 12.1", "PCI list, guide, operator"),
    "thor": Architecture((), 0, 0, "11.0", "PCI list; it has the Jetson stack"),
    "rubin": Architecture((OPEN,), 0, 0, "", "PCI list; the first branch is not published"),
    "newer": Architecture((OPEN,), 0, 0, "", "GPUs since Blackwell have the open modules only"),
}
ARCHITECTURES: Tuple[str, ...] = tuple(GPUS)


@dataclass(frozen=True)
class Branch:
    """``end``: month of the end of life, "" where none is told, :data:`PAST` or :data:`ENDED` where no month is known.

    ``cuda``: the highest CUDA that it runs. ``releases``: full versions that are known, newest first.
    """

    number: int
    kind: str
    end: str
    cuda: str
    oldest: str
    newest: str
    flavours: Tuple[str, ...]
    releases: Tuple[str, ...]
    source: str

    def standing(self, today: str = "") -> str:
        """:data:`CURRENT`, :data:`PAST` or :data:`ENDED` on a day, written 2026-11-27."""
        if self.end in ("", PAST, ENDED):
            return self.end or CURRENT
        return PAST if (today or AS_OF)[:7] > self.end else CURRENT

    def row(self) -> str:
        end = {"": "no end told", PAST: "end of life", ENDED: "end of life"}.get(self.end, f"until {self.end}")
        return (
            f"branch {self.number}: {_KIND_WORDS[self.kind]}, {end}, CUDA up to {self.cuda}, GPUs {self.oldest} to "
            f"{self.newest}, kernel modules {' or '.join(self.flavours)} [{self.source}]"
        )


def _branch(
    number: int,
    kind: str,
    end: str,
    cuda: str,
    gpus: Tuple[str, str],
    releases: Tuple[str, ...] = (),
    flavours: Tuple[str, ...] = BOTH,
    source: str = "support list",
) -> Branch:
    return Branch(number, kind, end, cuda, gpus[0], gpus[1], flavours, releases, source)


_ONE = (PROPRIETARY,)
_TO_AMPERE, _TO_HOPPER, _TO_GRACE = ("maxwell", "ampere"), ("maxwell", "hopper"), ("maxwell", "grace-hopper")
_TO_BLACKWELL, _SINCE_TURING = ("maxwell", "blackwell"), ("turing", "blackwell")

BRANCHES: Dict[int, Branch] = {
    one.number: one
    for one in (
        _branch(390, "legacy", ENDED, "9.1", ("fermi", "volta"), flavours=_ONE),
        _branch(418, "LTSB", ENDED, "10.1", ("kepler", "turing"), flavours=_ONE, source="known"),
        _branch(450, "LTSB", ENDED, "11.0", ("kepler", "ampere"), ("450.80.02",), _ONE, "known"),
        _branch(460, "PB", ENDED, "11.2", ("kepler", "ampere"), flavours=_ONE, source="known"),
        _branch(470, "legacy", ENDED, "11.4", ("kepler", "ampere"), ("470.82.01",), _ONE),
        _branch(510, "PB", ENDED, "11.6", _TO_AMPERE, flavours=_ONE, source="known"),
        _branch(515, "PB", ENDED, "11.7", _TO_AMPERE),
        _branch(520, "NFB", ENDED, "11.8", _TO_AMPERE, ("520.61.05",)),
        _branch(525, "PB", ENDED, "12.0", _TO_HOPPER, ("525.60.13",)),
        _branch(530, "NFB", ENDED, "12.1", _TO_HOPPER, ("530.30.02",)),
        _branch(535, "LTSB", "2026-06", "12.2", _TO_GRACE, (
            "535.309.01", "535.261.03", "535.216.03", "535.183.06", "535.183.01", "535.104.05", "535.54.03"),
            source="support list, operator",
        ),
        _branch(545, "NFB", PAST, "12.3", _TO_GRACE, ("545.23.08", "545.23.06")),
        _branch(550, "PB", PAST, "12.4", _TO_GRACE, (
            "550.163.01", "550.144.03", "550.90.12", "550.90.07", "550.54.15", "550.54.14")),
        _branch(555, "NFB", PAST, "12.5", _TO_GRACE, ("555.42.06", "555.42.02")),
        _branch(560, "NFB", PAST, "12.6", _TO_GRACE, ("560.35.05", "560.35.03", "560.28.03")),
        _branch(565, "NFB", PAST, "12.7", _TO_GRACE),
        _branch(570, "PB", "2026-02", "12.8", _TO_BLACKWELL, ("570.133.20", "570.124.06", "570.26")),
        _branch(575, "NFB", PAST, "12.9", _TO_BLACKWELL, ("575.57.08", "575.51.03")),
        _branch(580, "LTSB", "2028-06", "13.0", _TO_BLACKWELL, (
            "580.178.04", "580.173.02", "580.159.04", "580.126.20", "580.105.08", "580.95.05", "580.82.07",
            "580.65.06"),
            source="support list, operator, images",
        ),
        _branch(590, "NFB", PAST, "13.1", _SINCE_TURING, ("590.48.01", "590.44.01")),
        _branch(595, "PB", "2027-03", "13.2", _SINCE_TURING, ("595.91.07", "595.71.05", "595.45.04"),
                source="support list, operator"),
        _branch(610, "NFB", "2026-08", "13.3", _SINCE_TURING, ("610.57.04",), source="support list; CUDA inferred"),
        _branch(615, "NFB", "", "13.4", _SINCE_TURING, source="guide; CUDA inferred"),
        _branch(620, "LTSB", "2029-09", "13.5", ("turing", "newer"), (), (OPEN,), "guide; CUDA inferred"),
    )
}  # fmt: skip

# For GPUs that no newer branch knows (Maxwell, Pascal, Volta).
LAST_FOR_OLD_GPUS = 580
# The first branch whose packages of NVIDIA carry no number on Debian and Ubuntu.
FIRST_UNSUFFIXED = 590
# Where nothing tells which flavour a GPU wants: the driver container's rule.
OPEN_BY_DEFAULT = 560


def architecture(name: str, flavour: str) -> str:
    """The name in :data:`ARCHITECTURES` for what a PCI id tells (``_gpu/_pci_ids``): architecture, flavour that fits.

    A Hopper that takes the open modules only is a Grace Hopper; an id that is not known yet belongs to a newer GPU
    where it takes the open modules only. "unknown" stays what it is.
    """
    if flavour == OPEN and name in ("hopper", "unknown"):
        return {"hopper": "grace-hopper"}.get(name, "newer")
    return name


def flavours_for(name: str) -> Tuple[str, ...]:
    """Kernel modules that drive GPUs of an architecture; () for those that have none of these packages, or unknown."""
    return GPUS[name].flavours if name in GPUS else ()
