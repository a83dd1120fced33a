# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs are read of containers that failed without a word, and of no others."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube import _logs
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Dropped
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._logs import with_last_words
from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._wait import diagnose
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._causes import cause_of
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.kube.fakes import FakeReply, connect, failure

LOG = b"[Vector addition of 50000 elements]\n(error code system not yet initialized)!\n"


def pod(name: str = "v", message: str = "", code: int = 1, ready: str = "False") -> dict[str, Any]:
    ended = {"exitCode": code, **({"message": message} if message else {})}
    entry = {
        "name": "cuda-validation",
        "ready": False,
        "restartCount": 3,
        "lastState": {"terminated": ended},
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }
    status = {"conditions": [{"type": "Ready", "status": ready}], "initContainerStatuses": [entry]}
    return {"metadata": {"name": name, "namespace": "gpu"}, "spec": {"nodeName": "n"}, "status": status}


@pytest.mark.rows("S28", "VAL-06")
def test_the_cause_of_a_silent_container_is_read_from_its_log() -> None:
    connection, transport, _pauses = connect(FakeReply(200, LOG))
    (told,) = with_last_words(connection, [pod()])
    sent = transport.sent[0].url
    assert "/api/v1/namespaces/gpu/pods/v/log?" in sent
    assert all(part in sent for part in ("container=cuda-validation", "previous=true", "tailLines=10"))
    owner = {"kind": "DaemonSet", "metadata": {"name": "v", "namespace": "gpu"}}
    trouble = diagnose(owner, [told])
    assert trouble is not None
    assert "fabric manager" in cause_of("validator", trouble).text


def test_what_is_told_already_or_did_not_fail_is_not_asked_for() -> None:
    connection, transport, _pauses = connect(FakeReply(200, LOG))
    pods = [pod(message="told"), pod(code=0), pod(ready="True")]
    assert with_last_words(connection, pods) == pods
    assert transport.sent == []


@pytest.mark.parametrize("answer", [FakeReply(403, failure(403)), FakeReply(500, failure(500)), Dropped("no kubelet")])
def test_a_log_that_cannot_be_read_changes_nothing(answer: Any) -> None:
    connection, _transport, _pauses = connect(answer)
    (told,) = with_last_words(connection, [pod()])
    assert told["status"]["initContainerStatuses"][0]["lastState"]["terminated"]["message"] == ""


def test_only_so_many_logs_are_read() -> None:
    connection, transport, _pauses = connect(lambda request: FakeReply(200, LOG))
    with_last_words(connection, [pod(f"p{i}") for i in range(_logs.MOST + 5)])
    assert len(transport.sent) == _logs.MOST
