# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Service under which metrics of the stack as a whole are found (ST-02), and its ServiceMonitor (MON-04)."""

from __future__ import annotations

from typing import List

from .._policy._model import Policy
from . import _build as b
from ._types import ClusterFacts, Object, Operand

NAME = "gpu-operator"
PORT = 8080


def build(policy: Policy, facts: ClusterFacts) -> List[Object]:
    return [
        b.service(NAME, facts.namespace, "gpu-operator-metrics", PORT),
        *b.service_monitor(facts, NAME, "gpu-operator-metrics", "operator", policy.operator.service_monitor),
    ]


OPERAND = Operand(
    name="state-operator-metrics",
    title="operator metrics",
    enabled=lambda policy: True,
    build=build,
)
