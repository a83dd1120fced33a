# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of images against what a run applies to a cluster and what its pods run."""

from __future__ import annotations

from typing import Any

import pytest

REGISTRY = "mirror.example.com/gpu"


def images_in(pods: list[dict[str, Any]]) -> set[str]:
    found = set()
    for spec in pods:
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            found.add(container["image"])
            found |= {e["value"] for e in container.get("env", []) if e["name"].endswith("_IMAGE") and e.get("value")}
    return found


@pytest.mark.rows("S47", "INS-12")
def test_the_list_equals_what_is_applied_and_run(facts):
    done = facts.stack({})
    assert not done["failed"], done["msg"]
    applied = [o["spec"]["template"]["spec"] for kind in ("DaemonSet", "Deployment") for o in facts.get(kind)]
    listed = {one["image"] for one in facts.run("stack_images")["found"]["images"]}
    assert listed == images_in(applied)
    assert images_in([pod["spec"] for pod in facts.get("Pod")]) <= listed


@pytest.mark.rows("S47")
def test_a_registry_reaches_every_object_of_a_run(facts):
    facts.empty()
    planned = facts.stack({}, check=True, image_registry=REGISTRY)
    assert not planned["failed"], planned["msg"]
    made = [a["after"] for a in planned["plan"] if a["target"].startswith(("DaemonSet", "Deployment"))]
    images = images_in([o["spec"]["template"]["spec"] for o in made])
    assert images
    assert all(image.startswith(f"{REGISTRY}/") for image in images), sorted(images)
