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

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import build
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


def objects_of(policy: Policy, facts: ClusterFacts | None = None) -> dict[str, dict[str, Any]]:
    """All objects by Kind/name."""
    made = build(policy, cluster() if facts is None else facts)
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in made}


def pod_of(policy: Policy, name: str, facts: ClusterFacts | None = None) -> dict[str, Any]:
    """The pod spec of a DaemonSet."""
    spec: dict[str, Any] = objects_of(policy, facts)[f"DaemonSet/{name}"]["spec"]["template"]["spec"]
    return spec


def container_of(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A container or init container of a pod."""
    found: dict[str, Any] = next(c for c in [*pod.get("initContainers", []), *pod["containers"]] if c["name"] == name)
    return found


def env_of(container: Mapping[str, Any]) -> dict[str, str]:
    """Plain values of a container's env."""
    return {item["name"]: item.get("value", "") for item in container.get("env", []) if "valueFrom" not in item}


def mounts_of(container: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["mountPath"]: item for item in container.get("volumeMounts", [])}


def volume_of(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(v for v in pod["volumes"] if v["name"] == name)
    return found
