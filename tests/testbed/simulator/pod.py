# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod as a node sees it: each container's program, environment, and what lies behind each path that it mounts."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .nodefs import normal

Object = dict[str, Any]


class ConfigError(Exception):
    """The kubelet cannot make the container's environment (CreateContainerConfigError)."""


@dataclass(frozen=True)
class Place:
    """Where a path of a container leads: ``kind`` is host, configMap, secret, emptyDir or projected; ``path`` is
    the host path
    (host), or the path inside the volume."""

    kind: str
    path: str
    volume: Object
    mount: Object

    @property
    def read_only(self) -> bool:
        return bool(self.mount.get("readOnly"))

    @property
    def propagation(self) -> str:
        return str(self.mount.get("mountPropagation") or "None")


class Container:
    def __init__(self, pod: PodView, spec: Object, init: bool) -> None:
        self.pod = pod
        self.spec = spec
        self.init = init
        self.name: str = spec["name"]
        self.image: str = spec.get("image", "")
        self._places: dict[str, Place | None] = {}
        self.argv: list[str] = [*(spec.get("command") or []), *(spec.get("args") or [])]

    def env(self, world: Any) -> dict[str, str]:
        """Values as the process gets them. Raises ConfigError where a source is missing."""
        out: dict[str, str] = {}
        for source in self.spec.get("envFrom") or []:
            for kind, find in (("secretRef", world.secret), ("configMapRef", world.configmap)):
                if kind in source:
                    what = "secret" if kind == "secretRef" else "configmap"
                    name = source[kind].get("name", "")
                    data = find(self.pod.namespace, name)
                    if data is None and not source[kind].get("optional"):
                        raise ConfigError(f'{what} "{name}" not found')
                    out.update({source.get("prefix", "") + k: v for k, v in (data or {}).items()})
        for item in self.spec.get("env") or []:
            if "valueFrom" in item:
                value = self._from(item["valueFrom"], world)
                if value is not None:
                    out[item["name"]] = value
            else:
                out[item["name"]] = item.get("value") or ""
        return out

    def _from(self, source: Object, world: Any) -> str | None:
        if "fieldRef" in source:
            return self.pod.field(source["fieldRef"].get("fieldPath", ""))
        for kind, find, what in (
            ("configMapKeyRef", world.configmap, "configmap"),
            ("secretKeyRef", world.secret, "secret"),
        ):
            if kind in source:
                ref = source[kind]
                data = find(self.pod.namespace, ref.get("name", ""))
                if data is None:
                    if ref.get("optional"):
                        return None
                    raise ConfigError(f'{what} "{ref.get("name", "")}" not found')
                if ref.get("key") not in data:
                    if ref.get("optional"):
                        return None
                    raise ConfigError(
                        f"couldn't find key {ref.get('key')} in {what.capitalize()} "
                        f"{self.pod.namespace}/{ref.get('name')}"
                    )
                return str(data[ref["key"]])
        return ""

    def place(self, path: str) -> Place | None:
        """What a path of the container is mounted from; None when it lies in the image."""
        if path not in self._places:
            self._places[path] = self._place(path)
        return self._places[path]

    def _place(self, path: str) -> Place | None:
        path = posixpath.normpath(path)
        best: Object | None = None
        best_at = ""
        for mount in self.spec.get("volumeMounts") or []:
            at = posixpath.normpath(mount["mountPath"])
            if (path == at or path.startswith(at.rstrip("/") + "/")) and len(at) > len(best_at):
                best, best_at = mount, at
        if best is None:
            return None
        volume = self.pod.volumes.get(best["name"])
        if volume is None:
            return None
        rest = path[len(best_at) :].lstrip("/") if best_at != "/" else path.lstrip("/")
        rest = (
            posixpath.normpath(posixpath.join(best.get("subPath") or "", rest)) if rest or best.get("subPath") else ""
        )
        rest = "" if rest == "." else rest
        if "hostPath" in volume:
            return Place("host", normal(posixpath.join(volume["hostPath"]["path"], rest)), volume, best)
        for kind in ("configMap", "secret", "emptyDir", "projected"):
            if kind in volume:
                return Place(kind, rest, volume, best)
        return Place("other", rest, volume, best)

    @property
    def privileged(self) -> bool:
        return bool((self.spec.get("securityContext") or {}).get("privileged"))

    @property
    def user(self) -> int | None:
        own = (self.spec.get("securityContext") or {}).get("runAsUser")
        return own if own is not None else (self.pod.spec.get("securityContext") or {}).get("runAsUser")


class PodView:
    def __init__(self, obj: Object) -> None:
        self.obj = obj
        self.meta: Object = obj["metadata"]
        self.spec: Object = obj["spec"]
        self.name: str = self.meta["name"]
        self.namespace: str = self.meta["namespace"]
        self.uid: str = self.meta.get("uid", "")
        self.node_name: str = self.spec.get("nodeName", "")
        self.service_account: str = self.spec.get("serviceAccountName") or "default"
        self.volumes: dict[str, Object] = {v["name"]: v for v in self.spec.get("volumes") or []}
        self.inits = [Container(self, c, True) for c in self.spec.get("initContainers") or []]
        self.mains = [Container(self, c, False) for c in self.spec.get("containers") or []]

    def field(self, path: str) -> str:
        status = self.obj.get("status") or {}
        fixed: dict[str, Callable[[], str]] = {
            "metadata.name": lambda: self.name,
            "metadata.namespace": lambda: self.namespace,
            "metadata.uid": lambda: self.uid,
            "spec.nodeName": lambda: self.node_name,
            "spec.serviceAccountName": lambda: self.service_account,
            "status.hostIP": lambda: status.get("hostIP", ""),
            "status.podIP": lambda: status.get("podIP", ""),
        }
        if path in fixed:
            return fixed[path]()
        for kind in ("labels", "annotations"):
            if path.startswith(f"metadata.{kind}['"):
                return str((self.meta.get(kind) or {}).get(path.split("'")[1], ""))
        return ""

    @property
    def annotations(self) -> dict[str, str]:
        return self.meta.get("annotations") or {}

    @property
    def token_mounted(self) -> bool:
        return self.spec.get("automountServiceAccountToken") is not False
