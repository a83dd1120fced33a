# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole stack of a cluster: one run from policy to proof, or back to nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .._kube._apply import DELETE, Plan, Step, owned, plan, rehearse, release
from .._kube._connection import KubeError
from .._kube._equal import applied_fields
from .._kube._lists import Listing, list_objects
from .._kube._logs import with_last_words
from .._kube._nodes_patch import patch_node
from .._kube._resources import MANAGED_BY, MANAGER, RECONCILER, RESOURCES, STACK, Object, ours, path, ref
from .._nodes._causes import LONG, names
from .._nodes._hidden import Hidden, bounds, nowhere
from .._nodes._keys import serves
from .._nodes._labels import has_features, has_gpu
from .._nodes._removal import plan_removal
from .._nodes._stage import Stage as At
from .._nodes._stage import foreign_taints, gaps_of, is_gpu_node, node_ready, offers, rows
from .._operands import _hidden, _nfd, build_by_operand, problems
from .._operands._driver import COMPONENT
from .._operands._mig_configs import layouts
from .._operands._namespace import namespace as namespace_object
from .._operands._nfd_found import judge_labels
from .._operands._problems import unused_sizes
from .._operands._toolkit import NAME as TOOLKIT_DAEMONSET
from .._operands._types import ClusterFacts, NodeFacts, Operand
from .._plan import ERROR, INFO, WARNING, Action, Check, Failure, Finding, Result, errors, refusal
from .._policy._load import policy_hash
from .._policy._model import Policy
from . import _stages
from ._account import lacking
from ._budget import allowed
from ._conditions import NOT_READY, broken_off, summary
from ._facts import (
    DRIVER_DAEMONSET,
    driver_daemonsets,
    node_facts,
    read_named,
    read_nodes,
    slim_node,
    with_hardware,
    with_nodes,
)
from ._gates import gated
from ._host_drivers import driverless
from ._journal import Journal, only
from ._keep import Keeper
from ._machines import MANAGERS, idle
from ._machines import judge as judge_machines
from ._nodes import NodeChange, NodePlanner, each_at_once, read_groups, untolerated_taints
from ._offers import NodeOffer, Offers, mismatch, stale_labels
from ._others import foreign_nfd, operator_findings, second_nfd
from ._request import Progress, Request, read_policy
from ._stages import (
    Stage,
    all_ready,
    replace_outdated,
    stage_rows,
    stages_of,
    wait_for,
    wait_for_nodes,
    wait_until_proved,
)
from ._verdicts import NFD, UNITS, Verdicts

# Every kind that the stack may own, in the order of creation: removal goes the other way.
KINDS = (
    "Namespace",
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "RuntimeClass",
    "ConfigMap",
    "Service",
    "ServiceMonitor",
    "PrometheusRule",
    "NodeFeatureRule",
    "Deployment",
    "DaemonSet",
)
OPTIONAL = ("ServiceMonitor", "PrometheusRule", "NodeFeatureRule")
# Kinds of our CRDs whose objects are written by people; the others' objects are NFD's own.
PEOPLES_KINDS = ("NodeFeatureRule", "NodeFeatureGroup")
# Kinds of which one object of somebody else keeps our namespace from being removed.
KEPT_KINDS = (
    "ConfigMap",
    "Secret",
    "Service",
    "ServiceAccount",
    "PersistentVolumeClaim",
    "ResourceQuota",
    "Role",
    "RoleBinding",
    "DaemonSet",
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    "Job",
    "CronJob",
    "Ingress",
    "NetworkPolicy",
    "Pod",
)
EXTRA_KINDS = (
    "gpufleet.io/extra-kinds"  # annotation of the namespace: kinds of the policy's extra objects, to find them again
)
TOOLKIT = "state-container-toolkit"
PLUGINS = ("state-device-plugin", "state-sandbox-device-plugin", "state-kata-device-plugin")
FRESH = 10.0  # seconds in which a plan is as good as a new one
RELABELS = 3  # labels depend on labels that operands write: two rounds settle, the third proves it


def cluster_policy(params: Mapping[str, Any], check: bool, progress: Progress) -> Result:
    """Entry of the module of this name."""
    request = Request.from_params(params, check, progress)
    journal = Journal(request)
    if params["state"] == "absent":
        return journal.guarded("removal", _Removal(journal).run)
    policy = read_policy(params, journal.findings)
    given = list(journal.findings)

    def run() -> Result:
        again = Journal(Request.from_params(params, check, progress, request.connection), list(given))
        return again.guarded("stack", StackRun(again, policy).run)

    watch = float(params.get("watch") or 0)
    if watch < 0:
        raise Failure(f"watch is {params['watch']}: seconds from 0 on are allowed. Nothing has been changed.")
    if check or not watch:
        return run()
    groups, _findings = read_groups(request)
    planner = NodePlanner(request, policy, groups)

    def needs(nodes: Sequence[Object]) -> List[str]:
        return [change.name for change in planner.plan(nodes)[0]]

    return Keeper(request.connection, needs, run, progress).keep(watch)


class StackRun:
    """A run that brings the stack to its policy."""

    #: Whether keys of a config that the device plugin passes over stop the run.
    strict_configs = False
    #: Whether all operands are this run's business, and so the state of the cluster.
    whole = True

    def __init__(self, journal: Journal, policy: Policy) -> None:
        self.journal = journal
        self.request = journal.request
        self.connection = journal.request.connection
        self.policy = policy
        self.nodes: List[Object] = []
        self.built: List[Tuple[Operand, List[Object]]] = []
        self.facts = ClusterFacts(namespace=self.request.namespace)
        self.live_namespace: Optional[Object] = None
        self.listings: Dict[str, Listing] = {}
        self.wanted: List[Object] = []
        self.planned_at = 0.0
        self.predictor: Optional[Offers] = None
        self.offers: Dict[str, NodeOffer] = {}
        #: GPUs that are hidden as the run begins, by node, and nodes on which that changes.
        self.was_hidden: Hidden = {}
        self.rehidden: Set[str] = set()
        groups, problems_of_groups = read_groups(self.request)
        journal.add_findings(problems_of_groups)
        self.planner = NodePlanner(self.request, policy, groups, gating=True)
        clocks = (self.request.clock, self.connection.now)
        self.verdicts = Verdicts(clocks[0], lambda: _stages.FINAL_AFTER, self._layers(), clocks[1])

    def _layers(self) -> Optional[Set[str]]:
        """Titles of the operands that decide whether a node is broken; None: all."""
        return None

    def run(self) -> Result:
        try:
            return self._run()
        except Failure as failure:
            self._note_failure(failure.result.found, failure.msg)
            raise
        except KubeError as error:
            self._note_failure(self.journal.found, str(error))
            raise

    def _note_failure(self, found: Dict[str, Any], message: str) -> None:
        """A run that ends by an error, and not because nodes are not ready, says so in its conditions."""
        if self.whole and (found.get("status") or {}).get("state") != NOT_READY:
            found["status"] = broken_off(message)

    def _run(self) -> Result:
        self._refuse()
        given = list(self.journal.findings)
        first, relabel = self._prepare()
        if self.request.check:
            self.journal.add_findings(rehearse(self.connection, first, self.request.deadline))
            self._refuse()
            return self.journal.result()
        if (first.steps or relabel) and self.journal.alone():
            # Another run ended just now: what was planned beside it may be done, or wrong.
            self.journal.restart(given)
            first, relabel = self._prepare()
        last = self._apply(first, relabel)
        if self.request.wait:
            last = self._wait(last)
            self._verify()
        self._hear()
        self._report(last)
        self._judge()
        return self.journal.result()

    def _prepare(self) -> Tuple[Plan, List[NodeChange]]:
        """What is to be done, as the cluster is now. Reads only."""
        self.request.progress("reading the cluster")
        self._read()
        self._name_configs()
        if self.policy.driver.enabled and self.whole:
            self.planner.driverless = driverless(self.connection, self.nodes, self.request.namespace)
        first = self._plan()
        relabel = self._relabel_plan()
        self._refuse()
        self.journal.expect(step.action() for step in first.steps)
        for change in relabel:
            self.journal.expect(change.actions())
        if (first.steps or relabel) and self._nfd_stages() and self.request.everywhere:
            self.journal.add_findings(second_nfd(self.connection))
        if (first.steps or relabel) and not self.request.check:
            nodes, space = [change.name for change in relabel], self.request.namespace
            self.journal.add_findings(lacking(self.connection, first.steps, nodes, space, self.request.wait))
            self._refuse()
        self._report(first)
        return first, relabel

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        self.journal.add_findings(operator_findings(self.connection))
        self._refuse()
        self.listings = {kind: self._owned(kind) for kind in KINDS}
        self.live_namespace = self._live_namespace()
        self.nodes = read_nodes(self.connection)
        keys, hashes = read_named(self.connection, self.policy, self.request.namespace)
        facts = ClusterFacts(
            namespace=self.request.namespace,
            config_keys=keys,
            config_hashes=hashes,
            service_monitor_crd=self.listings["ServiceMonitor"].served,
            prometheus_rule_crd=self.listings["PrometheusRule"].served,
            nfd_running=self._foreign_nfd(),
            gated=gated(self.planner.groups, self.listings["DaemonSet"].items),
        )
        self.was_hidden = _hidden.of_config(self._live_config(_hidden.NAME))
        known = [node_facts(node).os_tag for node in self.nodes]
        drivers = driver_daemonsets(self.listings["DaemonSet"].items, [tag for tag in known if tag])
        self.facts = replace(facts, driver_daemonsets=drivers)

    def _owned(self, kind: str) -> Listing:
        request = self.request
        return owned(self.connection, kind, request.owned_in, request.deadline, STACK)

    def _live_config(self, name: str) -> Optional[Object]:
        """A ConfigMap of ours in our namespace, as it was listed."""
        wanted = (self.request.namespace, name)
        items = self.listings["ConfigMap"].items
        return next((o for o in items if (o["metadata"].get("namespace"), o["metadata"]["name"]) == wanted), None)

    def _live_namespace(self) -> Optional[Object]:
        """Our namespace, also where somebody else made it."""
        for item in self.listings["Namespace"].items:
            if item["metadata"]["name"] == self.request.namespace:
                return item
        return self.connection.find(path("Namespace", name=self.request.namespace))

    def _foreign_nfd(self) -> bool:
        """Whether an NFD that is not ours runs. All workloads are only read where ours does not run already."""
        if not self.policy.nfd.enabled:
            return False
        ours_runs = any(_is_nfd_master(item["metadata"]) for item in self.listings["Deployment"].items)
        return not ours_runs and foreign_nfd(self.connection) is not None

    def _gpu_nodes(self) -> List[NodeFacts]:
        return [self.planner.facts_of(node) for node in self.nodes if has_gpu(node["metadata"]["labels"])]

    # -- planning ----------------------------------------------------------------------------------------------------

    def _wanted(self) -> List[Object]:
        self.facts = replace(with_nodes(self.facts, self._gpu_nodes()), hidden=self._hidden())
        names = {*self.was_hidden, *self.facts.hidden}
        self.rehidden = {one for one in names if self.was_hidden.get(one) != self.facts.hidden.get(one)}
        self.journal.add_findings(self._problems())
        self.journal.add_findings(self._nfd_findings())
        self._refuse()
        self.built = self._build()
        daemonsets = [o for _operand, objects in self.built for o in objects if o["kind"] == "DaemonSet"]
        self.journal.add_findings(untolerated_taints(self.planner.groups, daemonsets) + self._unused_sizes(daemonsets))
        return [*self._base(), *(o for _operand, objects in self.built for o in objects), *self._extra()]

    def _hidden(self) -> Dict[str, Tuple[str, ...]]:
        """GPUs to hide, by node."""
        return dict(self.planner.hide(self.nodes))

    def _problems(self) -> List[Finding]:
        return problems(self.policy, self.facts)

    def _unused_sizes(self, daemonsets: Sequence[Object]) -> List[Finding]:
        return unused_sizes(self.policy, daemonsets)

    def _nfd_findings(self) -> List[Finding]:
        """What keeps NFD's labels from telling which nodes have a GPU."""
        found = _nfd.findings(self.policy, self.facts)
        if not self.policy.nfd.enabled and self.nodes and not any(has_features(_labels(node)) for node in self.nodes):
            detail = "is false, and no node has labels of a Node Feature Discovery: no GPU is known"
            remedy = "Set it to true, or deploy an NFD."
            found.append(Finding("nfd.absent", WARNING, detail, path="nfd.enabled", remedy=remedy))
        for node in self.nodes:
            found += judge_labels(str(node["metadata"]["name"]), node["metadata"]["labels"])
        return found

    def _build(self) -> List[Tuple[Operand, List[Object]]]:
        return build_by_operand(self.policy, self.facts)

    def _base(self) -> List[Object]:
        """What the rest stands on: namespace, and NFD unless one runs already."""
        space = namespace_object(self.policy, self.facts)
        kinds = sorted({str(o["kind"]) for o in self._extra()} - set(KINDS))
        if kinds:
            space["metadata"].setdefault("annotations", {})[EXTRA_KINDS] = ",".join(kinds)
        base = [space, *_hidden.objects(self.facts)]
        if not self.policy.nfd.enabled:
            return base
        crds = [] if self.facts.nfd_running else _nfd.crds()
        return [*base, *crds, *_nfd.build(self.policy, self.facts)]

    def _extra(self) -> List[Object]:
        """The policy's extra objects, as ours."""
        objects = []
        for item in self.policy.extra_objects:
            made: Object = json.loads(json.dumps(item))
            made["metadata"].setdefault("labels", {})[MANAGED_BY] = MANAGER
            if RESOURCES[made["kind"]].namespaced:
                made["metadata"].setdefault("namespace", self.request.namespace)
            objects.append(made)
        return objects

    def _plan(self) -> Plan:
        self.wanted = wanted = self._wanted()
        self.planned_at = self.request.clock()
        made = plan(
            self.connection,
            wanted,
            kinds=[*KINDS, *former_kinds(self.live_namespace)],
            optional=OPTIONAL,
            scope=STACK,
            namespace=self.request.owned_in,
            drift=self.request.drift,
            deadline=self.request.deadline,
            listings=self.listings,
        )
        # They are as old as the first plan: what is planned later looks again.
        self.listings = {}
        made.steps = [step for step in made.steps if step.verb != DELETE or not self._keeps(step, made)]
        self.journal.add_findings(made.findings)
        self.journal.add_findings(judge_machines(self.connection, made.steps, self.nodes, self.request.namespace))
        self._refuse()
        return made

    def _keeps(self, step: Step, made: Plan) -> bool:
        """DaemonSets that only seem to be no longer wanted.

        While no GPU node is seen (NFD restarts, a group is scaled to zero) nothing is taken away from pods. A driver
        DaemonSet of an operating system or kernel goes when no node needs it any more.
        """
        if step.ref.kind != "DaemonSet":
            return False
        if not self.facts.nodes:
            return step.ref.name in self._names_with_a_node()
        if self.policy.driver.enabled and step.ref.name.startswith(DRIVER_DAEMONSET):
            status = made.live[step.ref].get("status") or {}
            return bool(status.get("desiredNumberScheduled") or status.get("numberMisscheduled"))
        return False

    def _names_with_a_node(self) -> Set[str]:
        labels = {
            "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
            "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
        }
        facts = with_nodes(self.facts, [NodeFacts("any", labels=labels, kernel="any")])
        built = build_by_operand(self.policy, facts)
        return {str(o["metadata"]["name"]) for _operand, objects in built for o in objects if o["kind"] == "DaemonSet"}

    def _name_configs(self) -> None:
        """Names that node groups may choose from, as far as the policy tells them."""
        plugin = self.policy.device_plugin.config
        if plugin.data is not None:
            self.planner.plugin_configs = sorted(plugin.data)
        elif plugin.name:
            self.planner.plugin_configs = self.facts.config_keys.get(f"ConfigMap/{plugin.name}")
        else:
            self.planner.plugin_configs = []
        if not self.policy.mig_manager.config.name:
            self.planner.mig_configs = sorted(layouts())

    def _relabel_plan(self) -> List[NodeChange]:
        changes, findings = self.planner.plan(self.nodes)
        self.journal.add_findings(findings)
        self._predict(changes)
        return changes

    def _runs_plugin(self) -> bool:
        return any(operand.name == "state-device-plugin" for operand, _objects in self.built)

    def _predict(self, changes: List[NodeChange]) -> None:
        """What each node will offer once its labels are changed."""
        if not self._runs_plugin():
            return
        if self.predictor is None:
            self.predictor = Offers(self.policy, self._plugin_configs(), self.strict_configs)
        after = {change.name: change.labels_after() for change in changes}
        nodes = [(str(node["metadata"]["name"]), node["metadata"]["labels"]) for node in self.nodes]
        triples = [(name, labels, after.get(name, labels)) for name, labels in nodes]
        if self.rehidden and not self.planner.looked:
            self.journal.add_findings(self.planner.look(self.nodes))
        self.offers, findings = self._computed(triples)
        if not self.planner.looked and any(self._unlike_computed(node) for node in self.nodes):
            # Something changes, something is broken, or a node has GPUs that its labels do not tell of.
            self.journal.add_findings(self.planner.look(self.nodes))
            self.offers, findings = self._computed(triples)
        if self.planner.looked:
            findings = [*findings, *nowhere(self.facts.hidden, self.planner.hardware)]
        self.journal.add_findings(findings)

    def _computed(
        self, nodes: Sequence[Tuple[str, Mapping[str, str], Mapping[str, str]]]
    ) -> Tuple[Dict[str, NodeOffer], List[Finding]]:
        if self.predictor is None:
            return {}, []
        recounted: Dict[str, Optional[int]] = {}
        for name in self.rehidden:
            gpus = self.planner.hardware.get(name, {})
            least, most = bounds(self.facts.hidden.get(name, ()), gpus)
            recounted[name] = sum(gpus.values()) - most if gpus and least == most else None
        return self.predictor.of_nodes(nodes, self.planner.hardware, self.facts.hidden, recounted)

    def _plugin_configs(self) -> Optional[Mapping[str, str]]:
        """The plugin's configs by name: the policy's, or those of the ConfigMap that it names."""
        config = self.policy.device_plugin.config
        if config.data is not None or not config.name:
            return config.data or {}
        live = self.connection.find(path("ConfigMap", self.request.namespace, config.name))
        found: Optional[Mapping[str, str]] = live.get("data") if live else None
        return found

    def _refuse(self) -> None:
        """Nothing is written while there is an error among the findings."""
        if errors(self.journal.findings):
            raise Failure(
                refusal(self.journal.findings), self.journal.result(), self.journal.done, self.journal.remaining
            )

    # -- acting ------------------------------------------------------------------------------------------------------

    def _apply(self, first: Plan, relabel: List[NodeChange]) -> Plan:
        """Base, labels, then the rest, planned anew where the base brought labels that the rest depends on."""
        base = {ref(obj) for obj in self._base()}
        now = only(first.steps, base)
        now = [step for step in now if step.verb != DELETE]
        self.journal.run_steps(now, "base")
        stages = self._nfd_stages()
        moved = bool(now) or (self.request.wait and not all_ready(stages, first.live))
        if moved and self.request.wait and stages:
            wait_for(self.journal, stages, self.verdicts)
            self._wait_for_features()
        if moved:
            self.nodes = read_nodes(self.connection)
            relabel = self._relabel_plan()
        gone = _gone_from_hosts(first, self.wanted)
        self.journal.run_steps(gone, "stack")
        first = self._label(relabel, None if moved else first) or first
        if relabel:
            self.nodes = read_nodes(self.connection)
        last = first
        if moved or relabel:
            # What was looked at a moment ago need not be looked at again, unless other objects are wanted now.
            fresh = self.request.clock() - self.planned_at < FRESH
            before = self.wanted
            last = first if fresh and self._wanted() == before else self._plan()
        steps = [step for step in last.steps if step.id not in self.journal.done]
        later = self._behind_toolkit(steps, last) if self.request.wait else []
        self.journal.run_steps([step for step in steps if step not in later], "stack")
        if later:
            wait_for(self.journal, self._toolkit(), self.verdicts)
            self.journal.run_steps(later, "stack")
        self.journal.wait_gone([*gone, *steps])
        return last

    def _label(self, changes: List[NodeChange], planned: Optional[Plan] = None) -> Optional[Plan]:
        """Write labels. They bring pods at once, so what hides GPUs from those comes first, by the plan returned."""
        if changes and self.facts.hidden:
            planned = planned or self._plan()
            steps = [step for step in planned.steps if step.id not in self.journal.done and _hides(step)]
            self.journal.run_steps(steps, "hidden GPUs")
        self.planner.write(self.journal, changes)
        return planned

    def _toolkit(self) -> List[Stage]:
        return [stage for stage in stages_of(self.built) if stage.operand.name == TOOLKIT]

    def _behind_toolkit(self, steps: Sequence[Step], last: Plan) -> List[Step]:
        """Steps that wait until a toolkit that changes is ready: what replaces GPU pods, and what takes things away.

        A pod that was replaced at the same time can find no runtime handler. Were it the validator's, it would also
        have taken the proof of the driver with it, for which the new toolkit waits: neither would ever start.
        """
        toolkit = {which for stage in self._toolkit() for which in stage.workloads if which in last.live}
        rolled = {step.ref for step in steps if step.rolls}
        if not toolkit or not (toolkit & rolled or not all_ready(self._toolkit(), last.live)):
            return []
        gpu_pods = [step for step in steps if step.rolls and _uses_runtime_class(step.wanted)]
        return [step for step in steps if step in gpu_pods or step.verb == DELETE] if gpu_pods else []

    def _nfd_stages(self) -> List[Stage]:
        if not self.policy.nfd.enabled or self.facts.nfd_running:
            return []
        return stages_of([(_nfd.OPERAND, _nfd.build(self.policy, self.facts))])

    def _wait_for_features(self) -> None:
        """NFD's worker runs on a node before its master has labelled the node."""
        pods = list_objects(self.connection, "Pod", self.request.namespace, label_selector="role=worker").items
        served = {str(pod["spec"].get("nodeName")) for pod in pods}

        def missing(node: Mapping[str, Any]) -> str:
            meta = node["metadata"]
            waits = meta["name"] in served and meta["name"] not in self.verdicts.failed
            return "no NFD labels yet" if waits and not has_features(meta["labels"]) else ""

        self.nodes, gaps = wait_for_nodes(self.journal, read_nodes(self.connection), missing, NFD, self._patience())
        remedy = "See the logs of NFD's worker on the node and of NFD's master."
        for name in gaps:
            self.verdicts.late(
                name, At("", False, NFD, "its worker runs, but the node has no labels of NFD", True, (), remedy)
            )

    def _patience(self) -> float:
        """Seconds that labels and resources may take once the pods that bring them are ready."""
        return UNITS[LONG] * _stages.FINAL_AFTER

    # -- waiting and proving -----------------------------------------------------------------------------------------

    def _stages(self) -> List[Stage]:
        return [*self._nfd_stages(), *stages_of(self.built)]

    def _wait(self, last: Plan) -> Plan:
        stages = self._stages()
        for _round in range(RELABELS):
            if not self.journal.done and all_ready(stages, last.live):
                break  # the nodes are as they were planned
            self._replace_outdated(last)
            wait_for(self.journal, stages, self.verdicts)
            self._wait_for_discovery()
            relabel = self._relabel_plan()
            self._label(relabel)
            if not relabel:
                break
            self.nodes = read_nodes(self.connection)
            last = self._plan()
            self.journal.run_steps(last.steps, "stack")
        return last

    def _wait_for_discovery(self) -> None:
        """Labels of GPU feature discovery come through NFD's master, a moment after its pods are ready."""

        def missing(node: Mapping[str, Any]) -> str:
            labels = node["metadata"]["labels"]
            runs = labels.get("nvidia.com/gpu.deploy.gpu-feature-discovery") == "true"
            waits = runs and node["metadata"]["name"] not in self.verdicts.failed and node_ready(node)
            return "no labels of GPU feature discovery yet" if waits and "nvidia.com/gpu.count" not in labels else ""

        self.nodes = read_nodes(self.connection)
        if self.policy.gfd.enabled and any(stage.operand.name == "gpu-feature-discovery" for stage in self._stages()):
            what = "GPU feature discovery"
            self.nodes, _gaps = wait_for_nodes(self.journal, self.nodes, missing, what, self._patience())

    def _replace_outdated(self, last: Plan) -> None:
        drivers = [
            o
            for which, o in last.live.items()
            if which.kind == "DaemonSet" and which.name.startswith((DRIVER_DAEMONSET, *MANAGERS))
        ]
        count = replace_outdated(self.journal, drivers, idle(self.connection, self.request.namespace))
        if count:
            self.request.progress(f"{count} pods of older drivers and managers that nothing uses are replaced")

    def _verify(self) -> None:
        """Each node's allocatable GPUs, which only the kubelet writes."""
        names = {str(node["metadata"]["name"]) for node in self.nodes if self._is_to_offer(_labels(node))}
        if self.journal.done and self.request.everywhere and not names <= set(self.planner.hardware):
            # A list of all that NFD found is long: it is read when something changed, not when nothing did.
            mixed = self.planner.look(self.nodes)
            self.journal.add_findings(mixed)
            if mixed:
                self._predict([])
        self.verdicts.hardware, self.verdicts.hidden = self.planner.hardware, self.facts.hidden
        self.verdicts.unlike = self._unlike_computed
        told = with_hardware(self.nodes, self.planner.hardware, self.facts.hidden)
        mine = [node for node in told if node["metadata"]["name"] in names]
        if any(gaps_of(node) or not node_ready(node) or self._unlike_computed(node) for node in mine):
            self.nodes = wait_until_proved(self.journal, names, self.verdicts)
        for node in sorted(self.nodes, key=lambda n: str(n["metadata"]["name"])):
            name = str(node["metadata"]["name"])
            if name in names:
                at = self.verdicts.failed.get(name)
                offered = ", ".join(f"{count} {what}" for what, count in offers(node).items())
                detail = f"{at.stuck}: {at.trouble}" if at is not None else f"offers {offered}"
                self.journal.verified.append(Check(f"allocatable {name}", at is None, detail))

    def _is_to_offer(self, labels: Mapping[str, str]) -> bool:
        """Whether a device plugin of this run's policy is to run on a node."""
        return any(serves(labels, one.deploy_label) for one, _objects in self.built if one.name in PLUGINS)

    def _hear(self) -> None:
        """What containers of broken nodes said last, where that is not told in their pods' statuses."""
        if not self.verdicts.unexplained():
            return
        pods = list_objects(self.connection, "Pod", self.request.namespace).items
        mine = [pod for pod in pods if (pod.get("spec") or {}).get("nodeName") in self.verdicts.failed]
        daemonsets = list_objects(self.connection, "DaemonSet", self.request.namespace).items
        self.verdicts.explain(self.nodes, with_last_words(self.connection, mine), daemonsets)

    def _status(self) -> Dict[str, Any]:
        """State and conditions. What was waited for is ready, or its nodes are told of."""
        waited = bool(self.journal.verified) or not self.policy.device_plugin.enabled
        stages = self.journal.found["stages"]
        waiting = [] if waited else [row["title"] for row in stages if row["state"] == "waiting"]
        features = any(has_features(_labels(node)) for node in self.nodes)
        return summary(self.journal.found["nodes"], waiting, features)

    def _judge(self) -> None:
        """Broken nodes are reported, and fail the run where they are more than may be."""
        self.journal.add_findings(self._unseen())
        self.journal.add_findings(self.verdicts.findings(self.nodes))
        counted = self.verdicts.counted(self.nodes)
        total = len({str(node["metadata"]["name"]) for node in self.nodes if is_gpu_node(_labels(node))} | set(counted))
        most = allowed(self.request.max_failed_nodes, total)
        if len(counted) > most:
            raise self.journal.failure(self.verdicts.summary(counted, total, most))

    def _unseen(self) -> List[Finding]:
        """Nodes that NFD's worker does not reach: whether they have GPUs is not known."""
        workers = [o for o in self._base() if o["kind"] == "DaemonSet"] if self._nfd_stages() else []
        found: Dict[str, List[str]] = {}
        for worker in workers:
            for node in self.nodes:
                against = foreign_taints(node, worker["spec"]["template"]["spec"])
                if against and not has_features(_labels(node)):
                    found.setdefault(against[0], []).append(str(node["metadata"]["name"]))
        remedy = "If they have GPUs, add a toleration to node-feature-discovery.worker.tolerations and to "
        remedy += "daemonsets.tolerations of the policy, or take the taint away."
        detail = "has no labels of NFD, since the taint {} keeps its worker away"
        return [
            Finding("nfd.unseen", INFO, detail.format(taint), names(sorted(found[taint])), remedy=remedy)
            for taint in sorted(found)
        ]

    def _unlike_computed(self, node: Mapping[str, Any]) -> Optional[str]:
        """How a node differs from what was computed for it; None where nothing was."""
        one, labels = self.offers.get(str(node["metadata"]["name"])), node["metadata"]["labels"]
        if one is None or (one.offer is None and not one.problem):
            return None
        return mismatch(one, labels, offers(node)) or (stale_labels(one, labels) if self._runs_discovery() else "")

    def _runs_discovery(self) -> bool:
        return any(operand.name == "gpu-feature-discovery" for operand, _objects in self.built)

    def _report(self, last: Plan) -> None:
        if self._runs_plugin():
            self.journal.found["offers"] = [one.row() for _name, one in sorted(self.offers.items())]
        self.journal.found.update(
            namespace=self.request.namespace,
            release=self.policy.release,
            policy_hash=policy_hash(self.policy),
            stages=stage_rows(self._stages(), last.live),
            nodes=[self._row(row) for row in self._rows()],
        )
        if self.whole:
            self.journal.found["status"] = self._status()

    def _rows(self) -> List[Dict[str, Any]]:
        return rows(with_hardware(self.nodes, self.planner.hardware, self.facts.hidden))

    def _row(self, row: Dict[str, Any]) -> Dict[str, Any]:
        """A node's row, with what is broken on it."""
        at = self.verdicts.failed.get(row["name"])
        return row if at is None else dict(row, stage=at.reached, ready=False, failed=True, trouble=at.sentence)


def _gone_from_hosts(plan: Plan, wanted: Sequence[Mapping[str, Any]]) -> List[Step]:
    """Removals of driver and toolkit DaemonSets where none of the kind is wanted any more: the host brings its own.

    They come first, before labels bring new pods of operands. As long as there is a driver's DaemonSet, a validation
    that starts waits for its pod and never looks for the driver of the host.
    """
    left = {_on_hosts(obj) for obj in wanted if obj["kind"] == "DaemonSet"}
    gone = [step for step in plan.steps if step.verb == DELETE and step.ref.kind == "DaemonSet"]
    return [step for step in gone if _on_hosts(step.live or {}) not in left | {""}]


def _hides(step: Step) -> bool:
    """Whether a step changes the list of hidden GPUs, or a workload that is there into one that heeds it."""
    if step.verb == DELETE or step.wanted is None:
        return False
    listed = (step.ref.kind, step.ref.name) == ("ConfigMap", _hidden.NAME)
    return listed or (step.ref.kind == "DaemonSet" and step.live is not None and _hidden.reads(step.wanted))


def _on_hosts(workload: Mapping[str, Any]) -> str:
    """Which of a host's parts a workload installs: ``driver``, ``toolkit``, or empty."""
    meta = workload.get("metadata") or {}
    if COMPONENT.items() <= (meta.get("labels") or {}).items():
        return "driver"
    return "toolkit" if str(meta.get("name")).startswith(TOOLKIT_DAEMONSET) else ""


def _uses_runtime_class(workload: Optional[Mapping[str, Any]]) -> bool:
    spec = (workload or {}).get("spec") or {}
    return bool(((spec.get("template") or {}).get("spec") or {}).get("runtimeClassName"))


def former_kinds(space: Optional[Mapping[str, Any]]) -> List[str]:
    """Kinds of extra objects of earlier policies, which are noted on the operands' namespace."""
    notes = ((space or {}).get("metadata") or {}).get("annotations") or {}
    return [kind for kind in notes.get(EXTRA_KINDS, "").split(",") if kind in RESOURCES]


class _Removal:
    """A run that takes the stack away and gives back what it changed."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.request = journal.request
        self.connection = journal.request.connection
        self.space: Optional[Object] = None
        self.nfd_ours = False

    def run(self) -> Result:
        made = self._prepare()
        if self.request.check:
            return self.journal.result()
        if self.journal.planned and self.journal.alone():
            # Another run ended just now, and what it made has to go, too.
            self.journal.restart([])
            made = self._prepare()
        workloads = [step for step in made.steps if step.ref.kind in ("DaemonSet", "Deployment")]
        self.journal.run_steps(workloads, "removal")
        self.journal.wait_gone(workloads)
        # Only now: while operands run they would write their labels again.
        each_at_once(lambda _number, change: self._give_back(change, self.nfd_ours), self._changes(self.nfd_ours))
        rest = [step for step in made.steps if step not in workloads]
        self.journal.run_steps(rest, "removal")
        self.journal.wait_gone(rest)
        if self.space is not None and not ours(self.space) and applied_fields(self.space):
            self._release(self.space)
        self.journal.lease.remove()
        return self.journal.result()

    def _prepare(self) -> Plan:
        """What is to go, as the cluster is now. Reads only."""
        self._refuse_reconciler()
        self.space = self.connection.find(path("Namespace", name=self.request.namespace))
        kinds = [*KINDS, *former_kinds(self.space)]
        made = plan(self.connection, [], kinds=kinds, scope=STACK, deadline=self.request.deadline)
        made.steps = [step for step in made.steps if self._may_go(step)]
        nodes = read_nodes(self.connection)
        self.journal.add_findings(judge_machines(self.connection, made.steps, nodes, self.request.namespace))
        self._refuse()
        self.nfd_ours = any(which.kind == "CustomResourceDefinition" for which in made.live)
        self.journal.expect(step.action() for step in made.steps)
        self.journal.add_findings(
            _left_on_hosts([step.ref.name for step in made.steps if step.ref.kind == "DaemonSet"])
        )
        for change in self._changes(self.nfd_ours):
            self.journal.expect(change.actions())
        self.journal.found.update(namespace=self.request.namespace, release="", policy_hash="", stages=[], nodes=[])
        return made

    def _refuse_reconciler(self) -> None:
        """A schedule that would bring the stack back. In check mode it is only told: it may be about to go as well."""
        severity = WARNING if self.request.check else ERROR
        for item in owned(self.connection, "CronJob", deadline=self.request.deadline, scope=RECONCILER).items:
            if not item["spec"].get("suspend"):
                name = f"CronJob {item['metadata']['namespace']}/{item['metadata']['name']}"
                detail = "reconciles this cluster on a schedule, and would bring the stack back"
                remedy = "Use gpufleet.nvidia.remove, which removes it first, or suspend it."
                self.journal.add_findings([Finding("reconciler-runs", severity, detail, name, remedy=remedy)])
        self._refuse()

    def _refuse(self) -> None:
        if errors(self.journal.findings):
            raise Failure(refusal(self.journal.findings), self.journal.result())

    def _release(self, space: Object) -> None:
        """A namespace that somebody else made loses the labels that we added."""
        which = ref(space)
        action = Action(f"release {which}", "update", str(which), "was made by others: what we added to it goes")
        self.journal.carry_out([action], partial(release, self.connection, which), f"{which} cannot be given back")

    def _may_go(self, step: Step) -> bool:
        if step.ref.kind == "Namespace":
            return is_free(self.journal, step.ref.name)
        if step.ref.kind == "CustomResourceDefinition" and step.live is not None:
            return self._is_unused(step.ref.name, str(step.live["spec"]["names"]["kind"]))
        return True

    def _is_unused(self, crd: str, kind: str) -> bool:
        """Whether a CRD of ours has no objects that people made: they would go with it."""
        if kind not in PEOPLES_KINDS:
            return True
        items = list_objects(self.connection, kind, metadata_only=True, optional=True).items
        others = [str(item["metadata"]["name"]) for item in items if not ours(item)]
        if others:
            detail = f"stays, since these objects would go with it: {', '.join(sorted(others)[:5])}"
            remedy = f"Delete it by hand when they may go: kubectl delete crd {crd}"
            target = f"CustomResourceDefinition {crd}"
            self.journal.add_findings([Finding("left", WARNING, detail, target, remedy=remedy)])
        return not others

    def _changes(self, nfd_ours: bool) -> List[NodeChange]:
        changes = [_removal_of(node, nfd_ours) for node in read_nodes(self.connection)]
        for change in changes:
            self.journal.add_findings(change.findings)
        return [change for change in changes if change]

    def _give_back(self, change: NodeChange, nfd_ours: bool) -> None:
        def act() -> None:
            patch_node(
                self.connection,
                change.node,
                lambda live: _removal_of(slim_node(dict(live)), nfd_ours).patch(),
                self.request.deadline,
            )

        self.journal.carry_out(change.actions(), act, f"node {change.name}: what it had cannot be given back")


# What operands leave on hosts, which nobody takes away through the API.
_ON_HOSTS = (
    (DRIVER_DAEMONSET, "the driver's kernel modules stay loaded until a reboot"),
    ("nvidia-container-toolkit-daemonset", "files of the container toolkit may stay in toolkit.installDir"),
    ("gpufleet-cuda-toolkit", "CUDA toolkits stay in cudaToolkit.installDir, where pods may use them"),
)


def _left_on_hosts(daemonsets: Sequence[str]) -> List[Finding]:
    """What a removal leaves on the nodes themselves, by the DaemonSets that go (L25)."""
    told = [text for start, text in _ON_HOSTS if any(name.startswith(start) for name in daemonsets)]
    remedy = "Reboot or reinstall nodes that are to be as they were before."
    return [Finding("left-on-hosts", INFO, "; ".join(told), "GPU nodes", remedy=remedy)] if told else []


def is_free(journal: Journal, namespace: str) -> bool:
    """Whether a namespace of ours holds nothing of others: it is not taken away from under them."""
    others = []
    for kind in KEPT_KINDS:
        for item in list_objects(journal.request.connection, kind, namespace, metadata_only=True, optional=True).items:
            if not ours(item) and not _goes_by_itself(item):
                others.append(f"{kind} {item['metadata']['name']}")
    if others:
        shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        detail = f"stays, since it holds what this collection did not make: {shown}"
        remedy = f"Delete it by hand when that may go: kubectl delete namespace {namespace}"
        journal.add_findings([Finding("left", WARNING, detail, f"Namespace {namespace}", remedy=remedy)])
    return not others


def _removal_of(node: Object, nfd_ours: bool) -> NodeChange:
    return NodeChange(
        node, (plan_removal(node_facts(node), nfd_ours=nfd_ours, taints=node["spec"].get("taints") or []),)
    )


def _is_nfd_master(meta: Mapping[str, Any]) -> bool:
    labels = meta.get("labels") or {}
    return bool(labels.get("app.kubernetes.io/name") == "node-feature-discovery" and labels.get("role") == "master")


def _goes_by_itself(item: Object) -> bool:
    """Objects that Kubernetes puts into each namespace, and those that go with their owner."""
    name = item["metadata"]["name"]
    return bool(item["metadata"].get("ownerReferences")) or name in ("kube-root-ca.crt", "default")


def _labels(node: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = node["metadata"].get("labels") or {}
    return found
