# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a running daemon says over its Container Runtime Interface: the handlers that it really has.

The one call that is needed, ``runtime.v1.RuntimeService/Status``, over HTTP/2 on the daemon's Unix socket. Hosts have
no gRPC library; frames are those of RFC 9113, headers are sent as literals of RFC 7541, those of the answer are not
needed.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .._plan import Failure

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8
_END_STREAM, _ACK = 0x1, 0x1
_WINDOW_SIZE = 0x3FFFFFFF
MOST_ANSWER = 16 * 1024 * 1024


class NoAnswer(Failure):
    """The daemon does not answer on its socket (yet)."""


@dataclass
class Handler:
    """A runtime handler. ``program``: what it runs, "" where the daemon does not tell."""

    name: str
    program: str = ""


@dataclass
class Status:
    """What the daemon says. ``ready``: its own condition RuntimeReady. ``default``: handler of pods that name none."""

    ready: bool
    reason: str
    handlers: List[Handler] = field(default_factory=list)
    default: str = ""

    def handler(self, name: str) -> Optional[Handler]:
        """One handler; None where the daemon does not have it."""
        return next((one for one in self.handlers if one.name == name), None)


def status(path: str, timeout: float = 5.0) -> Status:
    """Ask the daemon behind a socket. Raises NoAnswer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(path)
            return _status(_call(connection, "/runtime.v1.RuntimeService/Status", b"\x08\x01", timeout))
    except (OSError, ValueError, IndexError, struct.error) as error:
        raise NoAnswer(f"No CRI answers on {path}: {error}.") from None


# --- HTTP/2 -----------------------------------------------------------------------------------------------------------


def _call(connection: socket.socket, method: str, message: bytes, timeout: float) -> bytes:
    headers = (
        (":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "localhost"),
        ("content-type", "application/grpc"), ("te", "trailers"),
    )  # fmt: skip
    settings = struct.pack(">HI", 0x4, _WINDOW_SIZE)  # window of a stream
    connection.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, settings)
        + _frame(_WINDOW, 0, 0, struct.pack(">I", _WINDOW_SIZE))
        + _frame(_HEADERS, 0x4, 1, b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers))
        + _frame(_DATA, _END_STREAM, 1, b"\x00" + struct.pack(">I", len(message)) + message)
    )
    answer = _answer(connection, time.monotonic() + timeout)
    if len(answer) < 5:
        raise ValueError("it has no runtime service")
    (size,) = struct.unpack(">I", answer[1:5])
    if answer[0] or len(answer) < 5 + size:
        raise ValueError("its answer is cut off")
    return answer[5 : 5 + size]


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def _text(text: str) -> bytes:
    """A string of a header that is not compressed; all of ours are short."""
    return bytes([len(text)]) + text.encode()


def _answer(connection: socket.socket, deadline: float) -> bytes:
    """The data of the one stream."""
    answer = b""
    while True:
        head = _read(connection, 9, deadline)
        size, (kind, flags) = int.from_bytes(head[:3], "big"), head[3:5]
        stream = int.from_bytes(head[5:9], "big") & 0x7FFFFFFF
        content = _read(connection, size, deadline)
        if kind == _SETTINGS and not flags & _ACK:
            connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            connection.sendall(_frame(_PING, _ACK, 0, content))
        elif kind in (_RESET, _GOAWAY):
            raise ValueError("it ended the connection")
        elif kind == _DATA and stream == 1:
            answer += content
            if len(answer) > MOST_ANSWER:
                raise ValueError("its answer is too long")
        if kind in (_DATA, _HEADERS) and stream == 1 and flags & _END_STREAM:
            return answer


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    content = b""
    while len(content) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise ValueError("its answer takes too long")
        connection.settimeout(left)
        part = connection.recv(size - len(content))
        if not part:
            raise ValueError("it closed the connection")
        content += part
    return content


# --- The message ------------------------------------------------------------------------------------------------------


def _fields(message: bytes) -> Iterator[Tuple[int, Any]]:
    """Number and value of each field: a number, or bytes."""
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        if key & 7 == 0:
            value, at = _number(message, at)
            yield key >> 3, value
        elif key & 7 == 2:
            size, at = _number(message, at)
            if at + size > len(message):
                raise ValueError("its answer is cut off")
            yield key >> 3, message[at : at + size]
            at += size
        elif key & 7 in (1, 5):
            at += 8 if key & 7 == 1 else 4
        else:
            raise ValueError("its answer is no message of the CRI")


def _number(message: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("its answer is no message of the CRI")


def _status(message: bytes) -> Status:
    """``StatusResponse``: 1 the conditions, 2 a map of further information as JSON, 3 the handlers (CRI of 2024 on)."""
    ready, reason, info, handlers = False, "", {}, []
    for number, value in _fields(message):
        if number == 1:
            ready, reason = _ready(value)
        elif number == 2:
            entry = dict(_fields(value))
            info[_string(entry, 1)] = _string(entry, 2)
        elif number == 3:
            handlers.append(_string(dict(_fields(value)), 1))
    listed, default = _configured(info.get("config", ""))
    for name in handlers:
        if name and name not in listed:
            listed[name] = ""
    return Status(ready, reason, [Handler(name, program) for name, program in listed.items()], default)


def _string(entry: Dict[int, Any], number: int) -> str:
    value = entry.get(number, b"")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _ready(conditions: bytes) -> Tuple[bool, str]:
    for number, value in _fields(conditions):
        condition = dict(_fields(value)) if number == 1 else {}
        if _string(condition, 1) == "RuntimeReady":
            return bool(condition.get(2)), _string(condition, 4) or _string(condition, 3)
    return False, "it has no condition RuntimeReady"


def _configured(text: str) -> Tuple[Dict[str, str], str]:
    """Handlers with their programs, and the default one, from the configuration that containerd works with."""
    try:
        config = json.loads(text)
        containerd = config["containerd"]
        runtimes = dict(containerd["runtimes"])
    except (ValueError, KeyError, TypeError):
        return {}, ""
    found = {}
    for name, entry in runtimes.items():
        options = entry.get("options") if isinstance(entry, dict) else None
        program = options.get("BinaryName") if isinstance(options, dict) else ""
        found[str(name)] = str(program or "")
    return found, str(containerd.get("defaultRuntimeName") or "")
