# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan and apply on a real API server: what is written, what is not, and who may have the last word."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube import _apply, _credentials, _lists
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Connection, KubeError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._equal import applied, differences
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._pool import PoolTransport
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._resources import Ref
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import redacted
from ansible_collections.gpufleet.nvidia.tests.integration.kube import objects
from ansible_collections.gpufleet.nvidia.tests.integration.kube.conftest import Faults, KilledError, World


def change(items: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(item for item in items if (item["kind"], item["metadata"]["name"]) == (kind, name))


def container(workload: dict[str, Any]) -> dict[str, Any]:
    return workload["spec"]["template"]["spec"]["containers"][0]


def changed(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """True when an apply stored something new: content, labels, or what of it we own. Others write the status."""
    views = []
    for obj in (before, after):
        meta = {k: v for k, v in obj["metadata"].items() if k in ("labels", "annotations", "generation", "uid")}
        views.append([meta, applied(obj), {k: v for k, v in obj.items() if k not in ("metadata", "status")}])
    return views[0] != views[1]


def owners(live: dict[str, Any]) -> set[tuple[str, str]]:
    """Managers of everything but the status."""
    return {(e["manager"], e["operation"]) for e in live["metadata"]["managedFields"] if "subresource" not in e}


# --- four steps -----------------------------------------------------------------------------------------------------


@pytest.mark.rows("COM-09", "L21", "P069", "P070", "P071", "P072")
def test_every_kind_in_four_steps(world: World) -> None:
    wanted = objects.everything(world.namespace)

    before = world.offset()
    planned = world.plan(wanted)
    assert [step.ref for step in planned.steps] == [_apply.ref(item) for item in wanted]
    assert _apply.rehearse(world.connection, planned) == []
    assert world.written(before) == [], "check mode writes nothing"

    steps = world.run(wanted)
    assert steps == [step.id for step in planned.steps]
    assert len(world.written(before)) == len(wanted)

    before, requests = world.offset(), world.connection.stats["requests"]
    assert world.run(wanted) == []
    assert world.written(before) == []
    assert world.connection.stats["requests"] - requests == len(objects.KINDS), "one list for each kind"

    again = world.plan(wanted)
    assert _apply.rehearse(world.connection, again) == []
    assert world.connection.stats["requests"] - requests == 2 * len(objects.KINDS), "no dry run where nothing differs"
    assert again.actions == []


def test_what_is_extracted_of_a_live_object_applies_without_a_change(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    for which, live in world.plan(wanted).live.items():
        assert not changed(live, _apply.apply(world.connection, applied(live))), str(which)


@pytest.mark.rows("S02")
def test_one_changed_value_writes_one_object(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    container(change(wanted, "DaemonSet", "rolling"))["image"] = "nvcr.io/nvidia/driver:580.2"
    before = world.offset()
    made = world.plan(wanted)
    [step] = made.steps
    assert (step.verb, step.rolls, step.disruptive) == ("update", True, False)
    path = "spec.template.spec.containers[driver].image"
    assert step.action().before == {path: "nvcr.io/nvidia/driver:580.1"}
    assert step.action().after == {path: "nvcr.io/nvidia/driver:580.2"}
    world.run(wanted)
    assert [line.split(" (")[0] for line in world.written(before)] == [f"patch daemonsets {world.namespace}/rolling"]


def _removed_env(daemonset: dict[str, Any]) -> None:
    container(daemonset)["env"].pop()


def _removed_toleration_key(daemonset: dict[str, Any]) -> None:
    daemonset["spec"]["template"]["spec"]["tolerations"][0].pop("effect")


def _other_init_order(daemonset: dict[str, Any]) -> None:
    daemonset["spec"]["template"]["spec"]["initContainers"].reverse()


def _removed_volume(daemonset: dict[str, Any]) -> None:
    daemonset["spec"]["template"]["spec"]["volumes"].pop()


def _removed_port(daemonset: dict[str, Any]) -> None:
    container(daemonset)["ports"].pop()


def _other_quantity(daemonset: dict[str, Any]) -> None:
    container(daemonset)["resources"]["limits"]["cpu"] = "1001m"


def _removed_probe(daemonset: dict[str, Any]) -> None:
    container(daemonset).pop("livenessProbe")


def _other_volume_kind(daemonset: dict[str, Any]) -> None:
    volume = daemonset["spec"]["template"]["spec"]["volumes"][1]
    volume.pop("hostPath")
    volume["emptyDir"] = {}


def _removed_label(daemonset: dict[str, Any]) -> None:
    daemonset["spec"]["template"]["metadata"]["annotations"].clear()


EDITS = (
    _removed_env, _removed_toleration_key, _other_init_order, _removed_volume, _removed_port, _other_quantity,
    _removed_probe, _other_volume_kind, _removed_label,
)  # fmt: skip


def test_whatever_changes_in_a_daemonset_is_written_once(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    for edit in EDITS:
        edit(change(wanted, "DaemonSet", "rolling"))
        assert world.run(wanted) == [f"update DaemonSet {world.namespace}/rolling"], edit.__name__
        assert world.run(wanted) == [], edit.__name__
    live = world.get("daemonset", "rolling")
    assert owners(live) == {("gpufleet", "Apply")}
    names = [item["name"] for item in live["spec"]["template"]["spec"]["initContainers"]]
    assert names == ["first-by-name", "second-by-name"]


def test_equal_quantities_in_another_spelling_are_no_change(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    container(change(wanted, "DaemonSet", "rolling"))["resources"] = {
        "limits": {"cpu": 1, "memory": "1536Mi"},
        "requests": {"cpu": "500m"},
    }
    assert world.run(wanted) == []


# --- drift ----------------------------------------------------------------------------------------------------------

CONTAINER = {"name": "driver"}
DRIFTS: dict[str, dict[str, Any]] = {
    "a changed value": {"spec": {"template": {"spec": {"containers": [{**CONTAINER, "image": "other:1"}]}}}},
    "a removed field": {"spec": {"template": {"spec": {"containers": [{**CONTAINER, "livenessProbe": None}]}}}},
    "an added env": {
        "spec": {"template": {"spec": {"containers": [{**CONTAINER, "env": [{"name": "X", "value": "1"}]}]}}}
    },
    "an added container": {"spec": {"template": {"spec": {"containers": [{"name": "more", "image": "busybox"}]}}}},
    "an added label": {"metadata": {"labels": {"their": "label"}}},
    "an added node selector": {"spec": {"template": {"spec": {"nodeSelector": {"their": "label"}}}}},
    "a changed value owned as a whole": {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}},
    "an added volume": {"spec": {"template": {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}}},
    "a field that had a default": {"spec": {"template": {"spec": {"dnsPolicy": "Default"}}}},
    "a changed strategy": {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}},
    "an added limit": {
        "spec": {"template": {"spec": {"containers": [{**CONTAINER, "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}}
    },
}


@pytest.mark.rows("L20", "COM-09")
def test_what_others_change_on_our_objects_is_put_back(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    pristine = world.get("daemonset", "rolling")
    for what, patch in DRIFTS.items():
        world.patch("daemonset", "rolling", patch)
        drifted = world.get("daemonset", "rolling")
        [step] = world.plan(wanted).steps
        assert "kubectl-edit" in step.reason or "missing" in step.reason, f"{what}: {step.reason}"
        world.run(wanted)
        live = world.get("daemonset", "rolling")
        assert live["spec"] == pristine["spec"], what
        assert live["metadata"]["labels"] == pristine["metadata"]["labels"], what
        assert owners(live) == {("gpufleet", "Apply")}, what
        rolls = live["metadata"]["generation"] - drifted["metadata"]["generation"]
        assert rolls == (0 if what == "an added label" else 1), f"{what}: put back in one change of the spec"
        assert world.run(wanted) == [], what


@pytest.mark.rows("L20")
def test_drift_of_other_kinds_is_put_back(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    world.patch("configmap", "config", {"data": {"more": "x", "a": "other"}}, "merge")
    world.patch("role", "role", {"rules": []}, "merge")
    world.patch("service", "service", {"spec": {"ports": [{"port": 1, "name": "more"}], "sessionAffinity": "ClientIP"}})
    world.patch("nodefeaturegroup", "group", {"spec": {"more": 1, "size": 9, "rules": []}}, "merge")
    kinds = ("Role", "ConfigMap", "Service", "NodeFeatureGroup")
    assert [line.split()[1] for line in world.run(wanted)] == list(kinds)
    assert world.get("configmap", "config")["data"] == {"a": "line\nline\n", "empty": ""}
    assert "size" not in str(world.plan(wanted).steps)
    assert world.run(wanted) == []


@pytest.mark.rows("L20")
def test_a_client_side_apply_of_others_is_put_back(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    theirs = copy.deepcopy(change(wanted, "ConfigMap", "config"))
    theirs["data"]["theirs"] = "1"
    world.kubectl("apply", "-f", "-", stdin=json.dumps(theirs))
    world.kubectl(
        "apply", "--server-side", "--field-manager=argo", "--force-conflicts", "-f", "-", stdin=json.dumps(theirs)
    )
    world.run(wanted)
    assert "theirs" not in world.get("configmap", "config")["data"]
    assert world.run(wanted) == []


def test_the_content_of_a_secret_is_in_no_reason_and_no_plan(world: World) -> None:
    wanted = objects.everything(world.namespace)
    assert "dmFsdWU=" not in json.dumps(redacted([asdict(action) for action in world.plan(wanted).actions]))
    world.run(wanted)
    change(wanted, "Secret", "secret")["stringData"] = {"k": "other"}
    world.patch("secret", "secret", {"data": {"theirs": "dGhlaXJz"}}, "merge")
    [action] = world.plan(wanted).actions
    assert action.reason == "data.k is not as wanted; data.theirs is not as wanted"
    text = json.dumps(asdict(action))
    assert not any(secret in text for secret in ("dmFsdWU=", "b3RoZXI=", "dGhlaXJz"))


def test_drift_is_only_reported_when_asked(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    world.patch("daemonset", "rolling", DRIFTS["an added env"])
    made = world.plan(wanted, drift="report")
    [finding] = made.findings
    assert (finding.severity, finding.path) == ("warning", "spec.template.spec.containers[driver].env[X]")
    assert "kubectl-edit" in finding.detail
    assert made.steps == []


@pytest.mark.rows("L21")
def test_a_restart_by_an_admin_and_notes_of_others_are_left_alone(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    world.kubectl("-n", world.namespace, "rollout", "restart", "daemonset/rolling", "deployment/deployment")
    world.kubectl("-n", world.namespace, "annotate", "daemonset/rolling", "note=theirs")
    world.kubectl("label", "namespace", world.namespace, "team=theirs")
    assert world.run(wanted) == []


# --- objects of others ----------------------------------------------------------------------------------------------


@pytest.mark.rows("COM-10")
def test_an_object_of_the_wanted_name_that_others_made_is_refused(world: World) -> None:
    world.run(objects.everything(world.namespace)[:1])
    world.kubectl(
        "-n", world.namespace, "create", "configmap", "config", "--from-literal=a=theirs", "--field-manager=helm"
    )
    before = world.offset()
    wanted = objects.everything(world.namespace)
    made = world.plan(wanted)
    [finding] = made.findings
    assert (finding.id, finding.severity) == ("foreign-object", "error")
    assert finding.target == f"ConfigMap {world.namespace}/config"
    assert "helm" in finding.detail
    assert "data.a" in finding.detail
    assert world.written(before) == []
    assert "ConfigMap" not in {step.ref.kind for step in made.steps}


def test_an_object_of_another_part_is_refused(world: World) -> None:
    wanted = [objects.obj("v1", "ConfigMap", "default", world.namespace, data={})]
    other = "test=another-part"
    _apply.execute(world.connection, _apply.plan(world.connection, _with(wanted, "another-part"), scope=other).steps[0])
    [finding] = world.plan(wanted).findings
    assert "belongs to another part" in finding.detail
    assert "test=another-part" in finding.detail
    for step in _apply.plan(world.connection, [], kinds=["ConfigMap"], scope=other).steps:
        _apply.execute(world.connection, step)


def _with(items: list[dict[str, Any]], part: str) -> list[dict[str, Any]]:
    copies = copy.deepcopy(items)
    for item in copies:
        item["metadata"]["labels"]["test"] = part
    return copies


@pytest.mark.rows("STA-04")
def test_a_namespace_that_others_made_only_gets_the_labels_that_it_lacks(world: World) -> None:
    world.kubectl("create", "namespace", world.namespace)
    wanted = objects.everything(world.namespace)[:1]
    assert world.run(wanted) == [f"update Namespace {world.namespace}"]
    found = json.loads(world.kubectl("get", "namespace", world.namespace, "-o", "json"))["metadata"]["labels"]
    assert found == {"kubernetes.io/metadata.name": world.namespace, "pod-security.kubernetes.io/enforce": "privileged"}
    assert world.run(wanted) == []
    assert world.run([]) == [], "and is not removed with the rest"

    which = Ref("Namespace", "", world.namespace)
    assert _apply.release(world.connection, which)
    assert not _apply.release(world.connection, which), "there is nothing left to give back"
    found = json.loads(world.kubectl("get", "namespace", world.namespace, "-o", "json"))["metadata"]["labels"]
    assert found == {"kubernetes.io/metadata.name": world.namespace}

    world.kubectl("label", "--overwrite", "namespace", world.namespace, "pod-security.kubernetes.io/enforce=baseline")
    [finding] = world.plan(wanted).findings
    assert "is baseline, wanted privileged (set by kubectl-label)" in finding.detail
    world.kubectl("delete", "namespace", world.namespace)


# --- immutable fields, removal --------------------------------------------------------------------------------------


def test_what_cannot_be_changed_in_place_is_made_anew(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    daemonset = change(wanted, "DaemonSet", "rolling")
    daemonset["spec"]["selector"]["matchLabels"]["app"] = "new"
    daemonset["spec"]["template"]["metadata"]["labels"]["app"] = "new"
    change(wanted, "RoleBinding", "role")["roleRef"].update(kind="ClusterRole", name=world.namespace)
    change(wanted, "RuntimeClass", "kube-test-nvidia")["handler"] = "nvidia-cdi"
    change(wanted, "Service", "service")["spec"]["clusterIP"] = "None"
    change(wanted, "Secret", "secret")["type"] = "example.com/other"
    made = world.plan(wanted)
    kinds = {"RoleBinding", "Secret", "Service", "RuntimeClass", "DaemonSet"}
    assert {(step.verb, step.ref.kind, step.disruptive) for step in made.steps} == {
        ("replace", kind, True) for kind in kinds
    }
    assert "cannot be changed in place" in made.steps[0].reason
    world.run(wanted)
    assert world.run(wanted) == []


def test_a_crd_is_never_made_anew(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    change(wanted, "CustomResourceDefinition", "nodefeaturegroups.nfd.k8s-sigs.io")["spec"]["scope"] = "Cluster"
    made = world.plan(wanted)
    assert [finding.id for finding in made.findings] == ["immutable-field"]
    assert made.steps == []


@pytest.mark.rows("COM-10", "S40")
def test_what_is_no_longer_wanted_goes_in_the_reverse_order(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    rest = [item for item in wanted if item["kind"] not in ("DaemonSet", "Service", "ClusterRoleBinding")]
    made = world.plan(rest)
    assert [(step.verb, step.ref.kind) for step in made.steps] == [
        ("delete", "DaemonSet"),
        ("delete", "DaemonSet"),
        ("delete", "Service"),
        ("delete", "Service"),
        ("delete", "ClusterRoleBinding"),
    ]
    world.run(rest)
    for step in made.steps:
        _apply.wait_gone(world.connection, step.ref, step.live["metadata"]["uid"])  # type: ignore[index]
    assert world.run(rest) == []


@pytest.mark.rows("COM-10")
def test_an_object_that_lost_our_label_is_never_deleted(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    rest = [item for item in wanted if item["kind"] != "ConfigMap"]
    [step] = world.plan(rest).steps
    world.kubectl("-n", world.namespace, "label", "configmap", "config", "app.kubernetes.io/managed-by-")
    with pytest.raises(KubeError, match="no longer carries the label"):
        _apply.execute(world.connection, step)
    assert world.run(rest) == []
    assert world.get("configmap", "config")["data"]["a"]
    [finding] = world.plan(wanted).findings
    assert finding.id == "foreign-object"


def test_an_object_that_changed_since_the_plan_is_deleted_all_the_same(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    [step] = world.plan([item for item in wanted if item["kind"] != "ConfigMap"]).steps
    world.patch("configmap", "config", {"data": {"z": "c"}}, "merge")
    _apply.execute(world.connection, step)
    assert world.connection.find(step.ref.path) is None


def test_an_object_that_is_being_deleted_is_waited_for_and_made_anew(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    world.patch("configmap", "config", {"metadata": {"finalizers": ["example.com/hold"]}}, "merge")
    world.kubectl("-n", world.namespace, "delete", "configmap", "config", "--wait=false")
    [step] = world.plan(wanted).steps
    assert (step.verb, step.reason) == ("replace", "is being deleted")
    with pytest.raises(KubeError, match=r"not gone after .* held by the finalizer example.com/hold"):
        _apply.wait_gone(world.connection, step.ref, step.live["metadata"]["uid"], _apply.Deadline(0.5))  # type: ignore[index]
    world.patch("configmap", "config", {"metadata": {"finalizers": None}}, "merge")
    world.run(wanted)
    assert world.run(wanted) == []


# --- kinds that are not there ---------------------------------------------------------------------------------------


def test_an_optional_kind_that_the_cluster_lacks_is_left_out_with_a_word(world: World) -> None:
    wanted = [objects.obj("monitoring.coreos.com/v1", "ServiceMonitor", "default", "m", spec={})]
    made = world.plan(wanted, optional=["ServiceMonitor"])
    assert made.steps == []
    assert [(finding.id, finding.severity) for finding in made.findings] == [("kind-missing", "info")]
    assert [(f.id, f.severity) for f in world.plan(wanted).findings] == [("kind-missing", "error")]


def test_objects_that_the_collection_cannot_own_are_a_fault_of_the_caller(world: World) -> None:
    good = objects.obj("v1", "ConfigMap", "default", "x")
    bare = copy.deepcopy(good)
    bare["metadata"]["labels"] = {}
    for bad in (bare, {**good, "apiVersion": "v2"}, objects.obj("v1", "ConfigMap", "", "x")):
        with pytest.raises(ValueError, match="ConfigMap"):
            _apply.plan(world.connection, [bad])


# --- check mode -----------------------------------------------------------------------------------------------------


def test_a_refusal_by_the_server_is_found_before_anything_is_written(world: World) -> None:
    wanted = objects.everything(world.namespace)
    world.run(wanted)
    container(change(wanted, "DaemonSet", "rolling"))["volumeMounts"].append({"name": "nowhere", "mountPath": "/x"})
    before = world.offset()
    [finding] = _apply.rehearse(world.connection, world.plan(wanted))
    assert (finding.id, finding.target) == ("refused", f"DaemonSet {world.namespace}/rolling")
    assert "nowhere" in finding.detail
    assert world.written(before) == []


def test_an_account_that_may_only_read_plans_without_dry_runs(world: World) -> None:
    world.run(objects.everything(world.namespace)[:3])
    world.kubectl(
        "create",
        "clusterrolebinding",
        world.namespace + "-view",
        "--clusterrole=kube-view",
        f"--serviceaccount={world.namespace}:sa",
    )
    world.kubectl("apply", "-f", "-", stdin=json.dumps({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "kube-view"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
    }))  # fmt: skip
    token = world.kubectl("-n", world.namespace, "create", "token", "sa").strip()
    options = {"host": world.cluster.url, "api_key": token, "ca_cert": str(world.cluster.pki / "ca.crt")}
    reader = Connection.open(options)
    made = world.plan(objects.everything(world.namespace), reader)
    assert len(made.steps) == len(objects.everything(world.namespace)) - 3
    assert _apply.rehearse(reader, made) == []
    assert reader.stats["dry_runs"] == 1, "the first refusal is enough"
    world.kubectl("delete", "clusterrolebinding", world.namespace + "-view")


# --- faults ---------------------------------------------------------------------------------------------------------


def some(world: World, text: str) -> list[dict[str, Any]]:
    """A few objects whose change takes every path: create, update with foreign fields, replace, delete."""
    config = [objects.obj("v1", "ConfigMap", world.namespace, name, data={"a": text}) for name in ("one", text)]
    handler = objects.obj("node.k8s.io/v1", "RuntimeClass", "", f"{world.namespace}-r", handler=text)
    return [objects.everything(world.namespace)[0], *config, handler]


FEW = ("Namespace", "ConfigMap", "RuntimeClass")


@pytest.mark.parametrize("kind", Faults.KINDS)
def test_a_fault_in_any_request_does_not_end_the_run(world: World, kind: str) -> None:
    happened = 0
    world.run(some(world, "x0"), kinds=FEW)
    for at in range(1, 40):
        world.patch("configmap", "one", {"data": {"theirs": "1"}}, "merge")
        faults = Faults(kind, at)
        world.run(some(world, f"x{at}"), world.connect(faults), kinds=FEW)
        assert world.run(some(world, f"x{at}"), kinds=FEW) == [], f"request {at}"
        if not faults.happened:
            break
        happened += 1
    assert happened >= 9, "3 lists, a look at 1 new object, 6 writes and the waits between them"


@pytest.mark.rows("COM-09")
def test_a_run_that_was_killed_at_any_request_is_finished_by_the_next(world: World) -> None:
    happened = 0
    world.run(some(world, "x0"), kinds=FEW)
    for at in range(1, 40):
        world.patch("configmap", "one", {"data": {"theirs": "1"}}, "merge")
        faults = Faults("killed", at)
        try:
            world.run(some(world, f"x{at}"), world.connect(faults), kinds=FEW)
        except KilledError:
            happened += 1
        world.run(some(world, f"x{at}"), kinds=FEW)
        assert world.run(some(world, f"x{at}"), kinds=FEW) == [], f"request {at}"
        assert "theirs" not in world.get("configmap", "one")["data"]
        if not faults.happened:
            break
    assert happened >= 9


def test_a_real_server_that_is_not_there_is_named(world: World) -> None:
    nobody = Connection.open({"host": "https://127.0.0.1:9", "api_key": "secret-token"})
    with pytest.raises(KubeError, match=r"127\.0\.0\.1:9 does not answer: .*refused") as caught:
        nobody.get("/version")
    assert "secret-token" not in str(caught.value)


def test_credentials_by_the_package_reach_the_server_as_the_plain_ones_do(world: World) -> None:
    options = {"kubeconfig": str(world.cluster.kubeconfig("admin"))}
    for found in (_credentials.plain(options), _credentials.packaged(options)):
        assert found is not None
        connection = Connection(PoolTransport(found.pool), found.server, found.auth)
        assert connection.get("/version")["major"] == "1"


def test_a_certificate_of_another_authority_is_named(world: World) -> None:
    stranger = Connection.open({"host": world.cluster.url, "api_key": "x"})
    with pytest.raises(KubeError, match="certificate"):
        stranger.get("/version")
    assert stranger.stats["requests"] == 1


# --- lists ----------------------------------------------------------------------------------------------------------


def test_long_lists_come_in_pages_and_metadata_alone_is_small(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [objects.obj("v1", "ConfigMap", world.namespace, f"c{n}", data={"x": "y" * 1000}) for n in range(7)]
    world.run([objects.everything(world.namespace)[0], *many])
    monkeypatch.setattr(_lists, "PAGE", 3)
    before = world.connection.stats["requests"]
    whole = _lists.list_objects(world.connection, "ConfigMap", world.namespace, label_selector=world.scope)
    assert world.connection.stats["requests"] - before == 3
    assert sorted(item["metadata"]["name"] for item in whole.items) == [f"c{n}" for n in range(7)]
    small = _lists.list_objects(
        world.connection, "ConfigMap", world.namespace, label_selector=world.scope, metadata_only=True
    )
    assert [set(item) for item in small.items] == [{"kind", "apiVersion", "metadata"}] * 7


# --- round trip -----------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["a", "b", "c"])
ENV = st.dictionaries(WORDS, st.one_of(st.sampled_from(["", "x", "1"]), st.none()), max_size=3).map(
    lambda found: [
        {"name": name, "value": value}
        if value is not None
        else {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        for name, value in found.items()
    ]
)
PORTS = st.lists(st.tuples(st.sampled_from([80, 81]), st.sampled_from(["TCP", "UDP"])), unique=True, max_size=3).map(
    lambda found: [{"containerPort": port, "protocol": protocol} for port, protocol in found]
)
VOLUMES = st.dictionaries(
    WORDS,
    st.sampled_from(
        [
            {"emptyDir": {}},
            {"emptyDir": {"sizeLimit": "1Gi"}},
            {"hostPath": {"path": "/x"}},
            {"configMap": {"name": "c"}},
        ]
    ),
    max_size=3,
).map(lambda found: [{"name": name, **source} for name, source in found.items()])
TOLERATIONS = st.lists(
    st.sampled_from([{"operator": "Exists"}, {"key": "k", "operator": "Equal", "value": "v"}, {"key": "k"}]), max_size=2
)
PODS = st.fixed_dictionaries(
    {"containers": st.tuples(ENV, PORTS).map(lambda it: [{"name": "m", "image": "i", "env": it[0], "ports": it[1]}])},
    optional={
        "volumes": VOLUMES,
        "tolerations": TOLERATIONS,
        "nodeSelector": st.dictionaries(WORDS, WORDS, max_size=2),
        "hostNetwork": st.booleans(),
        "securityContext": st.sampled_from([{}, {"runAsUser": 0}]),
        "initContainers": st.permutations(["x", "y"]).map(lambda names: [{"name": n, "image": "i"} for n in names]),
    },
)


@pytest.fixture(scope="module")
def connection(cluster: Any) -> Connection:
    return Connection.open({"kubeconfig": str(cluster.kubeconfig("admin"))})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PODS, PODS)
def test_the_server_and_the_comparison_agree(connection: Connection, first: Any, second: Any) -> None:
    """After each apply nothing differs, and something differed before it just when the server stored something new."""
    live = connection.find(Ref("DaemonSet", "default", "round-trip").path)
    for pod in (first, second):
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}
        wanted = objects.obj("apps/v1", "DaemonSet", "default", "round-trip", spec=spec)
        expected = live is None or bool(differences(_apply.normalised(wanted), live))
        stored = _apply.apply(connection, _apply.normalised(wanted))
        assert differences(wanted, stored) == []
        assert expected == (live is None or changed(live, stored))
        live = stored
