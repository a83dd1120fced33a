# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPU that fell off the bus stops nothing but what is wanted of itself."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu import _layout as layouts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._board import Gpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

TWO = {"1g.18gb": 2}
PICTURE = "[1g][1g][" + 22 * "-" + "]"


@pytest.fixture
def pair(host_with):
    """Two H200, the second of them lost."""
    host = host_with("H200-SXM5-141GB", "H200-SXM5-141GB")
    host.set("gpu=1", "lost=1")
    return host


def told(outcome) -> list[tuple[str, str, str]]:
    return [(each.id, each.severity, each.target) for each in outcome.result.findings]


@pytest.mark.rows("NV-02")
def test_a_lost_gpu_that_the_layout_does_not_name_stops_no_other(pair):
    for check in (True, False):
        outcome = pair.run(check=check, layout=[{"gpus": [0], "profiles": TWO}], restore_at_boot=True)
        assert told(outcome) == [("mig.silent-gpu", "warning", "GPU 1")]
        assert outcome.result.changed
    assert [check.ok for check in outcome.result.verified] == [True]
    assert outcome.result.found["gpus"][0]["slices"] == PICTURE
    assert pair.slices() == PICTURE
    pair.forget()
    assert not pair.run(layout=[{"gpus": [0], "profiles": TWO}], restore_at_boot=True).result.changed
    assert pair.writes() == []


@pytest.mark.parametrize(
    "entry", [{}, {"gpus": "all"}, {"gpus": [0, 1]}, {"product": "H200"}, {"pci_ids": ["0x233510DE"]}, {"gpus": ["1"]}]
)
def test_a_lost_gpu_that_the_layout_names_or_may_mean_is_refused_before_any_change(pair, entry):
    for check in (True, False):
        pair.forget()
        with pytest.raises(Failure) as failure:
            pair.run(check=check, layout=[{"gpus": [0], "profiles": TWO}, {"profiles": TWO, **entry}])
        assert pair.writes() == []
        assert (
            "layout[1]: GPU 1 does not answer: GPU_IS_LOST. The GPU has fallen off the bus: reboot the host, and look "
            "for XID 79 in the kernel's log. Or list the other GPUs only (gpus, devices)."
        ) in failure.value.msg
        assert failure.value.msg.count("GPU_IS_LOST") == 1


def test_a_uuid_that_may_be_the_lost_gpu_is_told_beside_it(pair):
    uuid = pair.gpu(1)["uuid"]
    with pytest.raises(Failure) as failure:
        pair.run(layout=[{"gpus": [uuid], "profiles": TWO}])
    assert f"names GPU {uuid}, which is not there. There are 0, 1; GPU 1 does not answer: GPU_IS_LOST." in (
        failure.value.msg
    )


def test_a_gpu_is_named_with_its_uuid_where_that_is_known(pair):
    pair.set("gpu=1", "lost=0")
    uuid = pair.gpu(1)["uuid"]
    nth = len(_reads_of_gpu(pair, 0))
    pair.set(f"fault=nvmlDeviceGetMigMode,nth={nth + 1},times=forever,code=GPU_IS_LOST")
    with pytest.raises(Failure, match=rf"GPU 1 \({uuid}\) does not answer: GPU_IS_LOST"):
        pair.run(layout=[{"profiles": TWO}])


def _reads_of_gpu(host, index: int) -> list[str]:
    """Questions for its MIG mode when all GPUs are read."""
    host.forget()
    host.run(state="exported")
    calls = [call for call in host.calls() if call == "nvmlDeviceGetMigMode"]
    assert len(calls) % 2 == 0
    return calls[: len(calls) // 2]


def test_an_export_tells_of_the_others_and_does_not_speak_for_the_lost_one(pair):
    outcome = pair.run(state="exported")
    assert told(outcome) == [("mig.silent-gpu", "warning", "GPU 1")]
    assert outcome.result.found["config"]["mig-configs"]["current"][0]["devices"] == [0]


def test_a_filter_passes_over_a_silent_gpu_that_said_what_it_is():
    gpu = Gpu(0, "GPU-a", "00000000:17:00.0", "NVIDIA A100", 0x20B010DE, 0, 0, 40 << 30)
    lost = layouts.Silent(Gpu(1, "GPU-b", "00000000:3B:00.0", "NVIDIA H200", 0x233510DE, 0, 1, 140 << 30), "LOST", "")
    entries, _none = layouts.read_layout([{"product": "A100", "profiles": {}}])
    assert [each.severity for each in layouts.assign(entries, [gpu], {"GPU-a": True}, [lost]).findings] == ["warning"]
    entries, _none = layouts.read_layout([{"gpus": ["3b:00.0"], "profiles": {}}])
    assert [each.severity for each in layouts.assign(entries, [gpu], {"GPU-a": True}, [lost]).findings] == ["error"]


@pytest.mark.rows("NV-02")
def test_a_user_who_may_not_read_instances_is_told_to_be_root_instead_of_given_half_a_layout(pair):
    pair.set("gpu=0", "mig=1")
    pair.set("fault=nvmlDeviceGetGpuInstances,code=NO_PERMISSION")
    with pytest.raises(Failure, match=r"NO_PERMISSION\. Run as root"):
        pair.run(state="exported")
