# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entry of the module stack_images: every image that a policy needs, without a cluster (S47, INS-12)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from .._operands import _nfd, _vgpu_manager, build
from .._operands._driver_groups import FEATURE, KERNEL, OS_ID, OS_VERSION
from .._operands._problems import named_by
from .._operands._types import ClusterFacts, NodeFacts, Object
from .._plan import ERROR, Failure, Finding, errors, refusal
from .._policy._model import Policy
from .._stack._request import Progress, read_policy
from ._result import ShownResult

_SYSTEM = re.compile(r"(?P<id>[a-z][a-z-]*)(?P<version>\d[\d.]*)$")


def stack_images(params: Mapping[str, Any], check: bool, progress: Progress) -> ShownResult:
    """Entry of the module of this name."""
    findings: List[Finding] = []
    try:
        policy = read_policy(params, findings)
    except Failure as failure:
        raise Failure(failure.msg, ShownResult(findings=failure.result.findings)) from failure
    nodes, problems = nodes_of(params.get("systems") or (), params.get("kernels") or (), policy)
    findings += problems
    if errors(findings):
        raise Failure(refusal(findings), ShownResult(findings=findings))
    facts = facts_of(policy, str(params["namespace"]), nodes)
    result = ShownResult(findings=findings)
    objects = [*_nfd_objects(policy, facts), *build(policy, facts), *_vgpu_objects(policy, facts)]
    images = images_of([*objects, *policy.extra_objects])
    result.found = {
        "images": [
            {"image": image, "digest": image.partition("@")[2], "used_by": users} for image, users in images.items()
        ],
        "release": policy.release,
    }
    for image in images:
        progress(image)
    return result


def nodes_of(systems: Sequence[str], kernels: Sequence[str], policy: Policy) -> Tuple[List[NodeFacts], List[Finding]]:
    """A node of each operating system (``ubuntu24.04``), and of each kernel where drivers are precompiled."""
    nodes: List[NodeFacts] = []
    found = []
    if policy.driver.enabled and policy.driver.use_precompiled and not kernels:
        detail = "is empty, and precompiled driver images are made for one kernel each"
        found.append(Finding("images.kernels", ERROR, detail, path="kernels", remedy="Name the nodes' kernels."))
    for system in systems:
        match = _SYSTEM.match(str(system))
        if not match:
            detail = f"{system!r} is no operating system with its version, such as ubuntu24.04 or rhel9.6"
            found.append(Finding("images.systems", ERROR, detail, path="systems"))
            continue
        labels = {OS_ID: match["id"], OS_VERSION: match["version"], f"{FEATURE}pci-10de.present": "true"}
        for kernel in kernels or ("any",):
            more = {**labels, KERNEL: str(kernel)}
            nodes.append(NodeFacts(f"{system} {kernel}", more, kernel=str(kernel)))
    return nodes, found


def facts_of(policy: Policy, namespace: str, nodes: Sequence[NodeFacts]) -> ClusterFacts:
    """Facts of a cluster that has all that the policy names."""
    keys = {item.id: item.keys for item in named_by(policy)}
    return ClusterFacts(namespace=namespace, nodes=tuple(nodes), config_keys=keys, service_monitor_crd=True)


def images_of(objects: Sequence[Object]) -> Dict[str, List[str]]:
    """Images of the pods that objects make, sorted, each with the objects that need it."""
    found: Dict[str, List[str]] = {}
    for made in objects:
        user = f"{made['kind']} {made['metadata']['name']}"
        for image in _of_pod(_pod(made)):
            users = found.setdefault(image, [])
            if user not in users:
                users.append(user)
    return {image: sorted(found[image]) for image in sorted(found)}


def _pod(made: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = made.get("spec") or {}
    if made["kind"] == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    template: Mapping[str, Any] = (spec.get("template") or {}) if made["kind"] != "Pod" else {"spec": spec}
    return template.get("spec") or {}


def _of_pod(spec: Mapping[str, Any]) -> Iterator[str]:
    """Images of its containers, and those of pods that they make themselves (VALIDATOR_IMAGE)."""
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        yield str(container["image"])
        for item in container.get("env") or []:
            if str(item.get("name", "")).endswith("_IMAGE") and item.get("value"):
                yield str(item["value"])


def _vgpu_objects(policy: Policy, facts: ClusterFacts) -> List[Object]:
    """The vGPU manager of each operating system: a cluster has it for one alone."""
    if not _vgpu_manager.OPERAND.enabled(policy):
        return []
    return [o for node in facts.nodes for o in _vgpu_manager.build(policy, replace(facts, nodes=(node,)))]


def _nfd_objects(policy: Policy, facts: ClusterFacts) -> List[Object]:
    return _nfd.build(policy, facts) if policy.nfd.enabled else []
