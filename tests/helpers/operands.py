# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Policies and cluster facts that tests of operands start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts, NodeFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import errors
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._model import Policy

FACTS = Path(__file__).parents[1] / "fixtures" / "operator"
VALUES_FILES = (
    "default",
    "dcgm-standalone-no-cdi",
    "managed-cloud",
    "open-rdma-mixed",
    "preinstalled-driver",
    "time-slicing",
)
FEATURE = "feature.node.kubernetes.io/"


def policy_of(values: Mapping[str, Any] | str | None = None) -> Policy:
    """The policy of Helm values, given as data or as YAML text."""
    source = yaml.safe_load(values) if isinstance(values, str) else values
    policy, findings = load(source or {})
    assert policy is not None, [f.sentence() for f in errors(findings)]
    return policy


def values_file(name: str) -> Policy:
    return policy_of((FACTS / f"{name}.yaml").read_text())


def node(name: str = "gpu-0", os: str = "ubuntu", version: str = "24.04", **more: Any) -> NodeFacts:
    labels = {f"{FEATURE}system-os_release.ID": os, f"{FEATURE}system-os_release.VERSION_ID": version}
    if "." in version:
        labels[f"{FEATURE}system-os_release.VERSION_ID.major"] = version.split(".")[0]
    more.setdefault("kernel", "6.8.0-60-generic")
    return NodeFacts(name=name, labels={**labels, **more.pop("labels", {})}, **more)


def cluster(*nodes: NodeFacts, **more: Any) -> ClusterFacts:
    """Facts of a cluster; one node with Ubuntu 24.04 unless others are given."""
    return replace(ClusterFacts(nodes=nodes or (node(),)), **more)
