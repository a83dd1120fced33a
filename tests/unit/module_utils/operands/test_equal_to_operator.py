# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects are equal in meaning to those that the GPU Operator makes from the same values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import build
from ansible_collections.gpufleet.nvidia.tests.helpers import compare_objects, operands, server_defaults

ALLOWED = operands.FACTS.parents[1] / "integration" / "operator_differences.json"


def made(name: str) -> compare_objects.Facts:
    facts = operands.cluster(operands.node("gpu-0000"), operands.node("gpu-0001"))
    return {
        f"{obj['kind']}/{obj['metadata']['name']}": compare_objects.facts_of(server_defaults.with_defaults(obj))
        for obj in build(operands.values_file(name), facts)
    }


@pytest.mark.rows(
    "ST-01", "ST-02", "ST-03", "ST-04", "ST-05", "ST-06", "ST-07", "ST-08", "ST-09", "ST-10", "ST-11", "ST-12",
    "COM-14", "IMG-05", "DRV-01", "DRV-04", "DRV-15", "DP-05", "DCG-02", "DCG-03", "RT-08", "INS-09",
)  # fmt: skip
@pytest.mark.parametrize("name", operands.VALUES_FILES)
def test_objects_equal_those_of_the_operator(name: str) -> None:
    wanted = compare_objects.recorded([operands.FACTS / f"{name}.json"])
    assert compare_objects.compare(wanted, made(name), compare_objects.rules_of(ALLOWED)).left == []


def test_every_changed_fact_is_seen() -> None:
    found = made("default")
    wanted = compare_objects.recorded([operands.FACTS / "default.json"])
    rules = compare_objects.rules_of(ALLOWED)
    for name, flat in wanted.items():
        for path, value in flat.items():
            meant = path.endswith((".terminationMessagePolicy", "volumes[run-nvidia].hostPath.type"))
            if value != "<script>" and not meant:
                changed = {name: {**flat, path: "something else"}}
                assert len(compare_objects.compare(changed, {name: found[name]}, rules).left) == 1, (name, path)


def test_the_list_of_meant_differences_gives_reasons() -> None:
    rules: list[dict[str, Any]] = json.loads(ALLOWED.read_text())
    assert all(set(rule) == {"path", "why"} and len(rule["why"]) > 20 for rule in rules)
