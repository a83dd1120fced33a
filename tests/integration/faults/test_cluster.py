# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that the API server itself produces: pod security, quota, webhooks, labels, NFD. None is simulated."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.faults.sentences import CLUSTER

APPLY = ("apply", "--server-side", "--force-conflicts", "--field-manager=somebody", "-f", "-")
OPERAND_PODS = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["nvidia-dcgm-exporter"]}]}


@pytest.fixture
def facts(fleets: Callable[[str], Any]) -> Any:
    return fleets("facts")


@contextlib.contextmanager
def there(fleet: Any, made: dict[str, Any]) -> Iterator[None]:
    """An object of somebody else, for as long as a test needs it."""
    fleet.kubectl(*APPLY, user="admin", text=json.dumps(made))
    meta = made["metadata"]
    where = ["-n", meta["namespace"]] if "namespace" in meta else []
    try:
        yield
    finally:
        fleet.kubectl("delete", made["kind"].lower(), *where, meta["name"], user="admin")


def _without_namespace(fleet: Any) -> None:
    fleet.empty()
    for _try in range(150):
        if fleet.get("Namespace", "gpu-operator", namespace="") is None:
            return
        time.sleep(0.2)
    raise AssertionError("the namespace does not go")


def _namespace(**labels: str) -> dict[str, Any]:
    meta = {"name": "gpu-operator", "labels": {key.replace("_", "-"): value for key, value in labels.items()}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def _quota(**hard: str) -> dict[str, Any]:
    meta = {"name": "small", "namespace": "gpu-operator"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}


def _dead_webhook(resource: str, group: str = "") -> dict[str, Any]:
    """A webhook whose service does not answer, for what is made in the operands' namespace."""
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
    webhook = {
        "name": "gate.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/gate"},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gpu-operator"}},
    }
    if resource == "pods":
        webhook["objectSelector"] = OPERAND_PODS
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gate"},
        "webhooks": [webhook],
    }


@pytest.mark.long
@pytest.mark.rows("S37", "P131", "L24", "S01")
def test_pod_security_that_refuses_pods_is_named_and_what_is_told_mends_it(facts: Any) -> None:
    _without_namespace(facts)
    facts.kubectl(*APPLY, user="admin", text=json.dumps(_namespace()))
    facts.kubectl("label", "ns", "gpu-operator", "pod-security.kubernetes.io/enforce=baseline", user="admin")
    try:
        failed = facts.stack({}, timeout=60)
        assert failed["failed"]
        assert CLUSTER["pod security"].said_by(failed["msg"]), failed["msg"]
        assert "nodes gpu-0000 and gpu-0001: NFD failed" in failed["msg"]
        privileged = "pod-security.kubernetes.io/enforce=privileged"
        facts.kubectl("label", "ns", "gpu-operator", "--overwrite", privileged, user="admin")
        mended = _up(facts)
        assert all(node["ready"] for node in mended["found"]["nodes"])
    finally:
        facts.empty()
        facts.kubectl("delete", "ns", "gpu-operator", user="admin")


@pytest.mark.long
@pytest.mark.rows("S28", "S38", "L24")
def test_a_webhook_that_does_not_answer_keeps_one_operand_away_and_is_named(facts: Any) -> None:
    _up(facts)
    facts.kubectl("delete", "ds", "-n", "gpu-operator", "nvidia-dcgm-exporter", user="admin")
    with there(facts, _dead_webhook("pods")):
        failed = facts.stack({}, timeout=60)
        seen = facts.run("gpu_cluster_info")
    assert failed["failed"]
    assert CLUSTER["webhook"].said_by(failed["msg"]), failed["msg"]
    assert failed["msg"].startswith("nodes gpu-0000 and gpu-0001: DCGM exporter failed")
    assert CLUSTER["webhook"].said_by(seen["found"]["nodes"][0]["trouble"])
    _up(facts)


@pytest.mark.long
@pytest.mark.rows("S38")
def test_a_webhook_that_refuses_the_objects_themselves_ends_the_run_soon(facts: Any) -> None:
    _without_namespace(facts)
    with there(facts, _dead_webhook("daemonsets", "apps")):
        began = time.monotonic()
        failed = facts.stack({})
        assert time.monotonic() - began < 60
    assert failed["failed"]
    assert "failed calling webhook" in failed["msg"]
    assert "DaemonSet gpu-operator/" in failed["msg"]
    assert failed["remaining"]
    _up(facts)


@pytest.mark.long
@pytest.mark.rows("S59", "L24", "S01")
def test_a_quota_that_refuses_pods_is_named(facts: Any) -> None:
    _up(facts)
    facts.kubectl("delete", "ds", "-n", "gpu-operator", "nvidia-dcgm-exporter", user="admin")
    with there(facts, _quota(pods="1")):
        failed = facts.stack({}, timeout=60)
    assert failed["failed"]
    assert CLUSTER["quota"].said_by(failed["msg"]), failed["msg"]
    _up(facts)


@pytest.mark.long
@pytest.mark.rows("S59", "S01")
def test_a_quota_that_leaves_no_room_for_nfd_is_named(facts: Any) -> None:
    _without_namespace(facts)
    facts.kubectl(*APPLY, user="admin", text=json.dumps(_namespace()))
    try:
        with there(facts, _quota(pods="0")):
            failed = facts.stack({}, timeout=90)
        assert failed["failed"]
        assert CLUSTER["quota"].said_by(failed["msg"]), failed["msg"]
    finally:
        facts.empty()
        facts.kubectl("delete", "ns", "gpu-operator", user="admin")


@pytest.mark.long
@pytest.mark.rows("S25", "S28")
def test_a_cluster_without_nfd_says_that_no_gpu_is_known(facts: Any) -> None:
    _without_namespace(facts)
    seen = facts.run("gpu_cluster_info")
    assert any(CLUSTER["NFD absent"].said_by(f["detail"]) for f in seen["findings"]), seen["findings"]
    done = facts.stack({"nfd": {"enabled": False}}, check=True)
    assert any(f["id"] == "nfd.absent" and f["severity"] == "warning" for f in done["findings"])


@pytest.mark.long
@pytest.mark.rows("S25", "S28", "P114")
def test_a_second_nfd_is_named_with_the_first(facts: Any) -> None:
    _up(facts)
    labels = {"app.kubernetes.io/name": "node-feature-discovery", "role": "master"}
    containers = [{"name": "m", "image": "registry.example.com/nfd:1", "command": ["nfd-master"]}]
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "nfd-master", "namespace": "default", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }
    with there(facts, theirs):
        seen = facts.run("gpu_cluster_info")
        done = facts.stack({"dcgmExporter": {"enabled": False}}, check=True)
        assert not [f for f in facts.stack({})["findings"] if f["id"] == "nfd.two"], (
            "a run with nothing to do asks more"
        )
    for result in (seen, done):
        (found,) = [f for f in result["findings"] if f["id"] == "nfd.two"]
        assert "Deployment default/nfd-master" in found["detail"]
        assert "Deployment gpu-operator/gpu-operator-node-feature-discovery-master" in found["detail"]
    assert not [f for f in facts.run("gpu_cluster_info")["findings"] if f["id"] == "nfd.two"]


@pytest.mark.long
@pytest.mark.rows("S01", "NL-01", "P063")
def test_labels_that_somebody_took_away_are_told_and_put_back(facts: Any) -> None:
    _up(facts)
    node = facts.get("Node", "gpu-0001", namespace="")
    keys = [key for key in node["metadata"]["labels"] if key.startswith("nvidia.com/gpu.deploy.")]
    facts.kubectl("label", "node", "gpu-0001", *(f"{key}-" for key in keys), user="admin")
    row = {n["name"]: n for n in facts.run("gpu_cluster_info")["found"]["nodes"]}["gpu-0001"]
    assert not row["ready"]
    assert CLUSTER["labels missing"].said_by(row["trouble"]), row["trouble"]
    done = _up(facts)
    assert all(n["ready"] for n in done["found"]["nodes"])


@pytest.mark.long
@pytest.mark.rows("S26", "P129")
def test_a_node_that_nfd_does_not_reach_is_told_with_its_taint(facts: Any) -> None:
    _without_namespace(facts)
    facts.kubectl("taint", "node", "gpu-0001", "dedicated=batch:NoSchedule", user="admin")
    try:
        done = _up(facts)
        (found,) = [f for f in done["findings"] if f["id"] == "nfd.unseen"]
        assert found["target"] == "node gpu-0001"
        assert CLUSTER["NFD kept away"].said_by(found["detail"])
    finally:
        facts.kubectl("taint", "node", "gpu-0001", "dedicated-", user="admin")
    _up(facts)


def _up(fleet: Any) -> dict[str, Any]:
    done: dict[str, Any] = fleet.stack({})
    assert not done["failed"], done["msg"]
    return done
