# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NFD's labels and rules, shell text, fleets, and the registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.simulator import fleet, nfd, registry, shell
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.faults import Faults
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator.node import Node, NodeSpec

CHART = {
    "sources": {
        "pci": {"deviceClassWhitelist": ["02", "0200", "0207", "0300", "0302"], "deviceLabelFields": ["vendor"]}
    }
}
NODE = Node(NodeSpec("n", product="H100-SXM5-80GB", gpus=8, nvswitch=True, mellanox=True, os="rhel9.6"))


def worker_labels(config: dict[str, object], sys: bool = True) -> dict[str, str]:
    found, local = nfd.features(NODE, sys, NODE.fs.read("/etc/os-release"), {"x": "mine=1\nexample.com/other\n"})
    return nfd.labels(found, local, config)


def test_pci_labels_follow_the_workers_configuration() -> None:
    def pci(found: dict[str, str]) -> set[str]:
        return {key.removeprefix(f"{nfd.NS}/") for key in found if "/pci-" in key}

    assert pci(worker_labels(CHART)) == {"pci-10de.present", "pci-15b3.present", "pci-1a03.present", "pci-8086.present"}
    assert pci(worker_labels({})) == {"pci-0300_1a03.present", "pci-0302_10de.present"}
    assert pci(worker_labels(CHART, sys=False)) == set()


def test_labels_of_kernel_system_and_local_files() -> None:
    found = worker_labels(CHART)
    assert found[f"{nfd.NS}/kernel-version.full"] == "6.8.0-60-generic"
    assert found[f"{nfd.NS}/system-os_release.ID"] == "rhel"
    assert found[f"{nfd.NS}/system-os_release.VERSION_ID"] == "9.6"
    assert found[f"{nfd.NS}/system-os_release.VERSION_ID.major"] == "9"
    assert (found[f"{nfd.NS}/mine"], found["example.com/other"]) == ("1", "true")


def rule(**labels: str) -> dict[str, object]:
    expression = {"nvidia_peermem": {"op": "Exists"}}
    term = {"feature": "kernel.loadedmodule", "matchExpressions": expression}
    return {"spec": {"rules": [{"name": "r", "labels": labels, "matchFeatures": [term]}]}}


def test_rules_follow_loaded_modules() -> None:
    node = Node(NodeSpec("n"))
    found, _unused = nfd.features(node, True, None, {})
    assert nfd.rule_labels([rule(**{"nvidia.com/peermem.capable": "true"})], found) == {}
    node.load("nvidia_peermem")
    found, _unused = nfd.features(node, True, None, {})
    assert nfd.rule_labels([rule(**{"nvidia.com/peermem.capable": "true"}, plain="1")], found) == {
        "nvidia.com/peermem.capable": "true",
        f"{nfd.NS}/plain": "1",
    }


@pytest.mark.parametrize(
    ("op", "value", "matches"),
    [
        ("In", ["7", "6"], True), ("NotIn", ["6"], False), ("InRegexp", ["^6$"], True), ("Gt", ["5"], True),
        ("Lt", ["6"], False), ("Ge", ["6"], True), ("GtLt", ["5", "7"], True), ("Exists", [], True),
        ("DoesNotExist", [], False), ("IsTrue", [], False),
    ],
)  # fmt: skip
def test_operators_of_rules(op: str, value: list[str], matches: bool) -> None:
    found, _unused = nfd.features(NODE, True, None, {})
    term = {"feature": "kernel.version", "matchExpressions": {"major": {"op": op, "value": value}}}
    rules = [{"spec": {"rules": [{"labels": {"a/b": "1"}, "matchFeatures": [term]}]}}]
    assert bool(nfd.rule_labels(rules, found)) is matches


@pytest.mark.parametrize(
    ("config", "allowed"),
    [
        ({}, True),
        ({"denyLabelNs": ["*"]}, False),
        ({"denyLabelNs": ["nvidia.com"]}, False),
        ({"denyLabelNs": ["*"], "extraLabelNs": ["nvidia.com"]}, True),
    ],
)
def test_the_master_gives_labels_of_allowed_namespaces(config: dict[str, object], allowed: bool) -> None:
    assert nfd.allowed("nvidia.com/gpu.count", config) is allowed
    assert nfd.allowed(f"{nfd.NS}/x", config)
    assert not nfd.allowed("kubernetes.io/x", {})


def test_labels_that_are_not_found_any_more_are_taken_away_and_others_stay() -> None:
    patch = nfd.change({"a/b": "1", "c/d": "1", "mine": "1"}, "a/b,c/d", {"a/b": "2"})
    assert patch == {"metadata": {"labels": {"a/b": "2", "c/d": None}, "annotations": {nfd.OWNED: "a/b"}}}
    assert nfd.change({"a/b": "2"}, "a/b", {"a/b": "2"}) is None


def test_every_nodefeature_object_of_a_node_counts() -> None:
    objects = [
        {"metadata": {"name": "nvidia-features-for-n"}, "spec": {"labels": {"nvidia.com/gpu.count": "8"}}},
        {"metadata": {"name": "n"}, "spec": {"labels": {"x/y": "1"}, "features": {"flags": {"f": {"elements": {}}}}}},
    ]
    found, labels = nfd.merged(objects, "n")
    assert labels == {"x/y": "1", "nvidia.com/gpu.count": "8"}
    assert list(found["flags"]) == ["f"]


# -- shell text


def test_a_script_that_waits_sources_and_becomes_another_program() -> None:
    wait = 'while [ ! -e "$ready" ]; do\n  echo "waiting; still"\n  sleep 5\ndone\n'
    text = f'ready=/run/x\n{wait}. "$ready"\nexec prog -v\n'
    script = shell.read(text)
    assert (script.waits, script.sources, script.command, script.forever) == (
        ("/run/x",),
        ("/run/x",),
        ("prog", "-v"),
        False,
    )


@pytest.mark.parametrize(
    ("text", "forever"),
    [
        ("echo ok; while true; do sleep 86400; done", True),
        ("trap 'exit 0' TERM\nwhile :; do\n  sleep 3600 &\n  wait $!\ndone", True),
        ("sleep infinity", True),
        ("until [ -f /x ]; do sleep 1; done", False),
    ],
)
def test_scripts_that_never_end(text: str, forever: bool) -> None:
    script = shell.read(text)
    assert script.forever is forever
    assert script.command == ()


def test_files_that_a_hook_removes() -> None:
    assert shell.read("rm -f /a/*-ready /a/.b").removes == ("/a/*-ready", "/a/.b")


# -- fleets and images


def test_the_fleets_that_come_along() -> None:
    assert {path.stem for path in fleet.FLEETS.glob("*.yaml")} == {
        "clouds",
        "default",
        "facts",
        "faults",
        "hidden",
        "models",
        "preinstalled",
        "runtimes",
        "sandbox",
        "sandbox-own",
        "single",
    }
    default = fleet.load("default")
    assert {spec.product for spec in default} == {"H100-SXM5-80GB", "A100-SXM4-80GB", "T4", "L4", ""}
    assert len({spec.os_id for spec in default}) == 2
    assert [spec.name for spec in fleet.load("facts")] == ["gpu-0000", "gpu-0001"]
    assert all(spec.host_driver for spec in fleet.load("preinstalled") if spec.gpus)
    single = fleet.load("single")
    assert len(single) == 1
    assert single[0].control_plane
    assert single[0].gpus


def test_a_fleet_is_repeated_to_any_size_by_its_gpu_nodes() -> None:
    specs = fleet.load("default", 100)
    assert len({spec.name for spec in specs}) == 100
    assert sum(1 for spec in specs if not spec.gpus) == 1
    assert [spec.name for spec in fleet.load("facts", 3)] == ["gpu-0000", "gpu-0001", "gpu-0002"]


def test_nodes_have_no_label_of_nfd_or_nvidia_at_first_but_what_the_fleet_says() -> None:
    for number, spec in enumerate(fleet.load("facts")):
        labels = fleet.node_object(spec, number)["metadata"]["labels"]
        assert not [key for key in labels if "nvidia" in key or "feature" in key]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{name: a, product: X1, gpus: 1}", "product 'X1' is not one of"),
        ("{name: a, product: T4}", "gpus is missing"),
        ("{name: a, color: red}", "unknown key color"),
        ("{name: a, product: T4, gpus: 1, mig: [1g.5gb]}", "no MIG profile of T4"),
        ("{name: a, product: T4, gpus: 1, others: {X1: 1}}", "others: 'X1' is not one of"),
        ("{name: a, others: {T4: 1}}", "gpus of a product, which are missing"),
        ("{name: a, runtime: 'rkt://1'}", "'rkt' is not one of"),
        ("{name: a, product: T4, gpus: 3, drivers: [nvidia, none]}", "drivers: 2 names for 3 GPUs"),
        ("{name: a, product: T4, gpus: 1, drivers: uio}", "drivers: 'uio' is not one of"),
        ("{name: a, product: T4, gpus: 1, vgpu: sriov}", "vgpu: 'sriov' is not one of"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused_with_group_and_key(row: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(f"nodes: [{row}]")
    with pytest.raises(fleet.FleetError, match=words):
        fleet.load(str(path))


@pytest.mark.parametrize(
    ("reference", "there"),
    [
        ("nvcr.io/nvidia/driver:595.91.07-ubuntu24.04", True),
        ("nvcr.io/nvidia/driver:595.91.07-rhel9", True),
        ("nvcr.io/nvidia/driver:595.91.07", False),
        ("nvcr.io/nvidia/driver:595.91.07-rhel9.6", False),
        ("nvcr.io/nvidia/gpu-operator:v26.7.0", True),
        ("registry.k8s.io/nfd/node-feature-discovery:v0.19.0", True),
        ("docker.io/library/busybox:latest", False),
    ],
)
def test_images_that_exist(reference: str, there: bool) -> None:
    assert (registry.find(reference) is not None) is there


def test_a_precompiled_driver_image_names_its_kernel() -> None:
    image = registry.find("nvcr.io/nvidia/driver:595-6.8.0-60-generic-ubuntu24.04")
    assert image is not None
    assert (image.version, image.kernel, image.system) == ("595.91.07", "6.8.0-60-generic", "ubuntu24.04")


def test_faults_are_read_again_when_their_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "control.yaml"
    faults = Faults(path=path)
    assert not faults.reload()
    path.write_text("images_missing: ['a*']\n")
    assert faults.reload()
    assert faults.images_missing == ("a*",)
    assert not faults.reload()
    path.unlink()
    assert faults.reload()
    assert faults.images_missing == ()
