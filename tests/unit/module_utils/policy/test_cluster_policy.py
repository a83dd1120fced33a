# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ClusterPolicy, the short GPUClusterPolicy, and how the forms are told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load, merge

POLICIES = Path(__file__).resolve().parents[3] / "fixtures/policies"
OBJECTS = POLICIES.parent / "forms/objects"


def read(name: str) -> Any:
    return yaml.safe_load((POLICIES / f"{name}.yaml").read_text(encoding="utf-8"))


@pytest.mark.rows("S04", "INS-02")
def test_what_the_chart_renders_means_the_same_as_the_values() -> None:
    policy, findings = load(read("clusterpolicy-chart-default"))
    assert policy == load({})[0]
    assert {f.severity for f in findings} == {"info"}


@pytest.mark.rows("S04", "INS-02")
def test_a_spec_is_known_by_its_blocks() -> None:
    spec = read("clusterpolicy-chart-default")["spec"]
    policy, findings = load(spec)
    assert policy == load(spec, kind="clusterpolicy")[0]
    assert [f.detail for f in findings if f.id == "policy.read-as"] != []
    assert load({"driver": {"useNvidiaDriverCRD": False}})[1][0].id == "policy.read-as"
    assert load({"driver": {"useNvidiaDriverCRD": False}, "nfd": {"enabled": True}})[0] is None


@pytest.mark.rows("INS-02")
def test_absent_keys_follow_the_rules_of_the_controller() -> None:
    policy, findings = load(read("clusterpolicy-empty"))
    assert findings == []
    assert policy is not None
    on = ("driver", "toolkit", "device_plugin", "dcgm", "dcgm_exporter", "gfd", "mig_manager")
    off = ("node_status_exporter", "gds", "gdrcopy")
    assert {name: getattr(policy, name).enabled for name in on + off} == {name: name in on for name in on + off}
    assert policy.cdi_enabled is True
    assert policy.nri_enabled is False
    assert policy.psa_enabled is False
    assert policy.driver.rdma.enabled is False
    assert policy.driver.use_precompiled is False
    assert policy.driver.upgrade_policy.auto_upgrade is False
    assert policy.driver.upgrade_policy.max_parallel_upgrades == 1
    assert policy.driver.licensing.nls_enabled is False
    assert policy.driver.startup_probe is None
    assert policy.dcgm_exporter.service_monitor.enabled is False
    assert policy.dcgm_exporter.service_internal_traffic_policy == ""
    assert policy.mig_strategy == ""
    assert policy.mig_manager.config.default == "all-disabled"
    assert policy.driver.image.version == "595.91.07"
    assert policy.validator.image.version == "v26.7.0"


@pytest.mark.rows("INS-02", "COM-15")
def test_a_policy_from_a_console_works_and_its_dead_keys_are_told() -> None:
    policy, findings = load(read("clusterpolicy-console"))
    assert policy is not None
    assert {f.path for f in findings if f.id == "policy.dead-key"} == {
        "spec.operator.defaultRuntime",
        "spec.operator.use_ocp_driver_toolkit",
        "spec.driver.useOpenKernelModules",
        "spec.kataManager",
    }
    assert policy.device_plugin.mps_root == "/srv/mps"
    assert policy.daemonsets.pod_security_context == {"fsGroup": 0}
    assert policy.validator.plugin_env == ({"name": "WITH_WORKLOAD", "value": "false"},)


@pytest.mark.rows("INS-02")
def test_keys_of_values_are_unknown_in_a_cluster_policy_and_the_other_way_round() -> None:
    spec = {"driver": {"nvidiaDriverCRD": {"enabled": False}, "upgradePolicy": {"gpuPodDeletion": {"force": True}}}}
    wrong = {f.path: f.sentence() for f in load(spec, kind="clusterpolicy")[1]}
    assert set(wrong) == {"driver.nvidiaDriverCRD", "driver.upgradePolicy.gpuPodDeletion"}
    assert "Did you mean driver.upgradePolicy.podDeletion?" in wrong["driver.upgradePolicy.gpuPodDeletion"]
    values = {"driver": {"upgradePolicy": {"podDeletion": {"force": True}}}}
    (finding,) = load(values, kind="values")[1]
    assert "gpuPodDeletion" in finding.remedy


def test_pod_deletion_of_a_cluster_policy_is_read() -> None:
    policy, _unused = load({"driver": {"upgradePolicy": {"podDeletion": {"force": True, "timeoutSeconds": 5}}}})
    assert policy is not None
    assert (
        policy.driver.upgrade_policy.pod_deletion.force,
        policy.driver.upgrade_policy.pod_deletion.timeout_seconds,
    ) == (True, 5)


def test_null_in_a_cluster_policy_is_an_absent_key() -> None:
    source = read("clusterpolicy-empty")
    source["spec"]["mig"] = None
    source["spec"]["dcgm"] = {"enabled": None}
    assert load(source)[0] == load(read("clusterpolicy-empty"))[0]


def test_blocks_that_the_api_server_asks_for_are_told() -> None:
    policy, findings = load({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": {"driver": {}}})
    assert policy is not None
    assert [(f.severity, f.id) for f in findings] == [("warning", "policy.missing-block")]
    assert "toolkit" in findings[0].detail


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ({"apiVersion": "v1", "kind": "ConfigMap"}, "kind"),
        ({"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "spec": {}}, "kind"),
        ({"kind": "ClusterPolicy"}, "kind"),
        ({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "sepc": {}}, "sepc"),
        ({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": []}, "spec"),
    ],
)
def test_objects_that_are_no_policy_are_refused(source: dict[str, Any], path: str) -> None:
    policy, findings = load(source)
    assert policy is None
    assert [f.path for f in findings] == [path]


def test_a_kind_that_was_not_asked_for_is_refused() -> None:
    assert load(read("clusterpolicy-empty"), kind="values")[0] is None
    assert load({}, kind="chart")[1][0].path == "kind"


def test_several_policies_of_one_kind_merge_in_their_spec() -> None:
    first = read("clusterpolicy-empty")
    second = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": {"driver": {"enabled": False}}}
    merged, findings = merge([{"psa": {"enabled": True}}, first, second, {"mig": {"strategy": "mixed"}}])
    policy, more = load(merged)
    assert policy is not None
    assert findings + more == []
    assert (policy.psa_enabled, policy.driver.enabled, policy.mig_strategy) == (True, False, "mixed")


def test_policies_of_different_kinds_do_not_merge() -> None:
    other = yaml.safe_load((OBJECTS / "gpu-cluster-policy.yaml").read_text(encoding="utf-8"))
    _merged, findings = merge([read("clusterpolicy-empty"), other])
    assert [f.id for f in findings] == ["policy.kind"]


def short(**blocks: Any) -> dict[str, Any]:
    return {"apiVersion": "gpu.nvidia.com/v1", "kind": "GPUClusterPolicy", "metadata": {"name": "p"}, "spec": blocks}


@pytest.mark.rows("S05")
def test_a_gpu_cluster_policy_is_read_and_the_rest_are_defaults() -> None:
    source = short(
        driver={"enabled": True, "version": "580.173.02"},
        devicePlugin={"enabled": False},
        migManager={"enabled": False},
    )
    policy, findings = load(source)
    assert findings == []
    assert (
        policy
        == load(
            {"driver": {"version": "580.173.02"}, "devicePlugin": {"enabled": False}, "migManager": {"enabled": False}}
        )[0]
    )
    assert load(short())[0] == load({})[0]


@pytest.mark.rows("S05")
def test_a_gpu_cluster_policy_refuses_unknown_keys_and_wrong_types() -> None:
    policy, findings = load(
        short(driver={"versoin": "1", "enabled": "true"}, gfd={"enabled": True}, cuda={"version": 11.4})
    )
    assert policy is None
    found = {f.path: f.sentence() for f in findings}
    assert set(found) == {"spec.driver.versoin", "spec.driver.enabled", "spec.gfd", "spec.cuda.version"}
    assert "driver.version" in found["spec.driver.versoin"]
    assert "quotes" in found["spec.cuda.version"]


@pytest.mark.rows("S05")
def test_old_versions_of_driver_and_cuda_are_answered() -> None:
    source = yaml.safe_load((OBJECTS / "gpu-cluster-policy.yaml").read_text(encoding="utf-8"))
    policy, findings = load(source)
    assert policy is None
    found = {f.path: (f.severity, f.sentence()) for f in findings}
    assert found["spec.driver.version"][0] == "error"
    assert 'Use "595.91.07"' in found["spec.driver.version"][1]
    assert found["spec.cuda.version"][0] == "warning"
    policy, _unused = load(source, accept=["policy.driver-end-of-life"])
    assert policy is not None
    assert (policy.driver.image.version, policy.mig_manager.enabled) == ("470.82.01", False)


@pytest.mark.rows("S05")
def test_a_driver_too_old_for_the_cuda_version_is_refused() -> None:
    source = short(driver={"version": "580.173.02"}, cuda={"enabled": True, "version": "13.2"})
    (finding,) = [f for f in load(source)[1] if f.severity == "error"]
    assert finding.path == "spec.cuda.version"
    assert "branch 595" in finding.remedy
    assert load(short(cuda={"enabled": True, "version": "13.2"}))[0] is not None
    assert load(short(cuda={"enabled": False, "version": "99"}))[1] == []
    assert "No driver branch" in load(short(cuda={"enabled": True, "version": "99"}))[1][-1].remedy
