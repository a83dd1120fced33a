# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node groups: what a user may write, which nodes belong to a group, and what changes on them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._drivers import Driver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._groups import (
    NodeGroup,
    Wanted,
    assign,
    parse_groups,
    plan_group,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._keys import MIG_CONFIG, PLUGIN_CONFIG
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._runtimes import DISTRIBUTIONS, Runtime
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._selector import SelectorError, parse
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._taints import taint
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import NodeFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Finding

A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/mig.capable": "true"}
T4 = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/mig.capable": "false"}


def groups(*raw: Any) -> list[NodeGroup]:
    found, findings = parse_groups(list(raw))
    assert findings == []
    return found


def problems(*raw: Any) -> list[tuple[str, str]]:
    return [(finding.id, finding.path) for finding in parse_groups(list(raw))[1]]


def ids(findings: list[Finding]) -> list[str]:
    return [finding.id for finding in findings]


# --- selectors -------------------------------------------------------------------------------------------------------

LABELS = {"pool": "a", "tier": "x", "example.com/gpu": "yes", "empty": ""}


@pytest.mark.parametrize(
    ("source", "matches"),
    [
        (None, True),
        ("", True),
        ({}, True),
        ("pool=a", True),
        ("pool == a", True),
        ("pool=b", False),
        ("pool!=b", True),
        ("pool!=a", False),
        ("gone!=a", True),
        ("pool", True),
        ("gone", False),
        ("!gone", True),
        ("! pool", False),
        ("empty=", True),
        ("pool=", False),
        ("example.com/gpu=yes,tier in (x, y),!gone", True),
        ("tier in (y,z)", False),
        ("tier notin (y,z)", True),
        ("tier notin (x)", False),
        ("gone notin (x)", True),
        ("gone in (x)", False),
        ({"pool": "a", "tier": "x"}, True),
        ({"pool": "a", "tier": "y"}, False),
        ({"matchLabels": {"pool": "a"}}, True),
        (
            {"matchLabels": {"pool": "a"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["y"]}]},
            False,
        ),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["y"]}]}, True),
        ({"matchExpressions": [{"key": "gone", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]}, True),
    ],
)
def test_selectors_match_as_in_kubernetes(source: Any, matches: bool) -> None:
    assert parse(source).matches(LABELS) is matches
    assert parse(str(parse(source))).matches(LABELS) is matches, "its text means the same"


@pytest.mark.parametrize(
    "source",
    [
        "pool=a,,tier=x", "pool in ()=", "-pool", "pool=a b", "tier in x", 7, ["pool=a"], {"pool": True}, {"pool": 1},
        "po ol",
        {"matchLabels": {}, "other": 1}, {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
        {"matchExpressions": ["a"]}, {"matchExpressions": [{"key": "a", "operator": "In"}]},
        {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}, "pool=" + "a" * 64, "a/b/c",
    ],
)  # fmt: skip
def test_what_is_no_selector_is_refused(source: Any) -> None:
    with pytest.raises(SelectorError):
        parse(source)


keys = st.sampled_from(["pool", "tier", "gone", "example.com/gpu"])
words = st.sampled_from(["a", "b", "x", "yes"])
parts = st.one_of(
    st.builds("{}={}".format, keys, words),
    st.builds("{}!={}".format, keys, words),
    st.builds(lambda key, chosen: f"{key} in ({','.join(chosen)})", keys, st.lists(words, min_size=1)),
    st.builds(lambda key, chosen: f"{key} notin ({','.join(chosen)})", keys, st.lists(words, min_size=1)),
    st.builds("!{}".format, keys),
    keys,
)


@given(st.lists(parts, max_size=4), st.dictionaries(keys, words))
def test_a_selector_holds_when_each_of_its_parts_does(chosen: list[str], labels: dict[str, str]) -> None:
    whole = parse(",".join(chosen))
    assert whole.matches(labels) == all(parse(part).matches(labels) for part in chosen)
    assert parse(str(whole)) == whole


# --- what a user may write -------------------------------------------------------------------------------------------


@pytest.mark.rows("S26", "DP-01")
def test_a_group_is_read() -> None:
    (group,) = groups(
        {
            "name": "inference",
            "selector": {"pool": "inference"},
            "taint": {"value": "true", "effect": "NoExecute"},
            "mig": "all-1g.10gb",
            "device_plugin": {"config": "shared"},
            "labels": {"team": "vision", "nvidia.com/gpu.deploy.driver": "false"},
        }
    )
    assert group.taint == {"key": "nvidia.com/gpu", "value": "true", "effect": "NoExecute"}
    assert group.wanted_labels() == {
        "team": "vision",
        "nvidia.com/gpu.deploy.driver": "false",
        MIG_CONFIG: "all-1g.10gb",
        PLUGIN_CONFIG: "shared",
    }
    assert parse_groups(None) == ([], [])
    assert groups({"name": "all", "taint": True})[0].taint == {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    assert groups({"name": "all", "taint": False})[0].taint is None


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ({"name": "a", "selektor": "x"}, ("groups.unknown-key", "node_groups[0].selektor")),
        ({"selector": "x"}, ("groups.invalid", "node_groups[0].name")),
        ({"name": 3}, ("groups.invalid", "node_groups[0].name")),
        ("a", ("groups.invalid", "node_groups[0]")),
        ({"name": "a", "selector": "x=y z"}, ("groups.invalid", "node_groups[0].selector")),
        ({"name": "a", "taint": "x"}, ("groups.invalid", "node_groups[0].taint")),
        ({"name": "a", "taint": {"key": "x"}}, ("groups.invalid", "node_groups[0].taint")),
        ({"name": "a", "taint": {"value": True}}, ("groups.invalid", "node_groups[0].taint.value")),
        ({"name": "a", "taint": {"effect": "Never"}}, ("groups.invalid", "node_groups[0].taint.effect")),
        ({"name": "a", "mig": ["x"]}, ("groups.invalid", "node_groups[0].mig")),
        ({"name": "a", "mig": "a b"}, ("groups.invalid", "node_groups[0].mig")),
        ({"name": "a", "device_plugin": 4}, ("groups.invalid", "node_groups[0].device_plugin")),
        ({"name": "a", "labels": ["x"]}, ("groups.invalid", "node_groups[0].labels")),
        ({"name": "a", "ready_gate": "yes"}, ("groups.invalid", "node_groups[0].ready_gate")),
        ({"name": "a", "labels": {"x": True}}, ("groups.invalid", "node_groups[0].labels.x")),
        ({"name": "a", "labels": {"a b": "x"}}, ("groups.invalid", "node_groups[0].labels.a b")),
        ({"name": "a", "labels": {MIG_CONFIG: "x"}}, ("groups.invalid", f"node_groups[0].labels.{MIG_CONFIG}")),
        (
            {"name": "a", "labels": {"feature.node.kubernetes.io/x": "y"}},
            ("groups.invalid", "node_groups[0].labels.feature.node.kubernetes.io/x"),
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_path(raw: Any, found: tuple[str, str]) -> None:
    assert problems(raw) == [found]


def test_all_problems_are_told_at_once() -> None:
    assert problems({"name": "a"}, {"name": "a", "mig": 1, "hidden_gpus": "x"}) == [
        ("groups.invalid", "node_groups[1].mig"),
        ("groups.invalid", "node_groups[1].hidden_gpus"),
        ("groups.invalid", "node_groups[1].name"),
    ]
    assert [finding.path for finding in parse_groups({"name": "a"})[1]] == ["node_groups"]
    (finding,) = parse_groups([{"name": "a", "taints": True}])[1]
    assert finding.remedy == "Did you mean taint?"
    for value, remedy in ((1.0, "Write it in quotes."), (True, "Write it in quotes."), (None, ""), (["a"], "")):
        (finding,) = parse_groups([{"name": "a", "labels": {"x": value}}])[1]
        assert finding.remedy == remedy


# --- which node gets what --------------------------------------------------------------------------------------------


@pytest.mark.rows("S26", "S16")
def test_nodes_get_what_their_groups_want() -> None:
    nodes = [
        NodeFacts("n1", {"pool": "a", "tier": "x", **A100}),
        NodeFacts("n2", {"pool": "a", **A100}),
        NodeFacts("n3", {}),
    ]
    found, findings = assign(
        groups(
            {"name": "a", "selector": "pool=a", "mig": "all-balanced", "taint": True},
            {"name": "x", "selector": "tier=x", "device_plugin": "shared", "taint": True},
            {"name": "later", "selector": "pool=z"},
        ),
        nodes,
    )
    assert found["n1"] == Wanted(("a", "x"), {MIG_CONFIG: "all-balanced", PLUGIN_CONFIG: "shared"}, taint())
    assert found["n2"] == Wanted(("a",), {MIG_CONFIG: "all-balanced"}, taint())
    assert found["n3"] == Wanted()
    assert [(finding.id, finding.severity, finding.target) for finding in findings] == [
        ("groups.empty", "info", "later")
    ]


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ({"mig": "all-balanced"}, {"mig": "all-disabled"}, "mig"),
        ({"device_plugin": "a"}, {"device_plugin": "b"}, "device_plugin"),
        ({"labels": {"team": "a"}}, {"labels": {"team": "b"}}, "label team"),
        ({"taint": True}, {"taint": {"value": "x"}}, "taint"),
    ],
)
def test_groups_that_contradict_each_other_are_refused_once(first: Any, second: Any, what: str) -> None:
    nodes = [NodeFacts(f"n{number}", A100) for number in range(3)]
    _found, findings = assign(groups({"name": "a", **first}, {"name": "b", **second}), nodes)
    (finding,) = findings
    assert (finding.id, finding.severity) == ("groups.overlap", "error")
    assert finding.detail == f"{what} differs between the groups a and b, and n0 and 2 more belongs to both."
    assert ids(assign(groups({"name": "a", **first}, {"name": "b", **first}), nodes)[1]) == []


def test_a_board_that_cannot_be_partitioned_is_refused_and_one_not_known_yet_is_not() -> None:
    nodes = [NodeFacts("t4", T4), NodeFacts("a100", A100), NodeFacts("new", {})]
    (finding,) = assign(groups({"name": "a", "mig": "all-balanced"}), nodes)[1]
    assert (finding.id, finding.target) == ("groups.mig-incapable", "t4")
    assert "Tesla-T4" in finding.detail


def test_a_configuration_that_does_not_exist_is_refused_with_the_nearest_name() -> None:
    chosen = groups({"name": "a", "mig": "all-1g.10g", "device_plugin": "b"})
    findings = assign(chosen, [NodeFacts("n", A100)], ["all-1g.10gb", "all-disabled"], [])[1]
    assert [(finding.path, finding.remedy) for finding in findings] == [
        ("node_groups[0].mig", "Did you mean all-1g.10gb?"),
        ("node_groups[0].device_plugin", ""),
    ]
    assert assign(chosen, [NodeFacts("n", A100)], ["all-1g.10g"], ["b"])[1] == []


# --- what changes on a node ------------------------------------------------------------------------------------------

OTHER = {"key": "dedicated", "value": "x", "effect": "NoExecute"}


@pytest.mark.rows("S26")
def test_the_taint_is_put_beside_others_and_taken_away_again() -> None:
    node = NodeFacts("n", {})
    put = plan_group(node, Wanted(("g",), {}, taint("true")), [OTHER])
    assert put.taints == (OTHER, {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"})
    assert put.patch()["spec"] == {"taints": list(put.taints)}
    assert [action.verb for action in put.actions()] == ["taint"]
    labels, notes = put.applied(node)
    changed = plan_group(NodeFacts("n", labels, notes), Wanted(("g",), {}, taint("false")), put.taints)
    assert changed.taints == (OTHER, taint("false"))
    labels, notes = changed.applied(NodeFacts("n", labels, notes))
    gone = plan_group(NodeFacts("n", labels, notes), Wanted(), changed.taints)
    assert gone.taints == (OTHER,)
    assert gone.applied(NodeFacts("n", labels, notes)) == ({}, {})
    alone = plan_group(NodeFacts("n", labels, notes), Wanted(), [taint("false")])
    assert alone.patch()["spec"] == {"taints": None}


@pytest.mark.rows("S26")
@pytest.mark.parametrize("value", ["", "present", "mine"])
def test_a_taint_of_somebody_else_serves_and_stays(value: str) -> None:
    change = plan_group(NodeFacts("n", {}), Wanted(("g",), {}, taint("true")), [taint(value)])
    assert not change
    assert not plan_group(NodeFacts("n", {}), Wanted(), [taint(value)])


@pytest.mark.rows("S19", "DP-01")
def test_labels_of_a_group_replace_those_of_the_node_and_give_them_back() -> None:
    node = NodeFacts("n", {PLUGIN_CONFIG: "mine", MIG_CONFIG: "all-disabled"})
    put = plan_group(node, Wanted(("g",), {PLUGIN_CONFIG: "shared", MIG_CONFIG: "all-balanced"}), [])
    assert put.set == {PLUGIN_CONFIG: "shared", MIG_CONFIG: "all-balanced"}
    now = NodeFacts("n", *put.applied(node))
    one = plan_group(now, Wanted(("g",), {PLUGIN_CONFIG: "shared"}), [])
    assert one.set == {MIG_CONFIG: "all-disabled"}
    assert plan_group(now, Wanted(), []).applied(now) == (node.labels, {})


@pytest.mark.rows("S19")
def test_the_layout_of_a_busy_node_is_not_touched() -> None:
    node = NodeFacts("n", {MIG_CONFIG: "all-disabled"})
    wanted = Wanted(("g",), {MIG_CONFIG: "all-balanced", "pool": "a"})
    held = plan_group(node, wanted, [], busy=["team/p1", "team/p2"])
    assert held.set == {"pool": "a"}
    (finding,) = held.findings
    assert (finding.id, finding.severity, finding.accept) == ("nodes.mig-busy", "error", "mig_busy=wait")
    assert "team/p1, team/p2" in finding.detail
    free = plan_group(NodeFacts("n", *held.applied(node)), wanted, [])
    assert free.set == {MIG_CONFIG: "all-balanced"}
    done = NodeFacts("n", *free.applied(NodeFacts("n", *held.applied(node))))
    assert not plan_group(done, wanted, [], busy=["team/p1"]), "nothing changes, so nobody is in the way"
    back = plan_group(done, Wanted(), [], busy=["team/p1"])
    assert MIG_CONFIG not in back.set
    assert len(back.findings) == 1
    again = NodeFacts("n", *back.applied(done))
    assert plan_group(again, Wanted(), []).applied(again) == (node.labels, {}), "what was held back is still remembered"


@pytest.mark.rows("S53", "L30", "L31")
def test_a_group_says_which_runtime_its_nodes_have_and_where_its_files_are() -> None:
    (plain, own), findings = parse_groups(
        [
            {"name": "a", "selector": "pool=a", "runtime": "k3s"},
            {"name": "b", "selector": "pool=b", "runtime": {"type": "containerd", "config": "/opt/config.toml"}},
        ]
    )
    assert findings == []
    assert plain.runtime == DISTRIBUTIONS["k3s"]
    assert own.runtime == Runtime("b", "containerd", "/opt/config.toml", "")


@pytest.mark.rows("S53")
@pytest.mark.parametrize(
    ("group", "path"),
    [
        ({"name": "a", "runtime": "podman"}, "node_groups[0].runtime.type"),
        ({"name": "a", "runtime": {"type": "crio", "config": "crio.conf"}}, "node_groups[0].runtime.config"),
        ({"name": "a", "runtime": {"socked": "/x"}}, "node_groups[0].runtime"),
        ({"name": "A b", "runtime": {"config": "/x"}}, "node_groups[0].name"),
    ],
)
def test_a_runtime_that_cannot_be_is_refused_with_its_path(group: dict[str, Any], path: str) -> None:
    assert [finding.path for finding in parse_groups([group])[1]] == [path]


@pytest.mark.rows("S53")
def test_overlaps_of_runtimes_are_refused_and_gaps_are_told() -> None:
    made = groups(
        {"name": "a", "selector": "pool=a", "runtime": "k3s"}, {"name": "b", "selector": "disk", "runtime": "crio"}
    )
    nodes = [NodeFacts("n1", {"pool": "a"}), NodeFacts("n2", {"pool": "a", "disk": "x"}), NodeFacts("n3")]
    found = {finding.id: finding for finding in assign(made, nodes)[1]}
    assert found["groups.overlap"].detail.startswith("runtime differs between the groups a and b, and n2")
    assert found["groups.gap"].target == "n3"
    assert "groups.gap" not in {finding.id for finding in assign(groups({"name": "a", "mig": "x"}), nodes)[1]}


@pytest.mark.rows("L12")
def test_a_group_says_which_driver_its_nodes_have() -> None:
    (group,) = groups(
        {"name": "old", "selector": "pool=a", "driver": {"version": "580.105.08", "flavour": "proprietary"}}
    )
    assert group.driver == Driver("old", True, "580.105.08", "proprietary")
    (off,) = groups({"name": "image", "driver": {"enabled": False}})
    assert off.driver == Driver("image", False)


@pytest.mark.rows("L12")
@pytest.mark.parametrize(
    ("driver", "path"),
    [
        ({"version": 595.10}, "node_groups[0].driver.version"),
        ({"flavour": "closed"}, "node_groups[0].driver.flavour"),
        ({"precompiled": "yes"}, "node_groups[0].driver.precompiled"),
        ({"versoin": "1"}, "node_groups[0].driver.versoin"),
        ("580", "node_groups[0].driver"),
    ],
)
def test_a_driver_that_cannot_be_is_refused_with_its_path(driver: Any, path: str) -> None:
    assert [finding.path for finding in parse_groups([{"name": "a", "driver": driver}])[1]] == [path]


@pytest.mark.rows("L12", "P048")
def test_drivers_overlap_where_a_node_is_in_two_groups() -> None:
    made = groups({"name": "a", "driver": {"version": "1"}}, {"name": "b", "driver": {"version": "2"}})
    (overlap,) = [f for f in assign(made, [NodeFacts("n")])[1] if f.id == "groups.overlap"]
    assert overlap.detail == "driver differs between the groups a and b, and n belongs to both."
    assert (overlap.severity, overlap.target) == ("error", "n")
