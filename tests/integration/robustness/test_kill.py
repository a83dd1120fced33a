# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kill -9 at the API writes of a first apply, of a change and of a removal: the next run ends what was begun.

Nothing of others is lost meanwhile: labels, annotations and taints of nodes, and objects in the namespace.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Connection, Deadline
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._lists import list_objects
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._resources import OURS, Ref, path
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._watch import until
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._stack import KINDS
from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import Cluster

pytestmark = pytest.mark.rows("S40", "S45")

NAMESPACE = "gpu-operator"
FEATURE = "feature.node.kubernetes.io"
RUNNER = "ansible_collections.gpufleet.nvidia.tests.integration.robustness.runner"
MOMENTS = ("before", "after")
FIRST: dict[str, Any] = {"nfd": {"enabled": False}}
CHANGED: dict[str, Any] = {
    **FIRST,
    "devicePlugin": {
        "version": "v0.17.0",
        "config": {"create": True, "name": "sharing", "default": "any", "data": {"any": "version: v1\n"}},
    },
    "dcgmExporter": {"version": "4.5.1-4.4.1-distroless"},
    "mig": {"strategy": "mixed"},
}
NODES = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"kill-{number}",
            "annotations": {"example.com/note": "mine", "kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/os": "linux",
                f"{FEATURE}/pci-10de.present": "true",
                f"{FEATURE}/system-os_release.ID": "ubuntu",
                f"{FEATURE}/system-os_release.VERSION_ID": "24.04",
                f"{FEATURE}/kernel-version.full": "6.8.0-60-generic",
                "example.com/rack": "r1",
                # A person keeps DCGM off the second node.
                **({"nvidia.com/gpu.deploy.dcgm": "false"} if number == 2 else {}),
            },
        },
        "spec": {"taints": [{"key": "example.com/kept", "effect": "NoSchedule"}]},
    }
    for number in (1, 2)
]


class Site:
    """A cluster with two GPU nodes, and the process that runs the module's code on it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.observer = Connection.open({"kubeconfig": str(cluster.kubeconfig("observer"))})
        self.process = subprocess.Popen(
            [sys.executable, "-m", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT
        )
        self.injected = 0
        for node in NODES:
            self.observer.request("POST", path("Node"), body=node)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {"team": "a"}}}
        self.observer.request("POST", path("Namespace"), body=space)
        kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"key": "value"}}
        self.observer.request("POST", path("ConfigMap", NAMESPACE), body=kept)
        self.nodes = self.settled()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for node in NODES:
            self.observer.request("DELETE", path("Node", name=node["metadata"]["name"]))  # type: ignore[index]
        self.observer.request("DELETE", path("Namespace", name=NAMESPACE))
        gone = until(self.observer, Ref("Namespace", "", NAMESPACE), lambda live: live is None, Deadline(60))
        assert gone is None, f"the namespace {NAMESPACE} does not go"

    def order(self, values: Any, at: int = 0, when: str = "before") -> dict[str, Any]:
        """One run; ``values`` None is a removal. Killed at the write ``at``, or to its end with 0."""
        params = {"kubeconfig": str(self.cluster.kubeconfig()), "namespace": NAMESPACE, "wait": False}
        params |= {"state": "absent" if values is None else "present", "policy": values or {}}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"params": params, "at": at, "when": when}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def run(self, values: Any) -> int:
        """A run to its end; how many writes it made."""
        answer = self.order(values)
        assert answer["killed"] is False
        assert answer["result"]["failed"] is False, answer["result"]["msg"]
        return int(answer["writes"])

    def kill(self, values: Any, at: int, when: str) -> None:
        answer = self.order(values, at, when)
        assert answer["killed"], f"the run was not killed at write {at}: {answer}"
        self.injected += 1

    def of_nodes(self) -> dict[str, Any]:
        """What is known of each node that anybody may have written."""
        items = list_objects(self.observer, "Node").items
        return {
            item["metadata"]["name"]: (
                item["metadata"].get("labels"), item["metadata"].get("annotations"), item["spec"].get("taints")
            )
            for item in items
        }  # fmt: skip

    def settled(self) -> dict[str, Any]:
        """The nodes once kwok keeps them alive and the controllers have taken their taints off them."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            before = self.of_nodes()
            if all(taints == NODES[0]["spec"]["taints"] for _labels, _notes, taints in before.values()):  # type: ignore[index]
                time.sleep(1)
                if self.of_nodes() == before:
                    return before
            time.sleep(0.2)
        raise AssertionError("the nodes do not come to rest")

    def expect_theirs(self) -> None:
        """Everything of others is there, unchanged."""
        theirs = self.observer.get(path("ConfigMap", NAMESPACE, "theirs"))
        assert theirs["data"] == {"key": "value"}
        assert self.observer.get(path("Namespace", name=NAMESPACE))["metadata"]["labels"]["team"] == "a"
        now = self.of_nodes()
        assert set(now) == set(self.nodes)
        for name, (labels, notes, taints) in self.nodes.items():
            assert labels.items() <= now[name][0].items()
            assert (notes or {}).items() <= now[name][1].items()
            assert now[name][2] == taints

    def expect_converged(self, values: Any) -> None:
        """Nothing is left to do, and what others own is there."""
        assert self.run(values) == 0
        self.expect_theirs()

    def expect_nothing_of_ours(self) -> None:
        assert self.of_nodes() == self.nodes
        left = [
            f"{kind} {item['metadata']['name']}"
            for kind in KINDS
            for item in list_objects(self.observer, kind, label_selector=OURS, optional=True).items
            if not item["metadata"].get("deletionTimestamp")
        ]
        assert left == []
        self.expect_theirs()


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    one = Site(cluster)
    yield one
    one.close()


def points(writes: int, count: int | None) -> list[tuple[int, str]]:
    """Where a run of so many writes is killed: everywhere, or at ``count`` writes from the first to the last."""
    numbers = list(range(1, writes + 1))
    if count is not None and count < writes:
        numbers = sorted({1 + round(i * (writes - 1) / (count - 1)) for i in range(count)})
    return [(number, when) for number in numbers for when in MOMENTS]


def kill_everywhere(site: Site, phase: str, count: int | None) -> int:
    """Kill a phase at each point, and converge after each; the number of points."""
    before, after = {"apply": (None, FIRST), "change": (FIRST, CHANGED), "removal": (FIRST, None)}[phase]
    site.run(None)
    if before is not None:
        site.run(before)
    chosen = points(site.run(after), count)
    for at, when in chosen:
        site.run(before)
        site.kill(after, at, when)
        site.run(after)
        if after is None:
            site.expect_nothing_of_ours()
        else:
            site.expect_converged(after)
    site.run(None)
    site.expect_nothing_of_ours()
    return len(chosen)


@pytest.mark.parametrize(
    "phase", ["apply", pytest.param("change", marks=pytest.mark.long), pytest.param("removal", marks=pytest.mark.long)]
)
def test_a_run_that_is_killed_at_a_write_is_ended_by_the_next(
    phase: str, site: Site, survived: Callable[[str, int], None]
) -> None:
    site.injected = 0
    assert kill_everywhere(site, phase, 3) == 6
    survived(f"kills at API writes ({phase})", site.injected)
    assert site.injected == 6


@pytest.mark.long
@pytest.mark.parametrize(("phase", "least"), [("apply", 80), ("change", 10), ("removal", 80)])
def test_a_run_that_is_killed_at_any_write_is_ended_by_the_next(
    phase: str, least: int, site: Site, survived: Callable[[str, int], None]
) -> None:
    site.injected = 0
    expected = kill_everywhere(site, phase, None)
    survived(f"kills at API writes ({phase})", site.injected)
    assert site.injected == expected >= least
