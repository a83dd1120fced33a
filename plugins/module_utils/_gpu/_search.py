# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places for pieces on a row of slots: the best of all, by dynamic programming over the slots.

Exact: every way to place the pieces is considered, so no answer means that there is no way.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple


class Kind(NamedTuple):
    """``many`` equal pieces of ``size`` slots that may begin at ``starts``."""

    starts: Tuple[int, ...]
    size: int
    many: int


Choice = Tuple[Tuple[int, int], ...]  # (start, number of the kind) of each piece, from the left
Gain = Callable[[int, int], int]  # number of the kind, start -> what it is worth

_Left = Tuple[int, ...]
_Best = Optional[Tuple[int, int]]  # worth, number of the kind that begins at this slot (-1: none)


def best(slots: int, kinds: Sequence[Kind], gain: Gain) -> Optional[Choice]:
    """Where to put all pieces so that the sum of ``gain`` is greatest; None where they do not fit."""
    search = _Search(slots, kinds, gain)
    left = tuple(kind.many for kind in kinds)
    return search.choice(left) if search.value(0, 0, left) else None


class _Search:
    def __init__(self, slots: int, kinds: Sequence[Kind], gain: Gain) -> None:
        self._slots, self._sizes = slots, [kind.size for kind in kinds]
        self._known: Dict[Tuple[int, int, _Left], _Best] = {}
        # Slot -> pieces that may begin there: number of the kind, slots it takes as a mask from here, worth.
        self._options: List[List[Tuple[int, int, int]]] = [
            [
                (n, (1 << kind.size) - 1, gain(n, slot))
                for n, kind in enumerate(kinds)
                if kind.many and slot in kind.starts and slot + kind.size <= slots
            ]
            for slot in range(slots)
        ]

    def value(self, slot: int, taken: int, left: _Left) -> _Best:
        """``taken``: slots from this one on that earlier pieces reach into, as a mask."""
        if not any(left):
            return 0, -1
        key = (slot, taken, left)
        if key not in self._known:
            self._known[key] = self._look(slot, taken, left)
        return self._known[key]

    def _look(self, slot: int, taken: int, left: _Left) -> _Best:
        free = self._slots - slot - bin(taken).count("1")
        if sum(size * many for size, many in zip(self._sizes, left)) > free:
            return None
        found: _Best = None
        for n, mask, worth in self._options[slot]:
            if left[n] and not taken & mask:
                rest = self.value(slot + 1, (taken | mask) >> 1, (*left[:n], left[n] - 1, *left[n + 1 :]))
                if rest and (found is None or worth + rest[0] > found[0]):
                    found = worth + rest[0], n
        rest = self.value(slot + 1, taken >> 1, left)
        if rest and (found is None or rest[0] > found[0]):
            found = rest[0], -1
        return found

    def choice(self, left: _Left) -> Choice:
        made: List[Tuple[int, int]] = []
        slot = taken = 0
        while any(left):
            found = self.value(slot, taken, left)
            n = found[1] if found else -1
            if n >= 0:
                made.append((slot, n))
                taken |= (1 << self._sizes[n]) - 1
                left = (*left[:n], left[n] - 1, *left[n + 1 :])
            slot, taken = slot + 1, taken >> 1
        return tuple(made)
