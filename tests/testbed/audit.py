# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who did what: the API server's audit log, read back.

A *write* is a mutating request, whether or not it succeeded, that is no dry run, no review (those only ask) and no
request for a token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

MUTATING = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class Request:
    """One request that the API server answered. ``resource`` has its subresource behind a slash."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    dry_run: bool
    code: int

    @property
    def is_write(self) -> bool:
        resource, _unused, subresource = self.resource.partition("/")
        asks_only = resource.endswith("reviews") or subresource == "token"
        return self.verb in MUTATING and not self.dry_run and not asks_only

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.verb} {self.resource} {place} ({self.code})"


def _request(event: dict[str, Any]) -> Request:
    target = event.get("objectRef") or {}
    subresource = target.get("subresource", "")
    return Request(
        user=event["user"]["username"],
        verb=event["verb"],
        resource=target.get("resource", "") + (f"/{subresource}" if subresource else ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        dry_run="All" in parse_qs(urlsplit(event["requestURI"]).query).get("dryRun", ()),
        code=(event.get("responseStatus") or {}).get("code", 0),
    )


def offset(log: Path) -> int:
    """Where the log ends now: what is written later stands behind it."""
    return log.stat().st_size if log.exists() else 0


def requests(log: Path, user: str | None = None, since: int = 0) -> Iterator[Request]:
    """The requests in the log behind the offset ``since``, of one user or of all. A watch counts once, at its end."""
    with log.open("rb") as file:
        if since:
            # The line that was on its way to the file at that time is of a request before.
            file.seek(since - 1)
            file.readline()
        for line in file:
            # The last line may still be on its way to the file.
            if not line.endswith(b"\n"):
                return
            event = json.loads(line)
            # A request has one event for each stage that it went through, and ends with one of these two.
            if event["stage"] in {"ResponseComplete", "Panic"} and user in {None, event["user"]["username"]}:
                yield _request(event)


def writes(log: Path, user: str | None = None, since: int = 0) -> list[Request]:
    """The writes in the log behind the offset ``since``, of one user or of all."""
    return [request for request in requests(log, user, since) if request.is_write]
