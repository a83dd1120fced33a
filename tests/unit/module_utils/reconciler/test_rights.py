# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rights of the reconciler's account: objects of the policy of any kind, and of earlier policies."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._reconciler._rights import account_rules


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
