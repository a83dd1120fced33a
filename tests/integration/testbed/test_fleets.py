# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleets that tests share: what one test left is gone when the next begins."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.gpufleet.nvidia.tests.integration.fleets import backs_off


def late(fleet: Any, tries: int = 0) -> list[str]:
    """Pods in back-off after so many tries: the kubelet waits longer each time, five minutes at most."""
    return [
        pod["metadata"]["uid"]
        for pod in fleet.get("Pod")
        if backs_off(pod) and max(one["restartCount"] for one in pod["status"]["containerStatuses"]) >= tries
    ]


def test_no_pod_of_a_fault_is_left_in_its_back_off(facts: Any, fleets: Any) -> None:
    done = facts.stack({})
    assert not done["failed"], done["msg"]
    facts.control(nodes={"gpu-0001": {"crash": {"nvidia-dcgm-exporter": "out of memory"}}})
    facts.kubectl("delete", "pod", "-n", facts.namespace, "-l", "app=nvidia-dcgm-exporter", user="admin")
    end = time.monotonic() + 30
    while not (found := late(facts, tries=6)) and time.monotonic() < end:
        time.sleep(0.02)
    assert found
    assert not set(late(fleets("facts"))) & set(found)
    again = facts.stack({})
    assert not again["failed"], again["msg"]
