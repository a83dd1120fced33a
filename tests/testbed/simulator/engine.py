# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the fleet: watches the cluster, looks at pods when something changed or their time has come, writes what
they became."""

from __future__ import annotations

import heapq
import itertools
import json
import math
import random
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from . import fleet, kubelet
from .api import MERGE, STRATEGIC, AccountApi, Client, Informer
from .context import ApiError, World
from .faults import Faults
from .node import VALIDATIONS, Node, NodeSpec
from .pod import Object, PodView

MOMENT = 0.05
NFD = "/apis/nfd.k8s-sigs.io/v1alpha1"


def played(pod: Object) -> bool:
    """Whether the simulator plays a pod; plain pods are kwok's (see tests/testbed/README.md)."""
    namespace = pod["metadata"]["namespace"]
    owned = any(ref.get("kind") == "DaemonSet" for ref in pod["metadata"].get("ownerReferences") or [])
    return owned or namespace in ("gpu-operator", "node-feature-discovery") or namespace.endswith("-gpu")


@dataclass
class Seat:
    """A pod and what its node keeps of it."""

    obj: Object
    node: Node
    run: kubelet.PodRun = field(default_factory=kubelet.PodRun)
    stopped: bool = False
    gone: bool = False
    stop_at: float | None = None
    finished: bool = False
    view: PodView | None = None


class Agenda:
    """Who is to be looked at when: the earliest wish wins."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._numbers = itertools.count()
        self._lock = threading.Condition()
        self._closed = False

    def add(self, uid: str, delay: float) -> None:
        due = time.monotonic() + delay
        with self._lock:
            if self._due.get(uid, math.inf) <= due:
                return
            self._due[uid] = due
            heapq.heappush(self._heap, (due, next(self._numbers), uid))
            self._lock.notify()

    def take(self) -> str | None:
        """The next pod whose time has come; None when the agenda is closed."""
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
                    heapq.heappop(self._heap)  # an older wish
                if self._heap and self._heap[0][0] <= now:
                    uid = heapq.heappop(self._heap)[2]
                    del self._due[uid]
                    return uid
                self._lock.wait(min(1.0, self._heap[0][0] - now) if self._heap else 1.0)
        return None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()


class Engine:
    def __init__(self, client: Client, specs: list[NodeSpec], faults: Faults, speed: float, workers: int = 12) -> None:
        self.client = client
        self.specs = specs
        self.world = World(faults, speed)
        self.world.nodes = {spec.name: Node(spec) for spec in specs}
        self.world.pods_on = self._pods_on
        self.world.secret_reader = self._secret
        self.stopping = threading.Event()
        self.agenda = Agenda()
        self.seats: dict[str, Seat] = {}
        self.by_node: dict[str, dict[str, Object]] = {name: {} for name in self.world.nodes}
        self._accounts: dict[tuple[str, str], AccountApi] = {}
        self._lock = threading.Lock()
        self._followers: set[str] = set()  # pods that look at NodeFeature objects and nodes: nfd-master, nfd-gc
        self._ips = itertools.count(1)
        self._sent_resources: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        self._threads = [threading.Thread(target=self._work, name=f"worker {i}", daemon=True) for i in range(workers)]
        self._informers = [
            Informer(client, path, on_event, self.stopping)
            for path, on_event in (
                ("/api/v1/nodes", self._on_node),
                ("/api/v1/configmaps", self._on_configmap),
                ("/api/v1/services", self._on_service),
                ("/apis/node.k8s.io/v1/runtimeclasses", self._on_runtime_class),
                (f"{NFD}/nodefeatures", self._on_feature),
                (f"{NFD}/nodefeaturerules", self._on_rule),
                ("/api/v1/pods", self._on_pod),
            )
        ]
        self.looks = self.writes = 0
        self.asked_hosts = threading.Event()
        self.hosts_file: Path | None = None

    # -- starting and stopping

    def start(self) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._register, range(len(self.specs)), self.specs))
        for informer in self._informers:
            informer.start()
        for informer in self._informers:
            informer.synced.wait(60)
        for thread in self._threads:
            thread.start()

    def _register(self, number: int, spec: NodeSpec) -> None:
        try:
            self.client.call("POST", "/api/v1/nodes", fleet.node_object(spec, number))
        except ApiError as error:
            if error.status != 409:
                raise

    def run(self) -> None:
        while not self.stopping.wait(0.2):
            if self.asked_hosts.is_set() and self.hosts_file:
                self.asked_hosts.clear()
                self._write_hosts(self.hosts_file)
            if self.world.faults.path is None:
                continue
            try:
                changed = self.world.faults.reload()
            except (OSError, ValueError, yaml.YAMLError) as error:
                say(f"{self.world.faults.path}: {error}")
                continue
            if changed:
                say(f"{self.world.faults.path}: read")
                self._conditions()
                for uid in list(self.seats):
                    self.agenda.add(uid, 0.0)

    def _write_hosts(self, path: Path) -> None:
        """What no API tells: status files of each host, and what has its GPUs. Atomic: there is no half file."""
        told = {}
        for name, node in self.world.nodes.items():
            with node.lock:
                told[name] = {
                    "files": node.fs.listing(VALIDATIONS),
                    "hurt": list(node.hurt),
                    "gpus": [{"driver": gpu.driver, "vgpus": list(gpu.vgpus), "cc": gpu.cc} for gpu in node.gpus],
                }
        part = path.with_suffix(".part")
        part.write_text(json.dumps(told))
        part.replace(path)

    def _conditions(self) -> None:
        """Nodes whose kubelet is to say NotReady say so; the others take it back."""
        for name, node in self.world.nodes.items():
            told = self.world.faults.of(name, "down")
            wanted = "False" if told else "True"
            found = (node.obj.get("status") or {}).get("conditions") or []
            if name in self.world.gone_nodes or {c["status"] for c in found if c["type"] == "Ready"} == {wanted}:
                continue
            now = kubelet.timestamp()
            reason, text = (
                ("KubeletNotReady", str(told)) if told else ("KubeletReady", "kubelet is posting ready status")
            )
            ready = {"type": "Ready", "status": wanted, "reason": reason, "message": text}
            ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
            body = {"status": {"conditions": [ready]}}
            try:
                self.client.call("PATCH", f"/api/v1/nodes/{name}/status", body, kind=STRATEGIC, answer=False)
            except ApiError as error:
                say(f"condition of {name}: {error.status} {error.message}")

    def stop(self) -> None:
        self.stopping.set()
        self.agenda.close()

    # -- what the caches are told

    def _on_node(self, kind: str, item: Object) -> None:
        name = item["metadata"]["name"]
        node = self.world.nodes.get(name)
        if node is None:
            return
        if kind == "DELETED":
            self.world.gone_nodes.add(name)
            self._wake_masters()
            return
        self.world.gone_nodes.discard(name)
        before = (node.labels, (node.obj.get("status") or {}).get("capacity"))
        node.obj = item
        node.labels = dict(item["metadata"].get("labels") or {})
        if before != (node.labels, (item.get("status") or {}).get("capacity")):
            self.wake(name)
        if kind == "ADDED":
            self.world.feature_log.append(name)
            self._wake_masters()

    def _on_configmap(self, kind: str, item: Object) -> None:
        key = (item["metadata"]["namespace"], item["metadata"]["name"])
        old = self.world.configmaps.get(key)
        if kind == "DELETED":
            self.world.configmaps.pop(key, None)
        else:
            self.world.configmaps[key] = item
        if (old or {}).get("data") == item.get("data") and kind != "DELETED" and old is not None:
            return
        for uid, seat in list(self.seats.items()):
            if seat.obj["metadata"]["namespace"] == key[0] and f'"{key[1]}"' in str(
                seat.obj["spec"].get("volumes")
            ).replace("'", '"'):
                self.agenda.add(uid, 0.0)

    def _on_service(self, kind: str, item: Object) -> None:
        key = (item["metadata"]["namespace"], item["metadata"]["name"])
        if kind == "DELETED":
            self.world.services.pop(key, None)
        else:
            self.world.services[key] = item

    def _on_runtime_class(self, kind: str, item: Object) -> None:
        if kind == "DELETED":
            self.world.runtime_classes.pop(item["metadata"]["name"], None)
        else:
            self.world.runtime_classes[item["metadata"]["name"]] = item["handler"]

    def _on_feature(self, kind: str, item: Object) -> None:
        self.world.tell_feature(kind, item)
        self._wake_masters()

    def _on_rule(self, kind: str, item: Object) -> None:
        self.world.tell_rule(kind, item)
        self._wake_masters()

    def _wake_masters(self) -> None:
        for uid in list(self._followers):
            self.agenda.add(uid, 0.05)

    def _on_pod(self, kind: str, item: Object) -> None:
        uid, meta = item["metadata"]["uid"], item["metadata"]
        node_name = item["spec"].get("nodeName", "")
        node = self.world.nodes.get(node_name)
        if node is None:
            return
        if kind == "DELETED":
            self.by_node[node_name].pop(uid, None)
            seat = self.seats.get(uid)
            if seat is not None:
                seat.gone = True
                self.agenda.add(uid, 0.0)
            else:
                self.wake(node_name)
            return
        self.by_node[node_name][uid] = item
        if not played(item):
            return
        seat = self.seats.get(uid)
        if seat is None:
            seat = Seat(item, node)
            seat.run.ip = "" if item["spec"].get("hostNetwork") else fleet.ip_of((64 << 16) + next(self._ips))
            if item["spec"].get("hostNetwork"):
                seat.run.ip = kubelet.node_ip(node)
            commands = {w for c in item["spec"]["containers"] for w in (c.get("command") or [])}
            if commands & {"nfd-master", "nfd-gc"}:
                self._followers.add(uid)
            # After a restart of the simulator: what has ended stays so, the rest starts again as after a reboot.
            seat.finished = (item.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            self.seats[uid] = seat
            self.agenda.add(uid, 0.0)
            return
        deleting = meta.get("deletionTimestamp") and not seat.obj["metadata"].get("deletionTimestamp")
        grown = item["metadata"].get("generation") != seat.obj["metadata"].get("generation")
        seat.obj = item
        if deleting or grown:
            self.agenda.add(uid, 0.0)

    def _pods_on(self, node: str) -> list[Object]:
        return list(self.by_node.get(node, {}).values())

    def _secret(self, namespace: str, name: str) -> Object | None:
        try:
            return self.client.call("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def wake(self, node: str, but: str = "") -> None:
        """Something on the node changed. Loops that sleep see it when they look again (every 5 s in life); what happens
        within a moment is looked at once."""
        pause = self.world.scaled(5.0)
        for uid in list(self.by_node.get(node, ())):
            seat = self.seats.get(uid)
            if seat is not None and uid != but:
                running = seat.run.phase == "Running"
                self.agenda.add(uid, 0.2 if running else MOMENT + random.uniform(0.0, pause))

    # -- the work

    def _work(self) -> None:
        while (uid := self.agenda.take()) is not None:
            seat = self.seats.get(uid)
            if seat is None:
                continue
            try:
                with seat.node.lock:
                    self._look(uid, seat)
            except ApiError as error:
                if error.status not in (404, 409):
                    say(f"{seat.obj['metadata']['name']} on {seat.node.name}: {error.status} {error.message}")
                self.agenda.add(uid, 1.0)
            except Exception:  # noqa: BLE001 - one pod's trouble must not stop the others; it is shown whole
                say(f"{seat.obj['metadata']['name']} on {seat.node.name}: {traceback.format_exc()}")
                self.agenda.add(uid, 5.0)

    def _account(self, pod: PodView) -> AccountApi:
        key = (pod.namespace, pod.service_account)
        with self._lock:
            if key not in self._accounts:
                self._accounts[key] = AccountApi(self.client, *key)
            return self._accounts[key]

    def _look(self, uid: str, seat: Seat) -> None:
        if seat.view is None or seat.view.obj is not seat.obj:
            seat.view = PodView(seat.obj)
        pod, node = seat.view, seat.node
        self.looks += 1
        api = self._account(pod)
        version = node.version
        if seat.gone or pod.meta.get("deletionTimestamp"):
            self._end(uid, seat, pod, api)
        elif not seat.finished and not self.world.faults.of(node.name, "down"):
            result = kubelet.sync(seat.run, pod, node, self.world, api)
            if result.status != seat.run.sent:
                path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
                self.client.call(
                    "PATCH", path, {"metadata": {"uid": uid}, "status": result.status}, kind=MERGE, answer=False
                )
                seat.run.sent = result.status
                self.writes += 1
            for event in result.events:
                self._event(pod, node, *event)
            if not math.isinf(result.delay):
                self.agenda.add(uid, result.delay)
        self._offer(node)
        if node.version != version:
            self.wake(node.name, but=uid)

    def _end(self, uid: str, seat: Seat, pod: PodView, api: AccountApi) -> None:
        if not seat.stopped:
            if seat.stop_at is None:
                seat.stop_at = time.monotonic() + (0 if seat.gone else self.world.scaled(2.0))
            left = seat.stop_at - time.monotonic()
            if left > 0 and not seat.gone:
                self.agenda.add(uid, left)
                return
            kubelet.stop(seat.run, pod, seat.node, self.world, api)
            seat.stopped = True
        if not seat.gone:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            try:
                self.client.call(
                    "DELETE",
                    path,
                    {
                        "kind": "DeleteOptions",
                        "apiVersion": "v1",
                        "gracePeriodSeconds": 0,
                        "preconditions": {"uid": uid},
                    },
                )
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
        self.seats.pop(uid, None)
        self._followers.discard(uid)
        self.by_node[seat.node.name].pop(uid, None)
        seat.node.changed()

    def _event(self, pod: PodView, node: Node, kind: str, reason: str, message: str) -> None:
        now = kubelet.timestamp()
        body: Object = {
            "apiVersion": "v1", "kind": "Event", "type": kind, "reason": reason, "message": message[:1024], "count": 1,
            "metadata": {"generateName": f"{pod.name}.", "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "name": pod.name, "namespace": pod.namespace, "uid": pod.uid,
            },
            "source": {"component": "kubelet", "host": node.name}, "reportingComponent": "kubelet",
            "reportingInstance": node.name,
            "firstTimestamp": now, "lastTimestamp": now,
        }  # fmt: skip
        try:
            self.client.call("POST", f"/api/v1/namespaces/{pod.namespace}/events", body)
        except ApiError as error:
            if error.status not in (403, 404):  # the namespace goes
                raise

    def _offer(self, node: Node) -> None:
        """The kubelet's device manager: capacity as registered, allocatable as healthy."""
        state = (dict(node.offered), dict(node.healthy))
        old = self._sent_resources.get(node.name, ({}, {}))
        if state == old:
            return
        capacity: dict[str, Any] = {key: None for key in old[0] if key not in state[0]} | {
            k: str(v) for k, v in state[0].items()
        }
        healthy: dict[str, Any] = {key: None for key in old[0] if key not in state[0]} | {
            k: str(state[1].get(k, 0)) for k in state[0]
        }
        path = f"/api/v1/nodes/{node.name}/status"
        body = {"status": {"capacity": capacity, "allocatable": healthy}}
        self.client.call("PATCH", path, body, kind=MERGE, answer=False)
        self._sent_resources[node.name] = state


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
