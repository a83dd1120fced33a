# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of this folder share: a namespace of their own, and ways to act as somebody else."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube import _apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import (
    Connection,
    Dropped,
    Reply,
    Transport,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Finding
from ansible_collections.gpufleet.nvidia.tests.integration.kube import objects
from ansible_collections.gpufleet.nvidia.tests.testbed import audit
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import USERS, Cluster

NUMBERS = count(1)


class World:
    """One namespace on the cluster, seen as the playbook's user (``connection``) and as the observer (``kubectl``)."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.scope = f"test={namespace}"
        self.connection = Connection.open({"kubeconfig": str(cluster.kubeconfig("admin"))})

    def connect(self, wrap: Callable[[Transport], Transport]) -> Connection:
        return Connection.open({"kubeconfig": str(self.cluster.kubeconfig("admin"))}, wrap)

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        command = [str(self.cluster.kubectl), "--kubeconfig", str(self.cluster.kubeconfig("observer")), *args]
        run = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def get(self, kind: str, name: str) -> dict[str, Any]:
        where = ["-n", self.namespace, kind, name, "-o", "json", "--show-managed-fields"]
        found: dict[str, Any] = json.loads(self.kubectl("get", *where))
        return found

    def patch(self, kind: str, name: str, patch: Any, form: str = "strategic", manager: str = "kubectl-edit") -> None:
        self.kubectl(
            "-n",
            self.namespace,
            "patch",
            kind,
            name,
            "--type",
            form,
            "--field-manager",
            manager,
            "-p",
            json.dumps(patch),
        )

    def labelled(self, wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for item in wanted:
            item["metadata"]["labels"]["test"] = self.namespace
        return wanted

    def plan(self, wanted: list[dict[str, Any]], connection: Connection | None = None, **options: Any) -> _apply.Plan:
        options = {"kinds": objects.KINDS, "scope": self.scope, **options}
        return _apply.plan(connection or self.connection, self.labelled(wanted), **options)

    def run(self, wanted: list[dict[str, Any]], connection: Connection | None = None, **options: Any) -> list[str]:
        """Plan and carry out; the ids of the steps. Nothing may be found, by the plan nor by a step."""
        made = self.plan(wanted, connection, **options)
        assert made.findings == []
        found: list[Finding] = []
        for step in made.steps:
            found += _apply.execute(connection or self.connection, step)
        assert found == []
        return [step.id for step in made.steps]

    def written(self, since: int) -> list[str]:
        """Writes of the playbook's user that the audit log has, behind an offset."""
        return [str(request) for request in audit.writes(self.cluster.audit_log, USERS["admin"], since)]

    def offset(self) -> int:
        return audit.offset(self.cluster.audit_log)


@pytest.fixture
def world(cluster: Cluster) -> Iterator[World]:
    one = World(cluster, f"kube-{next(NUMBERS)}")
    yield one
    one.run([])


class Faults:
    """A transport that fails the n-th request (from 1) in one way; ``happened`` tells whether it got so far.

    ``429``, ``500``: the server's answer, the request is not passed on. ``dropped``: the connection breaks before the
    request is sent; ``lost``: the request is carried out, its answer is lost. ``killed``: the run ends there.
    """

    KINDS = ("429", "500", "dropped", "lost")

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.at = kind, at
        self.sent = 0
        self.happened = False

    def __call__(self, inner: Transport) -> Transport:
        self.inner = inner
        return self

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float) -> Reply:
        self.sent += 1
        if self.sent != self.at:
            return self.inner.send(method, url, headers, body, timeout)
        self.happened = True
        if self.kind == "killed":
            raise KilledError
        if self.kind == "lost":
            self.inner.send(method, url, headers, body, timeout).read()
        if self.kind in ("lost", "dropped"):
            raise Dropped("the connection broke", sent=self.kind == "lost")
        return Refusal(int(self.kind))


class KilledError(Exception):
    """The run ended here."""


class Refusal:
    def __init__(self, status: int) -> None:
        self.status = status

    def header(self, name: str) -> list[str]:
        return ["0.01"] if name == "Retry-After" else []

    def read(self) -> bytes:
        return json.dumps({"kind": "Status", "code": self.status, "message": "injected"}).encode()

    def lines(self) -> Iterator[bytes]:
        return iter(())

    def close(self) -> None:
        return
