# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm values: defaults, the chart's rendering rules, and every problem told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._matrix import LATEST, RELEASES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._images import reference
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load, merge
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._model import NamedConfig, SandboxWorkloads

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
VALUES = FIXTURES / "values"

# What each recorded values file means.
SIX: dict[str, dict[str, Any]] = {
    "default": {"dcgm.enabled": False, "cdi_enabled": True, "mig_strategy": "single", "driver.enabled": True},
    "dcgm-standalone-no-cdi": {"dcgm.enabled": True, "cdi_enabled": False, "node_status_exporter.enabled": True},
    "managed-cloud": {"driver.enabled": False, "toolkit.enabled": False, "mig_manager.enabled": False},
    "open-rdma-mixed": {
        "driver.kernel_module_type": "open",
        "driver.rdma.enabled": True,
        "mig_strategy": "mixed",
        "dcgm_exporter.service_internal_traffic_policy": "Local",
    },
    "preinstalled-driver": {"driver.enabled": False, "toolkit.enabled": True, "mig_manager.enabled": False},
    "time-slicing": {"device_plugin.config.name": "plugin-config", "device_plugin.config.default": "any"},
}


def at(policy: Any, path: str) -> Any:
    for name in path.split("."):
        policy = getattr(policy, name)
    return policy


def good(source: dict[str, Any], **options: Any) -> Any:
    policy, findings = load(source, **options)
    assert policy is not None, [finding.sentence() for finding in findings]
    return policy


def errors_of(source: Any, **options: Any) -> dict[str, str]:
    policy, findings = load(source, **options)
    found = {finding.path: finding.sentence() for finding in findings if finding.severity == "error"}
    assert (policy is None) == bool(found)
    return found


def told(source: dict[str, Any], **options: Any) -> dict[str, tuple[str, str]]:
    return {f.path: (f.severity, f.id) for f in load(source, **options)[1]}


@pytest.mark.rows("S03", "INS-01")
@pytest.mark.parametrize("name", SIX)
def test_recorded_values_files_mean_what_they_say(name: str) -> None:
    source = yaml.safe_load((VALUES / f"{name}.yaml").read_text(encoding="utf-8"))
    policy = good(source)
    assert {path: at(policy, path) for path in SIX[name]} == SIX[name]


@pytest.mark.rows("S03", "INS-01")
def test_all_defaults_written_out_mean_the_same_as_nothing_written() -> None:
    written = yaml.safe_load((VALUES / "chart-defaults.yaml").read_text(encoding="utf-8"))
    policy, findings = load(written)
    assert policy == load({})[0]
    assert {finding.severity for finding in findings} == {"info"}


@pytest.mark.rows("IMG-05")
def test_defaults_are_the_images_of_the_newest_release() -> None:
    policy = good({})
    parts = {
        "driver": policy.driver.image,
        "driver.manager": policy.driver.manager.image,
        "validator": policy.validator.image,
        "toolkit": policy.toolkit.image,
        "devicePlugin": policy.device_plugin.image,
        "gfd": policy.gfd.image,
        "dcgm": policy.dcgm.image,
        "dcgmExporter": policy.dcgm_exporter.image,
        "migManager": policy.mig_manager.image,
        "nodeStatusExporter": policy.node_status_exporter.image,
        "gds": policy.gds.image,
        "gdrcopy": policy.gdrcopy.image,
    }
    images = RELEASES[LATEST].images
    assert {name: (i.repository, i.image, i.version) for name, i in parts.items()} == {n: images[n] for n in parts}
    assert parts["driver"].version == "595.91.07"
    assert policy.nfd.values["image"]["tag"] == "v0.19.0"


def test_every_problem_is_told_at_once_with_path_value_and_what_is_allowed() -> None:
    found = errors_of(
        {
            "driver": {"enbled": True, "version": 595.10, "kernelModuleType": "opn"},
            "toolkit": {"enabled": "true"},
            "dcgmExporter": {"serviceMonitor": {"interval": "soon"}},
            "daemonsets": {"tolerations": [{"key": "a", "operater": "Exists"}]},
            "nonsense": 1,
        }
    )
    assert set(found) == {
        "driver.enbled",
        "driver.version",
        "driver.kernelModuleType",
        "toolkit.enabled",
        "dcgmExporter.serviceMonitor.interval",
        "daemonsets.tolerations[0].operater",
        "nonsense",
    }
    assert "Did you mean driver.enabled?" in found["driver.enbled"]
    assert "595.1" in found["driver.version"]
    assert "quotes" in found["driver.version"]
    assert 'the text "opn", allowed is one of auto, open, proprietary' in found["driver.kernelModuleType"]
    assert "Write true without quotes." in found["toolkit.enabled"]


@pytest.mark.parametrize(
    ("path", "guess"),
    [
        ("toolkit.env_", "toolkit.env"),
        ("devicePlugin.Config.name", "devicePlugin.config"),
        ("dcgm-exporter.enabled", "dcgmExporter"),
        ("migmanager.enabled", "migManager"),
        ("driver.kernelModulType", "driver.kernelModuleType"),
        ("driver.gpuPodDeletion", "driver.upgradePolicy.gpuPodDeletion"),
        ("node-feature-discovery.workers", "node-feature-discovery.worker"),
        ("node-feature-discovery.worker.toleration", "node-feature-discovery.worker.tolerations"),
    ],
)
def test_a_misspelt_key_is_answered_with_the_nearest_one(path: str, guess: str) -> None:
    tree: Any = True
    for name in reversed(path.split(".")):
        tree = {name: tree}
    (sentence,) = errors_of(tree).values()
    assert f"Did you mean {guess}" in sentence


def test_a_key_far_from_every_other_lists_what_is_known_there() -> None:
    (sentence,) = errors_of({"mig": {"zzz": 1}}).values()
    assert "Known here: strategy." in sentence


@pytest.mark.parametrize("number", [595.10, 595, 1e3])
def test_versions_refuse_numbers(number: float) -> None:
    found = errors_of({"driver": {"version": number}, "node-feature-discovery": {"image": {"tag": number}}})
    assert set(found) == {"driver.version", "node-feature-discovery.image.tag"}
    assert all("595.10 becomes 595.1. Put it in quotes." in sentence for sentence in found.values())


def test_values_that_the_chart_leaves_out_when_empty_get_the_nil_rule() -> None:
    policy = good(
        {
            "operator": {"runtimeClass": ""},
            "toolkit": {"installDir": ""},
            "driver": {"kernelModuleType": ""},
            "daemonsets": {"updateStrategy": "", "tolerations": [], "priorityClassName": ""},
            "migManager": {"config": {"default": ""}},
            "hostPaths": {"rootFS": ""},
            "mig": {"strategy": ""},
        }
    )
    assert policy.operator.runtime_class == "nvidia"
    assert policy.toolkit.install_dir == "/usr/local/nvidia"
    assert policy.driver.kernel_module_type == "auto"
    assert policy.daemonsets.update_strategy == "RollingUpdate"
    assert policy.daemonsets.tolerations == good({}).daemonsets.tolerations
    assert policy.daemonsets.priority_class_name == "system-node-critical"
    assert policy.mig_manager.config.default == "all-disabled"
    assert policy.host_paths.root_fs == "/"
    assert policy.mig_strategy == ""


def test_the_charts_traps_in_the_upgrade_policy_are_followed() -> None:
    upgrade = {"maxUnavailable": 0, "maxParallelUpgrades": 0, "autoUpgrade": False, "drain": {"timeoutSeconds": 0}}
    policy = good({"driver": {"upgradePolicy": upgrade}}).driver.upgrade_policy
    assert policy.max_unavailable == "25%"
    assert policy.max_parallel_upgrades == 0
    assert policy.auto_upgrade is False
    assert policy.drain.timeout_seconds == 0
    nothing = good({"driver": {"upgradePolicy": {"maxParallelUpgrades": None, "autoUpgrade": None}}})
    assert nothing.driver.upgrade_policy.max_parallel_upgrades == 0
    assert nothing.driver.upgrade_policy.auto_upgrade is False


def test_null_removes_the_charts_default_so_that_the_nil_rule_applies() -> None:
    policy = good({"dcgm": {"enabled": None}, "nodeStatusExporter": {"enabled": None}, "mig": {"strategy": None}})
    assert policy.dcgm.enabled is True
    assert policy.node_status_exporter.enabled is False
    assert policy.mig_strategy == ""


def test_a_null_block_is_refused_because_helm_fails_on_it() -> None:
    found = errors_of({"driver": None, "dcgmExporter": {"service": None}})
    assert set(found) == {"driver", "dcgmExporter.service"}
    assert "Leave the key out" in found["driver"]


def test_maps_merge_into_defaults_and_lists_replace_them() -> None:
    policy = good(
        {
            "driver": {"startupProbe": {"failureThreshold": 300}},
            "daemonsets": {"tolerations": [{"operator": "Exists"}]},
            "node-feature-discovery": {"worker": {"config": {"core": {"sleepInterval": "30s"}}}},
        }
    )
    assert policy.driver.startup_probe == {
        "initialDelaySeconds": 60,
        "periodSeconds": 10,
        "timeoutSeconds": 60,
        "failureThreshold": 300,
    }
    assert policy.daemonsets.tolerations == ({"operator": "Exists"},)
    config = policy.nfd.values["worker"]["config"]
    assert config["core"] == {"sleepInterval": "30s"}
    assert config["sources"]["pci"]["deviceLabelFields"] == ["vendor"]


def test_several_files_merge_as_helm_merges_them() -> None:
    merged, findings = merge(
        [
            {"driver": {"enabled": True, "env": [{"name": "A", "value": "1"}]}, "mig": {"strategy": "mixed"}},
            {"driver": {"enabled": False, "env": []}, "dcgm": {"enabled": True}},
            {"dcgm": {"enabled": None}},
        ]
    )
    assert findings == []
    assert merged == {
        "driver": {"enabled": False, "env": []},
        "mig": {"strategy": "mixed"},
        "dcgm": {"enabled": None},
    }


@pytest.mark.rows("COM-15")
def test_keys_without_effect_are_told_with_what_to_do() -> None:
    found = told(
        {
            "driver": {"useOpenKernelModules": True, "nvidiaDriverCRD": {"nodeSelector": {"a": "b"}}},
            "devicePlugin": {"mps": {"root": "/srv/mps"}},
            "operator": {"defaultRuntime": "crio", "defaultGPUMode": "container", "use_ocp_driver_toolkit": True},
            "kataManager": {"enabled": True},
            "cdi": {"default": True},
            "dcgm": {"hostPort": 5555},
            "psp": {"enabled": True},
            "daemonsets": {"podSecurityContext": {"fsGroup": 1}},
            "toolkit": {"args": ["-x"]},
            "gds": {"args": ["-x"], "hostNetwork": True},
            "cert-manager": {"enabled": True},
        }
    )
    assert {path for path, finding in found.items() if finding == ("warning", "policy.dead-key")} == {
        "driver.useOpenKernelModules",
        "driver.nvidiaDriverCRD.nodeSelector",
        "devicePlugin.mps.root",
        "operator.defaultRuntime",
        "operator.defaultGPUMode",
        "operator.use_ocp_driver_toolkit",
        "kataManager",
        "cdi.default",
        "dcgm.hostPort",
        "psp.enabled",
        "daemonsets.podSecurityContext",
        "toolkit.args",
        "gds.args",
        "gds.hostNetwork",
        "cert-manager",
    }


@pytest.mark.rows("COM-15")
def test_dead_keys_change_nothing() -> None:
    dead = {
        "devicePlugin": {"mps": {"root": "/srv"}},
        "toolkit": {"args": ["-x"]},
        "driver": {"useOpenKernelModules": True},
    }
    assert good(dead) == good({})


@pytest.mark.rows("COM-15")
def test_a_deprecated_key_works_and_is_told() -> None:
    source = {"driver": {"licensingConfig": {"configMapName": "licence"}}}
    assert good(source).driver.licensing.config_map_name == "licence"
    assert told(source)["driver.licensingConfig.configMapName"] == ("warning", "policy.deprecated-key")


@pytest.mark.rows("S63")
@pytest.mark.parametrize(
    ("source", "path", "instead"),
    [
        ({"operator": {"migStrategy": "mixed"}}, "operator.migStrategy", "mig.strategy"),
        (
            {"node-feature-discovery": {"enableNodeFeatureApi": True}},
            "node-feature-discovery.enableNodeFeatureApi",
            "0.17",
        ),
        ({"driver": {"tolerations": [{"operator": "Exists"}]}}, "driver.tolerations", "daemonsets.tolerations"),
        ({"dcgmPodExporter": {"image": "x"}}, "dcgmPodExporter", "dcgmExporter"),
    ],
)
def test_keys_of_older_charts_are_told_with_what_to_write_now(source: dict[str, Any], path: str, instead: str) -> None:
    (finding,) = load(source)[1]
    assert (finding.severity, finding.id, finding.path) == ("warning", "policy.older-key", path)
    assert instead in finding.remedy


def test_keys_of_the_operators_own_deployment_are_told_where_they_were_changed() -> None:
    found = told({"operator": {"resources": {"limits": {"cpu": "1"}}, "cleanupCRD": False, "upgradeCRD": False}})
    assert found == {
        "operator.resources": ("info", "policy.chart-key"),
        "operator.upgradeCRD": ("info", "policy.chart-key"),
    }


@pytest.mark.rows("S63")
def test_a_version_of_the_operator_is_answered_with_the_option_that_chooses_one() -> None:
    (finding,) = load({"operator": {"version": "v25.3.0"}})[1]
    assert (finding.severity, finding.path) == ("info", "operator.version")
    assert "option release" in finding.remedy


@pytest.mark.parametrize(
    "path",
    ["gpuCluster.deployCR", "driver.nvidiaDriverCRD.enabled", "platform.openshift"],
)
def test_what_is_not_supported_yet_is_refused_when_switched_on_and_told_when_left_off(path: str) -> None:
    first, second = path.split(".", 1)
    last = second.split(".")
    on: Any = {last[-1]: True}
    off: Any = {last[-1]: False}
    for name in reversed(last[:-1]):
        on, off = {name: on}, {name: off}
    refused = {f.path for f in load({first: on})[1] if f.severity == "error" and "not supported yet" in f.sentence()}
    assert refused == {path}
    assert {finding[0] for finding in told({first: off}).values()} == {"info"}


VGPU = {"enabled": True, "repository": "registry.example.com", "version": "580.1"}


@pytest.mark.rows("S48", "SBX-01", "INS-01")
def test_what_gives_gpus_to_virtual_machines_is_read() -> None:
    policy = good(
        {
            "sandboxWorkloads": {"enabled": True, "defaultWorkload": "vm-passthrough", "mode": "kata"},
            "vgpuDeviceManager": {"config": {"name": "vgpus", "default": "A10-4C"}},
            "vfioManager": {"driverManager": {"version": "v9", "env": [{"name": "A", "value": "b"}]}},
            "ccManager": {"defaultMode": "devtools"},
            "validator": {"vfioPCI": {"env": [{"name": "A", "value": "b"}]}},
        }
    )
    assert policy.sandbox_workloads == SandboxWorkloads(True, "vm-passthrough", "kata")
    assert policy.vgpu_device_manager.config == NamedConfig("vgpus", "A10-4C")
    assert policy.vfio_manager.driver_manager.image.version == "v9"
    assert policy.vfio_manager.driver_manager.env == ({"name": "A", "value": "b"},)
    assert policy.cc_manager.default_mode == "devtools"
    assert policy.validator.vfio_pci_env == ({"name": "A", "value": "b"},)
    on = ("vgpu_device_manager", "vfio_manager", "sandbox_device_plugin", "kata_sandbox_device_plugin", "cc_manager")
    assert all(getattr(policy, name).enabled for name in on)
    assert not policy.vgpu_manager.enabled


@pytest.mark.rows("S48", "SBX-01")
@pytest.mark.parametrize(
    ("values", "path", "words"),
    [
        ({"vgpuManager": {"enabled": True}}, "vgpuManager", "NVIDIA publishes none"),
        ({"vgpuManager": {**VGPU, "version": ""}}, "vgpuManager", "names its image only in part"),
        ({"sandboxWorkloads": {"defaultWorkload": "vm-vgpu", "mode": "kata"}}, "sandboxWorkloads.defaultWorkload",
         "whole GPUs only"),
        ({"sandboxWorkloads": {"defaultWorkload": "vm"}}, "sandboxWorkloads.defaultWorkload", "vm-passthrough"),
        ({"sandboxWorkloads": {"mode": "virsh"}}, "sandboxWorkloads.mode", "kubevirt"),
        ({"ccManager": {"defaultMode": "maybe"}}, "ccManager.defaultMode", "devtools"),
    ],
)  # fmt: skip
def test_what_cannot_give_gpus_to_virtual_machines_is_refused(values: Any, path: str, words: str) -> None:
    given = {**values, "sandboxWorkloads": {"enabled": True, **values.get("sandboxWorkloads", {})}}
    policy, findings = load(given)
    assert policy is None
    (error,) = [f for f in findings if f.severity == "error"]
    assert error.path == path
    assert words in error.sentence()


@pytest.mark.rows("S48")
def test_an_image_of_the_vgpu_manager_alone_is_used_as_it_is() -> None:
    on = {"sandboxWorkloads": {"enabled": True}}
    policy = good({**on, "vgpuManager": {"enabled": True, "image": "registry.example.com/vgpu:1"}})
    assert reference(policy.vgpu_manager.image) == "registry.example.com/vgpu:1"


@pytest.mark.rows("S48")
@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"vgpuManager": {"enabled": True}}, "vgpuManager.enabled"),
        ({"sandboxWorkloads": {"defaultWorkload": "vm-vgpu"}}, "sandboxWorkloads.defaultWorkload"),
        ({"sandboxWorkloads": {"enabled": True, "mode": "kata"}, "vgpuManager": VGPU}, "vgpuManager.enabled"),
    ],
)
def test_settings_of_virtual_machines_that_lead_nowhere_are_told(values: Any, path: str) -> None:
    assert [(f.severity, f.path) for f in load(values)[1]] == [("warning", path)]


@pytest.mark.rows("S48")
def test_a_release_without_the_image_of_a_part_that_is_on_is_refused() -> None:
    assert load({}, release="v25.3.4")[0] is not None
    policy, findings = load({"sandboxWorkloads": {"enabled": True}}, release="v25.3.4")
    assert policy is None
    missing = {f.path for f in findings if f.severity == "error" and "is not known here" in f.detail}
    assert missing == {"vgpuDeviceManager", "vfioManager", "sandboxDevicePlugin"}
    kata = load({"sandboxWorkloads": {"enabled": True, "mode": "kata"}}, release="v25.10.1")[1]
    assert {f.path for f in kata if f.severity == "error"} == {"vfioManager", "kataSandboxDevicePlugin"}


@pytest.mark.rows("IMG-04")
def test_pull_policy_and_pull_secrets_are_normalised() -> None:
    policy = good(
        {
            "driver": {"imagePullPolicy": "sometimes", "imagePullSecrets": ["b", "a", "b"]},
            "gfd": {"imagePullPolicy": "Never"},
        }
    )
    assert policy.driver.image.pull_policy == "IfNotPresent"
    assert policy.driver.image.pull_secrets == ("b", "a")
    assert policy.gfd.image.pull_policy == "Never"


@pytest.mark.rows("IMG-01")
@pytest.mark.parametrize(
    ("written", "image"),
    [
        ({"repository": "mirror.example/n", "version": "1.2"}, ("mirror.example/n", "k8s-device-plugin", "1.2")),
        ({"version": "sha256:" + "a" * 64}, ("nvcr.io/nvidia", "k8s-device-plugin", "sha256:" + "a" * 64)),
        (
            {"repository": "", "version": "", "image": "mirror.example/p@sha256:0"},
            ("", "mirror.example/p@sha256:0", ""),
        ),
        ({"repository": None, "version": None, "image": None}, ("nvcr.io/nvidia", "k8s-device-plugin", "v0.20.0")),
    ],
)
def test_an_image_is_three_keys_or_image_alone_or_the_releases_own(
    written: dict[str, Any], image: tuple[str, ...]
) -> None:
    found = good({"devicePlugin": written}).device_plugin.image
    assert (found.repository, found.image, found.version) == image


@pytest.mark.rows("IMG-01")
@pytest.mark.parametrize(
    ("written", "missing"),
    [
        ({"version": ""}, "version"),
        ({"repository": None}, "repository"),
        ({"image": ""}, "image"),
        ({"image": "", "version": ""}, "image and version"),
    ],
)
def test_an_image_named_in_part_is_refused_where_it_is_needed(written: dict[str, Any], missing: str) -> None:
    assert f"without {missing}." in errors_of({"devicePlugin": written})["devicePlugin"]
    good({"devicePlugin": dict(written, enabled=False)})


@pytest.mark.rows("IMG-01")
def test_an_image_named_in_part_below_the_driver_is_refused() -> None:
    assert set(errors_of({"driver": {"manager": {"version": ""}}})) == {"driver.manager"}
    assert set(errors_of({"validator": {"repository": ""}})) == {"validator"}


@pytest.mark.rows("S63")
@pytest.mark.parametrize(
    ("name", "release", "driver"),
    [
        ("v24.3.0", "v24.3.0", "550.54.15"),
        ("24.9", "v24.9.2", "550.144.03"),
        ("v25.x", "v25.10.1", "580.105.08"),
        ("25.3", "v25.3.4", "580.82.07"),
        ("v26.3.1", "v26.3.1", "580.126.20"),
        ("v26.7", "v26.7.0", "595.91.07"),
        ("", "v26.7.0", "595.91.07"),
    ],
)
def test_a_release_chosen_by_name_brings_its_own_versions(name: str, release: str, driver: str) -> None:
    policy, findings = load({}, release=name)
    assert policy is not None
    assert (policy.release, policy.driver.image.version) == (release, driver)
    assert ("policy.older-release" in {f.id for f in findings}) == (release != LATEST)
    assert policy.nfd.values["image"]["tag"] == RELEASES[release].nfd


@pytest.mark.rows("S63")
def test_an_unknown_release_is_refused_with_those_that_are_known() -> None:
    sentence = errors_of({}, release="v19.1")["release"]
    assert all(known in sentence for known in RELEASES)


@pytest.mark.rows("S63", "IMG-01")
def test_an_image_that_a_release_does_not_tell_must_be_given() -> None:
    source = {"gds": {"enabled": True}, "driver": {"kernelModuleType": "open"}}
    assert set(errors_of(source, release="v25.10.1")) == {"gds"}
    source["gds"].update(repository="nvcr.io/nvidia/cloud-native", image="nvidia-fs", version="2.26.6")
    assert good(source, release="v25.10.1").gds.image.version == "2.26.6"


def test_shares_of_resources_and_env_reach_the_policy() -> None:
    resources = {"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m"}}
    policy = good(
        {
            "gfd": {
                "resources": resources,
                "env": [{"name": "A", "value": "1"}, {"name": "B"}],
                "hostNetwork": True,
                "args": ["x"],
            }
        }
    )
    assert policy.gfd.resources == resources
    assert policy.gfd.env == ({"name": "A", "value": "1"}, {"name": "B", "value": ""})
    assert (policy.gfd.host_network, policy.gfd.args) == (True, ("x",))
    assert good({}).gfd.resources is None


def test_env_refuses_duplicates_empty_sources_and_numbers_without_showing_values() -> None:
    secret = "hunter2"
    env = [
        {"name": "A", "value": secret},
        {"name": "A", "value": "2"},
        {"name": "B", "valueFrom": {}},
        {"name": "C", "value": 4711},
        {"name": "D", "value": {"inner": secret}},
    ]
    found = errors_of({"driver": {"env": env}})
    assert set(found) == {"driver.env[1].name", "driver.env[2].valueFrom", "driver.env[3].value", "driver.env[4].value"}
    assert "secretKeyRef" in found["driver.env[2].valueFrom"]
    assert secret not in "".join(found.values())
    assert "4711" not in "".join(found.values())


def test_amounts_of_resources_are_checked() -> None:
    found = errors_of({"driver": {"resources": {"limits": {"memory": "1 GB"}, "request": {}}}})
    assert set(found) == {"driver.resources.limits.memory", "driver.resources.request"}
