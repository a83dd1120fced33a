# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One fleet, a fault on each of many nodes: each is named in one sentence, and the other nodes come up."""

from __future__ import annotations

import time

import pytest

FAULTS = {
    "bad-nouveau": {"nouveau": True},
    "bad-kernel": {"no_precompiled": True},
    "bad-crash": {"driver_crash": "NVRM: RmInitAdapter failed! (0x62:0x40:1860)"},
    "bad-handler": {"no_handler": True},
    "bad-fabric": {"no_fabric_manager": True},
    "bad-plugin": {"gpus_visible": 0},
    "bad-exporter": {"crash": {"nvidia-dcgm-exporter": "out of file descriptors"}},
    "bad-node": {"down": "PLEG is not healthy: pleg was last seen active 3m0s ago"},
    "slow": {"driver_seconds": 3000},
}
TAINT = ("bad-taint", "dedicated=batch:NoExecute")
GOOD = {"good-0", "good-1", "slow"}


def test_all(fleets):
    fleet = fleets("faults")
    fleet.empty()
    fleet.control(nodes=FAULTS)
    began = time.monotonic()
    class L(list):
        def append(self, x): print(round(time.monotonic()-began,1), x, flush=True); super().append(x)
    import ansible_collections.gpufleet.nvidia.tests.integration.stack.conftest as cc
    orig=cc.MODULES['cluster_policy']
    cc.MODULES['cluster_policy']=lambda p,c,pr: orig(p,c,L().append)
    done = fleet.stack({}, timeout=150)
    print(time.monotonic() - began)
    print(done.get("msg"))
    print("\n".join(fleet.progress))
    for row in done["found"]["nodes"]:
        print(row["name"], row["stage"], row["ready"], row["failed"], row["trouble"])
    assert 0
