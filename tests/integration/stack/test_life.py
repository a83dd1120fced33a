# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of a stack over time: changes, drift, faults, neighbours, removal."""

from __future__ import annotations

import json
import re
import time

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.tests.testbed import audit

APPLY = ("apply", "--server-side", "--force-conflicts", "--field-manager=somebody", "-f", "-")


def _up(fleet, values=None, **params):
    done = fleet.stack(values or {}, **params)
    assert not done["failed"], done["msg"]
    return done


def _daemonset(fleet, name):
    return fleet.get("DaemonSet", name)


def _generation(fleet):
    return {d["metadata"]["name"]: d["metadata"]["generation"] for d in fleet.get("DaemonSet")}


def _targets(done):
    return {action["target"] for action in done["plan"]}


@pytest.mark.rows("S02", "L21", "COM-05", "COM-09", "P136")
def test_one_changed_value_writes_only_the_objects_that_it_affects(facts):
    _up(facts)
    before, generations = facts.offset(), _generation(facts)
    done = _up(facts, {"dcgmExporter": {"env": [{"name": "DCGM_EXPORTER_INTERVAL", "value": "15000"}]}})
    assert _targets(done) == {"DaemonSet gpu-operator/nvidia-dcgm-exporter"}
    # Beside the lease, which a run that writes takes and gives back.
    assert [w for w in facts.writes(before) if "leases" not in w] == [
        "patch daemonsets gpu-operator/nvidia-dcgm-exporter (200)"
    ]
    changed = {name for name, number in _generation(facts).items() if generations[name] != number}
    assert changed == {"nvidia-dcgm-exporter"}


@pytest.mark.rows("L22", "INS-09", "DP-01")
def test_a_changed_config_map_rolls_the_pods_that_read_it_and_no_others(facts):
    values = {
        "devicePlugin": {
            "config": {"create": True, "name": "plugin", "default": "any", "data": {"any": "version: v1\n"}}
        }
    }
    _up(facts, values)
    before = _generation(facts)
    values["devicePlugin"]["config"]["data"]["any"] = "version: v1\nflags: {migStrategy: none}\n"
    _up(facts, values)
    changed = {name for name, number in _generation(facts).items() if before[name] != number}
    assert changed == {
        "nvidia-device-plugin-daemonset",
        "gpu-feature-discovery",
        "nvidia-device-plugin-mps-control-daemon",
    }


@pytest.mark.rows("DP-01", "DP-02", "S14")
def test_a_config_map_of_the_users_own_rolls_the_plugin_when_it_changes(facts):
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mine", "namespace": "gpu-operator"},
        "data": {"any": "version: v1\n"},
    }
    _up(facts)
    facts.kubectl(*APPLY, user="admin", text=json.dumps(config))
    values = {"devicePlugin": {"config": {"name": "mine", "default": "any"}}}
    _up(facts, values)
    assert facts.stack(values)["plan"] == []
    shared = {"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}
    config["data"]["any"] = yaml.safe_dump(shared)
    facts.kubectl(*APPLY, user="admin", text=json.dumps(config))
    done = _up(facts, values)
    assert "DaemonSet gpu-operator/nvidia-device-plugin-daemonset" in _targets(done)
    offered = {node["name"]: node["allocatable"] for node in done["found"]["nodes"]}
    hardware = {"gpu-0000": 8, "gpu-0001": 8}
    assert all(offers["nvidia.com/gpu"] % 4 == 0 for offers in offered.values()), (offered, hardware)
    facts.kubectl("delete", "configmap", "-n", "gpu-operator", "mine", user="admin")


@pytest.mark.rows("L20")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/spec/template/spec/containers/0/image", "registry.example.com/other:1"),
        ("/spec/template/spec/containers/0/env/-", {"name": "ADDED", "value": "1"}),
        ("/metadata/labels/added", "1"),
        ("/spec/template/spec/nodeSelector/added", "1"),
    ],
)
def test_what_somebody_edits_by_hand_is_put_back(facts, path, value):
    _up(facts)
    before = _daemonset(facts, "nvidia-dcgm-exporter")
    patch = json.dumps([{"op": "add" if path.endswith(("-", "added")) else "replace", "path": path, "value": value}])
    facts.kubectl(
        "patch", "daemonset", "-n", "gpu-operator", "nvidia-dcgm-exporter", "--type=json", "-p", patch, user="admin"
    )
    checked = facts.stack(check=True)
    assert checked["changed"]
    assert _targets(checked) == {"DaemonSet gpu-operator/nvidia-dcgm-exporter"}
    _up(facts)
    after = _daemonset(facts, "nvidia-dcgm-exporter")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]


@pytest.mark.rows("L20")
def test_with_drift_report_added_fields_stay_and_are_reported(facts):
    _up(facts)
    facts.kubectl(
        "label", "daemonset", "-n", "gpu-operator", "nvidia-dcgm-exporter", "team=observability", user="admin"
    )
    offset = facts.offset()
    done = _up(facts, drift="report")
    assert facts.writes(offset) == []
    assert any("team" in finding["path"] for finding in done["findings"])


OPERANDS = {
    "driver": ("nvidia-driver-daemonset", {"driver": {"version": "999.1.1"}}),
    "container toolkit": ("nvidia-container-toolkit-daemonset", {"toolkit": {"version": "v99.0.0"}}),
    # Every operand waits in init containers of the validator's image: the first of them is named. Two are replaced at
    # once, the others behind a toolkit that is ready.
    "validator": ("nvidia-container-toolkit-daemonset", {"validator": {"version": "v99.0.0"}}),
    "device plugin": ("nvidia-device-plugin-daemonset", {"devicePlugin": {"version": "v99.0.0"}}),
    "DCGM": ("nvidia-dcgm", {"dcgm": {"enabled": True, "version": "99.0.0"}}),
    "DCGM exporter": ("nvidia-dcgm-exporter", {"dcgmExporter": {"version": "99.0.0"}}),
    "GPU feature discovery": ("gpu-feature-discovery", {"gfd": {"version": "v99.0.0"}}),
    "MIG manager": ("nvidia-mig-manager", {"migManager": {"version": "v99.0.0"}}),
    "node status exporter": (
        "nvidia-node-status-exporter",
        {"nodeStatusExporter": {"enabled": True, "version": "v99.0.0"}},
    ),
    "NFD": ("gpu-operator-node-feature-discovery", {"node-feature-discovery": {"image": {"tag": "v99.0.0"}}}),
}


QUICK_OPERANDS = ("driver", "device plugin", "NFD")


@pytest.mark.rows("S01")
@pytest.mark.parametrize(
    "stage", [name if name in QUICK_OPERANDS else pytest.param(name, marks=pytest.mark.long) for name in OPERANDS]
)
def test_an_image_that_the_registry_lacks_ends_the_run_by_name_and_mended_it_converges(facts, stage):
    workload, values = OPERANDS[stage]
    if stage == "driver":
        facts.empty()  # a driver that runs is not replaced at once
    version = "99"
    began = time.monotonic()
    failed = facts.stack(values)
    assert failed["failed"], f"{stage} came up with an image that does not exist"
    assert time.monotonic() - began < 90
    message = failed["msg"].split(". ")[0]
    # Other operands wait for the driver and toolkit with the validator's image.
    others = {"container toolkit": ["toolkit"], "validator": ["toolkit", "device plugin", "MIG manager"]}
    layers = others.get(stage, [stage])
    named = any(f"{layer} failed: image" in message for layer in layers)
    assert named or "stage NFD cannot become ready" in message
    assert "cannot be pulled" in message
    assert version in message
    assert re.search(r"\(\S+: .*not found\)|container \S+: ", message)
    assert "node" in message
    if stage == "device plugin":
        assert re.match(r"node gpu-000\d:", message), "a template that does not come up is not brought to more nodes"
        assert any(finding["id"] == "rollout.held" for finding in failed["findings"])
    assert workload in {d["metadata"]["name"] for d in facts.get("DaemonSet")} | {"gpu-operator-node-feature-discovery"}
    mended = json.loads(json.dumps(values).replace('"version"', '"unused"').replace('"tag"', '"unused"'))
    for block in mended.values():
        for inner in (block, *(v for v in block.values() if isinstance(v, dict))):
            inner.pop("unused", None)
    _up(facts, mended)
    assert facts.stack(mended)["plan"] == []


@pytest.mark.long
@pytest.mark.rows("S09", "DRV-14")
def test_without_a_driver_anywhere_the_nodes_are_named(fleets):
    fleet = fleets("default")
    fleet.empty()
    failed = fleet.stack({"driver": {"enabled": False}}, stage_timeout=20)
    assert failed["failed"]
    first = failed["msg"].split("Install one there")[0]
    assert all(name in first for name in ("gpu-h100", "gpu-a100-mig", "gpu-t4"))
    assert "gpu-cloud" not in first


NFD_KINDS = "deployment,daemonset,configmap,serviceaccount,role,rolebinding"
NFD_CLUSTER_KINDS = "clusterrole,clusterrolebinding,customresourcedefinition"


def _nfd_names(fleet):
    """What NFD consists of, as ``kubectl`` names it, with the namespace where there is one."""
    for where, kinds in (("-n gpu-operator", NFD_KINDS), ("", NFD_CLUSTER_KINDS)):
        for name in fleet.kubectl("get", kinds, *where.split(), "-o", "name").split():
            if "nfd" in name or "node-feature-discovery" in name:
                yield [*where.split(), name]


@pytest.mark.rows("S25", "INS-05")
def test_an_nfd_that_runs_already_is_used_and_left_alone(facts):
    """Ours stands in for somebody else's: the same objects without our label."""
    _up(facts)
    for name in _nfd_names(facts):
        facts.kubectl("label", *name, "app.kubernetes.io/managed-by=helm", "--overwrite", user="admin")
    try:
        done = _up(facts)
        assert not [target for target in _targets(done) if "node-feature-discovery" in target], _targets(done)
        assert facts.get("DaemonSet", "gpu-operator-node-feature-discovery-worker") is not None
    finally:
        for name in _nfd_names(facts):
            facts.kubectl("label", *name, "app.kubernetes.io/managed-by=gpufleet", "--overwrite", user="admin")


@pytest.mark.parametrize("sign", ["deployment", "lease"])
def test_a_cluster_that_the_operator_runs_is_refused_before_anything_is_written(facts, sign):
    if sign == "deployment":
        labels = {"app": "gpu-operator"}
        made = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "gpu-operator", "namespace": "default", "labels": labels},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "gpu-operator", "image": "registry.example.com/operator:1"}]},
                },
            },
        }
    else:
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        made = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "53822513.nvidia.com", "namespace": "default"},
            "spec": {"holderIdentity": "gpu-operator-0", "leaseDurationSeconds": 60, "renewTime": now},
        }
    facts.kubectl(*APPLY, user="admin", text=json.dumps(made))
    try:
        offset = facts.offset()
        refused = facts.stack()
        assert refused["failed"]
        assert "GPU Operator" in refused["msg"]
        assert "nothing has been changed" in refused["msg"]
        assert facts.writes(offset) == []
    finally:
        facts.kubectl("delete", made["kind"].lower(), "-n", "default", made["metadata"]["name"], user="admin")


def test_an_object_of_a_wanted_name_that_is_not_ours_is_never_adopted(facts):
    facts.empty()
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "nvidia-driver"},
        "rules": [],
    }
    facts.kubectl(*APPLY, user="admin", text=json.dumps(role))
    try:
        offset = facts.offset()
        refused = facts.stack()
        assert refused["failed"]
        assert "ClusterRole nvidia-driver" in refused["msg"]
        assert "somebody" in refused["msg"]
        assert facts.writes(offset) == []
    finally:
        facts.kubectl("delete", "clusterrole", "nvidia-driver", user="admin")


@pytest.mark.rows("COM-10", "E9", "E10")
def test_an_operand_that_is_switched_off_goes_and_comes_back(facts):
    _up(facts)
    off = _up(facts, {"gfd": {"enabled": False}, "dcgmExporter": {"enabled": False}})
    assert facts.get("DaemonSet", "gpu-feature-discovery") is None
    assert facts.get("Service", "nvidia-dcgm-exporter") is None
    assert "ServiceAccount gpu-operator/nvidia-dcgm-exporter" in _targets(off)
    _up(facts)
    assert facts.get("DaemonSet", "gpu-feature-discovery") is not None


def test_gpu_pods_are_replaced_once_a_changed_toolkit_is_ready(facts):
    """Were the validator's replaced at once, it would take the proof away that the new toolkit waits for."""
    _up(facts)
    offset = facts.offset()
    _up(facts, {"operator": {"runtimeClass": "nvidia-other"}})
    log = [str(r) for r in audit.requests(facts.practice.cluster.audit_log, since=offset) if r.code < 300]
    settled = max(i for i, line in enumerate(log) if "daemonsets/status" in line and "nvidia-container-toolkit" in line)
    behind = "\n".join(log[settled:])
    for line in ("nvidia-operator-validator", "nvidia-device-plugin-daemonset"):
        assert f"patch daemonsets gpu-operator/{line} " in behind
    assert behind.rindex("patch daemonsets gpu-operator/") < behind.index("delete runtimeclasses nvidia ")


@pytest.mark.rows("NL-03", "E14", "E15")
def test_a_node_is_taken_out_by_its_label_and_comes_back(facts):
    _up(facts)
    facts.kubectl("label", "node", "gpu-0001", "nvidia.com/gpu.deploy.operands=false", user="admin")
    _up(facts)
    pods = [p for p in facts.get("Pod") if p["spec"].get("nodeName") == "gpu-0001" and not _ends(p)]
    assert not [p for p in pods if "node-feature" not in p["metadata"]["name"]]
    facts.kubectl("label", "node", "gpu-0001", "nvidia.com/gpu.deploy.operands-", user="admin")
    done = _up(facts)
    assert all(node["ready"] for node in done["found"]["nodes"])


def _ends(pod):
    return bool(pod["metadata"].get("deletionTimestamp")) or pod["status"].get("phase") in ("Succeeded", "Failed")


@pytest.mark.rows("COM-13", "S54")
def test_a_cluster_without_gpu_nodes_passes_and_has_no_daemonset_of_a_driver(fleets):
    fleet = fleets("facts")
    fleet.empty()
    names = fleet.kubectl("get", "nodes", "-o", "name").split()
    fleet.kubectl("taint", "nodes", "--all", "kept=away:NoExecute", user="admin")
    try:
        assert names
        done = fleet.stack({"nfd": {"enabled": False}})
        assert not done["failed"], done["msg"]
        assert done["found"]["nodes"] == []
        assert fleet.get("DaemonSet", "nvidia-driver-daemonset") is None
        assert fleet.stack({"nfd": {"enabled": False}})["plan"] == []
    finally:
        fleet.kubectl("taint", "nodes", "--all", "kept-", user="admin")


def _census(fleet):
    """Everything in the cluster that a stack could leave: objects by kind, and what nodes carry."""
    kinds = (
        "namespaces,serviceaccounts,configmaps,services,roles,rolebindings,clusterroles,clusterrolebindings,"
        "runtimeclasses,customresourcedefinitions,daemonsets,deployments,resourcequotas,controllerrevisions"
    )
    names = set()
    for item in json.loads(fleet.kubectl("get", kinds, "-A", "-o", "json"))["items"]:
        meta = item["metadata"]
        names.add(f"{item['kind']}/{meta.get('namespace', '')}/{meta['name']}")
    for node in fleet.get("Node", namespace=""):
        meta = node["metadata"]
        for key, value in {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}.items():
            names.add(f"Node {meta['name']} {key}={value}")
        for taint in node["spec"].get("taints") or []:
            names.add(f"Node {meta['name']} taint {taint['key']}")
    return names


@pytest.mark.rows("S40", "INS-10")
@pytest.mark.parametrize("name", ["facts", pytest.param("default", marks=pytest.mark.long)])
def test_removal_leaves_what_was_there_before_and_nothing_else(fleets, name):
    fleet = fleets(name)
    fleet.empty()
    _namespace_gone(fleet)
    before = _census(fleet)
    groups = [{"name": "all", "selector": "kubernetes.io/os=linux", "taint": True, "labels": {"team": "a"}}]
    _up(fleet, {"nfd": {"nodefeaturerules": True}, "psa": {"enabled": True}}, node_groups=groups)
    assert _census(fleet) != before
    checked = fleet.run("cluster_policy", state="absent", check=True)
    assert checked["changed"]
    removed = fleet.run("cluster_policy", state="absent")
    assert not removed["failed"], removed["msg"]
    _namespace_gone(fleet)
    assert _census(fleet) == before
    again = fleet.run("cluster_policy", state="absent")
    assert (again["changed"], again["plan"]) == (False, [])


def _namespace_gone(fleet):
    """Wait for what Kubernetes itself takes away a moment later."""
    for _try in range(100):
        if fleet.get("Namespace", "gpu-operator", namespace="") is None:
            return
        time.sleep(0.2)
    raise AssertionError("the namespace does not go")


@pytest.mark.long
@pytest.mark.rows("S40")
def test_a_namespace_with_somebody_elses_objects_stays_and_they_are_named(facts):
    _up(facts)
    facts.kubectl("create", "configmap", "precious", "-n", "gpu-operator", user="admin")
    removed = facts.run("cluster_policy", state="absent")
    assert not removed["failed"]
    assert any("precious" in finding["detail"] for finding in removed["findings"])
    assert facts.get("ConfigMap", "precious") is not None
    facts.kubectl("delete", "configmap", "precious", "-n", "gpu-operator", user="admin")


@pytest.mark.long
@pytest.mark.rows("S40", "P134")
def test_a_persons_rule_keeps_the_kind_that_it_is_of(facts):
    _up(facts)
    rule = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeatureRule",
        "metadata": {"name": "precious"},
        "spec": {"rules": [{"name": "a", "labels": {"example.com/a": "true"}}]},
    }
    facts.kubectl(*APPLY, user="admin", text=json.dumps(rule))
    try:
        removed = facts.run("cluster_policy", state="absent")
        assert not removed["failed"], removed["msg"]
        assert any("precious" in finding["detail"] for finding in removed["findings"])
        assert facts.get("NodeFeatureRule", "precious", namespace="") is not None
    finally:
        facts.kubectl("delete", "nodefeaturerule", "precious", user="admin")
    facts.empty()
    assert facts.get("CustomResourceDefinition", "nodefeaturerules.nfd.k8s-sigs.io", namespace="") is None


@pytest.mark.rows("S25")
def test_an_extra_deployment_is_not_taken_for_our_nfd(facts):
    """A second run must not deploy an NFD beside one of somebody else."""
    facts.empty()
    _namespace_gone(facts)
    labels = {"app.kubernetes.io/name": "node-feature-discovery", "role": "master"}

    def deployment(name, namespace, image):
        spec = {"containers": [{"name": name, "image": image}]}
        template = {"metadata": {"labels": labels}, "spec": spec}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace, "labels": labels if name == "nfd-master" else {}},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        }

    theirs = deployment("nfd-master", "default", "registry.example.com/node-feature-discovery:1")
    facts.kubectl(*APPLY, user="admin", text=json.dumps(theirs))
    try:
        mine = deployment("mine", "gpu-operator", "registry.example.com/mine:1")
        for _run in range(2):
            done = _up(facts, {"extraObjects": [mine]}, wait=False)
            assert not [target for target in _targets(done) if "node-feature-discovery" in target]
        assert done["plan"] == []
    finally:
        facts.kubectl("delete", "deployment", "-n", "default", "nfd-master", user="admin")


@pytest.mark.long
@pytest.mark.rows("S40", "STA-04")
def test_a_namespace_of_others_gets_labels_and_loses_them_again(facts):
    facts.empty()
    _namespace_gone(facts)
    facts.kubectl("create", "namespace", "gpu-operator", user="admin")
    try:
        before = facts.get("Namespace", "gpu-operator", namespace="")["metadata"]["labels"]
        _up(facts, {"psa": {"enabled": True}})
        labels = facts.get("Namespace", "gpu-operator", namespace="")["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
        assert facts.stack({"psa": {"enabled": True}})["plan"] == []
        removed = facts.run("cluster_policy", state="absent")
        assert not removed["failed"], removed["msg"]
        assert facts.get("Namespace", "gpu-operator", namespace="")["metadata"]["labels"] == before
        assert facts.run("cluster_policy", state="absent")["changed"] is False
    finally:
        facts.kubectl("delete", "namespace", "gpu-operator", user="admin")


@pytest.mark.rows("STA-04", "S37")
def test_the_namespace_gets_the_labels_of_pod_security_when_asked(facts):
    _up(facts, {"psa": {"enabled": True}})
    labels = facts.get("Namespace", "gpu-operator", namespace="")["metadata"]["labels"]
    modes = ("enforce", "audit", "warn")
    assert {labels.get(f"pod-security.kubernetes.io/{mode}") for mode in modes} == {"privileged"}


def test_every_problem_of_the_input_is_told_at_once_and_nothing_is_sent(facts):
    offset = facts.offset()
    refused = facts.stack(
        {"drivr": {}, "mig": {"strategy": "some"}, "driver": {"version": 595.10}},
        node_groups=[{"name": "a", "selector": "x=y", "colour": "red"}],
    )
    assert refused["failed"]
    assert {"drivr", "mig.strategy", "driver.version"} <= {finding["path"] for finding in refused["findings"]}
    assert facts.writes(offset) == []


@pytest.mark.rows("INS-08")
def test_extra_objects_are_made_changed_and_taken_away_again(facts):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "extra", "namespace": "{{ .Release.Namespace }}"},
        "spec": {"hard": {"pods": "1000"}},
    }
    _up(facts, {"extraObjects": [quota]})
    assert facts.get("ResourceQuota", "extra")["spec"]["hard"]["pods"] in ("1000", "1k")
    assert facts.stack({"extraObjects": [quota]})["plan"] == []
    done = _up(facts)
    assert "ResourceQuota gpu-operator/extra" in _targets(done)
    assert facts.get("ResourceQuota", "extra") is None
