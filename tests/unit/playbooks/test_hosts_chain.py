# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of playbooks/hosts.yml on facts: a driver that waits for a boot, and the fleet at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.tests.helpers.ansible_runs import playbook
from ansible_collections.gpufleet.nvidia.tests.helpers.documents import CHECKOUT

PLAYS = {play["name"]: play for play in yaml.safe_load((CHECKOUT / "playbooks/hosts.yml").read_text(encoding="utf-8"))}


def run(folder: Path, play: dict[str, Any], hosts: dict[str, dict[str, Any]], *options: str) -> str:
    """The output of a play on hosts that nobody connects to."""
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    usual = {"ansible_connection": "local", "gpufleet_wanted": ["driver", "toolkit"]}
    told = {name: {**usual, **facts} for name, facts in hosts.items()}
    (folder / "hosts.json").write_text(json.dumps({"gpu_hosts": {"hosts": told}}))
    done = playbook(folder / "hosts.json", folder / "play.yml", *options)
    return " ".join(done.stdout.split())


def driver(*reasons: str, **more: Any) -> dict[str, Any]:
    result = {"reboot_required": bool(reasons), "reboot_reasons": list(reasons)}
    return {"nvidia_driver_result": result, **more}


HOSTS = {
    "ready": driver(),
    "waits": driver("The console is on the GPU (fb0).", "GPUs do not answer any more."),
    "booted": driver(
        "x",
        nvidia_driver_reboot=True,
        ansible_connection="ssh",
        nvidia_driver_boot_result={"changed": True, "rebooted": True},
    ),
    # Ansible runs on it, so that the role leaves it alone.
    "local": driver("x", nvidia_driver_reboot=True, nvidia_driver_boot_result={"changed": False, "skipped": True}),
}


def gate() -> dict[str, Any]:
    names = ["The host needs no boot, or has had it", "Say that a run would end at a boot"]
    tasks = [task for task in PLAYS["Components"]["tasks"] if task["name"] in names]
    assert len(tasks) == 2
    return {**PLAYS["Components"], "serial": 4, "max_fail_percentage": 100, "vars": {}, "tasks": tasks}


def test_a_driver_that_waits_for_a_boot_stops_its_host_and_says_why(tmp_path: Path) -> None:
    said = run(tmp_path, gate(), HOSTS)
    failed = {name for name in HOSTS if f"fatal: [{name}]" in said}
    assert failed == {"waits", "local"}
    assert (
        "waits has to be booted before it works with its driver: The console is on the GPU (fb0). GPUs do not answer "
        "any more. Nothing after the driver has been changed on it. Boot it and run again; "
    ) in said


def test_the_boot_is_looked_at_between_the_driver_and_what_stands_on_it() -> None:
    names = [task["name"] for task in PLAYS["Components"]["tasks"]]
    place = names.index("The host needs no boot, or has had it")
    assert names[place - 1] == "Driver"
    assert place < names.index("Container toolkit and runtimes")


@pytest.mark.long
def test_a_plan_tells_where_the_run_would_end(tmp_path: Path) -> None:
    said = run(tmp_path, gate(), HOSTS, "--check")
    assert "fatal:" not in said
    assert "waits would have to be booted after its driver (the run would stop there): The console" in said
    assert "booted would have to be booted after its driver (the role would do that): x" in said
    assert "local would have to be booted after its driver (the run would stop there): x" in said
    assert "ready would have" not in said


def seen(system: str, kernel: str, version: str) -> dict[str, Any]:
    name, _space, number = system.partition(" ")
    host = {"os_id": name, "os_version": number, "kernel": kernel}
    return {"hosts_after": {"found": {"host": host, "driver": {"version": version}}}}


@pytest.mark.rows("P040")
def test_the_end_groups_hosts_by_distribution_kernel_and_driver(tmp_path: Path) -> None:
    hosts = {
        "gpu-1": seen("ubuntu 24.04", "6.8.0-45-generic", "580.95.05"),
        "gpu-2": seen("rocky 9.6", "5.14.0-570.el9.x86_64", "580.95.05"),
        "gpu-3": seen("ubuntu 24.04", "6.8.0-45-generic", "580.95.05"),
        "gpu-4": seen("ubuntu 24.04", "6.14.0-33-generic", ""),
        "gpu-5": {},  # it failed before
    }
    said = run(tmp_path, PLAYS["Summary"], hosts)
    for line in (
        "ubuntu 24.04, kernel 6.8.0-45-generic, driver 580.95.05: gpu-1, gpu-3",
        "rocky 9.6, kernel 5.14.0-570.el9.x86_64, driver 580.95.05: gpu-2",
        "ubuntu 24.04, kernel 6.14.0-33-generic, driver none: gpu-4",
    ):
        assert said.count(f'"msg": "{line}"') == 1, said
    assert said.count('"msg"') == 3
