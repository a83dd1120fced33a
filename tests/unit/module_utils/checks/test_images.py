# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of images is what the objects need, and a registry reaches every one of them."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._images import images_of, stack_images
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._registry import below
from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented

DIGEST = "sha256:" + "a" * 64
# Everything that has an image of its own.
WHOLE = {
    "driver": {"kernelModuleType": "open"},
    "gds": {"enabled": True},
    "gdrcopy": {"enabled": True},
    "dcgm": {"enabled": True},
    "nodeStatusExporter": {"enabled": True},
    "toolkit": {"version": DIGEST},
    "dcgmExporter": {"repository": "", "image": f"registry.example.org:5000/x/dcgm-exporter@{DIGEST}", "version": ""},
}


def listed(policy: Any = None, **params: Any) -> dict[str, dict[str, Any]]:
    lines: list[str] = []
    given = {"policy": policy, "namespace": "gpu-operator", "systems": ["ubuntu24.04"], **params}
    result = stack_images(given, False, lines.append).as_dict()
    assert undocumented("stack_images", result) == []
    images = {one["image"]: one for one in result["found"]["images"]}
    assert lines == sorted(images)
    return images


@pytest.mark.rows("S47", "INS-12")
def test_each_operating_system_and_kernel_adds_its_driver_image() -> None:
    one, two = listed(), listed(systems=["ubuntu24.04", "rhel9.6"])
    assert set(two) - set(one) == {"nvcr.io/nvidia/driver:595.91.07-rhel9"}
    policy = {"driver": {"usePrecompiled": True, "version": "595"}}
    kernels = listed(policy, kernels=["6.8.0-60-generic", "6.8.0-71-generic"])
    drivers = [image for image in kernels if "/driver:" in image]
    assert drivers == [f"nvcr.io/nvidia/driver:595-6.8.0-{n}-generic-ubuntu24.04" for n in (60, 71)]


MACHINES = {
    "sandboxWorkloads": {"enabled": True},
    "vgpuManager": {"enabled": True, "repository": "registry.example.com/vgpu", "version": "580.1"},
}


@pytest.mark.rows("S47", "S48", "INS-12")
def test_what_gives_gpus_to_virtual_machines_is_in_the_list() -> None:
    more = set(listed(MACHINES)) - set(listed())
    assert {image.rsplit("/", 1)[1].partition(":")[0] for image in more} == {
        "vgpu-manager",
        "vgpu-device-manager",
        "kubevirt-gpu-device-plugin",
    }
    kata = {**MACHINES, "sandboxWorkloads": {"enabled": True, "mode": "kata"}, "vgpuManager": {}}
    found = {image.rsplit("/", 1)[1].partition(":")[0] for image in set(listed(kata)) - set(listed())}
    assert found == {"vgpu-device-manager", "nvidia-sandbox-device-plugin", "k8s-cc-manager"}
    systems = listed(MACHINES, systems=["ubuntu24.04", "rhel9.6"], image_registry="mirror.example.com")
    managers = [image for image in systems if "/vgpu-manager:" in image]
    assert managers == [f"mirror.example.com/vgpu/vgpu-manager:580.1-{system}" for system in ("rhel9", "ubuntu24.04")]


@pytest.mark.rows("S47", "INS-12")
def test_digests_that_the_policy_gives_are_kept() -> None:
    images = listed(WHOLE)
    toolkit = images[f"nvcr.io/nvidia/k8s/container-toolkit@{DIGEST}"]
    assert toolkit["digest"] == DIGEST
    assert "DaemonSet nvidia-container-toolkit-daemonset" in toolkit["used_by"]
    assert images["nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"]["digest"] == ""


@pytest.mark.rows("S47")
def test_images_of_pods_that_a_container_starts_are_in_the_list() -> None:
    env = [{"name": "VALIDATOR_IMAGE", "value": "a/started:1"}, {"name": "VALIDATOR_IMAGE_PULL_POLICY", "value": "x"}]
    spec = {"containers": [{"image": "a/own:1", "env": env}], "initContainers": [{"image": "a/first:1"}]}
    made = {"kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"template": {"spec": spec}}}
    assert images_of([made, made]) == {f"a/{name}:1": ["DaemonSet d"] for name in ("first", "own", "started")}


@pytest.mark.rows("S47")
def test_a_registry_reaches_every_image_and_changes_nothing_else() -> None:
    before, after = listed(WHOLE), listed(WHOLE, image_registry="mirror.example.com/gpu/")
    assert all(image.startswith("mirror.example.com/gpu/") for image in after), sorted(after)
    assert f"mirror.example.com/gpu/x/dcgm-exporter@{DIGEST}" in after
    assert {image.partition("/")[2] for image in before} == {
        image.removeprefix("mirror.example.com/gpu/") for image in after
    }


@pytest.mark.rows("S47")
@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("nvcr.io/nvidia/k8s", "m.example.com/a/nvidia/k8s"),
        ("localhost/x", "m.example.com/a/x"),
        ("host:5000/x/y@sha256:1", "m.example.com/a/x/y@sha256:1"),
        ("library/nginx:1.27", "m.example.com/a/library/nginx:1.27"),
        ("nginx:1.27", "m.example.com/a/nginx:1.27"),
        ("registry.k8s.io", "m.example.com/a"),
        ("m.example.com/a/x", "m.example.com/a/x"),
    ],
)
def test_paths_below_another_registry(name: str, moved: str) -> None:
    assert below("m.example.com/a", name) == moved


def test_what_the_list_cannot_be_made_without_is_asked_for() -> None:
    with pytest.raises(Failure, match="precompiled driver images are made for one kernel each"):
        listed({"driver": {"usePrecompiled": True, "version": "595"}})
    with pytest.raises(Failure, match="is no operating system"):
        listed(systems=["24.04"])
    with pytest.raises(Failure, match="drivr"):
        listed({"drivr": {}})
