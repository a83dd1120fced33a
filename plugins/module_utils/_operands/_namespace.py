# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The namespace of the stack, with the labels that let privileged pods in (STA-04)."""

from __future__ import annotations

from .._policy._model import Policy
from . import _build as b
from ._types import ClusterFacts, Object

POD_SECURITY = tuple(f"pod-security.kubernetes.io/{mode}" for mode in ("enforce", "audit", "warn"))


def namespace(policy: Policy, facts: ClusterFacts) -> Object:
    """The Namespace; ``psa.enabled`` asks for the labels, which are never taken away again."""
    labels = dict.fromkeys(POD_SECURITY, "privileged") if policy.psa_enabled else {}
    return b.new_object("v1", "Namespace", facts.namespace, labels=labels)
