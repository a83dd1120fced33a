# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the catalogue answers: a set of packages, or why there is none. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, List, Sequence, Tuple

KERNEL = "kernel"
USER = "user"
FIRMWARE = "firmware"
COMPANION = "companion"
PINNING = "pinning"
PREREQUISITE = "prerequisite"
HEADERS = "headers"
ROLES = (KERNEL, USER, FIRMWARE, COMPANION, PINNING, PREREQUISITE, HEADERS)


class Refusal(Exception):
    """There is no such driver on this system. ``row``: the line of the matrix that says so, "" where none does."""

    def __init__(self, id: str, message: str, row: str = "") -> None:
        super().__init__(message)
        self.id = id
        self.message = message
        self.row = row


@dataclass(frozen=True)
class Package:
    """``exact``: its version has to be the driver's, apart from what a packager puts around it."""

    name: str
    role: str
    exact: bool


@dataclass(frozen=True)
class PackageSet:
    """The packages of a driver, in the order in which roles are needed: pinning goes first, see :data:`PINNING`.

    ``stream``: module stream of dnf, "" for none. ``holds``: names to hold or lock. ``leaves``: patterns of packages
    that must go first; none of the set's own matches. ``module``: kernel module. ``repositories``: those of the
    distribution that have to be enabled. ``build``: whether the module is built on the host.
    """

    packages: Tuple[Package, ...]
    stream: str = ""
    holds: Tuple[str, ...] = ()
    leaves: Tuple[str, ...] = ()
    module: str = "nvidia"
    notes: Tuple[str, ...] = ()
    repositories: Tuple[str, ...] = ()
    build: bool = True

    def names(self, *roles: str) -> Tuple[str, ...]:
        return tuple(one.name for one in self.packages if not roles or one.role in roles)


def exact(role: str, *names: str) -> List[Package]:
    return [Package(name, role, True) for name in names]


def loose(role: str, *names: str) -> List[Package]:
    """Packages whose versions are their own."""
    return [Package(name, role, False) for name in names]


def others(before: str, text: str, after: str = "*") -> List[str]:
    """Patterns of names with digits in the place of ``text``, another number than that: others("x-", "580")."""
    found = []
    for place, digit in enumerate(text):
        if digit.isdigit():
            rest = "".join("[0-9]" if letter.isdigit() else letter for letter in text[place + 1 :])
            found.append(f"{before}{text[:place]}{_but(digit)}{rest}{after}")
    return found


def _but(digit: str) -> str:
    """Class of the other digits: 5 -> [0-46-9]."""
    parts = [f"{low}-{high}" if low < high else low for low, high in _around(int(digit))]
    return f"[{''.join(parts)}]"


def _around(digit: int) -> Sequence[Tuple[str, str]]:
    below = [("0", str(digit - 1))] if digit > 0 else []
    above = [(str(digit + 1), "9")] if digit < 9 else []
    return [*below, *above]


def unique(names: Iterable[str]) -> Tuple[str, ...]:
    return tuple(dict.fromkeys(names))
