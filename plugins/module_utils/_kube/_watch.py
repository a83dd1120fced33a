# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches: the live state of one object, or of several lists at once, kept up to date until a deadline.

A watch that ends, drops or is too old (410) goes on from the last version seen or starts with a new list; who waits
only sees that something may have changed.
"""

from __future__ import annotations

import json
import queue
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, final

from ._connection import ApiError, Connection, Deadline, Dropped, KubeError, Reply
from ._lists import list_objects
from ._resources import Object, Ref, path, resource

ROUND = 240  # seconds after which a watch is renewed, below what proxies cut off as idle


class Query(NamedTuple):
    """What to watch. ``keep`` makes each object smaller as it comes in."""

    kind: str
    namespace: Optional[str] = None
    label_selector: str = ""
    field_selector: str = ""
    keep: Optional[Callable[[Object], Object]] = None


def until(
    connection: Connection, which: Ref, done: Callable[[Optional[Object]], bool], deadline: Deadline
) -> Optional[Object]:
    """The object once ``done(object)`` holds (None: it is not there), or as it is when the deadline passes."""
    live = connection.find(which.path)
    if done(live):
        return live
    query = Query(which.kind, which.namespace or None, field_selector=f"metadata.name={which.name}")
    with Mirror(connection, {"it": query}) as mirror:
        while True:
            live = next(iter(mirror.objects("it")), None)
            if done(live) or deadline.passed:
                return live
            mirror.wait(deadline.left)


@final
class Mirror:
    """Copies of several lists, kept up to date by one thread each. Use it as a context manager.

    ``objects(name)`` is the present copy, ``wait(seconds)`` returns once something changed or the time is over. A
    watch that fails for good (rights, an unreachable server) raises its ``KubeError`` in ``wait``.
    """

    def __init__(self, connection: Connection, queries: Mapping[str, Query], patience: float = 120.0) -> None:
        self._connection = connection
        self._followers = {
            name: _Follower(connection, query, self._changed, patience) for name, query in queries.items()
        }
        self._changes: queue.Queue[None] = queue.Queue(maxsize=1)

    def __enter__(self) -> Mirror:
        for follower in self._followers.values():
            follower.start()
        return self

    def __exit__(self, *exc: object) -> None:
        for follower in self._followers.values():
            follower.stop()

    def objects(self, name: str) -> List[Object]:
        """The objects of one query as they are now."""
        return self._followers[name].snapshot()

    def wait(self, seconds: float) -> bool:
        """Wait for a change; False when there was none within ``seconds``."""
        changed = True
        try:
            self._changes.get(timeout=max(0.0, seconds))
        except queue.Empty:
            changed = False
        for follower in self._followers.values():
            if follower.error:
                raise follower.error
        return changed

    def _changed(self) -> None:
        try:
            self._changes.put_nowait(None)
        except queue.Full:
            return  # somebody will look anyway


class _Follower:
    """One list, followed by one thread."""

    def __init__(self, connection: Connection, query: Query, changed: Callable[[], None], patience: float) -> None:
        self.error: Optional[KubeError] = None
        self._connection = connection
        self._query = query
        self._changed = changed
        self._patience = patience
        self._objects: Dict[Tuple[str, str], Object] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._reply: Optional[Reply] = None
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"watch {query.kind}")

    def start(self) -> None:
        version = self._relist()  # the first list on the caller's thread, so that its errors are the caller's
        self._version = version
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        reply = self._reply
        if reply is not None:
            reply.close()
        self._thread.join(timeout=1.0)

    def snapshot(self) -> List[Object]:
        with self._lock:
            return list(self._objects.values())

    def _relist(self) -> str:
        q = self._query
        listing = list_objects(
            self._connection,
            q.kind,
            q.namespace,
            label_selector=q.label_selector,
            field_selector=q.field_selector,
            keep=q.keep,
        )
        with self._lock:
            self._objects = {_key(item): item for item in listing.items}
        self._changed()
        return listing.resource_version

    def _run(self) -> None:
        idle = 0  # rounds that brought nothing, one after the other
        trouble = Deadline(self._patience)
        while not self._stopped.is_set():
            idle += 1
            try:
                if not self._version:
                    self._version = self._relist()
                for event in self._events():
                    idle, trouble = 0, Deadline(self._patience)
                    self._take(event)
                trouble = Deadline(self._patience)
            except (Dropped, KubeError) as error:
                if self._stopped.is_set():
                    return
                if _is_final(error) or trouble.passed:
                    text = f"watch of {self._query.kind}: {error}"
                    self.error = error if isinstance(error, KubeError) else KubeError(text)
                    self._changed()
                    return
                if isinstance(error, ApiError) and error.status == 410:
                    self._version = ""
            if idle:
                self._stopped.wait(min(8.0, 0.125 * 2**idle))

    def _events(self) -> Iterator[Mapping[str, Any]]:
        q = self._query
        query: Dict[str, Any] = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": ROUND,
            "resourceVersion": self._version,
        }
        query.update({k: v for k, v in (("labelSelector", q.label_selector), ("fieldSelector", q.field_selector)) if v})
        where = path(q.kind, q.namespace)
        self._reply = self._connection.stream(where, query, timeout=ROUND + 30.0)
        try:
            for line in self._reply.lines():
                if line.strip():
                    yield json.loads(line)
        except ValueError:
            raise Dropped("a line of the watch is not whole") from None
        finally:
            self._reply.close()
            self._reply = None

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError(int(obj.get("code") or 500), obj, "WATCH", path(self._query.kind, self._query.namespace))
        self._version = str(obj["metadata"]["resourceVersion"])
        if kind == "BOOKMARK":
            return
        obj.update({"kind": self._query.kind, "apiVersion": resource(self._query.kind).api_version})
        with self._lock:
            if kind == "DELETED":
                self._objects.pop(_key(obj), None)
            else:
                self._objects[_key(obj)] = self._query.keep(obj) if self._query.keep else obj
        self._changed()


def _is_final(error: Exception) -> bool:
    """A refusal that stays: the request is wrong, or a right is missing."""
    return isinstance(error, ApiError) and 400 <= error.status < 500 and error.status not in (410, 429)


def _key(obj: Mapping[str, Any]) -> Tuple[str, str]:
    return str(obj["metadata"].get("namespace") or ""), str(obj["metadata"]["name"])
