# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node pools of Karpenter in a policy: what is refused, what is told, and that the example of the guide is good."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load

ROOT = Path(__file__).resolve().parents[4]
WRITTEN = yaml.safe_load((ROOT / "tests/fixtures/forms/objects/node-pool.yaml").read_text())
SPEC = "extraObjects[0].spec"
REF = f"{SPEC}.template.spec.nodeClassRef"


def example() -> list[dict[str, Any]]:
    text = (ROOT / "docs/node-groups.md").read_text()
    (block,) = [found for found in re.findall(r"```yaml\n(.*?)```", text, re.S) if "NodePool" in found]
    objects: list[dict[str, Any]] = yaml.safe_load(block)["extraObjects"]
    return objects


def told(pool: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {f.path: (f.severity, f.sentence()) for f in load({"extraObjects": [pool]})[1]}


@pytest.mark.rows("S27")
def test_the_example_of_the_guide_is_taken_without_a_word() -> None:
    policy, findings = load({"extraObjects": example()})
    assert policy is not None
    assert findings == []
    assert [made["kind"] for made in policy.extra_objects] == ["NodePool", "EC2NodeClass"]


@pytest.mark.rows("S27", "S52")
def test_the_pool_that_people_wrote_is_answered_with_the_key_that_v1_wants() -> None:
    found = told(WRITTEN)
    assert set(found) == {f"{REF}.apiVersion"}
    assert found[f"{REF}.apiVersion"][0] == "error"
    assert "Write group: karpenter.k8s.aws." in found[f"{REF}.apiVersion"][1]


@pytest.mark.rows("S27")
@pytest.mark.parametrize(
    ("change", "path", "severity"),
    [
        (lambda spec: spec["template"]["spec"]["nodeClassRef"].pop("group"), f"{REF}.group", "error"),
        (lambda spec: spec["template"]["spec"]["nodeClassRef"].pop("name"), f"{REF}.name", "error"),
        (lambda spec: spec["template"]["spec"].pop("nodeClassRef"), REF, "error"),
        (lambda spec: spec["disruption"].update(consolidationPolicy="Always"),
         f"{SPEC}.disruption.consolidationPolicy", "error"),
        (lambda spec: spec.pop("limits"), f"{SPEC}.limits", "warning"),
        (lambda spec: spec.update(limits=None), f"{SPEC}.limits", "warning"),
        (lambda spec: spec.update(limits=5), f"{SPEC}.limits", "error"),
        (lambda spec: spec.update(limits=True), f"{SPEC}.limits", "error"),
        (lambda spec: spec.update(limits=["nvidia.com/gpu"]), f"{SPEC}.limits", "error"),
        (lambda spec: spec["template"]["spec"].pop("taints"), f"{SPEC}.template.spec.taints", "warning"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_forgotten_is_told_with_its_path(change: Any, path: str, severity: str) -> None:
    pool = copy.deepcopy(example()[0])
    change(pool["spec"])
    assert {where: how for where, (how, _text) in told(pool).items()} == {path: severity}
