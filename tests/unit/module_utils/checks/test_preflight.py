# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each check says of a cluster that is written down here."""

from __future__ import annotations

import base64
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks import (
    _certificates,
    _discovery,
    _fits,
    _kernels,
    _machines,
    _quotas,
    _rights,
    _rivals,
    _runtimes,
    _security,
    _version,
    _webhooks,
    _workloads,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._preflight import SHOWN, table, worst
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._read import Reader, _feature
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._world import Workload, World
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._rights import Right, given_away
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import build
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Finding
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._facts import node_facts, with_nodes
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import FEATURE, cluster, policy_of
from ansible_collections.gpufleet.nvidia.tests.testbed.pki import Authority
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, Sent, connect


def live_node(name: str = "gpu-0", os: str = "ubuntu", version: str = "24.04", **more: Any) -> dict[str, Any]:
    labels = {
        f"{FEATURE}pci-10de.present": "true",
        f"{FEATURE}system-os_release.ID": os,
        f"{FEATURE}system-os_release.VERSION_ID": version,
        f"{FEATURE}kernel-version.full": more.pop("kernel", "6.8.0-60-generic"),
        **more.pop("labels", {}),
    }
    info = {"containerRuntimeVersion": more.pop("runtime", "containerd://2.2.3")}
    spec = {"taints": more.pop("taints", [])}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"nodeInfo": info}}


def world(values: Any = None, *nodes: dict[str, Any], **more: Any) -> World:
    policy, live = policy_of(values), list(nodes or (live_node(),))
    facts = with_nodes(cluster(), [node_facts({**n, "metadata": {"annotations": {}, **n["metadata"]}}) for n in live])
    made = World(policy, facts, nodes=live, wanted=build(policy, facts), **more)
    made.kubernetes = made.kubernetes or "v1.36.3"
    return made


def ids(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.id, finding.severity) for finding in findings]


@pytest.mark.rows("INS-11", "S30")
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.36.3", []),
        ("v1.32.0+rke2r1", []),
        ("v1.31.9", [("kubernetes-too-old", "error")]),
        ("v1.37.0-alpha.1", [("kubernetes-not-validated", "warning")]),
        ("", [("kubernetes-version-unknown", "warning")]),
    ],
)
def test_kubernetes_version_against_the_matrix(version: str, expected: list[tuple[str, str]]) -> None:
    made = world()
    made.kubernetes = version
    assert ids(_version.judge(made)) == expected


@pytest.mark.rows("S30", "S36")
@pytest.mark.parametrize(
    ("values", "labels", "expected", "row"),
    [
        ({}, {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, [], ""),
        ({}, {}, [], ""),
        (
            {"driver": {"version": "595.91.07"}},
            {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"},
            [("fit-gpu-too-old", "error")],
            "volta: kernel modules proprietary",
        ),
        (
            {"driver": {"version": "580.173.02", "kernelModuleType": "open"}},
            {"nvidia.com/gpu.family": "volta"},
            [("fit-flavour-does-not-fit", "error")],
            "volta: kernel modules proprietary",
        ),
        (
            {"driver": {"enabled": False}},
            {"nvidia.com/gpu.product": "NVIDIA-B200", "nvidia.com/cuda.driver-version.full": "570.86.15"},
            [("fit-end-of-life", "warning"), ("fit-gpu-too-new", "error")],
            "branch 570: production branch, until 2026-02",
        ),
        (
            {"toolkit": {"version": "v1.17.4-ubuntu20.04"}},
            {"nvidia.com/gpu.family": "ada-lovelace"},
            [("fit-insecure-version", "warning")],
            "CVE-2025-23266",
        ),
        (
            {"dcgmExporter": {"version": "3.3.9-3.6.1-ubuntu22.04"}},
            {},
            [("fit-dcgm-too-old", "warning")],
            "DCGM 3.3: CUDA 11, 12",
        ),
        ({"driver": {"version": "550.144.03"}}, {}, [], ""),  # its end of life is the policy's to tell
    ],
)
def test_versions_of_each_node_against_the_matrix(
    values: Any, labels: dict[str, str], expected: list[tuple[str, str]], row: str
) -> None:
    made = world(values, live_node("a", labels=labels))
    made.now = datetime(2026, 11, 27, tzinfo=timezone.utc).timestamp()
    found = _fits.judge(made)
    assert ids(found) == expected
    assert all(finding.detail.startswith("a: ") for finding in found)
    assert not found or row in found[0].remedy


@pytest.mark.rows("S36")
def test_nodes_with_the_same_trouble_are_told_together() -> None:
    volta = {"nvidia.com/gpu.family": "volta"}
    made = world(None, live_node("a", labels=volta), live_node("b", labels=volta), live_node("c"))
    (finding,) = _fits.judge(made)
    assert finding.detail.startswith("a, b: branch 595 no longer drives volta GPUs")


@pytest.mark.rows("S30", "S08")
def test_precompiled_drivers_name_the_image_of_each_kernel_and_the_systems_without_images() -> None:
    nodes = (live_node("a"), live_node("b", kernel="6.8.0-71-generic"), live_node("c", "rocky", "9.7", kernel="5.14.0"))
    found = _kernels.judge(world({"driver": {"usePrecompiled": True, "version": "595"}}, *nodes))
    assert ids(found) == [("precompiled-unpublished", "warning"), *[("precompiled-image", "info")] * 2]
    assert "nvcr.io/nvidia/driver:595-5.14.0-rocky9" in found[0].detail
    assert "driver:595-6.8.0-60-generic-ubuntu24.04" in found[1].detail
    assert "(b) needs" in found[2].detail
    several = _kernels.judge(world(None, *nodes))
    assert ids(several) == [("several-systems", "info")]
    assert "ubuntu24.04 (2)" in several[0].detail
    assert _kernels.judge(world({"driver": {"enabled": False}}, *nodes)) == []


@pytest.mark.rows("S30")
def test_runtimes_that_are_unknown_or_too_old_for_cdi() -> None:
    nodes = (live_node("a", runtime="containerd://1.7.2"), live_node("b", runtime="frakti://1.0"), live_node("c"))
    made = world(None, *nodes)
    assert ids(_runtimes.judge(made)) == [("runtime-unknown", "error"), ("runtime-old", "warning")]
    assert _runtimes.judge(world()) == []


@pytest.mark.rows("S30")
def test_gke_needs_a_quota_for_the_priority_class_before_there_is_a_namespace() -> None:
    on_gke = live_node(labels={"cloud.google.com/gke-nodepool": "gpu"})
    assert ids(_quotas.judge(world(None, on_gke))) == [("quota-gke", "error")]
    scope = {"operator": "In", "scopeName": "PriorityClass", "values": ["system-node-critical"]}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "1000"}, "scopeSelector": {"matchExpressions": [scope]}},
    }
    assert _quotas.judge(world({"extraObjects": [quota]}, on_gke)) == []
    small = {**quota, "spec": {**quota["spec"], "hard": {"pods": "3"}}}
    assert ids(_quotas.judge(world(None, quotas=[small]))) == [("quota-small", "warning")]
    scope["values"] = ["low"]
    assert _quotas.judge(world(None, quotas=[small])) == []


@pytest.mark.rows("P131", "STA-04")
def test_refusals_of_admission_are_told_once_for_all_daemonsets() -> None:
    text = 'pods "preflight-{}" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    said = {name: text.format(name) for name in ("a", "b")}
    space = {"metadata": {"name": "gpu-operator", "labels": {}}}
    found = _security.judge(world(live_namespace=space, admission=said))
    assert ids(found) == [("pods-refused", "error")]
    assert "pods of a, b" in found[0].detail
    assert _security.judge(world({"psa": {"enabled": True}}, live_namespace=space, admission=said)) == []
    quota = {"a": 'pods "a" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [x]}]'}
    assert _security.judge(world(live_namespace=space, admission=quota)) == []
    assert ids(_quotas.judge(world(live_namespace=space, admission=quota))) == [("quota-refuses", "error")]


@pytest.mark.rows("S30")
def test_no_nfd_at_all_and_none_wanted_leaves_no_gpu_known() -> None:
    blind = live_node()
    blind["metadata"]["labels"] = {}
    assert ids(_discovery.judge(world({"nfd": {"enabled": False}}, blind))) == [("nfd-absent", "error")]
    assert ids(_discovery.judge(world({"nfd": {"enabled": False}}))) == [("nfd-absent", "warning")]
    assert _discovery.judge(world()) == []


@pytest.mark.rows("S56")
@pytest.mark.parametrize(
    ("name", "image", "what"),
    [
        (
            "nvidia-gpu-device-plugin-small-cos",
            "gke.gcr.example.com/nvidia-gpu-device-plugin@sha256:1",
            "device plugin",
        ),
        ("nvidia-device-plugin-daemonset", "registry.example.com/k8s-device-plugin:v0.17.1", "device plugin"),
        ("nvidia-driver-installer", "gke.gcr.example.com/cos-nvidia-installer:fixed", "driver installer"),
        ("gpu-feature-discovery", "registry.example.com/gpu-feature-discovery:v0.8", "GPU feature discovery"),
        ("amd-device-plugin", "registry.example.com/rocm/k8s-amd-device-plugin", None),
    ],
)
def test_parts_of_the_stack_are_known_by_their_images(name: str, image: str, what: str | None) -> None:
    template = {"spec": {"containers": [{"name": "a", "image": image}]}}
    assert _rivals.what_is({"metadata": {"name": name}, "spec": {"template": template}}) == what


@pytest.mark.rows("P129")
def test_taints_that_operands_do_not_tolerate_are_named_with_their_nodes() -> None:
    dedicated = {"key": "dedicated", "value": "x", "effect": "NoExecute"}
    passing = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    found = _workloads.judge(world(None, live_node(taints=[dedicated, passing])))
    assert ids(found) == [("operands-untolerated", "warning")]
    assert "gpu-0 have the taint dedicated=x:NoExecute" in found[0].detail
    values = {"daemonsets": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}}
    assert _workloads.judge(world(values, live_node(taints=[dedicated]))) == []


@pytest.mark.rows("P128")
def test_the_taint_of_nodes_that_are_not_proved_yet_is_no_trouble_of_workloads() -> None:
    limits = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    train = Workload("Deployment", "ml", "train", limits, False)
    gate, other = {"key": "gpufleet.io/not-ready", "effect": "NoSchedule"}, {"key": "x", "effect": "NoSchedule"}

    def told(*taints: dict[str, str]) -> list[tuple[str, str]]:
        made = world(None, live_node(taints=list(taints)), workloads=[train])
        return ids([finding for finding in _workloads.judge(made) if finding.target == train.id])

    assert told(gate) == []
    assert told(gate, other) == [("workload-untolerated", "warning")]


@pytest.mark.rows("S13")
def test_refused_pods_are_found_by_the_events_of_what_should_have_made_them() -> None:
    message = (
        'Error creating: Pod "train-x7" is invalid: spec.containers[0].resources.limits: Required value: '
        "Limit must be set for non overcommitable resources (nvidia.com/gpu)"
    )
    about = {"kind": "ReplicaSet", "namespace": "ml", "name": "train-5d"}
    events = [{"message": message, "involvedObject": about}, {"message": "exceeded quota", "involvedObject": about}]
    found = _workloads.judge(world(refusals=events))
    assert ids(found) == [("workload-refused", "warning")]
    assert "train-x7" not in found[0].detail
    assert "limits" in found[0].remedy


@pytest.mark.rows("S38")
def test_a_bundle_whose_certificates_have_all_expired_is_an_error(tmp_path: Path) -> None:
    bundle = base64.b64encode(Authority(tmp_path / "pki").certificate.read_bytes()).decode()
    ends = _certificates.ends(bundle)[0]
    assert datetime.fromtimestamp(ends, timezone.utc) > datetime.now(timezone.utc)
    service = {"namespace": "default", "name": "check"}
    rule = {"apiGroups": [""], "operations": ["*"], "resources": ["pods"], "scope": "Namespaced"}
    hook = {"name": "x", "clientConfig": {"service": service, "caBundle": bundle}, "rules": [rule]}
    config = {"kind": "MutatingWebhookConfiguration", "metadata": {"name": "m"}, "webhooks": [hook]}
    known = {("default", "check"): 1}
    assert _webhooks.judge(world(webhooks=[config], services=known, now=ends - 1)) == []
    assert "expired" in _webhooks.judge(world(webhooks=[config], services=known, now=ends + 1))[0].detail
    hook["clientConfig"]["caBundle"] = "bm8="
    assert "holds no certificate" in _webhooks.judge(world(webhooks=[config], services=known))[0].detail
    with pytest.raises(_certificates.BadCertificate):
        _certificates.ends(base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----").decode())


@pytest.mark.rows("S38")
@pytest.mark.parametrize(
    ("change", "covered"),
    [
        ({}, ["pods"]),
        ({"namespaceSelector": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}, []),
        ({"objectSelector": {"matchLabels": {"app": "nvidia-device-plugin-daemonset"}}}, ["pods"]),
        ({"objectSelector": {"matchLabels": {"app": "web"}}}, []),
    ],
)
def test_a_webhook_counts_only_where_it_covers_what_a_run_makes(change: dict[str, Any], covered: list[str]) -> None:
    hook = {"rules": [{"apiGroups": ["*"], "operations": ["CREATE"], "resources": ["pods"]}], **change}
    made = world()
    assert _webhooks.covers(hook, _webhooks._targets(made), _webhooks._namespace_labels(made)) == covered


@pytest.mark.rows("S38")
def test_two_cert_managers_are_named() -> None:
    def manager(space: str) -> dict[str, Any]:
        containers = [{"image": "quay.example.com/jetstack/cert-manager-controller:v1.20"}]
        spec = {"replicas": 1, "template": {"spec": {"containers": containers}}}
        return {"metadata": {"namespace": space, "name": "cert-manager"}, "spec": spec}

    assert ids(_webhooks.judge(world(deployments=[manager("a"), manager("b")]))) == [("cert-manager-twice", "warning")]
    assert _webhooks.judge(world(deployments=[manager("a")])) == []


def test_rights_that_are_asked_follow_from_kinds_and_roles() -> None:
    asked = _rights.of_a_run(["Namespace", "DaemonSet"], "gpu-operator")
    assert Right("create", "apps", "daemonsets", "gpu-operator") in asked
    assert Right("patch", "", "nodes") in asked
    assert Right("list", "nfd.k8s-sigs.io", "nodefeatures") in asked
    given = given_away(world().wanted)
    assert Right("list", "apps", "daemonsets", "gpu-operator", given=True) in given
    attributes = Right("patch", "", "nodes/status").attributes()
    assert attributes == {"verb": "patch", "group": "", "resource": "nodes", "subresource": "status"}


@pytest.mark.rows("S30")
def test_each_kind_of_role_can_be_given_by_who_may_escalate_and_bind_that_kind() -> None:
    roles = [made for made in world().wanted if made["kind"] in ("ClusterRole", "Role")]

    def lacks(*may: tuple[str, str]) -> set[str]:
        """Namespaces of the rights to give that are missing; ``may``: verbs that the account has on kinds of roles."""

        def answer(sent: Sent) -> FakeReply:
            asked = sent.body["spec"]["resourceAttributes"]
            return FakeReply(201, {"status": {"allowed": (asked["verb"], asked["resource"]) in may}})

        connection, _transport, _pauses = connect(answer)
        reader = Reader(SimpleNamespace(connection=connection, namespace="gpu-operator"), policy_of(None))
        return {right.namespace for right in reader._denied(roles) if right.given}

    wide = [(verb, "clusterroles") for verb in ("escalate", "bind")]
    here = [(verb, "roles") for verb in ("escalate", "bind")]
    assert lacks(*wide, *here) == set()
    assert lacks(*wide) == lacks(*wide, here[0]) == lacks(*wide, here[1]) == {"gpu-operator"}
    assert lacks(*here) == {""}


@pytest.mark.rows("S30", "P128")
def test_only_a_gate_looks_for_pods_in_all_namespaces() -> None:
    connection, _transport, _pauses = connect(lambda _sent: FakeReply(201, {"status": {"allowed": False}}))
    reader = Reader(SimpleNamespace(connection=connection, namespace="gpu-operator"), policy_of(None))
    pods = Right("list", "", "pods")
    assert (pods in reader._denied([]), pods in reader._denied([], gated=True)) == (False, True)


def test_the_table_has_a_line_for_each_check_and_the_worst_first() -> None:
    many = [Finding("a", "info", f"note {number}") for number in range(SHOWN)]
    bad = Finding("b", "error", "no room", "Node x", remedy="Make room.")
    lines = table([("first", []), ("second", [*many, bad])])
    assert lines[1].split() == ["first", "ok"]
    assert lines[2] == "second  error   Node x: no room. Make room."
    assert lines[-2:] == ["second  info    ... and 1 more", f"1 error, {SHOWN} notes"]
    assert worst([*many, bad]) == "error"
    assert table([("first", [])])[-1] == "nothing stands in the way"


@pytest.mark.rows("P111", "S30")
def test_nodes_with_gpus_of_several_models_are_told_before_the_first_run() -> None:
    def feature(node: str, *devices: str) -> dict[str, Any]:
        elements = [{"attributes": {"vendor": "10de", "class": "0302", "device": device}} for device in devices]
        meta = {"name": node, "namespace": "nfd", "labels": {_machines.NODE: node}}
        features = {"instances": {"pci.device": {"elements": elements}}}
        return _feature({"metadata": meta, "spec": {"features": features}})

    features = [feature("gpu-0", "1eb8", "1eb8"), feature("gpu-1", "1eb8", "2236"), feature("gone", "1eb8", "2236")]
    (finding,) = _machines.judge(world({}, live_node(), live_node("gpu-1"), features=features))
    assert (finding.id, finding.severity, finding.target) == ("nodes.mixed-models", "warning", "node gpu-1")
