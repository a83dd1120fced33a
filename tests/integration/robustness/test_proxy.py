# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bad network and a busy API server between the module and the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube import _connection
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Connection, Deadline, KubeError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._resources import path
from ansible_collections.gpufleet.nvidia.tests.integration.fleets import Fleet
from ansible_collections.gpufleet.nvidia.tests.testbed.proxy import KINDS, PASSING, FaultProxy, First, Seldom

pytestmark = pytest.mark.rows("S45")

CHANGED = {"mig": {"strategy": "mixed"}, "devicePlugin": {"env": [{"name": "CHANGED", "value": "1"}]}}


@pytest.fixture
def proxy(facts: Fleet) -> Iterator[FaultProxy]:
    with FaultProxy(facts.practice.cluster) as running:
        yield running


def through(fleet: Fleet, proxy: FaultProxy, values: object, **params: object) -> None:
    """A run through the proxy that must end well, and a direct one that finds nothing left to do."""
    ended = fleet.run("cluster_policy", kubeconfig=str(proxy.kubeconfig), policy=values, **params)
    assert not ended["failed"], ended["msg"]


def soak(fleet: Fleet, proxy: FaultProxy, share: float, seed: int, policies: Sequence[object]) -> int:
    """A whole life through the proxy; how many faults it met."""
    chooser = Seldom(share, seed)
    before = sum(proxy.injected.values())
    for values in policies:
        proxy.choose = chooser
        through(fleet, proxy, values)
        offset = fleet.offset()
        assert fleet.stack(values)["changed"] is False
        assert fleet.writes(offset) == []
    through(fleet, proxy, {}, state="absent")
    proxy.choose = lambda method, where, query: None
    assert fleet.get("DaemonSet") == []
    assert [node["metadata"].get("annotations", {}).get("gpufleet.io/managed-labels") for node in nodes(fleet)] == [
        None,
        None,
    ]
    return sum(proxy.injected.values()) - before


def nodes(fleet: Fleet) -> list[dict[str, object]]:
    found: list[dict[str, object]] = fleet.get("Node")
    return found


@pytest.mark.long
def test_a_whole_life_is_survived_among_faults_of_every_kind(
    facts: Fleet, proxy: FaultProxy, survived: Callable[[str, int], None]
) -> None:
    met = soak(facts, proxy, 0.2, 1, ({}, CHANGED))
    survived("API faults in a life of the stack", met)
    assert met >= 25
    assert set(proxy.injected) == set(PASSING)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
def test_a_whole_life_is_survived_among_many_more_faults(
    seed: int, facts: Fleet, proxy: FaultProxy, survived: Callable[[str, int], None]
) -> None:
    met = soak(facts, proxy, 0.25, seed, ({}, {}, CHANGED, CHANGED, {}))
    survived("API faults in a life of the stack", met)
    assert met >= 60


@pytest.mark.parametrize("kind", [kind for kind in PASSING if kind not in ("gone", "stale", "409")])
def test_three_faults_of_a_kind_in_a_row_are_survived(
    kind: str, facts: Fleet, proxy: FaultProxy, survived: Callable[[str, int], None]
) -> None:
    connection = Connection.open({"kubeconfig": str(proxy.kubeconfig), "request_timeout": 5})
    assert connection.get(path("Namespace"), {"limit": 5})["items"]
    proxy.choose = First(kind, 3)
    assert connection.get(path("Namespace"), {"limit": 5})["items"]
    survived("API faults at one request", sum(proxy.injected.values()))
    assert proxy.injected == {kind: 3} if kind != "slow" else {kind: 1}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("gone", "stale", "409", "slow")])
def test_a_fault_that_stays_ends_with_one_sentence_when_the_deadline_passes(
    kind: str, facts: Fleet, proxy: FaultProxy
) -> None:
    connection = Connection.open({"kubeconfig": str(proxy.kubeconfig), "request_timeout": 0.4})
    assert connection.get(path("Namespace"))["items"]
    proxy.choose = First(kind, 1000)
    began = time.monotonic()
    with pytest.raises(KubeError) as caught:
        connection.get(path("Namespace"), deadline=Deadline(1.5))
    assert time.monotonic() - began < 10
    text = str(caught.value)
    assert "/api/v1/namespaces" in text
    assert "\n" not in text
    assert proxy.injected[kind] >= 1


@pytest.mark.parametrize("kind", ["hang", "drip", "429", "503", "dropped"])
def test_nothing_hangs_without_a_deadline(
    kind: str, facts: Fleet, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_connection, "PATIENCE", 1.5)
    connection = Connection.open({"kubeconfig": str(proxy.kubeconfig), "request_timeout": 0.3})
    assert connection.get(path("Namespace"))["items"]
    proxy.choose = First(kind, 1000)
    began = time.monotonic()
    with pytest.raises(KubeError):
        connection.get(path("Namespace"))
    assert time.monotonic() - began < 10
    assert proxy.injected[kind] >= 1
