# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects that people have in their clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.integration.fleets import Fleet


class People:
    """What others do in a cluster; all of it is taken away after the test."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.made: list[dict[str, Any]] = []

    def make(self, *objects: dict[str, Any], status: dict[str, Any] | None = None) -> None:
        """Create objects; ``status`` is written to the last one's."""
        for made in objects:
            self.fleet.kubectl("apply", "-f", "-", text=json.dumps(made))
            self.made.append(made)
        if status is not None:
            kind, meta = objects[-1]["kind"], objects[-1]["metadata"]
            where = ["-n", meta["namespace"]] if "namespace" in meta else []
            patch = json.dumps({"status": status})
            self.fleet.kubectl("patch", kind, meta["name"], *where, "--subresource=status", "--type=merge", "-p", patch)

    def take_away(self) -> None:
        for made in reversed(self.made):
            gone = "--ignore-not-found", "--wait=true", "--grace-period=0", "--force"
            self.fleet.kubectl("delete", *gone, "-f", "-", text=json.dumps(made))


@pytest.fixture
def people(facts: Fleet) -> Iterator[People]:
    made = People(facts)
    yield made
    made.take_away()


def made(kind: str, name: str, namespace: str = "", api: str = "v1", **more: Any) -> dict[str, Any]:
    """A small object."""
    where = {"namespace": namespace} if namespace else {}
    meta = {"name": name, **where, **more.pop("meta", {})}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **more}


def pod_template(*, name: str = "a", spec: dict[str, Any] | None = None, **resources: Any) -> dict[str, Any]:
    """A template with one container."""
    container = {"name": "main", "image": "registry.example.com/app:1", "resources": resources}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **(spec or {})}}


def deployment(name: str, namespace: str = "default", **template: Any) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"app": name}}, "template": pod_template(name=name, **template)}
    return made("Deployment", name, namespace, "apps/v1", spec=spec)
