# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._equal import (
    ABSENT,
    applied,
    differences,
    foreign,
    managers,
    normalised,
    taken_over,
)
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube import fakes

# --- properties, on a model of the server ----------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d"])
SCALARS = st.one_of(st.integers(2, 4), st.sampled_from(["x", "y"]), st.just(True))


def named_lists(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    one = st.dictionaries(NAMES, items, max_size=2)
    return st.dictionaries(NAMES, one, min_size=1, max_size=3).map(lambda d: [{"name": k, **v} for k, v in d.items()])


VALUES = st.recursive(
    st.one_of(SCALARS, st.lists(SCALARS, min_size=1, max_size=3)),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["a", "b", "atomic"]), inner, min_size=1, max_size=3), named_lists(inner)
    ),
    max_leaves=8,
)
SPECS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)


def thing(spec: Any, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Thing",
        "metadata": {"name": "t", "labels": {"own": "yes", **labels}},
        "spec": spec,
    }


@fakes.PATIENT
@given(SPECS)
def test_nothing_differs_after_an_apply(spec: Any) -> None:
    wanted = thing(spec)
    live = fakes.apply(None, wanted)
    assert differences(wanted, live) == []
    assert foreign(wanted, live) == []


@fakes.PATIENT
@given(SPECS)
def test_what_is_extracted_is_what_was_applied(spec: Any) -> None:
    wanted = thing(spec)
    assert applied(fakes.apply(None, wanted)) == wanted


@settings(fakes.PATIENT, max_examples=200)
@given(SPECS, SPECS)
def test_a_changed_wish_differs_until_it_is_applied(before: Any, after: Any) -> None:
    live = fakes.apply(None, thing(before))
    wanted = thing(after)
    assert bool(differences(wanted, live)) == (before != after)
    assert differences(wanted, fakes.apply(live, wanted)) == []


@settings(fakes.PATIENT, max_examples=200)
@given(SPECS, SPECS, st.booleans())
def test_whatever_another_manager_does_is_found_and_undone(spec: Any, theirs: Any, labelled: bool) -> None:
    wanted = thing(spec)
    made = fakes.apply(None, wanted)
    changed = dict(copy.deepcopy(made), spec={**copy.deepcopy(spec), **theirs})
    if labelled:
        changed["metadata"]["labels"]["their"] = "label"
    live = fakes.update(made, changed, "kubectl-edit")
    touched = labelled or changed["spec"] != spec
    assert bool(differences(wanted, live) or foreign(wanted, live)) == touched

    live["metadata"]["managedFields"] = taken_over(wanted, live)
    back = fakes.apply(live, wanted)
    assert back["spec"] == spec
    assert back["metadata"]["labels"] == wanted["metadata"]["labels"]
    assert [entry["manager"] for entry in back["metadata"]["managedFields"]] == ["gpufleet"]


# --- single cases, with trees as the real server writes them --------------------------------------------------------


def live(
    content: dict[str, Any], own: dict[str, Any], *others: dict[str, Any], kind: str = "DaemonSet"
) -> dict[str, Any]:
    meta = {"name": "d", "managedFields": [{"manager": "gpufleet", "operation": "Apply", "fieldsV1": own}, *others]}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, **content}


def wish(content: dict[str, Any], kind: str = "DaemonSet") -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "d"}, **content}


def key(**keys: Any) -> str:
    return "k:" + json.dumps(keys)


def test_a_default_that_nobody_owns_is_no_difference() -> None:
    there = live({"spec": {"a": 1, "dnsPolicy": "ClusterFirst"}}, {"f:spec": {"f:a": {}}})
    assert differences(wish({"spec": {"a": 1}}), there) == []
    assert foreign(wish({"spec": {"a": 1}}), there) == []


def test_a_default_inside_a_value_owned_as_a_whole_is_no_difference() -> None:
    there = live(
        {"spec": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}, {"f:spec": {"f:fieldRef": {}}}
    )
    assert differences(wish({"spec": {"fieldRef": {"fieldPath": "spec.nodeName"}}}), there) == []
    [found] = differences(wish({"spec": {"fieldRef": {"fieldPath": "metadata.name"}}}), there)
    assert found.path == "spec.fieldRef"


def test_a_field_that_left_a_value_owned_as_a_whole_is_a_difference() -> None:
    there = live({"spec": {"tolerations": [{"key": "a", "effect": "NoSchedule"}]}}, {"f:spec": {"f:tolerations": {}}})
    [found] = differences(wish({"spec": {"tolerations": [{"key": "a"}]}}), there)
    assert found.path == "spec.tolerations"


def test_ports_are_known_by_number_and_protocol_whatever_their_order() -> None:
    tcp, udp = ({"containerPort": 80, "protocol": name} for name in ("TCP", "UDP"))
    own = {key(**port): {".": {}, "f:containerPort": {}, "f:protocol": {}} for port in (tcp, udp)}
    there = live({"spec": {"ports": [tcp, udp]}}, {"f:spec": {"f:ports": own}})
    assert differences(wish({"spec": {"ports": [tcp, udp]}}), there) == []
    assert [d.path for d in differences(wish({"spec": {"ports": [tcp]}}), there)] == ["spec.ports[80,UDP]"]


def test_a_port_without_protocol_is_the_one_that_the_server_made_of_it() -> None:
    own = {key(containerPort=80, protocol="TCP"): {".": {}, "f:containerPort": {}}}
    there = live({"spec": {"ports": [{"containerPort": 80, "protocol": "TCP"}]}}, {"f:spec": {"f:ports": own}})
    assert differences(wish({"spec": {"ports": [{"containerPort": 80}]}}), there) == []


def test_another_order_of_init_containers_is_a_difference() -> None:
    own = {key(name=n): {".": {}, "f:name": {}} for n in ("first", "second")}
    there = live({"spec": {"init": [{"name": "second"}, {"name": "first"}]}}, {"f:spec": {"f:init": own}})
    [found] = differences(wish({"spec": {"init": [{"name": "first"}, {"name": "second"}]}}), there)
    assert found.path == "spec.init.(order)"


def test_an_item_that_is_no_longer_wanted_is_a_difference() -> None:
    own = {key(name="A"): {".": {}, "f:name": {}, "f:value": {}}, key(name="B"): {".": {}, "f:name": {}, "f:value": {}}}
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    there = live({"spec": {"env": env}}, {"f:spec": {"f:env": own}})
    [found] = differences(wish({"spec": {"env": env[:1]}}), there)
    assert (found.path, found.wanted, found.live) == ("spec.env[B]", ABSENT, env[1])
    assert "no longer wanted" in str(found)


def test_empty_fields_that_the_server_does_not_store_are_no_difference() -> None:
    there = live({"spec": {"a": 1}}, {"f:spec": {"f:a": {}, "f:hostNetwork": {}, "f:env": {}}})
    assert differences(wish({"spec": {"a": 1, "hostNetwork": False, "env": [], "gone": None}}), there) == []


def test_an_empty_field_that_the_server_has_not_seen_is_a_difference() -> None:
    there = live({"spec": {"a": 1}}, {"f:spec": {"f:a": {}}})
    assert [d.path for d in differences(wish({"spec": {"a": 1, "mount": False}}), there)] == ["spec.mount"]
    there = live({"spec": {"securityContext": {}}}, {"f:spec": {"f:securityContext": {}}})
    assert len(differences(wish({"spec": {"securityContext": {"runAsUser": 0}}}), there)) == 1


def test_a_right_value_that_somebody_else_owns_is_a_difference_of_ownership() -> None:
    other = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:a": {}}}}
    [found] = differences(
        wish({"spec": {"a": 1, "b": 2}}), live({"spec": {"a": 1, "b": 2}}, {"f:spec": {"f:b": {}}}, other)
    )
    assert (found.path, found.owner) == ("spec.a", "kubectl-edit")
    assert "not recorded as ours" in str(found)


def test_a_difference_names_who_set_the_value() -> None:
    own = {"f:spec": {"f:env": {key(name="A"): {".": {}, "f:name": {}}}}}
    other = {
        "manager": "kubectl-edit",
        "operation": "Update",
        "fieldsV1": {"f:spec": {"f:env": {key(name="A"): {"f:value": {}}}}},
    }
    there = live({"spec": {"env": [{"name": "A", "value": "2"}]}}, own, other)
    [found] = differences(wish({"spec": {"env": [{"name": "A", "value": "1"}]}}), there)
    assert str(found) == "spec.env[A].value is 2, wanted 1 (set by kubectl-edit)"


def test_members_of_a_set_are_compared_one_by_one() -> None:
    there = live({"spec": {"items": ["a", "b"]}}, {"f:spec": {"f:items": {'v:"a"': {}, 'v:"b"': {}}}})
    assert differences(wish({"spec": {"items": ["a", "b"]}}), there) == []
    assert [d.wanted for d in differences(wish({"spec": {"items": ["a", "c"]}}), there)] == ["c", ABSENT]


def test_quantities_are_equal_by_value() -> None:
    there = live({"spec": {"limits": {"cpu": "1"}}}, {"f:spec": {"f:limits": {"f:cpu": {}}}})
    assert differences(wish({"spec": {"limits": {"cpu": "1000m"}}}), there) == []
    assert len(differences(wish({"spec": {"limits": {"cpu": "1001m"}}}), there)) == 1


def test_texts_of_a_secret_are_compared_as_they_are_stored() -> None:
    there = live({"data": {"k": "djE="}}, {"f:data": {"f:k": {}}}, kind="Secret")
    assert differences(wish({"stringData": {"k": "v1"}}, "Secret"), there) == []
    assert normalised(wish({"stringData": {"k": "v1"}, "status": {}}, "Secret"))["data"] == {"k": "djE="}


@pytest.mark.parametrize(
    ("kind", "fields", "content"),
    [
        ("DaemonSet", {"f:metadata": {"f:annotations": {"f:x": {}}}}, {}),
        ("DaemonSet", {"f:status": {"f:x": {}}}, {"status": {"x": 1}}),
        (
            "DaemonSet",
            {"f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/restartedAt": {}}}}}},
            {"spec": {"a": 1, "template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}},
        ),
        ("ServiceAccount", {"f:secrets": {key(name="s"): {}}}, {"secrets": [{"name": "s"}]}),
    ],
)
def test_what_others_may_note_is_left_alone(kind: str, fields: dict[str, Any], content: dict[str, Any]) -> None:
    other = {"manager": "other", "operation": "Update", "fieldsV1": fields}
    there = live({"spec": {"a": 1}, **content}, {"f:spec": {"f:a": {}}}, other, kind=kind)
    there["metadata"]["annotations"] = {"x": "y"}
    assert foreign(wish({"spec": {"a": 1}}, kind), there) == []
    assert other in taken_over(wish({"spec": {"a": 1}}, kind), there)


def test_what_is_written_through_a_subresource_is_not_foreign() -> None:
    other = {
        "manager": "hpa",
        "operation": "Update",
        "subresource": "scale",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }
    there = live({"spec": {"a": 1, "replicas": 3}}, {"f:spec": {"f:a": {}}}, other)
    assert foreign(wish({"spec": {"a": 1}}), there) == []
    assert other in taken_over(wish({"spec": {"a": 1}}), there)


def test_a_foreign_field_names_its_path_owner_and_value() -> None:
    fields = {"f:spec": {"f:env": {".": {}, key(name="X"): {".": {}, "f:name": {}, "f:value": {}}}}}
    other = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": fields}
    there = live({"spec": {"env": [{"name": "X", "value": "1"}]}}, {"f:spec": {}}, other)
    [found] = foreign(wish({"spec": {"env": []}}), there)
    assert (found.path, found.owner, found.value) == ("spec.env[X]", "kubectl-edit", {"name": "X", "value": "1"})


def test_managers_are_named_once() -> None:
    entries = [{"manager": "helm", "operation": "Update"}, {"manager": "helm", "operation": "Apply"}]
    there = {
        "metadata": {
            "managedFields": [*entries, {"manager": "kubelet", "operation": "Update", "subresource": "status"}]
        }
    }
    assert managers(there) == ["helm"]
