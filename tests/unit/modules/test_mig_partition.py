# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What mig_partition gives to Ansible."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._entry import run_module
from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.gpu.conftest import host, host_with

__all__ = ["host", "host_with"]  # fixtures
MIXED = [{"profiles": {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1}}]
STEPS = ["GPU 0: removing 1g.5gb@1", "GPU 0: making 2g.10gb@2"]


class Left(Exception):
    """The module has ended."""


class Module:
    """AnsibleModule as a run sees it."""

    def __init__(self, check_mode: bool = False, **params: object) -> None:
        self.params = {"state": "present", "restore_at_boot": False, **params}
        self.check_mode, self._diff = check_mode, True
        self.answer: dict = {}

    def warn(self, warning: str) -> None:
        self.answer["warnings"] = warning

    def exit_json(self, **result: object) -> None:
        self.answer.update(result)
        raise Left

    def fail_json(self, msg: str, **result: object) -> None:
        self.answer.update(result, msg=msg, failed=True)
        raise Left


def answer(host, **params) -> dict:
    module = Module(**params)
    with pytest.raises(Left):
        run_module(module, host.tools())
    assert undocumented("mig_partition", module.answer) == []
    return module.answer


def test_the_result_is_what_is_documented_and_has_the_steps(host, tmp_path):
    shown = tmp_path / "progress"
    shown.touch()
    assert answer(host, state="exported")["progress"] == []
    assert answer(host, layout=MIXED, check_mode=True)["progress"] == []
    assert answer(host, layout=MIXED, progress_file=str(shown))["progress"] == STEPS
    assert shown.read_text().splitlines() == STEPS
    assert answer(host, layout=MIXED)["progress"] == []
    assert answer(host, state="absent")["changed"] is False


def test_a_failure_has_the_steps_until_then_too(host):
    host.set("fault=nvmlDeviceCreateGpuInstanceWithPlacement,code=UNKNOWN")
    failed = answer(host, layout=MIXED)
    assert failed["failed"]
    assert failed["progress"] == [*STEPS, "GPU 0: going back to the layout before"]
    assert failed["remaining"] == ["gpu-0"]
