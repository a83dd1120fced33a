# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that hide GPUs, on a simulated node: what is offered, counted and watched without them."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _hidden, _nfd
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import cluster, node, objects_of, policy_of
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.node import Node, NodeSpec
from ansible_collections.gpufleet.nvidia.tests.unit.testbed.simulator.lab import Lab

T4 = NodeSpec("gpu-0000", product="T4", gpus=3)
UUID = Node(T4).gpus[1].uuid
MPS = {"config": {"name": "c", "create": True, "default": "d", "data": {"d": ""}}}
MPS["config"]["data"]["d"] = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"  # type: ignore[index]


def up(values: dict[str, Any], *entries: str, spec: NodeSpec = T4, spoil: Any = None) -> Lab:
    policy = policy_of(values)
    facts = cluster(node(spec.name), hidden={spec.name: entries})
    made = [*_nfd.build(policy, facts), *_hidden.objects(facts), *objects_of(policy, facts).values()]
    objects = {f"{one['kind']}/{one['metadata']['name']}": one for one in made}
    if spoil is not None:
        spoil(objects)
    lab = Lab(objects, spec)
    lab.deploy_labels(mig=False)
    return lab.run(900)


def watched(lab: Lab, pod: str) -> list[int]:
    """Places of the GPUs that a program of DCGM watches."""
    (found,) = [run.mem["watched"] for run in lab.runs[f"{pod}-x"].containers.values() if "watched" in run.mem]
    return [gpu.index for gpu in lab.node.gpus if gpu.uuid in found]


@pytest.mark.rows("P099")
@pytest.mark.parametrize("entry", [UUID, Node(T4).gpus[1].address])
def test_a_hidden_gpu_is_not_offered_counted_nor_watched(entry: str) -> None:
    lab = up({}, entry)
    assert lab.problems() == {}
    assert lab.allocatable == {"nvidia.com/gpu": "2"}
    assert lab.labels["nvidia.com/gpu.count"] == "2"
    assert watched(lab, "nvidia-dcgm-exporter") == [0, 2]


@pytest.mark.rows("P099")
def test_a_standalone_engine_hides_it_for_its_exporter() -> None:
    lab = up({"dcgm": {"enabled": True}}, UUID)
    assert lab.problems() == {}
    assert watched(lab, "nvidia-dcgm") == [0, 2]


@pytest.mark.rows("P099")
def test_shared_gpus_are_fewer_by_the_hidden_one() -> None:
    lab = up({"devicePlugin": MPS}, UUID)
    assert lab.problems() == {}
    assert lab.allocatable == {"nvidia.com/gpu": "8"}


@pytest.mark.rows("P099")
@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (("GPU-00000000-0000-0000-0000-000000000000",), "has no GPU that hidden_gpus names (GPU-00000000"),
        (("Tesla T4",), "hidden_gpus names all 3 GPUs of gpu-0000"),
    ],
)
def test_a_list_that_does_not_fit_keeps_all_gpus_from_pods(entries: tuple[str, ...], words: str) -> None:
    lab = up({}, *entries)
    assert {"nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter"} <= set(lab.problems())
    assert lab.allocatable == {}
    assert words in lab.said


def _without(key: str, name: str) -> Any:
    def spoil(objects: dict[str, Any]) -> None:
        spec = objects["DaemonSet/nvidia-device-plugin-daemonset"]["spec"]["template"]["spec"]
        (main,) = [one for one in spec["containers"] if one["name"] == "nvidia-device-plugin"]
        main[key] = [item for item in main[key] if item["name"] != name]

    return spoil


@pytest.mark.rows("P099")
@pytest.mark.parametrize(
    "spoil",
    [
        _without("env", "NODE_NAME"),
        _without("volumeMounts", _hidden.NAME),
        lambda made: made.pop(f"ConfigMap/{_hidden.NAME}"),
    ],
)
def test_nothing_is_offered_where_a_part_of_it_is_missing(spoil: Any) -> None:
    lab = up({}, UUID, spoil=spoil)
    assert "nvidia-device-plugin-daemonset" in lab.problems()
    assert lab.allocatable == {}
