# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds the GPUs of a node, and who would not get past the GPU taint."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._labels import plan_labels
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._mig_guard import busy_pods, gpu_pods, touches_mig
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._taints import (
    taint,
    tolerates,
    untolerated,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import build
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import NodeFacts
from ansible_collections.gpufleet.nvidia.tests.helpers import operands

GPU = {"nvidia.com/gpu": "1"}


def pod(name: str = "p", **more: Any) -> dict[str, Any]:
    spec = {"nodeName": "n1", "containers": [{"name": "c", "resources": {"limits": GPU}}], **more.pop("spec", {})}
    meta = {"namespace": "team", "name": name, **more.pop("metadata", {})}
    return {"metadata": meta, "spec": spec, "status": {"phase": more.pop("phase", "Running")}}


def asking(**resources: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": resources}]}


@pytest.mark.rows("S19")
@pytest.mark.parametrize(
    ("one", "holds"),
    [
        (pod(), True),
        (pod(phase="Pending"), True),
        (pod(phase="Unknown"), True),
        (pod(phase="Succeeded"), False),
        (pod(phase="Failed"), False),
        (pod(phase="Pending", spec={"nodeName": None}), False),
        (pod(spec=asking(limits={"nvidia.com/mig-1g.10gb": "1"})), True),
        (pod(spec=asking(limits={"nvidia.com/gpu.shared": "1"})), True),
        (pod(spec=asking(requests=GPU)), True),
        (pod(spec=asking(limits={"nvidia.com/gpu": "0"})), False),
        (pod(spec=asking(limits={"cpu": "1", "amd.com/gpu": "1"})), False),
        (pod(spec={"containers": [{"name": "c"}]}), False),
        (
            pod(spec={"containers": [{"name": "c"}], "initContainers": [{"name": "i", "resources": {"limits": GPU}}]}),
            True,
        ),
        (pod(metadata={"namespace": "gpu-operator"}), False),
        (pod(metadata={"labels": {"app": "nvidia-device-plugin-validator"}}), True),
        (pod(metadata={"labels": {"app": "train"}}), True),
    ],
)
def test_which_pods_hold_a_gpu(one: dict[str, Any], holds: bool) -> None:
    assert bool(gpu_pods([one], "gpu-operator")) is holds


@pytest.mark.rows("S19")
def test_pods_are_named_by_node() -> None:
    pods = [pod("b"), pod("a"), pod("c", spec={"nodeName": "n2"}), pod("d", phase="Succeeded")]
    assert busy_pods(pods) == {"n1": ["team/a", "team/b"], "n2": ["team/c"]}


@pytest.mark.rows("S19", "S45")
def test_pods_have_to_be_read_only_where_a_layout_would_change() -> None:
    policy = operands.policy_of()
    seen = {"feature.node.kubernetes.io/pci-10de.present": "true"}
    assert touches_mig(plan_labels(policy, NodeFacts("n", {**seen, "nvidia.com/mig.capable": "true"})))
    assert not touches_mig(plan_labels(policy, NodeFacts("n", seen)))


@pytest.mark.rows("S26")
@pytest.mark.parametrize(
    ("toleration", "passes"),
    [
        (None, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nvidia.com/gpu", "value": "true"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "false"}, False),
        ({"key": "nvidia.com/gpu"}, False),
        ({"key": "dedicated", "operator": "Exists"}, False),
        ({"operator": "Equal"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Other", "value": "true"}, False),
    ],
)
def test_tolerations_are_read_as_the_scheduler_does(toleration: dict[str, str] | None, passes: bool) -> None:
    spec = {"tolerations": [toleration]} if toleration else {}
    assert tolerates(spec, taint("true")) is passes
    assert tolerates(spec, {"key": "nvidia.com/gpu", "effect": "PreferNoSchedule"})


@pytest.mark.rows("S26", "COM-02")
@pytest.mark.parametrize("name", operands.VALUES_FILES)
def test_every_operand_tolerates_the_taint(name: str) -> None:
    made = build(operands.values_file(name), operands.cluster())
    assert len([one for one in made if one["kind"] == "DaemonSet"]) >= 5
    assert untolerated(made, [taint("true")]) == []


@pytest.mark.rows("S26")
def test_an_operand_that_lost_its_toleration_is_named() -> None:
    policy = operands.policy_of({"daemonsets": {"tolerations": [{"key": "other", "operator": "Exists"}]}})
    lines = untolerated(build(policy, operands.cluster()), [taint("true")])
    assert "DaemonSet nvidia-dcgm-exporter does not tolerate nvidia.com/gpu=true:NoSchedule" in lines
