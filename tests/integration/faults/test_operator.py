# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that somebody else runs: recorded objects of NVIDIA's operator, and a look tells the same sentences."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.faults.sentences import NODES, plain
from ansible_collections.gpufleet.nvidia.tests.integration.fleets import FAST, Fleet
from ansible_collections.gpufleet.nvidia.tests.testbed.practice import Practice
from ansible_collections.gpufleet.nvidia.tests.testbed.simulator import recorded

PATIENCE = 150.0
FIRST = ("CustomResourceDefinition",), ("ServiceAccount", "RuntimeClass", "ConfigMap")
LABELS = (
    "container-toolkit", "dcgm-exporter", "device-plugin", "driver", "gpu-feature-discovery", "operator-validator",
)  # fmt: skip
AT_ONCE = {name: fault for name, fault in NODES.items() if name not in ("bad-node", "bad-taint")}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Practice(tmp_path_factory.mktemp("theirs"), fleet="faults", speed=FAST) as practice:
        fleet = Fleet(practice)
        fleet.control(nodes={name: fault.control for name, fault in AT_ONCE.items()})
        objects = list(recorded.objects("default").values())
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": recorded.NAMESPACE}}
        _apply(fleet, [space])
        for kinds in FIRST:
            _apply(fleet, [made for made in objects if made["kind"] in kinds])
            if "CustomResourceDefinition" in kinds:
                fleet.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s", user="admin")
        _apply(fleet, [made for made in objects if not any(made["kind"] in kinds for kinds in FIRST)])
        asked = [f"nvidia.com/gpu.deploy.{name}=true" for name in LABELS]
        fleet.kubectl("label", "node", "--all", "nvidia.com/gpu.present=true", *asked, user="admin")
        yield fleet


def _apply(fleet: Fleet, items: list[dict[str, Any]]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    fleet.kubectl("apply", "--server-side", "-f", "-", user="admin", text=text)


@pytest.mark.long
@pytest.mark.rows("S01", "S28", "L24", "P027", "P132")
def test_objects_that_the_operator_made_are_told_of_in_the_same_sentences(theirs: Fleet) -> None:
    end = time.monotonic() + PATIENCE
    left: dict[str, str] = dict.fromkeys(AT_ONCE, "")
    while left and time.monotonic() < end:
        offset = theirs.offset()
        seen = theirs.run("gpu_cluster_info")
        assert theirs.writes(offset) == []
        rows = {row["name"]: plain(row["trouble"]) for row in seen["found"]["nodes"]}
        left = {name: rows.get(name, "") for name in AT_ONCE if rows.get(name) != AT_ONCE[name].sentence}
        time.sleep(1)
    assert left == {}
    rows = {row["name"]: row for row in theirs.run("gpu_cluster_info")["found"]["nodes"]}
    assert all(rows[name]["ready"] for name in ("good-0", "good-1", "slow", "bad-node", "bad-taint"))
