# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the device plugin's own Helm chart, read as values of the GPU Operator's chart (PLG-09).

What the chart checks is checked here too. Two of its values it reads at the wrong place (gfd.noTimestamp and
gfd.sleepInterval, which it looks for at the top): here both places work.
"""

from __future__ import annotations

import difflib
from typing import Any, Dict, List, Mapping, Tuple

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
_OTHERS = ("driver", "toolkit", "dcgm", "dcgmExporter", "migManager", "operator", "daemonsets", "validator", "mig")

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
}
_READ = ("config", "image", "imagePullSecrets", "updateStrategy", "devicePlugin", "gfd", "cdi", "allowDefaultNamespace")
_KNOWN = sorted({*SIGNS, *_READ, *_IDLE, "resources", "priorityClassName", "tolerations", "runtimeClassName"})


def is_plugin_chart(tree: Mapping[str, Any]) -> bool:
    """Whether values are those of the plugin's chart, by keys that no other form has."""
    if any(name in tree for name in (*_OTHERS, "apiVersion", "kind")):
        return False
    return any(name in tree for name in SIGNS) or isinstance(tree.get("config"), Mapping)


def from_plugin_chart(tree: Mapping[str, Any], namespace: str = "") -> Tuple[Dict[str, Any], List[Finding]]:
    """Values of the operator's chart with the same meaning, and what is wrong or has no place there."""
    values: Dict[str, Any] = {}
    note = "The policy is read as values of the device plugin's own chart."
    findings = [Finding("policy.read-as", INFO, note, path="kind"), *_unknown(tree)]
    if namespace == "default" and not tree.get("allowDefaultNamespace"):
        detail = "is default, where the chart does not install itself."
        findings.append(
            Finding("policy.plugin-chart", ERROR, detail, path="namespace", remedy="Choose another namespace.")
        )
    for path, to in _SAME:
        value = get(tree, path)
        if value not in (MISSING, None, "", {}, []):
            put(values, to, value)
    _image(tree, values)
    findings += _env(tree, _PLUGIN_ENV, values, "devicePlugin.env") + _env(tree, _GFD_ENV, values, "gfd.env")
    findings += _config(tree.get("config") or {}, values)
    return values, findings


def _unknown(tree: Mapping[str, Any]) -> List[Finding]:
    found = []
    for name, value in tree.items():
        if name not in _KNOWN:
            near = difflib.get_close_matches(str(name), _KNOWN, 1)
            remedy = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(_KNOWN)}."
            detail = "is unknown: the chart of the device plugin has no such key."
            found.append(Finding("policy.unknown-key", ERROR, detail, path=str(name), remedy=remedy))
        elif name in _IDLE and value not in (None, "", {}, [], False):
            found.append(Finding("policy.no-effect", WARNING, "has no effect here.", path=name, remedy=_IDLE[name]))
    return found


def _image(tree: Mapping[str, Any], values: Dict[str, Any]) -> None:
    """The chart has the whole name as ``repository``; a tag alone stays with the usual image."""
    whole, tag = get(tree, "image.repository"), get(tree, "image.tag")
    if isinstance(whole, str) and "/" in whole and tag not in (MISSING, None, ""):
        folder, _slash, image = whole.rpartition("/")
        put(values, "devicePlugin.repository", folder)
        put(values, "devicePlugin.image", image)
    elif tag not in (MISSING, None, ""):
        put(values, "devicePlugin.repository", "nvcr.io/nvidia")
        put(values, "devicePlugin.image", "k8s-device-plugin")
    given: Any = tree.get("imagePullSecrets")
    secrets = [one.get("name") if isinstance(one, Mapping) else one for one in given] if _is_list(given) else given
    if secrets:
        put(values, "devicePlugin.imagePullSecrets", secrets)


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


def _config(config: Any, values: Dict[str, Any]) -> List[Finding]:
    """Named configurations. Without a default the chart takes the one called default, or the only one."""
    if not isinstance(config, Mapping):
        return [Finding("policy.type", ERROR, "is not a map.", path="config")]
    name, given, default = config.get("name") or "", config.get("map") or {}, config.get("default") or ""
    if not isinstance(given, Mapping):
        return [Finding("policy.type", ERROR, "is not a map of configurations.", path="config.map")]
    if name and given:
        detail = "is given together with config.map."
        return [Finding("policy.plugin-chart", ERROR, detail, path="config.name", remedy="Keep one of them.")]
    if given and not default:
        default = "default" if "default" in given else next(iter(given)) if len(given) == 1 else ""
        if not default:
            detail = f"is empty, and there are several configurations: {', '.join(sorted(given))}."
            return [Finding("policy.plugin-chart", ERROR, detail, path="config.default", remedy="Name one of them.")]
    made = {"create": True, "name": "device-plugin-configs", "data": dict(given)} if given else {"name": name}
    if given or name:
        put(values, "devicePlugin.config", {**made, "default": default} if default else made)
    return []
