# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each node will offer by the policy and its labels, before anything is applied, and if it does afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .._nodes._hidden import Hidden, bounds
from .._nodes._keys import MIG_CONFIG, MIG_STATE, PLUGIN_CONFIG, has_mig_devices, mig_capable, serves
from .._nodes._models import Gpus, is_mixed, lowest_compute, models_text
from .._nodes._predict import Board, Impossible, Offer, board_name, boards_of, device_ids, offer
from .._operands._device_plugin import plugin_env
from .._operands._mig_configs import layouts
from .._operands._plugin_config import TIME_SLICING, PluginConfig, allowed_for, ignored_xids, read_config, wrong_choices
from .._plan import ERROR, WARNING, Finding
from .._policy._model import Policy
from .._policy._rules import no_isolation

Labels = Mapping[str, str]
_MADE_MILD = ("plugin-config.ignored", "plugin-config.unknown-key")


@dataclass(frozen=True)
class NodeOffer:
    """What one node will offer. ``offer`` is None while it cannot be told: ``unknown`` says why, or ``problem`` why it
    cannot be, and ``remedy`` what would fit."""

    name: str
    strategy: str
    config: str
    layout: str
    plugin: PluginConfig
    offer: Optional[Offer] = None
    unknown: str = ""
    problem: str = ""
    remedy: str = ""

    def row(self) -> Dict[str, Any]:
        """As modules return it."""
        sharing, made = self.plugin.sharing, self.offer
        return {
            "name": self.name,
            "resources": dict(made.resources) if made else {},
            "known": made is not None,
            "detail": self.unknown or self.problem or "; ".join(made.notes if made else ()),
            "strategy": self.strategy,
            "config": self.config,
            "mig": self.layout,
            "sharing": sharing.kind or "none",
            "one_a_container": sharing.one_a_container,
            "shares": {name: 100 // count for name, count in sorted(sharing.replicas.items())},
        }


class Offers:
    """Predictions by a policy. ``texts``: the device plugin's configs by name, None where they cannot be read.

    ``strict``: whether keys that the plugin passes over stop the run, or are only told.
    """

    def __init__(self, policy: Policy, texts: Optional[Mapping[str, str]], strict: bool) -> None:
        self.policy = policy
        self.texts = texts
        self.layouts: Mapping[str, Sequence[Mapping[str, object]]] = {} if policy.mig_manager.config.name else layouts()
        self.findings: List[Finding] = [*_judge_health(policy), *_judge_lists(policy)]
        self.configs: Dict[str, PluginConfig] = {}
        env = {str(item["name"]): str(item.get("value", "")) for item in plugin_env(policy)}
        for name, text in sorted((texts or {}).items()):
            config, found = read_config(text, f"devicePlugin.config.data.{name}", env)
            self.configs[name] = config
            self.findings += found if strict else [_mild(finding) for finding in found]
            if config.sharing.kind == TIME_SLICING and policy.device_plugin.config.data is None:
                self.findings.append(no_isolation(f"ConfigMap {policy.device_plugin.config.name}", name))

    def of_nodes(
        self,
        nodes: Iterable[Tuple[str, Labels, Labels]],
        hardware: Mapping[str, Gpus],
        hidden: Hidden = MappingProxyType({}),
        recounted: Mapping[str, Optional[int]] = MappingProxyType({}),
    ) -> Tuple[Dict[str, NodeOffer], List[Finding]]:
        """Predictions of nodes given as name, labels now, labels after the run; and what cannot be.

        ``hardware``: GPUs on the PCI bus of the nodes of which that is known. ``hidden``: which of them are hidden.
        ``recounted``: how many GPUs nodes will show whose labels count others yet; None where that is not known.
        """
        found: Dict[str, NodeOffer] = {}
        for name, now, after in nodes:
            if serves(after):
                made = self._of(name, now, after)
                gpus = hardware.get(name, {})
                if made.unknown or made.problem:
                    found[name] = made
                elif is_mixed(gpus):
                    found[name] = self._of_models(made, now, gpus, hidden.get(name, ()))
                elif name in recounted and recounted[name] is None:
                    found[name] = replace(made, unknown="how many of its GPUs are hidden is not known yet")
                else:
                    found[name] = self._counted(made, now, recounted.get(name))
        return found, [*self.findings, *_impossible(found.values())]

    def _of(self, name: str, now: Labels, after: Labels) -> NodeOffer:
        """What is chosen for a node, and no resources yet."""
        chosen = after.get(PLUGIN_CONFIG) or self.policy.device_plugin.config.default
        config = self.configs.get(chosen, PluginConfig())
        strategy = self.policy.mig_strategy or config.mig_strategy or "none"
        made = NodeOffer(name, strategy, chosen, after.get(MIG_CONFIG, "") if mig_capable(now) else "", config)
        if chosen and self.policy.device_plugin.config.name and chosen not in self.configs:
            if self.texts is None:
                return replace(made, unknown=f"the configuration {chosen} could not be read")
            known = ", ".join(sorted(self.configs)) or "none"
            reason = f"the label {PLUGIN_CONFIG} is {chosen}, which no configuration is named ({known})"
            return replace(made, problem=reason, remedy="Correct the label, or add the configuration")
        return made

    def _of_models(self, made: NodeOffer, labels: Labels, gpus: Gpus, hidden: Sequence[str]) -> NodeOffer:
        """Of a node with several models, whose labels tell of one: all GPUs, as long as MIG has no part in it."""
        entries = self.layouts.get(made.layout, ({"mig-enabled": True},)) if made.layout else ()
        sliced = has_mig_devices(labels) or any(entry.get("mig-enabled") for entry in entries)
        if sliced and (made.strategy != "none" or made.plugin.sharing.kind):
            text = f"it has GPUs of several models ({models_text(gpus)}), of which MIG makes different things"
            return replace(made, unknown=text)
        if not _number(labels, "nvidia.com/gpu.count"):
            return replace(made, unknown="nothing on the node has counted its GPUs yet")
        least, most = bounds(hidden, gpus)
        if least != most:
            return replace(made, unknown="how many of its GPUs are hidden is not known")
        boards: List[Board] = [None] * (sum(gpus.values()) - most)
        try:
            return replace(made, offer=offer(boards, made.strategy, made.plugin, lowest_compute(gpus)))
        except Impossible as error:
            return replace(made, problem=str(error), remedy=error.remedy)

    def _counted(self, made: NodeOffer, labels: Labels, recounted: Optional[int]) -> NodeOffer:
        product, memory = labels.get("nvidia.com/gpu.product", ""), _number(labels, "nvidia.com/gpu.memory")
        devices = device_ids(product, memory)
        count = self._boards_now(labels, devices) if recounted is None else recounted
        boards = self._boards(made, labels, count or 1, devices)
        compute = (
            _number(labels, "nvidia.com/gpu.compute.major") or 9,
            _number(labels, "nvidia.com/gpu.compute.minor"),
        )
        try:
            offered = [offer(one, made.strategy, made.plugin, compute, board_name(product)) for one in boards or ()]
        except Impossible as error:
            return replace(made, problem=str(error), remedy=error.remedy)
        if not count:
            return replace(made, unknown="nothing on the node has counted its GPUs yet")
        if len(offered) != 1:
            return replace(made, unknown="its labels do not tell what its MIG layout is")
        return replace(made, offer=offered[0])

    def _boards_now(self, labels: Labels, devices: Sequence[str]) -> int:
        """How many boards the node has, 0 if unknown. With strategy single discovery counts MIG devices instead."""
        count = _number(labels, "nvidia.com/gpu.count")
        if "-MIG-" not in labels.get("nvidia.com/gpu.product", ""):
            return count
        entries = self.layouts.get(labels.get(MIG_CONFIG, ""))
        one = boards_of(entries, 1, devices) if entries else None
        devices_a_board = len(one[0] or ()) if one else 0
        return count // devices_a_board if devices_a_board and count % devices_a_board == 0 else 0

    def _boards(
        self, made: NodeOffer, labels: Labels, count: int, devices: Sequence[str]
    ) -> Optional[List[List[Board]]]:
        """The boards as they will be. Several where the product is not known well enough; None if nothing is known."""
        if not made.layout:
            return None if has_mig_devices(labels) and made.strategy != "none" else [[None] * count]
        entries = self.layouts.get(made.layout)
        if entries is None:
            return [[None] * count] if made.strategy == "none" and not made.plugin.sharing.kind else None
        known = boards_of(entries, count, devices)
        if known is not None:
            return [known]
        each = [boards_of([{**entry, "device-filter": []}], count) for entry in entries]
        return [boards for boards in each if boards is not None] if len(each) > 1 else None


def _mild(finding: Finding) -> Finding:
    return replace(finding, severity=WARNING) if finding.id in _MADE_MILD else finding


def _judge_health(policy: Policy) -> Iterable[Finding]:
    for item in policy.device_plugin.env:
        if item["name"] in ("DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"):
            bad = ignored_xids(str(item.get("value", "")))[1]
            if bad:
                detail = f"{item['name']} has {', '.join(bad)}, which the plugin passes over: XIDs are numbers."
                yield Finding("plugin-config.ignored", WARNING, detail, "", "devicePlugin.env", "Correct it.")


_VOLUME_MOUNTS = "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS"


def _judge_lists(policy: Policy) -> Iterable[Finding]:
    """How devices are handed out, as the plugin's variables say it (PLG-05)."""
    where = "devicePlugin.env"
    env = {str(item["name"]): str(item.get("value", "")) for item in plugin_env(policy)}
    for name, value in sorted(env.items()):
        wrong = wrong_choices(name, value)
        if wrong:
            detail = f"{name} has {', '.join(wrong)}, on which the plugin exits."
            yield Finding(
                "plugin-config.invalid", ERROR, detail, "", where, f"Allowed: {', '.join(allowed_for(name))}."
            )
    lists = env.get("DEVICE_LIST_STRATEGY", "").split(",")
    accepts = {str(item["name"]): str(item.get("value", "")).lower() for item in policy.toolkit.env}
    if "volume-mounts" in lists and policy.toolkit.enabled and accepts.get(_VOLUME_MOUNTS) != "true":
        detail = "DEVICE_LIST_STRATEGY is volume-mounts, which the container toolkit takes for nothing by default."
        remedy = f"Set {_VOLUME_MOUNTS} to true in toolkit.env."
        yield Finding("plugin-config.lists", WARNING, detail, "", where, remedy)
    if not policy.cdi_enabled and {"cdi-annotations", "cdi-cri"} & set(lists):
        detail = "DEVICE_LIST_STRATEGY names CDI devices, and cdi.enabled is false: no runtime is set up for them."
        yield Finding("plugin-config.lists", WARNING, detail, "", where, "Set cdi.enabled to true.")


def _impossible(found: Iterable[NodeOffer]) -> List[Finding]:
    """One finding a reason, however many nodes have it."""
    nodes: Dict[Tuple[str, str], List[str]] = {}
    for one in found:
        if one.problem:
            nodes.setdefault((one.problem, one.remedy), []).append(one.name)
    findings = []
    for (problem, remedy), names in nodes.items():
        more = f" and {len(names) - 1} more nodes" if len(names) > 1 else ""
        target = f"Node {names[0]}{more}"
        findings.append(Finding("plugin.impossible", ERROR, f"{problem}.", target, "", f"{remedy}."))
    return findings


def _number(labels: Labels, key: str) -> int:
    text = labels.get(key, "")
    return int(text) if text.isdigit() else 0


# --- afterwards ------------------------------------------------------------------------------------------------------


def mismatch(one: NodeOffer, labels: Labels, have: Mapping[str, int]) -> str:
    """How a node differs from what was computed for it, and the likely reason; "" when it does not (P094)."""
    if one.problem:
        return one.problem
    if one.offer is None or dict(have) == dict(one.offer.resources):
        return ""
    text = f"offers {_text(have)}, computed was {_text(one.offer.resources)}"
    return f"{text}: {_reason(one, labels, have)}"


def _text(resources: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(resources.items())) or "nothing"


def _reason(one: NodeOffer, labels: Labels, have: Mapping[str, int]) -> str:
    state = labels.get(MIG_STATE, "")
    if one.layout and state and state != "success":
        return f"its MIG configuration {one.layout} is in state {state}"
    sharing = one.plugin.sharing
    wanted: Mapping[str, int] = one.offer.resources if one.offer else {}
    unshared = {name: wanted.get(sharing.name(name), 0) // count for name, count in sharing.replicas.items()}
    rest = {n: c for n, c in wanted.items() if n not in {sharing.name(name) for name in sharing.replicas}}
    if sharing.replicas and dict(have) == {**rest, **{n: c for n, c in unshared.items() if c}}:
        return f"the device plugin does not use the configuration {one.config}; see its container config-manager"
    if not have:
        return "the device plugin has registered nothing; see its log"
    if set(have) == set(wanted):
        return "GPUs are missing or unhealthy, or an older configuration is in use; see the log of the device plugin"
    return "the device plugin works with another layout, strategy or configuration; see its log"


def stale_labels(one: NodeOffer, labels: Labels) -> str:
    """How GPU feature discovery differs from the plugin: then it runs with another configuration (P097)."""
    if one.offer is None:
        return ""
    for key, value in sorted(one.offer.labels.items()):
        if key in labels and labels[key] != value and not key.endswith(".count"):
            return f"has the label {key}={labels[key]}, computed was {value}"
    return ""
