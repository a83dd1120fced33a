# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's part: volumes, sandbox, images, init containers in order, probes, restarts, and the pod's status."""

from __future__ import annotations

import datetime
import fnmatch
import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from . import operands, registry, shell
from .context import Crash, Ctx, Done, PodApi, Up, Wait, World
from .node import Node
from .nodefs import normal
from .pod import ConfigError, Container, Object, PodView

BACKOFF_FIRST, BACKOFF_MAX = 10.0, 300.0
# At full speed nothing waits, but what fails is still not tried in a hot loop.
RETRY_FLOOR, RETRY_CEILING = 0.25, 4.0
HOST_FILES = {
    "File": "file", "FileOrCreate": "file", "Socket": "socket", "CharDevice": "character device",
    "BlockDevice": "block device",
}  # fmt: skip


def timestamp() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class ContainerRun:
    """What has become of one container."""

    state: Object = field(default_factory=dict)  # waiting, running or terminated, as in the status
    last: Object = field(default_factory=dict)
    restarts: int = 0
    failures: int = 0
    ready: bool = False
    started: bool | None = None
    retry_at: float = 0.0
    pulled: bool = False
    pull_failed: bool = False
    mem: dict[str, Any] = field(default_factory=dict)
    image: Any = None
    up: Up | None = None
    waits: int = 0
    done: bool = False
    number: int = 0
    log: list[str] = field(default_factory=list)

    @property
    def crash_looping(self) -> bool:
        return bool(self.state.get("waiting", {}).get("reason") == "CrashLoopBackOff")

    def waiting(self, reason: str, message: str = "") -> None:
        self.state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        self.ready, self.started = False, False


@dataclass
class PodRun:
    """What a node keeps of a pod between looks at it."""

    containers: dict[str, ContainerRun] = field(default_factory=dict)
    volumes: dict[str, dict[str, str]] = field(default_factory=dict)
    sandbox: bool = False
    ip: str = ""
    started: str = ""
    phase: str = "Pending"
    conditions: dict[str, Object] = field(default_factory=dict)
    told: set[tuple[str, str]] = field(default_factory=set)
    sent: Object = field(default_factory=dict)
    status: Object = field(default_factory=dict)
    status_of: tuple[Any, ...] = ()  # what the status was made from
    problem: str = ""  # what keeps the pod from being ready, for logs and tests

    def of(self, name: str) -> ContainerRun:
        return self.containers.setdefault(name, ContainerRun())


@dataclass
class Sync:
    status: Object
    events: list[tuple[str, str, str]]  # type, reason, message
    delay: float  # real seconds until the next look; infinite: only when something changes


class _Look:
    """One look at a pod."""

    def __init__(self, run: PodRun, pod: PodView, node: Node, world: World, api: PodApi) -> None:
        self.run, self.pod, self.node, self.world, self.api = run, pod, node, world, api
        self.events: list[tuple[str, str, str]] = []
        self.delay = math.inf

    def event(self, reason: str, message: str, kind: str = "Warning") -> None:
        if (reason, message) not in self.run.told:
            self.run.told.add((reason, message))
            self.events.append((kind, reason, message))

    def again(self, seconds: float) -> None:
        self.delay = min(self.delay, max(seconds, 0.005))

    def retry(self, attempt: int, first: float = BACKOFF_FIRST, most: float = BACKOFF_MAX) -> float:
        factor = 2.0 ** min(attempt, 10)
        return max(self.world.scaled(min(most, first * factor)), min(RETRY_CEILING, RETRY_FLOOR * factor))

    # -- before containers

    def volumes_problem(self) -> str | None:
        for name, volume in self.pod.volumes.items():
            problem = None
            if "hostPath" in volume:
                problem = self.host_path_problem(volume["hostPath"]["path"], volume["hostPath"].get("type") or "")
            elif "configMap" in volume:
                problem = self.keys_problem("configmap", volume["configMap"], self.world.configmap)
            elif "secret" in volume:
                problem = self.keys_problem("secret", volume["secret"], self.world.secret)
            if problem:
                return f'MountVolume.SetUp failed for volume "{name}" : {problem}'
        return None

    def host_path_problem(self, path: str, kind: str) -> str | None:
        fs = self.node.fs
        if not fs.exists(path):
            if kind in ("", "DirectoryOrCreate"):  # without a type the runtime makes what is missing
                fs.make(path)
            elif kind == "FileOrCreate":
                fs.write(path, "")
        if kind in ("Directory", "DirectoryOrCreate") and not fs.is_folder(path):
            return f"hostPath type check failed: {path} is not a directory"
        if kind in HOST_FILES and (not fs.exists(path) or fs.is_folder(path)):
            return f"hostPath type check failed: {path} is not a {HOST_FILES[kind]}"
        return None

    def keys_problem(self, what: str, source: Object, find: Callable[[str, str], Object | None]) -> str | None:
        wanted = source.get("name") or source.get("secretName", "")
        data = find(self.pod.namespace, wanted)
        if source.get("optional"):
            return None
        if data is None:
            return f'{what} "{wanted}" not found'
        for item in source.get("items") or []:
            if item["key"] not in data:
                return f"{what} references non-existent config key: {item['key']}"
        return None

    def sandbox_problem(self) -> str | None:
        name = self.pod.spec.get("runtimeClassName")
        if not name:
            return None
        handler = self.world.runtime_classes.get(name)
        if handler is None:
            return f'failed to get sandbox runtime: runtimeclass.node.k8s.io "{name}" not found'
        unknown = handler != "runc" and self.world.faults.of(self.node.name, "no_handler")
        if handler not in self.node.handlers or unknown:
            if self.node.runtime == "cri-o":
                return f"failed to find runtime handler {handler} from runtime list map[runc:{{}}]"
            return f'failed to get sandbox runtime: no runtime for "{handler}" is configured'
        binary = self.node.handlers[handler]
        if not self.node.fs.exists(binary) and binary != "/usr/bin/runc":
            return (
                "failed to start sandbox: failed to create containerd task: failed to create shim task: "
                f'exec: "{binary}": stat {binary}: no such file or directory'
            )
        return None

    # -- one container

    def advance(self, container: Container) -> bool:
        """Moves one container on as far as it goes now. True when an init container is done or a main one runs."""
        state = self.run.of(container.name)
        if state.done:
            return True
        now = self.world.now()
        if not state.pulled and not self.pull(container, state, now):
            return False
        if self.backing_off(container, state, now):
            return False
        if "running" not in state.state:
            self.start(state)
        if "env" not in state.mem:
            try:
                state.mem["env"] = container.env(self.world)
            except ConfigError as error:
                state.waiting("CreateContainerConfigError", str(error))
                self.event("Failed", f"Error: {error}")
                self.run.problem = f"{container.name}: {error}"
                self.again(self.retry(0, 5.0, 5.0))
                return False
        return self.step(container, state, context(self.run, container, self.node, self.world, self.api))

    def backing_off(self, container: Container, state: ContainerRun, now: float) -> bool:
        """Whether a container that failed has to wait. The status shows its end first, then the back-off."""
        if not ("terminated" in state.state or state.crash_looping):
            return False
        if state.mem.pop("shown", False):
            state.retry_at = max(state.retry_at, now + RETRY_FLOOR)  # a late look must not skip the back-off
            name = f"{self.pod.name}_{self.pod.namespace}({self.pod.uid})"
            wait = round(min(BACKOFF_MAX, BACKOFF_FIRST * 2 ** (state.failures - 1)))
            message = f"back-off {wait}s restarting failed container={container.name} pod={name}"
            state.last = state.state
            state.waiting("CrashLoopBackOff", message)
            self.event("BackOff", f"Back-off restarting failed container {container.name} in pod {name}")
        if now >= state.retry_at:
            return False
        ended = state.state.get("terminated") or state.last.get("terminated") or {}
        self.run.problem = f"{container.name}: {ended.get('message', 'it ended')}"
        self.again(state.retry_at - now)
        return True

    def pull(self, container: Container, state: ContainerRun, now: float) -> bool:
        policy = container.spec.get("imagePullPolicy") or "IfNotPresent"
        present = container.image in self.node.images
        faults = self.world.faults
        if present and policy != "Always":
            image = registry.find(container.image, extra=("*",))  # it is on the node: no registry is asked
        else:
            image = registry.find(container.image, faults.images_missing, faults.images_extra)
        if policy == "Never" and not present:
            state.waiting(
                "ErrImageNeverPull", f'Container image "{container.image}" is not present with pull policy of Never'
            )
            self.run.problem = f"{container.name}: image {container.image} is not present, pull policy Never"
            return False
        if image is None:
            words = registry.not_found(container.image)
            self.run.problem = f"{container.name}: {words}"
            self.pull_failure(container, state, now, words)
            return False
        if not present or policy == "Always":
            started = state.mem.setdefault("pull", now)
            left = started + self.world.scaled(12.0 if not present else 1.0) - now
            if left > 0:
                self.again(left)
                return False
        self.node.images.add(container.image)
        state.pulled, state.pull_failed, state.failures, state.image = True, False, 0, image
        state.mem.pop("pull", None)
        return True

    def pull_failure(self, container: Container, state: ContainerRun, now: float, words: str) -> None:
        """The status shows the error first, then the back-off, however late this look is."""
        if not state.pull_failed:
            state.pull_failed = True
            state.waiting("ErrImagePull", words)
            self.event("Failed", f'Failed to pull image "{container.image}": {words}')
            self.event("Failed", "Error: ErrImagePull")
            self.again(0.05)
            return
        if state.state["waiting"]["reason"] != "ImagePullBackOff":
            state.waiting("ImagePullBackOff", f'Back-off pulling image "{container.image}": ErrImagePull: {words}')
            self.event("BackOff", f'Back-off pulling image "{container.image}"', "Normal")
            self.event("Failed", "Error: ImagePullBackOff")
        if now >= state.retry_at:
            state.retry_at = now + self.retry(state.failures)
            state.failures += 1
        self.again(state.retry_at - now)

    def start(self, state: ContainerRun) -> None:
        if "terminated" in state.state:
            state.last = state.state
        state.mem.clear()
        state.mem["started"] = self.world.now()
        state.number += 1
        state.state = {"running": {"startedAt": timestamp()}}
        state.ready, state.started, state.up = False, False, None

    def step(self, container: Container, state: ContainerRun, ctx: Ctx) -> bool:
        program = operands.UNKNOWN
        try:
            program = state.mem["program"] = state.mem.get("program") or operands.find(ctx)
            message = self.world.faults.crash(self.node.name, container.name)
            if message is not None:
                raise Crash(str(message))
            result = program.step(ctx)
            if isinstance(result, Done):
                self.finished(container, state, 0, result.message)
                return state.done
            state.up, state.waits = result, 0
            if not math.isinf(result.again):
                self.again(self.world.scaled(result.again) or 1.0)
            self.probes(container, state, ctx, program, result)
        except Wait as wait:
            if not state.log or state.log[-1] != wait.reason:
                state.log.append(wait.reason)
            state.waits += 1
            if wait.timer:
                self.again(wait.seconds)
            else:
                self.again(max(self.world.scaled(wait.seconds), min(10.0, 0.5 * 2 ** min(state.waits, 5))))
            if not (
                state.up is not None and state.ready
            ):  # a service that runs, and waits for something beside, stays ready
                self.run.problem = f"{container.name}: {wait.reason}"
            return not container.init
        except Crash as crash:
            if state.up is not None and program.stop:
                program.stop(ctx)
            self.finished(container, state, crash.code, crash.message)
            return False
        return True

    def finished(self, container: Container, state: ContainerRun, code: int, message: str) -> None:
        reason = "Completed" if code == 0 else "Error"
        started = state.state.get("running", {}).get("startedAt") or timestamp()
        state.state = {
            "terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": timestamp()}
        }
        if message:
            state.state["terminated"]["message"] = message
            state.log.append(message)
        state.ready, state.started, state.up = container.init and code == 0, False, None
        policy = self.pod.spec.get("restartPolicy") or "Always"
        if code == 0 and (container.init or policy != "Always"):
            state.done = True
            state.failures = 0
            return
        if code != 0:
            self.run.problem = f"{container.name}: {message}"
            if policy == "Never":
                state.done = True
                return
        state.failures += 1
        state.retry_at = self.world.now() + self.retry(state.failures - 1)
        state.restarts += 1
        state.mem["shown"] = True
        self.again(0.05)

    # -- probes

    def probes(self, container: Container, state: ContainerRun, ctx: Ctx, program: operands.Program, up: Up) -> None:
        if not state.started and not self.startup(container, state, ctx, program, up):
            return
        state.started = True
        if not self.alive(container, state, up) or not self.answers_ready(container, state, up):
            return
        state.ready = up.ready and not self.world.faults.never_ready(self.node.name, container.name)
        if state.ready:
            state.failures = 0
        else:
            self.run.problem = f"{container.name}: {up.message or 'not ready'}"

    def too_early(self, container: Container, state: ContainerRun, probe: Object, what: str) -> bool:
        began: float = state.mem["started"]
        left = self.world.scaled(probe.get("initialDelaySeconds") or 0) + began - self.world.now()
        if left > 0:
            self.again(left)
            self.run.problem = f"{container.name}: waiting for its {what} probe"
        return left > 0

    def startup(self, container: Container, state: ContainerRun, ctx: Ctx, program: operands.Program, up: Up) -> bool:
        """Whether the startup probe (if there is one) has succeeded."""
        probe = container.spec.get("startupProbe")
        if not probe:
            return True
        if self.too_early(container, state, probe, "startup"):
            return False
        if "exec" in probe and program.startup:
            problem = program.startup(ctx)
        else:
            problem = self.unanswered(probe, container.spec, up)
        if not problem:
            return True
        self.event("Unhealthy", f"Startup probe failed: {problem}")
        self.run.problem = f"{container.name}: startup probe failed: {problem}"
        state.mem["startup"] = state.mem.get("startup", 0) + 1
        if state.mem["startup"] >= (probe.get("failureThreshold") or 3):
            self.finished(container, state, 137, f"startup probe failed: {problem}")
        else:
            self.again(self.retry(0, float(probe.get("periodSeconds") or 10), 60.0))
        return False

    def alive(self, container: Container, state: ContainerRun, up: Up) -> bool:
        """Whether the container outlives its liveness probe."""
        probe = container.spec.get("livenessProbe")
        if not probe or "exec" in probe:
            return True
        problem = self.unanswered(probe, container.spec, up)
        period, patience = probe.get("periodSeconds") or 10, probe.get("failureThreshold") or 3
        dies = state.mem["started"] + self.world.scaled((probe.get("initialDelaySeconds") or 0) + patience * period)
        if not problem or self.world.now() < dies:
            return True
        self.event("Unhealthy", f"Liveness probe failed: {problem}")
        self.event("Killing", f"Container {container.name} failed liveness probe, will be restarted", "Normal")
        self.finished(container, state, 137, f"liveness probe failed: {problem}")
        return False

    def answers_ready(self, container: Container, state: ContainerRun, up: Up) -> bool:
        """Whether the readiness probe (if there is one) succeeds now."""
        probe = container.spec.get("readinessProbe")
        if not probe:
            return True
        if self.too_early(container, state, probe, "readiness"):
            return False
        problem = self.unanswered(probe, container.spec, up)
        if problem:
            self.event("Unhealthy", f"Readiness probe failed: {problem}")
            self.run.problem = f"{container.name}: readiness probe failed: {problem}"
            state.ready = False
            self.again(self.retry(0, float(probe.get("periodSeconds") or 10), 60.0))
        return not problem

    def unanswered(self, probe: Object, spec: Object, up: Up) -> str:
        """Why a probe fails, "" when it succeeds."""
        for kind in ("httpGet", "tcpSocket", "grpc"):
            if kind not in probe:
                continue
            port = probe[kind].get("port")
            if isinstance(port, str):
                port = next((p["containerPort"] for p in spec.get("ports") or [] if p.get("name") == port), None)
            path = probe[kind].get("path", "")
            where = f"{self.run.ip}:{port}"
            if port not in up.listens:
                return f"dial tcp {where}: connect: connection refused"
            if kind == "httpGet" and path not in up.listens[port]:
                return "HTTP probe failed with statuscode: 404"
        return ""

    # -- the whole pod

    def look(self) -> None:
        run, pod = self.run, self.pod
        run.problem = ""
        if not run.sandbox and not self.make_sandbox():
            return
        for container in pod.inits:
            if not self.advance(container):
                self.mark((*pod.inits, *pod.mains), "PodInitializing")
                return
        self.mark(pod.mains, "ContainerCreating")
        for container in pod.mains:
            self.advance(container)

    def mark(self, containers: Iterable[Container], reason: str) -> None:
        """Gives a reason to containers that have none, or an earlier one of this kind."""
        for container in containers:
            state = self.run.of(container.name)
            if not state.state or state.state.get("waiting", {}).get("reason") == "PodInitializing" != reason:
                state.waiting(reason)

    def make_sandbox(self) -> bool:
        run, pod = self.run, self.pod
        run.started = run.started or timestamp()
        problem = self.volumes_problem()
        if problem:
            self.event("FailedMount", problem)
        else:
            problem = self.sandbox_problem()
            if problem:
                words = f"Failed to create pod sandbox: rpc error: code = Unknown desc = {problem}"
                self.event("FailedCreatePodSandBox", words)
        if not problem:
            run.sandbox = True
            return True
        run.problem = problem
        for container in (*pod.inits, *pod.mains):
            run.of(container.name).waiting("PodInitializing" if pod.inits else "ContainerCreating")
        self.again(self.retry(2, 2.0, 30.0))
        return False

    def statuses(self, containers: list[Container]) -> list[Object]:
        out = []
        for c in containers:
            state = self.run.of(c.name)
            status: Object = {
                "name": c.name, "image": c.image, "imageID": "", "ready": state.ready, "started": bool(state.started),
                "restartCount": state.restarts, "state": state.state, "lastState": state.last,
            }  # fmt: skip
            if state.pulled:
                status["imageID"] = f"{registry.split(c.image)[0]}@sha256:{_digest(c.image)}"
            if state.number:
                status["containerID"] = f"containerd://{_digest(self.pod.uid + c.name + str(state.number))}"
            out.append(status)
        return out

    def phase(self, initialized: bool, finished: bool) -> str:
        run, pod = self.run, self.pod
        ended = [run.of(c.name).state.get("terminated", {}) for c in (*pod.inits, *pod.mains) if run.of(c.name).done]
        if any(t.get("exitCode") for t in ended) and (finished or not initialized):
            return "Failed"
        if finished:
            return "Succeeded"
        return "Running" if initialized and any(run.of(c.name).number for c in pod.mains) else "Pending"

    def signature(self) -> tuple[Any, ...]:
        """What a status is made from: equal marks, equal statuses. States are replaced, never changed in place."""
        states = [self.run.of(c.name) for c in (*self.pod.inits, *self.pod.mains)]
        return (
            self.run.sandbox,
            self.run.ip,
            self.pod.meta.get("generation"),
            *((s.number, s.ready, s.started, s.restarts, s.pulled, s.done, id(s.state), id(s.last)) for s in states),
        )

    def status(self) -> Object:
        run, pod = self.run, self.pod
        incomplete = [c.name for c in pod.inits if not run.of(c.name).done]
        finished = bool(pod.mains) and not incomplete and all(run.of(c.name).done for c in pod.mains)
        unready = [c.name for c in pod.mains if not run.of(c.name).ready]
        run.phase = self.phase(not incomplete, finished)
        why = "PodCompleted" if finished else "ContainersNotReady"
        unready_text = f"containers with unready status: [{' '.join(unready)}]"
        incomplete_text = f"containers with incomplete status: [{' '.join(incomplete)}]"
        ready = not unready and not incomplete and not finished
        conditions = [
            self.condition("PodReadyToStartContainers", run.sandbox and not finished, ""),
            self.condition("Initialized", not incomplete, "ContainersNotInitialized", incomplete_text),
            self.condition("Ready", ready, why, unready_text),
            self.condition("ContainersReady", ready, why, unready_text),
        ]
        old = (pod.obj.get("status") or {}).get("conditions") or []
        conditions += [c for c in old if c["type"] == "PodScheduled"]
        host = node_ip(self.node)
        status: Object = {
            "phase": run.phase, "startTime": run.started, "hostIP": host, "hostIPs": [{"ip": host}],
            "conditions": conditions, "containerStatuses": self.statuses(pod.mains),
        }  # fmt: skip
        if pod.inits:
            status["initContainerStatuses"] = self.statuses(pod.inits)
        if run.sandbox and run.ip:
            status["podIP"], status["podIPs"] = run.ip, [{"ip": run.ip}]
        if pod.meta.get("generation") is not None:
            status["observedGeneration"] = pod.meta["generation"]
        return status

    def condition(self, kind: str, true: bool, reason: str, message: str = "") -> Object:
        value = "True" if true else "False"
        old = self.run.conditions.get(kind)
        since = old["lastTransitionTime"] if old and old["status"] == value else timestamp()
        new: Object = {"type": kind, "status": value, "lastTransitionTime": since}
        if not true and reason:
            new["reason"] = reason
            if message:
                new["message"] = message
        if self.pod.meta.get("generation") is not None:
            new["observedGeneration"] = self.pod.meta["generation"]
        self.run.conditions[kind] = new
        return new


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def node_ip(node: Node) -> str:
    for address in (node.obj.get("status") or {}).get("addresses") or []:
        if address.get("type") == "InternalIP":
            return str(address["address"])
    return ""


def context(run: PodRun, container: Container, node: Node, world: World, api: PodApi) -> Ctx:
    state = run.of(container.name)
    env = state.mem.get("env", {})
    return Ctx(container.pod, container, node, world, api, env, state.mem, run.volumes, state.image, state.log)


def sync(run: PodRun, pod: PodView, node: Node, world: World, api: PodApi) -> Sync:
    """One look at a pod: moves it on as far as it goes now, and says its status and when to look again."""
    look = _Look(run, pod, node, world, api)
    before = None
    for _unused in range(64):  # what a container did may let the next one go on at once
        before = node.version
        look.delay = math.inf
        look.look()
        if node.version == before:
            break
    mark = look.signature()
    if run.status_of != mark:  # building a status costs more than most looks
        run.status, run.status_of = look.status(), look.signature()
    return Sync(run.status, look.events, look.delay)


def stop(run: PodRun, pod: PodView, node: Node, world: World, api: PodApi) -> None:
    """The pod goes: preStop commands, then what each program leaves behind."""
    for container in pod.mains:
        state = run.of(container.name)
        if "running" not in state.state:
            continue
        ctx = context(run, container, node, world, api)
        hook = ((container.spec.get("lifecycle") or {}).get("preStop") or {}).get("exec")
        command = (hook or {}).get("command") or []
        script = shell.of_argv(command) or shell.read(" ".join(command))
        for path in script.removes:
            _remove(ctx, path)
        program = state.mem.get("program")
        if program is not None and program.hook and script.command:
            program.hook(ctx, script.command)
        if program is not None and program.stop:
            program.stop(ctx)
        state.up = None


def _remove(ctx: Ctx, pattern: str) -> None:
    folder, _unused, name = pattern.rpartition("/")
    place = ctx.container.place(folder)
    if place is None or place.kind != "host":
        return
    for found in ctx.node.fs.listing(place.path):
        # A shell's * does not match names that begin with a dot.
        if fnmatch.fnmatchcase(found, name) and not (found.startswith(".") and not name.startswith(".")):
            ctx.node.remove(normal(f"{place.path}/{found}"))
