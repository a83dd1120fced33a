# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services stop in order, stay away meanwhile, and run again, whatever ends a run."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _services
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._services import STOPPED, Services, start_order
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._systemd import Units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.tests.helpers.faults import Died, Steps

from .machine import Machine, Systemd, said

RUNNING = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "dcgm-exporter")
UNITS = {f"{name}.service" for name in RUNNING}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_services, "_PAUSE", 0.001)


def host(folder: Path) -> tuple[Machine, Systemd, Services]:
    machine = Machine(folder, {"/var/lib/keep": ""})
    systemd = Systemd(machine, **{name.replace("-", "_"): "active" for name in RUNNING}, nvidia_imex="inactive")
    return machine, systemd, Services(Units(machine), machine.files, lambda line: None)


def done(machine: Machine, verb: str) -> list[str]:
    return [one for one in machine.ran if one.startswith(f"systemctl {verb} ")]


@pytest.mark.rows("H052")
def test_what_runs_is_stopped_in_order_and_masked_and_started_in_order(tmp_path: Path) -> None:
    machine, systemd, services = host(tmp_path)
    order = services.running()
    assert services.stop(order) == list(order)
    assert done(machine, "stop") == [
        "systemctl stop -- dcgm-exporter.service",
        "systemctl stop -- nvidia-dcgm.service",
        "systemctl stop -- nvidia-fabricmanager.service",
        "systemctl stop -- nvidia-persistenced.service",
    ]
    assert systemd.running() == set()
    assert systemd.masked == {
        "nvidia-persistenced.service", "nvidia-fabricmanager.service", "nvidia-imex.service", "nvidia-dcgm.service",
    }  # fmt: skip
    assert stat.S_IMODE((tmp_path / STOPPED[1:]).stat().st_mode) == 0o600
    assert services.start() == []
    assert systemd.running() == UNITS
    assert systemd.masked == set()
    assert done(machine, "start") == [
        "systemctl start -- nvidia-persistenced.service",
        "systemctl start -- nvidia-fabricmanager.service",
        "systemctl start --no-block -- nvidia-dcgm.service",
        "systemctl start --no-block -- dcgm-exporter.service",
    ]
    assert not machine.files.exists(STOPPED)


@pytest.mark.rows("H052")
def test_new_units_are_started_in_their_place(tmp_path: Path) -> None:
    machine, systemd, services = host(tmp_path)
    services.stop(services.running())
    systemd.active["nvidia-imex.service"] = "inactive"
    assert services.start(["nvidia-imex.service", "nvidia-gridd.service"]) == []
    started = [one.rpartition(" ")[2] for one in done(machine, "start")]
    assert started[:3] == ["nvidia-persistenced.service", "nvidia-fabricmanager.service", "nvidia-imex.service"]
    assert "nvidia-gridd.service" not in started  # it is not there


def test_a_unit_that_does_not_stop_has_the_others_started_again(tmp_path: Path) -> None:
    machine, systemd, services = host(tmp_path)
    order = services.running()
    machine.answers["systemctl stop -- nvidia-fabricmanager"] = said(rc=1, err="Job timed out")
    with pytest.raises(Failure, match=r"nvidia-fabricmanager.service did not stop.*What had been stopped runs again\."):
        services.stop(order)
    assert systemd.running() == UNITS
    assert systemd.masked == set()
    assert not machine.files.exists(STOPPED)


def test_a_unit_that_does_not_come_up_is_told_and_owed(tmp_path: Path) -> None:
    _machine, systemd, services = host(tmp_path)
    services.stop(services.running())
    systemd.broken = {"nvidia-dcgm.service", "nvidia-fabricmanager.service"}
    wrong = services.start()
    assert len(wrong) == 2
    assert "nvidia-fabricmanager.service did not start: Job for nvidia-fabricmanager.service failed." in wrong
    assert "nvidia-dcgm.service does not come up (failed)." in " ".join(wrong)
    assert services.owed() == ["nvidia-dcgm.service", "nvidia-fabricmanager.service"]
    systemd.broken = set()
    assert services.start() == []
    assert systemd.running() == UNITS


def test_units_that_need_a_while_are_waited_for(tmp_path: Path) -> None:
    _machine, systemd, services = host(tmp_path)
    services.stop(services.running())
    systemd.slow = {"nvidia-dcgm.service": 3}
    assert services.start() == []


@pytest.mark.rows("H052", "H055")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_dies_anywhere_is_put_right_by_the_next(tmp_path: Path, moment: str) -> None:
    injected = 0
    for at in range(1, 100):
        machine, systemd, services = host(tmp_path / str(at))
        steps = Steps(at, moment, Died())
        machine.watch = steps
        try:
            services.stop(services.running())
            services.start()
        except Died:
            injected += 1
        machine.watch = Steps()
        again = Services(Units(machine), machine.files, lambda line: None)
        assert again.start() == []
        assert systemd.running() == UNITS
        assert systemd.masked == set()
        assert not machine.files.exists(STOPPED)
        if not steps.injected:
            break
    assert injected > 20


def test_a_run_that_dies_with_units_masked_and_none_stopped_is_owed_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    systemd = Systemd(machine, nvidia_persistenced="inactive")
    services = Services(Units(machine), machine.files, lambda line: None)
    assert services.stop(services.running()) == []
    assert services.owed() == ["nvidia-persistenced.service"]
    assert services.start() == []
    assert (services.owed(), systemd.masked, systemd.running()) == ([], set(), set())


def test_a_damaged_note_of_what_was_stopped_stops_nothing(tmp_path: Path) -> None:
    machine, _systemd, services = host(tmp_path)
    for text in ("{", "[]", '{"stopped": 3}', '{"stopped": [1, "a.service"]}'):
        machine.put(STOPPED, text)
        assert services.owed() in ([], ["a.service"])


def test_only_the_users_units_come_last_backwards() -> None:
    assert start_order(["kubelet.service", "slurmd.service", "nvidia-persistenced.service"]) == (
        "nvidia-persistenced.service",
        "slurmd.service",
        "kubelet.service",
    )
