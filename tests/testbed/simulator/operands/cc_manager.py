# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The confidential computing manager (gpu-operator.md 7.8): sets the mode of all GPUs that the label nvidia.com/cc.mode
or the default names.

Facts beyond the fact sheet are from the program's own source, github.com/NVIDIA/k8s-cc-manager, main.py and
gpu_operator_eviction.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..context import VALIDATIONS, Crash, Ctx, Done, Up
from . import Program

LABEL, STATE, READY = "nvidia.com/cc.mode", "nvidia.com/cc.mode.state", "nvidia.com/cc.ready.state"
FLAG = f"{VALIDATIONS}/.cc-manager-ctr-ready"
DEPLOY, PAUSED = "nvidia.com/gpu.deploy.", "paused-for-cc-mode-change"
# Deploy label -> value of the label ``app`` of its pods, as the program looks for them.
CLIENTS = {
    "vfio-manager": "nvidia-vfio-manager", "vgpu-manager": "nvidia-vgpu-manager",
    "sandbox-validator": "nvidia-sandbox-validator",
    "sandbox-device-plugin": "nvidia-sandbox-device-plugin-daemonset",
    "vgpu-device-manager": "nvidia-vgpu-device-manager",
}  # fmt: skip


def step(c: Ctx) -> Up | Done:
    if "started" not in c.mem or "node" not in c.mem:
        name = c.need_env("NODE_NAME", "NODE_NAME environment variable must be set for k8s-cc-manager")
        c.need_privileged("the mode of a GPU cannot be changed")
        c.need_mount("/sys", "GPUs cannot be found", host="/sys")
        c.need_mount("/run/nvidia", "the readiness file must reach the host", host="/run/nvidia", writable=True)
        c.call("Failed to read node labels", lambda api: api.get(f"/api/v1/nodes/{name}"))
        for verb in ("list", "watch", "patch"):
            c.need_right(verb, "", "nodes")
        c.mem["node"] = name
    wanted = c.node.labels.get(LABEL) or (c.env.get("DEFAULT_CC_MODE") or "on" if c.node.spec.cc else "off")
    doing = c.bring_about(wanted, _set)
    if doing is not None:
        return Up(message=f"cc.mode {wanted}: {doing}", again=2.0)
    if "told" not in c.mem:
        c.write(FLAG, "")
        c.mem["told"] = True
    return Up()


def _set(c: Ctx, mode: str) -> Iterator[str]:
    """Sets a mode; yields what it waits for."""
    if mode not in ("on", "off", "devtools"):
        raise Crash(f"Invalid CC mode: {mode}")
    other = sorted(gpu.address for gpu in c.node.gpus if not gpu.product.cc_capable)
    if mode != "off" and other:
        raise Crash(f"Some GPUs are not cc-capable: {{{', '.join(map(repr, other))}}}")
    gpus = [gpu for gpu in c.node.gpus if gpu.product.cc_capable]
    if any(gpu.cc != mode for gpu in gpus):
        paused = {DEPLOY + k: PAUSED for k in CLIENTS if c.node.labels.get(DEPLOY + k) == "true"}
        _label(c, paused)
        apps = {CLIENTS[key.removeprefix(DEPLOY)] for key in paused}
        while left := [
            p["metadata"]["name"]
            for p in c.world.pods_on(c.node.name)
            if (p["metadata"].get("labels") or {}).get("app") in apps
        ]:
            yield f"Waiting for pods to be deleted: {', '.join(sorted(left))}"
            c = c.mem["c"]
        failed = c.world.faults.of(c.node.name, "cc_fails")
        if failed:
            c.log.append(f"GPU error setting CC mode: {gpus[0].address} did not boot after the reset")
            mode = "failed"
        else:
            for gpu in gpus:
                gpu.cc = mode
        _label(c, _state(mode) | dict.fromkeys(paused, "true"))
    else:
        _label(c, _state(mode))


def _state(mode: str) -> dict[str, str]:
    return {STATE: mode, READY: {"on": "true", "off": "false"}.get(mode, "")}


def _label(c: Ctx, values: dict[str, str]) -> None:
    if any(c.node.labels.get(key) != value for key, value in values.items()):
        path = f"/api/v1/nodes/{c.mem['node']}"
        c.call("Failed to label the node", lambda api: api.patch(path, {"metadata": {"labels": values}}))
        c.node.labels.update(values)


PROGRAM = Program(step)
