# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU feature discovery (mig-plugin-gfd.md 5): labels through a NodeFeature object, or through a file for NFD's
worker."""

from __future__ import annotations

import time

from ..advertise import PluginError, labels, strategy_of
from ..context import ApiError, Crash, Ctx, Done, Object, Up
from . import Program
from .device_plugin import config_of

FOLDER = "/etc/kubernetes/node-feature-discovery/features.d"


def step(c: Ctx) -> Up | Done:
    config = config_of(c)
    c.need_gpu("gpu-feature-discovery: Failed to initialize NVML: could not load NVML library")
    machine = c.read("/sys/class/dmi/id/product_name") or "unknown"
    try:
        made = labels(c.gpus, strategy_of(c.env, config), config, c.node.driver_version, machine, int(time.time()))
    except PluginError as error:
        raise Crash(f"error generating labels: {error}") from None
    stable = {key: value for key, value in made.items() if key != "nvidia.com/gfd.timestamp"}
    by_api = (c.env.get("GFD_USE_NODE_FEATURE_API") or c.env.get("USE_NODE_FEATURE_API") or "true").lower() == "true"
    if c.mem.get("published") != stable:
        if by_api:
            _publish(c, made)
        else:
            c.need_mount(FOLDER, "labels cannot be given to NFD's worker", host=FOLDER, writable=True)
            c.write(f"{FOLDER}/gfd", "".join(f"{key}={value}\n" for key, value in sorted(made.items())))
        c.mem["published"] = stable
    return Up()


def _publish(c: Ctx, made: dict[str, str]) -> None:
    node = c.need_env("NODE_NAME", "labels are for this node")
    namespace = c.need_env("NAMESPACE", "the NodeFeature object is made there")
    pod_name = c.need_env("POD_NAME", "the NodeFeature object is owned by the pod")
    pod = c.call(
        f"failed to get pod {pod_name}", lambda api: api.get(f"/api/v1/namespaces/{namespace}/pods/{pod_name}")
    )
    owners = [
        {"apiVersion": ref["apiVersion"], "kind": ref["kind"], "name": ref["name"], "uid": ref["uid"]}
        for ref in pod["metadata"].get("ownerReferences") or []
    ]
    owners.append({"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod["metadata"]["uid"]})
    base = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{namespace}/nodefeatures"
    name = f"nvidia-features-for-{node}"
    body: Object = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
        "metadata": {
            "name": name, "namespace": namespace, "ownerReferences": owners,
            "labels": {"nfd.node.kubernetes.io/node-name": node},
        },
        "spec": {"features": {"flags": {}, "attributes": {}, "instances": {}}, "labels": made},
    }  # fmt: skip
    put_object(c, base, name, body)


def put_object(c: Ctx, base: str, name: str, body: Object) -> None:
    """Get, then create or update, as clients of NodeFeature objects do."""
    try:
        c.need_token("NodeFeature objects cannot be written")
        old = c.api.get(f"{base}/{name}")
    except ApiError as error:
        if error.status != 404:
            raise Crash(f"failed to get NodeFeature object: {error.message}") from None
        c.call("failed to create NodeFeature object", lambda api: api.post(base, body))
        return
    if old.get("spec") == body["spec"] and old["metadata"].get("labels") == body["metadata"]["labels"]:
        return
    body["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
    c.call("failed to update NodeFeature object", lambda api: api.put(f"{base}/{name}", body))


def stop(c: Ctx) -> None:
    if c.exists(f"{FOLDER}/gfd"):
        c.remove(f"{FOLDER}/gfd")


PROGRAM = Program(step, stop=stop)
