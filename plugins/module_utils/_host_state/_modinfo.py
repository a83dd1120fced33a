# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kernel module file says of itself: version, licence, signer; read from the file, as modinfo does.

Plain, gzip and xz files are read here. Zstandard is not in Python's library: modinfo is asked.
"""

from __future__ import annotations

import gzip
import lzma
import os
import stat
import struct
import zlib
from typing import BinaryIO, Callable, Dict, List, Tuple

MOST = 256 * 1024 * 1024
_ELF = b"\x7fELF\x02\x01"  # 64 bits, little endian: every machine that these drivers exist for
_SIGNED = b"~Module signature appended~\n"

# A command with its limit in seconds -> exit code, output. Raises OSError when it cannot be run.
Command = Callable[[List[str], float], Tuple[int, str]]


class Unreadable(Exception):
    """The file is no kernel module, or one that cannot be read here; the text says why."""


def fields(place: str, command: Command) -> Dict[str, str]:
    """The fields of the module file at ``place`` on this machine; of repeated ones the first."""
    if place.endswith(".zst"):
        return _asked(place, command)
    try:
        content = _content(place)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise Unreadable(str(getattr(error, "strerror", "") or error)) from error
    found = _fields(_section(content))
    if content.endswith(_SIGNED):
        found.setdefault("signer", "(appended signature)")
    return found


def _content(place: str) -> bytes:
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unreadable("is not a regular file")
        content = _unpacked(place, file)
    if len(content) > MOST:
        raise Unreadable(f"is longer than {MOST} bytes")
    return content


def _unpacked(place: str, file: BinaryIO) -> bytes:
    if place.endswith(".gz"):
        with gzip.GzipFile(fileobj=file) as packed:
            return packed.read(MOST + 1)
    if place.endswith(".xz"):
        with lzma.LZMAFile(file) as packed:
            return packed.read(MOST + 1)
    return file.read(MOST + 1)


def _section(content: bytes) -> bytes:
    """The bytes of the section .modinfo. Offsets: ELF-64 header and section headers."""
    if not content.startswith(_ELF):
        raise Unreadable("is not a kernel module (no 64-bit ELF file)")
    try:
        table = struct.unpack_from("<Q", content, 0x28)[0]
        size, count, names_at = struct.unpack_from("<HHH", content, 0x3A)
        headers = [struct.unpack_from("<IIQQQQ", content, table + size * number) for number in range(count)]
        names = headers[names_at][4]
        for name, _type, _flags, _address, offset, length in headers:
            start = names + name
            if content[start : start + 9] == b".modinfo\0":
                return content[offset : offset + length]
    except (struct.error, IndexError, OverflowError) as error:
        raise Unreadable("is a damaged ELF file") from error
    raise Unreadable("has no module information")


def _fields(section: bytes) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for entry in section.split(b"\0"):
        key, equals, value = entry.partition(b"=")
        if equals:
            found.setdefault(key.decode("ascii", "replace"), value.decode("utf-8", "replace"))
    return found


def _asked(place: str, command: Command) -> Dict[str, str]:
    try:
        code, output = command(["modinfo", "-0", place], 20.0)
    except OSError as error:
        raise Unreadable(f"is compressed with zstd, and modinfo cannot be run: {error.strerror or error}") from error
    if code:
        raise Unreadable(f"modinfo ended with {code}: {output.strip()[:200]}")
    found: Dict[str, str] = {}
    for entry in output.split("\0"):
        key, colon, value = entry.partition(":")
        if colon:
            found.setdefault(key.strip(), value.strip())
    return found
