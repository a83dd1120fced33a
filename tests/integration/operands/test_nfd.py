# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NFD's objects on a real API server: accepted, established, stored as we mean them, and equal to the chart's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _nfd
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._nfd_crds import NAMES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts, Object
from ansible_collections.gpufleet.nvidia.tests.helpers import compare_objects, operands
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import Cluster

NAMESPACE = "gpu-operator"
ALLOWED = operands.FACTS.parents[1] / "integration" / "operator_differences.json"

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster) -> Kubectl:
    def run(*args: str, objects: list[Object] | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}) if objects else None
        command = [str(cluster.kubectl), "--kubeconfig", str(cluster.kubeconfig()), *args]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
        assert not (check and done.returncode), done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def applied(kubectl: Kubectl) -> Iterator[list[Object]]:
    policy = operands.policy_of({"nfd": {"nodefeaturerules": True}})
    objects = _nfd.build(policy, ClusterFacts(namespace=NAMESPACE))
    apply = ("apply", "--server-side", "--field-manager=gpufleet", "-f", "-")
    kubectl("create", "namespace", NAMESPACE)
    kubectl(*apply, objects=_nfd.crds())
    kubectl("wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{name}" for name in NAMES))
    kubectl(*apply, objects=objects)
    yield objects
    kubectl("delete", "-f", "-", "--ignore-not-found", objects=[*objects, *_nfd.crds()])
    kubectl("delete", "namespace", NAMESPACE, "--timeout=60s")


@pytest.mark.rows("INS-05", "INS-06", "S25")
def test_the_live_objects_are_those_of_the_chart(cluster: Cluster, applied: list[Object]) -> None:
    found = compare_objects.live(str(cluster.kubectl), str(cluster.kubeconfig()), NAMESPACE)
    wanted = compare_objects.recorded([operands.FACTS / "nfd-objects.json"])
    assert len(wanted) == len(applied) + len(NAMES) == 19
    result = compare_objects.compare(wanted, {name: found[name] for name in wanted}, compare_objects.rules_of(ALLOWED))
    assert result.left == []
    assert len(result.allowed) == 2, "only the hash of the configuration is meant to differ"


@pytest.mark.rows("INS-05")
def test_the_server_keeps_every_field_as_it_was_meant(kubectl: Kubectl, applied: list[Object]) -> None:
    meant = [*applied, *_nfd.crds()]
    stored = json.loads(kubectl("get", "-o", "json", "-f", "-", objects=meant).stdout)["items"]
    assert len(stored) == len(meant)
    for one, kept in zip(meant, stored, strict=True):
        live = compare_objects.facts_of(kept)
        for path, value in compare_objects.facts_of(json.loads(json.dumps(one))).items():
            assert live.get(path) == value, (one["kind"], one["metadata"]["name"], path)


@pytest.mark.rows("INS-06")
@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (
            {"rules": [{"name": "a", "matchFeatures": [{"feature": "x", "matchExpressions": {"y": {"op": "Is"}}}]}]},
            "op",
        ),
        ({"rules": [{"labels": {"a": "b"}}]}, "name"),
        ({}, "rules"),
    ],
)
def test_a_rule_that_is_none_is_refused(kubectl: Kubectl, applied: list[Object], spec: Object, word: str) -> None:
    assert applied
    rule = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeatureRule",
        "metadata": {"name": "bad"},
        "spec": spec,
    }
    done = kubectl("create", "--validate=false", "-f", "-", objects=[rule], check=False)
    assert done.returncode
    assert "invalid" in done.stderr
    assert word in done.stderr


@pytest.mark.rows("INS-05")
def test_workers_may_publish_features_and_nobody_else_may(kubectl: Kubectl, applied: list[Object]) -> None:
    assert applied
    may = ("auth", "can-i", "-n", NAMESPACE)
    account = f"--as=system:serviceaccount:{NAMESPACE}:"
    features = "nodefeatures.nfd.k8s-sigs.io"
    assert kubectl(*may, "create", features, account + "node-feature-discovery").stdout.strip() == "yes"
    assert kubectl(*may, "patch", "nodes", account + "node-feature-discovery").stdout.strip() == "yes"
    assert kubectl(*may, "create", features, account + "default", check=False).stdout.strip() == "no"
