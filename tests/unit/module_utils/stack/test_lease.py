# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lease that keeps runs apart: who counts as gone, and when a holder stops. The API server is a dictionary."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import (
    Answer,
    ApiError,
    KubeError,
    Unreachable,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack import _lease
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._lease import Held, Lease


class Server:
    """One lease with a version that each write moves; ``down`` answers no write."""

    def __init__(self) -> None:
        self.live: dict[str, Any] | None = None
        self.version = 0
        self.down = False
        self.deleted_with: Any = None
        self.lock = threading.Lock()

    def find(self, _path: str, **_options: Any) -> dict[str, Any] | None:
        return None if self.live is None else {**self.live, "metadata": dict(self.live["metadata"])}

    def request(self, method: str, path: str, body: Any = None, **_options: Any) -> Answer:
        if path.endswith("selfsubjectreviews"):
            return Answer(201, {"status": {"userInfo": {"username": "me"}}})
        with self.lock:
            if self.down:
                raise Unreachable("no route")
            if method == "DELETE":
                self.deleted_with, self.live = body, None
                return Answer(200, {})
            version = body["metadata"].get("resourceVersion")
            if (self.live is None) != (version is None) or (self.live and version != str(self.version)):
                raise ApiError(409, {"reason": "Conflict"}, method, path)
            self.version += 1
            meta = {**body["metadata"], "resourceVersion": str(self.version), "uid": "u"}
            self.live = {**body, "metadata": meta}
            return Answer(200, self.live)


@pytest.fixture
def server() -> Server:
    return Server()


def lease(server: Server, wait: float = 0) -> Lease:
    return Lease(server, "gpu-operator", wait, lambda _line: None)  # type: ignore[arg-type]


def elsewhere(server: Server, renewed: str | None = None) -> Lease:
    """A lease that a process of another machine holds."""
    held = lease(server)
    held.take()
    held._over.set()
    assert server.live is not None
    server.live["metadata"]["annotations"][_lease.PROCESS] = "another/machine/1/1"
    if renewed:
        server.live["spec"] = {**server.live["spec"], "renewTime": renewed}
    return held


@pytest.mark.rows("S42", "P073")
def test_a_holder_elsewhere_whose_clock_is_late_keeps_its_lease(server: Server, monkeypatch: Any) -> None:
    late = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - 2 * _lease.DURATION))
    elsewhere(server, late)
    with pytest.raises(Held):
        lease(server).take()


@pytest.mark.rows("S42", "P073")
def test_a_holder_elsewhere_that_is_seen_not_to_renew_is_gone(server: Server, monkeypatch: Any) -> None:
    monkeypatch.setattr(_lease, "DURATION", 0.5)
    monkeypatch.setattr(_lease, "LOOK_EVERY", 0.1)
    elsewhere(server)
    mine = lease(server, wait=30)
    began = time.monotonic()
    assert mine.take() is True
    assert 0.4 < time.monotonic() - began < 20
    mine.release({"what": "mine"})
    assert [run["ended"] for run in _lease.runs_of(server.live) if "ended" in run] == ["killed"]


def test_a_holder_that_renews_meanwhile_is_waited_for(server: Server, monkeypatch: Any) -> None:
    monkeypatch.setattr(_lease, "DURATION", 1.0)
    monkeypatch.setattr(_lease, "LOOK_EVERY", 0.1)
    elsewhere(server)
    over = threading.Event()

    def renew() -> None:
        while not over.wait(0.2):
            server.live["spec"]["renewTime"] = _lease._now()  # type: ignore[index]

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(Held):
            lease(server, wait=3).take()
    finally:
        over.set()
        thread.join()


@pytest.mark.rows("S42")
def test_a_holder_that_cannot_renew_stops_before_others_take_over(server: Server, monkeypatch: Any) -> None:
    monkeypatch.setattr(_lease, "RENEW_EVERY", 0.2)
    monkeypatch.setattr(_lease, "GIVE_UP", 1.5)
    mine = lease(server)
    mine.take()
    server.down = True
    end = time.monotonic() + 20
    while not mine._lost and time.monotonic() < end:
        time.sleep(0.05)
    with pytest.raises(KubeError, match="this run lost the lease gpu-operator/gpufleet"):
        mine.take()


def test_the_last_write_of_a_holder_ends_before_another_may_take_over() -> None:
    assert _lease.GIVE_UP + _lease.ANSWER_WITHIN < _lease.DURATION
    assert _lease.RENEW_EVERY + _lease.ANSWER_WITHIN < _lease.GIVE_UP


@pytest.mark.rows("S42", "P073")
def test_a_process_of_another_user_is_not_gone_because_it_is_hidden(monkeypatch: Any) -> None:
    """As with /proc mounted with hidepid=2, where such a process has no folder."""
    process = _lease._process().replace(f"/{os.getpid()}/", "/4242/")

    def kill(pid: int, signal: int) -> None:
        assert (pid, signal) == (4242, 0)
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)
    assert not _lease._is_dead(process)


def test_a_process_that_ended_is_gone_and_one_that_runs_is_not() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = _lease._process().rsplit("/", 2)[0] + f"/{child.pid}/{_lease._started(child.pid)}"
        assert not _lease._is_dead(process)
        assert _lease._is_dead(process[:-1] + ("1" if process[-1] != "1" else "2")), "another process has its number"
        child.kill()
        child.wait()
        assert _lease._is_dead(process)


def test_a_lease_is_only_deleted_while_it_is_this_runs(server: Server) -> None:
    mine = lease(server)
    mine.take()
    mine.remove()
    assert server.deleted_with["preconditions"] == {"uid": "u"}
    lost = lease(server)
    lost.take()
    lost._lost = "lost"
    lost.remove()
    assert server.live is not None
