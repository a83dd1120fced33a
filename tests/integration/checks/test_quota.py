# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quotas for GPUs: real admission of pods, in four steps, and nobody else's quota is touched."""

from __future__ import annotations

import json

import pytest

from .conftest import People, made, pod_template

HARD = {"gpu": 2, "gpu.shared": "8", "nvidia.com/mig-1g.10gb": 1}


def quota(fleet, *, check=False, **params):
    result = fleet.run("gpu_quota", check=check, namespace="team-q", **{"timeout": 60, **params})
    assert not result["failed"], result["msg"]
    return result


def admitted(fleet, name: str, amount: str, resource: str = "nvidia.com/gpu") -> str:
    """ "" when the API server takes the pod, or its refusal."""
    pod = made("Pod", name, "team-q", spec=pod_template(limits={resource: amount})["spec"])
    try:
        fleet.kubectl("create", "-f", "-", text=json.dumps(pod))
    except AssertionError as refused:
        return str(refused)
    return ""


@pytest.mark.rows("S59")
def test_a_quota_in_four_steps_admits_and_refuses_pods(facts, people: People):
    people.make(made("Namespace", "team-q"))
    people.make(made("ResourceQuota", "others", "team-q", spec={"hard": {"pods": "50"}}))
    offset = facts.offset()
    planned = quota(facts, check=True, hard=HARD)
    assert (planned["changed"], planned["verified"], facts.writes(offset)) == (True, [], [])
    done = quota(facts, hard=HARD)
    assert done["changed"]
    assert done["verified"][0]["ok"]
    assert done["found"]["hard"] == {
        "requests.nvidia.com/gpu": "2",
        "requests.nvidia.com/gpu.shared": "8",
        "requests.nvidia.com/mig-1g.10gb": "1",
    }
    assert len(facts.writes(offset)) == 1
    offset = facts.offset()
    again = quota(facts, hard=HARD)
    assert (again["changed"], again["plan"]) == (False, [])
    assert not quota(facts, check=True, hard=HARD)["changed"]
    assert facts.writes(offset) == []
    assert admitted(facts, "one", "2") == ""
    assert "exceeded quota: gpufleet-gpus" in admitted(facts, "two", "1")
    assert "exceeded quota" in admitted(facts, "slices", "2", "nvidia.com/mig-1g.10gb")
    assert admitted(facts, "free", "2", "nvidia.com/mig-2g.20gb") == "", "what is not named is not limited"


@pytest.mark.rows("S59")
def test_a_smaller_quota_warns_and_an_absent_one_leaves_the_others(facts, people: People):
    people.make(made("Namespace", "team-q"))
    hard = {"hard": {"requests.nvidia.com/gpu": "9"}}
    people.make(made("ResourceQuota", "others", "team-q", spec=hard))
    quota(facts, hard={"gpu": 2})
    quota(facts, name="second", hard={"gpu": 5})
    assert admitted(facts, "one", "2") == ""
    changed = quota(facts, hard={"gpu": 1})
    found = {finding["id"]: finding for finding in changed["findings"]}
    assert "2 nvidia.com/gpu are used already" in found["quota.exceeded"]["detail"]
    assert found["quota.other"]["severity"] == "info"
    assert [action["verb"] for action in changed["plan"]] == ["update"]
    gone = quota(facts, state="absent")
    assert (gone["changed"], gone["verified"][0]["ok"]) == (True, True)
    assert {q["metadata"]["name"] for q in facts.get("ResourceQuota", namespace="team-q")} == {"others", "second"}
    assert not quota(facts, state="absent")["changed"]
    taken = facts.run("gpu_quota", namespace="team-q", name="others", hard={"gpu": 1})
    assert taken["failed"]
    assert "was not made by this collection" in taken["msg"]


@pytest.mark.rows("S59")
def test_a_run_over_the_stack_leaves_quotas_alone(facts, people: People):
    people.make(made("Namespace", "team-q"))
    quota(facts, hard={"gpu": 2})
    extra = made("ResourceQuota", "of-the-policy", "gpu-operator", spec={"hard": {"pods": "1000"}})
    for values in ({"extraObjects": [extra]}, {}):
        done = facts.stack(values)
        assert not done["failed"], done["msg"]
    assert facts.get("ResourceQuota", "of-the-policy") is None
    assert facts.get("ResourceQuota", "gpufleet-gpus", "team-q")["spec"]["hard"] == {"requests.nvidia.com/gpu": "2"}


def test_keys_that_quotas_do_not_know_are_refused_before_anything_is_read(facts):
    refused = facts.run("gpu_quota", namespace="no-such", hard={"limits.nvidia.com/gpu": 1, "cpu": 2, "gpu": "1.5"})
    assert refused["failed"]
    paths = {finding["path"]: finding["detail"] for finding in refused["findings"]}
    assert "requests only" in paths["hard.limits.nvidia.com/gpu"]
    assert "no GPU resource" in paths["hard.cpu"]
    assert "whole numbers" in paths["hard.gpu"]
    assert "no-such does not exist" in facts.run("gpu_quota", namespace="no-such", hard={"gpu": 1})["msg"]
    assert "hard: is empty" in facts.run("gpu_quota", namespace="default", hard={})["msg"]
