# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU workloads that will not run, or run past the scheduler: no limits, no toleration, two kinds of MIG (S13, S26)."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Set

from .._nodes._keys import GATE
from .._nodes._taints import describe, tolerates, untolerated
from .._plan import WARNING, Finding
from ._resources import PREFIX, asked, two_mig_kinds, wants_gpu, without_limits
from ._world import Workload, World, some

_LIMITS = "Set resources.limits for it to the same number: limits without requests are enough."


def judge(world: World) -> List[Finding]:
    found = _operands(world)
    for workload in sorted(world.workloads, key=lambda one: one.id):
        found += _of(world, workload)
    return found + _refused(world)


def _operands(world: World) -> List[Finding]:
    """Taints of GPU nodes that our own pods do not tolerate (P129)."""
    by_taint: Dict[str, List[str]] = {}
    taints: Dict[str, Mapping[str, str]] = {}
    for node in world.gpu_nodes:
        for taint in _lasting(node):
            taints[describe(taint)] = taint
            by_taint.setdefault(describe(taint), []).append(node["metadata"]["name"])
    found = []
    for text, nodes in sorted(by_taint.items()):
        sentences = untolerated(world.operand_daemonsets, [taints[text]])
        if sentences:
            detail = f"{some(sorted(nodes))} have the taint {text}, which {len(sentences)} DaemonSets do not tolerate"
            remedy = f"Add it to daemonsets.tolerations: {{key: {taints[text].get('key')}, operator: Exists}}."
            found.append(Finding("operands-untolerated", WARNING, detail, "operands", "daemonsets.tolerations", remedy))
    return found


def _of(world: World, workload: Workload) -> Iterator[Finding]:
    missing = without_limits(workload.spec)
    if missing:
        names = ", ".join(f"{name}: {amount}" for name, amount in sorted(missing.items()))
        detail = f"requests {names} without a limit: the API server refuses its pods"
        yield Finding("workload-no-limits", WARNING, detail, workload.id, remedy=_LIMITS)
    needs = asked(workload.spec)
    if not needs:
        yield from _outside(world, workload)
        return
    kinds = two_mig_kinds(workload.spec)
    if kinds:
        detail = f"one container asks for {' and '.join(kinds)}: CUDA sees one MIG device only"
        yield Finding("workload-two-mig", WARNING, detail, workload.id, remedy="Use one container for each.")
    if not workload.runs:
        yield from _untolerated(world, workload, set(needs))


def _outside(world: World, workload: Workload) -> Iterator[Finding]:
    sign = wants_gpu(workload.spec, world.policy.operator.runtime_class)
    if sign:
        detail = f"has {sign} and asks for no GPU: it may see GPUs that are given to others, or none"
        remedy = "Set resources.limits: {nvidia.com/gpu: 1} where it needs one."
        yield Finding("workload-no-limits", WARNING, detail, workload.id, remedy=remedy)


def _untolerated(world: World, workload: Workload, needs: Set[str]) -> Iterator[Finding]:
    """A workload that no GPU node lets in."""
    reasons: Dict[str, int] = {}
    for node in world.gpu_nodes:
        taints = [t for t in _lasting(node) if t.get("key") != GATE]  # which goes once the node is proved
        first = next((describe(t) for t in taints if not tolerates(workload.spec, t)), "")
        if not first:
            return
        reasons[first] = reasons.get(first, 0) + 1
    if reasons:
        text = max(sorted(reasons), key=lambda one: reasons[one])
        detail = f"asks for {', '.join(sorted(needs))} and tolerates no GPU node's taints, such as {text}"
        remedy = f"Add the toleration {{key: {text.split(':')[0].split('=')[0]}, operator: Exists}} to its pods."
        yield Finding("workload-untolerated", WARNING, detail, workload.id, remedy=remedy)


def _lasting(node: Mapping[str, Any]) -> List[Mapping[str, str]]:
    """Taints that somebody chose; those of Kubernetes' own controllers come and go."""
    taints = node["spec"].get("taints") or []
    return [t for t in taints if not str(t.get("key", "")).startswith("node.kubernetes.io/")]


def _refused(world: World) -> List[Finding]:
    """Pods that never appeared, by the events of what should have made them."""
    found: Dict[str, Finding] = {}
    for event in world.refusals:
        text, about = str(event.get("message", "")), event.get("involvedObject") or {}
        if PREFIX not in text:
            continue
        target = f"{about.get('kind')} {about.get('namespace', '')}/{about.get('name')}"
        detail = f"its pods are refused: {short(text)}"
        remedy = _LIMITS if "Limit must be set" in text else "Run gpufleet.nvidia.explain for it."
        found[target] = Finding("workload-refused", WARNING, detail, target, remedy=remedy)
    return [found[target] for target in sorted(found)]


def short(message: str) -> str:
    """The API server's words without the name of the pod that it refused."""
    text = re.sub(r"^Error creating: ", "", message.strip())
    text = re.sub(r'^(Pod|pods) "[^"]*" is (invalid|forbidden): ', "", text)
    return text if len(text) <= 300 else text[:297] + "..."
