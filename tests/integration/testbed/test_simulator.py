# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulator on a real API server, without our code: kubectl applies recorded objects of NVIDIA's operator."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.practice import Practice
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator import recorded

FAST = 200
PATIENCE = 120


class Bench:
    """A running fleet, and kubectl as its admin."""

    def __init__(self, practice: Practice) -> None:
        self.practice = practice

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        environment = {**os.environ, "KUBECONFIG": str(self.practice.cluster.kubeconfig())}
        command = [str(self.practice.cluster.kubectl), *arguments]
        done = subprocess.run(command, input=stdin, env=environment, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def apply(self, objects: dict[str, Any]) -> None:
        """Everything of a stack; custom resources after their definitions."""
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": recorded.NAMESPACE}}
        definitions = [o for o in objects.values() if o["kind"] == "CustomResourceDefinition"]
        self._apply([space, *definitions])
        for definition in definitions:
            self.kubectl(
                "wait", "--for=condition=Established", f"crd/{definition['metadata']['name']}", "--timeout=60s"
            )
        accounts = [o for o in objects.values() if o["kind"] in ("ServiceAccount", "RuntimeClass", "ConfigMap")]
        self._apply(accounts)
        self._apply([o for o in objects.values() if o not in definitions and o not in accounts])

    def _apply(self, items: list[dict[str, Any]]) -> None:
        if items:
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
            self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def label_as_the_operator_does(self) -> None:
        for key, node in recorded.objects("default", nfd=False, nodes=True).items():
            if key.startswith("Node/"):
                labels = {k: v for k, v in node["labels"].items() if "gpu.product" not in k and "mig.capable" not in k}
                self.kubectl("label", "node", key[5:], "--overwrite", *(f"{k}={v}" for k, v in labels.items()))

    def until(self, what: str, holds: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = holds()
            if found:
                return found
            time.sleep(0.5)
        pytest.fail(f"{what} is not so after {PATIENCE} s:\n{self.kubectl('get', 'pods', '-A', '-o', 'wide')}")

    def allocatable(self) -> dict[str, str | None]:
        return {
            n["metadata"]["name"]: n["status"]["allocatable"].get("nvidia.com/gpu") for n in self.get("nodes")["items"]
        }

    def unready(self) -> list[str]:
        pods = self.get("pods", "-n", recorded.NAMESPACE)["items"]
        return [
            p["metadata"]["name"]
            for p in pods
            if p["status"].get("phase") != "Succeeded"
            and not any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", []))
        ]

    def messages(self, app: str) -> str:
        """What the statuses of an app's pods say of containers that ended or wait."""
        text = ""
        for pod in self.get("pods", "-n", recorded.NAMESPACE, "-l", f"app={app}")["items"]:
            status = pod["status"]
            for c in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
                for state in (c["state"], c["lastState"]):
                    text += "".join(f"{s.get('reason')}: {s.get('message', '')}\n" for s in state.values())
        return text


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Practice(tmp_path_factory.mktemp("simulator") / "cluster", "facts", speed=FAST) as practice:
        yield Bench(practice)


def test_without_one_right_a_node_stays_down_in_the_api_servers_words(bench: Bench) -> None:
    objects = copy.deepcopy(recorded.objects("default"))
    rule = next(r for r in objects["Role/nvidia-operator-validator"]["rules"] if "pods" in r["resources"])
    rule["verbs"].remove("create")
    bench.apply(objects)
    bench.until(
        "NFD's label",
        lambda: all(
            n["metadata"]["labels"].get("feature.node.kubernetes.io/pci-10de.present") == "true"
            for n in bench.get("nodes")["items"]
        ),
    )
    bench.label_as_the_operator_does()
    refused = 'cannot create resource "pods" in API group "" in the namespace "gpu-operator"'
    bench.until("the refusal", lambda: refused in bench.messages("nvidia-operator-validator"))


def test_recorded_objects_of_the_operator_come_up(bench: Bench) -> None:
    bench.apply(recorded.objects("default"))
    bench.until("every pod ready", lambda: not bench.unready())
    bench.until("GPUs offered", lambda: bench.allocatable() == {"gpu-0000": "8", "gpu-0001": "1"})
    labels = bench.until(
        "labels of GFD",
        lambda: {
            n["metadata"]["name"]: n["metadata"]["labels"]["nvidia.com/gpu.product"]
            for n in bench.get("nodes")["items"]
            if "nvidia.com/gpu.product" in n["metadata"]["labels"]
        },
    )
    assert labels == {"gpu-0000": "NVIDIA-H100-80GB-HBM3", "gpu-0001": "Tesla-T4"}


def test_a_mig_label_becomes_instances_and_other_resources(bench: Bench) -> None:
    bench.kubectl("label", "node", "gpu-0000", "nvidia.com/mig.config=all-1g.10gb", "--overwrite")
    bench.until("MIG devices offered", lambda: bench.allocatable()["gpu-0000"] == "56")
    labels = bench.get("node", "gpu-0000")["metadata"]["labels"]
    assert labels["nvidia.com/mig.config.state"] == "success"
    bench.kubectl("label", "node", "gpu-0000", "nvidia.com/mig.config=all-disabled", "--overwrite")
    bench.until("whole boards offered", lambda: bench.allocatable()["gpu-0000"] == "8")


def test_the_scheduler_gives_a_user_pod_one_of_the_gpus(bench: Bench) -> None:
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
    }  # fmt: skip
    bench.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    bench.until("the pod runs", lambda: bench.get("pod", "train")["status"].get("phase") == "Running")
    assert bench.get("pod", "train")["spec"]["nodeName"] == "gpu-0000"
    bench.kubectl("delete", "pod", "train", "--now")


def test_images_and_nodes_break_and_mend_while_it_runs(bench: Bench) -> None:
    bench.practice.control.write_text("images_missing: ['nvcr.io/nvidia/k8s/dcgm-exporter:*']\n")
    exporter = "DaemonSet/nvidia-dcgm-exporter"
    changed = recorded.objects("default")[exporter]
    image = "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.2-4.8.1-distroless"
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = image
    bench.apply({exporter: changed})
    words = f'ImagePullBackOff: Back-off pulling image "{image}"'
    bench.until("the missing image", lambda: words in bench.messages("nvidia-dcgm-exporter"))
    bench.practice.control.write_text("nodes: {gpu-0001: {gpus_visible: 0}}\n")
    bench.until("every pod ready", lambda: not bench.unready())
    bench.until("the lost GPU", lambda: bench.allocatable() == {"gpu-0000": "8", "gpu-0001": "0"})
    bench.practice.control.write_text("")
    bench.until("the GPU is back", lambda: bench.allocatable() == {"gpu-0000": "8", "gpu-0001": "1"})


def test_a_daemonset_that_goes_takes_its_resource_along(bench: Bench) -> None:
    bench.kubectl("delete", "daemonset", "-n", recorded.NAMESPACE, "nvidia-device-plugin-daemonset")
    bench.until("nothing to allocate", lambda: bench.allocatable() == {"gpu-0000": "0", "gpu-0001": "0"})
