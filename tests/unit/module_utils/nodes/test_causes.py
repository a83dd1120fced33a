# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the words of containers, kubelet and API server to a cause and a next step."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._wait import Trouble
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._causes import (
    FINAL,
    LONG,
    MOMENT,
    cause_of,
    names,
    one_sentence,
)

KERNEL_IMAGE = "nvcr.io/nvidia/driver:595-6.8.0-60-generic-ubuntu24.04"


def ended(raw: str, restarts: int = 2, reason: str = "CrashLoopBackOff") -> Trouble:
    return Trouble(reason, "the container ended", "n", "pod-x", "main", raw=raw, restarts=restarts)


def pull(raw: str, image: str = "registry.example.com/a:1", final: bool = False) -> Trouble:
    return Trouble("ImagePullBackOff", "", "n", "pod-x", "main", final, raw, image)


@pytest.mark.rows("S28", "S01", "S08", "P036", "P037")
@pytest.mark.parametrize(
    ("layer", "trouble", "text", "remedy", "patience"),
    [
        (
            "driver",
            ended("NVRM: GPU is already bound to nouveau."),
            "nouveau holds the GPU",
            "Blacklist nouveau",
            FINAL,
        ),
        ("driver", ended("No precompiled package found for kernel 6.8"), "no precompiled", "usePrecompiled", FINAL),
        ("driver", ended("Could not resolve Linux kernel version"), "headers of the node's", "repoConfig", FINAL),
        ("driver", ended("insmod: Required key not available"), "Secure Boot", "Enrol the key", FINAL),
        ("driver", ended("requires use of the open kernel modules"), "kernel module", "kernelModuleType", FINAL),
        ("driver", ended("Module nvidia is in use"), "cannot be unloaded", "drain the node", FINAL),
        ("validator", ended("error code system not yet initialized"), "fabric manager", "nvidia-fabricmanager", FINAL),
        ("device plugin", ended("could not load NVML library"), "does not see the driver", "toolkit", FINAL),
        ("toolkit", ended('nodes is forbidden: User "x" cannot get'), "lacks a right", "puts the roles back", FINAL),
        ("driver", ended("nouveau", restarts=0), "nouveau holds the GPU", "Blacklist", MOMENT),
        ("driver", ended("who knows"), "main ends again and again (who knows)", "kubectl logs -n ns", LONG),
        ("driver", ended("who knows", restarts=5), "ends again and again", "--previous pod-x -c main", FINAL),
        (
            "driver",
            pull("not found", KERNEL_IMAGE, True),
            "driver for kernel 6.8.0-60-generic",
            "usePrecompiled",
            FINAL,
        ),
        ("driver", pull("not found", final=True), "image registry.example.com/a:1", "Correct repository", FINAL),
        ("driver", pull("401 Unauthorized"), "cannot be pulled", "imagePullSecrets", LONG),
        ("driver", pull("i/o timeout"), "cannot be pulled", "reaches the registry", LONG),
        ("driver", Trouble("FailedMount", "", raw='configmap "a"'), 'mounted (configmap "a")', "Make what", LONG),
        ("node", Trouble("NodeNotReady", ""), "the node is not ready", "See kubelet", LONG),
        ("driver", Trouble("CreateContainerConfigError", "", container="c", raw="no secret"), "cannot start", "", LONG),
    ],
)
def test_a_cause_and_a_next_step_for_what_programs_say(
    layer: str, trouble: Trouble, text: str, remedy: str, patience: str
) -> None:
    cause = cause_of(layer, trouble, "ns")
    assert text in cause.text
    assert remedy in cause.remedy
    assert cause.patience == patience


@pytest.mark.rows("P131", "S59", "S38")
@pytest.mark.parametrize(
    ("raw", "text", "patience"),
    [
        ('pods "x" is forbidden: violates PodSecurity "baseline:latest"', "pod security", MOMENT),
        ('pods "x" is forbidden: exceeded quota: small', "a ResourceQuota refuses", MOMENT),
        ("failed quota: small: must specify limits.cpu", "a ResourceQuota refuses", MOMENT),
        ("insufficient quota to match these scopes", "priority class", MOMENT),
        ('failed calling webhook "a": connection refused', "does not answer", LONG),
        ('admission webhook "a" denied the request', "admission policy refuses", LONG),
        ("serviceaccount not found", "its pods are refused (serviceaccount", LONG),
    ],
)
def test_a_refusal_by_the_api_server_says_whose_it_is(raw: str, text: str, patience: str) -> None:
    cause = cause_of("driver", Trouble("FailedCreate", "", raw=raw))
    assert text in cause.text
    assert cause.remedy
    assert cause.patience == patience


@pytest.mark.rows("S28")
@pytest.mark.parametrize(
    "raw",
    [
        'failed to get sandbox runtime: no runtime for "nvidia" is configured',
        "failed to find runtime handler nvidia from runtime list map[runc:{}]",
    ],
)
def test_an_unknown_runtime_handler_is_told_for_each_runtime(raw: str) -> None:
    assert (
        "does not know the runtime handler"
        in cause_of("validator", Trouble("FailedCreatePodSandBox", "", raw=raw)).text
    )
    other = cause_of("validator", Trouble("FailedCreatePodSandBox", "", raw="cni plugin not initialized"))
    assert "network plugin" in other.remedy


def test_long_words_of_programs_are_cut_and_kept_on_one_line() -> None:
    text = cause_of("driver", ended("a\nb " * 200)).text
    assert "\n" not in text
    assert len(text) < 320


def test_names_and_sentences() -> None:
    assert names(["a"]) == "node a"
    assert names(["a", "b", "c"]) == "nodes a, b and c"
    assert names([str(i) for i in range(30)]).endswith("8, 9 and 20 more")
    assert one_sentence("driver", "it broke", "Mend it.") == "driver failed: it broke. Mend it."


@pytest.mark.rows("P105")
@pytest.mark.parametrize(
    "raw",
    [
        "error getting minor number: Not Supported",
        "failed to get device minor number for GPU 0: Not Supported",
        "Not Supported: cannot query the minor number",
    ],
)
def test_boards_without_device_numbers_are_no_fault_of_the_driver_and_another_way_to_share_is_named(raw: str) -> None:
    cause = cause_of("MPS", ended(raw), "ns")
    assert "without which MPS cannot share them" in cause.text
    assert "timeSlicing" in cause.remedy
    assert cause.patience == FINAL
