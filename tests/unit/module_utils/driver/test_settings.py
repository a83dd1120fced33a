# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What GPUs forget when the driver goes is given back, whatever ends a run."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._settings import (
    FILE,
    BadSettings,
    cannot_save,
    from_json,
    owed,
    persistence_off,
    restore,
    save,
    to_json,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._nvml import MissingPynvml, Nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.tests.helpers.faults import Died, Steps

from ..gpu.double import Host
from ..host_state.trees import grow, loaded

PRODUCTS = ("H100-SXM5-80GB", "T4")
#: A GPU with MIG, limits and a compute mode of its own, and one as it came.
SET = (
    "gpu=0", "mig=1", "instance=9@4", "instance=19@0", "instance=19@1", "persistence=1", "power_limit=500000",
    "compute_mode=3", "app_graphics=1410",
)  # fmt: skip
KEYS = ("persistence", "power_limit", "compute_mode", "app_graphics", "app_memory", "mig")
WRITES = ("Set", "Create", "Destroy")


def picture(host: Host) -> list[Any]:
    """What the GPUs have, without the ids that a new instance gets."""
    return [
        [
            {key: gpu[key] for key in KEYS if key in gpu},
            sorted((one["profile"], one["start"]) for one in gpu["instances"]),
        ]
        for gpu in json.loads(host.tool("show", str(host.state)))["gpus"]
    ]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path, monkeypatch, *PRODUCTS)
    made.set(*SET)
    grow(made.root, loaded("580.95.05"))
    return made


def files_of(host: Host, watch: Any = None) -> Files:
    return Files(Root(str(host.root)), *([watch] if watch else []))


def give(host: Host) -> list[str]:
    return restore(Nvml, files_of(host), lambda line: None)


@pytest.mark.rows("H057")
def test_settings_and_layout_survive_a_reload(host: Host) -> None:
    before = picture(host)
    saved = save(Nvml, files_of(host))
    assert saved is not None
    assert [one.persistence for one in saved.gpus.values()] == [1, 1]
    assert [(one.power_limit, one.compute_mode, one.clocks) for one in saved.gpus.values()] == [
        (500000, 3, (2619, 1410)),
        (None, None, None),  # the GPU's own defaults
    ]
    place = host.root / FILE[1:]
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    host.tool("reload", str(host.state))
    assert picture(host) != before
    assert give(host) == []
    assert picture(host) == before
    assert not owed(files_of(host))


@pytest.mark.rows("H057")
def test_what_a_gpu_has_already_is_not_written(host: Host) -> None:
    save(Nvml, files_of(host))
    host.forget()
    assert give(host) == []
    assert [call for call in host.calls() if any(word in call for word in WRITES)] == []
    host.forget()
    assert give(host) == []
    assert host.calls() == []


@pytest.mark.rows("H057")
def test_what_an_earlier_run_saved_is_not_overwritten_by_what_is_left(host: Host) -> None:
    before = picture(host)
    first = save(Nvml, files_of(host))
    host.tool("reload", str(host.state))
    assert owed(files_of(host))
    assert save(Nvml, files_of(host)) == first
    assert give(host) == []
    assert picture(host) == before


@pytest.mark.rows("H057")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_dies_anywhere_is_finished_by_the_next(host: Host, moment: str) -> None:
    before = picture(host)
    injected = 0
    for at in range(1, 20):
        steps = Steps(at, moment, Died())
        try:
            save(Nvml, files_of(host, steps))
            host.tool("reload", str(host.state))
            restore(Nvml, files_of(host, steps), lambda line: None)
        except Died:
            injected += 1
        save(Nvml, files_of(host))
        assert give(host) == []
        assert picture(host) == before
        if not steps.injected:
            break
    assert injected >= 2


@pytest.mark.rows("H057")
@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("nvmlDeviceSetPowerManagementLimit", "GPU 0: the power limit 500000 is not back"),
        ("nvmlDeviceSetComputeMode", "GPU 0: the compute mode 3 is not back"),
        ("nvmlDeviceSetApplicationsClocks", "GPU 0: the application clocks (2619, 1410) are not back"),
        ("nvmlDeviceCreateGpuInstanceWithPlacement", "GPU 0"),
    ],
)
def test_one_that_fails_is_told_the_rest_given_back_and_the_file_kept(host: Host, function: str, told: str) -> None:
    before = picture(host)
    save(Nvml, files_of(host))
    host.tool("reload", str(host.state))
    host.set(f"fault={function},times=forever,code=UNKNOWN")
    wrong = give(host)
    assert len(wrong) == 1
    assert told in wrong[0]
    assert picture(host)[1] == before[1]
    assert owed(files_of(host))
    host.set("no_faults=1")
    assert give(host) == []
    assert picture(host) == before


@pytest.mark.rows("H057")
def test_a_gpu_that_does_not_come_back_is_told(host: Host) -> None:
    save(Nvml, files_of(host))
    text = (host.root / FILE[1:]).read_text()
    (host.root / FILE[1:]).write_text(text.replace(host.gpu(1)["uuid"], "GPU-gone"))
    assert give(host) == ["GPU GPU-gone is not there"]


def test_nothing_is_saved_where_no_driver_answers(host: Host) -> None:
    for state in ("unloaded", "mismatch"):
        host.set(f"driver_state={state}")
        assert save(Nvml, files_of(host)) is None
        assert not owed(files_of(host))
    assert give(host) == []


def test_a_driver_that_cannot_be_asked_stops_the_run_before_it_loses_anything(host: Host) -> None:
    host.set("fault=nvmlDeviceGetUUID,times=forever,code=GPU_IS_LOST")
    with pytest.raises(Failure, match=r"cannot be saved: .*GPU_IS_LOST"):
        save(Nvml, files_of(host))

    def missing() -> Nvml:
        raise MissingPynvml("The Python module pynvml is missing.")

    with pytest.raises(Failure, match="pynvml is missing"):
        save(missing, files_of(host))
    assert "pynvml is missing" in cannot_save(missing, files_of(host))
    shutil.rmtree(host.root / "sys/module")
    assert save(missing, files_of(host)) is None
    assert cannot_save(missing, files_of(host)) == ""
    files_of(host).make_folder("/var/lib/gpufleet/nvidia_driver")
    files_of(host).write(FILE, "x")
    assert "cannot be read" in cannot_save(missing, files_of(host))
    files_of(host).remove(FILE)
    assert not owed(files_of(host))


def test_a_damaged_file_is_kept_and_told(host: Host) -> None:
    save(Nvml, files_of(host))
    place = host.root / FILE[1:]
    whole = json.loads(place.read_text())
    for text in (
        "{",
        json.dumps({**whole, "version": 2}),
        json.dumps({**whole, "gpus": {"GPU-1": {"persistence": "x"}}}),
        json.dumps({**whole, "mig": "{}"}),
    ):
        place.write_text(text)
        with pytest.raises(BadSettings):
            from_json(text)
        with pytest.raises(Failure, match="set the GPUs by hand"):
            give(host)
        with pytest.raises(Failure, match="set the GPUs by hand"):
            save(Nvml, files_of(host))
        assert place.read_text() == text


def test_the_file_tells_the_same_again(host: Host) -> None:
    saved = save(Nvml, files_of(host))
    assert saved is not None
    assert from_json(to_json(saved)) == saved


@pytest.mark.rows("H053")
def test_persistence_mode_is_switched_off_where_it_is_on(host: Host) -> None:
    persistence_off(Nvml)
    assert [each[0]["persistence"] for each in picture(host)] == [0, 0]
    host.forget()
    persistence_off(Nvml)
    assert "nvmlDeviceSetPersistenceMode" not in host.calls()
    host.set("fault=nvmlDeviceSetPersistenceMode,times=forever,code=NO_PERMISSION", "gpu=0", "persistence=1")
    with pytest.raises(Failure, match="NO_PERMISSION"):
        persistence_off(Nvml)
