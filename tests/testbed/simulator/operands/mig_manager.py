# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG manager (mig-plugin-gfd.md 1.15; gpu-operator.md 7.7): from the label nvidia.com/mig.config to instances
and a state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from ..context import ApiError, Crash, Ctx, Done, Object, Up, Wait
from ..migparted import LayoutError, applied, apply, mode_applied, parse
from . import Program
from .driver_manager import gpu_pods

LABEL, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
DEPLOY = "nvidia.com/gpu.deploy."
PAUSED = "paused-for-mig-change"
CLIENTS = ("device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm")
APPS = ("nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter", "nvidia-dcgm")


def step(c: Ctx) -> Up | Done:
    script = c.script()
    if script is not None:
        c.follow(script)
    if "started" not in c.mem or "ready" not in c.mem:
        _start(c)
        c.mem["ready"] = True
    wanted = c.node.labels.get(LABEL, "")
    if wanted and wanted != c.mem.get("handled"):
        running = c.mem.get("work")
        if running is None or running[0] != wanted:
            running = (wanted, _reconfigure(c, wanted))
            c.mem["work"] = running
        _drive(c, running)
    return Up()


def _drive(c: Ctx, work: tuple[str, Iterator[str]]) -> None:
    """Goes on with a reconfiguration until it waits for something or has ended. The manager itself stays ready
    meanwhile."""
    wanted, steps = work
    c.mem["c"] = c  # the generator goes on with what this look sees
    try:
        reason = next(steps)
    except StopIteration:
        c.mem["handled"] = wanted
        del c.mem["work"]
        return
    raise Wait(f"mig.config {wanted}: {reason}", 5)


def _start(c: Ctx) -> None:
    name = c.need_env("NODE_NAME", "the MIG manager watches its node's label")
    c.need_privileged("MIG mode cannot be set")
    c.need_host_pid("clients of the GPU cannot be seen")
    c.need_mount("/host", "services of the host cannot be stopped", host="/")
    c.need_mount("/sys", "PCI devices cannot be listed", host="/sys")
    inside = c.env.get("DRIVER_ROOT_CTR_PATH") or "/driver-root"
    driver = c.need_mount(inside, "nvidia-smi of the driver cannot be run")
    if driver.path != ("/" if c.node.host_driver else c.node.driver_root):
        raise Crash(f"failed to locate nvidia-smi below {inside} (host path {driver.path})")
    clients = c.need_env("GPU_CLIENTS_FILE", "services of the host that use GPUs must be known")
    text = c.read(clients)
    if text is None:
        raise Crash(f"error reading {clients}: open {clients}: no such file or directory")
    data = yaml.safe_load(text)
    if not isinstance(data, dict) or "version" not in data:
        raise Crash(f"error parsing {clients}: version is missing")
    c.need_env("DEFAULT_GPU_CLIENTS_NAMESPACE", "pods that use GPUs are looked for there")
    if c.env.get("CDI_ENABLED", "false").lower() == "true":
        c.need_mount(
            "/var/run/cdi", "the management CDI specification cannot be made again", host="/var/run/cdi", writable=True
        )
    c.need_gpu("nvidia-mig-manager")
    c.call(f"failed to watch node {name}", lambda api: api.get(f"/api/v1/nodes?fieldSelector=metadata.name%3D{name}"))
    c.need_right("watch", "", "nodes")
    c.need_right("patch", "", "nodes")
    c.need_right("list", "", "pods")
    c.mem["config"] = _config(c, name)
    c.spend("Waiting for change to 'nvidia.com/mig.config' label", 2)


def _config(c: Ctx, name: str) -> dict[str, Any]:
    path = c.env.get("CONFIG_FILE", "")
    if path:
        text = c.read(path)
        if text is None:
            raise Crash(f"error reading config file: open {path}: no such file or directory")
    else:
        # The real one first makes a configuration from the hardware, by a program that asks NVML, and publishes it as
        # a ConfigMap. There is no NVML on a simulated node, so that this fails here, and the fallback is used as in
        # life. What publishing needs is asked for all the same.
        namespace = c.need_env("POD_NAMESPACE", "the generated configuration is published there")
        c.need_env("POD_NAME", "the generated configuration is owned by the pod")
        for verb in ("get", "create", "update"):
            c.need_right(verb, "", "configmaps", namespace)
        path = c.need_env("DEFAULT_CONFIG_FILE", "a configuration could not be generated, and there is no fallback")
        text = c.read(path)
        if text is None:
            raise Crash(f"error reading config file: open {path}: no such file or directory")
    try:
        return dict(parse(text))
    except LayoutError as error:
        raise Crash(f"error parsing config file: {error}") from None


def _label(c: Ctx, values: dict[str, str]) -> None:
    name = c.env["NODE_NAME"]
    c.call("failed to label the node", lambda api: api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": values}}))
    c.node.labels.update(values)


def _finish(c: Ctx, state: str) -> None:
    """A final state always gives the deploy labels back; ``false`` stays (steps 7, 14)."""
    values = {STATE: state}
    for client in CLIENTS:
        if c.node.labels.get(DEPLOY + client) != "false":
            values[DEPLOY + client] = "true"
    if DEPLOY + "client" in c.node.labels and c.node.labels[DEPLOY + "client"] != "false":
        values[DEPLOY + "client"] = "true"
    _label(c, values)


def _reconfigure(c: Ctx, wanted: str) -> Iterator[str]:
    """The steps of 1.15; yields what it waits for."""
    mem = c.mem
    config = mem["config"]
    entries = config.get(wanted)
    if entries is None:
        c.log.append(f"selected mig-config not present: {wanted}")
        _finish(c, "failed")
        return
    if applied(entries, c.gpus):
        _finish(c, "success")
        return
    mode_change = not mode_applied(entries, c.gpus)
    _pause(c)
    while left := [p["metadata"]["name"] for p in c.world.pods_on(c.node.name) if _app(p) in APPS]:
        yield f"waiting for {', '.join(sorted(left))} to go"
        c = mem["c"]
    _delete(c, ("nvidia-cuda-validator", "nvidia-device-plugin-validator"))
    until = c.world.now() + c.world.scaled(30.0 if mode_change else 5.0)
    while c.world.now() < until:
        yield "applying"
        c = mem["c"]
    busy = ", ".join(gpu_pods(c)) or ("a process of the host" if c.world.faults.of(c.node.name, "mig_busy") else "")
    try:
        apply(entries, c.node, c.gpus, busy)
    except LayoutError as error:
        c.log.append(str(error))
        _finish(c, "failed")
        return
    if not applied(entries, c.gpus):
        # mig-parted calls this a success (1.8); so does the manager, which does not look again.
        c.log.append(f"applied {wanted}; some GPUs are not as it says")
    _delete(c, ("nvidia-operator-validator",))
    _finish(c, "success")


def _pause(c: Ctx) -> None:
    """Step 6 and 7: pending, and the labels of what holds the GPUs; ``false`` stays."""
    paused = {STATE: "pending"}
    for client in CLIENTS:
        if c.node.labels.get(DEPLOY + client) != "false":
            paused[DEPLOY + client] = PAUSED
    if c.node.labels.get(DEPLOY + "client", "false") != "false":
        paused[DEPLOY + "client"] = PAUSED
    _label(c, paused)


def _app(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get("app", ""))


def _delete(c: Ctx, apps: tuple[str, ...]) -> None:
    namespace = c.env["DEFAULT_GPU_CLIENTS_NAMESPACE"]
    for pod in list(c.world.pods_on(c.node.name)):
        meta = pod["metadata"]
        if meta["namespace"] == namespace and (meta.get("labels") or {}).get("app") in apps:
            path = f"/api/v1/namespaces/{namespace}/pods/{meta['name']}"
            try:
                c.need_token("pods cannot be deleted")
                c.api.delete(path)
            except ApiError as error:
                if error.status != 404:
                    raise Crash(f"failed to delete pod {meta['name']}: {error.message}") from None


PROGRAM = Program(step)
