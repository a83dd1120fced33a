# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single operands of the stack: the device plugin, and the DCGM exporter. The rest of the stack is left as it is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

from .._kube._apply import DELETE, Plan, Step
from .._kube._resources import Object, path, ref
from .._nodes._causes import names
from .._operands import OPERANDS, _hidden
from .._operands._build import configs_read
from .._operands._types import Operand
from .._operands._validator import NAME as VALIDATOR
from .._plan import ERROR, WARNING, Finding, Result
from .._policy._model import Policy
from ._journal import Journal
from ._nodes import NodeChange, NodePlanner
from ._offers import stale_labels
from ._request import Progress, Request, read_policy
from ._stack import StackRun, is_free

# What nodes call these operands.
LAYERS = {
    "state-device-plugin": "device plugin",
    "state-mps-control-daemon": "MPS",
    "state-dcgm": "DCGM",
    "state-dcgm-exporter": "DCGM exporter",
}
PLUGIN_CONFIGS = "device-plugin-configs"
METRICS_CONFIG = "metrics-config"


def device_plugin(params: Mapping[str, Any], check: bool, progress: Progress) -> Result:
    """Entry of the module of this name."""
    parts = ("state-device-plugin", "state-mps-control-daemon")
    return _run(params, check, progress, _plugin_values(params), parts, ("nvidia-device-plugin",))


def dcgm_exporter(params: Mapping[str, Any], check: bool, progress: Progress) -> Result:
    """Entry of the module of this name."""
    parts = ("state-dcgm", "state-dcgm-exporter")
    result = _run(params, check, progress, _exporter_values(params), parts, ("nvidia-dcgm",))
    result.findings += _of_hosts(params)
    return result


def _of_hosts(params: Mapping[str, Any]) -> List[Finding]:
    """Options that mean something on hosts only, where they were set."""
    defaults = {
        "port": 9400, "listen_address": "127.0.0.1", "hostengine": "standalone", "hostengine_address": "localhost:5555",
        "packages": "dcgm", "dcgm_version": None, "cuda_major": None, "program": "/usr/bin/dcgm-exporter",
        "container": None, "collect_interval": 30000, "settings": None, "web_config": None,
    }  # fmt: skip
    detail = "has no effect with platform: kubernetes"
    set_here = [name for name, value in defaults.items() if params.get(name) not in (None, value)]
    return [Finding("option-of-hosts", WARNING, detail, path=name, remedy="Leave it out.") for name in set_here]


def _run(
    params: Mapping[str, Any],
    check: bool,
    progress: Progress,
    values: Mapping[str, Any],
    parts: Sequence[str],
    prefixes: Tuple[str, ...],
) -> Result:
    journal = Journal(Request.from_params(params, check, progress))
    policy = read_policy(params, journal.findings, values)
    run = PartRun(journal, policy, parts, prefixes, params["state"] == "absent").run
    return journal.guarded(", ".join(parts), run)


def _plugin_values(params: Mapping[str, Any]) -> Dict[str, Any]:
    """Options of the module as values of the chart."""
    config: Dict[str, Any] = {}
    if params.get("configs"):
        config = {
            "create": True,
            "name": _named(params, "devicePlugin") or PLUGIN_CONFIGS,
            # JSON is YAML, and the plugin reads YAML.
            "data": {n: c if isinstance(c, str) else json.dumps(c, indent=2) for n, c in params["configs"].items()},
        }
    if params.get("default_config"):
        config["default"] = params["default_config"]
    values: Dict[str, Any] = {"enabled": True}
    if config:
        values["config"] = config
    return {"devicePlugin": values}


def _exporter_values(params: Mapping[str, Any]) -> Dict[str, Any]:
    values: Dict[str, Any] = {"enabled": True}
    if params.get("metrics"):
        name = _named(params, "dcgmExporter") or METRICS_CONFIG
        values["config"] = {"create": True, "name": name, "data": params["metrics"]}
    if params.get("service_monitor") is not None:
        values["serviceMonitor"] = {"enabled": params["service_monitor"]}
    return {"dcgmExporter": values}


def _named(params: Mapping[str, Any], component: str) -> str:
    """The name of the ConfigMap that the last source of the policy gives."""
    name = ""
    for source in [*(params.get("policy_documents") or []), params.get("policy") or {}]:
        block = source.get(component)
        config = block.get("config") if isinstance(block, Mapping) else None
        if isinstance(config, Mapping):
            name = str(config.get("name") or name)
    return name


class PartRun(StackRun):
    """A run over some operands. Objects of other operands are neither changed nor removed."""

    strict_configs = True
    whole = False

    def __init__(
        self, journal: Journal, policy: Policy, parts: Sequence[str], prefixes: Tuple[str, ...], absent: bool
    ) -> None:
        self.parts = [operand for operand in OPERANDS if operand.name in parts]
        super().__init__(journal, policy)
        self.planner = (
            NodePlanner(self.request, None, self.planner.groups) if self.planner.groups else _NoNodes(self.request)
        )
        self.prefixes = prefixes
        self.absent = absent

    def _read(self) -> None:
        super()._read()
        stack = {str(item["metadata"]["name"]) for item in self.listings["DaemonSet"].items}
        self.facts = replace(self.facts, validated=VALIDATOR in stack)

    def _hidden(self) -> Dict[str, Tuple[str, ...]]:
        """As cluster_policy left it: feature discovery, which is not this run's, has to see the same GPUs."""
        hidden = dict(self.was_hidden)
        asked = self.planner.hide(self.nodes)
        if asked and not self.absent and asked != hidden:
            named = sorted({group.name for group in self.planner.groups if group.hidden_gpus})
            detail = f"is not what is hidden on {names(sorted(asked))} now, and feature discovery is not this run's."
            remedy = "Run gpufleet.nvidia.cluster_policy with these groups first."
            where = ", ".join(named)
            self.journal.add_findings([Finding("groups.hidden-elsewhere", ERROR, detail, where, "node_groups", remedy)])
        return hidden

    def _layers(self) -> Set[str]:
        """What these operands stand on, and they themselves."""
        return {"driver", "toolkit", *(LAYERS[operand.name] for operand in self.parts)}

    def _build(self) -> List[Tuple[Operand, List[Object]]]:
        self._need_runtime_class()
        self._need_labels()
        wanted = [operand for operand in self.parts if not self.absent and operand.enabled(self.policy)]
        return [(operand, operand.build(self.policy, self.facts)) for operand in wanted]

    def _base(self) -> List[Object]:
        # A namespace that is there belongs to the stack, or to somebody else: its labels are not this part's business.
        if self.absent:
            return []
        space = super()._base()[:1] if self.live_namespace is None else []
        return [*space, *_hidden.objects(self.facts)]

    def _extra(self) -> List[Object]:
        return []

    def _foreign_nfd(self) -> bool:
        return False

    def _problems(self) -> List[Finding]:
        return [finding for finding in super()._problems() if finding.id != "node-os-unknown"]  # drivers are not ours

    def _unused_sizes(self, daemonsets: Sequence[Object]) -> List[Finding]:
        return []  # they may be of the other operands

    def _nfd_findings(self) -> List[Finding]:
        return []

    def _nfd_stages(self) -> List[Any]:
        return []

    def _apply(self, first: Plan, relabel: List[NodeChange]) -> Plan:
        last = super()._apply(first, relabel)
        if any(step.ref.kind == "Namespace" and step.verb == DELETE for step in last.steps):
            self.journal.lease.remove()  # it went with the namespace
        return last

    def _keeps(self, step: Step, made: Plan) -> bool:
        if step.ref.kind == "Namespace":
            return not (self.absent and self._is_last(made) and is_free(self.journal, step.ref.name))
        if step.verb == DELETE and not self._is_part(step, made):
            return True
        return not self.absent and super()._keeps(step, made)

    def _is_last(self, made: Plan) -> bool:
        """Whether nothing else of this collection is in the cluster: then the namespace that it made goes, too."""
        return all(step.ref.kind == "Namespace" or self._is_part(step, made) for step in made.steps)

    def _is_part(self, step: Step, made: Plan) -> bool:
        named = {ref(o) for operand in self.parts for o in operand.build(self.policy, self.facts)}
        mine = step.ref in named or step.ref.name.startswith(self.prefixes)
        return mine or f"{step.ref.kind}/{step.ref.name}" in self._configs(made)

    def _configs(self, made: Plan) -> Set[str]:
        """ConfigMaps that pods of these operands read, and no others."""
        mine: Set[str] = set()
        others: Set[str] = set()
        for which, live in made.live.items():
            if which.kind == "DaemonSet":
                read = configs_read(live["spec"]["template"]["spec"])
                (mine if which.name.startswith(self.prefixes) else others).update(read)
        return mine - others

    def _verify(self) -> None:
        if not self.absent and any(operand.name == "state-device-plugin" for operand in self.parts):
            super()._verify()
            self._judge_discovery()

    def _judge_discovery(self) -> None:
        """GPU feature discovery is not this run's: it may have another config than the plugin (P097)."""
        for node in self.nodes:
            name, labels = str(node["metadata"]["name"]), node["metadata"]["labels"]
            stale = stale_labels(self.offers[name], labels) if name in self.offers else ""
            if stale:
                detail = f"{stale}: GPU feature discovery does not run with this configuration (yet)."
                remedy = "Give devicePlugin.config to gpufleet.nvidia.cluster_policy, which hands it to both."
                self.journal.add_findings([Finding("plugin.labels", WARNING, detail, f"Node {name}", remedy=remedy)])

    def _need_labels(self) -> None:
        """Pods that no node asks for would be a success that proves nothing."""
        if self.absent or not self.facts.nodes:
            return
        for operand in self.parts:
            key = operand.deploy_label
            if key and operand.enabled(self.policy) and not any(node.labels.get(key) for node in self.facts.nodes):
                detail = f"none of the {len(self.facts.nodes)} GPU nodes has the label {key}, so no pod would run"
                remedy = "Run gpufleet.nvidia.cluster_policy first, or label the nodes."
                self.journal.add_findings([Finding("labels-missing", ERROR, detail, key, remedy=remedy)])

    def _need_runtime_class(self) -> None:
        if self.absent or self.policy.nri_enabled:
            return
        name = self.policy.operator.runtime_class
        if self.connection.find(path("RuntimeClass", name=name)) is None:
            finding = Finding(
                "runtime-class-missing",
                ERROR,
                f"the cluster has no RuntimeClass {name}, which the pods need",
                target=f"RuntimeClass {name}",
                remedy="Run gpufleet.nvidia.cluster_policy first, or make the RuntimeClass.",
            )
            self.journal.add_findings([finding])


class _NoNodes(NodePlanner):
    """No groups were given: nodes are not this run's business."""

    def __init__(self, request: Request) -> None:
        super().__init__(request, None, ())

    def plan(self, nodes: Sequence[Object]) -> Tuple[List[NodeChange], List[Finding]]:
        return [], []
