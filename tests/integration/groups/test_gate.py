# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that joins takes no user's pod until it is validated, and one that refuses pods takes no more of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.faults.sentences import CLUSTER

GOOD, BAD = "gpu-0000", "gpu-0001"
GATE = "gpufleet.io/not-ready"
GROUPS = {"node_groups": [{"name": "all", "ready_gate": True}], "max_failed_nodes": 1}
REFUSED = {
    "phase": "Failed",
    "reason": "UnexpectedAdmissionError",
    "message": "Allocate failed due to rpc error: code = Unknown desc = no GPU of this id, which is unexpected",
}


@pytest.fixture
def fleet(facts: Any) -> Iterator[Any]:
    facts.empty()
    yield facts
    facts.kubectl("delete", "pods", "--all", "-n", "default", "--force", "--grace-period=0", user="admin")


def gate(fleet: Any, name: str) -> str | None:
    """The value of the taint of a node."""
    taints = fleet.get("Node", name, namespace="")["spec"].get("taints") or []
    return next((one.get("value", "") for one in taints if one["key"] == GATE), None)


def user_pod(fleet: Any, name: str, **spec: Any) -> None:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    whole = {"containers": [{"name": "c", "image": "example.com/c:1", "resources": limits}], **spec}
    meta = {"name": name, "namespace": "default"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": whole}
    fleet.kubectl("apply", "-f", "-", user="admin", text=json.dumps(body))


@pytest.mark.long
@pytest.mark.rows("P128", "P102", "S26", "S54")
def test_nodes_are_kept_free_until_they_are_proved_and_while_they_refuse_pods(fleet: Any) -> None:
    # One node is given the taint at join, as by the kubelet's --register-with-taints; the other one has none.
    fleet.kubectl("taint", "node", BAD, f"{GATE}=waiting:NoSchedule", user="admin")
    fleet.control(nodes={BAD: {"crash": {"cuda-validation": "cudaErrorUnknown"}}})
    user_pod(fleet, "early", nodeSelector={"kubernetes.io/hostname": BAD})
    first = fleet.stack({}, **GROUPS)
    assert not first["failed"], first["msg"]
    (put,) = [a for a in first["plan"] if a["id"] == f"Node/{GOOD}:taint {GATE}:NoSchedule"]
    assert put["reason"] == "pods stay away until the validator has passed the node"
    # The plugin offers GPUs on both, and only one is validated.
    assert (gate(fleet, GOOD), gate(fleet, BAD)) == (None, "waiting")
    assert fleet.get("Node", BAD, namespace="")["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    told = fleet.run("gpu_explain", pod="default/early")["found"]["sentence"]
    assert f"can run on {BAD} only, and it is kept free until the GPU stack is proved there" in told
    fleet.control()
    done = fleet.stack({}, **GROUPS)
    assert not done["failed"], done["msg"]
    assert (gate(fleet, GOOD), gate(fleet, BAD)) == (None, None)
    fleet.kubectl("wait", "pod/early", "-n", "default", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")
    offset = fleet.offset()
    again = fleet.stack({}, **GROUPS)
    assert (again["changed"], fleet.writes(offset)) == (False, [])
    # Groups may be the business of gpu_nodes: a run that knows none takes nothing of theirs away.
    plain = fleet.stack({}, max_failed_nodes=1)
    assert (plain["changed"], fleet.writes(offset)) == (False, [])

    time.sleep(1.1)  # times of the API have whole seconds
    for number in range(3):
        user_pod(fleet, f"refused-{number}", nodeName=GOOD)
        fleet.kubectl("wait", f"pod/refused-{number}", "-n", "default", "--for=jsonpath={.status.phase}=Running")
        status = json.dumps({"status": REFUSED})
        fleet.kubectl("patch", "pod", f"refused-{number}", "-n", "default", "--subresource=status", "-p", status,
                      user="admin")  # fmt: skip
    seen = fleet.run("gpu_cluster_info")
    (finding,) = [f for f in seen["findings"] if f["id"] == "node.refuses-pods"]
    assert finding["target"] == f"node {GOOD}"
    assert CLUSTER["refused pods"].said_by(f"{finding['detail']}. {finding['remedy']}"), finding
    fenced = fleet.run("gpu_nodes", node_groups=GROUPS["node_groups"])
    assert not fenced["failed"], fenced["msg"]
    assert [f["target"] for f in fenced["findings"]] == [f"node {GOOD}"]
    assert (gate(fleet, GOOD), gate(fleet, BAD)) == ("refuses-pods", None)
    selector = ("-l", "app=nvidia-device-plugin-daemonset", f"--field-selector=spec.nodeName={GOOD}")
    fleet.kubectl("delete", "pods", "-n", fleet.namespace, *selector, user="admin")
    time.sleep(1.1)
    back = fleet.stack({}, **GROUPS)
    assert not back["failed"], back["msg"]
    assert gate(fleet, GOOD) is None
