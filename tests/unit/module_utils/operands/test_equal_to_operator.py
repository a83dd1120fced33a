# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects are equal in meaning to those that the GPU Operator makes from the same values."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import build
from ansible_collections.gpufleet.nvidia.tests.helpers import compare_objects, operands, server_defaults

ALLOWED = operands.FACTS.parents[1] / "integration" / "operator_differences.json"


def made(name: str) -> dict[str, dict[str, Any]]:
    facts = operands.cluster(operands.node("gpu-0000"), operands.node("gpu-0001"))
    flat = {}
    for obj in build(operands.values_file(name), facts):
        out: dict[str, Any] = {}
        compare_objects.flatten(compare_objects.normalise(server_defaults.with_defaults(obj)), "", out)
        flat[f"{obj['kind']}/{obj['metadata']['name']}"] = out
    return flat


def differences(wanted: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]]) -> list[str]:
    rules = [re.compile(rule["path"]) for rule in json.loads(ALLOWED.read_text())]
    left = []
    for name in sorted(set(wanted) | set(found)):
        ours, theirs = found.get(name, {}), wanted.get(name, {})
        for path in sorted(set(ours) | set(theirs)):
            same = path in ours and path in theirs and theirs[path] in ("<script>", ours[path])
            if not same and not any(rule.fullmatch(f"{name} {path}") for rule in rules):
                left.append(f"{name} {path}: {ours.get(path, 'missing')!r}, the operator has {theirs.get(path, 'none')!r}")
    return left


@pytest.mark.rows(
    "ST-01", "ST-02", "ST-03", "ST-04", "ST-05", "ST-06", "ST-07", "ST-08", "ST-09", "ST-10", "ST-11", "ST-12",
    "COM-14", "IMG-05", "DRV-01", "DRV-04", "DRV-15", "DP-05", "DCG-02", "DCG-03", "RT-08", "INS-09",
)  # fmt: skip
@pytest.mark.parametrize("name", operands.VALUES_FILES)
def test_objects_equal_those_of_the_operator(name: str) -> None:
    assert differences(operands.recorded(name), made(name)) == []


@pytest.mark.parametrize("change", ["DaemonSet/nvidia-driver-daemonset", "Role/nvidia-dcgm-exporter"])
def test_a_single_changed_fact_is_seen(change: str) -> None:
    wanted = operands.recorded("default")
    path = sorted(path for path in wanted[change] if wanted[change][path] != "<script>")[-1]
    wanted[change] = {**wanted[change], path: "something else"}
    assert len(differences(wanted, made("default"))) == 1
