# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runtime classes (ST-01): how a pod asks for NVIDIA's container runtime by name."""

from __future__ import annotations

from typing import List

from .._policy._model import Policy
from . import _build as b
from ._types import ClusterFacts, Object, Operand


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    """The main class, under the name that the policy gives it, and with CDI one for each mode of the runtime."""
    names = [policy.operator.runtime_class]
    if policy.cdi_enabled:
        names += ["nvidia-cdi", "nvidia-legacy"]
    return [_runtime_class(name) for name in dict.fromkeys(names)]


def _runtime_class(name: str) -> Object:
    made = b.new_object("node.k8s.io/v1", "RuntimeClass", name, labels={"app.kubernetes.io/component": "gpu-operator"})
    made["handler"] = name
    return made


OPERAND = Operand(
    name="pre-requisites",
    title="runtime classes",
    enabled=lambda policy: not policy.nri_enabled,  # NRI injects by annotation: no runtime has a handler then
    build=build,
)
