# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes by groups: labels, taint, MIG configuration, plugin configuration, and nothing else."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from .._kube._connection import Deadline
from .._kube._lists import list_objects
from .._kube._resources import Object
from .._kube._watch import Mirror, Query
from .._nodes._keys import MIG_CONFIG, MIG_STATE
from .._nodes._labels import has_gpu
from .._nodes._mig_guard import busy_pods
from .._nodes._stage import gaps_of, offers
from .._plan import ERROR, Check, Failure, Finding, Result, errors, refusal
from ._facts import read_nodes
from ._journal import Journal
from ._nodes import (
    NodeChange,
    NodePlanner,
    gates_without_proof,
    gpu_part,
    live_configs,
    read_groups,
    untolerated_taints,
)
from ._request import Progress, Request
from ._stages import wait_for_nodes

BUSY = "nodes.mig-busy"
FINAL = ("success", "failed")


def gpu_nodes(params: Mapping[str, Any], check: bool, progress: Progress) -> Result:
    """Entry of the module of this name."""
    request = Request.from_params(params, check, progress)
    if params["state"] == "absent":
        request.node_groups = []
    patience = float(params["mig_busy_timeout"]) if params["mig_busy"] == "wait" else 0.0
    journal = Journal(request)
    return journal.guarded("nodes", lambda: _NodesRun(journal, patience).run())


class _NodesRun:
    def __init__(self, journal: Journal, patience: float) -> None:
        self.journal = journal
        self.request = journal.request
        self.patience = patience
        groups, findings = read_groups(self.request)
        journal.add_findings(findings)
        self.planner = NodePlanner(self.request, None, groups, gating=True)
        if any(group.taint or group.ready_gate for group in groups):
            daemonsets = list_objects(self.request.connection, "DaemonSet", self.request.namespace).items
            journal.add_findings(untolerated_taints(groups, daemonsets))
            journal.add_findings(gates_without_proof(groups, daemonsets))
        if any(group.device_plugin for group in groups):
            name = "nvidia-device-plugin-daemonset"
            self.planner.plugin_configs = live_configs(self.request, name, "config-manager-init")
        self.nodes: List[Object] = []

    def run(self) -> Result:
        self._refuse(self.journal.findings)
        changes, findings = self._plan()
        if self.patience and _is_busy(findings) and not self.request.check:
            changes, findings = self._when_free(changes, findings)
        self.journal.add_findings(findings)
        for change in changes:
            self.journal.expect(change.actions())
        self._report()
        # In check mode a wait is only announced: the pods may be gone by then.
        self._refuse([f for f in self.journal.findings if f.id != BUSY or not (self.patience and self.request.check)])
        if self.request.check:
            return self.journal.result()
        before = {change.name: _labels(change.node).get(MIG_STATE, "") for change in changes if change.touches_mig}
        self.planner.write(self.journal, changes)
        if self.request.wait:
            self._follow(before)
        return self.journal.result()

    def _plan(self) -> Tuple[List[NodeChange], List[Finding]]:
        self.nodes = read_nodes(self.request.connection)
        return self.planner.plan(self.nodes)

    def _refuse(self, findings: Sequence[Finding]) -> None:
        if errors(findings):
            raise Failure(refusal(findings), self.journal.result(), self.journal.done, self.journal.remaining)

    def _when_free(self, changes: List[NodeChange], findings: List[Finding]) -> Tuple[List[NodeChange], List[Finding]]:
        """The plan once no user's pod holds the GPUs that are to be partitioned, or as it is when time is up."""
        limit = Deadline(min(self.patience, self.request.deadline.left))
        with Mirror(self.request.connection, {"pods": Query("Pod", keep=gpu_part)}) as mirror:
            while _is_busy(findings) and not limit.passed:
                waiting = sorted({f.target for f in findings if f.id == BUSY})
                self.request.progress(f"MIG: {len(waiting)} nodes are busy, next {waiting[0]}, {limit.left:.0f} s left")
                mirror.wait(min(10.0, limit.left))
                held = busy_pods(mirror.objects("pods"), self.request.namespace)
                if not any(name in held for name in waiting) or limit.passed:
                    changes, findings = self._plan()
        return changes, findings

    def _follow(self, before: Mapping[str, str]) -> None:
        """Wait until the MIG manager has said of each node how it ended."""
        if not before:
            return
        seen: Dict[str, bool] = {name: state not in FINAL for name, state in before.items()}

        def missing(node: Mapping[str, Any]) -> str:
            name = str(node["metadata"]["name"])
            state = _labels(node).get(MIG_STATE, "")
            if name not in before or not _labels(node).get(MIG_CONFIG):
                return ""
            seen[name] = seen[name] or state != before[name]
            return "" if seen[name] and state in FINAL else f"the MIG manager says {state or 'nothing yet'}"

        nodes, gaps = wait_for_nodes(self.journal, read_nodes(self.request.connection), missing, "MIG")
        states = {str(n["metadata"]["name"]): _labels(n).get(MIG_STATE, "") for n in nodes}
        done = {name for name in before if name not in gaps and states.get(name) != "failed"}

        def offering(node: Mapping[str, Any]) -> str:
            return "; ".join(gaps_of(node)) if node["metadata"]["name"] in done else ""

        # The manager's word is one thing, what the kubelet offers afterwards another.
        nodes, unoffered = wait_for_nodes(self.journal, nodes, offering, "allocatable")
        offered = {str(n["metadata"]["name"]): offers(n) for n in nodes}
        for name in sorted(before):
            text = ", ".join(f"{count} {what}" for what, count in offered.get(name, {}).items())
            detail = gaps.get(name) or unoffered.get(name) or f"{states.get(name) or 'no layout'}, offers {text}"
            self.journal.verified.append(Check(f"mig {name}", name in done and name not in unoffered, detail))
        bad = [check for check in self.journal.verified if not check.ok]
        if bad:
            name = bad[0].id.split(" ", 1)[1]
            raise self.journal.failure(
                f"MIG: {len(bad)} of {len(before)} nodes did not get their layout, first {name}: {bad[0].detail}. "
                f"See the log of the pod of nvidia-mig-manager on that node"
            )

    def _report(self) -> None:
        groups: Dict[str, List[str]] = {group.name: [] for group in self.planner.groups}
        for node in self.nodes:
            labels = _labels(node)
            for group in self.planner.groups:
                if has_gpu(labels) and group.selector.matches(labels):
                    groups[group.name].append(str(node["metadata"]["name"]))
        self.journal.found.update(groups=groups, busy={name: list(pods) for name, pods in self.planner.busy.items()})


def _labels(node: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = node["metadata"].get("labels") or {}
    return found


def _is_busy(findings: Sequence[Finding]) -> bool:
    return any(finding.id == BUSY and finding.severity == ERROR for finding in findings)
