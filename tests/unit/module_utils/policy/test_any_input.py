# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever comes in, the answer is a policy or findings, never an exception."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy import _tree
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import canonical, load, merge, policy_hash
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._schema import TABLE

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), st.text(max_size=8),
    st.sampled_from(["v1", "open", "{{ .Release.Namespace }}", "sha256:0", "25%", "/a", "true", b"x"]),
)  # fmt: skip
KEYS = st.one_of(
    st.sampled_from(sorted({name for key in TABLE for name in key.path.split(".") if name})),
    st.sampled_from(["apiVersion", "kind", "spec", "name", "value", "limits", "requests"]),
    st.text(max_size=5),
    st.integers(0, 3),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=25,
)


@st.composite
def along_the_schema(draw: st.DrawFn) -> dict[str, Any]:
    """Trees whose paths are keys of the schema, with values that mostly do not fit."""
    tree: dict[str, Any] = {}
    for key in draw(st.lists(st.sampled_from([row for row in TABLE if row.path]), max_size=6)):
        here: Any = tree
        names = key.path.split(".")
        for name in names[:-1]:
            here = here.setdefault(name, {})
            if not isinstance(here, dict):
                break
        else:
            here[names[-1]] = draw(
                st.one_of(TREES, st.just(key.default).filter(lambda value: type(value).__name__ != "_Mark"))
            )
    return tree


def judge(source: Any, **options: Any) -> None:
    policy, findings = load(source, **options)
    wrong = [finding for finding in findings if finding.severity == "error"]
    assert (policy is None) == bool(wrong)
    for finding in findings:
        assert finding.sentence().strip()
        assert len(finding.sentence()) < 2000
    if policy is not None:
        again, more = load(canonical(policy))
        assert again == policy, more
        assert policy_hash(again) == policy_hash(policy)


@given(
    st.dictionaries(KEYS, TREES, max_size=5),
    st.sampled_from(["auto", "values", "clusterpolicy", "gpuclusterpolicy", "policy"]),
)
@settings(max_examples=300, deadline=None)
def test_any_tree_gives_a_policy_or_errors(tree: dict[Any, Any], kind: str) -> None:
    judge(tree, kind=kind)


@given(along_the_schema(), st.sampled_from(["values", "clusterpolicy"]))
@settings(max_examples=300, deadline=None)
def test_any_values_of_known_keys_give_a_policy_or_errors(tree: dict[str, Any], kind: str) -> None:
    judge(tree, kind=kind)


@given(st.lists(st.text(alphabet="ab.=,[]{}\\019 -", max_size=20), max_size=3))
@settings(max_examples=300, deadline=None)
def test_any_set_string_gives_a_policy_or_errors(strings: list[str]) -> None:
    judge({}, set_strings=strings)


@given(st.lists(st.dictionaries(KEYS, TREES, max_size=3), max_size=3))
@settings(max_examples=100, deadline=None)
def test_any_files_merge_or_are_refused(sources: list[dict[Any, Any]]) -> None:
    tree, findings = merge(sources)
    if not findings:
        judge(tree)


@pytest.mark.parametrize("source", [[], "text", 3, None])
def test_what_is_no_map_is_refused(source: Any) -> None:
    assert load(source)[0] is None


def deep(levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for _unused in range(levels):
        tree = {"a": tree}
    return tree


def test_input_that_is_too_deep_is_refused() -> None:
    (finding,) = load({"cert-manager": deep(5000)})[1]
    assert "deeper than 64" in finding.detail
    assert load({"cert-manager": deep(_tree.MAX_DEPTH - 1)})[0] is not None
    assert load({"cert-manager": deep(_tree.MAX_DEPTH)})[0] is None


def test_input_that_contains_itself_is_refused() -> None:
    tree: dict[str, Any] = {}
    tree["cert-manager"] = tree
    assert [f.id for f in load(tree)[1]] == ["policy.too-large"]


def test_input_that_grows_by_aliases_is_refused() -> None:
    level: Any = ["x"] * 10
    for _unused in range(9):
        level = [level] * 10
    assert [f.id for f in load({"cert-manager": {"a": level}})[1]] == ["policy.too-large"]


def test_more_text_than_a_policy_needs_is_refused() -> None:
    (finding,) = load({"cert-manager": {"a": "x" * (_tree.MAX_TEXT + 1)}})[1]
    assert str(_tree.MAX_TEXT) in finding.detail


@pytest.mark.parametrize(
    ("source", "path", "word"),
    [
        ({"mig": {True: "x"}}, "mig", "True is not a text"),
        ({1: "x"}, "", "1 is not a text"),
        ({"mig": {"strategy": datetime.date(2026, 1, 1)}}, "mig.strategy", "date"),
        ({"mig": {"strategy": float("nan")}}, "mig.strategy", "finite"),
        ({"mig": {"strategy": b"x"}}, "mig.strategy", "bytes"),
        ({"mig": {"strategy": {1, 2}}}, "mig.strategy", "set"),
    ],
)
def test_what_is_not_plain_data_is_refused_with_its_path(source: Any, path: str, word: str) -> None:
    policy, (finding,) = load(source)
    assert policy is None
    assert finding.path == path
    assert word in finding.detail


def test_the_users_own_data_is_left_as_it_was() -> None:
    source = {"driver": {"env": [{"name": "A"}]}, "mig": {}}
    load(source, set_strings=["mig.strategy=none", "driver.env[0].value=x"])
    assert source == {"driver": {"env": [{"name": "A"}]}, "mig": {}}
