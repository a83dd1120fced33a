# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of results against RETURN that the integration tests use finds every kind of difference."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.tests.helpers import returns
from ansible_collections.gpufleet.nvidia.tests.helpers.documents import CHECKOUT, document

RETURN = yaml.safe_load("""
found:
  returned: always
  type: dict
  contains:
    nodes:
      returned: always
      type: list
      elements: dict
      contains:
        name: {returned: always, type: str}
        gpus: {returned: always, type: int}
        trouble: {returned: when something failed, type: str}
    allocatable: {returned: always, type: dict}
plan: {returned: success, type: list, elements: str}
remaining: {returned: failure, type: list, elements: str}
before: {returned: success, type: raw}
""")


def result(**changes: Any) -> dict[str, Any]:
    found = {"nodes": [{"name": "a", "gpus": 8}], "allocatable": {"nvidia.com/gpu": 8}}
    return {"changed": False, "found": found, "plan": ["x"], "before": None} | changes


@pytest.fixture(autouse=True)
def small_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returns, "document", lambda module, name: RETURN)


def test_a_result_as_documented_has_no_problem() -> None:
    assert returns.undocumented("small", result(invocation={}, diff=[], warnings=[], _ansible_no_log=False)) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"extra": 1}, "extra: returned, but not documented"),
        (
            {"found": {"nodes": [{"name": "a", "gpus": 8, "colour": "green"}], "allocatable": {}}},
            "found.nodes[0].colour: returned, but not documented",
        ),
        (
            {"found": {"nodes": [{"name": "a"}], "allocatable": {}}},
            "found.nodes[0].gpus: documented as returned always, but missing",
        ),
        (
            {"found": {"nodes": [{"name": "a", "gpus": True}], "allocatable": {}}},
            "found.nodes[0].gpus: documented as int, but returned as bool (True)",
        ),
        (
            {"found": {"nodes": ["a"], "allocatable": {}}},
            "found.nodes[0]: documented as dict, but returned as str ('a')",
        ),
        ({"found": None}, "found: documented as dict, but returned as NoneType (None)"),
        ({"plan": [1]}, "plan[0]: documented as str, but returned as int (1)"),
        ({"failed": True}, "remaining: documented as returned failure, but missing"),
    ],
)
def test_a_difference_is_named_by_its_path(changes: dict[str, Any], problem: str) -> None:
    assert returns.undocumented("small", result(**changes)) == [problem]


def test_what_only_success_promises_may_be_missing_after_a_failure() -> None:
    failed = result(failed=True, msg="no", remaining=[])
    del failed["plan"], failed["before"]
    assert returns.undocumented("small", failed) == []
    del failed["failed"]
    assert "plan: documented as returned success, but missing" in returns.undocumented("small", failed)


MODULES = sorted(path.stem for path in (CHECKOUT / "plugins/modules").glob("[a-z]*.py"))


def test_there_are_modules() -> None:
    assert "cluster_policy" in MODULES


@pytest.mark.parametrize("module", MODULES)
def test_return_says_what_found_contains(module: str) -> None:
    found = document(module, "RETURN")["found"]
    assert found["type"] == "dict"
    assert found["contains"]
    assert all(words.get("description") and words.get("type") for words in found["contains"].values())
