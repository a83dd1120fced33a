# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings per group of nodes: which nodes belong to a group, and what changes on each (S16, S26).

A group is ``{name, selector, taint, mig, device_plugin, runtime, driver, labels, ready_gate, hidden_gpus}``.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .._plan import ERROR, INFO, WARNING, Finding
from ._change import GROUP_MEMORY, Draft, LabelChange, Node, Taint
from ._drivers import GROUP_NAME, Driver, read_driver
from ._gate import KEEP, plan_gate
from ._hidden import read_hidden
from ._keys import CONTAINER, FEATURE, MIG_CONFIG, PLUGIN_CONFIG, PRESENT, WORKLOAD_CONFIG, WORKLOADS, mig_capable
from ._mig_guard import holding, refusal
from ._runtimes import DISTRIBUTIONS, PLAIN, Runtime
from ._selector import Selector, SelectorError, is_key, is_value, parse, quote
from ._taints import EFFECTS, plan_taint, taint, taints_after, values_of
from ._workload import MACHINE_KEYS, for_machines

KEYS = ("name", "selector", "taint", "mig", "device_plugin", "runtime", "driver", "labels", "ready_gate", "hidden_gpus")
# What a group gives its nodes beside labels, and of which a node has one.
_NO_LABELS = ("taint", "runtime", "driver", "hidden_gpus")
# Labels that have a key of their own in a group, or that are written from what was found on the node.
_NOT_AS_LABEL = {
    MIG_CONFIG: "use the key mig",
    PLUGIN_CONFIG: "use the key device_plugin",
    PRESENT: "it is made from what NFD finds",
}


@dataclass(frozen=True)
class NodeGroup:
    """A group as the user means it. ``mig`` and ``device_plugin`` name configurations; "" leaves the node's own."""

    name: str
    selector: Selector
    taint: Optional[Taint] = None
    mig: str = ""
    device_plugin: str = ""
    runtime: Optional[Runtime] = None
    driver: Optional[Driver] = None
    labels: Mapping[str, str] = field(default_factory=dict)
    ready_gate: bool = False
    hidden_gpus: Tuple[str, ...] = ()

    def wanted_labels(self) -> Dict[str, str]:
        """All labels that the group gives its nodes."""
        found = dict(self.labels)
        if self.mig:
            found[MIG_CONFIG] = self.mig
        if self.device_plugin:
            found[PLUGIN_CONFIG] = self.device_plugin
        return found


# --- reading what the user wrote -------------------------------------------------------------------------------------


class _Reader:
    """Reads one group; problems are collected with the path of the key."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.findings: List[Finding] = []

    def refuse(self, key: str, detail: str, remedy: str = "", id: str = "groups.invalid") -> None:
        path = f"{self.path}.{key}" if key else self.path
        self.findings.append(Finding(id, ERROR, detail, "", path, remedy))

    def keys(self, raw: Mapping[str, Any]) -> None:
        for key in raw:
            if key not in KEYS:
                near = difflib.get_close_matches(str(key), KEYS, 1)
                remedy = f"Did you mean {near[0]}?" if near else ""
                self.refuse(str(key), f"is unknown: a group takes {', '.join(KEYS)}.", remedy, "groups.unknown-key")

    def selector(self, raw: Mapping[str, Any]) -> Selector:
        try:
            return parse(raw.get("selector"))
        except SelectorError as error:
            self.refuse("selector", f"{error}.", "Write labels ({pool: a}) or a selector as kubectl takes it (pool=a).")
            return Selector()

    def taint(self, raw: Any) -> Optional[Taint]:
        if raw is None or raw is False:
            return None
        if raw is True:
            return taint()
        if not isinstance(raw, Mapping) or set(raw) - {"value", "effect"}:
            self.refuse("taint", f"is {raw!r}: true, false, or a dictionary with value and effect is allowed.")
            return None
        value, effect = raw.get("value") or "", raw.get("effect") or "NoSchedule"
        if not isinstance(value, str) or not is_value(value):
            self.refuse(
                "taint.value", f"is {value!r}: a text that may be the value of a label is allowed.", quote(value)
            )
            return None
        if effect not in EFFECTS:
            self.refuse("taint.effect", f"is {effect!r}: {', '.join(EFFECTS)} are allowed.")
            return None
        return taint(value, effect)

    def gate(self, raw: Any) -> bool:
        if raw is not None and not isinstance(raw, bool):
            self.refuse("ready_gate", f"is {raw!r}: true or false is allowed.")
        return raw is True

    def config(self, key: str, raw: Any) -> str:
        """The name of a configuration: a text, or {config: text}."""
        if isinstance(raw, Mapping) and set(raw) == {"config"}:
            raw = raw["config"]
        if raw is None or raw == "":
            return ""
        if not isinstance(raw, str) or not is_value(raw):
            self.refuse(key, f"is {raw!r}: the name of a configuration is allowed.", quote(raw))
            return ""
        return raw

    def runtime(self, raw: Any, group: str) -> Optional[Runtime]:
        """The kind of a runtime, or a dictionary with it and where its files are."""
        if raw is None:
            return None
        block = {"type": raw} if isinstance(raw, str) else raw
        if not isinstance(block, Mapping) or set(block) - {"type", "config", "socket"}:
            self.refuse("runtime", f"is {raw!r}: a runtime, or a dictionary with type, config and socket is allowed.")
            return None
        kind = block.get("type", "containerd")
        known = {**PLAIN, **DISTRIBUTIONS}
        if kind not in known:
            self.refuse("runtime.type", f"is {kind!r}: {', '.join(known)} are allowed.")
            return None
        paths: Dict[str, str] = {}
        for key in ("config", "socket"):
            value = block.get(key)
            if value is not None and not (isinstance(value, str) and value.startswith("/")):
                self.refuse(f"runtime.{key}", f"is {value!r}: the path of a file on the node is allowed.")
            elif value:
                paths[key] = value
        if not paths:
            return known[kind]
        if not GROUP_NAME.match(group):
            detail = f"is {group!r}: a group with files of a runtime names a DaemonSet, small letters, digits and -."
            self.refuse("name", detail)
        return replace(known[kind], name=group, **paths)

    def labels(self, raw: Any) -> Dict[str, str]:
        if raw is None:
            return {}
        if not isinstance(raw, Mapping):
            self.refuse("labels", f"is {raw!r}: a dictionary of labels is allowed.")
            return {}
        return {str(key): value for key, value in raw.items() if self._is_label(str(key), value)}

    def _is_label(self, key: str, value: Any) -> bool:
        path = f"labels.{key}"
        if not is_key(key):
            self.refuse(path, "is not the key of a label.")
        elif key in _NOT_AS_LABEL:
            self.refuse(path, f"cannot be set as a label of a group: {_NOT_AS_LABEL[key]}.")
        elif key.startswith(FEATURE):
            self.refuse(path, "cannot be set as a label of a group: NFD owns it.")
        elif not isinstance(value, str) or not is_value(value):
            self.refuse(path, f"is {value!r}: a text that may be the value of a label is allowed.", quote(value))
        elif key == WORKLOAD_CONFIG and value not in WORKLOADS:
            self.refuse(path, f"is {value!r}: {', '.join(WORKLOADS)} are allowed.")
        else:
            return True
        return False


def parse_groups(source: Any, path: str = "node_groups") -> Tuple[List[NodeGroup], List[Finding]]:
    """Groups from what the user wrote, and every problem with it: use the groups only when none is an error."""
    if source is None:
        return [], []
    if not isinstance(source, (list, tuple)):
        return [], [Finding("groups.invalid", ERROR, f"is {type(source).__name__}: a list is allowed.", "", path)]
    groups: List[NodeGroup] = []
    findings: List[Finding] = []
    for index, raw in enumerate(source):
        reader = _Reader(f"{path}[{index}]")
        group = _read(reader, raw)
        if group is not None and any(group.name == other.name for other in groups):
            reader.refuse("name", f"is {group.name!r}, as in an earlier group.", "Give each group a name of its own.")
        findings += reader.findings
        if group is not None:
            groups.append(group)
    return groups, findings


def _read(reader: _Reader, raw: Any) -> Optional[NodeGroup]:
    if not isinstance(raw, Mapping):
        reader.refuse("", f"is {raw!r}: a dictionary with {', '.join(KEYS)} is allowed.")
        return None
    reader.keys(raw)
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        reader.refuse("name", "is missing." if name is None else f"is {name!r}: a text is allowed.", "Name the group.")
        name = ""
    selector, labels = reader.selector(raw), reader.labels(raw.get("labels"))
    return NodeGroup(
        name=name,
        selector=selector,
        taint=reader.taint(raw.get("taint")),
        mig=reader.config("mig", raw.get("mig")),
        device_plugin=reader.config("device_plugin", raw.get("device_plugin")),
        runtime=reader.runtime(raw.get("runtime"), name),
        driver=read_driver(raw.get("driver"), name, reader.refuse),
        labels=labels,
        ready_gate=reader.gate(raw.get("ready_gate")),
        hidden_gpus=read_hidden(raw.get("hidden_gpus"), selector, raw.get("mig"), labels, reader.refuse),
    )


# --- which node gets what --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """What one node gets from all groups that it belongs to. ``gate``: what is to become of the taint of ``_gate``;
    None where no group asks for it."""

    groups: Tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taint: Optional[Taint] = None
    runtime: Optional[Runtime] = None
    driver: Optional[Driver] = None
    gate: Optional[str] = None
    hidden: Tuple[str, ...] = ()


def assign(
    groups: Sequence[NodeGroup],
    nodes: Iterable[Node],
    mig_configs: Optional[Iterable[str]] = None,
    plugin_configs: Optional[Iterable[str]] = None,
) -> Tuple[Dict[str, Wanted], List[Finding]]:
    """What each node gets, by name (nodes without a group get nothing: ``Wanted()``), and what is wrong with it.

    ``nodes`` are GPU nodes. ``mig_configs`` and ``plugin_configs`` are the names that exist; None does not check.
    """
    everyone = list(nodes)
    wanted: Dict[str, Wanted] = {}
    findings = _unknown_configs(groups, "mig", mig_configs) + _unknown_configs(groups, "device_plugin", plugin_configs)
    clashes: Dict[Tuple[str, str], List[str]] = {}
    for node in everyone:
        mine = [group for group in groups if group.selector.matches(node.labels)]
        wanted[node.name] = _merge(mine, node.name, clashes)
        findings += _judge_mig(node, wanted[node.name])
        findings += _judge_hidden(node, wanted[node.name])
    for (pair, what), names in clashes.items():
        detail = f"{what} differs between the groups {pair}, and {_some(names)} belongs to both."
        findings.append(
            Finding("groups.overlap", ERROR, detail, _some(names), "node_groups", "Make the selectors disjoint.")
        )
    for index, group in enumerate(groups):
        if not any(group.name in one.groups for one in wanted.values()):
            path = f"node_groups[{index}].selector"
            detail = f"({group.selector}) matches no GPU node now."
            findings.append(Finding("groups.empty", INFO, detail, group.name, path))
    findings += _gaps(groups, wanted)
    return wanted, findings


def _gaps(groups: Sequence[NodeGroup], wanted: Mapping[str, Wanted]) -> List[Finding]:
    """GPU nodes that are in no group, where groups say which runtime or driver their nodes have."""
    instead = {"runtime": "it is found by the node", "driver": "it is the policy's"}
    findings = []
    for key, what in instead.items():
        left = sorted(name for name, one in wanted.items() if getattr(one, key) is None)
        if left and any(getattr(group, key) for group in groups):
            detail = f"{_some(left)} {'is' if len(left) == 1 else 'are'} in no group with {key}: there {what}."
            findings.append(Finding("groups.gap", INFO, detail, _some(left), "node_groups"))
    return findings


def _merge(mine: Sequence[NodeGroup], node: str, clashes: Dict[Tuple[str, str], List[str]]) -> Wanted:
    values: Dict[str, Any] = {}
    owner: Dict[str, str] = {}
    for group in mine:
        own = {key: getattr(group, key) for key in _NO_LABELS}
        settings = {**group.wanted_labels(), **{key: value for key, value in own.items() if value}}
        for key, value in settings.items():
            if key in owner and values[key] != value:
                clashes.setdefault((f"{owner[key]} and {group.name}", _setting(key)), []).append(node)
            else:
                owner[key], values[key] = group.name, value
    taint, runtime, driver, hidden = (values.pop(key, None) for key in _NO_LABELS)
    gate = KEEP if any(group.ready_gate for group in mine) else None
    return Wanted(tuple(group.name for group in mine), values, taint, runtime, driver, gate, hidden or ())


def _setting(key: str) -> str:
    named = {MIG_CONFIG: "mig", PLUGIN_CONFIG: "device_plugin", **{key: key for key in _NO_LABELS}}
    return named.get(key, f"label {key}")


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _unknown_configs(groups: Sequence[NodeGroup], key: str, known: Optional[Iterable[str]]) -> List[Finding]:
    if known is None:
        return []
    names = sorted(known)
    findings = []
    for index, group in enumerate(groups):
        value = getattr(group, key)
        if value and value not in names:
            near = difflib.get_close_matches(value, names, 1)
            remedy = f"Did you mean {near[0]}?" if near else ""
            few = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
            detail = f"is {value!r}, which no configuration is named: {few or 'there is none'}."
            findings.append(
                Finding("groups.unknown-config", ERROR, detail, group.name, f"node_groups[{index}].{key}", remedy)
            )
    return findings


def _judge_mig(node: Node, wanted: Wanted) -> List[Finding]:
    config = wanted.labels.get(MIG_CONFIG, "")
    known = "nvidia.com/mig.capable" in node.labels or "nvidia.com/gpu.product" in node.labels
    if not config or not known or mig_capable(node.labels):
        return []
    product = node.labels.get("nvidia.com/gpu.product", "its GPU")
    detail = f"is to get the MIG configuration {config}, but {product} cannot be partitioned."
    remedy = f"Keep it out of the group {' or '.join(wanted.groups)} by the selector."
    return [Finding("groups.mig-incapable", ERROR, detail, node.name, "node_groups", remedy)]


def _judge_hidden(node: Node, wanted: Wanted) -> List[Finding]:
    clashes = {}
    if wanted.hidden and MIG_CONFIG in wanted.labels:
        clashes["mig"] = "get a MIG configuration: the MIG manager partitions all GPUs, hidden or not."
    if wanted.hidden and wanted.labels.get(WORKLOAD_CONFIG, CONTAINER) != CONTAINER:
        clashes["machines"] = f"serve {wanted.labels[WORKLOAD_CONFIG]}: virtual machines take all GPUs of a node."
    remedy = f"Keep it out of the group {' or '.join(wanted.groups)} by the selector."
    return [
        Finding(f"groups.hidden-{what}", ERROR, f"is to hide GPUs and to {why}", node.name, "node_groups", remedy)
        for what, why in clashes.items()
    ]


# --- what changes on a node ------------------------------------------------------------------------------------------


def plan_group(
    node: Node,
    wanted: Wanted,
    taints: Optional[Sequence[Taint]] = None,
    busy: Sequence[str] = (),
    severity: str = ERROR,
    machines: Sequence[str] = (),
) -> LabelChange:
    """What has to change on a node for what its groups want; what they want no more is given back.

    ``taints`` are those of the node now; None leaves taints alone. ``busy``: users' pods that hold its GPUs: then a
    change of ``nvidia.com/mig.config`` is held back, with a finding of the given severity. ``machines``: pods that hold
    any device of NVIDIA; on a node of virtual machines they hold back labels whose managers change GPUs in use.
    """
    draft = Draft(node, GROUP_MEMORY, values_of(taints or ()))
    reason = f"node group {', '.join(wanted.groups)}" if wanted.groups else "no node group asks for it any more"
    held = [*_holds_mig(draft, wanted.labels, busy, severity), *_holds_machines(draft, wanted.labels, machines)]
    for key in [key for key in draft.labels.ours if key not in wanted.labels and key not in held]:
        if draft.labels.undo(key, _keeps):
            draft.reasons[key] = reason
    for key, value in wanted.labels.items():
        if key not in held:
            draft.put(key, value, reason)
    if taints is None:
        return draft.change()
    plan_taint(draft, wanted.taint, gated=wanted.gate is not None)
    if wanted.gate is not None:
        plan_gate(draft, wanted.gate)
    return draft.change(taints_after(taints, draft))


def _keeps(_value: str) -> bool:
    return False


def _holds_machines(draft: Draft, wanted: Mapping[str, str], machines: Sequence[str]) -> List[str]:
    """Labels that would start a manager which changes GPUs under virtual machines."""
    found: List[str] = []
    for key in MACHINE_KEYS if machines and for_machines(draft.labels.values) else ():
        now, target = draft.labels.values.get(key), wanted.get(key, draft.labels.was.get(key))
        if now != target and (key in wanted or key in draft.labels.ours):
            detail = f"{key}={target or '(none)'} is not written: {holding(machines)}."
            remedy = "End these pods (stop or migrate virtual machines), then run again."
            draft.find("nodes.workload-busy", WARNING, detail, remedy)
            found.append(key)
    return found


def _holds_mig(draft: Draft, wanted: Mapping[str, str], busy: Sequence[str], severity: str) -> Tuple[str, ...]:
    """The MIG label, where it would change and pods are in the way."""
    now = draft.labels.values.get(MIG_CONFIG)
    target = wanted.get(MIG_CONFIG, draft.labels.was.get(MIG_CONFIG))
    if not busy or now == target or (MIG_CONFIG not in wanted and MIG_CONFIG not in draft.labels.ours):
        return ()
    draft.findings.append(refusal(draft.node.name, target or "(none)", busy, severity))
    return (MIG_CONFIG,)
