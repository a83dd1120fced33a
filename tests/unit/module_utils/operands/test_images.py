# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image strings, pull policies and pull secrets."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import _images
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._model import Image
from ansible_collections.gpufleet.nvidia.tests.helpers.operands import cluster, container_of, node, pod_of, policy_of

DIGEST = "sha256:" + "a" * 64


@pytest.mark.rows("IMG-01")
@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        (Image("nvcr.io/nvidia", "driver", "595.91.07"), "nvcr.io/nvidia/driver:595.91.07"),
        (Image("nvcr.io/nvidia", "driver", DIGEST), f"nvcr.io/nvidia/driver@{DIGEST}"),
        (Image(image=f"mirror.local/driver@{DIGEST}"), f"mirror.local/driver@{DIGEST}"),
        (Image(image="mirror.local:5000/x/driver:1"), "mirror.local:5000/x/driver:1"),
    ],
)
def test_an_image_is_put_together(image: Image, wanted: str) -> None:
    assert _images.reference(image) == wanted


@pytest.mark.rows("IMG-01")
@pytest.mark.parametrize("image", [Image(), Image("r", "", "1"), Image("r", "i", ""), Image("", "i", "1")])
def test_half_an_image_is_refused(image: Image) -> None:
    with pytest.raises(ValueError, match="needs repository, image and version"):
        _images.reference(image)


@pytest.mark.rows("IMG-02")
@pytest.mark.parametrize(
    ("os", "version", "tag"),
    [
        ("ubuntu", "24.04", "ubuntu24.04"),
        ("rhel", "9.4", "rhel9"),
        ("rocky", "10.1", "rocky10"),
        ("ol", "8.9", "ol8"),
        ("sles", "15.7", "sles15.7"),
        ("debian", "12", "debian12"),
    ],
)
def test_images_of_the_driver_pod_are_built_for_the_operating_system(os: str, version: str, tag: str) -> None:
    policy = policy_of({"driver": {"kernelModuleType": "open"}, "gds": {"enabled": True}, "gdrcopy": {"enabled": True}})
    pod = pod_of(policy, "nvidia-driver-daemonset", cluster(node("a", os, version)))
    assert [c["image"] for c in pod["containers"]] == [
        f"nvcr.io/nvidia/driver:595.91.07-{tag}",
        f"nvcr.io/nvidia/cloud-native/nvidia-fs:2.29.4-{tag}",
        f"nvcr.io/nvidia/cloud-native/gdrdrv:v2.6-{tag}",
    ]
    assert container_of(pod, "k8s-driver-manager")["image"].endswith("k8s-driver-manager:v0.12.0")


@pytest.mark.rows("IMG-02")
def test_a_digest_names_the_operating_system_already() -> None:
    pod = pod_of(policy_of({"driver": {"version": DIGEST}}), "nvidia-driver-daemonset")
    assert pod["containers"][0]["image"] == f"nvcr.io/nvidia/driver@{DIGEST}"


@pytest.mark.rows("IMG-03")
def test_a_precompiled_driver_is_built_for_the_kernel() -> None:
    policy = policy_of({"driver": {"usePrecompiled": True, "version": "595"}})
    pod = pod_of(policy, "nvidia-driver-daemonset-6.8.0-60-generic-ubuntu24.04")
    assert pod["containers"][0]["image"] == "nvcr.io/nvidia/driver:595-6.8.0-60-generic-ubuntu24.04"
    bare = _images.precompiled(Image(image="mirror.local/driver:595"), "6.8.0-60-generic", "ubuntu24.04")
    assert bare == "mirror.local/driver:595-6.8.0-60-generic-ubuntu24.04"


@pytest.mark.rows("IMG-04")
@pytest.mark.parametrize(
    ("given", "wanted"),
    [("Always", "Always"), ("Never", "Never"), ("", "IfNotPresent"), ("always", "IfNotPresent"), ("x", "IfNotPresent")],
)
def test_a_pull_policy_is_one_that_kubernetes_knows(given: str, wanted: str) -> None:
    assert _images.pull_policy(Image(pull_policy=given)) == wanted


@pytest.mark.rows("IMG-04")
def test_pull_secrets_of_all_images_of_a_pod_are_merged() -> None:
    policy = policy_of(
        {
            "validator": {"imagePullSecrets": ["one", "two"]},
            "gfd": {"imagePullSecrets": ["two", "three"]},
            "devicePlugin": {"imagePullSecrets": ["four"], "config": {"name": "c"}},
        }
    )
    secrets = pod_of(policy, "gpu-feature-discovery")["imagePullSecrets"]
    assert [secret["name"] for secret in secrets] == ["one", "two", "three", "four"]
    assert "imagePullSecrets" not in pod_of(policy, "nvidia-driver-daemonset")
    validator = pod_of(policy, "nvidia-operator-validator")
    env = {e["name"]: e.get("value") for e in container_of(validator, "cuda-validation")["env"]}
    assert env["VALIDATOR_IMAGE_PULL_SECRETS"] == "one,two"
