# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rights of the reconciler's account: objects of the policy of any kind, and of earlier policies."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._matrix import RELEASES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load
from ansible_collections.gpufleet.nvidia.plugins.module_utils._reconciler._rights import account_rules
from ansible_collections.gpufleet.nvidia.plugins.module_utils._reconciler._run import makeable


def of(rules: list[dict[str, Any]], plural: str) -> dict[str, list[str]]:
    """Verbs of the rules about one kind, by the names that they are about ("" for all)."""
    return {
        ",".join(rule.get("resourceNames", [])): sorted(rule["verbs"]) for rule in rules if plural in rule["resources"]
    }


@pytest.mark.rows("S27", "S42")
@pytest.mark.parametrize(
    ("kind", "plural"),
    [("NodePool", "nodepools"), ("EC2NodeClass", "ec2nodeclasses"), ("PriorityClass", "priorityclasses")],
)
def test_extra_objects_of_the_whole_cluster_are_listed_and_written_by_name(kind: str, plural: str) -> None:
    wide, here = account_rules([{"kind": kind, "metadata": {"name": name}} for name in ("b", "a")])
    assert of(wide, plural) == {"": ["list"], "a,b": ["create", "delete", "get", "patch"]}
    assert of(here, plural) == {}


@pytest.mark.rows("S42")
def test_kinds_of_earlier_policies_are_listed_also_when_nothing_is_left_of_them() -> None:
    wide, here = account_rules([], former=["NodePool", "Ingress"])
    assert (of(wide, "nodepools"), of(here, "ingresses")) == ({"": ["list"]}, {"": ["list"]})
    assert (of(here, "nodepools"), of(wide, "ingresses")) == ({}, {})


@pytest.mark.rows("S42")
def test_what_roles_of_the_policy_grant_by_url_is_held_too() -> None:
    meta = {"metadata": {"name": "scraper"}}
    by_url = {"nonResourceURLs": ["/metrics", "/healthz"], "verbs": ["get"]}
    nodes = {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}
    wide, here = account_rules([{"kind": "ClusterRole", **meta, "rules": [by_url, nodes]}])
    assert [rule for rule in wide if "nonResourceURLs" in rule] == [
        {"nonResourceURLs": ["/healthz", "/metrics"], "verbs": ["get"]}
    ]
    assert of([rule for rule in wide if "resources" in rule], "nodes/metrics") == {"": ["get"]}
    assert not [rule for rule in here if "nonResourceURLs" in rule]


@pytest.mark.rows("S42", "S48")
@pytest.mark.parametrize("release", RELEASES)
def test_operands_of_virtual_machines_can_be_switched_on_without_new_rights(release: str) -> None:
    policy, _findings = load({}, release=release)
    assert policy is not None
    objects = makeable(policy, "gpu-operator")
    roles = {made["metadata"]["name"]: made["rules"] for made in objects if made["kind"] == "ClusterRole"}
    machines = {
        "nvidia-vgpu-manager",
        "nvidia-vgpu-device-manager",
        "nvidia-sandbox-validator",
        "nvidia-vfio-manager",
        "nvidia-sandbox-device-plugin",
        "nvidia-kata-sandbox-device-plugin",
        "nvidia-cc-manager",
    }
    assert machines <= set(roles)
    wide, _here = account_rules(objects)
    held = {
        (resource, verb) for rule in wide if "resourceNames" not in rule for resource in rule.get("resources", [])
        for verb in rule["verbs"]
    }  # fmt: skip
    for name in machines:
        asked = {(what, verb) for rule in roles[name] for what in rule["resources"] for verb in rule["verbs"]}
        assert asked <= held, name
