# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for the objects of any policy in any cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import ValidationError

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import OPERANDS, build, build_by_operand
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._namespace import namespace
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._model import Policy
from ansible_collections.gpufleet.nvidia.tests.helpers import schemas
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
    VALUES_FILES,
    cluster,
    node,
    policy_of,
    values_file,
)

from .test_effects import BASE, EFFECTS, changed

CONFIGS = {
    "ConfigMap/parameters": ("nvidia.conf", "nvidia-uvm.conf"),
    "ConfigMap/repositories": ("a.repo", "b.list"),
    "ConfigMap/certificates": ("ca.crt",),
}
NODES = (
    node("a"),
    node("b", version="22.04", kernel="5.15.0-105-generic"),
    node("c", "rhel", "9.4", kernel="5.14.0-427.13.1.el9_4.x86_64"),
    node("d", "rhel", "9.6", kernel="5.14.0-570.1.1.el9_6.aarch64_64k"),
    node("e", "sles", "15.7", kernel="6.4.0-150700.53-default"),
    node("f", "", "", kernel=""),
)


def policies() -> st.SearchStrategy[Policy]:
    """Policies that differ from the defaults, or from one that wants everything, in some keys."""

    def with_changes(start: Policy, paths: list[str]) -> Policy:
        for path in paths:
            start = changed(start, path, EFFECTS[path][0])
        return start

    paths = st.lists(st.sampled_from(sorted(EFFECTS)), unique=True, max_size=12)
    return st.builds(with_changes, st.sampled_from([BASE, policy_of()]), paths)


def clusters() -> st.SearchStrategy[ClusterFacts]:
    return st.builds(
        lambda nodes, runtime, monitors, driver_os: ClusterFacts(
            nodes=tuple(nodes), runtime=runtime, service_monitor_crd=monitors, driver_os=driver_os, config_keys=CONFIGS
        ),
        st.lists(st.sampled_from(NODES), unique_by=lambda n: n.name, max_size=5),
        st.sampled_from(["containerd", "docker", "crio"]),
        st.booleans(),
        st.sampled_from(["", "ubuntu24.04", "rhel9", "debian12"]),
    )


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for obj in objects:
        if obj["kind"] == "DaemonSet":
            yield obj["metadata"]["name"], obj["spec"]["template"]["spec"]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def unique(items: list[Any]) -> bool:
    return len(items) == len(set(items))


@given(policies(), clusters())
@settings(deadline=None, max_examples=40)
def test_names_are_unique_and_namespaced_where_they_should_be(policy: Policy, facts: ClusterFacts) -> None:
    objects = build(policy, facts)
    assert unique([(o["kind"], o["metadata"]["name"]) for o in objects])
    whole_cluster = {"ClusterRole", "ClusterRoleBinding", "RuntimeClass"}
    for obj in objects:
        assert ("namespace" in obj["metadata"]) == (obj["kind"] not in whole_cluster)
        assert obj["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "gpufleet"
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", obj["metadata"]["name"])


@given(policies(), clusters())
@settings(deadline=None, max_examples=40)
def test_pods_are_consistent(policy: Policy, facts: ClusterFacts) -> None:
    for name, pod in pods(build(policy, facts)):
        volumes = [v["name"] for v in pod["volumes"]] if "volumes" in pod else []
        assert unique(volumes), name
        assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", volume) for volume in volumes), name
        assert unique([c["name"] for c in containers(pod)]), name
        mounted = set()
        for item in containers(pod):
            assert unique([e["name"] for e in item.get("env", [])]), (name, item["name"])
            assert unique([m["mountPath"] for m in item.get("volumeMounts", [])]), (name, item["name"])
            assert all(p["protocol"] for p in item.get("ports", []))
            mounted |= {m["name"] for m in item.get("volumeMounts", [])}
            assert item["imagePullPolicy"] in ("Always", "IfNotPresent", "Never")
        assert mounted <= set(volumes), name
        # The driver's pod makes the folder of validations for the others, without looking into it.
        assert set(volumes) - mounted <= {"run-nvidia-validations"} if "driver-daemonset" in name else True
        assert "driver-daemonset" in name or set(volumes) == mounted, name


@given(policies(), clusters())
@settings(deadline=None, max_examples=40)
def test_selectors_find_the_pods_and_services_find_their_port(policy: Policy, facts: ClusterFacts) -> None:
    objects = build(policy, facts)
    for obj in objects:
        if obj["kind"] == "DaemonSet":
            labels = obj["spec"]["template"]["metadata"]["labels"]
            assert obj["spec"]["selector"]["matchLabels"].items() <= labels.items()
            assert "app.kubernetes.io/managed-by" not in labels
    by_app = {o["spec"]["template"]["metadata"]["labels"]["app"]: o for o in objects if o["kind"] == "DaemonSet"}
    for obj in objects:
        pods_of = by_app.get(obj["spec"]["selector"].get("app")) if obj["kind"] == "Service" else None
        if pods_of:
            ports = [p["containerPort"] for c in pods_of["spec"]["template"]["spec"]["containers"] for p in c["ports"]]
            assert [p["targetPort"] for p in obj["spec"]["ports"]] == ports


@given(policies(), clusters())
@settings(deadline=None, max_examples=40)
def test_accounts_and_configs_of_ours_are_made_before_the_pods(policy: Policy, facts: ClusterFacts) -> None:
    objects = build(policy, facts)
    seen: set[tuple[str, str]] = set()
    for obj in objects:
        if obj["kind"] == "DaemonSet":
            assert ("ServiceAccount", obj["spec"]["template"]["spec"]["serviceAccountName"]) in seen
        if obj["kind"].endswith("Binding"):
            assert (obj["roleRef"]["kind"], obj["roleRef"]["name"]) in seen
            assert ("ServiceAccount", obj["subjects"][0]["name"]) in seen
        seen.add((obj["kind"], obj["metadata"]["name"]))


@given(policies(), clusters())
@settings(deadline=None, max_examples=40)
def test_objects_are_plain_data_and_always_the_same(policy: Policy, facts: ClusterFacts) -> None:
    first = build(policy, facts)
    text = json.dumps(first)
    assert json.loads(text) == first
    # Whatever a caller does to them, the next ones are not touched.
    for obj in first:
        spoil(obj)
    assert json.dumps(build(policy, facts)) == text


def spoil(value: Any) -> None:
    if isinstance(value, dict):
        for item in value.values():
            spoil(item)
        value.clear()
    elif isinstance(value, list):
        for item in value:
            spoil(item)
        value.clear()


@pytest.mark.rows("COM-13", "S54")
@given(policies(), clusters())
@settings(deadline=None, max_examples=40)
def test_without_gpu_nodes_there_are_no_daemonsets_but_all_else(policy: Policy, facts: ClusterFacts) -> None:
    empty = ClusterFacts(runtime=facts.runtime, service_monitor_crd=facts.service_monitor_crd)
    without = {(o["kind"], o["metadata"]["name"]) for o in build(policy, empty)}
    objects = {(o["kind"], o["metadata"]["name"]) for o in build(policy, facts)}
    assert without == {item for item in objects if item[0] != "DaemonSet"}


@pytest.mark.rows("COM-10")
@given(policies(), clusters())
@settings(deadline=None, max_examples=40)
def test_an_operand_that_is_not_wanted_makes_nothing(policy: Policy, facts: ClusterFacts) -> None:
    built = build_by_operand(policy, facts)
    assert [o.name for o, _objects in built] == [o.name for o in OPERANDS if o.enabled(policy)]
    for operand, objects in built:
        for _name, pod in pods(objects):
            assert operand.deploy_label in pod["nodeSelector"]


@given(policies(), clusters())
@settings(deadline=None, max_examples=30)
def test_kubernetes_schemas_accept_every_object(policy: Policy, facts: ClusterFacts) -> None:
    for obj in [namespace(policy, facts), *build(policy, facts)]:
        if obj["kind"] != "ServiceMonitor":
            schemas.validate(obj)


@pytest.mark.parametrize("name", VALUES_FILES)
def test_kubernetes_schemas_accept_the_objects_of_the_values_files(name: str) -> None:
    objects = build(values_file(name), cluster(*NODES))
    assert len(objects) > 30
    for obj in objects:
        schemas.validate(obj)


def test_the_schemas_would_refuse_a_wrong_object() -> None:
    made = next(o for o in build(policy_of(), cluster()) if o["kind"] == "DaemonSet")
    made["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "x", "path": "/x"}]
    with pytest.raises(ValidationError):
        schemas.validate(made)
