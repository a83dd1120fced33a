# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controllers and DaemonSets of others that do our work already: two device plugins on a node fight (S56)."""

from __future__ import annotations

import re
from typing import Any, List, Mapping, Optional, Tuple

from .._kube._resources import ours
from .._plan import ERROR, INFO, WARNING, Finding
from .._policy._model import Policy
from ._world import World

PLUGIN = "device plugin"
# What it is, and how a container's image tells. GKE's and EKS's own carry these names as well.
_KNOWN: Tuple[Tuple[str, re.Pattern[str]], ...] = (
    (PLUGIN, re.compile(r"(^|/)(nvidia-gpu-device-plugin|k8s-device-plugin|nvidia-device-plugin)(?=[:@]|$)")),
    (
        "driver installer",
        re.compile(r"(^|/)(cos-nvidia-installer|ubuntu-nvidia-driver-installer|nvidia-driver-installer)"),
    ),
    ("GPU feature discovery", re.compile(r"(^|/)gpu-feature-discovery(?=[:@]|$)")),
    ("MIG manager", re.compile(r"(^|/)k8s-mig-manager(?=[:@]|$)")),
)
_SOCKETS = "/var/lib/kubelet/device-plugins"
_FEATURES = ("gpu-feature-discovery", "gfd")


def judge(world: World) -> List[Finding]:
    found = list(world.rivals)
    if found:
        return found  # the operator's own DaemonSets are no further finding
    for daemonset in world.daemonsets:
        what = None if ours(daemonset) else what_is(daemonset)
        if what is not None:
            found += _judged(world.policy, daemonset, what)
    return found


def what_is(daemonset: Mapping[str, Any]) -> Optional[str]:
    """Which part of the stack a DaemonSet is; None when it is none."""
    spec = daemonset["spec"]["template"]["spec"]
    for container in spec.get("containers") or []:
        image = str(container.get("image", ""))
        command = [*(container.get("command") or []), *(container.get("args") or [])]
        if any(str(word).rsplit("/", 1)[-1] in _FEATURES for word in command[:1]):
            return "GPU feature discovery"
        for what, pattern in _KNOWN:
            if pattern.search(image):
                return what
    name = str(daemonset["metadata"]["name"])
    mounts = [str((volume.get("hostPath") or {}).get("path", "")) for volume in spec.get("volumes") or []]
    sockets = any(path.rstrip("/") == _SOCKETS for path in mounts)
    return PLUGIN if sockets and "nvidia" in name and "plugin" in name else None


def _judged(policy: Policy, daemonset: Mapping[str, Any], what: str) -> List[Finding]:
    meta = daemonset["metadata"]
    target = f"DaemonSet {meta['namespace']}/{meta['name']}"
    nodes = int((daemonset.get("status") or {}).get("desiredNumberScheduled") or 0)
    on = f"{nodes} node{'s' * (nodes != 1)}"
    wanted, key = {
        PLUGIN: (policy.device_plugin.enabled, "devicePlugin.enabled"),
        "driver installer": (policy.driver.enabled, "driver.enabled"),
        "GPU feature discovery": (policy.gfd.enabled, "gfd.enabled"),
        "MIG manager": (policy.mig_manager.enabled, "migManager.enabled"),
    }[what]
    if not wanted or not nodes:
        why = f"{key} is false here" if not wanted else "no node has it now"
        return [Finding("rival-idle", INFO, f"is another {what} on {on}; {why}, so they do not meet", target, key)]
    detail = f"is a {what} that runs on {on} already; ours beside it would fight it"
    remedy = f"Set {key}: false to keep it, or remove it{_cloud(daemonset)}."
    return [Finding("rival", ERROR if what == PLUGIN else WARNING, detail, target, key, remedy)]


def _cloud(daemonset: Mapping[str, Any]) -> str:
    """How a cloud's own device plugin is kept off nodes."""
    if "gke" in str(daemonset["spec"]["template"]["spec"].get("affinity") or ""):
        return " from the nodes by the label gke-no-default-nvidia-gpu-device-plugin=true on the node pool"
    return ""
