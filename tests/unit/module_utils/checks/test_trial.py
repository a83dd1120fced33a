# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes are tried, and what pages of metrics tell."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks import _trial
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._trial import Trial

pytestmark = pytest.mark.rows("S39")
GPU = "nvidia.com/gpu"


def node(name, product="H100", ready=True, cordoned=False, **offers):
    status = {
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "allocatable": {"cpu": "8", **{f"nvidia.com/{key}": str(count) for key, count in offers.items()}},
    }
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": "2"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"unschedulable": cordoned}, "status": status}


def test_of_equal_nodes_the_one_with_most_free_is_tried():
    nodes = [node("a", gpu=8), node("b", gpu=8), node("c", gpu=8)]
    used = {"a": {GPU: 8}, "b": {GPU: 1}, "c": {GPU: 2}}
    assert _trial.choose(nodes, used) == ([Trial("b", "H100", GPU)], [])


def test_every_product_and_every_resource_is_tried_once():
    nodes = [
        node("a", product="H100-MIG-1g.10gb", gpu=7),
        node("b", product="H100", gpu=8),
        node("c", product="T4-SHARED", **{"gpu.shared": 4}),
        node("d", product="H200", **{"mig-1g.18gb": 2, "mig-3g.71gb": 1}),
    ]
    trials, busy = _trial.choose(nodes, {})
    assert [(one.node, one.product, one.resource) for one in trials] == [
        ("b", "H100", GPU),
        ("d", "H200", "nvidia.com/mig-1g.18gb"),
        ("d", "H200", "nvidia.com/mig-3g.71gb"),
        ("c", "T4", "nvidia.com/gpu.shared"),
    ]
    assert busy == []


def test_nodes_that_cannot_take_pods_are_left_out_and_full_ones_told():
    nodes = [node("a", ready=False, gpu=8), node("b", cordoned=True, gpu=8), node("c", gpu=2), node("d", gpu=0)]
    assert _trial.choose(nodes, {"c": {GPU: 2}}) == ([], [Trial("c", "H100", GPU)])


def test_the_pod_is_what_the_validator_is_without_its_rights():
    validator = {
        "spec": {
            "template": {
                "spec": {
                    "runtimeClassName": "nvidia",
                    "imagePullSecrets": [{"name": "pull"}],
                    "containers": [{"image": "registry.example.com/validator:1", "imagePullPolicy": "Always"}],
                }
            }
        }
    }
    program = _trial.program_of(validator)
    assert program is not None
    made = _trial.pod(Trial("a", "H100", GPU), program, "gpu-trial-1", "gpu-operator", 60)["spec"]
    assert (made["runtimeClassName"], made["imagePullSecrets"]) == ("nvidia", [{"name": "pull"}])
    assert made["automountServiceAccountToken"] is False
    for container in (*made["initContainers"], *made["containers"]):
        assert (container["image"], container["imagePullPolicy"]) == ("registry.example.com/validator:1", "Always")
        assert container["resources"] == {"limits": {GPU: "1"}}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert _trial.program_of(None) is None


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="a"} 30\nDCGM_FI_DEV_GPU_TEMP{gpu="1"} 30\n', ""),
        ('DCGM_FI_DEV_GPU_TEMP{UUID="a",gpu="0"} 30\nDCGM_FI_DEV_SM_CLOCK{gpu="0"} 3\n', "it tells of 1 GPUs"),
        ('# DCGM_FI_DEV_GPU_TEMP{gpu="0"} 30\nother{gpu="0"} 1\n', "it answers, and tells of no GPU"),
        ("<html>", "it answers, and tells of no GPU"),
    ],
)
def test_a_page_of_metrics_is_judged_by_the_gpus_it_tells_of(text, wrong):
    found = _trial.judge_metrics(node("a", gpu=2), text)
    assert found.startswith(wrong)
    assert bool(found) == bool(wrong)


@pytest.mark.parametrize(
    ("phase", "age", "goes"),
    [
        ("Succeeded", 1, True),
        ("Failed", 1, True),
        ("Running", 599, False),
        ("Pending", 599, False),
        ("Pending", 601, True),
    ],
)
def test_pods_of_trials_go_when_they_ended_or_are_twice_as_old_as_they_may_become(phase, age, goes):
    made = datetime(2026, 11, 27, 12, 0, 0, tzinfo=timezone.utc)
    pod = {
        "metadata": {"creationTimestamp": "2026-11-27T12:00:00Z"},
        "spec": {"activeDeadlineSeconds": 300},
        "status": {"phase": phase},
    }
    assert _trial.left_over(pod, made.timestamp() + age) is goes
