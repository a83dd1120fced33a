# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every role has a scenario, and every scenario plans before it makes, makes twice, and proves both ends."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.tests.gates.scenarios import MORE
from ansible_collections.gpufleet.nvidia.tests.helpers.documents import CHECKOUT

MOLECULE = CHECKOUT / "molecule"
ROLES = sorted(path.name for path in (CHECKOUT / "roles").iterdir() if (path / "tasks").is_dir())


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_a_scenario_that_calls_it_alone(role: str) -> None:
    play = yaml.safe_load((MOLECULE / role / "converge.yml").read_text(encoding="utf-8"))[0]
    called = [task["ansible.builtin.include_role"]["name"] for task in play["tasks"]]
    assert called == [f"gpufleet.nvidia.{role}"]
    for name in ("create.yml", "verify.yml", "absent.yml", "verify_absent.yml", "molecule.yml"):
        assert (MOLECULE / role / name).is_file(), name


@pytest.mark.parametrize(
    ("config", "unwritten"), [("config.yml", "../shared/unwritten.yml"), ("hosts.yml", "../hosts/unchanged.yml")]
)
def test_the_sequence_is_whole(config: str, unwritten: str) -> None:
    sequence = yaml.safe_load((MOLECULE / config).read_text(encoding="utf-8"))["scenario"]["test_sequence"]
    order = ["check", f"verify {unwritten}", "converge", "idempotence", "verify", "side_effect"]
    start = sequence.index("check")
    assert sequence[start : start + len(order)] == order
    assert sequence[-2:] == ["verify verify_absent.yml", "destroy"]
    assert (MOLECULE / "a" / unwritten).resolve().is_file()


def test_what_is_given_back_on_hosts_is_their_disks_as_they_were() -> None:
    sequence = yaml.safe_load((MOLECULE / "hosts.yml").read_text(encoding="utf-8"))["scenario"]["test_sequence"]
    assert sequence[sequence.index("side_effect") + 1] == "verify ../hosts/unchanged.yml"


def test_no_scenario_of_a_role_has_a_sequence_of_its_own() -> None:
    own = {
        file.parent.name
        for file in MOLECULE.glob("*/molecule.yml")
        if "scenario" in (yaml.safe_load(file.read_text(encoding="utf-8")) or {})
    }
    assert own == MORE
    assert not own & set(ROLES)
