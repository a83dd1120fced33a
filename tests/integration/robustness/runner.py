# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plain Python process in which the module's code runs, and dies by SIGKILL at the n-th write if told so.

It imports everything once and forks for each run. On its input come lines ``{"params": ..., "at": n, "when":
"before" | "after"}``; ``at`` 0 kills nothing. For each it prints ``{"killed": bool, "writes": n, "result": ...}``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube import _connection
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Connection, Reply, Transport
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._stack import cluster_policy


class DeadlyTransport:
    """Ends its process at the n-th write: before it is sent, or once the server has answered and nobody has read it."""

    def __init__(self, inner: Transport, at: int, when: str) -> None:
        self.inner, self.at, self.when = inner, at, when
        self.writes = 0
        self.lock = threading.Lock()

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float) -> Reply:
        deadly = False
        if method != "GET" and "dryRun" not in urlsplit(url).query:
            with self.lock:
                self.writes += 1
                deadly = self.writes == self.at
        if deadly and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        reply = self.inner.send(method, url, headers, body, timeout)
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return reply


def work(order: Mapping[str, Any]) -> dict[str, Any]:
    """One run of the module, in this process."""
    made: list[DeadlyTransport] = []

    def wrap(inner: Transport) -> Transport:
        made.append(DeadlyTransport(inner, order["at"], order["when"]))
        return made[-1]

    opened = Connection.open.__func__  # type: ignore[attr-defined]
    _connection.Connection.open = classmethod(  # type: ignore[method-assign,assignment]
        lambda cls, options: opened(cls, options, wrap)
    )
    try:
        result = dict(cluster_policy(order["params"], False, lambda line: None).as_dict(), failed=False)
    except Failure as failure:
        result = dict(failure.as_dict(), failed=True)
    kept = {key: result.get(key) for key in ("failed", "msg", "changed")}
    return {"killed": False, "writes": sum(one.writes for one in made), "result": kept}


def in_a_child(order: Mapping[str, Any]) -> str:
    """The run in a process of its own; its line, or that it was killed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with os.fdopen(write, "w") as out:
            out.write(json.dumps(work(order)))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        text = answers.read()
    _pid, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return json.dumps({"killed": True, "writes": order["at"], "result": {}})
    return text


def main() -> None:
    import kubernetes  # noqa: F401

    for line in sys.stdin:
        sys.stdout.write(in_a_child(json.loads(line)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
