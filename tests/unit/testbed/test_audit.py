# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as a write of a user in an API server's audit log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed import audit


def event(verb: str = "create", resource: str = "pods", **more: Any) -> dict[str, Any]:
    subresource = more.pop("subresource", "")
    target = {"resource": resource, "namespace": "default", "name": "a"} | (
        {"subresource": subresource} if subresource else {}
    )
    return {
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": "me"},
        "requestURI": f"/api/v1/namespaces/default/{resource}/a?fieldManager=x",
        "objectRef": target,
        "responseStatus": {"code": 200},
    } | more


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def fill(log: Path, *events: dict[str, Any]) -> None:
    with log.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in events)


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete", "deletecollection"])
def test_mutating_verbs_are_writes(log: Path, verb: str) -> None:
    fill(log, event(verb))

    assert [str(write) for write in audit.writes(log, "me")] == [f"{verb} pods default/a (200)"]


@pytest.mark.parametrize(
    "harmless",
    [
        event("get"),
        event("list"),
        event("watch"),
        event("patch", requestURI="/api/v1/namespaces/default/pods/a?dryRun=All&fieldManager=x"),
        event(resource="selfsubjectaccessreviews"),
        event(resource="tokenreviews"),
        event(resource="serviceaccounts", subresource="token"),
        event(stage="ResponseStarted"),
        event(user={"username": "other"}),
        event("get", objectRef=None, requestURI="/readyz"),
    ],
    ids=[
        "get",
        "list",
        "watch",
        "dry-run",
        "review",
        "token-review",
        "token",
        "not-complete",
        "other-user",
        "no-object",
    ],
)
def test_these_are_no_writes(log: Path, harmless: dict[str, Any]) -> None:
    fill(log, harmless, event("delete"))

    assert [write.verb for write in audit.writes(log, "me")] == ["delete"]


def test_refused_write_counts_too(log: Path) -> None:
    fill(log, event(responseStatus={"code": 403}))

    assert [write.code for write in audit.writes(log, "me")] == [403]


def test_subresource_is_part_of_the_resource(log: Path) -> None:
    fill(log, event("patch", subresource="status"))

    assert [write.resource for write in audit.writes(log, "me")] == ["pods/status"]


def test_offset_leaves_out_what_was_before(log: Path) -> None:
    assert audit.offset(log) == 0
    fill(log, event("create"))
    since = audit.offset(log)
    fill(log, event("delete"))

    assert [write.verb for write in audit.writes(log, "me", since)] == ["delete"]


def test_line_that_is_still_written_is_left_for_the_next_reading(log: Path) -> None:
    fill(log, event("create"))
    with log.open("a") as file:
        file.write('{"stage": "ResponseComp')

    assert [write.verb for write in audit.writes(log, "me")] == ["create"]


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_line_that_was_on_its_way_at_the_offset_is_of_before(log: Path, cut: int) -> None:
    """``cut``: how many bytes of the line before were in the file already."""
    fill(log, event("create"))
    whole = json.dumps(event("patch")) + "\n"
    with log.open("a") as file:
        file.write(whole[:cut])
    since = audit.offset(log)
    with log.open("a") as file:
        file.write(whole[cut:])
    fill(log, event("delete"))
    assert [write.verb for write in audit.writes(log, "me", since)] == (["delete"] if cut else ["patch", "delete"])
