# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of modules are checked by name, written once, and compared with what the loaded modules use."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._parameters import (
    FILE,
    KNOWN,
    Differs,
    coherent,
    defaults,
    differs,
    effective,
    elsewhere,
    judge,
    merged,
    render,
    same,
)

from ..host_state.trees import recorded
from .machine import Machine

OPTIONS = {
    "nvidia-uvm": {"uvm_disable_hmm": True},
    "nvidia": {"NVreg_RestrictProfilingToAdminUsers": 0, "NVreg_RegistryDwords": "A=1;B=2"},
    "nvidia-drm": {},
}


@pytest.mark.rows("H049")
def test_one_file_holds_all_options_in_a_steady_order() -> None:
    assert render(OPTIONS).splitlines()[1:] == [
        'options nvidia NVreg_RegistryDwords="A=1;B=2" NVreg_RestrictProfilingToAdminUsers=0',
        "options nvidia-uvm uvm_disable_hmm=1",
    ]
    assert render({"nvidia": {}}) == ""


@pytest.mark.rows("H049")
def test_debians_own_modules_have_a_name_of_their_own() -> None:
    lines = render(OPTIONS, "nvidia-current").splitlines()[1:]
    assert [line.split(" ")[1] for line in lines] == ["nvidia-current", "nvidia-current-uvm"]


@pytest.mark.rows("H049")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"nvidia": {"NVreg_RestrictProfilingToAdminUser": 0}}, "Did you mean NVreg_RestrictProfilingToAdminUsers?"),
        ({"nvidia": {"enablegpufirmware": 0}}, "Did you mean NVreg_EnableGpuFirmware?"),
        ({"nvidia-drm": {"qwerty": 0}}, "It has: fbdev, modeset."),
        ({"nvidia_uvm": {"uvm_disable_hmm": 1}}, "Did you mean nvidia-uvm?"),
        ({"nouveau": {"modeset": 0}}, "allowed are nvidia, nvidia-drm"),
        ({"nvidia": {"NVreg_RmMsg": "a\nblacklist nvidia"}}, "on one line"),
        ({"nvidia": {"NVreg_RmMsg": 'a" b'}}, "without quotes"),
        ({"nvidia": {"NVreg_RmMsg": "1\\"}}, "without quotes and backslashes"),
        ({"nvidia": None}, "None is no map of options"),
        ({"nvidia": 5}, "5 is no map of options"),
        ({"nvidia": ["NVreg_RmMsg"]}, "is no map of options"),
        ({"nvidia": {"NVreg_EnableMSI": None}}, "None cannot be given"),
        ({"nvidia": {"NVreg_EnableMSI": [1]}}, "whole numbers"),
        ({"nvidia": {"NVreg_EnableMSI": {"a": 1}}}, "whole numbers"),
        ({"nvidia": {1: 1}}, "has no option 1"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_that_there_is(options, told: str) -> None:
    (finding,) = judge(options)
    assert finding.severity == "error"
    assert told in finding.sentence()
    assert finding.path.startswith(f"module_parameters.{next(iter(options))}")


def test_known_names_are_those_that_a_real_driver_tells(tmp_path: Path) -> None:
    told = effective(Machine(tmp_path, recorded("h100")).files)
    assert set(told["nvidia"]) <= set(KNOWN["nvidia"])
    assert judge({module: dict.fromkeys(names, 0) for module, names in KNOWN.items()}) == []


@pytest.mark.rows("H049")
def test_what_loaded_modules_use_is_compared_and_a_file_alone_proves_nothing(tmp_path: Path) -> None:
    files = {
        **recorded("h100"),
        "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm": "N\n",
        FILE: render(OPTIONS),
    }
    machine = Machine(tmp_path, {name: text for name, text in files.items() if name != "/proc/modules"})
    found = differs({**OPTIONS, "nvidia": {**OPTIONS["nvidia"], "NVreg_DeviceFileMode": "0666"}}, machine.files)
    assert found == [
        Differs("nvidia", "NVreg_RegistryDwords", "A=1;B=2", ""),
        Differs("nvidia-uvm", "uvm_disable_hmm", "1", "N"),
    ]
    assert differs({"nvidia-drm": {"modeset": 1}}, machine.files) == []  # it is not loaded


@pytest.mark.rows("H049")
@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("1", "Y", True),
        ("N", "0", True),
        ("0x12", "18", True),
        ("0666", "438", True),
        ("-1", "4294967295", True),
        ("driver", '"driver"', True),
        ("0", "1", False),
        ("driver", "numa", False),
        ("0888", "438", False),
    ],
)
def test_spellings_that_mean_the_same_to_the_kernel_are_equal(one: str, other: str, equal: bool) -> None:
    assert same(one, other) is equal


@pytest.mark.rows("H049")
def test_another_file_with_another_value_is_told(tmp_path: Path) -> None:
    machine = Machine(
        tmp_path,
        {
            FILE: render({"nvidia": {"NVreg_EnableGpuFirmware": 0}}),
            "/etc/modprobe.d/zz.conf": "options nvidia_current NVreg_EnableMSI=1 \\\n NVreg_EnableGpuFirmware=1\n",
            "/usr/lib/modprobe.d/a.conf": "options nvidia NVreg_EnableGpuFirmware=0x0\n",
        },
    )
    (finding,) = elsewhere({"nvidia": {"NVreg_EnableGpuFirmware": 0}}, machine.files)
    assert finding.sentence() == (
        "/etc/modprobe.d/zz.conf: gives the module nvidia NVreg_EnableGpuFirmware=1, and 0 is wanted. "
        "Take the option out there."
    )


@pytest.mark.rows("H050")
@pytest.mark.parametrize(
    ("devices", "branch", "kubernetes", "given"),
    [
        ([0x2342], 580, True, True),
        ([0x2941, 0x2941], 595, True, True),
        ([0x31C2], 620, True, True),
        ([0x31A1], 580, True, True),
        ([0x2342], 570, True, False),
        ([0x2342], 580, False, False),
        ([0x2330], 580, True, False),
        ([0x2901], 580, True, False),
        ([], 580, True, False),
    ],
)
def test_coherent_memory_is_kept_by_the_driver_on_nodes_of_kubernetes(devices, branch, kubernetes, given) -> None:
    wanted = {"nvidia": {"NVreg_CoherentGPUMemoryMode": "driver"}} if given else {}
    assert defaults(devices, branch, kubernetes) == wanted
    assert judge(defaults(devices, branch, kubernetes)) == []


@pytest.mark.rows("H050")
def test_what_the_user_asks_for_goes_over_the_default() -> None:
    asked = {"nvidia": {"NVreg_CoherentGPUMemoryMode": "numa"}, "nvidia-drm": {"modeset": 1}}
    assert merged(defaults([0x2342], 580, True), asked) == asked
    assert coherent(0x2348)
    assert not coherent(0x2335)
