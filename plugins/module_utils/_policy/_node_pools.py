# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Karpenter's node pools for GPUs among the extra objects of a policy (S27): what v1 refuses, and what is forgotten.

Nodes that such a pool makes are served like others: they get their labels when they join.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from .._plan import ERROR, WARNING, Finding
from ._tree import MISSING, get

GPU = "nvidia.com/gpu"
REF = "spec.template.spec.nodeClassRef"
POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized")


def judge(made: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """Findings about one extra object; none unless it is a NodePool."""
    if made.get("kind") != "NodePool" or not str(made.get("apiVersion", "")).startswith("karpenter.sh/"):
        return
    yield from _class(made, path)
    policy = get(made, "spec.disruption.consolidationPolicy")
    if policy is not MISSING and policy not in POLICIES:
        detail, remedy = f"is {str(policy)[:60]}: {' and '.join(POLICIES)} are allowed.", ""
        yield _wrong(f"{path}.spec.disruption.consolidationPolicy", detail, remedy)
    limits = get(made, "spec.limits")
    if limits not in (MISSING, None) and not isinstance(limits, Mapping):
        yield _wrong(f"{path}.spec.limits", "is not a map.", f"Write {GPU} and the most GPUs that it may have.")
    elif limits in (MISSING, None) or GPU not in limits:
        detail, remedy = f"has no {GPU}: the pool may grow without end.", "Set the most GPUs that it may have."
        yield Finding("policy.node-pool", WARNING, detail, path=f"{path}.spec.limits", remedy=remedy)
    taints = get(made, "spec.template.spec.taints")
    keys = [taint.get("key") for taint in taints if isinstance(taint, Mapping)] if isinstance(taints, list) else []
    if GPU not in keys:
        detail = f"have no {GPU}: pods without GPUs may fill its nodes."
        remedy = f"Add {{key: {GPU}, effect: NoSchedule}}, which every operand tolerates."
        yield Finding("policy.node-pool", WARNING, detail, path=f"{path}.spec.template.spec.taints", remedy=remedy)


def _class(made: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """The class of its nodes: v1 takes a group where older versions took an apiVersion."""
    found = get(made, REF)
    if not isinstance(found, Mapping):
        yield _wrong(f"{path}.{REF}", "is missing.", "Name group, kind and name of the node class.")
        return
    version = found.get("apiVersion")
    if version is not None:
        remedy = f"Write group: {str(version).partition('/')[0]}." if isinstance(version, str) else "Write group."
        yield _wrong(f"{path}.{REF}.apiVersion", "is no key of karpenter.sh/v1, which wants the group.", remedy)
    for key in ("group", "kind", "name"):
        if not found.get(key) and not (key == "group" and version is not None):
            yield _wrong(f"{path}.{REF}.{key}", "is missing.", "")


def _wrong(path: str, detail: str, remedy: str) -> Finding:
    return Finding("policy.node-pool", ERROR, detail, path=path, remedy=remedy)
