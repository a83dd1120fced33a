# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known limits of the GPU Operator that do not hold here: our objects, on a node that is simulated in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._drivers import Driver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._stage import Stage, stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _nfd, problems
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._problems import named_by, unused_sizes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import canonical, load
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
    cluster,
    container_of,
    node,
    objects_of,
    pod_of,
    policy_of,
    volume_of,
)
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.node import NodeSpec
from ansible_collections.gpufleet.nvidia.tests.unit.testbed.simulator.lab import H100, Lab

PLUGIN, GFD, EXPORTER = "nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter"
H200 = NodeSpec("gpu-0000", product="H200-SXM-141GB", gpus=2)


def up(values: dict[str, Any] | None = None, spec: NodeSpec = H100, *, seconds: float = 900.0, **faults: Any) -> Lab:
    """A node with what our policy makes, after it has had time to come up."""
    policy, facts = policy_of(values), cluster(node(spec.name, labels=dict(spec.labels)))
    nfd = {f"{made['kind']}/{made['metadata']['name']}": made for made in _nfd.build(policy, facts)}
    lab = Lab({**objects_of(policy, facts), **nfd}, spec, dict(faults))
    lab.deploy_labels(mig=spec.product != "T4")
    return lab.run(seconds)


# --- the kubelet's folder ---------------------------------------------------------------------------------------------


@pytest.mark.rows("L37", "COM-08", "P122")
def test_the_kubelets_folder_reaches_plugin_and_exporter() -> None:
    values = {"hostPaths": {"kubeletRootDir": "/data/kubelet/"}}
    policy = policy_of(values)
    assert volume_of(pod_of(policy, PLUGIN), "device-plugin")["hostPath"]["path"] == "/data/kubelet/device-plugins"
    assert volume_of(pod_of(policy, EXPORTER), "pod-gpu-resources")["hostPath"]["path"] == "/data/kubelet/pod-resources"
    elsewhere = replace(H100, kubelet_root="/data/kubelet")
    lab = up(values, elsewhere)
    assert (lab.problems(), lab.allocatable) == ({}, {"nvidia.com/gpu": "8"})
    lost = up({}, elsewhere, seconds=300)
    assert "kubelet.sock" in lost.said
    assert lost.allocatable == {}


# --- a fresh node whose driver and toolkit are the host's ------------------------------------------------------------


@pytest.mark.rows("L46", "S10")
def test_pods_start_on_a_fresh_node_where_driver_and_toolkit_are_off() -> None:
    off = {name: {"enabled": False} for name in ("driver", "toolkit")}
    on = {"dcgm": {"enabled": True}, "nodeStatusExporter": {"enabled": True}}
    image = replace(H100, host_driver="580.159.04", host_toolkit=True)
    # The validator makes the folder, too: without it the others must not hang either.
    policy, facts = policy_of({**off, **on}), cluster()
    for name in ("nvidia-dcgm", EXPORTER, GFD, "nvidia-node-status-exporter"):
        kinds = [v["hostPath"].get("type", "") for v in pod_of(policy, name, facts)["volumes"] if "hostPath" in v]
        folders = [
            v for v in pod_of(policy, name, facts)["volumes"] if v.get("hostPath", {}).get("path") == "/run/nvidia"
        ]
        assert folders
        assert "Directory" not in [v["hostPath"].get("type") for v in folders], (name, kinds)
    lab = up({**off, **on}, image)
    assert (lab.problems(), lab.allocatable) == ({}, {"nvidia.com/gpu": "8"})


# --- sizes and sources of variables -----------------------------------------------------------------------------------


@pytest.mark.rows("L41")
def test_a_container_has_a_size_of_its_own() -> None:
    small, big = {"limits": {"memory": "64Mi"}}, {"limits": {"memory": "1Gi"}}
    values = {
        "daemonsets": {"containerResources": {"config-manager": small, "toolkit-validation": small}},
        "devicePlugin": {"resources": big, "config": {"name": "sharing"}},
    }
    pod = pod_of(policy_of(values), PLUGIN)
    assert container_of(pod, "config-manager")["resources"] == small
    assert container_of(pod, "toolkit-validation")["resources"] == small
    assert container_of(pod, "nvidia-device-plugin")["resources"] == big
    assert container_of(pod, "config-manager-init")["resources"] == big


@pytest.mark.rows("L41")
def test_a_size_for_a_container_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    policy = policy_of({"daemonsets": {"containerResources": {"nvidia-device-plugn": {}}}})
    daemonsets = [made for made in objects_of(policy).values() if made["kind"] == "DaemonSet"]
    (finding,) = unused_sizes(policy, daemonsets)
    assert finding.path == "daemonsets.containerResources.nvidia-device-plugn"
    assert finding.remedy == "Did you mean nvidia-device-plugin?"
    assert unused_sizes(policy, []) == []


@pytest.mark.rows("L41")
@pytest.mark.parametrize(
    ("sizes", "path"),
    [
        ({"a": {"limit": {}}}, "daemonsets.containerResources.a.limit"),
        ({"a": {"limits": {"memory": "much"}}}, "daemonsets.containerResources.a.limits.memory"),
        ({"a": 3}, "daemonsets.containerResources.a"),
        ([1], "daemonsets.containerResources"),
    ],
)
def test_a_size_that_is_none_is_refused(sizes: Any, path: str) -> None:
    policy, findings = load({"daemonsets": {"containerResources": sizes}})
    assert policy is None
    assert path in {finding.path for finding in findings}


SECRET = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "registry"}}}
CONFIG = {"name": "PROXY", "valueFrom": {"configMapKeyRef": {"name": "proxy", "key": "url", "optional": True}}}
FIELD = {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}


@pytest.mark.rows("L41", "COM-09")
def test_variables_take_their_values_from_elsewhere_and_a_change_there_rolls_the_pods() -> None:
    values = {"devicePlugin": {"env": [SECRET, CONFIG, FIELD]}, "validator": {"toolkit": {"env": [FIELD]}}}
    policy = policy_of(values)
    env = container_of(pod_of(policy, PLUGIN), "nvidia-device-plugin")["env"]
    assert [item for item in env if item["name"] in ("TOKEN", "PROXY", "HOST_IP")] == [SECRET, CONFIG, FIELD]
    assert FIELD in container_of(pod_of(policy, "nvidia-operator-validator"), "toolkit-validation")["env"]
    locked, findings = load(canonical(policy))
    assert (locked, findings) == (policy, [])

    def mark(**hashes: str) -> Any:
        known = {
            "Secret/tokens": "1",
            "ConfigMap/proxy": "1",
            **{key.replace("__", "/"): v for key, v in hashes.items()},
        }
        made = objects_of(policy, cluster(config_hashes=known))[f"DaemonSet/{PLUGIN}"]
        return made["spec"]["template"]["metadata"]["annotations"]

    assert mark() == mark()
    assert mark() != mark(Secret__tokens="2")
    assert mark() != mark(ConfigMap__proxy="2")


@pytest.mark.rows("L41")
def test_what_variables_come_from_must_be_there() -> None:
    policy = policy_of({"devicePlugin": {"env": [SECRET, CONFIG]}})
    assert [(one.kind, one.name, one.keys) for one in named_by(policy)] == [("Secret", "tokens", ("registry",))]
    assert [f.id for f in problems(policy, cluster())] == ["config-missing"]
    assert [f.id for f in problems(policy, cluster(config_keys={"Secret/tokens": ("x",)}))] == ["config-key-missing"]
    assert problems(policy, cluster(config_keys={"Secret/tokens": ("registry",)})) == []


@pytest.mark.rows("L41")
@pytest.mark.parametrize(
    ("source", "path"),
    [
        ({}, ".valueFrom"),
        ({"secret": {}}, ".valueFrom"),
        ({"secretKeyRef": {"name": "a"}}, ".valueFrom.secretKeyRef.key"),
        ({"secretKeyRef": "a"}, ".valueFrom.secretKeyRef"),
        ({"fieldRef": {"fieldPath": "a", "what": "b"}}, ".valueFrom.fieldRef.what"),
        ({"fieldRef": {"fieldPath": "a"}, "secretKeyRef": {"name": "a", "key": "b"}}, ".valueFrom"),
    ],
)
def test_a_source_that_is_none_is_refused(source: Any, path: str) -> None:
    policy, findings = load({"devicePlugin": {"env": [{"name": "A", "valueFrom": source}]}})
    assert policy is None
    assert [finding.path for finding in findings] == [f"devicePlugin.env[0]{path}"]


# --- checks of the validator ------------------------------------------------------------------------------------------

MODULES = {
    "driver": {"kernelModuleType": "open", "rdma": {"enabled": True}},
    "gds": {"enabled": True},
    "gdrcopy": {"enabled": True},
}


@pytest.mark.rows("VAL-04", "DRV-04", "DRV-05", "DRV-06")
def test_the_driver_counts_only_once_its_further_modules_are_loaded() -> None:
    spec = replace(H100, mellanox=True)
    lab = up(MODULES, spec)
    assert lab.problems() == {}
    proofs = lab.node.fs.listing("/run/nvidia/validations")
    assert {"nvidia-fs-ready", "gdrcopy-ready", "nvidia-peermem-ready", "driver-ready"} <= set(proofs)
    broken = up(MODULES, spec, seconds=300, nodes={"*": {"crash": {"nvidia-gdrcopy-ctr": "no module gdrdrv"}}})
    assert "driver-ready" not in broken.node.fs.listing("/run/nvidia/validations")
    assert broken.allocatable == {}


@pytest.mark.rows("VAL-08", "DRV-04")
@pytest.mark.parametrize("of_host", [False, True])
def test_with_rdma_the_driver_and_all_proofs_wait_for_the_network_driver(of_host: bool) -> None:
    """The check is the driver manager's: no DaemonSet of the GPU Operator runs the validator's own one either."""
    values = {"driver": {"kernelModuleType": "open", "rdma": {"enabled": True, "useHostMofed": of_host}}}
    lab = up(values, replace(H100, mellanox=True), seconds=0)
    lab.node.modules.discard("mlx5_core")
    lab.node.fs.remove("/run/mellanox/drivers/.driver-ready")
    lab.run(60)
    assert "waiting for MOFED" in lab.said
    assert (lab.node.driver_loaded, lab.allocatable) == (False, {})
    assert not [name for name in lab.node.fs.listing("/run/nvidia/validations") if name.endswith("-ready")]
    lab.node.modules.add("mlx5_core")
    if not of_host:
        lab.node.fs.write("/run/mellanox/drivers/.driver-ready", "")
    lab.node.changed()
    lab.run(900)
    assert (lab.problems(), lab.allocatable) == ({}, {"nvidia.com/gpu": "8"})
    assert {"driver-ready", "nvidia-peermem-ready"} <= set(lab.node.fs.listing("/run/nvidia/validations"))


# --- labels of feature discovery --------------------------------------------------------------------------------------

P = "nvidia.com/"
SAME = {
    "gpu.memory": "143771", "gpu.family": "hopper", "gpu.compute.major": "9", "gpu.compute.minor": "0",
    "mig.capable": "true", "mps.capable": "false", "gpu.mode": "compute", "vgpu.present": "false",
    "cuda.driver.major": "595", "cuda.driver.minor": "91", "cuda.driver.rev": "07",
    "cuda.driver-version.major": "595", "cuda.driver-version.minor": "91", "cuda.driver-version.revision": "07",
    "cuda.driver-version.full": "595.91.07", "cuda.runtime.major": "13", "cuda.runtime.minor": "2",
    "cuda.runtime-version.major": "13", "cuda.runtime-version.minor": "2", "cuda.runtime-version.full": "13.2",
    "gpu.present": "true",
}  # fmt: skip


@pytest.mark.rows("S24", "GF-01", "P109")
@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (
            {"mig": {"strategy": "none"}},
            {"gpu.product": "NVIDIA-H200", "gpu.count": "2", "gpu.replicas": "1", "gpu.sharing-strategy": "none"},
        ),
        (
            {
                "mig": {"strategy": "single"},
                "devicePlugin": {
                    "config": {
                        "create": True,
                        "name": "sharing",
                        "default": "four",
                        "data": {
                            "four": '{"version": "v1", "sharing": {"timeSlicing": {"resources": '
                            '[{"name": "nvidia.com/gpu", "replicas": 4}]}}}'
                        },
                    }
                },
            },
            {"gpu.product": "NVIDIA-H200-SHARED", "gpu.count": "2", "gpu.replicas": "4", "mig.strategy": "single",
             "gpu.sharing-strategy": "time-slicing"},
        ),
    ],
)  # fmt: skip
def test_a_node_has_the_labels_of_the_tables(values: dict[str, Any], labels: dict[str, str]) -> None:
    lab = up(values, H200)
    assert lab.problems() == {}
    wanted = {P + key: value for key, value in {**SAME, **labels}.items()}
    assert {key: lab.labels.get(key) for key in wanted} == wanted
    assert ("nvidia.com/mig.strategy" in lab.labels) is (values["mig"]["strategy"] != "none")
    assert lab.labels["nvidia.com/gfd.timestamp"].isdigit()
    assert lab.labels["feature.node.kubernetes.io/pci-10de.present"] == "true"


@pytest.mark.rows("P112")
def test_labels_come_however_late_the_driver_is() -> None:
    late = up({}, H200, seconds=400, nodes={"*": {"driver_seconds": 600}})
    assert "nvidia.com/gpu.product" not in late.labels
    late.run(900)
    assert late.problems() == {}
    assert late.labels["nvidia.com/gpu.product"] == "NVIDIA-H200"


# --- the CUDA toolkit -------------------------------------------------------------------------------------------------

CUDA = "gpufleet-cuda-toolkit"


@pytest.mark.rows("S35")
@pytest.mark.parametrize(
    ("version", "name", "image"),
    [
        ("", "13.2", "nvcr.io/nvidia/cuda:13.2.0-devel-ubuntu24.04"),
        ("13.0", "13.0", "nvcr.io/nvidia/cuda:13.0.0-devel-ubuntu24.04"),
        ("13.0.1", "13.0.1", "nvcr.io/nvidia/cuda:13.0.1-devel-ubuntu24.04"),
        ("12.4.1-devel-ubuntu22.04", "12.4.1", "nvcr.io/nvidia/cuda:12.4.1-devel-ubuntu22.04"),
    ],
)
def test_pods_find_the_toolkit_that_was_asked_for_on_the_node(version: str, name: str, image: str) -> None:
    values = {"cudaToolkit": {"enabled": True, "version": version}} if version else {"cudaToolkit": {"enabled": True}}
    pod = pod_of(policy_of(values), CUDA)
    assert {c["image"] for c in [*pod["initContainers"], *pod["containers"]]} == {image}
    lab = up(values)
    assert lab.problems() == {}
    files = lab.node.fs.files
    held = image.rpartition(":")[2].split("-", maxsplit=1)[0]
    assert files[f"/usr/local/nvidia/cuda/{name}/version.json"] == f'{{"cuda": {{"version": "{held}"}}}}'
    assert files["/usr/local/nvidia/cuda/current"] == f"link to {name}"


@pytest.mark.rows("S35")
def test_the_toolkit_is_off_unless_asked_for_and_its_folder_can_be_chosen() -> None:
    assert f"DaemonSet/{CUDA}" not in objects_of(policy_of())
    values = {"cudaToolkit": {"enabled": True, "version": "13.0", "installDir": "/data/cuda"}}
    assert "/data/cuda/13.0/version.json" in up(values).node.fs.files
    lost = up({"cudaToolkit": {"enabled": True, "version": "12.9"}}, seconds=120)
    assert lost.problems()[CUDA]
    assert "12.9.0-devel-ubuntu24.04" in lost.said


@pytest.mark.rows("S35")
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"driver": {"version": "580.159.04"}, "cudaToolkit": {"enabled": True, "version": "13.1"}},
         ("runs CUDA up to 13.0", "driver branch 590 or newer")),
        ({"driver": {"version": "580.159.04"}, "cudaToolkit": {"enabled": True, "version": "13.1.1-devel-ubuntu24.04"}},
         ("runs CUDA up to 13.0", "driver branch 590 or newer")),
        ({"cudaToolkit": {"enabled": True, "version": "99.0"}}, ("No driver branch",)),
        ({"cudaToolkit": {"enabled": True, "version": "latest"}}, ("names no CUDA version",)),
    ],
)  # fmt: skip
def test_a_toolkit_that_the_driver_does_not_run_is_refused(values: dict[str, Any], words: tuple[str, ...]) -> None:
    policy, findings = load(values)
    assert policy is None
    (finding,) = [one for one in findings if one.severity == "error"]
    assert finding.path == "cudaToolkit.version"
    for part in words:
        assert part in finding.sentence()
    off = {**values, "cudaToolkit": {**values["cudaToolkit"], "enabled": False}}
    assert load(off)[0] is not None


@pytest.mark.rows("S35")
def test_nodes_with_a_driver_of_their_own_are_judged_by_it() -> None:
    policy = policy_of({"driver": {"enabled": False}, "cudaToolkit": {"enabled": True, "version": "13.1"}})
    runs = "nvidia.com/cuda.runtime-version.full"
    old, new = node("a", labels={runs: "13.0"}), node("b", labels={runs: "13.2"})
    (finding,) = problems(policy, cluster(old, new))
    assert (finding.id, finding.target) == ("cuda-too-new", "Node a")
    assert "13.0" in finding.detail
    assert problems(policy, cluster(new, node("c"))) == []
    groups = policy_of({"cudaToolkit": {"enabled": True, "version": "13.1"}})
    mine = replace(old, driver=Driver("pinned", version="580.159.04"))
    assert [f.target for f in problems(groups, cluster(mine, old)) if f.id == "cuda-too-new"] == ["Node a"]


@pytest.mark.rows("P105", "P103")
def test_of_a_node_that_mps_cannot_serve_the_daemon_is_named_and_not_the_plugin_that_waits_for_it() -> None:
    shared = '{"version": "v1", "sharing": {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}'
    config = {"create": True, "name": "shares", "default": "mps", "data": {"mps": shared}}
    values = {"mig": {"strategy": "none"}, "devicePlugin": {"config": config}}
    spec = NodeSpec("gpu-0000", product="T4", gpus=1)

    def stage_of(lab: Lab) -> Stage:
        return stage(lab.node_object, list(lab.pods.values()), lab.kind("DaemonSet"))

    well = up(values, spec)
    assert (stage_of(well).ready, well.allocatable) == (True, {"nvidia.com/gpu": "4"})
    said = "error getting minor number: Not Supported"
    at = stage_of(up(values, spec, seconds=300, nodes={"*": {"crash": {"mps-control-daemon-ctr": said}}}))
    assert (at.stuck, at.failed) == ("MPS", True)
    assert at.trouble.startswith("the node's boards do not tell their device numbers")


@pytest.mark.rows("S35")
@pytest.mark.parametrize(
    "folder", ["/", "//", "/./", "/usr", "/usr/", "/usr//local", "/var/lib", "/opt", "/dev/shm/cuda"]
)
def test_a_toolkit_has_a_folder_of_its_own(folder: str) -> None:
    policy, findings = load({"cudaToolkit": {"enabled": True, "installDir": folder}})
    assert policy is None
    assert [finding.path for finding in findings if finding.severity == "error"] == ["cudaToolkit.installDir"]


@pytest.mark.rows("S35")
@pytest.mark.parametrize("folder", ["", "/usr/local/cuda", "/opt/cuda", "/var/lib/cuda"])
def test_folders_that_are_nobody_elses_can_hold_toolkits(folder: str) -> None:
    assert load({"cudaToolkit": {"enabled": True, "installDir": folder}})[0] is not None
