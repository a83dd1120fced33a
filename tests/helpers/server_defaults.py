# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the API server adds to objects that leave it out, as far as operands leave something out."""

from __future__ import annotations

import copy
from typing import Any

Object = dict[str, Any]

_PROBE = {"failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_POD = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}
_SERVICE = {"internalTrafficPolicy": "Cluster", "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None"}


def with_defaults(obj: Object) -> Object:
    """A copy of the object as the API server would store it."""
    made: Object = copy.deepcopy(obj)
    if made["kind"] == "DaemonSet":
        _daemonset(made["spec"])
    if made["kind"] == "Service":
        made["spec"] = {**_SERVICE, "ipFamilies": ["IPv4"], **made["spec"]}
    return made


def _daemonset(spec: Object) -> None:
    spec.setdefault("revisionHistoryLimit", 10)
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        rolling = spec["updateStrategy"].setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", 0)
        rolling.setdefault("maxUnavailable", 1)
    pod = spec["template"]["spec"]
    pod.update({**_POD, "securityContext": {}, "serviceAccount": pod["serviceAccountName"], **pod})
    for item in pod["containers"] + pod.get("initContainers", []):
        _container(item)
    for volume in pod["volumes"]:
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")
        for kind in ("configMap", "secret"):
            if kind in volume:
                volume[kind].setdefault("defaultMode", 0o644)


def _container(item: Object) -> None:
    item.update({**_CONTAINER, "resources": {}, **item})
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        if name in item:
            item[name] = {**_PROBE, **item[name]}
            if "httpGet" in item[name]:
                item[name]["httpGet"].setdefault("scheme", "HTTP")
    for variable in item.get("env", []):
        if "fieldRef" in variable.get("valueFrom", {}):
            variable["valueFrom"]["fieldRef"].setdefault("apiVersion", "v1")
