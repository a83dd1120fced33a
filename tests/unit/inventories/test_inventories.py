# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each inventory that ships means something to the collection, and what its cloud needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._groups import parse_groups
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._model import Policy
from ansible_collections.gpufleet.nvidia.tests.helpers.documents import CHECKOUT

INVENTORIES = Path(__file__).resolve().parents[3] / "inventories"
HOSTS = ["bare_metal"]
CLOUDS = sorted(path.name for path in INVENTORIES.iterdir() if path.name not in ("practice", *HOSTS))


def _variables(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((INVENTORIES / name / "group_vars" / "gpu_clusters.yml").read_text())
    return found


def _policy(name: str) -> Policy:
    policy, findings = load(_variables(name).get("cluster_policy_policy") or {})
    assert policy is not None, [finding.sentence() for finding in findings]
    assert not [finding for finding in findings if finding.severity == "warning"]
    return policy


@pytest.mark.rows("S55", "S10")
@pytest.mark.parametrize("name", CLOUDS)
def test_every_inventory_is_accepted_without_a_warning(name: str) -> None:
    assert _policy(name)
    groups, findings = parse_groups(_variables(name).get("gpufleet_node_groups"))
    assert findings == []
    assert all(group.name for group in groups)
    hosts = yaml.safe_load((INVENTORIES / name / "hosts.yml").read_text())
    assert len(hosts["gpu_clusters"]["hosts"]) == 1


@pytest.mark.rows("S55")
@pytest.mark.parametrize(
    ("name", "driver", "toolkit", "plugin"),
    [
        ("eks-al2023", False, False, True),
        ("eks-bottlerocket", False, False, False),
        ("eks-ubuntu", True, True, True),
        ("gke-cos", False, True, True),
        ("gke-ubuntu", True, True, True),
        ("aks", False, False, True),
        ("dgx", False, False, True),
    ],
)
def test_what_a_cloud_brings_is_switched_off(name: str, driver: bool, toolkit: bool, plugin: bool) -> None:
    policy = _policy(name)
    assert (policy.driver.enabled, policy.toolkit.enabled, policy.device_plugin.enabled) == (driver, toolkit, plugin)


@pytest.mark.rows("S55")
def test_every_profile_has_its_inventory() -> None:
    assert CLOUDS == ["aks", "dgx", "eks-al2023", "eks-bottlerocket", "eks-ubuntu", "gke-cos", "gke-ubuntu"]


@pytest.mark.rows("S55")
def test_azures_runtime_class_and_googles_folders_quota_and_label_are_set() -> None:
    assert _policy("aks").operator.runtime_class == "nvidia-container-runtime"
    google = _policy("gke-cos")
    assert google.host_paths.driver_install_dir == google.toolkit.install_dir == "/home/kubernetes/bin/nvidia"
    assert [made["kind"] for made in google.extra_objects] == ["ResourceQuota"]
    (group,), _findings = parse_groups(_variables("gke-cos")["gpufleet_node_groups"])
    assert group.labels == {"gke-no-default-nvidia-gpu-device-plugin": "true"}


@pytest.mark.parametrize("name", HOSTS)
def test_every_variable_for_hosts_is_one_of_a_role_or_of_the_playbook(name: str) -> None:
    known = set(re.findall(r"\bgpufleet_\w+", (CHECKOUT / "playbooks/hosts.yml").read_text()))
    for defaults in (CHECKOUT / "roles").glob("*/defaults/main.yml"):
        known |= set(yaml.safe_load(defaults.read_text()))
    files = sorted((INVENTORIES / name / "group_vars").glob("*.yml"))
    assert files
    for file in files:
        assert set(yaml.safe_load(file.read_text())) <= known, file.name
    groups = yaml.safe_load((INVENTORIES / name / "hosts.yml").read_text())["gpu_hosts"]
    assert {file.stem for file in files} <= {"gpu_hosts", *groups["children"]}
