# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dcgm-exporter (gpu-operator.md 7.6): metrics on DCGM_EXPORTER_LISTEN, from its own engine or a remote one."""

from __future__ import annotations

from ..context import Crash, Ctx, Done, Object, Up
from . import Program

SHIPPED = {"/etc/dcgm-exporter/dcp-metrics-included.csv", "/etc/dcgm-exporter/default-counters.csv"}


def step(c: Ctx) -> Up | Done:
    listen = c.env.get("DCGM_EXPORTER_LISTEN") or ":9400"
    port = listen.rpartition(":")[2]
    if not port.isdigit():
        raise Crash(f"DCGM_EXPORTER_LISTEN {listen!r} is not an address")
    c.need_env("NODE_NAME", "samples carry the node's name")
    _metrics(c)
    if _true(c, "DCGM_EXPORTER_KUBERNETES"):
        c.need_mount(
            "/var/lib/kubelet/pod-resources",
            "samples cannot be mapped to pods",
            host=f"{c.node.spec.kubelet_root}/pod-resources",
        )
    if (
        any(_true(c, f"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_{what}") for what in ("LABELS", "UID"))
        and "pods" not in c.mem
    ):
        node = c.env["NODE_NAME"]
        c.call(
            "failed to list pods for labels",
            lambda api: api.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&limit=1"),
        )
        c.need_right("watch", "", "pods")
        c.mem["pods"] = True
    if _true(c, "DCGM_EXPORTER_KUBERNETES_ENABLE_DRA"):
        raise Crash("dynamic resource allocation is not served on this node")
    remote = c.env.get("DCGM_REMOTE_HOSTENGINE_INFO", "")
    if remote:
        _reach(c, remote)
    c.need_gpu("dcgm-exporter: Error starting nv-hostengine: DCGM initialization error")
    if not c.container.privileged and "SYS_ADMIN" not in (
        (c.container.spec.get("securityContext") or {}).get("capabilities") or {}
    ).get("add", []):
        raise Crash(
            "DCGM_FI_PROF fields need CAP_SYS_ADMIN: error watching fields: The requested operation is not permitted"
        )
    c.mem["watched"] = [] if remote else [gpu.uuid for gpu in c.gpus]
    return Up(listens={int(port): ("/health", "/metrics")}, again=30.0 if remote else 1e9)


def _true(c: Ctx, name: str) -> bool:
    return c.env.get(name, "").lower() in ("true", "1")


def _metrics(c: Ctx) -> None:
    wanted = c.env.get("DCGM_EXPORTER_CONFIGMAP_DATA", "none") or "none"
    if wanted != "none":
        namespace, _unused, name = wanted.partition(":")
        found = c.call(
            f"failed to read ConfigMap {wanted}",
            lambda api: api.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}"),
        )
        text = (found.get("data") or {}).get("metrics")
        if text is None:
            raise Crash(f"ConfigMap {wanted} has no key metrics")
    else:
        path = c.env.get("DCGM_EXPORTER_COLLECTORS") or "/etc/dcgm-exporter/default-counters.csv"
        if path in SHIPPED and c.container.place(path) is None:
            return
        text = c.read(path)
        if text is None:
            raise Crash(f"could not read metrics file {path!r}: open {path}: no such file or directory")
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line and not line.startswith("#") and len(line.split(",")) < 3:
            raise Crash(f"malformed CSV record, line {number}: {line!r} has fewer than 3 fields")


def _reach(c: Ctx, address: str) -> None:
    """The Service of the engine, and a ready engine behind it; with internalTrafficPolicy Local on this node."""
    host, _unused, port = address.partition(":")
    if host in ("localhost", "127.0.0.1"):
        if not c.pod.spec.get("hostNetwork"):
            raise Crash(
                f"Error connecting to nv-hostengine at {address}: Host engine connection invalid/disconnected "
                "(hostNetwork is off)"
            )
        return
    name, _unused, rest = host.partition(".")
    service = c.world.services.get((rest.split(".")[0] or c.pod.namespace, name))
    if service is None:
        raise Crash(f"Error connecting to nv-hostengine at {address}: lookup {host}: no such host")
    spec = service["spec"]
    if not any(str(p.get("port")) == port for p in spec.get("ports") or []):
        raise Crash(
            f"Error connecting to nv-hostengine at {address}: connection timed out (Service {name} has no port {port})"
        )
    local = spec.get("internalTrafficPolicy") == "Local"
    if local and not any(_serves(pod, spec) for pod in c.world.pods_on(c.node.name)):
        raise Crash(
            f"Error connecting to nv-hostengine at {address}: Host engine connection invalid/disconnected (no "
            "ready engine on this node)"
        )


def _serves(pod: Object, service: Object) -> bool:
    labels = pod["metadata"].get("labels") or {}
    ready = any(
        k.get("type") == "Ready" and k.get("status") == "True"
        for k in (pod.get("status") or {}).get("conditions") or []
    )
    return ready and bool(service.get("selector")) and all(labels.get(k) == v for k, v in service["selector"].items())


PROGRAM = Program(step)
