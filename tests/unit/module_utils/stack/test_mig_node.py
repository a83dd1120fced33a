# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mig_node on a node of an API server that is a dictionary: whose node it is, and who is in the way."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._mig_pause import CLIENT, MEMORY, PAUSED
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._mig_node import MIG_MANAGER, _Run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._request import Request
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, Sent, connect

STATE = "nvidia.com/mig.config.state"


class Cluster:
    """One node and its pods."""

    def __init__(self, *pods: dict[str, Any], notes: dict[str, str] | None = None) -> None:
        labels = {STATE: "success", CLIENT: "true"}
        meta = {"name": "gpu-07", "resourceVersion": "1", "labels": labels, "annotations": notes or {}}
        self.node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}}
        self.pods = list(pods)
        self.writes: list[Any] = []

    def answer(self, sent: Sent) -> FakeReply:
        if sent.method == "GET":
            listed = {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": self.pods}
            return FakeReply(200, listed if "/pods" in sent.url else self.node)
        self.writes.append(sent.body)
        return FakeReply(200, self.node)

    def run(self, state: str, check: bool = False, **more: Any) -> _Run:
        connection = connect(self.answer)[0]
        request = Request(connection, "gpu-operator", check, lambda line: None, stage_timeout=1.0)
        given = {"node": "gpu-07", "state": state, "outcome": None, "problem": None, "user_pods": "refuse"}
        return _Run(Journal(request, exclusive=False), {**given, "user_pods_timeout": 1, **more})


def pod(name: str, owned: str = "", selector: dict[str, str] | None = None, **meta: Any) -> dict[str, Any]:
    owners = [{"kind": owned, "controller": True}] if owned else []
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeName": "gpu-07", "containers": [container], "nodeSelector": selector or {}}
    whole = {"namespace": "team", "name": name, "ownerReferences": owners, **meta}
    return {"metadata": whole, "spec": spec, "status": {"phase": "Running"}}


MANAGER = pod("m", "DaemonSet", namespace="gpu-operator", labels={"app": MIG_MANAGER})


@pytest.mark.rows("MH-03")
@pytest.mark.parametrize("outcome", ["success", "failed"])
def test_a_node_of_the_mig_manager_that_nobody_paused_keeps_its_labels(outcome: str) -> None:
    cluster = Cluster(MANAGER)
    cluster.node["metadata"]["labels"][STATE] = "pending"
    told = cluster.run("resumed", outcome=outcome, problem="no route").release()
    assert (cluster.writes, told.plan, told.changed) == ([], [], False)
    assert [(one.id, one.severity) for one in told.findings] == [("mig.manager", "info")]


@pytest.mark.rows("MH-03")
def test_a_paused_node_is_given_back_and_one_without_the_manager_is_told_of_a_failure() -> None:
    paused = Cluster(MANAGER, notes={MEMORY: '{"cordoned": false, "labels": {}}'})
    paused.run("resumed", outcome="failed", problem="no").release()
    assert paused.writes[0]["metadata"]["annotations"][MEMORY] is None
    free = Cluster()
    free.run("resumed", outcome="failed", problem="no").release()
    assert free.writes[0]["metadata"]["labels"] == {STATE: "failed"}


@pytest.mark.rows("MH-02")
@pytest.mark.parametrize("user_pods", ["refuse", "wait", "evict"])
def test_pods_of_a_daemonset_with_the_clients_selector_are_no_users(user_pods: str) -> None:
    cluster = Cluster(pod("agent", "DaemonSet", {CLIENT: "true"}))
    told = cluster.run("paused", check=True, user_pods=user_pods).hold()
    assert told.found["user_pods"] == []
    assert [one.verb for one in told.plan] == ["label", "label", "cordon"]


@pytest.mark.rows("MH-02")
def test_they_are_waited_for_and_neither_evicted_nor_forgotten() -> None:
    cluster = Cluster(pod("agent", "DaemonSet", {CLIENT: "true"}))
    cluster.node["metadata"]["labels"][CLIENT] = PAUSED
    run = cluster.run("paused", user_pods="evict")
    with pytest.raises(Failure, match="1 GPU clients did not go away: team/agent"):
        run._until_free()
    assert cluster.writes == []


@pytest.mark.rows("MH-02")
@pytest.mark.parametrize(("owned", "told"), [("", "nobody makes these pods anew"), ("DaemonSet", "makes these pods")])
def test_pods_that_no_label_takes_away_are_refused(owned: str, told: str) -> None:
    # The selector alone takes no pod away: only the controller of DaemonSets looks at it again.
    selector = {CLIENT: "true"} if not owned else {}
    with pytest.raises(Failure, match=told):
        Cluster(pod("agent", owned, selector)).run("paused", user_pods="evict").hold()


@pytest.mark.rows("MH-02")
def test_a_failure_says_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    run = cluster.run("paused")

    def late() -> None:
        run.journal.done.append("evict team/train")
        raise run._late("1 GPU clients did not go away", ["team/agent"])

    monkeypatch.setattr(run, "_until_free", late)
    with pytest.raises(Failure) as failed:
        run.hold()
    assert "Deploy labels and cordon of the node are as they were" in failed.value.msg
    assert f"{STATE} says failed" in failed.value.msg
    assert "evicted pods stay evicted: team/train" in failed.value.msg
