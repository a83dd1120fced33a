# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canonical form: stable, complete, and read back as the same policy."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import (
    canonical,
    chart_defaults,
    load,
    policy_hash,
)


def loaded(source: Any, **options: Any) -> Any:
    policy, findings = load(source, **options)
    assert policy is not None, [f.sentence() for f in findings]
    return policy


@pytest.mark.rows("S63")
@pytest.mark.parametrize(
    "source",
    [
        {},
        {"driver": {"env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": 1}}}},
        {"devicePlugin": {"config": {"create": True, "name": "c", "data": {"any": "x"}}}, "dcgm": {"enabled": True}},
        {"extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}]},
    ],
)
def test_a_locked_policy_is_read_back_as_the_same(source: dict[str, Any]) -> None:
    policy = loaded(source)
    data = json.loads(json.dumps(canonical(policy)))
    again = loaded(data)
    assert again == policy
    assert canonical(again) == data


def test_the_hash_depends_on_meaning_only() -> None:
    first = policy_hash(loaded({"driver": {"enabled": True}, "mig": {"strategy": "single"}}))
    assert first == policy_hash(loaded({"mig": {"strategy": "single"}, "driver": {"enabled": True}}))
    assert first == policy_hash(loaded(chart_defaults("v26.7.0")))
    assert first != policy_hash(loaded({"driver": {"enabled": False}}))
    labels = {"daemonsets": {"labels": {"a": "1", "b": "2"}}}
    turned = {"daemonsets": {"labels": {"b": "2", "a": "1"}}}
    assert policy_hash(loaded(labels)) == policy_hash(loaded(turned))
    assert len(first) == 64


@pytest.mark.rows("S63")
@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda spec: spec["driver"].update(enabled="true"), "spec.driver.enabled"),
        (lambda spec: spec["driver"].pop("enabled"), "spec.driver.enabled"),
        (lambda spec: spec.update(drivr={}), "spec.drivr"),
        (lambda spec: spec["daemonsets"].update(tolerations={}), "spec.daemonsets.tolerations"),
        (lambda spec: spec["daemonsets"].update(labels={"a": 1}), "spec.daemonsets.labels.a"),
        (lambda spec: spec.update(driver=3), "spec.driver"),
        (
            lambda spec: spec["driver"]["upgrade_policy"].update(max_parallel_upgrades=True),
            "spec.driver.upgrade_policy.max_parallel_upgrades",
        ),
    ],
)
def test_a_locked_policy_that_was_changed_by_hand_is_checked(change: Any, path: str) -> None:
    data = copy.deepcopy(canonical(loaded({})))
    change(data["spec"])
    policy, findings = load(data)
    assert policy is None
    assert [f.path for f in findings] == [path]
