# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strings of Helm's --set."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._strvals import apply


def read(*strings: str, start: dict[str, Any] | None = None) -> dict[str, Any]:
    values = start if start is not None else {}
    assert apply(values, strings) == []
    return values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=b", {"a": "b"}),
        ("a.b=c,a.d=1", {"a": {"b": "c", "d": 1}}),
        (
            "a=true,b=False,c=null,d=0,e=012,f=-5,g=1.5",
            {"a": True, "b": False, "c": None, "d": 0, "e": "012", "f": -5, "g": "1.5"},
        ),
        ("a={x,y,1}", {"a": ["x", "y", 1]}),
        ("a={}", {"a": []}),
        ("a=", {"a": ""}),
        ("a[0].name=x,a[0].value=y", {"a": [{"name": "x", "value": "y"}]}),
        ("a[2]=x", {"a": [None, None, "x"]}),
        ("a[0][1]=x", {"a": [[None, "x"]]}),
        (r"a=one\,two", {"a": "one,two"}),
        (r"nodeSelector.kubernetes\.io/role=master", {"nodeSelector": {"kubernetes.io/role": "master"}}),
        (r"a\=b=c", {"a=b": "c"}),
        (r"a={x\,y,z\}}", {"a": ["x,y", "z}"]}),
        ("a=b=c", {"a": "b=c"}),
        ("a=/etc/x y", {"a": "/etc/x y"}),
        ("--set a=1", {"a": 1}),
        ("--set=a=1", {"a": 1}),
        ("--set-string a=1,b=true", {"a": "1", "b": "true"}),
    ],
)
def test_syntax_of_helm(text: str, values: dict[str, Any]) -> None:
    assert read(text) == values


def test_strings_go_over_values_in_their_order() -> None:
    start = {"a": {"b": 1, "c": [{"name": "x"}]}}
    assert read("a.b=2", "a.c[0].value=y,a.b=3", start=start) == {"a": {"b": 3, "c": [{"name": "x", "value": "y"}]}}


@pytest.mark.parametrize(
    ("text", "position", "word"),
    [
        ("", 1, "nothing"),
        ("a", 1, "no value"),
        ("a=1,b", 5, "'b' has no value"),
        ("a=1,", 4, "after the comma"),
        (".a=1", 1, "missing"),
        ("a..b=1", 3, "missing"),
        ("=1", 1, "missing"),
        ("a[x]=1", 3, "number"),
        ("a[-1]=1", 3, "number"),
        ("a[0=1", 3, "']' is missing"),
        ("a[0]b=1", 5, "after ']'"),
        ("a[99999999]=1", 3, "65536"),
        ("a={x", 3, "'}' is missing"),
        ("a={x}y=1", 6, "comma"),
        ("a=b\\", 4, "backslash"),
        (".".join("a" * 40) + "=1", 1, "nested"),
    ],
)
def test_bad_syntax_names_the_string_and_the_place(text: str, position: int, word: str) -> None:
    values: dict[str, Any] = {}
    (finding,) = apply(values, [text])
    assert finding.severity == "error"
    assert text[:200] in finding.detail
    assert word in finding.detail
    assert f"at character {position}." in finding.detail


@pytest.mark.parametrize("text", ["a.b=1", "a[0]=1"])
def test_a_plain_value_is_not_turned_into_a_block(text: str) -> None:
    (finding,) = apply({"a": "plain"}, [text])
    assert "a is not a" in finding.detail


def test_set_strings_reach_the_policy_with_helms_types() -> None:
    policy, findings = load(
        {"mig": {"strategy": "mixed"}}, set_strings=["dcgm.enabled=true,mig.strategy=none", "driver.version=580.95.05"]
    )
    assert policy is not None
    assert findings == []
    assert (policy.dcgm.enabled, policy.mig_strategy, policy.driver.image.version) == (True, "none", "580.95.05")


def test_a_string_of_digits_alone_is_a_number_for_helm_and_refused_as_version() -> None:
    assert [f.path for f in load({}, set_strings=["driver.version=595"])[1]] == ["driver.version"]
    assert load({}, set_strings=["--set-string driver.version=595"])[0] is not None


def test_an_unknown_key_in_a_string_is_told_with_its_path() -> None:
    (finding,) = load({}, set_strings=["toolkit.enabld=true"])[1]
    assert finding.path == "toolkit.enabld"


def test_strings_are_for_helm_values_only() -> None:
    policy, findings = load({"apiVersion": "gpu.nvidia.com/v1", "kind": "GPUClusterPolicy"}, set_strings=["a=b"])
    assert policy is None
    assert [f.path for f in findings] == ["set_values"]
