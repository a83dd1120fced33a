# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that serves Karpenter's kinds, as strict about the class of nodes as Karpenter."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from ansible_collections.gpufleet.nvidia.tests.helpers.crds import LOOSE, definition
from ansible_collections.gpufleet.nvidia.tests.integration.fleets import Fleet

KINDS = (("NodePool", "karpenter.sh", "nodepools"), ("EC2NodeClass", "karpenter.k8s.aws", "ec2nodeclasses"))
NODE_CLASS = {"type": "object", "required": ["group", "kind", "name"], "properties": {
    name: {"type": "string", "minLength": 1} for name in ("group", "kind", "name")}}  # fmt: skip


def kind_of(kind: str, group: str, plural: str) -> dict[str, Any]:
    spec = LOOSE
    if kind == "NodePool":
        inner = {**LOOSE, "required": ["nodeClassRef"], "properties": {"nodeClassRef": NODE_CLASS}}
        spec = {**LOOSE, "properties": {"template": {**LOOSE, "properties": {"spec": inner}}}}
    return definition(kind, group, plural, "v1", {"type": "object", "properties": {"spec": spec}})


@contextlib.contextmanager
def karpenter_in(fleet: Fleet) -> Iterator[None]:
    """Karpenter's kinds are served meanwhile; afterwards they are gone, with all their objects."""
    names = [f"crd/{plural}.{group}" for _kind, group, plural in KINDS]
    for kind in KINDS:
        fleet.kubectl("apply", "-f", "-", user="admin", text=json.dumps(kind_of(*kind)))
    try:
        fleet.kubectl("wait", "--for=condition=Established", *names, "--timeout=60s", user="admin")
        yield
    finally:
        fleet.kubectl("delete", *names, "--timeout=60s", user="admin")
