# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rights that a plan needs are asked for before its first write."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._apply import CREATE, DELETE, UPDATE, Step
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._resources import Ref
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._rights import ANYWHERE
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._account import lacking
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, Sent, connect, failure

SPACE = "gpu-operator"
BASE = [
    {"verbs": ["create"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]},
    {"verbs": ["get", "update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
     "resourceNames": ["gpufleet"]},
]  # fmt: skip


def rule(group: str, resource: str, *verbs: str, names: list[str] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"verbs": list(verbs), "apiGroups": [group], "resources": [resource]}
    return {**made, "resourceNames": names} if names else made


def step(verb: str, kind: str, name: str, namespace: str = "", **wanted: Any) -> Step:
    obj = {"kind": kind, "metadata": {"name": name, "namespace": namespace}, **wanted} if verb != DELETE else None
    return Step(verb, Ref(kind, namespace, name), "because", obj)


def ask(
    steps: list[Step],
    here: list[dict[str, Any]],
    anywhere: list[dict[str, Any]],
    *,
    nodes: tuple[str, ...] = (),
    wait: bool = False,
    incomplete: bool = False,
) -> dict[str, str]:
    def answer(sent: Sent) -> FakeReply:
        wide = sent.body["spec"]["namespace"] == ANYWHERE
        rules = anywhere if wide else [*anywhere, *here, *BASE]
        return FakeReply(201, {"status": {"resourceRules": rules, "incomplete": incomplete}})

    connection, transport, _pauses = connect(answer)
    found = lacking(connection, steps, nodes, SPACE, wait)
    assert len(transport.sent) == 2
    assert connection.stats["writes"] == 0
    return {finding.target: finding.detail for finding in found}


@pytest.mark.rows("S30", "S42")
def test_what_is_missing_is_named_by_kind_and_place() -> None:
    steps = [
        step(UPDATE, "DaemonSet", "a", SPACE),
        step(DELETE, "DaemonSet", "b", SPACE),
        step(CREATE, "RuntimeClass", "c"),
    ]
    found = ask(steps, [rule("apps", "daemonsets", "patch")], [rule("node.k8s.io", "runtimeclasses", "create")])
    assert set(found) == {f"daemonsets.apps in namespace {SPACE}", "runtimeclasses.node.k8s.io in the whole cluster"}
    assert found[f"daemonsets.apps in namespace {SPACE}"].startswith("the account may not delete ")
    assert found["runtimeclasses.node.k8s.io in the whole cluster"].startswith("the account may not patch ")


@pytest.mark.rows("S30")
@pytest.mark.parametrize(
    "wide", [[rule("*", "*", "*")], [rule("apps", "daemonsets", "patch", names=["a"])], [rule("apps", "*", "*")]]
)
def test_rights_by_name_and_to_everything_count(wide: list[dict[str, Any]]) -> None:
    assert ask([step(UPDATE, "DaemonSet", "a", SPACE)], [], wide) == {}


@pytest.mark.rows("S30")
def test_a_right_to_another_object_or_in_the_namespace_alone_does_not_count() -> None:
    other = [rule("apps", "daemonsets", "patch", names=["b"])]
    assert list(ask([step(UPDATE, "DaemonSet", "a", SPACE)], other, [])) == [f"daemonsets.apps in namespace {SPACE}"]
    here = [rule("", "nodes", "patch")]
    assert list(ask([], here, [], nodes=("n",))) == ["nodes in the whole cluster"]


@pytest.mark.rows("S30")
def test_what_waiting_reads_is_asked_for_where_the_run_waits() -> None:
    assert ask([], [], []) == {}
    missing = ask([], [], [], wait=True)
    assert {name.split(" ")[0] for name in missing} == {
        "daemonsets.apps",
        "deployments.apps",
        "events",
        "nodes",
        "pods",
    }


@pytest.mark.rows("S30")
def test_roles_can_be_given_by_who_holds_them_or_may_escalate() -> None:
    made = step(CREATE, "ClusterRole", "r", rules=[{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}])
    own = rule("rbac.authorization.k8s.io", "clusterroles", "create", "patch")
    assert "cannot give the operands the right to get" in ask([made], [], [own])["nodes in the whole cluster"]
    assert ask([made], [], [own, rule("", "nodes", "get")]) == {}
    assert ask([made], [], [own, rule("rbac.authorization.k8s.io", "clusterroles", "escalate")]) == {}


@pytest.mark.rows("S30")
@pytest.mark.parametrize(
    ("kind", "namespace", "roles"), [("ClusterRole", "", "clusterroles"), ("Role", SPACE, "roles")]
)
def test_roles_that_are_bound_too_need_both_verbs_on_their_own_kind(kind: str, namespace: str, roles: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    steps = [
        step(CREATE, kind, "r", namespace, rules=rules),
        step(CREATE, f"{kind}Binding", "r", namespace, roleRef={"kind": kind, "name": "r"}),
    ]
    group = "rbac.authorization.k8s.io"
    own = [rule(group, f"{plural}{more}", "create", "patch")
           for plural in ("role", "clusterrole") for more in ("s", "bindings")]  # fmt: skip
    other = "roles" if roles == "clusterroles" else "clusterroles"
    for verbs, resource in (((), roles), (("escalate",), roles), (("bind",), roles), (("escalate", "bind"), other)):
        (said,) = ask(steps, [], [*own, rule(group, resource, *verbs)]).values()
        assert "cannot give the operands the right to get" in said
    assert ask(steps, [], [*own, rule(group, roles, "escalate", "bind")]) == {}
    assert ask(steps, [], [*own, rule(group, roles, "escalate", "bind", names=["r"])]) == {}
    assert ask(steps[:1], [], [*own, rule(group, roles, "escalate")]) == {}


def test_nothing_follows_where_the_server_cannot_tell_or_other_namespaces_are_meant() -> None:
    steps = [step(UPDATE, "DaemonSet", "a", SPACE)]
    assert ask(steps, [], [], incomplete=True) == {}
    assert ask([step(UPDATE, "DaemonSet", "a", "elsewhere")], [], []) == {}
    connection, _transport, _pauses = connect(FakeReply(403, failure(403, "Forbidden")))
    assert lacking(connection, steps, (), SPACE, True) == []
