# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stack from the operator's own values, compared with what the operator itself makes of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).resolve().parents[2]
FACTS = TESTS / "fixtures" / "operator"
# Values, the fleet whose nodes suit them, and whether NFD is deployed.
SIX = {
    "default": "facts",
    "dcgm-standalone-no-cdi": "facts",
    "open-rdma-mixed": "facts",
    "time-slicing": "facts",
    "managed-cloud": "preinstalled",
    "preinstalled-driver": "preinstalled",
}


def _values(name):
    return yaml.safe_load((TESTS / "fixtures" / "values" / f"{name}.yaml").read_text()) or {}


def _compare(fleet, name):
    """Lines of the comparer: differences that nobody explained."""
    command = [
        sys.executable, TESTS / "helpers" / "compare_objects.py",
        "--kubectl", fleet.practice.cluster.kubectl,
        "--kubeconfig", fleet.practice.cluster.kubeconfig("observer"),
        "--facts", FACTS / f"{name}.json", "--facts", FACTS / "nfd-objects.json",
        "--allow", TESTS / "integration" / "operator_differences.json", "--all-rules",
    ]  # fmt: skip
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


@pytest.mark.rows(
    "S03", "INS-01", "INS-05", "COM-14", "ST-01", "ST-02", "ST-03", "ST-04", "ST-05", "ST-06", "ST-07", "ST-08",
    "ST-09", "ST-10", "ST-11", "ST-12",
)  # fmt: skip
@pytest.mark.parametrize("name", SIX)
def test_the_operators_values_make_the_operators_objects_and_every_node_ready(fleets, name):
    fleet = fleets(SIX[name])
    before = fleet.offset()
    planned = fleet.stack(_values(name), check=True)
    assert not planned["failed"], planned["msg"]
    assert fleet.writes(before) == []

    done = fleet.stack(_values(name))
    assert not done["failed"], done["msg"]
    assert {action["id"] for action in planned["plan"]} <= {action["id"] for action in done["plan"]}
    assert done["verified"]
    assert all(check["ok"] for check in done["verified"])

    compared = _compare(fleet, name)
    assert compared.returncode == 0, compared.stdout

    before = fleet.offset()
    again = fleet.stack(_values(name))
    assert not again["failed"], again["msg"]
    assert (again["changed"], again["plan"], fleet.writes(before)) == (False, [], [])
    checked = fleet.stack(_values(name), check=True)
    assert (checked["changed"], checked["plan"], fleet.writes(before)) == (False, [], [])


def test_the_comparer_sees_a_difference(fleets):
    """The comparison of the tests above is worth something."""
    fleet = fleets("facts")
    done = fleet.stack({"dcgmExporter": {"env": [{"name": "EXTRA", "value": "1"}]}})
    assert not done["failed"], done["msg"]
    compared = _compare(fleet, "default")
    assert compared.returncode == 1
    assert "env[EXTRA]" in compared.stdout


@pytest.mark.rows("S03")
def test_the_charts_complete_defaults_are_the_same_as_none(fleets):
    fleet = fleets("facts")
    done = fleet.stack(_values("chart-defaults"))
    assert not done["failed"], done["msg"]
    before = fleet.offset()
    again = fleet.stack({})
    assert (again["failed"], again["plan"], fleet.writes(before)) == (False, [], [])
