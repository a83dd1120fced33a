# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each check of the sandbox validator fails for its own reason, and the run says layer, node, cause and next step."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack import _stages
from ansible_collections.gpufleet.nvidia.tests.integration.faults.sentences import plain
from ansible_collections.gpufleet.nvidia.tests.integration.sandbox.machines import (
    A10_HALF,
    CC,
    H100,
    KATA,
    KUBEVIRT,
    PASS,
    VGPU,
    host,
    offers,
    row,
    serve,
)


class Case(NamedTuple):
    """``control``: what the simulator is told of the node; ``label``: what a person has written on it; ``parts``: what
    is read, in this order; ``missing``: the status file that is not there; ``again``: the operand whose pod does its
    work anew once the fault is mended, as after a reboot; ``offers``: what the node has then."""

    control: dict[str, Any]
    label: str
    parts: tuple[str, ...]
    missing: str
    again: str
    offers: dict[str, str]


VFIO, MANAGER = "nvidia-vfio-manager", "nvidia-vgpu-manager-daemonset"
UNBOUND = "sandbox validator failed: GPUs of the node are not bound to vfio-pci (vfio-pci-validation: "
NEXT = "See the log of the VFIO manager's pod there"
ROUNDS: dict[str, tuple[dict[str, Any], dict[str, Case]]] = {
    "hosts that are not set up": (
        KUBEVIRT,
        {
            PASS: Case(
                {"no_iommu": True}, "", (UNBOUND, "device: 0000:17:00.0 driver: ''", NEXT, "IOMMU"), "vfio-pci-ready",
                VFIO, {H100: "2"},
            ),
            VGPU: Case(
                {"no_vfs": True}, "",
                ("sandbox validator failed: the vGPU manager does not work on the node, or none of its GPUs can be cut",
                 "vgpu-manager-validation", "SR-IOV"),
                "vgpu-manager-ready", MANAGER, {A10_HALF: "2"},
            ),
        },
    ),
    "a GPU that its driver holds, and a set of vGPUs that there is not": (
        KUBEVIRT,
        {
            PASS: Case(
                {"vfio_held": [1], "nouveau": True}, "",
                ("sandbox validator failed: ", "device: 0000:18:00.0 driver: "), "vfio-pci-ready", VFIO,
                {H100: "2"},
            ),
            VGPU: Case(
                {}, "nvidia.com/vgpu.config=none-such",
                ("sandbox validator failed: there are no vGPUs on the node", "See the log of the vGPU device manager's",
                 "nvidia.com/vgpu.config"),
                "vgpu-devices-ready", "", {A10_HALF: "2"},
            ),
        },
    ),
    "a manager of confidential computing that ends": (
        KATA,
        {
            CC: Case(
                {"crash": {"nvidia-cc-manager": "GPU 0000:17:00.0 did not boot"}}, "",
                ("confidential computing manager failed: ", "GPU 0000:17:00.0 did not boot", "kubectl logs"),
                "cc-manager-ready", "nvidia-cc-manager", {"nvidia.com/pgpu": "1"},
            ),
        },
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stages, "FINAL_AFTER", 1.0)


@pytest.mark.rows("VAL-09", "VAL-10", "S01", "S48", "P132")
@pytest.mark.parametrize("name", ROUNDS)
def test_a_check_fails_for_its_own_reason_and_passes_once_that_is_mended(vms: Any, name: str) -> None:
    values, cases = ROUNDS[name]
    vms.empty()
    for node in cases:
        serve(vms, **{node.replace("-", "_"): "vm-vgpu" if node == VGPU else "vm-passthrough"})
    vms.control(nodes={node: case.control for node, case in cases.items() if case.control})
    for node, case in cases.items():
        if case.label:
            vms.kubectl("label", "node", node, case.label, user="admin")
    failed = vms.stack(values, stage_timeout=30, max_failed_nodes=len(cases))
    # The other nodes are none the worse for it.
    assert {one["name"] for one in failed["found"]["nodes"] if not one["ready"]} == set(cases)
    for node, case in cases.items():
        sentence = plain(row(failed, node)["trouble"])
        assert re.search(".*".join(re.escape(part) for part in case.parts), sentence), sentence
        assert case.missing not in host(vms, node)[0]
        assert offers(vms, node) == {}
    vms.control()
    for node, case in cases.items():
        if case.label:
            vms.kubectl("label", "node", node, case.label.split("=")[0] + "-", user="admin")
        if case.again:
            where = (f"--field-selector=spec.nodeName={node}", "-n", vms.namespace)
            apps = f"app in ({case.again}, nvidia-sandbox-validator)"
            vms.kubectl("delete", "pod", "-l", apps, *where, user="admin")
    well = vms.stack(values)
    assert not well["failed"], well["msg"]
    for node, case in cases.items():
        assert offers(vms, node) == case.offers
        assert case.missing in host(vms, node)[0]


@pytest.mark.rows("ST-13", "S01", "S48", "IMG-02")
def test_a_vgpu_manager_that_is_in_no_registry_is_named(vms: Any) -> None:
    vms.empty()
    serve(vms, vm_vgpu="vm-vgpu")
    values = {**KUBEVIRT, "vgpuManager": {**KUBEVIRT["vgpuManager"], "version": "9.9"}}
    failed = vms.stack(values, stage_timeout=30, max_failed_nodes=1)
    sentence = row(failed, VGPU)["trouble"]
    assert sentence.startswith("vGPU manager failed: image registry.example.com/nvidia/vgpu-manager:9.9-ubuntu24.04 ")
    assert "Correct repository, image or version in the policy, or mirror the image." in sentence
    assert host(vms, VGPU)[0] <= {"workload-type"}
