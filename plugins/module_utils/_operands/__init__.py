# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operands of the stack: what a policy and the facts of a cluster mean in Kubernetes objects. Pure functions."""

from __future__ import annotations

from typing import List, Tuple

from .._policy._model import Policy
from . import (
    _cc_manager,
    _cuda_toolkit,
    _dcgm,
    _dcgm_exporter,
    _device_plugin,
    _driver,
    _gfd,
    _mig_manager,
    _mps,
    _node_status_exporter,
    _operator_metrics,
    _prerequisites,
    _sandbox_device_plugin,
    _sandbox_validator,
    _toolkit,
    _validator,
    _vfio_manager,
    _vgpu_device_manager,
    _vgpu_manager,
)
from ._problems import problems
from ._types import ClusterFacts, Object, Operand

__all__ = ["OPERANDS", "build", "build_by_operand", "in_order", "problems"]

# The order in which a person thinks of the stack, and in which its stages come up on a node. NFD (``_nfd``) is not
# among them: it has to be there before, because the others are made from facts that are labels which it writes.
OPERANDS: Tuple[Operand, ...] = (
    _prerequisites.OPERAND,
    _operator_metrics.OPERAND,
    _driver.OPERAND,
    _toolkit.OPERAND,
    _validator.OPERAND,
    _device_plugin.OPERAND,
    _mps.OPERAND,
    _dcgm.OPERAND,
    _dcgm_exporter.OPERAND,
    _gfd.OPERAND,
    _mig_manager.OPERAND,
    _node_status_exporter.OPERAND,
    _vgpu_manager.OPERAND,
    _vgpu_device_manager.OPERAND,
    _sandbox_validator.OPERAND,
    _vfio_manager.OPERAND,
    _sandbox_device_plugin.OPERAND,
    _sandbox_device_plugin.KATA_OPERAND,
    _cc_manager.OPERAND,
    _cuda_toolkit.OPERAND,
)

# What a pod needs is made before the pod.
_ORDER = (
    "Namespace",
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "RuntimeClass",
    "ConfigMap",
    "Service",
    "ServiceMonitor",
    "PrometheusRule",
    "Deployment",
    "DaemonSet",
)


def build_by_operand(policy: Policy, facts: ClusterFacts) -> List[Tuple[Operand, List[Object]]]:
    """The objects of each operand that the policy wants, in the order of the table and of creation."""
    return [(operand, in_order(operand.build(policy, facts))) for operand in OPERANDS if operand.enabled(policy)]


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    """All objects, in the order of creation."""
    return in_order([made for _operand, objects in build_by_operand(policy, facts) for made in objects])


def in_order(objects: List[Object]) -> List[Object]:
    """The same objects, sorted so that each comes after those that it needs."""
    return sorted(objects, key=lambda made: _ORDER.index(made["kind"]) if made["kind"] in _ORDER else len(_ORDER))
