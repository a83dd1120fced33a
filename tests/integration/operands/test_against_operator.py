# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of operands on a real API server: accepted as they are, stored as the GPU Operator's are stored."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import build
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._namespace import namespace
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._model import Policy
from ansible_collections.gpufleet.nvidia.tests.helpers import compare_objects, operands
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import Cluster

ALLOWED = operands.FACTS.parents[1] / "integration" / "operator_differences.json"
TWO_NODES = operands.cluster(operands.node("gpu-0000"), operands.node("gpu-0001"))
Objects = list[dict[str, Any]]


class Kubectl:
    def __init__(self, cluster: Cluster) -> None:
        self.program = str(cluster.kubectl)
        self.config = str(cluster.kubeconfig("admin"))

    def __call__(self, *args: str, objects: Objects | None = None) -> str:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}) if objects else None
        run = subprocess.run(
            [self.program, "--kubeconfig", self.config, *args], input=text, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    def apply(self, objects: Objects, *args: str) -> str:
        return self("apply", "--server-side", "--field-manager=gpufleet", "-f", "-", *args, objects=objects)


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster) -> Iterator[Kubectl]:
    run = Kubectl(cluster)
    run.apply([namespace(operands.policy_of(), TWO_NODES)])
    yield run
    run("delete", "namespace", "gpu-operator", "--wait=true")


def versions(kubectl: Kubectl, objects: Objects) -> dict[str, str]:
    stored = json.loads(kubectl("get", "-f", "-", "-o", "json", objects=objects))["items"]
    return {
        f"{o['kind']}/{o['metadata']['name']}": o["metadata"]["generation"]
        for o in stored
        if "generation" in o["metadata"]
    }


@pytest.mark.rows(
    "ST-01", "ST-02", "ST-03", "ST-04", "ST-05", "ST-06", "ST-07", "ST-08", "ST-09", "ST-10", "ST-11", "ST-12", "COM-14"
)  # fmt: skip
# Unit tests compare what is built from all six files, and stack/test_operator_values.py what runs.
@pytest.mark.parametrize(
    "name", ["default", *(pytest.param(n, marks=pytest.mark.long) for n in operands.VALUES_FILES if n != "default")]
)
def test_stored_objects_equal_those_of_the_operator(kubectl: Kubectl, name: str) -> None:
    objects = build(operands.values_file(name), TWO_NODES)
    kubectl.apply(objects)
    try:
        first = versions(kubectl, objects)
        wanted = compare_objects.recorded([operands.FACTS / f"{name}.json"])
        found = compare_objects.live(kubectl.program, kubectl.config, "gpu-operator")
        assert compare_objects.compare(wanted, found, compare_objects.rules_of(ALLOWED)).left == []
        kubectl.apply(objects)
        assert versions(kubectl, objects) == first
    finally:
        kubectl("delete", "-f", "-", "--wait=true", objects=objects)


EVERYTHING = {
    "daemonsets": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "rollingUpdate": {"maxUnavailable": "25%"}},
    "hostPaths": {"rootFS": "/host-root", "driverInstallDir": "/opt/driver", "kubeletRootDir": "/data/kubelet"},
    "driver": {
        "kernelModuleType": "open",
        "rdma": {"enabled": True, "useHostMofed": True},
        "licensingConfig": {"secretName": "licence"},
        "repoConfig": {"configMapName": "repositories"},
        "certConfig": {"name": "certificates.example.com"},
        "kernelModuleConfig": {"name": "run-nvidia"},
        "virtualTopology": {"config": "topology"},
        "secretEnv": "secret",
    },
    "dcgm": {"enabled": True, "resources": {"limits": {"cpu": "1"}}},
    "gds": {"enabled": True},
    "gdrcopy": {"enabled": True},
    "nodeStatusExporter": {"enabled": True, "hostNetwork": True},
    "devicePlugin": {"config": {"name": "config", "default": "a"}},
    "dcgmExporter": {
        "config": {"name": "metrics"},
        "hostPID": True,
        "hpcJobMapping": {"enabled": True},
        "enablePodLabels": True,
        "service": {"type": "NodePort"},
    },
    "migManager": {"config": {"name": "layouts"}, "gpuClientsConfig": {"name": "clients"}},
}
OF_THE_USER = {
    "ConfigMap/repositories": ("a.repo",),
    "ConfigMap/certificates.example.com": ("ca.crt", "ca2.crt"),
    "ConfigMap/run-nvidia": ("nvidia.conf",),
}
OTHER_SYSTEMS = (
    operands.node("a"),
    operands.node("b", "rhel", "9.4", kernel="5.14.0-427.13.1.el9_4.x86_64"),
    operands.node("c", "sles", "15.7", kernel="6.4.0-150700.53-default"),
)


def more_policies() -> Sequence[tuple[str, Policy, ClusterFacts]]:
    facts = operands.cluster(*OTHER_SYSTEMS, config_keys=OF_THE_USER)
    everything = operands.policy_of(EVERYTHING)
    precompiled = operands.policy_of({"driver": {"usePrecompiled": True, "version": "595"}})
    return (
        ("everything", everything, facts),
        ("docker", everything, replace(facts, runtime="docker")),
        ("crio without CDI", operands.policy_of({"cdi": {"enabled": False}}), replace(facts, runtime="crio")),
        ("NRI", operands.policy_of({"cdi": {"enabled": True, "nriPluginEnabled": True}}), facts),
        ("precompiled", precompiled, facts),
    )


@pytest.mark.rows("COM-05", "DRV-02", "DRV-07", "DRV-12", "RT-03", "RT-04", "RT-09")
@pytest.mark.parametrize("case", more_policies(), ids=lambda case: case[0])
def test_the_server_accepts_what_other_policies_make(kubectl: Kubectl, case: tuple[str, Policy, ClusterFacts]) -> None:
    _name, policy, facts = case
    objects = build(policy, facts)
    done = kubectl.apply(objects, "--dry-run=server", "-o", "name")
    assert len(done.splitlines()) == len(objects)
