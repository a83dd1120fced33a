# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device plugins of virtual machines: KubeVirt's (ST-17), with whole GPUs and vGPUs, and Kata's (ST-18).

Resources are named after the GPU or the vGPU type: ``nvidia.com/GH100_H200_SXM5_141GB``,
``nvidia.com/NVIDIA_A10-12Q``, ``nvidia.com/GRID_T4-8Q``; Kata's are all ``nvidia.com/pgpu``.
"""

from __future__ import annotations

from typing import List, Sequence

from .._policy._model import Component, Json, Policy
from . import _build as b
from ._scripts import WAIT_FOR_VFIO, WAIT_FOR_VGPU_DEVICES
from ._types import ClusterFacts, Object, Operand

KUBEVIRT = "nvidia-sandbox-device-plugin"
KATA = "nvidia-kata-sandbox-device-plugin"
_POD_NAMESPACE = b.env_from_field("POD_NAMESPACE", "metadata.namespace")


def build_kubevirt(policy: Policy, facts: ClusterFacts) -> List[Object]:
    component = policy.sandbox_device_plugin
    main = _main(KUBEVIRT, component, [b.NODE_NAME, _POD_NAMESPACE], [b.mount("vfio", "/dev/vfio")])
    init = [_wait(policy, "vfio-pci", WAIT_FOR_VFIO), _wait(policy, "vgpu-devices", WAIT_FOR_VGPU_DEVICES)]
    return _objects(policy, facts, KUBEVIRT, component, main, init, [b.host_path("vfio", "/dev/vfio")])


def build_kata(policy: Policy, facts: ClusterFacts) -> List[Object]:
    component = policy.kata_sandbox_device_plugin
    environment = [b.NODE_NAME, _POD_NAMESPACE, b.env_from_field("POD_SERVICE_ACCOUNT", "spec.serviceAccountName")]
    main = _main(KATA, component, environment, [])
    return _objects(policy, facts, KATA, component, main, [_wait(policy, "vfio-pci", WAIT_FOR_VFIO)], [])


def _main(name: str, component: Component, environment: Sequence[Json], mounts: Sequence[Json]) -> Json:
    sockets = b.mount("device-plugin", "/var/lib/kubelet/device-plugins")
    all_mounts = [sockets, *mounts, b.CDI_MOUNT]
    return b.main_container(f"{name}-ctr", component, environment=environment, mounts=all_mounts)


def _wait(policy: Policy, part: str, script: str) -> Json:
    """Hold the plugin until the sandbox validator has passed the node."""
    mounts = [b.mount("run-nvidia-validations", b.VALIDATIONS, propagation="HostToContainer")]
    environment = [b.env("NVIDIA_VISIBLE_DEVICES", "void")]
    return b.validation(policy, f"{part}-validation", environment, mounts, args=[script])


def _objects(
    policy: Policy,
    facts: ClusterFacts,
    name: str,
    component: Component,
    main: Json,
    init: List[Json],
    volumes: Sequence[Json],
) -> List[Object]:
    pod = b.Pod(
        name=f"{name}-daemonset",
        deploy=name[len("nvidia-") :],
        account=name,
        containers=[main],
        init=init,
        volumes=[
            b.host_path("device-plugin", b.kubelet_folder(policy, "device-plugins")),
            b.VALIDATIONS_VOLUME,
            *volumes,
            b.CDI_VOLUME,
        ],
        images=(policy.validator.image, component.image),
        host_network=component.host_network,
    )
    role = [
        b.rule("", "pods", "create get list watch delete"),
        b.rule("nfd.k8s-sigs.io", "nodefeatures", "create get list watch update"),
    ]
    nodes = [b.rule("", ["nodes", "pods"], "get")]
    return [*b.rbac(name, facts.namespace, role, nodes), *b.daemonset(pod, policy, facts)]


def _on(policy: Policy, component: Component, mode: str) -> bool:
    return policy.sandbox_workloads.enabled and policy.sandbox_workloads.mode == mode and component.enabled


OPERAND = Operand(
    name="state-sandbox-device-plugin",
    title="sandbox device plugin",
    enabled=lambda policy: _on(policy, policy.sandbox_device_plugin, "kubevirt"),
    build=build_kubevirt,
    deploy_label=b.DEPLOY + "sandbox-device-plugin",
)
KATA_OPERAND = Operand(
    name="state-kata-device-plugin",
    title="Kata device plugin",
    enabled=lambda policy: _on(policy, policy.kata_sandbox_device_plugin, "kata"),
    build=build_kata,
    deploy_label=b.DEPLOY + "kata-sandbox-device-plugin",
)
