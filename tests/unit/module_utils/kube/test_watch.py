# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import ApiError, Deadline, Dropped
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._resources import Ref
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._watch import Mirror, Query, until
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, connect, failure


def pod(name: str, version: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": version}, **more}


def line(kind: str, obj: Any) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode()


class Server:
    """Lists in turn, and watches in turn: each is what it sends before it ends, an exception, or a refusal."""

    def __init__(self, lists: list[list[dict[str, Any]]], watches: list[Any]) -> None:
        self.lists, self.watches = lists, watches
        self.versions: list[str] = []
        self.closed = threading.Event()

    def __call__(self, request: Any) -> FakeReply:
        if "watch=1" not in request.url:
            items = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
            return FakeReply(200, {"metadata": {"resourceVersion": "10"}, "items": json.loads(json.dumps(items))})
        self.versions.append(request.url.split("resourceVersion=")[1].split("&")[0])
        found = self.watches.pop(0) if self.watches else None
        if isinstance(found, Exception):
            raise found
        if isinstance(found, FakeReply):
            return found
        return FakeReply(200, stream=self.stream(found))

    def stream(self, lines: list[bytes] | None) -> Iterator[bytes]:
        for one in lines or []:
            if isinstance(one, Exception):
                raise one
            yield one
        if lines is None:
            self.closed.wait(5)


def names(mirror: Mirror) -> set[str]:
    return {item["metadata"]["name"] for item in mirror.objects("pods")}


def seen(mirror: Mirror, done: Callable[[set[str]], bool]) -> set[str]:
    end = time.monotonic() + 5
    while not done(names(mirror)) and time.monotonic() < end:
        mirror.wait(0.5)
    return names(mirror)


def follow(server: Server, done: Callable[[set[str]], bool], patience: float = 120) -> set[str]:
    connection, _transport, _pauses = connect(server)
    with Mirror(connection, {"pods": Query("Pod", "n")}, patience) as mirror:
        try:
            return seen(mirror, done)
        finally:
            server.closed.set()


def test_a_copy_follows_what_is_added_changed_and_deleted() -> None:
    changes = [line("ADDED", pod("b", "11")), line("MODIFIED", pod("a", "12")), line("DELETED", pod("a", "13"))]
    assert follow(Server([[pod("a", "1")]], [changes]), lambda found: found == {"b"}) == {"b"}


def test_a_watch_that_ends_or_drops_goes_on_from_the_last_version() -> None:
    server = Server(
        [[]],
        [
            [line("ADDED", pod("a", "11")), line("BOOKMARK", {"metadata": {"resourceVersion": "20"}})],
            Dropped("reset"),
            [line("ADDED", pod("b", "21")), Dropped("cut")],
            [line("ADDED", pod("c", "22"))],
        ],
    )
    assert follow(server, lambda found: "c" in found) == {"a", "b", "c"}
    assert server.versions[:4] == ["10", "20", "20", "21"]


@pytest.mark.parametrize(
    "expired", [[line("ERROR", failure(410, "Expired"))], FakeReply(410, failure(410, "Gone"))], ids=["event", "answer"]
)
def test_a_watch_that_is_too_old_starts_with_a_new_list(expired: Any) -> None:
    server = Server([[pod("a", "1")], [pod("b", "2")]], [expired])
    assert follow(server, lambda found: found == {"b"}) == {"b"}


def test_a_line_that_is_cut_off_is_not_taken() -> None:
    server = Server([[]], [[line("ADDED", pod("a", "11"))[:-5]], [line("ADDED", pod("b", "12"))]])
    assert follow(server, lambda found: "b" in found) == {"b"}


def test_a_missing_right_ends_the_watch_with_its_error() -> None:
    with pytest.raises(ApiError, match="cannot watch"):
        follow(Server([[]], [FakeReply(403, failure(403, "Forbidden", "cannot watch"))]), bool)


def test_trouble_that_lasts_ends_the_watch() -> None:
    def always(request: Any) -> FakeReply:
        if "watch=1" in request.url:
            raise Dropped("refused", sent=False)
        return FakeReply(200, {"metadata": {"resourceVersion": "1"}, "items": []})

    connection, _transport, _pauses = connect(always)
    with (
        Mirror(connection, {"pods": Query("Pod", "n")}, patience=0.2) as mirror,
        pytest.raises(Exception, match="refused"),
    ):
        seen(mirror, bool)


def test_several_lists_are_followed_at_once_and_made_smaller() -> None:
    connection, _transport, _pauses = connect(Server([[pod("a", "1", spec={"big": 1})]], []))
    slim = {"pods": Query("Pod", "n", keep=lambda obj: {"metadata": obj["metadata"]}), "sets": Query("DaemonSet", "n")}
    with Mirror(connection, slim) as mirror:
        assert "spec" not in mirror.objects("pods")[0]
        assert mirror.objects("sets")[0]["kind"] == "DaemonSet"


def test_waiting_for_an_object_ends_when_it_is_as_wanted_or_at_the_deadline() -> None:
    replies = [
        FakeReply(200, pod("a", "1")),
        FakeReply(200, {"metadata": {"resourceVersion": "1"}, "items": [pod("a", "1")]}),
    ]
    watch = [line("MODIFIED", pod("a", "2", done=True))]

    def answer(request: Any) -> FakeReply:
        return FakeReply(200, stream=iter(watch)) if "watch=1" in request.url else replies.pop(0)

    connection, _transport, _pauses = connect(answer)
    which = Ref("Pod", "n", "a")
    found = until(connection, which, lambda obj: bool(obj and obj.get("done")), Deadline(5))
    assert found is not None
    assert found["done"]

    connection, _transport, _pauses = connect(lambda _request: FakeReply(404, failure(404, details={"name": "a"})))
    assert until(connection, which, lambda obj: obj is None, Deadline(5)) is None
