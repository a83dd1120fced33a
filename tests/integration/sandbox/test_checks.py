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
    """``node``: where; ``control``: what the simulator is told; ``values``: the policy; ``label``: what a person has
    written on the node beside; ``parts``: what is read, in this order; ``missing``: the status file that is not there;
    ``offers``: what the node has once the fault is mended."""

    node: str
    control: dict[str, Any]
    values: dict[str, Any]
    label: str
    parts: tuple[str, ...]
    missing: str
    offers: dict[str, str]


CASES = {
    "no IOMMU": Case(
        PASS, {"no_iommu": True}, KUBEVIRT, "",
        ("sandbox validator failed: ", "device not bound to 'vfio-pci'; device: 0000:17:00.0 driver: ''", "IOMMU"),
        "vfio-pci-ready", {H100: "2"},
    ),
    "a GPU that its driver holds": Case(
        PASS, {"vfio_held": [1], "nouveau": True}, KUBEVIRT, "",
        ("sandbox validator failed: ", "device: 0000:18:00.0 driver: 'nouveau'"), "vfio-pci-ready", {H100: "2"},
    ),
    "no virtual functions": Case(
        VGPU, {"no_vfs": True}, KUBEVIRT, "",
        ("sandbox validator failed: ", "parent devices not ready"), "vgpu-manager-ready", {A10_HALF: "2"},
    ),
    "no such set of vGPUs": Case(
        VGPU, {}, KUBEVIRT, "nvidia.com/vgpu.config=none-such", ("none-such",), "vgpu-devices-ready", {A10_HALF: "2"},
    ),
    "a manager of confidential computing that ends": Case(
        CC, {"crash": {"nvidia-cc-manager": "GPU 0000:17:00.0 did not boot"}}, KATA, "",
        ("confidential computing manager failed: ", "GPU 0000:17:00.0 did not boot"), "cc-manager-ready",
        {"nvidia.com/pgpu": "1"},
    ),
    "a vGPU manager that is in no registry": Case(
        VGPU, {}, {**KUBEVIRT, "vgpuManager": {**KUBEVIRT["vgpuManager"], "version": "9.9"}}, "",
        ("vGPU manager failed: ", "registry.example.com/nvidia/vgpu-manager:9.9-ubuntu24.04"), "vgpu-manager-ready",
        {A10_HALF: "2"},
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stages, "FINAL_AFTER", 1.0)


@pytest.mark.rows("VAL-09", "VAL-10", "S01", "S48", "P132")
@pytest.mark.parametrize("name", CASES)
def test_a_check_fails_for_its_own_reason_and_passes_once_that_is_mended(vms: Any, name: str) -> None:
    case = CASES[name]
    vms.empty()
    serve(vms, **{case.node.replace("-", "_"): "vm-vgpu" if case.node == VGPU else "vm-passthrough"})
    vms.control(nodes={case.node: case.control})
    if case.label:
        vms.kubectl("label", "node", case.node, case.label, user="admin")
    failed = vms.stack(case.values, stage_timeout=25, timeout=60, max_failed_nodes=1)
    told = row(failed, case.node)
    assert not told["ready"]
    sentence = plain(told["trouble"])
    assert re.search(".*".join(re.escape(part) for part in case.parts), sentence), sentence
    assert case.missing not in host(vms, case.node)[0]
    assert offers(vms, case.node) == {}
    # The other nodes are none the worse for it.
    assert {one["name"] for one in failed["found"]["nodes"] if not one["ready"]} == {case.node}
    vms.control()
    if case.label:
        vms.kubectl("label", "node", case.node, case.label.split("=")[0] + "-", user="admin")
    mended = {**case.values, "vgpuManager": KUBEVIRT["vgpuManager"]} if case.values is not KATA else KATA
    well = vms.stack(mended)
    assert not well["failed"], well["msg"]
    assert offers(vms, case.node) == case.offers
    assert case.missing in host(vms, case.node)[0]
