# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox validator (ST-15): whether the GPUs of a node can be given to virtual machines (VAL-09, VAL-10)."""

from __future__ import annotations

from typing import List, Sequence

from .._policy._model import Env, Json, Policy
from . import _build as b
from . import _cc_manager
from ._scripts import SANDBOX_PRE_STOP
from ._types import ClusterFacts, Object, Operand
from ._validator import RESULTS, main

NAME = "nvidia-sandbox-validator"
# Not moved as for the driver's validation: the check looks there, wherever the folder is on the host (L36).
_DRIVER_ROOT = b.mount("driver-install-dir", b.DEFAULT_INSTALL_DIR, propagation="HostToContainer")


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    pod = b.Pod(
        name=NAME,
        deploy="sandbox-validator",
        account=NAME,
        containers=[main(policy, NAME, SANDBOX_PRE_STOP)],
        init=_chain(policy),
        volumes=[b.VALIDATIONS_VOLUME, b.DRIVER_ROOT_VOLUME, b.HOST_VOLUME],
        labels={"app.kubernetes.io/part-of": "gpu-operator"},
        images=(policy.validator.image,),
        host_network=policy.validator.host_network,
    )
    nodes = [b.rule("", "nodes", "get")]
    return [*b.rbac(NAME, facts.namespace, None, nodes), *b.daemonset(pod, policy, facts)]


def _chain(policy: Policy) -> List[Json]:
    validator = policy.validator
    chain = [
        _step(policy, "vfio-pci", validator.vfio_pci_env, [b.HOST_MOUNT]),
        _step(policy, "vgpu-manager", validator.vgpu_manager_env, [b.HOST_MOUNT, _DRIVER_ROOT]),
        _step(policy, "vgpu-devices", validator.vgpu_devices_env),
    ]
    # Without the manager nothing ever writes what this check waits for.
    return [_step(policy, "cc-manager", ()), *chain] if _cc_manager.OPERAND.enabled(policy) else chain


def _step(policy: Policy, part: str, user: Env, mounts: Sequence[Json] = ()) -> Json:
    base = [
        b.env("WITH_WAIT", "true"),
        b.env("COMPONENT", part),
        b.NODE_NAME,
        b.env("DEFAULT_GPU_WORKLOAD_CONFIG", policy.sandbox_workloads.default_workload),
    ]
    security = {**b.AS_ROOT, **b.SELINUX}
    return b.validation(policy, f"{part}-validation", b.merged_env(base, user), [*mounts, RESULTS], security=security)


OPERAND = Operand(
    name="state-sandbox-validation",
    title="sandbox validator",
    enabled=lambda policy: policy.sandbox_workloads.enabled,
    build=build,
    deploy_label=b.DEPLOY + "sandbox-validator",
)
