# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbooks hand to the preflight of a host is what the driver's role would be given."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.tests.helpers.documents import CHECKOUT

PLAYBOOKS = ["hosts.yml", "preflight.yml"]


def tasks(name: str) -> list[dict[str, Any]]:
    plays = yaml.safe_load((CHECKOUT / "playbooks" / name).read_text(encoding="utf-8"))
    return [task for play in plays for task in play["tasks"]]


def options(role: str) -> dict[str, Any]:
    text = (CHECKOUT / "roles" / role / "meta/argument_specs.yml").read_text(encoding="utf-8")
    found = yaml.safe_load(text)["argument_specs"]["main"]["options"]
    return {name.removeprefix(f"{role}_"): option for name, option in found.items()}


def called(task: dict[str, Any]) -> str:
    call = task.get("ansible.builtin.include_role") or task.get("ansible.builtin.import_role") or {}
    return str(call.get("name", "")).rpartition(".")[2]


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_the_preflight_is_asked_what_the_driver_will_be_asked(name: str) -> None:
    given = next(task["vars"] for task in tasks(name) if called(task) == "host_preflight")
    wanted = {option: f"nvidia_driver_{option}" for option in options("nvidia_driver") if option != "reboot"}
    beside = given.pop("host_preflight_beside")
    assert set(given) == {f"host_preflight_{option}" for option in wanted}
    for option, variable in wanted.items():
        assert variable in given[f"host_preflight_{option}"]
    versions = {"container_toolkit": "version", "cuda_toolkit": "version", "dcgm_exporter": "dcgm_version"}
    assert set(beside) == set(versions)
    for role, option in versions.items():
        assert {f"{role}_{option}", f"{role}_accept", f"{role}_state"} <= set(re.findall(r"\w+", beside[role]))
        assert {option, "accept", "state"} <= set(options(role))


def test_the_preflight_takes_what_the_driver_takes_with_the_same_defaults() -> None:
    driver, preflight = options("nvidia_driver"), options("host_preflight")
    del driver["reboot"], preflight["beside"]
    assert {name: (one["type"], one["default"]) for name, one in preflight.items()} == {
        name: (one["type"], one["default"]) for name, one in driver.items()
    }
    heart = (CHECKOUT / "roles/host_preflight/tasks/main.yml").read_text(encoding="utf-8")
    for name in preflight:
        assert f"host_preflight_{name}" in heart


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_variables_of_roles_have_a_default_where_a_playbook_reads_them(name: str) -> None:
    """A role's own defaults are not seen outside of it."""
    text = (CHECKOUT / "playbooks" / name).read_text(encoding="utf-8")
    for match in re.finditer(
        r"\b(?:nvidia_driver|container_toolkit|cuda_toolkit|dcgm_exporter|mig_partition)_\w+(?!\w)(?! *:)", text
    ):
        if match.group().endswith("_result"):
            continue
        after = text[match.end() :]
        assert re.match(r"\)?\s*\| default\(|,| among|\. Boot| or leave|\.\n", after), text[match.start() :][:60]


def test_the_exporter_is_looked_for_before_anything_is_written() -> None:
    names = [task["name"] for task in tasks("hosts.yml")]
    assert names.index("The exporter is there, where no container runs it") < names.index("Driver")
