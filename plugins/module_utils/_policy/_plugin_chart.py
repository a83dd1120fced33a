# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the device plugin's own Helm chart, read as values of the GPU Operator's chart (PLG-09).

What the chart checks is checked here too. Two of its values it reads at the wrong place (gfd.noTimestamp and
gfd.sleepInterval, which it looks for at the top): here both places work.
"""

from __future__ import annotations

import difflib
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._plan import ERROR, INFO, WARNING, Finding
from ._tree import MISSING, get, put

# Keys at the top that only this chart has.
SIGNS = (
    "migStrategy",
    "failOnInitError",
    "deviceListStrategy",
    "deviceIDStrategy",
    "deviceDiscoveryStrategy",
    "compatWithCPUManager",
    "gdrcopyEnabled",
    "gdsEnabled",
    "mofedEnabled",
    "nvidiaDriverRoot",
    "allowDefaultNamespace",
    "noTimestamp",
    "sleepInterval",
)
# And keys that it never has.
_OTHERS = (
    "driver",
    "toolkit",
    "dcgm",
    "dcgmExporter",
    "migManager",
    "operator",
    "daemonsets",
    "validator",
    "mig",
    "nodeStatusExporter",
    "node-feature-discovery",
    "sandboxWorkloads",
    "gdrcopy",
    "gds",
    "cudaToolkit",
    "extraObjects",
    "apiVersion",
    "kind",
)

_SAME: Tuple[Tuple[str, str], ...] = (
    ("migStrategy", "mig.strategy"),
    ("devicePlugin.enabled", "devicePlugin.enabled"),
    ("gfd.enabled", "gfd.enabled"),
    ("resources", "devicePlugin.resources"),
    ("image.tag", "devicePlugin.version"),
    ("image.pullPolicy", "devicePlugin.imagePullPolicy"),
    ("priorityClassName", "daemonsets.priorityClassName"),
    ("tolerations", "daemonsets.tolerations"),
    ("updateStrategy.type", "daemonsets.updateStrategy"),
    ("updateStrategy.rollingUpdate.maxUnavailable", "daemonsets.rollingUpdate.maxUnavailable"),
    ("runtimeClassName", "operator.runtimeClass"),
)
# Values that become variables of a container: of the plugin, or of feature discovery.
_PLUGIN_ENV: Tuple[Tuple[str, str], ...] = (
    ("failOnInitError", "FAIL_ON_INIT_ERROR"),
    ("deviceListStrategy", "DEVICE_LIST_STRATEGY"),
    ("deviceIDStrategy", "DEVICE_ID_STRATEGY"),
    ("deviceDiscoveryStrategy", "DEVICE_DISCOVERY_STRATEGY"),
    ("compatWithCPUManager", "PASS_DEVICE_SPECS"),
    ("gdrcopyEnabled", "GDRCOPY_ENABLED"),
    ("gdsEnabled", "GDS_ENABLED"),
    ("mofedEnabled", "MOFED_ENABLED"),
    ("cdi.nvidiaHookPath", "NVIDIA_CDI_HOOK_PATH"),
)
_GFD_ENV: Tuple[Tuple[str, str], ...] = (
    ("noTimestamp", "GFD_NO_TIMESTAMP"),
    ("sleepInterval", "GFD_SLEEP_INTERVAL"),
    ("gfd.noTimestamp", "GFD_NO_TIMESTAMP"),
    ("gfd.sleepInterval", "GFD_SLEEP_INTERVAL"),
)
_IDLE: Dict[str, str] = {
    "legacyDaemonsetAPI": "There is one API for DaemonSets.",
    "nameOverride": "Names are fixed.",
    "fullnameOverride": "Names are fixed.",
    "namespaceOverride": "Use the option namespace.",
    "selectorLabelsOverride": "Names are fixed.",
    "podAnnotations": "Write daemonsets.annotations.",
    "podSecurityContext": "Plugin and feature discovery run privileged.",
    "securityContext": "Plugin and feature discovery run privileged.",
    "nodeSelector": "The plugin runs where a node has the label nvidia.com/gpu.deploy.device-plugin=true.",
    "affinity": "The plugin runs where a node has the label nvidia.com/gpu.deploy.device-plugin=true.",
    "nvidiaDriverRoot": "The validator finds on each node where the driver is.",
    "mps": "A ClusterPolicy has devicePlugin.mps.root.",
    "nfd": "Write nfd.enabled and node-feature-discovery.",
    "imex": "Write it into the plugin's configuration.",
    "extraEnv": "Write devicePlugin.env.",
    "componentSelectorLabels": "Names are fixed.",
}
_READ = ("config", "image", "imagePullSecrets", "updateStrategy", "devicePlugin", "gfd", "cdi", "allowDefaultNamespace")
_NETWORK = "Pods of plugin and feature discovery have addresses of their own."
# What is below the keys that are read: the kind of each value, or why it has no effect here.
_TEXT, _SWITCH, _LIST, _MAP, _ANY = "a text", "true or false", "a list", "a map", ""
_BELOW: Dict[str, Dict[str, str]] = {
    "config": {"name": _TEXT, "map": _MAP, "default": _TEXT, "fallbackStrategies": _LIST},
    "image": {"repository": _TEXT, "tag": _TEXT, "pullPolicy": _TEXT},
    "updateStrategy": {"type": _TEXT, "rollingUpdate": _MAP},
    "updateStrategy.rollingUpdate": {"maxUnavailable": _ANY, "maxSurge": "It is 0."},
    "devicePlugin": {"enabled": _SWITCH, "enableHostNetwork": _NETWORK, "containers": "Write devicePlugin.env."},
    "gfd": {
        "enabled": _SWITCH,
        "noTimestamp": _ANY,
        "sleepInterval": _ANY,
        "enableHostNetwork": _NETWORK,
        "nameOverride": _IDLE["nameOverride"],
        "namespaceOverride": _IDLE["namespaceOverride"],
        "securityContext": _IDLE["securityContext"],
    },
    "cdi": {"nvidiaHookPath": _TEXT, "featureFlags": "Write devicePlugin.env."},
}
_KINDS: Dict[str, Any] = {_TEXT: str, _SWITCH: bool, _LIST: (list, tuple), _MAP: Mapping, _ANY: object}
FALLBACKS = ("named", "single", "empty")
_KNOWN = sorted({*SIGNS, *_READ, *_IDLE, "resources", "priorityClassName", "tolerations", "runtimeClassName"})


def is_plugin_chart(tree: Mapping[str, Any]) -> bool:
    """Whether values are those of the plugin's chart, by keys that no other form has."""
    return not is_other(tree) and (any(name in tree for name in SIGNS) or isinstance(tree.get("config"), Mapping))


def is_other(tree: Mapping[str, Any]) -> bool:
    """Whether a policy has keys that the plugin's chart never has. Without them it may go with either form."""
    return any(name in tree for name in _OTHERS)


def from_plugin_chart(tree: Mapping[str, Any], namespace: str = "") -> Tuple[Dict[str, Any], List[Finding]]:
    """Values of the operator's chart with the same meaning, and what is wrong or has no place there."""
    values: Dict[str, Any] = {}
    note = "The policy is read as values of the device plugin's own chart."
    findings = [Finding("policy.read-as", INFO, note, path="kind"), *_unknown(tree)]
    tree, wrong = _checked(tree)
    findings += wrong
    if namespace == "default" and not tree.get("allowDefaultNamespace"):
        detail = "is default, where the chart does not install itself."
        findings.append(
            Finding("policy.plugin-chart", ERROR, detail, path="namespace", remedy="Choose another namespace.")
        )
    for path, to in _SAME:
        value = get(tree, path)
        if value not in (MISSING, None, "", {}, []):
            put(values, to, value)
    findings += _image(tree, values)
    findings += _env(tree, _PLUGIN_ENV, values, "devicePlugin.env") + _env(tree, _GFD_ENV, values, "gfd.env")
    findings += _config(tree.get("config") or {}, values)
    return values, findings


def _unknown(tree: Mapping[str, Any]) -> List[Finding]:
    found = []
    for name, value in tree.items():
        if name not in _KNOWN:
            found.append(_no_such_key(str(name), _KNOWN))
        elif name in _IDLE:
            found += _no_effect(name, value, _IDLE[name])
    return found


def _no_such_key(path: str, known: Sequence[str]) -> Finding:
    near = difflib.get_close_matches(path, known, 1)
    remedy = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
    detail = "is unknown: the chart of the device plugin has no such key."
    return Finding("policy.unknown-key", ERROR, detail, path=path, remedy=remedy)


def _no_effect(path: str, value: Any, why: str) -> List[Finding]:
    if value in (None, "", {}, [], False):
        return []
    return [Finding("policy.no-effect", WARNING, "has no effect here.", path=path, remedy=why)]


def _checked(tree: Mapping[str, Any]) -> Tuple[Dict[str, Any], List[Finding]]:
    """The values without those below a key that are of a wrong kind or unknown, and a finding for each."""
    result, found = dict(tree), []
    for path, below in _BELOW.items():
        block = get(result, path)
        if block is MISSING or block is None:
            continue
        good: Dict[str, Any] = {}
        if isinstance(block, Mapping):
            for name, value in block.items():
                wrong = _wrong(f"{path}.{name}", value, below.get(str(name)), [f"{path}.{known}" for known in below])
                found += wrong
                good.update({} if wrong or value is None else {name: value})
        else:
            found.append(Finding("policy.type", ERROR, "is not a map.", path=path))
        put(result, path, good)
    return result, found


def _wrong(path: str, value: Any, kind: Optional[str], known: Sequence[str]) -> List[Finding]:
    """``kind``: of the table, None for a key that it does not have."""
    if kind is None:
        return [_no_such_key(path, known)]
    if kind not in _KINDS:
        return _no_effect(path, value, kind)
    # Blocks that have a table of their own are checked there.
    if value is None or path in _BELOW or isinstance(value, _KINDS[kind]):
        return []
    return [Finding("policy.type", ERROR, f"is not {kind}.", path=path)]


def _image(tree: Mapping[str, Any], values: Dict[str, Any]) -> List[Finding]:
    """The chart has the whole name as ``repository``; a tag alone stays with the usual image."""
    whole, tag = get(tree, "image.repository"), get(tree, "image.tag")
    given: Any = tree.get("imagePullSecrets")
    secrets = [one.get("name") if isinstance(one, Mapping) else one for one in given] if _is_list(given) else given
    if secrets:
        put(values, "devicePlugin.imagePullSecrets", secrets)
    if whole in (MISSING, ""):
        if tag in (MISSING, ""):
            return []
        whole = "nvcr.io/nvidia/k8s-device-plugin"
    folder, _slash, image = whole.rpartition("/")
    if not folder or not image:
        detail = f"is {whole[:100]!r}, which names no registry and folder."
        remedy = "Write it whole, like nvcr.io/nvidia/k8s-device-plugin."
        return [Finding("policy.plugin-chart", ERROR, detail, path="image.repository", remedy=remedy)]
    put(values, "devicePlugin.repository", folder)
    put(values, "devicePlugin.image", image)
    return []


def _env(tree: Mapping[str, Any], table: Tuple[Tuple[str, str], ...], values: Dict[str, Any], to: str) -> List[Finding]:
    made: Dict[str, str] = {}
    found = []
    for path, name in table:
        value = get(tree, path)
        if value in (MISSING, None, ""):
            continue
        items = value if _is_list(value) else [value]
        if all(isinstance(item, (str, bool, int)) for item in items):
            made[name] = ",".join(_text(item) for item in items)
        else:
            found.append(Finding("policy.type", ERROR, "is neither a text nor a switch.", path=path))
    if made:
        put(values, to, [{"name": name, "value": value} for name, value in made.items()])
    return found


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _config(config: Mapping[str, Any], values: Dict[str, Any]) -> List[Finding]:
    """Named configurations. Without a default the chart tries its fallbacks in order."""
    name, given, default = config.get("name") or "", config.get("map") or {}, config.get("default") or ""
    fallbacks = config.get("fallbackStrategies", ["named", "single"])
    unknown = [str(one)[:60] for one in fallbacks if one not in FALLBACKS]
    if unknown:
        detail = f"has {', '.join(unknown)}: {', '.join(FALLBACKS)} are allowed."
        return [Finding("policy.plugin-chart", ERROR, detail, path="config.fallbackStrategies")]
    if name and given:
        detail = "is given together with config.map."
        return [Finding("policy.plugin-chart", ERROR, detail, path="config.name", remedy="Keep one of them.")]
    if given and not default:
        default = _fallback(given, fallbacks)
        if not default and "empty" not in fallbacks:
            detail = f"is empty, and no fallback chooses one of the configurations: {', '.join(sorted(given))}."
            return [Finding("policy.plugin-chart", ERROR, detail, path="config.default", remedy="Name one of them.")]
    made = {"create": True, "name": "device-plugin-configs", "data": dict(given)} if given else {"name": name}
    if given or name:
        put(values, "devicePlugin.config", {**made, "default": default} if default else made)
    return []


def _fallback(given: Mapping[str, Any], fallbacks: Sequence[Any]) -> str:
    """The configuration of nodes that name none; "" where they have none."""
    for fallback in fallbacks:
        if fallback == "named" and "default" in given:
            return "default"
        if fallback == "single" and len(given) == 1:
            return str(next(iter(given)))
        if fallback == "empty":
            return ""
    return ""
