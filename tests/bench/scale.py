# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on clusters of 100, 1,000 and 5,000 nodes: first labelling, nothing to do, one change of the policy.

Real: etcd, API server, node objects of real size, every request. Not real: there are no kubelets and no pods, and
the workloads' status is written here. A run with nothing to do reads no pods in a real cluster either, as long as
every workload says that it is ready: that is the path which is measured.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import MERGE_PATCH, Connection
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._lists import PAGE, list_objects
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._resources import OURS, path
from ansible_collections.gpufleet.nvidia.tests.bench import machine, nodes
from ansible_collections.gpufleet.nvidia.tests.bench.figures import AT_MOST, Goal, Row, Sample, row
from ansible_collections.gpufleet.nvidia.tests.bench.stack import HOME, INSIDE, PATIENCE, BenchError
from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT
from ansible_collections.gpufleet.nvidia.tests.testbed import audit
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import USERS, Cluster
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import Report

SIZES = (100, 1000, 5000)
PHASES = {
    "noop": "kubectl get nodes -o json",
    "label": "kubectl label nodes --all, one label",
    "change": "",
}
WHATS = {"": "s", ".memory": "MB", ".requests": "requests", ".bytes": "MB received"}
# Of each size, so that the figures of one are kept before the next is measured.
NAMES_OF = {size: tuple(f"scale.{size}.{phase}{what}" for phase in PHASES for what in WHATS) for size in SIZES}
NAMES = tuple(name for names in NAMES_OF.values() for name in names)
MOST_FOR_LABEL = 1000  # kubectl labels one node after the other: 5,000 take it minutes
BESIDE_PAGES = 20  # requests of a run with nothing to do that are no pages of nodes: lists of kinds, the namespace
AT_ONCE = 8
VERSIONS = ("4.5.0-4.4.0-distroless", "4.5.1-4.4.1-distroless")  # of DCGM exporter: what the policy changes to


def goal_of(size: int, phase: str, what: str) -> Goal | None:
    """Goals of a run with nothing to do: time and memory for all sizes, and requests that only grow with pages."""
    if phase != "noop":
        return None
    pages = -(-size // PAGE)
    return {"": Goal(AT_MOST, 10), ".memory": Goal(AT_MOST, 300), ".requests": Goal(AT_MOST, BESIDE_PAGES + pages)}.get(
        what
    )


def run(names: set[str], repeats: int, report: Report) -> list[Row]:
    """Measure what the figures of these names need. Raises BenchError, ClusterError, ProgramError."""
    stated = machine.stated(machine.load())
    rows: list[Row] = []
    for size in SIZES:
        wanted = [name for name in NAMES if name in names and name.startswith(f"scale.{size}.")]
        if wanted:
            seen, more = _measure(size, {name.split(".")[2] for name in wanted}, repeats, report)
            rows += [_row(name, seen, {**stated, **more}) for name in wanted]
    return rows


def _row(name: str, seen: Mapping[str, Sequence[float]], more: Mapping[str, Any]) -> Row:
    _scale, size, phase, *rest = name.split(".")
    what = f".{rest[0]}" if rest else ""
    theirs = seen.get(f"peer.{phase}{what}")
    peer = Sample(tuple(theirs)) if theirs else None
    ours = Sample(tuple(seen[f"ours.{phase}{what}"]))
    return row(name, WHATS[what], ours, PHASES[phase] if peer else "", peer, goal_of(int(size), phase, what), **more)


def _measure(
    size: int, phases: set[str], repeats: int, report: Report
) -> tuple[dict[str, list[float]], dict[str, str | int]]:
    home = HOME / "scale"
    Cluster(home).down()  # what a bench that was ended half-way left
    with Cluster(home) as cluster:
        # Nobody but the tool may work on nodes: without kubelets these two would only fail, 5,000 times.
        for name in ("kube-controller-manager", "kube-scheduler"):
            cluster.process(name).stop()
        fleet = _Fleet(cluster, size, report)
        fleet.prepare()
        fleet.label(peer="label" in phases and size <= MOST_FOR_LABEL)
        for _unused in range(repeats if "noop" in phases else 0):
            fleet.noop()
        for number in range(repeats if "change" in phases else 0):
            fleet.change(number)
        return fleet.seen, {"nodes": size, "node_bytes": fleet.node_bytes}


@dataclass
class _Ended:
    """A process that ended well: wall seconds, peak memory in MB, and the file with what it printed."""

    seconds: float
    memory: float
    output: Path


class _Fleet:
    """A cluster of ``size`` nodes. ``seen``: what was measured, by tool, phase and what."""

    def __init__(self, cluster: Cluster, size: int, report: Report) -> None:
        self.cluster = cluster
        self.size = size
        self.report = report
        self.seen: dict[str, list[float]] = defaultdict(list)
        self.observer = Connection.open({"kubeconfig": str(cluster.kubeconfig("observer"))})
        self.node_bytes = 0

    # --- preparation ---

    def prepare(self) -> None:
        """The stack, as one node that is gone again needed it, and the nodes."""
        self.observer.request("POST", path("Node"), body=nodes.node(0))
        self.ours({}, self.cluster.kubeconfig())
        self.observer.request("DELETE", path("Node", name=nodes.name_of(0)))
        began = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _unused in pool.map(self.create, range(1, self.size + 1)):
                continue
        self.node_bytes = len(self.cluster.request(path("Node", name=nodes.name_of(1)))[1])
        seconds = time.monotonic() - began
        self.report(f"scale: {self.size} nodes of {self.node_bytes / 1000:.1f} kB made in {seconds:.0f} s")
        self.make_ready()

    def create(self, number: int) -> None:
        self.observer.request("POST", path("Node"), body=nodes.node(number))

    def make_ready(self) -> None:
        """What the controllers of a cluster write once all pods are ready."""
        for kind in ("DaemonSet", "Deployment"):
            for item in list_objects(self.observer, kind, label_selector=OURS).items:
                meta, count = item["metadata"], self.size
                status: dict[str, Any] = {"observedGeneration": meta["generation"]}
                if kind == "Deployment":
                    count = int(item["spec"].get("replicas", 1))
                    status |= dict.fromkeys(
                        ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), count
                    )
                else:
                    names = ("desired", "current", "updated")
                    status |= {f"{name}NumberScheduled": count for name in names}
                    status |= {"numberReady": count, "numberAvailable": count, "numberMisscheduled": 0}
                where = path(kind, meta["namespace"], meta["name"]) + "/status"
                self.observer.request("PATCH", where, body={"status": status}, content_type=MERGE_PATCH)

    # --- measuring ---

    def label(self, peer: bool) -> None:
        """Once: afterwards all nodes are labelled."""
        if peer:
            self.theirs("label", "label", "nodes", "--all", "--overwrite", "bench.example.com/seen=true")
        changed = self.measure("label", {"wait": False})
        if not changed:
            raise BenchError("the first labelling has changed nothing")
        labelled = list_objects(
            self.observer, "Node", label_selector="nvidia.com/gpu.deploy.driver=true", keep=lambda item: {}
        )
        if len(labelled.items) != self.size:
            raise BenchError(f"{len(labelled.items)} of {self.size} nodes are labelled")

    def noop(self) -> None:
        self.theirs("noop", "get", "nodes", "-o", "json")
        # The whole way, waits and proof included.
        if self.measure("noop", {"wait": True}):
            raise BenchError("a run with nothing to do has changed something")

    def change(self, number: int) -> None:
        version = VERSIONS[number % len(VERSIONS)]
        policy = {"dcgmExporter": {"version": version}}
        if not self.measure("change", {"wait": False, "policy": policy}):
            raise BenchError("a change of the policy has changed nothing")
        self.make_ready()

    def measure(self, phase: str, params: Mapping[str, Any]) -> bool:
        """One run of ours; whether it changed something."""
        since = audit.offset(self.cluster.audit_log)
        with _Forwarder(self.cluster) as forwarder:
            ended, changed = self.ours(params, forwarder.kubeconfig)
        sent = list(audit.requests(self.cluster.audit_log, USERS["admin"], since))
        self.keep("ours", phase, ended, len(sent), forwarder.received)
        return changed

    def ours(self, params: Mapping[str, Any], kubeconfig: Path) -> tuple[_Ended, bool]:
        ended = _timed([sys.executable, "-m", INSIDE, kubeconfig, json.dumps(params)], self.cluster.dir / "output")
        return ended, bool(json.loads(ended.output.read_text())["changed"])

    def theirs(self, phase: str, *arguments: str) -> None:
        since = audit.offset(self.cluster.audit_log)
        with _Forwarder(self.cluster) as forwarder:
            command = [self.cluster.kubectl, "--kubeconfig", forwarder.kubeconfig, *arguments]
            ended = _timed(command, self.cluster.dir / "output")
        sent = list(audit.requests(self.cluster.audit_log, USERS["admin"], since))
        self.keep("peer", phase, ended, len(sent), forwarder.received)

    def keep(self, tool: str, phase: str, ended: _Ended, requests: int, received: int) -> None:
        name = f"{tool}.{phase}"
        self.seen[name].append(ended.seconds)
        self.seen[f"{name}.memory"].append(ended.memory)
        self.seen[f"{name}.requests"].append(requests)
        self.seen[f"{name}.bytes"].append(received / 1e6)
        self.report(
            f"scale: {self.size} nodes, {name}: {ended.seconds:.2f} s, {ended.memory:.0f} MB, {requests} requests, "
            f"{received / 1e6:.1f} MB received"
        )


def _timed(command: Sequence[str | Path], output: Path) -> _Ended:
    """Run a whole process, its start included. Raises BenchError where it fails or takes too long."""
    words = " ".join(Path(str(word)).name for word in command[:3])
    environment = dict(os.environ, PYTHONPATH=str(CHECKOUT / "build" / "collections"))
    with output.open("wb") as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        with subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment
        ) as process:
            guard = threading.Timer(PATIENCE, process.kill)
            guard.start()
            _pid, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - began
            guard.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            err.seek(0)
            said = err.read()[-3000:].decode("utf-8", "replace")
            raise BenchError(f"`{words} ...` ended with status {process.returncode}:\n{said}")
    return _Ended(seconds, usage.ru_maxrss / 1024, output)


class _Forwarder:
    """Carries bytes between a tool and the API server, and counts what the tool receives (TLS included)."""

    def __init__(self, cluster: Cluster) -> None:
        self.received = 0
        self._target = ("127.0.0.1", cluster.ports()["kube-apiserver"])
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.kubeconfig = cluster.dir / "kubeconfig-counted"
        text = cluster.kubeconfig().read_text()
        self.kubeconfig.write_text(text.replace(cluster.url, f"https://127.0.0.1:{port}"))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        # shutdown wakes accept(); close alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            for end in (client, server):  # small packets at once: else each request waits 40 ms for the one before
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink, counted in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._carry, args=(source, sink, counted), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with source:
            try:
                while piece := source.recv(1 << 18):
                    sink.sendall(piece)
                    if counted:
                        self.received += len(piece)
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                return
