# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts, NodeFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._facts import (
    NFD_NODE,
    cluster_runtime,
    driver_daemonsets,
    driver_os,
    mixed_findings,
    node_facts,
    pci_gpus,
    slim_node,
    with_hardware,
    with_nodes,
)
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, connect


def _daemonset(image):
    containers = [{"name": "nvidia-driver-ctr", "image": image}]
    return {"spec": {"template": {"spec": {"containers": containers}}}}


@pytest.mark.rows("RT-01")
@pytest.mark.parametrize(
    ("runtimes", "expected"),
    [
        ([], "containerd"),
        (["crio"], "crio"),
        (["docker", "docker"], "docker"),
        (["crio", "containerd"], "containerd"),
        (["rkt"], "containerd"),
    ],
)
def test_one_containerd_node_decides_the_runtime(runtimes, expected):
    assert cluster_runtime([NodeFacts(f"n{i}", runtime=r) for i, r in enumerate(runtimes)]) == expected


@pytest.mark.parametrize(
    ("image", "known", "expected"),
    [
        ("nvcr.io/nvidia/driver:595.91.07-ubuntu24.04", ["ubuntu24.04", "rhel9"], "ubuntu24.04"),
        ("nvcr.io/nvidia/driver:595.91.07-ubuntu22.04", ["ubuntu24.04"], "ubuntu22.04"),
        ("nvcr.io/nvidia/driver:595-6.8.0-31-generic-ubuntu24.04", ["ubuntu24.04"], "ubuntu24.04"),
        ("nvcr.io/nvidia/driver@sha256:0123", [], ""),
    ],
)
def test_the_operating_system_of_a_driver_is_read_from_its_image(image, known, expected):
    assert driver_os(_daemonset(image), known) == expected


def test_only_driver_daemonsets_keep_an_operating_system():
    driver = _daemonset("nvcr.io/nvidia/driver:595.91.07-rhel9")
    driver["metadata"] = {"name": "nvidia-driver-daemonset"}
    other = _daemonset("nvcr.io/nvidia/driver:595.91.07-rhel9")
    other["metadata"] = {"name": "nvidia-dcgm-exporter"}
    assert driver_daemonsets([driver, other], ["rhel9"]) == {"nvidia-driver-daemonset": "rhel9"}


def test_a_node_is_cut_down_to_what_is_looked_at():
    node = slim_node(
        {
            "metadata": {"name": "a", "managedFields": [{}], "labels": {"x": "y"}},
            "spec": {"taints": [{"key": "t", "effect": "NoSchedule"}], "podCIDR": "192.0.2.0/24"},
            "status": {
                "images": [{"names": ["x"]}],
                "nodeInfo": {"containerRuntimeVersion": "cri-o://1.33.1"},
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
            },
        }
    )
    assert "images" not in node["status"]
    assert "managedFields" not in node["metadata"]
    assert [c["type"] for c in node["status"]["conditions"]] == ["Ready"]
    assert node_facts(node).runtime == "crio"


def test_nodes_are_in_the_order_of_their_names_whatever_order_they_were_listed_in():
    facts = with_nodes(ClusterFacts(), [NodeFacts("b", runtime="crio"), NodeFacts("a", runtime="crio")])
    assert [node.name for node in facts.nodes] == ["a", "b"]
    assert facts.runtime == "crio"


@pytest.mark.rows("S39")
def test_the_hardware_is_what_nfd_sees_on_the_pci_bus() -> None:
    def feature(node: str, *devices: tuple[str, str, str]) -> dict[str, Any]:
        elements = [{"attributes": dict(zip(("vendor", "class", "device"), d, strict=True))} for d in devices]
        features = {"instances": {"pci.device": {"elements": elements}}}
        return {"metadata": {"labels": {NFD_NODE: node}}, "spec": {"features": features}}

    gpu, bridge, other = ("10de", "0302", "20B2"), ("10de", "0680", "1af1"), ("8086", "0300", "1eb8")
    t4 = ("10de", "0300", "1eb8")
    items = [feature("a", gpu, gpu, bridge, t4, other), feature("a", gpu), feature("b", t4), feature("c")]
    items.append(feature("d", bridge))
    connection, _transport, _pauses = connect(FakeReply(200, {"metadata": {}, "items": items}))
    found = pci_gpus(connection)
    assert found == {"a": {"20b2": 2, "1eb8": 1}, "b": {"1eb8": 1}, "d": {}}, "c tells nothing of PCI devices"
    nodes = with_hardware([{"metadata": {"name": "a"}}, {"metadata": {"name": "z"}}], found)
    assert [node.get("pciGpus") for node in nodes] == [{"20b2": 2, "1eb8": 1}, None]


@pytest.mark.rows("P111")
def test_nodes_with_gpus_of_several_models_are_told_by_their_models() -> None:
    mixed = {"1eb8": 2, "2236": 1}
    buses = {"a": mixed, "b": {"1eb8": 3}, "c": mixed, "d": {"20b1": 1, "20f1": 1}, "e": {"2abc": 1, "1eb8": 1}}
    first, second = mixed_findings([{"metadata": {"name": name}} for name in "zecdba"], buses)
    assert (first.id, first.severity, first.target) == ("nodes.mixed-models", "warning", "node e")
    assert "(1 Tesla T4, 1 10de:2abc)" in first.detail
    assert second.target == "nodes a and c", "d has two ids of one product, b one model, the bus of z is not known"
    assert "(2 Tesla T4, 1 A10)" in second.detail
    assert "node_groups" in second.remedy
