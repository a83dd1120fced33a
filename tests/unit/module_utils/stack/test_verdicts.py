# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes count as broken, after how long, and how many may be."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._wait import Scene
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._causes import FINAL, LONG, MOMENT
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._stage import Stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._budget import allowed, parse_budget
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._request import Request
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._verdicts import Verdicts

GPU = {"feature.node.kubernetes.io/pci-10de.present": "true", "nvidia.com/gpu.deploy.driver": "true"}


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def verdicts() -> tuple[Verdicts, Time]:
    clock = Time()
    return Verdicts(clock, lambda: 30.0), clock


def broken(patience: str, layer: str = "driver", since: str = "") -> Stage:
    return Stage("labelled", False, layer, "it is broken", True, (), "Mend it.", patience, since)


@pytest.mark.rows("S64", "S01")
@pytest.mark.parametrize(("patience", "seconds"), [(FINAL, 30), (MOMENT, 120), (LONG, 300)])
def test_a_failure_counts_once_it_has_lasted_as_long_as_its_cause_deserves(patience: str, seconds: float) -> None:
    judge, clock = verdicts()
    judge.tell("n", broken(patience))
    clock.now += seconds - 1
    judge.tell("n", broken(patience))
    assert judge.failed == {}
    clock.now += 1
    judge.tell("n", broken(patience))
    assert set(judge.failed) == {"n"}


@pytest.mark.rows("S64")
def test_what_mends_itself_is_waited_for_again_and_another_failure_gets_its_own_time() -> None:
    judge, clock = verdicts()
    judge.tell("n", broken(FINAL))
    clock.now += 40
    judge.tell("n", broken(FINAL))
    judge.tell("n", broken(FINAL, "toolkit"))
    assert judge.failed == {}
    judge.tell("n", Stage("ready", True))
    clock.now += 40
    judge.tell("n", broken(FINAL))
    assert judge.failed == {}


@pytest.mark.rows("S64")
def test_a_slow_node_is_not_broken_until_its_time_is_over() -> None:
    judge, clock = verdicts()
    slow = Stage("labelled", False, "driver", "pod d: pulling image")
    judge.tell("n", slow)
    clock.now += 10_000
    judge.tell("n", slow)
    assert judge.failed == {}
    judge.late("n", slow, 1800)
    judge.tell("n", slow)
    assert judge.failed["n"].trouble == "not ready after 1800 s: pod d: pulling image"
    assert "stage_timeout" in judge.failed["n"].sentence
    judge.tell("n", Stage("ready", True))
    assert judge.failed == {}


def test_a_node_that_was_down_long_before_the_run_counts_soon_but_not_by_one_list_which_may_be_stale() -> None:
    judge, clock = verdicts()
    down = broken(LONG, "node", "2020-01-01T00:00:00Z")
    judge.tell("n", down)
    assert judge.failed == {}
    judge.tell("n", Stage("ready", True))
    clock.now += 2
    judge.tell("n", down)
    assert judge.failed == {}
    clock.now += 2
    judge.tell("n", down)
    assert set(judge.failed) == {"n"}


def _node(name: str, labels: dict[str, str], ready: str = "True") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": "2020-01-01T00:00:00Z"}]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": []},
        "status": {"conditions": conditions, "allocatable": {}},
    }


def test_only_nodes_with_gpus_count_and_the_others_are_told_all_the_same() -> None:
    judge, clock = verdicts()
    nodes = [_node("cpu", {}, "False"), _node("gpu", GPU, "False"), _node("well", GPU)]
    assert judge.broken(Scene(nodes, [], [], list, {})) == set()
    clock.now += 2
    gone = judge.broken(Scene(nodes, [], [], list, {}))
    assert set(gone) == {"cpu", "gpu"}
    assert judge.counted(nodes) == ["gpu"]
    (finding,) = judge.findings(nodes)
    assert finding.target == "nodes cpu and gpu"
    assert finding.sentence().startswith("nodes cpu and gpu: node failed: the node is not ready. See kubelet")


@pytest.mark.rows("P132")
def test_the_message_groups_nodes_by_cause() -> None:
    judge, clock = verdicts()
    for _round in range(2):
        for name in ("a", "b", "c"):
            judge.tell(name, broken(FINAL, "toolkit" if name == "c" else "driver"))
        clock.now += 60
    assert judge.summary(["a", "b"], 9, 1).startswith("nodes a and b: driver failed: it is broken. Mend it. 2 of 9")
    head, first, second = judge.summary(["a", "b", "c"], 9, 0).split("\n- ")
    assert head == "3 of 9 GPU nodes failed, none may:"
    assert (first, second) == (
        "nodes a and b: driver failed: it is broken. Mend it.",
        "node c: toolkit failed: it is broken. Mend it.",
    )


@pytest.mark.rows("S01", "P056")
@pytest.mark.parametrize(
    ("given", "nodes", "may"),
    [(None, 10, 0), ("0", 10, 0), (3, 10, 3), ("10%", 25, 2), ("10%", 9, 0), ("100%", 7, 7), ("0%", 7, 0)],
)
def test_the_budget_is_a_number_or_a_part_rounded_down(given: Any, nodes: int, may: int) -> None:
    assert allowed(parse_budget(given), nodes) == may


@pytest.mark.parametrize("given", ["-1", "1.5", "ten", "101%", "%", "5 %"])
def test_another_budget_is_refused_with_what_is_allowed(given: str) -> None:
    params = {"namespace": "gpu-operator", "host": "https://192.0.2.1", "max_failed_nodes": given}
    with pytest.raises(Failure, match="a number of nodes from 0 on or a part such as 10% is allowed"):
        Request.from_params(params, False, lambda line: None)


@pytest.mark.rows("S64")
@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_since_when_something_is_broken_is_told_by_the_servers_clock(ahead: float) -> None:
    clock, server = Time(), time.time() + ahead
    judge = Verdicts(clock, lambda: 30.0, None, lambda: server)
    since = datetime.fromtimestamp(server - 20, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    judge.tell("n", broken(FINAL, since=since))
    assert judge.failed == {}
    clock.now += 2
    since = datetime.fromtimestamp(server - 40, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    judge.tell("n", broken(FINAL, since=since))
    assert set(judge.failed) == {"n"}


@pytest.mark.rows("P099")
@pytest.mark.parametrize(
    ("seen", "trouble"),
    [
        (3, ""),
        (4, "4 of the node's 4 GPUs are seen, of which 0000:18:00.0 is to be hidden"),
        (2, "the driver sees 2 of the node's 4 GPUs, and hidden_gpus hides 1 of them at most"),
    ],
)
def test_a_node_is_proved_once_it_shows_all_gpus_but_the_hidden_one(seen: int, trouble: str) -> None:
    judge, _clock = verdicts()
    judge.hardware, judge.hidden = {"n": {"1eb8": 4}}, {"n": ("0000:18:00.0",)}
    judge.unlike = lambda node: ""
    node = _node("n", {**GPU, "nvidia.com/gpu.count": str(seen)})
    node["status"].update(capacity={"nvidia.com/gpu": str(seen)}, allocatable={"nvidia.com/gpu": str(seen)})
    other = {"kind": "DaemonSet", "metadata": {"name": "x"}, "spec": {"template": {"metadata": {}, "spec": {}}}}
    late = judge.unproved(Scene([node], [], [other], list, {}), ["n"])
    assert [at.trouble for at in late.values()] == ([trouble] if trouble else [])
