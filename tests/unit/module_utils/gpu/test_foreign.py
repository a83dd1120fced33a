# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances that were not made by this host's layouts are told, stay when a layout names them, and are never destroyed
without a word."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

ALL = "1g.5gb@0, 1g.5gb@1, 3g.20gb@4"
NONE = [{"gpus": [0], "profiles": {}}]
LARGER = [{"gpus": [0], "profiles": {"3g.20gb": 1, "2g.10gb": 2}}]


def foreign(outcome) -> list[tuple[str, str, str]]:
    found = [each for each in outcome.result.findings if each.id == "mig.foreign"]
    return [(each.severity, each.target.split(" (")[0], each.detail.split(":")[0]) for each in found]


def uuids(outcome) -> list[str]:
    return [part["uuid"] for each in outcome.result.found["gpus"][0]["instances"] for part in each["compute"]]


@pytest.mark.rows("P090")
def test_what_was_made_by_hand_is_told_and_refused_or_destroyed_by_name(host):
    host.forget()
    assert foreign(host.run(state="exported")) == [("info", "GPU 0", ALL)]
    assert foreign(host.run(check=True, layout=LARGER)) == [("warning", "GPU 0", "1g.5gb@0, 1g.5gb@1")]
    with pytest.raises(Failure) as failure:
        host.run(layout=LARGER, foreign="refuse")
    assert "GPU 0 (NVIDIA A100-SXM4-40GB): 1g.5gb@0, 1g.5gb@1: to be destroyed or changed inside" in failure.value.msg
    assert [each.accept for each in failure.value.result.findings] == ["foreign=replace"]
    assert host.writes() == []
    assert foreign(host.run(layout=LARGER)) == [("warning", "GPU 0", "1g.5gb@0, 1g.5gb@1")]


@pytest.mark.rows("P090")
def test_what_a_layout_names_is_adopted_untouched_and_is_no_stranger_any_more(host):
    exported = host.run(state="exported")
    host.forget()
    adopted = host.run(config=exported.result.found["config"], name="current", restore_at_boot=True, foreign="refuse")
    assert (host.writes(), foreign(adopted), uuids(adopted)) == ([], [], uuids(exported))
    assert foreign(host.run(state="exported")) == []
    # Somebody makes another one beside them: that one is foreign, those that were adopted go as any of ours.
    host.set("gpu=0", "instance=14@2")
    assert foreign(host.run(state="exported")) == [("info", "GPU 0", "2g.10gb@2")]
    assert foreign(host.run(check=True, layout=NONE)) == [("warning", "GPU 0", "2g.10gb@2")]


@pytest.mark.rows("P090")
def test_new_compute_instances_in_a_foreign_one_are_a_change_of_it(host):
    entry = {"instances": [{"profile": "3g.20gb", "start": 4, "compute": [2, 1]}, {"profile": "1g.5gb", "count": 2}]}
    assert foreign(host.run(check=True, layout=[entry])) == [("warning", "GPU 0", "3g.20gb@4")]


@pytest.mark.rows("P090")
def test_foreign_ones_on_gpus_that_a_layout_does_not_name_are_told_and_left_alone(host_with):
    host = host_with("A100-SXM4-40GB", "A100-SXM4-40GB")
    host.set("gpu=all", "mig=1")
    host.set("gpu=1", "instance=19@6")
    assert foreign(host.run(layout=[{"gpus": [0], "profiles": {"1g.5gb": 1}}])) == [("info", "GPU 1", "1g.5gb@6")]
    assert [each["start"] for each in host.run(state="exported").result.found["gpus"][1]["instances"]] == [6]


def test_nobody_but_root_needs_the_kept_layout_and_a_broken_one_knows_none(host):
    tools = host.tools()
    tools.is_root = lambda: False
    assert foreign(host.run(tools=tools, state="exported")) == []
    files = Files(Root(str(host.root)))
    files.make_folder("/var/lib/gpufleet/mig", 0o700)
    files.write("/var/lib/gpufleet/mig/layout.json", "{", 0o600)
    assert foreign(host.run(state="exported")) == [("info", "GPU 0", ALL)]
