# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the bench of large clusters measures, and on which nodes."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._labels import has_gpu, plan_labels
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._stage import gaps_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._facts import node_facts, slim_node
from ansible_collections.gpufleet.nvidia.tests.bench import __main__ as bench
from ansible_collections.gpufleet.nvidia.tests.bench import figures, nodes, scale

pytestmark = pytest.mark.rows("S45")


def test_each_size_and_phase_has_its_figures() -> None:
    assert bench.chosen(["scale.5000.noop"], scale.NAMES) == {
        "scale.5000.noop",
        "scale.5000.noop.memory",
        "scale.5000.noop.requests",
        "scale.5000.noop.bytes",
    }
    assert len(bench.chosen(["scale"], scale.NAMES)) == 3 * 3 * 4


def test_goals_are_the_agreed_ones() -> None:
    goals = {what: scale.goal_of(5000, "noop", what) for what in scale.WHATS}
    assert goals == {
        "": figures.Goal(figures.AT_MOST, 10),
        ".memory": figures.Goal(figures.AT_MOST, 300),
        ".requests": figures.Goal(figures.AT_MOST, 30),
        ".bytes": None,
    }
    few, many = (scale.goal_of(size, "noop", ".requests") for size in (100, 5000))
    assert few is not None
    assert many is not None
    assert many.bound - few.bound == 9  # pages of 500 nodes


def test_nodes_are_as_large_as_real_ones_and_differ() -> None:
    one, other = nodes.node(1), nodes.node(2)
    assert 12_000 < len(json.dumps(one)) < 25_000  # without the server's managedFields
    assert len(one["status"]["images"]) == 50
    assert one["metadata"]["name"] != other["metadata"]["name"]


def test_nodes_are_gpu_nodes_that_want_labels_and_offer_their_gpus() -> None:
    node = slim_node(nodes.node(7))
    policy, _findings = load({})
    assert policy is not None
    assert has_gpu(node["metadata"]["labels"])
    assert plan_labels(policy, node_facts(node))
    assert gaps_of(node) == []
