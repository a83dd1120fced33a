# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions that a fleet allows for its GPUs: chosen among, refused, and exchanged when they are installed."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._rules import barred, of, read

from .debian_host import NEW, OLD, DebianHost
from .test_findings import device
from .test_run import refused, versions

pytestmark = pytest.mark.rows("P047")


@pytest.mark.parametrize(
    ("rule", "version", "why"),
    [
        ({"min": "580.95.05"}, "580.95.05", ""),
        ({"min": "580.95.05"}, "580.82.07", "580.95.05 is the oldest that is allowed"),
        ({"min": "580"}, "575.57.08", "580 is the oldest"),
        ({"max": "580"}, "580.95.05", ""),
        ({"max": "580.82"}, "580.82.07", ""),
        ({"max": "580.82.07"}, "580.95.05", "580.82.07 is the newest that is allowed"),
        ({"min": "580.65", "max": "595"}, "610.57.04", "595 is the newest"),
        ({"excluded": ["580.82"]}, "580.82.07", "580.82 is excluded"),
        ({"excluded": ["580.8"]}, "580.82.07", ""),
        ({"excluded": ["580.82.07", "595"], "reason": "ticket 4711"}, "595.91.07", "595 is excluded (ticket 4711)"),
        ({"excluded": ["580.82.07"]}, "580.95.05", ""),
    ],
)
def test_a_rule_is_judged_by_the_parts_of_versions(rule: dict[str, Any], version: str, why: str) -> None:
    told = barred(read([rule])[0], version)
    assert told.startswith(f"version_rules[0]: {why}") if why else told == ""


@pytest.mark.parametrize(
    ("rule", "path", "words"),
    [
        ({}, "version_rules[0]", "none of min, max and excluded"),
        ({"min": "5.8"}, "version_rules[0].min", "'5.8' is no version"),
        ({"max": "latest"}, "version_rules[0].max", "'latest' is no version"),
        ({"excluded": ["580.82.07.1"]}, "version_rules[0].excluded", "'580.82.07.1' is no version"),
        ({"excluded": ["580.82", ""]}, "version_rules[0].excluded", "'' is no version"),
        ({"gpus": [""], "min": "580"}, "version_rules[0].gpus", "an empty word"),
        ({"min": "595", "max": "580.95"}, "version_rules[0].min", "595 is newer than max, 580.95"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(host: DebianHost, rule: dict[str, Any], path: str, words: str) -> None:
    (found,) = refused(host, branch=580, version_rules=[rule]).values()
    assert (found.id in ("no_version", "empty_rule"), found.path, words in found.detail) == (True, path, True)


def test_a_rule_may_cut_its_newest_version_shorter_than_its_oldest() -> None:
    assert read([{"min": "580.95", "max": "580"}])[1] == []


def test_rules_are_about_architectures_and_names() -> None:
    rules = read([{"gpus": ["Hopper"], "min": "580"}, {"gpus": ["L4", "A10"], "min": "570"}, {"max": "595"}])[0]
    assert [rule.place[-2] for rule in of(rules, ["hopper", "NVIDIA H100 80GB HBM3"])] == ["0", "2"]
    assert [rule.place[-2] for rule in of(rules, ["ada", "NVIDIA L4"])] == ["1", "2"]
    assert [rule.place[-2] for rule in of(rules, ["ampere", "NVIDIA-A10-24GB"])] == ["1", "2"]
    assert [rule.place[-2] for rule in of(rules, ["ada", "NVIDIA L40S", "NVIDIA A100-SXM4-80GB"])] == ["2"]


BAD = [{"gpus": ["hopper"], "excluded": [NEW], "reason": "ticket 4711"}]


def test_each_group_of_hosts_gets_the_newest_version_that_its_gpus_may_have(host: DebianHost) -> None:
    host.go(branch=580, version_rules=BAD)
    assert versions(host) == {OLD}
    assert not host.go(branch=580, version_rules=BAD).result.changed


def test_a_rule_for_other_gpus_changes_nothing(host: DebianHost) -> None:
    device(host, "0x26b9", "0x26b9")
    host.go(branch=580, version_rules=BAD)
    assert versions(host) == {NEW}


def test_a_version_that_a_rule_does_not_allow_is_refused_with_it(host: DebianHost) -> None:
    found = refused(host, version=NEW, version_rules=BAD)["version_rule"]
    assert f"not allowed: {NEW} (version_rules[0]: {NEW} is excluded (ticket 4711))" == found.detail
    found = refused(host, branch=580, version_rules=[{"min": "590"}])["version_rule"]
    assert NEW in found.detail
    assert OLD in found.detail


def test_an_installed_version_that_is_bad_is_exchanged_and_told(host: DebianHost) -> None:
    host.have(NEW)
    planned = host.go(check=True, version_rules=BAD)
    told = {one.id: one for one in planned.result.findings}["version_rule"]
    assert (told.severity, f"driver {NEW} is installed, and not allowed" in told.detail) == ("warning", True)
    host.go(version_rules=BAD)
    assert (versions(host), host.version) == ({OLD}, OLD)


def test_rules_that_bar_the_whole_branch_refuse_and_promise_no_other_version(host: DebianHost) -> None:
    host.have(NEW)
    found = refused(host, version_rules=[{"min": "595"}])
    assert "not allowed" in found["version_rule"].detail
    assert "another takes its place" not in " ".join(one.detail for one in found.values())


def test_rules_and_hosts_that_are_wrong_do_not_keep_a_driver_from_going(host: DebianHost) -> None:
    host.go(branch=580)
    host.go(state="absent", version_rules=[{"min": "latest"}], imex_nodes=["gpu-07"])
    assert versions(host) == set()
