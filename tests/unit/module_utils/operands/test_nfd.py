# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node Feature Discovery as the chart deploys it, and one that runs already."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _nfd
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._nfd_crds import NAMES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._nfd_found import (
    detect,
    judge_config,
    judge_labels,
    judge_settings,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts, Object
from ansible_collections.gpufleet.nvidia.tests.helpers import compare_objects, operands

FULL = "gpu-operator-node-feature-discovery"
# What the API server and the controller of Deployments add to an object; the last is the hash of the chart's own text.
ADDED = re.compile(
    r".*\.(terminationMessagePath|terminationMessagePolicy|restartPolicy|schedulerName|serviceAccount|defaultMode"
    r"|terminationGracePeriodSeconds|successThreshold|timeoutSeconds|failureThreshold|revisionHistoryLimit"
    r"|progressDeadlineSeconds|maxSurge|hostPath\.type|fieldRef\.apiVersion|httpGet\.scheme"
    r"|template\.spec\.securityContext|deployment\.kubernetes\.io/revision|strategy\..*|checksum/config)"
)
WITH_RULE = {"nfd": {"nodefeaturerules": True}}


def made(values: Any = None, **facts: Any) -> dict[str, Object]:
    objects = _nfd.build(operands.policy_of(values), ClusterFacts(**facts))
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in objects}


def worker(values: Any = None) -> Object:
    pod: Object = made(values)[f"DaemonSet/{FULL}-worker"]["spec"]["template"]
    return pod


def of_nfd(**values: Any) -> dict[str, Any]:
    return {"node-feature-discovery": values}


# --- as the chart does -----------------------------------------------------------------------------------------------


@pytest.mark.rows("INS-05", "INS-06", "S25")
def test_every_object_of_the_chart_is_made_and_no_other() -> None:
    names = set(made(WITH_RULE)) | {f"CustomResourceDefinition/{one['metadata']['name']}" for one in _nfd.crds()}
    assert names == set(compare_objects.recorded([operands.FACTS / "nfd-objects.json"]))


@pytest.mark.rows("INS-05", "INS-06")
def test_we_say_what_the_chart_says_and_leave_out_what_the_server_adds() -> None:
    recorded = compare_objects.recorded([operands.FACTS / "nfd-objects.json"])
    for name, one in made(WITH_RULE).items():
        found, wanted = compare_objects.facts_of(copy.deepcopy(one)), recorded[name]
        assert [(path, value) for path, value in found.items() if wanted.get(path) != value] == []
        assert [path for path in wanted if path not in found and not ADDED.fullmatch(path)] == []


@pytest.mark.rows("INS-05")
def test_the_crds_have_the_recorded_schemas() -> None:
    recorded = compare_objects.recorded([operands.FACTS / "nfd-objects.json"])
    assert [one["metadata"]["name"] for one in _nfd.crds()] == list(NAMES)
    for one in _nfd.crds():
        wanted = recorded[f"CustomResourceDefinition/{one['metadata']['name']}"]
        wanted.pop("spec.conversion.strategy")  # the server's default
        assert compare_objects.facts_of(one) == wanted


def test_objects_fit_the_schemas_of_kubernetes() -> None:
    for one in [*made().values(), *_nfd.crds()]:
        kubernetes_validate.validate(one, "1.36", strict=True)


def test_all_objects_are_marked_as_ours_and_lie_in_the_namespace() -> None:
    for one in [*made(WITH_RULE, namespace="gpus").values(), *_nfd.crds()]:
        assert one["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "gpufleet"
        assert one["metadata"].get("namespace", "gpus") == "gpus"
        assert all(subject["namespace"] == "gpus" for subject in one.get("subjects", []))


@pytest.mark.rows("INS-05", "S25")
def test_the_workers_make_the_label_that_drives_everything() -> None:
    data = made()[f"ConfigMap/{FULL}-worker-conf"]["data"]
    config = yaml.safe_load(data["nfd-worker.conf"])
    assert config["sources"]["pci"] == {
        "deviceClassWhitelist": ["02", "0200", "0207", "0300", "0302"],
        "deviceLabelFields": ["vendor"],
    }
    assert yaml.safe_load(made()[f"ConfigMap/{FULL}-master-conf"]["data"]["nfd-master.conf"]) == {
        "extraLabelNs": ["nvidia.com"]
    }


@pytest.mark.rows("INS-06")
def test_the_rule_only_where_it_is_asked_for_and_an_nfd_runs() -> None:
    assert "NodeFeatureRule/nvidia-kernel-modules" not in made()
    assert set(made(WITH_RULE, nfd_running=True)) == {"NodeFeatureRule/nvidia-kernel-modules"}
    off = {"nfd": {"enabled": False, "nodefeaturerules": True}}
    assert set(made(off, nfd_running=True)) == {"NodeFeatureRule/nvidia-kernel-modules"}
    assert made(off) == {}
    (finding,) = _nfd.findings(operands.policy_of(off), ClusterFacts())
    assert (finding.severity, finding.path) == ("error", "nfd.nodefeaturerules")
    labels = [rule["labels"] for rule in made(WITH_RULE)["NodeFeatureRule/nvidia-kernel-modules"]["spec"]["rules"]]
    assert labels == [
        {"nvidia.com/gdrcopy.capable": "true"},
        {"nvidia.com/gds.capable": "true"},
        {"nvidia.com/peermem.capable": "true"},
    ]


@pytest.mark.rows("INS-05", "S25")
def test_an_nfd_that_runs_already_is_used() -> None:
    assert made(nfd_running=True) == {}
    assert made({"nfd": {"enabled": False}}) == {}
    assert not _nfd.OPERAND.enabled(operands.policy_of({"nfd": {"enabled": False}}))
    assert _nfd.OPERAND.enabled(operands.policy_of())


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.rows("INS-05")
def test_settings_reach_the_workers() -> None:
    pod = worker(
        of_nfd(
            image={"repository": "example.com/nfd", "tag": "v0.19.1", "pullPolicy": "Always"},
            imagePullSecrets=[{"name": "key"}],
            priorityClassName="high",
            featureGates={"NodeFeatureGroupAPI": True},
            worker={
                "tolerations": [{"operator": "Exists"}],
                "nodeSelector": {"pool": "gpu"},
                "affinity": {"nodeAffinity": {}},
                "resources": {"limits": {"memory": "1Gi"}},
                "annotations": {"note": "x"},
                "labels": {"team": "infra", "role": "mine"},
                "extraArgs": ["-v=2"],
                "extraEnvs": [{"name": "NODE_NAME", "value": "fixed"}, {"name": "A", "value": "b"}],
                "hostNetwork": True,
                "dnsPolicy": "Default",
                "port": 9090,
                "mountUsrSrc": True,
                "livenessProbe": {"periodSeconds": 30},
                "podSecurityContext": {"runAsUser": 1},
                "securityContext": {"privileged": True},
            },
        )
    )
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("example.com/nfd:v0.19.1", "Always")
    assert container["args"] == ["-owner-refs=pod,ds", "-port=9090", "-feature-gates=NodeFeatureGroupAPI=true", "-v=2"]
    assert [item["name"] for item in container["env"]] == ["NODE_NAME", "POD_NAME", "POD_UID", "A"]
    assert container["env"][0] == {"name": "NODE_NAME", "value": "fixed"}, (
        "a user's value wins, and no name comes twice"
    )
    assert container["ports"] == [{"name": "http", "containerPort": 9090, "protocol": "TCP"}]
    assert container["livenessProbe"]["periodSeconds"] == 30
    assert container["livenessProbe"]["initialDelaySeconds"] == 10
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert container["securityContext"]["privileged"] is True
    assert {"name": "host-usr-src", "mountPath": "/host-usr/src", "readOnly": True} in container["volumeMounts"]
    assert {"name": "host-usr-src", "hostPath": {"path": "/usr/src"}} in spec["volumes"]
    assert (spec["hostNetwork"], spec["dnsPolicy"], spec["priorityClassName"]) == (True, "Default", "high")
    assert (spec["tolerations"], spec["nodeSelector"]) == ([{"operator": "Exists"}], {"pool": "gpu"})
    assert (spec["affinity"], spec["securityContext"]) == ({"nodeAffinity": {}}, {"runAsUser": 1})
    assert spec["imagePullSecrets"] == [{"name": "key"}]
    assert pod["metadata"]["labels"]["team"] == "infra"
    assert pod["metadata"]["labels"]["role"] == "worker", "the selector's labels are not a user's to change"
    assert pod["metadata"]["annotations"]["note"] == "x"


@pytest.mark.rows("INS-05")
def test_settings_reach_the_master_and_the_collector() -> None:
    objects = made(
        of_nfd(
            master={
                "replicaCount": 2,
                "extraLabelNs": ["a.b", "c.d"],
                "denyLabelNs": ["x"],
                "enableTaints": True,
                "instance": "one",
                "resyncPeriod": "2h",
                "nfdApiParallelism": 5,
                "featureRulesController": False,
                "deploymentAnnotations": {"note": "y"},
                "revisionHistoryLimit": 3,
            },
            gc={"interval": "2h", "replicaCount": 3},
        )
    )
    master = objects[f"Deployment/{FULL}-master"]
    assert master["spec"]["template"]["spec"]["containers"][0]["args"] == [
        "-port=8080",
        "-enable-leader-election",
        "-enable-taints",
        "-extra-label-ns=a.b,c.d",
        "-deny-label-ns=x",
        "-instance=one",
        "-resync-period=2h",
        "-nfd-api-parallelism=5",
        "-featurerules-controller=false",
    ]
    assert (master["spec"]["replicas"], master["spec"]["revisionHistoryLimit"]) == (2, 3)
    assert master["metadata"]["annotations"] == {"note": "y"}
    gc = objects[f"Deployment/{FULL}-gc"]["spec"]
    assert (gc["replicas"], gc["template"]["spec"]["containers"][0]["args"]) == (3, ["-gc-interval=2h"])


@pytest.mark.rows("INS-05", "COM-14")
def test_parts_and_rights_can_be_left_out_and_accounts_named() -> None:
    objects = made(
        of_nfd(
            master={"rbac": {"create": False}, "serviceAccount": {"create": False, "name": ""}},
            worker={"serviceAccount": {"create": True, "name": "", "annotations": {"a": "b"}}},
            gc={"enable": False},
        )
    )
    assert [name for name in objects if name.endswith("-gc")] == []
    assert f"ClusterRole/{FULL}" not in objects
    assert objects[f"ServiceAccount/{FULL}-worker"]["metadata"]["annotations"] == {"a": "b"}
    assert objects[f"RoleBinding/{FULL}-worker"]["subjects"][0]["name"] == f"{FULL}-worker"
    assert objects[f"Deployment/{FULL}-master"]["spec"]["template"]["spec"]["serviceAccountName"] == "default"


@pytest.mark.rows("INS-05")
@pytest.mark.parametrize(
    ("values", "name"),
    [({"fullnameOverride": "nfd"}, "nfd-worker"), ({"nameOverride": "features"}, "gpu-operator-features-worker")],
)
def test_names_can_be_chosen(values: dict[str, str], name: str) -> None:
    objects = made(of_nfd(**values))
    volumes = objects[f"DaemonSet/{name}"]["spec"]["template"]["spec"]["volumes"]
    (config,) = [volume["configMap"]["name"] for volume in volumes if "configMap" in volume]
    assert f"ConfigMap/{config}" in objects


@pytest.mark.rows("INS-05", "L22")
def test_a_changed_configuration_rolls_the_workers_and_nothing_else_does() -> None:
    other = of_nfd(worker={"config": {"core": {"sleepInterval": "10s"}}})
    assert worker(other)["metadata"]["annotations"] != worker()["metadata"]["annotations"]
    assert worker(of_nfd(gc={"interval": "3h"})) == worker()
    assert worker() == worker()


@pytest.mark.rows("INS-05")
def test_settings_that_make_no_gpu_label_are_refused() -> None:
    fields = of_nfd(worker={"config": {"sources": {"pci": {"deviceLabelFields": ["class", "vendor", "device"]}}}})
    (finding,) = _nfd.findings(operands.policy_of(fields), ClusterFacts())
    assert (finding.id, finding.severity, finding.path) == (
        "nfd.label-fields",
        "error",
        "node-feature-discovery.worker.config",
    )
    off = of_nfd(worker={"enable": False})
    assert [f.severity for f in _nfd.findings(operands.policy_of(off), ClusterFacts())] == ["warning"]
    assert _nfd.findings(operands.policy_of(off), ClusterFacts(nfd_running=True)) == []
    assert _nfd.findings(operands.policy_of(), ClusterFacts()) == []


# --- an NFD that runs already ----------------------------------------------------------------------------------------


def workload(name: str, labels: dict[str, str] | None = None, **container: Any) -> Object:
    spec = {"template": {"spec": {"containers": [{"name": "c", **container}]}}}
    return {"metadata": {"namespace": "infra", "name": name, "labels": labels or {}}, "spec": spec}


IMAGE = "registry.k8s.io/nfd/node-feature-discovery:v0.18.3"
CHART = {"app.kubernetes.io/name": "node-feature-discovery"}


@pytest.mark.rows("INS-05", "S25")
@pytest.mark.parametrize(
    ("one", "seen"),
    [
        (workload("nfd-master", image=IMAGE, command=["nfd-master"]), True),
        (workload("m", image="example.com/mirror/x:1", command=["/usr/bin/nfd-master", "-port=1"]), True),
        (workload("m", image="example.com:5000/node-feature-discovery@sha256:0", args=["nfd-master"]), True),
        (workload("m", {**CHART, "role": "master"}, image="example.com/x"), True),
        (workload("m", CHART, image="example.com/x"), True),
        (workload("m", {"app": "nfd-master"}, image=IMAGE), True),
        (workload("w", {**CHART, "role": "worker"}, image=IMAGE), False),
        (workload("w", {"app": "nfd-worker"}, image=IMAGE), False),
        (workload("w", CHART, image=IMAGE, command=["nfd-worker"]), False),
        (workload("gc", CHART, image=IMAGE, command=["nfd-gc"]), False),
        (workload("other", image="example.com/node-feature-discovery-operator:1"), False),
        (workload("other", image="registry.k8s.io/pause:3.10"), False),
        (
            workload(
                "ours", {**CHART, "app.kubernetes.io/managed-by": "gpufleet"}, image=IMAGE, command=["nfd-master"]
            ),
            False,
        ),
        (
            workload("helm", {**CHART, "app.kubernetes.io/managed-by": "Helm"}, image=IMAGE, command=["nfd-master"]),
            True,
        ),
    ],
)
def test_an_nfd_of_somebody_else_is_seen(one: Object, seen: bool) -> None:
    name = one["metadata"]["name"]
    assert detect([one], []) == (f"Deployment infra/{name}" if seen else None)
    assert detect([], [one]) == (f"DaemonSet infra/{name}" if seen else None)


def test_ours_is_never_taken_for_somebody_elses() -> None:
    objects = made()
    assert (
        detect([one for one in objects.values() if one["kind"] == "Deployment"], [objects[f"DaemonSet/{FULL}-worker"]])
        is None
    )


def test_an_nfd_without_node_features_is_said_to_be_too_old() -> None:
    one = workload("nfd-master", command=["nfd-master"])
    assert "without the CRD nodefeatures" in str(detect([one], [], ["nodefeaturerules.nfd.k8s-sigs.io"]))
    assert detect([one], [], NAMES) == "Deployment infra/nfd-master"


@pytest.mark.rows("S25", "NL-01")
@pytest.mark.parametrize(
    ("pci", "found"),
    [
        ({"deviceLabelFields": ["vendor"], "deviceClassWhitelist": ["0300", "0302"]}, []),
        ({"deviceLabelFields": ["vendor"], "deviceClassWhitelist": ["03"]}, []),
        ({"deviceLabelFields": ["vendor"]}, []),
        ({}, ["nfd.class-labels"]),
        ({"deviceLabelFields": ["class", "vendor"]}, ["nfd.class-labels"]),
        ({"deviceLabelFields": ["vendor", "device"]}, ["nfd.label-fields"]),
        ({"deviceLabelFields": ["vendor", "class"]}, ["nfd.label-fields"]),
        ({"deviceLabelFields": ["vendor"], "deviceClassWhitelist": ["0200"]}, ["nfd.class-whitelist"]),
        (
            {"deviceLabelFields": ["device"], "deviceClassWhitelist": ["0c"]},
            ["nfd.label-fields", "nfd.class-whitelist"],
        ),
    ],
)
def test_the_configuration_of_a_worker_is_judged(pci: dict[str, Any], found: list[str]) -> None:
    config = {"sources": {"pci": pci}}
    assert [finding.id for finding in judge_settings(config)] == found
    text = yaml.safe_dump(config) if pci else "# nothing is set\n"
    assert [f.id for f in judge_config({"nfd-worker.conf": text}, "ConfigMap infra/nfd-worker-conf")] == found
    assert [f.id for f in judge_config({"nfd-worker.conf": json.dumps(config)})] == found


def test_a_configuration_that_is_no_yaml_is_said() -> None:
    (finding,) = judge_config({"nfd-worker.conf": "a: [b"}, "ConfigMap infra/nfd-worker-conf")
    assert (finding.id, finding.severity, finding.target) == (
        "nfd.unread",
        "warning",
        "ConfigMap infra/nfd-worker-conf",
    )


@pytest.mark.rows("NL-01", "S25")
@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({"pci-10de.present": "true"}, []),
        ({"pci-0302_10de.present": "true", "pci-0302_10de_2330.present": "true"}, []),
        ({"pci-0302_10de_2330.present": "true"}, ["nfd.uncounted-label"]),
        ({"pci-10de_2330.present": "true"}, ["nfd.uncounted-label"]),
        ({"pci-0302_10de_2330.present": "false"}, []),
        ({"pci-0680_10de.present": "true"}, []),
        ({"pci-0200_15b3.present": "true"}, []),
        ({}, []),
    ],
)
def test_labels_that_do_not_count_are_named(labels: dict[str, str], found: list[str]) -> None:
    of_node = {f"feature.node.kubernetes.io/{key}": value for key, value in labels.items()}
    assert [finding.id for finding in judge_labels("n", of_node)] == found
