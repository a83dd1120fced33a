# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight on a real API server: each thing that stands in the way is provoked, and nothing is written."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import People, deployment, made, pod_template

GPU = {"nvidia.com/gpu": "1"}


def findings(fleet: Any, values: Any = None, **params: Any) -> dict[str, dict[str, Any]]:
    """Findings by id; the run has written nothing."""
    offset = fleet.offset()
    result = fleet.run("cluster_preflight", policy=values, **params)
    assert fleet.writes(offset) == []
    assert result["failed"] == any(f["severity"] == "error" for f in result["findings"]), result.get("msg")
    return {finding["id"]: finding for finding in result["findings"]}


@pytest.fixture(scope="module")
def emptied() -> list[bool]:
    return []


@pytest.fixture
def bare(facts, emptied):
    """A fleet on which nothing of this collection runs."""
    if not emptied:
        facts.empty()
        emptied.append(True)
    return facts


@pytest.mark.rows("S30", "L55", "INS-11")
def test_a_cluster_that_is_ready_passes_with_one_table(bare):
    result = bare.run("cluster_preflight", show_table=True)
    assert not result["failed"], result["msg"]
    results = {check["name"]: check["result"] for check in result["found"]["checks"]}
    assert set(results.values()) <= {"ok", "info"}, result["findings"]
    assert results["Kubernetes"] == results["rights"] == results["webhooks"] == "ok"
    assert result["found"]["table"][0].startswith("CHECK")
    assert [line for line in bare.progress if line in result["found"]["table"]] == result["found"]["table"]


@pytest.mark.rows("P131", "STA-04")
def test_a_namespace_that_refuses_privileged_pods_is_an_error_with_its_remedy(bare, people: People):
    people.make(made("Namespace", "gpu-operator"))
    assert "pods-refused" not in findings(bare)
    level = {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}
    people.make(made("Namespace", "gpu-operator", meta=level))
    found = findings(bare)
    assert "enforces pod security 'baseline'" in found["pod-security"]["detail"]
    assert "Label the namespace" in found["pod-security"]["remedy"], "it is not ours: psa.enabled would not change it"


@pytest.mark.rows("S30")
def test_quotas_of_the_namespace_speak_before_the_run_does(bare, people: People):
    people.make(made("Namespace", "gpu-operator"))
    people.make(made("ResourceQuota", "small", "gpu-operator", spec={"hard": {"limits.cpu": "1"}}))
    bare.kubectl("wait", "resourcequota/small", "-n", "gpu-operator", "--for=jsonpath={.status.hard}", "--timeout=30s")
    _nodes_with_gpus(bare)
    found = findings(bare)
    assert "must specify limits.cpu" in found["quota-refuses"]["detail"]
    assert found["quota-refuses"]["severity"] == "error"


def _nodes_with_gpus(fleet: Any) -> None:
    """As NFD labels them: operands have DaemonSets for nodes that are known."""
    label = "feature.node.kubernetes.io/pci-10de.present=true"
    system = ["feature.node.kubernetes.io/system-os_release.ID=ubuntu"]
    system += ["feature.node.kubernetes.io/system-os_release.VERSION_ID=24.04"]
    fleet.kubectl("label", "node", "gpu-0000", "gpu-0001", "--overwrite", label, *system)


@pytest.mark.rows("S38")
def test_webhooks_that_are_dead_or_expired_are_found_before_they_fail_the_run(bare, people: People):
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["daemonsets"]}
    service = {"namespace": "default", "name": "policy-check", "path": "/"}
    hook = {
        "name": "check.example.com",
        "clientConfig": {"service": service},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gpu-operator"}},
    }
    config = made("ValidatingWebhookConfiguration", "checks", api="admissionregistration.k8s.io/v1", webhooks=[hook])
    people.make(config)
    assert "policy-check, which does not exist" in findings(bare)["webhook-dead"]["detail"]
    people.make(made("Service", "policy-check", "default", spec={"ports": [{"port": 443}]}))
    assert "no ready endpoints" in findings(bare)["webhook-dead"]["detail"]
    ready = {"addresses": ["192.0.2.7"], "conditions": {"ready": True}}
    label = {"labels": {"kubernetes.io/service-name": "policy-check"}}
    endpoints = {"addressType": "IPv4", "endpoints": [ready], "ports": [{"port": 443}]}
    people.make(made("EndpointSlice", "policy-check", "default", "discovery.k8s.io/v1", meta=label, **endpoints))
    assert "no caBundle" in findings(bare)["webhook-dead"]["detail"]
    hook["failurePolicy"] = "Ignore"
    people.make(config)
    assert "webhook-dead" not in findings(bare)


@pytest.mark.rows("S56")
def test_another_device_plugin_is_an_error_until_ours_is_off(bare, people: People):
    spec = {
        "selector": {"matchLabels": {"app": "a"}},
        "template": pod_template(spec={"nodeSelector": {"kubernetes.io/hostname": "gpu-0000"}}),
    }
    spec["template"]["spec"]["containers"][0]["image"] = "registry.example.com/nvidia/k8s-device-plugin:v0.20.0"
    plugin = made("DaemonSet", "nvidia-device-plugin-daemonset", "kube-system", "apps/v1", spec=spec)
    people.make(plugin)
    where = ("-n", "kube-system", "--for=jsonpath={.status.desiredNumberScheduled}=1", "--timeout=30s")
    bare.kubectl("wait", "daemonset/nvidia-device-plugin-daemonset", *where)
    found = findings(bare)["rival"]
    assert found["target"] == "DaemonSet kube-system/nvidia-device-plugin-daemonset"
    assert "devicePlugin.enabled: false" in found["remedy"]
    off = findings(bare, {"devicePlugin": {"enabled": False}})
    assert "rival" not in off
    assert off["rival-idle"]["severity"] == "info"


@pytest.mark.rows("S56", "P114")
def test_the_operators_controller_and_two_nfds_are_errors(bare, people: People):
    for space in ("default", "kube-public"):
        nfd = deployment(f"nfd-master-{space}", space)
        nfd["spec"]["template"]["spec"]["containers"][0]["command"] = ["nfd-master"]
        people.make(nfd)
    operator = deployment("gpu-operator", "default")
    operator["metadata"]["labels"] = {"app": "gpu-operator"}
    people.make(operator)
    found = findings(bare)
    assert "2 of them run" in found["nfd-twice"]["detail"]
    assert found["operator-runs"]["target"] == "Deployment default/gpu-operator"


@pytest.mark.rows("S13", "S26", "P106")
def test_workloads_without_limits_or_tolerations_are_named(bare, people: People):
    _nodes_with_gpus(bare)
    bare.kubectl("taint", "node", "gpu-0000", "gpu-0001", "nvidia.com/gpu=present:NoSchedule", "--overwrite")
    try:
        people.make(deployment("train", limits=GPU), deployment("blind", spec={"runtimeClassName": "nvidia"}))
        people.make(deployment("mixed", limits={"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-2g.20gb": 1}))
        result = bare.run("cluster_preflight")
    finally:
        bare.kubectl("taint", "node", "gpu-0000", "gpu-0001", "nvidia.com/gpu-")
    said = {(finding["id"], finding["target"]) for finding in result["findings"]}
    assert ("workload-untolerated", "Deployment default/train") in said
    assert ("workload-no-limits", "Deployment default/blind") in said
    assert ("workload-two-mig", "Deployment default/mixed") in said
    assert not result["failed"], "warnings stop nothing"


@pytest.mark.rows("S30")
def test_an_account_with_few_rights_gets_the_list_of_what_it_lacks(bare, people: People):
    role = made("ClusterRole", "reader", api="rbac.authorization.k8s.io/v1")
    role["rules"] = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["*"]},
    ]
    binding = made("ClusterRoleBinding", "reader", api="rbac.authorization.k8s.io/v1")
    binding["roleRef"] = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    binding["subjects"] = [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]
    people.make(made("ServiceAccount", "reader", "default"), role, binding)
    token = bare.kubectl("create", "token", "reader", "-n", "default").strip()
    options = {
        "host": bare.practice.cluster.url,
        "api_key": token,
        "ca_cert": str(bare.practice.cluster.pki / "ca.crt"),
    }
    result = bare.run("cluster_preflight", kubeconfig=None, **options)
    assert result["failed"]
    lacks = {f["target"]: f["detail"] for f in result["findings"] if f["id"] == "rights-missing"}
    assert "may not create, patch, delete namespaces" in lacks["namespaces in the whole cluster"]
    assert "may not watch, patch nodes" in lacks["nodes in the whole cluster"]
    assert not any("daemonsets" in target for target in lacks)
    assert any(f["id"] == "rights-to-give" for f in result["findings"])


@pytest.mark.rows("S30", "P117")
def test_leftovers_of_nfd_and_what_it_saw_on_the_machines(facts, people: People, emptied):
    facts.stack({})
    emptied.clear()
    try:
        pci = {"pci.device": {"elements": [{"attributes": {"class": "0680", "vendor": "10de"}}]}}
        spec = {"features": {"flags": {"kernel.loadedmodule": {"elements": {"nouveau": {}}}}, "instances": pci}}
        label = {"labels": {"nfd.node.kubernetes.io/node-name": "gpu-0000"}}
        api = "nfd.k8s-sigs.io/v1alpha1"
        people.make(made("NodeFeature", "gpu-0000", "default", api, meta=label, spec=spec))
        people.make(made("NodeFeature", "gone", "default", api, spec={}))
        found = findings(facts, {"driver": {"enabled": False}})
    finally:
        people.take_away()
    assert "gone" in found["nodefeature-orphan"]["detail"]
    assert "kubectl -n default delete nodefeature gone" in found["nodefeature-orphan"]["remedy"]
    assert (
        "gpu-0000 have NodeFeatures in several namespaces (default, gpu-operator)"
        in found["nodefeature-twice"]["detail"]
    )
    assert found["nouveau-loaded"]["severity"] == "error"
    assert "nvidia-fabricmanager" in found["fabric-manager"]["remedy"]
