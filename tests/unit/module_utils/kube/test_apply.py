# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._apply import apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import ApiError
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, connect, failure

WANTED = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "n"}}
CONFLICT = FakeReply(409, failure(409))


def test_an_apply_that_met_another_write_is_sent_again() -> None:
    connection, transport, pauses = connect(CONFLICT, CONFLICT, FakeReply(200, WANTED))
    assert apply(connection, WANTED) == WANTED
    assert len(transport.sent) == 3
    assert len(pauses) == 2


def test_a_dry_run_that_conflicts_is_answered_at_once() -> None:
    connection, transport, _pauses = connect(CONFLICT, FakeReply(200, WANTED))
    with pytest.raises(ApiError):
        apply(connection, WANTED, dry_run=True)
    assert len(transport.sent) == 1
