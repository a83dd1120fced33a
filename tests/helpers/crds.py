# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Definitions of other projects' kinds, so that a test's API server serves them."""

from __future__ import annotations

from typing import Any

LOOSE: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(
    kind: str, group: str, plural: str, version: str, schema: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A cluster-scoped kind; ``more``: further keys of its version, such as ``subresources``."""
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or LOOSE}, **more}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served],
        },
    }
