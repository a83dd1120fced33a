# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proxy on loopback between a client and the API server of a testbed, which does what bad networks and busy
servers do.

Clients speak plain HTTP to it with the kubeconfig ``FaultProxy.kubeconfig``; it speaks to the API server as the
testbed's admin. ``injected`` counts the faults that happened, by kind.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import yaml

from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import HOST, Cluster

#: What each kind does. ``refused`` kinds answer without passing the request on, the others pass it on first.
KINDS = {
    "429": "too many requests, Retry-After 1",
    "500": "internal error",
    "503": "unavailable",
    "409": "conflict, of a write",
    "dropped": "the connection closes before the request is passed on",
    "lost": "the request is carried out, then the connection closes without an answer",
    "cut": "the connection closes in the middle of the body",
    "truncated": "half of the JSON, as if it were all",
    "slow": "the body comes in drips",
    "gone": "a watch that is too old: 410 in the stream",
    "stale": "the answer that the same list gave at first",
    "hang": "no answer at all, while the connection stays open",
    "drip": "a body that never ends: one space a moment",
}
#: Kinds that a client gets over within seconds; the last two only end by a limit of the client.
PASSING = tuple(kind for kind in KINDS if kind not in ("hang", "drip"))
STATUS = {"429": "TooManyRequests", "500": "InternalError", "503": "ServiceUnavailable", "409": "Conflict"}
DRIPS = 8  # pieces of a slow body

#: Method, path and query of a request to the kind of fault that it meets, or None.
Chooser = Callable[[str, str, Mapping[str, list[str]]], "str | None"]


def possible(kind: str, method: str, query: Mapping[str, list[str]]) -> bool:
    """Whether a kind of fault can happen to a request."""
    if kind == "gone":
        return "watch" in query
    if "watch" in query:
        return kind in ("429", "500", "503", "dropped", "lost", "hang")
    if kind == "stale":
        return method == "GET"
    if kind == "409":
        return method in ("PATCH", "DELETE")
    return True


class Seldom:
    """Every kind now and then: a share of all requests and the first watch, the kind that happened least first."""

    def __init__(self, share: float, seed: int, kinds: tuple[str, ...] = PASSING) -> None:
        self.share, self.kinds = share, kinds
        self.random = random.Random(seed)
        self.given: Counter[str] = Counter()
        self.lock = threading.Lock()

    def __call__(self, method: str, path: str, query: Mapping[str, list[str]]) -> str | None:
        with self.lock:
            fitting = [kind for kind in self.kinds if possible(kind, method, query)]
            few = "gone" in fitting and not self.given["gone"]  # a run may have no more than two or three watches
            if (self.random.random() >= self.share and not few) or not fitting:
                return None
            kind = min(fitting, key=lambda one: self.given[one])
            self.given[kind] += 1
            return kind


class First:
    """One kind for the first ``times`` requests that it can happen to."""

    def __init__(self, kind: str, times: int) -> None:
        self.kind, self.left = kind, times
        self.lock = threading.Lock()

    def __call__(self, method: str, path: str, query: Mapping[str, list[str]]) -> str | None:
        with self.lock:
            if not self.left or not possible(self.kind, method, query):
                return None
            self.left -= 1
            return self.kind


class FaultProxy:
    """Use it as a context manager. ``choose`` decides for each request; it may be replaced while the proxy runs."""

    def __init__(self, cluster: Cluster, choose: Chooser = lambda method, path, query: None) -> None:
        self.cluster = cluster
        self.choose = choose
        self.injected: Counter[str] = Counter()
        #: Pages of pods, which simulated ones do not serve: path to text, answered as the API server's own proxy would.
        self.pages: dict[str, str] = {}
        self.requests = 0
        self.old: dict[str, tuple[int, bytes]] = {}  # the first answer of each list
        self.over = threading.Event()
        self.tls = ssl.create_default_context(cafile=str(cluster.pki / "ca.crt"))
        self.tls.load_cert_chain(cluster.pki / "admin.crt", cluster.pki / "admin.key")
        self.port = cluster.ports()["kube-apiserver"]
        self._server = _Server((HOST, 0), _Handler)
        self._server.proxy = self
        self.kubeconfig = cluster.dir / f"kubeconfig-proxy-{self._server.server_port}"

    def __enter__(self) -> Self:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": f"http://{HOST}:{self._server.server_port}"}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
            "current-context": "proxy",
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self.kubeconfig.unlink()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    proxy: FaultProxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """The audit log tells more."""

    def _answer(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        proxy.requests += 1
        kind = proxy.choose(self.command, url.path, query)
        if kind is not None:
            proxy.injected[kind] += 1
        if url.path in proxy.pages:
            self._send(200, proxy.pages[url.path].encode())
        elif kind in STATUS:
            self._refuse(kind)
        elif kind == "dropped":
            self._hang_up()
        elif kind == "hang":
            proxy.over.wait(300)
            self._hang_up()
        elif kind == "gone":
            event = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}}
            self._send(200, json.dumps(event).encode() + b"\n")
        else:
            self._pass_on(kind, body, "watch" in query)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    def _pass_on(self, kind: str | None, body: bytes, watch: bool) -> None:
        proxy = self.server.proxy
        upstream = http.client.HTTPSConnection(HOST, proxy.port, context=proxy.tls, timeout=300)
        try:
            headers = {name: value for name, value in self.headers.items() if name not in ("Host", "Accept-Encoding")}
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            if kind == "lost":
                answer.read() if not watch else None
                self._hang_up()
            elif watch:
                self._stream(answer)
            else:
                self._deliver(kind, answer.status, answer.read(), answer.getheader("Warning"))
        except (OSError, http.client.HTTPException):
            self._hang_up()  # one of the two ends is gone
        finally:
            upstream.close()

    def _stream(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := answer.read1(65536):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _deliver(self, kind: str | None, status: int, text: bytes, warning: str | None) -> None:
        proxy = self.server.proxy
        if self.command == "GET" and "?" in self.path and status == 200:
            first = proxy.old.setdefault(self.path, (status, text))
            if kind == "stale":
                status, text = first
        if kind == "cut":
            self._head(status, len(text), warning)
            self.wfile.write(text[: len(text) // 2])
            self._hang_up()
        elif kind == "truncated":
            self._send(status, text[: len(text) // 2], warning)
        elif kind == "slow":
            self._head(status, len(text), warning)
            size = len(text) // DRIPS + 1
            for start in range(0, len(text), size):
                self.wfile.write(text[start : start + size])
                time.sleep(0.1)
        elif kind == "drip":
            self._head(status, len(text) + 10**6, warning)
            while not proxy.over.wait(0.1):
                self.wfile.write(b" ")
        else:
            self._send(status, text, warning)

    def _refuse(self, kind: str) -> None:
        body = {"kind": "Status", "code": int(kind), "reason": STATUS[kind], "message": "injected by the proxy"}
        self._send(int(kind), json.dumps(body).encode())

    def _send(self, status: int, text: bytes, warning: str | None = None) -> None:
        self._head(status, len(text), warning)
        self.wfile.write(text)

    def _head(self, status: int, length: int, warning: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        if status == 429:
            self.send_header("Retry-After", "1")
        if warning:
            self.send_header("Warning", warning)
        self.end_headers()

    def _hang_up(self) -> None:
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return
