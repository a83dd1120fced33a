# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._table import node_table


def _node(name, ready=True, trouble="", gpus=8):
    return {
        "name": name,
        "product": "NVIDIA-H100-80GB-HBM3",
        "gpus": gpus,
        "driver": "595.91.07",
        "mig": "",
        "allocatable": {"nvidia.com/gpu": gpus} if ready else {},
        "stage": "ready" if ready else "driver",
        "ready": ready,
        "trouble": trouble,
    }


def test_columns_stand_under_each_other_and_empty_cells_are_dashes():
    lines = node_table([_node("a"), _node("longer-name", gpus=1)])
    assert lines[0].split() == ["NODE", "PRODUCT", "GPUS", "DRIVER", "MIG", "OFFERS", "STAGE"]
    assert [line.index("NVIDIA") for line in lines[1:3]] == [lines[0].index("PRODUCT")] * 2
    assert "8 gpu" in lines[1]
    assert "  -  " in lines[1]
    assert lines[-1] == "2 of 2 GPU nodes ready"


def test_what_failed_stands_below_the_table():
    lines = node_table([_node("a"), _node("b", ready=False, trouble="image x cannot be pulled")])
    assert lines[-2:] == ["1 of 2 GPU nodes ready", "b: image x cannot be pulled"]


def test_of_a_long_list_nodes_that_are_not_ready_come_first_and_the_rest_is_counted():
    nodes = [_node(f"n{i:03}") for i in range(100)] + [_node("z", ready=False, trouble="no driver")]
    lines = node_table(nodes, most=10)
    assert lines[1].startswith("z")
    assert "... and 91 more" in lines
    assert "100 of 101 GPU nodes ready" in lines


def test_a_cluster_without_gpu_nodes_is_said_to_have_none():
    assert node_table([])[-1] == "no GPU nodes"
