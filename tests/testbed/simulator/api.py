# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small client of the API server: kept-alive connections, watches, and calls with the token of a ServiceAccount."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from .context import ApiError
from .pod import Object

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
SMALL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


class Gone(Exception):
    """A watch is too old to go on: list again."""


class Client:
    """Calls as the user of a kubeconfig, or with a bearer token. One connection for each thread and user."""

    def __init__(self, kubeconfig: Path) -> None:
        data = yaml.safe_load(kubeconfig.read_text())
        current = next(c["context"] for c in data["contexts"] if c["name"] == data["current-context"])
        cluster = next(c["cluster"] for c in data["clusters"] if c["name"] == current["cluster"])
        user = next(u["user"] for u in data["users"] if u["name"] == current["user"])
        url = urllib.parse.urlsplit(cluster["server"])
        self.host, self.port = url.hostname or "localhost", url.port or 443
        self._tls = _context(cluster, {}, kubeconfig.parent)
        self._own_tls = _context(cluster, user, kubeconfig.parent)
        self._token = user.get("token", "")
        self._local = threading.local()

    def _connection(self, as_pod: bool) -> http.client.HTTPSConnection:
        name = "pod" if as_pod else "own"
        found = getattr(self._local, name, None)
        if found is None:
            found = http.client.HTTPSConnection(
                self.host, self.port, timeout=60, context=self._tls if as_pod else self._own_tls
            )
            setattr(self._local, name, found)
        return found

    def call(
        self,
        verb: str,
        path: str,
        body: Any = None,
        token: str = "",
        kind: str = "application/json",
        answer: bool = True,
    ) -> Object:
        """One request. Raises ApiError; a connection that broke is made again a few times. Without ``answer`` the
        server need not send the object back."""
        headers = {"Accept": "application/json" if answer else SMALL, "User-Agent": "gpu-node-simulator"}
        if token or self._token:
            headers["Authorization"] = f"Bearer {token or self._token}"
        data = None
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = kind
        for attempt in range(6):
            connection = self._connection(bool(token))
            try:
                connection.request(verb, path, data, headers)
                reply = connection.getresponse()
                text = reply.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                if attempt == 5:
                    raise ApiError(503, f"the API server at {self.host}:{self.port} does not answer") from None
                time.sleep(0.05 * 2**attempt)
                continue
            if reply.status == 429 and attempt < 5:
                time.sleep(float(reply.headers.get("Retry-After") or 1))
                continue
            if reply.status >= 400:
                raise ApiError(reply.status, _message(text))
            return json.loads(text) if text and answer else {}
        raise ApiError(503, "no answer")

    def watch(self, path: str, version: str, timeout: int = 300) -> Iterator[tuple[str, Object]]:
        """Events until the server ends the watch. Raises Gone when ``version`` is too old."""
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=timeout + 30, context=self._own_tls)
        try:
            parameters = f"?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={timeout}"
            connection.request(
                "GET", path + parameters, headers={"Accept": "application/json", "User-Agent": "gpu-node-simulator"}
            )
            answer = connection.getresponse()
            if answer.status == 410:
                raise Gone
            if answer.status >= 400:
                raise ApiError(answer.status, _message(answer.read()))
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise Gone
                yield event["type"], event["object"]
        finally:
            connection.close()


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text).get("message") or text.decode())
    except (ValueError, AttributeError):
        return text.decode(errors="replace")[:300]


def _context(cluster: Object, user: Object, folder: Path) -> ssl.SSLContext:
    tls = ssl.create_default_context()
    if cluster.get("certificate-authority-data"):
        tls.load_verify_locations(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    elif cluster.get("certificate-authority"):
        tls.load_verify_locations(cafile=str(folder / cluster["certificate-authority"]))
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if user.get("client-certificate-data"):
        with tempfile.TemporaryDirectory() as private:
            files = []
            for key in ("client-certificate-data", "client-key-data"):
                path = Path(private, key)
                path.touch(mode=0o600)
                path.write_bytes(base64.b64decode(user[key]))
                files.append(str(path))
            tls.load_cert_chain(*files)
    elif user.get("client-certificate"):
        tls.load_cert_chain(str(folder / user["client-certificate"]), str(folder / user["client-key"]))
    return tls


class AccountApi:
    """Calls as a ServiceAccount, with a token that the API server gave for it."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self.client, self.namespace, self.name = client, namespace, name
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0
        self._rights: dict[tuple[str, str, str, str], tuple[bool, float]] = {}

    def _get_token(self, fresh: bool = False) -> str:
        with self._lock:
            if fresh or time.monotonic() > self._until:
                path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.name}/token"
                body = {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenRequest",
                    "spec": {"expirationSeconds": 3600},
                }
                self._token = self.client.call("POST", path, body)["status"]["token"]
                self._until = time.monotonic() + 2400
            return self._token

    def _call(
        self, verb: str, path: str, body: Any = None, kind: str = "application/json", answer: bool = True
    ) -> Object:
        try:
            return self.client.call(verb, path, body, self._get_token(), kind, answer)
        except ApiError as error:
            if error.status != 401:
                raise
        return self.client.call(verb, path, body, self._get_token(fresh=True), kind, answer)

    def get(self, path: str) -> Object:
        return self._call("GET", path)

    def post(self, path: str, body: Object) -> Object:
        return self._call("POST", path, body)

    def put(self, path: str, body: Object) -> Object:
        return self._call("PUT", path, body)

    def patch(self, path: str, body: Object) -> Object:
        return self._call("PATCH", path, body, MERGE, answer=False)

    def delete(self, path: str, grace: int | None = None) -> Object:
        return self._call("DELETE", path + (f"?gracePeriodSeconds={grace}" if grace is not None else ""))

    def can(self, verb: str, group: str, resource: str, namespace: str = "") -> bool:
        """Whether the account has a right, as the API server says it; remembered for a few seconds."""
        key = (verb, group, resource, namespace)
        answer, until = self._rights.get(key, (False, 0.0))
        if time.monotonic() > until:
            attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
            body: Object = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
            body["spec"] = {"resourceAttributes": attributes}
            found = self.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
            answer = bool(found["status"].get("allowed"))
            self._rights[key] = (answer, time.monotonic() + (20.0 if answer else 0.5))
        return answer


class Informer(threading.Thread):
    """Lists, then watches, a kind; tells every change. A kind that does not exist yet is asked for until it does."""

    def __init__(
        self, client: Client, path: str, on_event: Callable[[str, Object], None], stopping: threading.Event
    ) -> None:
        super().__init__(name=f"watch {path}", daemon=True)
        self.client, self.path, self.on_event, self.stopping = client, path, on_event, stopping
        self.synced = threading.Event()
        self._known: dict[str, Object] = {}
        self._version = ""

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                if not self._version:
                    self._version = self._list()
                self._follow()
            except Gone:
                self._version = ""
            except ApiError as error:
                if error.status == 404:  # the CustomResourceDefinition is not there (any more)
                    self._forget_all()
                    self.synced.set()
                self._version = ""
                self.stopping.wait(0.5)
            except (OSError, http.client.HTTPException, ValueError):
                self.stopping.wait(0.5)

    def _follow(self) -> None:
        for kind, item in self.client.watch(self.path, self._version):
            self._version = item["metadata"]["resourceVersion"]
            if kind == "BOOKMARK":
                continue
            uid = item["metadata"]["uid"]
            if kind == "DELETED":
                self._known.pop(uid, None)
            else:
                self._known[uid] = item
            self.on_event(kind, item)
            if self.stopping.is_set():
                return

    def _list(self) -> str:
        items: list[Object] = []
        more, version = "", ""
        while True:
            page = self.client.call("GET", f"{self.path}?limit=500&continue={urllib.parse.quote(more)}")
            items += page["items"]
            more, version = page["metadata"].get("continue", ""), str(page["metadata"]["resourceVersion"])
            if not more:
                break
        found = {item["metadata"]["uid"]: item for item in items}
        for uid, item in list(self._known.items()):
            if uid not in found:
                del self._known[uid]
                self.on_event("DELETED", item)
        for uid, item in found.items():
            old = self._known.get(uid)
            self._known[uid] = item
            if old is None or old["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                self.on_event("ADDED" if old is None else "MODIFIED", item)
        self.synced.set()
        return version

    def _forget_all(self) -> None:
        for item in list(self._known.values()):
            self.on_event("DELETED", item)
        self._known.clear()
