# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One connection to a cluster: JSON requests with retries, a deadline, and counts of what was sent.

Credentials, TLS and proxies come from ``_credentials``, the connection pool is urllib3's (``_pool``). Everything above
the pool is here, so that one place decides what is sent again and what is not.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Protocol
from urllib.parse import urlencode

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

TIMEOUT = 30.0  # seconds without a byte after which one request is given up
PATIENCE = 120.0  # seconds in which one request is tried again, when the caller gives no deadline
CONNECT_TRIES = 4  # a server that never answered is given up after this many tries, about 3 seconds
SERVER_ERROR_TRIES = 6  # a server that keeps failing (a broken webhook, say) is given up after about 8 seconds
CLOCKS_AGREE = 2.0  # seconds that the server's clock may differ, since it tells whole seconds
PASSING = (502, 503, 504)  # a server that restarts, or a load balancer without one: given up when PATIENCE ends


class KubeError(Exception):
    """The cluster cannot be used as asked; the text is a sentence for a person."""


class MissingPackage(KubeError):
    """The Python package ``kubernetes`` cannot be imported. ``traceback`` says why."""

    def __init__(self, traceback: str) -> None:
        super().__init__("the Python package 'kubernetes' is needed on the machine that runs this module")
        self.traceback = traceback


class Unreachable(KubeError):
    """No answer: no route, refused, TLS, timeout, or a connection that dropped in a request that is not sent twice."""


class ApiError(KubeError):
    """The API server's own refusal. ``status`` is the HTTP code, ``reason`` Kubernetes' word for it (``Conflict``)."""

    def __init__(self, status: int, body: Mapping[str, Any], verb: str, path: str) -> None:
        self.status = status
        self.reason = str(body.get("reason") or "")
        self.message = str(body.get("message") or "").strip() or f"HTTP {status}"
        self.details: Mapping[str, Any] = body.get("details") or {}
        self.causes: List[Mapping[str, Any]] = list(self.details.get("causes") or [])
        self.verb = verb
        self.path = path
        super().__init__(
            f"{verb} {path}: {self.message} ({status}{' ' + self.reason if self.reason else ''}){self._hint()}"
        )

    def _hint(self) -> str:
        if self.status == 401:
            return ". The credentials are not accepted: check the kubeconfig's user, or whether its token has expired"
        if self.forbidden_by_rights:
            return ". The account lacks this right: gpufleet.nvidia.preflight shows all that it lacks"
        return ""

    @property
    def forbidden_by_rights(self) -> bool:
        """True when the account lacks a right (RBAC), as against a refusal by admission, which answers 403 as well."""
        return self.status == 403 and " cannot " in self.message and " resource " in self.message

    @property
    def unknown_kind(self) -> bool:
        """True when the server does not serve this kind (its CRD is absent), as against an object that is not there."""
        return self.status == 404 and not self.details.get("name")


class Deadline:
    """A moment after which nothing is tried again. ``Deadline(60)`` is in 60 seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._end - self._clock())

    @property
    def passed(self) -> bool:
        """True once no time is left."""
        return self.left <= 0


class Answer(NamedTuple):
    """A successful answer: HTTP status (200 or 201 tell update from create), and the parsed JSON body."""

    status: int
    body: Dict[str, Any]


class Reply(Protocol):
    """What a transport gives back for one request; the body is read once, whole or line by line."""

    status: int

    def header(self, name: str) -> List[str]:
        """Every value of a response header."""

    def read(self) -> bytes:
        """The whole body, unpacked; gives the connection back to the pool."""

    def lines(self) -> Iterator[bytes]:
        """The body as it comes in, line by line."""

    def close(self) -> None:
        """Stop reading; may be called from another thread."""


class Transport(Protocol):
    """Sends one request, never twice. Raises ``Dropped`` when no whole answer came."""

    def send(self, method: str, url: str, headers: Mapping[str, str], body: Optional[bytes], timeout: float) -> Reply:
        """One request on the wire."""


class Dropped(Exception):
    """No answer. ``sent``: the server may have acted on the request; ``final``: trying again is no use."""

    def __init__(self, why: str, sent: bool = True, final: bool = False) -> None:
        super().__init__(why)
        self.sent = sent
        self.final = final


class Connection:
    """Requests to one API server. Threads may share it.

    ``stats`` counts what went over the wire, each try on its own: ``requests``, ``writes`` (mutating, not a dry run,
    not a review or token request), ``dry_runs``, ``retries``, and each method by its name. ``warnings`` holds the
    texts of the server's ``Warning`` headers, each once, in order. ``ahead``: seconds by which the server's clock is
    ahead of that of this machine, 0 while they agree.
    """

    def __init__(
        self,
        transport: Transport,
        server: str = "",
        auth: Optional[Callable[[], Optional[str]]] = None,
        sleep: Callable[[float], None] = time.sleep,
        timeout: float = TIMEOUT,
    ) -> None:
        self.server = server.rstrip("/")
        self.stats: Dict[str, int] = Counter()
        self.warnings: List[str] = []
        self.ahead = 0.0
        self.timeout = timeout
        self._transport = transport
        self._auth = auth
        self._sleep = sleep
        self._answered = False
        self._lists: Dict[str, int] = {}  # kind -> resource version of its newest list so far
        self._lock = threading.Lock()

    @classmethod
    def open(cls, options: Mapping[str, Any], wrap: Callable[[Transport], Transport] = lambda it: it) -> Connection:
        """A connection from module options; nothing is sent yet.

        ``kubeconfig`` (path, or the parsed content as a mapping), ``context``, ``host``, ``api_key``, ``username``,
        ``password``, ``ca_cert``, ``client_cert``, ``client_key`` (paths), ``validate_certs``, ``proxy``,
        ``request_timeout`` (seconds); each may be absent or None. Without kubeconfig and host: ``$KUBECONFIG``,
        ``~/.kube/config``, then the service account of the pod that this runs in. ``wrap`` puts something
        between this and the wire (faults, in tests). Raises ``MissingPackage`` or ``KubeError`` with what to check.
        """
        # Imported here, because both need the errors of this file.
        from ._credentials import credentials
        from ._pool import PoolTransport

        found = credentials(options)
        timeout = float(options.get("request_timeout") or TIMEOUT)
        return cls(wrap(PoolTransport(found.pool)), found.server, found.auth, timeout=timeout)

    def get(self, path: str, query: Optional[Mapping[str, Any]] = None, **kwargs: Any) -> Dict[str, Any]:
        """The object or list at ``path``. Raises ``ApiError`` (404 included) or ``Unreachable``."""
        return self.request("GET", path, query=query, **kwargs).body

    def find(self, path: str, **kwargs: Any) -> Optional[Dict[str, Any]]:
        """The object at ``path``, or None where there is none."""
        try:
            return self.get(path, **kwargs)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Mapping[str, Any]] = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: Optional[float] = None,
        deadline: Optional[Deadline] = None,
        idempotent: Optional[bool] = None,
    ) -> Answer:
        """One request, tried again where that is safe; the parsed answer.

        429 is tried again for every method (the server did nothing), 5xx and dropped connections only when doing it
        twice is the same as once: GET, DELETE, server-side apply, or where the caller says ``idempotent``. Waits grow
        from 0.25 to 8 seconds with jitter, or are what ``Retry-After`` says. Raises ``ApiError`` or ``Unreachable``.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        if idempotent is None:
            idempotent = method in ("GET", "DELETE") or content_type == APPLY
        deadline = deadline or Deadline(PATIENCE)
        patience = Deadline(min(PATIENCE, deadline.left))
        timeout = timeout or self.timeout
        tries = 0
        while True:
            tries += 1
            try:
                reply = self._send(
                    method, path, query, data, content_type, accept, min(timeout, max(deadline.left, 1.0))
                )
                text = reply.read()
                body = _parsed(text, method, path) if reply.status < 400 else {}
            except Dropped as dropped:
                if not self._may_retry(dropped, idempotent, tries, deadline):
                    raise self._unreachable(dropped, method, path, tries) from None
                self._pause(_backoff(tries), deadline)
                continue
            if reply.status < 400:
                return Answer(reply.status, body)
            error = ApiError(reply.status, _status_body(text), method, path)
            few = (reply.status in PASSING and not patience.passed) or tries < SERVER_ERROR_TRIES
            again = reply.status == 429 or (reply.status >= 500 and idempotent and few)
            if not again or deadline.passed:
                raise error
            self._pause(_retry_after(reply) or _backoff(tries), deadline)

    def is_older(self, kind: str, version: str, final: bool = False) -> bool:
        """Whether a list of a kind, by its resource version, is older than one that came before; remembers it if not.

        The resource versions of a kind are numbers that grow. ``final``: it is taken, and remembered, all the same.
        """
        if not version.isdigit():
            return False
        with self._lock:
            older = not final and int(version) < self._lists.get(kind, 0)
            if not older:
                self._lists[kind] = int(version)
            return older

    def pause(self, tries: int, deadline: Optional[Deadline] = None) -> None:
        """Wait before the next of several tries that a caller makes itself, longer each time, within the deadline."""
        self._pause(_backoff(tries), deadline or Deadline(PATIENCE))

    def stream(self, path: str, query: Mapping[str, Any], timeout: float) -> Reply:
        """A watch: the answer is read line by line. One try; raises ``Dropped`` or ``ApiError``."""
        reply = self._send("GET", path, query, None, JSON, JSON, timeout)
        if reply.status >= 400:
            raise ApiError(reply.status, _status_body(reply.read()), "GET", path)
        return reply

    def _send(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]],
        data: Optional[bytes],
        content_type: str,
        accept: str,
        timeout: float,
    ) -> Reply:
        headers = {"Accept": accept, "User-Agent": "gpufleet.nvidia"}
        if method == "GET" and not (query and query.get("watch")):
            headers["Accept-Encoding"] = "gzip"
        if data is not None:
            headers["Content-Type"] = content_type
        with self._lock:
            key = self._auth() if self._auth else None
            self._count(method, path, query)
        if key:
            headers["Authorization"] = key
        url = self.server + path + ("?" + urlencode(query) if query else "")
        reply = self._transport.send(method, url, headers, data, timeout)
        self._answered = True
        self._compare_clocks(reply)
        for header in reply.header("Warning"):
            self._warn(header)
        return reply

    def now(self) -> float:
        """Seconds since 1970 by the server's clock, by which times in objects are told."""
        return time.time() + self.ahead

    def _compare_clocks(self, reply: Reply) -> None:
        for header in reply.header("Date"):
            try:
                ahead = parsedate_to_datetime(header).timestamp() - time.time()
            except (TypeError, ValueError):
                return
            self.ahead = ahead if abs(ahead) > CLOCKS_AGREE else 0.0

    def _count(self, method: str, path: str, query: Optional[Mapping[str, Any]]) -> None:
        self.stats["requests"] += 1
        self.stats[method] += 1
        last = path.rsplit("/", 1)[-1]
        if method != "GET" and not last.endswith("reviews") and last != "token":
            self.stats["dry_runs" if query and query.get("dryRun") else "writes"] += 1

    def _warn(self, header: str) -> None:
        # The text stands in double quotes after a code and an agent.
        text = header.split('"', 1)[1].rsplit('"', 1)[0].replace('\\"', '"') if '"' in header else header
        with self._lock:
            if text not in self.warnings:
                self.warnings.append(text)

    def _may_retry(self, dropped: Dropped, idempotent: bool, tries: int, deadline: Deadline) -> bool:
        if deadline.passed or dropped.final:
            return False
        if not self._answered and tries >= CONNECT_TRIES:
            return False
        return idempotent or not dropped.sent

    def _pause(self, seconds: float, deadline: Deadline) -> None:
        self.stats["retries"] += 1
        self._sleep(min(seconds, deadline.left))

    def _unreachable(self, dropped: Dropped, method: str, path: str, tries: int) -> Unreachable:
        times = f" ({tries} tries)" if tries > 1 else ""
        if self._answered:
            return Unreachable(f"the API server {self.server} stopped answering in {method} {path}: {dropped}{times}")
        return Unreachable(
            f"the API server {self.server} does not answer: {dropped}{times}. Check the address in the kubeconfig "
            "or `host`, that it can be reached from the machine that runs this module (firewall, VPN, proxy), and its "
            "certificate (`ca_cert`)"
        )


def _backoff(tries: int) -> float:
    return float(min(8.0, 0.25 * 2 ** (tries - 1)) * random.uniform(0.5, 1.0))


def _retry_after(reply: Reply) -> Optional[float]:
    for value in reply.header("Retry-After"):
        try:
            return max(0.0, float(value)) * random.uniform(1.0, 1.1)
        except ValueError:
            return None
    return None


def _parsed(text: bytes, method: str, path: str) -> Dict[str, Any]:
    try:
        body = json.loads(text) if text else {}
    except ValueError:
        if text.lstrip().startswith(b"{"):
            raise Dropped("the answer ended in the middle") from None
        raise KubeError(
            f"{method} {path}: the answer is not JSON; is there a proxy or login page before the API server?"
        ) from None
    return body if isinstance(body, dict) else {"value": body}


def _status_body(text: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        return {"message": text[:300].decode("utf-8", "replace")}
    return body if isinstance(body, dict) else {"message": str(body)}
