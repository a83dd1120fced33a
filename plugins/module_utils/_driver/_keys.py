# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keyrings of OpenPGP (RFC 4880): which keys are in one, and the same keyring without some of them. Pure."""

from __future__ import annotations

import hashlib
from typing import List, Optional, Sequence, Tuple

_PUBLIC_KEY = 6  # the packet that every key begins with


def without(keyring: bytes, ids: Sequence[str]) -> bytes:
    """The keyring without the keys whose fingerprint ends in one of the ids; bytes that are no keyring stay."""
    parts = _split(keyring)
    if parts is None:
        return keyring
    return b"".join(part for fingerprint, part in parts if not fingerprint.endswith(tuple(ids)))


def _split(keyring: bytes) -> Optional[List[Tuple[str, bytes]]]:
    """Each key with all that follows it, user ids and signatures; None where the bytes are no keyring."""
    found: List[Tuple[str, bytes]] = []
    place = 0
    while place < len(keyring):
        packet = _packet(keyring, place)
        if packet is None:
            return None
        tag, body, end = packet
        if tag == _PUBLIC_KEY:
            found.append((_fingerprint(body), keyring[place:end]))
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + keyring[place:end])
        else:
            return None
        place = end
    return found


def _packet(data: bytes, place: int) -> Optional[Tuple[int, bytes, int]]:
    """Tag, content and end of the packet at a place; None where there is none, or it is cut off."""
    first = data[place]
    if not first & 0x80:
        return None
    if first & 0x40:
        tag, length = first & 0x3F, _new_length(data, place + 1)
    else:
        tag, length = (first >> 2) & 0x0F, _old_length(data, place + 1, first & 0x03)
    if length is None:
        return None
    begin, size = length
    end = begin + size
    return (tag, data[begin:end], end) if end <= len(data) else None


def _old_length(data: bytes, place: int, kind: int) -> Optional[Tuple[int, int]]:
    """Where the content begins, and how long it is. Kind 3, to the end of the file, is not for keyrings."""
    size = 1 << kind
    if kind == 3 or place + size > len(data):
        return None
    return place + size, int.from_bytes(data[place : place + size], "big")


def _new_length(data: bytes, place: int) -> Optional[Tuple[int, int]]:
    """As ``_old_length``. Lengths in parts (224 to 254) are for data, not for keys."""
    first = data[place] if place < len(data) else 255
    if first < 192:
        return place + 1, first
    if first < 224 and place + 1 < len(data):
        return place + 2, ((first - 192) << 8) + data[place + 1] + 192
    if first == 255 and place + 5 <= len(data):
        return place + 5, int.from_bytes(data[place + 1 : place + 5], "big")
    return None


def _fingerprint(body: bytes) -> str:
    """By version 4, which all keys have that sign packages; "" for what is too long for that."""
    if len(body) > 0xFFFF:
        return ""
    content = b"\x99" + len(body).to_bytes(2, "big") + body
    return hashlib.sha1(content, usedforsecurity=False).hexdigest().upper()
