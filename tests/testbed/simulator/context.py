# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program in a container can see and do: its own spec, the node, the cluster through its ServiceAccount,
and time.

A program is a function ``step(c: Ctx) -> Up | Done``, called again and again. It raises Wait to be called again
later (in life: a loop that sleeps) and Crash to end with an error. It keeps notes in ``c.mem``, which a restart of
the container empties.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import shell
from .faults import Faults
from .hidden import HideError, hidden
from .node import VALIDATIONS, VFIO, Node
from .nodefs import normal
from .pod import Container, Object, Place, PodView

__all__ = ["VALIDATIONS", "ApiError", "Crash", "Ctx", "Done", "Object", "PodApi", "Up", "Wait", "World"]


class Wait(Exception):
    """Not yet: look again when the node changes, or after ``seconds`` (unscaled)."""

    def __init__(self, reason: str, seconds: float = 5.0, timer: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.seconds, self.timer = reason, seconds, timer


class Crash(Exception):
    """The process ends with an error; the message is the last line of its log."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.message, self.code = message, code


class ApiError(Exception):
    """An answer of the API server that is not a success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class PodApi(Protocol):
    """Calls with the token of a pod's ServiceAccount."""

    def get(self, path: str) -> Object: ...
    def post(self, path: str, body: Object) -> Object: ...
    def put(self, path: str, body: Object) -> Object: ...
    def patch(self, path: str, body: Object) -> Object: ...
    def delete(self, path: str, grace: int | None = None) -> Object: ...
    def can(self, verb: str, group: str, resource: str, namespace: str = "") -> bool: ...


@dataclass(frozen=True)
class Up:
    """The main process runs. ``listens``: port -> paths that answer (empty: plain TCP)."""

    ready: bool = True
    message: str = ""
    listens: dict[int, tuple[str, ...]] = field(default_factory=dict)
    again: float = math.inf  # unscaled seconds until it looks again by itself


@dataclass(frozen=True)
class Done:
    message: str = ""


class World:
    """The cluster as the simulator's caches know it, and simulated time. Tests make one without a cluster."""

    def __init__(
        self, faults: Faults | None = None, speed: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.faults = faults or Faults()
        self.speed = speed
        self.clock = clock
        self.nodes: dict[str, Node] = {}
        self.gone_nodes: set[str] = set()
        self.configmaps: dict[tuple[str, str], Object] = {}
        self.services: dict[tuple[str, str], Object] = {}
        self.runtime_classes: dict[str, str] = {}
        self.secret_reader: Callable[[str, str], Object | None] = lambda namespace, name: None
        self.pods_on: Callable[[str], Iterable[Object]] = lambda node: ()
        self.features_by_node: dict[str, dict[tuple[str, str], Object]] = {}  # NodeFeature objects
        self.feature_rules: dict[str, Object] = {}
        self.feature_log: list[
            str
        ] = []  # nodes whose NodeFeature objects changed, in order; "" after a change of a rule

    def now(self) -> float:
        return self.clock()

    def scaled(self, seconds: float) -> float:
        return 0.0 if math.isinf(self.speed) else seconds / self.speed

    def features_of(self, node: str) -> list[Object]:
        """NodeFeature objects of a node, of all namespaces."""
        return list(self.features_by_node.get(node, {}).values())

    def tell_feature(self, kind: str, item: Object) -> None:
        """A NodeFeature object came, changed or went."""
        key = (item["metadata"]["namespace"], item["metadata"]["name"])
        node = (item["metadata"].get("labels") or {}).get("nfd.node.kubernetes.io/node-name", "")
        mine = self.features_by_node.setdefault(node, {})
        if kind == "DELETED":
            mine.pop(key, None)
        else:
            mine[key] = item
        self.feature_log.append(node)

    def tell_rule(self, kind: str, item: Object) -> None:
        if kind == "DELETED":
            self.feature_rules.pop(item["metadata"]["name"], None)
        else:
            self.feature_rules[item["metadata"]["name"]] = item
        self.feature_log.append("")

    def configmap(self, namespace: str, name: str) -> dict[str, str] | None:
        found = self.configmaps.get((namespace, name))
        return None if found is None else (found.get("data") or {})

    def secret(self, namespace: str, name: str) -> dict[str, str] | None:
        found = self.secret_reader(namespace, name)
        return None if found is None else (found.get("data") or {})


@dataclass
class Ctx:
    pod: PodView
    container: Container
    node: Node
    world: World
    api: PodApi
    env: dict[str, str]
    mem: dict[str, Any]
    volumes: dict[str, dict[str, str]]  # emptyDir volumes of the pod: name -> files
    image: Any = None
    log: list[str] = field(default_factory=list)

    # -- time

    def spend(self, what: str, seconds: float) -> None:
        """Lets simulated time pass once: raises Wait until it has."""
        key = f"spend:{what}"
        started = self.mem.setdefault(key, self.world.now())
        left = started + self.world.scaled(seconds) - self.world.now()
        if left > 0:
            raise Wait(what, left, timer=True)

    # -- what the container was given

    def need_env(self, name: str, why: str) -> str:
        value = self.env.get(name, "")
        if not value:
            raise Crash(f"{name} is not set: {why}")
        return value

    def need_mount(
        self, path: str, why: str, host: str | None = None, propagation: str = "", writable: bool = False
    ) -> Place:
        """A host folder or file behind a path. Crash, naming the path, where it is missing or another one."""
        place = self.container.place(path)
        if place is None or place.kind != "host":
            raise Crash(f"{path}: no such file or directory (nothing of the host is mounted there): {why}")
        if host is not None and place.path != normal(host):
            raise Crash(f"{path} is {place.path} of the host, not {host}: {why}")
        if propagation and place.propagation != propagation and place.propagation != "Bidirectional":
            raise Crash(f"{path}: mount propagation is {place.propagation}, {propagation} is needed: {why}")
        if writable and place.read_only:
            raise Crash(f"{path}: read-only file system: {why}")
        return place

    def need_privileged(self, why: str) -> None:
        if not self.container.privileged:
            raise Crash(f"operation not permitted (the container is not privileged): {why}")

    def need_host_pid(self, why: str) -> None:
        if not self.pod.spec.get("hostPID"):
            raise Crash(f"the processes of the host are not visible (hostPID is not set): {why}")

    def need_token(self, why: str) -> None:
        if not self.pod.token_mounted:
            raise Crash(f"open /var/run/secrets/kubernetes.io/serviceaccount/token: no such file or directory: {why}")

    # -- files as the container sees them

    def read(self, path: str) -> str | None:
        place = self.container.place(path)
        if place is None:
            return None
        if place.kind == "host":
            return self.node.fs.read(place.path)
        if place.kind == "emptyDir":
            return self.volumes.get(place.volume["name"], {}).get(place.path)
        if place.kind in ("configMap", "secret"):
            return self._config_files(place).get(place.path)
        return None

    def _config_files(self, place: Place) -> dict[str, str]:
        source = place.volume[place.kind]
        name = source.get("name") or source.get("secretName", "")
        data = (self.world.configmap if place.kind == "configMap" else self.world.secret)(
            self.pod.namespace, name
        ) or {}
        if source.get("items"):
            return {item["path"]: data[item["key"]] for item in source["items"] if item["key"] in data}
        return dict(data)

    def listing(self, path: str) -> list[str] | None:
        """File names in a folder, None when there is no such folder."""
        place = self.container.place(path)
        if place is None:
            return None
        if place.kind == "host":
            return self.node.fs.listing(place.path) if self.node.fs.is_folder(place.path) else None
        if place.kind == "emptyDir":
            return sorted(self.volumes.get(place.volume["name"], {}))
        if place.kind in ("configMap", "secret"):
            return sorted(self._config_files(place))
        return None

    def exists(self, path: str) -> bool:
        place = self.container.place(path)
        if place is not None and place.kind == "host":
            return self.node.fs.exists(place.path)
        return self.read(path) is not None

    def write(self, path: str, text: str, why: str = "") -> None:
        place = self.container.place(path)
        if place is None:
            raise Crash(f"open {path}: no such file or directory (nothing is mounted there){': ' + why if why else ''}")
        if place.read_only:
            raise Crash(f"open {path}: read-only file system{': ' + why if why else ''}")
        if place.kind == "host":
            self.node.write(place.path, text)
        elif place.kind == "emptyDir":
            self.volumes.setdefault(place.volume["name"], {})[place.path] = text

    def remove(self, path: str) -> None:
        place = self.container.place(path)
        if place is not None and place.kind == "host":
            self.node.remove(place.path)

    # -- scripts

    def script(self) -> shell.Script | None:
        """The shell text that this container runs, through one file from a ConfigMap if it names one."""
        script = shell.of_argv(self.container.argv)
        if script is None:
            return None
        if len(script.command) == 1 and script.command[0].startswith("/") and not script.waits:
            path = script.command[0]
            place = self.container.place(path)
            if place is None or place.kind not in ("configMap", "secret"):
                return script
            text = self.read(path)
            mode = place.volume[place.kind].get("defaultMode", 0o644)
            for item in place.volume[place.kind].get("items") or []:
                mode = item.get("mode", mode) if item["path"] == place.path else mode
            if text is None or not mode & 0o111:
                raise Crash(f"/bin/sh: 1: {path}: Permission denied", 126)
            return shell.read(text)
        return script

    def follow(self, script: shell.Script) -> bool:
        """Waits for the script's files, then takes over what it sources. False where the script ends before that."""
        for step in script.steps:
            if step.value:
                if ((self.read(step.paths[0]) or "").strip() == step.value) is step.equal:
                    return False
            elif not any(self.exists(path) for path in step.paths):
                unseen = [path for path in step.paths if not self.container.place(path)]
                raise Wait(f"waiting for {' or '.join(step.paths)}{' (nothing is mounted there)' if unseen else ''}")
        for path in script.sources:
            text = self.read(path)
            if text is None:
                raise Crash(f"/bin/sh: 1: .: cannot open {path}: No such file", 2)
            for line in text.splitlines():
                key, equals, value = line.partition("=")
                if equals:
                    self.env[key.strip().removeprefix("export ")] = value.strip().strip("'\"")
        return True

    # -- the GPU

    def gpu_injected(self, default: str = "") -> bool:
        """Whether the runtime gave this container the driver's files and devices.

        By the runtime class (or default runtime) nvidia and NVIDIA_VISIBLE_DEVICES, or by the NRI plugin and the
        annotation.
        ``default``: what the image sets NVIDIA_VISIBLE_DEVICES to.
        """
        note = self.pod.annotations.get(f"nvidia.cdi.k8s.io/container.{self.container.name}")
        if note and self.node.nri:
            return True
        handler = self.handler
        if "nvidia-container-runtime" not in self.node.handlers.get(handler, ""):
            return False
        visible = self.env.get("NVIDIA_VISIBLE_DEVICES", default)
        return visible not in ("", "void", "none")

    @property
    def handler(self) -> str:
        name = self.pod.spec.get("runtimeClassName")
        return self.world.runtime_classes.get(name, "") if name else self.node.default_handler

    def need_gpu(self, what: str, default: str = "all") -> None:
        """NVML answers inside the container."""
        if not self.gpu_injected(default):
            raise Crash(
                f"{what}: libnvidia-ml.so.1 not found: the container runtime gave no driver to this container "
                f"(runtimeClassName {self.pod.spec.get('runtimeClassName')!r}, handler {self.handler!r}, "
                f"NVIDIA_VISIBLE_DEVICES {self.env.get('NVIDIA_VISIBLE_DEVICES', default)!r})"
            )
        if not self.node.driver_loaded:
            raise Crash(f"{what}: Failed to initialize NVML: Driver Not Loaded")

    @property
    def gpus(self) -> list[Any]:
        """What the process sees: none that a VFIO driver has, that a fault takes away, or that its own script hid."""
        if "hidden" not in self.mem:
            try:
                self.mem["hidden"] = hidden(self)
            except HideError as error:
                raise Crash(str(error)) from None
        seen = self.node.gpus[: self.world.faults.visible_gpus(self.node.name, len(self.node.gpus))]
        return [gpu for gpu in seen if gpu.driver not in VFIO and gpu.uuid not in self.mem["hidden"]]

    def bring_about(self, wanted: str, work: Callable[[Ctx, str], Iterator[str]]) -> str | None:
        """What a manager does for the setting that a label names, look by look; None once it is there.

        ``work`` yields what it waits for, goes on with ``mem["c"]``, and is begun anew for another setting.
        """
        if self.mem.get("work", ("", None))[0] != wanted:
            self.mem["work"] = (wanted, work(self, wanted))
        self.mem["c"] = self
        return next(self.mem["work"][1], None)

    # -- the API, as the ServiceAccount

    def need_right(self, verb: str, group: str, resource: str, namespace: str = "") -> None:
        """A right that the program uses in a way which this simulator does not repeat (watches). Crash with the
        server's words."""
        self.need_token(f"{resource} cannot be asked for")
        if not self.api.can(verb, group, resource, namespace):
            user = f"system:serviceaccount:{self.pod.namespace}:{self.pod.service_account}"
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            raise Crash(
                f"failed to {verb} {resource}: {resource} is forbidden: User {user!r} cannot {verb} resource "
                f'"{resource}" in API group "{group}" {where}'
            )

    def call(self, what: str, do: Callable[[PodApi], Object]) -> Object:
        """One call with the pod's token; a refusal ends the process, with the server's words."""
        self.need_token(what)
        try:
            return do(self.api)
        except ApiError as error:
            if error.status in (429, 500, 503, 504):
                raise Wait(f"{what}: {error.message}", 1.0, timer=True) from None
            raise Crash(f"{what}: {error.message}") from None
