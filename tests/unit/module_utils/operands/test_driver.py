# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's DaemonSets: which there are, what their containers get, and when a driver is installed anew."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._drivers import Driver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _driver_groups as groups
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import problems
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
    FEATURE,
    cluster,
    container_of,
    env_of,
    mounts_of,
    node,
    objects_of,
    pod_of,
    policy_of,
    volume_of,
)

NAME = "nvidia-driver-daemonset"
ID, VERSION = f"{FEATURE}system-os_release.ID", f"{FEATURE}system-os_release.VERSION_ID"
KERNEL = f"{FEATURE}kernel-version.full"


def driver_sets(facts: ClusterFacts, **driver: Any) -> dict[str, dict[str, Any]]:
    made = objects_of(policy_of({"driver": driver}), facts)
    return {key.split("/")[1]: obj for key, obj in made.items() if key.startswith(f"DaemonSet/{NAME}")}


def driver(values: dict[str, Any] | None = None, facts: ClusterFacts | None = None, **keys: Any) -> dict[str, Any]:
    return pod_of(policy_of({**(values or {}), "driver": keys}), NAME, facts)


# --- one for each operating system -----------------------------------------------------------------------------------


@pytest.mark.rows("L12")
def test_each_operating_system_has_a_daemonset_that_selects_its_nodes() -> None:
    made = driver_sets(cluster(node("a"), node("b", version="22.04"), node("c", "rhel", "9.4")))
    assert set(made) == {NAME, f"{NAME}-ubuntu22.04", f"{NAME}-ubuntu24.04"}
    tags = {name: obj["spec"]["template"]["spec"]["containers"][0]["image"] for name, obj in made.items()}
    assert tags[NAME].endswith("-rhel9")
    assert tags[f"{NAME}-ubuntu22.04"].endswith("-ubuntu22.04")
    selectors = {name: obj["spec"]["template"]["spec"]["nodeSelector"] for name, obj in made.items()}
    assert selectors[f"{NAME}-ubuntu24.04"].items() >= {ID: "ubuntu", VERSION: "24.04"}.items()
    assert selectors[NAME].items() >= {ID: "rhel", f"{VERSION}.major": "9"}.items()
    for obj in made.values():
        assert obj["spec"]["template"]["metadata"]["labels"]["app"] == NAME


def test_no_two_daemonsets_select_the_same_pods_beyond_the_plain_one() -> None:
    made = driver_sets(cluster(node("a"), node("b", version="22.04"), node("c", version="20.04")))
    selectors = [obj["spec"]["selector"]["matchLabels"] for name, obj in made.items() if name != NAME]
    assert len({tuple(sorted(s.items())) for s in selectors}) == 2
    assert all(len(s) == 2 for s in selectors)


def test_minor_versions_of_one_tag_share_a_daemonset() -> None:
    made = driver_sets(cluster(node("a", "rhel", "9.4"), node("b", "rhel", "9.6"), node("c")))
    assert len(made) == 2
    selector = made[NAME]["spec"]["template"]["spec"]["nodeSelector"]
    assert VERSION not in selector
    assert selector[f"{VERSION}.major"] == "9"


def test_one_operating_system_needs_no_selector() -> None:
    (made,) = driver_sets(cluster(node("a"), node("b"))).values()
    assert made["spec"]["template"]["spec"]["nodeSelector"] == {"nvidia.com/gpu.deploy.driver": "true"}


NOBLE, JAMMY, FOCAL = "ubuntu24.04", "ubuntu22.04", "ubuntu20.04"


@pytest.mark.parametrize(
    ("versions", "existing", "wanted"),
    [
        (["22.04", "24.04"], {}, {JAMMY: NAME, NOBLE: f"{NAME}-{NOBLE}"}),
        # A new one that sorts first takes no name away.
        (["20.04", "22.04"], {NAME: JAMMY}, {JAMMY: NAME, FOCAL: f"{NAME}-{FOCAL}"}),
        # The first has no nodes any more.
        (["24.04"], {NAME: JAMMY, f"{NAME}-{NOBLE}": NOBLE}, {NOBLE: f"{NAME}-{NOBLE}"}),
        (["20.04", "24.04"], {NAME: JAMMY, f"{NAME}-{NOBLE}": NOBLE}, {NOBLE: f"{NAME}-{NOBLE}", FOCAL: NAME}),
        # The whole cluster was upgraded in place.
        (["24.04"], {NAME: JAMMY}, {NOBLE: NAME}),
        # Drivers were precompiled before; and what one serves may not be known (its image is a digest).
        (["24.04"], {f"{NAME}-6.8.0-60-generic-{NOBLE}": NOBLE}, {NOBLE: NAME}),
        (["24.04"], {NAME: ""}, {NOBLE: NAME}),
        (["22.04", "24.04"], {NAME: NOBLE, f"{NAME}-{NOBLE}": NOBLE}, {NOBLE: NAME, JAMMY: f"{NAME}-{JAMMY}"}),
    ],
)
def test_a_daemonset_keeps_its_operating_system(
    versions: list[str], existing: dict[str, str], wanted: dict[str, str]
) -> None:
    facts = cluster(*(node(version, version=version) for version in versions), driver_daemonsets=existing)
    assert {group.os_tag: group.name for group in groups.by_os(facts)} == wanted


def test_the_plain_name_is_known_by_its_operating_system_alone_too() -> None:
    made = groups.by_os(cluster(node("a"), node("b", version="22.04"), driver_os="ubuntu24.04"))
    assert {group.os_tag: group.name for group in made} == {"ubuntu24.04": NAME, "ubuntu22.04": f"{NAME}-ubuntu22.04"}


@pytest.mark.rows("COM-13")
@pytest.mark.parametrize("facts", [ClusterFacts(), cluster(node("a", "", ""))])
def test_without_a_node_whose_system_is_known_there_is_none(facts: ClusterFacts) -> None:
    assert driver_sets(facts) == {}
    assert "ServiceAccount/nvidia-driver" in objects_of(policy_of(), facts)


# --- precompiled -----------------------------------------------------------------------------------------------------


@pytest.mark.rows("DRV-02", "IMG-03")
def test_precompiled_drivers_have_a_daemonset_for_each_kernel() -> None:
    facts = cluster(
        node("a", kernel="6.8.0-60-generic"),
        node("b", kernel="6.8.0-61-generic"),
        node("c", "rhel", "9.4", kernel="5.14.0-427.13.1.el9_4.x86_64"),
        node("d", kernel=""),
    )
    made = driver_sets(facts, usePrecompiled=True, version="595")
    assert set(made) == {
        f"{NAME}-6.8.0-60-generic-ubuntu24.04",
        f"{NAME}-6.8.0-61-generic-ubuntu24.04",
        f"{NAME}-5.14.0-427.13.1.el9.4-rhel9",
    }
    obj = made[f"{NAME}-5.14.0-427.13.1.el9.4-rhel9"]
    pod = obj["spec"]["template"]["spec"]
    assert pod["nodeSelector"][KERNEL] == "5.14.0-427.13.1.el9_4.x86_64"
    assert ID not in pod["nodeSelector"]
    assert pod["containers"][0]["image"] == "nvcr.io/nvidia/driver:595-5.14.0-427.13.1.el9_4.x86_64-rhel9"
    for metadata in (obj["metadata"], obj["spec"]["template"]["metadata"]):
        assert metadata["labels"]["nvidia.com/precompiled"] == "true"


@pytest.mark.rows("L13")
def test_one_kernel_on_two_systems_is_told_apart() -> None:
    made = driver_sets(cluster(node("a"), node("b", version="22.04")), usePrecompiled=True, version="595")
    assert len(made) == 2
    for obj in made.values():
        assert {ID, VERSION, KERNEL} < set(obj["spec"]["template"]["spec"]["nodeSelector"])


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        ("5.15.0-105-generic", "5.15.0-105-generic"),
        ("5.14.0-427.13.1.el9_4.x86_64", "5.14.0-427.13.1.el9.4"),
        ("5.14.0-570.1.1.el9_6.aarch64_64k", "5.14.0-570.1.1.el9.6"),
        ("6.1.0-Cloud+amd64", "6.1.0-cloud.amd64"),
    ],
)
def test_a_kernel_becomes_part_of_a_name(kernel: str, wanted: str) -> None:
    assert groups.plain_kernel(kernel) == wanted


# --- containers ------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DRV-01")
@pytest.mark.parametrize("kind", ["auto", "open", "proprietary"])
def test_the_kind_of_kernel_modules(kind: str) -> None:
    env = env_of(driver(kernelModuleType=kind)["containers"][0])
    assert env["KERNEL_MODULE_TYPE"] == kind
    assert env.get("OPEN_KERNEL_MODULES_ENABLED") == ("true" if kind == "open" else None)


@pytest.mark.rows("DRV-03")
def test_the_startup_probe_takes_the_numbers_that_are_given() -> None:
    main = driver(startupProbe={"initialDelaySeconds": 5, "failureThreshold": 9})["containers"][0]
    assert main["startupProbe"] == {
        "exec": {"command": ["sh", "/usr/local/bin/startup-probe.sh"]},
        "initialDelaySeconds": 5,
        "failureThreshold": 9,
        "periodSeconds": 10,
        "timeoutSeconds": 60,
    }
    assert "livenessProbe" not in main


@pytest.mark.rows("L15")
def test_other_probes_of_the_driver_have_something_to_run() -> None:
    main = driver(livenessProbe={"periodSeconds": 30})["containers"][0]
    assert main["livenessProbe"]["exec"]["command"] == ["sh", "/usr/local/bin/startup-probe.sh"]
    assert main["livenessProbe"]["periodSeconds"] == 30
    assert "readinessProbe" not in main


@pytest.mark.rows("DRV-04", "S33")
@pytest.mark.parametrize("host", [False, True])
def test_rdma_adds_a_container_and_knows_whose_network_driver_it_is(host: bool) -> None:
    pod = driver(rdma={"enabled": True, "useHostMofed": host})
    assert [c["name"] for c in pod["containers"]] == ["nvidia-driver-ctr", "nvidia-peermem-ctr"]
    for name in ("nvidia-driver-ctr", "k8s-driver-manager"):
        assert env_of(container_of(pod, name))["GPU_DIRECT_RDMA_ENABLED"] == "true"
    for name in ("nvidia-driver-ctr", "k8s-driver-manager", "nvidia-peermem-ctr"):
        assert env_of(container_of(pod, name)).get("USE_HOST_MOFED") == ("true" if host else None)
    source = "/usr/src" if host else "/run/mellanox/drivers/usr/src"
    assert volume_of(pod, "mlnx-ofed-usr-src")["hostPath"]["path"] == source


@pytest.mark.rows("DRV-05", "DRV-06", "S33")
@pytest.mark.parametrize(
    ("key", "name", "module", "flag"),
    [
        ("gds", "nvidia-fs-ctr", "nvidia_fs", "GDS_ENABLED"),
        ("gdrcopy", "nvidia-gdrcopy-ctr", "gdrdrv", "GDRCOPY_ENABLED"),
    ],
)
def test_further_modules_come_in_containers_of_their_own(key: str, name: str, module: str, flag: str) -> None:
    values = {key: {"enabled": True, "args": ["ignored"], "env": [{"name": "A", "value": "b"}]}}
    pod = driver(values, kernelModuleType="open", resources={"limits": {"cpu": "1"}})
    made = container_of(pod, name)
    assert made["startupProbe"]["exec"]["command"] == ["sh", "-c", f"lsmod | grep {module}"]
    assert made["resources"] == {"limits": {"cpu": "1"}}
    assert env_of(made) == {"A": "b"}
    assert "ignored" not in made["args"]
    assert env_of(pod["containers"][0])[flag] == "true"
    assert mounts_of(made)["/run/nvidia"]["mountPropagation"] == "HostToContainer"


FILES = {"ConfigMap/repos": ("b.repo", "a.list"), "ConfigMap/certs": ("ca.crt",), "ConfigMap/params": ("nvidia.conf",)}


@pytest.mark.rows("DRV-07")
@pytest.mark.parametrize(
    ("os", "version", "repositories", "certificates"),
    [
        ("ubuntu", "24.04", "/etc/apt/sources.list.d", "/usr/local/share/ca-certificates"),
        ("debian", "12", "/etc/apt/sources.list.d", "/usr/local/share/ca-certificates"),
        ("centos", "9", "/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"),
        ("rhel", "9.4", "/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"),
        ("rocky", "9.4", "/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"),
        ("ol", "9.4", "/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"),
        ("sles", "15.7", "/etc/zypp/repos.d", "/etc/pki/trust/anchors"),
        ("sl-micro", "6.0", "/etc/zypp/repos.d", "/etc/pki/trust/anchors"),
    ],
)
def test_package_sources_and_certificates_lie_where_the_system_looks(
    os: str, version: str, repositories: str, certificates: str
) -> None:
    facts = cluster(node("a", os, version), config_keys=FILES)
    values = {"gds": {"enabled": True}, "gdrcopy": {"enabled": True}}
    keys = {"repoConfig": {"configMapName": "repos"}, "certConfig": {"name": "certs"}, "kernelModuleType": "open"}
    pod = driver(values, facts, **keys)
    for name in ("nvidia-driver-ctr", "nvidia-fs-ctr", "nvidia-gdrcopy-ctr"):
        mounts = mounts_of(container_of(pod, name))
        assert mounts[f"{repositories}/a.list"]["subPath"] == "a.list"
        assert mounts[f"{repositories}/b.repo"]["readOnly"] is True
        assert mounts[f"{certificates}/ca.crt"]["subPath"] == "ca.crt"
    source = volume_of(pod, "repos")["configMap"]
    assert source["items"] == [{"key": key, "path": key} for key in ("a.list", "b.repo")]


@pytest.mark.rows("DRV-08")
def test_module_parameters_reach_the_driver_and_peermem() -> None:
    facts = cluster(config_keys=FILES)
    pod = driver(None, facts, kernelModuleConfig={"name": "params"}, rdma={"enabled": True})
    for name in ("nvidia-driver-ctr", "nvidia-peermem-ctr"):
        assert mounts_of(container_of(pod, name))["/drivers/nvidia.conf"]["subPath"] == "nvidia.conf"


def test_one_configmap_may_serve_two_purposes() -> None:
    facts = cluster(config_keys={"ConfigMap/both": ("a", "b")})
    pod = driver(None, facts, repoConfig={"configMapName": "both"}, certConfig={"name": "both"})
    assert [v["name"] for v in pod["volumes"]].count("both") == 1
    assert {"/etc/apt/sources.list.d/a", "/usr/local/share/ca-certificates/b"} < set(mounts_of(pod["containers"][0]))


@pytest.mark.parametrize("name", ["run-nvidia", "with.dots", "x" * 70])
def test_a_configmap_may_have_a_name_that_no_volume_can_have(name: str) -> None:
    facts = cluster(config_keys={f"ConfigMap/{name}": ("a",)})
    pod = driver(None, facts, repoConfig={"configMapName": name})
    volume = mounts_of(pod["containers"][0])["/etc/apt/sources.list.d/a"]["name"]
    assert volume_of(pod, volume)["configMap"]["name"] == name
    assert len({v["name"] for v in pod["volumes"]}) == len(pod["volumes"])


@pytest.mark.rows("DRV-09")
@pytest.mark.parametrize(
    ("licensing", "source", "token"),
    [
        ({"secretName": "s", "configMapName": "c"}, {"secretName": "s"}, True),
        ({"configMapName": "c"}, {"name": "c"}, True),
        ({"secretName": "s", "nlsEnabled": False}, {"secretName": "s"}, False),
    ],
)
def test_a_licence_comes_from_the_secret_first(licensing: dict[str, Any], source: dict[str, str], token: bool) -> None:
    pod = driver(licensingConfig=licensing)
    mounts = mounts_of(pod["containers"][0])
    assert mounts["/drivers/gridd.conf"]["subPath"] == "gridd.conf"
    path = "/drivers/ClientConfigToken/client_configuration_token.tok"
    assert (path in mounts) == token
    volume = volume_of(pod, "licensing-config")
    items = volume.get("secret", volume.get("configMap"))
    assert items.items() >= source.items()
    assert ("secret" in volume) == ("secretName" in source)
    assert len(items["items"]) == 1 + token


@pytest.mark.rows("DRV-10")
def test_a_virtual_topology_is_mounted() -> None:
    pod = driver(virtualTopology={"config": "topology"})
    assert mounts_of(pod["containers"][0])["/etc/nvidia/nvidia-topologyd.conf"]["subPath"] == "nvidia-topologyd.conf"
    assert volume_of(pod, "topology-config")["configMap"]["name"] == "topology"


@pytest.mark.rows("DRV-11")
def test_env_of_a_secret_reaches_what_builds_modules() -> None:
    pod = driver({"gds": {"enabled": True}}, secretEnv="proxy", kernelModuleType="open", rdma={"enabled": True})
    wanted = [{"secretRef": {"name": "proxy"}}]
    assert container_of(pod, "nvidia-driver-ctr")["envFrom"] == wanted
    assert container_of(pod, "nvidia-fs-ctr")["envFrom"] == wanted
    assert "envFrom" not in container_of(pod, "nvidia-peermem-ctr")


RHEL = {"/run/secrets/etc-pki-entitlement", "/run/secrets/redhat.repo", "/run/secrets/rhsm"}
SUSE = {"/etc/zypp/credentials.d", "/etc/SUSEConnect"}


@pytest.mark.rows("DRV-12")
@pytest.mark.parametrize(
    ("os", "runtime", "keys", "wanted"),
    [
        ("rhel", "containerd", {}, RHEL),
        ("rhel", "crio", {}, set()),
        ("rhel", "containerd", {"repoConfig": {"configMapName": "repos"}}, set()),
        ("rocky", "containerd", {}, set()),
        ("ubuntu", "containerd", {}, set()),
        ("sles", "containerd", {}, SUSE),
        ("sl-micro", "crio", {}, SUSE),
    ],
)
def test_subscriptions_of_the_host_are_shared(os: str, runtime: str, keys: dict[str, Any], wanted: set[str]) -> None:
    pod = driver(None, cluster(node("a", os, "9.4"), runtime=runtime, config_keys=FILES), **keys)
    mounts = mounts_of(pod["containers"][0])
    assert {path for path in mounts if path in RHEL | SUSE} == wanted
    for path in wanted:
        assert mounts[path]["readOnly"] is True
        assert volume_of(pod, mounts[path]["name"])["hostPath"]["type"] in ("Directory", "File", "FileOrCreate")


@pytest.mark.rows("DRV-12")
def test_precompiled_drivers_need_no_subscription_but_suse_shares_its_modules() -> None:
    facts = cluster(node("a", "sles", "15.7", kernel="6.4.0-default"), config_keys=FILES)
    policy = policy_of({"driver": {"usePrecompiled": True, "version": "595", "repoConfig": {"configMapName": "repos"}}})
    mounts = mounts_of(pod_of(policy, f"{NAME}-6.4.0-default-sles15.7", facts)["containers"][0])
    assert "/run/host/lib/modules" in mounts
    assert not {path for path in mounts if path in SUSE or path.startswith("/etc/zypp")}


# --- when a driver is installed anew ---------------------------------------------------------------------------------


def digest(values: dict[str, Any], facts: ClusterFacts | None = None) -> str:
    pod = pod_of(policy_of(values), NAME, facts)
    of_driver, of_manager = (env_of(container_of(pod, n)) for n in ("nvidia-driver-ctr", "k8s-driver-manager"))
    assert of_driver["DRIVER_CONFIG_DIGEST"] == of_manager["DRIVER_CONFIG_DIGEST"]
    return of_driver["DRIVER_CONFIG_DIGEST"]


@pytest.mark.rows("DRV-13")
@pytest.mark.parametrize(
    "values",
    [
        {"driver": {"version": "580.1.2"}},
        {"driver": {"args": ["init", "--x"]}},
        {"driver": {"env": [{"name": "A", "value": "b"}]}},
        {"driver": {"manager": {"env": [{"name": "A", "value": "b"}]}}},
        {"driver": {"manager": {"version": "v0.13.0"}}},
        {"driver": {"kernelModuleType": "open"}},
        {"driver": {"rdma": {"enabled": True}}},
        {"driver": {"secretEnv": "s"}},
        {"driver": {"licensingConfig": {"secretName": "s"}}},
        {"driver": {"repoConfig": {"configMapName": "repos"}}},
        {"gds": {"enabled": True}, "driver": {"kernelModuleType": "open"}},
        {"gdrcopy": {"enabled": True}},
        {"hostPaths": {"rootFS": "/host-root"}},
    ],
)
def test_what_an_installed_driver_depends_on_changes_the_digest(values: dict[str, Any]) -> None:
    facts = cluster(config_keys=FILES)
    assert digest(values, facts) != digest({}, facts)


@pytest.mark.rows("DRV-13")
@pytest.mark.parametrize(
    "values",
    [
        {"driver": {"resources": {"limits": {"cpu": "1"}}}},
        {"driver": {"startupProbe": {"periodSeconds": 3}}},
        {"driver": {"imagePullPolicy": "Always", "imagePullSecrets": ["a"]}},
        {"driver": {"hostNetwork": True}},
        {"daemonsets": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "priorityClassName": "high"}},
        {"daemonsets": {"tolerations": [{"operator": "Exists"}]}},
        {"toolkit": {"version": "v9"}},
    ],
)
def test_what_an_installed_driver_does_not_depend_on_keeps_the_digest(values: dict[str, Any]) -> None:
    assert digest(values) == digest({})


@pytest.mark.rows("DRV-13")
def test_the_digest_is_the_same_in_every_run_and_whoever_else_is_in_the_cluster() -> None:
    assert digest({}) == digest({}, cluster(node("x"), node("y", "rhel", "9.4"), driver_os="ubuntu24.04"))


def test_nobody_sets_the_digest_but_us() -> None:
    values = {"driver": {"env": [{"name": "DRIVER_CONFIG_DIGEST", "value": "mine"}]}}
    assert digest(values) != "mine"


@pytest.mark.rows("DRV-14")
def test_a_preinstalled_driver_is_looked_for_before_anything_is_unloaded() -> None:
    manager = container_of(driver(), "k8s-driver-manager")
    assert mounts_of(manager)["/host"]["readOnly"] is True
    assert manager["args"] == ["uninstall_driver"]
    assert "DaemonSet/nvidia-driver-daemonset" not in objects_of(policy_of({"driver": {"enabled": False}}))


@pytest.mark.rows("L12")
def test_a_group_of_nodes_has_a_driver_of_its_own() -> None:
    old = Driver("old", version="580.105.08", flavour="proprietary")
    facts = cluster(
        node("a"), node("b", driver=old), node("c", "rhel", "9.6", driver=old), node("d", driver=Driver("image", False))
    )
    made = {
        key.removeprefix("DaemonSet/"): o["spec"]
        for key, o in objects_of(policy_of(), facts).items()
        if key.startswith("DaemonSet/nvidia-driver-daemonset")
    }
    plain = "nvidia-driver-daemonset"
    assert sorted(made) == [plain, f"{plain}-old-rhel9", f"{plain}-old-ubuntu24.04"]
    pods = {name: spec["template"]["spec"] for name, spec in made.items()}
    for name, os in ((f"{plain}-old-rhel9", "rhel9"), (f"{plain}-old-ubuntu24.04", "ubuntu24.04")):
        main = pods[name]["containers"][0]
        assert main["image"].endswith(f":580.105.08-{os}")
        assert env_of(main)["KERNEL_MODULE_TYPE"] == "proprietary"
        assert pods[name]["nodeSelector"]["gpufleet.io/driver-group"] == "old"
    assert "580.105.08" not in str(pods[plain])
    (term,) = pods[plain]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {"matchExpressions": [{"key": "gpufleet.io/driver-group", "operator": "DoesNotExist"}]}
    selectors = [tuple(sorted(spec["selector"]["matchLabels"].items())) for spec in made.values()]
    assert len(set(selectors)) == 3
    # Nothing that a running driver depends on changes for the nodes that are in no group.
    alone = objects_of(policy_of(), cluster(node("a")))[f"DaemonSet/{plain}"]["spec"]
    assert made[plain]["selector"] == alone["selector"]
    assert pods[plain]["containers"] == alone["template"]["spec"]["containers"]


@pytest.mark.rows("L12")
def test_a_group_of_precompiled_drivers_has_one_a_kernel() -> None:
    fast = Driver("fast", precompiled=True, version="580")
    facts = cluster(node("a"), node("b", driver=fast, kernel="6.8.0-60-generic"))
    assert "DaemonSet/nvidia-driver-daemonset-fast-6.8.0-60-generic-ubuntu24.04" in objects_of(policy_of(), facts)


@pytest.mark.rows("L12", "L16")
def test_a_groups_driver_that_cannot_be_is_refused() -> None:
    facts = cluster(node("a", driver=Driver("old", flavour="proprietary")))
    off = {finding.id for finding in problems(policy_of({"driver": {"enabled": False}}), facts)}
    assert "groups.driver-off" in off
    gds = policy_of({"gds": {"enabled": True}, "driver": {"kernelModuleType": "open"}})
    assert "groups.driver-gds" in {finding.id for finding in problems(gds, facts)}
    assert not {"groups.driver-off", "groups.driver-gds"} & {f.id for f in problems(policy_of(), facts)}
