# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container toolkit: what it is told of the runtime on the host, and how pods come to their GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._runtimes import (
    DISTRIBUTIONS,
    PLAIN,
    detect,
    split,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import problems
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._facts import cluster_runtime
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import (
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

NAME = "nvidia-container-toolkit-daemonset"
NO_CDI: dict[str, Any] = {"cdi": {"enabled": False}}
NRI: dict[str, Any] = {"cdi": {"enabled": True, "nriPluginEnabled": True}}


def toolkit(runtime: str = "containerd", values: dict[str, Any] | None = None, **env: str) -> dict[str, Any]:
    given = [{"name": name, "value": value} for name, value in env.items()]
    return pod_of(policy_of({**(values or {}), "toolkit": {"env": given}}), NAME, cluster(runtime=runtime))


def folders(pod: dict[str, Any]) -> dict[str, str]:
    """Folder of the host by the folder inside, for the runtime's files."""
    mounts = mounts_of(pod["containers"][0])
    return {
        path: volume_of(pod, item["name"])["hostPath"]["path"]
        for path, item in mounts.items()
        if path.startswith("/runtime/")
    }


@pytest.mark.rows("RT-01", "RT-02")
def test_containerd_is_told_by_a_file_of_our_own_and_asked_to_reload() -> None:
    pod = toolkit()
    env = env_of(pod["containers"][0])
    assert env["RUNTIME"] == "containerd"
    assert env["CONTAINERD_RUNTIME_CLASS"] == "nvidia"
    assert env["RUNTIME_CONFIG"] == env["CONTAINERD_CONFIG"] == "/runtime/config-dir/config.toml"
    assert env["RUNTIME_DROP_IN_CONFIG"] == "/runtime/config-dir.d/99-nvidia.toml"
    assert env["RUNTIME_DROP_IN_CONFIG_HOST_PATH"] == "/etc/containerd/conf.d/99-nvidia.toml"
    assert env["RUNTIME_SOCKET"] == env["CONTAINERD_SOCKET"] == "/runtime/sock-dir/containerd.sock"
    assert folders(pod) == {
        "/runtime/config-dir/": "/etc/containerd",
        "/runtime/config-dir.d/": "/etc/containerd/conf.d",
        "/runtime/sock-dir/": "/run/containerd",
    }


@pytest.mark.rows("RT-02", "S65")
def test_paths_of_the_host_that_the_user_names_are_followed() -> None:
    pod = toolkit(
        CONTAINERD_CONFIG="/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl",
        RUNTIME_CONFIG="/not/this",
        CONTAINERD_SOCKET="/run/k3s/containerd/containerd.sock",
        RUNTIME_DROP_IN_CONFIG="/etc/containerd/nvidia.d/nvidia.toml",
    )
    env = env_of(pod["containers"][0])
    assert env["CONTAINERD_CONFIG"] == env["RUNTIME_CONFIG"] == "/runtime/config-dir/config.toml.tmpl"
    assert env["CONTAINERD_SOCKET"] == "/runtime/sock-dir/containerd.sock"
    assert env["RUNTIME_DROP_IN_CONFIG"] == "/runtime/config-dir.d/nvidia.toml"
    assert env["RUNTIME_DROP_IN_CONFIG_HOST_PATH"] == "/etc/containerd/nvidia.d/nvidia.toml"
    assert folders(pod) == {
        "/runtime/config-dir/": "/var/lib/rancher/k3s/agent/etc/containerd",
        "/runtime/config-dir.d/": "/etc/containerd/nvidia.d",
        "/runtime/sock-dir/": "/run/k3s/containerd",
    }


def test_the_general_name_of_the_config_is_followed_where_the_runtimes_own_is_not_given() -> None:
    assert folders(toolkit(RUNTIME_CONFIG="/opt/containerd/config.toml"))["/runtime/config-dir/"] == "/opt/containerd"


@pytest.mark.rows("RT-04")
def test_docker_has_one_file_and_a_socket() -> None:
    pod = toolkit("docker")
    env = env_of(pod["containers"][0])
    assert env["RUNTIME"] == "docker"
    assert env["RUNTIME_CONFIG"] == env["DOCKER_CONFIG"] == "/runtime/config-dir/daemon.json"
    assert env["DOCKER_SOCKET"] == "/runtime/sock-dir/docker.sock"
    assert not {"RUNTIME_DROP_IN_CONFIG", "CONTAINERD_RUNTIME_CLASS"} & set(env)
    assert folders(pod) == {"/runtime/config-dir/": "/etc/docker", "/runtime/sock-dir/": "/var/run"}


@pytest.mark.rows("RT-03")
@pytest.mark.parametrize(("values", "mode"), [({}, "config"), (NO_CDI, "hook")])
def test_crio_reads_files_by_itself(values: dict[str, Any], mode: str) -> None:
    pod = toolkit("crio", values)
    env = env_of(pod["containers"][0])
    assert env["CRIO_CONFIG_MODE"] == mode
    assert env["CRIO_CONFIG"] == "/runtime/config-dir/config.toml"
    assert folders(pod) == {"/runtime/config-dir/": "/etc/crio", "/runtime/config-dir.d/": "/etc/crio/crio.conf.d"}
    assert volume_of(pod, "crio-hooks")["hostPath"]["path"] == "/usr/share/containers/oci/hooks.d"
    assert volume_of(toolkit(), "crio-hooks")["hostPath"]["path"] == "/run/containers/oci/hooks.d"


@pytest.mark.rows("RT-05")
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("command", "command"),
        ("file=/etc/containerd/config.toml", "file=/host/etc/containerd/config.toml"),
        ("command,file=/a/b", "command,file=/host/a/b"),
    ],
)
def test_sources_of_the_runtimes_config_are_looked_up_on_the_host(given: str, wanted: str) -> None:
    pod = toolkit(RUNTIME_CONFIG_SOURCE=given)
    assert env_of(pod["containers"][0])["RUNTIME_CONFIG_SOURCE"] == wanted


@pytest.mark.rows("RT-06", "E12")
def test_another_folder_of_the_toolkit_is_followed_by_those_who_use_its_hook() -> None:
    policy = policy_of({"toolkit": {"installDir": "/opt/nvidia"}})
    pod = pod_of(policy, NAME)
    assert env_of(pod["containers"][0])["ROOT"] == "/opt/nvidia"
    assert mounts_of(pod["containers"][0])["/opt/nvidia"]["name"] == "toolkit-install-dir"
    assert volume_of(pod, "toolkit-install-dir")["hostPath"]["path"] == "/opt/nvidia"
    for name in ("nvidia-device-plugin-daemonset", "nvidia-mig-manager"):
        env = env_of(pod_of(policy, name)["containers"][0])
        assert env["NVIDIA_CDI_HOOK_PATH"] == "/opt/nvidia/toolkit/nvidia-cdi-hook"


@pytest.mark.rows("L40")
def test_args_of_the_toolkit_do_not_take_the_entrypoint_away() -> None:
    assert pod_of(policy_of({"toolkit": {"args": ["--x"]}}), NAME)["containers"][0]["args"] == ["/bin/entrypoint.sh"]


GPU_PODS = {
    "nvidia-operator-validator": "toolkit-validation",
    "nvidia-device-plugin-daemonset": "nvidia-device-plugin",
    "nvidia-device-plugin-mps-control-daemon": "mps-control-daemon-ctr",
    "nvidia-dcgm": "nvidia-dcgm-ctr",
    "nvidia-dcgm-exporter": "nvidia-dcgm-exporter",
    "gpu-feature-discovery": "gpu-feature-discovery",
    "nvidia-mig-manager": "nvidia-mig-manager",
}
ALL: dict[str, Any] = {"dcgm": {"enabled": True}, "nodeStatusExporter": {"enabled": True}}


@pytest.mark.rows("RT-07", "RT-08", "ST-01", "P011")
@pytest.mark.parametrize(("values", "more"), [({}, {"nvidia-cdi", "nvidia-legacy"}), (NO_CDI, set())])
def test_runtime_classes_are_named_as_the_policy_says(values: dict[str, Any], more: set[str]) -> None:
    made = objects_of(policy_of({**ALL, **values, "operator": {"runtimeClass": "fast"}}))
    handlers = {key.split("/")[1]: obj["handler"] for key, obj in made.items() if key.startswith("RuntimeClass/")}
    assert handlers == {name: name for name in {"fast", *more}}
    using = {k.split("/")[1]: o["spec"]["template"]["spec"] for k, o in made.items() if k.startswith("DaemonSet/")}
    assert {name for name, pod in using.items() if pod.get("runtimeClassName") == "fast"} == set(GPU_PODS)
    assert (
        env_of(container_of(using["nvidia-operator-validator"], "cuda-validation"))["VALIDATOR_RUNTIME_CLASS"] == "fast"
    )
    assert env_of(using[NAME]["containers"][0])["CONTAINERD_RUNTIME_CLASS"] == "fast"


@pytest.mark.rows("RT-08", "S12")
def test_without_cdi_the_toolkit_decides_on_the_default_runtime_and_devices_come_by_env() -> None:
    env = env_of(toolkit(values=NO_CDI)["containers"][0])
    assert not {"CDI_ENABLED", "NVIDIA_RUNTIME_SET_AS_DEFAULT", "NVIDIA_CONTAINER_RUNTIME_MODE"} & set(env)
    plugin = env_of(pod_of(policy_of(NO_CDI), "nvidia-device-plugin-daemonset")["containers"][0])
    assert plugin["DEVICE_LIST_STRATEGY"] == "envvar"
    assert not {"CDI_ENABLED", "CDI_ANNOTATION_PREFIX", "NVIDIA_CDI_HOOK_PATH"} & set(plugin)


@pytest.mark.rows("RT-08")
def test_crio_without_cdi_needs_no_runtime_class_on_pods() -> None:
    made = objects_of(policy_of({**ALL, **NO_CDI}), cluster(runtime="crio"))
    assert "runtimeClassName" not in str(made)
    assert "VALIDATOR_RUNTIME_CLASS" not in str(made)
    assert "RuntimeClass/nvidia" in made


@pytest.mark.rows("RT-08")
def test_no_hook_is_named_where_the_toolkit_is_not_ours() -> None:
    plugin = pod_of(policy_of({"toolkit": {"enabled": False}}), "nvidia-device-plugin-daemonset")["containers"][0]
    assert "NVIDIA_CDI_HOOK_PATH" not in env_of(plugin)
    assert env_of(plugin)["CDI_ENABLED"] == "true"


@pytest.mark.rows("RT-09", "S12", "P011")
def test_nri_leaves_the_runtimes_files_alone_and_marks_pods() -> None:
    pod = toolkit(values=NRI)
    env = env_of(pod["containers"][0])
    assert env["ENABLE_NRI_PLUGIN"] == "true"
    assert env["NRI_SOCKET"] == "/runtime/nri-sock-dir/nri.sock"
    assert folders(pod) == {"/runtime/nri-sock-dir/": "/var/run/nri"}
    assert not {"RUNTIME_CONFIG", "CONTAINERD_CONFIG", "RUNTIME_SOCKET", "RUNTIME_DROP_IN_CONFIG"} & set(env)
    assert volume_of(pod, "nri-socket")["hostPath"]["type"] == "DirectoryOrCreate"
    made = objects_of(policy_of({**ALL, **NRI}))
    assert not [key for key in made if key.startswith("RuntimeClass/")]
    for key, obj in made.items():
        name = key.split("/")[1]
        if key.startswith("DaemonSet/"):
            annotations = obj["spec"]["template"]["metadata"].get("annotations", {})
            marks = {k: v for k, v in annotations.items() if k.startswith("nvidia.cdi.k8s.io/")}
            wanted = {f"nvidia.cdi.k8s.io/container.{GPU_PODS.get(name)}": "management.nvidia.com/gpu=all"}
            assert marks == (wanted if name in GPU_PODS else {})
            assert "runtimeClassName" not in obj["spec"]["template"]["spec"]


def test_another_nri_socket_is_followed() -> None:
    pod = toolkit(values=NRI, NRI_SOCKET="/run/k3s/nri/other.sock")
    assert folders(pod) == {"/runtime/nri-sock-dir/": "/run/k3s/nri"}
    assert env_of(pod["containers"][0])["NRI_SOCKET"] == "/runtime/nri-sock-dir/other.sock"


def _nodes(*runtimes: str) -> ClusterFacts:
    setups = {**PLAIN, **DISTRIBUTIONS}
    found = [node(f"n{i}", runtime=setups[r].kind, setup=setups[r]) for i, r in enumerate(runtimes)]
    return cluster(*found, runtime=cluster_runtime(found))


@pytest.mark.rows("S53", "L30", "L31")
def test_each_runtime_of_a_cluster_has_a_toolkit_of_its_own() -> None:
    facts = _nodes("containerd", "crio", "k3s", "k3s")
    made = {key: o for key, o in objects_of(policy_of(), facts).items() if key.startswith(f"DaemonSet/{NAME}")}
    pods = {key.removeprefix(f"DaemonSet/{NAME}"): o["spec"]["template"]["spec"] for key, o in made.items()}
    assert sorted(pods) == ["", "-crio", "-k3s"]
    assert {name: env_of(pod["containers"][0])["RUNTIME"] for name, pod in pods.items()} == {
        "": "containerd",
        "-crio": "crio",
        "-k3s": "containerd",
    }
    assert {name: pod["nodeSelector"].get("gpufleet.io/runtime") for name, pod in pods.items()} == {
        "": None,
        "-crio": "crio",
        "-k3s": "k3s",
    }
    (term,) = pods[""]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {"matchExpressions": [{"key": "gpufleet.io/runtime", "operator": "DoesNotExist"}]}
    assert folders(pods["-k3s"])["/runtime/config-dir/"] == "/var/lib/rancher/k3s/agent/etc/containerd"
    assert folders(pods["-k3s"])["/runtime/sock-dir/"] == "/run/k3s/containerd"
    # What finds the toolkit's pods does so by their app.
    assert {o["spec"]["template"]["metadata"]["labels"]["app"] for o in made.values()} == {NAME}


@pytest.mark.rows("S53", "L31")
def test_a_cluster_of_one_distribution_has_one_toolkit_with_its_files() -> None:
    pod = pod_of(policy_of(), NAME, _nodes("rke2", "rke2"))
    assert folders(pod)["/runtime/config-dir/"] == "/var/lib/rancher/rke2/agent/etc/containerd"
    assert "affinity" not in pod
    given = policy_of({"toolkit": {"env": [{"name": "CONTAINERD_CONFIG", "value": "/opt/containerd/config.toml"}]}})
    assert folders(pod_of(given, NAME, _nodes("rke2")))["/runtime/config-dir/"] == "/opt/containerd"


@pytest.mark.rows("S53")
def test_the_plain_toolkit_does_not_change_hands_when_numbers_do() -> None:
    for names in (["crio", "containerd"], ["crio", "crio", "containerd"], ["k3s", "containerd", "k3s"]):
        first, others = split({**PLAIN, **DISTRIBUTIONS}[name] for name in names)
        assert first == PLAIN["containerd"]
        assert {one.name for one in others} == set(names) - {"containerd"}
    assert split([]) == (PLAIN["containerd"], [])


@pytest.mark.rows("S53", "L30", "L31")
@pytest.mark.parametrize(
    ("runtime", "kubelet", "labels", "name"),
    [
        ("containerd://2.2.3", "v1.36.3", {}, "containerd"),
        ("cri-o://1.36.0", "v1.36.3", {}, "crio"),
        ("docker://28.0", "v1.36.3", {}, "docker"),
        ("containerd://2.2.3-k3s1", "v1.36.3+k3s1", {}, "k3s"),
        ("docker://28.0", "v1.36.3+k3s1", {}, "docker"),
        ("containerd://2.2.3", "v1.36.3+rke2r1", {}, "rke2"),
        ("containerd://2.2.3", "v1.36.3+k0s", {}, "k0s"),
        ("containerd://2.2.3", "v1.36.3", {"microk8s.io/cluster": "true"}, "microk8s"),
        ("", "", {}, "containerd"),
        ("containerd://2.2.3", "v1.36.3-eks-1", {}, "containerd"),
    ],
)
def test_a_runtime_is_known_by_the_marks_of_its_node(
    runtime: str, kubelet: str, labels: dict[str, str], name: str
) -> None:
    assert detect(runtime, kubelet, labels).name == name


@pytest.mark.rows("S53", "L30")
def test_crio_beside_containerd_needs_cdi() -> None:
    facts = _nodes("containerd", "crio")
    off = [f.id for f in problems(policy_of(NO_CDI), facts)]
    assert "runtimes-mixed" in off
    assert "runtimes-mixed" not in [f.id for f in problems(policy_of(), facts)]
    assert "runtimes-mixed" not in [f.id for f in problems(policy_of(NO_CDI), _nodes("crio"))]
