# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The testbed's control plane is a real one: controllers act, the scheduler binds, the audit log tells users apart."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed import audit
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import COMPONENTS, Cluster, ClusterError, choose_ports

QUOTA_FOR_CRITICAL_PODS = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AdmissionConfiguration",
    "plugins": [
        {
            "name": "ResourceQuota",
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "ResourceQuotaConfiguration",
                "limitedResources": [
                    {
                        "resource": "pods",
                        "matchScopes": [
                            {
                                "scopeName": "PriorityClass",
                                "operator": "In",
                                "values": ["system-node-critical", "system-cluster-critical"],
                            }
                        ],
                    }
                ],
            },
        }
    ],
}


def kubectl(
    cluster: Cluster, *words: str, user: str = "admin", given: object = None
) -> subprocess.CompletedProcess[str]:
    """Run kubectl as ``user``; ``given`` is sent to it as JSON."""
    return subprocess.run(
        [cluster.kubectl, "--kubeconfig", cluster.kubeconfig(user), *words],
        input=json.dumps(given), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def create(cluster: Cluster, *objects: dict[str, Any], user: str = "admin") -> None:
    for made in objects:
        done = kubectl(cluster, "create", "-f", "-", user=user, given=made)
        assert done.returncode == 0, done.stderr


def items(cluster: Cluster, path: str) -> list[dict[str, Any]]:
    status, body = cluster.request(path)
    assert status == 200, body
    found: list[dict[str, Any]] = json.loads(body)["items"]
    return found


def eventually(reached: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def node(name: str) -> dict[str, Any]:
    room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name},
        },
        "status": {"capacity": room, "allocatable": room},
    }


def pod_template(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "registry.example/plain:1"}]
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers, **spec}}


def daemon_set(name: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": pod_template(name, **spec)},
    }


def pods(cluster: Cluster, app: str) -> list[dict[str, Any]]:
    return items(cluster, f"/api/v1/pods?labelSelector=app%3D{app}")


@pytest.fixture
def two_nodes(cluster: Cluster) -> Iterator[None]:
    create(cluster, node("plain-1"), node("plain-2"), user="simulator")
    yield
    kubectl(cluster, "delete", "nodes", "plain-1", "plain-2", user="simulator")


def ready_nodes(cluster: Cluster) -> set[str]:
    return {
        found["metadata"]["name"]
        for found in items(cluster, "/api/v1/nodes")
        for condition in found["status"].get("conditions", ())
        if condition["type"] == "Ready" and condition["status"] == "True"
    }


def test_server_reports_the_version_it_was_built_from(cluster: Cluster) -> None:
    version = json.loads(cluster.request("/version")[1])

    assert (version["gitVersion"], version["major"], version["minor"]) == ("v1.36.3", "1", "36")


@pytest.mark.usefixtures("two_nodes")
def test_daemon_set_gets_a_bound_pod_on_each_node_and_kwok_leaves_its_status_alone(cluster: Cluster) -> None:
    assert eventually(lambda: ready_nodes(cluster) >= {"plain-1", "plain-2"})
    create(cluster, daemon_set("watcher"))

    assert eventually(lambda: len([pod for pod in pods(cluster, "watcher") if pod["spec"].get("nodeName")]) == 2)
    assert {pod["spec"]["nodeName"] for pod in pods(cluster, "watcher")} == {"plain-1", "plain-2"}
    # A plain pod that came later runs: kwok had its turn, and passed by the DaemonSet's.
    create(
        cluster,
        {"apiVersion": "v1", "kind": "Pod", **pod_template("later")}
        | {"metadata": {"name": "later", "labels": {"app": "later"}}},
    )
    assert eventually(lambda: [pod["status"]["phase"] for pod in pods(cluster, "later")] == ["Running"])
    assert {pod["status"]["phase"] for pod in pods(cluster, "watcher")} == {"Pending"}
    assert not audit_of(cluster, "kwok", "pods", "watcher")

    kubectl(cluster, "delete", "pod/later", "daemonset/watcher", "--wait=false")
    assert eventually(lambda: not pods(cluster, "later"))


def audit_of(cluster: Cluster, user: str, resource: str, name: str) -> list[audit.Request]:
    return [
        request
        for request in audit.writes(cluster.audit_log, user)
        if request.resource.startswith(resource) and request.name.startswith(name)
    ]


@pytest.mark.usefixtures("two_nodes")
@pytest.mark.parametrize("namespace", ["gpu-operator", "node-feature-discovery", "team-gpu"])
def test_kwok_leaves_pods_in_operand_namespaces_alone(cluster: Cluster, namespace: str) -> None:
    assert eventually(lambda: ready_nodes(cluster) >= {"plain-1"})
    create(cluster, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    assert eventually(lambda: bool(items(cluster, f"/api/v1/namespaces/{namespace}/serviceaccounts")))
    for where in (namespace, "default"):
        metadata = {"name": f"probe-{namespace}", "namespace": where, "labels": {"app": f"probe-{namespace}"}}
        create(cluster, {"apiVersion": "v1", "kind": "Pod", **pod_template("probe"), "metadata": metadata})

    def phases() -> dict[str, str]:
        return {pod["metadata"]["namespace"]: pod["status"]["phase"] for pod in pods(cluster, f"probe-{namespace}")}

    assert eventually(lambda: phases()["default"] == "Running")
    assert phases()[namespace] == "Pending"
    kubectl(cluster, "delete", "pod", f"probe-{namespace}", "-n", "default", "--wait=false")
    kubectl(cluster, "delete", "pod", f"probe-{namespace}", "-n", namespace, "--force", "--grace-period=0")
    kubectl(cluster, "delete", "namespace", namespace, "--timeout=60s")


@pytest.mark.usefixtures("two_nodes")
def test_pod_of_a_job_ends_when_it_says_that_it_does(cluster: Cluster) -> None:
    template = pod_template("short", restartPolicy="Never")
    template["metadata"]["annotations"] = {"kwok.x-k8s.io/succeeds": "true"}
    create(cluster, {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "short", "namespace": "default"},
        "spec": {"template": template},
    })  # fmt: skip

    waited = kubectl(cluster, "wait", "--for=condition=complete", "job/short", "--timeout=20s")
    assert waited.returncode == 0, waited.stderr
    kubectl(cluster, "delete", "job/short")


def test_audit_log_tells_users_and_writes_apart(cluster: Cluster) -> None:
    before = audit.offset(cluster.audit_log)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "note", "namespace": "default"}}
    create(cluster, config_map)
    tried = kubectl(cluster, "apply", "--server-side", "--dry-run=server", "-f", "-", given=config_map)
    assert tried.returncode == 0, tried.stderr
    asked = kubectl(cluster, "auth", "can-i", "delete", "pods")
    assert asked.stdout.strip() == "yes"
    token = kubectl(cluster, "create", "token", "default")
    assert token.returncode == 0, token.stderr
    kubectl(cluster, "delete", "configmap", "note", user="simulator")

    mine = audit.writes(cluster.audit_log, "practice-admin", before)
    assert [str(write) for write in mine] == ["create configmaps default/note (201)"]
    theirs = audit.writes(cluster.audit_log, "simulator", before)
    assert [str(write) for write in theirs] == ["delete configmaps default/note (200)"]
    verbs = {
        (request.verb, request.resource, request.dry_run)
        for request in audit.requests(cluster.audit_log, "practice-admin", before)
    }
    assert {
        ("patch", "configmaps", True),
        ("create", "selfsubjectaccessreviews", False),
        ("create", "serviceaccounts/token", False),
    } <= verbs


def test_controllers_act_under_names_of_their_own(cluster: Cluster) -> None:
    create(cluster, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "named"}})

    writer = "system:serviceaccount:kube-system:service-account-controller"
    assert eventually(lambda: any(write.namespace == "named" for write in audit.writes(cluster.audit_log, writer)))


def test_owned_object_goes_with_its_owner(cluster: Cluster) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": "default"}}
    create(cluster, owner)
    uid = json.loads(cluster.request("/api/v1/namespaces/default/configmaps/owner")[1])["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    metadata = {"name": "owned", "namespace": "default", "ownerReferences": [reference]}
    create(cluster, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    kubectl(cluster, "delete", "configmap", "owner")

    assert eventually(lambda: cluster.request("/api/v1/namespaces/default/configmaps/owned")[0] == 404)


@pytest.mark.long
def test_second_cluster_beside_it_is_a_cluster_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    with Cluster(tmp_path / "other") as other:
        assert not set(other.ports().values()) & set(cluster.ports().values())
        create(other, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-here"}})
        assert cluster.request("/api/v1/namespaces/only-here")[0] == 404
        # A certificate of one opens nothing in the other.
        crossed = kubectl(other, "--server", cluster.url, "--insecure-skip-tls-verify", "get", "nodes")
        assert "must be logged in" in crossed.stderr or "Unauthorized" in crossed.stderr
        started = other.running()
        assert set(started) == set(COMPONENTS)

        other.up()
        assert other.running() == started, "up on a running cluster starts nothing"

        os.kill(started["kube-scheduler"], 9)
        assert eventually(lambda: not other.is_up())
        other.up()
        assert other.request("/api/v1/namespaces/only-here")[0] == 200, "data of the earlier start is used again"
        again = set(other.running().values())

        other.up(fresh=True)
        assert other.request("/api/v1/namespaces/only-here")[0] == 404
        assert not [pid for pid in again if alive(pid)]
        last = set(other.running().values())

    assert not [pid for pid in last if alive(pid)]
    left = {path.suffix for path in (tmp_path / "other").iterdir()}
    assert left == {".log"}
    assert cluster.is_up()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_down_does_not_touch_a_process_that_was_given_an_old_number(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as foreign:
        (tmp_path / "etcd.pid").write_text(f"{foreign.pid} 1\n")
        cluster.down()
        try:
            assert foreign.poll() is None
            assert not (tmp_path / "etcd.pid").exists()
        finally:
            foreign.kill()


def test_part_that_dies_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    wrong = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "NoSuchKind"}

    with pytest.raises(ClusterError, match=r"kube-apiserver ended.*NoSuchKind|(?s:kube-apiserver ended.*NoSuchKind)"):
        cluster.up(admission_config=wrong)

    assert cluster.running() == {}


def test_admission_configuration_restricts_critical_pods(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.up(admission_config=QUOTA_FOR_CRITICAL_PODS)
    try:
        pod = {"apiVersion": "v1", "kind": "Pod", **pod_template("critical", priorityClassName="system-node-critical")}
        refused = kubectl(cluster, "create", "-f", "-", given=pod | {"metadata": {"name": "critical"}})
        assert "insufficient quota to match these scopes" in refused.stderr
    finally:
        cluster.down()


def test_ports_are_given_once_and_kept_while_they_are_free() -> None:
    first = choose_ports(("one", "two"))
    second = choose_ports(("one", "two"))

    assert not set(first.values()) & set(second.values())
    assert choose_ports(("one", "two"), wanted=first) == first
