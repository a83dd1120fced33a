# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node, the objects of a stack, and an API server in memory that knows RBAC: brings pods up without a cluster.

It plays the controllers' part as simply as it can be: workloads become pods where the node's labels fit.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable
from typing import Any, ClassVar

from ansible_collections.gpufleet.nvidia.tests.testbed.simulator import kubelet, recorded
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.context import ApiError, World
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.faults import Faults
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.node import Node, NodeSpec
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.pod import Object, PodView

H100 = NodeSpec("gpu-0000", product="H100-SXM5-80GB", gpus=8)
DEPLOY = (
    "client", "container-toolkit", "dcgm", "dcgm-exporter", "device-plugin", "driver", "gpu-feature-discovery",
    "node-status-exporter", "operator-validator",
)  # fmt: skip


class Lab:
    def __init__(self, objects: dict[str, Object], spec: NodeSpec = H100, faults: dict[str, Any] | None = None) -> None:
        self.objects = copy.deepcopy(objects)
        self.time = 0.0
        self.world = World(Faults(faults or {}), speed=1.0, clock=lambda: self.time)
        self.node = Node(spec)
        self.world.nodes = {spec.name: self.node}
        self.world.pods_on = lambda name: list(self.pods.values())
        self.world.secret_reader = lambda namespace, name: self.objects.get(f"Secret/{name}")
        self.pods: dict[str, Object] = {}
        self.runs: dict[str, kubelet.PodRun] = {}
        self.deleted: list[str] = []
        self.told: dict[str, str] = {}
        self.events: list[tuple[str, str, str]] = []
        self.calls: list[tuple[str, str, str]] = []
        self.versions = itertools.count(1)
        self.node_object: Object = {
            "metadata": {"name": spec.name, "labels": dict(spec.labels), "annotations": {}},
            "status": {"capacity": {}, "allocatable": {}},
        }
        self.node.obj = self.node_object

    # -- what a person or our code would do

    def label(self, **values: str) -> None:
        labels = {key.replace("__", "/").replace("_", "."): value for key, value in values.items()}
        self.set_labels(labels)

    def set_labels(self, labels: dict[str, str | None]) -> None:
        for key, value in labels.items():
            if value is None:
                self.node_object["metadata"]["labels"].pop(key, None)
            else:
                self.node_object["metadata"]["labels"][key] = value
        self.node.labels = dict(self.node_object["metadata"]["labels"])
        self.node.changed()

    def deploy_labels(self, mig: bool = True) -> None:
        self.set_labels(
            {f"nvidia.com/gpu.deploy.{name}": "true" for name in DEPLOY} | {"nvidia.com/gpu.present": "true"}
        )
        if mig:
            self.set_labels({"nvidia.com/gpu.deploy.mig-manager": "true", "nvidia.com/mig.config": "all-disabled"})

    # -- running

    def run(self, seconds: float = 900.0, until: Callable[[Lab], bool] | None = None) -> Lab:
        """Lets time pass until everything is ready (or ``until`` says so), at most so many simulated seconds."""
        end = self.time + seconds
        while self.time < end:
            delay = self.tick()
            if (until or Lab.ready)(self):
                return self
            self.time += max(0.5, min(delay, 15.0))
        return self

    def tick(self) -> float:
        self._caches()
        self._controllers()
        delay = 15.0
        for name in list(self.pods):
            pod = self.pods.get(name)
            if pod is None:
                continue
            view = PodView(pod)
            result = kubelet.sync(
                self.runs[name], view, self.node, self.world, Account(self, view.namespace, view.service_account)
            )
            pod["status"] = result.status
            self.events += result.events
            delay = min(delay, result.delay)
            self._offer()
        return delay

    def _caches(self) -> None:
        self.world.configmaps = {("gpu-operator", o["metadata"]["name"]): o for o in self.kind("ConfigMap")}
        self.world.services = {("gpu-operator", o["metadata"]["name"]): o for o in self.kind("Service")}
        self.world.runtime_classes = {o["metadata"]["name"]: o["handler"] for o in self.kind("RuntimeClass")}
        for kind, tell in (("NodeFeature", self.world.tell_feature), ("NodeFeatureRule", self.world.tell_rule)):
            for item in self.kind(kind):
                version = item["metadata"].get("resourceVersion", "1")
                if self.told.get(item["metadata"]["name"]) != version:
                    self.told[item["metadata"]["name"]] = version
                    tell("MODIFIED", {**item, "metadata": {"namespace": "gpu-operator", **item["metadata"]}})

    def kind(self, kind: str) -> list[Object]:
        return [o for key, o in self.objects.items() if key.startswith(kind + "/")]

    def _controllers(self) -> None:
        for workload in (*self.kind("DaemonSet"), *self.kind("Deployment")):
            name = f"{workload['metadata']['name']}-x"
            selector = workload["spec"]["template"]["spec"].get("nodeSelector") or {}
            fits = all(self.node.labels.get(key) == value for key, value in selector.items())
            if fits and name not in self.pods:
                self.pods[name] = recorded.pod_of(workload, self.node.name, name)
                self.runs[name] = kubelet.PodRun(ip="10.64.0.1")
            elif not fits and name in self.pods:
                self.remove(name)

    def remove(self, name: str) -> None:
        view = PodView(self.pods.pop(name))
        kubelet.stop(
            self.runs.pop(name), view, self.node, self.world, Account(self, view.namespace, view.service_account)
        )
        self.deleted.append(name)
        self._offer()

    def _offer(self) -> None:
        status = self.node_object["status"]
        status["capacity"] = {key: str(value) for key, value in self.node.offered.items()}
        status["allocatable"] = {key: str(self.node.healthy.get(key, 0)) for key in self.node.offered}

    # -- what became of it

    def ready(self) -> bool:
        return bool(self.pods) and not self.problems()

    def problems(self) -> dict[str, str]:
        """Pod (without the -x) -> what keeps it from being ready."""
        out = {}
        for name, run in self.runs.items():
            conditions = {c["type"]: c["status"] for c in run.conditions.values()}
            phase = (self.pods[name].get("status") or {}).get("phase")
            if conditions.get("Ready") != "True" and phase != "Succeeded":
                out[name.removesuffix("-x")] = run.problem or "not looked at yet"
        return out

    @property
    def said(self) -> str:
        """Everything that a person could find: problems, events, logs."""
        lines = list(self.problems().values()) + [message for _unused, _unused2, message in self.events]
        for run in self.runs.values():
            for container in run.containers.values():
                lines += container.log
        return "\n".join(lines)

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.node_object["metadata"]["labels"])

    @property
    def allocatable(self) -> dict[str, str]:
        return dict(self.node_object["status"]["allocatable"])


class Account:
    """API calls of a ServiceAccount against the Lab's objects, judged by its Roles and Bindings."""

    def __init__(self, lab: Lab, namespace: str, name: str) -> None:
        self.lab, self.namespace, self.name = lab, namespace, name

    def can(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        for binding in (*self.lab.kind("ClusterRoleBinding"), *self.lab.kind("RoleBinding")):
            where = binding["metadata"].get("namespace", "")
            if binding["kind"] == "RoleBinding" and where != namespace:
                continue
            if not any(
                s["kind"] == "ServiceAccount" and (s["name"], s.get("namespace")) == (self.name, self.namespace)
                for s in binding.get("subjects", [])
            ):
                continue
            role = self.lab.objects.get(f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}")
            for rule in (role or {}).get("rules") or []:
                if (
                    group in rule["apiGroups"]
                    and resource in rule["resources"]
                    and verb in rule["verbs"]
                    and (not rule.get("resourceNames") or name in rule["resourceNames"])
                ):
                    return True
        return False

    def _judge(self, verb: str, path: str) -> tuple[str, str, str, str]:
        found = re.fullmatch(
            r"/(?:api|apis/(?P<group>[^/]+))/v\w+(?:/namespaces/(?P<ns>[^/]+)(?=/))?/(?P<res>[^/?]+)"
            r"(?:/(?P<name>[^/?]+))?(?:/(?P<sub>\w+))?(?P<query>\?.*)?",
            path,
        )
        assert found, path
        group, resource = found["group"] or "", found["res"] + (f"/{found['sub']}" if found["sub"] else "")
        name = found["name"] or ""
        what = {
            "GET": "get" if name else "list",
            "POST": "create",
            "PUT": "update",
            "PATCH": "patch",
            "DELETE": "delete",
        }[verb]
        self.lab.calls.append((self.name, what, resource))
        if not self.can(what, group, resource, found["ns"] or "", name):
            scope = f'in the namespace "{found["ns"]}"' if found["ns"] else "at the cluster scope"
            user = f"system:serviceaccount:{self.namespace}:{self.name}"
            raise ApiError(
                403,
                f'{resource} is forbidden: User "{user}" '
                f'cannot {what} resource "{resource}" in API group "{group}" {scope}',
            )
        return resource, found["ns"] or "", name, found["query"] or ""

    _KINDS: ClassVar[dict[str, str]] = {
        "daemonsets": "DaemonSet",
        "configmaps": "ConfigMap",
        "nodefeatures": "NodeFeature",
        "nodefeaturerules": "NodeFeatureRule",
    }

    def get(self, path: str) -> Object:
        resource, _unused, name, query = self._judge("GET", path)
        if resource == "nodes":
            return copy.deepcopy(self.lab.node_object) if name else {"items": [copy.deepcopy(self.lab.node_object)]}
        if resource == "pods":
            if name:
                if name not in self.lab.pods:
                    raise ApiError(404, f'pods "{name}" not found')
                return copy.deepcopy(self.lab.pods[name])
            app = re.search(r"app%3D([\w-]+)", query)
            return {
                "items": [p for p in self.lab.pods.values() if not app or p["metadata"]["labels"].get("app") == app[1]]
            }
        if resource == "namespaces":
            return {"items": []}
        items = self.lab.kind(self._KINDS[resource])
        if name:
            item = self.lab.objects.get(f"{self._KINDS[resource]}/{name}")
            if item is None:
                raise ApiError(404, f'{resource} "{name}" not found')
            item["metadata"].setdefault("uid", f"uid-{name}")
            return copy.deepcopy(item)
        if "component%3Dnvidia-driver" in query:
            items = [
                i
                for i in items
                if i["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "nvidia-driver"
            ]
        return {"items": copy.deepcopy(items)}

    def post(self, path: str, body: Object) -> Object:
        resource, namespace, name, _unused = self._judge("POST", path)
        body = copy.deepcopy(body)
        if resource == "pods":
            body["metadata"] |= {"namespace": namespace, "uid": f"uid-{body['metadata']['name']}"}
            self.lab.pods[body["metadata"]["name"]] = body
            self.lab.runs[body["metadata"]["name"]] = kubelet.PodRun()
        elif resource == "pods/eviction":
            self.lab.remove(name)
        else:
            self._store(resource, body)
        return body

    def put(self, path: str, body: Object) -> Object:
        resource = self._judge("PUT", path)[0]
        if resource == "nodes":
            self.lab.set_labels(body["metadata"]["labels"])
            return self.lab.node_object
        self._store(resource, copy.deepcopy(body))
        return body

    def _store(self, resource: str, body: Object) -> None:
        body["metadata"] |= {"uid": f"uid-{body['metadata']['name']}", "resourceVersion": str(next(self.lab.versions))}
        self.lab.objects[f"{self._KINDS[resource]}/{body['metadata']['name']}"] = body

    def patch(self, path: str, body: Object) -> Object:
        resource, _unused, _unused2, _unused3 = self._judge("PATCH", path)
        assert resource == "nodes", resource
        meta = body["metadata"]
        self.lab.node_object["metadata"]["annotations"] |= {
            k: v for k, v in meta.get("annotations", {}).items() if v is not None
        }
        self.lab.set_labels(meta.get("labels", {}))
        return self.lab.node_object

    def delete(self, path: str, grace: int | None = None) -> Object:
        resource, _unused, name, _unused2 = self._judge("DELETE", path)
        if resource == "pods":
            if name not in self.lab.pods:
                raise ApiError(404, f'pods "{name}" not found')
            self.lab.remove(name)
        else:
            self.lab.objects.pop(f"{self._KINDS[resource]}/{name}", None)
        return {}
