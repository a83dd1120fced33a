# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs beside each other and one after the other: the lease, the records, and nodes that join (S42, S54, S62)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Connection
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._lease import NAME, Held, Lease, runs_of
from ansible_collections.gpufleet.nvidia.tests.integration.fleets import Fleet
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator import fleet as simulated

HOLD = """
import sys, time
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Connection
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._lease import Lease
lease = Lease(Connection.open({"kubeconfig": sys.argv[1]}), sys.argv[2], 0, print)
lease.take()
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def running(facts: Fleet) -> Fleet:
    """A fleet whose stack is up."""
    result = facts.stack({})
    assert not result["failed"], result["msg"]
    return facts


@pytest.fixture
def other(running: Fleet) -> Iterator[Lease]:
    """Another run's lease, not taken yet."""
    connection = Connection.open({"kubeconfig": str(running.practice.cluster.kubeconfig())})
    lease = Lease(connection, running.namespace, 0, lambda _line: None)
    yield lease
    lease.release({"what": "other"})


def lease(fleet: Fleet) -> Any:
    return fleet.get("Lease", NAME)


def change(fleet: Fleet, value: str, **params: Any) -> dict[str, Any]:
    """A run with one small change."""
    return fleet.stack({"dcgmExporter": {"env": [{"name": "MARK", "value": value}]}}, **params)


@pytest.mark.rows("S62", "S42")
def test_a_run_that_writes_leaves_a_record_and_one_that_does_not_writes_nothing(running: Fleet) -> None:
    changed = change(running, "record")
    assert not changed["failed"], changed["msg"]
    offset = running.offset()
    again = change(running, "record")
    assert (again["changed"], running.writes(offset)) == (False, [])
    [last, *_older] = runs_of(lease(running))
    assert last["by"] == "practice-admin"
    assert last["policy"] == changed["found"]["policy_hash"]
    assert last["changed"] == ["update DaemonSet gpu-operator/nvidia-dcgm-exporter"]
    assert (last["changes"], last["ended"]) == (1, "done")
    assert lease(running)["spec"]["holderIdentity"] == ""
    info = running.run("gpu_cluster_info", show_table=True)
    assert info["found"]["runs"][0] == last
    assert any("by practice-admin: stack done, 1 changes" in line for line in running.progress)


@pytest.mark.rows("S62")
def test_a_run_that_fails_leaves_a_record_with_the_reason(running: Fleet) -> None:
    running.control(nodes={"*": {"crash": {"nvidia-dcgm-exporter": "out of memory"}}})
    failed = change(running, "failing", stage_timeout=8)
    assert failed["failed"]
    [last, *_older] = runs_of(lease(running))
    assert last["ended"].startswith("failed: ")
    assert "dcgm-exporter" in last["ended"]


def waits(running: Fleet, other: Lease) -> bool:
    return any(f"another run works on this cluster: {other.identity}" in line for line in running.progress)


@pytest.mark.rows("S42", "P073")
def test_a_run_waits_for_another_and_then_looks_anew(running: Fleet, other: Lease) -> None:
    assert other.take() is False
    released: list[float] = []

    def release() -> None:
        """As soon as the run says that it waits; a minute at most."""
        end = time.monotonic() + 60
        while not waits(running, other) and time.monotonic() < end:
            time.sleep(0.1)
        released.append(time.monotonic())
        other.release({"what": "other"})

    running.progress = []
    thread = threading.Thread(target=release)
    thread.start()
    result = change(running, "waits")
    ended = time.monotonic()
    thread.join()
    assert not result["failed"], result["msg"]
    assert ended >= released[0]
    assert waits(running, other)


@pytest.mark.long
@pytest.mark.rows("S42", "S40")
def test_a_removal_that_waited_takes_what_the_other_run_made_as_well(running: Fleet, other: Lease) -> None:
    other.take()
    made = {"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "rules": []}
    made["metadata"] = {"name": "made-meanwhile", "labels": {"app.kubernetes.io/managed-by": "gpufleet"}}

    def end() -> None:
        running.kubectl("create", "-f", "-", user="admin", text=json.dumps(made))
        other.release({"what": "other"})

    threading.Timer(3.0, end).start()
    removed = running.run("cluster_policy", state="absent")
    assert not removed["failed"], removed["msg"]
    assert running.get("ClusterRole", "made-meanwhile", "") is None


@pytest.mark.rows("S42", "P073")
def test_a_run_that_may_not_wait_changes_nothing_and_names_the_other(running: Fleet, other: Lease) -> None:
    other.take()
    offset = running.offset()
    refused = change(running, "refused", lock_wait=0)
    assert refused["failed"]
    assert other.identity in refused["msg"]
    assert "0 of 1 changes were made" in refused["msg"]
    skipped = change(running, "refused", lock_wait=0, if_locked="skip")
    assert (skipped["failed"], skipped["changed"]) == (False, False)
    assert [finding["id"] for finding in skipped["findings"]] == ["locked"]
    assert running.writes(offset) == []
    assert change(running, "refused", lock_wait=0, check=True)["changed"]


@pytest.mark.rows("S42", "P073")
def test_the_lease_of_a_run_that_was_killed_on_this_machine_is_free_at_once(running: Fleet) -> None:
    config = str(running.practice.cluster.kubeconfig())
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, config, running.namespace], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        refused = change(running, "killed", lock_wait=0)
        assert refused["failed"]
        assert f":{holder.pid}:" in refused["msg"]
        holder.kill()
    result = change(running, "killed", lock_wait=0)
    assert not result["failed"], result["msg"]
    [mine, killed, *_older] = runs_of(lease(running))
    assert (mine["ended"], killed["ended"]) == ("done", "killed")
    assert f":{holder.pid}:" in killed["from"]


@pytest.mark.rows("S42", "P073")
def test_the_lease_of_a_holder_elsewhere_is_free_when_it_is_no_longer_renewed(running: Fleet, other: Lease) -> None:
    other.take()
    live = lease(running)
    live["metadata"]["annotations"]["gpufleet.io/process"] = "another-machine/1/1/1"
    live["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    running.kubectl("replace", "-f", "-", user="admin", text=json.dumps(live))
    assert not change(running, "stale", lock_wait=0)["failed"]


@pytest.mark.rows("S42")
def test_two_runs_that_take_the_lease_at_once_do_not_both_get_it(running: Fleet) -> None:
    config = {"kubeconfig": str(running.practice.cluster.kubeconfig())}
    leases = [Lease(Connection.open(config), running.namespace, 0, lambda _line: None) for _number in range(6)]
    outcome: list[str] = []

    def attempt(one: Lease) -> None:
        try:
            one.take()
            outcome.append("taken")
        except Held:
            outcome.append("held")

    threads = [threading.Thread(target=attempt, args=[one]) for one in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in leases:
        one.release({"what": "race"})
    assert sorted(outcome) == ["held"] * 5 + ["taken"]


@pytest.mark.long
def test_removal_takes_the_lease_with_it_where_the_namespace_stays(facts: Fleet) -> None:
    facts.own_namespace()
    try:
        assert not facts.stack({}, wait=False)["failed"]
        assert lease(facts)
        assert not facts.run("cluster_policy", state="absent")["failed"]
        assert lease(facts) is None
    finally:
        facts.kubectl("delete", "namespace", facts.namespace, user="admin")


@pytest.mark.rows("S54")
def test_a_node_that_joins_is_served_while_a_run_watches(facts: Fleet) -> None:
    facts.empty()
    place, spec = 1, simulated.load(str(facts.practice.fleet))[1]
    facts.kubectl("delete", "node", spec.name, user="admin")
    assert not facts.stack({})["failed"]
    results: list[dict[str, Any]] = []
    watcher = threading.Thread(target=lambda: results.append(facts.stack({}, watch=25)))
    watcher.start()
    time.sleep(3)
    connection = Connection.open({"kubeconfig": str(facts.practice.cluster.kubeconfig("simulator"))})
    connection.request("POST", "/api/v1/nodes", body=simulated.node_object(spec, place))
    served = False
    while not served and watcher.is_alive():
        live = facts.get("Node", spec.name)
        if int(live["status"].get("allocatable", {}).get("nvidia.com/gpu", 0)):
            served = True
        time.sleep(0.2)
    watcher.join()
    assert served, facts.progress
    [result] = results
    assert not result["failed"], result["msg"]
    assert any(spec.name in line and "running again" in line for line in facts.progress)


def test_a_run_whose_lease_was_taken_away_does_not_give_away_what_is_anothers(running: Fleet, other: Lease) -> None:
    other.take()
    running.kubectl("-n", running.namespace, "delete", "lease", NAME, user="admin")
    result = change(running, "lost", lock_wait=0)
    assert not result["failed"], result["msg"]
    other.release({"what": "lost"})
    assert "lost" not in [run.get("what") for run in runs_of(lease(running))]
