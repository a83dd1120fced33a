# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The validator (ST-05): a node is ready once driver, toolkit, CUDA and device plugin have been tried in turn."""

from __future__ import annotations

from typing import List

from .._policy._model import Env, Json, Policy
from . import _build as b
from ._images import pull_policy, reference
from ._scripts import VALIDATOR_MAIN, VALIDATOR_PRE_STOP
from ._types import ClusterFacts, Object, Operand

NAME = "nvidia-operator-validator"
RESULTS = b.mount("run-nvidia-validations", b.VALIDATIONS, propagation="Bidirectional")
_NO_WAIT = b.env("WITH_WAIT", "false")


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    role = [
        b.USE_PRIVILEGED_SCC,
        b.rule("", "pods", "create get list watch update patch delete"),
        b.rule("apps", "daemonsets", "get list watch"),
    ]
    policies = ["clusterpolicies/finalizers", "nvidiadrivers/finalizers"]
    cluster_role = [
        b.rule("", "nodes", "get list watch"),
        b.rule("nvidia.com", policies, "create delete get list patch update watch"),
    ]
    pod = b.Pod(
        name=NAME,
        deploy="operator-validator",
        account=NAME,
        containers=[main(policy, NAME, VALIDATOR_PRE_STOP)],
        init=_chain(policy, facts),
        volumes=[
            b.VALIDATIONS_VOLUME,
            b.host_path("driver-install-dir", b.DEFAULT_INSTALL_DIR),
            b.HOST_VOLUME,
            b.HOST_DEV_CHAR_VOLUME,
        ],
        labels={"app.kubernetes.io/part-of": "gpu-operator"},
        images=(policy.validator.image,),
        host_network=policy.validator.host_network,
        gpu_container="toolkit-validation",
    )
    return [*b.rbac(NAME, facts.namespace, role, cluster_role), *b.daemonset(pod, policy, facts)]


def main(policy: Policy, name: str, pre_stop: str) -> Json:
    """It has nothing to do but to be there, and to take the results with it when it goes."""
    validator = policy.validator
    return b.container(
        name,
        reference(validator.image),
        pull_policy(validator.image),
        command=["sh", "-c"],
        args=validator.args or [VALIDATOR_MAIN],
        environment=b.merged_env([], validator.env),
        mounts=[RESULTS],
        security=b.AS_ROOT,
        resources=validator.resources,
        lifecycle={"preStop": {"exec": {"command": ["sh", "-c", pre_stop]}}},
    )


def _chain(policy: Policy, facts: ClusterFacts) -> List[Json]:
    validator = policy.validator
    toolkit = [b.env("NVIDIA_VISIBLE_DEVICES", "all"), _NO_WAIT, b.env("COMPONENT", "toolkit")]
    cuda = _with_workload("cuda", policy, facts)
    chain = [
        b.driver_validation(policy),
        _step(policy, "toolkit", toolkit, validator.toolkit_env),
        _step(policy, "cuda", cuda, validator.cuda_env),
    ]
    if policy.device_plugin.enabled:
        plugin = [*_with_workload("plugin", policy, facts), b.env("WITH_WORKLOAD", "false")]
        if policy.mig_strategy:
            plugin.append(b.env("MIG_STRATEGY", policy.mig_strategy))
        chain.append(_step(policy, "plugin", plugin, validator.plugin_env))
    return chain


def _step(policy: Policy, part: str, environment: List[Json], user: Env) -> Json:
    return b.validation(policy, part + "-validation", b.merged_env(environment, user), [RESULTS])


def _with_workload(part: str, policy: Policy, facts: ClusterFacts) -> List[Json]:
    """Env of a step that may run a pod of its own: which image, and how that pod gets at a GPU."""
    image = policy.validator.image
    made = [
        _NO_WAIT,
        b.env("COMPONENT", part),
        b.NODE_NAME,
        b.OPERATOR_NAMESPACE,
        b.env("VALIDATOR_IMAGE", reference(image)),
        b.env("VALIDATOR_IMAGE_PULL_POLICY", pull_policy(image)),
    ]
    if image.pull_secrets:
        made.append(b.env("VALIDATOR_IMAGE_PULL_SECRETS", ",".join(image.pull_secrets)))
    if b.runtime_class(policy, facts):
        made.append(b.env("VALIDATOR_RUNTIME_CLASS", b.runtime_class(policy, facts)))
    return made


OPERAND = Operand(
    name="state-operator-validation",
    title="validator",
    enabled=lambda policy: True,
    build=build,
    deploy_label=b.DEPLOY + "operator-validator",
)
