# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The taint of nodes on which the stack is not proved yet, and of those that refuse pods with GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._gate import (
    IDENTITY,
    KEEP,
    MANY,
    OPEN,
    PLUGIN,
    REFUSED,
    REFUSING,
    STARTING,
    VALIDATOR,
    Proof,
    Refusals,
    gate_of,
    prove,
    refusal_findings,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._groups import Wanted, assign, plan_group
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._removal import plan_removal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._taints import taint, tolerates
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _nfd, build
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import NodeFacts
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import cluster, policy_of
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.nodes.test_groups import groups

REFUSES = Proof((), {"n": Refusals(MANY, "no device")})
GATED = Wanted(("g",), {}, gate=KEEP)
SAID = "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0"


def at(value: str = STARTING) -> dict[str, str]:
    key, effect = IDENTITY.rsplit(":", 1)
    return {"key": key, "effect": effect, "value": value}


def planned(node: NodeFacts, gate: str | None, taints: list[dict[str, str]], wanted: Wanted = GATED) -> Any:
    """The taints after a plan, and the node with its memory."""
    change = plan_group(node, Wanted(wanted.groups, wanted.labels, wanted.taint, gate=gate), taints)
    left = taints if change.taints is None else [dict(one) for one in change.taints]
    return left, NodeFacts("n", *change.applied(node))


@pytest.mark.rows("P128", "P102")
@pytest.mark.parametrize(
    ("there", "offers", "proof", "gate"),
    [
        (False, False, Proof(), STARTING),
        (True, False, Proof(), KEEP),
        (True, True, Proof(), KEEP),
        (False, True, Proof(), KEEP),  # in service: not taken out of it
        (True, True, Proof(["n"]), OPEN),
        (False, False, Proof(["n"]), OPEN),
        (True, True, Proof(["other"]), KEEP),
        (False, True, REFUSES, REFUSING),
        (True, True, Proof(["n"], REFUSES.refusing), REFUSING),
    ],
)
def test_the_taint_stays_until_the_validator_has_passed_the_node(
    there: bool, offers: bool, proof: Proof, gate: str
) -> None:
    assert gate_of("n", there, offers, proof) == gate


@pytest.mark.rows("P128")
def test_it_is_put_beside_others_kept_and_taken_away_whoever_put_it() -> None:
    node, other = NodeFacts("n", {}), {"key": "dedicated", "effect": "NoSchedule"}
    put, now = planned(node, STARTING, [other])
    assert put == [other, at()]
    assert planned(now, KEEP, put) == (put, now)
    refusing, then = planned(now, REFUSING, put)
    assert refusing == [other, at(REFUSING)]
    assert planned(then, OPEN, refusing) == ([other], node)
    at_join = [at("waiting"), other]
    assert planned(node, STARTING, [other])[0] == put
    assert planned(node, KEEP, at_join) == (at_join, node)
    assert planned(node, OPEN, at_join) == ([other], node)
    assert planned(node, OPEN, [other]) == ([other], node)


@pytest.mark.rows("P128", "S26", "S40")
def test_without_its_group_and_by_a_removal_it_is_given_back() -> None:
    put, now = planned(NodeFacts("n", {}), STARTING, [], Wanted(("g",), {}, taint("true")))
    assert put == [at(), taint("true")]
    assert planned(now, None, put) == ([], NodeFacts("n", {}))
    gone = plan_removal(now, taints=put)
    assert list(gone.taints or ()) == []
    assert gone.applied(now) == ({}, {})
    foreign = [at("waiting")]
    assert planned(NodeFacts("n", {}), None, foreign)[0] == foreign, "no group asks for it, and it is not ours"


@pytest.mark.rows("P128")
def test_only_nodes_of_groups_that_ask_for_it_have_it() -> None:
    chosen = groups({"name": "g", "selector": "pool=a", "ready_gate": True}, {"name": "h", "selector": "pool"})
    nodes = [NodeFacts("a", {"pool": "a"}), NodeFacts("b", {"pool": "b"})]
    wanted, findings = assign(chosen, nodes)
    assert ({name: one.gate for name, one in wanted.items()}, findings) == ({"a": KEEP, "b": None}, [])


@pytest.mark.rows("P128", "P129")
def test_operands_and_the_worker_of_nfd_tolerate_it_where_a_group_asks_for_it() -> None:
    policy = policy_of(None)
    for gated in (False, True):
        facts = cluster(gated=gated)
        pods = [o for o in [*build(policy, facts), *_nfd.build(policy, facts)] if o["kind"] == "DaemonSet"]
        assert len(pods) > 5
        assert {tolerates(o["spec"]["template"]["spec"], at()) for o in pods} == {gated}


def pod(number: int, node: str = "n", **status: Any) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    meta = {"name": f"p{number}", "namespace": "team", "creationTimestamp": f"2026-03-01T10:00:{number:02}Z"}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": limits}]}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Failed", "reason": REFUSED, "message": SAID, **status}}


def operand(app: str, node: str = "n", ready: bool = True, started: str = "") -> dict[str, Any]:
    running = [{"name": "nvidia-device-plugin", "state": {"running": {"startedAt": started}}}] if started else []
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"conditions": conditions, "containerStatuses": running, "startTime": "2026-03-01T09:00:00Z"}
    return {"metadata": {"labels": {"app": app}}, "spec": {"nodeName": node}, "status": status}


@pytest.mark.rows("P102")
def test_many_pods_that_a_kubelet_refused_are_told_with_node_and_cause() -> None:
    many = [pod(number) for number in range(MANY)]
    other = [pod(9, "m"), pod(8, "m"), pod(7, "m", reason="Evicted"), pod(6, "m", message="x")]
    del other[1]["spec"]["containers"][0]["resources"]
    found = prove([operand(PLUGIN), operand(PLUGIN, "m")], [*many, *other])
    assert dict(found.refusing) == {"n": Refusals(MANY, SAID)}
    (finding,) = refusal_findings(found.refusing)
    assert (finding.id, finding.target, finding.severity) == ("node.refuses-pods", "node n", "warning")
    assert finding.detail.startswith(f"its kubelet refused {MANY} pods with GPUs since the device plugin started (All")
    assert "Requested: 1, Available: 0" in finding.detail
    assert "Delete the pod of the device plugin" in finding.remedy
    assert prove([operand(PLUGIN)], many[1:]).refusing == {}


@pytest.mark.rows("P102")
def test_refusals_from_before_the_plugin_started_count_no_more() -> None:
    many = [pod(number) for number in range(10, 10 + MANY)]
    assert prove([operand(PLUGIN, started="2026-03-01T10:00:09Z")], many).refusing
    assert not prove([operand(PLUGIN, started="2026-03-01T10:00:11Z")], many).refusing
    assert prove([], many).refusing, "without a plugin nothing is better"


@pytest.mark.rows("P128")
def test_a_validator_that_is_not_ready_proves_nothing() -> None:
    pods = [operand(VALIDATOR), operand(VALIDATOR, "m", ready=False), operand(PLUGIN, "o")]
    assert list(prove(pods, []).validated) == ["n"]
