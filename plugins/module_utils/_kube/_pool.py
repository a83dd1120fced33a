# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""urllib3 as the transport of a connection, and its many errors told apart."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, List, Mapping, Optional

from ._connection import Dropped, Reply

# A timeout is for one silence; an answer that never ends is given up after this many of them.
WHOLE = 4


class PoolTransport:
    """urllib3 as a transport."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def send(self, method: str, url: str, headers: Mapping[str, str], body: Optional[bytes], timeout: float) -> Reply:
        import urllib3

        try:
            reply = self._pool.request(
                method,
                url,
                body=body,
                headers=dict(headers),
                timeout=urllib3.Timeout(connect=min(timeout, 10.0), read=timeout),
                preload_content=False,
                retries=False,
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise _dropped(error) from None
        except OSError as error:  # a certificate file that is not there
            raise Dropped(str(error), sent=False, final=True) from None
        return PoolReply(reply, WHOLE * timeout)


class PoolReply:
    """One answer; see ``Reply``."""

    def __init__(self, reply: Any, seconds: float) -> None:
        self.status = int(reply.status)
        self._reply = reply
        self._seconds = seconds

    def header(self, name: str) -> List[str]:
        return [str(value) for value in self._reply.headers.getlist(name)]

    def read(self) -> bytes:
        import urllib3

        late = threading.Event()

        def give_up() -> None:
            late.set()
            self.close()

        guard = threading.Timer(self._seconds, give_up)
        guard.daemon = True
        guard.start()
        try:
            data: bytes = self._reply.read(decode_content=True)
            self._reply.release_conn()
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
            if late.is_set():  # the last two: closed while reading
                raise Dropped(f"the answer did not end within {self._seconds:g} s") from None
            if isinstance(error, (ValueError, AttributeError)):
                raise
            raise _dropped(error) from None
        finally:
            guard.cancel()
        if late.is_set():
            raise Dropped(f"the answer did not end within {self._seconds:g} s")
        return data

    def lines(self) -> Iterator[bytes]:
        import urllib3

        rest = b""
        try:
            for piece in self._reply.stream(65536, decode_content=True):
                *whole, rest = (rest + piece).split(b"\n")
                yield from whole
        except (
            urllib3.exceptions.HTTPError,
            OSError,
            ValueError,
            AttributeError,
        ) as error:  # the last two: closed while reading
            raise _dropped(error) from None
        if rest:
            yield rest

    def close(self) -> None:
        # shutdown() wakes a thread that waits for the next line; with an older urllib3 that thread's read times out.
        with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
            getattr(self._reply, "shutdown", lambda: None)()
            self._reply.close()


def _dropped(error: BaseException) -> Dropped:
    import urllib3.exceptions as known

    cause = getattr(error, "reason", None)
    inner = cause if isinstance(cause, BaseException) else error
    if isinstance(inner, known.ProxyError) and isinstance(getattr(inner, "original_error", None), BaseException):
        inner = inner.original_error
    text = str(inner).split(": ", 1)[-1] if isinstance(inner, known.NewConnectionError) else str(inner)
    if isinstance(inner, known.SSLError) or "CERTIFICATE_VERIFY_FAILED" in text:
        return Dropped(f"TLS: {text}", sent=False, final=True)
    if isinstance(inner, getattr(known, "NameResolutionError", ())):
        return Dropped(text, sent=False, final=False)
    refused = isinstance(inner, (known.NewConnectionError, known.ConnectTimeoutError))
    return Dropped(text or type(inner).__name__, sent=not refused)
