# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A practice cluster from its start to its end, with the main playbook run on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed import practice as module
from ansible_collections.gpufleet.nvidia.tests.testbed.practice import PROCESSES, Practice, PracticeError, main

OTHER = """\
nodes:
  - name: another
    product: T4
    gpus: 2
    os: ubuntu24.04
    kernel: 6.8.0-60-generic
  - name: plain
    os: ubuntu24.04
    kernel: 6.8.0-60-generic
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    """A running fleet of one node, which is control plane and GPU node at once, as fast as the machine goes."""
    with Practice(tmp_path_factory.mktemp("practice") / "cluster", "single", speed=100) as running:
        yield running


def test_fleet_that_was_just_started_offers_nothing_yet(small: Practice) -> None:
    assert [node["metadata"]["name"] for node in small.node_objects()] == ["workstation"]
    assert small.idle_nodes() == ["workstation"]
    assert small.writes() == []
    (host,) = small.hosts().values()
    assert (host["files"], {gpu["driver"] for gpu in host["gpus"]}) == ([], {"nouveau"})


@pytest.mark.rows("S46")
def test_playbook_makes_the_nodes_ready_and_changes_nothing_the_second_time(small: Practice) -> None:
    first = small.playbook("site")
    assert first.returncode == 0, first.stdout
    assert small.idle_nodes() == []
    assert small.writes()
    (host,) = small.hosts().values()
    assert {"driver-ready", "toolkit-ready"} <= set(host["files"])
    assert {gpu["driver"] for gpu in host["gpus"]} == {"nvidia"}

    since = small.audit_offset()
    second = small.playbook("site")
    assert second.returncode == 0, second.stdout
    assert "changed=0" in second.stdout
    assert small.writes(since=since) == []


def test_same_fleet_is_used_again_and_its_state_stays(small: Practice) -> None:
    before = small.cluster.running()
    lines: list[str] = []
    Practice(small.dir, small.fleet, speed=100).up(report=lines.append)

    assert lines == ["practice: the fleet single runs already and is used again"]
    assert small.cluster.running() == before
    assert set(before) == set(PROCESSES)


def test_run_waits_for_another_that_uses_the_folder(small: Practice) -> None:
    arguments = ["up", "--dir", small.dir, "--fleet", "single", "--speed", "100", "--no-playbook"]
    with small.alone(".run"):
        second = subprocess.Popen(
            [sys.executable, "-m", module.__name__, *arguments], stdout=subprocess.PIPE, text=True
        )
        assert second.stdout is not None
        assert "another run uses" in second.stdout.readline()
        assert second.poll() is None
    rest, _unused = second.communicate(timeout=60)
    assert second.returncode == 0
    assert "runs already and is used again" in rest


@pytest.mark.long
def test_another_fleet_replaces_it(small: Practice) -> None:
    before = small.cluster.running()
    other = small.dir.parent / "other.yaml"
    other.write_text(OTHER)
    lines: list[str] = []
    replaced = Practice(small.dir, other, speed=100)
    replaced.up(report=lines.append)

    assert lines[0] == "practice: another fleet was asked for; what runs is replaced"
    assert {node["metadata"]["name"] for node in replaced.node_objects()} == {"another", "plain"}
    assert replaced.idle_nodes() == ["another"]
    assert not set(before.values()) & set(replaced.cluster.running().values())


def test_down_leaves_only_logs(small: Practice) -> None:
    assert small.cluster.running()
    small.down()

    assert small.cluster.running() == {}
    assert {path.name for path in small.dir.iterdir() if path.suffix != ".log"} == {".lock", ".run"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fleet", "no-such-fleet"], "There is no fleet 'no-such-fleet': name one of clouds, default, "),
        (["--values", "no-such-values.yaml"], "There is no values file no-such-values.yaml"),
    ],
)
def test_wrong_name_is_refused_before_anything_starts(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--dir", str(tmp_path / "cluster"), *arguments]) == 1
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("cluster/*.log"))


def test_fleet_that_makes_no_sense_is_refused_before_anything_starts(tmp_path: Path) -> None:
    fleet = tmp_path / "wrong.yaml"
    fleet.write_text(OTHER.replace("T4", "no-such-product"))

    with pytest.raises(PracticeError, match="no-such-product"):
        Practice(tmp_path / "cluster", fleet).up()
    assert not (tmp_path / "cluster").exists()


@pytest.mark.long
def test_simulator_that_ends_is_told_with_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIMULATOR", "no_such_simulator")

    with pytest.raises(PracticeError, match=r"(?s)simulator of GPU nodes ended.*No module named no_such_simulator"):
        Practice(tmp_path / "cluster").up()
    assert Practice(tmp_path / "cluster").cluster.running() == {}


@pytest.mark.parametrize(
    ("ready", "allocatable", "offers"),
    [
        ("True", {"cpu": "8", "nvidia.com/gpu": "2"}, True),
        ("True", {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"}, True),
        ("True", {"nvidia.com/gpu": "0"}, False),
        ("True", {"cpu": "8"}, False),
        ("False", {"nvidia.com/gpu": "2"}, False),
    ],
)
def test_node_offers_gpus_when_it_is_ready_and_some_are_allocatable(
    ready: str, allocatable: dict[str, str], offers: bool
) -> None:
    node = {"status": {"conditions": [{"type": "Ready", "status": ready}], "allocatable": allocatable}}

    assert module._offers_gpus(node) is offers
