# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods of Node Feature Discovery: worker, master, gc."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import yaml

from .. import nfd
from ..context import ApiError, Crash, Ctx, Done, Object, Up
from . import Program
from .gfd import put_object

CONFIG = "/etc/kubernetes/node-feature-discovery"
API = "/apis/nfd.k8s-sigs.io/v1alpha1"
BATCH = 50


def _option(c: Ctx, name: str, default: str = "") -> str:
    for arg in c.container.argv[1:]:
        key, _unused, value = arg.lstrip("-").partition("=")
        if key == name:
            return value
    return default


def _listens(c: Ctx) -> dict[int, tuple[str, ...]]:
    return {int(_option(c, "port", "8080")): ("/healthz", "/metrics")}


def _config(c: Ctx, name: str) -> dict[str, Any]:
    return _parsed(c.read(_option(c, "config", f"{CONFIG}/{name}")) or "")


@lru_cache(maxsize=32)
def _parsed(text: str) -> dict[str, Any]:
    try:
        data = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise Crash(f"failed to parse config file: {error}") from None
    if not isinstance(data, dict):
        raise Crash("failed to parse config file: not a mapping")
    return data


def worker(c: Ctx) -> Up | Done:
    node = c.need_env("NODE_NAME", "nfd-worker must know its node")
    sys = c.container.place("/host-sys") is not None
    if not sys:
        _note(c, "failed to detect PCI devices: open /host-sys/bus/pci/devices: no such file or directory")
    release = c.read("/host-etc/os-release")
    if release is None:
        _note(c, "failed to get os-release: open /host-etc/os-release: no such file or directory")
    folder = f"{CONFIG}/features.d"
    local = {name: c.read(f"{folder}/{name}") or "" for name in c.listing(folder) or []}
    found, extra = nfd.features(c.node, sys, release, local)
    made = nfd.labels(found, extra, _config(c, "nfd-worker.conf"))
    if c.mem.get("published") != (found, made):
        _publish(c, node, found, made)
        c.mem["published"] = (found, made)
    return Up(listens=_listens(c))


def _note(c: Ctx, line: str) -> None:
    if line not in c.log:
        c.log.append(line)


def _publish(c: Ctx, node: str, found: Object, made: dict[str, str]) -> None:
    namespace = c.pod.namespace
    owners: list[Object] = []
    wanted = _option(c, "owner-refs", "pod,ds").split(",")
    if "pod" in wanted or "ds" in wanted:
        name = c.need_env("POD_NAME", "NodeFeature objects are owned by the worker's pod")
        uid = c.need_env("POD_UID", "NodeFeature objects are owned by the worker's pod")
        if "pod" in wanted:
            owners.append({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid})
        if "ds" in wanted:
            pod = c.call(
                f"failed to get pod {name}", lambda api: api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
            )
            for ref in pod["metadata"].get("ownerReferences") or []:
                owners.append(
                    {"apiVersion": ref["apiVersion"], "kind": ref["kind"], "name": ref["name"], "uid": ref["uid"]}
                )
    body: Object = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
        "metadata": {"name": node, "namespace": namespace, "labels": {nfd.NODE_LABEL: node}, "ownerReferences": owners},
        "spec": {"features": found, "labels": made},
    }  # fmt: skip
    put_object(c, f"{API}/namespaces/{namespace}/nodefeatures", node, body)


def master(c: Ctx) -> Up | Done:
    if any(arg.lstrip("-") == "prune" for arg in c.container.argv[1:]):
        return _prune(c)
    config = _config(c, "nfd-master.conf")
    if "asked" not in c.mem:
        c.need_env("NODE_NAME", "nfd-master must know its node")
        c.call("failed to list NodeFeature objects", lambda api: api.get(f"{API}/nodefeatures?limit=1"))
        c.call("failed to list NodeFeatureRule objects", lambda api: api.get(f"{API}/nodefeaturerules?limit=1"))
        c.call("failed to list nodes", lambda api: api.get("/api/v1/nodes?limit=1"))
        c.call("failed to list namespaces", lambda api: api.get("/api/v1/namespaces?limit=1"))
        for group, resource in (
            ("nfd.k8s-sigs.io", "nodefeatures"),
            ("nfd.k8s-sigs.io", "nodefeaturerules"),
            ("", "namespaces"),
        ):
            c.need_right("watch", group, resource)
        c.mem["asked"] = True
    todo = _todo(c, config)
    for name in todo[:BATCH]:
        _label(c, name, config)
        del c.mem["todo"][name]
    return Up(listens=_listens(c), again=0.01 if len(todo) > BATCH else math.inf)


def _todo(c: Ctx, config: dict[str, Any]) -> list[str]:
    """Nodes that have to be labelled: all at first and after a change of rules or configuration, then changed ones."""
    log = c.world.feature_log
    news, c.mem["read"] = log[c.mem.get("read", 0) :], len(log)
    todo: dict[str, None] = c.mem.setdefault("todo", {})
    if c.mem.get("config") != config or "" in news:
        c.mem["config"] = config
        todo.update(dict.fromkeys(c.world.nodes))
    todo.update((name, None) for name in news if name in c.world.nodes)
    return list(todo)


def _label(c: Ctx, name: str, config: dict[str, Any]) -> None:
    objects = c.world.features_of(name)
    found, made = nfd.merged(objects, name)
    if objects:
        made.update(nfd.rule_labels(c.world.feature_rules.values(), found))
    wanted = {key: value for key, value in made.items() if nfd.allowed(key, config)}
    meta = c.world.nodes[name].obj.get("metadata") or {}
    patch = nfd.change(meta.get("labels") or {}, (meta.get("annotations") or {}).get(nfd.OWNED, ""), wanted)
    if patch is not None and not config.get("noPublish"):
        _patch_node(c, name, patch)


def _patch_node(c: Ctx, name: str, patch: Object) -> None:
    c.call(f"failed to label node {name}", lambda api: api.patch(f"/api/v1/nodes/{name}", patch))


def _prune(c: Ctx) -> Done:
    """Takes the labels and annotations of NFD off every node."""
    found = c.call("failed to list nodes", lambda api: api.get("/api/v1/nodes"))
    for node in found.get("items") or []:
        name, meta = node["metadata"]["name"], node["metadata"]
        patch = nfd.change(meta.get("labels") or {}, (meta.get("annotations") or {}).get(nfd.OWNED, ""), {})
        if patch is not None:
            patch["metadata"]["annotations"] = {nfd.OWNED: None}
            _patch_node(c, name, patch)
    return Done()


def gc(c: Ctx) -> Up | Done:
    if "asked" not in c.mem:
        c.call("failed to list nodes", lambda api: api.get("/api/v1/nodes?limit=1"))
        c.call("failed to list NodeFeature objects", lambda api: api.get(f"{API}/nodefeatures?limit=1"))
        c.need_right("watch", "", "nodes")
        c.mem["asked"] = True
    for namespace, name in [key for node in c.world.gone_nodes for key in c.world.features_by_node.get(node, {})]:
        try:
            c.api.delete(f"{API}/namespaces/{namespace}/nodefeatures/{name}")
        except ApiError as error:
            if error.status != 404:
                raise Crash(f"failed to delete NodeFeature {name}: {error.message}") from None
    return Up(listens=_listens(c))


WORKER, MASTER, GC = Program(worker), Program(master), Program(gc)
